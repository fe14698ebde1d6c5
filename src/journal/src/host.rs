//! Host memory and clock anchors, sampled now and then into the journal.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use crate::event::{Class, Event, Kind};
use crate::layout::{HOST_DEVICE, crc_words, word};
use crate::sys::map::page_size;
use crate::writer::Journal;

impl Journal {
    /// Samples resident and pinned memory into an event, unless that was done less than `every_ms` ago. One load and
    /// one comparison when it is not yet time; else one read of a kept descriptor.
    #[inline]
    pub fn sample_host(&self, every_ms: u64) -> Option<u64> {
        let last = self.words.get(word::HOST_SAMPLE)?;
        let hz = self.words.get(word::TICK_HZ)?.load(Ordering::Relaxed);
        let (before, now) = (last.load(Ordering::Relaxed), self.now());
        if before != 0 && now.saturating_sub(before) < hz / 1000 * every_ms {
            return None;
        }
        if last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return None;
        }
        self.read_host()
    }

    /// From now on resident memory is without what `foreign` counts: memory that is in the process, but not the job's.
    pub fn leave_out(&self, foreign: fn() -> u64) {
        let _ = self.foreign.set(foreign);
    }

    fn read_host(&self) -> Option<u64> {
        let mut text = [0; 96];
        let length = self.statm.as_ref()?.read_at(&mut text, 0).ok()?;
        let resident = resident_pages(text.get(..length)?)?.wrapping_mul(page_size());
        let resident = resident.saturating_sub(self.foreign.get().map_or(0, |foreign| foreign()));
        if let Some(place) = self.words.get(word::HOST_SAMPLE + 1) {
            place.store(resident, Ordering::Relaxed);
        }
        let pinned = self.live_bytes(HOST_DEVICE, Class::Pinned) + self.live_bytes(HOST_DEVICE, Class::Registered);
        self.refresh_anchor();
        Some(self.record(Event {
            allocated: resident,
            requested: pinned,
            ..Event::new(Kind::HostSample, Class::Other, HOST_DEVICE)
        }))
    }

    /// Resident bytes at the last sample.
    pub fn resident_bytes(&self) -> u64 {
        self.words.get(word::HOST_SAMPLE + 1).map_or(0, |place| place.load(Ordering::Relaxed))
    }

    /// Writes a later clock anchor, in turn into one of two places, so that one whole anchor always exists.
    pub fn refresh_anchor(&self) {
        let Some(turn) = self.words.get(word::ANCHOR_TURN) else {
            return;
        };
        let start = word::LATER_ANCHORS + 4 * (turn.fetch_add(1, Ordering::Relaxed) as usize & 1);
        let Some(place) = self.words.get(start..start + 4) else {
            return;
        };
        let anchor = self.clock.anchor();
        let words = [anchor.ticks, anchor.monotonic, anchor.realtime];
        let crc = u64::from(crc_words(&words));
        for (word, value) in place.iter().zip(words.into_iter().chain([crc])) {
            word.store(value, Ordering::Release);
        }
    }
}

/// The second number of /proc/self/statm.
fn resident_pages(text: &[u8]) -> Option<u64> {
    let field = text.split(|byte| *byte == b' ').nth(1)?;
    field.iter().try_fold(0_u64, |sum, digit| {
        digit.is_ascii_digit().then(|| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statm_is_understood() {
        assert_eq!(resident_pages(b"1234 567 89 1 0 3 0\n"), Some(567));
        assert_eq!(resident_pages(b""), None);
        assert_eq!(resident_pages(b"1 x"), None);
    }
}
