//! Parameters and attributes of nodes: read, and changed before instantiation.

use super::nodes::{self, Built};
use super::{node_of, read};
use crate::api::{need, put};
use crate::error::*;
use crate::graph::Task;
use crate::state::{State, driver};
use weir_cuda::*;

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
const COOPERATIVE: u32 = 2;

/// Whether a kernel node is to run all its blocks at once.
pub(super) fn is_cooperative(s: &State, node: u64) -> bool {
    s.node(node).is_ok_and(|n| n.attributes.get(&COOPERATIVE).is_some_and(|v| v[..4] != [0; 4]))
}

/// Gives a node new parameters of its own kind.
fn replace(s: &mut State, node: CUgraphNode, built: Built, keep_ctx: bool) -> R {
    let node = s.node_mut(node as u64)?;
    if node.task.kind() != built.task.kind() {
        return Err(INVALID_VALUE);
    }
    node.task = built.task;
    node.work = built.work;
    if !keep_ctx {
        node.ctx = built.ctx;
    }
    Ok(())
}

macro_rules! getters {
    ($($name:ident($ty:ty) |$node:ident| $pattern:pat => $value:expr;)*) => {
        $(
            pub(crate) unsafe fn $name(h_node: CUgraphNode, params_out: *mut $ty) -> R {
                need(params_out)?;
                let s = driver()?;
                let $node = s.node(h_node as u64)?;
                let $pattern = &$node.task else { return Err(INVALID_VALUE) };
                // SAFETY: checked above.
                unsafe { put(params_out, $value) };
                Ok(())
            }
        )*
    };
}

getters! {
    cuGraphKernelNodeGetParams(CUDA_KERNEL_NODE_PARAMS_v1) |node| Task::Kernel(p) => narrow(&p.params(node.ctx));
    cuGraphKernelNodeGetParams_v2(CUDA_KERNEL_NODE_PARAMS_v2) |node| Task::Kernel(p) => p.params(node.ctx);
    cuGraphMemcpyNodeGetParams(CUDA_MEMCPY3D_v2) |node| Task::Copy(p) => *p.get();
    cuGraphMemsetNodeGetParams(CUDA_MEMSET_NODE_PARAMS_v1) |node| Task::Set(p) => *p;
    cuGraphHostNodeGetParams(CUDA_HOST_NODE_PARAMS_v1) |node| Task::Host(function, data) => {
        CUDA_HOST_NODE_PARAMS_v1 { fn_: Some(*function), userData: *data as *mut c_void }
    };
    cuGraphChildGraphNodeGetGraph(CUgraph) |node| Task::Child(child) => *child as CUgraph;
    cuGraphEventRecordNodeGetEvent(CUevent) |node| Task::Record(event) => *event as CUevent;
    cuGraphEventWaitNodeGetEvent(CUevent) |node| Task::Wait(event) => *event as CUevent;
    cuGraphMemAllocNodeGetParams(CUDA_MEM_ALLOC_NODE_PARAMS) |node| Task::Alloc(p) => p.params();
    cuGraphMemFreeNodeGetParams(CUdeviceptr) |node| Task::Free(addr) => *addr;
}

fn narrow(p: &CUDA_KERNEL_NODE_PARAMS_v2) -> CUDA_KERNEL_NODE_PARAMS_v1 {
    CUDA_KERNEL_NODE_PARAMS_v1 {
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
    }
}

pub(crate) unsafe fn cuGraphKernelNodeSetParams_v2(
    h_node: CUgraphNode,
    node_params: *const CUDA_KERNEL_NODE_PARAMS_v2,
) -> R {
    let mut s = driver()?;
    let cooperative = is_cooperative(&s, node_of(&s, h_node)?);
    // SAFETY: the caller's parameters.
    let built = unsafe { nodes::kernel(&mut s, &read(node_params)?, cooperative)? };
    replace(&mut s, h_node, built, false)
}

pub(crate) unsafe fn cuGraphKernelNodeSetParams(
    h_node: CUgraphNode,
    node_params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> R {
    // SAFETY: passed on as promised.
    unsafe {
        let params = nodes::widen(&read(node_params)?);
        cuGraphKernelNodeSetParams_v2(h_node, &raw const params)
    }
}

pub(crate) unsafe fn cuGraphMemcpyNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_MEMCPY3D_v2) -> R {
    let mut s = driver()?;
    let ctx = s.node(h_node as u64)?.ctx;
    // SAFETY: the caller's parameters.
    let params = unsafe { read(node_params)? };
    let built = nodes::copy(&s, &params, ctx as CUcontext)?;
    replace(&mut s, h_node, built, true)
}

pub(crate) unsafe fn cuGraphMemsetNodeSetParams(
    h_node: CUgraphNode,
    node_params: *const CUDA_MEMSET_NODE_PARAMS_v1,
) -> R {
    let mut s = driver()?;
    let ctx = s.node(h_node as u64)?.ctx;
    // SAFETY: the caller's parameters.
    let params = unsafe { read(node_params)? };
    let built = nodes::set(&s, &params, ctx as CUcontext)?;
    replace(&mut s, h_node, built, true)
}

pub(crate) unsafe fn cuGraphHostNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS_v1) -> R {
    let mut s = driver()?;
    // SAFETY: the caller's parameters.
    let params = unsafe { read(node_params)? };
    replace(&mut s, h_node, nodes::host(&params)?, true)
}

pub(crate) unsafe fn cuGraphEventRecordNodeSetEvent(h_node: CUgraphNode, event: CUevent) -> R {
    let mut s = driver()?;
    let built = nodes::event(&s, event, true)?;
    replace(&mut s, h_node, built, true)
}

pub(crate) unsafe fn cuGraphEventWaitNodeSetEvent(h_node: CUgraphNode, event: CUevent) -> R {
    let mut s = driver()?;
    let built = nodes::event(&s, event, false)?;
    replace(&mut s, h_node, built, true)
}

pub(crate) unsafe fn cuGraphNodeSetParams(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) -> R {
    let mut s = driver()?;
    let node = node_of(&s, h_node)?;
    // SAFETY: the caller's parameters.
    let params = unsafe { read(node_params.cast_const())? };
    if params.type_ != s.node(node)?.task.kind() {
        return Err(INVALID_VALUE);
    }
    let cooperative = is_cooperative(&s, node);
    // SAFETY: the type names the member of the union.
    let built = unsafe { nodes::any(&mut s, &params, cooperative)? };
    // Memory nodes stay as they are; a child's graph is changed through its handle.
    replace(&mut s, h_node, built.ok_or(NOT_SUPPORTED)?, false)
}

pub(crate) unsafe fn cuGraphNodeSetParams_v2(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuGraphNodeSetParams(h_node, node_params) }
}

pub(crate) unsafe fn cuGraphNodeGetParams(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) -> R {
    need(node_params)?;
    let s = driver()?;
    let node = s.node(h_node as u64)?;
    let mut params = CUgraphNodeParams { type_: node.task.kind(), ..CUgraphNodeParams::default() };
    let u = &mut params.__bindgen_anon_1;
    match &node.task {
        Task::Kernel(p) => {
            let k = p.params(node.ctx);
            u.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
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
        }
        Task::Copy(p) => {
            u.memcpy =
                CUDA_MEMCPY_NODE_PARAMS { flags: 0, reserved: 0, copyCtx: node.ctx as CUcontext, copyParams: *p.get() };
        }
        Task::Set(p) => {
            u.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
                dst: p.dst,
                pitch: p.pitch,
                value: p.value,
                elementSize: p.elementSize,
                width: p.width,
                height: p.height,
                ctx: node.ctx as CUcontext,
            };
        }
        Task::Host(function, data) => {
            u.host = CUDA_HOST_NODE_PARAMS_v2 {
                fn_: Some(*function),
                userData: *data as *mut c_void,
                ..CUDA_HOST_NODE_PARAMS_v2::default()
            };
        }
        Task::Child(child) => u.graph.graph = *child as CUgraph,
        Task::Wait(event) => u.eventWait.event = *event as CUevent,
        Task::Record(event) => u.eventRecord.event = *event as CUevent,
        Task::Alloc(p) => {
            let p = p.params();
            u.alloc = CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
                poolProps: p.poolProps,
                accessDescs: p.accessDescs,
                accessDescCount: p.accessDescCount,
                bytesize: p.bytesize,
                dptr: p.dptr,
            };
        }
        Task::Free(addr) => u.free.dptr = *addr,
        Task::Conditional(condition) => {
            u.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
                handle: condition.handle,
                type_: condition.kind,
                size: condition.bodies.len() as c_uint,
                phGraph_out: condition.bodies.as_ptr() as *mut CUgraph,
                ctx: node.ctx as CUcontext,
            };
        }
        Task::Empty | Task::Batch => {}
    }
    // SAFETY: checked above.
    unsafe { put(node_params, params) };
    Ok(())
}

/// The attributes that kernel nodes have.
fn is_attribute(id: CUkernelNodeAttrID) -> bool {
    use CUlaunchAttributeID as A;
    [
        A::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
        A::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
        A::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        A::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
        A::CU_LAUNCH_ATTRIBUTE_PRIORITY,
        A::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
        A::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
        A::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    ]
    .contains(&id)
}

fn kernel_node(s: &State, node: CUgraphNode) -> R<u64> {
    match s.node(node as u64)?.task {
        Task::Kernel(_) => Ok(node as u64),
        _ => Err(INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuGraphKernelNodeGetAttribute(
    h_node: CUgraphNode,
    attr: CUkernelNodeAttrID,
    value_out: *mut CUkernelNodeAttrValue_v1,
) -> R {
    need(value_out)?;
    let s = driver()?;
    let node = kernel_node(&s, h_node)?;
    if !is_attribute(attr) {
        return Err(INVALID_VALUE);
    }
    let bytes = s.node(node)?.attributes.get(&attr.0).copied().unwrap_or([0; 64]);
    let value = CUkernelNodeAttrValue_v1 { pad: bytes.map(|b| b as c_char) };
    // SAFETY: checked above.
    unsafe { put(value_out, value) };
    Ok(())
}

pub(crate) unsafe fn cuGraphKernelNodeSetAttribute(
    h_node: CUgraphNode,
    attr: CUkernelNodeAttrID,
    value: *const CUkernelNodeAttrValue_v1,
) -> R {
    let mut s = driver()?;
    let node = kernel_node(&s, h_node)?;
    if !is_attribute(attr) {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's value, of which every byte may be read.
    let bytes = unsafe { read(value)?.pad }.map(|b| b as u8);
    s.node_mut(node)?.attributes.insert(attr.0, bytes);
    Ok(())
}

pub(crate) unsafe fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode) -> R {
    let mut s = driver()?;
    let (to, from) = (kernel_node(&s, dst)?, kernel_node(&s, src)?);
    let attributes = s.node(from)?.attributes.clone();
    s.node_mut(to)?.attributes = attributes;
    Ok(())
}
