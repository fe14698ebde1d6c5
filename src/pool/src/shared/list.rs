//! Things that are found without a lock: a row of places, each empty or naming something that is never freed.

use super::Atomic;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// What a place can hold.
pub trait Value: Copy + PartialEq {
    /// Nothing.
    const NONE: Self;
}

impl<T> Value for *mut T {
    const NONE: Self = std::ptr::null_mut();
}

impl Value for usize {
    const NONE: Self = 0;
}

/// The row, and how much of it was ever used.
pub struct List<P, U, const N: usize> {
    places: [P; N],
    used: U,
}

impl<P, U: Atomic<usize>, const N: usize> List<P, U, N> {
    /// An empty row out of empty places.
    pub const fn new(places: [P; N], used: U) -> Self {
        Self { places, used }
    }

    /// Whether anything ever was in it.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.used.load(Acquire) > 0
    }

    /// All that is in it.
    #[inline(always)]
    pub fn iter<V: Value>(&self) -> impl Iterator<Item = V>
    where
        P: Atomic<V>,
    {
        self.places.iter().take(self.used.load(Acquire)).map(|place| place.load(Acquire)).filter(|it| *it != V::NONE)
    }

    /// Puts something in that is finished: from now on everybody finds it. False: there is no room.
    /// One thread at a time: two would take the same place.
    pub fn add<V: Value>(&self, it: V) -> bool
    where
        P: Atomic<V>,
    {
        let free = |(_, place): &(usize, &P)| place.load(Relaxed) == V::NONE;
        let Some((at, place)) = self.places.iter().enumerate().find(free) else { return false };
        place.store(it, Release);
        self.used.store((at + 1).max(self.used.load(Relaxed)), Release);
        true
    }

    /// Forgets all of it, in a process that has no other thread.
    pub fn clear(&self) {
        self.used.store(0, Release);
    }

    /// Takes something out; who has found it still has it. False: it was not there.
    pub fn remove<V: Value>(&self, it: V) -> bool
    where
        P: Atomic<V>,
    {
        self.places.iter().any(|place| place.exchange(it, V::NONE).is_ok())
    }
}
