//! What a process under `weir run` leaves behind, so that the command knows at the end who came under weir and with which
//! cap: one small JSON file in each folder of WEIR_RUN, made in cuInit, and another if weir turns itself off later. A
//! process that uses no CUDA leaves nothing; a folder that is gone is not made again.

use crate::cap;
use crate::process::config::Config;
use crate::process::{choices, job, note, surroundings};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use serde_json::json;

/// The process that has reported itself.
static REPORTED: AtomicU32 = AtomicU32::new(0);
/// When it did so first: process ids mean little where there are several namespaces of them.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// How many choices it has reported.
static REPORTED_CHOICES: AtomicUsize = AtomicUsize::new(0);

/// Reports this process, once, and again where weir has chosen since; a fork counts as another one.
pub(crate) fn first() {
    let more = REPORTED_CHOICES.load(Ordering::Acquire) != choices::all().count();
    if more || REPORTED.load(Ordering::Acquire) != std::process::id() {
        report();
    }
}

/// The cap that this process was given, as it is written.
fn cap_setting(config: &Config) -> Option<&str> {
    let shown = config.shown.iter().find(|shown| shown.variable == "WEIR_CAP");
    shown.map(|shown| shown.value.as_str()).filter(|cap| !cap.is_empty())
}

/// Reports how things stand with this process.
pub(crate) fn report() {
    let Some(job) = job::get().filter(|job| !job.config.runs.is_empty()) else { return };
    let _kept = surroundings::Errno::keep();
    let (state, why) = match (job::refused(), job::off(), job.config.lost().or_else(cap::lost)) {
        (Some(why), ..) => ("refused", Some(why.to_owned())),
        (_, Some(why), _) => ("off", Some(why.to_owned())),
        (.., Some(why)) => ("without", Some(why)),
        _ => ("on", None),
    };
    REPORTED_CHOICES.store(choices::all().count(), Ordering::Release);
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let own = std::process::id();
    if REPORTED.swap(own, Ordering::AcqRel) != own {
        FIRST.store(time, Ordering::Release);
    }
    let text = json!({
        "pid": own,
        "id": format!("{own}-{}", FIRST.load(Ordering::Acquire)),
        "time": time,
        "program": std::fs::read_link("/proc/self/exe").unwrap_or_default().to_string_lossy(),
        "state": state,
        "why": why,
        "group": job.config.caps.group,
        "cap": cap_setting(&job.config),
        "devices": cap::view::terms(),
        "unseen": cap::unseen(),
        "choices": choices::json(),
    });
    let (name, text) = (format!("{own}-{time}.json"), format!("{text}\n"));
    for folder in &job.config.runs {
        note::place(folder, &name, text.as_bytes());
    }
}
