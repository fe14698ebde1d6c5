//! The part of the public NVML interface that tells of memory and of the processes that hold it.

use core::ffi::{c_char, c_uint, c_ulonglong};

/// Result of an NVML call.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmlReturn(pub c_uint);

#[allow(missing_docs)]
impl NvmlReturn {
    pub const SUCCESS: Self = Self(0);
    pub const UNINITIALIZED: Self = Self(1);
    pub const INVALID_ARGUMENT: Self = Self(2);
    pub const NOT_SUPPORTED: Self = Self(3);
    pub const NO_PERMISSION: Self = Self(4);
    pub const ALREADY_INITIALIZED: Self = Self(5);
    pub const NOT_FOUND: Self = Self(6);
    pub const INSUFFICIENT_SIZE: Self = Self(7);
    pub const DRIVER_NOT_LOADED: Self = Self(9);
    pub const FUNCTION_NOT_FOUND: Self = Self(13);
    pub const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub const UNKNOWN: Self = Self(999);
}

/// `nvmlDevice_t`: an opaque handle.
pub type NvmlDevice = *mut core::ffi::c_void;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NvmlMemory {
    /// Bytes on the device.
    pub total: c_ulonglong,
    /// Bytes that nobody holds.
    pub free: c_ulonglong,
    /// Bytes held, by processes and by the driver.
    pub used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NvmlMemoryV2 {
    /// Size of the struct with the version 2 in the top byte; the caller sets it.
    pub version: c_uint,
    /// Bytes on the device.
    pub total: c_ulonglong,
    /// Bytes that the driver and firmware keep for themselves.
    pub reserved: c_ulonglong,
    /// Bytes that nobody holds.
    pub free: c_ulonglong,
    /// Bytes held by processes.
    pub used: c_ulonglong,
}

/// The value that `NvmlMemoryV2::version` must have.
pub const NVML_MEMORY_V2: c_uint = core::mem::size_of::<NvmlMemoryV2>() as c_uint | (2 << 24);

/// `nvmlProcessInfo_v1_t`, of the first generation of process queries.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NvmlProcessInfoV1 {
    /// Process id.
    pub pid: c_uint,
    /// Bytes it holds on the device.
    pub used_gpu_memory: c_ulonglong,
}

/// `nvmlProcessInfo_v2_t`, also the struct of the `_v3` queries.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NvmlProcessInfo {
    /// Process id.
    pub pid: c_uint,
    /// Bytes it holds on the device.
    pub used_gpu_memory: c_ulonglong,
    /// `u32::MAX` where the device is not partitioned.
    pub gpu_instance_id: c_uint,
    /// `u32::MAX` where the device is not partitioned.
    pub compute_instance_id: c_uint,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NvmlPciInfo {
    /// `domain:bus:device.function` with a domain of four digits.
    pub bus_id_legacy: [c_char; 16],
    /// PCI domain.
    pub domain: c_uint,
    /// PCI bus.
    pub bus: c_uint,
    /// PCI device.
    pub device: c_uint,
    /// Device and vendor id.
    pub pci_device_id: c_uint,
    /// Subsystem id.
    pub pci_subsystem_id: c_uint,
    /// `domain:bus:device.function` with a domain of eight digits.
    pub bus_id: [c_char; 32],
}
