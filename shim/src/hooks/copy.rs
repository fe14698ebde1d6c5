//! Copies between devices. The driver's own memory is copied by any device; mapped memory needs access from the device that
//! executes the copy, unless the call names both contexts. So a copy that lacks access takes that entry point.

use crate::alloc::{self, DevicePool, peers};
use crate::driver::stream::{self, per_thread};
use crate::driver::{contexts, guards, memops, real, work};
use crate::process::guard::Call;
use weir_cuda::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUdeviceptr, CUmemorytype, CUpointer_attribute as A,
    CUresult, CUstream, Variant,
};

pub(crate) type Copy = unsafe extern "C-unwind" fn(CUdeviceptr, CUdeviceptr, usize) -> CUresult;
pub(crate) type CopyAsync = unsafe extern "C-unwind" fn(CUdeviceptr, CUdeviceptr, usize, CUstream) -> CUresult;
pub(crate) type Rows = unsafe extern "C-unwind" fn(*const CUDA_MEMCPY2D) -> CUresult;
pub(crate) type RowsAsync = unsafe extern "C-unwind" fn(*const CUDA_MEMCPY2D, CUstream) -> CUresult;
pub(crate) type Slices = unsafe extern "C-unwind" fn(*const CUDA_MEMCPY3D) -> CUresult;
pub(crate) type SlicesAsync = unsafe extern "C-unwind" fn(*const CUDA_MEMCPY3D, CUstream) -> CUresult;

/// The device that memory is on; `None`: it is the host's, or nobody's.
fn device_of(ptr: CUdeviceptr) -> Option<i32> {
    if let Some(device_pool) = alloc::owner(ptr) {
        return (!device_pool.host).then_some(device_pool.ordinal);
    }
    let (mut kind, mut ordinal) = (0_u32, 0_i32);
    // SAFETY: both places are live locals of the attributes' documented types.
    let queried = unsafe {
        [
            real::cuPointerGetAttribute((&raw mut kind).cast(), A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr),
            real::cuPointerGetAttribute((&raw mut ordinal).cast(), A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr),
        ]
    };
    let device = queried == [CUresult::CUDA_SUCCESS; 2] && kind == CUmemorytype::CU_MEMORYTYPE_DEVICE.0;
    device.then_some(ordinal)
}

/// The contexts between which a copy goes that the device `executing` has no access for: of the target, and of the source.
#[cold]
fn route(executing: i32, to: CUdeviceptr, from: CUdeviceptr) -> Option<(CUcontext, CUcontext)> {
    let out_of_reach = |device_pool: &DevicePool| {
        let memory = device_pool.ordinal;
        device_pool.mapped() && memory != executing && !peers::has_access(executing, memory)
    };
    if ![to, from].into_iter().filter_map(alloc::owner).any(out_of_reach) {
        return None;
    }
    let context = |ptr| {
        let ordinal = device_of(ptr)?;
        contexts::all().find(|of| of.ordinal == ordinal).map(|of| of.ctx as CUcontext)
    };
    Some((context(to)?, context(from)?))
}

/// Whether a device may execute a copy of memory that comes from the pool of another one: else no copy lacks access.
#[inline]
fn several() -> bool {
    let first = if alloc::any() { alloc::pools().next() } else { None };
    let other = |ordinal: i32| first.is_some_and(|first| first.ordinal != ordinal);
    alloc::pools().any(|device_pool| other(device_pool.ordinal)) || contexts::all().any(|of| other(of.ordinal))
}

/// `cuMemcpy`, `cuMemcpyDtoD`.
pub(crate) unsafe fn copy(call: &Call<Copy, CUresult>, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUresult {
    let between = if several() { guards::current_device().and_then(|device| route(device, to, from)) } else { None };
    let result = alloc::with_room(|| {
        let Some(_queueing) = work::enter_as(call.variant, false) else { return work::REFUSED };
        // SAFETY: the caller's own arguments, and contexts that live.
        call.forward(|real| unsafe {
            match (between, call.variant) {
                (None, _) => real(to, from, bytes),
                (Some((target, source)), Variant::Legacy) => real::cuMemcpyPeer(to, target, from, source, bytes),
                (Some((target, source)), _) => real::cuMemcpyPeer_ptds(to, target, from, source, bytes),
            }
        })
    });
    if memops::wanted() { memops::complete("cuMemcpy", call.variant, result) } else { result }
}

/// `cuMemcpyAsync`, `cuMemcpyDtoDAsync`.
pub(crate) unsafe fn copy_async(
    call: &Call<CopyAsync, CUresult>,
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    on: CUstream,
) -> CUresult {
    let own = per_thread(call.variant, on);
    let executing = || stream::find(on, own).map(|(stream_ref, _)| stream_ref.ordinal);
    let between = if several() { executing().and_then(|device| route(device, to, from)) } else { None };
    alloc::with_room(|| {
        let Some(_queueing) = work::enter_as(call.variant, own) else { return work::REFUSED };
        // SAFETY: the caller's own arguments, and contexts that live.
        call.forward(|real| unsafe {
            match (between, call.variant) {
                (None, _) => real(to, from, bytes, on),
                (Some((target, source)), Variant::Legacy) => {
                    real::cuMemcpyPeerAsync(to, target, from, source, bytes, on)
                }
                (Some((target, source)), _) => real::cuMemcpyPeerAsync_ptsz(to, target, from, source, bytes, on),
            }
        })
    })
}

/// Rows as slices: there is one.
fn slice(rows: &CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: rows.srcXInBytes,
        srcY: rows.srcY,
        srcMemoryType: rows.srcMemoryType,
        srcDevice: rows.srcDevice,
        srcPitch: rows.srcPitch,
        srcHeight: rows.srcY.saturating_add(rows.Height),
        dstXInBytes: rows.dstXInBytes,
        dstY: rows.dstY,
        dstMemoryType: rows.dstMemoryType,
        dstDevice: rows.dstDevice,
        dstPitch: rows.dstPitch,
        dstHeight: rows.dstY.saturating_add(rows.Height),
        WidthInBytes: rows.WidthInBytes,
        Height: rows.Height,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    }
}

/// The same copy with both contexts named, if the device `executing` has no access for it as it is.
fn between(executing: i32, copy: &CUDA_MEMCPY3D) -> Option<CUDA_MEMCPY3D_PEER> {
    let device = CUmemorytype::CU_MEMORYTYPE_DEVICE;
    let linear = |kind| kind == device || kind == CUmemorytype::CU_MEMORYTYPE_UNIFIED;
    if !linear(copy.srcMemoryType) || !linear(copy.dstMemoryType) {
        return None;
    }
    let (target, source) = route(executing, copy.dstDevice, copy.srcDevice)?;
    Some(CUDA_MEMCPY3D_PEER {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcMemoryType: device,
        srcDevice: copy.srcDevice,
        srcContext: source,
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstMemoryType: device,
        dstDevice: copy.dstDevice,
        dstContext: target,
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
        ..CUDA_MEMCPY3D_PEER::default()
    })
}

/// A copy of several rows on the current context's device: as the job made it, or with both contexts named.
fn shaped<F: core::marker::Copy>(
    call: &Call<F, CUresult>,
    copy: impl FnOnce() -> Option<CUDA_MEMCPY3D>,
    own: impl Fn(F) -> CUresult,
) -> CUresult {
    let device = if several() { guards::current_device() } else { None };
    let between = device.zip(device.and_then(|_| copy())).and_then(|(device, copy)| between(device, &copy));
    let result = alloc::with_room(|| {
        let Some(_queueing) = work::enter_as(call.variant, false) else { return work::REFUSED };
        call.forward(|real| match (&between, call.variant) {
            (None, _) => own(real),
            // SAFETY: the job's own description, with contexts that live.
            (Some(copy), Variant::Legacy) => unsafe { real::cuMemcpy3DPeer(copy) },
            // SAFETY: as above.
            (Some(copy), _) => unsafe { real::cuMemcpy3DPeer_ptds(copy) },
        })
    });
    if memops::wanted() { memops::complete("cuMemcpy", call.variant, result) } else { result }
}

/// The same on a stream.
fn shaped_async<F: core::marker::Copy>(
    call: &Call<F, CUresult>,
    copy: impl FnOnce() -> Option<CUDA_MEMCPY3D>,
    on: CUstream,
    own: impl Fn(F) -> CUresult,
) -> CUresult {
    let thread = per_thread(call.variant, on);
    let executing = || stream::find(on, thread).map(|(stream_ref, _)| stream_ref.ordinal);
    let device = if several() { executing() } else { None };
    let between = device.zip(device.and_then(|_| copy())).and_then(|(device, copy)| between(device, &copy));
    alloc::with_room(|| {
        let Some(_queueing) = work::enter_as(call.variant, thread) else { return work::REFUSED };
        call.forward(|real| match (&between, call.variant) {
            (None, _) => own(real),
            // SAFETY: the job's own description and stream, with contexts that live.
            (Some(copy), Variant::Legacy) => unsafe { real::cuMemcpy3DPeerAsync(copy, on) },
            // SAFETY: as above.
            (Some(copy), _) => unsafe { real::cuMemcpy3DPeerAsync_ptsz(copy, on) },
        })
    })
}

/// `cuMemcpy2D`, `cuMemcpy2DUnaligned`.
pub(crate) unsafe fn rows(call: &Call<Rows, CUresult>, copy: *const CUDA_MEMCPY2D) -> CUresult {
    // SAFETY: null, or the caller's own description.
    shaped(call, || unsafe { copy.as_ref() }.map(slice), |real| unsafe { real(copy) })
}

/// `cuMemcpy2DAsync`.
pub(crate) unsafe fn rows_async(
    call: &Call<RowsAsync, CUresult>,
    copy: *const CUDA_MEMCPY2D,
    on: CUstream,
) -> CUresult {
    // SAFETY: null, or the caller's own description; its own stream.
    shaped_async(call, || unsafe { copy.as_ref() }.map(slice), on, |real| unsafe { real(copy, on) })
}

/// `cuMemcpy3D`.
pub(crate) unsafe fn slices(call: &Call<Slices, CUresult>, copy: *const CUDA_MEMCPY3D) -> CUresult {
    // SAFETY: null, or the caller's own description.
    shaped(call, || unsafe { copy.as_ref() }.copied(), |real| unsafe { real(copy) })
}

/// `cuMemcpy3DAsync`.
pub(crate) unsafe fn slices_async(
    call: &Call<SlicesAsync, CUresult>,
    copy: *const CUDA_MEMCPY3D,
    on: CUstream,
) -> CUresult {
    // SAFETY: null, or the caller's own description; its own stream.
    shaped_async(call, || unsafe { copy.as_ref() }.copied(), on, |real| unsafe { real(copy, on) })
}
