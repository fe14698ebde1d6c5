//! Devices: how they are found, what they are, their memory, and who holds it.

use crate::driver::{Driver, FOREIGN_PIDS, NO_PROCESSES, VgpuInfo, VgpuProcess, ZERO_BYTES};
use crate::mig::{COMPUTE_INSTANCE, GPU_INSTANCE};
use crate::session::{Outcome, answer};
use crate::system::{put, text};
use core::ffi::{CStr, c_char, c_int, c_uint};
use weir_cuda::nvml::{
    NVML_MEMORY_V2, NvmlDevice, NvmlMemory, NvmlMemoryV2, NvmlPciInfo, NvmlProcessInfo, NvmlProcessInfoV1, NvmlReturn,
};
use weir_settings::limit::prefixed_uuid;

/// Handles are this and the index: never NULL, and no index by itself.
const HANDLE: usize = 0x5647_5055_0000;

/// The instance of a divided device has a handle of its own.
pub(crate) const INSTANCE: usize = 0x1000;

pub(crate) fn handle(index: u32) -> NvmlDevice {
    (HANDLE + index as usize) as NvmlDevice
}

pub(crate) fn instance(index: u32) -> NvmlDevice {
    (HANDLE + INSTANCE + index as usize) as NvmlDevice
}

/// The index of a device, and whether its instance is meant; an error for what is no handle.
pub(crate) fn meant(driver: &Driver, device: NvmlDevice) -> Result<(u32, bool), NvmlReturn> {
    let known = |i: usize| u32::try_from(i).ok().filter(|index| *index < driver.device_count());
    let number = (device as usize).checked_sub(HANDLE).ok_or(NvmlReturn::INVALID_ARGUMENT)?;
    if let Some(index) = number.checked_sub(INSTANCE).and_then(known).filter(|i| driver.limits(*i).mig != 0) {
        return Ok((index, true));
    }
    known(number).map(|index| (index, false)).ok_or(NvmlReturn::INVALID_ARGUMENT)
}

/// The index of a device or of the one that an instance belongs to.
fn index_of(driver: &Driver, device: NvmlDevice) -> Result<u32, NvmlReturn> {
    meant(driver, device).map(|(index, _)| index)
}

/// Sums over all instances of a device are for the administrator.
fn refuse_sum(driver: &Driver, device: NvmlDevice) -> Outcome {
    let (index, instance) = meant(driver, device)?;
    if driver.limits(index).mig != 0 && !instance { Err(NvmlReturn::NO_PERMISSION) } else { Ok(()) }
}

fn info(driver: &Driver, device: NvmlDevice) -> Result<VgpuInfo, NvmlReturn> {
    let index = index_of(driver, device)?;
    driver.device(index).ok_or(NvmlReturn::UNKNOWN)
}

/// Hands out the first device of which this holds.
unsafe fn find(driver: &Driver, out: *mut NvmlDevice, wanted: impl Fn(&VgpuInfo) -> bool) -> Outcome {
    let mut devices = 0..driver.device_count();
    let found = devices.find(|index| driver.device(*index).is_some_and(|info| wanted(&info)));
    let found = found.ok_or(NvmlReturn::NOT_FOUND)?;
    // SAFETY: the caller vouches for `out`.
    unsafe { put(out, handle(found)) }
}

/// A C string from libcuda's struct.
fn string(chars: &[c_char]) -> String {
    let bytes = chars.iter().take_while(|c| **c != 0).map(|c| *c as u8);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

/// Domain, bus, device and function of `domain:bus:device.function`, `domain:bus:device` or
/// `bus:device.function`, all in hexadecimal digits.
fn pci_place(text: &str) -> Option<[u32; 4]> {
    let (place, function) = match text.split_once('.') {
        Some((place, function)) => (place, Some(function)),
        None => (text, None),
    };
    let parts: Vec<_> = place.split(':').collect();
    let (domain, bus, device) = match (parts.as_slice(), function) {
        ([domain, bus, device], _) => (*domain, *bus, *device),
        ([bus, device], Some(_)) => ("0", *bus, *device),
        _ => return None,
    };
    let hex = |digits: &str| {
        let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| plain)
    };
    Some([hex(domain)?, hex(bus)?, hex(device)?, hex(function.unwrap_or("0"))?])
}

/// A C string from the caller.
unsafe fn given<'a>(text: *const c_char) -> Result<&'a str, NvmlReturn> {
    if text.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    // SAFETY: not NULL, and the caller passes a C string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| NvmlReturn::INVALID_ARGUMENT)
}

/// How many devices there are.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> NvmlReturn {
    // SAFETY: the caller passes a number to write to, or NULL.
    answer(|driver| unsafe { put(count, driver.device_count()) })
}

/// How many devices there are.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetCount(count: *mut c_uint) -> NvmlReturn {
    // SAFETY: the same contract.
    unsafe { nvmlDeviceGetCount_v2(count) }
}

/// The device with this index.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut NvmlDevice) -> NvmlReturn {
    answer(|driver| {
        if index >= driver.device_count() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: the caller passes a handle to write to, or NULL.
        unsafe { put(device, handle(index)) }
    })
}

/// The device with this index.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut NvmlDevice) -> NvmlReturn {
    // SAFETY: the same contract.
    unsafe { nvmlDeviceGetHandleByIndex_v2(index, device) }
}

/// The device with this uuid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut NvmlDevice) -> NvmlReturn {
    answer(|driver| {
        // SAFETY: the caller passes a C string or NULL.
        let uuid = unsafe { given(uuid) }?;
        let handles = (0..driver.device_count()).flat_map(|index| [handle(index), instance(index)]);
        let mut named = handles.filter(|h| name_of(driver, *h).is_ok_and(|name| uuid.eq_ignore_ascii_case(&name)));
        let found = named.next().ok_or(NvmlReturn::NOT_FOUND)?;
        // SAFETY: the caller passes a handle to write to, or NULL.
        unsafe { put(device, found) }
    })
}

/// The uuid of a device or of its instance, as tools write it.
fn name_of(driver: &Driver, device: NvmlDevice) -> Result<String, NvmlReturn> {
    let (index, instance) = meant(driver, device)?;
    let info = driver.device(index).ok_or(NvmlReturn::UNKNOWN)?;
    let limits = driver.limits(index);
    Ok(match (instance, limits.mig != 0) {
        (true, _) => prefixed_uuid("MIG-", info.uuid),
        (false, true) => prefixed_uuid("GPU-", limits.parent),
        (false, false) => prefixed_uuid("GPU-", info.uuid),
    })
}

/// The device at this place.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    bus_id: *const c_char,
    device: *mut NvmlDevice,
) -> NvmlReturn {
    answer(|driver| {
        // SAFETY: the caller passes a C string or NULL.
        let place = pci_place(unsafe { given(bus_id) }?).ok_or(NvmlReturn::INVALID_ARGUMENT)?;
        let there = |info: &VgpuInfo| pci_place(&string(&info.pci)) == Some(place);
        // SAFETY: the caller passes a handle to write to, or NULL.
        unsafe { find(driver, device, there) }
    })
}

/// The device at this place.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId(
    bus_id: *const c_char,
    device: *mut NvmlDevice,
) -> NvmlReturn {
    // SAFETY: the same contract.
    unsafe { nvmlDeviceGetHandleByPciBusId_v2(bus_id, device) }
}

/// No virtual device has a serial number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetHandleBySerial(
    serial: *const c_char,
    device: *mut NvmlDevice,
) -> NvmlReturn {
    answer(|_| {
        let complete = !serial.is_null() && !device.is_null();
        Err(if complete { NvmlReturn::NOT_FOUND } else { NvmlReturn::INVALID_ARGUMENT })
    })
}

/// The uuid of a device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetUUID(device: NvmlDevice, uuid: *mut c_char, length: c_uint) -> NvmlReturn {
    answer(|driver| {
        // SAFETY: the caller's buffer has `length` bytes.
        unsafe { text(uuid, length, &name_of(driver, device)?) }
    })
}

/// The name of a device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetName(device: NvmlDevice, name: *mut c_char, length: c_uint) -> NvmlReturn {
    answer(|driver| {
        let info = info(driver, device)?;
        // SAFETY: the caller's buffer has `length` bytes.
        unsafe { text(name, length, &string(&info.name)) }
    })
}

/// The index of a device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetIndex(device: NvmlDevice, index: *mut c_uint) -> NvmlReturn {
    // SAFETY: the caller passes a number to write to, or NULL.
    answer(|driver| unsafe { put(index, index_of(driver, device)?) })
}

/// The minor number of a device, which is its index here: there is no device file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMinorNumber(device: NvmlDevice, minor: *mut c_uint) -> NvmlReturn {
    // SAFETY: the same contract.
    unsafe { nvmlDeviceGetIndex(device, minor) }
}

/// Where a device sits.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: NvmlDevice, pci: *mut NvmlPciInfo) -> NvmlReturn {
    answer(|driver| {
        let info = info(driver, device)?;
        let place = pci_place(&string(&info.pci)).ok_or(NvmlReturn::UNKNOWN)?;
        let [domain, bus, slot, function] = place;
        let mut found = NvmlPciInfo {
            bus_id_legacy: [0; 16],
            domain,
            bus,
            device: slot,
            // A vendor id that no vendor has.
            pci_device_id: 0x0001_fff0,
            pci_subsystem_id: 0,
            bus_id: [0; 32],
        };
        let write = |to: &mut [c_char], from: &str| {
            for (to, from) in to.iter_mut().zip(from.bytes()) {
                *to = from as c_char;
            }
        };
        write(&mut found.bus_id_legacy, &format!("{domain:04X}:{bus:02X}:{slot:02X}.{function}"));
        write(&mut found.bus_id, &format!("{domain:08X}:{bus:02X}:{slot:02X}.{function}"));
        // SAFETY: the caller passes a struct to write to, or NULL.
        unsafe { put(pci, found) }
    })
}

/// Where a device sits, in the struct of the second version: callers from that time have no room for
/// the longer bus id, so only what all versions share is written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetPciInfo_v2(device: NvmlDevice, pci: *mut NvmlPciInfo) -> NvmlReturn {
    if pci.is_null() {
        return answer(|_| Err(NvmlReturn::INVALID_ARGUMENT));
    }
    let mut whole = core::mem::MaybeUninit::<NvmlPciInfo>::uninit();
    // SAFETY: a struct of our own.
    let result = unsafe { nvmlDeviceGetPciInfo_v3(device, whole.as_mut_ptr()) };
    if result == NvmlReturn::SUCCESS {
        let shared = core::mem::offset_of!(NvmlPciInfo, bus_id);
        let out = pci.cast::<u8>();
        // SAFETY: the whole struct was written, and every version of it begins with these bytes.
        unsafe { out.copy_from_nonoverlapping(whole.as_ptr().cast(), shared) };
    }
    result
}

/// Where a device sits, in the struct of the first version.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetPciInfo(device: NvmlDevice, pci: *mut NvmlPciInfo) -> NvmlReturn {
    // SAFETY: the same contract: both versions begin alike.
    unsafe { nvmlDeviceGetPciInfo_v2(device, pci) }
}

/// The compute capability of a device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: NvmlDevice,
    major: *mut c_int,
    minor: *mut c_int,
) -> NvmlReturn {
    answer(|driver| {
        let info = info(driver, device)?;
        if minor.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: the caller passes numbers to write to, or NULL.
        unsafe { put(major, info.compute_major).and_then(|()| put(minor, info.compute_minor)) }
    })
}

/// Public figures of the board that the attributes are modelled on: PCI Express 4.0 with 16 lanes.
const PCIE_GENERATION: c_uint = 4;
const PCIE_WIDTH: c_uint = 16;
const PCIE_MEGABYTES_PER_SECOND: c_uint = 16_000;

macro_rules! pcie {
    ($($(#[$doc:meta])* $name:ident = $value:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(device: NvmlDevice, out: *mut c_uint) -> NvmlReturn {
            answer(|driver| {
                info(driver, device)?;
                // SAFETY: the caller passes a number to write to, or NULL.
                unsafe { put(out, $value) }
            })
        }
    )*};
}

pcie! {
    /// The generation of the link, as device and slot allow.
    nvmlDeviceGetMaxPcieLinkGeneration = PCIE_GENERATION;
    /// The generation of the link, as the device allows.
    nvmlDeviceGetGpuMaxPcieLinkGeneration = PCIE_GENERATION;
    /// The generation of the link now.
    nvmlDeviceGetCurrPcieLinkGeneration = PCIE_GENERATION;
    /// The widest link.
    nvmlDeviceGetMaxPcieLinkWidth = PCIE_WIDTH;
    /// The link now.
    nvmlDeviceGetCurrPcieLinkWidth = PCIE_WIDTH;
    /// The fastest link, in megabytes a second and lane.
    nvmlDeviceGetPcieLinkMaxSpeed = PCIE_MEGABYTES_PER_SECOND;
    /// The link's speed now.
    nvmlDeviceGetPcieSpeed = PCIE_MEGABYTES_PER_SECOND;
}

/// The memory of a device; what the driver keeps for itself counts as used.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: NvmlDevice, memory: *mut NvmlMemory) -> NvmlReturn {
    answer(|driver| {
        refuse_sum(driver, device)?;
        let info = info(driver, device)?;
        let used = info.used.saturating_add(info.reserved).min(info.total);
        let found = NvmlMemory { total: info.total, free: info.total - used, used };
        // SAFETY: the caller passes a struct to write to, or NULL.
        unsafe { put(memory, found) }
    })
}

/// The memory of a device; what the driver keeps for itself is counted separately.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: NvmlDevice,
    memory: *mut NvmlMemoryV2,
) -> NvmlReturn {
    answer(|driver| {
        refuse_sum(driver, device)?;
        let info = info(driver, device)?;
        if memory.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: not NULL, and the caller has set the version.
        if unsafe { (*memory).version } != NVML_MEMORY_V2 {
            return Err(NvmlReturn::ARGUMENT_VERSION_MISMATCH);
        }
        let taken = info.used.saturating_add(info.reserved).min(info.total);
        let found = NvmlMemoryV2 {
            version: NVML_MEMORY_V2,
            total: info.total,
            reserved: info.reserved,
            free: info.total - taken,
            used: info.used,
        };
        // SAFETY: as above.
        unsafe { put(memory, found) }
    })
}

/// Whether two devices reach each other's memory: reading, writing and atomics (0, 1, 3) do, NVLink
/// and properties do not exist here.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetP2PStatus(
    one: NvmlDevice,
    other: NvmlDevice,
    capability: c_uint,
    status: *mut c_uint,
) -> NvmlReturn {
    const OK: c_uint = 0;
    const NOT_SUPPORTED: c_uint = 5;
    answer(|driver| {
        let index = index_of(driver, one)?;
        index_of(driver, other)?;
        let found = match capability {
            0 | 1 | 3 if driver.limits(index).p2p != 0 => OK,
            0..=4 => NOT_SUPPORTED,
            _ => return Err(NvmlReturn::INVALID_ARGUMENT),
        };
        // SAFETY: the caller passes a number to write to, or NULL.
        unsafe { put(status, found) }
    })
}

/// Hands out a list: the count says how much room there is, and afterwards how much there is to report.
unsafe fn list<T>(count: *mut c_uint, out: *mut T, found: Vec<T>) -> Outcome {
    if count.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    // SAFETY: not NULL, and the caller passes a number.
    let room = unsafe { count.replace(found.len() as c_uint) };
    if (room as usize) < found.len() {
        return Err(NvmlReturn::INSUFFICIENT_SIZE);
    }
    if out.is_null() && !found.is_empty() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    for (at, row) in found.into_iter().enumerate() {
        // SAFETY: there is room for as many rows as the caller said, which is not less than these.
        unsafe { out.add(at).write(row) };
    }
    Ok(())
}

/// How far apart the process ids of the namespaces lie where NVML reports those of another.
const FOREIGN: u32 = 1 << 20;

/// The processes that hold memory of a device, as far as NVML is there to report them.
fn listed(driver: &Driver, device: NvmlDevice) -> Result<Vec<VgpuProcess>, NvmlReturn> {
    refuse_sum(driver, device)?;
    let index = index_of(driver, device)?;
    let mut processes = driver.device_processes(index);
    match driver.limits(index).mode {
        NO_PROCESSES => return Err(NvmlReturn::NOT_SUPPORTED),
        FOREIGN_PIDS => processes.iter_mut().for_each(|p| p.pid += FOREIGN),
        ZERO_BYTES => processes.iter_mut().for_each(|p| p.bytes = 0),
        _ => {}
    }
    Ok(processes)
}

/// The processes that hold memory of a device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: NvmlDevice,
    count: *mut c_uint,
    out: *mut NvmlProcessInfo,
) -> NvmlReturn {
    answer(|driver| {
        let (_, in_instance) = meant(driver, device)?;
        let (gpu, compute) = if in_instance { (GPU_INSTANCE, COMPUTE_INSTANCE) } else { (u32::MAX, u32::MAX) };
        let rows = listed(driver, device)?.into_iter().map(|process| NvmlProcessInfo {
            pid: process.pid,
            used_gpu_memory: process.bytes,
            gpu_instance_id: gpu,
            compute_instance_id: compute,
        });
        // SAFETY: the caller's list has room for as many rows as it says.
        unsafe { list(count, out, rows.collect()) }
    })
}

/// The processes that hold memory of a device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: NvmlDevice,
    count: *mut c_uint,
    out: *mut NvmlProcessInfo,
) -> NvmlReturn {
    // SAFETY: the same contract and the same struct.
    unsafe { nvmlDeviceGetComputeRunningProcesses_v3(device, count, out) }
}

/// The processes that hold memory of a device, in the shorter struct of the first version.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses(
    device: NvmlDevice,
    count: *mut c_uint,
    out: *mut NvmlProcessInfoV1,
) -> NvmlReturn {
    answer(|driver| {
        let rows = listed(driver, device)?
            .into_iter()
            .map(|process| NvmlProcessInfoV1 { pid: process.pid, used_gpu_memory: process.bytes });
        // SAFETY: the caller's list has room for as many rows as it says.
        unsafe { list(count, out, rows.collect()) }
    })
}

/// Lists that are always empty: there are neither graphics nor MPS processes, in any version.
macro_rules! nobody {
    ($($name:ident)*) => {$(
        /// Nobody.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            device: NvmlDevice,
            count: *mut c_uint,
            out: *mut NvmlProcessInfo,
        ) -> NvmlReturn {
            answer(|driver| {
                index_of(driver, device)?;
                // SAFETY: no row is written.
                unsafe { list(count, out, Vec::new()) }
            })
        }
    )*};
}
nobody! {
    nvmlDeviceGetGraphicsRunningProcesses
    nvmlDeviceGetGraphicsRunningProcesses_v2
    nvmlDeviceGetGraphicsRunningProcesses_v3
    nvmlDeviceGetMPSComputeRunningProcesses
    nvmlDeviceGetMPSComputeRunningProcesses_v2
    nvmlDeviceGetMPSComputeRunningProcesses_v3
}

#[cfg(test)]
mod tests;
