//! Capture of streams.

use super::graph::{edges, graph_of, read};
use super::{need, put};
use crate::error::*;
use crate::graph::{Edge, LOSSY_QUERY};
use crate::state::{Driver, driver, thread};
use weir_cuda::*;

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

pub(crate) unsafe fn cuStreamBeginCapture(h_stream: CUstream) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuStreamBeginCapture_v2(h_stream, GLOBAL) }
}

pub(crate) unsafe fn cuStreamBeginCapture_v2(h_stream: CUstream, mode: CUstreamCaptureMode) -> R {
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    s.begin_capture(stream, mode.0, None)
}

pub(crate) unsafe fn cuStreamBeginCaptureToGraph(
    h_stream: CUstream,
    h_graph: CUgraph,
    dependencies: *const CUgraphNode,
    dependency_data: *const CUgraphEdgeData,
    num_dependencies: usize,
    mode: CUstreamCaptureMode,
) -> R {
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    let graph = graph_of(&s, h_graph)?;
    // SAFETY: the caller's arrays of `num_dependencies` entries.
    let edges = unsafe { edges(dependencies, dependency_data, num_dependencies)? };
    s.begin_capture(stream, mode.0, Some((graph, edges)))
}

pub(crate) unsafe fn cuStreamEndCapture(h_stream: CUstream, ph_graph: *mut CUgraph) -> R {
    need(ph_graph)?;
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    let ended = s.end_capture(stream);
    // SAFETY: the caller's place; a broken capture gives NULL.
    unsafe { put(ph_graph, ended.unwrap_or(0) as CUgraph) };
    ended.map(|_| ())
}

fn status(s: &Driver, stream: u64) -> CUstreamCaptureStatus {
    match s.capture_of(stream).and_then(|c| s.graphs.captures.get(&c)) {
        None => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
        Some(c) if c.invalid => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
        Some(_) => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE,
    }
}

pub(crate) unsafe fn cuStreamIsCapturing(h_stream: CUstream, capture_status: *mut CUstreamCaptureStatus) -> R {
    need(capture_status)?;
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    s.implicit_capture(stream)?;
    // SAFETY: checked above.
    unsafe { put(capture_status, status(&s, stream)) };
    Ok(())
}

/// Where the job wants to know about a capture; all but the status may be NULL.
struct Wanted {
    status: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    data: *mut *const CUgraphEdgeData,
    count: *mut usize,
}

/// # Safety
/// Every place in `wanted` is NULL or the caller's.
unsafe fn capture_info(h_stream: CUstream, wanted: &Wanted) -> R {
    need(wanted.status)?;
    if !wanted.data.is_null() && wanted.dependencies.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    s.implicit_capture(stream)?;
    let status = status(&s, stream);
    // SAFETY: as promised.
    unsafe { put(wanted.status, status) };
    if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok(());
    }
    let id = s.capture_of(stream).ok_or(INVALID_VALUE)?;
    let capture = s.graphs.captures.get_mut(&id).ok_or(INVALID_VALUE)?;
    let graph = capture.graph;
    let joined = capture.streams.get_mut(&stream).ok_or(INVALID_VALUE)?;
    if !wanted.dependencies.is_null() && wanted.data.is_null() && !joined.frontier.iter().all(Edge::is_plain) {
        return Err(LOSSY_QUERY);
    }
    joined.returned_nodes = joined.frontier.iter().map(|e| e.from).collect();
    joined.returned_data = joined.frontier.iter().map(Edge::data).collect();
    // SAFETY: as promised. The arrays stay until the capture ends or is queried again; a handle
    // is as wide as a pointer.
    unsafe {
        put(wanted.id, id);
        put(wanted.graph, graph as CUgraph);
        put(wanted.dependencies, joined.returned_nodes.as_ptr().cast());
        put(wanted.data, joined.returned_data.as_ptr());
        put(wanted.count, joined.returned_nodes.len());
    }
    Ok(())
}

pub(crate) unsafe fn cuStreamGetCaptureInfo(
    h_stream: CUstream,
    capture_status_out: *mut CUstreamCaptureStatus,
    id_out: *mut u64,
) -> R {
    use std::ptr::null_mut;
    let wanted = Wanted {
        status: capture_status_out,
        id: id_out,
        graph: null_mut(),
        dependencies: null_mut(),
        data: null_mut(),
        count: null_mut(),
    };
    // SAFETY: the caller's places.
    unsafe { capture_info(h_stream, &wanted) }
}

pub(crate) unsafe fn cuStreamGetCaptureInfo_v2(
    h_stream: CUstream,
    capture_status_out: *mut CUstreamCaptureStatus,
    id_out: *mut u64,
    graph_out: *mut CUgraph,
    dependencies_out: *mut *const CUgraphNode,
    num_dependencies_out: *mut usize,
) -> R {
    let wanted = Wanted {
        status: capture_status_out,
        id: id_out,
        graph: graph_out,
        dependencies: dependencies_out,
        data: std::ptr::null_mut(),
        count: num_dependencies_out,
    };
    // SAFETY: the caller's places.
    unsafe { capture_info(h_stream, &wanted) }
}

pub(crate) unsafe fn cuStreamGetCaptureInfo_v3(
    h_stream: CUstream,
    capture_status_out: *mut CUstreamCaptureStatus,
    id_out: *mut u64,
    graph_out: *mut CUgraph,
    dependencies_out: *mut *const CUgraphNode,
    edge_data_out: *mut *const CUgraphEdgeData,
    num_dependencies_out: *mut usize,
) -> R {
    let wanted = Wanted {
        status: capture_status_out,
        id: id_out,
        graph: graph_out,
        dependencies: dependencies_out,
        data: edge_data_out,
        count: num_dependencies_out,
    };
    // SAFETY: the caller's places.
    unsafe { capture_info(h_stream, &wanted) }
}

pub(crate) unsafe fn cuStreamUpdateCaptureDependencies(
    h_stream: CUstream,
    dependencies: *mut CUgraphNode,
    num_dependencies: usize,
    flags: c_uint,
) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuStreamUpdateCaptureDependencies_v2(h_stream, dependencies, std::ptr::null(), num_dependencies, flags) }
}

pub(crate) unsafe fn cuStreamUpdateCaptureDependencies_v2(
    h_stream: CUstream,
    dependencies: *mut CUgraphNode,
    dependency_data: *const CUgraphEdgeData,
    num_dependencies: usize,
    flags: c_uint,
) -> R {
    if flags > 1 {
        return Err(INVALID_VALUE);
    }
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    // SAFETY: the caller's arrays of `num_dependencies` entries.
    let edges = unsafe { edges(dependencies, dependency_data, num_dependencies)? };
    s.set_frontier(stream, edges, flags == 1)
}

pub(crate) unsafe fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) -> R {
    need(mode)?;
    let _ = driver()?;
    // SAFETY: the caller's place, checked above.
    let wanted = unsafe { read(mode.cast_const())? };
    if wanted.0 > 2 {
        return Err(INVALID_VALUE);
    }
    let before = thread::capture_mode();
    thread::set_capture_mode(wanted.0);
    // SAFETY: checked above.
    unsafe { put(mode, CUstreamCaptureMode(before)) };
    Ok(())
}
