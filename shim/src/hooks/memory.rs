//! Allocating and freeing device memory: from a device pool, or from the driver where no pool serves.

use crate::alloc::passed::{self, Wanted};
use crate::alloc::{self, Order, Request, free, unaccounted};
use crate::cap::{self, linear};
use crate::driver::real::device_attribute;
use crate::process::calls::Uncancelled;
use crate::process::guard::Call;
use crate::process::reserve;
use core::ffi::c_uint;
use weir_cuda::{CUdevice_attribute, CUdeviceptr, CUdeviceptr_v1, CUmemoryPool, CUresult, CUstream};
use weir_journal::{Class, Granted};
use weir_ledger::Category;

pub(crate) type Alloc = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize) -> CUresult;
pub(crate) type AllocV1 = unsafe extern "C-unwind" fn(*mut CUdeviceptr_v1, c_uint) -> CUresult;
pub(crate) type AllocPitchV1 =
    unsafe extern "C-unwind" fn(*mut CUdeviceptr_v1, *mut c_uint, c_uint, c_uint, c_uint) -> CUresult;
pub(crate) type AllocPitch =
    unsafe extern "C-unwind" fn(*mut CUdeviceptr, *mut usize, usize, usize, c_uint) -> CUresult;
pub(crate) type AllocManaged = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, c_uint) -> CUresult;
pub(crate) type AllocAsync = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, CUstream) -> CUresult;
pub(crate) type AllocFromPool =
    unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, CUmemoryPool, CUstream) -> CUresult;
pub(crate) type Free = unsafe extern "C-unwind" fn(CUdeviceptr) -> CUresult;
pub(crate) type FreeAsync = unsafe extern "C-unwind" fn(CUdeviceptr, CUstream) -> CUresult;

/// `cuMemAlloc` as in CUDA 2, for 32-bit device addresses. No driver of today has such memory to give; should one have,
/// it would lie beside the account, so there is none under a cap.
pub(crate) unsafe fn alloc_v1(call: &Call<AllocV1, CUresult>, dptr: *mut CUdeviceptr_v1, bytes: c_uint) -> CUresult {
    if cap::on().is_some() {
        return CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    }
    // SAFETY: the caller's own arguments.
    call.forward(|real| unsafe { real(dptr, bytes) })
}

/// `cuMemAllocPitch` as in CUDA 2.
pub(crate) unsafe fn alloc_pitch_v1(
    call: &Call<AllocPitchV1, CUresult>,
    dptr: *mut CUdeviceptr_v1,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> CUresult {
    if cap::on().is_some() {
        return CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    }
    // SAFETY: the caller's own arguments.
    call.forward(|real| unsafe { real(dptr, pitch, width, height, element) })
}

/// `cuMemAllocPitch`: rows padded to what textures of the device want.
pub(crate) unsafe fn alloc_pitch(
    call: &Call<AllocPitch, CUresult>,
    dptr: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> CUresult {
    if reserve::short() {
        // SAFETY: the caller's own arguments.
        return unaccounted(call, |real| unsafe { real(dptr, pitch, width, height, element) });
    }
    let sound = !dptr.is_null() && !pitch.is_null() && width > 0 && height > 0 && matches!(element, 4 | 8 | 16);
    let row = if sound { pitch_of(width) } else { None };
    let device_pool =
        row.and_then(|row| Some((row, Request { bytes: row.checked_mul(height)?, order: None }.serve()?)));
    match device_pool {
        Some((row, Ok(addr))) => {
            // SAFETY: the caller's places for the results, not null.
            unsafe { (*dptr, *pitch) = (addr, row) };
            CUresult::CUDA_SUCCESS
        }
        Some((_, Err(code))) => code,
        None => {
            let expected = if pitch.is_null() { 0 } else { width.saturating_add(511) / 512 * 512 };
            let expected = (expected as u64).saturating_mul(height as u64);
            // SAFETY: the caller's own arguments; after success the pitch is there.
            unsafe {
                let allocated = || (*pitch as u64).saturating_mul(height as u64);
                let forward = || alloc::with_room(|| call.forward(|real| real(dptr, pitch, width, height, element)));
                let run = || linear::allocate(expected, Category::Device, dptr, allocated, forward);
                let requested = (width as u64).saturating_mul(height as u64);
                passed::allocate(call, Wanted::here(Class::Device, requested), run, || Granted {
                    address: *dptr,
                    allocated: allocated(),
                })
            }
        }
    }
}

/// `cuMemAllocManaged`: may come to lie on the device in full at any time, so it is charged in full.
pub(crate) unsafe fn alloc_managed(
    call: &Call<AllocManaged, CUresult>,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    if reserve::short() {
        // SAFETY: the caller's own arguments.
        return unaccounted(call, |real| unsafe { real(dptr, bytes, flags) });
    }
    // SAFETY: the caller's own arguments.
    unsafe {
        let forward = || alloc::with_room(|| call.forward(|real| real(dptr, bytes, flags)));
        let run = || linear::allocate(bytes as u64, Category::Managed, dptr, || bytes as u64, forward);
        let wanted = Wanted::here(Class::Managed, bytes as u64);
        passed::allocate(call, wanted, run, || Granted { address: *dptr, allocated: bytes as u64 })
    }
}

fn pitch_of(width: usize) -> Option<usize> {
    let (device_pool, _) = alloc::here()?;
    let align = device_attribute(device_pool.ordinal, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    width.checked_next_multiple_of(usize::try_from(align?).ok()?.max(512))
}

/// `cuMemAlloc`.
pub(crate) unsafe fn alloc(call: &Call<Alloc, CUresult>, dptr: *mut CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe { Request { bytes, order: None }.answer(call, dptr, |real| real(dptr, bytes)) }
}

/// `cuMemAllocAsync`.
pub(crate) unsafe fn alloc_async(
    call: &Call<AllocAsync, CUresult>,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    let order = Order { stream, variant: call.variant, mempool: None };
    // SAFETY: the caller's own arguments.
    unsafe { Request { bytes, order: Some(order) }.answer(call, dptr, |real| real(dptr, bytes, stream)) }
}

/// `cuMemAllocFromPoolAsync`.
pub(crate) unsafe fn alloc_from_pool(
    call: &Call<AllocFromPool, CUresult>,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    let order = Order { stream, variant: call.variant, mempool: Some(pool as u64) };
    // SAFETY: the caller's own arguments.
    unsafe { Request { bytes, order: Some(order) }.answer(call, dptr, |real| real(dptr, bytes, pool, stream)) }
}

/// `cuMemFree`: lazily, the bytes wait for a synchronisation.
pub(crate) unsafe fn free(call: &Call<Free, CUresult>, dptr: CUdeviceptr) -> CUresult {
    let judge = || {
        let _uncancelled = Uncancelled::enter();
        // SAFETY: an address of weir's own mappings, for which the driver frees nothing.
        unsafe { (call.real())(dptr) }
    };
    // SAFETY: the caller's own argument.
    free::now(dptr, judge, || call.forward(|real| unsafe { real(dptr) }))
}

/// `cuMemFreeAsync`: in the order of its stream.
pub(crate) unsafe fn free_async(call: &Call<FreeAsync, CUresult>, dptr: CUdeviceptr, stream: CUstream) -> CUresult {
    // SAFETY: the caller's own arguments.
    let forward = || call.forward(|real| unsafe { real(dptr, stream) });
    free::in_order(dptr, stream, call.variant, forward)
}
