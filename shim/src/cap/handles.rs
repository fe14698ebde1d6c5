//! The job's own physical handles (cuMemCreate), charged by their own location. The memory is gone after the last owner's
//! release and the last unmap, in whatever order; then the charge goes too. Owners are all to whom the driver gave the
//! handle: who created it, who retained it by an address, who imported what this process has exported itself.
//!
//! No lock is held at a driver call. A call that ends an owner or a mapping takes it off before the driver is called, and
//! puts it back if the driver refuses: with the last one the number of the handle is free, so that a new handle of the same
//! number is not taken for the old one. The charge stays until the call has returned.

use super::watch::Change;
use super::{lock, on};
use std::collections::{BTreeMap, HashMap};
use weir_cuda::{CUdeviceptr, CUmemAllocationProp, CUmemLocationType, CUresult};
use weir_ledger::Category;

/// The name of an allocation, which no other one ever has.
type Id = u64;

struct Physical {
    handle: u64,
    ordinal: i32,
    bytes: u64,
    /// Handles returned for it and not released.
    owners: u32,
    mappings: u32,
    /// Calls that end an owner or a mapping and have not returned.
    ending: u32,
}

impl Physical {
    fn is_held(&self) -> bool {
        self.owners > 0 || self.mappings > 0
    }
}

/// What the job has created.
#[derive(Default)]
pub(crate) struct Handles {
    last: Id,
    all: BTreeMap<Id, Physical>,
    /// Which allocation the driver means by a handle.
    by_handle: HashMap<u64, Id>,
    /// Mappings: address to allocation.
    mapped: BTreeMap<u64, Id>,
    /// Calls under way that may give a handle of an allocation once more. Until they return, no allocation is over.
    returning: u32,
}

/// An allocation that is over: device and bytes.
type Gone = (i32, u64);

impl Handles {
    fn create(&mut self, handle: u64, ordinal: i32, bytes: u64) -> Option<Gone> {
        self.last += 1;
        self.all.insert(self.last, Physical { handle, ordinal, bytes, owners: 1, mappings: 0, ending: 0 });
        let before = self.by_handle.insert(handle, self.last)?;
        // The driver gives a number again only when nobody owns what had it; it may still be mapped.
        self.all.get_mut(&before)?.owners = 0;
        self.sweep(before)
    }

    /// Takes off an allocation that nothing holds any more.
    fn sweep(&mut self, id: Id) -> Option<Gone> {
        self.all.get(&id).filter(|known| !known.is_held() && known.ending == 0 && self.returning == 0)?;
        self.all.remove(&id).map(|known| (known.ordinal, known.bytes))
    }

    /// `end` takes an owner or a mapping off: a call that ends it is about to be made.
    fn begin_end(&mut self, id: Id, end: impl FnOnce(&mut Physical)) {
        let Some(known) = self.all.get_mut(&id) else { return };
        end(known);
        known.ending += 1;
        if !known.is_held() && self.by_handle.get(&known.handle) == Some(&id) {
            self.by_handle.remove(&known.handle);
        }
    }

    /// The call has returned; `undo` puts the owner or the mapping back that the driver has not ended.
    fn ended(&mut self, id: Id, undo: Option<impl FnOnce(&mut Physical)>) -> Option<Gone> {
        let known = self.all.get_mut(&id)?;
        known.ending -= 1;
        if let Some(undo) = undo {
            undo(known);
            self.by_handle.entry(known.handle).or_insert(id);
        }
        self.sweep(id)
    }

    /// A call has returned this handle, `None` if it failed.
    fn returned(&mut self, handle: Option<u64>) -> Vec<Gone> {
        self.returning -= 1;
        if let Some(handle) = handle {
            // It may be about to end elsewhere, and has one owner more then: of several that had the number, the last one.
            let leaving = || self.all.iter().rev().find(|(_, known)| known.handle == handle).map(|(id, _)| *id);
            let id = self.by_handle.get(&handle).copied().or_else(leaving);
            if let Some((id, known)) = id.and_then(|id| Some((id, self.all.get_mut(&id)?))) {
                known.owners += 1;
                self.by_handle.insert(handle, id);
            }
        }
        if self.returning > 0 {
            return Vec::new();
        }
        let over: Vec<Id> = self.all.iter().filter(|(_, known)| !known.is_held()).map(|(id, _)| *id).collect();
        over.into_iter().filter_map(|id| self.sweep(id)).collect()
    }
}

fn release_all(gone: impl IntoIterator<Item = Gone>) {
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
    caps.commit_or_roll_back(at, reservation, Category::Vmm, made.then(|| bytes.next_multiple_of(512)));
    if made {
        // SAFETY: after success the handle is there.
        let gone = lock(&caps.handles).create(unsafe { *place }, at.0.ordinal, bytes);
        release_all(gone);
    }
    result
}

/// A call that returns a handle of memory that may be known: by `cuMemRetainAllocationHandle`, or by the import of what this
/// process has exported itself. Each is one owner more. `made` returns the handle.
pub(crate) fn returned_again(call: impl FnOnce() -> CUresult, made: impl FnOnce() -> u64) -> CUresult {
    let Some(caps) = on() else { return call() };
    // Counted before the call: the owner that is about to release it must not be taken for the last one.
    lock(&caps.handles).returning += 1;
    let result = call();
    let gone = lock(&caps.handles).returned((result == CUresult::CUDA_SUCCESS).then(made));
    release_all(gone);
    result
}

/// `cuMemRelease`.
pub(crate) fn release(handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on() else { return call() };
    let _change = Change::begin();
    let known = {
        let mut handles = lock(&caps.handles);
        let owned = |id: &Id| handles.all.get(id).is_some_and(|known| known.owners > 0);
        let known = handles.by_handle.get(&handle).copied().filter(owned);
        if let Some(id) = known {
            handles.begin_end(id, |known| known.owners -= 1);
        }
        known
    };
    #[cfg(feature = "fault-injection")]
    let held = crate::process::fault::is_set("call").then(|| lock(&caps.handles));
    let result = call();
    #[cfg(feature = "fault-injection")]
    drop(held);
    if let Some(id) = known {
        let undo = (result != CUresult::CUDA_SUCCESS).then_some(|known: &mut Physical| known.owners += 1);
        let gone = lock(&caps.handles).ended(id, undo);
        release_all(gone);
    }
    result
}

/// `cuMemMap`.
pub(crate) fn map(addr: CUdeviceptr, handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on() else { return call() };
    let known = {
        let mut handles = lock(&caps.handles);
        let id = handles.by_handle.get(&handle).copied();
        id.and_then(|id| {
            // Before the call: the release of the last owner in another thread is not the end then.
            handles.all.get_mut(&id)?.mappings += 1;
            Some(id)
        })
    };
    let result = call();
    let Some(id) = known else { return result };
    let mut handles = lock(&caps.handles);
    if result == CUresult::CUDA_SUCCESS {
        handles.mapped.insert(addr, id);
        return result;
    }
    handles.begin_end(id, |known| known.mappings -= 1);
    let gone = handles.ended(id, None::<fn(&mut Physical)>);
    drop(handles);
    release_all(gone);
    result
}

/// `cuMemUnmap`: one or several whole mappings.
pub(crate) fn unmap(addr: CUdeviceptr, size: usize, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on() else { return call() };
    let _change = Change::begin();
    let range = addr..addr.saturating_add(size as u64);
    let ends: Vec<(u64, Id)> = {
        let mut handles = lock(&caps.handles);
        let ends: Vec<(u64, Id)> = handles.mapped.range(range).map(|(at, id)| (*at, *id)).collect();
        for (at, id) in &ends {
            handles.mapped.remove(at);
            handles.begin_end(*id, |known| known.mappings -= 1);
        }
        ends
    };
    let result = call();
    if ends.is_empty() {
        return result;
    }
    let mut handles = lock(&caps.handles);
    let failed = result != CUresult::CUDA_SUCCESS;
    let mut gone = Vec::new();
    for (at, id) in ends {
        if failed {
            handles.mapped.insert(at, id);
        }
        gone.extend(handles.ended(id, failed.then_some(|known: &mut Physical| known.mappings += 1)));
    }
    drop(handles);
    release_all(gone);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Option<fn(&mut Physical)> = None;

    /// Begins the release of a handle.
    fn begin_release(handles: &mut Handles, handle: u64) -> Id {
        let id = handles.by_handle.get(&handle).copied().unwrap_or(0);
        handles.begin_end(id, |known| known.owners -= 1);
        id
    }

    #[test]
    fn a_number_that_the_driver_gives_again_is_another_allocation() {
        let mut handles = Handles::default();
        assert_eq!(handles.create(7, 0, 100), None);
        let old = begin_release(&mut handles, 7);
        // The driver has released it, and gives the number to another thread before this one comes back.
        assert_eq!(handles.create(7, 1, 200), None);
        assert_eq!(handles.ended(old, KEPT), Some((0, 100)));
        let new = begin_release(&mut handles, 7);
        assert_eq!(handles.ended(new, KEPT), Some((1, 200)));
        assert!(handles.all.is_empty() && handles.by_handle.is_empty());
    }

    #[test]
    fn the_charge_stays_until_release_and_unmap_have_both_returned() {
        let mut handles = Handles::default();
        handles.create(7, 0, 100);
        let id = handles.last;
        handles.all.get_mut(&id).into_iter().for_each(|known| known.mappings = 1);
        let release = begin_release(&mut handles, 7);
        handles.begin_end(id, |known| known.mappings -= 1);
        assert!(handles.by_handle.is_empty(), "nothing holds it once both have returned");
        assert_eq!(handles.ended(release, KEPT), None);
        assert_eq!(handles.ended(id, KEPT), Some((0, 100)));
    }

    #[test]
    fn what_is_mapped_stays_when_its_number_is_returned_again() {
        let mut handles = Handles::default();
        handles.create(7, 0, 100);
        let id = handles.last;
        handles.all.get_mut(&id).into_iter().for_each(|known| known.mappings = 1);
        let release = begin_release(&mut handles, 7);
        assert_eq!(handles.ended(release, KEPT), None);
        assert_eq!(handles.create(7, 0, 200), None);
        handles.begin_end(id, |known| known.mappings -= 1);
        assert_eq!(handles.ended(id, KEPT), Some((0, 100)));
        let release = begin_release(&mut handles, 7);
        assert_eq!(handles.ended(release, KEPT), Some((0, 200)));
    }

    #[test]
    fn a_refused_release_is_rolled_back() {
        let mut handles = Handles::default();
        handles.create(7, 0, 100);
        let id = begin_release(&mut handles, 7);
        assert_eq!(handles.ended(id, Some(|known: &mut Physical| known.owners += 1)), None);
        let id = begin_release(&mut handles, 7);
        assert_eq!(handles.ended(id, KEPT), Some((0, 100)));
    }

    #[test]
    fn a_handle_that_is_returned_once_more_outlives_the_release_of_the_first() {
        for early in [false, true] {
            let mut handles = Handles::default();
            handles.create(7, 0, 100);
            handles.returning += 1;
            let id = begin_release(&mut handles, 7);
            // Whichever of the two calls comes back first.
            if early {
                assert_eq!(handles.ended(id, KEPT), None, "it may have been returned to another call");
                assert_eq!(handles.returned(Some(7)), []);
            } else {
                assert_eq!(handles.returned(Some(7)), []);
                assert_eq!(handles.ended(id, KEPT), None);
            }
            let id = begin_release(&mut handles, 7);
            assert_eq!(handles.ended(id, KEPT), Some((0, 100)));
        }
    }

    #[test]
    fn what_was_not_returned_once_more_goes_with_the_call() {
        let mut handles = Handles::default();
        handles.create(7, 0, 100);
        handles.returning += 1;
        let id = begin_release(&mut handles, 7);
        assert_eq!(handles.ended(id, KEPT), None);
        assert_eq!(handles.returned(None), [(0, 100)]);
    }
}
