//! `weir rm`: removes runs. Never one whose job lives.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use weir_forensics::{Run, runs, words};
use weir_journal::{Keep, Removed, clear_up, folders_instead_of, remove, text::plain};

use crate::screen::{self, RunsDir};
use crate::{completions, output};

/// Arguments of `weir rm`.
#[derive(Args)]
#[command(
    after_long_help = "Removes journals and recordings, with the files beside them. Refuses the run of a job that is still running.

Examples:
  weir rm 4711                  the run of this process
  weir rm 1763500000-4711 run.weirrec
  weir rm --keep 5              all but the newest five that ended, and five that ran out of memory
  weir rm --keep 0              every run that ended"
)]
pub(crate) struct Arguments {
    /// Files, process ids, or names of runs as `weir list` shows them
    #[arg(value_name = "RUN", add = completions::of_runs(), required_unless_present = "keep", conflicts_with = "keep")]
    runs: Vec<OsString>,
    /// Keep the newest, as WEIR_KEEP does, and remove all others: 5 (runs), 4GiB (bytes), or both
    #[arg(long, value_name = "COUNT|SIZE", value_parser = keep)]
    keep: Option<Keep>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: RunsDir,
}

fn keep(text: &str) -> Result<Keep, String> {
    Keep::parse(text).map_err(|error| error.to_string())
}

/// Runs `weir rm`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("rm", answer(arguments))
}

fn answer(arguments: &Arguments) -> Result<ExitCode, String> {
    let (mut removed, mut refused) = (Removed::default(), Vec::new());
    if let Some(keep) = arguments.keep {
        let dir = arguments.place.folder().map_err(|error| error.to_string())?;
        let folders = std::iter::once(dir.clone()).chain(folders_instead_of(&dir));
        for dir in folders.filter(|dir| dir.exists()) {
            match clear_up(&dir, keep) {
                Ok(found) => removed = sum(removed, found),
                Err(error) => refused.push(format!("{}: {error}", dir.display())),
            }
        }
    }
    for name in &arguments.runs {
        let path = runs::path_of(name, || arguments.place.folder()).map_err(|error| error.to_string());
        let path = path.and_then(|path| named_whole(&path, name).map(|()| path));
        let done = path.and_then(|path| remove(&path).map_err(|error| format!("{}: {error}", path.display())));
        match done {
            Ok(found) => removed = sum(removed, found),
            Err(why) => refused.push(why),
        }
    }
    if arguments.json {
        output::json(&json!({"removed": removed.count, "bytes": removed.bytes, "refused": refused}), true);
    } else if removed.count > 0 || refused.is_empty() {
        putln!("{} removed, {}", words::several(removed.count, "run"), words::size(removed.bytes));
    }
    for why in &refused {
        eprintln!("weir rm: {}", plain(why));
    }
    Ok(if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Elsewhere the beginning of a name is enough. What is removed is named whole: 17 may be a process that is long gone, and
/// the beginning of every name.
fn named_whole(path: &Path, name: &OsStr) -> Result<(), String> {
    let pid = || name.to_str()?.parse().ok();
    let is_it = path == Path::new(name)
        || [path.file_stem(), path.file_name()].contains(&Some(name))
        || pid().is_some_and(|pid: u32| Run::open(path).is_ok_and(|run| run.pid() == pid));
    if is_it { Ok(()) } else { Err(format!("{}: say the whole name, {}", name.display(), path.display())) }
}

fn sum(one: Removed, other: Removed) -> Removed {
    Removed { count: one.count + other.count, bytes: one.bytes + other.bytes }
}
