//! `weir report --html`: a journal as one self-contained page. No network, no framework: the page's own style and
//! script are in `page/`, and the events go along as packed columns that the browser unpacks into typed arrays.

mod commands;
mod facts;
mod lifetimes;
mod pack;
mod plain;
mod ranks;
mod verdict;

use std::io::{self, Write};

use weir_journal::reader;

use facts::{Facts, Holders};
use lifetimes::{Change, Lifetimes, MOST_ENTRIES};
use pack::Columns;

use crate::Run;
use crate::report::{At, Options, Report};
use crate::survey::Survey;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// The script's files, in the order in which they need each other.
const SCRIPT: [&str; 8] = [
    include_str!("page/format.js"),
    include_str!("page/journal.js"),
    include_str!("page/levels.js"),
    include_str!("page/timeline.js"),
    include_str!("page/address.js"),
    include_str!("page/flame.js"),
    include_str!("page/table.js"),
    include_str!("page/page.js"),
];

/// Rows that the table of holders has at first.
const ROWS: usize = 50;

/// Why a page could not be written.
#[derive(Debug)]
pub enum Error {
    /// The journal could not be read.
    Journal(reader::Error),
    /// The run could not be understood.
    Run(crate::Error),
    /// The page could not be written.
    Io(io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Journal(error) => write!(to, "the journal {error}"),
            Self::Run(error) => error.fmt(to),
            Self::Io(error) => write!(to, "the page cannot be written: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<reader::Error> for Error {
    fn from(error: reader::Error) -> Self {
        Self::Journal(error)
    }
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Self {
        Self::Run(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Which of several runs of a job its page is about: the one that ran out of memory first, else the first one.
pub fn first_to_fail(runs: &[Run]) -> Option<usize> {
    let failed = |run: &Run| run.ooms().first().map_or(u64::MAX, |oom| oom.realtime_ns);
    let key = |(_, run): &(usize, &Run)| (failed(run), !run.ran_out());
    runs.iter().enumerate().min_by_key(key).map(|(place, _)| place)
}

/// Writes the page of a run. It opens at the device and the moment that the options choose for a report; where nothing
/// failed and no moment is chosen, at the peak. Several `runs` of one job, that run among them, are put side by side above.
pub fn write(
    run: &Run,
    runs: &[Run],
    options: &Options,
    to: &mut dyn Write,
    mut progress: impl FnMut(u64, u64),
) -> Result<(), Error> {
    let mut report = Report::of(run, options, &mut progress)?;
    if !report.is_oom() && options.at == At::default() {
        report = Report::of(run, &Options { at: At::Peak, ..options.clone() }, &mut progress)?;
    }
    let lifetimes = Lifetimes::of(run.reader(), MOST_ENTRIES)?;
    let survey = Survey::of(run, None, &mut progress)?;
    let mut holders = Holders::new(run, &survey)?;
    let columns = columns(&lifetimes, &mut holders)?;
    let title = format!("weir: {}", run.command());
    let rows = if options.holders == 0 { ROWS } else { options.holders };
    let facts = Facts::of(run, &report, rows, &lifetimes, holders, columns.described())?;
    let plain = plain::markup(&facts.verdict);
    let ranks = if runs.len() > 1 { ranks::markup(runs, options, run)? } else { String::new() };
    let facts = serde_json::to_string(&facts).map_err(io::Error::other)?;
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        to.write_all(before.as_bytes())?;
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        match name {
            "command" => to.write_all(markup_free(&run.command()).as_bytes())?,
            "verdict" => to.write_all(plain.as_bytes())?,
            "ranks" => to.write_all(ranks.as_bytes())?,
            "compiled" => to.write_all(plain::compiled(&report.compiled).as_bytes())?,
            "title" => to.write_all(markup_free(&title).as_bytes())?,
            "style" => to.write_all(STYLE.as_bytes())?,
            "facts" => to.write_all(script_free(&facts).as_bytes())?,
            "columns" => columns.write(to)?,
            "script" => SCRIPT.iter().try_for_each(|file| to.write_all(file.as_bytes()))?,
            _ => return Err(io::Error::other(format!("the page refers to '{name}'")).into()),
        }
        rest = after;
    }
    to.write_all(rest.as_bytes())?;
    Ok(to.flush()?)
}

fn columns(lifetimes: &Lifetimes, holders: &mut Holders<'_>) -> Result<Columns, Error> {
    let Lifetimes { entries, blocks, host, past, .. } = lifetimes;
    let mut columns = Columns::default();
    columns.delta("entry.time", entries.iter().map(|entry| entry.time));
    columns.delta("entry.seq", entries.iter().map(|entry| entry.seq));
    // 0 changes nothing, 1 is the birth of the next block, 2 the end of the youngest one, 3 of the one before it …
    let mut next = lifetimes.before;
    columns.plain(
        "entry.change",
        entries.iter().map(|entry| match entry.change {
            Change::Mark => 0,
            Change::Birth => {
                next += 1;
                1
            }
            Change::End(block) => (next - block) as u64 + 1,
        }),
    );
    columns.delta("block.address", blocks.iter().map(|block| block.address & ((1 << 52) - 1)));
    columns.plain("block.allocated", blocks.iter().map(|block| block.allocated));
    columns.plain("block.slack", blocks.iter().map(|block| block.allocated.saturating_sub(block.requested)));
    let mut numbers = Vec::with_capacity(blocks.len());
    for block in blocks {
        numbers.push(u64::from(holders.number(block.owner)?));
    }
    columns.plain("block.holder", numbers.into_iter());
    columns.delta("host.time", host.iter().map(|sample| sample.time));
    columns.delta("host.resident", host.iter().map(|sample| sample.resident));
    columns.delta("host.pinned", host.iter().map(|sample| sample.pinned));
    columns.plain("past.device", past.iter().map(|past| u64::from(past.device)));
    columns.delta("past.time", past.iter().map(|past| past.time));
    columns.delta("past.bytes", past.iter().map(|past| past.bytes));
    Ok(columns)
}

/// Text that means itself between tags.
fn markup_free(text: &str) -> String {
    weir_journal::text::plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// JSON that cannot end the element it stands in: `<` occurs only inside strings, where it may be written as a number.
fn script_free(json: &str) -> String {
    weir_journal::text::json(json).replace('<', "\\u003c")
}
