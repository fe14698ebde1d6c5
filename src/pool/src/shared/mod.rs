//! The small protocols that threads follow without a lock, or with one around others that have none, apart from the
//! statics they run on in a job, so that a model checker runs the very same code (tests/model). Touches only the words
//! and locks that are passed in. docs/internals/pool.md lists what runs on which.
//!
//! Every access names its ordering here, and the checker uses the same one.

mod counted;
mod gate;
mod list;
mod once;
mod roster;
mod together;
mod turn;
mod uses;

pub use counted::{Counted, Counts};
pub use gate::{enter, enter_late, go_on, leave, nobody, stop};
pub use list::{List, Value};
pub use once::{claim, end, follow, give_up, keep_first, ready, show, take_within};
pub use roster::{Coming, Roster, Seat, Seated, Unseen};
pub use together::{Layers, together};
pub use turn::{Turns, give_turn, take_turn};
pub use uses::Uses;

use crate::ranks::{self, Rank};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A value that threads share without a lock.
pub trait Atomic<T> {
    /// Its value.
    fn load(&self, order: Ordering) -> T;
    /// Give it a value.
    fn store(&self, value: T, order: Ordering);
    /// Give it a value; what it was before.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Give it the value `to` if it is `from` (acquiring and releasing); what it was before, as an error if it was
    /// another.
    fn exchange(&self, from: T, to: T) -> Result<T, T>;
}

/// A number that threads count on. Sequentially consistent.
pub trait Word: Atomic<u64> {
    /// Add to it; its value before.
    fn add(&self, amount: u64) -> u64;
    /// Take from it; its value before.
    fn sub(&self, amount: u64) -> u64;
}

macro_rules! atomic {
    ($($atomic:ty: $value:ty $(, $of:ident)?;)*) => {$(
        impl $(<$of>)? Atomic<$value> for $atomic {
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline(always)]
            fn exchange(&self, from: $value, to: $value) -> Result<$value, $value> {
                self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            }
        }
    )*};
}
atomic! {
    AtomicBool: bool;
    AtomicU8: u8;
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
    AtomicPtr<T>: *mut T, T;
}

impl Word for AtomicU64 {
    #[inline]
    fn add(&self, amount: u64) -> u64 {
        self.fetch_add(amount, Ordering::SeqCst)
    }
    #[inline]
    fn sub(&self, amount: u64) -> u64 {
        self.fetch_sub(amount, Ordering::SeqCst)
    }
}

/// A lock, and those who wait for what it guards to change.
pub trait Lock<T> {
    /// Work under the lock; then whoever waits looks again.
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R;
    /// Wait until `look`, under the lock, finds something. `None`: it did not in time.
    fn when_within<R>(&self, patience: Duration, look: impl FnMut(&mut T) -> Option<R>) -> Option<R>;
}

/// The lock as a job has it. A panic of a holder locks nobody out.
pub struct Guarded<T> {
    rank: Rank,
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Guarded<T> {
    /// A lock around `value`, with its place in the order of locks.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { rank, value: Mutex::new(value), changed: Condvar::new() }
    }
}

impl<T> Lock<T> for Guarded<T> {
    #[track_caller]
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let _held = ranks::take(self.rank);
        let result = work(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        result
    }
    #[track_caller]
    fn when_within<R>(&self, patience: Duration, mut look: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        if !patience.is_zero() {
            ranks::waiting(self.rank.name());
        }
        let _held = ranks::take(self.rank);
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        // Most find it at once: then the clock is not read.
        if let Some(found) = look(&mut value) {
            return Some(found);
        }
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            value = self.changed.wait_timeout(value, left).unwrap_or_else(PoisonError::into_inner).0;
            if let Some(found) = look(&mut value) {
                return Some(found);
            }
        }
    }
}

/// What `look` finds, with the generation as of which it may be remembered; it is true for as long as the
/// generation is the same.
///
/// The generation is read first: what goes while `look` is at it makes what it found too old at once.
#[inline]
pub fn learn<T>(generation: &impl Word, look: impl FnOnce() -> Option<T>) -> Option<(u64, T)> {
    let known = generation.load(Ordering::Acquire);
    look().map(|found| (known, found))
}

/// The generation, for comparison with that of something remembered. Whoever knows that something came in the place
/// of what is gone got to know it after the generation ended, so sees that it did.
#[inline(always)]
pub fn generation(generation: &impl Word) -> u64 {
    generation.load(Ordering::Acquire)
}

/// Something goes: whoever remembers it learns anew, and then `remove` has taken it away.
#[inline]
pub fn forget<T>(generation: &impl Word, remove: impl FnOnce() -> T) -> T {
    let removed = remove();
    generation.add(1);
    removed
}
