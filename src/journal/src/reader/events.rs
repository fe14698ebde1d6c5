//! Events in order, with every loss known.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::Event;
use crate::layout::{RECORD_BYTES, RECORD_WORDS, Section};
use crate::reader::record::Recording;
use crate::reader::source::records_of;
use crate::reader::{Error, Reader};

/// Records read at once.
pub(crate) const BATCH: u64 = 4096;

/// Why events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The record is there in part: its writer died, or was overtaken, in the middle of it.
    Torn,
    /// A number was taken and nothing was written: its writer died before, or is about to write.
    Unwritten,
    /// Later events have overwritten it.
    Lapped,
    /// The file ends before it.
    Cut,
}

/// A run of missing events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Loss {
    /// Number of the first one.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Why.
    pub why: Why,
}

/// An event, or the news that some are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// An event.
    Event(Event),
    /// Missing events.
    Lost(Loss),
}

/// Where events are found.
#[derive(Debug)]
pub(crate) enum EventStore {
    /// In the ring.
    Ring,
    /// In frames of a recording.
    Frames(Arc<Recording>),
}

impl Reader {
    /// Numbers of the oldest event that may still be there and of the next one to come.
    pub fn range(&self) -> (u64, u64) {
        match &self.store {
            EventStore::Ring => (self.header.counters.lapped, self.header.counters.events),
            EventStore::Frames(recording) => {
                let frames = recording.event_frames();
                let first = frames.first().map_or(0, |frame| frame.first);
                (first, frames.last().map_or(first, |frame| frame.first + frame.count))
            }
        }
    }

    /// All events that are there, oldest first.
    pub fn events(&self) -> Events<'_> {
        self.events_from(self.range().0)
    }

    /// Events from this number on that are there.
    pub fn events_from(&self, first: u64) -> Events<'_> {
        let (oldest, end) = self.range();
        Events { reader: self, next: first.max(oldest), end, ready: VecDeque::new(), failed: false }
    }

    /// Events from `first` on, at most a batch and none from `end` on, and the number to go on with.
    pub(crate) fn batch(&self, first: u64, end: u64, to: &mut VecDeque<Slot>) -> Result<u64, Error> {
        match &self.store {
            EventStore::Ring => self.ring_batch(first, end, to),
            EventStore::Frames(recording) => frame_batch(recording, first, end, to),
        }
    }

    /// Where to start so as to read the events right before `end`. A gap in a recording is one step, however wide.
    pub(crate) fn batch_before(&self, end: u64) -> u64 {
        let EventStore::Frames(recording) = &self.store else { return end.saturating_sub(BATCH) };
        let frames = recording.event_frames();
        let before = frames.partition_point(|frame| frame.first < end).checked_sub(1);
        before.and_then(|place| frames.get(place)).map_or(0, |frame| {
            let after = frame.first + frame.count;
            if after < end { after } else { frame.first }
        })
    }

    fn ring_batch(&self, first: u64, end: u64, to: &mut VecDeque<Slot>) -> Result<u64, Error> {
        let range = self.header.section(Section::Ring);
        let (slots, present) = (self.header.ring_slots().max(1), range.present / RECORD_BYTES);
        let position = first & (slots - 1);
        let until_wrap = slots - position;
        if position >= present {
            let count = until_wrap.min(end - first);
            push_loss(to, first, count, Why::Cut);
            return Ok(first + count);
        }
        let count = BATCH.min(end - first).min(until_wrap).min(present - position);
        let mut bytes = vec![0; (count * RECORD_BYTES) as usize];
        let done = self.source.read_at(&mut bytes, range.offset + position * RECORD_BYTES)?;
        let records = records_of(bytes.get(..done).unwrap_or_default());
        let read = records.len() as u64;
        for (seq, record) in (first..).zip(records) {
            push_record(to, &record, seq, slots);
        }
        push_loss(to, first + read, count - read, Why::Cut);
        Ok(first + count)
    }
}

fn frame_batch(recording: &Recording, first: u64, end: u64, to: &mut VecDeque<Slot>) -> Result<u64, Error> {
    let frames = recording.event_frames();
    let after = frames.partition_point(|frame| frame.first <= first);
    let frame = after.checked_sub(1).and_then(|place| frames.get(place));
    let Some(frame) = frame.filter(|frame| first - frame.first < frame.count) else {
        let next = frames.get(after).map_or(end, |frame| frame.first).min(end).max(first + 1);
        push_loss(to, first, next - first, Why::Lapped);
        return Ok(next);
    };
    let stop = end.min(frame.first + frame.count);
    let bytes = recording.bytes_of(frame)?;
    let mut next = first;
    for (seq, record) in (frame.first..stop).zip(records_of(&bytes)).filter(|(seq, _)| *seq >= first) {
        push_record(to, &record, seq, u64::MAX);
        next = seq + 1;
    }
    push_loss(to, next, stop - next, Why::Torn);
    Ok(stop)
}

fn push_loss(to: &mut VecDeque<Slot>, first: u64, count: u64, why: Why) {
    if count == 0 {
        return;
    }
    // Neighbouring losses of one sort become one.
    if let Some(Slot::Lost(last)) = to.back_mut()
        && last.why == why
        && last.first + last.count == first
    {
        last.count += count;
        return;
    }
    to.push_back(Slot::Lost(Loss { first, count, why }));
}

pub(crate) fn push_record(to: &mut VecDeque<Slot>, record: &[u64; RECORD_WORDS], seq: u64, slots: u64) {
    match Event::unpack(record, seq) {
        Some(event) => to.push_back(Slot::Event(event)),
        None => push_loss(to, seq, 1, why_not(record, seq, slots)),
    }
}

/// Why a record is not event `seq`: an older event there, whole, means that nothing was written yet.
pub(crate) fn why_not(record: &[u64; RECORD_WORDS], seq: u64, slots: u64) -> Why {
    let older = seq.checked_sub(slots);
    let newer = seq.checked_add(slots);
    if record.iter().all(|word| *word == 0) || older.is_some_and(|older| Event::unpack(record, older).is_some()) {
        Why::Unwritten
    } else if newer.is_some_and(|newer| Event::unpack(record, newer).is_some()) {
        Why::Lapped
    } else {
        Why::Torn
    }
}

/// Iterator over events and losses.
#[derive(Debug)]
pub struct Events<'reader> {
    reader: &'reader Reader,
    next: u64,
    end: u64,
    ready: VecDeque<Slot>,
    failed: bool,
}

impl Iterator for Events<'_> {
    type Item = Result<Slot, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(slot) = self.ready.pop_front() {
                return Some(Ok(slot));
            }
            if self.next >= self.end || self.failed {
                return None;
            }
            match self.reader.batch(self.next, self.end, &mut self.ready) {
                Ok(next) => self.next = next,
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
    }
}
