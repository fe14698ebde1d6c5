//! Linear and managed memory.

use super::{given, need, put};
use crate::call::{self, Units};
use crate::config::{self, ManagedMemory};
use crate::engine::{Clock, Op, Touches, wait_points};
use crate::error::*;
use crate::heap::Use;
use crate::memory::Kind;
use crate::space::{Advice, Managed, around};
use crate::state::{Driver, State, driver};
use crate::store::{self, Protection};
use weir_cuda::*;

pub(crate) unsafe fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) -> R {
    need(dptr)?;
    let size = if bytesize == 0 && config::fault("zero_size") { 1 } else { bytesize };
    let mut s = driver()?;
    let (ctx, device) = s.current_device()?;
    if size == 0 {
        return Err(INVALID_VALUE);
    }
    s.refuse_unsafe_call()?;
    call::spend("cuMemAlloc", Units { bytes: size as u64, mappings: 0, peers: 0 });
    let addr = s.take_linear(ctx, device, size as u64, Use::Linear)?;
    // SAFETY: checked above.
    unsafe { put(dptr, addr) };
    Ok(())
}

pub(crate) unsafe fn cuMemAllocPitch_v2(
    dptr: *mut CUdeviceptr,
    p_pitch: *mut usize,
    width_in_bytes: usize,
    height: usize,
    element_size_bytes: c_uint,
) -> R {
    need(dptr)?;
    need(p_pitch)?;
    let mut s = driver()?;
    let (ctx, device) = s.current_device()?;
    if width_in_bytes == 0 || height == 0 || !matches!(element_size_bytes, 4 | 8 | 16) {
        return Err(INVALID_VALUE);
    }
    s.refuse_unsafe_call()?;
    let pitch = (width_in_bytes as u64).checked_next_multiple_of(512).ok_or(INVALID_VALUE)?;
    let size = pitch.checked_mul(height as u64).ok_or(OUT_OF_MEMORY)?;
    let addr = s.take_linear(ctx, device, size, Use::Linear)?;
    // SAFETY: checked above.
    unsafe {
        put(dptr, addr);
        put(p_pitch, pitch as usize);
    }
    Ok(())
}

/// Waits for whatever may touch memory that is about to go, as `cuMemFree` does.
fn wait_for_users(s: Driver, addr: u64, size: u64, device: Option<usize>) -> Driver {
    if s.engine.pending(addr, size, device, &Clock::default()).is_none() && device.is_some() {
        return s;
    }
    let points = s.engine.tails(|_, stream| device.is_none_or(|d| stream.device == d));
    wait_points(s, &points)
}

pub(crate) unsafe fn cuMemFree_v2(dptr: CUdeviceptr) -> R {
    let mut s = driver()?;
    s.current()?;
    // Freeing NULL is freeing nothing.
    if dptr == 0 {
        return Ok(());
    }
    if s.graph_owned(dptr) {
        s.refuse_unsafe_call()?;
        return wait_for_users(s, dptr, 1, None).graph_free(dptr, None);
    }
    let Some(extent) = s.extent(dptr) else {
        return if config::fault("double_free") { Ok(()) } else { Err(INVALID_VALUE) };
    };
    if extent.addr != dptr && !(config::fault("interior_free") && extent.kind == Kind::Linear) {
        return Err(INVALID_VALUE);
    }
    s.refuse_unsafe_call()?;
    match extent.kind {
        Kind::Linear => {
            call::spend("cuMemFree", Units { bytes: extent.size, mappings: 0, peers: 0 });
            let device = extent.device.ok_or(INVALID_VALUE)?;
            let mut s = wait_for_users(s, extent.addr, extent.size, Some(device));
            s.give_linear(device, extent.addr);
        }
        Kind::Managed => {
            let mut s = wait_for_users(s, extent.addr, extent.size, None);
            s.free_managed(extent.addr);
        }
        Kind::Pool(pool) => {
            let mut s = wait_for_users(s, extent.addr, extent.size, None);
            s.pool_give_now(pool, extent.addr)?;
            s.pools_synchronized();
        }
        Kind::Import if s.space.imports.get(&dptr).is_some_and(|i| i.key[0] == super::ipc::POOL_IMPORT) => {
            let mut s = wait_for_users(s, extent.addr, extent.size, None);
            s.close_import(dptr);
        }
        Kind::Global | Kind::Mapped(_) | Kind::Pinned | Kind::Registered | Kind::Import => return Err(INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> R {
    let s = driver()?;
    let (_, device) = s.current_device()?;
    let device = &s.devices[device];
    // SAFETY: both may be NULL.
    unsafe {
        put(free, device.free() as usize);
        put(total, device.total as usize);
    }
    Ok(())
}

pub(crate) unsafe fn cuMemGetAddressRange_v2(pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr) -> R {
    let s = driver()?;
    s.current()?;
    let extent = s.extent(dptr).ok_or(NOT_FOUND)?;
    // SAFETY: both may be NULL.
    unsafe {
        put(pbase, extent.addr);
        put(psize, extent.size as usize);
    }
    Ok(())
}

const ATTACH_GLOBAL: c_uint = 1;
const ATTACH_HOST: c_uint = 2;
const ATTACH_SINGLE: c_uint = 4;

pub(crate) unsafe fn cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint) -> R {
    need(dptr)?;
    let mut s = driver()?;
    let (ctx, _) = s.current_device()?;
    if config::get().managed == ManagedMemory::None {
        return Err(NOT_SUPPORTED);
    }
    if bytesize == 0 || !matches!(flags, ATTACH_GLOBAL | ATTACH_HOST) {
        return Err(INVALID_VALUE);
    }
    s.refuse_unsafe_call()?;
    let size = (bytesize as u64).next_multiple_of(4096);
    let addr = store::reserve(size, 1 << 21)?;
    store::protect(addr, size, Protection::ReadWrite)?;
    let id = s.fresh();
    let managed = Managed { size: bytesize as u64, ctx, id, resident: None, advice: Advice::default() };
    s.space.managed.insert(addr, managed);
    // SAFETY: checked above.
    unsafe { put(dptr, addr) };
    Ok(())
}

impl State {
    /// Managed memory goes, wherever it was.
    pub(crate) fn free_managed(&mut self, addr: u64) {
        self.migrate(addr, None);
        if let Some(m) = self.space.managed.remove(&addr) {
            store::unreserve(addr, m.size.next_multiple_of(4096));
        }
    }

    fn managed_range(&self, addr: u64, count: usize) -> R<u64> {
        let (start, m) = around(&self.space.managed, addr, |m| m.size).ok_or(INVALID_VALUE)?;
        let inside = count > 0 && addr.checked_add(count as u64).is_some_and(|end| end <= start + m.size);
        if inside { Ok(start) } else { Err(INVALID_VALUE) }
    }

    /// A device that managed memory can be sent to, or kept reachable for: one that may use it at the same time as
    /// the host.
    fn concurrent(&self, ordinal: i32) -> R<usize> {
        let device = self.device(ordinal)?;
        let may = config::get().managed == ManagedMemory::Full || config::fault("managed_basic");
        if may { Ok(device) } else { Err(INVALID_DEVICE) }
    }
}

fn prefetch(dev_ptr: CUdeviceptr, count: usize, to: Option<i32>, h_stream: CUstream) -> R {
    let mut s = driver()?;
    s.current()?;
    let stream = s.stream(h_stream)?;
    let start = s.managed_range(dev_ptr, count)?;
    let device = to.map(|d| s.concurrent(d)).transpose()?;
    s.submit(stream, "cuMemPrefetchAsync", Op::Nothing, Touches::NONE)?;
    s.migrate(start, device);
    if let Some(m) = s.space.managed.get_mut(&start) {
        m.advice.last_prefetch = to.unwrap_or(-1);
    }
    Ok(())
}

pub(crate) unsafe fn cuMemPrefetchAsync(
    dev_ptr: CUdeviceptr,
    count: usize,
    dst_device: CUdevice,
    h_stream: CUstream,
) -> R {
    prefetch(dev_ptr, count, (dst_device != -1).then_some(dst_device), h_stream)
}

fn place(location: CUmemLocation) -> R<Option<i32>> {
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Ok(Some(location.id())),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(None),
        _ => Err(INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuMemPrefetchAsync_v2(
    dev_ptr: CUdeviceptr,
    count: usize,
    location: CUmemLocation,
    flags: c_uint,
    h_stream: CUstream,
) -> R {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    prefetch(dev_ptr, count, place(location)?, h_stream)
}

fn advise(dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, to: Option<i32>) -> R {
    let mut s = driver()?;
    s.current()?;
    let start = s.managed_range(dev_ptr, count)?;
    use CUmem_advise as A;
    let ignores_device = [
        A::CU_MEM_ADVISE_SET_READ_MOSTLY,
        A::CU_MEM_ADVISE_UNSET_READ_MOSTLY,
        A::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
    ];
    if let Some(device) = to
        && !ignores_device.contains(&advice)
    {
        s.concurrent(device)?;
    }
    let Some(m) = s.space.managed.get_mut(&start) else { return Err(INVALID_VALUE) };
    let bit = 1u64 << (to.unwrap_or(-1) + 1).clamp(0, 63);
    match advice {
        A::CU_MEM_ADVISE_SET_READ_MOSTLY => m.advice.read_mostly = true,
        A::CU_MEM_ADVISE_UNSET_READ_MOSTLY => m.advice.read_mostly = false,
        A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => m.advice.preferred = to.unwrap_or(-1),
        A::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => m.advice.preferred = -2,
        A::CU_MEM_ADVISE_SET_ACCESSED_BY => m.advice.accessed_by |= bit,
        A::CU_MEM_ADVISE_UNSET_ACCESSED_BY => m.advice.accessed_by &= !bit,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn cuMemAdvise(dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice) -> R {
    advise(dev_ptr, count, advice, (device != -1).then_some(device))
}

pub(crate) unsafe fn cuMemAdvise_v2(
    dev_ptr: CUdeviceptr,
    count: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> R {
    advise(dev_ptr, count, advice, place(location)?)
}

pub(crate) unsafe fn cuMemRangeGetAttribute(
    data: *mut c_void,
    data_size: usize,
    attribute: CUmem_range_attribute,
    dev_ptr: CUdeviceptr,
    count: usize,
) -> R {
    need(data)?;
    let s = driver()?;
    let start = s.managed_range(dev_ptr, count)?;
    let advice = s.space.managed[&start].advice;
    use CUmem_range_attribute as A;
    if data_size == 0 || !data_size.is_multiple_of(4) {
        return Err(INVALID_VALUE);
    }
    let one = |value: i32| {
        if data_size != 4 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller's place of `data_size` bytes.
        unsafe { data.cast::<i32>().write_unaligned(value) };
        Ok(())
    };
    match attribute {
        A::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => one(i32::from(advice.read_mostly)),
        A::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => one(advice.preferred),
        A::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => one(advice.last_prefetch),
        A::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
            let mut who = (0..64).filter(|b| advice.accessed_by >> b & 1 == 1).map(|b| b - 1);
            for at in 0..data_size / 4 {
                // SAFETY: inside the caller's place of `data_size` bytes.
                unsafe { data.cast::<i32>().add(at).write_unaligned(who.next().unwrap_or(-2)) };
            }
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuMemRangeGetAttributes(
    data: *mut *mut c_void,
    data_sizes: *mut usize,
    attributes: *mut CUmem_range_attribute,
    num_attributes: usize,
    dev_ptr: CUdeviceptr,
    count: usize,
) -> R {
    given(data)?;
    given(data_sizes)?;
    given(attributes)?;
    for at in 0..num_attributes {
        // SAFETY: the caller gave three arrays of `num_attributes` entries.
        unsafe {
            let (place, size, what) = (*data.add(at), *data_sizes.add(at), *attributes.add(at));
            cuMemRangeGetAttribute(place, size, what, dev_ptr, count)?;
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuStreamAttachMemAsync(h_stream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint) -> R {
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    if !matches!(flags, ATTACH_GLOBAL | ATTACH_HOST | ATTACH_SINGLE) {
        return Err(INVALID_VALUE);
    }
    let (start, m) = around(&s.space.managed, dptr, |m| m.size).ok_or(INVALID_VALUE)?;
    if start != dptr || (length != 0 && length as u64 != m.size) {
        return Err(INVALID_VALUE);
    }
    s.submit(stream, "cuStreamAttachMemAsync", Op::Nothing, Touches::NONE).map(|_| ())
}
