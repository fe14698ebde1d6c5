//! Signals that ask a command to end: it then finishes what it does and tells so.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// From now on Ctrl-C and SIGTERM only set what [`asked_to_end`] tells; a second one ends at once.
#[allow(unsafe_code)]
pub(crate) fn end_when_asked() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all zero is a value of this plain struct.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = note as *const () as usize;
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: the action is whole, and its handler only stores to an atomic.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// Whether somebody asked this command to end.
pub(crate) fn asked_to_end() -> bool {
    ASKED.load(Ordering::Relaxed)
}
