//! Synchronous memory operations (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`) where the driver refuses the attribute on mapped
//! memory: copies and fills without a stream of their own then are over when they return.

use super::capture;
use super::real;
use super::stream;
use core::sync::atomic::{AtomicBool, Ordering};
use weir_cuda::{CUresult, CUstream, Variant};

/// Whether the attribute was set on any block. Never taken back: others wait a little longer, nobody too short.
static WANTED: AtomicBool = AtomicBool::new(false);

/// A block is to have the attribute.
pub(crate) fn want() {
    WANTED.store(true, Ordering::Release);
}

/// Whether memory operations are to be waited for.
#[inline(always)]
pub(crate) fn wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// A call of the function `name` has queued work: waits for it, if it is a memory operation without a stream, as the driver
/// does where it knows the attribute.
#[cold]
pub(crate) fn complete(name: &str, variant: Variant, result: CUresult) -> CUresult {
    let memop = (name.starts_with("cuMemcpy") || name.starts_with("cuMemset")) && !name.contains("Async");
    if !memop || result != CUresult::CUDA_SUCCESS || capture::under_way() {
        return result;
    }
    let of = if variant == Variant::Legacy { stream::LEGACY } else { stream::PER_THREAD };
    // SAFETY: a handle that every context knows.
    unsafe { real::cuStreamSynchronize(of as CUstream) }
}
