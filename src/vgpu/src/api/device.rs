//! What devices there are and what they can do.

use super::{given, need, put};
use crate::attributes;
use crate::config;
use crate::error::*;
use crate::state::driver;
use std::ffi::CStr;
use weir_cuda::*;

/// Copies a text into the caller's buffer, cut to its length.
unsafe fn copy_text(text: &str, buffer: *mut c_char, len: c_int) -> R {
    need(buffer)?;
    let room = usize::try_from(len).ok().filter(|&n| n > 0).ok_or(INVALID_VALUE)? - 1;
    let bytes = &text.as_bytes()[..text.len().min(room)];
    // SAFETY: the caller's buffer holds `len` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), buffer, bytes.len());
        buffer.add(bytes.len()).write(0);
    }
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetCount(count: *mut c_int) -> R {
    let s = driver()?;
    need(count)?;
    // SAFETY: checked above.
    unsafe { put(count, s.devices.len() as c_int) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> R {
    let s = driver()?;
    need(device)?;
    s.device(ordinal)?;
    // SAFETY: checked above.
    unsafe { put(device, ordinal) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice) -> R {
    driver()?.device(dev)?;
    // SAFETY: passed on as promised.
    unsafe { copy_text(attributes::device_name(config::get()), name, len) }
}

pub(crate) unsafe fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) -> R {
    let s = driver()?;
    need(uuid)?;
    let bytes = attributes::parent_uuid(s.devices[s.device(dev)?].physical);
    // SAFETY: checked above.
    unsafe { put(uuid, CUuuid { bytes: bytes.map(|b| b as c_char) }) };
    Ok(())
}

/// Unlike the first version it distinguishes an instance of a divided device from its siblings.
pub(crate) unsafe fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) -> R {
    let s = driver()?;
    need(uuid)?;
    let physical = s.devices[s.device(dev)?].physical;
    let bytes =
        if config::fault("mig_uuid") { attributes::parent_uuid(physical) } else { attributes::device_uuid(physical) };
    // SAFETY: checked above.
    unsafe { put(uuid, CUuuid { bytes: bytes.map(|b| b as c_char) }) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) -> R {
    let s = driver()?;
    need(bytes)?;
    // SAFETY: checked above.
    unsafe { put(bytes, s.devices[s.device(dev)?].total as usize) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetAttribute(pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice) -> R {
    let s = driver()?;
    need(pi)?;
    let physical = s.devices[s.device(dev)?].physical;
    let value = attributes::device_attribute(config::get(), physical, attrib).ok_or(INVALID_VALUE)?;
    // SAFETY: checked above.
    unsafe { put(pi, value) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice) -> R {
    driver()?.device(dev)?;
    need(major)?;
    need(minor)?;
    let (a, b) = config::get().compute;
    // SAFETY: checked above.
    unsafe {
        put(major, a);
        put(minor, b);
    }
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetProperties(prop: *mut CUdevprop, dev: CUdevice) -> R {
    let s = driver()?;
    need(prop)?;
    let physical = s.devices[s.device(dev)?].physical;
    let get = |a| attributes::device_attribute(config::get(), physical, a).unwrap_or(0);
    use CUdevice_attribute as A;
    let properties = CUdevprop {
        maxThreadsPerBlock: get(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        maxThreadsDim: [
            get(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
            get(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
            get(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
        ],
        maxGridSize: [
            get(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
            get(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
            get(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
        ],
        sharedMemPerBlock: get(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        totalConstantMemory: get(A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        SIMDWidth: get(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        memPitch: get(A::CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        regsPerBlock: get(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        clockRate: get(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        textureAlign: get(A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
    // SAFETY: checked above.
    unsafe { put(prop, properties) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, dev: CUdevice) -> R {
    let s = driver()?;
    let id = attributes::pci_bus_id(s.devices[s.device(dev)?].physical);
    // SAFETY: passed on as promised.
    unsafe { copy_text(&id, pci_bus_id, len) }
}

pub(crate) unsafe fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, pci_bus_id: *const c_char) -> R {
    let s = driver()?;
    need(dev)?;
    given(pci_bus_id)?;
    // SAFETY: checked above; a C string by the function's contract.
    let wanted = unsafe { CStr::from_ptr(pci_bus_id) }.to_string_lossy().to_lowercase();
    let matches = |id: String| {
        // The domain and the function may be left out.
        let id = id.to_lowercase();
        let short = id.split_once(':').map_or("", |(_, rest)| rest).to_string();
        let plain = |s: &str| s.trim_end_matches(".0").to_string();
        wanted == id || wanted == short || wanted == plain(&id) || wanted == plain(&short)
    };
    let found = s.devices.iter().position(|d| matches(attributes::pci_bus_id(d.physical))).ok_or(INVALID_DEVICE)?;
    // SAFETY: checked above.
    unsafe { put(dev, found as CUdevice) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetExecAffinitySupport(pi: *mut c_int, _type: CUexecAffinityType, dev: CUdevice) -> R {
    driver()?.device(dev)?;
    need(pi)?;
    // SAFETY: checked above.
    unsafe { put(pi, 0) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceCanAccessPeer(can_access_peer: *mut c_int, dev: CUdevice, peer_dev: CUdevice) -> R {
    let s = driver()?;
    need(can_access_peer)?;
    let (a, b) = (s.device(dev)?, s.device(peer_dev)?);
    // SAFETY: checked above.
    unsafe { put(can_access_peer, c_int::from(a != b && config::get().p2p)) };
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetP2PAttribute(
    value: *mut c_int,
    attrib: CUdevice_P2PAttribute,
    src_device: CUdevice,
    dst_device: CUdevice,
) -> R {
    let s = driver()?;
    need(value)?;
    let (a, b) = (s.device(src_device)?, s.device(dst_device)?);
    if a == b {
        return Err(INVALID_DEVICE);
    }
    let answer = attributes::p2p_attribute(config::get(), attrib).ok_or(INVALID_VALUE)?;
    // SAFETY: checked above.
    unsafe { put(value, answer) };
    Ok(())
}
