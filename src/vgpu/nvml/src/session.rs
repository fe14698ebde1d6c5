//! Whether NVML is initialised: a count of nvmlInit calls that nvmlShutdown calls take back.

use crate::driver::{ABSENT, Driver};
use std::sync::{Mutex, PoisonError};
use weir_cuda::nvml::NvmlReturn;

/// nvmlInitWithFlags: a host without a device is no error.
pub(crate) const NO_GPUS: u32 = 1;
/// nvmlInitWithFlags: do not wake the devices, which these never need.
const NO_ATTACH: u32 = 2;
/// NVML_ERROR_GPU_NOT_FOUND.
const GPU_NOT_FOUND: NvmlReturn = NvmlReturn(28);

/// NVML_ERROR_LIBRARY_NOT_FOUND: what a program concludes that finds no library.
const LIBRARY_NOT_FOUND: NvmlReturn = NvmlReturn(12);

static SESSIONS: Mutex<u64> = Mutex::new(0);

/// What a function's body gives back: nothing, or the code of its error.
pub(crate) type Outcome = Result<(), NvmlReturn>;

/// Begins a session.
pub(crate) fn begin(flags: u32) -> Outcome {
    if flags & !(NO_GPUS | NO_ATTACH) != 0 {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    let driver = Driver::get().ok_or(NvmlReturn::DRIVER_NOT_LOADED)?;
    if driver.limits(0).mode == ABSENT {
        return Err(LIBRARY_NOT_FOUND);
    }
    if driver.device_count() == 0 && flags & NO_GPUS == 0 {
        return Err(GPU_NOT_FOUND);
    }
    *SESSIONS.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    Ok(())
}

/// Ends a session; ending one too many is an error.
pub(crate) fn end() -> Outcome {
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    *sessions = sessions.checked_sub(1).ok_or(NvmlReturn::UNINITIALIZED)?;
    Ok(())
}

/// Runs the body of a function that needs a session.
pub(crate) fn answer(body: impl FnOnce(&'static Driver) -> Outcome) -> NvmlReturn {
    let open = *SESSIONS.lock().unwrap_or_else(PoisonError::into_inner) > 0;
    let driver = Driver::get().filter(|_| open);
    let outcome = driver.ok_or(NvmlReturn::UNINITIALIZED).and_then(body);
    code(outcome)
}

/// An outcome as NVML returns it.
pub(crate) fn code(outcome: Outcome) -> NvmlReturn {
    outcome.err().unwrap_or(NvmlReturn::SUCCESS)
}

/// What a function answers that is not implemented.
pub(crate) fn not_supported() -> NvmlReturn {
    answer(|_| Err(NvmlReturn::NOT_SUPPORTED))
}
