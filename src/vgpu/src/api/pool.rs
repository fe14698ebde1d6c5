//! Stream-ordered memory and its pools.

use super::{given, need, protection, put};
use crate::config;
use crate::engine::{Op, Touches};
use crate::error::*;
use crate::memory::Kind;
use crate::pool::{Pool, pools_supported};
use crate::state::{State, driver};
use crate::store::Protection;
use weir_cuda::*;

const POSIX_FD: c_uint = 1;

fn allocate(dptr: *mut CUdeviceptr, bytesize: usize, pool: Option<CUmemoryPool>, h_stream: CUstream) -> R {
    need(dptr)?;
    let mut s = driver()?;
    // A stream knows its context: none need be current.
    let stream = s.stream(h_stream)?;
    let ctx = s.engine.context_of(stream).ok_or(INVALID_HANDLE)?;
    let size = bytesize as u64;
    let device = s.engine.streams.get(&stream).map_or(0, |st| st.device);
    let handle = match pool {
        Some(pool) => pool as u64,
        None => s.devices[device].current_pool,
    };
    s.pool(handle)?;
    // Nothing is a legal request: it succeeds with NULL, which may be freed.
    if size == 0 {
        // SAFETY: checked above.
        unsafe { put(dptr, 0) };
        return if config::fault("pool_zero_bytes") { Err(INVALID_VALUE) } else { Ok(()) };
    }
    let capturing = s.engine.streams.get(&stream).is_some_and(|st| st.capture.is_some());
    let addr = if capturing {
        s.capture_alloc(stream, size, handle)?
    } else {
        s.refuse_implicit_capture(stream)?;
        s.pool_take(handle, size, stream, ctx)?
    };
    // SAFETY: checked above.
    unsafe { put(dptr, addr) };
    Ok(())
}

pub(crate) unsafe fn cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, h_stream: CUstream) -> R {
    allocate(dptr, bytesize, None, h_stream)
}

pub(crate) unsafe fn cuMemAllocFromPoolAsync(
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    pool: CUmemoryPool,
    h_stream: CUstream,
) -> R {
    allocate(dptr, bytesize, Some(pool), h_stream)
}

pub(crate) unsafe fn cuMemFreeAsync(dptr: CUdeviceptr, h_stream: CUstream) -> R {
    let mut s = driver()?;
    pools_supported()?;
    let stream = s.stream(h_stream)?;
    if dptr == 0 {
        return Ok(());
    }
    let capturing = s.engine.streams.get(&stream).is_some_and(|st| st.capture.is_some());
    if capturing {
        return if s.capture_free(stream, dptr)? { Ok(()) } else { Err(INVALID_VALUE) };
    }
    s.refuse_implicit_capture(stream)?;
    if s.graph_owned(dptr) {
        return s.graph_free(dptr, Some(stream));
    }
    let Some(extent) = s.extent(dptr) else {
        return if config::fault("double_free") { Ok(()) } else { Err(INVALID_VALUE) };
    };
    if extent.addr != dptr {
        return Err(INVALID_VALUE);
    }
    match extent.kind {
        Kind::Pool(pool) => s.pool_give(pool, dptr, stream),
        // Memory of cuMemAlloc may be freed in stream order too.
        Kind::Linear => {
            let device = extent.device.ok_or(INVALID_VALUE)?;
            let ctx = s.engine.context_of(stream).unwrap_or(extent.ctx);
            s.refuse_unordered_free(ctx, dptr, extent.id, stream)?;
            s.enqueue(stream, "cuMemFreeAsync", Op::FreedLinear { device, addr: dptr }, Touches::NONE)?;
            if let Some(block) = s.devices[device].heap.holding_mut(dptr) {
                block.leaving = true;
            }
            Ok(())
        }
        Kind::Import if s.space.imports.get(&dptr).is_some_and(|i| i.key[0] == super::ipc::POOL_IMPORT) => {
            s.close_import(dptr);
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice) -> R {
    let s = driver()?;
    pools_supported()?;
    need(pool_out)?;
    // SAFETY: checked above.
    unsafe { put(pool_out, s.devices[s.device(dev)?].default_pool as CUmemoryPool) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) -> R {
    let s = driver()?;
    pools_supported()?;
    need(pool)?;
    // SAFETY: checked above.
    unsafe { put(pool, s.devices[s.device(dev)?].current_pool as CUmemoryPool) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) -> R {
    let mut s = driver()?;
    let device = s.device(dev)?;
    let known = s.pool(pool as u64)?;
    if known.device != device || known.imported.is_some() {
        return Err(INVALID_VALUE);
    }
    s.devices[device].current_pool = pool as u64;
    Ok(())
}

unsafe fn device_location(location: *const CUmemLocation, kind: CUmemAllocationType) -> R<CUdevice> {
    given(location)?;
    // SAFETY: checked above.
    let location = unsafe { location.read_unaligned() };
    if kind != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(NOT_SUPPORTED);
    }
    if location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(NOT_SUPPORTED);
    }
    Ok(location.id())
}

pub(crate) unsafe fn cuMemGetDefaultMemPool(
    pool_out: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuDeviceGetDefaultMemPool(pool_out, device_location(location, kind)?) }
}

pub(crate) unsafe fn cuMemGetMemPool(
    pool_out: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuDeviceGetMemPool(pool_out, device_location(location, kind)?) }
}

pub(crate) unsafe fn cuMemSetMemPool(location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuDeviceSetMemPool(device_location(location, kind)?, pool) }
}

pub(crate) unsafe fn cuMemPoolCreate(pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps) -> R {
    need(pool)?;
    given(pool_props)?;
    let mut s = driver()?;
    pools_supported()?;
    // SAFETY: checked above.
    let props = unsafe { pool_props.read_unaligned() };
    if props.allocType != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(INVALID_VALUE);
    }
    let device = match props.location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => s.device(props.location.id()).map_err(|_| INVALID_VALUE)?,
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
            return Err(NOT_SUPPORTED);
        }
        _ => return Err(INVALID_VALUE),
    };
    if props.handleTypes.0 & !POSIX_FD != 0 {
        return Err(NOT_SUPPORTED);
    }
    let handle = s.fresh();
    let mut made = Pool::new(device, false);
    made.handle_types = props.handleTypes.0;
    made.max_size = props.maxSize as u64;
    s.pools.insert(handle, made);
    // SAFETY: checked above.
    unsafe { put(pool, handle as CUmemoryPool) };
    Ok(())
}

pub(crate) unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> R {
    let mut s = driver()?;
    let handle = pool as u64;
    let known = s.pool(handle)?;
    if known.is_default {
        return Err(INVALID_VALUE);
    }
    let device = known.device;
    if s.devices[device].current_pool == handle {
        s.devices[device].current_pool = s.devices[device].default_pool;
    }
    if let Some(known) = s.pools.get_mut(&handle) {
        known.destroyed = true;
        if let Some(fd) = known.imported.take() {
            // SAFETY: the descriptor that the import duplicated for itself.
            unsafe { libc::close(fd) };
        }
    }
    s.finish_pool(handle);
    Ok(())
}

pub(crate) unsafe fn cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize) -> R {
    let mut s = driver()?;
    s.pool(pool as u64)?;
    s.refuse_unsafe_call()?;
    s.release_idle(pool as u64, min_bytes_to_keep as u64);
    Ok(())
}

pub(crate) unsafe fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) -> R {
    need(value)?;
    let mut s = driver()?;
    s.pool(pool as u64)?;
    s.refuse_unsafe_call()?;
    let p = s.pool(pool as u64)?;
    use CUmemPool_attribute as A;
    // SAFETY: the caller's place of the type that the attribute has.
    unsafe {
        let flag = |on: bool| value.cast::<c_int>().write_unaligned(c_int::from(on));
        let number = |n: u64| value.cast::<u64>().write_unaligned(n);
        match attr {
            A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => flag(p.reuse.events),
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => flag(p.reuse.opportunistic),
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => flag(p.reuse.internal),
            A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => number(p.threshold),
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => number(p.reserved),
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => number(p.reserved_high),
            A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => number(p.used),
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => number(p.used_high),
            _ => return Err(INVALID_VALUE),
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void) -> R {
    given(value)?;
    let mut s = driver()?;
    s.pool(pool as u64)?;
    s.refuse_unsafe_call()?;
    let p = s.pools.get_mut(&(pool as u64)).ok_or(INVALID_VALUE)?;
    use CUmemPool_attribute as A;
    // SAFETY: the caller's value of the type that the attribute has.
    unsafe {
        let flag = || value.cast::<c_int>().read_unaligned() != 0;
        let number = || value.cast::<u64>().read_unaligned();
        match attr {
            A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => p.reuse.events = flag(),
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => p.reuse.opportunistic = flag(),
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => p.reuse.internal = flag(),
            A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => p.threshold = number(),
            // The high marks can only be reset to what is now.
            A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if number() == 0 => p.reserved_high = p.reserved,
            A::CU_MEMPOOL_ATTR_USED_MEM_HIGH if number() == 0 => p.used_high = p.used,
            _ => return Err(INVALID_VALUE),
        }
    }
    Ok(())
}

impl State {
    fn pool_location(&self, location: CUmemLocation) -> R<usize> {
        if location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(INVALID_VALUE);
        }
        self.device(location.id())
    }
}

pub(crate) unsafe fn cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) -> R {
    given(map)?;
    let mut s = driver()?;
    let own = s.pool(pool as u64)?.device;
    let mut changes = Vec::new();
    for at in 0..count {
        // SAFETY: the caller gave `count` entries.
        let entry = unsafe { map.add(at).read_unaligned() };
        let device = s.pool_location(entry.location)?;
        let wanted = protection(entry.flags)?;
        // A device always reaches its own pool.
        if device == own && wanted != Protection::ReadWrite {
            return Err(INVALID_VALUE);
        }
        super::peer::refuse_stranger(own, device, wanted)?;
        changes.push((device, wanted));
    }
    if let Some(p) = s.pools.get_mut(&(pool as u64)) {
        for (device, wanted) in changes {
            p.set_access(device, wanted);
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuMemPoolGetAccess(
    flags: *mut CUmemAccess_flags,
    mem_pool: CUmemoryPool,
    location: *mut CUmemLocation,
) -> R {
    need(flags)?;
    given(location)?;
    let s = driver()?;
    // SAFETY: checked above.
    let device = s.pool_location(unsafe { location.read_unaligned() })?;
    let answer = match s.pool(mem_pool as u64)?.access_of(device) {
        Protection::None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
        Protection::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
        Protection::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: checked above.
    unsafe { put(flags, answer) };
    Ok(())
}
