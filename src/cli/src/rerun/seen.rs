//! What the journals of a run with room show: the most that the job held, the least into which its requests go, and what
//! grows. Reads files.

use std::path::Path;

use weir_forensics::remedies::Grew;
use weir_forensics::replay::{Policy, Requests, Settings, smallest_cap_to};
use weir_forensics::report::{At, Options, Report};
use weir_forensics::verdict::Cause;
use weir_forensics::{Error, Run, is_held, runs};
use weir_journal::reader::Slot;
use weir_journal::{Class, Kind};

/// Events beyond which requests are not replayed.
const MOST_REPLAYED: u64 = 4_000_000;
/// Growth below this share of the limit does not count.
const LEAST_GROWN: u64 = 20;
/// What TensorFlow leaves to the driver on devices below and from 2 GiB on (compute capability 8).
const TF_LEAVES: [u64; 2] = [225 << 20, 1536 << 20];

/// See the file's first comment.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Most bytes that the job held at once, its processes added up.
    pub(super) peak: u64,
    /// The least device memory into which the requests go, by replays; `None` where some are missing.
    pub(super) enough: Option<u64>,
    /// The least region of TensorFlow's own allocator into which they go, by replays of one process.
    pub(super) region: Option<u64>,
    /// Steps of the process that came furthest.
    pub(super) steps: u64,
    /// Its events.
    pub(super) events: u64,
    /// What grows.
    pub(super) growth: Option<Grew>,
    /// Whether TensorFlow's allocator refused what the device had.
    pub(super) own_limit: bool,
}

impl Seen {
    /// Of all processes of a run that used the device of a report. `limit` is what the job may have.
    pub(super) fn of(journals: &Path, plain: &Report, limit: u64) -> Result<Self, Error> {
        let mut seen = Self { enough: Some(0), ..Self::default() };
        for path in runs::files(journals)? {
            let run = Run::open(&path)?;
            if run.device(plain.device).is_some() {
                seen.add(&run, plain, limit)?;
            }
        }
        Ok(seen)
    }

    fn add(&mut self, run: &Run, plain: &Report, limit: u64) -> Result<(), Error> {
        let at = if run.ran_out() { At::Oom } else { At::Peak };
        let options = Options { device: Some(plain.device), at, no_replay: true, ..Options::default() };
        let report = Report::of(run, &options, |_, _| {})?;
        let counters = run.header().counters;
        let whole = counters.lapped == 0 && counters.events <= MOST_REPLAYED && !run.ran_out();
        let requests = Requests::from_journal(&run.name(), run.reader(), Some(plain.device)).ok().filter(|_| whole);
        self.peak += requests.as_ref().map_or(report.peak, |requests| requests.peak_live);
        let overhead = run.device(plain.device).map_or(0, |device| {
            device.usage.iter().filter(|(class, ..)| *class == Class::Overhead).map(|(_, _, peak)| peak).sum::<u64>()
        });
        let enough = requests.as_ref().and_then(|requests| smallest(requests, run)).map(|bytes| bytes + overhead);
        self.enough = self.enough.zip(enough).map(|(sum, bytes)| sum + bytes);
        if counters.events >= self.events {
            self.region = requests.as_ref().and_then(region);
            self.events = counters.events;
            self.steps = report.step;
            self.growth = growth(run, &report, plain, limit)?;
        }
        self.own_limit |= report.findings.first().is_some_and(|finding| finding.cause == Cause::TensorflowLimit);
        Ok(())
    }
}

/// The smallest device for these requests, with the allocator that served them.
fn smallest(requests: &Requests, run: &Run) -> Option<u64> {
    let policy = match requests.regions {
        0 => Policy::Weir,
        1 => Policy::Bfc,
        _ => Policy::BfcGrowth,
    };
    let mut settings = Settings::new(policy, requests.peak_live);
    if policy == Policy::Weir {
        settings.pool = weir_pool::Config::switched(&run.settings().pool, requests.peak_live, requests.peak_live);
    }
    let (bytes, _) = smallest_cap_to(256, requests, &settings, &mut |_, _| {})?;
    let left = match policy {
        Policy::Bfc if bytes + TF_LEAVES[0] < 2 << 30 => TF_LEAVES[0],
        Policy::Bfc => TF_LEAVES[1],
        _ => 0,
    };
    Some(bytes + left)
}

/// The smallest region of TensorFlow's own allocator for these requests. The model of it is near the truth: a little more.
fn region(requests: &Requests) -> Option<u64> {
    let (bytes, _) = smallest_cap_to(256, requests, &Settings::new(Policy::Bfc, requests.peak_live), &mut |_, _| {})?;
    Some(bytes + bytes / 32)
}

/// What grows, and when it was more than the limit.
fn growth(run: &Run, report: &Report, plain: &Report, limit: u64) -> Result<Option<Grew>, Error> {
    let grows = plain.findings.first().is_some_and(|finding| finding.cause == Cause::Growth);
    let grown: u64 = report.growth.iter().map(|growing| growing.grown).sum();
    let Some(first) = report.growth.first().filter(|_| grows || grown >= limit / LEAST_GROWN) else { return Ok(None) };
    let slope: f64 = report.growth.iter().map(|growing| growing.slope).sum();
    let tensors = report.tensors.is_some_and(|view| view.own_allocator);
    let full_at = crossing(run, plain.device, tensors, limit)?;
    let full_at = full_at.map(|(step, seconds)| if first.unit == "step" { step as f64 } else { seconds });
    Ok(Some(Grew { slope, unit: first.unit, full_at }))
}

/// The step, and the second, at which the job held more than a limit.
fn crossing(run: &Run, device: u8, tensors: bool, limit: u64) -> Result<Option<(u64, f64)>, Error> {
    let counts = |class: Class| if tensors { class == Class::Tensor } else { is_held(class) };
    let (mut live, mut step) = (0_u64, 0);
    for slot in run.events() {
        let Slot::Event(event) = slot.map_err(|error| Error { what: run.name(), problem: error.to_string() })? else {
            continue;
        };
        match event.kind {
            Kind::Step => step = event.address,
            Kind::Alloc if event.device == device && counts(event.class) => live += event.allocated,
            Kind::Free if event.device == device && counts(event.class) => live = live.saturating_sub(event.allocated),
            _ => {}
        }
        if live > limit {
            return Ok(Some((step, run.seconds(event.time))));
        }
    }
    Ok(None)
}
