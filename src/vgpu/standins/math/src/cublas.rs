//! cuBLAS: handles with their memory and their settings. The version is that of CUDA 12.5.

use crate::answers::put;
use crate::device::Blocks;
use core::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use weir_cuda::CUresult;

const VERSION: [c_int; 3] = [12, 5, 3];
const NOT_INITIALIZED: c_uint = 1;
const ALLOC_FAILED: c_uint = 3;
const INVALID_VALUE: c_uint = 7;

/// What each handle takes of the device's memory, as seen of the real library.
const TAKES: [usize; 3] = [1 << 10, 128 << 10, 8 << 20];

/// A handle.
pub(crate) struct Handle {
    stream: *mut c_void,
    math_mode: c_uint,
    pointer_mode: c_uint,
    atomics_mode: c_uint,
    multiprocessors: c_int,
    _memory: Blocks,
}

/// Takes memory for a handle of one of the libraries.
pub(crate) fn memory(sizes: &[usize]) -> Result<Blocks, c_uint> {
    Blocks::take(sizes)
        .map_err(|code| if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY { ALLOC_FAILED } else { NOT_INITIALIZED })
}

/// A part of a version: major, minor, patch level.
pub(crate) fn property(version: [c_int; 3], which: c_uint) -> Result<c_int, c_uint> {
    version.get(which as usize).copied().ok_or(INVALID_VALUE)
}

/// Products of matrices: work in the stream of the handle. What follows the handle is not looked at.
macro_rules! products {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(handle: *mut Handle) -> crate::answers::Status {
            weir_vgpu_client::trace::called(stringify!($name));
            if handle.is_null() {
                return NOT_INITIALIZED;
            }
            // SAFETY: the caller's handle and its stream.
            unsafe { crate::device::work((*handle).stream) };
            0
        }
    )*};
}

products! {
    cublasSgemm_v2
    cublasDgemm_v2
    cublasCgemm_v2
    cublasZgemm_v2
    cublasSgemmBatched
    cublasDgemmBatched
    cublasCgemmBatched
    cublasZgemmBatched
    cublasSgemmStridedBatched
    cublasDgemmStridedBatched
    cublasCgemmStridedBatched
    cublasZgemmStridedBatched
    cublasGemmEx
    cublasGemmStridedBatchedEx
    cublasGemmBatchedEx
    cublasSgemmEx
}

library! {
    /// Makes a handle for the current context.
    fn cublasCreate_v2(place: *mut *mut Handle) {
        let memory = memory(&TAKES)?;
        let handle = Handle {
            stream: null_mut(),
            math_mode: 0,
            pointer_mode: 0,
            atomics_mode: 0,
            multiprocessors: 0,
            _memory: memory,
        };
        put(place, Box::into_raw(Box::new(handle)));
    }
    /// Ends a handle.
    fn cublasDestroy_v2(handle: *mut Handle) {
        if handle.is_null() {
            return Err(NOT_INITIALIZED);
        }
        crate::device::forget(handle as usize);
        drop(Box::from_raw(handle));
    }
    /// The library's version.
    fn cublasGetVersion_v2(_handle: *mut Handle, version: *mut c_int) {
        put(version, VERSION[0] * 10000 + VERSION[1] * 100 + VERSION[2]);
    }
    /// A part of the version.
    fn cublasGetProperty(which: c_uint, value: *mut c_int) { put(value, property(VERSION, which)?); }
    /// Sets the stream.
    fn cublasSetStream_v2(handle: *mut Handle, stream: *mut c_void) {
        (*handle).stream = stream;
        crate::device::set_stream(handle as usize, stream);
    }
    /// The stream.
    fn cublasGetStream_v2(handle: *mut Handle, stream: *mut *mut c_void) { put(stream, (*handle).stream); }
    /// Sets the math mode.
    fn cublasSetMathMode(handle: *mut Handle, mode: c_uint) { (*handle).math_mode = mode; }
    /// The math mode.
    fn cublasGetMathMode(handle: *mut Handle, mode: *mut c_uint) { put(mode, (*handle).math_mode); }
    /// Sets where scalars lie.
    fn cublasSetPointerMode_v2(handle: *mut Handle, mode: c_uint) { (*handle).pointer_mode = mode; }
    /// Where scalars lie.
    fn cublasGetPointerMode_v2(handle: *mut Handle, mode: *mut c_uint) { put(mode, (*handle).pointer_mode); }
    /// Sets whether atomics may be used.
    fn cublasSetAtomicsMode(handle: *mut Handle, mode: c_uint) { (*handle).atomics_mode = mode; }
    /// Whether atomics may be used.
    fn cublasGetAtomicsMode(handle: *mut Handle, mode: *mut c_uint) { put(mode, (*handle).atomics_mode); }
    /// Sets how many multiprocessors may be used.
    fn cublasSetSmCountTarget(handle: *mut Handle, count: c_int) { (*handle).multiprocessors = count; }
    /// How many multiprocessors may be used.
    fn cublasGetSmCountTarget(handle: *mut Handle, count: *mut c_int) { put(count, (*handle).multiprocessors); }
}

answer! {
    /// What a status means.
    fn cublasGetStatusString(status: c_uint) -> *const c_char {
        if status == 0 { c"success" } else { c"cuBLAS failure" }.as_ptr()
    }
    /// The name of a status.
    fn cublasGetStatusName(status: c_uint) -> *const c_char { cublasGetStatusString(status) }
    /// The version of the runtime that the library was made for.
    fn cublasGetCudartVersion() -> usize { 12050 }
}
