//! Who is notified of what comes and goes in the driver: handed in once, before the job's first call goes on.

use super::stream::StreamRef;
use core::sync::atomic::{AtomicPtr, Ordering};
use core::time::Duration;

/// What the layer above does with what is seen here. None of it calls the driver.
pub(crate) struct Observer {
    /// A context of a device is seen for the first time, and nobody finds it yet.
    pub(crate) context_seen: fn(u64, i32),
    /// A capture began on a stream, and nobody finds it yet.
    pub(crate) capture_began: fn(StreamRef),
    /// A capture has ended.
    pub(crate) capture_ended: fn(StreamRef),
    /// Weir has waited for work that reaches a device's memory, for so long.
    pub(crate) waited: fn(i32, Duration),
}

static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(core::ptr::null_mut());

/// From now on `observer` is notified.
pub(crate) fn observe(observer: &'static Observer) {
    OBSERVER.store(core::ptr::from_ref(observer).cast_mut(), Ordering::Release);
}

/// Notifies the observer, if there is one.
pub(super) fn notify(what: impl FnOnce(&Observer)) {
    // SAFETY: null, or the static that `observe` was given.
    if let Some(observer) = unsafe { OBSERVER.load(Ordering::Acquire).as_ref() } {
        what(observer);
    }
}
