//! Figures as words, for the screen and for plain text.

use std::fmt::Write;

use weir_forensics::names::tail;

use crate::watch::{Gpu, Job, Life, Watch, clean, now};

pub(super) use weir_settings::size::human as size;

/// A change with its sign.
pub(super) fn change(bytes: i64) -> String {
    match bytes {
        0 => "0".into(),
        up if up > 0 => format!("+{}", size(up.unsigned_abs())),
        down => format!("-{}", size(down.unsigned_abs())),
    }
}

/// A time span: `12 s`, `3 min`, `2 h`, `5 d`.
pub(super) fn span(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{:.0} s", s.max(0.0)),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// Seconds for which a failure marks a job that goes on.
const OOM_MARK: f64 = 60.0;

/// How a job does, in one word.
pub(super) fn life(job: &Job) -> &'static str {
    let failed = job.last_oom.as_ref().is_some_and(|oom| now() - oom.at < OOM_MARK);
    match (job.life, failed, &job.turned_off) {
        (Life::Alive, _, Some(_)) => "off",
        (Life::Alive, _, None) if job.gpus.iter().any(|gpu| gpu.waits_for.is_some()) => "waits",
        (Life::Alive, true, None) => "OOM",
        (Life::Alive, false, None) => "runs",
        (Life::Unknown, ..) => "runs?",
        (Life::Ended, ..) => "ended",
        (Life::Killed, ..) => "killed",
    }
}

/// Growth, and when it ends at the limit.
pub(super) fn growth(gpu: &Gpu) -> String {
    match (gpu.growth, gpu.full_in) {
        (Some(rate), Some(left)) => format!("+{}/s, full in {}", size(rate as u64), span(left)),
        (Some(rate), None) => format!("+{}/s", size(rate as u64)),
        _ => "no steady growth".into(),
    }
}

/// The latest failure, in a line.
pub(super) fn oom(job: &Job) -> Option<String> {
    if job.ooms == 0 {
        return None;
    }
    let mut text = format!("{} out-of-memory failure{}", job.ooms, if job.ooms == 1 { "" } else { "s" });
    if let Some(oom) = &job.last_oom {
        let _ = write!(text, "; {} ago {} requested, cause: {}", span(now() - oom.at), size(oom.requested), oom.cause);
        if !oom.by.is_empty() {
            let _ = write!(text, ", {}", oom.by);
        }
    }
    Some(text)
}

/// Everything once, as text.
pub(super) fn page(jobs: &[Job], watch: &Watch) -> String {
    let mut text = String::new();
    if jobs.is_empty() {
        let _ = writeln!(
            text,
            "no job under weir lives; its journals would be in {}",
            clean(&watch.dir().to_string_lossy())
        );
    }
    for job in jobs {
        let group = job.group.as_ref().map(|group| format!("  group {group}")).unwrap_or_default();
        let _ = writeln!(text, "pid {}  {}{group}  {}", job.pid, life(job), tail(&job.command, 100));
        for gpu in &job.gpus {
            let cap = gpu.cap.map_or_else(|| "no cap".into(), |cap| format!("cap {}", size(cap)));
            let _ = writeln!(
                text,
                "  GPU {} {} of {}: {cap}, live {} in {} blocks, pool free {}, peak {}, {}",
                gpu.device,
                gpu.name,
                size(gpu.total),
                size(gpu.live),
                gpu.blocks,
                size(gpu.cached),
                size(gpu.peak),
                growth(gpu),
            );
            for holder in gpu.holders.iter().take(10) {
                let (bytes, name) = (size(holder.bytes), holder.name(70));
                let _ = writeln!(text, "    {bytes:>10} {:>7} {:>11}  {name}", holder.blocks, change(holder.change));
            }
        }
        if let Some(oom) = oom(job) {
            let _ = writeln!(text, "  {oom}\n  more: weir report {}", clean(&job.journal.to_string_lossy()));
        }
        if let Some(reason) = &job.turned_off {
            let _ = writeln!(text, "  weir has turned itself off: {reason}");
        }
    }
    for problem in watch.unreadable() {
        let _ = writeln!(text, "skipped: {problem}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_width() {
        assert_eq!(change(-(3 << 20)), "-3.0 MiB");
        assert_eq!(change(i64::MIN).chars().next(), Some('-'));
        assert_eq!(
            (span(-4.0), span(99.0), span(600.0), span(1e9)),
            ("0 s".into(), "99 s".into(), "10 min".into(), "11574 d".into())
        );
    }
}
