//! Descriptors of tensors: what was set can be read back.

use super::BAD_PARAM;
use crate::answers::put;
use core::ffi::{c_int, c_uint};

/// The most dimensions that a tensor may have.
const MOST: usize = 8;

/// A tensor's layout.
#[derive(Default, Clone)]
pub(crate) struct Tensor {
    pub(crate) kind: c_uint,
    pub(crate) dims: Vec<c_int>,
    pub(crate) strides: Vec<c_int>,
}

/// Bytes of an element of a data type.
pub(crate) fn element(kind: c_uint) -> usize {
    match kind {
        1 | 10 => 8,
        2 | 9 => 2,
        3 | 6 | 11..=13 => 1,
        _ => 4,
    }
}

impl Tensor {
    pub(crate) fn packed(kind: c_uint, dims: &[c_int]) -> Self {
        let mut strides: Vec<c_int> = vec![1; dims.len()];
        for at in (1..dims.len()).rev() {
            strides[at - 1] = strides[at].saturating_mul(dims[at]);
        }
        Self { kind, dims: dims.to_vec(), strides }
    }

    pub(crate) fn elements(&self) -> usize {
        self.dims.iter().fold(1, |product, &n| product * n.max(1) as usize)
    }

    pub(crate) fn channels(&self) -> usize {
        self.dims.get(1).map_or(1, |&c| c.max(1) as usize)
    }

    /// Bytes from the first element to the last.
    fn span(&self) -> usize {
        let last: usize =
            self.dims.iter().zip(&self.strides).map(|(&n, &s)| (n.max(1) - 1) as usize * s as usize).sum();
        (last + 1) * element(self.kind)
    }
}

/// # Safety
/// `list` is a list of so many.
pub(crate) unsafe fn numbers(list: *const c_int, count: c_int) -> Result<Vec<c_int>, c_uint> {
    if list.is_null() || !(0..=MOST as c_int).contains(&count) {
        return Err(BAD_PARAM);
    }
    // SAFETY: as promised.
    Ok(unsafe { std::slice::from_raw_parts(list, count as usize) }.to_vec())
}

/// Writes as many as are wanted.
///
/// # Safety
/// `place` is NULL or has room for so many.
pub(crate) unsafe fn write(place: *mut c_int, values: &[c_int], wanted: c_int) {
    if place.is_null() {
        return;
    }
    for (at, &value) in values.iter().take(wanted.max(0) as usize).enumerate() {
        // SAFETY: as promised.
        unsafe { place.add(at).write(value) };
    }
}

library! {
    /// Makes a descriptor.
    fn cudnnCreateTensorDescriptor(place: *mut *mut Tensor) { put(place, Box::into_raw(Box::default())); }
    /// Ends a descriptor.
    fn cudnnDestroyTensorDescriptor(tensor: *mut Tensor) {
        if !tensor.is_null() {
            drop(Box::from_raw(tensor));
        }
    }
    /// Sets a layout.
    fn cudnnSetTensorNdDescriptor(
        tensor: *mut Tensor, kind: c_uint, count: c_int, dims: *const c_int, strides: *const c_int,
    ) { *tensor = Tensor { kind, dims: numbers(dims, count)?, strides: numbers(strides, count)? }; }
    /// Sets a packed layout.
    fn cudnnSetTensorNdDescriptorEx(tensor: *mut Tensor, _format: c_uint, kind: c_uint, count: c_int, dims: *const c_int) {
        *tensor = Tensor::packed(kind, &numbers(dims, count)?);
    }
    /// Sets a packed layout of four dimensions.
    fn cudnnSetTensor4dDescriptor(
        tensor: *mut Tensor, format: c_uint, kind: c_uint, n: c_int, c: c_int, h: c_int, w: c_int,
    ) {
        let mut layout = Tensor::packed(kind, &[n, c, h, w]);
        // Channels last.
        if format == 1 {
            layout.strides = vec![h * w * c, 1, w * c, c];
        }
        *tensor = layout;
    }
    /// Sets a layout of four dimensions.
    fn cudnnSetTensor4dDescriptorEx(
        tensor: *mut Tensor, kind: c_uint, n: c_int, c: c_int, h: c_int, w: c_int, n_stride: c_int, c_stride: c_int,
        h_stride: c_int, w_stride: c_int,
    ) { *tensor = Tensor { kind, dims: vec![n, c, h, w], strides: vec![n_stride, c_stride, h_stride, w_stride] }; }
    /// A layout.
    fn cudnnGetTensorNdDescriptor(
        tensor: *const Tensor, wanted: c_int, kind: *mut c_uint, count: *mut c_int, dims: *mut c_int, strides: *mut c_int,
    ) {
        put(kind, (*tensor).kind);
        put(count, (*tensor).dims.len() as c_int);
        write(dims, &(*tensor).dims, wanted);
        write(strides, &(*tensor).strides, wanted);
    }
    /// A layout of four dimensions.
    fn cudnnGetTensor4dDescriptor(
        tensor: *const Tensor, kind: *mut c_uint, n: *mut c_int, c: *mut c_int, h: *mut c_int, w: *mut c_int,
        n_stride: *mut c_int, c_stride: *mut c_int, h_stride: *mut c_int, w_stride: *mut c_int,
    ) {
        let layout = &*tensor;
        if layout.dims.len() != 4 {
            return Err(BAD_PARAM);
        }
        put(kind, layout.kind);
        for (at, (dim, stride)) in [(n, n_stride), (c, c_stride), (h, h_stride), (w, w_stride)].into_iter().enumerate() {
            put(dim, layout.dims[at]);
            put(stride, layout.strides[at]);
        }
    }
    /// Bytes of a tensor.
    fn cudnnGetTensorSizeInBytes(tensor: *const Tensor, size: *mut usize) { put(size, (*tensor).span()); }
}
