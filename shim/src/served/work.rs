//! Stopping the device: while a mesh moves bytes, no new work may be queued.

use super::driver::Driver;
use weir_pool::BackingError;

/// Stops new work and waits for what is queued.
pub(crate) fn stop(_driver: &Driver) -> Result<bool, BackingError> {
    Ok(false)
}

/// Lets work be queued again.
pub(crate) fn go_on() {}
