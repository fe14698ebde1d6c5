//! The report of a run: everything that the one screen, the JSON and the page show, gathered in one pass over the
//! events. docs/reference/report.md describes the JSON.

mod above;
mod gathered;
mod moment;

use weir_journal::Class;

use crate::failure::Failure;
use crate::holders::{Holder, Share};
use crate::host::Host;
use crate::remedies::{Measured, Remedy};
use crate::survey::{Course, Losses, Survey};
use crate::verdict::Finding;
use crate::views::{DriverView, TensorView};
use crate::xla::Arena;
use crate::{Error, Fate, Run};
use gathered::Gathered;

/// Version of the report's JSON.
pub const SCHEMA: u32 = 2;
/// What a report shall be about.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Which OOM dump, from 1; none is the last.
    pub oom: Option<usize>,
    /// Which device; none is the OOM's, else the fullest.
    pub device: Option<u8>,
    /// Holders shown at most; 0 is ten.
    pub holders: usize,
    /// Other processes on the device, in words.
    pub other_processes: Vec<String>,
    /// Never replay requests.
    pub no_replay: bool,
    /// Which moment.
    pub at: At,
    /// What was seen when the job was run again.
    pub measured: Option<Measured>,
    /// Whether the job could be run again.
    pub rerun: bool,
}

/// Which moment of a run a report shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// The out-of-memory failure, else the end.
    #[default]
    Oom,
    /// The most memory that was ever live on the device.
    Peak,
    /// The end, or now.
    End,
    /// The end of a step.
    Step(u64),
    /// A time, nanoseconds since 1970.
    Time(u64),
}

/// The request that was refused.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Request {
    /// Bytes.
    pub bytes: u64,
    /// What sort of memory.
    pub class: Class,
    /// Operation, or empty.
    pub op: String,
    /// `file:line` of the user, or empty.
    pub python: String,
    /// The function that line is in.
    pub function: String,
    /// Where nothing else is known: the native library that request.
    pub library: String,
    /// How often such a request was refused.
    pub times: u64,
    /// Whether TensorFlow only tried, and can do without.
    pub only_tried: bool,
    /// Whether XLA request, once for all operations of what it compiled.
    pub compiled: bool,
}

/// Something that grows.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Growing {
    /// Where and how fast, in words.
    pub text: String,
    /// Bytes a step, or a run of the line.
    pub slope: f64,
    /// `step` or `run`.
    pub unit: &'static str,
    /// Share of the samples' variation that a straight line explains.
    pub fit: f64,
    /// Bytes that came since the run began.
    pub grown: u64,
    /// Steps or runs that this took.
    pub over: f64,
    /// The step, or the run of the line, at which the limit is reached if all that grows grows on.
    pub full_at: Option<f64>,
}

/// How good the evidence is.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Evidence {
    /// Events read.
    pub events: u64,
    /// Events that the journal had already overwritten.
    pub overwritten: u64,
    /// Events that should be there and are not.
    pub losses: Losses,
    /// Allocations that found no place in the live table.
    pub untracked: u64,
    /// Damaged entries.
    pub damaged: u64,
    /// Share of the live bytes whose operation or line is known.
    pub named: f64,
    /// Whether the holders are those of the moment; else of the dump that the library wrote then.
    pub exact: bool,
    /// The process lives: the picture was taken while things moved.
    pub moving: bool,
    /// Calls that had begun and not ended.
    pub in_flight: usize,
    /// The file is shorter than it should be.
    pub truncated: bool,
}

/// What weir chose where it had a choice.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Choice {
    /// What it is about: `tensors`, `pool`.
    pub subject: String,
    /// What was chosen, and why.
    pub choice: String,
}

/// A mark that the job set.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Mark {
    /// Its name.
    pub name: String,
    /// Number of its event.
    pub event: u64,
    /// When, nanoseconds since 1970.
    pub realtime_ns: u64,
}

/// A region of the job's code, all its runs together.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Runs that began.
    pub runs: u64,
    /// Whether the moment lies in one.
    pub open: bool,
    /// Most bytes held during a run.
    pub peak: u64,
    /// Bytes that its runs left behind: held at their ends and not at their beginnings.
    pub kept: i64,
}

/// The report.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The run's name.
    pub run: String,
    /// Its file.
    pub path: String,
    /// Process id.
    pub pid: u32,
    /// Command.
    pub command: String,
    /// How the process is, or ended.
    pub state: Fate,
    /// The status with which it ended in order, if that is known.
    pub exit_status: Option<u8>,
    /// Out-of-memory failures.
    pub oom: u64,
    /// Tensors that TensorFlow tried to get, could do without, and did not get.
    pub tried: u64,
    /// Why weir turned itself off in the job.
    pub turned_off: Option<String>,
    /// What weir chose in the job, and why.
    pub choices: Vec<Choice>,
    /// Device number.
    pub device: u8,
    /// Device name.
    pub device_name: String,
    /// Which moment it is.
    pub at: At,
    /// The moment, nanoseconds since 1970.
    pub realtime_ns: u64,
    /// The moment, seconds since the journal was begun.
    pub seconds: f64,
    /// The training step; 0 is unknown.
    pub step: u64,
    /// The last marks that the job set before the moment.
    pub marks: Vec<Mark>,
    /// Its regions: those that the moment lies in, then those with the highest peak.
    pub regions: Vec<Place>,
    /// Number of the event that records the failure; none where nothing was refused.
    pub event: Option<u64>,
    /// The refused request.
    pub request: Option<Request>,
    /// Causes, the strongest first; the first is the verdict.
    pub findings: Vec<Finding>,
    /// What the device's bytes are taken by.
    pub driver: DriverView,
    /// What TensorFlow reserved and uses.
    pub tensors: Option<TensorView>,
    /// Cap; 0 is none.
    pub cap: u64,
    /// Most bytes live at once.
    pub peak: u64,
    /// When, nanoseconds since 1970.
    pub peak_ns: u64,
    /// Free bytes in the pool, largest hole, holes.
    pub pool: (u64, u64, u64),
    /// Live blocks.
    pub blocks: u64,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// Bytes of the holders not listed.
    pub rest: u64,
    /// By role.
    pub roles: Vec<Share>,
    /// The inside of the arenas of compiled code.
    pub compiled: Vec<Arena>,
    /// What grows.
    pub growth: Vec<Growing>,
    /// Host memory.
    pub host: Host,
    /// Other processes, in words.
    pub other_processes: Vec<String>,
    /// What to do.
    pub remedies: Vec<Remedy>,
    /// What would not help, though one would think so.
    pub useless: Vec<String>,
    /// What was seen when the job was run again on the virtual GPU.
    pub measured: Option<Measured>,
    /// Whether it could be: `weir report --rerun`.
    pub rerun: bool,
    /// How good the evidence is.
    pub evidence: Evidence,
}

impl Report {
    /// Makes the report of a run. `progress` receives how many of how many events were read; when all are, what is left is
    /// to check remedies, which may take longer.
    pub fn of(run: &Run, options: &Options, mut progress: impl FnMut(u64, u64)) -> Result<Self, Error> {
        if let Some(number) = options.device.filter(|number| run.device(*number).is_none()) {
            let there: Vec<String> = run.devices().map(|device| device.number.to_string()).collect();
            return Err(Error::at(run.path(), format!("no device {number} in this run; it has {}", there.join(", "))));
        }
        let failure = if options.at == At::Oom { Failure::of(run, options)? } else { None };
        let moment = failure.as_ref().map(Failure::event).or(moment::event(run, options.at)?);
        let mut survey = Survey::of(run, moment, &mut progress)?;
        if options.at == At::Peak {
            let of = |course: &&Course| options.device.is_none_or(|device| device == course.device);
            let highest = survey.courses.iter().filter(of).max_by_key(|course| course.peak);
            if let Some(event) = highest.and_then(|course| course.peak_event) {
                survey = Survey::of(run, Some(event), &mut progress)?;
            }
        }
        progress(survey.events, survey.events);
        Ok(Gathered::new(run, &survey, failure, options)?.report(options))
    }

    /// What is not enough, and how that is known; empty where there is nothing of the kind.
    pub fn not_enough(&self) -> Option<String> {
        (!self.useless.is_empty()).then(|| format!("{}: not enough, by replay or estimate", self.useless.join(", ")))
    }

    /// Whether the job ran out of memory, or failed after it tried for memory in vain.
    pub fn is_oom(&self) -> bool {
        self.oom > 0 || self.only_tried()
    }

    /// Whether what is reported is memory that TensorFlow tried for, and that the job failed after it.
    pub fn only_tried(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.only_tried)
    }

    /// Where the job said it was at the moment: in regions, after its last mark. Empty where it said nothing.
    pub fn whereabouts(&self) -> String {
        let open: Vec<&str> = self.regions.iter().filter(|place| place.open).map(|place| &*place.name).collect();
        let regions = if open.is_empty() { String::new() } else { format!("in {}", open.join(", in ")) };
        let Some(mark) = self.marks.last() else { return regions };
        let before = self.realtime_ns.saturating_sub(mark.realtime_ns) as f64 / 1e9;
        let mark = format!("{before:.1} s after \"{}\"", mark.name);
        if regions.is_empty() { mark } else { format!("{regions}; {mark}") }
    }

    /// The verdict: the strongest cause.
    pub fn verdict(&self) -> Option<&Finding> {
        self.findings.first()
    }
}
