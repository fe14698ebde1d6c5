//! cuSOLVER: its version, and the streams of its handles. Handles and sizes of workspaces come from the list.

use crate::answers::put;
use crate::device::{forget, set_stream};
use core::ffi::{c_int, c_uint, c_void};

const VERSION: [c_int; 3] = [11, 6, 3];

library! {
    /// Sets the stream of a handle for dense matrices.
    fn cusolverDnSetStream(handle: usize, stream: *mut c_void) { set_stream(handle, stream); }
    /// Ends such a handle.
    fn cusolverDnDestroy(handle: usize) { forget(handle); }
    /// Sets the stream of a handle for sparse matrices.
    fn cusolverSpSetStream(handle: usize, stream: *mut c_void) { set_stream(handle, stream); }
    /// Ends such a handle.
    fn cusolverSpDestroy(handle: usize) { forget(handle); }
    /// The library's version.
    fn cusolverGetVersion(version: *mut c_int) { put(version, VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2]); }
    /// A part of the version.
    fn cusolverGetProperty(which: c_uint, value: *mut c_int) { put(value, crate::cublas::property(VERSION, which)?); }
}
