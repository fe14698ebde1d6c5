//! Graphs: what their functions share. By topic: structure, nodes with their parameters, executable
//! graphs, and what graphs own.

pub(super) mod exec;
pub(super) mod nodes;
pub(super) mod owned;
pub(super) mod params;
pub(super) mod structure;

use crate::error::*;
use crate::graph::Edge;
use crate::state::State;
use weir_cuda::*;

/// A graph of an argument.
pub(super) fn graph_of(s: &State, graph: CUgraph) -> R<u64> {
    s.graph(graph as u64).map(|_| graph as u64)
}

/// A node of an argument.
fn node_of(s: &State, node: CUgraphNode) -> R<u64> {
    s.node(node as u64).map(|_| node as u64)
}

/// What a pointer of the job points at.
///
/// # Safety
/// `pointer` is NULL or the caller's `T`.
pub(super) unsafe fn read<T: Copy>(pointer: *const T) -> R<T> {
    if pointer.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: as promised.
    Ok(unsafe { pointer.read() })
}

/// An array of the job.
///
/// # Safety
/// `array` is NULL or has `count` entries.
unsafe fn read_all<T: Copy>(array: *const T, count: usize) -> R<Vec<T>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if array.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: as promised.
    Ok(unsafe { std::slice::from_raw_parts(array, count) }.to_vec())
}

/// Dependencies with their data, which may be left out.
///
/// # Safety
/// Both are NULL or have `count` entries.
pub(super) unsafe fn edges(from: *const CUgraphNode, data: *const CUgraphEdgeData, count: usize) -> R<Vec<Edge>> {
    // SAFETY: as promised.
    let from = unsafe { read_all(from, count)? };
    if data.is_null() {
        return Ok(from.into_iter().map(|n| Edge::plain(n as u64)).collect());
    }
    // SAFETY: as promised.
    let data = unsafe { read_all(data, count)? };
    Ok(from.into_iter().zip(data).map(|(n, d)| Edge::new(n as u64, d)).collect())
}

/// Returns a list: how many there are if `out` is NULL, else as many as there is room for, and NULL
/// in the rest of the room.
///
/// # Safety
/// `out` is NULL or has as many entries as `count` says.
unsafe fn return_list<T>(list: &[u64], out: *mut *mut T, count: *mut usize) -> R {
    // SAFETY: as promised.
    let room = unsafe { read(count.cast_const())? };
    if out.is_null() {
        // SAFETY: found not to be NULL by `read`.
        unsafe { count.write(list.len()) };
        return Ok(());
    }
    for at in 0..room {
        let handle = list.get(at).copied().unwrap_or(0);
        // SAFETY: there is room for so many.
        unsafe { out.add(at).write(handle as *mut T) };
    }
    // SAFETY: found not to be NULL by `read`.
    unsafe { count.write(list.len().min(room)) };
    Ok(())
}
