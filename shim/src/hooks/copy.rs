//! Copies between devices. The driver's own memory is copied by any device; mapped memory needs access from the device that
//! executes the copy, unless the call names both contexts. So a copy that lacks access takes that entry point.

use crate::alloc::{self, DevicePool, peers};
use crate::driver::stream::{self, per_thread};
use crate::driver::{contexts, guards, memops, real, work};
use crate::process::guard::Call;
use weir_cuda::{CUcontext, CUdeviceptr, CUmemorytype, CUpointer_attribute as A, CUresult, CUstream, Variant};

pub(crate) type Copy = unsafe extern "C-unwind" fn(CUdeviceptr, CUdeviceptr, usize) -> CUresult;
pub(crate) type CopyAsync = unsafe extern "C-unwind" fn(CUdeviceptr, CUdeviceptr, usize, CUstream) -> CUresult;

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

/// Whether memory of several devices comes from pools: else no copy lacks access.
#[inline]
fn several() -> bool {
    alloc::any() && alloc::pools().nth(1).is_some()
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
