//! The job's own physical memory: the driver's, charged to the job until the last release and the last unmap.

use crate::caps::handles;
use crate::guard::Call;
use core::ffi::c_ulonglong;
use weir_cuda::*;

pub(crate) type Release = unsafe extern "C-unwind" fn(CUmemGenericAllocationHandle) -> CUresult;
pub(crate) type Map =
    unsafe extern "C-unwind" fn(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong) -> CUresult;
pub(crate) type Unmap = unsafe extern "C-unwind" fn(CUdeviceptr, usize) -> CUresult;

/// `cuMemRelease`.
pub(crate) unsafe fn release(call: &Call<Release, CUresult>, handle: CUmemGenericAllocationHandle) -> CUresult {
    // SAFETY: the caller's own argument.
    handles::release(handle, || call.forward(|real| unsafe { real(handle) }))
}

/// `cuMemMap`.
pub(crate) unsafe fn map(
    call: &Call<Map, CUresult>,
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(ptr, size, offset, handle, flags) });
    if result == CUresult::CUDA_SUCCESS {
        handles::mapped(ptr, size, handle);
    }
    result
}

/// `cuMemUnmap`.
pub(crate) unsafe fn unmap(call: &Call<Unmap, CUresult>, ptr: CUdeviceptr, size: usize) -> CUresult {
    // SAFETY: the caller's own arguments.
    handles::unmap(ptr, size, || call.forward(|real| unsafe { real(ptr, size) }))
}
