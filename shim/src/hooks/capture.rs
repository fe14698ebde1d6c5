//! Captures: while one is under way weir makes no call that would break it, and forwards what
//! belongs to it.

use crate::alloc;
use crate::driver::stream::per_thread;
use crate::driver::{capture, stream, work};
use crate::process::guard::Call;
use weir_cuda::*;

pub(crate) type Begin = unsafe extern "C-unwind" fn(CUstream) -> CUresult;
pub(crate) type BeginInMode = unsafe extern "C-unwind" fn(CUstream, CUstreamCaptureMode) -> CUresult;
pub(crate) type BeginToGraph = unsafe extern "C-unwind" fn(
    CUstream,
    CUgraph,
    *const CUgraphNode,
    *const CUgraphEdgeData,
    usize,
    CUstreamCaptureMode,
) -> CUresult;
pub(crate) type BeginToCig = unsafe extern "C-unwind" fn(CUstream, *mut CUstreamCigCaptureParams) -> CUresult;
pub(crate) type BeginRecapture = unsafe extern "C-unwind" fn(
    CUstream,
    CUstreamCaptureMode,
    CUgraph,
    CUgraphRecaptureCallback,
    *mut core::ffi::c_void,
) -> CUresult;
pub(crate) type End = unsafe extern "C-unwind" fn(CUstream, *mut CUgraph) -> CUresult;

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

/// Notes a capture around the call that begins it.
fn beginning(
    variant: Variant,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    begin: impl FnOnce() -> CUresult,
) -> CUresult {
    let stream_ref = if alloc::watching() { stream::find(stream, per_thread(variant, stream)) } else { None };
    let Some(_queueing) = work::enter() else { return work::REFUSED };
    capture::beginning(|| {
        let result = begin();
        if let Some((stream_ref, _)) = stream_ref.filter(|_| result == CUresult::CUDA_SUCCESS) {
            capture::began(stream_ref, mode != CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED);
        }
        result
    })
}

fn ending(variant: Variant, stream: CUstream, end: impl FnOnce() -> CUresult) -> CUresult {
    let own = per_thread(variant, stream);
    let stream_ref = if capture::under_way() { stream::find(stream, own) } else { None };
    let result = end();
    if let Some((stream_ref, _)) = stream_ref {
        capture::may_have_ended(stream, own, stream_ref);
    }
    result
}

/// `cuStreamBeginCapture`, first version.
pub(crate) unsafe fn begin(call: &Call<Begin, CUresult>, stream: CUstream) -> CUresult {
    // SAFETY: the caller's own argument.
    beginning(call.variant, stream, GLOBAL, || call.forward(|real| unsafe { real(stream) }))
}

/// `cuStreamBeginCapture`.
pub(crate) unsafe fn begin_in_mode(
    call: &Call<BeginInMode, CUresult>,
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    beginning(call.variant, stream, mode, || call.forward(|real| unsafe { real(stream, mode) }))
}

/// `cuStreamBeginCaptureToGraph`.
pub(crate) unsafe fn begin_to_graph(
    call: &Call<BeginToGraph, CUresult>,
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> CUresult {
    beginning(call.variant, stream, mode, || {
        // SAFETY: the caller's own arguments.
        call.forward(|real| unsafe { real(stream, graph, dependencies, edges, count, mode) })
    })
}

/// `cuStreamBeginCaptureToCig`.
pub(crate) unsafe fn begin_to_cig(
    call: &Call<BeginToCig, CUresult>,
    stream: CUstream,
    parameters: *mut CUstreamCigCaptureParams,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    beginning(call.variant, stream, GLOBAL, || call.forward(|real| unsafe { real(stream, parameters) }))
}

/// `cuStreamBeginRecaptureToGraph`.
pub(crate) unsafe fn begin_recapture(
    call: &Call<BeginRecapture, CUresult>,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    graph: CUgraph,
    callback: CUgraphRecaptureCallback,
    data: *mut core::ffi::c_void,
) -> CUresult {
    beginning(call.variant, stream, mode, || {
        // SAFETY: the caller's own arguments.
        call.forward(|real| unsafe { real(stream, mode, graph, callback, data) })
    })
}

/// `cuStreamEndCapture`.
pub(crate) unsafe fn end(call: &Call<End, CUresult>, stream: CUstream, graph: *mut CUgraph) -> CUresult {
    // SAFETY: the caller's own arguments.
    ending(call.variant, stream, || call.forward(|real| unsafe { real(stream, graph) }))
}

/// `cuStreamEndCaptureToCig`.
pub(crate) unsafe fn end_to_cig(call: &Call<Begin, CUresult>, stream: CUstream) -> CUresult {
    // SAFETY: the caller's own argument.
    ending(call.variant, stream, || call.forward(|real| unsafe { real(stream) }))
}
