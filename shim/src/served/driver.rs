//! The real driver behind a pool: address space, physical handles, plain segments, fences, waits and
//! copies. Every call here is weir's own: it breaks no capture and leaves the current context as it was.

use super::contexts;
use super::quiet::{Relaxed, Within, current};
use super::real::{self, done};
use super::{capture, device_attribute, reaches, spill, stream, work};
use crate::caps;
use crate::recorder::{self, physical};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use weir_cuda::*;
use weir_journal::Class;
use weir_pool::{Backing, BackingError, Fence, Grant, Handle};

/// The driver as one pool sees it.
pub(crate) struct Driver {
    /// The device.
    pub(crate) ordinal: i32,
    /// The context that owns plain segments, on a device without virtual memory management; else 0.
    pub(crate) owner: u64,
    properties: CUmemAllocationProp,
    /// Where the pool is a spill, so that the memory above is the host's.
    spilled: Option<Spilled>,
    /// Plain segments, by address.
    segments: Mutex<Vec<(u64, u64)>>,
    /// Fences that exist, with the context of each.
    fences: Mutex<Option<HashMap<Fence, u64>>>,
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

/// What the driver said, in the pool's words.
fn refused(code: CUresult) -> BackingError {
    match code {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => BackingError::OutOfMemory,
        code => BackingError::Driver(code.0 as i32),
    }
}

const GONE: BackingError = BackingError::Driver(CUresult::CUDA_ERROR_INVALID_HANDLE.0 as i32);

const CAPTURING: BackingError = BackingError::Driver(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.0 as i32);

impl Driver {
    /// The driver for a device. `owner` is a context where the device has only plain memory.
    pub(crate) fn new(ordinal: i32, owner: u64) -> Self {
        type A = CUdevice_attribute;
        let has = |attribute| device_attribute(ordinal, attribute) == Some(1);
        let mut properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, ordinal),
            ..CUmemAllocationProp::default()
        };
        // Handle types are fixed at creation: without this nothing of the pool could ever be shared.
        if has(A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) {
            properties.requestedHandleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        }
        if has(A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) {
            properties.allocFlags.gpuDirectRDMACapable = 1;
        }
        let spilled = None;
        Self { ordinal, owner, properties, spilled, segments: Mutex::new(Vec::new()), fences: Mutex::new(None) }
    }

    /// The driver for the spill of a device: memory of the host's node that is nearest to it, or managed memory of
    /// the context `owner`.
    pub(crate) fn spilling(ordinal: i32, owner: u64) -> Self {
        let mut driver = Self::new(ordinal, owner);
        let device = driver.properties;
        let node = device_attribute(ordinal, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID).unwrap_or(0).max(0);
        driver.properties.location = CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, node);
        driver.properties.allocFlags.gpuDirectRDMACapable = 0;
        driver.spilled = Some(Spilled { device, near: Mutex::default() });
        driver
    }

    /// A spill's handles of device memory.
    pub(crate) fn near(&self) -> HashSet<Handle> {
        let near = self.spilled.as_ref().map(|spilled| spilled.near.lock().unwrap_or_else(PoisonError::into_inner));
        near.map(|near| near.clone()).unwrap_or_default()
    }

    /// A handle of host memory.
    fn create_away(&self, bytes: u64) -> Result<Handle, BackingError> {
        if !caps::spill::ask(self.ordinal, bytes) {
            return Err(BackingError::OverCap);
        }
        let made = make(bytes, &self.properties);
        if made.is_err() {
            caps::spill::released(self.ordinal, bytes);
            return made;
        }
        spill::held(bytes, true);
        made
    }

    /// Managed memory that stays on the host and that the device reaches there.
    fn allocate_managed(&self, bytes: u64) -> Result<u64, BackingError> {
        type Advice = CUmem_advise;
        if !caps::spill::ask(self.ordinal, bytes) {
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
            caps::spill::released(self.ordinal, bytes);
        }
        result.map(|()| addr).map_err(refused)
    }

    /// Memory went back to the driver.
    fn gave_back(&self, bytes: u64, from_host: bool) {
        if from_host {
            caps::spill::released(self.ordinal, bytes);
        } else {
            caps::pool::released(self.ordinal, bytes);
        }
    }

    /// The smallest portion of physical memory.
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
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        segments.iter().any(|(start, bytes)| (*start..start + bytes).contains(&addr))
    }

    /// The context that owned the plain segments is gone, and they went with it.
    pub(crate) fn forget_segments(&self) {
        let gone = core::mem::take(&mut *self.segments.lock().unwrap_or_else(PoisonError::into_inner));
        for (addr, bytes) in gone {
            physical::segment_gone(addr);
            self.gave_back(bytes, self.spilled.is_some());
        }
    }

    /// A context is about to go: its fences are given up while they can be.
    pub(crate) fn give_up_fences_of(&self, ctx: u64) {
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(fences) = fences.as_mut() else { return };
        let _relaxed = Relaxed::enter();
        fences.retain(|fence, of| {
            if *of == ctx {
                // SAFETY: an event of weir's own, still in the list, so not destroyed.
                unsafe { real::cuEventDestroy_v2(*fence as CUevent) };
            }
            *of != ctx
        });
    }

    /// Waits for all work of every context that can reach this memory.
    pub(crate) fn wait_for_all(&self) -> Result<(), BackingError> {
        let _alive = contexts::alive();
        let _calm = capture::calm().ok_or(CAPTURING)?;
        let sync = recorder::synchronising(self.ordinal, true);
        for context in contexts::all().filter(|context| reaches(context.ordinal, self.ordinal)) {
            let Ok(_within) = Within::context(context.ctx) else { continue };
            // SAFETY: waits for the current context's work.
            done(unsafe { real::cuCtxSynchronize() }).map_err(refused)?;
        }
        sync.ended();
        Ok(())
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

impl Backing for Driver {
    fn reserve(&self, bytes: u64, align: u64) -> Result<u64, BackingError> {
        let _relaxed = Relaxed::enter();
        physical::take(Class::Reservation, self.ordinal, bytes, || {
            let mut addr = 0;
            // SAFETY: the place is a live local; no address is asked for.
            let result = unsafe { real::cuMemAddressReserve(&raw mut addr, bytes as usize, align as usize, 0, 0) };
            done(result).map(|()| addr).map_err(refused)
        })
    }

    fn unreserve(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        let _relaxed = Relaxed::enter();
        physical::give(Class::Reservation, addr, || {
            // SAFETY: the pool's own reservation.
            done(unsafe { real::cuMemAddressFree(addr, bytes as usize) }).map_err(refused)
        })
    }

    fn create(&self, bytes: u64) -> Result<Handle, BackingError> {
        let _relaxed = Relaxed::enter();
        if self.spilled.is_some() {
            return physical::take(Class::Handle, ON_HOST, bytes, || self.create_away(bytes));
        }
        physical::take(Class::Handle, self.ordinal, bytes, || {
            let cost = caps::pool::ask(self.ordinal, bytes).ok_or(BackingError::OverCap)?;
            let made = make(bytes, &self.properties);
            caps::pool::settle(cost, made.is_ok());
            made
        })
    }

    fn release(&self, handle: Handle, bytes: u64) -> Result<(), BackingError> {
        let _relaxed = Relaxed::enter();
        let _change = caps::watch::Change::begin();
        physical::give(Class::Handle, handle, || {
            // SAFETY: the pool's own handle.
            done(unsafe { real::cuMemRelease(handle) }).map_err(refused)
        })?;
        let near = |spilled: &Spilled| spilled.near.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        let from_host = self.spilled.as_ref().is_some_and(|spilled| !near(spilled));
        if self.spilled.is_some() {
            spill::held(bytes, false);
        }
        self.gave_back(bytes, from_host);
        Ok(())
    }

    fn map(&self, addr: u64, bytes: u64, handle: Handle) -> Result<(), BackingError> {
        let _relaxed = Relaxed::enter();
        physical::map(self.ordinal, addr, bytes, handle, || {
            // SAFETY: the pool's own address space and handle.
            done(unsafe { real::cuMemMap(addr, bytes as usize, 0, handle, 0) }).map_err(refused)
        })
    }

    fn unmap(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        let _relaxed = Relaxed::enter();
        physical::unmap(self.ordinal, addr, bytes, || {
            // SAFETY: the pool's own mappings; it has proof that no work touches them.
            done(unsafe { real::cuMemUnmap(addr, bytes as usize) }).map_err(refused)
        })
    }

    fn set_access(&self, addr: u64, bytes: u64, grants: &[Grant]) -> Result<(), BackingError> {
        let _relaxed = Relaxed::enter();
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
        let _relaxed = Relaxed::enter();
        let none = CUmemAccessDesc {
            location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
        };
        // SAFETY: the pool's own mappings; the description lives through the call.
        done(unsafe { real::cuMemSetAccess(addr, bytes as usize, &raw const none, 1) }).map_err(refused)
    }

    fn segment_alloc(&self, bytes: u64) -> Result<u64, BackingError> {
        let _within = Within::context(self.owner).map_err(refused)?;
        let addr = if self.spilled.is_some() {
            physical::take(Class::Handle, ON_HOST, bytes, || self.allocate_managed(bytes))?
        } else {
            physical::take(Class::Handle, self.ordinal, bytes, || {
                let cost = caps::pool::ask(self.ordinal, bytes).ok_or(BackingError::OverCap)?;
                let mut addr = 0;
                // SAFETY: the place is a live local.
                let result = unsafe { real::cuMemAlloc_v2(&raw mut addr, bytes as usize) };
                caps::pool::settle(cost, result == CUresult::CUDA_SUCCESS);
                done(result).map(|()| addr).map_err(refused)
            })?
        };
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).push((addr, bytes));
        Ok(addr)
    }

    fn segment_free(&self, addr: u64, bytes: u64) -> Result<(), BackingError> {
        let _change = caps::watch::Change::begin();
        let _within = Within::context(self.owner).map_err(refused)?;
        physical::give(Class::Handle, addr, || {
            // SAFETY: the pool's own segment, wholly free.
            done(unsafe { real::cuMemFree_v2(addr) }).map_err(refused)
        })?;
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).retain(|(start, _)| *start != addr);
        self.gave_back(bytes, self.spilled.is_some());
        Ok(())
    }

    fn fence_record(&self, stream: u64) -> Result<Fence, BackingError> {
        let _calm = capture::calm().ok_or(CAPTURING)?;
        let recorded = stream::with(stream, |ctx, handle| {
            let _within = Within::context(ctx).map_err(refused)?;
            let mut event: CUevent = core::ptr::null_mut();
            let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
            // SAFETY: the place is a live local, and the stream's context is current.
            done(unsafe { real::cuEventCreate(&raw mut event, flags) }).map_err(refused)?;
            // SAFETY: the event was made above; the stream is alive while `with` holds it.
            if let Err(code) = done(unsafe { real::cuEventRecord(event, handle) }) {
                // SAFETY: as above.
                unsafe { real::cuEventDestroy_v2(event) };
                return Err(refused(code));
            }
            let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
            fences.get_or_insert_default().insert(event as u64, ctx);
            Ok(event as u64)
        });
        recorded.unwrap_or(Err(GONE))
    }

    fn fence_query(&self, fence: Fence) -> Result<bool, BackingError> {
        let fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        let ctx = *fences.as_ref().and_then(|fences| fences.get(&fence)).ok_or(GONE)?;
        let _within = Within::context(ctx).map_err(refused)?;
        // SAFETY: the event is in the list, so it exists, and the lock keeps it there.
        match unsafe { real::cuEventQuery(fence as CUevent) } {
            CUresult::CUDA_SUCCESS => Ok(true),
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => Err(refused(code)),
        }
    }

    fn fence_wait(&self, stream: u64, fence: Fence) -> Result<(), BackingError> {
        let _calm = capture::calm().ok_or(CAPTURING)?;
        let waited = stream::with(stream, |ctx, handle| {
            let fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
            fences.as_ref().and_then(|fences| fences.get(&fence)).ok_or(GONE)?;
            let _within = Within::context(ctx).map_err(refused)?;
            // SAFETY: the event is in the list; the stream is alive while `with` holds it.
            done(unsafe { real::cuStreamWaitEvent(handle, fence as CUevent, 0) }).map_err(refused)
        });
        waited.unwrap_or(Err(GONE))
    }

    fn fence_drop(&self, fence: Fence) {
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        if fences.as_mut().and_then(|fences| fences.remove(&fence)).is_some() {
            let _relaxed = Relaxed::enter();
            // SAFETY: it was in the list, so it exists, and nobody else finds it any more.
            unsafe { real::cuEventDestroy_v2(fence as CUevent) };
        }
    }

    fn synchronise(&self) -> Result<(), BackingError> {
        self.wait_for_all()
    }

    fn quiesce(&self) -> Result<bool, BackingError> {
        work::stop(self)
    }

    fn quiesce_if_idle(&self) -> Result<bool, BackingError> {
        work::stop_if_idle(self)
    }

    fn better(&self, handle: Handle, bytes: u64) -> Result<Option<Handle>, BackingError> {
        let _relaxed = Relaxed::enter();
        let Some(spilled) = &self.spilled else { return Ok(None) };
        if spilled.near.lock().unwrap_or_else(PoisonError::into_inner).contains(&handle) {
            return Ok(None);
        }
        let new = physical::take(Class::Handle, self.ordinal, bytes, || {
            let cost = caps::pool::ask(self.ordinal, bytes).ok_or(BackingError::OverCap)?;
            let made = make(bytes, &spilled.device);
            caps::pool::settle(cost, made.is_ok());
            made
        })?;
        spilled.near.lock().unwrap_or_else(PoisonError::into_inner).insert(new);
        spill::held(bytes, true);
        Ok(Some(new))
    }

    fn resume(&self) {
        work::go_on();
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), BackingError> {
        let ctx = contexts::all().find(|of| of.ordinal == self.ordinal).map_or(current(), |of| of.ctx);
        let _within = Within::context(ctx).map_err(refused)?;
        // The driver finds out by itself which of them is memory of the host.
        // SAFETY: both ranges are the pool's own and mapped; the device is idle.
        done(unsafe { real::cuMemcpy(to, from, bytes as usize) }).map_err(refused)?;
        // SAFETY: a copy on the device may still run when the call returns.
        done(unsafe { real::cuCtxSynchronize() }).map_err(refused)
    }
}
