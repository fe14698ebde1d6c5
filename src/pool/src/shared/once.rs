//! What happens once: something is made, found or ended by whoever comes first, and the others find it so.

use super::{Atomic, Lock, Value};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// Keep what the first of several threads has made. An error: the one who comes too late gets its own back.
pub fn keep_first<V: Value>(place: &impl Atomic<V>, mine: V) -> Result<(), V> {
    place.exchange(V::NONE, mine).map(|_| ()).map_err(|_| mine)
}

/// All of a table is filled in: `fill` does it, any number of threads at once with the same values, and who sees
/// `done` sees all of it.
pub fn ready<V>(done: &impl Atomic<V>, as_of: V, fill: impl FnOnce()) {
    fill();
    done.store(as_of, Release);
}

/// Show what was made, unless it was ended before it could be seen: then whoever made it gets it back, to end it.
///
/// Shown first and looked second; who ends it says so first and looks second. One of the two sees the other.
pub fn show<V: Value>(place: &impl Atomic<V>, ended: &impl Atomic<u8>, it: V) -> Option<V> {
    place.store(it, SeqCst);
    if ended.load(SeqCst) == 0 { None } else { Some(place.swap(V::NONE, SeqCst)).filter(|it| *it != V::NONE) }
}

/// End what is shown, and what will be. What was shown is whose who gets it: it is told so once.
pub fn end<V: Value>(place: &impl Atomic<V>, ended: &impl Atomic<u8>) -> Option<V> {
    ended.store(1, SeqCst);
    Some(place.swap(V::NONE, SeqCst)).filter(|it| *it != V::NONE)
}

/// Become the one of the process `own` who makes something. False: another thread of it is at it. What another process
/// has left there (its copy of this one died with it) does not count.
pub fn claim(maker: &impl Atomic<u32>, own: u32) -> bool {
    let holder = maker.load(Acquire);
    holder != own && maker.exchange(holder, own).is_ok()
}

/// It is made, or could not be.
pub fn give_up(maker: &impl Atomic<u32>) {
    maker.store(0, Release);
}

/// A name that is made at first use: `known` tells it, `make` makes it with the settings of that moment, and `keep`
/// lets everybody know it. Settings change under the same lock, so that no change falls between the two.
#[inline]
pub fn named<T>(
    settings: &impl Lock<()>,
    known: impl Fn() -> Option<T>,
    make: impl FnOnce() -> Option<T>,
    keep: impl FnOnce(T),
) -> Option<T> {
    known().or_else(|| {
        settings.with(|()| {
            if known().is_none() {
                keep(make()?);
            }
            known()
        })
    })
}

/// Take so many more, if that is within the limit.
pub fn take_within(taken: &impl Atomic<u64>, more: u64, limit: u64) -> bool {
    let mut now = taken.load(Relaxed);
    loop {
        let Some(sum) = now.checked_add(more).filter(|sum| *sum <= limit) else { return false };
        match taken.exchange(now, sum) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
}
