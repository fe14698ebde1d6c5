//! A run as a row of the lake: the fields of `src/fleet/src/row.rs`, which refuses others. Reads the run and what lies
//! beside the modules that it had loaded.

use std::path::Path;

use serde_json::{Map, Value, json};
use weir_forensics::names::base_name;
use weir_forensics::ranks::{self, Member};
use weir_forensics::report::{At, Options, Report};
use weir_forensics::{Fate, Run, runs};
use weir_journal::reader::Device;
use weir_settings::limit::uuid_text;

use crate::{gather, watch};

/// The id of a run, which no other run has: when it began, its process, and the machine's boot.
pub(crate) fn id(run: &Run) -> String {
    let header = run.header();
    let [a, b, c, d, ..] = header.identity.boot;
    format!("{:016x}-{}-{a:02x}{b:02x}{c:02x}{d:02x}", header.started.realtime, run.pid())
}

/// The day on which a run began, in UTC: `2026-11-19`.
pub(crate) fn day(run: &Run) -> String {
    weir_forensics::words::calendar(run.header().started.realtime, 0).strftime("%F").to_string()
}

/// The row. `host` is what to call the machine if the run does not say; `replay` checks what is advised.
pub(crate) fn of(run: &Run, host: Option<&str>, replay: bool) -> Result<Value, String> {
    let at = if run.ran_out() { At::Oom } else { At::End };
    let options = Options { at, holders: 1, no_replay: !replay, ..Options::default() };
    let report = Report::of(run, &options, |_, _| {}).map_err(|error| error.to_string())?;
    let member = Member::of(run).map_err(|error| error.to_string())?;
    let job = run.reader().job().ok().flatten().unwrap_or_default();
    let variable = |name: &str| {
        let value = job.variable(name).map(|value| value.to_string_lossy().into_owned());
        value.filter(|value| !value.is_empty())
    };
    let micros = |nanos: u64| (nanos / 1000) as i64;
    let started = run.header().started.realtime;
    let ended = ranks::seen(run).max(report.realtime_ns).max(started);
    let node = variable("SLURMD_NODENAME").or_else(|| host.map(str::to_owned));
    let here = || if runs::is_of_this_boot(run) { gather::machine() } else { member.host.clone() };
    let device = run.device(report.device).filter(|_| run.devices().next().is_some());
    let held =
        |device: &&Device| device.usage.iter().any(|(class, _, peak)| weir_forensics::is_held(*class) && *peak > 0);
    let request = report.request.as_ref();
    let finding = report.verdict().filter(|_| report.is_oom());
    let remedy = report.remedies.first().filter(|_| report.is_oom());
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let row = json!({
        "run": id(run),
        "started": micros(started),
        "ended": micros(ended),
        "seconds": (ended - started) as f64 / 1e9,
        "host": node.unwrap_or_else(here),
        "user": watch::user_name(run.header().identity.user),
        "job": member.job,
        "step": member.step,
        "name": variable("SLURM_JOB_NAME").or_else(|| program(run)),
        "partition": variable("SLURM_JOB_PARTITION"),
        "task": member.rank,
        "tasks": member.ranks,
        "pod": variable("WEIR_POD"),
        "cap_group": member.group,
        "command": text(&report.command),
        "framework": framework(run),
        "outcome": outcome(run),
        "exit_status": run.exit_status(),
        "ooms": report.oom.max(u64::from(report.only_tried())),
        "cause": finding.map(|finding| json!(finding.cause)),
        "evidence": finding.map(|finding| finding.evidence.clone()),
        "line": request.and_then(|request| text(base_name(&request.python))),
        "file": request.and_then(|request| text(request.python.rsplit_once(':').map_or("", |(file, _)| file))),
        "function": request.and_then(|request| text(&request.function)),
        "op": request.and_then(|request| text(&request.op).or_else(|| text(&request.library))),
        "requested": request.map(|request| request.bytes),
        "gpu": device.and_then(|device| text(&device.name)),
        "gpu_uuid": device.map(|device| uuid_text(device.uuid)),
        "gpus": run.devices().filter(held).count(),
        "gpu_memory": device.map(|device| device.total).filter(|total| *total > 0),
        "cap": Some(report.cap).filter(|cap| *cap > 0),
        "peak": report.peak,
        "remedy": remedy.map(|remedy| remedy.text.clone()),
        "remedy_check": remedy.map(|remedy| json!(remedy.check)),
        "events": run.header().counters.events,
        "weir": env!("CARGO_PKG_VERSION"),
    });
    let Value::Object(row) = row else { return Ok(row) };
    Ok(row.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>().into())
}

/// How the run ended; none while it runs.
fn outcome(run: &Run) -> Option<&'static str> {
    match (run.ran_out(), run.fate(), run.exit_status()) {
        (_, Fate::Alive | Fate::Unknown, _) => None,
        (true, Fate::Ended, Some(0)) => Some("recovered"),
        (true, ..) => Some("oom"),
        (false, Fate::Killed, _) => Some("killed"),
        (false, Fate::Ended, Some(0)) => Some("ok"),
        (false, Fate::Ended, Some(_)) => Some("failed"),
        (false, Fate::Ended, None) => Some("ended"),
    }
}

/// The program: the script of an interpreter.
fn program(run: &Run) -> Option<String> {
    let command = run.command();
    command.split(' ').next().filter(|word| !word.is_empty()).map(str::to_owned)
}

/// The framework whose libraries the run had loaded, with the version that lies beside them on this machine.
fn framework(run: &Run) -> Option<String> {
    let modules = run.reader().modules().ok()?;
    let known = [
        ("/tensorflow/", "tensorflow", &["tensorflow", "tensorflow_cpu"][..]),
        ("/torch/lib/", "pytorch", &["torch"][..]),
        ("/jaxlib/", "jax", &["jax", "jaxlib"][..]),
    ];
    let (place, name, packages) = known.into_iter().find_map(|(part, name, packages)| {
        let found = modules.iter().find_map(|module| Some(module.path.split_once(part)?.0.to_owned()));
        found.map(|place| (place, name, packages))
    })?;
    let entries = std::fs::read_dir(Path::new(&place)).into_iter().flatten().flatten();
    let version = entries.filter_map(|entry| {
        let entry = entry.file_name().into_string().ok()?;
        let (package, version) = entry.strip_suffix(".dist-info")?.split_once('-')?;
        packages.contains(&package).then(|| version.to_owned())
    });
    Some(version.min().map_or(name.to_owned(), |version| format!("{name} {version}")))
}
