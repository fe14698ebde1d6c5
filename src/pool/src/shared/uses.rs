//! Short uses of what may be taken away: a use is tried and never waited for. Who takes it away bars new uses and waits
//! for those under way, which are short: nobody waits for anything while it is in one.

use super::{Word, enter, leave, nobody};
use std::sync::atomic::Ordering::SeqCst;

/// Uses under way, and those who bar new ones.
pub struct Uses<W> {
    under_way: W,
    barred: W,
}

impl<W: Word> Uses<W> {
    /// Nobody is there: two words that are 0.
    pub const fn new(under_way: W, barred: W) -> Self {
        Self { under_way, barred }
    }

    /// Begins a use. False: it is barred.
    #[inline]
    pub fn enter(&self) -> bool {
        enter(&self.under_way, &self.barred)
    }

    /// The use is over.
    #[inline]
    pub fn leave(&self) {
        leave(&self.under_way);
    }

    /// `work` runs when nobody is in a use, and nobody begins one meanwhile. `pause` is called while uses are under way,
    /// and ends the waiting by answering false: then `work` runs beside them.
    pub fn bar<R>(&self, mut pause: impl FnMut() -> bool, work: impl FnOnce() -> R) -> R {
        let _barred = Barred::begin(&self.barred);
        while !nobody(&self.under_way) && pause() {}
        work()
    }

    /// Nobody is there, in a process that has no other thread.
    pub fn clear(&self) {
        self.under_way.store(0, SeqCst);
        self.barred.store(0, SeqCst);
    }
}

/// While it lives nobody begins a use; also if `work` panics.
struct Barred<'a, W: Word>(&'a W);

impl<'a, W: Word> Barred<'a, W> {
    fn begin(word: &'a W) -> Self {
        word.add(1);
        Self(word)
    }
}

impl<W: Word> Drop for Barred<'_, W> {
    fn drop(&mut self) {
        self.0.sub(1);
    }
}
