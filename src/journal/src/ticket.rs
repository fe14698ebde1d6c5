//! Requests and frees in flight: a ticket is taken before the driver call and records its outcome; until then the live
//! table shows that the call is under way. Like all of the writer it allocates nothing, takes no lock and makes no system call.

use crate::event::{Attribution, Class, Event, FLAG_INTERNAL, FLAG_UNKNOWN_ADDRESS, Kind};
use crate::flight::Intent;
use crate::layout::{HOST_DEVICE, word};
use crate::live::{EntryRef, LiveEntry, begun};
use crate::numbered::Numbering;
use crate::writer::{Answer, Granted, Journal};

/// A request in flight. It gets the outcome.
#[derive(Debug)]
#[must_use = "the request counts as in flight until the ticket gets the outcome"]
pub struct Ticket<'journal> {
    pub(crate) journal: &'journal Journal,
    pub(crate) intent: Intent,
    pub(crate) since: u64,
    pub(crate) thread: u32,
    pub(crate) slot: Option<usize>,
    pub(crate) flags: u8,
}

impl Ticket<'_> {
    /// The call is weir's own, not the job's.
    pub fn internal(mut self) -> Self {
        self.flags |= FLAG_INTERNAL;
        self
    }

    /// The requested bytes of the event are known only now; for a remap, the old address.
    pub fn set_requested(&mut self, requested: u64) {
        self.intent.requested = requested;
    }

    /// Who requests it was found out only now, for example because the request turned out to need a native stack.
    pub fn attribute(&mut self, by: Attribution) {
        self.intent.by = by;
    }

    /// It succeeded: the memory is live from now on. Returns the event's number.
    #[inline]
    pub fn granted(self, granted: Granted) -> u64 {
        let answer = self.answer();
        self.journal.free_comes_first(granted.address, self.intent.class, answer.now);
        self.journal.granted(&self.intent, granted, &answer)
    }

    /// The same for a block that a pool knows by this number.
    pub fn granted_block(self, numbering: &Numbering, number: usize, granted: Granted) -> u64 {
        self.journal.block_granted((numbering, number), &self.intent, granted, &self.answer())
    }

    /// It is answered now.
    fn answer(&self) -> Answer {
        let now = self.journal.now();
        let latency = now.saturating_sub(self.since);
        Answer { now, latency, thread: self.thread, flight: self.slot, flags: self.flags }
    }

    /// It did not succeed (`Kind::Failed`, `Kind::Refused`), or was something that has no place in the live table
    /// (`Kind::Map`, `Kind::Sync`, …). Returns the event's number.
    #[inline]
    pub fn ended(self, kind: Kind, allocated: u64, result: u16) -> u64 {
        let journal = self.journal;
        let now = journal.now();
        let intent = &self.intent;
        let seq = journal.claim();
        if let Some(slot) = self.slot {
            journal.flights.becomes(slot, seq);
        }
        journal.write(&Event {
            seq,
            time: now,
            address: intent.address,
            stream: intent.stream,
            requested: intent.requested,
            allocated,
            live_after: journal.live_bytes(intent.device, intent.class),
            result,
            latency: now.saturating_sub(self.since),
            thread: self.thread,
            by: intent.by,
            flags: self.flags,
            ..Event::new(kind, intent.class, intent.device)
        });
        seq
    }
}

impl Drop for Ticket<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.journal.flights.end(slot);
        }
    }
}

/// A free in flight. It gets the outcome.
#[derive(Debug)]
#[must_use = "the free counts as in flight until the ticket gets the outcome"]
pub struct FreeTicket<'journal> {
    pub(crate) journal: &'journal Journal,
    pub(crate) address: u64,
    pub(crate) class: Class,
    pub(crate) since: u64,
    pub(crate) thread: u32,
    pub(crate) found: Option<(EntryRef, LiveEntry)>,
}

impl FreeTicket<'_> {
    /// The allocation that is being freed, if the live table knows it.
    pub fn entry(&self) -> Option<&LiveEntry> {
        self.found.as_ref().map(|(_, entry)| entry)
    }

    /// It succeeded: the memory is gone. Returns what was freed.
    #[inline]
    pub fn freed(mut self, stream: u16) -> Option<LiveEntry> {
        let journal = self.journal;
        let now = journal.now();
        let latency = now.saturating_sub(self.since);
        let Some((place, entry)) = self.found.take() else {
            journal.count(word::UNKNOWN_FREES);
            journal.record(Event {
                time: now,
                stream,
                address: self.address,
                latency,
                thread: self.thread,
                flags: FLAG_UNKNOWN_ADDRESS,
                ..Event::new(Kind::Free, self.class, HOST_DEVICE)
            });
            return None;
        };
        journal.end_free(place, begun(self.thread, entry.birth), &entry, now, latency, stream);
        journal.live.remove(place);
        Some(entry)
    }

    /// It failed: the memory is still there.
    pub fn failed(self, result: u16) {
        let entry = self.found.as_ref().map(|(_, entry)| *entry);
        let device = entry.map_or(HOST_DEVICE, |entry| entry.device);
        self.journal.record(Event {
            address: self.address,
            allocated: entry.map_or(0, |entry| entry.allocated),
            requested: entry.map_or(0, |entry| entry.requested),
            latency: self.journal.now().saturating_sub(self.since),
            result,
            flags: if entry.is_some() { 0 } else { FLAG_UNKNOWN_ADDRESS },
            ..Event::new(Kind::FreeFailed, self.class, device)
        });
    }
}

impl Drop for FreeTicket<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((place, _)) = self.found.take() {
            self.journal.live.cancel_free(place);
        }
    }
}
