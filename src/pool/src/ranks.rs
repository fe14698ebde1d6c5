//! The locks of a job, in the one order in which they may be taken, and the rule that nobody waits while it holds one.
//!
//! With the feature `ranks` (test builds) every thread keeps a list of what it holds. Taking something against the order,
//! or waiting for the device, a turn, a capture or another process with anything in hand, ends the process and names both
//! places. Without the feature nothing of this is there. docs/internals/waiting.md has the table with reasons.

/// What can be held, in the order in which it is taken: a thread takes only what comes later than all it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The account of a device, while its ledger is opened.
    Opening,
    /// The turn of whoever makes a pool.
    Making,
    /// The gate before the device, closed while bytes move.
    Stopped,
    /// A pool's turn: one growth, trim or change of access at a time.
    Turn,
    /// How often contexts are attached to.
    Attached,
    /// Names and settings of the job's mempools, changed in turn with the driver's.
    Mempools,
    /// What contexts take for themselves.
    Overhead,
    /// The job's own physical handles.
    Handles,
    /// The job's arrays.
    Arrays,
    /// What is charged by the driver's own figures.
    Measured,
    /// A use of the job's streams that no capture may meet.
    UseBesideCaptures,
    /// A use of contexts, which stay meanwhile.
    UseOfContexts,
    /// A use of streams, which stay meanwhile.
    UseOfStreams,
    /// Frees that are queued in streams.
    Leaving,
    /// The fences behind them.
    LeavingFences,
    /// Access between contexts.
    Peers,
    /// Contexts that come and go.
    Roster,
    /// Captures under way.
    Captures,
    /// Created streams and their contexts.
    Streams,
    /// Exported blocks.
    Exports,
    /// Imported blocks.
    Imports,
    /// The socket of the exporter.
    Socket,
    /// Events from which nothing is concluded.
    Events,
    /// Who waits for the gate before the device.
    Gate,
    /// A driver's fences.
    Fences,
    /// A driver's plain segments.
    Segments,
    /// A spill's handles of device memory.
    Near,
    /// Events of waits that could not be destroyed at once.
    Marks,
    /// When spilled memory comes back.
    Returns,
    /// When something was spilled last.
    Spilled,
    /// Pinned blocks.
    Pins,
    /// The cache of a stream in front of a pool; several at once only in their order.
    StreamCache,
    /// A pool's state.
    Pool,
    /// Whether somebody has a pool's turn; and whether somebody makes a pool.
    TurnFlag,
    /// Passed-through blocks, by address.
    Blocks,
    /// Chunks that small blocks share.
    Chunks,
    /// What the recorder knows of the job's handles.
    RecordedHandles,
    /// What it knows of passed-through allocations.
    Passed,
    /// What it knows of graphs.
    RecordedGraphs,
    /// What it knows of mappings.
    RecordedMappings,
}

impl Rank {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn | Self::TurnFlag => "a turn",
            Self::Roster => "a context that comes or goes",
            Self::Gate => "the gate before the device",
            _ => "a lock",
        }
    }
}

#[cfg(any(test, feature = "ranks"))]
mod check {
    use super::Rank;
    use std::cell::RefCell;
    use std::panic::Location;

    thread_local! {
        static HELD: RefCell<Vec<(Rank, &'static Location<'static>)>> = const { RefCell::new(Vec::new()) };
    }

    /// Something that is held, until it is dropped.
    #[derive(Debug)]
    #[must_use]
    pub struct Held(Rank);

    impl Drop for Held {
        fn drop(&mut self) {
            release(self.0);
        }
    }

    fn report(what: &str, held: &[(Rank, &'static Location<'static>)], at: &Location<'_>) -> ! {
        eprintln!("weir: {what}");
        for (rank, place) in held {
            eprintln!("weir:   holding {rank:?}, taken at {place}");
        }
        eprintln!("weir:   at {at}\n{}", std::backtrace::Backtrace::force_capture());
        std::process::abort()
    }

    /// Takes something, against the order or not.
    #[track_caller]
    pub fn take(rank: Rank) -> Held {
        hold(rank);
        Held(rank)
    }

    /// The same where no scope ends it.
    #[track_caller]
    pub fn hold(rank: Rank) {
        let at = Location::caller();
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            // A use may be begun within another one of its kind: it is tried, so nobody waits for himself.
            let uses = matches!(rank, Rank::UseBesideCaptures | Rank::UseOfContexts | Rank::UseOfStreams);
            let again = uses || rank == Rank::StreamCache;
            if held.iter().any(|(known, _)| *known > rank || (*known == rank && !again)) {
                report(&format!("lock order: {rank:?} is taken"), &held, at);
            }
            held.push((rank, at));
        });
    }

    /// What [`hold`] took is free.
    pub fn release(rank: Rank) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|(known, _)| *known == rank) {
                held.remove(at);
            }
        });
    }

    /// The calling thread is about to wait: it must hold nothing.
    #[track_caller]
    pub fn waiting(what: &str) {
        let at = Location::caller();
        let _ = HELD.try_with(|held| {
            let held = held.borrow();
            if !held.is_empty() {
                report(&format!("a thread that holds something waits for {what}"), &held, at);
            }
        });
    }

    /// The calling thread is about to make a driver call that waits for the device: the same, unless it has stopped the
    /// device itself and found it idle.
    #[track_caller]
    pub fn blocking(what: &str) {
        let stopped = HELD.try_with(|held| held.borrow().iter().any(|(rank, _)| *rank == Rank::Stopped));
        if stopped != Ok(true) {
            waiting(what);
        }
    }

    /// The calling thread is about to call the driver, where it may wait for the device or for another thread: it must
    /// hold nothing but what is `excepted`.
    #[track_caller]
    pub fn calling(what: &str, excepted: impl Fn(Rank) -> bool) {
        let at = Location::caller();
        let _ = HELD.try_with(|held| {
            let held = held.borrow();
            if !held.iter().all(|(rank, _)| excepted(*rank)) {
                report(&format!("a thread that holds a lock calls {what}"), &held, at);
            }
        });
    }
}

#[cfg(not(any(test, feature = "ranks")))]
mod check {
    use super::Rank;

    /// Something that is held, until it is dropped.
    #[derive(Debug)]
    #[must_use]
    pub struct Held;

    /// Takes something.
    #[inline(always)]
    pub fn take(_: Rank) -> Held {
        Held
    }

    /// The same where no scope ends it.
    #[inline(always)]
    pub fn hold(_: Rank) {}

    /// What [`hold`] took is free.
    #[inline(always)]
    pub fn release(_: Rank) {}

    /// The calling thread is about to wait.
    #[inline(always)]
    pub fn waiting(_: &str) {}

    /// The calling thread is about to make a driver call that waits for the device.
    #[inline(always)]
    pub fn blocking(_: &str) {}

    /// The calling thread is about to call the driver.
    #[inline(always)]
    pub fn calling(_: &str, _: impl Fn(Rank) -> bool) {}
}

pub use check::{Held, blocking, calling, hold, release, take, waiting};

use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, PoisonError};

/// A lock with its place in the order. A panic of a holder locks nobody out.
#[derive(Debug)]
pub struct Mutex<T> {
    rank: Rank,
    value: std::sync::Mutex<T>,
}

/// What a locked [`Mutex`] guards.
#[derive(Debug)]
pub struct Locked<'a, T> {
    // Dropped first, so that nothing counts as held that is free.
    value: MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { rank, value: std::sync::Mutex::new(value) }
    }

    /// The lock, as soon as it can be had.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> Locked<'_, T> {
        let held = take(self.rank);
        Locked { value: self.value.lock().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    /// The same by another way of waiting for it.
    #[track_caller]
    #[inline(always)]
    pub(crate) fn lock_by<'a>(
        &'a self,
        way: impl FnOnce(&'a std::sync::Mutex<T>) -> MutexGuard<'a, T>,
    ) -> Locked<'a, T> {
        let held = take(self.rank);
        Locked { value: way(&self.value), _held: held }
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_later_may_be_taken_and_everything_is_released() {
        let (first, second) = (Mutex::new(Rank::Peers, 1), Mutex::new(Rank::Pool, 2));
        for _ in 0..2 {
            let one = first.lock();
            assert_eq!(*one + *second.lock(), 3);
        }
        drop(second.lock());
        drop(first.lock());
        waiting("nothing");
    }
}
