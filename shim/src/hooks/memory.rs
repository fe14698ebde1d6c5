//! Taking and giving device memory: served from the pool, forwarded where the pool has no business.

use super::graph_memory;
use crate::alloc::mempools::{self, Pooled};
use crate::alloc::{self, Served, device_attribute, pins};
use crate::cap::{self, linear, measured, wake};
use crate::driver::{capture, stream};
use crate::frameworks::tensorflow::ForTensors;
use crate::process::calls::Uncancelled;
use crate::process::guard::Call;
use crate::process::reserve;
use crate::process::stack::roomy;
use crate::record;
use crate::record::blocks::Freeing;
use crate::record::passed::{self, Wanted};
use core::ffi::c_uint;
use weir_cuda::{CUdevice_attribute, CUdeviceptr, CUdeviceptr_v1, CUmemoryPool, CUresult, CUstream, Variant};
use weir_journal::{Class, Granted, STREAM_UNKNOWN};
use weir_ledger::Category;
use weir_pool::{Freed, Observer, Request};

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

/// What a free of an address may mean where it is none of the pool's.
const LINEAR: [Class; 2] = [Class::Device, Class::Managed];

/// Whether `stream` means the calling thread's own default stream in the called variant.
#[inline]
pub(crate) fn per_thread(variant: Variant, stream: CUstream) -> bool {
    stream.is_null() && variant != Variant::Legacy
}

/// A synchronous allocation from the pool of the current context; `None`: the driver shall serve it.
#[inline]
fn plain(bytes: usize) -> Option<Result<u64, CUresult>> {
    // Under some captures the driver decides whether an allocation is allowed at all.
    if bytes == 0 || capture::forbids() {
        return None;
    }
    let (served, context) = alloc::here()?;
    let request = Request { bytes: bytes as u64, stream: None, context, mempool: served.plain };
    served.allocate(&request)
}

/// A request while the host has no memory to keep account of it: nobody's, or refused where it would be charged.
#[cold]
fn unaccounted<F: Copy>(call: &Call<F, CUresult>, forward: impl FnOnce(F) -> CUresult) -> CUresult {
    if cap::on().is_some() { CUresult::CUDA_ERROR_OUT_OF_MEMORY } else { call.forward(forward) }
}

/// `cuMemAlloc`.
pub(crate) unsafe fn alloc(call: &Call<Alloc, CUresult>, dptr: *mut CUdeviceptr, bytes: usize) -> CUresult {
    if reserve::short() {
        // SAFETY: the caller's own arguments.
        return unaccounted(call, |real| unsafe { real(dptr, bytes) });
    }
    match if dptr.is_null() { None } else { plain(bytes) } {
        Some(Ok(addr)) => {
            // SAFETY: the caller's place for the result, not null.
            unsafe { *dptr = addr };
            CUresult::CUDA_SUCCESS
        }
        Some(Err(code)) => code,
        // SAFETY: the caller's own arguments.
        None => unsafe {
            let forward = || alloc::with_room(|| call.forward(|real| real(dptr, bytes)));
            let run = || linear::allocate(bytes as u64, Category::Device, dptr, || bytes as u64, forward);
            let wanted = Wanted::here(Class::Device, bytes as u64);
            roomy(|| passed::allocate(call, wanted, run, || Granted { address: *dptr, allocated: bytes as u64 }))
        },
    }
}

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
    let served = row.and_then(|row| Some((row, plain(row.checked_mul(height)?)?)));
    match served {
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
                let told = || (*pitch as u64).saturating_mul(height as u64);
                let forward = || alloc::with_room(|| call.forward(|real| real(dptr, pitch, width, height, element)));
                let run = || linear::allocate(expected, Category::Device, dptr, told, forward);
                let asked = (width as u64).saturating_mul(height as u64);
                passed::allocate(call, Wanted::here(Class::Device, asked), run, || Granted {
                    address: *dptr,
                    allocated: told(),
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
    let (served, _) = alloc::here()?;
    let align = device_attribute(served.ordinal, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    width.checked_next_multiple_of(usize::try_from(align?).ok()?.max(512))
}

/// A stream-ordered allocation; `None`: the driver shall serve it.
#[inline(always)]
fn ordered(
    bytes: usize,
    stream: CUstream,
    per_thread: bool,
    from: impl FnOnce(i32) -> Option<&'static Pooled>,
) -> Option<Result<u64, CUresult>> {
    if bytes == 0 || !alloc::on() || capture::holds(stream, per_thread) {
        return None;
    }
    let (lane, slot) = stream::lane(stream, per_thread)?;
    // Makes the pool of the stream's device, which also tells its default mempool.
    let mut served = alloc::serving(slot)?;
    if !served.mapped() {
        return None;
    }
    let pooled = from(lane.ordinal)?;
    if pooled.ordinal() != lane.ordinal {
        served = pooled.served()?;
        alloc::may_reach(lane.ordinal, served.ordinal);
    }
    let mempool = pooled.mempool(served)?;
    served.allocate(&Request { bytes: bytes as u64, stream: Some(lane.id), context: lane.ctx, mempool })
}

/// A stream-ordered allocation that the driver serves; a captured one is a node of a graph and takes nothing yet.
unsafe fn left_to_driver<F: Copy>(
    call: &Call<F, CUresult>,
    bytes: usize,
    stream: CUstream,
    pool: Option<u64>,
    place: *const CUdeviceptr,
    forward: impl Fn() -> CUresult,
) -> CUresult {
    let recorder = record::on();
    if (cap::on().is_none() && recorder.is_none()) || graph_memory::captured(stream, call.variant) {
        return alloc::with_room(forward);
    }
    let own = per_thread(call.variant, stream);
    let ordinal = stream::lane(stream, own).map(|(lane, _)| lane.ordinal).or_else(cap::current_device);
    let run = || {
        // SAFETY: the caller's own place.
        alloc::with_room_for(|asked| unsafe {
            measured::allocate(bytes as u64, pool, ordinal, place, || asked.ask(&forward))
        })
    };
    let stream = recorder.map_or(STREAM_UNKNOWN, |recorder| recorder.stream_of(stream as u64, own));
    let wanted = Wanted { class: Class::Device, asked: bytes as u64, stream, ordinal, owned: false };
    // SAFETY: after success the address is there.
    passed::allocate(call, wanted, run, || Granted { address: unsafe { *place }, allocated: bytes as u64 })
}

/// `cuMemAllocAsync`.
pub(crate) unsafe fn alloc_async(
    call: &Call<AllocAsync, CUresult>,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    if reserve::short() {
        // SAFETY: the caller's own arguments.
        return unaccounted(call, |real| unsafe { real(dptr, bytes, stream) });
    }
    // Memory in the order of a stream is a framework's tensors; libraries take theirs by cuMemAlloc.
    let _for_tensors = ForTensors::begin();
    let own = per_thread(call.variant, stream);
    match if dptr.is_null() { None } else { ordered(bytes, stream, own, mempools::current) } {
        Some(Ok(addr)) => {
            // SAFETY: the caller's place for the result, not null.
            unsafe { *dptr = addr };
            CUresult::CUDA_SUCCESS
        }
        Some(Err(code)) => code,
        // SAFETY: the caller's own arguments.
        None => unsafe {
            let forward = || call.forward(|real| real(dptr, bytes, stream));
            roomy(|| left_to_driver(call, bytes, stream, None, dptr, forward))
        },
    }
}

/// `cuMemAllocFromPoolAsync`.
pub(crate) unsafe fn alloc_from_pool(
    call: &Call<AllocFromPool, CUresult>,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    if reserve::short() {
        // SAFETY: the caller's own arguments.
        return unaccounted(call, |real| unsafe { real(dptr, bytes, pool, stream) });
    }
    let _for_tensors = ForTensors::begin();
    let own = per_thread(call.variant, stream);
    match if dptr.is_null() { None } else { ordered(bytes, stream, own, |_| mempools::find(pool as u64)) } {
        Some(Ok(addr)) => {
            // SAFETY: the caller's place for the result, not null.
            unsafe { *dptr = addr };
            CUresult::CUDA_SUCCESS
        }
        Some(Err(code)) => code,
        // SAFETY: the caller's own arguments.
        None => unsafe {
            let forward = || call.forward(|real| real(dptr, bytes, pool, stream));
            roomy(|| left_to_driver(call, bytes, stream, Some(pool as u64), dptr, forward))
        },
    }
}

/// The pool of a pointer that is to be freed.
#[inline]
fn owner(dptr: CUdeviceptr) -> Option<&'static Served> {
    // Even after weir has turned itself off, its own pointers come back to it.
    alloc::owner(dptr)
}

/// `cuMemFree`: lazily, the bytes wait for a synchronisation.
pub(crate) unsafe fn free(call: &Call<Free, CUresult>, dptr: CUdeviceptr) -> CUresult {
    let Some(served) = owner(dptr) else {
        // SAFETY: the caller's own argument.
        let run = || linear::free(dptr, || call.forward(|real| unsafe { real(dptr) }));
        return roomy(|| passed::free(dptr, &LINEAR, STREAM_UNKNOWN, run));
    };
    // Whether a capture forbids the call is the driver's to say, and the capture its to make invalid. It knows no
    // allocation that starts there, so that it frees nothing.
    if capture::forbids() && served.mapped() {
        let _uncancelled = Uncancelled::enter();
        // SAFETY: an address of weir's own mappings.
        let judged = unsafe { (call.real())(dptr) };
        if judged == CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED {
            return judged;
        }
    }
    let record = Freeing::begin(None);
    let freed = served.pool.free(&served.driver, dptr, Recording { record: &record, served, dptr });
    given_back(served, dptr, &record, freed.is_ok())
}

/// `cuMemFreeAsync`: in the order of its stream.
pub(crate) unsafe fn free_async(call: &Call<FreeAsync, CUresult>, dptr: CUdeviceptr, stream: CUstream) -> CUresult {
    let own = per_thread(call.variant, stream);
    let Some(served) = owner(dptr) else {
        // SAFETY: the caller's own arguments.
        let forward = || call.forward(|real| unsafe { real(dptr, stream) });
        if (cap::on().is_some() || record::open().is_some()) && graph_memory::captured(stream, call.variant) {
            // A node of a graph: nothing is freed now.
            return forward();
        }
        let run = || linear::free_in_order(dptr, stream, own, forward);
        let number = record::open().map_or(STREAM_UNKNOWN, |recorder| recorder.stream_of(stream as u64, own));
        return roomy(|| passed::free(dptr, &LINEAR, number, run));
    };
    // Captured frees must be of captured allocations, and a stream that nobody knows is an error: the
    // driver, which knows no such allocation, says which.
    let lane = if capture::holds(stream, own) { None } else { stream::lane(stream, own) };
    let Some((lane, _)) = lane else {
        // SAFETY: the caller's own arguments.
        return call.forward(|real| unsafe { real(dptr, stream) });
    };
    alloc::may_reach(lane.ordinal, served.ordinal);
    let record = Freeing::begin(Some(lane.id));
    let freed = served.pool.free_async(dptr, lane.id, lane.ctx, Recording { record: &record, served, dptr });
    given_back(served, dptr, &record, freed.is_ok())
}

/// Records a free while the pool holds its lock.
struct Recording<'a> {
    record: &'a Freeing,
    served: &'static Served,
    dptr: CUdeviceptr,
}

impl Observer for Recording<'_> {
    #[inline(always)]
    fn found(&self, number: usize) {
        self.record.going(self.served, number);
    }

    #[inline(always)]
    fn freed(&self, freed: &Freed) {
        self.record.freed(self.served, self.dptr, freed.number);
    }
}

/// The pool has judged a free.
#[inline]
fn given_back(served: &'static Served, dptr: CUdeviceptr, record: &Freeing, known: bool) -> CUresult {
    if known {
        pins::freed(served, dptr);
        wake::freed(served.ordinal);
        CUresult::CUDA_SUCCESS
    } else {
        record.refused(dptr);
        CUresult::CUDA_ERROR_INVALID_VALUE
    }
}
