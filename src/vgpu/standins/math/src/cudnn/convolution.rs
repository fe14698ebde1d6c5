//! Descriptors of convolutions and filters, for the shape of a result.

use super::BAD_PARAM;
use super::tensor::{Tensor, numbers, write};
use crate::answers::put;
use core::ffi::{c_int, c_uint};

/// A convolution.
#[derive(Default)]
pub(crate) struct Convolution {
    padding: Vec<c_int>,
    strides: Vec<c_int>,
    dilations: Vec<c_int>,
}

library! {
    /// Makes a descriptor of a convolution.
    fn cudnnCreateConvolutionDescriptor(place: *mut *mut Convolution) { put(place, Box::into_raw(Box::default())); }
    /// Ends a descriptor of a convolution.
    fn cudnnDestroyConvolutionDescriptor(convolution: *mut Convolution) {
        if !convolution.is_null() {
            drop(Box::from_raw(convolution));
        }
    }
    /// Sets a convolution.
    fn cudnnSetConvolutionNdDescriptor(
        convolution: *mut Convolution, count: c_int, padding: *const c_int, strides: *const c_int,
        dilations: *const c_int, _mode: c_uint, _compute: c_uint,
    ) {
        *convolution = Convolution {
            padding: numbers(padding, count)?,
            strides: numbers(strides, count)?,
            dilations: numbers(dilations, count)?,
        };
    }
    /// Makes a descriptor of a filter, which is a packed tensor.
    fn cudnnCreateFilterDescriptor(place: *mut *mut Tensor) { put(place, Box::into_raw(Box::default())); }
    /// Ends a descriptor of a filter.
    fn cudnnDestroyFilterDescriptor(filter: *mut Tensor) {
        if !filter.is_null() {
            drop(Box::from_raw(filter));
        }
    }
    /// Sets a filter.
    fn cudnnSetFilterNdDescriptor(filter: *mut Tensor, kind: c_uint, _format: c_uint, count: c_int, dims: *const c_int) {
        *filter = Tensor::packed(kind, &numbers(dims, count)?);
    }
    /// A filter that was set. All are packed with the channels first.
    fn cudnnGetFilterNdDescriptor(
        filter: *const Tensor, wanted: c_int, kind: *mut c_uint, format: *mut c_uint, count: *mut c_int,
        dims: *mut c_int,
    ) {
        put(kind, (*filter).kind);
        put(format, 0);
        put(count, (*filter).dims.len() as c_int);
        write(dims, &(*filter).dims, wanted);
    }
    /// The shape of a convolution's result.
    fn cudnnGetConvolutionNdForwardOutputDim(
        convolution: *const Convolution, input: *const Tensor, filter: *const Tensor, count: c_int, dims: *mut c_int,
    ) {
        let (convolution, input, filter) = (&*convolution, &*input, &*filter);
        let spatial = convolution.padding.len();
        if input.dims.len() != spatial + 2 || filter.dims.len() != spatial + 2 || convolution.strides.contains(&0) {
            return Err(BAD_PARAM);
        }
        let mut result = vec![input.dims[0], filter.dims[0]];
        for at in 0..spatial {
            let reach = convolution.dilations[at] * (filter.dims[at + 2] - 1) + 1;
            result.push((input.dims[at + 2] + 2 * convolution.padding[at] - reach) / convolution.strides[at] + 1);
        }
        write(dims, &result, count);
    }
}
