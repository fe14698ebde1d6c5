//! Events whose records weir can't see: those that other processes or graphs may record. Nothing is
//! concluded from waiting for them.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

static COUNT: AtomicUsize = AtomicUsize::new(0);
static LIST: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

/// From now on nothing is concluded from this event.
pub(crate) fn distrust(event: u64) {
    let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let list = list.get_or_insert_default();
    list.insert(event);
    COUNT.store(list.len(), Ordering::Release);
    for served in super::pools() {
        served.pool.event_destroyed(event);
    }
}

/// Whether records of this event are seen.
#[inline]
pub(crate) fn trusted(event: u64) -> bool {
    COUNT.load(Ordering::Acquire) == 0
        || !LIST.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|list| list.contains(&event))
}

/// An event is gone; its handle may come again.
pub(crate) fn destroyed(event: u64) {
    if COUNT.load(Ordering::Acquire) > 0
        && let Some(list) = LIST.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
    {
        list.remove(&event);
        COUNT.store(list.len(), Ordering::Release);
    }
    for served in super::pools() {
        served.pool.event_destroyed(event);
    }
}
