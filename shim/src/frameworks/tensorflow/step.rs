//! Steps: TensorFlow numbers the runs of a graph, and an event in the journal says when a new one begins. Each eager
//! operation is a run of its own, and no step.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use weir_journal::Journal;

/// The latest runs that were seen: several may be under way at once, on several threads.
static RECENT: [AtomicI64; 8] = [const { AtomicI64::new(0) }; 8];
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A thread works for this run; 0 is none.
#[inline]
pub(crate) fn seen(journal: &Journal, run: i64) {
    if run != 0 && RECENT.iter().all(|recent| recent.load(Ordering::Relaxed) != run) {
        begins(journal, run);
    }
}

#[cold]
fn begins(journal: &Journal, run: i64) {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    if let Some(place) = RECENT.get(number as usize % RECENT.len()) {
        place.store(run, Ordering::Relaxed);
    }
    journal.step(number + 1);
}
