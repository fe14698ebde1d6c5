//! Texture and surface objects: made, described and destroyed as documented. No kernel reads through them.

use super::{given, need, put};
use crate::attributes::device_attribute;
use crate::config;
use crate::error::*;
use crate::state::{State, driver};
use weir_cuda::*;

type A = CUdevice_attribute;

/// A texture object, or a surface object, which has nothing but a resource.
#[derive(Clone, Copy)]
pub(crate) struct Texture {
    pub(crate) ctx: u64,
    resource: CUDA_RESOURCE_DESC,
    sampling: Option<CUDA_TEXTURE_DESC>,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

/// What the device allows of textures.
fn limit(attribute: A) -> u64 {
    device_attribute(config::get(), 0, attribute).unwrap_or(0).max(0) as u64
}

/// Bytes of one channel.
fn channel_bytes(format: CUarray_format) -> R<u64> {
    match format.0 {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => Err(INVALID_VALUE),
    }
}

fn element(format: CUarray_format, channels: c_uint) -> R<u64> {
    if matches!(channels, 1 | 2 | 4) { Ok(channel_bytes(format)? * u64::from(channels)) } else { Err(INVALID_VALUE) }
}

impl State {
    /// Memory that a texture covers: live memory of the driver's, aligned.
    fn covers(&self, addr: u64, bytes: u64) -> R {
        let extent = self.extent(addr).ok_or(INVALID_VALUE)?;
        let inside = addr.checked_add(bytes).is_some_and(|end| end <= extent.addr + extent.size);
        let aligned = addr.is_multiple_of(limit(A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT));
        if inside && aligned && bytes > 0 { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// Refuses a resource that is not there or not as textures need it.
    fn check_resource(&self, resource: &CUDA_RESOURCE_DESC) -> R {
        if config::fault("texture_unchecked") {
            return Ok(());
        }
        if resource.flags != 0 {
            return Err(INVALID_VALUE);
        }
        let array = |handle: u64, mipmapped: bool| {
            let known = self.arrays.get(&handle).filter(|a| (a.levels > 0) == mipmapped);
            known.map(|_| ()).ok_or(INVALID_VALUE)
        };
        // SAFETY: the type determines which part of the union is set.
        unsafe {
            match resource.resType {
                CUresourcetype::CU_RESOURCE_TYPE_ARRAY => array(resource.res.array.hArray as u64, false),
                CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                    array(resource.res.mipmap.hMipmappedArray as u64, true)
                }
                CUresourcetype::CU_RESOURCE_TYPE_LINEAR => {
                    let linear = resource.res.linear;
                    let each = element(linear.format, linear.numChannels)?;
                    if linear.sizeInBytes as u64 / each > limit(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH) {
                        return Err(INVALID_VALUE);
                    }
                    self.covers(linear.devPtr, linear.sizeInBytes as u64)
                }
                CUresourcetype::CU_RESOURCE_TYPE_PITCH2D => {
                    let flat = resource.res.pitch2D;
                    let each = element(flat.format, flat.numChannels)?;
                    let (width, height, pitch) = (flat.width as u64, flat.height as u64, flat.pitchInBytes as u64);
                    let fits = width <= limit(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH)
                        && height <= limit(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT)
                        && pitch <= limit(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH)
                        && pitch.is_multiple_of(limit(A::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT).max(1))
                        && width.saturating_mul(each) <= pitch
                        && height > 0;
                    if !fits {
                        return Err(INVALID_VALUE);
                    }
                    self.covers(flat.devPtr, (height - 1).saturating_mul(pitch) + width * each)
                }
                _ => Err(INVALID_VALUE),
            }
        }
    }

    fn texture(&self, handle: u64, surface: bool) -> R<&Texture> {
        self.current()?;
        self.textures.get(&handle).filter(|t| t.sampling.is_none() == surface).ok_or(INVALID_VALUE)
    }

    fn destroy_texture(&mut self, handle: u64, surface: bool) -> R {
        self.texture(handle, surface)?;
        self.textures.remove(&handle);
        Ok(())
    }
}

pub(crate) unsafe fn cuTexObjectCreate(
    p_tex_object: *mut CUtexObject,
    p_res_desc: *const CUDA_RESOURCE_DESC,
    p_tex_desc: *const CUDA_TEXTURE_DESC,
    p_res_view_desc: *const CUDA_RESOURCE_VIEW_DESC,
) -> R {
    need(p_tex_object)?;
    given(p_res_desc)?;
    given(p_tex_desc)?;
    let mut s = driver()?;
    let ctx = s.current()?;
    // SAFETY: the first two are not NULL, the third may be; the caller's descriptions.
    let (resource, texture, view) = unsafe { (*p_res_desc, *p_tex_desc, p_res_view_desc.as_ref().copied()) };
    s.check_resource(&resource)?;
    let of_array = matches!(
        resource.resType,
        CUresourcetype::CU_RESOURCE_TYPE_ARRAY | CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
    );
    // Only an array can be seen as another one.
    if view.is_some() && !of_array {
        return Err(INVALID_VALUE);
    }
    let handle = s.fresh();
    s.textures.insert(handle, Texture { ctx, resource, sampling: Some(texture), view });
    // SAFETY: checked above.
    unsafe { put(p_tex_object, handle) };
    Ok(())
}

pub(crate) unsafe fn cuTexObjectDestroy(tex_object: CUtexObject) -> R {
    driver()?.destroy_texture(tex_object, false)
}

pub(crate) unsafe fn cuTexObjectGetResourceDesc(p_res_desc: *mut CUDA_RESOURCE_DESC, tex_object: CUtexObject) -> R {
    need(p_res_desc)?;
    let s = driver()?;
    // SAFETY: checked above.
    unsafe { put(p_res_desc, s.texture(tex_object, false)?.resource) };
    Ok(())
}

pub(crate) unsafe fn cuTexObjectGetTextureDesc(p_tex_desc: *mut CUDA_TEXTURE_DESC, tex_object: CUtexObject) -> R {
    need(p_tex_desc)?;
    let s = driver()?;
    let texture = s.texture(tex_object, false)?.sampling.ok_or(INVALID_VALUE)?;
    // SAFETY: checked above.
    unsafe { put(p_tex_desc, texture) };
    Ok(())
}

pub(crate) unsafe fn cuTexObjectGetResourceViewDesc(
    p_res_view_desc: *mut CUDA_RESOURCE_VIEW_DESC,
    tex_object: CUtexObject,
) -> R {
    need(p_res_view_desc)?;
    let s = driver()?;
    let view = s.texture(tex_object, false)?.view.ok_or(INVALID_VALUE)?;
    // SAFETY: checked above.
    unsafe { put(p_res_view_desc, view) };
    Ok(())
}

pub(crate) unsafe fn cuSurfObjectCreate(p_surf_object: *mut CUsurfObject, p_res_desc: *const CUDA_RESOURCE_DESC) -> R {
    need(p_surf_object)?;
    given(p_res_desc)?;
    let mut s = driver()?;
    let ctx = s.current()?;
    // SAFETY: not NULL, and the caller's description.
    let resource = unsafe { *p_res_desc };
    if resource.resType != CUresourcetype::CU_RESOURCE_TYPE_ARRAY {
        return Err(INVALID_VALUE);
    }
    s.check_resource(&resource)?;
    let handle = s.fresh();
    s.textures.insert(handle, Texture { ctx, resource, sampling: None, view: None });
    // SAFETY: checked above.
    unsafe { put(p_surf_object, handle) };
    Ok(())
}

pub(crate) unsafe fn cuSurfObjectDestroy(surf_object: CUsurfObject) -> R {
    driver()?.destroy_texture(surf_object, true)
}

pub(crate) unsafe fn cuSurfObjectGetResourceDesc(p_res_desc: *mut CUDA_RESOURCE_DESC, surf_object: CUsurfObject) -> R {
    need(p_res_desc)?;
    let s = driver()?;
    // SAFETY: checked above.
    unsafe { put(p_res_desc, s.texture(surf_object, true)?.resource) };
    Ok(())
}
