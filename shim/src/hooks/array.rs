//! Arrays and mipmaps: the driver's own, charged to the job.

use crate::caps::{self, arrays};
use crate::guard::Call;
use crate::recorder::passed::{self, Wanted};
use crate::served::{self, real};
use core::ffi::c_uint;
use weir_cuda::*;
use weir_journal::{Class, Granted, STREAM_UNKNOWN};

pub(crate) type Create = unsafe extern "C-unwind" fn(*mut CUarray, *const CUDA_ARRAY_DESCRIPTOR) -> CUresult;
pub(crate) type Create3d = unsafe extern "C-unwind" fn(*mut CUarray, *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult;
pub(crate) type CreateMipmap =
    unsafe extern "C-unwind" fn(*mut CUmipmappedArray, *const CUDA_ARRAY3D_DESCRIPTOR, c_uint) -> CUresult;
pub(crate) type Destroy = unsafe extern "C-unwind" fn(CUarray) -> CUresult;
pub(crate) type DestroyMipmap = unsafe extern "C-unwind" fn(CUmipmappedArray) -> CUresult;

/// Takes an array away again.
fn undo(handle: u64) {
    // SAFETY: an array that was made a moment ago and that nobody else knows.
    unsafe { real::cuArrayDestroy(handle as CUarray) };
}

/// Writes an array down that `run` makes; one whose memory comes later is none yet.
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
        let size = caps::current_device().and_then(|ordinal| size_of(handle, ordinal));
        Granted { address: handle, given: size.unwrap_or(bound) }
    })
}

/// `cuArrayCreate`.
pub(crate) unsafe fn create(
    call: &Call<Create, CUresult>,
    array: *mut CUarray,
    wanted: *const CUDA_ARRAY_DESCRIPTOR,
) -> CUresult {
    // SAFETY: null or the caller's own description.
    let bound = unsafe { wanted.as_ref() }.map_or(0, |d| {
        let whole = CUDA_ARRAY3D_DESCRIPTOR {
            Width: d.Width,
            Height: d.Height,
            Format: d.Format,
            NumChannels: d.NumChannels,
            ..CUDA_ARRAY3D_DESCRIPTOR::default()
        };
        arrays::bound(&whole, 1)
    });
    let run = || {
        arrays::create(
            bound,
            0,
            // SAFETY: the caller's own arguments.
            || served::with_room(|| call.forward(|real| unsafe { real(array, wanted) })),
            // SAFETY: after success the handle is there.
            || unsafe { *array } as u64,
            arrays::size_of_array,
            undo,
        )
    };
    // SAFETY: after success the handle is there.
    recorded(call, (bound, 0), run, || unsafe { *array } as u64, arrays::size_of_array)
}

/// `cuArray3DCreate`.
pub(crate) unsafe fn create_3d(
    call: &Call<Create3d, CUresult>,
    array: *mut CUarray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> CUresult {
    // SAFETY: null or the caller's own description.
    let (bound, flags) = unsafe { wanted.as_ref() }.map_or((0, 0), |d| (arrays::bound(d, 1), d.Flags));
    let run = || {
        arrays::create(
            bound,
            flags,
            // SAFETY: the caller's own arguments.
            || served::with_room(|| call.forward(|real| unsafe { real(array, wanted) })),
            // SAFETY: after success the handle is there.
            || unsafe { *array } as u64,
            arrays::size_of_array,
            undo,
        )
    };
    // SAFETY: after success the handle is there.
    recorded(call, (bound, flags), run, || unsafe { *array } as u64, arrays::size_of_array)
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
        arrays::create(
            bound,
            flags,
            // SAFETY: the caller's own arguments.
            || served::with_room(|| call.forward(|real| unsafe { real(array, wanted, levels) })),
            // SAFETY: after success the handle is there.
            || unsafe { *array } as u64,
            arrays::size_of_mipmap,
            |handle| {
                // SAFETY: made a moment ago, and nobody else knows it.
                unsafe { real::cuMipmappedArrayDestroy(handle as CUmipmappedArray) };
            },
        )
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
