//! Mempools: real ones of the driver's in handle, properties and settings; their memory is the pool's.

use crate::alloc::{self, DevicePool, mempools};
use crate::cap::measured;
use crate::driver::DEVICES;
use crate::driver::real::{self, done};
use crate::process::guard::Call;
use crate::record;
use CUmemPool_attribute as A;
use core::ffi::c_void;
use weir_cuda::*;

pub(crate) type Create = unsafe extern "C-unwind" fn(*mut CUmemoryPool, *const CUmemPoolProps) -> CUresult;
pub(crate) type Destroy = unsafe extern "C-unwind" fn(CUmemoryPool) -> CUresult;
pub(crate) type Attribute = unsafe extern "C-unwind" fn(CUmemoryPool, CUmemPool_attribute, *mut c_void) -> CUresult;
pub(crate) type SetCurrent = unsafe extern "C-unwind" fn(CUdevice, CUmemoryPool) -> CUresult;
pub(crate) type SetCurrentAt =
    unsafe extern "C-unwind" fn(*mut CUmemLocation, CUmemAllocationType, CUmemoryPool) -> CUresult;
pub(crate) type SetAccess = unsafe extern "C-unwind" fn(CUmemoryPool, *const CUmemAccessDesc, usize) -> CUresult;
pub(crate) type TrimTo = unsafe extern "C-unwind" fn(CUmemoryPool, usize) -> CUresult;

/// `cuMemPoolCreate`: one of plain device memory, not to be shared, is served from the pool.
pub(crate) unsafe fn create(
    call: &Call<Create, CUresult>,
    pool: *mut CUmemoryPool,
    properties: *const CUmemPoolProps,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(pool, properties) });
    if result == CUresult::CUDA_SUCCESS && alloc::watching() {
        // SAFETY: the driver has accepted both places, so both are readable.
        let (handle, wanted) = unsafe { (*pool as u64, &*properties) };
        let plain = wanted.handleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
            && wanted.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
            && wanted.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED
            // A largest size or a special use is kept by the driver alone.
            && wanted.maxSize == 0
            && wanted.usage == 0;
        if wanted.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            measured::mempool_made(handle, wanted.location.id());
        }
        if plain && alloc::on() {
            mempools::add(handle, wanted.location.id());
        }
    }
    result
}

/// `cuMemPoolDestroy`.
pub(crate) unsafe fn destroy(call: &Call<Destroy, CUresult>, pool: CUmemoryPool) -> CUresult {
    mempools::destroy(pool as u64, || {
        // SAFETY: the caller's own argument.
        measured::mempool_destroy(pool as u64, || call.forward(|real| unsafe { real(pool) }))
    })
}

/// `cuDeviceSetMemPool`.
pub(crate) unsafe fn set_current(call: &Call<SetCurrent, CUresult>, device: CUdevice, pool: CUmemoryPool) -> CUresult {
    if measured::is_destroyed(pool as u64) {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(device, pool) });
    if result == CUresult::CUDA_SUCCESS {
        mempools::chosen(device, pool as u64);
    }
    result
}

/// `cuMemSetMemPool`: the same by location.
pub(crate) unsafe fn set_current_at(
    call: &Call<SetCurrentAt, CUresult>,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> CUresult {
    if measured::is_destroyed(pool as u64) {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(location, kind, pool) });
    if result == CUresult::CUDA_SUCCESS && kind == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED {
        // SAFETY: the driver has accepted the place, so it is readable.
        let at = unsafe { &*location };
        if at.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            mempools::chosen(at.id(), pool as u64);
        }
    }
    result
}

/// `cuMemPoolGetAttribute`: what is used and held comes from the pool, all else from the driver.
pub(crate) unsafe fn get_attribute(
    call: &Call<Attribute, CUresult>,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> CUresult {
    if measured::is_destroyed(pool as u64) {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(pool, attribute, value) });
    let known = mempools::find(pool as u64).and_then(mempools::Pooled::known);
    let Some((device_pool, mempool)) = known.filter(|_| result == CUresult::CUDA_SUCCESS) else {
        return result;
    };
    let figure = |device_pool: &DevicePool| {
        let bytes = device_pool.pool.mempool_bytes(mempool);
        match attribute {
            A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => Some(bytes.used),
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => Some(bytes.used_high),
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => Some(bytes.reserved),
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => Some(bytes.reserved_high),
            _ => None,
        }
    };
    let Some(own) = figure(device_pool) else { return result };
    let spills = alloc::pools().filter(|spill| spill.host && spill.ordinal == device_pool.ordinal);
    let own = own + spills.filter_map(figure).sum::<u64>();
    // SAFETY: these attributes are 64-bit numbers, and the driver has just written one there. What it
    // holds itself are allocations that weir had to leave to it.
    unsafe { *value.cast::<u64>() += own };
    result
}

/// `cuMemPoolSetAttribute`: the driver judges it, the pool follows it.
pub(crate) unsafe fn set_attribute(
    call: &Call<Attribute, CUresult>,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> CUresult {
    if measured::is_destroyed(pool as u64) {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(pool, attribute, value) });
    if result != CUresult::CUDA_SUCCESS {
        return result;
    }
    let peaks = mempools::find(pool as u64).and_then(mempools::Pooled::known);
    match (attribute, peaks) {
        (A::CU_MEMPOOL_ATTR_USED_MEM_HIGH, Some((device_pool, mempool))) => {
            device_pool.pool.reset_mempool_peaks(mempool, true, false);
        }
        (A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, Some((device_pool, mempool))) => {
            device_pool.pool.reset_mempool_peaks(mempool, false, true);
        }
        (A::CU_MEMPOOL_ATTR_USED_MEM_HIGH | A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, None) => {}
        _ => mempools::changed(pool as u64),
    }
    result
}

/// `cuMemPoolSetAccess`: what the driver grants, the pool's memory of that device grants too.
pub(crate) unsafe fn set_access(
    call: &Call<SetAccess, CUresult>,
    pool: CUmemoryPool,
    list: *const CUmemAccessDesc,
    count: usize,
) -> CUresult {
    if measured::is_destroyed(pool as u64) {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(pool, list, count) });
    if result != CUresult::CUDA_SUCCESS || !alloc::on() {
        return result;
    }
    // A default mempool is known from the first allocation on: access that was set earlier holds for the memory to come.
    let of = || mempools::find(pool as u64).map(mempools::Pooled::ordinal).or_else(|| device_of_default(pool));
    let Some(ordinal) = of() else { return result };
    // SAFETY: the driver has accepted the list.
    for wanted in unsafe { core::slice::from_raw_parts(list, count) } {
        let none = wanted.flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if !none && wanted.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            // Other mempools of the device share the memory, so nothing is ever narrowed again.
            alloc::peers::granted_by_mempool(wanted.location.id(), ordinal);
        }
    }
    result
}

/// The device whose default mempool this is.
#[cold]
fn device_of_default(pool: CUmemoryPool) -> Option<i32> {
    let default = |ordinal: i32| {
        let mut handle: CUmemoryPool = core::ptr::null_mut();
        // SAFETY: the place is a live local.
        done(unsafe { real::cuDeviceGetDefaultMemPool(&raw mut handle, ordinal) }).ok().map(|()| (ordinal, handle))
    };
    let mut devices = (0..DEVICES as i32).filter_map(default);
    devices.find(|(_, handle)| *handle == pool).map(|(ordinal, _)| ordinal)
}

/// `cuMemPoolTrimTo`.
pub(crate) unsafe fn trim_to(call: &Call<TrimTo, CUresult>, pool: CUmemoryPool, keep: usize) -> CUresult {
    if measured::is_destroyed(pool as u64) {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(pool, keep) });
    if result == CUresult::CUDA_SUCCESS
        && let Some((device_pool, mempool)) = mempools::find(pool as u64).and_then(mempools::Pooled::known)
    {
        let released = device_pool.pool.trim_mempool(&device_pool.driver, mempool, keep as u64);
        record::physical::trimmed(device_pool.ordinal, released);
    }
    result
}
