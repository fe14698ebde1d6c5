//! What queries report about memory: always the job's allocations, never weir's arenas.

use crate::alloc::{self, DevicePool, ipc, mempools, pins};
use crate::cap::{self, view};
use crate::driver::contexts::{self, Slot};
use crate::driver::guards::{current, current_device};
use crate::driver::memops;
use crate::driver::real;
use crate::process::guard::Call;
use CUpointer_attribute as A;
use core::ffi::{c_uint, c_void};
use weir_cuda::{CUdevice, CUdeviceptr, CUmemorytype, CUpointer_attribute, CUresult};
use weir_pool::BlockInfo;

pub(crate) type Total = unsafe extern "C-unwind" fn(*mut usize, CUdevice) -> CUresult;
pub(crate) type Info = unsafe extern "C-unwind" fn(*mut usize, *mut usize) -> CUresult;
pub(crate) type TotalV1 = unsafe extern "C-unwind" fn(*mut c_uint, CUdevice) -> CUresult;
pub(crate) type InfoV1 = unsafe extern "C-unwind" fn(*mut c_uint, *mut c_uint) -> CUresult;
pub(crate) type AddressRange = unsafe extern "C-unwind" fn(*mut CUdeviceptr, *mut usize, CUdeviceptr) -> CUresult;
pub(crate) type Attribute = unsafe extern "C-unwind" fn(*mut c_void, CUpointer_attribute, CUdeviceptr) -> CUresult;
pub(crate) type SetAttribute = unsafe extern "C-unwind" fn(*const c_void, CUpointer_attribute, CUdeviceptr) -> CUresult;
pub(crate) type Attributes =
    unsafe extern "C-unwind" fn(c_uint, *mut CUpointer_attribute, *mut *mut c_void, CUdeviceptr) -> CUresult;

/// Ids of the pool's blocks begin here, so that they meet none of the driver's.
const FIRST_ID: u64 = 1 << 56;
/// No allocation starts here: the driver answers for it as for any pointer that it does not know.
const NOWHERE: CUdeviceptr = 0;

/// Bit of a block's word: synchronous memory operations were requested.
const SYNC_MEMOPS: u16 = 1;

/// `cuMemGetInfo`: what the pool holds and the job does not is free.
pub(crate) unsafe fn info(call: &Call<Info, CUresult>, free: *mut usize, total: *mut usize) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(free, total) });
    if result == CUresult::CUDA_SUCCESS && capped_info(free, total) {
        return result;
    }
    if result == CUresult::CUDA_SUCCESS && !free.is_null() && alloc::any() {
        let device = contexts::seen(current()).map_or(-1, Slot::ordinal);
        let (mut held, mut live, mut all) = (0, 0, usize::MAX);
        for device_pool in alloc::pools().filter(|device_pool| device_pool.ordinal == device && !device_pool.host) {
            held += device_pool.reusable() as usize;
            live += device_pool.pool.stats().allocated_bytes as usize;
            // SAFETY: the place is a live local.
            unsafe { real::cuDeviceTotalMem_v2(&raw mut all, device) };
        }
        // The two were queried one after the other, and other threads go on: never more than can be.
        // SAFETY: the driver has just written there.
        unsafe { *free = (*free + held).min(all.saturating_sub(live)) };
    }
    result
}

/// `cuMemGetInfo` as in CUDA 2: under a cap the same figures, as far as 32 bits reach.
pub(crate) unsafe fn info_v1(call: &Call<InfoV1, CUresult>, free: *mut c_uint, total: *mut c_uint) -> CUresult {
    let (mut left, mut all) = (0, 0);
    if !capped_info(&raw mut left, &raw mut all) {
        // SAFETY: the caller's own arguments.
        return call.forward(|real| unsafe { real(free, total) });
    }
    for (place, value) in [(free, left), (total, all)] {
        if !place.is_null() {
            // SAFETY: the caller's place for the result.
            unsafe { *place = c_uint::try_from(value).unwrap_or(c_uint::MAX) };
        }
    }
    CUresult::CUDA_SUCCESS
}

/// `cuDeviceTotalMem` as in CUDA 2.
pub(crate) unsafe fn total_v1(call: &Call<TotalV1, CUresult>, bytes: *mut c_uint, device: CUdevice) -> CUresult {
    match view::total(device).filter(|_| !bytes.is_null()) {
        Some(total) => {
            // SAFETY: the caller's place for the result, not null.
            unsafe { *bytes = c_uint::try_from(total).unwrap_or(c_uint::MAX) };
            CUresult::CUDA_SUCCESS
        }
        // SAFETY: the caller's own arguments.
        None => call.forward(|real| unsafe { real(bytes, device) }),
    }
}

/// Reports what a cap leaves, into the places that the driver has accepted.
fn capped_info(free: *mut usize, total: *mut usize) -> bool {
    if cap::on().is_none() {
        return false;
    }
    let (mut really, mut all) = (0, 0);
    // SAFETY: both places are live locals; the caller may want one of them only.
    unsafe { real::cuMemGetInfo_v2(&raw mut really, &raw mut all) };
    let Some(reported) = current_device().and_then(|ordinal| view::of(ordinal, really as u64)) else {
        return false;
    };
    for (place, value) in [(free, reported.free), (total, reported.total)] {
        if !place.is_null() {
            // SAFETY: the caller's place for the result.
            unsafe { *place = value as usize };
        }
    }
    true
}

/// `cuDeviceTotalMem`: a device with a cap is as large as its cap.
pub(crate) unsafe fn total(call: &Call<Total, CUresult>, bytes: *mut usize, device: CUdevice) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(bytes, device) });
    if result == CUresult::CUDA_SUCCESS
        && !bytes.is_null()
        && let Some(total) = view::total(device)
    {
        // SAFETY: the driver has just written there.
        unsafe { *bytes = total as usize };
    }
    result
}

/// `cuMemGetAddressRange`.
pub(crate) unsafe fn address_range(
    call: &Call<AddressRange, CUresult>,
    base: *mut CUdeviceptr,
    size: *mut usize,
    ptr: CUdeviceptr,
) -> CUresult {
    let known = alloc::block(ptr).map(|(_, block)| (block.addr, block.bytes)).or_else(|| ipc::opened(ptr));
    let Some((start, bytes)) = known else {
        if alloc::owner(ptr).is_some() {
            return CUresult::CUDA_ERROR_NOT_FOUND;
        }
        // SAFETY: the caller's own arguments.
        return call.forward(|real| unsafe { real(base, size, ptr) });
    };
    if !base.is_null() {
        // SAFETY: the caller's place for the result.
        unsafe { *base = start };
    }
    if !size.is_null() {
        // SAFETY: as above.
        unsafe { *size = bytes as usize };
    }
    CUresult::CUDA_SUCCESS
}

/// An answer about a block of the pool.
enum Answer {
    /// This 64-bit number.
    Number(u64),
    /// This 32-bit number.
    Short(i32),
    /// True or false, in whatever width the driver writes truth.
    Truth(bool),
    /// There is no such thing.
    Nothing,
    /// What the driver reports of the memory behind it.
    Drivers,
}

/// A block of host memory is reported as the device memory that it stands for.
fn answer_of_spilled(device_pool: &DevicePool, attribute: CUpointer_attribute, ptr: CUdeviceptr) -> Option<Answer> {
    let device = CUmemorytype::CU_MEMORYTYPE_DEVICE.0 as i32;
    Some(match attribute {
        A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Answer::Short(device),
        A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Answer::Short(device_pool.ordinal),
        A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Answer::Number(ptr),
        A::CU_POINTER_ATTRIBUTE_HOST_POINTER => Answer::Nothing,
        A::CU_POINTER_ATTRIBUTE_IS_MANAGED | A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => Answer::Truth(false),
        _ => return None,
    })
}

fn answer(device_pool: &DevicePool, block: &BlockInfo, attribute: CUpointer_attribute, ptr: CUdeviceptr) -> Answer {
    let ordered = block.mempool != device_pool.plain;
    if let Some(reported) = device_pool.host.then(|| answer_of_spilled(device_pool, attribute, ptr)).flatten() {
        return reported;
    }
    match attribute {
        A::CU_POINTER_ATTRIBUTE_CONTEXT if ordered => Answer::Number(0),
        A::CU_POINTER_ATTRIBUTE_CONTEXT => Answer::Number(block.context),
        A::CU_POINTER_ATTRIBUTE_BUFFER_ID | A::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
            Answer::Number(FIRST_ID + ((device_pool.ordinal as u64) << 48) + block.buffer)
        }
        A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => {
            Answer::Number(block.addr)
        }
        A::CU_POINTER_ATTRIBUTE_RANGE_SIZE | A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => Answer::Number(block.bytes),
        A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => Answer::Number(0),
        A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE if !ordered => {
            Answer::Truth(device_pool.mapped() || !device_pool.host)
        }
        A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => Answer::Truth(block.tag & SYNC_MEMOPS != 0),
        A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE if ordered => {
            mempools::handle_of(device_pool, block.mempool).map_or(Answer::Drivers, Answer::Number)
        }
        _ => Answer::Drivers,
    }
}

/// Whether a caller that queries this is about to have the memory registered with another device.
fn registers(attribute: CUpointer_attribute) -> bool {
    matches!(attribute, A::CU_POINTER_ATTRIBUTE_P2P_TOKENS | A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE)
}

/// An answer about a block that another process exported.
fn answer_of_opened(start: u64, bytes: u64, attribute: CUpointer_attribute) -> Answer {
    match attribute {
        A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR | A::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => Answer::Number(start),
        A::CU_POINTER_ATTRIBUTE_RANGE_SIZE | A::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => Answer::Number(bytes),
        A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => Answer::Number(0),
        _ => Answer::Drivers,
    }
}

/// Writes an answer over the driver's.
///
/// # Safety
/// `data` is a place of the attribute's documented type.
unsafe fn write(answer: &Answer, data: *mut c_void) {
    match answer {
        // SAFETY: the caller vouches for the place; these attributes are 64-bit numbers or pointers.
        Answer::Number(value) => unsafe { data.cast::<u64>().write_unaligned(*value) },
        // SAFETY: as above; these attributes are integers or enumerations.
        Answer::Short(value) => unsafe { data.cast::<i32>().write_unaligned(*value) },
        // SAFETY: as above; the lowest byte of a boolean or an integer.
        Answer::Truth(value) => unsafe { data.cast::<u8>().write(u8::from(*value)) },
        Answer::Nothing | Answer::Drivers => {}
    }
}

/// `cuPointerGetAttribute`.
pub(crate) unsafe fn attribute(
    call: &Call<Attribute, CUresult>,
    data: *mut c_void,
    attribute: CUpointer_attribute,
    ptr: CUdeviceptr,
) -> CUresult {
    if alloc::owner(ptr).is_none() {
        // SAFETY: the caller's own arguments.
        let result = call.forward(|real| unsafe { real(data, attribute, ptr) });
        if let Some((start, bytes)) = ipc::opened(ptr).filter(|_| result == CUresult::CUDA_SUCCESS) {
            // SAFETY: the driver has just written there.
            unsafe { write(&answer_of_opened(start, bytes, attribute), data) };
        }
        return result;
    }
    let Some((device_pool, block)) = alloc::block(ptr) else {
        // SAFETY: the caller's own place; the driver refuses the pointer.
        return call.forward(|real| unsafe { real(data, attribute, NOWHERE) });
    };
    if registers(attribute) {
        pins::keep(device_pool, block.addr);
    }
    let answer = answer(device_pool, &block, attribute, ptr);
    if let Answer::Nothing = answer {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    if let (Answer::Number(_) | Answer::Short(_), false) = (&answer, data.is_null()) {
        // SAFETY: the caller's place for this attribute.
        unsafe { write(&answer, data) };
        return CUresult::CUDA_SUCCESS;
    }
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(data, attribute, ptr) });
    if result == CUresult::CUDA_SUCCESS {
        // SAFETY: the driver has just written there.
        unsafe { write(&answer, data) };
    }
    result
}

/// `cuPointerGetAttributes`.
pub(crate) unsafe fn attributes(
    call: &Call<Attributes, CUresult>,
    count: c_uint,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut c_void,
    ptr: CUdeviceptr,
) -> CUresult {
    let known = alloc::block(ptr);
    let queried = if known.is_none() && alloc::owner(ptr).is_some() { NOWHERE } else { ptr };
    // SAFETY: the caller's own places.
    let result = call.forward(|real| unsafe { real(count, attributes, data, queried) });
    let Some((device_pool, block)) = known.filter(|_| result == CUresult::CUDA_SUCCESS) else {
        return result;
    };
    for nth in 0..count as usize {
        // SAFETY: the driver has read `count` attributes and written to as many places.
        unsafe {
            if registers(*attributes.add(nth)) {
                pins::keep(device_pool, block.addr);
            }
            let answer = match answer(device_pool, &block, *attributes.add(nth), ptr) {
                // This query answers 0 where the other one refuses.
                Answer::Nothing => Answer::Number(0),
                answer => answer,
            };
            write(&answer, *data.add(nth));
        }
    }
    result
}

/// `cuPointerSetAttribute`: the driver does it, or weir where the driver does not for mapped memory; the block remembers it.
pub(crate) unsafe fn set_attribute(
    call: &Call<SetAttribute, CUresult>,
    value: *const c_void,
    attribute: CUpointer_attribute,
    ptr: CUdeviceptr,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let mut result = call.forward(|real| unsafe { real(value, attribute, ptr) });
    if matches!(result, CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_NOT_SUPPORTED)
        && attribute == A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        && let Some((device_pool, block)) = alloc::block(ptr)
    {
        // SAFETY: the driver has read the attribute's integer from there.
        let on = unsafe { value.cast::<c_uint>().read_unaligned() } != 0;
        let tag = if on { block.tag | SYNC_MEMOPS } else { block.tag & !SYNC_MEMOPS };
        let _ = device_pool.pool.set_tag(block.addr, tag);
        pins::keep(device_pool, block.addr);
        if result == CUresult::CUDA_ERROR_NOT_SUPPORTED {
            if on {
                memops::want();
            }
            result = CUresult::CUDA_SUCCESS;
        }
    }
    result
}
