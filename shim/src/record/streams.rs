//! Numbers for streams: a record has sixteen bits for one. 0 is the legacy default stream of its context, 1 a thread's
//! own; a created stream has the number of its place in this table, plus 2, until it is destroyed. Lock-free.

use core::sync::atomic::{AtomicU64, Ordering};
use weir_journal::STREAM_UNKNOWN;

const ROOM: usize = 4096;
/// Places that are looked at for one stream.
const REACH: usize = 16;
/// The number of the legacy default stream.
pub(crate) const LEGACY: u16 = 0;
/// The number of a thread's own default stream.
pub(crate) const PER_THREAD: u16 = 1;

/// The streams that have numbers.
pub(crate) struct Streams {
    places: Box<[AtomicU64]>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self { places: (0..ROOM).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline]
    fn home(handle: u64) -> usize {
        (handle.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (ROOM - 1)
    }

    fn reach(&self, handle: u64) -> impl Iterator<Item = (usize, &AtomicU64)> {
        let home = Self::home(handle);
        (0..REACH).filter_map(move |step| {
            let at = home.wrapping_add(step) & (ROOM - 1);
            Some((at, self.places.get(at)?))
        })
    }

    /// The number of a created stream.
    #[inline]
    pub(crate) fn number(&self, handle: u64) -> u16 {
        let home = Self::home(handle);
        match self.places.get(home) {
            Some(place) if place.load(Ordering::Relaxed) == handle => home as u16 + 2,
            _ => self.search(handle),
        }
    }

    #[cold]
    fn search(&self, handle: u64) -> u16 {
        let found = self.reach(handle).find(|(_, place)| place.load(Ordering::Relaxed) == handle);
        found.map_or(STREAM_UNKNOWN, |(at, _)| at as u16 + 2)
    }

    /// Gives a created stream its number; unknown where all places in reach are taken.
    pub(crate) fn add(&self, handle: u64) -> u16 {
        let free = |place: &AtomicU64| match place.compare_exchange(0, handle, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(taken) => taken == handle,
        };
        self.reach(handle).find(|(_, place)| free(place)).map_or(STREAM_UNKNOWN, |(at, _)| at as u16 + 2)
    }

    /// A stream is gone; returns the number that it had.
    pub(crate) fn remove(&self, handle: u64) -> u16 {
        let gone = |place: &AtomicU64| place.compare_exchange(handle, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        self.reach(handle).find(|(_, place)| gone(place)).map_or(STREAM_UNKNOWN, |(at, _)| at as u16 + 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_its_number_until_it_is_destroyed() {
        let streams = Streams::new();
        let numbers: Vec<u16> = (1..100).map(|n| streams.add(n << 12)).collect();
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), numbers.len());
        assert!(distinct.iter().all(|number| *number > PER_THREAD && *number != STREAM_UNKNOWN));
        for (n, number) in (1..100).zip(&numbers) {
            assert_eq!((streams.number(n << 12), streams.add(n << 12)), (*number, *number));
        }
        assert_eq!(streams.remove(5 << 12), *numbers.get(4).unwrap_or(&0));
        assert_eq!((streams.number(5 << 12), streams.remove(5 << 12)), (STREAM_UNKNOWN, STREAM_UNKNOWN));
    }
}
