//! Virtual memory management: reservations, handles, mappings and rights.

use super::{given, need, protection, put};
use crate::call::{self, Units};
use crate::config::{self, Backing, Edits, Rdma};
use crate::engine::wait_points;
use crate::error::*;
use crate::space::{Location, Mapping, Reservation, around};
use crate::state::{Driver, State, driver, thread};
use crate::store::{self, Protection};
use std::collections::BTreeMap;
use weir_cuda::*;

const POSIX_FD: c_uint = 1;
const HOST_PAGE: u64 = 4096;

fn supported() -> R {
    if config::get().vmm { Ok(()) } else { Err(NOT_SUPPORTED) }
}

/// Page tables are about to change.
fn editing(mut s: Driver) -> Driver {
    match config::get().edits {
        _ if config::fault("edits_free") => s,
        Edits::Free => s,
        Edits::Wait => {
            let points = s.engine.tails(|_, _| true);
            wait_points(s, &points)
        }
        Edits::Fault => {
            let busy = s.engine.tails(|_, _| true).into_iter().filter(|point| !s.engine.reached(*point));
            let lost: Vec<u64> = busy.filter_map(|(stream, _)| s.engine.context_of(stream)).collect();
            for ctx in lost {
                if let Some(context) = s.contexts.get_mut(&ctx) {
                    context.sticky.get_or_insert(ILLEGAL_ADDRESS);
                }
            }
            s
        }
    }
}

fn granular(value: u64) -> bool {
    value.is_multiple_of(config::get().granularity) || config::fault("size_off_granularity")
}

pub(crate) unsafe fn cuMemAddressReserve(
    ptr: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    addr: CUdeviceptr,
    flags: c_ulonglong,
) -> R {
    need(ptr)?;
    let mut s = driver()?;
    supported()?;
    let size = size as u64;
    if size == 0 || !size.is_multiple_of(HOST_PAGE) || flags != 0 || !addr.is_multiple_of(HOST_PAGE) {
        return Err(INVALID_VALUE);
    }
    if alignment != 0 && !alignment.is_power_of_two() {
        return Err(INVALID_VALUE);
    }
    if let Some(limit) = config::get().address_space
        && !config::fault("address_space")
        && s.space.reservations.values().map(|r| r.size).sum::<u64>().saturating_add(size) >= limit
    {
        return Err(OUT_OF_MEMORY);
    }
    let align = (alignment as u64).max(config::get().granularity);
    let start = store::reserve_device(size, align, addr)?;
    s.space.reservations.insert(start, Reservation { size, maps: BTreeMap::new() });
    // SAFETY: checked above.
    unsafe { put(ptr, start) };
    Ok(())
}

pub(crate) unsafe fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) -> R {
    let mut s = driver()?;
    supported()?;
    let known = s.space.reservations.get(&ptr).ok_or(INVALID_VALUE)?;
    let matches = known.size == size as u64 || config::fault("address_free_mismatch");
    // What is still mapped would be lost.
    if !matches || !known.maps.is_empty() {
        return Err(INVALID_VALUE);
    }
    s.space.reservations.remove(&ptr);
    store::unreserve_device(ptr);
    Ok(())
}

impl State {
    fn check_prop(&self, prop: &CUmemAllocationProp) -> R<Location> {
        if prop.type_ != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED {
            return Err(INVALID_VALUE);
        }
        if prop.requestedHandleTypes.0 & !POSIX_FD != 0 {
            return Err(NOT_SUPPORTED);
        }
        self.location(prop.location.type_, prop.location.id())
    }

    fn handle(&self, handle: u64) -> R<u64> {
        self.space.handles.get(&handle).filter(|h| h.users > 0).map(|_| handle).ok_or(INVALID_VALUE)
    }

    /// The whole mappings that a range consists of, if it consists of whole mappings.
    fn whole_mappings(&self, ptr: u64, size: u64) -> R<Vec<u64>> {
        let end = ptr.checked_add(size).ok_or(INVALID_VALUE)?;
        let (start, reservation) = around(&self.space.reservations, ptr, |r| r.size).ok_or(INVALID_VALUE)?;
        if size == 0 || end > start + reservation.size {
            return Err(INVALID_VALUE);
        }
        let mut at = ptr;
        let mut found = Vec::new();
        while at < end {
            let m = reservation.maps.get(&at).ok_or(INVALID_VALUE)?;
            found.push(at);
            at += m.size;
        }
        if at == end { Ok(found) } else { Err(INVALID_VALUE) }
    }

    fn mapping_mut(&mut self, addr: u64) -> Option<&mut Mapping> {
        let (start, _) = around(&self.space.reservations, addr, |r| r.size)?;
        self.space.reservations.get_mut(&start)?.maps.get_mut(&addr)
    }

    /// Work touches what is about to be unmapped: nothing waits for it. A kernel whose arguments cannot be seen is not
    /// taken for one that does: memory that it does not touch may be unmapped while it runs.
    fn no_pending(&mut self, label: &str, ptr: u64, size: u64) -> R {
        if config::fault("unmap_pending") {
            return Ok(());
        }
        if let Some(work) = self.engine.pending_known(ptr, size) {
            let ctx = thread::current();
            return self.violation(ctx, &format!("{label}({ptr:#x}, {size}) while {work} touches it"));
        }
        Ok(())
    }
}

pub(crate) unsafe fn cuMemCreate(
    handle: *mut CUmemGenericAllocationHandle,
    size: usize,
    prop: *const CUmemAllocationProp,
    flags: c_ulonglong,
) -> R {
    need(handle)?;
    given(prop)?;
    let mut s = driver()?;
    supported()?;
    // SAFETY: checked above.
    let prop = unsafe { prop.read_unaligned() };
    s.check_prop(&prop)?;
    if prop.allocFlags.gpuDirectRDMACapable != 0 && config::get().rdma == Rdma::Off {
        return Err(NOT_SUPPORTED);
    }
    let size = if size == 0 && config::fault("zero_size") { config::get().granularity } else { size as u64 };
    if size == 0 || !granular(size) || flags != 0 {
        return Err(INVALID_VALUE);
    }
    call::spend("cuMemCreate", Units { bytes: size, mappings: 0, peers: 0 });
    let made = s.create_handle(size, prop)?;
    // SAFETY: checked above.
    unsafe { put(handle, made) };
    Ok(())
}

pub(crate) unsafe fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> R {
    let mut s = driver()?;
    supported()?;
    s.handle(handle)?;
    if let Some(h) = s.space.handles.get_mut(&handle) {
        h.users -= 1;
    }
    s.drop_handle_if_unused(handle);
    Ok(())
}

pub(crate) unsafe fn cuMemMap(
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> R {
    let s = driver()?;
    supported()?;
    let mut s = editing(s);
    s.handle(handle)?;
    let size = size as u64;
    let known = s.space.handles.get(&handle).map_or(0, |h| h.size);
    let offset = offset as u64;
    let anywhere = config::fault("map_offset");
    let offset_ok = offset == 0 || anywhere;
    let size_ok = size != 0 && granular(size) && (size == known || (anywhere && offset + size <= known));
    if flags != 0 || !offset_ok || !size_ok || !ptr.is_multiple_of(config::get().granularity) {
        return Err(INVALID_VALUE);
    }
    let end = ptr.checked_add(size).ok_or(INVALID_VALUE)?;
    let (start, reservation) = around(&s.space.reservations, ptr, |r| r.size).ok_or(INVALID_VALUE)?;
    if end > start + reservation.size {
        return Err(INVALID_VALUE);
    }
    let taken = reservation.maps.range(..end).next_back().is_some_and(|(&a, m)| a + m.size > ptr);
    if taken && !config::fault("map_over_map") {
        return Err(INVALID_VALUE);
    }
    call::spend("cuMemMap", Units { bytes: size, mappings: 1, peers: 0 });
    let tables: Vec<usize> = match s.space.handles.get(&handle).map(|h| h.location) {
        Some(Location::Device(device)) => vec![device],
        _ => Vec::new(),
    };
    let wanted: Vec<_> = tables.iter().map(|&device| (device, size)).collect();
    s.take_tables(&wanted)?;
    if let Err(code) = s.map_bytes(handle, ptr, offset, size) {
        s.give_tables(&tables, size);
        return Err(code);
    }
    let id = s.fresh();
    if let Some(h) = s.space.handles.get_mut(&handle) {
        h.maps += 1;
    }
    if let Some(r) = s.space.reservations.get_mut(&start) {
        let own_tables = tables.len();
        r.maps.insert(ptr, Mapping { size, handle, id, access: Vec::new(), tables, own_tables });
    }
    Ok(())
}

pub(crate) unsafe fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> R {
    let s = driver()?;
    supported()?;
    let mut s = editing(s);
    let found = match s.whole_mappings(ptr, size as u64) {
        Err(_) if config::fault("partial_unmap") => {
            vec![s.space.mapping(ptr).map(|(a, _)| a).ok_or(INVALID_VALUE)?]
        }
        other => other?,
    };
    s.no_pending("cuMemUnmap", ptr, size as u64)?;
    call::spend("cuMemUnmap", Units { bytes: size as u64, mappings: found.len() as u64, peers: 0 });
    for addr in found {
        let Some((start, _)) = around(&s.space.reservations, addr, |r| r.size) else { continue };
        let Some(gone) = s.space.reservations.get_mut(&start).and_then(|r| r.maps.remove(&addr)) else { continue };
        if config::get().backing == Backing::Content {
            store::unmap(addr, gone.size);
        }
        s.give_tables(&gone.tables, gone.size);
        if let Some(h) = s.space.handles.get_mut(&gone.handle) {
            h.maps -= 1;
        }
        s.drop_handle_if_unused(gone.handle);
    }
    Ok(())
}

pub(crate) unsafe fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize) -> R {
    given(desc)?;
    let s = driver()?;
    supported()?;
    let mut s = editing(s);
    if count == 0 {
        return Err(INVALID_VALUE);
    }
    let found = s.whole_mappings(ptr, size as u64)?;
    let mut changes = Vec::new();
    for at in 0..count {
        // SAFETY: the caller gave `count` entries.
        let entry = unsafe { desc.add(at).read_unaligned() };
        let who = match entry.location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Some(s.device(entry.location.id())?),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => None,
            _ => return Err(INVALID_VALUE),
        };
        // The host reaches only what lies on the host.
        let on_host = found.iter().all(|&a| {
            let handle = s.space.mapping(a).map_or(0, |(_, m)| m.handle);
            s.space.handles.get(&handle).is_some_and(|h| matches!(h.location, Location::HostNuma(_)))
        });
        if who.is_none() && !on_host {
            return Err(INVALID_VALUE);
        }
        let wanted = protection(entry.flags)?;
        for &addr in &found {
            let handle = s.space.mapping(addr).and_then(|(_, m)| s.space.handles.get(&m.handle));
            if let (Some(device), Some(Location::Device(owner))) = (who, handle.map(|h| h.location)) {
                super::peer::refuse_stranger(owner, device, wanted)?;
            }
            let for_rdma = handle.is_some_and(|h| h.prop.allocFlags.gpuDirectRDMACapable != 0);
            if for_rdma && config::get().rdma == Rdma::Refused && !config::fault("rdma_refused") {
                return Err(UNKNOWN);
            }
        }
        changes.push((who, wanted));
    }
    let devices = changes.iter().filter(|(who, _)| who.is_some()).count() as u64;
    let units = Units { bytes: size as u64, mappings: found.len() as u64, peers: devices.saturating_sub(1) };
    call::spend("cuMemSetAccess", units);
    // A device's first rights to a mapping need page tables of its own.
    let mut tables = Vec::new();
    for &addr in &found {
        let Some((_, m)) = s.space.mapping(addr) else { continue };
        let (size, known) = (m.size, m.tables.get(m.own_tables..).unwrap_or(&[]).to_vec());
        for device in changes.iter().filter(|(_, wanted)| *wanted != Protection::None).filter_map(|(who, _)| *who) {
            if !known.contains(&device) && !tables.contains(&(addr, device, size)) {
                tables.push((addr, device, size));
            }
        }
    }
    let wanted: Vec<_> = tables.iter().map(|&(_, device, size)| (device, size)).collect();
    s.take_tables(&wanted)?;
    for (addr, device, _) in tables {
        if let Some(m) = s.mapping_mut(addr) {
            m.tables.push(device);
        }
    }
    for addr in found {
        let Some(m) = s.mapping_mut(addr) else { continue };
        for &(who, wanted) in &changes {
            m.access.retain(|(w, _)| *w != who);
            m.access.push((who, wanted));
        }
        let (length, handle, host) = (m.size, m.handle, m.of(None));
        let named = changes.iter().any(|(who, _)| who.is_none());
        if named && config::get().backing == Backing::Content {
            s.let_host_touch(handle, addr, length, host)?;
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuMemGetAccess(flags: *mut c_ulonglong, location: *const CUmemLocation, ptr: CUdeviceptr) -> R {
    need(flags)?;
    given(location)?;
    let s = driver()?;
    supported()?;
    // SAFETY: checked above.
    let location = unsafe { location.read_unaligned() };
    let who = match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Some(s.device(location.id())?),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => None,
        _ => return Err(INVALID_VALUE),
    };
    let (_, m) = s.space.mapping(ptr).ok_or(INVALID_VALUE)?;
    let answer = match m.of(who) {
        Protection::None => 0,
        Protection::Read => 1,
        Protection::ReadWrite => 3,
    };
    // SAFETY: checked above.
    unsafe { put(flags, answer) };
    Ok(())
}

pub(crate) unsafe fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    prop: *const CUmemAllocationProp,
    option: CUmemAllocationGranularity_flags,
) -> R {
    need(granularity)?;
    given(prop)?;
    let s = driver()?;
    supported()?;
    // SAFETY: checked above.
    let prop = unsafe { prop.read_unaligned() };
    s.check_prop(&prop)?;
    if option.0 > 1 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: checked above.
    unsafe { put(granularity, config::get().granularity as usize) };
    Ok(())
}

pub(crate) unsafe fn cuMemGetAllocationPropertiesFromHandle(
    prop: *mut CUmemAllocationProp,
    handle: CUmemGenericAllocationHandle,
) -> R {
    need(prop)?;
    let s = driver()?;
    supported()?;
    s.handle(handle)?;
    if let Some(h) = s.space.handles.get(&handle) {
        // SAFETY: checked above.
        unsafe { put(prop, h.prop) };
    }
    Ok(())
}

pub(crate) unsafe fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void) -> R {
    need(handle)?;
    let mut s = driver()?;
    supported()?;
    let found = s.space.mapping(addr as u64).map(|(_, m)| m.handle).ok_or(INVALID_VALUE)?;
    if let Some(h) = s.space.handles.get_mut(&found) {
        h.users += 1;
    }
    // SAFETY: checked above.
    unsafe { put(handle, found) };
    Ok(())
}

pub(crate) unsafe fn cuMemExportToShareableHandle(
    shareable_handle: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    handle_type: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> R {
    need(shareable_handle)?;
    let mut s = driver()?;
    supported()?;
    s.handle(handle)?;
    let requested = s.space.handles.get(&handle).map_or(0, |h| h.prop.requestedHandleTypes.0);
    // Only what was requested at creation can be exported.
    if flags != 0 || handle_type.0 != POSIX_FD || requested & POSIX_FD == 0 {
        return Err(INVALID_VALUE);
    }
    let fd = s.export_handle(handle)?;
    // SAFETY: for this handle type the caller's place is that of an int.
    unsafe { put(shareable_handle.cast::<c_int>(), fd) };
    Ok(())
}

pub(crate) unsafe fn cuMemImportFromShareableHandle(
    handle: *mut CUmemGenericAllocationHandle,
    os_handle: *mut c_void,
    sh_handle_type: CUmemAllocationHandleType,
) -> R {
    need(handle)?;
    let mut s = driver()?;
    supported()?;
    if sh_handle_type.0 != POSIX_FD {
        return Err(if sh_handle_type.0 == 0 { INVALID_VALUE } else { NOT_SUPPORTED });
    }
    let fd = c_int::try_from(os_handle as i64).map_err(|_| INVALID_VALUE)?;
    let made = s.import_handle(fd)?;
    // SAFETY: checked above.
    unsafe { put(handle, made) };
    Ok(())
}
