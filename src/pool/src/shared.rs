//! The small protocols that threads follow without a lock, apart from the statics they run on in a job, so
//! that a model checker runs the very same code (tests/model.rs). Touches only the words that are passed in.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A number that threads share. Every access is sequentially consistent.
pub trait Word {
    /// Its value.
    fn load(&self) -> u64;
    /// Add to it; its value before.
    fn add(&self, amount: u64) -> u64;
    /// Take from it; its value before.
    fn sub(&self, amount: u64) -> u64;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        self.load(SeqCst)
    }
    #[inline]
    fn add(&self, amount: u64) -> u64 {
        self.fetch_add(amount, SeqCst)
    }
    #[inline]
    fn sub(&self, amount: u64) -> u64 {
        self.fetch_sub(amount, SeqCst)
    }
}

/// A call that queues work comes in: it is counted in `inside`, unless the device is `stopped`.
///
/// Counted first and looked second: who stops looks at the counters after having said so, and one of the two
/// sees the other.
#[inline]
pub fn enter(inside: &impl Word, stopped: &impl Word) -> bool {
    inside.add(1);
    if stopped.load() == 0 {
        return true;
    }
    inside.sub(1);
    false
}

/// The call is over.
#[inline]
pub fn leave(inside: &impl Word) {
    inside.sub(1);
}

/// What `look` finds, with the generation as of which it may be remembered; it is true for as long as the
/// generation is the same.
///
/// The generation is read first: what goes while `look` is at it makes what it found too old at once.
#[inline]
pub fn learn<T>(generation: &impl Word, look: impl FnOnce() -> Option<T>) -> Option<(u64, T)> {
    let known = generation.load();
    look().map(|found| (known, found))
}

/// Something goes: whoever remembers it learns anew, and then `remove` has taken it away.
#[inline]
pub fn forget<T>(generation: &impl Word, remove: impl FnOnce() -> T) -> T {
    let removed = remove();
    generation.add(1);
    removed
}
