//! Contexts: their making and end, and what waits for all their work.

use crate::export::signature;
use crate::guard::Call;
use crate::{caps, job, tensorflow};
use core::ffi::c_uint;
use weir_cuda::CUresult;

/// `cuInit`: fails when the configuration cannot be honoured and `WEIR_STRICT=1` says that it must.
pub(crate) unsafe fn init(call: &Call<signature::cuInit, CUresult>, flags: c_uint) -> CUresult {
    #[cfg(feature = "faults")]
    crate::faults::strike("body:cuInit");
    if job::get().is_some_and(|job| job.config.strict && !job.config.problems.is_empty()) {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(flags) });
    if result == CUresult::CUDA_SUCCESS {
        tensorflow::begin();
    }
    let config = job::get().map(|job| &job.config).filter(|_| result == CUresult::CUDA_SUCCESS);
    config.and_then(caps::begin).unwrap_or(result)
}
