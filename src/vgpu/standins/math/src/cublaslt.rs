//! cuBLASLt: descriptors whose attributes can be read back, and a heuristic that always finds one algorithm.
//!
//! Model: that algorithm needs no workspace.

use crate::answers::put;
use core::ffi::{c_char, c_float, c_int, c_uint, c_void};
use std::collections::HashMap;

const INVALID_VALUE: c_uint = 7;
const VERSION: usize = 120_503;

/// Attributes by number, as bytes.
#[derive(Default)]
pub(crate) struct Attributes(HashMap<c_uint, Vec<u8>>);

impl Attributes {
    fn with(values: &[(c_uint, &[u8])]) -> *mut Self {
        let known = values.iter().map(|&(attribute, bytes)| (attribute, bytes.to_vec())).collect();
        Box::into_raw(Box::new(Self(known)))
    }

    unsafe fn set(&mut self, attribute: c_uint, bytes: *const u8, size: usize) -> Result<(), c_uint> {
        if bytes.is_null() || size == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller's buffer of that size.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, size) };
        self.0.insert(attribute, bytes.to_vec());
        Ok(())
    }

    /// Attributes that were never set are zeros, the default of nearly all of them.
    unsafe fn get(&self, attribute: c_uint, place: *mut u8, size: usize, written: *mut usize) -> Result<(), c_uint> {
        let known = self.0.get(&attribute).map_or(&[][..], Vec::as_slice);
        if place.is_null() || size < known.len() {
            // Without room, only the size is returned.
            if size != 0 || written.is_null() {
                return Err(INVALID_VALUE);
            }
            // SAFETY: the caller's place.
            unsafe { put(written, known.len()) };
            return Ok(());
        }
        // SAFETY: the caller's buffer of that size, which is large enough.
        unsafe {
            place.write_bytes(0, size);
            place.copy_from_nonoverlapping(known.as_ptr(), known.len());
            put(written, if known.is_empty() { size } else { known.len() });
        }
        Ok(())
    }
}

/// What the heuristic gives for an algorithm.
#[repr(C)]
pub(crate) struct Found {
    algorithm: [u64; 8],
    workspace: usize,
    status: c_uint,
    waves: c_float,
    reserved: [c_int; 4],
}

/// Numbers of a layout's attributes.
mod layout {
    pub(super) const TYPE: u32 = 0;
    pub(super) const ORDER: u32 = 1;
    pub(super) const ROWS: u32 = 2;
    pub(super) const COLUMNS: u32 = 3;
    pub(super) const LEADING: u32 = 4;
    pub(super) const BATCH: u32 = 5;
    pub(super) const OFFSET: u32 = 6;
}

library! {
    /// Makes a handle. Unlike cuBLAS it takes no device memory.
    fn cublasLtCreate(place: *mut usize) { put(place, crate::answers::handle()); }
    /// A part of the version.
    fn cublasLtGetProperty(which: c_uint, value: *mut c_int) {
        put(value, crate::cublas::property([12, 5, 3], which)?);
    }
    /// Describes a matrix.
    fn cublasLtMatrixLayoutCreate(place: *mut *mut Attributes, kind: c_uint, rows: u64, columns: u64, leading: i64) {
        put(place, Attributes::with(&[
            (layout::TYPE, &kind.to_ne_bytes()),
            (layout::ORDER, &0u32.to_ne_bytes()),
            (layout::ROWS, &rows.to_ne_bytes()),
            (layout::COLUMNS, &columns.to_ne_bytes()),
            (layout::LEADING, &leading.to_ne_bytes()),
            (layout::BATCH, &1u32.to_ne_bytes()),
            (layout::OFFSET, &0i64.to_ne_bytes()),
        ]));
    }
    /// Forgets a matrix.
    fn cublasLtMatrixLayoutDestroy(descriptor: *mut Attributes) { destroy(descriptor); }
    /// Sets an attribute of a matrix.
    fn cublasLtMatrixLayoutSetAttribute(descriptor: *mut Attributes, attribute: c_uint, bytes: *const u8, size: usize) {
        (*descriptor).set(attribute, bytes, size)?;
    }
    /// An attribute of a matrix.
    fn cublasLtMatrixLayoutGetAttribute(
        descriptor: *mut Attributes, attribute: c_uint, bytes: *mut u8, size: usize, written: *mut usize,
    ) { (*descriptor).get(attribute, bytes, size, written)?; }
    /// A product of matrices, in a stream.
    fn cublasLtMatmul(
        _handle: usize, _compute: usize, _alpha: usize, _a: usize, _a_desc: usize, _b: usize, _b_desc: usize,
        _beta: usize, _c: usize, _c_desc: usize, _d: usize, _d_desc: usize, _algo: usize, _workspace: usize,
        _size: usize, stream: *mut c_void,
    ) { crate::device::work(stream); }
    /// A change of a matrix' layout, in a stream.
    fn cublasLtMatrixTransform(
        _handle: usize, _transform: usize, _alpha: usize, _a: usize, _a_desc: usize, _beta: usize, _b: usize,
        _b_desc: usize, _c: usize, _c_desc: usize, stream: *mut c_void,
    ) { crate::device::work(stream); }
    /// Describes a multiplication.
    fn cublasLtMatmulDescCreate(place: *mut *mut Attributes, compute: c_uint, scale: c_uint) {
        put(place, Attributes::with(&[(0, &compute.to_ne_bytes()), (1, &scale.to_ne_bytes())]));
    }
    /// Forgets a multiplication.
    fn cublasLtMatmulDescDestroy(descriptor: *mut Attributes) { destroy(descriptor); }
    /// Sets an attribute of a multiplication.
    fn cublasLtMatmulDescSetAttribute(descriptor: *mut Attributes, attribute: c_uint, bytes: *const u8, size: usize) {
        (*descriptor).set(attribute, bytes, size)?;
    }
    /// An attribute of a multiplication.
    fn cublasLtMatmulDescGetAttribute(
        descriptor: *mut Attributes, attribute: c_uint, bytes: *mut u8, size: usize, written: *mut usize,
    ) { (*descriptor).get(attribute, bytes, size, written)?; }
    /// Makes preferences for the heuristic.
    fn cublasLtMatmulPreferenceCreate(place: *mut *mut Attributes) { put(place, Attributes::with(&[])); }
    /// Forgets preferences.
    fn cublasLtMatmulPreferenceDestroy(descriptor: *mut Attributes) { destroy(descriptor); }
    /// Sets a preference.
    fn cublasLtMatmulPreferenceSetAttribute(
        descriptor: *mut Attributes, attribute: c_uint, bytes: *const u8, size: usize,
    ) { (*descriptor).set(attribute, bytes, size)?; }
    /// A preference.
    fn cublasLtMatmulPreferenceGetAttribute(
        descriptor: *mut Attributes, attribute: c_uint, bytes: *mut u8, size: usize, written: *mut usize,
    ) { (*descriptor).get(attribute, bytes, size, written)?; }
    /// Finds an algorithm for a multiplication.
    fn cublasLtMatmulAlgoGetHeuristic(
        _handle: *mut c_void, _operation: *mut c_void, _a: *mut c_void, _b: *mut c_void, _c: *mut c_void,
        _d: *mut c_void, _preference: *mut c_void, wanted: c_int, found: *mut Found, count: *mut c_int,
    ) {
        if wanted < 1 || found.is_null() || count.is_null() {
            return Err(INVALID_VALUE);
        }
        found.write(Found { algorithm: [1; 8], workspace: 0, status: 0, waves: 1.0, reserved: [0; 4] });
        count.write(1);
    }
}

unsafe fn destroy(descriptor: *mut Attributes) {
    if !descriptor.is_null() {
        // SAFETY: made by this library and not used again.
        drop(unsafe { Box::from_raw(descriptor) });
    }
}

answer! {
    /// The library's version.
    fn cublasLtGetVersion() -> usize { VERSION }
    /// The version of the runtime that the library was made for.
    fn cublasLtGetCudartVersion() -> usize { 12050 }
    /// What a status means.
    fn cublasLtGetStatusString(status: c_uint) -> *const c_char { crate::cublas::cublasGetStatusString(status) }
    /// The name of a status.
    fn cublasLtGetStatusName(status: c_uint) -> *const c_char { crate::cublas::cublasGetStatusString(status) }
}
