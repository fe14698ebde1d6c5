//! `weir diff`: two runs, what grew.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use weir_forensics::diff::{Change, Diff, Moment, diff};
use weir_forensics::{runs, words};
use weir_journal::text::plain;

use crate::output;
use crate::progress::Progress;
use crate::screen::{self, RunsDir};

/// Arguments of `weir diff`.
#[derive(Args)]
#[command(after_long_help = "\
Each run is summed up when it held most, and at its end. A role is what memory is for, by its class and TensorFlow's
names.

Examples:
  weir diff 4711 4815
  weir diff yesterday.weirrec today.weirrec --json")]
pub(crate) struct Arguments {
    /// The first run: a file, a process id, or a name as `weir list` shows it
    #[arg(value_name = "A")]
    before: OsString,
    /// The second run
    #[arg(value_name = "B")]
    after: OsString,
    #[command(flatten)]
    place: RunsDir,
    /// Device, by its number in the journals
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: u8,
    /// Rows of each table
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    top: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `weir diff`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("diff", answer(arguments))
}

fn answer(arguments: &Arguments) -> Result<ExitCode, String> {
    let folder = || arguments.place.folder();
    let open = |name: &OsStr| runs::find(Some(name), folder).map_err(|error| error.to_string());
    let (before, after) = (open(&arguments.before)?, open(&arguments.after)?);
    let mut progress = Progress::new("comparing");
    let found = diff(&before, &after, arguments.device, &mut |done, all| progress.at(done, all));
    drop(progress);
    let found = found.map_err(|error| error.to_string())?;
    if arguments.json {
        output::json(&found, false);
    } else {
        put!("{}", as_text(&found, (&before.name(), &after.name()), arguments.top));
    }
    Ok(ExitCode::SUCCESS)
}

fn as_text(diff: &Diff, names: (&str, &str), top: usize) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "A  {}  {}", plain(names.0), plain(&diff.commands.0));
    let _ = writeln!(text, "B  {}  {}", plain(names.1), plain(&diff.commands.1));
    if diff.lost.0 + diff.lost.1 > 0 {
        let _ = writeln!(text, "events are missing: {} in A, {} in B", diff.lost.0, diff.lost.1);
    }
    for (title, moment) in [("at the peak", &diff.peak), ("at the end", &diff.end)] {
        let _ = writeln!(
            text,
            "\n{:<52} {:>12} {:>12} {:>13}",
            format!("Device {} {title}", diff.device),
            "A",
            "B",
            "change"
        );
        let Moment { total: (before, after), by_role, by_op, by_line } = moment;
        row(&mut text, &Change { name: "all".into(), before: *before, after: *after });
        for (title, changes) in [("by role", by_role), ("by operation", by_op), ("by line", by_line)] {
            let changed: Vec<&Change> = changes.iter().filter(|change| change.before != change.after).collect();
            let _ = writeln!(text, " {title}{}", if changed.is_empty() { ": the same" } else { "" });
            changed.iter().take(top).for_each(|change| row(&mut text, change));
            if changed.len() > top {
                let _ = writeln!(text, "   … and {} more; --top shows them", changed.len() - top);
            }
        }
    }
    let changed: Vec<&Change> = diff.compiled.iter().filter(|change| change.before != change.after).collect();
    if !diff.compiled.is_empty() {
        let same = if changed.is_empty() { ": the same" } else { "" };
        let _ = writeln!(text, "\nInside the largest arena of code that XLA compiled{same}");
        changed.iter().take(top).for_each(|change| row(&mut text, change));
    }
    text
}

fn row(text: &mut String, change: &Change) {
    let blocks = change.after.blocks as i64 - change.before.blocks as i64;
    let blocks = if blocks == 0 { String::new() } else { format!("  {blocks:+} blocks") };
    let _ = writeln!(
        text,
        "   {:<49} {:>12} {:>12} {:>13}{blocks}",
        weir_forensics::names::tail(&change.name, 49),
        words::size(change.before.bytes),
        words::size(change.after.bytes),
        words::change(change.bytes()),
    );
}
