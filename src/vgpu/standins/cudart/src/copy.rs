//! Copies and fills.

use crate::context;
use crate::error::{Outcome, R};
use weir_cuda::*;
use weir_vgpu_client::*;

/// Directions of a copy.
pub(crate) const HOST_TO_HOST: c_uint = 0;
pub(crate) const HOST_TO_DEVICE: c_uint = 1;
pub(crate) const DEVICE_TO_HOST: c_uint = 2;
pub(crate) const DEVICE_TO_DEVICE: c_uint = 3;
/// The addresses decide.
pub(crate) const BY_ADDRESS: c_uint = 4;

const BAD_DIRECTION: CUresult = CUresult(21);

runtime! {
    /// Copies.
    context fn cudaMemcpy(to: CUdeviceptr, from: CUdeviceptr, count: usize, kind: c_uint) = now(to, from, count, kind);
    /// Copies in the order of a stream.
    context fn cudaMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, count: usize, kind: c_uint, stream: CUstream) =
        later(to, from, count, kind, stream);
    /// Copies between devices.
    context fn cudaMemcpyPeer(to: CUdeviceptr, to_device: c_int, from: CUdeviceptr, from_device: c_int, count: usize) =
        peers(to_device, from_device).and_then(|(t, f)| cuMemcpyPeer(to, t, from, f, count).outcome());
    /// Copies between devices in the order of a stream.
    context fn cudaMemcpyPeerAsync(
        to: CUdeviceptr, to_device: c_int, from: CUdeviceptr, from_device: c_int, count: usize, stream: CUstream,
    ) = peers(to_device, from_device).and_then(|(t, f)| cuMemcpyPeerAsync(to, t, from, f, count, stream).outcome());
    /// Copies rows.
    context fn cudaMemcpy2D(
        to: CUdeviceptr, to_pitch: usize, from: CUdeviceptr, from_pitch: usize, width: usize, height: usize, kind: c_uint,
    ) = rows((to, to_pitch), (from, from_pitch), width, height, kind)
        .and_then(|copy| cuMemcpy2DUnaligned_v2(&raw const copy).outcome());
    /// Copies rows in the order of a stream.
    context fn cudaMemcpy2DAsync(
        to: CUdeviceptr, to_pitch: usize, from: CUdeviceptr, from_pitch: usize, width: usize, height: usize,
        kind: c_uint, stream: CUstream,
    ) = rows((to, to_pitch), (from, from_pitch), width, height, kind)
        .and_then(|copy| cuMemcpy2DAsync_v2(&raw const copy, stream).outcome());
    /// Fills.
    context fn cudaMemset(to: CUdeviceptr, value: c_int, count: usize) = cuMemsetD8_v2(to, value as u8, count);
    /// Fills in the order of a stream.
    context fn cudaMemsetAsync(to: CUdeviceptr, value: c_int, count: usize, stream: CUstream) =
        cuMemsetD8Async(to, value as u8, count, stream);
    /// Fills rows.
    context fn cudaMemset2D(to: CUdeviceptr, pitch: usize, value: c_int, width: usize, height: usize) =
        cuMemsetD2D8_v2(to, pitch, value as u8, width, height);
    /// Fills rows in the order of a stream.
    context fn cudaMemset2DAsync(
        to: CUdeviceptr, pitch: usize, value: c_int, width: usize, height: usize, stream: CUstream,
    ) = cuMemsetD2D8Async(to, pitch, value as u8, width, height, stream);
}

pub(crate) unsafe fn now(to: CUdeviceptr, from: CUdeviceptr, count: usize, kind: c_uint) -> R {
    if count == 0 {
        return Ok(());
    }
    // SAFETY: the caller says what lies at both addresses.
    unsafe {
        match kind {
            HOST_TO_HOST => std::ptr::copy(from as *const u8, to as *mut u8, count),
            HOST_TO_DEVICE => cuMemcpyHtoD_v2(to, from as *const c_void, count).outcome()?,
            DEVICE_TO_HOST => cuMemcpyDtoH_v2(to as *mut c_void, from, count).outcome()?,
            DEVICE_TO_DEVICE => cuMemcpyDtoD_v2(to, from, count).outcome()?,
            BY_ADDRESS => cuMemcpy(to, from, count).outcome()?,
            _ => return Err(BAD_DIRECTION),
        }
    }
    Ok(())
}

pub(crate) unsafe fn later(to: CUdeviceptr, from: CUdeviceptr, count: usize, kind: c_uint, stream: CUstream) -> R {
    if count == 0 {
        return Ok(());
    }
    // SAFETY: the caller says what lies at both addresses, until the copy is done.
    unsafe {
        match kind {
            HOST_TO_DEVICE => cuMemcpyHtoDAsync_v2(to, from as *const c_void, count, stream),
            DEVICE_TO_HOST => cuMemcpyDtoHAsync_v2(to as *mut c_void, from, count, stream),
            DEVICE_TO_DEVICE => cuMemcpyDtoDAsync_v2(to, from, count, stream),
            HOST_TO_HOST | BY_ADDRESS => cuMemcpyAsync(to, from, count, stream),
            _ => BAD_DIRECTION,
        }
    }
    .outcome()
}

fn peers(to: c_int, from: c_int) -> R<(CUcontext, CUcontext)> {
    context::known(to)?;
    context::known(from)?;
    Ok((context::primary(to)?, context::primary(from)?))
}

/// What kind of memory the two sides of a copy are.
pub(crate) fn sides(kind: c_uint) -> R<(CUmemorytype, CUmemorytype)> {
    let (host, device, any) =
        (CUmemorytype::CU_MEMORYTYPE_HOST, CUmemorytype::CU_MEMORYTYPE_DEVICE, CUmemorytype::CU_MEMORYTYPE_UNIFIED);
    Ok(match kind {
        HOST_TO_HOST => (host, host),
        HOST_TO_DEVICE => (host, device),
        DEVICE_TO_HOST => (device, host),
        DEVICE_TO_DEVICE => (device, device),
        BY_ADDRESS => (any, any),
        _ => return Err(BAD_DIRECTION),
    })
}

fn rows(
    to: (CUdeviceptr, usize),
    from: (CUdeviceptr, usize),
    width: usize,
    height: usize,
    kind: c_uint,
) -> R<CUDA_MEMCPY2D> {
    let (source, destination) = sides(kind)?;
    Ok(CUDA_MEMCPY2D {
        srcMemoryType: source,
        srcHost: from.0 as *const c_void,
        srcDevice: from.0,
        srcPitch: from.1,
        dstMemoryType: destination,
        dstHost: to.0 as *mut c_void,
        dstDevice: to.0,
        dstPitch: to.1,
        WidthInBytes: width,
        Height: height,
        ..CUDA_MEMCPY2D::default()
    })
}
