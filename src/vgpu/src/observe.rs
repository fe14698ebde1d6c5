//! What tests and the virtual NVML query: C functions that no CUDA driver has.

use crate::attributes;
use crate::config;
use crate::device;
use crate::store;
use std::ffi::{c_char, c_int};

/// Physical bytes of a device that this process holds.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn vgpu_physical_bytes(device: c_int) -> u64 {
    usize::try_from(device).map_or(0, device::physical_bytes)
}

/// The most physical bytes of a device that this process ever held, between two looks too.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn vgpu_physical_peak(device: c_int) -> u64 {
    usize::try_from(device).map_or(0, device::physical_peak)
}

/// Bytes of the host's memory in this process that stand for device memory, of all devices.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn vgpu_host_bytes() -> u64 {
    store::host_bytes()
}

/// How many devices there are, whatever CUDA_VISIBLE_DEVICES says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn vgpu_device_count() -> c_int {
    config::get().devices as c_int
}

/// What NVML reports of a device.
#[repr(C)]
pub struct VgpuInfo {
    total: u64,
    used: u64,
    reserved: u64,
    uuid: [u8; 16],
    name: [c_char; 96],
    pci: [c_char; 32],
    compute_major: i32,
    compute_minor: i32,
    driver_version: i32,
}

fn text<const N: usize>(text: &str) -> [c_char; N] {
    let bytes = text.as_bytes();
    std::array::from_fn(|i| if i + 1 < N { bytes.get(i).map_or(0, |&b| b as c_char) } else { 0 })
}

/// Fills `info` for a device by its physical number; 0 if there is one.
///
/// # Safety
/// `info` is NULL or the caller's place.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vgpu_device_info(physical: c_int, info: *mut VgpuInfo) -> c_int {
    let config = config::get();
    let Ok(ordinal) = u32::try_from(physical) else { return 1 };
    if ordinal >= config.devices || info.is_null() {
        return 1;
    }
    let used = match device::shared() {
        Some(file) => file.used(ordinal as usize),
        None => device::physical_bytes(ordinal as usize),
    };
    let (compute_major, compute_minor) = config.compute;
    let answer = VgpuInfo {
        total: config.memory_of(ordinal),
        used,
        reserved: 0,
        uuid: attributes::device_uuid(ordinal),
        name: text(attributes::device_name(config)),
        pci: text(&attributes::pci_bus_id(ordinal)),
        compute_major,
        compute_minor,
        driver_version: config.driver_version,
    };
    // SAFETY: not NULL, and the caller's place.
    unsafe { info.write(answer) };
    0
}

/// Where a machine is not as it should be: what NVML may report, and what tests cannot query from the driver.
#[repr(C)]
pub struct VgpuLimits {
    /// How NVML reports processes: see `config::Nvml`.
    mode: i32,
    /// Whether devices reach each other's memory.
    p2p: i32,
    /// Whether the device is an instance of a larger one, with the id of that one.
    mig: i32,
    unused: i32,
    parent: [u8; 16],
    /// Reservations together stay below this; 0 without a limit.
    address_space: u64,
}

/// Fills `out` for a device by its physical number; 0 if there is one.
///
/// # Safety
/// `out` is NULL or the caller's place.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vgpu_limits(physical: c_int, out: *mut VgpuLimits) -> c_int {
    let config = config::get();
    let Some(ordinal) = u32::try_from(physical).ok().filter(|o| *o < config.devices && !out.is_null()) else {
        return 1;
    };
    let answer = VgpuLimits {
        mode: if config::fault("nvml_truth") { 0 } else { config.nvml as i32 },
        p2p: i32::from(config.p2p),
        mig: i32::from(config.mig),
        unused: 0,
        parent: attributes::parent_uuid(ordinal),
        address_space: config.address_space.unwrap_or(0),
    };
    // SAFETY: not NULL, and the caller's place.
    unsafe { out.write(answer) };
    0
}

/// A process that holds memory of a device.
#[repr(C)]
pub struct VgpuProcess {
    pid: u32,
    unused: u32,
    bytes: u64,
}

/// The processes that hold memory of a device: how many there are; at most `capacity` are written.
///
/// # Safety
/// `out` has room for `capacity` entries.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn vgpu_processes(physical: c_int, out: *mut VgpuProcess, capacity: c_int) -> c_int {
    let Ok(ordinal) = usize::try_from(physical) else { return 0 };
    let mut list = match device::shared() {
        Some(file) => file.processes(ordinal),
        None => match device::physical_bytes(ordinal) {
            0 => Vec::new(),
            bytes => vec![(std::process::id(), bytes)],
        },
    };
    // A context alone makes a process a user of the device.
    if device::in_use(ordinal) && !list.iter().any(|&(pid, _)| pid == std::process::id()) {
        list.push((std::process::id(), 0));
    }
    if !out.is_null() {
        for (at, &(pid, bytes)) in list.iter().take(usize::try_from(capacity).unwrap_or(0)).enumerate() {
            // SAFETY: inside the room that the caller gave.
            unsafe { out.add(at).write(VgpuProcess { pid, unused: 0, bytes }) };
        }
    }
    list.len() as c_int
}
