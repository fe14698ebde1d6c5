//! Arrays and mipmaps: the driver's own, charged to the job.

use crate::alloc;
use crate::alloc::passed::{self, Wanted};
use crate::cap::arrays;
use crate::driver::guards::current_device;
use crate::driver::real;
use crate::process::guard::Call;
use core::ffi::c_uint;
use weir_cuda::*;
use weir_journal::{Class, Granted, STREAM_UNKNOWN};

pub(crate) type Create = unsafe extern "C-unwind" fn(*mut CUarray, *const CUDA_ARRAY_DESCRIPTOR) -> CUresult;
pub(crate) type Create3d = unsafe extern "C-unwind" fn(*mut CUarray, *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult;
pub(crate) type CreateV1 = unsafe extern "C-unwind" fn(*mut CUarray, *const CUDA_ARRAY_DESCRIPTOR_v1) -> CUresult;
pub(crate) type Create3dV1 = unsafe extern "C-unwind" fn(*mut CUarray, *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> CUresult;
pub(crate) type CreateMipmap =
    unsafe extern "C-unwind" fn(*mut CUmipmappedArray, *const CUDA_ARRAY3D_DESCRIPTOR, c_uint) -> CUresult;
pub(crate) type Destroy = unsafe extern "C-unwind" fn(CUarray) -> CUresult;
pub(crate) type DestroyMipmap = unsafe extern "C-unwind" fn(CUmipmappedArray) -> CUresult;

/// Destroys an array again.
fn undo(handle: u64) {
    // SAFETY: an array that was made a moment ago and that nobody else knows.
    unsafe { real::cuArrayDestroy(handle as CUarray) };
}

/// Records an array that `run` makes; one whose memory comes later is none yet.
fn recorded<F: Copy>(
    call: &Call<F, CUresult>,
    (bound, flags): (u64, u32),
    run: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> u64,
    size_of: impl FnOnce(u64, i32) -> Option<u64>,
) -> CUresult {
    if flags & arrays::WITHOUT_MEMORY != 0 {
        return run();
    }
    passed::allocate(call, Wanted::here(Class::Array, bound), run, || {
        let handle = made();
        let size = current_device().and_then(|ordinal| size_of(handle, ordinal));
        Granted { address: handle, allocated: size.unwrap_or(bound) }
    })
}

/// Makes an array that takes at most `bound` bytes, by the driver's function in `forward`.
///
/// # Safety
/// `array` is the caller's place for the handle, written by `forward` if it succeeds.
unsafe fn make<F: Copy>(
    call: &Call<F, CUresult>,
    array: *mut CUarray,
    (bound, flags): (u64, u32),
    forward: impl Fn() -> CUresult,
) -> CUresult {
    // SAFETY: only called after success, when the handle is there.
    let made = || unsafe { *array } as u64;
    let run = || {
        alloc::with_room_for(|attempt| {
            arrays::create(bound, flags, || attempt.call(&forward), made, arrays::size_of_array, undo)
        })
    };
    recorded(call, (bound, flags), run, made, arrays::size_of_array)
}

/// `cuArrayCreate`.
pub(crate) unsafe fn create(
    call: &Call<Create, CUresult>,
    array: *mut CUarray,
    wanted: *const CUDA_ARRAY_DESCRIPTOR,
) -> CUresult {
    // SAFETY: null or the caller's own description.
    let bound = unsafe { wanted.as_ref() }.map_or(0, |d| flat(d.Width, d.Height, d.Format, d.NumChannels));
    // SAFETY: the caller's own arguments.
    unsafe { make(call, array, (bound, 0), || call.forward(|real| real(array, wanted))) }
}

/// `cuArrayCreate` as in CUDA 2, with 32-bit sizes.
pub(crate) unsafe fn create_v1(
    call: &Call<CreateV1, CUresult>,
    array: *mut CUarray,
    wanted: *const CUDA_ARRAY_DESCRIPTOR_v1,
) -> CUresult {
    // SAFETY: null or the caller's own description.
    let bound =
        unsafe { wanted.as_ref() }.map_or(0, |d| flat(d.Width as usize, d.Height as usize, d.Format, d.NumChannels));
    // SAFETY: the caller's own arguments.
    unsafe { make(call, array, (bound, 0), || call.forward(|real| real(array, wanted))) }
}

/// The most that an array of one or two dimensions takes.
fn flat(width: usize, height: usize, format: CUarray_format, channels: c_uint) -> u64 {
    let whole = CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Format: format,
        NumChannels: channels,
        ..CUDA_ARRAY3D_DESCRIPTOR::default()
    };
    arrays::bound(&whole, 1)
}

/// `cuArray3DCreate`.
pub(crate) unsafe fn create_3d(
    call: &Call<Create3d, CUresult>,
    array: *mut CUarray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> CUresult {
    // SAFETY: null or the caller's own description.
    let size = unsafe { wanted.as_ref() }.map_or((0, 0), |d| (arrays::bound(d, 1), d.Flags));
    // SAFETY: the caller's own arguments.
    unsafe { make(call, array, size, || call.forward(|real| real(array, wanted))) }
}

/// `cuArray3DCreate` as in CUDA 2, with 32-bit sizes.
pub(crate) unsafe fn create_3d_v1(
    call: &Call<Create3dV1, CUresult>,
    array: *mut CUarray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR_v1,
) -> CUresult {
    // SAFETY: null or the caller's own description.
    let size = unsafe { wanted.as_ref() }.map_or((0, 0), |d| {
        let whole = CUDA_ARRAY3D_DESCRIPTOR {
            Width: d.Width as usize,
            Height: d.Height as usize,
            Depth: d.Depth as usize,
            Format: d.Format,
            NumChannels: d.NumChannels,
            Flags: d.Flags,
        };
        (arrays::bound(&whole, 1), d.Flags)
    });
    // SAFETY: the caller's own arguments.
    unsafe { make(call, array, size, || call.forward(|real| real(array, wanted))) }
}

/// `cuMipmappedArrayCreate`.
pub(crate) unsafe fn create_mipmap(
    call: &Call<CreateMipmap, CUresult>,
    array: *mut CUmipmappedArray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> CUresult {
    // SAFETY: null or the caller's own description.
    let (bound, flags) = unsafe { wanted.as_ref() }.map_or((0, 0), |d| (arrays::bound(d, levels), d.Flags));
    let run = || {
        alloc::with_room_for(|attempt| {
            arrays::create(
                bound,
                flags,
                // SAFETY: the caller's own arguments.
                || attempt.call(|| call.forward(|real| unsafe { real(array, wanted, levels) })),
                // SAFETY: after success the handle is there.
                || unsafe { *array } as u64,
                arrays::size_of_mipmap,
                |handle| {
                    // SAFETY: made a moment ago, and nobody else knows it.
                    unsafe { real::cuMipmappedArrayDestroy(handle as CUmipmappedArray) };
                },
            )
        })
    };
    // SAFETY: after success the handle is there.
    recorded(call, (bound, flags), run, || unsafe { *array } as u64, arrays::size_of_mipmap)
}

/// `cuArrayDestroy`.
pub(crate) unsafe fn destroy(call: &Call<Destroy, CUresult>, array: CUarray) -> CUresult {
    // SAFETY: the caller's own argument.
    let run = || arrays::destroy(array as u64, || call.forward(|real| unsafe { real(array) }));
    passed::free(array as u64, &[Class::Array], STREAM_UNKNOWN, run)
}

/// `cuMipmappedArrayDestroy`.
pub(crate) unsafe fn destroy_mipmap(call: &Call<DestroyMipmap, CUresult>, array: CUmipmappedArray) -> CUresult {
    // SAFETY: the caller's own argument.
    let run = || arrays::destroy(array as u64, || call.forward(|real| unsafe { real(array) }));
    passed::free(array as u64, &[Class::Array], STREAM_UNKNOWN, run)
}
