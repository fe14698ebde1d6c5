//! cuSOLVER: its version. Handles and sizes of workspaces come from the list.

use crate::answers::put;
use core::ffi::{c_int, c_uint};

const VERSION: [c_int; 3] = [11, 6, 3];

library! {
    /// The library's version.
    fn cusolverGetVersion(version: *mut c_int) { put(version, VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2]); }
    /// A part of the version.
    fn cusolverGetProperty(which: c_uint, value: *mut c_int) { put(value, crate::cublas::property(VERSION, which)?); }
}
