//! Events. Handles are the driver's.

use weir_cuda::*;
use weir_vgpu_client::*;

runtime! {
    /// Makes an event.
    context fn cudaEventCreate(event: *mut CUevent) = cuEventCreate(event, 0);
    /// Makes an event with flags.
    context fn cudaEventCreateWithFlags(event: *mut CUevent, flags: c_uint) = cuEventCreate(event, flags);
    /// Destroys an event.
    context fn cudaEventDestroy(event: CUevent) = cuEventDestroy_v2(event);
    /// Records an event in a stream.
    context fn cudaEventRecord(event: CUevent, stream: CUstream) = cuEventRecord(event, stream);
    /// Records an event in a stream, with flags.
    context fn cudaEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) =
        cuEventRecordWithFlags(event, stream, flags);
    /// Whether an event has happened.
    context fn cudaEventQuery(event: CUevent) = cuEventQuery(event);
    /// Waits for an event.
    context fn cudaEventSynchronize(event: CUevent) = cuEventSynchronize(event);
    /// The time between two events, in milliseconds.
    context fn cudaEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) =
        cuEventElapsedTime(milliseconds, start, end);
    /// Makes a handle with which another process opens an event.
    context fn cudaIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent) = cuIpcGetEventHandle(handle, event);
    /// Opens another process's event.
    context fn cudaIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle) =
        cuIpcOpenEventHandle(event, handle);
}
