//! The job's own physical memory: the driver's, charged to the job until the last release and the last unmap.

use crate::alloc;
use crate::alloc::passed::{self, Wanted};
use crate::cap::handles;
use crate::process::guard::Call;
use crate::record;
use core::ffi::c_ulonglong;
use weir_cuda::*;
use weir_journal::{Class, Granted, STREAM_UNKNOWN};

pub(crate) type Release = unsafe extern "C-unwind" fn(CUmemGenericAllocationHandle) -> CUresult;
pub(crate) type Map =
    unsafe extern "C-unwind" fn(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong) -> CUresult;
pub(crate) type Reserve =
    unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong) -> CUresult;
pub(crate) type Unmap = unsafe extern "C-unwind" fn(CUdeviceptr, usize) -> CUresult;

/// `cuMemRelease`.
pub(crate) unsafe fn release(call: &Call<Release, CUresult>, handle: CUmemGenericAllocationHandle) -> CUresult {
    // SAFETY: the caller's own argument.
    let run = || handles::release(handle, || call.forward(|real| unsafe { real(handle) }));
    record::handles::release(handle, run)
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
    let forward = || alloc::with_room(|| call.forward(|real| unsafe { real(ptr, size, offset, handle, flags) }));
    let run = || handles::map(ptr, handle, forward);
    record::handles::map(ptr, size as u64, handle, run)
}

/// `cuMemUnmap`.
pub(crate) unsafe fn unmap(call: &Call<Unmap, CUresult>, ptr: CUdeviceptr, size: usize) -> CUresult {
    // SAFETY: the caller's own arguments.
    let run = || handles::unmap(ptr, size, || call.forward(|real| unsafe { real(ptr, size) }));
    record::handles::unmap(ptr, size as u64, run)
}

/// `cuMemAddressReserve`: addresses, no memory.
pub(crate) unsafe fn reserve(
    call: &Call<Reserve, CUresult>,
    ptr: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    addr: CUdeviceptr,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let run = || call.forward(|real| unsafe { real(ptr, size, alignment, addr, flags) });
    let wanted = Wanted { owned: false, ..Wanted::here(Class::Reservation, size as u64) };
    // SAFETY: after success the address is there.
    passed::allocate(call, wanted, run, || Granted { address: unsafe { *ptr }, allocated: size as u64 })
}

/// `cuMemAddressFree`.
pub(crate) unsafe fn unreserve(call: &Call<Unmap, CUresult>, ptr: CUdeviceptr, size: usize) -> CUresult {
    // SAFETY: the caller's own arguments.
    let run = || call.forward(|real| unsafe { real(ptr, size) });
    passed::free(ptr, &[Class::Reservation], STREAM_UNKNOWN, run)
}
