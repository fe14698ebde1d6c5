//! Signals that ask a command to end: it then finishes what it does and reports.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on Ctrl-C and SIGTERM only set what [`asked_to_end`] returns; a second one ends at once.
pub(crate) fn end_when_asked() {
    for signal in [SIGINT, SIGTERM] {
        // Both are signals that a process may handle, so neither call fails. The first acts on what the second set before.
        let _ = flag::register_conditional_default(signal, Arc::clone(&ASKED));
        let _ = flag::register(signal, Arc::clone(&ASKED));
    }
}

/// Whether somebody asked this command to end.
pub(crate) fn asked_to_end() -> bool {
    ASKED.load(Ordering::Relaxed)
}
