//! Events whose records weir can't see: those that other processes or graphs may record. Nothing is
//! concluded from waiting for them.

use core::sync::atomic::AtomicUsize;
use std::collections::HashSet;
use weir_pool::ranks::Rank;
use weir_pool::shared::{Counted, Counts, Guarded};

struct Events(Option<HashSet<u64>>);

impl Counts<1> for Events {
    fn counts(&self) -> [usize; 1] {
        [self.0.as_ref().map_or(0, HashSet::len)]
    }
}

static LIST: Counted<Guarded<Events>, AtomicUsize, 1> =
    Counted::new(Guarded::new(Rank::Events, Events(None)), [AtomicUsize::new(0)]);

/// From now on nothing is concluded from this event.
pub(crate) fn distrust(event: u64) {
    LIST.with(|list: &mut Events| list.0.get_or_insert_default().insert(event));
    for device_pool in crate::alloc::pools() {
        device_pool.pool.event_destroyed(event);
    }
}

/// Whether records of this event are seen.
#[inline]
pub(crate) fn trusted(event: u64) -> bool {
    !LIST.any() || LIST.with(|list: &mut Events| list.0.as_ref().is_none_or(|list| !list.contains(&event)))
}

/// An event is gone; its handle may come again.
pub(crate) fn destroyed(event: u64) {
    if LIST.any() {
        LIST.with(|list: &mut Events| list.0.as_mut().is_some_and(|list| list.remove(&event)));
    }
    for device_pool in crate::alloc::pools() {
        device_pool.pool.event_destroyed(event);
    }
}
