//! The course of memory over the whole run, in bounded room: the ring forgets the oldest events, this forgets only detail.
//!
//! Every so many events a moment is noted. Level 0 keeps the last moments, level 1 every second one of twice the time, and
//! so on: however long the run, any part of it is known to a small share of its age. Nothing is moved or added up later,
//! so what is there is right at every instruction. Works only on the words of the mapping; on the hot path it is one
//! comparison.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::{Class, Event, Kind};
use crate::layout::{
    HISTORY_DEVICES, HISTORY_LEVELS, HISTORY_SLOTS, HISTORY_WORDS, HOST_DEVICE, crc_words, moments_apart, word,
};
use crate::writer::Journal;

/// Word offsets inside a moment. The first has the CRC of the others.
pub(crate) mod moment_word {
    pub(crate) const EVENT: usize = 1;
    pub(crate) const TIME: usize = 2;
    pub(crate) const STEP: usize = 3;
    pub(crate) const RESIDENT: usize = 4;
    pub(crate) const OOMS: usize = 5;
    /// Bytes held on devices 0 to 7.
    pub(crate) const HELD: usize = 8;
}

/// Classes that take device memory, each byte of it once.
pub const HELD: [Class; 6] = [Class::Block, Class::Device, Class::Managed, Class::Array, Class::Overhead, Class::Other];

/// The moments, and how many events lie between two of them.
#[derive(Debug)]
pub(crate) struct History {
    levels: &'static [AtomicU64],
    apart: u64,
}

impl History {
    pub(crate) fn new(levels: &'static [AtomicU64], ring_slots: u64) -> Self {
        Self { levels, apart: moments_apart(ring_slots) }
    }

    /// Whether a moment is noted at this event.
    #[inline(always)]
    pub(crate) fn is_moment(&self, event: u64) -> bool {
        event & (self.apart - 1) == 0
    }
}

impl Journal {
    /// Notes the moment of this event, on each level that has it. Stores, and nothing else.
    #[cold]
    pub(crate) fn note_moment(&self, event: &Event) {
        let mut words = [0; HISTORY_WORDS];
        words[moment_word::EVENT] = event.seq;
        words[moment_word::TIME] = event.time;
        let header = |index: usize| self.words.get(index).map_or(0, |place| place.load(Ordering::Relaxed));
        words[moment_word::STEP] = header(word::STEP);
        words[moment_word::RESIDENT] = self.resident_bytes();
        words[moment_word::OOMS] = header(word::OOM_SEEN);
        for (device, place) in words.iter_mut().skip(moment_word::HELD).take(HISTORY_DEVICES).enumerate() {
            *place = HELD.iter().fold(0_u64, |sum, class| sum.wrapping_add(self.live_bytes(device as u8, *class)));
        }
        words[0] = u64::from(crc_words(words.get(1..).unwrap_or_default()));
        let number = event.seq / self.history.apart;
        for level in 0..HISTORY_LEVELS {
            if number & ((1 << level) - 1) != 0 {
                break;
            }
            let slot = level * HISTORY_SLOTS + (number >> level) as usize % HISTORY_SLOTS;
            let start = slot * HISTORY_WORDS;
            for (place, value) in self.history.levels.iter().skip(start).zip(words) {
                place.store(value, Ordering::Relaxed);
            }
        }
    }

    /// A step of the job has begun.
    pub fn step(&self, number: u64) {
        self.record(Event { address: number, ..Event::new(Kind::Step, Class::Other, HOST_DEVICE) });
        if let Some(place) = self.words.get(word::STEP) {
            place.store(number, Ordering::Relaxed);
        }
    }
}
