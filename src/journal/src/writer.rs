//! The writer: what the shim calls for every event. No method here allocates, waits for a lock, formats, makes a system call or
//! panics, unless its comment states it. Everything is in the mapping, so whatever kills the process, it is kept.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::arena::Arena;
use crate::create::{named, store_checked, store_text};
use crate::event::{Class, Event, FLAG_NOT_IN_TABLE, FLAG_POOL_HIT, Kind, STREAM_UNKNOWN, short_from_long};
use crate::fault::{Fault, injected};
use crate::flight::{Flights, InFlight, Intent};
use crate::history::History;
use crate::layout::{CONFIG_BYTES, DEVICE_WORDS, HOST_DEVICE, RECORD_WORDS, SECTIONS, Section, word};
use crate::live::{EntryRef, LiveEntry, LiveTable};
use crate::numbered::store;
use crate::sys::clock::{self, Clock};
use crate::sys::files::{self, SafeDir};
use crate::sys::map::Mapping;
use crate::sys::prefetch;
use crate::ticket::{FreeTicket, Ticket};

/// Where a journal's bytes are.
#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) dir: Option<SafeDir>,
    pub(crate) name: String,
    /// Kept open for its lock. Never closed by dropping: the job may have closed the number and got it again.
    file: ManuallyDrop<Option<File>>,
    identity: (u64, u64),
    reason: Option<String>,
    /// Why it is in another directory than it should be, if it is.
    pub(crate) moved: Option<String>,
}

impl Backing {
    pub(crate) fn file(dir: SafeDir, name: String, file: File) -> Self {
        let identity = file.metadata().map_or((0, 0), |meta| (meta.dev(), meta.ino()));
        Self { dir: Some(dir), name, file: ManuallyDrop::new(Some(file)), identity, reason: None, moved: None }
    }

    pub(crate) fn memory(reason: String) -> Self {
        Self {
            dir: None,
            name: String::new(),
            file: ManuallyDrop::new(None),
            identity: (0, 0),
            reason: Some(reason),
            moved: None,
        }
    }
}

/// A process's journal, for writing.
#[derive(Debug)]
pub struct Journal {
    pub(crate) words: &'static [AtomicU64],
    mapping: Mapping,
    pub(crate) clock: Clock,
    pub(crate) ring: &'static [[AtomicU64; RECORD_WORDS]],
    pub(crate) live: LiveTable,
    /// Chunks of the live table that pools have got.
    pub(crate) chunks: Mutex<u32>,
    pub(crate) flights: Flights,
    pub(crate) names: Arena,
    pub(crate) stacks: Arena,
    pub(crate) modules: &'static [[AtomicU64; RECORD_WORDS]],
    pub(crate) oom: &'static [AtomicU64],
    pub(crate) causes: &'static [AtomicU64],
    pub(crate) devices: &'static [[AtomicU64; DEVICE_WORDS]],
    config: &'static [AtomicU64],
    pub(crate) history: History,
    pub(crate) backing: Backing,
    pub(crate) statm: ManuallyDrop<Option<File>>,
    /// Counts resident bytes that are not the job's.
    pub(crate) foreign: OnceLock<fn() -> u64>,
    pub(crate) busy: AtomicBool,
    /// The generation of modules that the journal knows.
    pub(crate) generation: AtomicU64,
    detached: AtomicBool,
}

/// What is known about an allocation when it has succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// Address or handle.
    pub address: u64,
    /// Bytes allocated.
    pub allocated: u64,
}

/// How a request was answered: when, after how long, to whom, which slot it was in flight in, and the event's flags.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) now: u64,
    pub(crate) latency: u64,
    pub(crate) thread: u32,
    pub(crate) flight: Option<usize>,
    pub(crate) flags: u8,
}

impl Journal {
    pub(crate) fn on(mapping: Mapping, table: &[(u64, u64); SECTIONS.len()], clock: Clock, backing: Backing) -> Self {
        let words = mapping.words();
        let part = |which| named(words, table, which);
        Self {
            words,
            mapping,
            clock,
            ring: part(Section::Ring).as_chunks().0,
            live: LiveTable::new(part(Section::Live)),
            chunks: Mutex::new(0),
            flights: Flights::new(part(Section::Flight)),
            names: Arena::new(part(Section::Names), part(Section::NamesIndex)),
            stacks: Arena::new(part(Section::Stacks), part(Section::StacksIndex)),
            modules: part(Section::Modules).as_chunks().0,
            oom: part(Section::Oom),
            causes: part(Section::Causes),
            devices: part(Section::Devices).as_chunks().0,
            config: part(Section::Config),
            history: History::new(part(Section::History), (part(Section::Ring).len() / RECORD_WORDS) as u64),
            backing,
            statm: ManuallyDrop::new(File::open("/proc/self/statm").ok()),
            foreign: OnceLock::new(),
            busy: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            detached: AtomicBool::new(false),
        }
    }

    /// The journal's path; `None` when it is only in memory.
    pub fn path(&self) -> Option<PathBuf> {
        self.backing.dir.as_ref().map(|dir| dir.path().join(&self.backing.name))
    }

    /// Why there is no file, if there is none.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.backing.reason.as_deref()
    }

    /// Why its file is not in the directory that was wanted, if it is elsewhere.
    pub fn moved(&self) -> Option<&str> {
        self.backing.moved.as_deref()
    }

    /// Now, in ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    #[inline]
    pub(crate) fn count(&self, counter: usize) {
        if let Some(place) = self.words.get(counter) {
            place.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn claim(&self) -> u64 {
        self.words.get(word::HEAD).map_or(0, |head| head.fetch_add(1, Ordering::Relaxed))
    }

    /// An event is about to be recorded: its place is brought into the cache, while the caller finds out what to write.
    #[inline(always)]
    pub fn event_comes(&self) {
        let next = self.words.get(word::HEAD).map_or(0, |head| head.load(Ordering::Relaxed));
        if let Some(slot) = self.ring.get(next as usize & self.ring.len().wrapping_sub(1)) {
            prefetch::for_writing(slot);
        }
    }

    /// The same for an allocation or a free of this address, and its place in the live table.
    #[inline]
    pub fn change_comes(&self, address: u64, class: Class) {
        self.live.change_comes(address, class);
        self.event_comes();
    }

    /// Writes a record into the slot that `event.seq` was claimed for.
    #[inline(always)]
    pub(crate) fn write(&self, event: &Event) {
        let Some(slot) = self.ring.get(event.seq as usize & self.ring.len().wrapping_sub(1)) else {
            return;
        };
        store(slot, &event.pack());
        if self.history.is_moment(event.seq) {
            self.note_moment(event);
        }
    }

    /// Records an event that has no effect on the live table. Time and thread are filled in unless they are set.
    /// Returns its number.
    #[inline]
    pub fn record(&self, mut event: Event) -> u64 {
        if event.time == 0 {
            event.time = self.now();
        }
        if event.thread == 0 {
            event.thread = clock::thread_id();
        }
        event.seq = self.claim();
        self.write(&event);
        event.seq
    }

    /// A request is about to be made. The ticket gets the outcome; until then the request counts as in flight.
    #[inline]
    pub fn begin(&self, intent: Intent) -> Ticket<'_> {
        let since = self.now();
        let thread = clock::thread_id();
        let slot = if injected(Fault::Pending) {
            None
        } else {
            self.flights.begin(&InFlight { intent, since, thread, seq: None })
        };
        if slot.is_none() {
            self.count(word::FLIGHT_OVERFLOW);
        }
        Ticket { journal: self, intent, since, thread, slot, flags: 0 }
    }

    /// An allocation that needed no driver call: recorded in one go. Returns its number.
    #[inline]
    pub fn pool_hit(&self, intent: &Intent, granted: Granted) -> u64 {
        let hit =
            Answer { now: self.now(), latency: 0, thread: clock::thread_id(), flight: None, flags: FLAG_POOL_HIT };
        self.granted(intent, granted, &hit)
    }

    pub(crate) fn granted(&self, intent: &Intent, granted: Granted, answer: &Answer) -> u64 {
        let Answer { now, latency, thread, flight, mut flags } = *answer;
        let seq = self.claim();
        if let Some(flight) = flight {
            self.flights.becomes(flight, seq);
        }
        let live_after = self.add_live(intent.device, intent.class, granted.allocated);
        let entry = LiveEntry {
            address: granted.address,
            allocated: granted.allocated,
            requested: intent.requested,
            class: intent.class,
            device: intent.device,
            stream: intent.stream,
            birth: seq,
            time: now,
            thread,
            by: intent.by,
        };
        if self.live.insert(&entry).is_none() {
            self.count(word::LIVE_OVERFLOW);
            flags |= FLAG_NOT_IN_TABLE;
        }
        self.write(&Event {
            seq,
            time: now,
            kind: Kind::Alloc,
            class: intent.class,
            device: intent.device,
            stream: intent.stream,
            address: granted.address,
            requested: intent.requested,
            allocated: granted.allocated,
            live_after,
            result: 0,
            latency,
            thread,
            by: intent.by,
            aux: 0,
            flags,
        });
        seq
    }

    /// A free is about to be made. The ticket gets the outcome; dropping it records that nothing happened.
    #[inline]
    pub fn begin_free(&self, address: u64, class: Class) -> FreeTicket<'_> {
        let since = self.now();
        let thread = clock::thread_id();
        let found = self.live.begin_free(address, class, thread);
        FreeTicket { journal: self, address, class, since, thread, found }
    }

    /// A free that needs no driver call: recorded in one go, before anybody can get the address again. `None` and no
    /// event when the live table does not know it.
    #[inline]
    pub fn free(&self, address: u64, class: Class, stream: u16) -> Option<LiveEntry> {
        let (place, entry) = self.live.take(address, class)?;
        let now = self.now();
        let seq = self.claim();
        // From the number's store on, the allocation is gone.
        self.live.commit_free(place, seq);
        self.write_free(&entry, seq, now, 0, clock::thread_id(), stream);
        self.live.remove(place);
        Some(entry)
    }

    #[inline]
    fn write_free(&self, entry: &LiveEntry, seq: u64, now: u64, latency: u64, thread: u32, stream: u16) {
        self.write(&Event {
            seq,
            time: now,
            stream,
            address: entry.address,
            requested: entry.requested,
            allocated: entry.allocated,
            live_after: self.sub_live(entry.device, entry.class, entry.allocated),
            latency,
            thread,
            by: entry.by,
            aux: short_from_long(now.saturating_sub(entry.time)),
            ..Event::new(Kind::Free, entry.class, entry.device)
        });
    }

    /// Writes a free down that had begun, unless another thread has. Nobody waits for anybody: who comes second has a
    /// number too many, and writes the last sample of the host's memory under it.
    pub(crate) fn end_free(&self, place: EntryRef, begun: u64, entry: &LiveEntry, now: u64, latency: u64, stream: u16) {
        if !self.live.is_begun(place, begun) {
            return;
        }
        let seq = self.claim();
        let thread = begun as u32 & 0xff_ffff;
        if self.live.end_free(place, begun, seq) {
            self.write_free(entry, seq, now, latency, thread, stream);
        } else {
            let pinned = self.live_bytes(HOST_DEVICE, Class::Pinned) + self.live_bytes(HOST_DEVICE, Class::Registered);
            let sample = Event::new(Kind::HostSample, Class::Other, HOST_DEVICE);
            self.write(&Event {
                seq,
                time: now,
                thread,
                allocated: self.resident_bytes(),
                requested: pinned,
                ..sample
            });
        }
    }

    /// An address was handed out whose free by another thread has happened and is not written down yet: that comes
    /// first, or the order of events would show the new memory as freed.
    pub(crate) fn free_comes_first(&self, address: u64, class: Class, now: u64) {
        if let Some((place, entry, begun)) = self.live.freed_before(address, class) {
            self.end_free(place, begun, &entry, now, 0, STREAM_UNKNOWN);
        }
    }

    /// Visits every live allocation. Takes as long as the table is large: not for the hot path.
    pub fn for_each_live(&self, visit: impl FnMut(&LiveEntry)) {
        self.live.for_each(visit);
    }

    /// Stores the configuration text, cut to what fits.
    pub fn set_config(&self, text: &str) {
        store_checked(self.config, text.as_bytes(), CONFIG_BYTES - 16);
    }

    /// The library turned itself off; the first reason stays. `code` must not be 0.
    pub fn turned_off(&self, code: u32, reason: &str) {
        let Some(place) = self.words.get(word::OFF_CODE) else {
            return;
        };
        if place.compare_exchange(0, u64::from(code.max(1)), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            store_text(self.words, word::OFF_TEXT, reason.as_bytes(), word::OFF_TEXT_BYTES);
            self.record(Event { address: code.into(), ..Event::new(Kind::TurnedOff, Class::Other, HOST_DEVICE) });
        }
    }

    /// The process exits in order, with this status if it is known.
    pub fn exiting(&self, status: Option<u8>) {
        self.refresh_anchor();
        let result = status.unwrap_or(0).into();
        self.record(Event { result, ..Event::new(Kind::Exit, Class::Other, HOST_DEVICE) });
        if let (Some(place), Some(status)) = (self.words.get(word::EXIT_STATUS), status) {
            place.store(256 | u64::from(status), Ordering::Relaxed);
        }
        if let Some(clean) = self.words.get(word::CLEAN_EXIT) {
            clean.store(1, Ordering::Release);
        }
        if !self.detached.load(Ordering::Relaxed) {
            self.remove_empty_xla_folder();
        }
    }

    /// The process leaves at once, by `_exit`, with this status. May be called in a signal handler: stores, and nothing
    /// else. A child that shares this memory (vfork) is not the process.
    pub fn leaving(&self, status: u8) {
        let word = |index| self.words.get(index);
        let own = word(word::PID_UID).is_some_and(|place| place.load(Ordering::Relaxed) as u32 == std::process::id());
        if let (true, Some(place), Some(clean)) = (own, word(word::EXIT_STATUS), word(word::CLEAN_EXIT)) {
            place.store(256 | u64::from(status), Ordering::Relaxed);
            clean.store(1, Ordering::Release);
        }
    }

    /// The process has forked; to be called in the parent.
    pub fn forked(&self, child: u32) {
        self.record(Event { address: child.into(), ..Event::new(Kind::Fork, Class::Other, HOST_DEVICE) });
    }

    /// To be called in the child after a fork, before anything else of this crate. The parent's file is left alone:
    /// the mapping becomes private memory at the same address, so even a stale reference does no harm, and the
    /// inherited descriptor is closed. The child then creates its own journal at its first use. Makes system calls.
    pub fn detach_in_child(&self) {
        if self.detached.swap(true, Ordering::Relaxed) {
            return;
        }
        clock::forget_threads();
        // If this fails the child keeps the parent's mapping; it must then not be written to, so `detached` is set.
        let _ = self.mapping.abandon();
        if let Some(file) = self.backing.file.as_ref()
            && files::is_same(file, self.backing.identity.0, self.backing.identity.1)
        {
            files::close_inherited(file);
        }
    }
}
