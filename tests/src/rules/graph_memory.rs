//! Rules of memory that graphs allocate and free by themselves.

use super::graph::{empty, graph, instantiate, run, set_node};
use super::pool::properties;
use crate::prelude::*;

/// Adds a node that allocates `bytes`.
fn alloc_node(graph: CUgraph, bytes: usize) -> (CUgraphNode, CUdeviceptr) {
    let mut wanted = CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: properties(0),
        bytesize: bytes,
        ..CUDA_MEM_ALLOC_NODE_PARAMS::default()
    };
    let mut node = null_mut();
    ok(cuGraphAddMemAllocNode(&raw mut node, graph, null(), 0, &raw mut wanted));
    assert_ne!(wanted.dptr, 0);
    (node, wanted.dptr)
}

fn free_node(graph: CUgraph, after: CUgraphNode, ptr: CUdeviceptr) -> CUgraphNode {
    let mut node = null_mut();
    ok(cuGraphAddMemFreeNode(&raw mut node, graph, &raw const after, 1, ptr));
    node
}

/// A graph that allocates and does not free.
fn leaving() -> (CUgraph, CUdeviceptr) {
    let graph = graph();
    let (node, ptr) = alloc_node(graph, 4096);
    set_node(graph, &[node], ptr, 4);
    (graph, ptr)
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "graph_memory.within_graph",
        "cuGraphAddMemAllocNode",
        "Memory allocated and freed in a graph serves the nodes between, at every launch.",
        || {
            super::pool::needs_pools();
            let graph = graph();
            let out = alloc(4096);
            let (node, ptr) = alloc_node(graph, 4096);
            let set = set_node(graph, &[node], ptr, 6);
            let copy = CUDA_MEMCPY3D {
                srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                srcDevice: ptr,
                dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                dstDevice: out,
                WidthInBytes: 4096,
                Height: 1,
                Depth: 1,
                ..CUDA_MEMCPY3D::default()
            };
            let mut copied = null_mut();
            ok(cuGraphAddMemcpyNode(&raw mut copied, graph, &raw const set, 1, &raw const copy, current()));
            free_node(graph, copied, ptr);
            let exec = instantiate(graph);
            for _ in 0..3 {
                put(out, &[0; 4096]);
                run(exec);
                assert!(all_words(out, 1024, 6));
            }
        },
    ),
    rule(
        "graph_memory.parameters_reported",
        "cuGraphMemAllocNodeGetParams",
        "An allocation node reports address and size, a free node its address.",
        || {
            super::pool::needs_pools();
            let graph = graph();
            let (node, ptr) = alloc_node(graph, 12_345);
            let mut got = CUDA_MEM_ALLOC_NODE_PARAMS::default();
            ok(cuGraphMemAllocNodeGetParams(node, &raw mut got));
            assert_eq!((got.dptr, got.bytesize), (ptr, 12_345));
            let freeing = free_node(graph, node, ptr);
            let mut freed = 0;
            ok(cuGraphMemFreeNodeGetParams(freeing, &raw mut freed));
            assert_eq!(freed, ptr);
        },
    ),
    rule(
        "graph_memory.outlives_launch",
        "cuMemFreeAsync",
        "Memory that its graph does not free lives after the launch until it is freed.",
        || {
            super::pool::needs_pools();
            let (graph, ptr) = leaving();
            run(instantiate(graph));
            assert!(all_words(ptr, 1024, 4));
            let stream = stream();
            ok(cuMemFreeAsync(ptr, stream));
            sync(stream);
        },
    ),
    rule(
        "graph_memory.relaunch_refused",
        "cuGraphLaunch",
        "A graph whose memory still lives cannot be launched again.",
        || {
            super::pool::needs_pools();
            let (graph, ptr) = leaving();
            let (exec, stream) = (instantiate(graph), stream());
            ok(cuGraphLaunch(exec, stream));
            refused(cuGraphLaunch(exec, stream), INVALID_VALUE);
            ok(cuMemFreeAsync(ptr, stream));
            ok(cuGraphLaunch(exec, stream));
            sync(stream);
            assert!(all_words(ptr, 1024, 4), "the address is the same at each launch");
            ok(cuMemFreeAsync(ptr, stream));
            sync(stream);
        },
    ),
    rule(
        "graph_memory.auto_free",
        "cuGraphInstantiate",
        "With automatic freeing a launch frees what the one before left.",
        || {
            super::pool::needs_pools();
            let (graph, ptr) = leaving();
            let mut exec = null_mut();
            let flag = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;
            ok(cuGraphInstantiateWithFlags(&raw mut exec, graph, u64::from(flag)));
            for _ in 0..3 {
                run(exec);
                assert!(all_words(ptr, 1024, 4));
            }
        },
    ),
    rule("graph_memory.freed_once", "cuGraphAddMemFreeNode", "A graph frees its allocation once.", || {
        super::pool::needs_pools();
        let graph = graph();
        let (node, ptr) = alloc_node(graph, 4096);
        let freeing = free_node(graph, node, ptr);
        let mut again = null_mut();
        refused(cuGraphAddMemFreeNode(&raw mut again, graph, &raw const freeing, 1, ptr), INVALID_VALUE);
    }),
    rule("graph_memory.no_clone", "cuGraphClone", "A graph that allocates cannot be cloned.", || {
        super::pool::needs_pools();
        let (graph, _) = leaving();
        let mut clone = null_mut();
        must_fail(cuGraphClone(&raw mut clone, graph));
    }),
    rule(
        "graph_memory.one_instance",
        "cuGraphInstantiate",
        "A graph that allocates has one executable graph at a time.",
        || {
            super::pool::needs_pools();
            let (graph, _) = leaving();
            let exec = instantiate(graph);
            let mut second = null_mut();
            must_fail(cuGraphInstantiateWithFlags(&raw mut second, graph, 0));
            ok(cuGraphExecDestroy(exec));
            instantiate(graph);
        },
    ),
    rule(
        "graph_memory.nodes_stay",
        "cuGraphDestroyNode",
        "Nodes of a graph that allocates cannot be destroyed.",
        || {
            super::pool::needs_pools();
            let graph = graph();
            let other = empty(graph, &[]);
            let (node, _) = alloc_node(graph, 4096);
            must_fail(cuGraphDestroyNode(node));
            must_fail(cuGraphDestroyNode(other));
        },
    ),
    rule(
        "graph_memory.captured",
        "cuMemAllocAsync",
        "Stream-ordered allocation and free under capture become nodes.",
        || {
            super::pool::needs_pools();
            let stream = stream();
            let out = alloc(4096);
            super::capture::begin(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL);
            let mut ptr = 0;
            ok(cuMemAllocAsync(&raw mut ptr, 4096, stream));
            ok(cuMemsetD32Async(ptr, 9, 1024, stream));
            ok(cuMemcpyDtoDAsync_v2(out, ptr, 4096, stream));
            ok(cuMemFreeAsync(ptr, stream));
            let graph = super::capture::end(stream);
            assert_eq!(super::capture::nodes(graph), 4);
            let exec = instantiate(graph);
            for _ in 0..2 {
                put(out, &[0; 4096]);
                run(exec);
                assert!(all_words(out, 1024, 9));
            }
        },
    ),
    rule(
        "graph_memory.free_of_plain_captured",
        "cuMemFreeAsync",
        "Under capture only memory of graphs can be freed.",
        || {
            super::pool::needs_pools();
            let stream = stream();
            let mut ptr = 0;
            ok(cuMemAllocAsync(&raw mut ptr, 4096, stream));
            sync(stream);
            super::capture::begin(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED);
            must_fail(cuMemFreeAsync(ptr, stream));
        },
    )
    .alone(),
    rule("graph_memory.trim", "cuDeviceGraphMemTrim", "Memory that graphs no longer use can be given back.", || {
        super::pool::needs_pools();
        let graph = graph();
        let (node, ptr) = alloc_node(graph, 64 * MIB);
        free_node(graph, node, ptr);
        let exec = instantiate(graph);
        run(exec);
        ok(cuGraphExecDestroy(exec));
        ok(cuDeviceGraphMemTrim(0));
        let mut reserved = u64::MAX;
        let attribute = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
        ok(cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut reserved).cast()));
        assert_eq!(reserved, 0);
    })
    .alone(),
];
