//! Blocks of the pool that other processes or devices use: pinned until they are freed.
//! Whoever frees what others still use has ended their use, as with the driver's own memory.

use super::Served;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Address and pool of every pinned block.
static PINNED: Mutex<Vec<(u64, usize)>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn key(served: &Served) -> usize {
    core::ptr::from_ref(served) as usize
}

/// Pins a block, once however often it is shared. False: it is no block.
pub(crate) fn pin(served: &'static Served, addr: u64) -> bool {
    let mut pinned = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
    if served.pool.pin(addr).is_err() {
        return false;
    }
    pinned.push((addr, key(served)));
    COUNT.store(pinned.len(), Ordering::Release);
    true
}

/// Undoes one [`pin`].
pub(crate) fn unpin(served: &'static Served, addr: u64) {
    let mut pinned = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = pinned.iter().position(|known| *known == (addr, key(served))) {
        pinned.swap_remove(at);
        COUNT.store(pinned.len(), Ordering::Release);
        let _ = served.pool.unpin(addr);
    }
}

/// A block was freed, and so are its pins.
#[inline]
pub(crate) fn freed(served: &'static Served, addr: u64) {
    if COUNT.load(Ordering::Acquire) > 0 {
        release(served, addr);
    }
}

#[cold]
fn release(served: &'static Served, addr: u64) {
    let mut pinned = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
    let pins = pinned.iter().filter(|known| **known == (addr, key(served))).count();
    pinned.retain(|known| *known != (addr, key(served)));
    COUNT.store(pinned.len(), Ordering::Release);
    drop(pinned);
    for _ in 0..pins {
        let _ = served.pool.unpin(addr);
    }
}
