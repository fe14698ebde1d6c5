//! Several runs of one job side by side: who ran out first, how much each of them held over the same time, and who holds
//! most in each. Markup that needs no script, curves included.

use std::fmt::Write;

use weir_journal::Job;

use super::markup_free;
use crate::names::base_name;
use crate::report::{At, Options, Report};
use crate::survey::{Course, Survey};
use crate::words::{duration, several, size};
use crate::{Error, Fate, Run};

/// Points of the screen that a curve is drawn in; it is then stretched to the width that there is.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 40.0;

/// One of the runs.
struct Side {
    /// Its rank in the job, if its variables had one.
    rank: Option<u64>,
    pid: u32,
    report: Report,
    /// Most bytes live on the device, by nanoseconds since 1970.
    curve: Vec<(u64, u64)>,
    /// When the first request was refused.
    failed: Option<u64>,
    /// Memory of the device, or the cap if that is less.
    room: u64,
}

/// The rank of a process among those of its job, as the launchers and TensorFlow's cluster variable number them.
fn rank(job: &Job) -> Option<u64> {
    let value = |name: &str| {
        let found = job.variables.iter().find(|(variable, _)| variable == name)?;
        found.1.to_str()
    };
    let number = |name| value(name)?.trim().parse().ok();
    let cluster = || serde_json::from_str::<serde_json::Value>(value("TF_CONFIG")?).ok()?["task"]["index"].as_u64();
    ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"].into_iter().find_map(number).or_else(cluster)
}

impl Side {
    fn of(run: &Run, options: &Options) -> Result<Self, Error> {
        let options = Options { no_replay: true, holders: 1, measured: None, oom: None, ..options.clone() };
        let mut report = Report::of(run, &Options { at: At::Oom, ..options.clone() }, |_, _| ())?;
        if !report.is_oom() {
            report = Report::of(run, &Options { at: At::Peak, ..options }, |_, _| ())?;
        }
        let survey = Survey::of(run, None, |_, _| ())?;
        let started = run.header().started.realtime;
        let at = |seconds: f64| started.saturating_add((seconds * 1e9) as u64);
        let points = |course: &Course| {
            let most = course.most.iter().map(|bytes| (*bytes).max(0) as u64);
            survey.marks.iter().map(|mark| at(mark.seconds)).zip(most).collect()
        };
        let device = run.device(report.device);
        let room = [device.map_or(0, |device| device.total), report.cap].into_iter().filter(|bytes| *bytes > 0).min();
        Ok(Self {
            rank: run.reader().job().ok().flatten().as_ref().and_then(rank),
            pid: run.pid(),
            curve: survey.course(report.device).map_or_else(Vec::new, points),
            failed: report.is_oom().then(|| run.ooms().first().map_or(report.realtime_ns, |oom| oom.realtime_ns)),
            room: room.unwrap_or(0),
            report,
        })
    }

    fn name(&self) -> String {
        self.rank.map_or_else(|| format!("pid {}", self.pid), |rank| format!("rank {rank}"))
    }

    fn ending(&self) -> String {
        match (self.report.state, self.report.exit_status) {
            (Fate::Alive, _) => "runs".into(),
            (Fate::Ended, None | Some(0)) => "ended in order".into(),
            (Fate::Ended, Some(status)) => format!("ended with status {status}"),
            (Fate::Killed, _) => "killed or crashed".into(),
            (Fate::Unknown, _) => "state unknown".into(),
        }
    }
}

/// The time between two moments in words.
fn between(earlier: u64, later: u64) -> String {
    duration(later.saturating_sub(earlier) as f64 / 1e9)
}

/// The runs as a part of the page; `shown` is the path of the one that the rest of the page is about.
pub(super) fn markup(runs: &[Run], options: &Options, shown: &Run) -> Result<String, Error> {
    let mut sides = runs
        .iter()
        .map(|run| Ok((run.path() == shown.path(), Side::of(run, options)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    sides.sort_by_key(|(_, side)| side.rank.unwrap_or(u64::MAX));
    let moments = sides.iter().flat_map(|(_, side)| side.curve.iter().map(|(at, _)| *at).chain(side.failed));
    let (start, end) = moments.fold((u64::MAX, 0), |(start, end), at| (start.min(at), end.max(at)));
    let most = sides.iter().map(|(_, side)| side.room.max(side.report.peak)).max().unwrap_or(0).max(1);
    let place = |at: u64| at.saturating_sub(start) as f64 / end.saturating_sub(start).max(1) as f64 * WIDTH;
    let height = |bytes: u64| HEIGHT - bytes as f64 / most as f64 * (HEIGHT - 2.0);
    let mut page = String::from(
        "<section class=\"card ranks\" id=\"ranks\" aria-label=\"Runs side by side\"><h2>Side by side</h2>\n",
    );
    let _ = writeln!(page, "<p>{}</p>", markup_free(&summary(&sides)));
    page += "<div class=\"scroll\"><table><thead><tr><th class=\"words\">Run</th><th class=\"words curve\">Live memory, on one clock and one scale</th>\
             <th>Peak</th><th>of</th><th class=\"words\">What became of it</th><th class=\"words\">Cause</th><th class=\"words\">Holds most</th></tr></thead><tbody>\n";
    for (shown, side) in &sides {
        let mut path = String::new();
        let mut last = height(0);
        for (number, (at, bytes)) in side.curve.iter().enumerate() {
            // In steps: what was live stays so until it changes.
            let (x, y) = (place(*at), height(*bytes));
            let _ =
                if number == 0 { write!(path, "M{x:.1} {HEIGHT} V{y:.1}") } else { write!(path, " H{x:.1} V{y:.1}") };
            last = x;
        }
        let closed = if path.is_empty() { String::new() } else { format!("{path} H{last:.1} V{HEIGHT} Z") };
        let limit = height(side.room);
        let flag = side.failed.map_or_else(String::new, |at| {
            let x = place(at).clamp(1.0, WIDTH - 1.0);
            format!("<path class=\"failed\" d=\"M{x:.1} 0 V{HEIGHT}\"/>")
        });
        let what = side.failed.map_or_else(String::new, |at| format!("out of memory after {}, ", between(start, at)));
        let named = if *shown { format!("<b>{}</b><br>shown below", side.name()) } else { side.name() };
        let cause = side.failed.and(side.report.verdict()).map_or("", |finding| finding.cause.title());
        let holder = side.report.holders.first();
        let holder = holder
            .map_or_else(String::new, |one| format!("{} {} {}", size(one.bytes), one.label(), base_name(one.place())));
        let _ = writeln!(
            page,
            "<tr{}><td class=\"words\">{named}</td><td class=\"curve\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{}: peak {}\"><path class=\"live\" d=\"{closed}\"/><path class=\"limit\" d=\"M0 {limit:.1} H{WIDTH}\"/>{flag}</svg></td>\
             <td>{}</td><td>{}</td><td class=\"words\">{}{}</td><td class=\"words\">{}</td><td class=\"words\">{}</td></tr>",
            if *shown { " class=\"chosen\"" } else { "" },
            side.name(),
            size(side.report.peak),
            size(side.report.peak),
            if side.room > 0 { size(side.room) } else { "unknown".into() },
            markup_free(&what),
            markup_free(&side.ending()),
            markup_free(cause),
            markup_free(holder.trim()),
        );
    }
    page += "</tbody></table></div>\n<p class=\"note\">Dashed: the memory that a run could have. Red: where it ran out. For the page of another one, name it alone.</p></section>\n";
    Ok(page)
}

/// Who ran out first, who did not, and how unequal their peaks are.
fn summary(sides: &[(bool, Side)]) -> String {
    let mut failed: Vec<(u64, &Side)> = sides.iter().filter_map(|(_, side)| Some((side.failed?, side))).collect();
    failed.sort_by_key(|(at, _)| *at);
    let mut said = match failed.split_first() {
        None => format!("None of {} ran out of memory.", several(sides.len() as u64, "run")),
        Some(((_, first), [])) => format!("Only {} ran out of memory.", first.name()),
        Some(((at, first), later)) => {
            let later: Vec<String> =
                later.iter().map(|(then, side)| format!("{} {} after it", side.name(), between(*at, *then))).collect();
            format!("{} ran out of memory first; {}.", first.name(), later.join(", "))
        }
    };
    let by_peak = |(_, side): &&(bool, Side)| side.report.peak;
    if let (Some((_, most)), Some((_, least))) = (sides.iter().max_by_key(by_peak), sides.iter().min_by_key(by_peak))
        && most.pid != least.pid
    {
        let _ = write!(
            said,
            " The highest peak is that of {}, {}; the lowest that of {}, {}.",
            most.name(),
            size(most.report.peak),
            least.name(),
            size(least.report.peak)
        );
    }
    // A sentence begins with a capital letter.
    let mut letters = said.chars();
    letters.next().map_or_else(String::new, |letter| letter.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_what_the_launcher_calls_it() {
        let with = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            rank(&Job { variables, ..Job::default() })
        };
        assert_eq!(with(&[("LANG", "C"), ("SLURM_PROCID", "7")]), Some(7));
        assert_eq!(
            with(&[(
                "TF_CONFIG",
                r#"{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}"#
            )]),
            Some(1)
        );
        assert_eq!(with(&[("RANK", "0"), ("SLURM_PROCID", "7")]), Some(0));
        assert_eq!(with(&[("RANK", "first"), ("TF_CONFIG", "{")]), None);
        assert_eq!(with(&[]), None);
    }
}
