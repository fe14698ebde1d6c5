//! Streams: what their synchronisation proves, and their end.

use crate::alloc::proofs::Proofs;
use crate::alloc::{self, spill};
use crate::driver::stream::per_thread;
use crate::driver::{capture, guards, stream, wait, work};
use crate::process::guard::Call;
use crate::record;
use core::ffi::{c_int, c_uint};
use weir_cuda::{CUevent, CUresult, CUstream, Variant};

pub(crate) type OfStream = unsafe extern "C-unwind" fn(CUstream) -> CUresult;
pub(crate) type Wait = unsafe extern "C-unwind" fn(CUstream, CUevent, c_uint) -> CUresult;

pub(crate) type Create = unsafe extern "C-unwind" fn(*mut CUstream, c_uint) -> CUresult;
pub(crate) type CreateWithPriority = unsafe extern "C-unwind" fn(*mut CUstream, c_uint, c_int) -> CUresult;

/// Notes a created stream, so that weir can query all of them whether the device is idle.
unsafe fn creating(place: *mut CUstream, create: impl Fn() -> CUresult) -> CUresult {
    let result = alloc::with_room(create);
    if result == CUresult::CUDA_SUCCESS && alloc::watching() && !place.is_null() {
        // SAFETY: after success the place holds the stream.
        stream::created(unsafe { *place }, guards::current());
    }
    if result == CUresult::CUDA_SUCCESS && !place.is_null() && record::on().is_some() {
        // SAFETY: as above.
        record::stream_created(unsafe { *place } as u64, guards::current_device());
    }
    result
}

/// `cuStreamCreate`.
pub(crate) unsafe fn create(call: &Call<Create, CUresult>, stream: *mut CUstream, flags: c_uint) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe { creating(stream, || call.forward(|real| real(stream, flags))) }
}

/// `cuStreamCreateWithPriority`.
pub(crate) unsafe fn create_with_priority(
    call: &Call<CreateWithPriority, CUresult>,
    stream: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe { creating(stream, || call.forward(|real| real(stream, flags, priority))) }
}

/// A call that proves, by success, that a stream has finished what was queued before the call.
fn settling(stream: CUstream, per_thread: bool) -> impl FnOnce(CUresult) {
    let stream_ref = if alloc::any() { stream::find(stream, per_thread) } else { None };
    let proofs: Proofs = stream_ref
        .map(|(stream_ref, _)| {
            alloc::pools()
                .map(|device_pool| (device_pool, device_pool.pool.began(weir_pool::Call::StreamSync(stream_ref.id))))
                .collect()
        })
        .unwrap_or_default();
    move |result| {
        for (device_pool, proof) in proofs {
            device_pool.pool.ended(proof, result == CUresult::CUDA_SUCCESS);
        }
    }
}

/// `cuStreamSynchronize`.
pub(crate) unsafe fn synchronize(variant: Variant, stream: CUstream) -> impl FnOnce(CUresult) {
    let after = settling(stream, per_thread(variant, stream));
    move |result| {
        after(result);
        if result == CUresult::CUDA_SUCCESS {
            spill::come_back(false);
        }
    }
}

/// `cuStreamQuery`.
pub(crate) unsafe fn query(call: &Call<OfStream, CUresult>, stream: CUstream) -> CUresult {
    let after = settling(stream, per_thread(call.variant, stream));
    // SAFETY: the caller's own argument.
    let result = call.forward(|real| unsafe { real(stream) });
    after(result);
    result
}

/// `cuStreamWaitEvent`: later work of the stream comes after what the event recorded.
pub(crate) unsafe fn wait_event(
    call: &Call<Wait, CUresult>,
    stream: CUstream,
    event: CUevent,
    flags: c_uint,
) -> CUresult {
    let own = per_thread(call.variant, stream);
    let Some(_queueing) = work::enter() else { return work::REFUSED };
    let stream_ref = if alloc::any() { stream::find(stream, own) } else { None };
    let Some((stream_ref, _)) = stream_ref else {
        // SAFETY: the caller's own arguments.
        return call.forward(|real| unsafe { real(stream, event, flags) });
    };
    let waits = weir_pool::Call::EventWait { event: event as u64, stream: stream_ref.id, context: stream_ref.ctx };
    let proofs: Proofs = alloc::pools_reached_by(stream_ref.ordinal)
        .map(|device_pool| (device_pool, device_pool.pool.began(waits)))
        .collect();
    let before = capture::holds(stream, own);
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(stream, event, flags) });
    // A wait that belongs to a capture, or draws the stream into one, orders nothing now.
    let counts = result == CUresult::CUDA_SUCCESS && !before && !capture::holds(stream, own);
    for (device_pool, proof) in proofs {
        device_pool.pool.ended(proof, counts);
    }
    result
}

/// `cuStreamDestroy`: what is queued may still run.
pub(crate) unsafe fn destroy(call: &Call<OfStream, CUresult>, stream: CUstream) -> CUresult {
    let handle = stream as u64;
    // All of it before the driver can give the handle to a new stream in another thread.
    if alloc::watching() {
        wait::stream_goes(handle);
        stream::forget(handle);
    }
    if alloc::any() {
        for device_pool in alloc::pools() {
            device_pool.pool.stream_destroyed(&device_pool.driver, handle);
        }
    }
    let captured = capture::is_of(handle);
    let leaving = record::stream_leaves(handle);
    // SAFETY: the caller's own argument.
    let result = call.forward(|real| unsafe { real(stream) });
    if captured && result == CUresult::CUDA_SUCCESS {
        capture::gone(|stream_ref| stream_ref.id == handle);
    }
    record::stream_left(handle, leaving, result == CUresult::CUDA_SUCCESS);
    result
}
