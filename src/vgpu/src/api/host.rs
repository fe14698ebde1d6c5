//! Pinned host memory, allocated and registered.

use super::{given, need, put};
use crate::engine::wait_points;
use crate::error::*;
use crate::space::{Host, HostKind, around};
use crate::state::{State, driver};
use crate::store::{self, Protection};
use weir_cuda::*;

const PAGE: u64 = 4096;
const DEVICE_MAP: c_uint = 2;

fn allocate(pp: *mut *mut c_void, bytesize: usize, flags: c_uint) -> R {
    need(pp)?;
    let mut s = driver()?;
    let ctx = s.current()?;
    if bytesize == 0 {
        return Err(INVALID_VALUE);
    }
    s.refuse_unsafe_call()?;
    let size = (bytesize as u64).checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
    let addr = store::reserve(size, PAGE)?;
    store::protect(addr, size, Protection::ReadWrite)?;
    let id = s.fresh();
    s.space.host.insert(addr, Host { size: bytesize as u64, kind: HostKind::Allocated, flags, ctx, id });
    // SAFETY: checked above.
    unsafe { put(pp, addr as *mut c_void) };
    Ok(())
}

pub(crate) unsafe fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) -> R {
    allocate(pp, bytesize, DEVICE_MAP)
}

pub(crate) unsafe fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint) -> R {
    if flags & !7 != 0 {
        return Err(INVALID_VALUE);
    }
    allocate(pp, bytesize, flags)
}

impl State {
    /// Forgets pinned memory; what the driver allocated is gone.
    pub(crate) fn forget_host(&mut self, addr: u64) {
        if let Some(host) = self.space.host.remove(&addr)
            && host.kind == HostKind::Allocated
        {
            store::unreserve(addr, host.size.next_multiple_of(PAGE));
        }
    }
}

pub(crate) unsafe fn cuMemFreeHost(p: *mut c_void) -> R {
    let mut s = driver()?;
    s.current()?;
    let addr = p as u64;
    match s.space.host.get(&addr) {
        Some(host) if host.kind == HostKind::Allocated => {
            let size = host.size;
            s.refuse_unsafe_call()?;
            // Freeing pinned memory waits for the work that uses it.
            if s.engine.pending_known(addr, size).is_some() {
                let points = s.engine.tails(|_, _| true);
                s = wait_points(s, &points);
            }
            s.forget_host(addr);
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

fn register(p: *mut c_void, bytesize: usize, flags: c_uint) -> R {
    given(p)?;
    let mut s = driver()?;
    let ctx = s.current()?;
    if bytesize == 0 || flags & !0xf != 0 {
        return Err(INVALID_VALUE);
    }
    s.refuse_unsafe_call()?;
    let addr = p as u64;
    let end = addr.checked_add(bytesize as u64).ok_or(INVALID_VALUE)?;
    let overlaps = s.space.host.range(..end).next_back().is_some_and(|(&a, h)| a + h.size > addr);
    if overlaps {
        return Err(HOST_MEMORY_ALREADY_REGISTERED);
    }
    if s.is_driver_range(addr) {
        return Err(INVALID_VALUE);
    }
    let id = s.fresh();
    s.space.host.insert(addr, Host { size: bytesize as u64, kind: HostKind::Registered, flags, ctx, id });
    Ok(())
}

pub(crate) unsafe fn cuMemHostRegister(p: *mut c_void, bytesize: usize, flags: c_uint) -> R {
    register(p, bytesize, flags)
}

pub(crate) unsafe fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: c_uint) -> R {
    register(p, bytesize, flags)
}

pub(crate) unsafe fn cuMemHostUnregister(p: *mut c_void) -> R {
    given(p)?;
    let mut s = driver()?;
    s.current()?;
    let addr = p as u64;
    let size = match s.space.host.get(&addr) {
        Some(host) if host.kind == HostKind::Registered => host.size,
        Some(_) => return Err(INVALID_VALUE),
        None => return Err(HOST_MEMORY_NOT_REGISTERED),
    };
    s.refuse_unsafe_call()?;
    if let Some(work) = s.engine.pending_known(addr, size) {
        let ctx = s.current()?;
        s.violation(ctx, &format!("cuMemHostUnregister({addr:#x}) while {work} uses it"))?;
    }
    s.forget_host(addr);
    Ok(())
}

pub(crate) unsafe fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, flags: c_uint) -> R {
    need(pdptr)?;
    let s = driver()?;
    s.current()?;
    let addr = p as u64;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    around(&s.space.host, addr, |h| h.size).ok_or(INVALID_VALUE)?;
    // SAFETY: checked above. Addresses are unified: the device uses the host's.
    unsafe { put(pdptr, addr) };
    Ok(())
}

pub(crate) unsafe fn cuMemHostGetFlags(p_flags: *mut c_uint, p: *mut c_void) -> R {
    need(p_flags)?;
    let s = driver()?;
    s.current()?;
    let (_, host) = around(&s.space.host, p as u64, |h| h.size).ok_or(INVALID_VALUE)?;
    if host.kind != HostKind::Allocated {
        return Err(INVALID_VALUE);
    }
    // SAFETY: checked above.
    unsafe { put(p_flags, host.flags) };
    Ok(())
}
