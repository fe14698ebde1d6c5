//! A forked child has none of its parent's pools, and nobody else is in the middle of anything.

use super::registry::LIST;
use crate::driver::{capture, contexts, stream, work};
use crate::process::job;

/// From now on a fork is noticed.
pub(super) fn watch() {
    // SAFETY: registers a function that only stores.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

extern "C" fn in_child() {
    if LIST.any() {
        job::forked();
    }
    // A lock of theirs may have been held by a thread that is not here.
    LIST.clear();
    work::forked();
    capture::forked();
    contexts::forked();
    stream::forked();
}
