//! `weir diff`: two runs, what grew.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use weir_forensics::diff::{Change, Diff, Moment, diff};
use weir_forensics::{runs, words};
use weir_journal::text::plain;
use weir_settings::size::{Amount, parse_amount};

use crate::checks::{self, Check};
use crate::progress::Progress;
use crate::screen::{self, RunsDir};
use crate::{completions, output};

/// Arguments of `weir diff`.
#[derive(Args)]
#[command(after_long_help = "\
Each run is summed up when it held most, and at its end. A role is what memory is for, by its class and TensorFlow's
names.

Examples:
  weir diff 4711 4815
  weir diff yesterday.weirrec today.weirrec --json
  weir diff main.weirrec branch.weirrec --fail-above 5%       for a CI: exit code 3 if the peak rose by more
  weir diff main.weirrec branch.weirrec --markdown            for a comment on a pull request")]
pub(crate) struct Arguments {
    /// The first run: a file, a process id, or a name as `weir list` shows it
    #[arg(value_name = "A", add = completions::of_runs())]
    before: OsString,
    /// The second run
    #[arg(value_name = "B", add = completions::of_runs())]
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
    /// Print Markdown instead of text
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Also write a JUnit file: a case for the check
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Exit with code 3 if the peak of B is higher than that of A by more than this: 5% of A's, or 100MiB
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    fail_above: Option<Amount>,
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
    let names = (before.name(), after.name());
    let text = as_text(&found, (&names.0, &names.1), arguments.top);
    let checks: Vec<Check> = arguments.fail_above.map(|most| risen(&found, most)).into_iter().collect();
    if arguments.json {
        output::json(&found, false);
    } else if arguments.markdown {
        output::exact(&as_markdown(&found, &checks, &text));
    } else {
        put!("{text}");
    }
    if let Some(file) = &arguments.junit {
        let figures = [("gpu_peak_before", found.peak.total.0.bytes), ("gpu_peak", found.peak.total.1.bytes)];
        checks::junit(file, &found.commands.1, &checks, &figures, &text)?;
    }
    Ok(checks::outcome("diff", checks.iter()))
}

fn amount(text: &str) -> Result<Amount, String> {
    parse_amount(text).map_err(|error| error.to_string())
}

/// Whether the peak rose by more than this.
fn risen(diff: &Diff, most: Amount) -> Check {
    let (before, after) = (diff.peak.total.0.bytes, diff.peak.total.1.bytes);
    let allowed = before.saturating_add(most.of(before));
    let failure = (after > allowed).then(|| {
        let (rise, before) = (words::change(after as i64 - before as i64), words::size(before));
        format!("the peak rose by {rise} from {before} to {}, more than {most}{}", words::size(after), lost(diff))
    });
    // Nothing is compared where nothing was recorded.
    let nothing = (before == 0).then(|| format!("A held nothing on device {}: nothing was compared", diff.device));
    Check { name: format!("the peak is at most {most} higher"), failure: nothing.or(failure) }
}

fn lost(diff: &Diff) -> String {
    let (before, after) = diff.lost;
    if before + after == 0 { String::new() } else { format!(" (events are missing: {before} in A, {after} in B)") }
}

fn as_markdown(diff: &Diff, checks: &[Check], text: &str) -> String {
    let mut out = format!("### GPU memory of {}\n\n", checks::code(&diff.commands.1));
    let _ = writeln!(out, "| device {} | before | after | change |\n|---|---:|---:|---:|", diff.device);
    let mut row = |name: &str, before: u64, after: u64| {
        let change = after as i64 - before as i64;
        let share =
            if before == 0 { String::new() } else { format!(" ({:+.1} %)", change as f64 * 100.0 / before as f64) };
        let (before, after) = (words::size(before), words::size(after));
        let _ = writeln!(out, "| {name} | {before} | {after} | {}{share} |", words::change(change));
    };
    row("**peak**", diff.peak.total.0.bytes, diff.peak.total.1.bytes);
    for change in diff.peak.by_line.iter().filter(|change| change.before != change.after).take(5) {
        row(&checks::code(&change.name), change.before.bytes, change.after.bytes);
    }
    row("**at the end**", diff.end.total.0.bytes, diff.end.total.1.bytes);
    out.push('\n');
    out + &checks::markdown(checks, "All changes", text)
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
