//! Memory that leaves the process, and handles behind pointers: the pool's memory looks like plain
//! memory of the driver's, and what is shared stays where it is.

use crate::alloc::oom::situation;
use crate::alloc::passed;
use crate::alloc::{self, ipc, pins};
use crate::cap::handles;
use crate::driver::real::{self, done};
use crate::process::guard::Call;
use crate::record;
use core::ffi::{c_uint, c_ulonglong, c_void};
use weir_cuda::*;
use weir_journal::Granted;

pub(crate) type CreatePhysical = unsafe extern "C-unwind" fn(
    *mut CUmemGenericAllocationHandle,
    usize,
    *const CUmemAllocationProp,
    c_ulonglong,
) -> CUresult;
pub(crate) type Import =
    unsafe extern "C-unwind" fn(*mut CUmemGenericAllocationHandle, *mut c_void, CUmemAllocationHandleType) -> CUresult;
pub(crate) type GetAccess =
    unsafe extern "C-unwind" fn(*mut c_ulonglong, *const CUmemLocation, CUdeviceptr) -> CUresult;
pub(crate) type RetainHandle = unsafe extern "C-unwind" fn(*mut CUmemGenericAllocationHandle, *mut c_void) -> CUresult;
pub(crate) type GetHandle = unsafe extern "C-unwind" fn(*mut CUipcMemHandle, CUdeviceptr) -> CUresult;
pub(crate) type OpenHandle = unsafe extern "C-unwind" fn(*mut CUdeviceptr, CUipcMemHandle, c_uint) -> CUresult;
pub(crate) type CloseHandle = unsafe extern "C-unwind" fn(CUdeviceptr) -> CUresult;
pub(crate) type HandleForRange =
    unsafe extern "C-unwind" fn(*mut c_void, CUdeviceptr, usize, CUmemRangeHandleType, c_ulonglong) -> CUresult;

/// The handle that a place holds after a call that succeeded, 0 without a place.
fn made_at(place: *const CUmemGenericAllocationHandle) -> u64 {
    // SAFETY: null, or the caller's place after the driver has written it.
    unsafe { place.as_ref() }.copied().unwrap_or(0)
}

/// `cuMemCreate`: the job's own; the pools make room for it.
pub(crate) unsafe fn create(
    call: &Call<CreatePhysical, CUresult>,
    handle: *mut CUmemGenericAllocationHandle,
    size: usize,
    properties: *const CUmemAllocationProp,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe {
        let forward = || alloc::with_room(|| call.forward(|real| real(handle, size, properties, flags)));
        let run = || handles::create(handle, size, properties, forward);
        let on_device = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let location = properties.as_ref().map(|properties| properties.location);
        let ordinal = location.filter(|location| location.type_ == on_device).map(|location| location.id());
        record::handles::create(call, ordinal, size as u64, run, || *handle, situation)
    }
}

/// `cuMemGetAccess`: not for plain memory.
pub(crate) unsafe fn get_access(
    call: &Call<GetAccess, CUresult>,
    flags: *mut c_ulonglong,
    location: *const CUmemLocation,
    ptr: CUdeviceptr,
) -> CUresult {
    if alloc::owner(ptr).is_some() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    call.forward(|real| unsafe { real(flags, location, ptr) })
}

/// `cuMemRetainAllocationHandle`: plain memory has no handle.
pub(crate) unsafe fn retain_handle(
    call: &Call<RetainHandle, CUresult>,
    handle: *mut CUmemGenericAllocationHandle,
    addr: *mut c_void,
) -> CUresult {
    if alloc::owner(addr as CUdeviceptr).is_some() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    let forward = || call.forward(|real| unsafe { real(handle, addr) });
    let result = handles::returned_again(forward, || made_at(handle));
    if result == CUresult::CUDA_SUCCESS && !handle.is_null() {
        record::handles::retained(made_at(handle));
    }
    result
}

/// `cuMemImportFromShareableHandle`: memory of another process, or of this one again.
pub(crate) unsafe fn import(
    call: &Call<Import, CUresult>,
    handle: *mut CUmemGenericAllocationHandle,
    shared: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let forward = || call.forward(|real| unsafe { real(handle, shared, kind) });
    let result = handles::returned_again(forward, || made_at(handle));
    if result == CUresult::CUDA_SUCCESS && !handle.is_null() {
        record::handles::imported(made_at(handle));
    }
    result
}

/// `cuIpcGetMemHandle`.
pub(crate) unsafe fn get_handle(
    call: &Call<GetHandle, CUresult>,
    handle: *mut CUipcMemHandle,
    ptr: CUdeviceptr,
) -> CUresult {
    match alloc::block(ptr).filter(|_| !handle.is_null()) {
        // Memory of a mempool has no such handle; the driver would give that of the segment that it lies in.
        Some((device_pool, block)) if block.mempool != device_pool.plain && !device_pool.mapped() => {
            CUresult::CUDA_ERROR_INVALID_VALUE
        }
        Some((device_pool, block)) if block.mempool == device_pool.plain => match ipc::export(device_pool, &block) {
            Ok(opaque) => {
                // SAFETY: the caller's place for the result, not null.
                unsafe { *handle = opaque };
                CUresult::CUDA_SUCCESS
            }
            Err(code) => code,
        },
        // SAFETY: the caller's own arguments.
        _ => call.forward(|real| unsafe { real(handle, ptr) }),
    }
}

/// `cuIpcOpenMemHandle`: weir's own handles are opened by weir, others by the driver.
pub(crate) unsafe fn open_handle(
    call: &Call<OpenHandle, CUresult>,
    ptr: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller's own arguments; after success the address is there.
    unsafe { passed::import(call, || open(call, ptr, handle, flags), || imported(*ptr)) }
}

/// What an opened address belongs to.
fn imported(ptr: CUdeviceptr) -> Granted {
    let (mut start, mut size) = (0, 0);
    let known = ipc::opened(ptr).map(|(_, bytes)| bytes).or_else(|| {
        // SAFETY: both places are live locals.
        done(unsafe { real::cuMemGetAddressRange_v2(&raw mut start, &raw mut size, ptr) }).ok().map(|()| size as u64)
    });
    Granted { address: ptr, allocated: known.unwrap_or(0) }
}

unsafe fn open(
    call: &Call<OpenHandle, CUresult>,
    ptr: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> CUresult {
    if ptr.is_null() || !ipc::is_own(&handle) {
        // SAFETY: the caller's own arguments.
        return call.forward(|real| unsafe { real(ptr, handle, flags) });
    }
    if flags != CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0 {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    match ipc::open(&handle) {
        Ok(addr) => {
            // SAFETY: the caller's place for the result, not null.
            unsafe { *ptr = addr };
            CUresult::CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// `cuIpcCloseMemHandle`.
pub(crate) unsafe fn close_handle(call: &Call<CloseHandle, CUresult>, ptr: CUdeviceptr) -> CUresult {
    // SAFETY: the caller's own argument.
    passed::close(ptr, || ipc::close(ptr).unwrap_or_else(|| call.forward(|real| unsafe { real(ptr) })))
}

/// `cuMemGetHandleForAddressRange`: what was handed to another device stays where it is.
pub(crate) unsafe fn handle_for_range(
    call: &Call<HandleForRange, CUresult>,
    handle: *mut c_void,
    ptr: CUdeviceptr,
    size: usize,
    kind: CUmemRangeHandleType,
    flags: c_ulonglong,
) -> CUresult {
    let pinned = alloc::block(ptr).filter(|(device_pool, block)| pins::pin(device_pool, block.addr));
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(handle, ptr, size, kind, flags) });
    if let Some((device_pool, block)) = pinned.filter(|_| result != CUresult::CUDA_SUCCESS) {
        pins::unpin(device_pool, block.addr);
    }
    result
}
