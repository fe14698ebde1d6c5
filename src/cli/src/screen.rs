//! What all commands share on the screen: colour or none, width, errors that name what is wrong, and where runs are looked for.

use crate::{ascii, completions, settings};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use weir_forensics::{Error, Fate, Run, runs};
use weir_journal::text;

/// Most lines of a report.
const MOST_LINES: usize = 30;

/// Which run, and where to look for it: the arguments of every command that reads one.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Which {
    /// A file, a process id, or the name of a run as `weir list` shows it; default: the newest run
    #[arg(value_name = "RUN", add = completions::of_runs())]
    pub(crate) run: Option<OsString>,
    #[command(flatten)]
    pub(crate) place: RunsDir,
}

/// Where runs are looked for.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RunsDir {
    /// The directory to look in; default: WEIR_DIR, else ~/.local/state/weir
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

impl RunsDir {
    /// The directory: that of the argument, else that of the settings.
    pub(crate) fn folder(&self) -> Result<PathBuf, Error> {
        self.dir.clone().map_or_else(settings::directory, Ok)
    }
}

impl Which {
    /// Opens the run.
    pub(crate) fn open(&self) -> Result<Run, Error> {
        runs::find(self.run.as_deref(), || self.place.folder())
    }

    /// Opens the run; without a name, the newest one that lives, else the newest.
    pub(crate) fn open_living(&self) -> Result<Run, Error> {
        if self.run.is_some() {
            return self.open();
        }
        let dir = self.place.folder()?;
        let mut newest = None;
        for run in runs::files(&dir)?.iter().filter_map(|path| Run::open(path).ok()) {
            if run.fate() == Fate::Alive {
                return Ok(run);
            }
            newest = newest.or(Some(run));
        }
        newest.map_or_else(|| self.open(), Ok)
    }
}

/// Ends a command; an error is one line on standard error.
pub(crate) fn end(command: &str, result: Result<ExitCode, String>) -> ExitCode {
    result.unwrap_or_else(|problem| {
        // One line, whatever the names in it hold.
        eprintln!("weir {command}: {}", text::plain(&problem));
        ExitCode::FAILURE
    })
}

/// Whether standard output may have colour: a terminal, and NO_COLOR is not set.
pub(crate) fn colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && !ascii::is_dumb() && std::io::stdout().is_terminal()
}

/// Columns of the terminal; 80 when there is none.
pub(crate) fn width() -> usize {
    let given = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    given.or_else(|| terminal_size().map(|(columns, _)| columns)).unwrap_or(80).clamp(40, 200)
}

/// Lines of the terminal, one left for the prompt; else as many as most terminals have.
pub(crate) fn height() -> usize {
    let given = std::env::var("LINES").ok().and_then(|text| text.parse().ok());
    given
        .or_else(|| terminal_size().map(|(_, lines)| lines))
        .map_or(MOST_LINES, |lines: usize| lines - lines.min(1))
        .clamp(23, MOST_LINES)
}

/// Columns and lines.
fn terminal_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// `weir list | head` ends like any other command when head has seen enough.
#[allow(unsafe_code)]
pub(crate) fn end_quietly_when_the_reader_has_gone() {
    // SAFETY: no other thread runs yet; the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// A command that talks to a child notices that it has gone, and says why.
#[allow(unsafe_code)]
pub(crate) fn stay_when_a_reader_has_gone() {
    // SAFETY: no handler of this process is replaced.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Seconds that local time is ahead of UTC at a moment.
pub(crate) fn local_offset(realtime_ns: u64) -> i64 {
    let moment = Timestamp::from_nanosecond(realtime_ns.into()).unwrap_or_default();
    TimeZone::system().to_offset(moment).seconds().into()
}

/// Date and time of day, local: `2026-11-16 14:02:11`.
pub(crate) fn local_time(realtime_ns: u64) -> String {
    weir_forensics::words::calendar(realtime_ns, local_offset(realtime_ns)).strftime("%F %T").to_string()
}
