//! A run: one journal or recording, opened, with its names resolved. Everything else in this crate starts from a
//! [`Run`]. Reads files; writes none.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use weir_journal::layout::{HOST_DEVICE, LARGEST_SUM};
use weir_journal::reader::{Device, Error as ReadError, Events, Header, Reader, State, open_file};
use weir_journal::{Attribution, Life, LiveEntry, OomReport, journal_life};

use crate::names::{Names, Who};

/// Why a run cannot be read: which file, what is wrong, and what would help.
#[derive(Debug)]
pub struct Error {
    /// The file, or the name that was given.
    pub what: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Error {
    pub(crate) fn new(what: impl std::fmt::Display, problem: impl std::fmt::Display) -> Self {
        Self { what: what.to_string(), problem: problem.to_string() }
    }

    pub(crate) fn at(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::new(path.display(), problem)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}: {}", self.what, self.problem)
    }
}

impl std::error::Error for Error {}

/// How the process of a run is, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It runs.
    Alive,
    /// It exited in order.
    Ended,
    /// It is gone and left no status: killed by a signal, or crashed.
    Killed,
    /// It ran in another container, and its state is not visible from here.
    Unknown,
}

impl Fate {
    /// One word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Ended => "ended",
            Self::Killed => "killed",
            Self::Unknown => "unknown",
        }
    }
}

/// An opened journal or recording.
#[derive(Debug)]
pub struct Run {
    path: PathBuf,
    reader: Reader,
    fate: Fate,
    devices: Vec<Device>,
    config: String,
    ooms: Vec<OomReport>,
    names: Names,
    state: OnceLock<State>,
}

impl Run {
    /// Opens a journal or a recording.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let reader = Reader::open(path).map_err(|error| Error::at(path, remedy(&error)))?;
        let life = open_file(path).map_or(Life::Unknown, |file| journal_life(&file, Some(reader.header())));
        Self::of(path.to_owned(), reader, life)
    }

    /// A run from a reader that is open already.
    pub fn of(path: PathBuf, reader: Reader, life: Life) -> Result<Self, Error> {
        let fate = match life {
            _ if reader.header().clean_exit => Fate::Ended,
            Life::Alive => Fate::Alive,
            Life::Dead => Fate::Killed,
            Life::Unknown => Fate::Unknown,
        };
        let broken = |error| Error::at(&path, remedy(&error));
        let devices = reader.devices().map_err(broken)?;
        let config = reader.config().map_err(broken)?.unwrap_or_default();
        let dumps = reader.oom_dumps().map_err(broken)?;
        // A dump of a later schema that lacks a field is left out; its event is still there.
        let ooms = dumps.iter().filter_map(|dump| serde_json::from_str(&dump.json).ok()).map(believed).collect();
        Ok(Self { path, reader, fate, devices, config, ooms, names: Names::default(), state: OnceLock::new() })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's stem, by which other commands find the run.
    pub fn name(&self) -> String {
        self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// What [`Run::open`] opened.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// What the journal's header says.
    pub fn header(&self) -> &Header {
        self.reader.header()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.header().identity.pid
    }

    /// How the process is, or how it ended.
    pub fn fate(&self) -> Fate {
        self.fate
    }

    /// Whether the job ran out of memory, or failed and had tried for memory in vain.
    pub fn ran_out(&self) -> bool {
        self.header().ran_out()
    }

    /// The status with which the process ended in order, if that is known.
    pub fn exit_status(&self) -> Option<u8> {
        self.header().exit_status
    }

    /// The devices that were used, host memory (number 63) included where it was.
    pub fn all_devices(&self) -> &[Device] {
        &self.devices
    }

    /// The GPUs that were used.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| device.number != HOST_DEVICE)
    }

    /// A device by its number in events.
    pub fn device(&self, number: u8) -> Option<&Device> {
        self.devices.iter().find(|device| device.number == number)
    }

    /// The settings that were in force, one `NAME=value` a line.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// The settings that were in force, read by the code that wrote them.
    pub fn settings(&self) -> weir_settings::Settings {
        weir_settings::Settings::from_text(&self.config)
    }

    /// The out-of-memory dumps that the journal holds, oldest first.
    pub fn ooms(&self) -> &[OomReport] {
        &self.ooms
    }

    /// Out-of-memory failures that the job got, repeated ones included.
    pub fn oom_count(&self) -> u64 {
        self.header().counters.oom_seen
    }

    /// The command, its interpreter left out: `train.py --batch 64`.
    pub fn command(&self) -> String {
        crate::names::short_command(&self.header().command)
    }

    /// Every event that is there, oldest first, and the news of those that are missing. A batch is in memory at a time.
    pub fn events(&self) -> Events<'_> {
        self.reader.events()
    }

    /// What is live at the end, or now; read once.
    pub fn state(&self) -> Result<&State, Error> {
        if let Some(state) = self.state.get() {
            return Ok(state);
        }
        let state = self.reader.state().map_err(|error| self.broken(&error))?;
        Ok(self.state.get_or_init(|| state))
    }

    /// The live allocations at the end, or now.
    pub fn live(&self) -> Result<&[LiveEntry], Error> {
        Ok(&self.state()?.live)
    }

    /// The requester: names resolved, each looked up in the file once.
    pub fn who(&self, by: Attribution) -> Arc<Who> {
        self.names.who(&self.reader, by)
    }

    /// Seconds since the journal was begun.
    pub fn seconds(&self, ticks: u64) -> f64 {
        self.header().elapsed_ns(self.header().started.ticks, ticks) as f64 / 1e9
    }

    /// Nanoseconds since 1970.
    pub fn realtime_ns(&self, ticks: u64) -> u64 {
        self.header().realtime_ns(ticks)
    }

    pub(crate) fn broken(&self, error: &ReadError) -> Error {
        Error::at(&self.path, remedy(error))
    }
}

/// An out-of-memory dump with numbers that can be added up.
fn believed(mut oom: OomReport) -> OomReport {
    let now = &mut oom.situation;
    let situation = [
        &mut now.device_total,
        &mut now.device_free,
        &mut now.cap,
        &mut now.charged,
        &mut now.charged_by_others,
        &mut now.pool_free,
        &mut now.pool_largest,
        &mut now.pool_holes,
        &mut now.pool_deferred,
        &mut now.pinned,
        &mut now.resident,
    ];
    let own = [&mut oom.requested, &mut oom.live_bytes, &mut oom.live_blocks, &mut oom.dumps, &mut oom.failures];
    let holders = oom.holders.iter_mut().flat_map(|holder| [&mut holder.bytes, &mut holder.blocks]);
    situation.into_iter().chain(own).chain(holders).for_each(|number| *number = (*number).min(LARGEST_SUM));
    oom
}

/// What is wrong with a file, and what to do about it.
fn remedy(error: &ReadError) -> String {
    match error {
        ReadError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "there is no such file; `weir list` shows the runs that there are".into()
        }
        ReadError::Io(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            "may not be read by you; a journal belongs to the user who ran the job".into()
        }
        ReadError::Unfinished => format!("{error}; the job died, or is, at its very first CUDA call"),
        ReadError::ForeignVersion { .. } => format!("{error}; use the `weir` that belongs to the library of that job"),
        _ => error.to_string(),
    }
}
