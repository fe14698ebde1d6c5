//! Recordings in the formats of other tools. Every writer streams: events are read once or twice and never kept; what
//! is kept is bounded by what is live and by the different names there are.

mod folded;
mod heaptrack;
pub mod holdings;
mod memviz;
pub(crate) mod names;
mod parquet;
mod perfetto;
mod pickle;
mod pprof;
pub(crate) mod proto;
pub mod rows;
mod tables;
mod thrift;
pub mod timeline;
mod xplane;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use weir_journal::reader::{Error, Reader, rebuilt_alloc};
use weir_journal::{Event, Kind, LiveEntry};

use crate::xla::Compiled;
use names::Names;
use timeline::Timeline;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A pickle for PyTorch's memory viewer.
    Memviz,
    /// A profile for `go tool pprof` and its kin.
    Pprof,
    /// A trace for ui.perfetto.dev.
    Perfetto,
    /// A data file for heaptrack.
    Heaptrack,
    /// Folded stacks of what is live, for flame graphs.
    Folded,
    /// One row an event, for DuckDB, pandas, Spark.
    Parquet,
    /// The same as text.
    Csv,
    /// The same as JSON lines.
    Jsonl,
    /// A profile for XProf.
    Xplane,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 9] = [
        Self::Memviz,
        Self::Pprof,
        Self::Perfetto,
        Self::Heaptrack,
        Self::Folded,
        Self::Parquet,
        Self::Csv,
        Self::Jsonl,
        Self::Xplane,
    ];

    fn row(self) -> Row {
        let row = |name, extension, write| Row { name, extension, shows_arenas: false, is_text: false, write };
        match self {
            Self::Memviz => Row { shows_arenas: true, ..row("memviz", "pickle", memviz::write) },
            Self::Pprof => Row { shows_arenas: true, ..row("pprof", "pb.gz", pprof::write) },
            Self::Perfetto => row("perfetto", "perfetto-trace", perfetto::write),
            Self::Heaptrack => Row { shows_arenas: true, ..row("heaptrack", "heaptrack.gz", heaptrack::write) },
            Self::Folded => Row { shows_arenas: true, is_text: true, ..row("folded", "folded", folded::write) },
            Self::Parquet => row("parquet", "parquet", parquet::write),
            Self::Csv => Row { is_text: true, ..row("csv", "csv", tables::csv) },
            Self::Jsonl => Row { is_text: true, ..row("jsonl", "jsonl", tables::jsonl) },
            Self::Xplane => Row { shows_arenas: true, ..row("xplane", "xplane.pb", xplane::write) },
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What a file of it is usually called.
    pub fn extension(self) -> &'static str {
        self.row().extension
    }

    /// Whether it shows what is inside of an arena that XLA requested.
    pub fn shows_arenas(self) -> bool {
        self.row().shows_arenas
    }

    /// Whether it is meant to be read on a terminal too.
    pub fn is_text(self) -> bool {
        self.row().is_text
    }
}

/// All there is to a format.
struct Row {
    name: &'static str,
    extension: &'static str,
    shows_arenas: bool,
    is_text: bool,
    write: fn(&mut Export<'_, '_>, &mut dyn Write) -> Result<(), Failure>,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|format| format.name()).collect();
            format!("{text:?} is not one of {}", names.join(", "))
        })
    }
}

/// Why an export failed.
#[derive(Debug)]
pub enum Failure {
    /// The recording cannot be read.
    Journal(Error),
    /// The file cannot be written.
    Write(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(error) => write!(to, "the recording {error}"),
            Self::Write(error) => write!(to, "cannot be written: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Journal(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// What is wanted beside the format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'run> {
    /// Whole stacks in CSV and JSON lines too, where they are long; the other formats always have them.
    pub stacks: bool,
    /// For memviz and xplane: at most so many of the newest events; 0 is all. Their viewers take all of a file into memory.
    pub newest: u64,
    /// What XLA left of the run, for the formats that show it.
    pub compiled: Option<&'run Compiled>,
}

/// What is left to report about an export.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Events that are not in the file because only newer ones were wanted.
    pub left_out: u64,
    /// Modules without names, and why.
    pub unnamed: Vec<(String, crate::symbols::Missing)>,
}

/// An export under way.
struct Export<'a, 'reader> {
    timeline: Timeline<'reader>,
    names: Names<'reader>,
    progress: &'a mut dyn FnMut(u64, u64),
    stacks: bool,
    newest: u64,
    left_out: u64,
    compiled: Option<&'a Compiled>,
}

impl Export<'_, '_> {
    /// What lies inside of a block, if XLA requested it for a whole step: frames and bytes. What they lack is between them.
    fn inside(&mut self, block: &LiveEntry) -> Result<Vec<(u32, u64)>, Failure> {
        inside(self.compiled, &mut self.names, &rebuilt_alloc(block))
    }
}

/// See [`Export::inside`].
fn inside(compiled: Option<&Compiled>, names: &mut Names<'_>, block: &Event) -> Result<Vec<(u32, u64)>, Failure> {
    let Some(compiled) = compiled else { return Ok(Vec::new()) };
    let texts = names.texts(block.by, block.class, false)?;
    let (region, op) = (names.text_of(texts.region), names.text_of(texts.op));
    let (mut parts, mut left) = (Vec::new(), block.allocated);
    for part in compiled.arena(block.requested, &region, &op).map_or(&[][..], |arena| &arena.parts) {
        let bytes = part.bytes.min(left);
        left -= bytes;
        parts.push((names.part(part), bytes));
    }
    Ok(parts)
}

/// Arenas whose parts are written one by one, by device and address: they are freed as they were allocated.
#[derive(Default)]
struct Divided(HashMap<(u8, u64), Vec<(u32, u64)>>);

impl Divided {
    /// The parts of a block that is allocated or freed, with their frames, and what lies between them at the end; only that
    /// where nothing is known of its inside.
    fn parts(
        &mut self,
        compiled: Option<&Compiled>,
        names: &mut Names<'_>,
        block: &Event,
    ) -> Result<Vec<(Option<u32>, u64)>, Failure> {
        let (key, allocated) = ((block.device, block.address), block.kind == Kind::Alloc);
        let parts = if allocated { inside(compiled, names, block)? } else { self.0.remove(&key).unwrap_or_default() };
        if allocated && !parts.is_empty() {
            self.0.insert(key, parts.clone());
        }
        let rest = block.allocated.saturating_sub(parts.iter().map(|(_, bytes)| bytes).sum());
        let whole = parts.is_empty();
        let parts = parts.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(frame, bytes)| (Some(frame), bytes));
        Ok(parts.chain(Some((None, rest)).filter(|_| rest > 0 || whole)).collect())
    }
}

/// Progress is reported once in so many events.
const REPORT_EVERY: u64 = 8192;

/// Writes a recording in a format. `progress` receives now and then how many events are done, and of how many.
pub fn write(
    reader: &Reader,
    format: Format,
    options: Options<'_>,
    to: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Summary, Failure> {
    let mut report = |done: u64, all: u64| {
        if done.is_multiple_of(REPORT_EVERY) {
            progress(done, all);
        }
    };
    let mut export = Export {
        timeline: Timeline::of(reader)?,
        names: Names::new(reader)?,
        progress: &mut report,
        stacks: options.stacks || format == Format::Parquet,
        newest: options.newest,
        left_out: 0,
        compiled: options.compiled,
    };
    (format.row().write)(&mut export, to)?;
    to.flush()?;
    Ok(Summary { left_out: export.left_out, unnamed: export.names.symbols.missing() })
}
