//! What is known of a run at the moment, and the report that is made of it.

use std::collections::HashSet;

use weir_journal::layout::HOST_DEVICE;
use weir_journal::{Kind, Situation};

use super::{At, Choice, Evidence, Growing, Options, Place, Report, Request, SCHEMA};
use crate::explain;
use crate::failure::Failure;
use crate::growth::{self, Growth};
use crate::holders::{self, Holder};
use crate::host::{self, Host, HostHolder};
use crate::lifelong;
use crate::remedies::{self, Bench};
use crate::roles::{self, Region};
use crate::survey::{Mark, Survey};
use crate::trend::Trend;
use crate::verdict::{self, Facts};
use crate::views::{self, DriverView, Part, TensorView};
use crate::{Error, Fate, Run};

/// Growth of host memory below this is not worth a word.
const HOST_GROWN: u64 = 64 << 20;

/// What is known before the report is written.
pub(super) struct Gathered<'run> {
    run: &'run Run,
    survey: &'run Survey,
    failure: Option<Failure<'run>>,
    device: u8,
    exact: bool,
    situation: Situation,
    driver: DriverView,
    tensors: Option<TensorView>,
    growths: Vec<Growth>,
    /// Where the ring has not all events: the highest moment of the journal's history, bytes and time.
    highest: Option<(u64, u64)>,
    on_host: Vec<HostHolder>,
    facts: Facts,
    in_flight: usize,
    damaged: u64,
}

impl<'run> Gathered<'run> {
    pub(super) fn new(
        run: &'run Run,
        survey: &'run Survey,
        failure: Option<Failure<'run>>,
        options: &Options,
    ) -> Result<Self, Error> {
        let fullest =
            || run.devices().max_by_key(|device| survey.held(device.number)).map_or(0, |device| device.number);
        let on_gpu = failure.as_ref().map(Failure::device).filter(|device| *device != HOST_DEVICE);
        let device = options.device.or(on_gpu).unwrap_or_else(fullest);
        // The dump is written right after its event; if that is gone, the events record another moment.
        let dump = failure.as_ref().and_then(Failure::dump);
        let exact = dump.is_none_or(|dump| survey.at == dump.event);
        let situation = dump.map_or(Situation::default(), |dump| dump.situation);
        let total = run.device(device).map_or(0, |device| device.total);
        let driver = views::driver_view(survey, device, total, &situation);
        let tensors = views::tensor_view(survey, device, driver.of(Part::Live));
        let cap = if situation.cap > 0 { situation.cap } else { run.device(device).map_or(0, |device| device.cap) };
        let limit = if cap > 0 { cap.min(total.max(1)) } else { total };
        // What grew all along did so in the ring's events, too; what began to grow lately is only there.
        let mut growths = lifelong::growths(run, survey, device, limit)?;
        let known: HashSet<usize> = growths.iter().flat_map(|growth| growth.owners.iter().copied()).collect();
        let lately = growth::growths(survey, device, limit).into_iter();
        growths.extend(lately.filter(|growth| growth.owners.iter().all(|owner| !known.contains(owner))));
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
            growths,
            highest: lifelong::highest(run, device)?,
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
        let request = self.request();
        // Only a dump records the cap and the pool.
        let only_tried = request.as_ref().is_some_and(|request| request.only_tried);
        Facts {
            refused: request.is_some() || (self.run.ooms().is_empty() && self.run.oom_count() > 0),
            requested: request.as_ref().map_or(0, |request| request.bytes),
            class: request.as_ref().map(|request| request.class),
            of_arena_fixed: 0,
            by_op: request.as_ref().is_some_and(|request| !request.op.is_empty()) && !self.by_library(),
            total: if now.device_total > 0 { now.device_total } else { total },
            free: (now.device_total > 0).then_some(now.device_free),
            cap,
            charged: if only_tried { self.driver.ours() } else { now.charged },
            charged_by_others: now.charged_by_others,
            // What the pool counts and no memory is behind cannot serve a request.
            pool_free: self.driver.of(Part::PoolFree),
            pool_largest: now.pool_largest,
            pool_deferred: now.pool_deferred,
            live: self.driver.of(Part::Live),
            others: self.driver.of(Part::Others),
            grown: self.growths.iter().map(|growth| growth.grown).sum(),
            spike: request.as_ref().filter(|_| !self.grower_requests()).map_or(0, |request| request.bytes),
            growing: self.growths.first().map(|growth| growth.text(self.survey)).unwrap_or_default(),
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

    /// Whether a library that an operation called request, and not the operation.
    fn by_library(&self) -> bool {
        let event = self.survey.event.filter(|_| self.exact);
        event.is_some_and(|event| roles::region(&self.run.who(event.by)) == Region::Library)
    }

    /// Whether the line of the refused request is one that grows.
    fn grower_requests(&self) -> bool {
        let refused = self.survey.refused.as_ref().filter(|_| self.exact).map(|(who, _)| who.place());
        let grows = |place: &String| self.growths.iter().any(|growth| growth.place(self.survey) == *place);
        refused.as_ref().is_some_and(grows)
    }

    fn request(&self) -> Option<Request> {
        let event = self.survey.event.filter(|_| self.exact);
        self.failure.as_ref().map(|failure| failure.request(self.run, event))
    }

    pub(super) fn report(&self, options: &Options) -> Report {
        let (run, survey, device) = (self.run, self.survey, self.device);
        let most = if options.holders == 0 { 10 } else { options.holders };
        let (mut list, mut rest) = holders::holders(run, survey, device, &self.growths, most);
        let shares = holders::shares(survey, device);
        let dump = self.failure.as_ref().and_then(Failure::dump);
        if let Some(dump) = dump.filter(|_| !self.exact) {
            list = dump.holders.iter().map(from_dump).collect();
            rest = dump.live_bytes.saturating_sub(list.iter().map(|holder| holder.bytes).sum());
        }
        let mut findings = verdict::findings(&self.facts);
        let refused = survey.refused.as_ref().filter(|_| self.exact).map(|(who, _)| &**who);
        let scene = explain::Scene::new(survey, device, &self.facts, refused);
        let first = findings.iter_mut().find(|finding| finding.cause.is_of_size());
        // Without the events of the moment, nothing is known of it but its largest holders.
        if let Some(first) = first.filter(|_| self.exact) {
            first.explanation = explain::explain(&scene);
        }
        verdict::add_kept_models(&mut findings, explain::keeps_models(&scene));
        let mut request = self.request();
        // JAX does not say which of its requests are a step's.
        let refused = request.as_ref().filter(|request| request.compiled || request.op.is_empty());
        let compiled = crate::xla::arenas(run, survey, device, refused.map(|request| request.bytes));
        if let Some(request) = &mut request {
            request.compiled |=
                compiled.iter().any(|arena| arena.live && arena.certain && arena.bytes == request.bytes);
        }
        let refused = request.as_ref().filter(|request| request.compiled);
        let arena = compiled.iter().find(|arena| refused.is_some_and(|request| arena.bytes == request.bytes));
        let of_arena_fixed = arena.map_or(0, crate::xla::Arena::fixed);
        let facts = Facts { of_arena_fixed, ..self.facts.clone() };
        let bench = Bench::new(run, survey, device, &facts, self.exact, !options.no_replay);
        let mut advice = remedies::remedies(&bench, &findings, &facts, &self.growths, &options.other_processes);
        if let Some(measured) = options.measured.as_ref().filter(|_| self.failure.is_some()) {
            remedies::place(&mut advice, measured);
        }
        let recorded = survey.course(device).map_or((0, 0), |course| (course.peak, course.peak_time));
        let earlier = self.highest.filter(|(bytes, _)| *bytes > recorded.0);
        let peak = earlier.unwrap_or(recorded);
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
            choices: choices(run),
            device,
            device_name: run.device(device).map(|device| device.name.clone()).unwrap_or_default(),
            at: if self.failure.is_none() && options.at == At::Oom { At::End } else { options.at },
            realtime_ns: dump.map_or_else(|| run.realtime_ns(survey.time), |dump| dump.realtime_ns),
            seconds: run.seconds(survey.time),
            step: survey.steps.last,
            marks: self.marks(),
            regions: self.regions(),
            event: self.failure.as_ref().map(Failure::event),
            request,
            findings,
            driver: self.driver.clone(),
            tensors: self.tensors,
            cap: self.facts.cap,
            peak: peak.0,
            peak_ns: if peak.0 == 0 { 0 } else { run.realtime_ns(peak.1) },
            pool: (self.situation.pool_free, self.situation.pool_largest, self.situation.pool_holes),
            blocks: survey.held_blocks(device),
            holders: list,
            rest,
            roles: shares,
            compiled,
            growth: self.growth(),
            host: Host {
                resident: self.facts.resident,
                pinned: self.situation.pinned.max(last.pinned),
                slope: self.host_trend().filter(Trend::grows).filter(|_| grown).map(|trend| trend.slope),
                holders: self.on_host.iter().take(most).cloned().collect(),
            },
            other_processes: options.other_processes.clone(),
            remedies: advice.remedies,
            useless: advice.useless,
            measured: options.measured.clone(),
            rerun: options.rerun,
            evidence: Evidence {
                events: survey.events,
                overwritten: if run.reader().is_recording() { 0 } else { counters.lapped },
                losses: survey.losses,
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

    fn marks(&self) -> Vec<super::Mark> {
        let marks = self.survey.said.iter();
        marks
            .map(|said| super::Mark {
                name: said.name.clone(),
                event: said.event,
                realtime_ns: self.run.realtime_ns(said.time),
            })
            .collect()
    }

    fn regions(&self) -> Vec<Place> {
        let of = |place: &crate::survey::Place| Place {
            name: place.name.clone(),
            runs: place.runs,
            open: place.open > 0,
            peak: place.peak(self.device),
            kept: place.kept(self.device),
        };
        let mut regions: Vec<Place> = self.survey.places.iter().map(of).collect();
        regions.sort_by_key(|place| (!place.open, std::cmp::Reverse(place.peak)));
        regions
    }

    fn growth(&self) -> Vec<Growing> {
        // The others stay as they are: what is free now is what all that grows will share.
        let full_at = growth::full_at(self.survey, &self.growths, self.facts.room());
        let full_at = full_at.filter(|_| self.facts.limit() > 0);
        self.growths
            .iter()
            .take(5)
            .map(|growth| Growing {
                text: growth.text(self.survey),
                slope: growth.slope(),
                unit: growth.unit(),
                fit: growth.trend.fit,
                grown: growth.grown,
                over: growth.over(),
                full_at,
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
fn from_dump(holder: &weir_journal::OomHolder) -> Holder {
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
    if !crate::runs::is_of_this_boot(run) {
        return 0;
    }
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    line.split_ascii_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// What weir chose in the job. A journal whose names cannot be read has lost that too, and nothing else.
fn choices(run: &Run) -> Vec<Choice> {
    let notes = run.reader().notes().unwrap_or_default();
    notes.into_iter().map(|(subject, choice)| Choice { subject, choice }).collect()
}
