//! Signals that ask a command to end: it then finishes what it does and reports.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static END: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on Ctrl-C and SIGTERM only set what [`end_requested`] returns; a second one ends at once.
pub(crate) fn end_on_request() {
    for signal in [SIGINT, SIGTERM] {
        // Both are signals that a process may handle, so neither call fails. The first acts on what the second set before.
        let _ = flag::register_conditional_default(signal, Arc::clone(&END));
        let _ = flag::register(signal, Arc::clone(&END));
    }
}

/// Whether a signal has requested the end of this command.
pub(crate) fn end_requested() -> bool {
    END.load(Ordering::Relaxed)
}
