//! The real driver behind a pool: address space, physical handles, plain segments, fences, waits and
//! copies. Every call here is weir's own: it breaks no capture and leaves the current context as it was.

use super::{room, spill};
use crate::cap;
use crate::driver::contexts;
use crate::driver::guards::{ContextGuard, RelaxedCapture, current};
use crate::driver::real::{self, device_attribute, done, refused};
use crate::driver::wait::{self, CAPTURING, Whose};
use crate::driver::{capture, stream, work};
use crate::process::third_parties;
use crate::record::{self, physical};
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::{HashMap, HashSet};
use weir_cuda::*;
use weir_journal::Class;
use weir_pool::ranks::{Mutex, Rank};
use weir_pool::{Backing, BackingError, Budget, Fence, Handle, PeerAccess};

/// The driver as one pool sees it.
pub(crate) struct Driver {
    /// The device.
    pub(crate) ordinal: i32,
    /// The context that owns plain segments, on a device without virtual memory management; else 0.
    pub(crate) owner: u64,
    /// What its handles are created with.
    pub(crate) traits: Traits,
    properties: CUmemAllocationProp,
    /// Where the pool is a spill, so that the memory above is the host's.
    spilled: Option<Spilled>,
    /// Plain segments, by address.
    segments: Mutex<Vec<(u64, u64)>>,
    /// Fences that exist.
    fences: Mutex<Option<HashMap<Fence, Of>>>,
    /// Whether some of them may be surplus.
    any_surplus: AtomicBool,
}

/// What is known of a fence.
#[derive(Clone, Copy)]
struct Of {
    /// Its context.
    ctx: u64,
    /// Nobody needs it, but it could not be destroyed yet.
    surplus: bool,
}

/// What the driver of a spill knows besides.
struct Spilled {
    /// Of the device memory that takes the place of host memory.
    device: CUmemAllocationProp,
    /// Its handles.
    near: Mutex<HashSet<Handle>>,
}

// SAFETY: the only pointer in it is the unused Windows member of the properties, always null.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

const GONE: BackingError = BackingError::Driver(CUresult::CUDA_ERROR_INVALID_HANDLE.0 as i32);

/// What the handles of a pool are created with.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Handle types are fixed at creation: without this nothing of the pool could ever be shared.
    pub(crate) shareable: bool,
    /// Other devices on the bus may reach it.
    pub(crate) rdma: bool,
}

impl Traits {
    /// What a device says that it can.
    pub(crate) fn of(ordinal: i32) -> Self {
        type A = CUdevice_attribute;
        let has = |attribute| device_attribute(ordinal, attribute) == Some(1);
        Self {
            shareable: has(A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
            rdma: has(A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
        }
    }
}

impl Driver {
    /// The driver for a device. `owner` is a context where the device has only plain memory.
    pub(crate) fn new(ordinal: i32, owner: u64, traits: Traits) -> Self {
        let mut properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, ordinal),
            ..CUmemAllocationProp::default()
        };
        if traits.shareable {
            properties.requestedHandleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        }
        if traits.rdma {
            properties.allocFlags.gpuDirectRDMACapable = 1;
        }
        let spilled = None;
        let (segments, fences) = (Mutex::new(Rank::Segments, Vec::new()), Mutex::new(Rank::Fences, None));
        Self { ordinal, owner, traits, properties, spilled, segments, fences, any_surplus: AtomicBool::new(false) }
    }

    /// The driver for the spill of a device: memory of the host's node that is nearest to it, or managed memory of
    /// the context `owner`.
    pub(crate) fn spilling(ordinal: i32, owner: u64, traits: Traits) -> Self {
        let mut driver = Self::new(ordinal, owner, traits);
        let device = driver.properties;
        let node = device_attribute(ordinal, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID).unwrap_or(0).max(0);
        driver.properties.location = CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, node);
        driver.properties.allocFlags.gpuDirectRDMACapable = 0;
        driver.spilled = Some(Spilled { device, near: Mutex::new(Rank::Near, HashSet::new()) });
        driver
    }

    /// A spill's handles of device memory.
    pub(crate) fn near(&self) -> HashSet<Handle> {
        let near = self.spilled.as_ref().map(|spilled| spilled.near.lock());
        near.map(|near| near.clone()).unwrap_or_default()
    }

    /// A handle of host memory.
    fn create_away(&self, bytes: u64) -> Result<Handle, BackingError> {
        if !cap::spill::reserve(self.ordinal, bytes) {
            return Err(BackingError::OverCap);
        }
        let made = make(bytes, &self.properties);
        if made.is_err() {
            cap::spill::released(self.ordinal, bytes);
            return made;
        }
        spill::held(bytes, true);
        made
    }

    /// Managed memory that stays on the host and that the device reaches there.
    fn allocate_managed(&self, bytes: u64) -> Result<u64, BackingError> {
        type Advice = CUmem_advise;
        if !cap::spill::reserve(self.ordinal, bytes) {
            return Err(BackingError::OverCap);
        }
        let mut addr = 0;
        let global = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0;
        // SAFETY: the place is a live local.
        let result = done(unsafe { real::cuMemAllocManaged(&raw mut addr, bytes as usize, global) }).and_then(|()| {
            let advise = |advice, device: CUdevice| {
                // SAFETY: the range was allocated above.
                done(unsafe { real::cuMemAdvise(addr, bytes as usize, advice, device) })
            };
            let advised = advise(Advice::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, HOST)
                .and_then(|()| advise(Advice::CU_MEM_ADVISE_SET_ACCESSED_BY, self.ordinal));
            if advised.is_err() {
                // It could come to lie on the device.
                // SAFETY: as above.
                unsafe { real::cuMemFree_v2(addr) };
            }
            advised
        });
        if result.is_err() {
            cap::spill::released(self.ordinal, bytes);
        }
        result.map(|()| addr).map_err(refused)
    }

    /// Memory went back to the driver.
    fn gave_back(&self, bytes: u64, from_host: bool) {
        if from_host {
            cap::spill::released(self.ordinal, bytes);
        } else {
            cap::pool::released(self.ordinal, bytes);
        }
    }

    /// The smallest chunk of physical memory.
    pub(crate) fn granularity(&self) -> Option<u64> {
        let mut bytes = 0;
        let minimum = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: both places are live.
        let result =
            unsafe { real::cuMemGetAllocationGranularity(&raw mut bytes, &raw const self.properties, minimum) };
        done(result).ok().map(|()| bytes as u64)
    }

    /// Whether `addr` lies in a plain segment.
    pub(crate) fn has_segment(&self, addr: u64) -> bool {
        let segments = self.segments.lock();
        segments.iter().any(|(start, bytes)| (*start..start + bytes).contains(&addr))
    }

    /// The context that owned the plain segments is gone, and they went with it.
    pub(crate) fn forget_segments(&self) {
        let gone = core::mem::take(&mut *self.segments.lock());
        for (addr, bytes) in gone {
            physical::segment_gone(addr);
            self.gave_back(bytes, self.spilled.is_some());
        }
    }

    /// A context is about to go, and nobody uses it: its fences are given up while they can be.
    pub(crate) fn give_up_fences_of(&self, ctx: u64) {
        self.destroy_fences(|of| of.ctx == ctx);
    }

    /// Takes fences off the list and destroys them, without the lock.
    fn destroy_fences(&self, which: impl Fn(&Of) -> bool) {
        let mut gone = Vec::new();
        if let Some(fences) = self.fences.lock().as_mut() {
            fences.retain(|fence, of| {
                let goes = which(of);
                gone.extend(goes.then_some(*fence));
                !goes
            });
        }
        let _relaxed = RelaxedCapture::enter();
        for fence in gone {
            // SAFETY: an event of weir's own; who takes it off the list destroys it.
            unsafe { real::cuEventDestroy_v2(fence as CUevent) };
        }
    }

    /// The context of a fence, which stays while `Alive` lives. `None`: it may be about to go.
    fn context_of(&self, fence: Fence) -> Result<Option<(u64, contexts::Alive)>, BackingError> {
        let Some(alive) = contexts::using() else { return Ok(None) };
        let ctx = self.fences.lock().as_ref().and_then(|fences| fences.get(&fence)).ok_or(GONE)?.ctx;
        Ok(contexts::find(ctx).map(|_| (ctx, alive)))
    }

    /// Waits for all work of every context that can reach this memory.
    pub(crate) fn wait_for_all(&self) -> Result<(), BackingError> {
        #[cfg(feature = "fault-injection")]
        let _held = crate::process::fault::is_set("hold").then(|| self.segments.lock());
        wait::for_work(Whose::Reaching(self.ordinal), wait::PATIENCE)
    }
}

/// `CU_DEVICE_CPU`.
const HOST: CUdevice = -1;
/// The journal's number for memory of no device.
const ON_HOST: i32 = -1;

fn make(bytes: u64, properties: &CUmemAllocationProp) -> Result<Handle, BackingError> {
    let mut handle = 0;
    // SAFETY: both places are live.
    let result = unsafe { real::cuMemCreate(&raw mut handle, bytes as usize, properties, 0) };
    done(result).map(|()| handle).map_err(refused)
}

/// Whether devices that no stop reaches may write to live memory: then it stays where it is.
fn others_write() -> bool {
    let Some(library) = third_parties::present() else { return false };
    record::chose("live memory", format!("is never moved: {library} is in the process"));
    true
}

impl Backing for Driver {
    fn reserve(&self, bytes: u64, align: u64) -> Result<u64, BackingError> {
        let _relaxed = RelaxedCapture::enter();
        physical::take(Class::Reservation, self.ordinal, bytes, || {
            let mut addr = 0;
            // SAFETY: the place is a live local; no address is requested.
            let result = unsafe { real::cuMemAddressReserve(&raw mut addr, bytes as usize, align as usize, 0, 0) };
            done(result).map(|()| addr).map_err(refused)
        })
    }

    fn unreserve(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        let _relaxed = RelaxedCapture::enter();
        physical::give(Class::Reservation, addr, || {
            // SAFETY: the pool's own reservation.
            done(unsafe { real::cuMemAddressFree(addr, bytes as usize) }).map_err(refused)
        })
    }

    fn create(&self, bytes: u64, budget: &Budget) -> Result<Handle, BackingError> {
        let _relaxed = RelaxedCapture::enter();
        if self.spilled.is_some() {
            return physical::take(Class::Handle, ON_HOST, bytes, || self.create_away(bytes));
        }
        physical::take(Class::Handle, self.ordinal, bytes, || {
            if !budget.tiny && !room::leaves_enough(self.ordinal, bytes) {
                return Err(BackingError::OutOfMemory);
            }
            let cost = cap::pool::reserve(self.ordinal, bytes, budget).ok_or(BackingError::OverCap)?;
            #[cfg(feature = "fault-injection")]
            let _held = crate::process::fault::is_set("call").then(|| self.segments.lock());
            let made = make(bytes, &self.properties);
            cap::pool::commit_or_roll_back(cost, budget, made.is_ok());
            made
        })
    }

    fn release(&self, handle: Handle, bytes: u64) -> Result<(), BackingError> {
        let _relaxed = RelaxedCapture::enter();
        let _change = cap::watch::Change::begin();
        physical::give(Class::Handle, handle, || {
            // SAFETY: the pool's own handle.
            done(unsafe { real::cuMemRelease(handle) }).map_err(refused)
        })?;
        let near = |spilled: &Spilled| spilled.near.lock().remove(&handle);
        let from_host = self.spilled.as_ref().is_some_and(|spilled| !near(spilled));
        if self.spilled.is_some() {
            spill::held(bytes, false);
        }
        self.gave_back(bytes, from_host);
        Ok(())
    }

    fn map(&self, addr: u64, bytes: u64, handle: Handle) -> Result<(), BackingError> {
        let _relaxed = RelaxedCapture::enter();
        physical::map(self.ordinal, addr, bytes, handle, || {
            // SAFETY: the pool's own address space and handle.
            done(unsafe { real::cuMemMap(addr, bytes as usize, 0, handle, 0) }).map_err(refused)
        })
    }

    fn unmap(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        let _relaxed = RelaxedCapture::enter();
        physical::unmap(self.ordinal, addr, bytes, || {
            // SAFETY: the pool's own mappings; it has proof that no work touches them.
            done(unsafe { real::cuMemUnmap(addr, bytes as usize) }).map_err(refused)
        })
    }

    fn set_access(&self, addr: u64, bytes: u64, grants: &[PeerAccess]) -> Result<(), BackingError> {
        let _relaxed = RelaxedCapture::enter();
        let access = |device: i32, write: bool| CUmemAccessDesc {
            location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, device),
            flags: if write {
                CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            } else {
                CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ
            },
        };
        let mut list = vec![access(self.ordinal, true)];
        list.extend(grants.iter().map(|grant| access(grant.device, grant.write)));
        // SAFETY: the list lives through the call.
        done(unsafe { real::cuMemSetAccess(addr, bytes as usize, list.as_ptr(), list.len()) }).map_err(refused)
    }

    fn end_access(&self, addr: u64, bytes: u64, device: i32) -> Result<(), BackingError> {
        let _relaxed = RelaxedCapture::enter();
        let none = CUmemAccessDesc {
            location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
        };
        // SAFETY: the pool's own mappings; the description lives through the call.
        done(unsafe { real::cuMemSetAccess(addr, bytes as usize, &raw const none, 1) }).map_err(refused)
    }

    fn segment_alloc(&self, bytes: u64, budget: &Budget) -> Result<u64, BackingError> {
        let _within = ContextGuard::enter(self.owner).map_err(refused)?;
        let addr = if self.spilled.is_some() {
            physical::take(Class::Handle, ON_HOST, bytes, || self.allocate_managed(bytes))?
        } else {
            physical::take(Class::Handle, self.ordinal, bytes, || {
                let cost = cap::pool::reserve(self.ordinal, bytes, budget).ok_or(BackingError::OverCap)?;
                let mut addr = 0;
                // SAFETY: the place is a live local.
                let result = unsafe { real::cuMemAlloc_v2(&raw mut addr, bytes as usize) };
                cap::pool::commit_or_roll_back(cost, budget, result == CUresult::CUDA_SUCCESS);
                done(result).map(|()| addr).map_err(refused)
            })?
        };
        self.segments.lock().push((addr, bytes));
        Ok(addr)
    }

    fn segment_free(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        let _change = cap::watch::Change::begin();
        let _within = ContextGuard::enter(self.owner).map_err(refused)?;
        physical::give(Class::Handle, addr, || {
            // SAFETY: the pool's own segment, wholly free.
            done(unsafe { real::cuMemFree_v2(addr) }).map_err(refused)
        })?;
        self.segments.lock().retain(|(start, _)| *start != addr);
        self.gave_back(bytes, self.spilled.is_some());
        Ok(())
    }

    fn fence_record(&self, stream: u64) -> Result<Fence, BackingError> {
        let _no_capture = capture::no_capture().ok_or(CAPTURING)?;
        let _alive = contexts::using().ok_or(BackingError::Busy)?;
        if self.any_surplus.swap(false, Ordering::AcqRel) {
            self.destroy_fences(|of| of.surplus && contexts::find(of.ctx).is_some());
        }
        let recorded = stream::with(stream, |ctx, handle| {
            contexts::find(ctx).ok_or(GONE)?;
            let _within = ContextGuard::enter(ctx).map_err(refused)?;
            // SAFETY: the event is made in the stream's context; the stream is alive while `with` holds it.
            let event = wait::record(|event| unsafe { real::cuEventRecord(event, handle) })?;
            self.fences.lock().get_or_insert_default().insert(event, Of { ctx, surplus: false });
            Ok(event)
        });
        recorded.unwrap_or(Err(GONE))
    }

    fn fence_query(&self, fence: Fence) -> Result<bool, BackingError> {
        let Some((ctx, _alive)) = self.context_of(fence)? else { return Ok(false) };
        let _within = ContextGuard::enter(ctx).map_err(refused)?;
        // SAFETY: the event is in the list, its context stays, and only who has the fence drops it.
        match unsafe { real::cuEventQuery(fence as CUevent) } {
            CUresult::CUDA_SUCCESS => Ok(true),
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => Err(refused(code)),
        }
    }

    fn fence_wait(&self, stream: u64, fence: Fence) -> Result<(), BackingError> {
        let _no_capture = capture::no_capture().ok_or(CAPTURING)?;
        let (_, _alive) = self.context_of(fence)?.ok_or(BackingError::Busy)?;
        let waited = stream::with(stream, |ctx, handle| {
            contexts::find(ctx).ok_or(GONE)?;
            let _within = ContextGuard::enter(ctx).map_err(refused)?;
            // SAFETY: the event is in the list and its context stays; the stream is alive while `with` holds it.
            done(unsafe { real::cuStreamWaitEvent(handle, fence as CUevent, 0) }).map_err(refused)
        });
        waited.unwrap_or(Err(GONE))
    }

    fn fence_drop(&self, fence: Fence) {
        let alive = contexts::using();
        let mut list = self.fences.lock();
        let Some(fences) = list.as_mut() else { return };
        let Some(of) = fences.get_mut(&fence) else { return };
        if alive.is_none() || contexts::find(of.ctx).is_none() {
            // A context that goes takes its fences with it; should it stay, they are destroyed the next time.
            of.surplus = true;
            self.any_surplus.store(true, Ordering::Release);
            return;
        }
        fences.remove(&fence);
        drop(list);
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: an event of weir's own in a context that stays; who takes it off the list destroys it.
        unsafe { real::cuEventDestroy_v2(fence as CUevent) };
    }

    fn synchronise(&self) -> Result<(), BackingError> {
        self.wait_for_all()
    }

    fn idle(&self) -> bool {
        work::finished(self.ordinal)
    }

    fn quiesce(&self) -> Result<bool, BackingError> {
        if others_write() { Ok(false) } else { work::stop(self.ordinal) }
    }

    fn quiesce_if_idle(&self) -> Result<bool, BackingError> {
        if others_write() { Ok(false) } else { work::stop_if_idle(self.ordinal) }
    }

    fn better(&self, handle: Handle, bytes: u64) -> Result<Option<Handle>, BackingError> {
        let _relaxed = RelaxedCapture::enter();
        let Some(spilled) = &self.spilled else { return Ok(None) };
        if spilled.near.lock().contains(&handle) {
            return Ok(None);
        }
        let budget = Budget::default();
        let new = physical::take(Class::Handle, self.ordinal, bytes, || {
            let cost = cap::pool::reserve(self.ordinal, bytes, &budget).ok_or(BackingError::OverCap)?;
            let made = make(bytes, &spilled.device);
            cap::pool::commit_or_roll_back(cost, &budget, made.is_ok());
            made
        })?;
        spilled.near.lock().insert(new);
        spill::held(bytes, true);
        Ok(Some(new))
    }

    fn resume(&self) {
        work::go_on();
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), BackingError> {
        let ctx = contexts::all().find(|of| of.ordinal == self.ordinal).map_or(current(), |of| of.ctx);
        let _within = ContextGuard::enter(ctx).map_err(refused)?;
        // The driver finds out by itself which of them is memory of the host.
        // SAFETY: both ranges are the pool's own and mapped; the device is idle.
        done(unsafe { real::cuMemcpy(to, from, bytes as usize) }).map_err(refused)?;
        // SAFETY: a copy on the device may still run when the call returns.
        done(unsafe { real::cuCtxSynchronize() }).map_err(refused)
    }
}
