//! Rules of graphs: nodes and their dependencies, instantiation, launch, update, copies.

use crate::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) fn graph() -> CUgraph {
    let mut graph = null_mut();
    ok(cuGraphCreate(&raw mut graph, 0));
    graph
}

pub(super) fn empty(graph: CUgraph, after: &[CUgraphNode]) -> CUgraphNode {
    let mut node = null_mut();
    ok(cuGraphAddEmptyNode(&raw mut node, graph, after.as_ptr(), after.len()));
    node
}

fn set_words(ptr: CUdeviceptr, value: u32) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: ptr, value, elementSize: 4, width: 1024, height: 1, pitch: 0 }
}

/// Sets 1024 words.
pub(super) fn set_node(graph: CUgraph, after: &[CUgraphNode], ptr: CUdeviceptr, value: u32) -> CUgraphNode {
    let mut node = null_mut();
    let wanted = set_words(ptr, value);
    ok(cuGraphAddMemsetNode(&raw mut node, graph, after.as_ptr(), after.len(), &raw const wanted, current()));
    node
}

/// Copies 4096 bytes.
fn copy_node(graph: CUgraph, after: &[CUgraphNode], to: CUdeviceptr, from: CUdeviceptr) -> CUgraphNode {
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        WidthInBytes: 4096,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    };
    let mut node = null_mut();
    ok(cuGraphAddMemcpyNode(&raw mut node, graph, after.as_ptr(), after.len(), &raw const copy, current()));
    node
}

/// A kernel node that fills 1024 words.
fn fill_node(graph: CUgraph, k: &Kernels, ptr: CUdeviceptr, value: u32) -> CUgraphNode {
    let (mut ptr, mut words, mut value) = (ptr, 1024u64, value);
    let mut arguments: [*mut c_void; 3] = [(&raw mut ptr).cast(), (&raw mut words).cast(), (&raw mut value).cast()];
    let wanted = fill_parameters(k, &mut arguments);
    let mut node = null_mut();
    ok(cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, &raw const wanted));
    node
}

fn fill_parameters(k: &Kernels, arguments: &mut [*mut c_void; 3]) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: k.fill,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: arguments.as_mut_ptr(),
        ..CUDA_KERNEL_NODE_PARAMS_v2::default()
    }
}

pub(super) fn instantiate(graph: CUgraph) -> CUgraphExec {
    let mut exec = null_mut();
    ok(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
    exec
}

pub(super) fn run(exec: CUgraphExec) {
    let stream = stream();
    ok(cuGraphLaunch(exec, stream));
    sync(stream);
}

fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    ok(cuGraphGetNodes(graph, null_mut(), &raw mut count));
    let mut nodes = vec![null_mut(); count];
    ok(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    nodes
}

fn kind(node: CUgraphNode) -> CUgraphNodeType {
    let mut kind = CUgraphNodeType_enum(77);
    ok(cuGraphNodeGetType(node, &raw mut kind));
    kind
}

fn edges(graph: CUgraph) -> usize {
    let mut count = 0;
    ok(cuGraphGetEdges(graph, null_mut(), null_mut(), &raw mut count));
    count
}

fn connect(graph: CUgraph, from: CUgraphNode, to: CUgraphNode) -> CUresult {
    cuGraphAddDependencies(graph, &raw const from, &raw const to, 1)
}

fn update(exec: CUgraphExec, graph: CUgraph) -> (CUresult, CUgraphExecUpdateResult) {
    let mut info = CUgraphExecUpdateResultInfo::default();
    let code = cuGraphExecUpdate_v2(exec, graph, &raw mut info);
    (code, info.result)
}

const IF: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF;
const WHILE: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;
const SWITCH: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH;

/// A handle whose value each launch sets.
fn handle(graph: CUgraph, value: u32) -> CUgraphConditionalHandle {
    let mut handle = 0;
    ok(cuGraphConditionalHandleCreate(&raw mut handle, graph, null_mut(), value, 1));
    handle
}

fn try_condition(
    graph: CUgraph,
    handle: CUgraphConditionalHandle,
    type_: CUgraphConditionalNodeType,
    size: u32,
) -> (CUresult, CUgraphNode, Vec<CUgraph>) {
    let mut params =
        CUgraphNodeParams { type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL, ..CUgraphNodeParams::default() };
    params.__bindgen_anon_1.conditional =
        CUDA_CONDITIONAL_NODE_PARAMS { handle, type_, size, ..CUDA_CONDITIONAL_NODE_PARAMS::default() };
    let mut node = null_mut();
    let code = cuGraphAddNode_v2(&raw mut node, graph, null(), null(), 0, &raw mut params);
    let mut bodies = Vec::new();
    if code == CUresult::CUDA_SUCCESS {
        // SAFETY: the driver's array, of as many graphs as were requested.
        bodies = unsafe { std::slice::from_raw_parts(params.__bindgen_anon_1.conditional.phGraph_out, size as usize) }
            .to_vec();
    }
    (code, node, bodies)
}

/// A conditional node and its graphs.
fn condition(
    graph: CUgraph,
    handle: CUgraphConditionalHandle,
    type_: CUgraphConditionalNodeType,
    size: u32,
) -> (CUgraphNode, Vec<CUgraph>) {
    let (code, node, bodies) = try_condition(graph, handle, type_, size);
    ok(code);
    (node, bodies)
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "graph.conditional_handles",
        "cuGraphConditionalHandleCreate",
        "A graph gives handles for conditions, each another one; flags that do not exist are refused.",
        || {
            context();
            let (mut graph, mut one, mut other) = (null_mut(), 0, 0);
            ok(cuGraphCreate(&raw mut graph, 0));
            ok(cuGraphConditionalHandleCreate(&raw mut one, graph, null_mut(), 1, 1));
            ok(cuGraphConditionalHandleCreate(&raw mut other, graph, current(), 0, 0));
            assert_ne!(one, other);
            refused(cuGraphConditionalHandleCreate(&raw mut one, graph, null_mut(), 0, 8), INVALID_VALUE);
            refused(cuGraphConditionalHandleCreate(null_mut(), graph, null_mut(), 0, 0), INVALID_VALUE);
            ok(cuGraphDestroy(graph));
        },
    )
    .virtual_only(),
    rule(
        "graph.condition_if",
        "cuGraphAddNode",
        "A conditional node runs its graph if the value that each launch assigns is not zero, and what depends on it after it.",
        || {
            context();
            for (value, seen) in [(1, 7), (0, 1)] {
                let (graph, a, b) = (graph(), alloc(4096), alloc(4096));
                ok(cuMemsetD32_v2(a, 1, 1024));
                ok(cuCtxSynchronize());
                let (node, bodies) = condition(graph, handle(graph, value), IF, 1);
                set_node(bodies[0], &[], a, 7);
                copy_node(graph, &[node], b, a);
                let exec = instantiate(graph);
                for _ in 0..2 {
                    run(exec);
                    assert!(all_words(a, 1024, seen) && all_words(b, 1024, seen), "the value is {value}");
                }
                assert_eq!(kind(node), CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL);
                ok(cuGraphExecDestroy(exec));
                ok(cuGraphDestroy(graph));
            }
        },
    )
    .virtual_only(),
    rule(
        "graph.condition_switch",
        "cuGraphAddNode",
        "A conditional node of several graphs runs the one that the value counts to, or none; a loop that does not begin runs nothing.",
        || {
            context();
            for (type_, size, value, seen) in
                [(SWITCH, 3, 1, 11), (SWITCH, 3, 2, 12), (SWITCH, 3, 3, 1), (IF, 2, 0, 11), (IF, 2, 5, 10), (WHILE, 1, 0, 1)]
            {
                let (graph, a) = (graph(), alloc(4096));
                ok(cuMemsetD32_v2(a, 1, 1024));
                ok(cuCtxSynchronize());
                let (_, bodies) = condition(graph, handle(graph, value), type_, size);
                for (body, word) in bodies.iter().zip(10..) {
                    set_node(*body, &[], a, word);
                }
                run(instantiate(graph));
                assert!(all_words(a, 1024, seen), "{type_:?} of {size} with {value}");
            }
        },
    )
    .virtual_only(),
    rule(
        "graph.condition_nested",
        "cuGraphAddNode",
        "A condition may be inside another one; its handle is of the graph or of one around it.",
        || {
            context();
            let (graph, a) = (graph(), alloc(4096));
            ok(cuMemsetD32_v2(a, 1, 1024));
            ok(cuCtxSynchronize());
            let (_, outer) = condition(graph, handle(graph, 1), IF, 1);
            let (_, inner) = condition(outer[0], handle(graph, 1), IF, 1);
            set_node(inner[0], &[], a, 9);
            run(instantiate(graph));
            assert!(all_words(a, 1024, 9));
        },
    )
    .virtual_only(),
    rule(
        "graph.condition_refused",
        "cuGraphAddNode",
        "A condition needs a handle that is its own, of its graph, and as many graphs as its kind has. Such graphs are not copied.",
        || {
            context();
            let (graph, other) = (graph(), graph());
            let one = handle(graph, 1);
            for (handle, type_, size) in [
                (one, IF, 0),
                (one, IF, 3),
                (one, WHILE, 2),
                (one, SWITCH, 0),
                (one, CUgraphConditionalNodeType_enum(3), 1),
                (handle(other, 1), IF, 1),
                (77, IF, 1),
            ] {
                refused(try_condition(graph, handle, type_, size).0, INVALID_VALUE);
            }
            let mut exec = null_mut();
            let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::default();
            refused(cuGraphInstantiateWithParams(&raw mut exec, graph, &raw mut params), INVALID_VALUE);
            assert_eq!(params.result_out, CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
            let (_, bodies) = condition(graph, one, IF, 1);
            refused(try_condition(graph, one, IF, 1).0, INVALID_VALUE);
            let mut clone = null_mut();
            must_fail(cuGraphClone(&raw mut clone, graph));
            must_fail(cuGraphDestroy(bodies[0]));
            let _ = instantiate(graph);
            // A body has kernels, copies, memsets, children and conditions.
            let mut node = null_mut();
            ok(cuGraphAddEventRecordNode(&raw mut node, bodies[0], null(), 0, event()));
            must_fail(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        },
    )
    .virtual_only(),
    rule("graph.flags", "cuGraphCreate", "Flags must be zero.", || {
        init();
        let mut graph = null_mut();
        refused(cuGraphCreate(&raw mut graph, 1), INVALID_VALUE);
        refused(cuGraphCreate(null_mut(), 0), INVALID_VALUE);
    }),
    rule("graph.nodes_reported", "cuGraphGetNodes", "A graph reports its nodes and a node its type.", || {
        context();
        let graph = graph();
        let ptr = alloc(4096);
        let first = empty(graph, &[]);
        let second = set_node(graph, &[first], ptr, 1);
        let all = nodes(graph);
        assert_eq!(all.len(), 2);
        assert!(all.contains(&first) && all.contains(&second));
        assert_eq!(kind(first), CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY);
        assert_eq!(kind(second), CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET);
        ok(cuGraphDestroy(graph));
    }),
    rule("graph.roots", "cuGraphGetRootNodes", "Roots are the nodes without dependencies.", || {
        context();
        let graph = graph();
        let first = empty(graph, &[]);
        empty(graph, &[first]);
        let (mut root, mut count) = (null_mut(), 1);
        ok(cuGraphGetRootNodes(graph, &raw mut root, &raw mut count));
        assert_eq!((root, count), (first, 1));
        ok(cuGraphDestroy(graph));
    }),
    rule(
        "graph.edges_reported",
        "cuGraphGetEdges",
        "A graph reports its edges, a node what it depends on and what depends on it.",
        || {
            context();
            let graph = graph();
            let (a, b) = (empty(graph, &[]), empty(graph, &[]));
            let c = empty(graph, &[a, b]);
            assert_eq!(edges(graph), 2);
            let mut count = 0;
            ok(cuGraphNodeGetDependencies(c, null_mut(), &raw mut count));
            assert_eq!(count, 2);
            ok(cuGraphNodeGetDependentNodes(a, null_mut(), &raw mut count));
            assert_eq!(count, 1);
            ok(cuGraphDestroy(graph));
        },
    ),
    rule("graph.edge_twice", "cuGraphAddDependencies", "A dependency that exists cannot be added again.", || {
        context();
        let graph = graph();
        let a = empty(graph, &[]);
        let b = empty(graph, &[a]);
        refused(connect(graph, a, b), INVALID_VALUE);
        assert_eq!(edges(graph), 1);
        ok(cuGraphDestroy(graph));
    }),
    rule("graph.edge_to_self", "cuGraphAddDependencies", "A node cannot depend on itself.", || {
        context();
        let graph = graph();
        let a = empty(graph, &[]);
        let code = connect(graph, a, a);
        if code == CUresult::CUDA_SUCCESS {
            let mut exec = null_mut();
            must_fail(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        }
        ok(cuGraphDestroy(graph));
    }),
    rule("graph.cycle", "cuGraphInstantiate", "A graph with a cycle cannot be made executable.", || {
        context();
        let graph = graph();
        let a = empty(graph, &[]);
        let b = empty(graph, &[a]);
        let c = empty(graph, &[b]);
        let code = connect(graph, c, a);
        if code == CUresult::CUDA_SUCCESS {
            let mut exec = null_mut();
            must_fail(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        }
        ok(cuGraphDestroy(graph));
    }),
    rule("graph.foreign_node", "cuGraphAddDependencies", "Dependencies join nodes of one graph.", || {
        context();
        let (one, other) = (graph(), graph());
        let (a, b) = (empty(one, &[]), empty(other, &[]));
        refused(connect(one, a, b), INVALID_VALUE);
        let mut node = null_mut();
        refused(cuGraphAddEmptyNode(&raw mut node, one, &raw const b, 1), INVALID_VALUE);
        ok(cuGraphDestroy(one));
        ok(cuGraphDestroy(other));
    }),
    rule("graph.duplicate_dependencies", "cuGraphAddEmptyNode", "A node's dependencies are named once each.", || {
        context();
        let graph = graph();
        let a = empty(graph, &[]);
        let mut node = null_mut();
        refused(cuGraphAddEmptyNode(&raw mut node, graph, [a, a].as_ptr(), 2), INVALID_VALUE);
        ok(cuGraphDestroy(graph));
    }),
    rule("graph.remove_edge", "cuGraphRemoveDependencies", "A dependency can be removed, once.", || {
        context();
        let graph = graph();
        let a = empty(graph, &[]);
        let b = empty(graph, &[a]);
        ok(cuGraphRemoveDependencies(graph, &raw const a, &raw const b, 1));
        assert_eq!(edges(graph), 0);
        refused(cuGraphRemoveDependencies(graph, &raw const a, &raw const b, 1), INVALID_VALUE);
        ok(cuGraphDestroy(graph));
    }),
    rule("graph.destroy_node", "cuGraphDestroyNode", "A destroyed node is gone, and its edges with it.", || {
        context();
        let graph = graph();
        let a = empty(graph, &[]);
        let b = empty(graph, &[a]);
        empty(graph, &[b]);
        ok(cuGraphDestroyNode(b));
        assert_eq!((nodes(graph).len(), edges(graph)), (2, 0));
        ok(cuGraphDestroy(graph));
    }),
    rule("graph.runs_in_order", "cuGraphLaunch", "A launch runs the nodes in the order of their dependencies.", || {
        context();
        let graph = graph();
        let (a, b) = (alloc(4096), alloc(4096));
        let first = set_node(graph, &[], a, 1);
        let copy = copy_node(graph, &[first], b, a);
        set_node(graph, &[copy], a, 2);
        run(instantiate(graph));
        assert!(all_words(b, 1024, 1) && all_words(a, 1024, 2));
    }),
    rule("graph.long_chain", "cuGraphLaunch", "A chain of many nodes keeps its order.", || {
        context();
        let graph = graph();
        let ptrs: Vec<_> = (0..16).map(|_| alloc(4096)).collect();
        let mut last = set_node(graph, &[], ptrs[0], 123);
        for pair in ptrs.windows(2) {
            last = copy_node(graph, &[last], pair[1], pair[0]);
        }
        run(instantiate(graph));
        assert!(all_words(ptrs[15], 1024, 123));
    }),
    rule("graph.launched_again", "cuGraphLaunch", "An executable graph can be launched again and again.", || {
        context();
        let graph = graph();
        let ptr = alloc(4096);
        set_node(graph, &[], ptr, 7);
        let exec = instantiate(graph);
        for _ in 0..3 {
            put(ptr, &[0; 4096]);
            run(exec);
            assert!(all_words(ptr, 1024, 7));
        }
    }),
    rule("graph.in_stream_order", "cuGraphLaunch", "A launch takes its place in its stream.", || {
        context();
        let (graph, stream) = (graph(), stream());
        let (a, b) = (alloc(4096), alloc(4096));
        copy_node(graph, &[], b, a);
        let exec = instantiate(graph);
        let gate = Gate::close(stream);
        ok(cuMemsetD32Async(a, 1, 1024, stream));
        ok(cuGraphLaunch(exec, stream));
        ok(cuMemsetD32Async(a, 2, 1024, stream));
        gate.open();
        sync(stream);
        assert!(all_words(b, 1024, 1) && all_words(a, 1024, 2));
    }),
    rule("graph.outlived_by_exec", "cuGraphDestroy", "An executable graph needs its graph no more.", || {
        context();
        let graph = graph();
        let ptr = alloc(4096);
        set_node(graph, &[], ptr, 3);
        let exec = instantiate(graph);
        ok(cuGraphDestroy(graph));
        run(exec);
        assert!(all_words(ptr, 1024, 3));
        ok(cuGraphExecDestroy(exec));
    }),
    rule(
        "graph.kernel_node",
        "cuGraphAddKernelNode",
        "A kernel node keeps the values of its arguments at the time it was added.",
        || {
            context();
            let (graph, k) = (graph(), Kernels::load());
            let ptr = alloc(4096);
            let node = fill_node(graph, &k, ptr, 17);
            assert_eq!(kind(node), CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL);
            run(instantiate(graph));
            assert!(all_words(ptr, 1024, 17));
        },
    ),
    rule("graph.host_node", "cuGraphAddHostNode", "A host node calls its function at each launch, in order.", || {
        unsafe extern "C" fn read(place: *mut c_void) {
            // SAFETY: the word lives in page-locked memory and the counter behind it is leaked.
            unsafe {
                let word = *place.cast::<*const u32>();
                let seen = *place.cast::<*const AtomicU32>().add(1);
                (*seen).store(*word, Ordering::SeqCst);
            }
        }
        context();
        let (graph, k) = (graph(), Kernels::load());
        let seen: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let word: *mut u32 = pinned_as(4096);
        let places: &'static [*const c_void; 2] =
            Box::leak(Box::new([word.cast_const().cast(), std::ptr::from_ref(seen).cast()]));
        let before = fill_node(graph, &k, word as CUdeviceptr, 88);
        let host = CUDA_HOST_NODE_PARAMS { fn_: Some(read), userData: places.as_ptr().cast_mut().cast() };
        let mut node = null_mut();
        ok(cuGraphAddHostNode(&raw mut node, graph, &raw const before, 1, &raw const host));
        run(instantiate(graph));
        assert_eq!(seen.load(Ordering::SeqCst), 88);
    }),
    rule("graph.event_nodes", "cuGraphAddEventRecordNode", "An event node records its event at launch.", || {
        context();
        let (graph, event, stream) = (graph(), event(), stream());
        let k = Kernels::load();
        let mut node = null_mut();
        ok(cuGraphAddEventRecordNode(&raw mut node, graph, null(), 0, event));
        let exec = instantiate(graph);
        let gate = Gate::close(stream);
        ok(cuGraphLaunch(exec, stream));
        k.spin(stream, 1);
        refused(cuEventQuery(event), NOT_READY);
        gate.open();
        sync(stream);
        ok(cuEventQuery(event));
    }),
    rule(
        "graph.child",
        "cuGraphAddChildGraphNode",
        "A child graph runs as one node; it is a copy of the graph at that time.",
        || {
            context();
            let (child, parent) = (graph(), graph());
            let (a, b) = (alloc(4096), alloc(4096));
            set_node(child, &[], a, 5);
            let mut node = null_mut();
            ok(cuGraphAddChildGraphNode(&raw mut node, parent, null(), 0, child));
            ok(cuGraphDestroy(child));
            copy_node(parent, &[node], b, a);
            run(instantiate(parent));
            assert!(all_words(b, 1024, 5));
        },
    ),
    rule("graph.clone_is_apart", "cuGraphClone", "A clone is not changed with its original.", || {
        context();
        let original = graph();
        let node = empty(original, &[]);
        let mut clone = null_mut();
        ok(cuGraphClone(&raw mut clone, original));
        empty(original, &[node]);
        assert_eq!((nodes(original).len(), nodes(clone).len()), (2, 1));
        let mut twin = null_mut();
        ok(cuGraphNodeFindInClone(&raw mut twin, node, clone));
        assert_eq!(twin, nodes(clone)[0]);
        ok(cuGraphDestroy(original));
        assert_eq!(nodes(clone).len(), 1);
    }),
    rule(
        "graph.parameters_reported",
        "cuGraphMemsetNodeGetParams",
        "A node reports the parameters it was given.",
        || {
            context();
            let graph = graph();
            let ptr = alloc(4096);
            let node = set_node(graph, &[], ptr, 9);
            let mut got = CUDA_MEMSET_NODE_PARAMS::default();
            ok(cuGraphMemsetNodeGetParams(node, &raw mut got));
            assert_eq!((got.dst, got.value, got.elementSize, got.width), (ptr, 9, 4, 1024));
            let changed = set_words(ptr, 10);
            ok(cuGraphMemsetNodeSetParams(node, &raw const changed));
            run(instantiate(graph));
            assert!(all_words(ptr, 1024, 10));
        },
    ),
    rule(
        "graph.exec_parameters",
        "cuGraphExecKernelNodeSetParams",
        "Parameters of an executable graph change later launches and leave the graph alone.",
        || {
            context();
            let (graph, k) = (graph(), Kernels::load());
            let ptr = alloc(4096);
            let node = fill_node(graph, &k, ptr, 1);
            let exec = instantiate(graph);
            let (mut to, mut words, mut value) = (ptr, 1024u64, 2u32);
            let mut arguments: [*mut c_void; 3] =
                [(&raw mut to).cast(), (&raw mut words).cast(), (&raw mut value).cast()];
            let changed = fill_parameters(&k, &mut arguments);
            ok(cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const changed));
            run(exec);
            assert!(all_words(ptr, 1024, 2));
            run(instantiate(graph));
            assert!(all_words(ptr, 1024, 1));
        },
    ),
    rule(
        "graph.address_again",
        "cuGraphLaunch",
        "A node keeps addresses: what is allocated there at the launch is meant, whatever was there before.",
        || {
            super::pool::needs_pools();
            let (k, stream) = (Kernels::load(), stream());
            let allocate = || {
                let mut ptr = 0;
                ok(cuMemAllocAsync(&raw mut ptr, 8192, stream));
                ptr
            };
            let ptr = allocate();
            let (filled, set) = (graph(), graph());
            fill_node(filled, &k, ptr, 7);
            set_node(set, &[], ptr, 9);
            let (filled, set) = (instantiate(filled), instantiate(set));
            ok(cuMemFreeAsync(ptr, stream));
            if allocate() != ptr {
                skip("the address is not given again");
            }
            ok(cuStreamSynchronize(stream));
            run(filled);
            assert!(all_words(ptr, 1024, 7));
            run(set);
            assert!(all_words(ptr, 1024, 9));
        },
    ),
    rule(
        "graph.update",
        "cuGraphExecUpdate",
        "An executable graph takes over the parameters of a graph of the same shape.",
        || {
            context();
            let (one, other) = (graph(), graph());
            let ptr = alloc(4096);
            set_node(one, &[], ptr, 1);
            set_node(other, &[], ptr, 2);
            let exec = instantiate(one);
            let (code, result) = update(exec, other);
            ok(code);
            assert_eq!(result, CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS);
            run(exec);
            assert!(all_words(ptr, 1024, 2));
        },
    ),
    rule(
        "graph.update_other_shape",
        "cuGraphExecUpdate",
        "A graph of another shape is refused, and the executable graph stays as it was.",
        || {
            context();
            let (one, other) = (graph(), graph());
            let ptr = alloc(4096);
            set_node(one, &[], ptr, 1);
            let first = set_node(other, &[], ptr, 2);
            set_node(other, &[first], ptr, 3);
            let exec = instantiate(one);
            let (code, result) = update(exec, other);
            refused(code, GRAPH_EXEC_UPDATE_FAILURE);
            assert_eq!(result, CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
            run(exec);
            assert!(all_words(ptr, 1024, 1));
        },
    ),
    rule("graph.update_other_type", "cuGraphExecUpdate", "A node of another type is refused.", || {
        context();
        let (one, other) = (graph(), graph());
        let ptr = alloc(4096);
        set_node(one, &[], ptr, 1);
        empty(other, &[]);
        let (code, result) = update(instantiate(one), other);
        refused(code, GRAPH_EXEC_UPDATE_FAILURE);
        assert_eq!(result, CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    }),
    rule("graph.disabled_node", "cuGraphNodeSetEnabled", "A disabled node does nothing at launch.", || {
        context();
        let graph = graph();
        let ptr = alloc(4096);
        put(ptr, &[0; 4096]);
        let node = set_node(graph, &[], ptr, 1);
        let exec = instantiate(graph);
        ok(cuGraphNodeSetEnabled(exec, node, 0));
        run(exec);
        assert!(all_words(ptr, 1024, 0));
        ok(cuGraphNodeSetEnabled(exec, node, 1));
        run(exec);
        assert!(all_words(ptr, 1024, 1));
    }),
    rule("graph.empty_launch", "cuGraphLaunch", "A graph of nothing can be launched.", || {
        context();
        run(instantiate(graph()));
    }),
    rule("graph.needs_arguments", "cuGraphInstantiate", "NULL for graph or result is an invalid value.", || {
        context();
        let graph = graph();
        let mut exec = null_mut();
        refused(cuGraphInstantiateWithFlags(null_mut(), graph, 0), INVALID_VALUE);
        refused_by_any(cuGraphInstantiateWithFlags(&raw mut exec, null_mut(), 0), &[INVALID_VALUE, INVALID_HANDLE]);
        must_fail(cuGraphLaunch(null_mut(), stream()));
    }),
    rule(
        "graph.launch_under_capture",
        "cuGraphLaunch",
        "A launch into a capturing stream is captured as a child graph.",
        || {
            context();
            let (graph, stream) = (graph(), stream());
            let ptr = alloc(4096);
            put(ptr, &[0; 4096]);
            set_node(graph, &[], ptr, 1);
            let exec = instantiate(graph);
            super::capture::begin(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL);
            ok(cuGraphLaunch(exec, stream));
            let captured = super::capture::end(stream);
            assert_eq!(nodes(captured).len(), 1);
            assert_eq!(kind(nodes(captured)[0]), CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH);
            assert!(all_words(ptr, 1024, 0), "ran under capture");
            run(instantiate(captured));
            assert!(all_words(ptr, 1024, 1));
        },
    ),
];
