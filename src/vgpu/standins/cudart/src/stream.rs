//! Streams, host functions in them, and capture. Handles are the driver's.

use crate::error::{Outcome, give};
use weir_cuda::*;
use weir_vgpu_client::*;

runtime! {
    /// Makes a stream.
    context fn cudaStreamCreate(stream: *mut CUstream) = cuStreamCreate(stream, 0);
    /// Makes a stream with flags.
    context fn cudaStreamCreateWithFlags(stream: *mut CUstream, flags: c_uint) = cuStreamCreate(stream, flags);
    /// Makes a stream with a priority.
    context fn cudaStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) =
        cuStreamCreateWithPriority(stream, flags, priority);
    /// Destroys a stream.
    context fn cudaStreamDestroy(stream: CUstream) = cuStreamDestroy_v2(stream);
    /// Waits for a stream.
    context fn cudaStreamSynchronize(stream: CUstream) = cuStreamSynchronize(stream);
    /// Whether a stream has done its work.
    context fn cudaStreamQuery(stream: CUstream) = cuStreamQuery(stream);
    /// Lets a stream wait for an event.
    context fn cudaStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) =
        cuStreamWaitEvent(stream, event, flags);
    /// The priority of a stream.
    context fn cudaStreamGetPriority(stream: CUstream, priority: *mut c_int) = cuStreamGetPriority(stream, priority);
    /// The flags of a stream.
    context fn cudaStreamGetFlags(stream: CUstream, flags: *mut c_uint) = cuStreamGetFlags(stream, flags);
    /// The id of a stream.
    context fn cudaStreamGetId(stream: CUstream, id: *mut c_ulonglong) = cuStreamGetId(stream, id);
    /// Calls back when the stream has come so far; both interfaces call back in the same way.
    context fn cudaStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint) =
        cuStreamAddCallback(stream, callback, data, flags);
    /// Runs a host function in a stream.
    context fn cudaLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) =
        cuLaunchHostFunc(stream, function, data);
    /// Attaches shared memory to a stream.
    context fn cudaStreamAttachMemAsync(stream: CUstream, pointer: CUdeviceptr, length: usize, flags: c_uint) =
        cuStreamAttachMemAsync(stream, pointer, length, flags);
    /// Begins to capture.
    context fn cudaStreamBeginCapture(stream: CUstream, mode: c_uint) =
        cuStreamBeginCapture_v2(stream, CUstreamCaptureMode(mode));
    /// Ends a capture.
    context fn cudaStreamEndCapture(stream: CUstream, graph: *mut CUgraph) = cuStreamEndCapture(stream, graph);
    /// Whether a stream captures.
    context fn cudaStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) =
        cuStreamIsCapturing(stream, status);
    /// Whether a stream captures, and which capture.
    context fn cudaStreamGetCaptureInfo(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64) =
        cuStreamGetCaptureInfo(stream, status, id);
    /// The same with the graph and where it stands.
    context fn cudaStreamGetCaptureInfo_v2(
        stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph,
        nodes: *mut *const CUgraphNode, count: *mut usize,
    ) = cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
    /// Changes what the next captured work waits for.
    context fn cudaStreamUpdateCaptureDependencies(
        stream: CUstream, nodes: *mut CUgraphNode, count: usize, flags: c_uint,
    ) = cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
    /// Changes the thread's capture mode.
    context fn cudaThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) =
        cuThreadExchangeStreamCaptureMode(mode);
    /// The device of a stream.
    context fn cudaStreamGetDevice(stream: CUstream, device: *mut c_int) = {
        let mut context = std::ptr::null_mut();
        cuStreamGetCtx(stream, &raw mut context).outcome()
            .and_then(|()| cuCtxPushCurrent_v2(context).outcome())
            .and_then(|()| {
                let mut found = 0;
                let code = cuCtxGetDevice(&raw mut found).outcome();
                let mut popped = std::ptr::null_mut();
                cuCtxPopCurrent_v2(&raw mut popped).outcome()?;
                code?;
                give(device, found)
            })
    };
}
