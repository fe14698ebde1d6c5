//! How threads wait for the pool's lock and those of its caches. Touches nothing but the lock.
//!
//! It is held for some ten nanoseconds, far less than a thread takes to be put to sleep and woken again,
//! and whoever takes it needs the pool's state in the cache of its own core. So a thread that finds it
//! taken looks again after ever longer pauses, in which the others do many operations in one go, and
//! sleeps only when that has not helped.

use std::hint::spin_loop;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Pauses before a thread sleeps: some fifty microseconds together.
const PAUSES: u32 = 12;
/// The first pause and the longest, as powers of two of the processor's own shortest. The first is about a microsecond:
/// time for the others to do a dozen operations while the pool's state stays where they are.
const FIRST: u32 = 6;
const LONGEST: u32 = 9;

#[inline(always)]
fn attempt<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        // What is locked is consistent between any two statements that can panic, and none can.
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The lock, as soon as it can be had; `taken` is called first if somebody else has it.
#[inline(always)]
pub(crate) fn lock<T>(mutex: &Mutex<T>, taken: impl FnOnce()) -> MutexGuard<'_, T> {
    attempt(mutex).unwrap_or_else(|| {
        taken();
        patiently(mutex)
    })
}

#[cold]
fn patiently<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for pause in 0..PAUSES {
        (0..1_u32 << (pause + FIRST).min(LONGEST)).for_each(|_| spin_loop());
        if let Some(guard) = attempt(mutex) {
            return guard;
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn those_who_wait_long_get_it_too() {
        let mutex = Mutex::new(0);
        std::thread::scope(|scope| {
            let guard = lock(&mutex, || ());
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| *lock(&mutex, || ()) += 1)).collect();
            std::thread::sleep(Duration::from_millis(20));
            assert!(waiting.iter().all(|thread| !thread.is_finished()), "somebody did not wait");
            drop(guard);
        });
        assert_eq!(*lock(&mutex, || ()), 3);
    }

    #[test]
    fn a_panic_of_a_holder_locks_nobody_out() {
        let mutex = Mutex::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock(&mutex, || ());
            panic!("deliberately");
        }));
        assert!(panicked.is_err() && mutex.is_poisoned());
        assert_eq!(*lock(&mutex, || ()), 1);
    }
}
