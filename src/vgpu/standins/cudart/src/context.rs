//! Which device a thread means, and the primary context that goes with it.

use crate::error::{INSUFFICIENT_DRIVER, Outcome, R};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock};
use weir_cuda::*;
use weir_vgpu_client as driver;

thread_local! {
    /// The device that this thread has chosen; a context that is current decides before it.
    static CHOSEN: Cell<c_int> = const { Cell::new(0) };
}

/// A retained primary context.
#[derive(Clone, Copy)]
struct Primary {
    device: c_int,
    context: usize,
}

static RETAINED: Mutex<Vec<Primary>> = Mutex::new(Vec::new());

/// Makes the driver ready, once in a process.
pub(crate) fn ready() -> R {
    static READY: OnceLock<R> = OnceLock::new();
    *READY.get_or_init(|| {
        if !driver::present() {
            return Err(INSUFFICIENT_DRIVER);
        }
        // SAFETY: takes no pointer.
        unsafe { driver::cuInit(0) }.outcome()
    })
}

fn current_context() -> R<CUcontext> {
    let mut context = null_mut();
    // SAFETY: a place for the result.
    unsafe { driver::cuCtxGetCurrent(&raw mut context) }.outcome()?;
    Ok(context)
}

/// The primary context of a device, retained for the life of the process or until it is reset.
pub(crate) fn primary(device: c_int) -> R<CUcontext> {
    let mut retained = RETAINED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = retained.iter().find(|p| p.device == device) {
        return Ok(known.context as CUcontext);
    }
    let mut context = null_mut();
    // SAFETY: a place for the result.
    unsafe { driver::cuDevicePrimaryCtxRetain(&raw mut context, device) }.outcome()?;
    retained.push(Primary { device, context: context as usize });
    Ok(context)
}

/// A context is current after this: the one that was, else the primary one of the thread's device.
pub(crate) fn context() -> R {
    ready()?;
    if current_context()?.is_null() {
        let context = primary(CHOSEN.get())?;
        // SAFETY: a living context.
        unsafe { driver::cuCtxSetCurrent(context) }.outcome()?;
    }
    Ok(())
}

/// Nothing is needed.
#[allow(clippy::unnecessary_wraps)]
pub(crate) fn bare() -> R {
    Ok(())
}

/// The device that this thread means.
pub(crate) fn device() -> R<c_int> {
    ready()?;
    if current_context()?.is_null() {
        return Ok(CHOSEN.get());
    }
    let mut device = 0;
    // SAFETY: a place for the result.
    unsafe { driver::cuCtxGetDevice(&raw mut device) }.outcome()?;
    Ok(device)
}

/// How many devices there are.
pub(crate) fn count() -> R<c_int> {
    ready()?;
    let mut count = 0;
    // SAFETY: a place for the result.
    unsafe { driver::cuDeviceGetCount(&raw mut count) }.outcome()?;
    if count == 0 { Err(CUresult::CUDA_ERROR_NO_DEVICE) } else { Ok(count) }
}

/// Refuses what is no device.
pub(crate) fn known(device: c_int) -> R {
    if (0..count()?).contains(&device) { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) }
}

/// Makes a device this thread's, with its context.
pub(crate) fn choose(device: c_int) -> R {
    known(device)?;
    let context = primary(device)?;
    // SAFETY: a living context.
    unsafe { driver::cuCtxSetCurrent(context) }.outcome()?;
    CHOSEN.set(device);
    Ok(())
}

/// Destroys everything on this thread's device.
pub(crate) fn reset() -> R {
    let device = device()?;
    let mut retained = RETAINED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    retained.retain(|p| p.device != device);
    // SAFETY: takes no pointer.
    unsafe { driver::cuDevicePrimaryCtxReset_v2(device) }.outcome()
}
