//! Arrays and mipmaps: the driver's own, charged to the job.

use crate::caps::arrays;
use crate::guard::Call;
use crate::served::{self, real};
use core::ffi::c_uint;
use weir_cuda::*;

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
}

/// `cuArray3DCreate`.
pub(crate) unsafe fn create_3d(
    call: &Call<Create3d, CUresult>,
    array: *mut CUarray,
    wanted: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> CUresult {
    // SAFETY: null or the caller's own description.
    let (bound, flags) = unsafe { wanted.as_ref() }.map_or((0, 0), |d| (arrays::bound(d, 1), d.Flags));
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
}

/// `cuArrayDestroy`.
pub(crate) unsafe fn destroy(call: &Call<Destroy, CUresult>, array: CUarray) -> CUresult {
    // SAFETY: the caller's own argument.
    arrays::destroy(array as u64, || call.forward(|real| unsafe { real(array) }))
}

/// `cuMipmappedArrayDestroy`.
pub(crate) unsafe fn destroy_mipmap(call: &Call<DestroyMipmap, CUresult>, array: CUmipmappedArray) -> CUresult {
    // SAFETY: the caller's own argument.
    arrays::destroy(array as u64, || call.forward(|real| unsafe { real(array) }))
}
