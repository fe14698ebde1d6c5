//! Graphs: events that a graph records are recorded at every launch, where weir does not see it.

use crate::alloc::{self, events};
use crate::process::guard::Call;
use weir_cuda::*;

pub(crate) type AddNode = unsafe extern "C-unwind" fn(
    *mut CUgraphNode,
    CUgraph,
    *const CUgraphNode,
    usize,
    *mut CUgraphNodeParams,
) -> CUresult;
pub(crate) type AddNodeWithEdges = unsafe extern "C-unwind" fn(
    *mut CUgraphNode,
    CUgraph,
    *const CUgraphNode,
    *const CUgraphEdgeData,
    usize,
    *mut CUgraphNodeParams,
) -> CUresult;
pub(crate) type AddRecord =
    unsafe extern "C-unwind" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUevent) -> CUresult;
pub(crate) type SetEvent = unsafe extern "C-unwind" fn(CUgraphNode, CUevent) -> CUresult;
pub(crate) type SetExecEvent = unsafe extern "C-unwind" fn(CUgraphExec, CUgraphNode, CUevent) -> CUresult;
pub(crate) type SetParameters = unsafe extern "C-unwind" fn(CUgraphNode, *mut CUgraphNodeParams) -> CUresult;
pub(crate) type SetExecParameters =
    unsafe extern "C-unwind" fn(CUgraphExec, CUgraphNode, *mut CUgraphNodeParams) -> CUresult;

/// Notes the event that a node records, before the driver can launch it.
unsafe fn note(parameters: *const CUgraphNodeParams) {
    // SAFETY: null or the caller's own parameters.
    if let Some(node) = unsafe { parameters.as_ref() }
        && node.type_ == CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD
        && alloc::on()
    {
        // SAFETY: the type says which member of the union is meant.
        events::distrust(unsafe { node.__bindgen_anon_1.eventRecord.event } as u64);
    }
}

fn note_event(event: CUevent) {
    if alloc::on() {
        events::distrust(event as u64);
    }
}

/// `cuGraphAddNode`.
pub(crate) unsafe fn add_node(
    call: &Call<AddNode, CUresult>,
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *mut CUgraphNodeParams,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe {
        note(parameters);
        call.forward(|real| real(node, graph, dependencies, count, parameters))
    }
}

/// `cuGraphAddNode`, later versions.
pub(crate) unsafe fn add_node_with_edges(
    call: &Call<AddNodeWithEdges, CUresult>,
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    parameters: *mut CUgraphNodeParams,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe {
        note(parameters);
        call.forward(|real| real(node, graph, dependencies, edges, count, parameters))
    }
}

/// `cuGraphAddEventRecordNode`.
pub(crate) unsafe fn add_record(
    call: &Call<AddRecord, CUresult>,
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> CUresult {
    note_event(event);
    // SAFETY: the caller's own arguments.
    call.forward(|real| unsafe { real(node, graph, dependencies, count, event) })
}

/// `cuGraphEventRecordNodeSetEvent`.
pub(crate) unsafe fn set_event(call: &Call<SetEvent, CUresult>, node: CUgraphNode, event: CUevent) -> CUresult {
    note_event(event);
    // SAFETY: the caller's own arguments.
    call.forward(|real| unsafe { real(node, event) })
}

/// `cuGraphExecEventRecordNodeSetEvent`.
pub(crate) unsafe fn set_exec_event(
    call: &Call<SetExecEvent, CUresult>,
    graph: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> CUresult {
    note_event(event);
    // SAFETY: the caller's own arguments.
    call.forward(|real| unsafe { real(graph, node, event) })
}

/// `cuGraphNodeSetParams`.
pub(crate) unsafe fn set_parameters(
    call: &Call<SetParameters, CUresult>,
    node: CUgraphNode,
    parameters: *mut CUgraphNodeParams,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe {
        note(parameters);
        call.forward(|real| real(node, parameters))
    }
}

/// `cuGraphExecNodeSetParams`.
pub(crate) unsafe fn set_exec_parameters(
    call: &Call<SetExecParameters, CUresult>,
    graph: CUgraphExec,
    node: CUgraphNode,
    parameters: *mut CUgraphNodeParams,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    unsafe {
        note(parameters);
        call.forward(|real| real(graph, node, parameters))
    }
}
