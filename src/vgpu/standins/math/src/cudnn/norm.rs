//! Sizes for batch normalisation and dropout.
//!
//! Model: the workspace holds four numbers for each channel; what is kept for the backward pass is one bit
//! for each element that an activation may have cut off, and nothing without an activation.

use super::tensor::Tensor;
use crate::answers::put;
use core::ffi::{c_int, c_uint, c_void};

/// Bytes of the state of one random generator for each thread that an A100 can hold.
const DROPOUT_STATES: usize = 108 * 2048 * 16;

fn workspace(tensor: &Tensor) -> usize {
    tensor.channels() * 4 * size_of::<f32>()
}

library! {
    /// The workspace of a forward pass.
    fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
        _handle: *mut c_void, _mode: c_uint, _ops: c_uint, x: *const Tensor, _z: *const Tensor, _y: *const Tensor,
        _scale: *const Tensor, _activation: *mut c_void, size: *mut usize,
    ) { put(size, workspace(&*x)); }
    /// The workspace of a backward pass.
    fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        _handle: *mut c_void, _mode: c_uint, _ops: c_uint, x: *const Tensor, _y: *const Tensor, _dy: *const Tensor,
        _dz: *const Tensor, _dx: *const Tensor, _scale: *const Tensor, _activation: *mut c_void, size: *mut usize,
    ) { put(size, workspace(&*x)); }
    /// What is kept from the forward pass for the backward pass.
    fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
        _handle: *mut c_void, _mode: c_uint, ops: c_uint, _activation: *mut c_void, x: *const Tensor, size: *mut usize,
    ) { put(size, if ops == 0 { 0 } else { (*x).elements().div_ceil(8) }); }
    /// The state of dropout.
    fn cudnnDropoutGetStatesSize(_handle: *mut c_void, size: *mut usize) { put(size, DROPOUT_STATES); }
    /// What dropout keeps for the backward pass: one bit an element.
    fn cudnnDropoutGetReserveSpaceSize(x: *const Tensor, size: *mut usize) { put(size, (*x).elements().div_ceil(8)); }
    /// How many algorithms there are for a convolution.
    fn cudnnGetConvolutionForwardAlgorithmMaxCount(_handle: *mut c_void, count: *mut c_int) { put(count, 1); }
    /// The same for the gradient of the input.
    fn cudnnGetConvolutionBackwardDataAlgorithmMaxCount(_handle: *mut c_void, count: *mut c_int) { put(count, 1); }
    /// The same for the gradient of the filter.
    fn cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(_handle: *mut c_void, count: *mut c_int) { put(count, 1); }
}
