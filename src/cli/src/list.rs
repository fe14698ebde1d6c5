//! `weir list`: the runs of a directory, one line each.

use crate::output;
use crate::screen::{self, RunsDir};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use weir_forensics::{Fate, Run, names, runs, words};
use weir_journal::text;

/// Arguments of `weir list`.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  weir list                     the runs in WEIR_DIR, newest first
  weir list --oom               only those that ran out of memory
  weir list --json | jq '.[0].run'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: RunsDir,
    /// Show only runs that ran out of memory
    #[arg(long)]
    oom: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `weir list`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("list", answer(arguments))
}

fn answer(arguments: &Arguments) -> Result<ExitCode, String> {
    let dir = arguments.place.folder().map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    for path in runs::files(&dir).map_err(|error| error.to_string())? {
        match Run::open(&path) {
            Ok(run) if arguments.oom && !run.ran_out() => {}
            Ok(run) => rows.push(described(&run)),
            Err(error) if !arguments.oom => rows.push(unreadable(&path, &error.problem)),
            Err(_) => {}
        }
    }
    if arguments.json {
        output::json(&rows, true);
    } else if rows.is_empty() {
        putln!("no runs in {}; start a job with: weir run -- COMMAND", dir.display());
    } else {
        put!("{}", table(&rows, if std::io::stdout().is_terminal() { screen::width() } else { 500 }));
    }
    Ok(ExitCode::SUCCESS)
}

fn described(run: &Run) -> Value {
    let header = run.header();
    let peak = |device: &weir_journal::reader::Device| -> u64 {
        device.usage.iter().filter(|(class, _, _)| weir_forensics::is_held(*class)).map(|(_, _, peak)| peak).sum()
    };
    let devices: Vec<Value> = run
        .devices()
        .map(|device| {
            json!({"device": device.number, "name": device.name, "total": device.total, "cap": device.cap, "peak_at_most": peak(device)})
        })
        .collect();
    json!({
        "run": run.name(),
        "path": run.path().to_string_lossy(),
        "pid": run.pid(),
        "command": run.command(),
        "state": run.fate().word(),
        "oom": run.oom_count(),
        "started": screen::local_time(header.started.realtime),
        "started_ns": header.started.realtime,
        "events": header.counters.events,
        "peak_at_most": run.devices().map(peak).max().unwrap_or(0),
        "cap": run.devices().map(|device| device.cap).max().unwrap_or(0),
        "devices": devices,
    })
}

fn unreadable(path: &Path, problem: &str) -> Value {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    json!({"run": name, "path": path.to_string_lossy(), "state": "unreadable", "problem": problem})
}

fn table(rows: &[Value], width: usize) -> String {
    use std::fmt::Write as _;
    let field = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let bytes = |row: &Value, key: &str| row[key].as_u64().filter(|bytes| *bytes > 0).map_or("-".into(), words::size);
    let longest = rows.iter().map(|row| field(row, "run").chars().count()).max().unwrap_or(0).clamp(8, 24);
    let mut out =
        format!("{:<longest$}  {:<11}  {:<10} {:>10} {:>10}  COMMAND\n", "RUN", "STARTED", "STATE", "PEAK", "CAP");
    let room = width.saturating_sub(longest + 2 + 11 + 2 + 10 + 1 + 10 + 1 + 10 + 2).max(12);
    for row in rows {
        let state = match row["oom"].as_u64() {
            Some(1..) if row["state"] == Fate::Alive.word() => "alive, OOM".into(),
            Some(1..) => "OOM".into(),
            _ => field(row, "state"),
        };
        let what = if row["problem"].is_null() { field(row, "command") } else { field(row, "problem") };
        let what: String = text::plain(&what).chars().take(room).collect();
        let _ = writeln!(
            out,
            "{:<longest$}  {:<11}  {state:<10} {:>10} {:>10}  {what}",
            names::tail(&field(row, "run"), longest),
            field(row, "started").get(5..16).unwrap_or_default(),
            bytes(row, "peak_at_most"),
            bytes(row, "cap"),
        );
    }
    out
}
