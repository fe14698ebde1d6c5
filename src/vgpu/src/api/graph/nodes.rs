//! Adding nodes: each kind by its own function, and all kinds by one.

use super::{edges, graph_of, read, read_all};
use crate::api::{need, put};
use crate::error::*;
use crate::graph::{AllocParams, CopyParams, Edge, Task, Work};
use crate::state::{State, driver, thread};
use weir_cuda::*;

/// A node as its parameters describe it.
pub(super) struct Built {
    pub(super) ctx: u64,
    pub(super) task: Task,
    pub(super) work: Option<Work>,
}

impl Built {
    fn plain(task: Task) -> Self {
        Self { ctx: 0, task, work: None }
    }
}

/// # Safety
/// The arguments in `p` are as `cuLaunchKernel` takes them.
pub(super) unsafe fn kernel(s: &mut State, p: &CUDA_KERNEL_NODE_PARAMS_v2, cooperative: bool) -> R<Built> {
    // SAFETY: as promised.
    let (ctx, task, work) = unsafe { s.kernel_work(p, cooperative)? };
    Ok(Built { ctx, task, work: Some(work) })
}

/// The first version of the parameters knows no kernels and no contexts.
pub(super) fn widen(p: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: p.func,
        gridDimX: p.gridDimX,
        gridDimY: p.gridDimY,
        gridDimZ: p.gridDimZ,
        blockDimX: p.blockDimX,
        blockDimY: p.blockDimY,
        blockDimZ: p.blockDimZ,
        sharedMemBytes: p.sharedMemBytes,
        kernelParams: p.kernelParams,
        extra: p.extra,
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    }
}

pub(super) fn copy(s: &State, p: &CUDA_MEMCPY3D, ctx: CUcontext) -> R<Built> {
    let ctx = s.context_or_current(ctx)?;
    let work = Some(s.copy_work(p)?);
    Ok(Built { ctx, task: Task::Copy(CopyParams::new(*p)), work })
}

pub(super) fn set(s: &State, p: &CUDA_MEMSET_NODE_PARAMS_v1, ctx: CUcontext) -> R<Built> {
    let ctx = s.context_or_current(ctx)?;
    let work = Some(s.set_work(p)?);
    Ok(Built { ctx, task: Task::Set(*p), work })
}

pub(super) fn host(p: &CUDA_HOST_NODE_PARAMS_v1) -> R<Built> {
    let function = p.fn_.ok_or(INVALID_VALUE)?;
    let data = p.userData as usize;
    let op = crate::engine::Op::Host { call: crate::engine::HostCall::Function(function), data };
    let work = Work { label: "host node of cuGraphLaunch", op, touches: crate::engine::Touches::NONE };
    Ok(Built { ctx: 0, task: Task::Host(function, data), work: Some(work) })
}

pub(super) fn event(s: &State, event: CUevent, records: bool) -> R<Built> {
    let handle = event as u64;
    let known = s.engine.events.get(&handle).ok_or(INVALID_VALUE)?;
    s.usable(known.ctx)?;
    Ok(Built::plain(if records { Task::Record(handle) } else { Task::Wait(handle) }))
}

/// A child takes a copy of its graph, or the graph itself; memory nodes can only be taken over.
fn child(s: &mut State, graph: u64, child: CUgraph, takes_over: bool) -> R<Built> {
    let child = graph_of(s, child)?;
    if !takes_over {
        return s.clone_graph(child).map(|clone| Built::plain(Task::Child(clone)));
    }
    let known = s.graph(child)?;
    let mut inside = Some(graph);
    while let Some(at) = inside {
        if at == child {
            return Err(INVALID_VALUE);
        }
        inside = s.graph(at)?.parent.and_then(|n| s.node(n).ok()).map(|n| n.graph);
    }
    if known.parent.is_some() || known.captures > 0 || known.execs > 0 {
        return Err(INVALID_VALUE);
    }
    Ok(Built::plain(Task::Child(child)))
}

/// # Safety
/// The access descriptions in `p` are an array of as many entries as it says.
unsafe fn alloc(s: &mut State, graph: u64, p: &CUDA_MEM_ALLOC_NODE_PARAMS_v1) -> R<AllocParams> {
    let device_kind = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    let props = p.poolProps;
    let plain = props.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED
        && props.handleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
        && props.location.type_ == device_kind;
    if !plain || p.bytesize == 0 {
        return Err(INVALID_VALUE);
    }
    let device = s.device(props.location.id()).map_err(|_| INVALID_VALUE)?;
    // SAFETY: as promised.
    let access = unsafe { read_all(p.accessDescs, p.accessDescCount)? };
    for wish in &access {
        if wish.location.type_ != device_kind || s.device(wish.location.id()).is_err() {
            return Err(INVALID_VALUE);
        }
    }
    let size = p.bytesize as u64;
    let addr = s.graph_memory_reserve(graph, thread::current(), device, size)?;
    Ok(AllocParams { props, access, size, addr })
}

/// # Safety
/// `ph_graph_node` is NULL or the caller's place.
unsafe fn add(s: &mut State, ph_graph_node: *mut CUgraphNode, graph: u64, edges: Vec<Edge>, built: Built) -> R {
    let node = s.add_node(graph, edges, built.ctx, built.task, built.work)?;
    // SAFETY: as promised.
    unsafe { put(ph_graph_node, node as CUgraphNode) };
    Ok(())
}

/// What every function that adds a node begins with: the graph, and dependencies that it may have.
///
/// # Safety
/// Each array is NULL or has `count` entries.
unsafe fn begin(
    s: &State,
    place: *mut CUgraphNode,
    graph: CUgraph,
    from: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> R<(u64, Vec<Edge>)> {
    need(place)?;
    let graph = graph_of(s, graph)?;
    // SAFETY: as promised.
    let edges = unsafe { edges(from, data, count)? };
    s.check_edges(graph, &edges)?;
    Ok((graph, edges))
}

macro_rules! adds {
    ($($name:ident($($arg:ident: $ty:ty),*) |$s:ident, $graph:ident| $build:expr;)*) => {
        $(
            pub(crate) unsafe fn $name(
                ph_graph_node: *mut CUgraphNode,
                h_graph: CUgraph,
                dependencies: *const CUgraphNode,
                num_dependencies: usize,
                $($arg: $ty),*
            ) -> R {
                let mut driver = driver()?;
                let $s: &mut State = &mut driver;
                // SAFETY: the caller's arrays, places and parameters, as documented.
                unsafe {
                    let ($graph, edges) =
                        begin($s, ph_graph_node, h_graph, dependencies, std::ptr::null(), num_dependencies)?;
                    let built = $build;
                    add($s, ph_graph_node, $graph, edges, built)
                }
            }
        )*
    };
}

adds! {
    cuGraphAddKernelNode(node_params: *const CUDA_KERNEL_NODE_PARAMS_v1) |s, _graph| {
        kernel(s, &widen(&read(node_params)?), false)?
    };
    cuGraphAddKernelNode_v2(node_params: *const CUDA_KERNEL_NODE_PARAMS_v2) |s, _graph| {
        kernel(s, &read(node_params)?, false)?
    };
    cuGraphAddMemcpyNode(copy_params: *const CUDA_MEMCPY3D_v2, ctx: CUcontext) |s, _graph| {
        copy(s, &read(copy_params)?, ctx)?
    };
    cuGraphAddMemsetNode(memset_params: *const CUDA_MEMSET_NODE_PARAMS_v1, ctx: CUcontext) |s, _graph| {
        set(s, &read(memset_params)?, ctx)?
    };
    cuGraphAddHostNode(node_params: *const CUDA_HOST_NODE_PARAMS_v1) |_s, _graph| {
        host(&read(node_params)?)?
    };
    cuGraphAddChildGraphNode(child_graph: CUgraph) |s, graph| child(s, graph, child_graph, false)?;
    cuGraphAddEmptyNode() |_s, _graph| Built::plain(Task::Empty);
    cuGraphAddEventRecordNode(event_handle: CUevent) |s, _graph| event(s, event_handle, true)?;
    cuGraphAddEventWaitNode(event_handle: CUevent) |s, _graph| event(s, event_handle, false)?;
    cuGraphAddMemAllocNode(node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) |s, graph| {
        let made = alloc(s, graph, &read(node_params.cast_const())?)?;
        (*node_params).dptr = made.addr;
        Built::plain(Task::Alloc(made))
    };
    cuGraphAddMemFreeNode(dptr: CUdeviceptr) |s, graph| {
        s.graph_memory_add_free(graph, dptr)?;
        Built::plain(Task::Free(dptr))
    };
}

/// Whether everything behind the first `used` bytes of the parameters is zero, as it must be.
fn unused_is_zero(p: &CUgraphNodeParams, used: usize) -> bool {
    // SAFETY: every member is plain data; the caller had to fill all of it.
    let bytes = unsafe { &p.__bindgen_anon_1.asBytes };
    p.reserved0 == [0; 3] && p.reserved2 == 0 && bytes.iter().skip(used).all(|&b| b == 0)
}

fn used_bytes(kind: CUgraphNodeType) -> R<usize> {
    use CUgraphNodeType as T;
    Ok(match kind {
        T::CU_GRAPH_NODE_TYPE_KERNEL => size_of::<CUDA_KERNEL_NODE_PARAMS_v3>(),
        T::CU_GRAPH_NODE_TYPE_MEMCPY => size_of::<CUDA_MEMCPY_NODE_PARAMS>(),
        T::CU_GRAPH_NODE_TYPE_MEMSET => size_of::<CUDA_MEMSET_NODE_PARAMS_v2>(),
        T::CU_GRAPH_NODE_TYPE_HOST => size_of::<CUDA_HOST_NODE_PARAMS_v2>(),
        T::CU_GRAPH_NODE_TYPE_GRAPH => size_of::<CUDA_CHILD_GRAPH_NODE_PARAMS>(),
        T::CU_GRAPH_NODE_TYPE_EMPTY => 0,
        T::CU_GRAPH_NODE_TYPE_WAIT_EVENT | T::CU_GRAPH_NODE_TYPE_EVENT_RECORD => size_of::<CUevent>(),
        T::CU_GRAPH_NODE_TYPE_MEM_ALLOC => size_of::<CUDA_MEM_ALLOC_NODE_PARAMS_v2>(),
        T::CU_GRAPH_NODE_TYPE_MEM_FREE => size_of::<CUDA_MEM_FREE_NODE_PARAMS>(),
        T::CU_GRAPH_NODE_TYPE_CONDITIONAL => size_of::<CUDA_CONDITIONAL_NODE_PARAMS>(),
        T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
        | T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT
        | T::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID_VALUE),
    })
}

/// A node of any kind whose parameters can also be set later.
///
/// # Safety
/// The union holds the member that its type names, as the caller of the function promises.
pub(super) unsafe fn any(s: &mut State, p: &CUgraphNodeParams, cooperative: bool) -> R<Option<Built>> {
    use CUgraphNodeType as T;
    if !unused_is_zero(p, used_bytes(p.type_)?) {
        return Err(INVALID_VALUE);
    }
    let u = &p.__bindgen_anon_1;
    // SAFETY: as promised: the type names the member.
    unsafe {
        Ok(Some(match p.type_ {
            T::CU_GRAPH_NODE_TYPE_KERNEL => {
                let k = &u.kernel;
                let params = CUDA_KERNEL_NODE_PARAMS_v2 {
                    func: k.func,
                    gridDimX: k.gridDimX,
                    gridDimY: k.gridDimY,
                    gridDimZ: k.gridDimZ,
                    blockDimX: k.blockDimX,
                    blockDimY: k.blockDimY,
                    blockDimZ: k.blockDimZ,
                    sharedMemBytes: k.sharedMemBytes,
                    kernelParams: k.kernelParams,
                    extra: k.extra,
                    kern: k.kern,
                    ctx: k.ctx,
                };
                kernel(s, &params, cooperative)?
            }
            T::CU_GRAPH_NODE_TYPE_MEMCPY if u.memcpy.flags != 0 || u.memcpy.reserved != 0 => return Err(INVALID_VALUE),
            T::CU_GRAPH_NODE_TYPE_MEMCPY => copy(s, &u.memcpy.copyParams, u.memcpy.copyCtx)?,
            T::CU_GRAPH_NODE_TYPE_MEMSET => {
                let m = &u.memset;
                let params = CUDA_MEMSET_NODE_PARAMS_v1 {
                    dst: m.dst,
                    pitch: m.pitch,
                    value: m.value,
                    elementSize: m.elementSize,
                    width: m.width,
                    height: m.height,
                };
                set(s, &params, m.ctx)?
            }
            // Zero waits asleep, one awake: how the device's own thread waits does not show.
            T::CU_GRAPH_NODE_TYPE_HOST if u.host.syncMode > 1 => return Err(INVALID_VALUE),
            T::CU_GRAPH_NODE_TYPE_HOST => {
                host(&CUDA_HOST_NODE_PARAMS_v1 { fn_: u.host.fn_, userData: u.host.userData })?
            }
            T::CU_GRAPH_NODE_TYPE_EMPTY => Built::plain(Task::Empty),
            T::CU_GRAPH_NODE_TYPE_WAIT_EVENT => event(s, u.eventWait.event, false)?,
            T::CU_GRAPH_NODE_TYPE_EVENT_RECORD => event(s, u.eventRecord.event, true)?,
            _ => return Ok(None),
        }))
    }
}

pub(crate) unsafe fn cuGraphAddNode_v2(
    ph_graph_node: *mut CUgraphNode,
    h_graph: CUgraph,
    dependencies: *const CUgraphNode,
    dependency_data: *const CUgraphEdgeData,
    num_dependencies: usize,
    node_params: *mut CUgraphNodeParams,
) -> R {
    use CUgraphNodeType as T;
    let mut driver = driver()?;
    let s: &mut State = &mut driver;
    // SAFETY: the caller's arrays, places and parameters, as documented; the type names the member.
    unsafe {
        let (graph, edges) = begin(s, ph_graph_node, h_graph, dependencies, dependency_data, num_dependencies)?;
        let p = read(node_params.cast_const())?;
        let built = match any(s, &p, false)? {
            Some(built) => built,
            None => match p.type_ {
                T::CU_GRAPH_NODE_TYPE_GRAPH => {
                    let given = p.__bindgen_anon_1.graph;
                    let takes_over = match given.ownership.0 {
                        0 => false,
                        1 => true,
                        _ => return Err(INVALID_VALUE),
                    };
                    child(s, graph, given.graph, takes_over)?
                }
                T::CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                    let wish = p.__bindgen_anon_1.alloc;
                    let wish = CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
                        poolProps: wish.poolProps,
                        accessDescs: wish.accessDescs,
                        accessDescCount: wish.accessDescCount,
                        bytesize: wish.bytesize,
                        dptr: 0,
                    };
                    let made = alloc(s, graph, &wish)?;
                    (*node_params).__bindgen_anon_1.alloc.dptr = made.addr;
                    Built::plain(Task::Alloc(made))
                }
                T::CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                    let wish = p.__bindgen_anon_1.conditional;
                    let ctx = s.context_or_current(wish.ctx)?;
                    let condition = s.conditional(graph, &wish)?;
                    (*node_params).__bindgen_anon_1.conditional.phGraph_out = condition.bodies.as_ptr() as *mut CUgraph;
                    Built { ctx, task: Task::Conditional(condition), work: None }
                }
                _ => {
                    let addr = p.__bindgen_anon_1.free.dptr;
                    s.graph_memory_add_free(graph, addr)?;
                    Built::plain(Task::Free(addr))
                }
            },
        };
        add(s, ph_graph_node, graph, edges, built)
    }
}

pub(crate) unsafe fn cuGraphAddNode(
    ph_graph_node: *mut CUgraphNode,
    h_graph: CUgraph,
    dependencies: *const CUgraphNode,
    num_dependencies: usize,
    node_params: *mut CUgraphNodeParams,
) -> R {
    let none = std::ptr::null();
    // SAFETY: passed on as promised.
    unsafe { cuGraphAddNode_v2(ph_graph_node, h_graph, dependencies, none, num_dependencies, node_params) }
}

pub(crate) unsafe fn cuGraphAddNode_v3(
    ph_graph_node: *mut CUgraphNode,
    h_graph: CUgraph,
    dependencies: *const CUgraphNode,
    dependency_data: *const CUgraphEdgeData,
    num_dependencies: usize,
    node_params: *mut CUgraphNodeParams,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuGraphAddNode_v2(ph_graph_node, h_graph, dependencies, dependency_data, num_dependencies, node_params) }
}
