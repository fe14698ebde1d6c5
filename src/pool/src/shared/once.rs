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
/// Shown first and looked second; who ends it announces it first and looks second. One of the two sees the other.
pub fn show<V: Value>(place: &impl Atomic<V>, ended: &impl Atomic<u8>, it: V) -> Option<V> {
    place.store(it, SeqCst);
    if ended.load(SeqCst) == 0 { None } else { Some(place.swap(V::NONE, SeqCst)).filter(|it| *it != V::NONE) }
}

/// End what is shown, and what will be. What was shown belongs to the one that gets it, once.
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

/// Follow what another party has: `read` learns it without the lock, `enter` enters it under the lock, and only if nobody
/// has entered anything since before it was read. So what was entered last was read last, and who changes it and follows it
/// then finds it entered. After so many retries it is entered all the same.
pub fn follow<T, R>(entered: &impl Lock<u64>, retries: u32, read: impl Fn() -> T, enter: impl Fn(T) -> R) -> R {
    let mut retry = 0;
    loop {
        let before = entered.with(|entered| *entered);
        let learnt = read();
        let done = entered.with(|entered| {
            (*entered == before || retry == retries).then(|| {
                *entered += 1;
                enter(learnt)
            })
        });
        if let Some(done) = done {
            return done;
        }
        retry += 1;
    }
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
