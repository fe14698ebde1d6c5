//! What the frameworks in the job know: Python's lines and TensorFlow's operations, read from their own memory.

pub(crate) mod cache;
pub(crate) mod memory;
pub(crate) mod python;
pub(crate) mod tensorflow;

use core::sync::atomic::{AtomicBool, Ordering};

/// Whether any of them was found in this process.
static PRESENT: AtomicBool = AtomicBool::new(false);

/// Whether any of them may have something to report.
#[inline]
pub(crate) fn present() -> bool {
    PRESENT.load(Ordering::Relaxed)
}

/// One of them was found.
fn appear() {
    PRESENT.store(true, Ordering::Relaxed);
}
