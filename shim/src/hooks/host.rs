//! Host memory that the device can reach: the driver's own; weir only writes it down.

use crate::alloc::passed::{self, Wanted};
use crate::process::guard::Call;
use core::ffi::{c_uint, c_void};
use weir_cuda::CUresult;
use weir_journal::{Class, Granted, STREAM_UNKNOWN};

pub(crate) type Alloc = unsafe extern "C-unwind" fn(*mut *mut c_void, usize) -> CUresult;
pub(crate) type AllocWith = unsafe extern "C-unwind" fn(*mut *mut c_void, usize, c_uint) -> CUresult;
pub(crate) type OfPointer = unsafe extern "C-unwind" fn(*mut c_void) -> CUresult;
pub(crate) type Register = unsafe extern "C-unwind" fn(*mut c_void, usize, c_uint) -> CUresult;

/// What a successful call gave.
fn granted(place: *const *mut c_void, bytes: usize) -> Granted {
    // SAFETY: the caller's place, which the driver has written.
    Granted { address: unsafe { *place } as u64, allocated: bytes as u64 }
}

/// `cuMemAllocHost`.
pub(crate) unsafe fn alloc(call: &Call<Alloc, CUresult>, place: *mut *mut c_void, bytes: usize) -> CUresult {
    // SAFETY: the caller's own arguments.
    let run = || call.forward(|real| unsafe { real(place, bytes) });
    passed::allocate(call, Wanted::here(Class::Pinned, bytes as u64), run, || granted(place, bytes))
}

/// `cuMemHostAlloc`.
pub(crate) unsafe fn alloc_with(
    call: &Call<AllocWith, CUresult>,
    place: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let run = || call.forward(|real| unsafe { real(place, bytes, flags) });
    passed::allocate(call, Wanted::here(Class::Pinned, bytes as u64), run, || granted(place, bytes))
}

/// `cuMemFreeHost`.
pub(crate) unsafe fn free(call: &Call<OfPointer, CUresult>, pointer: *mut c_void) -> CUresult {
    // SAFETY: the caller's own argument.
    let run = || call.forward(|real| unsafe { real(pointer) });
    passed::free(pointer as u64, &[Class::Pinned], STREAM_UNKNOWN, run)
}

/// `cuMemHostRegister`.
pub(crate) unsafe fn register(
    call: &Call<Register, CUresult>,
    pointer: *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let run = || call.forward(|real| unsafe { real(pointer, bytes, flags) });
    let made = || Granted { address: pointer as u64, allocated: bytes as u64 };
    passed::allocate(call, Wanted::here(Class::Registered, bytes as u64), run, made)
}

/// `cuMemHostUnregister`.
pub(crate) unsafe fn unregister(call: &Call<OfPointer, CUresult>, pointer: *mut c_void) -> CUresult {
    // SAFETY: the caller's own argument.
    let run = || call.forward(|real| unsafe { real(pointer) });
    passed::free(pointer as u64, &[Class::Registered], STREAM_UNKNOWN, run)
}
