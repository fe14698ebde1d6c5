//! Executable graphs.

use super::nodes::{self, Built};
use super::params::is_cooperative;
use super::{graph_of, node_of, read};
use crate::api::{need, put};
use crate::error::*;
use crate::graph::Refusal;
use crate::state::{Driver, driver};
use weir_cuda::*;

const UPLOAD: u64 = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0 as u64;

/// The first two versions return the node at fault, and a line for a log.
unsafe fn with_log(
    ph_graph_exec: *mut CUgraphExec,
    h_graph: CUgraph,
    ph_error_node: *mut CUgraphNode,
    log_buffer: *mut c_char,
    buffer_size: usize,
) -> R {
    need(ph_graph_exec)?;
    let mut s = driver()?;
    let made = graph_of(&s, h_graph).map_err(Refusal::from).and_then(|g| s.instantiate(g, 0));
    let (node, line) = match &made {
        Ok(_) => (0, ""),
        Err(refusal) => (refusal.node, "the graph cannot be instantiated"),
    };
    // SAFETY: the caller's places, or NULL; the line and its end fit the buffer.
    unsafe {
        put(ph_error_node, node as CUgraphNode);
        if !log_buffer.is_null() && buffer_size > 0 {
            let bytes = line.len().min(buffer_size - 1);
            log_buffer.cast::<u8>().copy_from_nonoverlapping(line.as_ptr(), bytes);
            log_buffer.add(bytes).write(0);
        }
        put(ph_graph_exec, made.as_ref().copied().unwrap_or(0) as CUgraphExec);
    }
    made.map(|_| ()).map_err(|refusal| refusal.code)
}

pub(crate) unsafe fn cuGraphInstantiate(
    ph_graph_exec: *mut CUgraphExec,
    h_graph: CUgraph,
    ph_error_node: *mut CUgraphNode,
    log_buffer: *mut c_char,
    buffer_size: usize,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { with_log(ph_graph_exec, h_graph, ph_error_node, log_buffer, buffer_size) }
}

pub(crate) unsafe fn cuGraphInstantiate_v2(
    ph_graph_exec: *mut CUgraphExec,
    h_graph: CUgraph,
    ph_error_node: *mut CUgraphNode,
    log_buffer: *mut c_char,
    buffer_size: usize,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { with_log(ph_graph_exec, h_graph, ph_error_node, log_buffer, buffer_size) }
}

pub(crate) unsafe fn cuGraphInstantiateWithFlags(
    ph_graph_exec: *mut CUgraphExec,
    h_graph: CUgraph,
    flags: c_ulonglong,
) -> R {
    need(ph_graph_exec)?;
    let mut s = driver()?;
    let graph = graph_of(&s, h_graph)?;
    // Where to upload can only be said with parameters.
    if flags & UPLOAD != 0 {
        return Err(INVALID_VALUE);
    }
    let exec = s.instantiate(graph, flags).map_err(|refusal| refusal.code)?;
    // SAFETY: checked above.
    unsafe { put(ph_graph_exec, exec as CUgraphExec) };
    Ok(())
}

pub(crate) unsafe fn cuGraphInstantiateWithParams(
    ph_graph_exec: *mut CUgraphExec,
    h_graph: CUgraph,
    instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> R {
    need(ph_graph_exec)?;
    let mut s = driver()?;
    // SAFETY: the caller's parameters.
    let mut params = unsafe { read(instantiate_params.cast_const())? };
    let made = prepare(&mut s, h_graph, &params);
    params.result_out = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS;
    params.hErrNode_out = std::ptr::null_mut();
    if let Err(refusal) = &made {
        params.result_out = refusal.result;
        params.hErrNode_out = refusal.node as CUgraphNode;
    }
    // SAFETY: read from there a moment ago.
    unsafe { put(instantiate_params, params) };
    let exec = made.map_err(|refusal| refusal.code)?;
    // SAFETY: checked above.
    unsafe { put(ph_graph_exec, exec as CUgraphExec) };
    Ok(())
}

fn prepare(s: &mut Driver, h_graph: CUgraph, params: &CUDA_GRAPH_INSTANTIATE_PARAMS) -> Result<u64, Refusal> {
    let graph = graph_of(s, h_graph)?;
    let uploads = params.flags & UPLOAD != 0;
    let stream = if uploads { Some(s.stream(params.hUploadStream)?) } else { None };
    let exec = s.instantiate(graph, params.flags)?;
    if let Some(stream) = stream
        && let Err(code) = s.upload(exec, stream)
    {
        s.destroy_exec(exec)?;
        return Err(code.into());
    }
    Ok(exec)
}

pub(crate) unsafe fn cuGraphExecDestroy(h_graph_exec: CUgraphExec) -> R {
    driver()?.destroy_exec(h_graph_exec as u64)
}

pub(crate) unsafe fn cuGraphLaunch(h_graph: CUgraphExec, h_stream: CUstream) -> R {
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    s.launch_graph(h_graph as u64, stream)
}

pub(crate) unsafe fn cuGraphUpload(h_graph: CUgraphExec, h_stream: CUstream) -> R {
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    s.upload(h_graph as u64, stream)
}

pub(crate) unsafe fn cuGraphExecGetFlags(h_graph_exec: CUgraphExec, flags: *mut u64) -> R {
    need(flags)?;
    let s = driver()?;
    // SAFETY: checked above.
    unsafe { put(flags, s.exec(h_graph_exec as u64)?.flags) };
    Ok(())
}

pub(crate) unsafe fn cuGraphExecGetId(h_graph_exec: CUgraphExec, graph_id: *mut c_uint) -> R {
    need(graph_id)?;
    let s = driver()?;
    // SAFETY: checked above.
    unsafe { put(graph_id, s.exec(h_graph_exec as u64)?.id) };
    Ok(())
}

/// What an update came to.
fn update(h_graph_exec: CUgraphExec, h_graph: CUgraph) -> R<(CUgraphExecUpdateResultInfo, R)> {
    let mut s = driver()?;
    let mut info = CUgraphExecUpdateResultInfo {
        result: CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS,
        errorNode: std::ptr::null_mut(),
        errorFromNode: std::ptr::null_mut(),
    };
    let known = s.exec(h_graph_exec as u64).is_ok() && s.graph(h_graph as u64).is_ok();
    let verdict = match s.update_exec(h_graph_exec as u64, h_graph as u64) {
        Ok(()) => Ok(()),
        Err(mismatch) => {
            info.result = mismatch.result;
            info.errorNode = mismatch.node as CUgraphNode;
            info.errorFromNode = mismatch.from as CUgraphNode;
            Err(if known { GRAPH_EXEC_UPDATE_FAILURE } else { INVALID_VALUE })
        }
    };
    Ok((info, verdict))
}

pub(crate) unsafe fn cuGraphExecUpdate_v2(
    h_graph_exec: CUgraphExec,
    h_graph: CUgraph,
    result_info: *mut CUgraphExecUpdateResultInfo,
) -> R {
    need(result_info)?;
    let (info, verdict) = update(h_graph_exec, h_graph)?;
    // SAFETY: checked above.
    unsafe { put(result_info, info) };
    verdict
}

pub(crate) unsafe fn cuGraphExecUpdate(
    h_graph_exec: CUgraphExec,
    h_graph: CUgraph,
    h_error_node_out: *mut CUgraphNode,
    update_result_out: *mut CUgraphExecUpdateResult,
) -> R {
    need(update_result_out)?;
    let (info, verdict) = update(h_graph_exec, h_graph)?;
    // SAFETY: the caller's places, or NULL.
    unsafe {
        put(h_error_node_out, info.errorNode);
        put(update_result_out, info.result);
    }
    verdict
}

pub(crate) unsafe fn cuGraphNodeSetEnabled(h_graph_exec: CUgraphExec, h_node: CUgraphNode, is_enabled: c_uint) -> R {
    driver()?.switch_step(h_graph_exec as u64, h_node as u64, Some(is_enabled != 0)).map(|_| ())
}

pub(crate) unsafe fn cuGraphNodeGetEnabled(
    h_graph_exec: CUgraphExec,
    h_node: CUgraphNode,
    is_enabled: *mut c_uint,
) -> R {
    need(is_enabled)?;
    let enabled = driver()?.switch_step(h_graph_exec as u64, h_node as u64, None)?;
    // SAFETY: checked above.
    unsafe { put(is_enabled, c_uint::from(enabled)) };
    Ok(())
}

fn replace(s: &mut Driver, exec: CUgraphExec, node: CUgraphNode, built: Built) -> R {
    s.set_step(exec as u64, node as u64, built.ctx, built.task, built.work)
}

pub(crate) unsafe fn cuGraphExecKernelNodeSetParams_v2(
    h_graph_exec: CUgraphExec,
    h_node: CUgraphNode,
    node_params: *const CUDA_KERNEL_NODE_PARAMS_v2,
) -> R {
    let mut s = driver()?;
    s.exec(h_graph_exec as u64)?;
    let cooperative = is_cooperative(&s, node_of(&s, h_node)?);
    // SAFETY: the caller's parameters.
    let built = unsafe { nodes::kernel(&mut s, &read(node_params)?, cooperative)? };
    replace(&mut s, h_graph_exec, h_node, built)
}

pub(crate) unsafe fn cuGraphExecKernelNodeSetParams(
    h_graph_exec: CUgraphExec,
    h_node: CUgraphNode,
    node_params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> R {
    // SAFETY: passed on as promised.
    unsafe {
        let params = nodes::widen(&read(node_params)?);
        cuGraphExecKernelNodeSetParams_v2(h_graph_exec, h_node, &raw const params)
    }
}

pub(crate) unsafe fn cuGraphExecMemcpyNodeSetParams(
    h_graph_exec: CUgraphExec,
    h_node: CUgraphNode,
    copy_params: *const CUDA_MEMCPY3D_v2,
    ctx: CUcontext,
) -> R {
    let mut s = driver()?;
    s.exec(h_graph_exec as u64)?;
    node_of(&s, h_node)?;
    // SAFETY: the caller's parameters.
    let params = unsafe { read(copy_params)? };
    // An empty copy cannot take the place of one that does something.
    if params.WidthInBytes == 0 || params.Height == 0 || params.Depth == 0 {
        return Err(INVALID_VALUE);
    }
    let built = nodes::copy(&s, &params, ctx)?;
    replace(&mut s, h_graph_exec, h_node, built)
}

pub(crate) unsafe fn cuGraphExecMemsetNodeSetParams(
    h_graph_exec: CUgraphExec,
    h_node: CUgraphNode,
    memset_params: *const CUDA_MEMSET_NODE_PARAMS_v1,
    ctx: CUcontext,
) -> R {
    let mut s = driver()?;
    s.exec(h_graph_exec as u64)?;
    node_of(&s, h_node)?;
    // SAFETY: the caller's parameters.
    let params = unsafe { read(memset_params)? };
    let built = nodes::set(&s, &params, ctx)?;
    replace(&mut s, h_graph_exec, h_node, built)
}

pub(crate) unsafe fn cuGraphExecHostNodeSetParams(
    h_graph_exec: CUgraphExec,
    h_node: CUgraphNode,
    node_params: *const CUDA_HOST_NODE_PARAMS_v1,
) -> R {
    let mut s = driver()?;
    // SAFETY: the caller's parameters.
    let params = unsafe { read(node_params)? };
    replace(&mut s, h_graph_exec, h_node, nodes::host(&params)?)
}

pub(crate) unsafe fn cuGraphExecChildGraphNodeSetParams(
    h_graph_exec: CUgraphExec,
    h_node: CUgraphNode,
    child_graph: CUgraph,
) -> R {
    let mut s = driver()?;
    let child = graph_of(&s, child_graph)?;
    s.set_child_step(h_graph_exec as u64, h_node as u64, child)
}

pub(crate) unsafe fn cuGraphExecEventRecordNodeSetEvent(
    h_graph_exec: CUgraphExec,
    h_node: CUgraphNode,
    event: CUevent,
) -> R {
    let mut s = driver()?;
    let built = nodes::event(&s, event, true)?;
    replace(&mut s, h_graph_exec, h_node, built)
}

pub(crate) unsafe fn cuGraphExecEventWaitNodeSetEvent(
    h_graph_exec: CUgraphExec,
    h_node: CUgraphNode,
    event: CUevent,
) -> R {
    let mut s = driver()?;
    let built = nodes::event(&s, event, false)?;
    replace(&mut s, h_graph_exec, h_node, built)
}

pub(crate) unsafe fn cuGraphExecNodeSetParams(
    h_graph_exec: CUgraphExec,
    h_node: CUgraphNode,
    node_params: *mut CUgraphNodeParams,
) -> R {
    let mut s = driver()?;
    s.exec(h_graph_exec as u64)?;
    let node = node_of(&s, h_node)?;
    // SAFETY: the caller's parameters.
    let params = unsafe { read(node_params.cast_const())? };
    if params.type_ != s.node(node)?.task.kind() {
        return Err(INVALID_VALUE);
    }
    if params.type_ == CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH {
        // SAFETY: the type names the member of the union.
        let child = graph_of(&s, unsafe { params.__bindgen_anon_1.graph.graph })?;
        return s.set_child_step(h_graph_exec as u64, node, child);
    }
    let cooperative = is_cooperative(&s, node);
    // SAFETY: the type names the member of the union.
    let built = unsafe { nodes::any(&mut s, &params, cooperative)? };
    // What a memory node allocates or frees cannot change.
    replace(&mut s, h_graph_exec, h_node, built.ok_or(NOT_SUPPORTED)?)
}
