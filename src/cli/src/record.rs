//! `weir record`: drains the journal of a run into a growing file that keeps every event.

use crate::screen::{self, Which};
use crate::{output as printed, signals, tail};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_forensics::words;
use weir_journal::reader::Reader;
use weir_journal::reader::record::Recorder;

/// How often the journal is looked at: a ring of a million events lasts longer than this at any speed.
const EVERY: Duration = Duration::from_millis(20);
/// How often everything but the events is written again.
const CHECKPOINT: Duration = Duration::from_secs(5);
/// How often the progress is shown on a terminal.
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `weir record`.
#[derive(clap::Args)]
#[command(after_long_help = "A journal keeps the last events and forgets the oldest; a recording keeps them all, \
compressed, and every command reads it like a journal. It ends when the job ends, or at Ctrl-C.

Examples:
  weir record                          the newest running job, into RUN.weirrec
  weir record 4711 -o /data/run.weirrec
  weir report /data/run.weirrec")]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// The output file; default: RUN.weirrec in this directory
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Print JSON at the end instead of text
    #[arg(long)]
    json: bool,
}

/// Runs `weir record`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("record", answer(arguments))
}

fn answer(arguments: &Arguments) -> Result<ExitCode, String> {
    let run = arguments.which.open_living().map_err(|error| error.to_string())?;
    let path = run.path().to_owned();
    let reader = Reader::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if reader.is_recording() {
        return Err(format!("{}: already a recording; copy the file instead", path.display()));
    }
    let output = arguments.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.weirrec", run.name())));
    let mut options = OpenOptions::new();
    options.write(true).create(true).create_new(!arguments.force).truncate(arguments.force);
    let file = options.open(&output).map_err(|error| {
        let remedy = if error.kind() == std::io::ErrorKind::AlreadyExists { "; --force replaces it" } else { "" };
        format!("{}: {error}{remedy}", output.display())
    })?;
    signals::end_on_request();
    let problem = |error: &dyn std::fmt::Display| format!("{}: {error}", output.display());
    let mut recorder = Recorder::new(reader, file).map_err(|error| problem(&error))?;
    let (mut written, mut shown) = (Instant::now(), Instant::now());
    loop {
        let over = !tail::lives(&path) || signals::end_requested();
        let new = recorder.poll(over).map_err(|error| problem(&error))?;
        if over && new == 0 || signals::end_requested() {
            break;
        }
        if written.elapsed() > CHECKPOINT {
            recorder.checkpoint().map_err(|error| problem(&error))?;
            written = Instant::now();
        }
        if shown.elapsed() > SHOW_EVERY && std::io::stderr().is_terminal() {
            eprint!("\r{} events, {} missed ", words::count(recorder.totals().0), words::count(recorder.totals().1));
            shown = Instant::now();
        }
        if !over {
            std::thread::sleep(EVERY);
        }
    }
    recorder.checkpoint().map_err(|error| problem(&error))?;
    let (events, missed) = recorder.totals();
    let bytes = std::fs::metadata(&output).map_or(0, |meta| meta.len());
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    if arguments.json {
        let summary = json!({"file": output.to_string_lossy(), "events": events, "missed": missed, "bytes": bytes});
        printed::json(&summary, true);
    } else {
        putln!(
            "{}: {} events, {} missed, {}; next: weir report {}",
            output.display(),
            words::count(events),
            words::count(missed),
            words::size(bytes),
            output.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}
