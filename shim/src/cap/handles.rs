//! The job's own physical handles (cuMemCreate), charged by their own location. The memory is gone after the last owner's
//! release and the last unmap, in whatever order; then the charge goes too. Owners are all to whom the driver gave the
//! handle: who created it, who retained it by an address, who imported what this process has exported itself.

use super::watch::Change;
use super::{lock, on};
use std::collections::{BTreeMap, HashMap};
use weir_cuda::{CUdeviceptr, CUmemAllocationProp, CUmemLocationType, CUresult};
use weir_ledger::Category;

struct Handle {
    ordinal: i32,
    bytes: u64,
    /// Handles given out for it and not released.
    owners: u32,
    mappings: u32,
}

/// What the job has created.
#[derive(Default)]
pub(crate) struct Handles {
    known: HashMap<u64, Handle>,
    /// Mappings of known handles: address to size and handle.
    mapped: BTreeMap<u64, (u64, u64)>,
}

impl Handles {
    /// Takes a handle off that nothing holds any more.
    fn sweep(&mut self, handle: u64) -> Option<(i32, u64)> {
        self.known.get(&handle).filter(|known| known.owners == 0 && known.mappings == 0)?;
        self.known.remove(&handle).map(|known| (known.ordinal, known.bytes))
    }
}

fn give(gone: impl IntoIterator<Item = (i32, u64)>) {
    if let Some(caps) = on() {
        for (ordinal, bytes) in gone {
            caps.release(ordinal, Category::Vmm, bytes);
        }
    }
}

/// `cuMemCreate`. Memory of a host node is not the device's, and is not charged.
///
/// # Safety
/// The caller's own arguments of cuMemCreate.
pub(crate) unsafe fn create(
    place: *const u64,
    size: usize,
    properties: *const CUmemAllocationProp,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(caps) = on() else { return call() };
    // SAFETY: null or the caller's own properties.
    let location = unsafe { properties.as_ref() }.map(|properties| properties.location);
    let at = location
        .filter(|location| location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE)
        .and_then(|location| caps.at(location.id()));
    let Some(at) = at.filter(|_| size > 0 && !place.is_null()) else { return call() };
    let bytes = size as u64;
    let reservation = match caps.admit(at, bytes, Category::Vmm, weir_ledger::Urgency::Normal) {
        Ok(reservation) => reservation,
        Err(code) => return code,
    };
    let _change = Change::begin();
    let result = call();
    let made = result == CUresult::CUDA_SUCCESS;
    caps.settle(at, reservation, Category::Vmm, made.then(|| bytes.next_multiple_of(512)));
    if made {
        // SAFETY: after success the handle is there.
        let handle = unsafe { *place };
        let known = Handle { ordinal: at.0.ordinal, bytes, owners: 1, mappings: 0 };
        lock(&caps.handles).known.insert(handle, known);
    }
    result
}

/// A call that gives a handle of memory that may be known: by `cuMemRetainAllocationHandle`, or by the import of what this
/// process has exported itself. Each is one owner more. `made` tells the handle.
pub(crate) fn given_again(call: impl FnOnce() -> CUresult, made: impl FnOnce() -> u64) -> CUresult {
    let Some(caps) = on() else { return call() };
    // The lock is held over the call: the owner that is about to release it must not be taken for the last one.
    let mut handles = lock(&caps.handles);
    let result = call();
    if result == CUresult::CUDA_SUCCESS
        && let Some(known) = handles.known.get_mut(&made())
    {
        known.owners += 1;
    }
    result
}

/// `cuMemRelease`.
pub(crate) fn release(handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on() else { return call() };
    let _change = Change::begin();
    // The lock is held over the call: a new handle of the same number must not be taken for the old one.
    let mut handles = lock(&caps.handles);
    let result = call();
    if result == CUresult::CUDA_SUCCESS
        && let Some(known) = handles.known.get_mut(&handle)
    {
        known.owners = known.owners.saturating_sub(1);
        let gone = handles.sweep(handle);
        drop(handles);
        give(gone);
    }
    result
}

/// `cuMemMap`.
pub(crate) fn map(addr: CUdeviceptr, size: usize, handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on() else { return call() };
    let mut handles = lock(&caps.handles);
    let result = call();
    if result == CUresult::CUDA_SUCCESS
        && let Some(known) = handles.known.get_mut(&handle)
    {
        known.mappings += 1;
        handles.mapped.insert(addr, (size as u64, handle));
    }
    result
}

/// `cuMemUnmap`: one or several whole mappings.
pub(crate) fn unmap(addr: CUdeviceptr, size: usize, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on() else { return call() };
    let _change = Change::begin();
    let mut handles = lock(&caps.handles);
    let result = call();
    if result != CUresult::CUDA_SUCCESS {
        return result;
    }
    let range = addr..addr.saturating_add(size as u64);
    let ends: Vec<(u64, u64)> = handles.mapped.range(range).map(|(at, (_, handle))| (*at, *handle)).collect();
    let mut gone = Vec::new();
    for (at, handle) in ends {
        handles.mapped.remove(&at);
        if let Some(known) = handles.known.get_mut(&handle) {
            known.mappings = known.mappings.saturating_sub(1);
        }
        gone.extend(handles.sweep(handle));
    }
    drop(handles);
    give(gone);
    result
}
