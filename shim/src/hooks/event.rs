//! Events: what was queued before a record, and when it is known to have finished.

use crate::alloc::proofs::Proofs;
use crate::alloc::{self, events, spill};
use crate::driver::stream::per_thread;
use crate::driver::{capture, stream};
use crate::process::guard::Call;
use core::ffi::c_uint;
use weir_cuda::{CUcontext, CUevent, CUevent_flags, CUgreenCtx, CUipcEventHandle, CUresult, CUstream, Variant};

pub(crate) type OfEvent = unsafe extern "C-unwind" fn(CUevent) -> CUresult;
pub(crate) type Create = unsafe extern "C-unwind" fn(*mut CUevent, c_uint) -> CUresult;
pub(crate) type Record = unsafe extern "C-unwind" fn(CUevent, CUstream) -> CUresult;
pub(crate) type RecordWithFlags = unsafe extern "C-unwind" fn(CUevent, CUstream, c_uint) -> CUresult;
pub(crate) type OfContext = unsafe extern "C-unwind" fn(CUcontext, CUevent) -> CUresult;
pub(crate) type OfGreen = unsafe extern "C-unwind" fn(CUgreenCtx, CUevent) -> CUresult;
pub(crate) type Open = unsafe extern "C-unwind" fn(*mut CUevent, CUipcEventHandle) -> CUresult;

/// No stream has this identity: a record on it proves nothing, and ends what the last record proved.
const NO_STREAM: u64 = 0;

/// A record of `event`; `stream_ref` is `None` where it proves nothing about one stream.
fn recording(event: CUevent, stream_ref: Option<u64>, forward: impl FnOnce() -> CUresult) -> CUresult {
    if !alloc::any() || !events::trusted(event as u64) {
        return forward();
    }
    let stream_ref = stream_ref.unwrap_or(NO_STREAM);
    let proofs: Proofs = alloc::pools()
        .map(|device_pool| {
            (
                device_pool,
                device_pool.pool.began(weir_pool::Call::EventRecord { event: event as u64, stream: stream_ref }),
            )
        })
        .collect();
    // Checked again: whoever finds meanwhile that it is not to be trusted takes out of the pools what he finds there.
    if !events::trusted(event as u64) {
        for (device_pool, _) in proofs {
            device_pool.pool.event_destroyed(event as u64);
        }
        return forward();
    }
    let result = forward();
    for (device_pool, proof) in proofs {
        device_pool.pool.ended(proof, result == CUresult::CUDA_SUCCESS);
    }
    result
}

/// The stream that a record speaks of: none if the record becomes part of a graph.
fn recorded(stream: CUstream, per_thread: bool) -> Option<u64> {
    if !alloc::any() || capture::holds(stream, per_thread) {
        return None;
    }
    stream::find(stream, per_thread).map(|(stream_ref, _)| stream_ref.id)
}

/// `cuEventCreate`: an event of several processes is recorded where weir does not see it.
pub(crate) unsafe fn create(call: &Call<Create, CUresult>, event: *mut CUevent, flags: c_uint) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = alloc::with_room(|| call.forward(|real| unsafe { real(event, flags) }));
    let shared = flags & CUevent_flags::CU_EVENT_INTERPROCESS.0 != 0;
    if shared && result == CUresult::CUDA_SUCCESS && alloc::on() {
        // SAFETY: after success the place holds the event.
        events::distrust(unsafe { *event } as u64);
    }
    result
}

/// `cuIpcOpenEventHandle`.
pub(crate) unsafe fn open(call: &Call<Open, CUresult>, event: *mut CUevent, handle: CUipcEventHandle) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(event, handle) });
    if result == CUresult::CUDA_SUCCESS && alloc::on() {
        // SAFETY: after success the place holds the event.
        events::distrust(unsafe { *event } as u64);
    }
    result
}

/// `cuEventRecord`.
pub(crate) unsafe fn record(call: &Call<Record, CUresult>, event: CUevent, stream: CUstream) -> CUresult {
    let own = per_thread(call.variant, stream);
    // SAFETY: the caller's own arguments.
    recording(event, recorded(stream, own), || call.forward(|real| unsafe { real(event, stream) }))
}

/// `cuEventRecordWithFlags`.
pub(crate) unsafe fn record_with_flags(
    call: &Call<RecordWithFlags, CUresult>,
    event: CUevent,
    stream: CUstream,
    flags: c_uint,
) -> CUresult {
    let own = per_thread(call.variant, stream);
    if alloc::any() && capture::holds(stream, own) {
        // An external record in a capture is a node: every launch of the graph records the event.
        events::distrust(event as u64);
    }
    // SAFETY: the caller's own arguments.
    recording(event, recorded(stream, own), || call.forward(|real| unsafe { real(event, stream, flags) }))
}

/// `cuCtxRecordEvent`: of all streams at once, from which nothing is concluded.
pub(crate) unsafe fn context_record(call: &Call<OfContext, CUresult>, ctx: CUcontext, event: CUevent) -> CUresult {
    // SAFETY: the caller's own arguments.
    recording(event, None, || call.forward(|real| unsafe { real(ctx, event) }))
}

/// `cuGreenCtxRecordEvent`.
pub(crate) unsafe fn green_record(call: &Call<OfGreen, CUresult>, ctx: CUgreenCtx, event: CUevent) -> CUresult {
    // SAFETY: the caller's own arguments.
    recording(event, None, || call.forward(|real| unsafe { real(ctx, event) }))
}

/// A call that proves, by success, that an event's record has finished.
fn settling(event: CUevent) -> impl FnOnce(CUresult) {
    let proofs: Proofs = if alloc::any() {
        alloc::pools()
            .map(|device_pool| (device_pool, device_pool.pool.began(weir_pool::Call::EventSync(event as u64))))
            .collect()
    } else {
        Proofs::default()
    };
    move |result| {
        for (device_pool, proof) in proofs {
            device_pool.pool.ended(proof, result == CUresult::CUDA_SUCCESS);
        }
    }
}

/// `cuEventSynchronize`.
pub(crate) unsafe fn synchronize(_: Variant, event: CUevent) -> impl FnOnce(CUresult) {
    let after = settling(event);
    move |result| {
        after(result);
        if result == CUresult::CUDA_SUCCESS {
            spill::come_back(false);
        }
    }
}

/// `cuEventQuery`.
pub(crate) unsafe fn query(call: &Call<OfEvent, CUresult>, event: CUevent) -> CUresult {
    let after = settling(event);
    // SAFETY: the caller's own argument.
    let result = call.forward(|real| unsafe { real(event) });
    after(result);
    result
}

/// `cuEventDestroy`.
pub(crate) unsafe fn destroy(call: &Call<OfEvent, CUresult>, event: CUevent) -> CUresult {
    // Before the driver can give the handle to a new event in another thread.
    if alloc::on() {
        events::destroyed(event as u64);
    }
    // SAFETY: the caller's own argument.
    call.forward(|real| unsafe { real(event) })
}
