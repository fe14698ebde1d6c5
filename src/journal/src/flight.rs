//! Calls in flight: a slot is filled before the driver is called and emptied when the outcome is written down, so
//! that what was going on at death is known. Lock-free; a slot belongs to one thread at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::{Attribution, Class, Kind, bits};
use crate::layout::RECORD_WORDS;
use crate::sys::clock;
use crate::sys::crc::crc_record;

/// A request that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Intent {
    /// What is wanted: an allocation, a mapping, …
    pub kind: Kind,
    /// Of what sort.
    pub class: Class,
    /// Where.
    pub device: u8,
    /// On which stream.
    pub stream: u16,
    /// Bytes requested.
    pub requested: u64,
    /// Address, where it is known beforehand.
    pub address: u64,
    /// Who requests it.
    pub by: Attribution,
}

/// A call that was in flight when the journal was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct InFlight {
    /// What was wanted.
    pub intent: Intent,
    /// Since when, in ticks.
    pub since: u64,
    /// By which thread; 0 is unknown.
    pub thread: u32,
    /// The event number it was about to be written under, if it had got that far.
    pub seq: Option<u64>,
}

impl InFlight {
    pub(crate) fn pack(&self) -> [u64; RECORD_WORDS] {
        let intent = self.intent;
        let mut words = [
            0,
            self.since,
            intent.address,
            bits(intent.requested, 48) | u64::from(intent.stream) << 48,
            intent.by.pack(),
            bits(self.thread.into(), 24)
                | bits(intent.kind as u64, 6) << 24
                | bits(intent.class as u64, 4) << 30
                | bits(intent.device.into(), 6) << 34,
            0,
            0,
        ];
        words[0] = u64::from(crc_record(&words)) << 32 | FILLED;
        words
    }

    /// The slot's content; `Ok(None)` for an empty slot, `Err` for one that is damaged.
    pub(crate) fn unpack(words: &[u64; RECORD_WORDS]) -> Result<Option<Self>, ()> {
        if words[0] & 0xff != FILLED {
            return Ok(None);
        }
        let mut covered = *words;
        covered[0] = 0;
        covered[6] = 0;
        covered[7] = 0;
        let kind = Kind::from_number(bits(words[5] >> 24, 6) as u8);
        let (true, Some(kind)) = (u64::from(crc_record(&covered)) == words[0] >> 32, kind) else {
            return Err(());
        };
        let intent = Intent {
            kind,
            class: Class::from_number(bits(words[5] >> 30, 4) as u8),
            device: bits(words[5] >> 34, 6) as u8,
            stream: (words[3] >> 48) as u16,
            requested: bits(words[3], 48),
            address: words[2],
            by: Attribution::unpack(words[4]),
        };
        Ok(Some(Self { intent, since: words[1], thread: bits(words[5], 24) as u32, seq: words[6].checked_sub(1) }))
    }
}

const EMPTY: u64 = 0;
const CLAIMED: u64 = 1;
const FILLED: u64 = 2;

/// The slots, on words of the mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flights {
    slots: &'static [[AtomicU64; RECORD_WORDS]],
}

impl Flights {
    pub(crate) fn new(words: &'static [AtomicU64]) -> Self {
        Self { slots: words.as_chunks().0 }
    }

    /// Fills a slot; `None` when there are more calls in flight than slots.
    pub(crate) fn begin(&self, flight: &InFlight) -> Option<usize> {
        let mask = self.slots.len().wrapping_sub(1);
        let start = clock::thread_ordinal() as usize;
        for step in 0..self.slots.len() {
            let index = start.wrapping_add(step) & mask;
            let slot = self.slots.get(index)?;
            if slot[0].load(Ordering::Relaxed) == EMPTY
                && slot[0].compare_exchange(EMPTY, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                let packed = flight.pack();
                for (word, value) in slot.iter().zip(packed).skip(1) {
                    word.store(value, Ordering::Relaxed);
                }
                slot[0].store(packed[0], Ordering::Release);
                return Some(index);
            }
        }
        None
    }

    /// The outcome is about to be written as event `seq`.
    pub(crate) fn becomes(&self, slot: usize, seq: u64) {
        if let Some(words) = self.slots.get(slot) {
            words[6].store(seq + 1, Ordering::Release);
        }
    }

    /// The outcome is written.
    pub(crate) fn end(&self, slot: usize) {
        if let Some(words) = self.slots.get(slot) {
            words[0].store(EMPTY, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(thread: u32) -> InFlight {
        let intent = Intent {
            kind: Kind::Alloc,
            class: Class::Device,
            device: 5,
            stream: 9,
            requested: 1 << 40,
            address: 77,
            by: Attribution { stack: 1 << 23, op: 1 << 19, python: 3 },
        };
        InFlight { intent, since: 12345, thread, seq: None }
    }

    #[test]
    fn a_slot_comes_back_as_it_went_and_damage_is_noticed() {
        let flight = flight(4_000_000);
        let mut words = flight.pack();
        assert_eq!(InFlight::unpack(&words), Ok(Some(flight)));
        words[6] = 42;
        assert_eq!(InFlight::unpack(&words), Ok(Some(InFlight { seq: Some(41), ..flight })));
        words[3] ^= 8;
        assert_eq!(InFlight::unpack(&words), Err(()));
    }

    #[test]
    fn slots_are_reused_and_run_out() {
        let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        let flights = Flights::new(words.leak());
        let taken: Vec<_> = (0..8).map(|n| flights.begin(&flight(n)).unwrap()).collect();
        assert_eq!(flights.begin(&flight(9)), None);
        flights.end(taken[3]);
        assert_eq!(flights.begin(&flight(9)), Some(taken[3]));
    }
}
