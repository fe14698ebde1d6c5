//! cuDNN 9, and 8 where the library is loaded under that name: handles, versions, texts. The rest by topic.

mod backend;
mod convolution;
mod norm;
mod rnn;
mod rnn8;
mod tensor;

use crate::answers::{Status, put};
use crate::device::Blocks;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

pub(crate) const BAD_PARAM: Status = 2000;
const ALLOC_FAILED: Status = 2003;

/// What each handle takes of the device's memory, about as much as the real library was seen to take.
const TAKES: [usize; 1] = [20 << 10];

/// A handle.
pub(crate) struct Handle {
    stream: *mut c_void,
    _memory: Blocks,
}

/// The version whose name the library was loaded under. The library as `libcudnn.so.8` must be a file of
/// its own: a link to one that is loaded already has that one's name.
fn version() -> [c_int; 3] {
    static VERSION: OnceLock<[c_int; 3]> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let mut about = libc::Dl_info {
            dli_fname: std::ptr::null(),
            dli_fbase: null_mut(),
            dli_sname: std::ptr::null(),
            dli_saddr: null_mut(),
        };
        // SAFETY: the address of a function of this library, and a place for the result.
        let found = unsafe { libc::dladdr(cudnnGetVersion as *const c_void, &raw mut about) } != 0;
        // SAFETY: the linker's own name of a loaded library.
        let eight = found
            && !about.dli_fname.is_null()
            && unsafe { CStr::from_ptr(about.dli_fname) }.to_bytes().ends_with(b"libcudnn.so.8");
        if eight { [8, 9, 7] } else { [9, 3, 0] }
    })
}

library! {
    /// Makes a handle for the current context.
    fn cudnnCreate(place: *mut *mut Handle) {
        let memory = Blocks::take(&TAKES).map_err(|_| if version()[0] == 8 { 2 } else { ALLOC_FAILED })?;
        put(place, Box::into_raw(Box::new(Handle { stream: null_mut(), _memory: memory })));
    }
    /// Ends a handle.
    fn cudnnDestroy(handle: *mut Handle) {
        if !handle.is_null() {
            crate::device::forget(handle as usize);
            drop(Box::from_raw(handle));
        }
    }
    /// Sets the stream.
    fn cudnnSetStream(handle: *mut Handle, stream: *mut c_void) {
        (*handle).stream = stream;
        crate::device::set_stream(handle as usize, stream);
    }
    /// The stream.
    fn cudnnGetStream(handle: *mut Handle, stream: *mut *mut c_void) { put(stream, (*handle).stream); }
    /// A part of the version.
    fn cudnnGetProperty(which: c_uint, value: *mut c_int) {
        put(value, crate::cublas::property(version(), which).map_err(|_| BAD_PARAM)?);
    }
}

/// Writes what went wrong last: nothing is kept.
///
/// # Safety
/// `text` is a buffer of `size` bytes, or NULL.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudnnGetLastErrorString(text: *mut c_char, size: usize) {
    if size > 0 {
        // SAFETY: as promised.
        unsafe { put(text, 0) };
    }
}

answer! {
    /// The library's version: 9.3.0 is 90300, and 8.9.7 was 8907.
    fn cudnnGetVersion() -> usize {
        let [major, minor, patch] = version();
        (if major == 8 { major * 1000 + minor * 100 + patch } else { major * 10000 + minor * 100 + patch }) as usize
    }
    /// The version of the runtime that the library was made for.
    fn cudnnGetCudartVersion() -> usize { 12050 }
    /// What a status means.
    fn cudnnGetErrorString(status: Status) -> *const c_char {
        if status == 0 { c"CUDNN_STATUS_SUCCESS" } else { c"cuDNN failure" }.as_ptr()
    }
}
