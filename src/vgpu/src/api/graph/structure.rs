//! Graphs and the edges between their nodes.

use super::{edges, graph_of, node_of, read, read_all, return_list};
use crate::api::{need, put};
use crate::error::*;
use crate::graph::{Edge, Handle, LOSSY_QUERY, Task};
use crate::state::{State, driver};
use std::ffi::CStr;
use std::fmt::Write;
use weir_cuda::*;

pub(crate) unsafe fn cuGraphCreate(ph_graph: *mut CUgraph, flags: c_uint) -> R {
    need(ph_graph)?;
    let mut s = driver()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let graph = s.make_graph();
    // SAFETY: checked above.
    unsafe { put(ph_graph, graph as CUgraph) };
    Ok(())
}

/// A handle for a conditional node.
pub(crate) unsafe fn cuGraphConditionalHandleCreate(
    p_handle_out: *mut CUgraphConditionalHandle,
    h_graph: CUgraph,
    ctx: CUcontext,
    default_launch_value: c_uint,
    flags: c_uint,
) -> R {
    const ASSIGN_DEFAULT: c_uint = 1;
    need(p_handle_out)?;
    let mut s = driver()?;
    let graph = graph_of(&s, h_graph)?;
    s.context_or_current(ctx)?;
    // A default has no meaning unless it is to be assigned.
    if flags & !ASSIGN_DEFAULT != 0 || (flags == 0 && default_launch_value != 0) {
        return Err(INVALID_VALUE);
    }
    let handle = s.fresh();
    s.graphs.conditions.insert(handle, Handle { graph, default: default_launch_value, used: false });
    // SAFETY: checked above.
    unsafe { put(p_handle_out, handle) };
    Ok(())
}

pub(crate) unsafe fn cuGraphDestroy(h_graph: CUgraph) -> R {
    driver()?.destroy_graph(h_graph as u64)
}

pub(crate) unsafe fn cuGraphClone(ph_graph_clone: *mut CUgraph, original_graph: CUgraph) -> R {
    need(ph_graph_clone)?;
    let mut s = driver()?;
    let original = graph_of(&s, original_graph)?;
    let clone = s.clone_graph(original)?;
    // SAFETY: checked above.
    unsafe { put(ph_graph_clone, clone as CUgraph) };
    Ok(())
}

pub(crate) unsafe fn cuGraphGetNodes(h_graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize) -> R {
    let s = driver()?;
    let graph = s.graph(h_graph as u64)?;
    // SAFETY: the caller's places.
    unsafe { return_list(&graph.nodes, nodes, num_nodes) }
}

pub(crate) unsafe fn cuGraphGetRootNodes(
    h_graph: CUgraph,
    root_nodes: *mut CUgraphNode,
    num_root_nodes: *mut usize,
) -> R {
    let s = driver()?;
    let mut roots = s.graph(h_graph as u64)?.nodes.clone();
    roots.retain(|&n| s.node(n).is_ok_and(|n| n.edges.is_empty()));
    // SAFETY: the caller's places.
    unsafe { return_list(&roots, root_nodes, num_root_nodes) }
}

/// Returns edges: one end or both, and their data. Data that cannot be returned are not dropped silently.
///
/// # Safety
/// Every place is NULL or has as many entries as `count` says.
unsafe fn return_edges(
    list: &[(Edge, u64)],
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> R {
    let wanted = !from.is_null() || !to.is_null();
    if wanted && data.is_null() && list.iter().any(|(e, _)| !e.is_plain()) {
        return Err(LOSSY_QUERY);
    }
    // SAFETY: as promised.
    let room = unsafe { read(count.cast_const())? };
    let sources: Vec<u64> = list.iter().map(|(e, _)| e.from).collect();
    let targets: Vec<u64> = list.iter().map(|&(_, to)| to).collect();
    for (ends, place) in [(&sources, from), (&targets, to)] {
        if !place.is_null() || !wanted {
            // SAFETY: as promised; `count` keeps what it was for the second end.
            unsafe {
                count.write(room);
                return_list(ends, place, count)?;
            }
        }
    }
    if !data.is_null() {
        for at in 0..room {
            let one = list.get(at).map_or_else(|| Edge::plain(0).data(), |(e, _)| e.data());
            // SAFETY: as promised.
            unsafe { data.add(at).write(one) };
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuGraphGetEdges_v2(
    h_graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    edge_data: *mut CUgraphEdgeData,
    num_edges: *mut usize,
) -> R {
    let s = driver()?;
    // Both ends are wanted, or only their number.
    if from.is_null() != to.is_null() || (from.is_null() && !edge_data.is_null()) {
        return Err(INVALID_VALUE);
    }
    let list = s.edges(h_graph as u64)?;
    // SAFETY: the caller's places.
    unsafe { return_edges(&list, from, to, edge_data, num_edges) }
}

pub(crate) unsafe fn cuGraphGetEdges(
    h_graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    num_edges: *mut usize,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuGraphGetEdges_v2(h_graph, from, to, std::ptr::null_mut(), num_edges) }
}

pub(crate) unsafe fn cuGraphNodeGetDependencies_v2(
    h_node: CUgraphNode,
    dependencies: *mut CUgraphNode,
    edge_data: *mut CUgraphEdgeData,
    num_dependencies: *mut usize,
) -> R {
    let s = driver()?;
    if dependencies.is_null() && !edge_data.is_null() {
        return Err(INVALID_VALUE);
    }
    let node = h_node as u64;
    let list: Vec<(Edge, u64)> = s.node(node)?.edges.iter().map(|&e| (e, node)).collect();
    // SAFETY: the caller's places.
    unsafe { return_edges(&list, dependencies, std::ptr::null_mut(), edge_data, num_dependencies) }
}

pub(crate) unsafe fn cuGraphNodeGetDependencies(
    h_node: CUgraphNode,
    dependencies: *mut CUgraphNode,
    num_dependencies: *mut usize,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuGraphNodeGetDependencies_v2(h_node, dependencies, std::ptr::null_mut(), num_dependencies) }
}

pub(crate) unsafe fn cuGraphNodeGetDependentNodes_v2(
    h_node: CUgraphNode,
    dependent_nodes: *mut CUgraphNode,
    edge_data: *mut CUgraphEdgeData,
    num_dependent_nodes: *mut usize,
) -> R {
    let s = driver()?;
    if dependent_nodes.is_null() && !edge_data.is_null() {
        return Err(INVALID_VALUE);
    }
    let node = h_node as u64;
    let mut list = s.edges(s.node(node)?.graph)?;
    list.retain(|(e, _)| e.from == node);
    // SAFETY: the caller's places.
    unsafe { return_edges(&list, std::ptr::null_mut(), dependent_nodes, edge_data, num_dependent_nodes) }
}

pub(crate) unsafe fn cuGraphNodeGetDependentNodes(
    h_node: CUgraphNode,
    dependent_nodes: *mut CUgraphNode,
    num_dependent_nodes: *mut usize,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuGraphNodeGetDependentNodes_v2(h_node, dependent_nodes, std::ptr::null_mut(), num_dependent_nodes) }
}

/// # Safety
/// Each array is NULL or has `count` entries.
unsafe fn pairs(
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> R<Vec<(Edge, u64)>> {
    // SAFETY: as promised.
    let (from, to) = unsafe { (edges(from, data, count)?, read_all(to, count)?) };
    Ok(from.into_iter().zip(to.into_iter().map(|n| n as u64)).collect())
}

pub(crate) unsafe fn cuGraphAddDependencies_v2(
    h_graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    edge_data: *const CUgraphEdgeData,
    num_dependencies: usize,
) -> R {
    let mut s = driver()?;
    let graph = graph_of(&s, h_graph)?;
    // SAFETY: the caller's arrays.
    let pairs = unsafe { pairs(from, to, edge_data, num_dependencies)? };
    s.add_edges(graph, &pairs)
}

pub(crate) unsafe fn cuGraphAddDependencies(
    h_graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    num_dependencies: usize,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuGraphAddDependencies_v2(h_graph, from, to, std::ptr::null(), num_dependencies) }
}

pub(crate) unsafe fn cuGraphRemoveDependencies_v2(
    h_graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    edge_data: *const CUgraphEdgeData,
    num_dependencies: usize,
) -> R {
    let mut s = driver()?;
    let graph = graph_of(&s, h_graph)?;
    // SAFETY: the caller's arrays.
    let pairs = unsafe { pairs(from, to, edge_data, num_dependencies)? };
    s.remove_edges(graph, &pairs)
}

pub(crate) unsafe fn cuGraphRemoveDependencies(
    h_graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    num_dependencies: usize,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuGraphRemoveDependencies_v2(h_graph, from, to, std::ptr::null(), num_dependencies) }
}

pub(crate) unsafe fn cuGraphNodeGetType(h_node: CUgraphNode, type_: *mut CUgraphNodeType) -> R {
    need(type_)?;
    let s = driver()?;
    // SAFETY: checked above.
    unsafe { put(type_, s.node(h_node as u64)?.task.kind()) };
    Ok(())
}

pub(crate) unsafe fn cuGraphNodeFindInClone(
    ph_node: *mut CUgraphNode,
    h_original_node: CUgraphNode,
    h_cloned_graph: CUgraph,
) -> R {
    need(ph_node)?;
    let s = driver()?;
    let clone = graph_of(&s, h_cloned_graph)?;
    let twin = s.find_in_clone(h_original_node as u64, clone)?;
    // SAFETY: checked above.
    unsafe { put(ph_node, twin as CUgraphNode) };
    Ok(())
}

pub(crate) unsafe fn cuGraphDestroyNode(h_node: CUgraphNode) -> R {
    driver()?.destroy_node(h_node as u64)
}

pub(crate) unsafe fn cuGraphNodeGetContainingGraph(h_node: CUgraphNode, ph_graph: *mut CUgraph) -> R {
    need(ph_graph)?;
    let s = driver()?;
    // SAFETY: checked above.
    unsafe { put(ph_graph, s.node(h_node as u64)?.graph as CUgraph) };
    Ok(())
}

pub(crate) unsafe fn cuGraphNodeGetLocalId(h_node: CUgraphNode, node_id: *mut c_uint) -> R {
    need(node_id)?;
    let s = driver()?;
    // SAFETY: checked above.
    unsafe { put(node_id, s.node(h_node as u64)?.local) };
    Ok(())
}

pub(crate) unsafe fn cuGraphNodeGetToolsId(h_node: CUgraphNode, node_id: *mut c_ulonglong) -> R {
    need(node_id)?;
    let s = driver()?;
    let node = s.node(h_node as u64)?;
    let id = u64::from(s.graph(node.graph)?.id) << 32 | u64::from(node.local);
    // SAFETY: checked above.
    unsafe { put(node_id, id) };
    Ok(())
}

pub(crate) unsafe fn cuGraphGetId(h_graph: CUgraph, graph_id: *mut c_uint) -> R {
    need(graph_id)?;
    let s = driver()?;
    // SAFETY: checked above.
    unsafe { put(graph_id, s.graph(h_graph as u64)?.id) };
    Ok(())
}

pub(crate) unsafe fn cuGraphDebugDotPrint(h_graph: CUgraph, path: *const c_char, flags: c_uint) -> R {
    let s = driver()?;
    let graph = graph_of(&s, h_graph)?;
    if path.is_null() || flags & !0xffff != 0 {
        return Err(INVALID_VALUE);
    }
    let mut text = String::from("digraph dot {\n");
    dot(&s, graph, &mut text)?;
    text.push_str("}\n");
    // SAFETY: the caller's string, not NULL.
    let path = unsafe { CStr::from_ptr(path) }.to_str().map_err(|_| INVALID_VALUE)?;
    std::fs::write(path, text).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
}

/// The nodes and edges of a graph, its children as clusters, in the language of Graphviz.
fn dot(s: &State, graph: u64, text: &mut String) -> R {
    let known = s.graph(graph)?;
    let _ = writeln!(text, "subgraph cluster_{} {{\nlabel=\"graph_{}\";", known.id, known.id);
    let name = |node: u64| -> R<String> {
        let node = s.node(node)?;
        Ok(format!("\"graph_{}_node_{}\"", s.graph(node.graph)?.id, node.local))
    };
    for &handle in &known.nodes {
        let node = s.node(node_of(s, handle as CUgraphNode)?)?;
        let _ = writeln!(text, "{} [label=\"{}\"];", name(handle)?, word(&node.task));
        for edge in &node.edges {
            let _ = writeln!(text, "{} -> {};", name(edge.from)?, name(handle)?);
        }
        for inner in node.task.graphs() {
            dot(s, *inner, text)?;
        }
    }
    text.push_str("}\n");
    Ok(())
}

fn word(task: &Task) -> String {
    match task {
        Task::Kernel(p) => p.launch.entry.name.to_string_lossy().into_owned(),
        Task::Copy(p) => {
            format!("MEMCPY {} bytes", p.get().WidthInBytes * p.get().Height.max(1) * p.get().Depth.max(1))
        }
        Task::Set(p) => format!("MEMSET {:#x}", p.dst),
        Task::Host(..) => "HOST".to_owned(),
        Task::Child(_) => "GRAPH".to_owned(),
        Task::Empty => "EMPTY".to_owned(),
        Task::Wait(_) => "EVENT_WAIT".to_owned(),
        Task::Record(_) => "EVENT_RECORD".to_owned(),
        Task::Alloc(p) => format!("MEM_ALLOC {:#x} {} bytes", p.addr, p.size),
        Task::Free(addr) => format!("MEM_FREE {addr:#x}"),
        Task::Batch => "BATCH_MEM_OP".to_owned(),
        Task::Conditional(_) => "CONDITIONAL".to_owned(),
    }
}
