//! Which causes were seen before: failures with one cause are collapsed. TensorFlow alone requests nine tenths of the last
//! size again and again. Works on the words of the mapping.

use std::sync::atomic::Ordering;

use super::{Cause, Failure};
use crate::event::Attribution;
use crate::layout::{CAUSE_WORDS, word};
use crate::writer::Journal;

/// Quiet time after which the same cause is reported again.
const QUIET_SECONDS: u64 = 60;

impl Journal {
    /// Finds or makes the entry of a cause: its number, how often it was seen, and whether to report it.
    pub(super) fn count_cause(&self, failure: &Failure, cause: Cause) -> (u16, u64, bool) {
        let by = failure.by;
        // A request that is made again comes by another way through the code: the stack distinguishes requests only where
        // nothing else does.
        let owner = if by.op == 0 && by.python == 0 { by } else { Attribution { stack: 0, ..by } };
        let mut key = owner.pack() ^ u64::from(failure.device) << 8 ^ (failure.class as u64) ^ (cause as u64) << 16;
        key = (key ^ key >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let hz = self.words.get(word::TICK_HZ).map_or(1, |hz| hz.load(Ordering::Relaxed));
        let now = self.now();
        let causes = self.causes.as_chunks::<CAUSE_WORDS>().0;
        for (number, entry) in causes.iter().enumerate() {
            let found = match entry[0].compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => key,
                Err(other) => other,
            };
            // The last entry takes all causes that found no place of their own.
            if found != key && number + 1 < causes.len() {
                continue;
            }
            let times = entry[1].fetch_add(1, Ordering::Relaxed) + 1;
            let last = entry[3].swap(now, Ordering::Relaxed);
            entry[2].compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).ok();
            entry[4].fetch_max(failure.requested, Ordering::Relaxed);
            entry[5].store(failure.requested, Ordering::Relaxed);
            entry[6].store(by.pack(), Ordering::Relaxed);
            let place = u64::from(failure.device) | (failure.class as u64) << 8 | (cause as u64) << 16;
            entry[7].store(place, Ordering::Relaxed);
            let quiet = now.saturating_sub(last) > hz.saturating_mul(QUIET_SECONDS);
            return (number as u16, times, times == 1 || quiet);
        }
        (u16::MAX, 1, true)
    }
}
