//! The report of a run: everything that the one screen, the JSON and the page show, gathered in one pass over the
//! events. docs/reference/report.md describes the JSON.

use weir_journal::layout::HOST_DEVICE;
use weir_journal::{Class, Kind, Situation};

use crate::failure::Failure;
use crate::growth::Trend;
use crate::holders::{self, Holder, Share};
use crate::host::{self, Host, HostHolder};
use crate::leaks::{self, Leak};
use crate::remedies::{self, Bench, Remedy};
use crate::roles::{self, Region};
use crate::survey::{Losses, Mark, Survey};
use crate::verdict::{self, Facts, Finding};
use crate::views::{self, DriverView, Part, TensorView};
use crate::{Error, Fate, Run};

/// Version of the report's JSON.
pub const SCHEMA: u32 = 1;
/// Growth of host memory below this is not worth a word.
const HOST_GROWN: u64 = 64 << 20;

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
    pub neighbours: Vec<String>,
    /// Never replay requests.
    pub no_replay: bool,
}

/// The request that was refused.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Asked {
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
    /// Where nothing else is known: the native library that asked.
    pub library: String,
    /// How often such a request was refused.
    pub times: u64,
    /// Whether TensorFlow only tried, and can do without.
    pub only_tried: bool,
    /// Whether XLA asked, once for all operations of what it compiled.
    pub compiled: bool,
}

/// Something that grows.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Growing {
    /// Where and how fast, in words.
    pub text: String,
    /// Bytes a step, or a second.
    pub slope: f64,
    /// `step` or `second`.
    pub unit: &'static str,
    /// Share of the samples' variation that a straight line explains.
    pub fit: f64,
    /// Bytes that came since the job was built up.
    pub grown: u64,
    /// Steps or seconds until the limit is reached, from the moment on.
    pub until_full: Option<f64>,
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
    /// Events that the job could not write.
    pub dropped: u64,
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
    /// Device number.
    pub device: u8,
    /// Device name.
    pub device_name: String,
    /// The moment, nanoseconds since 1970.
    pub realtime_ns: u64,
    /// The moment, seconds since the journal was begun.
    pub seconds: f64,
    /// The training step; 0 is unknown.
    pub step: u64,
    /// Number of the event that tells of the failure; none where nothing was refused.
    pub event: Option<u64>,
    /// The refused request.
    pub asked: Option<Asked>,
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
    /// What grows.
    pub growth: Vec<Growing>,
    /// Host memory.
    pub host: Host,
    /// Other processes, in words.
    pub neighbours: Vec<String>,
    /// What to do.
    pub remedies: Vec<Remedy>,
    /// What would not help, though one would think so.
    pub useless: Vec<String>,
    /// How good the evidence is.
    pub evidence: Evidence,
}

impl Report {
    /// Makes the report of a run. `progress` is told how many of how many events were read; when all are, what is left is
    /// to check remedies, which may take longer.
    pub fn of(run: &Run, options: &Options, mut progress: impl FnMut(u64, u64)) -> Result<Self, Error> {
        if let Some(number) = options.device.filter(|number| run.device(*number).is_none()) {
            let there: Vec<String> = run.devices().map(|device| device.number.to_string()).collect();
            return Err(Error::at(run.path(), format!("has no device {number}; it has {}", there.join(", "))));
        }
        let failure = Failure::of(run, options)?;
        let survey = Survey::of(run, failure.as_ref().map(Failure::event), &mut progress)?;
        progress(survey.events, survey.events);
        Ok(Gathered::new(run, &survey, failure, options)?.report(options))
    }

    /// Whether the job ran out of memory, or failed after it tried for memory in vain.
    pub fn is_oom(&self) -> bool {
        self.oom > 0 || self.only_tried()
    }

    /// Whether what is told of is memory that TensorFlow tried for, and that the job failed after it.
    pub fn only_tried(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.only_tried)
    }

    /// The verdict: the strongest cause.
    pub fn verdict(&self) -> Option<&Finding> {
        self.findings.first()
    }
}

/// What is known before the report is written.
struct Gathered<'run> {
    run: &'run Run,
    survey: &'run Survey,
    failure: Option<Failure<'run>>,
    device: u8,
    exact: bool,
    situation: Situation,
    driver: DriverView,
    tensors: Option<TensorView>,
    leaks: Vec<Leak>,
    on_host: Vec<HostHolder>,
    facts: Facts,
    in_flight: usize,
    damaged: u64,
}

impl<'run> Gathered<'run> {
    fn new(
        run: &'run Run,
        survey: &'run Survey,
        failure: Option<Failure<'run>>,
        options: &Options,
    ) -> Result<Self, Error> {
        let fullest =
            || run.devices().max_by_key(|device| survey.held(device.number)).map_or(0, |device| device.number);
        let on_gpu = failure.as_ref().map(Failure::device).filter(|device| *device != HOST_DEVICE);
        let device = options.device.or(on_gpu).unwrap_or_else(fullest);
        // The dump is written right after its event; if that is gone, the events tell of another moment.
        let dump = failure.as_ref().and_then(Failure::dump);
        let exact = dump.is_none_or(|dump| survey.at == dump.event);
        let situation = dump.map_or(Situation::default(), |dump| dump.situation);
        let total = run.device(device).map_or(0, |device| device.total);
        let driver = views::driver_view(survey, device, total, &situation);
        let tensors = views::tensor_view(survey, device, driver.of(Part::Live));
        let cap = if situation.cap > 0 { situation.cap } else { run.device(device).map_or(0, |device| device.cap) };
        let limit = if cap > 0 { cap.min(total.max(1)) } else { total };
        let leaks = leaks::leaks(survey, device, limit);
        let state = run.state()?;
        let mut gathered = Self {
            run,
            survey,
            failure,
            device,
            exact,
            situation,
            driver,
            tensors,
            leaks,
            on_host: host::holders(survey),
            facts: Facts::default(),
            in_flight: state.in_flight.len(),
            damaged: state.damaged,
        };
        gathered.facts = gathered.facts(cap, total);
        Ok(gathered)
    }

    fn facts(&self, cap: u64, total: u64) -> Facts {
        let now = &self.situation;
        let last = self.last_mark();
        let first = self.survey.marks.iter().find(|mark| mark.resident > 0);
        let host_grown = last.resident.saturating_sub(first.map_or(last.resident, |mark| mark.resident));
        let own = self.tensors.filter(|view| view.own_allocator);
        let asked = self.asked();
        // Only a dump tells of the cap and the pool.
        let only_tried = asked.as_ref().is_some_and(|asked| asked.only_tried);
        Facts {
            refused: asked.is_some() || (self.run.ooms().is_empty() && self.run.oom_count() > 0),
            asked: asked.as_ref().map_or(0, |asked| asked.bytes),
            class: asked.as_ref().map(|asked| asked.class),
            by_op: asked.is_some_and(|asked| !asked.op.is_empty()) && !self.by_library(),
            total: if now.device_total > 0 { now.device_total } else { total },
            free: (now.device_total > 0).then_some(now.device_free),
            cap,
            charged: if only_tried { self.driver.ours() } else { now.charged },
            charged_by_others: now.charged_by_others,
            pool_free: if only_tried { self.driver.of(Part::PoolFree) } else { now.pool_free },
            pool_largest: now.pool_largest,
            pool_deferred: now.pool_deferred,
            live: self.driver.of(Part::Live),
            others: self.driver.of(Part::Others),
            grown: self.leaks.iter().map(|leak| leak.grown).sum(),
            growing: self.leaks.first().map(|leak| remedies::growing(self.survey, leak)).unwrap_or_default(),
            tf_reserved: own.map_or(0, |view| view.reserved),
            tf_used: own.map_or(0, |view| view.used),
            tf_slack: own.map_or(0, |view| view.slack),
            resident: now.resident.max(last.resident),
            host_total: host_total(self.run),
            host_grows: self.host_trend().is_some_and(|trend| trend.grows()),
            host_grown,
            host_by: host::blame(&self.on_host, host_grown),
            fate: Some(self.run.fate()),
            spills: self.survey.kinds[Kind::Spill as usize],
        }
    }

    fn last_mark(&self) -> Mark {
        self.survey.marks.last().copied().unwrap_or_default()
    }

    fn host_trend(&self) -> Option<Trend> {
        let resident: Vec<i64> = self.survey.marks.iter().map(|mark| mark.resident as i64).collect();
        let resident: [i64; crate::survey::BUCKETS] = resident.try_into().ok()?;
        Trend::through(&self.survey.samples(&resident))
    }

    /// Whether a library that an operation called asked, and not the operation.
    fn by_library(&self) -> bool {
        let event = self.survey.event.filter(|_| self.exact);
        event.is_some_and(|event| roles::region(&self.run.who(event.by)) == Region::Library)
    }

    fn asked(&self) -> Option<Asked> {
        let event = self.survey.event.filter(|_| self.exact);
        self.failure.as_ref().map(|failure| failure.asked(self.run, event))
    }

    fn report(&self, options: &Options) -> Report {
        let (run, survey, device) = (self.run, self.survey, self.device);
        let most = if options.holders == 0 { 10 } else { options.holders };
        let (mut list, mut rest) = holders::holders(run, survey, device, &self.leaks, most);
        let shares = holders::shares(survey, device);
        let dump = self.failure.as_ref().and_then(Failure::dump);
        if let Some(dump) = dump.filter(|_| !self.exact) {
            list = dump.holders.iter().map(from_dump).collect();
            rest = dump.live_bytes.saturating_sub(list.iter().map(|holder| holder.bytes).sum());
        }
        let findings = verdict::findings(&self.facts);
        let bench = Bench::new(run, survey, device, &self.facts, self.exact, !options.no_replay);
        let advice = remedies::remedies(&bench, &findings, &self.facts, &self.leaks, &options.neighbours);
        let course = survey.course(device);
        let counters = &run.header().counters;
        let last = self.last_mark();
        let grown = self.facts.host_grown >= HOST_GROWN;
        Report {
            schema: SCHEMA,
            run: run.name(),
            path: run.path().display().to_string(),
            pid: run.pid(),
            command: run.command(),
            state: run.fate(),
            exit_status: run.exit_status(),
            oom: run.oom_count(),
            tried: counters.tried,
            turned_off: run.header().turned_off.as_ref().map(|(_, reason)| reason.clone()),
            device,
            device_name: run.device(device).map(|device| device.name.clone()).unwrap_or_default(),
            realtime_ns: dump.map_or_else(|| run.realtime_ns(survey.time), |dump| dump.realtime_ns),
            seconds: run.seconds(survey.time),
            step: survey.steps.last,
            event: self.failure.as_ref().map(Failure::event),
            asked: self.asked(),
            findings,
            driver: self.driver.clone(),
            tensors: self.tensors,
            cap: self.facts.cap,
            peak: course.map_or(0, |course| course.peak),
            peak_ns: course.map_or(0, |course| run.realtime_ns(course.peak_time)),
            pool: (self.situation.pool_free, self.situation.pool_largest, self.situation.pool_holes),
            blocks: survey.held_blocks(device),
            holders: list,
            rest,
            roles: shares,
            growth: self.growth(),
            host: Host {
                resident: self.facts.resident,
                pinned: self.situation.pinned.max(last.pinned),
                slope: self.host_trend().filter(Trend::grows).filter(|_| grown).map(|trend| trend.slope),
                holders: self.on_host.iter().take(most).cloned().collect(),
            },
            neighbours: options.neighbours.clone(),
            remedies: advice.remedies,
            useless: advice.useless,
            evidence: Evidence {
                events: survey.events,
                overwritten: if run.reader().is_recording() { 0 } else { counters.lapped },
                losses: survey.losses,
                dropped: counters.dropped,
                untracked: counters.live_overflow,
                damaged: self.damaged,
                named: self.named(),
                exact: self.exact,
                moving: run.fate() == Fate::Alive,
                in_flight: self.in_flight,
                truncated: run.header().truncated,
            },
        }
    }

    fn growth(&self) -> Vec<Growing> {
        let limit = self.facts.limit() as f64;
        // The others stay as they are: what is free now is what all that grows will share.
        let room = limit - self.facts.live as f64;
        let speed: f64 = self.leaks.iter().map(|leak| leak.trend.slope).sum();
        let until = (limit > 0.0 && speed > 0.0).then(|| (room / speed).max(0.0));
        self.leaks
            .iter()
            .take(5)
            .map(|leak| Growing {
                text: remedies::growing(self.survey, leak),
                slope: leak.trend.slope,
                unit: if leak.by_step { "step" } else { "second" },
                fit: leak.trend.fit,
                grown: leak.grown,
                until_full: until,
            })
            .collect()
    }

    fn named(&self) -> f64 {
        let (mut all, mut named) = (0, 0);
        for owner in self.survey.owners.iter().filter(|o| o.device == self.device && crate::is_held(o.class)) {
            all += owner.bytes;
            named += if owner.who.is_nameless() { 0 } else { owner.bytes };
        }
        if all == 0 { 1.0 } else { named as f64 / all as f64 }
    }
}

/// A holder as the library itself wrote it down at the moment.
fn from_dump(holder: &weir_journal::Holder) -> Holder {
    let (python, function) = holder.python.split_once(" in ").unwrap_or((&holder.python, ""));
    Holder {
        op: crate::names::short_op(&holder.op).to_owned(),
        python: python.to_owned(),
        function: function.to_owned(),
        library: String::new(),
        class: holder.class,
        role: crate::roles::Role::Other,
        rule: "only the dump of that moment is left",
        bytes: holder.bytes,
        blocks: holder.blocks,
        recent: 0,
        course: [0; holders::POINTS],
        grows: false,
        dtype: 0,
    }
}

/// Host memory of this machine, if the run was made on it since it was booted; else 0.
fn host_total(run: &Run) -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = boot.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    let here = u128::from_str_radix(&hex, 16).unwrap_or(0).to_be_bytes();
    if run.header().identity.boot != here {
        return 0;
    }
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    line.split_ascii_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}
