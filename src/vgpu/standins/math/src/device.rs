//! Device memory that a library takes for itself, as the real ones do: straight from the driver.

use core::ffi::{CStr, c_void};
use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};
use weir_cuda::{CUdeviceptr, CUfunction, CUresult, CUstreamCaptureStatus};
use weir_vgpu_client as driver;

/// Memory that is freed when its owner ends. Held by handles only, whose context is current when
/// they are destroyed.
#[derive(Default)]
pub(crate) struct Blocks(Vec<CUdeviceptr>);

impl Blocks {
    /// Takes blocks in the current context: all, or none and the driver's refusal.
    pub(crate) fn take(sizes: &[usize]) -> Result<Self, CUresult> {
        let mut taken = Self::default();
        for &size in sizes {
            let mut block = 0;
            // SAFETY: a place for the result.
            let code = unsafe { driver::cuMemAlloc_v2(&raw mut block, size) };
            if code != CUresult::CUDA_SUCCESS {
                return Err(code);
            }
            taken.0.push(block);
        }
        Ok(taken)
    }
}

/// The stream of each handle that was given one.
static STREAMS: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);

fn streams<T>(then: impl FnOnce(&mut HashMap<usize, usize>) -> T) -> T {
    then(STREAMS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Sets the stream of a handle.
pub(crate) fn set_stream(handle: usize, stream: *mut c_void) {
    streams(|streams| streams.insert(handle, stream as usize));
}

/// A handle has ended.
pub(crate) fn forget(handle: usize) {
    streams(|streams| streams.remove(&handle));
}

/// Work in the stream of a handle. What is no handle, or has no stream of its own, has none that could capture.
///
/// # Safety
/// The handle's stream is one of the current context.
pub(crate) unsafe fn work_of(handle: usize) {
    if let Some(stream) = streams(|streams| streams.get(&handle).copied()) {
        // SAFETY: as promised.
        unsafe { work(stream as *mut c_void) };
    }
}

/// A kernel that does nothing.
const NOTHING: &CStr = c".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry vgpu_math() { ret; }\n";

/// A library's work in a stream that captures: one kernel, as a graph without any would be no graph of that work. Elsewhere
/// the stand-ins launch nothing.
///
/// # Safety
/// `stream` is a stream of the current context, or NULL.
pub(crate) unsafe fn work(stream: *mut c_void) {
    static KERNEL: OnceLock<usize> = OnceLock::new();
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: as promised; places for results, and texts that last.
    unsafe {
        driver::cuStreamIsCapturing(stream.cast(), &raw mut status);
        if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return;
        }
        let kernel = *KERNEL.get_or_init(|| {
            let (mut library, mut kernel) = (null_mut(), null_mut());
            let text = NOTHING.as_ptr().cast();
            let none = null_mut();
            driver::cuLibraryLoadData(&raw mut library, text, none, none.cast(), 0, none.cast(), none.cast(), 0);
            driver::cuLibraryGetKernel(&raw mut kernel, library, c"vgpu_math".as_ptr());
            kernel as usize
        });
        driver::cuLaunchKernel(kernel as CUfunction, 1, 1, 1, 1, 1, 1, 0, stream.cast(), null_mut(), null_mut());
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for &block in &self.0 {
            // SAFETY: allocated above and freed once. A context that is gone took it along.
            unsafe { driver::cuMemFree_v2(block) };
        }
    }
}
