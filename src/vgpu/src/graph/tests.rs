//! Graphs and captures through the bodies of the driver functions, one test at a time: a capture in
//! one thread forbids calls in all others.

use crate::api;
use crate::error::*;
use crate::state::driver;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_cuda::*;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// Physical bytes that this process holds now, and whether they are so many: within what the tests
/// beside these may take and give meanwhile.
fn physical() -> u64 {
    crate::device::physical_bytes(0)
}

fn holds(bytes: u64) -> bool {
    physical().abs_diff(bytes) < 64 << 20
}

macro_rules! cu {
    // SAFETY: the tests give places, handles and arrays as each function documents them.
    ($name:ident($($arg:expr),* $(,)?)) => { unsafe { api::$name($($arg),*) } };
}

/// A context of its own, and the turn of this test.
struct Turn {
    ctx: CUcontext,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn take() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ctx = null_mut();
        // SAFETY: a place for the result.
        unsafe {
            api::cuInit(0).unwrap();
            api::cuCtxCreate_v2(&raw mut ctx, 0, 0).unwrap();
        }
        Self { ctx, _turn: turn }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // SAFETY: the test's own context.
        let destroyed = unsafe { api::cuCtxDestroy_v2(self.ctx) };
        assert!(destroyed.is_ok() || std::thread::panicking());
    }
}

/// Sets words, and waits: streams that do not block go on beside the default stream.
fn set(addr: CUdeviceptr, value: u32, words: usize) {
    cu!(cuMemsetD32_v2(addr, value, words)).unwrap();
    cu!(cuCtxSynchronize()).unwrap();
}

/// Gives back what a driver function writes.
fn made<T>(call: impl FnOnce(*mut T) -> R) -> R<T> {
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    call(value.as_mut_ptr())?;
    // SAFETY: handles, numbers and structures of the ABI are valid when zero, and written on success.
    Ok(unsafe { value.assume_init() })
}

fn stream() -> CUstream {
    made(|out| cu!(cuStreamCreate(out, 1))).unwrap()
}

fn blocking_stream() -> CUstream {
    made(|out| cu!(cuStreamCreate(out, 0))).unwrap()
}

fn event() -> CUevent {
    made(|out| cu!(cuEventCreate(out, 2))).unwrap()
}

fn memory(bytes: usize) -> CUdeviceptr {
    made(|out| cu!(cuMemAlloc_v2(out, bytes))).unwrap()
}

fn begin(stream: CUstream, mode: u32) {
    cu!(cuStreamBeginCapture_v2(stream, CUstreamCaptureMode(mode))).unwrap();
}

fn end(stream: CUstream) -> R<CUgraph> {
    made(|out| cu!(cuStreamEndCapture(stream, out)))
}

fn status(stream: CUstream) -> R<u32> {
    made::<CUstreamCaptureStatus>(|out| cu!(cuStreamIsCapturing(stream, out))).map(|s| s.0)
}

fn graph() -> CUgraph {
    made(|out| cu!(cuGraphCreate(out, 0))).unwrap()
}

fn empty(graph: CUgraph, after: &[CUgraphNode]) -> R<CUgraphNode> {
    made(|out| cu!(cuGraphAddEmptyNode(out, graph, after.as_ptr(), after.len())))
}

fn instance(graph: CUgraph, flags: u64) -> R<CUgraphExec> {
    made(|out| cu!(cuGraphInstantiateWithFlags(out, graph, flags)))
}

fn launch(exec: CUgraphExec, stream: CUstream) -> R {
    cu!(cuGraphLaunch(exec, stream))
}

fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    cu!(cuGraphGetNodes(graph, null_mut(), &raw mut count)).unwrap();
    let mut nodes = vec![null_mut(); count];
    cu!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count)).unwrap();
    nodes
}

fn kind(node: CUgraphNode) -> CUgraphNodeType {
    made(|out| cu!(cuGraphNodeGetType(node, out))).unwrap()
}

fn graph_memory(attribute: u32) -> u64 {
    made::<u64>(|out| cu!(cuDeviceGetGraphMemAttribute(0, CUgraphMem_attribute(attribute), out.cast()))).unwrap()
}

fn word(addr: CUdeviceptr) -> u32 {
    made::<u32>(|out| cu!(cuMemcpyDtoH_v2(out.cast(), addr, 4))).unwrap()
}

fn alloc_node(graph: CUgraph, after: &[CUgraphNode], bytes: usize) -> (CUgraphNode, CUdeviceptr) {
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::default();
    params.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, 0);
    params.bytesize = bytes;
    let node =
        made(|out| cu!(cuGraphAddMemAllocNode(out, graph, after.as_ptr(), after.len(), &raw mut params))).unwrap();
    (node, params.dptr)
}

fn free_node(graph: CUgraph, after: &[CUgraphNode], addr: CUdeviceptr) -> R<CUgraphNode> {
    made(|out| cu!(cuGraphAddMemFreeNode(out, graph, after.as_ptr(), after.len(), addr)))
}

fn fill(addr: CUdeviceptr, value: u32, words: usize) -> CUDA_MEMSET_NODE_PARAMS_v1 {
    CUDA_MEMSET_NODE_PARAMS_v1 { dst: addr, pitch: 0, value, elementSize: 4, width: words, height: 1 }
}

fn fill_node(graph: CUgraph, after: &[CUgraphNode], addr: CUdeviceptr, value: u32) -> R<CUgraphNode> {
    let params = fill(addr, value, 4);
    made(|out| cu!(cuGraphAddMemsetNode(out, graph, after.as_ptr(), after.len(), &raw const params, null_mut())))
}

#[test]
fn captured_work_runs_at_launch_and_again_at_the_next() {
    let _turn = Turn::take();
    let (s, addr) = (stream(), memory(64));
    set(addr, 7, 16);
    begin(s, 0);
    cu!(cuMemsetD32Async(addr, 9, 16, s)).unwrap();
    let g = end(s).unwrap();
    assert_eq!(word(addr), 7);
    let exec = instance(g, 0).unwrap();
    for _ in 0..3 {
        set(addr, 7, 16);
        launch(exec, s).unwrap();
        cu!(cuStreamSynchronize(s)).unwrap();
        assert_eq!(word(addr), 9);
    }
    begin(s, 0);
    for value in 0..4 {
        cu!(cuMemsetD32Async(addr, value, 16, s)).unwrap();
    }
    let (chain, mut edges) = (end(s).unwrap(), 0);
    cu!(cuGraphGetEdges(chain, null_mut(), null_mut(), &raw mut edges)).unwrap();
    assert_eq!((nodes(chain).len(), edges), (4, 3));
    let list = nodes(g);
    assert_eq!(list.len(), 1);
    assert_eq!(kind(list[0]), CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET);
    let params = made::<CUDA_MEMSET_NODE_PARAMS_v1>(|out| cu!(cuGraphMemsetNodeGetParams(list[0], out))).unwrap();
    assert_eq!((params.dst, params.value, params.elementSize, params.width, params.height), (addr, 9, 4, 16, 1));
}

#[test]
fn a_copy_of_pageable_memory_reads_it_at_launch() {
    let _turn = Turn::take();
    let (s, addr) = (stream(), memory(64));
    let host = vec![1u32; 16].leak().as_mut_ptr();
    begin(s, 0);
    cu!(cuMemcpyHtoDAsync_v2(addr, host.cast(), 64, s)).unwrap();
    let g = end(s).unwrap();
    let params = made::<CUDA_MEMCPY3D>(|out| cu!(cuGraphMemcpyNodeGetParams(nodes(g)[0], out))).unwrap();
    assert_eq!(params.srcHost, host.cast::<c_void>().cast_const());
    assert_eq!((params.dstDevice, params.WidthInBytes), (addr, 64));
    // SAFETY: the test's own memory, for ever.
    unsafe { host.write(2) };
    let exec = instance(g, 0).unwrap();
    launch(exec, s).unwrap();
    cu!(cuStreamSynchronize(s)).unwrap();
    assert_eq!(word(addr), 2);
}

#[test]
fn streams_join_by_events_and_must_be_joined_back() {
    let _turn = Turn::take();
    let (a, b, fork, join, addr) = (stream(), stream(), event(), event(), memory(64));
    for joined in [true, false] {
        begin(a, 0);
        cu!(cuMemsetD32Async(addr, 1, 4, a)).unwrap();
        cu!(cuEventRecord(fork, a)).unwrap();
        cu!(cuStreamWaitEvent(b, fork, 0)).unwrap();
        assert_eq!(status(b), Ok(1));
        cu!(cuMemsetD32Async(addr + 32, 2, 4, b)).unwrap();
        assert_eq!(end(b), Err(CAPTURE_UNMATCHED));
        if joined {
            cu!(cuEventRecord(join, b)).unwrap();
            cu!(cuStreamWaitEvent(a, join, 0)).unwrap();
            cu!(cuMemsetD32Async(addr + 48, 3, 4, a)).unwrap();
            let g = end(a).unwrap();
            let mut edges = 0;
            cu!(cuGraphGetEdges(g, null_mut(), null_mut(), &raw mut edges)).unwrap();
            assert_eq!((nodes(g).len(), edges), (3, 3));
            assert_eq!(cu!(cuEventQuery(join)), Err(CAPTURED_EVENT));
            assert_eq!(cu!(cuStreamWaitEvent(b, join, 0)), Err(CAPTURED_EVENT));
        } else {
            assert_eq!(end(a), Err(CAPTURE_UNJOINED));
        }
        assert_eq!((status(a), status(b)), (Ok(0), Ok(0)));
    }
    cu!(cuEventRecord(join, b)).unwrap();
    cu!(cuEventSynchronize(join)).unwrap();
}

#[test]
fn captures_do_not_mix() {
    let _turn = Turn::take();
    let (a, b, inside, outside) = (stream(), stream(), event(), event());
    begin(a, 0);
    begin(b, 0);
    cu!(cuEventRecord(inside, a)).unwrap();
    assert_eq!(cu!(cuStreamWaitEvent(b, inside, 0)), Err(CAPTURE_MERGE));
    assert_eq!((end(a), end(b)), (Err(CAPTURE_INVALIDATED), Err(CAPTURE_INVALIDATED)));
    cu!(cuEventRecord(outside, b)).unwrap();
    begin(a, 0);
    assert_eq!(cu!(cuStreamWaitEvent(a, outside, 0)), Err(CAPTURE_ISOLATION));
    assert_eq!(status(a), Ok(2));
    assert_eq!(cu!(cuMemsetD32Async(memory_of_relaxed(), 0, 1, a)), Err(CAPTURE_INVALIDATED));
    assert_eq!(end(a), Err(CAPTURE_INVALIDATED));
    assert_eq!(end(a), Err(ILLEGAL_STATE));
    begin(a, 0);
    assert_eq!(cu!(cuStreamBeginCapture_v2(a, CUstreamCaptureMode(0))), Err(ILLEGAL_STATE));
    assert_eq!(cu!(cuStreamWaitEvent(a, event(), 0)), Ok(()), "an event that was never recorded");
    end(a).unwrap();
}

/// Memory taken while a capture of this thread forbids it.
fn memory_of_relaxed() -> CUdeviceptr {
    let mut mode = CUstreamCaptureMode(2);
    cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)).unwrap();
    let addr = memory(64);
    cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)).unwrap();
    assert_eq!(mode.0, 2);
    addr
}

#[test]
fn unsafe_calls_break_the_captures_that_forbid_them() {
    let turn = Turn::take();
    let ctx = turn.ctx as usize;
    let s = stream();
    let alloc = || made(|out| cu!(cuMemAlloc_v2(out, 64)));
    // (mode of the capture, mode of the thread) in this thread, and in another.
    for (capture, thread, here, there) in [
        (0, 0, false, false),
        (0, 1, false, true),
        (0, 2, true, true),
        (1, 0, false, true),
        (1, 1, false, true),
        (1, 2, true, true),
        (2, 0, true, true),
        (2, 1, true, true),
        (2, 2, true, true),
    ] {
        for elsewhere in [false, true] {
            begin(s, capture);
            let attempt = || {
                let mut mode = CUstreamCaptureMode(thread);
                cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)).unwrap();
                let result = alloc();
                cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)).unwrap();
                result
            };
            let result = if elsewhere {
                std::thread::scope(|scope| {
                    scope
                        .spawn(|| {
                            cu!(cuCtxSetCurrent(ctx as CUcontext)).unwrap();
                            attempt()
                        })
                        .join()
                        .unwrap()
                })
            } else {
                attempt()
            };
            let allowed = if elsewhere { there } else { here };
            assert_eq!(result.is_ok(), allowed, "capture {capture}, thread {thread}, elsewhere {elsewhere}");
            assert_eq!(result.err(), (!allowed).then_some(CAPTURE_UNSUPPORTED));
            assert_eq!(status(s), Ok(if allowed { 1 } else { 2 }));
            assert_eq!(end(s).err(), (!allowed).then_some(CAPTURE_INVALIDATED));
        }
    }
}

#[test]
fn a_capture_is_ended_by_its_thread_unless_relaxed() {
    let turn = Turn::take();
    let (s, ctx) = (stream() as usize, turn.ctx as usize);
    let end_elsewhere = || {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    cu!(cuCtxSetCurrent(ctx as CUcontext)).unwrap();
                    end(s as CUstream).map(|g| g as usize)
                })
                .join()
                .unwrap()
        })
    };
    begin(s as CUstream, 1);
    assert_eq!(end_elsewhere(), Err(CAPTURE_WRONG_THREAD));
    end(s as CUstream).unwrap();
    begin(s as CUstream, 2);
    end_elsewhere().unwrap();
}

#[test]
fn the_legacy_stream_cannot_be_used_beside_a_blocking_capture() {
    let _turn = Turn::take();
    let (s, free, addr) = (blocking_stream(), stream(), memory(64));
    assert_eq!(cu!(cuStreamBeginCapture_v2(null_mut(), CUstreamCaptureMode(0))), Err(CAPTURE_UNSUPPORTED));
    cu!(cuStreamBeginCapture_v2(2 as CUstream, CUstreamCaptureMode(0))).unwrap();
    end(2 as CUstream).unwrap();
    begin(free, 2);
    cu!(cuMemsetD32Async(addr, 1, 4, null_mut())).unwrap();
    end(free).unwrap();
    begin(s, 2);
    assert_eq!(status(null_mut()), Err(CAPTURE_IMPLICIT));
    assert_eq!(status(s), Ok(1), "a query breaks nothing");
    assert_eq!(cu!(cuMemsetD32Async(addr, 1, 4, null_mut())), Err(CAPTURE_IMPLICIT));
    assert_eq!(status(s), Ok(2));
    assert_eq!(end(s), Err(CAPTURE_INVALIDATED));
}

#[test]
fn waiting_for_a_capturing_stream_breaks_its_capture() {
    let _turn = Turn::take();
    let s = stream();
    for call in [api::cuStreamSynchronize, api::cuStreamQuery] {
        begin(s, 2);
        // SAFETY: a live stream.
        assert_eq!(unsafe { call(s) }, Err(CAPTURE_UNSUPPORTED));
        assert_eq!(end(s), Err(CAPTURE_INVALIDATED));
    }
}

#[test]
fn the_frontier_of_a_capture_can_be_read_and_set() {
    let _turn = Turn::take();
    let (s, addr) = (stream(), memory(64));
    begin(s, 0);
    cu!(cuMemsetD32Async(addr, 1, 4, s)).unwrap();
    let (mut state, mut id, mut g, mut list, mut count) = (CUstreamCaptureStatus(0), 0, null_mut(), null(), 0);
    let mut info = |id: &mut u64, g: &mut CUgraph, list: &mut *const CUgraphNode, count: &mut usize| {
        cu!(cuStreamGetCaptureInfo_v2(s, &raw mut state, id, g, list, count)).unwrap();
    };
    info(&mut id, &mut g, &mut list, &mut count);
    assert!(id != 0 && count == 1 && !g.is_null());
    // SAFETY: the driver's array of one node.
    let first = unsafe { *list };
    let extra = empty(g, &[]).unwrap();
    let foreign = empty(graph(), &[]).unwrap();
    let mut both = [extra, foreign];
    assert_eq!(cu!(cuStreamUpdateCaptureDependencies(s, both.as_mut_ptr(), 2, 0)), Err(INVALID_VALUE));
    cu!(cuStreamUpdateCaptureDependencies(s, both.as_mut_ptr(), 1, 0)).unwrap();
    info(&mut id, &mut g, &mut list, &mut count);
    assert_eq!(count, 2);
    cu!(cuStreamUpdateCaptureDependencies(s, both.as_mut_ptr(), 1, 1)).unwrap();
    cu!(cuMemsetD32Async(addr, 2, 4, s)).unwrap();
    assert_eq!(cu!(cuGraphDestroy(g)), Err(INVALID_VALUE), "not while captured into");
    assert_eq!(cu!(cuGraphDestroyNode(first)), Err(INVALID_VALUE));
    assert_eq!(instance(g, 0), Err(INVALID_VALUE));
    let done = end(s).unwrap();
    let last = nodes(done)[2];
    let mut before = [null_mut(); 4];
    let mut room = 4;
    cu!(cuGraphNodeGetDependencies(last, before.as_mut_ptr(), &raw mut room)).unwrap();
    assert_eq!((room, before[0], before[1]), (1, extra, null_mut()));
    cu!(cuGraphDestroy(done)).unwrap();
    assert_eq!(cu!(cuGraphDestroy(done)), Err(INVALID_VALUE));
    assert_eq!(cu!(cuStreamUpdateCaptureDependencies(s, both.as_mut_ptr(), 0, 0)), Err(ILLEGAL_STATE));
}

#[test]
fn a_capture_can_go_on_in_a_graph_of_the_job() {
    let _turn = Turn::take();
    let (s, addr, g) = (stream(), memory(64), graph());
    let root = empty(g, &[]).unwrap();
    let mode = CUstreamCaptureMode(0);
    cu!(cuStreamBeginCaptureToGraph(s, g, &raw const root, null(), 1, mode)).unwrap();
    cu!(cuMemsetD32Async(addr, 5, 4, s)).unwrap();
    assert_eq!(end(s).unwrap(), g);
    let mut edges = 0;
    cu!(cuGraphGetEdges(g, null_mut(), null_mut(), &raw mut edges)).unwrap();
    assert_eq!((nodes(g).len(), edges), (2, 1));
    cu!(cuStreamBeginCaptureToGraph(s, g, null(), null(), 0, mode)).unwrap();
    assert_eq!(cu!(cuStreamSynchronize(s)), Err(CAPTURE_UNSUPPORTED));
    assert_eq!(end(s), Err(CAPTURE_INVALIDATED));
    assert_eq!(nodes(g).len(), 2, "the job's own graph stays");
}

#[test]
fn edges_are_checked() {
    let _turn = Turn::take();
    let (g, other) = (graph(), graph());
    let (a, b) = (empty(g, &[]).unwrap(), empty(g, &[]).unwrap());
    let c = empty(g, &[a, b]).unwrap();
    let foreign = empty(other, &[]).unwrap();
    assert_eq!(empty(g, &[a, a]), Err(INVALID_VALUE));
    assert_eq!(empty(g, &[foreign]), Err(INVALID_VALUE));
    let add = |from: CUgraphNode, to: CUgraphNode| cu!(cuGraphAddDependencies(g, &raw const from, &raw const to, 1));
    let remove =
        |from: CUgraphNode, to: CUgraphNode| cu!(cuGraphRemoveDependencies(g, &raw const from, &raw const to, 1));
    assert_eq!(add(a, c), Err(INVALID_VALUE), "it is there already");
    assert_eq!(add(c, a), Err(INVALID_VALUE), "a circle");
    assert_eq!(add(a, a), Err(INVALID_VALUE), "a circle of one");
    assert_eq!(add(a, foreign), Err(INVALID_VALUE));
    add(a, b).unwrap();
    remove(a, b).unwrap();
    assert_eq!(remove(a, b), Err(INVALID_VALUE));
    let mut roots = [null_mut(); 3];
    let mut count = 3;
    cu!(cuGraphGetRootNodes(g, roots.as_mut_ptr(), &raw mut count)).unwrap();
    assert_eq!((count, roots), (2, [a, b, null_mut()]));
    let mut users = 0;
    cu!(cuGraphNodeGetDependentNodes(a, null_mut(), &raw mut users)).unwrap();
    assert_eq!(users, 1);
    cu!(cuGraphDestroyNode(a)).unwrap();
    assert_eq!(cu!(cuGraphDestroyNode(a)), Err(INVALID_VALUE));
    cu!(cuGraphNodeGetDependencies(c, null_mut(), &raw mut users)).unwrap();
    assert_eq!(users, 1);
}

#[test]
fn clones_and_children_have_nodes_of_their_own() {
    let _turn = Turn::take();
    let (g, parent, addr, s) = (graph(), graph(), memory(64), stream());
    let fill = fill_node(g, &[], addr, 3).unwrap();
    let clone: CUgraph = made(|out| cu!(cuGraphClone(out, g))).unwrap();
    let twin = made(|out| cu!(cuGraphNodeFindInClone(out, fill, clone))).unwrap();
    assert!(twin != fill && nodes(clone) == [twin]);
    assert_eq!(made::<CUgraphNode>(|out| cu!(cuGraphNodeFindInClone(out, twin, g))), Err(INVALID_VALUE));
    let child: CUgraphNode = made(|out| cu!(cuGraphAddChildGraphNode(out, parent, null(), 0, g))).unwrap();
    let inner: CUgraph = made(|out| cu!(cuGraphChildGraphNodeGetGraph(child, out))).unwrap();
    assert!(inner != g && nodes(inner).len() == 1);
    assert_eq!(cu!(cuGraphDestroy(inner)), Err(INVALID_VALUE));
    cu!(cuGraphDestroy(g)).unwrap();
    let exec = instance(parent, 0).unwrap();
    launch(exec, s).unwrap();
    cu!(cuStreamSynchronize(s)).unwrap();
    assert_eq!(word(addr), 3);
    cu!(cuGraphDestroy(parent)).unwrap();
    launch(exec, s).unwrap();
    cu!(cuGraphExecDestroy(exec)).unwrap();
    assert_eq!(launch(exec, s), Err(INVALID_VALUE));
    cu!(cuStreamSynchronize(s)).unwrap();
}

#[test]
fn launches_of_one_graph_follow_each_other_across_streams() {
    let _turn = Turn::take();
    let (a, b, addr, g) = (stream(), stream(), memory(4096), graph());
    // Every launch doubles what the one before left: order shows in the content.
    let (copy, half) = (fill_node(g, &[], addr, 1).unwrap(), addr + 64);
    let params = CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: addr,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: half,
        WidthInBytes: 16,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    };
    made::<CUgraphNode>(|out| cu!(cuGraphAddMemcpyNode(out, g, &raw const copy, 1, &raw const params, null_mut())))
        .unwrap();
    let exec = instance(g, 0).unwrap();
    for round in 0..20u32 {
        cu!(cuMemsetD32Async(half, 100 + round, 4, a)).unwrap();
        launch(exec, a).unwrap();
        launch(exec, b).unwrap();
        cu!(cuStreamSynchronize(b)).unwrap();
        // The second launch ended, so the first did, and so did the work before it.
        assert_eq!(word(half), 1);
        let s = driver().unwrap();
        assert!(s.engine.idle(a as u64), "round {round}");
    }
}

#[test]
fn memory_nodes_take_memory_at_launch_and_keep_it_until_trimmed() {
    const HELD: u64 = (GIB + 2 * MIB) as u64;
    let _turn = Turn::take();
    cu!(cuDeviceGraphMemTrim(0)).unwrap();
    let (mut zero, high) = (0u64, CUgraphMem_attribute(3));
    cu!(cuDeviceSetGraphMemAttribute(0, high, (&raw mut zero).cast())).unwrap();
    let before = physical();
    let (s, g) = (stream(), graph());
    let (alloc, addr) = alloc_node(g, &[], GIB + MIB);
    fill_node(g, &[alloc], addr, 8).unwrap();
    assert_eq!(graph_memory(0), 0);
    assert_eq!(made::<CUgraph>(|out| cu!(cuGraphClone(out, g))), Err(INVALID_VALUE));
    assert_eq!(cu!(cuGraphDestroyNode(alloc)), Err(INVALID_VALUE));
    assert_eq!(
        made::<CUgraphNode>(|out| cu!(cuGraphAddChildGraphNode(out, graph(), null(), 0, g))),
        Err(INVALID_VALUE)
    );
    let exec = instance(g, 0).unwrap();
    assert_eq!(instance(g, 0), Err(INVALID_VALUE), "one instance at a time");
    launch(exec, s).unwrap();
    assert_eq!((graph_memory(0), graph_memory(2)), (HELD, HELD));
    assert!(holds(before + HELD));
    assert_eq!(launch(exec, s), Err(INVALID_VALUE), "it is still allocated");
    cu!(cuStreamSynchronize(s)).unwrap();
    assert_eq!(word(addr), 8);
    cu!(cuMemFreeAsync(addr, s)).unwrap();
    assert_eq!(cu!(cuMemFreeAsync(addr, s)), Err(INVALID_VALUE));
    launch(exec, s).unwrap();
    cu!(cuMemFree_v2(addr)).unwrap();
    assert_eq!((graph_memory(0), graph_memory(2)), (0, HELD));
    cu!(cuDeviceGraphMemTrim(0)).unwrap();
    assert_eq!((graph_memory(2), graph_memory(3)), (0, HELD));
    assert!(holds(before));
    let mut one = 1u64;
    assert_eq!(cu!(cuDeviceSetGraphMemAttribute(0, high, (&raw mut one).cast())), Err(INVALID_VALUE));
    cu!(cuDeviceSetGraphMemAttribute(0, high, (&raw mut zero).cast())).unwrap();
    assert_eq!(graph_memory(3), 0);
    cu!(cuGraphExecDestroy(exec)).unwrap();
    instance(g, 0).unwrap();
}

#[test]
fn memory_freed_in_its_graph_can_be_freed_nowhere_else() {
    let _turn = Turn::take();
    let (s, g, other) = (stream(), graph(), graph());
    let (alloc, addr) = alloc_node(g, &[], MIB);
    let fill = fill_node(g, &[alloc], addr, 8).unwrap();
    free_node(g, &[fill], addr).unwrap();
    assert_eq!(free_node(g, &[fill], addr), Err(INVALID_VALUE));
    assert_eq!(free_node(other, &[], addr), Err(INVALID_VALUE));
    assert_eq!(free_node(other, &[], memory(64)), Err(INVALID_VALUE));
    let exec = instance(g, 0).unwrap();
    for _ in 0..3 {
        launch(exec, s).unwrap();
        assert_eq!(graph_memory(0), 0);
    }
    assert_eq!(cu!(cuMemFreeAsync(addr, s)), Err(INVALID_VALUE));
    cu!(cuStreamSynchronize(s)).unwrap();
    // A free that does not follow its allocation has no legal order.
    let g = graph();
    let (_, addr) = alloc_node(g, &[], MIB);
    let loose = free_node(g, &[], addr).unwrap();
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::default();
    let refused = made::<CUgraphExec>(|out| cu!(cuGraphInstantiateWithParams(out, g, &raw mut params)));
    assert_eq!(refused, Err(INVALID_VALUE));
    assert_eq!(params.hErrNode_out, loose);
    assert_eq!(params.result_out, CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
}

#[test]
fn another_graph_or_the_next_launch_can_free() {
    let _turn = Turn::take();
    let (s, g, freer) = (stream(), graph(), graph());
    let (_, addr) = alloc_node(g, &[], MIB);
    free_node(freer, &[], addr).unwrap();
    assert_eq!(free_node(g, &[], addr), Err(INVALID_VALUE));
    let (exec, free) = (instance(g, 0).unwrap(), instance(freer, 0).unwrap());
    assert_eq!(launch(free, s), Err(INVALID_VALUE), "nothing to free yet");
    for _ in 0..2 {
        launch(exec, s).unwrap();
        launch(free, s).unwrap();
    }
    cu!(cuGraphExecDestroy(exec)).unwrap();
    let exec = instance(g, 1).unwrap();
    assert_eq!(made::<u64>(|out| cu!(cuGraphExecGetFlags(exec, out))), Ok(1));
    for _ in 0..3 {
        launch(exec, s).unwrap();
        assert_eq!(graph_memory(0), 2 << 20);
    }
    cu!(cuGraphExecDestroy(exec)).unwrap();
    cu!(cuGraphDestroy(g)).unwrap();
    assert_eq!(graph_memory(0), 2 << 20, "an allocation outlives its graph");
    cu!(cuMemFree_v2(addr)).unwrap();
    cu!(cuDeviceGraphMemTrim(0)).unwrap();
    assert_eq!(cu!(cuMemFree_v2(addr)), Err(INVALID_VALUE));
}

#[test]
fn memory_of_graphs_goes_with_its_context() {
    let before;
    {
        let _turn = Turn::take();
        cu!(cuDeviceGraphMemTrim(0)).unwrap();
        before = physical();
        let g = graph();
        alloc_node(g, &[], GIB);
        launch(instance(g, 0).unwrap(), stream()).unwrap();
        assert!(holds(before + GIB as u64));
    }
    let _turn = Turn::take();
    assert_eq!((graph_memory(0), graph_memory(2)), (0, 0));
    assert!(holds(before));
}

#[test]
fn captured_allocations_belong_to_the_graph() {
    let _turn = Turn::take();
    let s = stream();
    let plain: CUdeviceptr = made(|out| cu!(cuMemAllocAsync(out, 64, s))).unwrap();
    begin(s, 0);
    let addr: CUdeviceptr = made(|out| cu!(cuMemAllocAsync(out, MIB, s))).unwrap();
    cu!(cuMemsetD32Async(addr, 4, 16, s)).unwrap();
    assert_eq!(cu!(cuMemFreeAsync(plain, s)), Err(INVALID_VALUE), "not a graph's");
    cu!(cuMemFreeAsync(addr, s)).unwrap();
    let g = end(s).unwrap();
    let kinds: Vec<u32> = nodes(g).into_iter().map(|n| kind(n).0).collect();
    assert_eq!(kinds, [10, 2, 11]);
    let params = made::<CUDA_MEM_ALLOC_NODE_PARAMS>(|out| cu!(cuGraphMemAllocNodeGetParams(nodes(g)[0], out))).unwrap();
    assert_eq!((params.dptr, params.bytesize), (addr, MIB));
    let exec = instance(g, 0).unwrap();
    launch(exec, s).unwrap();
    launch(exec, s).unwrap();
    cu!(cuMemFreeAsync(plain, s)).unwrap();
    cu!(cuStreamSynchronize(s)).unwrap();
}

#[test]
fn a_launch_without_room_fails_whole() {
    let _turn = Turn::take();
    let (s, g) = (stream(), graph());
    cu!(cuDeviceGraphMemTrim(0)).unwrap();
    let total = driver().unwrap().devices[0].total as usize;
    let (first, _) = alloc_node(g, &[], total / 2 + MIB);
    alloc_node(g, &[first], total / 2 + MIB);
    let exec = instance(g, 0).unwrap();
    let before = physical();
    assert_eq!(launch(exec, s), Err(OUT_OF_MEMORY));
    assert!(holds(before));
    assert_eq!((graph_memory(0), graph_memory(2)), (0, 0));
    // One after the other they fit, as the same memory serves both.
    let g = graph();
    let mut after = Vec::new();
    for _ in 0..3 {
        let (alloc, addr) = alloc_node(g, &after, total / 2 + MIB);
        after = vec![free_node(g, &[alloc], addr).unwrap()];
    }
    launch(instance(g, 0).unwrap(), s).unwrap();
    cu!(cuStreamSynchronize(s)).unwrap();
    cu!(cuDeviceGraphMemTrim(0)).unwrap();
    assert!(holds(before));
}

#[test]
fn executable_graphs_can_be_changed_in_place() {
    let _turn = Turn::take();
    let (s, g, addr) = (stream(), graph(), memory(4096));
    let node = fill_node(g, &[], addr, 1).unwrap();
    let exec = instance(g, 0).unwrap();
    let run = || {
        set(addr, 0, 16);
        launch(exec, s).unwrap();
        cu!(cuStreamSynchronize(s)).unwrap();
        word(addr)
    };
    let params = fill(addr, 2, 4);
    cu!(cuGraphExecMemsetNodeSetParams(exec, node, &raw const params, null_mut())).unwrap();
    assert_eq!(run(), 2);
    let host = CUDA_HOST_NODE_PARAMS_v1 { fn_: Some(count), userData: null_mut() };
    assert_eq!(cu!(cuGraphExecHostNodeSetParams(exec, node, &raw const host)), Err(INVALID_VALUE));
    cu!(cuGraphNodeSetEnabled(exec, node, 0)).unwrap();
    assert_eq!((run(), made(|out| cu!(cuGraphNodeGetEnabled(exec, node, out)))), (0, Ok(0)));
    cu!(cuGraphNodeSetEnabled(exec, node, 1)).unwrap();
    let newer = graph();
    let changed = fill_node(newer, &[], addr, 6).unwrap();
    let update = |graph| {
        let mut info = CUgraphExecUpdateResultInfo::default();
        let code = cu!(cuGraphExecUpdate_v2(exec, graph, &raw mut info));
        (code, info.result.0, info.errorNode)
    };
    assert_eq!(update(newer), (Ok(()), 0, null_mut()));
    assert_eq!(run(), 6);
    let longer = fill_node(newer, &[changed], addr, 7).unwrap();
    assert_eq!(update(newer), (Err(GRAPH_EXEC_UPDATE_FAILURE), 2, null_mut()));
    cu!(cuGraphDestroyNode(longer)).unwrap();
    let other = graph();
    let different = empty(other, &[]).unwrap();
    assert_eq!(update(other), (Err(GRAPH_EXEC_UPDATE_FAILURE), 3, different));
    assert_eq!(run(), 6, "a refused update changes nothing");
}

#[test]
fn an_update_pairs_nodes_by_their_edges() {
    let _turn = Turn::take();
    let addr = memory(64);
    // The same two-node chain, built forwards and backwards.
    let (forwards, backwards) = (graph(), graph());
    let first = fill_node(forwards, &[], addr, 1).unwrap();
    empty(forwards, &[first]).unwrap();
    let last = empty(backwards, &[]).unwrap();
    let first = fill_node(backwards, &[], addr, 2).unwrap();
    cu!(cuGraphAddDependencies(backwards, &raw const first, &raw const last, 1)).unwrap();
    let exec = instance(forwards, 0).unwrap();
    let mut info = CUgraphExecUpdateResultInfo::default();
    cu!(cuGraphExecUpdate_v2(exec, backwards, &raw mut info)).unwrap();
    cu!(cuGraphRemoveDependencies(backwards, &raw const first, &raw const last, 1)).unwrap();
    assert_eq!(cu!(cuGraphExecUpdate_v2(exec, backwards, &raw mut info)), Err(GRAPH_EXEC_UPDATE_FAILURE));
}

static COUNT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count(_: *mut c_void) {
    COUNT.fetch_add(1, Ordering::SeqCst);
}

fn counted_up_to(wanted: usize) -> bool {
    for _ in 0..60_000 {
        if COUNT.load(Ordering::SeqCst) == wanted {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    false
}

#[test]
fn host_nodes_and_destructors_run_once_each() {
    let _turn = Turn::take();
    let (s, g) = (stream(), graph());
    COUNT.store(0, Ordering::SeqCst);
    let object: CUuserObject = made(|out| cu!(cuUserObjectCreate(out, null_mut(), Some(count), 1, 1))).unwrap();
    cu!(cuGraphRetainUserObject(g, object, 1, 1)).unwrap();
    assert_eq!(cu!(cuUserObjectRelease(object, 1)), Err(INVALID_VALUE), "the graph has it now");
    let host = CUDA_HOST_NODE_PARAMS_v1 { fn_: Some(count), userData: null_mut() };
    made::<CUgraphNode>(|out| cu!(cuGraphAddHostNode(out, g, null(), 0, &raw const host))).unwrap();
    let exec = instance(g, 0).unwrap();
    launch(exec, s).unwrap();
    launch(exec, s).unwrap();
    cu!(cuStreamSynchronize(s)).unwrap();
    assert_eq!(COUNT.load(Ordering::SeqCst), 2);
    cu!(cuGraphDestroy(g)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(COUNT.load(Ordering::SeqCst), 2, "the executable graph still holds it");
    cu!(cuGraphExecDestroy(exec)).unwrap();
    assert!(counted_up_to(3));
    assert_eq!(cu!(cuUserObjectRetain(object, 1)), Err(INVALID_VALUE));
}

#[test]
fn events_in_graphs_order_work_outside() {
    let _turn = Turn::take();
    let (s, g, e) = (stream(), graph(), event());
    made::<CUgraphNode>(|out| cu!(cuGraphAddEventRecordNode(out, g, null(), 0, e))).unwrap();
    let exec = instance(g, 0).unwrap();
    launch(exec, s).unwrap();
    cu!(cuEventSynchronize(e)).unwrap();
    assert_eq!(cu!(cuEventQuery(e)), Ok(()));
    assert_eq!(cu!(cuEventRecordWithFlags(e, s, 1)), Err(INVALID_VALUE), "only in a capture");
    begin(s, 0);
    cu!(cuEventRecordWithFlags(e, s, 1)).unwrap();
    cu!(cuStreamWaitEvent(s, e, 1)).unwrap();
    let g = end(s).unwrap();
    assert_eq!(nodes(g).into_iter().map(|n| kind(n).0).collect::<Vec<_>>(), [7, 6]);
    cu!(cuEventSynchronize(e)).unwrap();
    cu!(cuEventDestroy_v2(e)).unwrap();
    let exec = instance(g, 0).unwrap();
    assert_eq!(launch(exec, s), Err(INVALID_VALUE), "its event is gone");
}

#[test]
fn a_graph_launched_in_a_capture_becomes_a_child() {
    let _turn = Turn::take();
    let (s, g, addr) = (stream(), graph(), memory(64));
    fill_node(g, &[], addr, 12).unwrap();
    let exec = instance(g, 0).unwrap();
    begin(s, 0);
    launch(exec, s).unwrap();
    let outer = end(s).unwrap();
    assert_eq!(kind(nodes(outer)[0]), CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH);
    let exec = instance(outer, 0).unwrap();
    launch(exec, s).unwrap();
    cu!(cuStreamSynchronize(s)).unwrap();
    assert_eq!(word(addr), 12);
}

#[test]
fn one_function_adds_every_kind() {
    let _turn = Turn::take();
    let (g, addr) = (graph(), memory(64));
    let add = |params: &mut CUgraphNodeParams| -> R<CUgraphNode> {
        made(|out| cu!(cuGraphAddNode_v2(out, g, null(), null(), 0, params)))
    };
    let mut params = CUgraphNodeParams { type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET, ..Default::default() };
    params.__bindgen_anon_1.memset =
        CUDA_MEMSET_NODE_PARAMS_v2 { dst: addr, value: 1, elementSize: 4, width: 4, height: 1, ..Default::default() };
    let node = add(&mut params).unwrap();
    let returned = made::<CUgraphNodeParams>(|out| cu!(cuGraphNodeGetParams(node, out))).unwrap();
    // SAFETY: a memset node.
    assert_eq!(unsafe { returned.__bindgen_anon_1.memset.dst }, addr);
    // SAFETY: plain bytes behind the member.
    unsafe { params.__bindgen_anon_1.asBytes[200] = 1 };
    assert_eq!(add(&mut params), Err(INVALID_VALUE), "unused bytes are zero");
    let mut params =
        CUgraphNodeParams { type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, ..Default::default() };
    assert_eq!(add(&mut params), Err(NOT_SUPPORTED));
    let mut params = CUgraphNodeParams { type_: CUgraphNodeType(99), ..Default::default() };
    assert_eq!(add(&mut params), Err(INVALID_VALUE));
    assert_eq!(nodes(g), [node]);
}

#[test]
fn instantiation_refuses_flags_that_do_not_fit() {
    let _turn = Turn::take();
    let (g, addr) = (graph(), memory(64));
    assert_eq!(instance(g, 16), Err(INVALID_VALUE));
    assert_eq!(instance(g, 2), Err(INVALID_VALUE), "where to upload?");
    assert_eq!(instance(g, 5), Err(INVALID_VALUE));
    assert_eq!(instance(g, 4), Err(INVALID_VALUE), "nothing that the device could launch");
    fill_node(g, &[], addr, 1).unwrap();
    instance(g, 4).unwrap();
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS { flags: 2, hUploadStream: stream(), ..Default::default() };
    let exec = made(|out| cu!(cuGraphInstantiateWithParams(out, g, &raw mut params))).unwrap();
    assert_eq!(made::<u64>(|out| cu!(cuGraphExecGetFlags(exec, out))), Ok(0));
}
