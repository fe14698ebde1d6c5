//! The reader. It trusts nothing: every length, offset and number in a file is checked against what is there, and
//! its memory is bounded by what the file really holds, not by what it claims. It works on journals of living, dead
//! and killed processes, on cut and damaged files, and on files drained by [`record`].

mod events;
mod follow;
mod header;
mod history;
mod names;
pub mod record;
mod replay;
mod source;
mod state;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use events::{Events, Loss, Slot, Why};
pub use follow::Follower;
pub use header::{Counters, Header, Range};
pub use history::Moment;
pub use names::{CauseCount, Device, Line, ModuleEntry, OomSlot, OpName};
pub use replay::{BIRTH_UNKNOWN, Replay};
pub use source::{Source, open_file};
pub use state::{FlightOf, MOST_LIVE, State, rebuilt_alloc};

use crate::layout::{HEADER_WORDS, Section};
use events::EventStore;

/// Why a file cannot be read.
#[derive(Debug)]
pub enum Error {
    /// The file could not be opened or read.
    Io(io::Error),
    /// The file is something else.
    NotAJournal,
    /// The writer died (or is) in the middle of creating it.
    Unfinished,
    /// Not even the header is there.
    TooShort {
        /// Size of the file.
        size: u64,
    },
    /// Written by a version that this reader does not know.
    ForeignVersion {
        /// Major version of the file.
        major: u32,
        /// Minor version of the file.
        minor: u32,
    },
    /// The header's checksum is wrong.
    DamagedHeader,
    /// A section has a place or a size that no writer would give it.
    BadSection {
        /// Which one.
        section: Section,
        /// Where it claims to be.
        offset: u64,
        /// How large it claims to be.
        size: u64,
    },
    /// A drained file is damaged.
    BadRecording(&'static str),
}

impl std::fmt::Display for Error {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(to, "cannot be read: {error}"),
            Self::NotAJournal => write!(to, "is not a weir journal"),
            Self::Unfinished => write!(to, "is a journal whose creation was not finished"),
            Self::TooShort { size } => write!(to, "is cut off inside the header ({size} bytes)"),
            Self::ForeignVersion { major, minor } => {
                write!(to, "has format version {major}.{minor}; this reader knows {}", crate::layout::VERSION_MAJOR)
            }
            Self::DamagedHeader => write!(to, "has a damaged header (wrong checksum)"),
            Self::BadSection { section, offset, size } => {
                write!(to, "has an impossible section {section:?} (offset {offset}, size {size})")
            }
            Self::BadRecording(what) => write!(to, "is a damaged recording: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A journal, for reading.
#[derive(Debug)]
pub struct Reader {
    source: Box<dyn Source>,
    header: Header,
    store: EventStore,
}

impl Reader {
    /// Opens a journal or a drained recording.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::of(Box::new(open_file(path)?))
    }

    /// Reads a journal or a recording from somewhere else.
    pub fn of(source: Box<dyn Source>) -> Result<Self, Error> {
        if record::is_recording(&*source) {
            let recording = Arc::new(record::Recording::open(source)?);
            let header = Header::read(&recording)?;
            return Ok(Self { source: Box::new(Arc::clone(&recording)), header, store: EventStore::Frames(recording) });
        }
        let header = Header::read(&*source)?;
        Ok(Self { source, header, store: EventStore::Ring })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether this is a recording, which has every event in frames and none in a ring.
    pub fn is_recording(&self) -> bool {
        matches!(self.store, EventStore::Frames(_))
    }

    /// Reads again what changes while the writer lives.
    pub fn refresh(&mut self) -> Result<(), Error> {
        let words = source::read_words(&*self.source, 0, HEADER_WORDS)?;
        self.header.update(&words);
        Ok(())
    }

    /// The bytes of a section, whole; for small sections.
    fn section_words(&self, which: Section, most: u64) -> Result<Vec<u64>, Error> {
        let range = self.header.section(which);
        Ok(source::read_words(&*self.source, range.offset, (range.present.min(most) / 8) as usize)?)
    }
}
