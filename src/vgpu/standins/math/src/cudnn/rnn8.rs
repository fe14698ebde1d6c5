//! Recurrent networks in the functions that only cuDNN 8 had. They work on the same descriptors.

use super::rnn::{Network, Part};
use super::tensor::Tensor;
use crate::answers::put;
use core::ffi::{c_int, c_uint, c_void};

library! {
    /// The settings that older functions know.
    fn cudnnGetRNNDescriptor_v6(
        _handle: *mut c_void, network: *const Network, hidden: *mut c_int, layers: *mut c_int, dropout: *mut usize,
        input: *mut c_uint, direction: *mut c_uint, cell: *mut c_uint, algorithm: *mut c_uint, precision: *mut c_uint,
    ) {
        let known = &*network;
        put(hidden, known.hidden);
        put(layers, known.layers);
        put(dropout, known.dropout);
        put(input, known.input);
        put(direction, known.direction);
        put(cell, known.cell);
        put(algorithm, known.algorithm);
        put(precision, known.precision);
    }
    /// Lengths of projections; 0 without one.
    fn cudnnGetRNNProjectionLayers(
        _handle: *mut c_void, network: *const Network, recurrent: *mut c_int, output: *mut c_int,
    ) {
        put(recurrent, if (*network).projected() { (*network).projection } else { 0 });
        put(output, 0);
    }
    /// Bytes of all weights.
    fn cudnnGetRNNParamsSize(
        _handle: *mut c_void, network: *const Network, _x: *const Tensor, size: *mut usize, _kind: c_uint,
    ) { put(size, (*network).weights().bytes); }
    /// Where a matrix lies.
    fn cudnnGetRNNLinLayerMatrixParams(
        _handle: *mut c_void, network: *const Network, layer: c_int, _x: *const Tensor, _filter: *const Tensor,
        weights: usize, matrix: c_int, layout: *mut Tensor, place: *mut usize,
    ) {
        let part = (*network).weights().matrices.get(layer as usize).and_then(|list| list.get(matrix as usize)).copied();
        describe(&*network, weights, part, layout, place);
    }
    /// Where a bias lies.
    fn cudnnGetRNNLinLayerBiasParams(
        _handle: *mut c_void, network: *const Network, layer: c_int, _x: *const Tensor, _filter: *const Tensor,
        weights: usize, matrix: c_int, layout: *mut Tensor, place: *mut usize,
    ) {
        let part = (*network).weights().biases.get(layer as usize).and_then(|list| list.get(matrix as usize)).copied();
        describe(&*network, weights, part.flatten(), layout, place);
    }
    /// The workspace of a pass over so many steps; `x` lists the input of each.
    fn cudnnGetRNNWorkspaceSize(
        _handle: *mut c_void, network: *const Network, steps: c_int, x: *const *const Tensor, size: *mut usize,
    ) { put(size, (*network).workspace(steps as usize * batch(x))); }
    /// What is kept for the backward pass.
    fn cudnnGetRNNTrainingReserveSize(
        _handle: *mut c_void, network: *const Network, steps: c_int, x: *const *const Tensor, size: *mut usize,
    ) { put(size, (*network).reserve(steps as usize * batch(x))); }
    /// Makes a plan for one batch size.
    fn cudnnCreatePersistentRNNPlan(_network: *mut Network, _batch: c_int, _kind: c_uint, place: *mut usize) {
        put(place, crate::answers::handle());
    }
}

/// # Safety
/// `x` lists at least one tensor.
unsafe fn batch(x: *const *const Tensor) -> usize {
    // SAFETY: as promised.
    let first = unsafe { x.as_ref().and_then(|&first| first.as_ref()) };
    first.and_then(|tensor| tensor.dims.first()).map_or(1, |&n| n.max(1) as usize)
}

/// # Safety
/// Both places are NULL or the caller's.
unsafe fn describe(network: &Network, weights: usize, part: Option<Part>, layout: *mut Tensor, place: *mut usize) {
    // SAFETY: as promised. A filter is described as a tensor is.
    unsafe { super::rnn::describe(network.kind, weights, part, layout, place) };
}
