//! Order: what is known about the progress of the device. Streams with vector clocks, events, contexts
//! and their synchronisations. Touches host memory only.
//!
//! Time is a counter that every free advances. A proof always refers to the time at which the call that
//! gave it *began*, because work queued later is not covered by it.

use crate::backing::Fence;
use crate::bins::Bins;
use crate::block::DEVICE;
use crate::fault;
use crate::free_lists::FreeLists;
use crate::{Fault, fault::injected};
use std::collections::HashMap;

/// Streams whose domains are found without a look into the table of all.
const RECENT: usize = 16;

#[inline]
fn recent_place(stream: u64) -> usize {
    (stream.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize % RECENT
}

/// What a stream is known to come after: up to when each other stream's work precedes its own.
pub(crate) type Clock = Vec<(u64, u64)>;

/// Take over what `from` knows into `into`.
fn learn(into: &mut Clock, from: &[(u64, u64)]) {
    for (serial, time) in from {
        match into.iter_mut().find(|(known, _)| known == serial) {
            Some((_, known)) => *known = (*known).max(*time),
            None => into.push((*serial, *time)),
        }
    }
}

/// A stream and the free blocks that are its own to reuse; domain 0 stands for the idle device.
pub(crate) struct Domain {
    /// The driver's handle; `None` once destroyed.
    pub(crate) stream: Option<u64>,
    /// Unique for ever, where handles come again.
    pub(crate) serial: u64,
    pub(crate) context: u32,
    /// Work queued up to this time has finished.
    pub(crate) done: u64,
    /// Up to here safe blocks have been looked for.
    pub(crate) swept: u64,
    pub(crate) clock: Clock,
    pub(crate) capturing: bool,
    /// Fences of the pool's own that are still open, with the time each was planned.
    pub(crate) fences: Vec<(Fence, u64)>,
    pub(crate) bins: [Bins; 3],
    pub(crate) free_lists: [FreeLists; 3],
}

impl Domain {
    fn new(stream: Option<u64>, serial: u64, context: u32, listed: [u32; 3]) -> Self {
        Self {
            stream,
            serial,
            context,
            done: 0,
            swept: 0,
            clock: Clock::new(),
            capturing: false,
            fences: Vec::new(),
            bins: [Bins::new(), Bins::new(), Bins::new()],
            free_lists: listed.map(FreeLists::new),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bins.iter().all(|bins| bins.count == 0) && self.free_lists.iter().all(|free_lists| free_lists.count == 0)
    }
}

struct Context {
    id: u64,
    done: u64,
    alive: bool,
}

#[derive(Default)]
struct Event {
    /// Unique for every record, so that a proof about an older one is not taken for a newer.
    records: u64,
    /// A record is under way: nothing is known.
    open: u32,
    clock: Clock,
}

/// A call of the job's that proves something about the progress of the device if it succeeds. Contexts, streams and
/// events are the driver's handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A context is synchronised with.
    ContextSync(u64),
    /// A stream is synchronised with or queried; it succeeds if the stream is idle.
    StreamSync(u64),
    /// The host waits for an event or queries it; it succeeds if the event has finished.
    EventSync(u64),
    /// An event is recorded on a stream.
    EventRecord {
        /// The event.
        event: u64,
        /// The stream.
        stream: u64,
    },
    /// A stream is made to wait for an event.
    EventWait {
        /// The event.
        event: u64,
        /// The stream.
        stream: u64,
        /// The stream's context.
        context: u64,
    },
}

/// What a call proves if it succeeds, taken down before it is made.
#[derive(Clone, Debug)]
#[must_use]
pub struct Proof(What);

impl Proof {
    /// Whether it is of a record, which counts even if it fails.
    pub(crate) fn is_record(&self) -> bool {
        matches!(self.0, What::Record { .. })
    }
}

/// Something finishes of which nothing is known.
const UNKNOWN: What = What::Stream(0, 0, Clock::new());

#[derive(Clone, Debug)]
enum What {
    Context(u32, u64),
    Stream(u64, u64, Clock),
    Record { event: u64, records: u64, clock: Clock },
    Event { event: u64, records: u64, clock: Clock },
    Wait { event: u64, records: u64, clock: Clock, stream: u64, context: u64 },
    Nothing,
}

/// How far a call that has ended moved what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The host has seen nothing finish.
    None,
    /// The host has seen some work finish.
    Host,
    /// The device as a whole has advanced.
    Device,
}

/// See the file's first comment.
pub(crate) struct Order {
    /// What frees are stamped with. A time that may prove something is read by `Pool::dated`, or with no block in a cache.
    pub(crate) now: u64,
    /// All device work up to this time has finished.
    pub(crate) device_done: u64,
    pub(crate) domains: Vec<Domain>,
    streams: HashMap<u64, u16>,
    /// Streams seen lately with their domains, each in the slot of its handle.
    recent: [(u64, u16); RECENT],
    serials: u64,
    /// The longest blocks that free lists take, by arena.
    listed: [u32; 3],
    contexts: Vec<Context>,
    events: HashMap<u64, Event>,
    /// Captures under way.
    pub(crate) captures: u32,
}

impl Order {
    pub(crate) fn new(listed: [u32; 3]) -> Self {
        Self {
            now: 1,
            device_done: 0,
            domains: vec![Domain { free_lists: listed.map(FreeLists::proven), ..Domain::new(None, 0, 0, listed) }],
            streams: HashMap::new(),
            recent: [(0, DEVICE); RECENT],
            serials: 0,
            listed,
            contexts: Vec::new(),
            events: HashMap::new(),
            captures: 0,
        }
    }

    /// Advance the time and return it.
    #[inline]
    pub(crate) fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    #[inline]
    pub(crate) fn domain(&self, index: u16) -> &Domain {
        let at = if (index as usize) < self.domains.len() { index as usize } else { 0 };
        &self.domains[at]
    }

    #[inline]
    pub(crate) fn domain_at(&mut self, index: u16) -> &mut Domain {
        let at = if (index as usize) < self.domains.len() { index as usize } else { 0 };
        &mut self.domains[at]
    }

    #[inline]
    pub(crate) fn context(&mut self, id: u64) -> u32 {
        // Most jobs have one context, and it is the first.
        if self.contexts.first().is_some_and(|context| context.id == id && context.alive) {
            return 0;
        }
        self.another_context(id)
    }

    #[inline(never)]
    fn another_context(&mut self, id: u64) -> u32 {
        if let Some(at) = self.contexts.iter().position(|context| context.id == id && context.alive) {
            return at as u32;
        }
        // Not announced when it was created: it may have work of any age.
        self.contexts.push(Context { id, done: 0, alive: true });
        (self.contexts.len() - 1) as u32
    }

    /// A context that is created now has no work older than now.
    pub(crate) fn context_created(&mut self, id: u64) {
        let (now, index) = (self.now, self.context(id));
        if let Some(known) = self.contexts.get_mut(index as usize) {
            known.done = known.done.max(now);
        }
    }

    pub(crate) fn context_id(&self, index: u32) -> u64 {
        self.contexts.get(index as usize).map_or(0, |context| context.id)
    }

    /// The domain of a stream, made on first sight.
    #[inline]
    pub(crate) fn stream(&mut self, stream: u64, context: u32) -> u16 {
        let (known, domain) = self.recent[recent_place(stream)];
        if known == stream && domain != DEVICE { domain } else { self.another_stream(stream, context) }
    }

    #[inline(never)]
    fn another_stream(&mut self, stream: u64, context: u32) -> u16 {
        if let Some(index) = self.streams.get(&stream) {
            self.recent[recent_place(stream)] = (stream, *index);
            return *index;
        }
        self.serials += 1;
        let domain = Domain::new(Some(stream), self.serials, context, self.listed);
        let unused = self.domains.iter().skip(1).position(|domain| domain.stream.is_none() && domain.is_empty());
        let index = if let Some(at) = unused {
            let index = (at + 1) as u16;
            *self.domain_at(index) = domain;
            index
        } else if self.domains.len() < usize::from(u16::MAX) {
            self.domains.push(domain);
            (self.domains.len() - 1) as u16
        } else {
            // Too many streams at once: this one shares with the idle device and never frees into it early.
            return DEVICE;
        };
        self.streams.insert(stream, index);
        self.recent[recent_place(stream)] = (stream, index);
        index
    }

    pub(crate) fn known_stream(&self, stream: u64) -> Option<u16> {
        self.streams.get(&stream).copied()
    }

    /// Forget a destroyed stream; its domain is returned, for its free blocks to be moved.
    pub(crate) fn drop_stream(&mut self, stream: u64) -> Option<u16> {
        let index = self.streams.remove(&stream)?;
        self.recent[recent_place(stream)] = (0, DEVICE);
        let capturing = self.domain(index).capturing;
        self.captures = self.captures.saturating_sub(u32::from(capturing));
        let domain = self.domain_at(index);
        domain.stream = None;
        domain.capturing = false;
        Some(index)
    }

    pub(crate) fn drop_context(&mut self, context: u32) -> Vec<u64> {
        if let Some(known) = self.contexts.get_mut(context as usize) {
            known.alive = false;
        }
        self.domains.iter().filter(|domain| domain.context == context).filter_map(|domain| domain.stream).collect()
    }

    /// May work queued now on `reader` follow everything that `owner`'s stream had queued at `time`?
    #[inline]
    pub(crate) fn follows(&self, reader: u16, owner: u16, time: u64) -> bool {
        if injected(Fault::EventsIgnored) {
            return true;
        }
        let serial = self.domain(owner).serial;
        self.domain(reader).clock.iter().any(|(known, upto)| *known == serial && *upto >= time)
    }

    /// What a call that is about to be made would prove.
    pub(crate) fn begin(&mut self, call: Call) -> Proof {
        Proof(match call {
            Call::ContextSync(id) => What::Context(self.context(id), self.now),
            Call::StreamSync(stream) => self.known_stream(stream).map_or(UNKNOWN, |index| {
                let domain = self.domain(index);
                What::Stream(domain.serial, self.now, domain.clock.clone())
            }),
            Call::EventSync(event) => self.recorded(event).map_or(UNKNOWN, |known| What::Event {
                event,
                records: known.records,
                clock: known.clock.clone(),
            }),
            Call::EventRecord { event, stream } => self.begin_record(event, stream),
            Call::EventWait { event, stream, context } => self.recorded(event).map_or(What::Nothing, |known| {
                What::Wait { event, records: known.records, clock: known.clock.clone(), stream, context }
            }),
        })
    }

    fn begin_record(&mut self, event: u64, stream: u64) -> What {
        let now = self.now;
        let known = self.known_stream(stream).map(|index| {
            let domain = self.domain(index);
            let mut clock = domain.clock.clone();
            learn(&mut clock, &[(domain.serial, now)]);
            // A record into a capture is a node of a graph: it shows nothing about the stream's own progress.
            if domain.capturing { Clock::new() } else { clock }
        });
        self.serials += 1;
        let entry = self.events.entry(event).or_default();
        entry.records = self.serials;
        entry.open += 1;
        entry.clock.clear();
        let records = entry.records;
        What::Record { event, records, clock: known.unwrap_or_default() }
    }

    /// What is known of an event's record, unless another is under way.
    fn recorded(&self, event: u64) -> Option<&Event> {
        self.events.get(&event).filter(|known| known.open == 0)
    }

    /// The recorded event, if it is still the record that `proof` was about.
    fn same_record(&self, event: u64, records: u64) -> bool {
        injected(Fault::StaleEventTrusted) || self.events.get(&event).is_some_and(|known| known.records == records)
    }

    /// A record has been made (or not).
    fn end_record(&mut self, event: u64, records: u64, clock: Clock, ok: bool) {
        if let Some(known) = self.events.get_mut(&event) {
            known.open = known.open.saturating_sub(1);
            // Two records at once: which of them counts is not known, so neither does.
            if ok && known.open == 0 && known.records == records {
                known.clock = clock;
            }
        }
    }

    /// A stream has been made to wait for a record.
    fn end_wait(&mut self, clock: &[(u64, u64)], stream: u64, context: u64) {
        let context = self.context(context);
        let index = self.stream(stream, context);
        if index == DEVICE || self.domain(index).capturing {
            return;
        }
        let device_done = self.device_done;
        let domain = self.domain_at(index);
        domain.clock.retain(|(_, time)| *time > device_done);
        learn(&mut domain.clock, clock);
    }

    /// A call has returned; `ok`: it has done or seen what it was made for.
    pub(crate) fn end(&mut self, proof: Proof, ok: bool) -> Progress {
        match proof.0 {
            What::Record { event, records, clock } => self.end_record(event, records, clock, ok),
            _ if !ok => {}
            What::Stream(serial, time, clock) => {
                self.finished(serial, time);
                self.all_finished(clock);
                return Progress::Host;
            }
            What::Event { event, records, clock } => {
                if self.same_record(event, records) {
                    self.all_finished(clock);
                }
                return Progress::Host;
            }
            What::Wait { event, records, clock, stream, context } => {
                if self.same_record(event, records) {
                    self.end_wait(&clock, stream, context);
                }
            }
            What::Context(context, began) => {
                let time = if fault::injected(Fault::EpochTakenAtTheEnd) { self.now } else { began };
                if let Some(known) = self.contexts.get_mut(context as usize) {
                    known.done = known.done.max(time);
                }
                for domain in self.domains.iter_mut().filter(|domain| domain.context == context) {
                    domain.done = domain.done.max(time);
                }
                if self.advance_device() {
                    return Progress::Device;
                }
            }
            What::Nothing => {}
        }
        Progress::None
    }

    fn all_finished(&mut self, clock: Clock) {
        for (serial, time) in clock {
            self.finished(serial, time);
        }
    }

    /// The device is idle as far as its slowest context is known to be.
    pub(crate) fn advance_device(&mut self) -> bool {
        let slowest = self.contexts.iter().filter(|context| context.alive).map(|context| context.done).min();
        // Without any context left there is no work left either.
        self.all_done(slowest.unwrap_or(self.now))
    }

    /// All work of every context up to `time` has finished.
    pub(crate) fn all_done(&mut self, time: u64) -> bool {
        if time <= self.device_done {
            return false;
        }
        self.device_done = time;
        for context in &mut self.contexts {
            context.done = context.done.max(time);
        }
        for domain in self.domains.iter_mut().skip(1) {
            domain.done = domain.done.max(time);
        }
        true
    }

    /// Work of the stream with this serial has finished up to `time`.
    pub(crate) fn finished(&mut self, serial: u64, time: u64) {
        if let Some(domain) = self.domains.iter_mut().skip(1).find(|domain| domain.serial == serial) {
            domain.done = domain.done.max(time);
        }
    }

    /// `reader` now comes after everything `serial`'s stream had queued at `time`.
    pub(crate) fn ordered(&mut self, reader: u16, serial: u64, time: u64) {
        learn(&mut self.domain_at(reader).clock, &[(serial, time)]);
    }

    pub(crate) fn event_destroyed(&mut self, event: u64) {
        self.events.remove(&event);
    }

    pub(crate) fn capture(&mut self, stream: u64, context: u64, began: bool) {
        let context = self.context(context);
        let index = self.stream(stream, context);
        let domain = self.domain_at(index);
        if index != DEVICE && domain.capturing != began {
            domain.capturing = began;
            self.captures = if began { self.captures + 1 } else { self.captures.saturating_sub(1) };
        }
    }
}
