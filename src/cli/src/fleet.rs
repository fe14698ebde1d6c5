//! `weir fleet`: what a month of a lake's runs says. `weir-fleet`, a program beside this one, has the crates for Parquet and
//! object stores; this file finds and starts it, for `weir ship` and `weir metrics --otlp`, too.

use crate::screen;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

/// Arguments of `weir fleet`.
#[derive(clap::Args)]
#[command(
    after_long_help = "GPU-hours lost are those of runs that ran out of memory and did not end well. A lower cap is shown for jobs whose runs
all went well below it. docs/reference/lake.md has the columns, and queries for DuckDB and Spark.

Examples:
  weir fleet /shared/lake                             the newest month
  weir fleet s3://bucket/lake --month 2026-10 --html october.html
  weir fleet /shared/lake --month all --json | jq '.causes'
  weir fleet /shared/lake --merge                     once a night: one file for each day that is over"
)]
pub(crate) struct Arguments {
    /// The lake that `weir ship` appends to: a folder, or s3://BUCKET/PREFIX
    #[arg(value_name = "LAKE")]
    lake: String,
    /// Which month, or all; default: the newest that there is
    #[arg(long, value_name = "YYYY-MM")]
    month: Option<String>,
    /// Write a self-contained HTML page instead of text; - is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Make one file of the many of each day before today (UTC), and print what was done as JSON
    #[arg(long, conflicts_with_all = ["month", "html", "json"])]
    merge: bool,
}

/// Runs `weir fleet`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("fleet", answer(arguments).map(|()| ExitCode::SUCCESS))
}

fn answer(arguments: &Arguments) -> Result<(), String> {
    let mut words: Vec<&OsStr> = Vec::new();
    let today = jiff::Timestamp::now().strftime("%F").to_string();
    if arguments.merge {
        words.extend([OsStr::new("merge"), arguments.lake.as_ref(), today.as_ref()]);
    } else {
        words.extend([OsStr::new("month"), arguments.lake.as_ref()]);
        if let Some(month) = &arguments.month {
            words.extend([OsStr::new("--month"), month.as_ref()]);
        }
        if let Some(file) = &arguments.html {
            words.extend([OsStr::new("--html"), file.as_ref()]);
        }
        words.extend(arguments.json.then_some(OsStr::new("--json")));
    }
    // What it prints is safe for a terminal: names come from jobs.
    let mut child = command()?
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    end(&mut child)
}

/// The program beside this one.
pub(crate) fn command() -> Result<Command, String> {
    let own = std::env::current_exe().map_err(|error| format!("cannot find the path of this command: {error}"))?;
    let program = own.with_file_name("weir-fleet");
    if !program.exists() {
        return Err(
            "no weir-fleet beside weir, which has the crates for lakes and OpenTelemetry; reinstall, or build it \
                    with scripts/build --fleet"
                .into(),
        );
    }
    Ok(Command::new(program))
}

/// Waits for its end; what it complained of.
fn end(child: &mut Child) -> Result<(), String> {
    let mut said = String::new();
    if let Some(mut from) = child.stderr.take() {
        let _ = from.by_ref().take(64 << 10).read_to_string(&mut said);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    Err(if said.trim().is_empty() { format!("weir-fleet ended with {status}") } else { said.trim().to_owned() })
}

/// The program at work: lines of JSON to it, and lines from it.
pub(crate) struct Helper {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts it.
    pub(crate) fn start(words: &[&str], complains_by_itself: bool) -> Result<Self, String> {
        screen::stay_when_a_reader_has_gone();
        let errors = if complains_by_itself { Stdio::inherit() } else { Stdio::piped() };
        let mut command = command()?;
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(|error| format!("weir-fleet: {error}"))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = BufReader::new(from.ok_or("weir-fleet has no standard output")?);
        Ok(Self { child, to, from })
    }

    /// Sends a line.
    pub(crate) fn say(&mut self, line: &Value) -> Result<(), String> {
        let text = line.to_string() + "\n";
        let sent = self.to.as_mut().map(|to| to.write_all(text.as_bytes()).and_then(|()| to.flush()));
        match sent {
            Some(Ok(())) => Ok(()),
            // What it says of its end is the reason.
            _ => Err(self.ended()),
        }
    }

    /// Sends a line, and waits for the answer.
    pub(crate) fn ask(&mut self, line: &Value) -> Result<Value, String> {
        self.say(line)?;
        let mut answer = String::new();
        match self.from.read_line(&mut answer) {
            Ok(1..) => serde_json::from_str(&answer).map_err(|error| format!("weir-fleet: {error}")),
            _ => Err(self.ended()),
        }
    }

    fn ended(&mut self) -> String {
        self.to = None;
        end(&mut self.child).err().unwrap_or_else(|| "weir-fleet ended".into())
    }

    /// Ends it when it has done all.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        self.to = None;
        end(&mut self.child)
    }
}
