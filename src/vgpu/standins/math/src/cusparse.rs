//! cuSPARSE: its version, and results that callers read on the host. Products have no entries here.

use crate::answers::put;
use core::ffi::{c_char, c_int, c_uint, c_void};

const VERSION: [c_int; 3] = [12, 5, 1];

library! {
    /// Sets the stream.
    fn cusparseSetStream(handle: usize, stream: *mut c_void) { crate::device::set_stream(handle, stream); }
    /// Ends a handle.
    fn cusparseDestroy(handle: usize) { crate::device::forget(handle); }
    /// The library's version.
    fn cusparseGetVersion(_handle: *mut c_void, version: *mut c_int) {
        put(version, VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2]);
    }
    /// A part of the version.
    fn cusparseGetProperty(which: c_uint, value: *mut c_int) { put(value, crate::cublas::property(VERSION, which)?); }
    /// The size of a sparse matrix.
    fn cusparseSpMatGetSize(_matrix: *mut c_void, rows: *mut i64, columns: *mut i64, entries: *mut i64) {
        put(rows, 0);
        put(columns, 0);
        put(entries, 0);
    }
}

answer! {
    /// What a status means.
    fn cusparseGetErrorString(status: c_uint) -> *const c_char {
        if status == 0 { c"success" } else { c"cuSPARSE failure" }.as_ptr()
    }
    /// The name of a status.
    fn cusparseGetErrorName(status: c_uint) -> *const c_char { cusparseGetErrorString(status) }
}
