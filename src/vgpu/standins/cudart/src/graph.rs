//! Graphs. Handles are the driver's.

use crate::copy::sides;
use crate::error::{Outcome, R};
use std::ptr::null_mut;
use weir_cuda::*;
use weir_vgpu_client::*;

runtime! {
    /// Makes a graph.
    context fn cudaGraphCreate(graph: *mut CUgraph, flags: c_uint) = cuGraphCreate(graph, flags);
    /// Destroys a graph.
    context fn cudaGraphDestroy(graph: CUgraph) = cuGraphDestroy(graph);
    /// Copies a graph.
    context fn cudaGraphClone(clone: *mut CUgraph, graph: CUgraph) = cuGraphClone(clone, graph);
    /// Adds a node that does nothing.
    context fn cudaGraphAddEmptyNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
    ) = cuGraphAddEmptyNode(node, graph, after, count);
    /// Adds a graph as a node.
    context fn cudaGraphAddChildGraphNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph,
    ) = cuGraphAddChildGraphNode(node, graph, after, count, child);
    /// The graph of such a node.
    context fn cudaGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) =
        cuGraphChildGraphNodeGetGraph(node, graph);
    /// Adds a host function.
    context fn cudaGraphAddHostNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        parameters: *const CUDA_HOST_NODE_PARAMS,
    ) = cuGraphAddHostNode(node, graph, after, count, parameters);
    /// Adds a copy.
    context fn cudaGraphAddMemcpyNode1D(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, kind: c_uint,
    ) = copy(to, from, bytes, kind)
        .and_then(|copy| cuGraphAddMemcpyNode(node, graph, after, count, &raw const copy, current()?).outcome());
    /// Changes a copy.
    context fn cudaGraphMemcpyNodeSetParams1D(
        node: CUgraphNode, to: CUdeviceptr, from: CUdeviceptr, bytes: usize, kind: c_uint,
    ) = copy(to, from, bytes, kind).and_then(|copy| cuGraphMemcpyNodeSetParams(node, &raw const copy).outcome());
    /// Changes a copy in an executable graph.
    context fn cudaGraphExecMemcpyNodeSetParams1D(
        exec: CUgraphExec, node: CUgraphNode, to: CUdeviceptr, from: CUdeviceptr, bytes: usize, kind: c_uint,
    ) = copy(to, from, bytes, kind)
        .and_then(|copy| cuGraphExecMemcpyNodeSetParams(exec, node, &raw const copy, current()?).outcome());
    /// Adds a fill; its parameters are laid out as the driver's.
    context fn cudaGraphAddMemsetNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        parameters: *const CUDA_MEMSET_NODE_PARAMS,
    ) = current().and_then(|ctx| cuGraphAddMemsetNode(node, graph, after, count, parameters, ctx).outcome());
    /// Changes a fill.
    context fn cudaGraphMemsetNodeSetParams(node: CUgraphNode, parameters: *const CUDA_MEMSET_NODE_PARAMS) =
        cuGraphMemsetNodeSetParams(node, parameters);
    /// Changes a fill in an executable graph.
    context fn cudaGraphExecMemsetNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, parameters: *const CUDA_MEMSET_NODE_PARAMS,
    ) = current().and_then(|ctx| cuGraphExecMemsetNodeSetParams(exec, node, parameters, ctx).outcome());
    /// The nodes of a graph.
    context fn cudaGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) =
        cuGraphGetNodes(graph, nodes, count);
    /// The nodes that wait for none.
    context fn cudaGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) =
        cuGraphGetRootNodes(graph, nodes, count);
    /// What a node does.
    context fn cudaGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) = cuGraphNodeGetType(node, kind);
    /// What a node waits for.
    context fn cudaGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) =
        cuGraphNodeGetDependencies(node, nodes, count);
    /// What waits for a node.
    context fn cudaGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) =
        cuGraphNodeGetDependentNodes(node, nodes, count);
    /// Lets nodes wait for others.
    context fn cudaGraphAddDependencies(
        graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize,
    ) = cuGraphAddDependencies(graph, from, to, count);
    /// Removes a node.
    context fn cudaGraphDestroyNode(node: CUgraphNode) = cuGraphDestroyNode(node);
    /// Makes a graph executable.
    context fn cudaGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) =
        cuGraphInstantiateWithFlags(exec, graph, flags);
    /// The older name of the same.
    context fn cudaGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) =
        cuGraphInstantiateWithFlags(exec, graph, flags);
    /// Changes an executable graph.
    context fn cudaGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, result: *mut CUgraphExecUpdateResultInfo) =
        cuGraphExecUpdate_v2(exec, graph, result);
    /// Brings an executable graph to the device.
    context fn cudaGraphUpload(exec: CUgraphExec, stream: CUstream) = cuGraphUpload(exec, stream);
    /// Runs an executable graph in a stream.
    context fn cudaGraphLaunch(exec: CUgraphExec, stream: CUstream) = cuGraphLaunch(exec, stream);
    /// Destroys an executable graph.
    context fn cudaGraphExecDestroy(exec: CUgraphExec) = cuGraphExecDestroy(exec);
    /// Writes a graph as a drawing.
    context fn cudaGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint) =
        cuGraphDebugDotPrint(graph, path, flags);
    /// Makes an object that a graph keeps alive.
    bare fn cudaUserObjectCreate(
        object: *mut CUuserObject, pointer: *mut c_void, destroy: CUhostFn, count: c_uint, flags: c_uint,
    ) = cuUserObjectCreate(object, pointer, destroy, count, flags);
    /// Keeps it.
    bare fn cudaUserObjectRetain(object: CUuserObject, count: c_uint) = cuUserObjectRetain(object, count);
    /// Lets it go.
    bare fn cudaUserObjectRelease(object: CUuserObject, count: c_uint) = cuUserObjectRelease(object, count);
    /// Lets a graph keep it.
    bare fn cudaGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) =
        cuGraphRetainUserObject(graph, object, count, flags);
    /// Lets a graph let it go.
    bare fn cudaGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) =
        cuGraphReleaseUserObject(graph, object, count);
    /// Memory of the graphs of a device.
    bare fn cudaDeviceGraphMemTrim(device: c_int) = cuDeviceGraphMemTrim(device);
}

fn current() -> R<CUcontext> {
    let mut context = null_mut();
    // SAFETY: a place for the result.
    unsafe { cuCtxGetCurrent(&raw mut context) }.outcome()?;
    Ok(context)
}

fn copy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, kind: c_uint) -> R<CUDA_MEMCPY3D> {
    let (source, destination) = sides(kind)?;
    Ok(CUDA_MEMCPY3D {
        srcMemoryType: source,
        srcHost: from as *const c_void,
        srcDevice: from,
        srcPitch: bytes,
        dstMemoryType: destination,
        dstHost: to as *mut c_void,
        dstDevice: to,
        dstPitch: bytes,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    })
}
