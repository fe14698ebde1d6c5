//! Contexts: their making and end, and what waits for all their work.

use crate::alloc::CALLBACKS;
use crate::cap;
use crate::driver::library::signature;
use crate::driver::real::{self, device_attribute, done};
use crate::frameworks::tensorflow;
use crate::process::guard::Call;
use crate::process::job;
use crate::record;
use core::ffi::c_uint;
use weir_cuda::{CUdevice_attribute, CUresult};

/// What cuInit answers where a limit cannot be kept. It is one of the codes that the documentation names for cuInit, and
/// frameworks report it, whereas "no device" would count as a machine without a GPU.
pub(crate) const REFUSED: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// `cuInit`: fails where the job must not run because a limit cannot be kept.
pub(crate) unsafe fn init(call: &Call<signature::cuInit, CUresult>, flags: c_uint) -> CUresult {
    #[cfg(feature = "fault-injection")]
    crate::process::fault::strike("body:cuInit");
    if job::refused().is_some() {
        job::report();
        return REFUSED;
    }
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(flags) });
    if result == CUresult::CUDA_SUCCESS {
        tensorflow::choose(memory_pools);
        record::choices();
    }
    if let Some(job) = job::get().filter(|_| result == CUresult::CUDA_SUCCESS) {
        cap::begin(&job.config, &CALLBACKS);
    }
    job::report();
    if job::refused().is_some() { REFUSED } else { result }
}

/// Whether every visible device has memory pools, else which has not. Needs no context.
pub(crate) fn memory_pools() -> Result<(), String> {
    let mut count = 0;
    // SAFETY: the place is a live local.
    done(unsafe { real::cuDeviceGetCount(&raw mut count) })
        .map_err(|code| format!("the devices cannot be counted (error {})", code.0))?;
    let pools = |ordinal| device_attribute(ordinal, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
    match (0..count).find(|ordinal| pools(*ordinal) != Some(1)) {
        None if count > 0 => Ok(()),
        None => Err("no device is visible".to_owned()),
        Some(ordinal) => Err(format!("device {ordinal} has no memory pools")),
    }
}
