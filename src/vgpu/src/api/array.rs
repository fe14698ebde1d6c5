//! Arrays and mipmapped arrays.

use super::{given, need, put};
use crate::array::{Array, layout, level};
use crate::engine::{Clock, wait_points};
use crate::error::*;
use crate::heap::Use;
use crate::state::{State, driver};
use weir_cuda::*;

const ALLOWED_FLAGS: c_uint = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x20;

impl State {
    fn make_array(&mut self, descriptor: CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> R<u64> {
        let (ctx, device) = self.current_device()?;
        if descriptor.Flags & !ALLOWED_FLAGS != 0 {
            return Err(INVALID_VALUE);
        }
        let mut bytes = layout(&descriptor)?.bytes;
        for at in 1..levels {
            bytes += layout(&level(&descriptor, at))?.bytes;
        }
        self.refuse_unsafe_call()?;
        let addr = self.take_linear(ctx, device, bytes, Use::Array)?;
        let id = self.devices[device].heap.holding(addr).map_or(0, |b| b.id);
        let layout = layout(&descriptor)?;
        let handle = self.fresh();
        self.arrays.insert(handle, Array { ctx, device, descriptor, addr, id, layout, levels, parent: 0 });
        Ok(handle)
    }

    fn array(&self, handle: u64, mipmapped: bool) -> R<&Array> {
        self.arrays.get(&handle).filter(|a| (a.levels > 0) == mipmapped).ok_or(INVALID_HANDLE)
    }
}

fn destroy(handle: u64, mipmapped: bool) -> R {
    let mut s = driver()?;
    s.current()?;
    let array = *s.array(handle, mipmapped)?;
    if array.parent != 0 {
        // A level goes with its mipmapped array.
        return Err(INVALID_HANDLE);
    }
    s.refuse_unsafe_call()?;
    if s.engine.pending(array.addr, array.layout.bytes, Some(array.device), &Clock::default()).is_some() {
        let points = s.engine.tails(|_, stream| stream.device == array.device);
        s = wait_points(s, &points);
    }
    s.give_linear(array.device, array.addr);
    s.arrays.retain(|&h, a| h != handle && a.parent != handle);
    Ok(())
}

pub(crate) unsafe fn cuArray3DCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR) -> R {
    need(p_handle)?;
    given(p_allocate_array)?;
    let mut s = driver()?;
    // SAFETY: checked above.
    let handle = s.make_array(unsafe { p_allocate_array.read_unaligned() }, 0)?;
    // SAFETY: checked above.
    unsafe { put(p_handle, handle as CUarray) };
    Ok(())
}

pub(crate) unsafe fn cuArrayCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR) -> R {
    given(p_allocate_array)?;
    // SAFETY: checked above.
    let d = unsafe { p_allocate_array.read_unaligned() };
    let full = CUDA_ARRAY3D_DESCRIPTOR {
        Width: d.Width,
        Height: d.Height,
        Depth: 0,
        Format: d.Format,
        NumChannels: d.NumChannels,
        Flags: 0,
    };
    // SAFETY: passed on as promised.
    unsafe { cuArray3DCreate_v2(p_handle, &raw const full) }
}

pub(crate) unsafe fn cuArray3DCreate(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> R {
    given(p_allocate_array)?;
    // SAFETY: checked above.
    let d = unsafe { p_allocate_array.read_unaligned() };
    let full = CUDA_ARRAY3D_DESCRIPTOR {
        Width: d.Width as usize,
        Height: d.Height as usize,
        Depth: d.Depth as usize,
        Format: d.Format,
        NumChannels: d.NumChannels,
        Flags: d.Flags,
    };
    // SAFETY: passed on as promised.
    unsafe { cuArray3DCreate_v2(p_handle, &raw const full) }
}

pub(crate) unsafe fn cuArrayCreate(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR_v1) -> R {
    given(p_allocate_array)?;
    // SAFETY: checked above.
    let d = unsafe { p_allocate_array.read_unaligned() };
    let full = CUDA_ARRAY_DESCRIPTOR {
        Width: d.Width as usize,
        Height: d.Height as usize,
        Format: d.Format,
        NumChannels: d.NumChannels,
    };
    // SAFETY: passed on as promised.
    unsafe { cuArrayCreate_v2(p_handle, &raw const full) }
}

pub(crate) unsafe fn cuArrayDestroy(h_array: CUarray) -> R {
    destroy(h_array as u64, false)
}

pub(crate) unsafe fn cuArray3DGetDescriptor_v2(
    p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR,
    h_array: CUarray,
) -> R {
    need(p_array_descriptor)?;
    let s = driver()?;
    s.current()?;
    // SAFETY: checked above.
    unsafe { put(p_array_descriptor, s.array(h_array as u64, false)?.descriptor) };
    Ok(())
}

pub(crate) unsafe fn cuArrayGetDescriptor_v2(p_array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR, h_array: CUarray) -> R {
    need(p_array_descriptor)?;
    let s = driver()?;
    s.current()?;
    let d = s.array(h_array as u64, false)?.descriptor;
    if d.Depth > 0 {
        return Err(INVALID_VALUE);
    }
    let short =
        CUDA_ARRAY_DESCRIPTOR { Width: d.Width, Height: d.Height, Format: d.Format, NumChannels: d.NumChannels };
    // SAFETY: checked above.
    unsafe { put(p_array_descriptor, short) };
    Ok(())
}

fn requirements(place: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, handle: u64, device: CUdevice, mipmapped: bool) -> R {
    need(place)?;
    let s = driver()?;
    s.device(device)?;
    let array = s.array(handle, mipmapped)?;
    let mut bytes = array.layout.bytes;
    for at in 1..array.levels {
        bytes += layout(&level(&array.descriptor, at))?.bytes;
    }
    let answer = CUDA_ARRAY_MEMORY_REQUIREMENTS { size: bytes as usize, alignment: 512, ..Default::default() };
    // SAFETY: checked above.
    unsafe { put(place, answer) };
    Ok(())
}

pub(crate) unsafe fn cuArrayGetMemoryRequirements(
    memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    array: CUarray,
    device: CUdevice,
) -> R {
    requirements(memory_requirements, array as u64, device, false)
}

pub(crate) unsafe fn cuMipmappedArrayGetMemoryRequirements(
    memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    mipmap: CUmipmappedArray,
    device: CUdevice,
) -> R {
    requirements(memory_requirements, mipmap as u64, device, true)
}

pub(crate) unsafe fn cuMipmappedArrayCreate(
    p_handle: *mut CUmipmappedArray,
    p_mipmapped_array_desc: *const CUDA_ARRAY3D_DESCRIPTOR,
    num_mipmap_levels: c_uint,
) -> R {
    need(p_handle)?;
    given(p_mipmapped_array_desc)?;
    let mut s = driver()?;
    // SAFETY: checked above.
    let descriptor = unsafe { p_mipmapped_array_desc.read_unaligned() };
    if num_mipmap_levels == 0 {
        return Err(INVALID_VALUE);
    }
    // More levels than the largest side can be halved are cut.
    let side =
        descriptor.Width.max(descriptor.Height).max(if descriptor.Flags & 1 == 0 { descriptor.Depth } else { 0 });
    let most = side.max(1).ilog2() + 1;
    let handle = s.make_array(descriptor, num_mipmap_levels.min(most))?;
    // SAFETY: checked above.
    unsafe { put(p_handle, handle as CUmipmappedArray) };
    Ok(())
}

pub(crate) unsafe fn cuMipmappedArrayDestroy(h_mipmapped_array: CUmipmappedArray) -> R {
    destroy(h_mipmapped_array as u64, true)
}

pub(crate) unsafe fn cuMipmappedArrayGetLevel(
    p_level_array: *mut CUarray,
    h_mipmapped_array: CUmipmappedArray,
    wanted: c_uint,
) -> R {
    need(p_level_array)?;
    let mut s = driver()?;
    s.current()?;
    let parent = h_mipmapped_array as u64;
    let whole = *s.array(parent, true)?;
    if wanted >= whole.levels {
        return Err(INVALID_VALUE);
    }
    let mut addr = whole.addr;
    for at in 0..wanted {
        addr += layout(&level(&whole.descriptor, at))?.bytes;
    }
    let descriptor = level(&whole.descriptor, wanted);
    let found = s.arrays.iter().find(|(_, a)| a.parent == parent && a.addr == addr).map(|(&h, _)| h);
    let handle = if let Some(handle) = found {
        handle
    } else {
        let handle = s.fresh();
        let layout = layout(&descriptor)?;
        s.arrays.insert(handle, Array { descriptor, addr, layout, levels: 0, parent, ..whole });
        handle
    };
    // SAFETY: checked above.
    unsafe { put(p_level_array, handle as CUarray) };
    Ok(())
}
