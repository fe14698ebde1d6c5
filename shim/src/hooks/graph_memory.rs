//! Memory of graphs: allocation nodes take it when their graph is launched or uploaded, and it is charged then.

use crate::alloc;
use crate::cap::graphs::Need;
use crate::cap::{self, measured};
use crate::driver::stream::per_thread;
use crate::driver::{capture, work};
use crate::process::guard::Call;
use crate::record::{self, graphs};
use core::ffi::{c_char, c_ulonglong};
use weir_cuda::*;

pub(crate) type Instantiate =
    unsafe extern "C-unwind" fn(*mut CUgraphExec, CUgraph, *mut CUgraphNode, *mut c_char, usize) -> CUresult;
pub(crate) type InstantiateWithFlags = unsafe extern "C-unwind" fn(*mut CUgraphExec, CUgraph, c_ulonglong) -> CUresult;
pub(crate) type InstantiateWithParams =
    unsafe extern "C-unwind" fn(*mut CUgraphExec, CUgraph, *mut CUDA_GRAPH_INSTANTIATE_PARAMS) -> CUresult;
pub(crate) type OfExec = unsafe extern "C-unwind" fn(CUgraphExec) -> CUresult;
pub(crate) type InStream = unsafe extern "C-unwind" fn(CUgraphExec, CUstream) -> CUresult;
pub(crate) type OfDevice = unsafe extern "C-unwind" fn(CUdevice) -> CUresult;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
const UPLOAD: c_ulonglong = 2;

/// A call that takes what a graph allocates, unless it only becomes part of a capture.
fn taking(needs: &[Need], stream: CUstream, variant: Variant, call: impl FnOnce() -> CUresult) -> CUresult {
    if needs.is_empty() || capture::captured(stream, per_thread(variant, stream)) {
        return call();
    }
    cap::graphs::launch(needs, stream, per_thread(variant, stream), call)
}

/// Notes what an instantiated graph will take.
unsafe fn noting(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    upload: Option<(CUstream, Variant)>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let needs = cap::graphs::needs_of(graph, record::open().is_some());
    let result = match upload {
        Some((stream, variant)) => taking(&needs, stream, variant, call),
        None => call(),
    };
    if result == CUresult::CUDA_SUCCESS && !needs.is_empty() && !exec.is_null() {
        // SAFETY: after success the handle is there.
        let exec = unsafe { *exec } as u64;
        let takes: Vec<(i32, u64)> = needs.iter().map(|of| (of.ordinal, of.bytes)).filter(|of| of.1 > 0).collect();
        graphs::instantiated(exec, &takes);
        cap::graphs::instantiated(exec, needs);
        if upload.is_some() {
            graphs::launched(exec);
        }
    }
    result
}

/// `cuGraphInstantiate`, the first two versions.
pub(crate) unsafe fn instantiate(
    call: &Call<Instantiate, CUresult>,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    size: usize,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe { noting(exec, graph, None, || call.forward(|real| real(exec, graph, node, log, size))) }
}

/// `cuGraphInstantiateWithFlags`.
pub(crate) unsafe fn instantiate_with_flags(
    call: &Call<InstantiateWithFlags, CUresult>,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe { noting(exec, graph, None, || alloc::with_room(|| call.forward(|real| real(exec, graph, flags)))) }
}

/// `cuGraphInstantiateWithParams`.
pub(crate) unsafe fn instantiate_with_params(
    call: &Call<InstantiateWithParams, CUresult>,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> CUresult {
    // SAFETY: null or the caller's own parameters.
    let upload = unsafe { parameters.as_ref() }.filter(|p| p.flags & UPLOAD != 0);
    let upload = upload.map(|p| (p.hUploadStream, call.variant));
    // SAFETY: the caller's own arguments.
    unsafe { noting(exec, graph, upload, || alloc::with_room(|| call.forward(|real| real(exec, graph, parameters)))) }
}

/// `cuGraphExecDestroy`.
pub(crate) unsafe fn destroy(call: &Call<OfExec, CUresult>, exec: CUgraphExec) -> CUresult {
    // Before the driver can give the handle to another graph in another thread.
    let (takes, recorded) = (cap::graphs::exec_leaves(exec as u64), graphs::exec_leaves(exec as u64));
    // SAFETY: the caller's own argument.
    let result = call.forward(|real| unsafe { real(exec) });
    if result != CUresult::CUDA_SUCCESS {
        cap::graphs::instantiated(exec as u64, takes);
        graphs::stays(exec as u64, recorded);
    }
    result
}

/// `cuGraphLaunch`: queues work, and takes what the graph allocates.
pub(crate) unsafe fn launch(call: &Call<InStream, CUresult>, exec: CUgraphExec, stream: CUstream) -> CUresult {
    let needs = cap::graphs::needs_of_exec(exec as u64);
    work::saw_stream(stream);
    let launch = || {
        let Some(_queueing) = work::enter() else { return work::REFUSED };
        // SAFETY: the caller's own arguments.
        call.forward(|real| unsafe { real(exec, stream) })
    };
    let result = taking(&needs, stream, call.variant, || alloc::with_room(launch));
    graphs::launched(exec as u64);
    result
}

/// `cuGraphUpload`: may take it before.
pub(crate) unsafe fn upload(call: &Call<InStream, CUresult>, exec: CUgraphExec, stream: CUstream) -> CUresult {
    let needs = cap::graphs::needs_of_exec(exec as u64);
    // SAFETY: the caller's own arguments.
    let upload = || call.forward(|real| unsafe { real(exec, stream) });
    let result = taking(&needs, stream, call.variant, upload);
    graphs::launched(exec as u64);
    result
}

/// `cuDeviceGraphMemTrim`.
pub(crate) unsafe fn trim(call: &Call<OfDevice, CUresult>, device: CUdevice) -> CUresult {
    // SAFETY: the caller's own argument.
    let result = call.forward(|real| unsafe { real(device) });
    measured::refresh_at(device);
    graphs::changed(device);
    result
}
