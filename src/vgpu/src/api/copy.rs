//! Copies of every shape, between every two kinds of memory.

use super::given;
use crate::engine::{Extent3, Op, Plane, Source, Touch, Touches, wait_points};
use crate::error::*;
use crate::memory::{Kind, Toucher};
use crate::state::{State, driver};
use std::sync::Arc;
use weir_cuda::*;

/// One end of a copy.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// Host memory, which the caller may also have got from the driver.
    Host(u64),
    /// Memory that the driver must know.
    Device(u64),
    /// Either: the address decides.
    Unified(u64),
    Array(CUarray),
}

/// An end with its place in rows and slices.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) end: End,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

impl Side {
    pub(crate) fn line(end: End) -> Self {
        Self { end, x: 0, y: 0, z: 0, pitch: 0, height: 0 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoryKind {
    Pageable,
    Pinned,
    Device,
}

impl State {
    fn resolve(
        &self,
        side: &Side,
        extent: Extent3,
        write: bool,
        who: Toucher,
        list: &mut Vec<Touch>,
    ) -> R<(Plane, MemoryKind)> {
        let addr = match side.end {
            End::Array(handle) => return self.resolve_array(handle, side, extent, write, list),
            End::Host(a) | End::Device(a) | End::Unified(a) => a,
        };
        if addr == 0 {
            return Err(INVALID_VALUE);
        }
        let rows = extent.height > 1 || extent.depth > 1 || side.y > 0 || side.z > 0;
        let pitch = if side.pitch == 0 { extent.width + side.x as u64 } else { side.pitch as u64 };
        if rows && pitch < extent.width + side.x as u64 {
            return Err(INVALID_VALUE);
        }
        let tall = if side.height == 0 { extent.height + side.y as u64 } else { side.height as u64 };
        if extent.depth > 1 && tall < extent.height {
            return Err(INVALID_VALUE);
        }
        let slice = pitch.checked_mul(tall).ok_or(INVALID_VALUE)?;
        let base = addr + side.x as u64 + side.y as u64 * pitch + side.z as u64 * slice;
        let place = match self.extent(base) {
            None if self.is_driver_range(base) && crate::config::fault("use_after_free") => MemoryKind::Device,
            None if self.is_driver_range(base) => return Err(INVALID_VALUE),
            None if matches!(side.end, End::Device(_)) => return Err(INVALID_VALUE),
            None => MemoryKind::Pageable,
            Some(e) if matches!(e.kind, Kind::Pinned | Kind::Registered) => MemoryKind::Pinned,
            // The address of a host argument must be one that the host can read.
            Some(e) if matches!(side.end, End::Host(_)) && e.kind != Kind::Managed => return Err(INVALID_VALUE),
            Some(_) => MemoryKind::Device,
        };
        if place != MemoryKind::Pageable {
            for z in 0..extent.depth {
                if pitch == extent.width || extent.height == 1 {
                    self.touch(list, base + z * slice, extent.width * extent.height, write, who)?;
                } else {
                    for y in 0..extent.height {
                        self.touch(list, base + z * slice + y * pitch, extent.width, write, who)?;
                    }
                }
            }
        }
        Ok((Plane { base, pitch, slice }, place))
    }

    fn resolve_array(
        &self,
        handle: CUarray,
        side: &Side,
        extent: Extent3,
        write: bool,
        list: &mut Vec<Touch>,
    ) -> R<(Plane, MemoryKind)> {
        let array = self.arrays.get(&(handle as u64)).filter(|a| a.levels == 0).ok_or(INVALID_HANDLE)?;
        let l = array.layout;
        let width = array.descriptor.Width as u64 * l.element;
        let (x, y, z) = (side.x as u64, side.y as u64, side.z as u64);
        if x + extent.width > width || y + extent.height > l.rows || z + extent.depth > l.slices {
            return Err(INVALID_VALUE);
        }
        let base = array.addr + z * l.slice + y * l.pitch + x;
        list.push(Touch { addr: array.addr, len: l.bytes, write, id: array.id });
        Ok((Plane { base, pitch: l.pitch, slice: l.slice }, MemoryKind::Device))
    }
}

/// Which default stream a copy without a stream argument uses, and whether it waits.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    Wait,
    Stream(CUstream),
}

/// What a copy will do, found legal.
pub(crate) struct Copy {
    pub(crate) op: Op,
    pub(crate) touches: Vec<Touch>,
    from: MemoryKind,
    to: MemoryKind,
}

/// Checks a copy and finds what it touches.
pub(crate) fn prepare(s: &State, target: &Side, source: &Side, extent: Extent3, who: Toucher) -> R<Copy> {
    let mut touches = Vec::new();
    let (to_plane, to) = s.resolve(target, extent, true, who, &mut touches)?;
    let (from_plane, from) = s.resolve(source, extent, false, who, &mut touches)?;
    let op = Op::Copy { source: Source::Memory(from_plane), target: to_plane, extent };
    Ok(Copy { op, touches, from, to })
}

/// Reads pageable memory now, so that the caller may change it as soon as the call returns.
fn stage(op: Op) -> Op {
    let Op::Copy { source: Source::Memory(from), target, extent } = op else { return op };
    let mut bytes = Vec::with_capacity(extent.bytes() as usize);
    for z in 0..extent.depth {
        for y in 0..extent.height {
            let row = (from.base + z * from.slice + y * from.pitch) as *const u8;
            // SAFETY: host memory that the caller promises to be readable for the copy's extent.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(row, extent.width as usize) });
        }
    }
    Op::Copy { source: Source::Staged(Arc::new(bytes)), target, extent }
}

fn copy(label: &'static str, target: &Side, source: &Side, extent: Extent3, mode: Mode) -> R {
    copy_by(label, target, source, extent, mode, false)
}

/// `routed`: the caller named the two contexts, and the driver finds a way between their devices.
fn copy_by(label: &'static str, target: &Side, source: &Side, extent: Extent3, mode: Mode, routed: bool) -> R {
    let mut s = driver()?;
    let (ctx, device) = s.current_device()?;
    let stream = match mode {
        Mode::Wait => s.stream(std::ptr::null_mut())?,
        Mode::Stream(stream) => s.stream(stream)?,
    };
    if extent.bytes() == 0 {
        return Ok(());
    }
    let executing = s.engine.streams.get(&stream).map_or(device, |st| st.device);
    let who = if routed { Toucher::Copier } else { Toucher::Engine(executing) };
    let prepared = prepare(&s, target, source, extent, who)?;
    for end in [target.end, source.end] {
        if let End::Unified(a) | End::Device(a) = end
            && s.extent(a).is_some_and(|e| e.kind == Kind::Managed)
        {
            s.attract(a, device);
        }
    }
    let Copy { op, touches, from, to } = prepared;
    let capturing = s.engine.streams.get(&stream).is_some_and(|st| st.capture.is_some());
    if matches!(mode, Mode::Wait) {
        s.refuse_unsafe_call()?;
    }
    let op = if from == MemoryKind::Pageable && !capturing { stage(op) } else { op };
    let number = s.submit(stream, label, op, Touches::Known(touches))?;
    // Between device memory nobody waits; into pageable memory everybody does.
    let waits = match mode {
        Mode::Wait => from != MemoryKind::Device || to != MemoryKind::Device,
        Mode::Stream(_) => to == MemoryKind::Pageable && !capturing,
    };
    if waits {
        let s = wait_points(s, &[(stream, number)]);
        s.usable(ctx)?;
    }
    Ok(())
}

fn line(label: &'static str, to: End, from: End, bytes: usize, mode: Mode) -> R {
    copy(label, &Side::line(to), &Side::line(from), Extent3::line(bytes as u64), mode)
}

pub(crate) unsafe fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize) -> R {
    line("cuMemcpy", End::Unified(dst), End::Unified(src), byte_count, Mode::Wait)
}

pub(crate) unsafe fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, h_stream: CUstream) -> R {
    line("cuMemcpyAsync", End::Unified(dst), End::Unified(src), byte_count, Mode::Stream(h_stream))
}

pub(crate) unsafe fn cuMemcpyHtoD_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize) -> R {
    line("cuMemcpyHtoD", End::Device(dst_device), End::Host(src_host as u64), byte_count, Mode::Wait)
}

pub(crate) unsafe fn cuMemcpyHtoDAsync_v2(
    dst_device: CUdeviceptr,
    src_host: *const c_void,
    byte_count: usize,
    h_stream: CUstream,
) -> R {
    line("cuMemcpyHtoDAsync", End::Device(dst_device), End::Host(src_host as u64), byte_count, Mode::Stream(h_stream))
}

pub(crate) unsafe fn cuMemcpyDtoH_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize) -> R {
    line("cuMemcpyDtoH", End::Host(dst_host as u64), End::Device(src_device), byte_count, Mode::Wait)
}

pub(crate) unsafe fn cuMemcpyDtoHAsync_v2(
    dst_host: *mut c_void,
    src_device: CUdeviceptr,
    byte_count: usize,
    h_stream: CUstream,
) -> R {
    line("cuMemcpyDtoHAsync", End::Host(dst_host as u64), End::Device(src_device), byte_count, Mode::Stream(h_stream))
}

pub(crate) unsafe fn cuMemcpyDtoD_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize) -> R {
    line("cuMemcpyDtoD", End::Device(dst_device), End::Device(src_device), byte_count, Mode::Wait)
}

pub(crate) unsafe fn cuMemcpyDtoDAsync_v2(
    dst_device: CUdeviceptr,
    src_device: CUdeviceptr,
    byte_count: usize,
    h_stream: CUstream,
) -> R {
    line("cuMemcpyDtoDAsync", End::Device(dst_device), End::Device(src_device), byte_count, Mode::Stream(h_stream))
}

fn peer_line(label: &'static str, to: CUdeviceptr, from: CUdeviceptr, bytes: usize, mode: Mode) -> R {
    let (to, from) = (Side::line(End::Device(to)), Side::line(End::Device(from)));
    copy_by(label, &to, &from, Extent3::line(bytes as u64), mode, true)
}

fn peer_contexts(contexts: [CUcontext; 2]) -> R {
    let s = driver()?;
    for ctx in contexts {
        s.known(ctx)?;
    }
    Ok(())
}

/// A copy between contexts without a stream comes after all earlier work of both, and before all later.
fn serialized(contexts: [CUcontext; 2], act: impl FnOnce() -> R) -> R {
    peer_contexts(contexts)?;
    let finish = || {
        let mut s = driver()?;
        s.refuse_unsafe_call()?;
        let here = s.current()?;
        let points = s.engine.tails(|_, stream| stream.ctx == here || contexts.iter().any(|&c| c as u64 == stream.ctx));
        wait_points(s, &points);
        Ok(())
    };
    finish()?;
    act()?;
    finish()
}

pub(crate) unsafe fn cuMemcpyPeer(
    dst_device: CUdeviceptr,
    dst_context: CUcontext,
    src_device: CUdeviceptr,
    src_context: CUcontext,
    byte_count: usize,
) -> R {
    serialized([dst_context, src_context], || peer_line("cuMemcpyPeer", dst_device, src_device, byte_count, Mode::Wait))
}

pub(crate) unsafe fn cuMemcpyPeerAsync(
    dst_device: CUdeviceptr,
    dst_context: CUcontext,
    src_device: CUdeviceptr,
    src_context: CUcontext,
    byte_count: usize,
    h_stream: CUstream,
) -> R {
    peer_contexts([dst_context, src_context])?;
    peer_line("cuMemcpyPeerAsync", dst_device, src_device, byte_count, Mode::Stream(h_stream))
}

/// Arrays of one row are copied by an offset in bytes.
fn array_line(array: CUarray, offset: usize) -> Side {
    Side { x: offset, ..Side::line(End::Array(array)) }
}

pub(crate) unsafe fn cuMemcpyDtoA_v2(
    dst_array: CUarray,
    dst_offset: usize,
    src_device: CUdeviceptr,
    byte_count: usize,
) -> R {
    let extent = Extent3::line(byte_count as u64);
    let source = Side::line(End::Device(src_device));
    copy("cuMemcpyDtoA", &array_line(dst_array, dst_offset), &source, extent, Mode::Wait)
}

pub(crate) unsafe fn cuMemcpyAtoD_v2(
    dst_device: CUdeviceptr,
    src_array: CUarray,
    src_offset: usize,
    byte_count: usize,
) -> R {
    let extent = Extent3::line(byte_count as u64);
    let target = Side::line(End::Device(dst_device));
    copy("cuMemcpyAtoD", &target, &array_line(src_array, src_offset), extent, Mode::Wait)
}

pub(crate) unsafe fn cuMemcpyAtoA_v2(
    dst_array: CUarray,
    dst_offset: usize,
    src_array: CUarray,
    src_offset: usize,
    byte_count: usize,
) -> R {
    let extent = Extent3::line(byte_count as u64);
    let (target, source) = (array_line(dst_array, dst_offset), array_line(src_array, src_offset));
    copy("cuMemcpyAtoA", &target, &source, extent, Mode::Wait)
}

fn to_array(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize, mode: Mode) -> R {
    let extent = Extent3::line(byte_count as u64);
    let source = Side::line(End::Host(src_host as u64));
    copy("cuMemcpyHtoA", &array_line(dst_array, dst_offset), &source, extent, mode)
}

pub(crate) unsafe fn cuMemcpyHtoA_v2(
    dst_array: CUarray,
    dst_offset: usize,
    src_host: *const c_void,
    byte_count: usize,
) -> R {
    to_array(dst_array, dst_offset, src_host, byte_count, Mode::Wait)
}

pub(crate) unsafe fn cuMemcpyHtoAAsync_v2(
    dst_array: CUarray,
    dst_offset: usize,
    src_host: *const c_void,
    byte_count: usize,
    h_stream: CUstream,
) -> R {
    to_array(dst_array, dst_offset, src_host, byte_count, Mode::Stream(h_stream))
}

fn from_array(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize, mode: Mode) -> R {
    let extent = Extent3::line(byte_count as u64);
    let target = Side::line(End::Host(dst_host as u64));
    copy("cuMemcpyAtoH", &target, &array_line(src_array, src_offset), extent, mode)
}

pub(crate) unsafe fn cuMemcpyAtoH_v2(
    dst_host: *mut c_void,
    src_array: CUarray,
    src_offset: usize,
    byte_count: usize,
) -> R {
    from_array(dst_host, src_array, src_offset, byte_count, Mode::Wait)
}

pub(crate) unsafe fn cuMemcpyAtoHAsync_v2(
    dst_host: *mut c_void,
    src_array: CUarray,
    src_offset: usize,
    byte_count: usize,
    h_stream: CUstream,
) -> R {
    from_array(dst_host, src_array, src_offset, byte_count, Mode::Stream(h_stream))
}

fn end(kind: CUmemorytype, host: u64, device: u64, array: CUarray) -> R<End> {
    match kind {
        CUmemorytype::CU_MEMORYTYPE_HOST => Ok(End::Host(host)),
        CUmemorytype::CU_MEMORYTYPE_DEVICE => Ok(End::Device(device)),
        CUmemorytype::CU_MEMORYTYPE_UNIFIED => Ok(End::Unified(device)),
        CUmemorytype::CU_MEMORYTYPE_ARRAY => Ok(End::Array(array)),
        _ => Err(INVALID_VALUE),
    }
}

unsafe fn two(label: &'static str, p_copy: *const CUDA_MEMCPY2D, mode: Mode) -> R {
    given(p_copy)?;
    // SAFETY: checked above; the caller's description.
    let c = unsafe { p_copy.read_unaligned() };
    let target = Side {
        end: end(c.dstMemoryType, c.dstHost as u64, c.dstDevice, c.dstArray)?,
        x: c.dstXInBytes,
        y: c.dstY,
        z: 0,
        pitch: c.dstPitch,
        height: 0,
    };
    let source = Side {
        end: end(c.srcMemoryType, c.srcHost as u64, c.srcDevice, c.srcArray)?,
        x: c.srcXInBytes,
        y: c.srcY,
        z: 0,
        pitch: c.srcPitch,
        height: 0,
    };
    let extent = Extent3 { width: c.WidthInBytes as u64, height: c.Height as u64, depth: 1 };
    copy(label, &target, &source, extent, mode)
}

pub(crate) unsafe fn cuMemcpy2D_v2(p_copy: *const CUDA_MEMCPY2D) -> R {
    // SAFETY: passed on as promised.
    unsafe { two("cuMemcpy2D", p_copy, Mode::Wait) }
}

pub(crate) unsafe fn cuMemcpy2DUnaligned_v2(p_copy: *const CUDA_MEMCPY2D) -> R {
    // SAFETY: passed on as promised.
    unsafe { two("cuMemcpy2DUnaligned", p_copy, Mode::Wait) }
}

pub(crate) unsafe fn cuMemcpy2DAsync_v2(p_copy: *const CUDA_MEMCPY2D, h_stream: CUstream) -> R {
    // SAFETY: passed on as promised.
    unsafe { two("cuMemcpy2DAsync", p_copy, Mode::Stream(h_stream)) }
}

/// The two sides and the extent of a three-dimensional copy.
pub(crate) fn sides(c: &CUDA_MEMCPY3D) -> R<(Side, Side, Extent3)> {
    if c.srcLOD != 0 || c.dstLOD != 0 {
        return Err(INVALID_VALUE);
    }
    let target = Side {
        end: end(c.dstMemoryType, c.dstHost as u64, c.dstDevice, c.dstArray)?,
        x: c.dstXInBytes,
        y: c.dstY,
        z: c.dstZ,
        pitch: c.dstPitch,
        height: c.dstHeight,
    };
    let source = Side {
        end: end(c.srcMemoryType, c.srcHost as u64, c.srcDevice, c.srcArray)?,
        x: c.srcXInBytes,
        y: c.srcY,
        z: c.srcZ,
        pitch: c.srcPitch,
        height: c.srcHeight,
    };
    let extent = Extent3 { width: c.WidthInBytes as u64, height: c.Height as u64, depth: c.Depth as u64 };
    Ok((target, source, extent))
}

unsafe fn three(label: &'static str, p_copy: *const CUDA_MEMCPY3D, mode: Mode) -> R {
    given(p_copy)?;
    // SAFETY: checked above; the caller's description.
    let c = unsafe { p_copy.read_unaligned() };
    let (target, source, extent) = sides(&c)?;
    copy(label, &target, &source, extent, mode)
}

pub(crate) unsafe fn cuMemcpy3D_v2(p_copy: *const CUDA_MEMCPY3D) -> R {
    // SAFETY: passed on as promised.
    unsafe { three("cuMemcpy3D", p_copy, Mode::Wait) }
}

pub(crate) unsafe fn cuMemcpy3DAsync_v2(p_copy: *const CUDA_MEMCPY3D, h_stream: CUstream) -> R {
    // SAFETY: passed on as promised.
    unsafe { three("cuMemcpy3DAsync", p_copy, Mode::Stream(h_stream)) }
}

unsafe fn three_peer(label: &'static str, p_copy: *const CUDA_MEMCPY3D_PEER, mode: Mode) -> R {
    given(p_copy)?;
    // SAFETY: checked above; the caller's description.
    let c = unsafe { p_copy.read_unaligned() };
    peer_contexts([c.dstContext, c.srcContext])?;
    // The two descriptions differ only in what the contexts' places are called.
    // SAFETY: same size and layout, as the layout test proves field by field.
    let plain: CUDA_MEMCPY3D = unsafe { std::mem::transmute(c) };
    let (target, source, extent) = sides(&plain)?;
    match mode {
        Mode::Wait => serialized([c.dstContext, c.srcContext], || copy_by(label, &target, &source, extent, mode, true)),
        Mode::Stream(_) => copy_by(label, &target, &source, extent, mode, true),
    }
}

pub(crate) unsafe fn cuMemcpy3DPeer(p_copy: *const CUDA_MEMCPY3D_PEER) -> R {
    // SAFETY: passed on as promised.
    unsafe { three_peer("cuMemcpy3DPeer", p_copy, Mode::Wait) }
}

pub(crate) unsafe fn cuMemcpy3DPeerAsync(p_copy: *const CUDA_MEMCPY3D_PEER, h_stream: CUstream) -> R {
    // SAFETY: passed on as promised.
    unsafe { three_peer("cuMemcpy3DPeerAsync", p_copy, Mode::Stream(h_stream)) }
}

pub(crate) unsafe fn cuMemcpyBatchAsync_v2(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut CUmemcpyAttributes,
    attr_idxs: *mut usize,
    num_attrs: usize,
    h_stream: CUstream,
) -> R {
    given(dsts)?;
    given(srcs)?;
    given(sizes)?;
    given(attrs)?;
    given(attr_idxs)?;
    // The default streams are not allowed, and every copy has an attribute.
    if count == 0 || num_attrs == 0 || num_attrs > count || matches!(h_stream as usize, 0..=2) {
        return Err(INVALID_VALUE);
    }
    for at in 0..count {
        // SAFETY: the caller gave three arrays of `count` entries.
        let (to, from, size) = unsafe { (*dsts.add(at), *srcs.add(at), *sizes.add(at)) };
        line("cuMemcpyBatchAsync", End::Unified(to), End::Unified(from), size, Mode::Stream(h_stream))?;
    }
    Ok(())
}

pub(crate) unsafe fn cuMemcpyBatchAsync(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attrs: *mut CUmemcpyAttributes,
    attr_idxs: *mut usize,
    num_attrs: usize,
    fail_idx: *mut usize,
    h_stream: CUstream,
) -> R {
    // SAFETY: passed on as promised.
    let done = unsafe { cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attr_idxs, num_attrs, h_stream) };
    if done.is_err() {
        // SAFETY: the caller's place, or NULL.
        unsafe { super::put(fail_idx, usize::MAX) };
    }
    done
}
