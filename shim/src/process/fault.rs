//! Faults of weir's own, for tests: `WEIR_FAULT` is a comma-separated list of
//!
//! - `panic:PLACE`: panic at an exported function (`panic:cuMemAlloc_v2`), inside a body
//!   (`panic:body:cuInit`), or at the start (`panic:start`);
//! - `resolve`: no real library is found;
//! - `full`: the disk is full when a note is written;
//! - `pending`, `freeing`: a call is not recorded before the driver is called;
//! - `inversion`: two locks are taken against their order when a context is seen for the first time;
//! - `hold`: a lock is held while weir waits for the device;
//! - `call`: a lock is held while weir calls the driver: when a handle of the pool's is made, or one of the job's released.
//!
//! Built only with the feature `fault-injection`.

/// Whether `fault` is switched on.
pub(crate) fn is_set(fault: &str) -> bool {
    std::env::var("WEIR_FAULT").is_ok_and(|list| list.split(',').any(|f| f == fault))
}

#[allow(clippy::panic)] // its purpose
/// Panics if a panic is switched on for `place`.
pub(crate) fn strike(place: &str) {
    if is_set(&format!("panic:{place}")) {
        std::panic::panic_any(format!("switched on at {place}"));
    }
}
