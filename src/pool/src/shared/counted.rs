//! A list behind a lock that is mostly empty, and beside it how long it is: who sees that it is empty takes no lock.

use super::{Atomic, Lock};
use std::sync::atomic::Ordering::{Acquire, Release};

/// What is counted of a list; first its length.
pub trait Counts<const N: usize> {
    /// The figures as they are.
    fn counts(&self) -> [usize; N];
}

/// The list and its figures.
pub struct Counted<L, C, const N: usize> {
    list: L,
    counts: [C; N],
}

impl<L, C: Atomic<usize>, const N: usize> Counted<L, C, N> {
    /// An empty list and figures that are 0.
    pub const fn new(list: L, counts: [C; N]) -> Self {
        Self { list, counts }
    }

    /// Whether there is anything. Who knows of something that is in the list sees that there is.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.has(0)
    }

    /// Whether the figure `which` is more than 0.
    #[inline(always)]
    pub fn has(&self, which: usize) -> bool {
        self.counts.get(which).is_some_and(|count| count.load(Acquire) > 0)
    }

    /// Look at the list, or change it. Counted before the lock is released: figures never follow one another in another
    /// order than the changes that they are of.
    pub fn with<T: Counts<N>, R>(&self, work: impl FnOnce(&mut T) -> R) -> R
    where
        L: Lock<T>,
    {
        self.list.with(|list| {
            let result = work(list);
            for (place, count) in self.counts.iter().zip(list.counts()) {
                place.store(count, Release);
            }
            result
        })
    }
}
