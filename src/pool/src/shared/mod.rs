//! The small protocols that threads follow without a lock, or with one around others that have none, apart from the
//! statics they run on in a job, so that a model checker runs the very same code (tests/model). Touches only the words
//! and locks that are passed in. docs/POOL.md tells what runs on which.
//!
//! Every access names its ordering here, and the checker is given the same one.

mod counted;
mod gate;
mod list;
mod once;
mod roster;

pub use counted::{Counted, Counts};
pub use gate::{enter, go_on, leave, nobody, stop, wait};
pub use list::{List, Value};
pub use once::{claim, end, give_up, keep_first, named, ready, show, take_within};
pub use roster::{Coming, Roster, Seat, Seated};

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

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
    /// Wait until `look`, under the lock, finds something.
    fn when<R>(&self, look: impl FnMut(&mut T) -> Option<R>) -> R;
}

/// The lock as a job has it. A panic of a holder locks nobody out.
pub struct Guarded<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Guarded<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Condvar::new() }
    }
}

impl<T> Lock<T> for Guarded<T> {
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let result = work(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        result
    }
    fn when<R>(&self, mut look: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = look(&mut value) {
                return found;
            }
            value = self.changed.wait(value).unwrap_or_else(PoisonError::into_inner);
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

/// The generation, for comparison with that of something remembered. Whoever was told that something came in the place
/// of what is gone was told after the generation ended, so sees that it did.
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
