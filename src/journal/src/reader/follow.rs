//! Following a living journal. The writer does not know about followers; a follower that is too slow notices that it
//! was overtaken and reports how much it missed.

use std::collections::VecDeque;

use crate::event::Event;
use crate::layout::RECORD_BYTES;
use crate::layout::Section;
use crate::reader::events::{BATCH, why_not};
use crate::reader::source::records_of;
use crate::reader::{Error, Loss, Reader, Slot, Why};

/// Reads a journal from some event on, as far as it is written, and goes on later.
#[derive(Debug)]
pub struct Follower {
    reader: Reader,
    next: u64,
    /// Event that was claimed but not written at the last look, and how often that was seen.
    waiting: (u64, u32),
}

/// Looks at a claimed but unwritten record before it is skipped: its writer is dead, or stopped in a debugger.
const PATIENCE: u32 = 1000;

impl Follower {
    /// Follows from the oldest event still there, or from now on.
    pub fn new(reader: Reader, from_now: bool) -> Self {
        let (first, end) = reader.range();
        Self { reader, next: if from_now { end } else { first }, waiting: (0, 0) }
    }

    /// The journal.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The number of the next event.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// What was written since the last look, at most `most` events. `last_look`: the writer is dead, so that
    /// nothing unwritten is waited for.
    pub fn poll(&mut self, most: usize, last_look: bool) -> Result<Vec<Slot>, Error> {
        let mut slots = Vec::new();
        self.reader.refresh()?;
        while slots.len() < most {
            let header = self.reader.header();
            let (size, head) = (header.ring_slots().max(1), header.counters.events);
            if self.next >= head {
                break;
            }
            self.note_lapped(head, size, &mut slots);
            let range = self.reader.header().section(Section::Ring);
            let position = self.next & (size - 1);
            let present = (range.present / RECORD_BYTES).saturating_sub(position);
            let count =
                BATCH.min(head - self.next).min(size - position).min(present).min((most - slots.len()).max(1) as u64);
            let mut bytes = vec![0; (count * RECORD_BYTES) as usize];
            let done = self.reader.source.read_at(&mut bytes, range.offset + position * RECORD_BYTES)?;
            // What was overwritten while it was read shows in the head, which writers move before they write.
            self.reader.refresh()?;
            let head = self.reader.header().counters.events;
            let before = self.next;
            let mut stuck = count == 0 || done == 0;
            for record in records_of(bytes.get(..done).unwrap_or_default()) {
                if self.next < head.saturating_sub(size) {
                    break;
                }
                if let Some(event) = Event::unpack(&record, self.next) {
                    slots.push(Slot::Event(event));
                } else if last_look || self.given_up(head, size) {
                    let why = why_not(&record, self.next, size);
                    slots.push(Slot::Lost(Loss { first: self.next, count: 1, why }));
                } else {
                    stuck = true;
                    break;
                }
                self.next += 1;
            }
            if stuck || (self.next == before && self.next >= head.saturating_sub(size)) {
                break;
            }
        }
        Ok(slots)
    }

    fn note_lapped(&mut self, head: u64, size: u64, slots: &mut Vec<Slot>) {
        let oldest = head.saturating_sub(size);
        if self.next < oldest {
            slots.push(Slot::Lost(Loss { first: self.next, count: oldest - self.next, why: Why::Lapped }));
            self.next = oldest;
        }
    }

    fn given_up(&mut self, head: u64, size: u64) -> bool {
        if self.waiting.0 != self.next {
            self.waiting = (self.next, 0);
        }
        self.waiting.1 += 1;
        self.waiting.1 > PATIENCE || head - self.next > size / 2
    }
}

/// Turns what a follower gave into raw records again, for a recording: (first number, records), in runs without gaps.
pub(crate) fn runs(slots: &[Slot]) -> VecDeque<(u64, Vec<u8>)> {
    let mut runs: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
    for slot in slots {
        let Slot::Event(event) = slot else { continue };
        let bytes = event.pack().into_iter().flat_map(u64::to_le_bytes);
        match runs.back_mut() {
            Some((first, run))
                if *first + run.len() as u64 / RECORD_BYTES == event.seq && run.len() as u64 / RECORD_BYTES < BATCH =>
            {
                run.extend(bytes);
            }
            _ => runs.push_back((event.seq, bytes.collect())),
        }
    }
    runs
}
