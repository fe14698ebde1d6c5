//! Devices that are divided into instances: the device that NVML lists is the parent, and an instance has a handle, a uuid
//! and memory of its own. Here each parent has one instance.

use crate::device::{handle, instance, meant};
use crate::session::answer;
use crate::system::put;
use core::ffi::c_uint;
use weir_cuda::nvml::{NvmlDevice, NvmlReturn};

/// The ids of the one instance.
pub(crate) const GPU_INSTANCE: u32 = 7;
pub(crate) const COMPUTE_INSTANCE: u32 = 0;
/// Instances that a parent can have.
const MOST_INSTANCES: c_uint = 7;
/// NVML_DEVICE_MIG_ENABLE.
const ENABLED: c_uint = 1;

/// The index of a device that is divided.
fn parent(driver: &crate::driver::Driver, device: NvmlDevice) -> Result<u32, NvmlReturn> {
    let (index, instance) = meant(driver, device)?;
    if instance {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    if driver.limits(index).mig == 0 { Err(NvmlReturn::NOT_SUPPORTED) } else { Ok(index) }
}

/// Whether a device is divided, now and after the next reset.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: NvmlDevice,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> NvmlReturn {
    answer(|driver| {
        parent(driver, device)?;
        if pending.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: the caller passes numbers to write to, or NULL.
        unsafe { put(current, ENABLED).and_then(|()| put(pending, ENABLED)) }
    })
}

/// How many instances a device can have.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: NvmlDevice, count: *mut c_uint) -> NvmlReturn {
    answer(|driver| {
        parent(driver, device)?;
        // SAFETY: the caller passes a number to write to, or NULL.
        unsafe { put(count, MOST_INSTANCES) }
    })
}

/// An instance of a device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: NvmlDevice,
    index: c_uint,
    out: *mut NvmlDevice,
) -> NvmlReturn {
    answer(|driver| {
        let of = parent(driver, device)?;
        match index {
            // SAFETY: the caller passes a handle to write to, or NULL.
            0 => unsafe { put(out, instance(of)) },
            1..MOST_INSTANCES => Err(NvmlReturn::NOT_FOUND),
            _ => Err(NvmlReturn::INVALID_ARGUMENT),
        }
    })
}

/// The device that an instance belongs to.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    device: NvmlDevice,
    out: *mut NvmlDevice,
) -> NvmlReturn {
    answer(|driver| match meant(driver, device)? {
        // SAFETY: the caller passes a handle to write to, or NULL.
        (index, true) => unsafe { put(out, handle(index)) },
        _ => Err(NvmlReturn::INVALID_ARGUMENT),
    })
}

/// Whether a handle is that of an instance.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceIsMigDeviceHandle(device: NvmlDevice, out: *mut c_uint) -> NvmlReturn {
    // SAFETY: the caller passes a number to write to, or NULL.
    answer(|driver| unsafe { put(out, c_uint::from(meant(driver, device)?.1)) })
}

macro_rules! instance_ids {
    ($($(#[$doc:meta])* $name:ident = $value:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(device: NvmlDevice, out: *mut c_uint) -> NvmlReturn {
            answer(|driver| match meant(driver, device)? {
                // SAFETY: the caller passes a number to write to, or NULL.
                (_, true) => unsafe { put(out, $value) },
                _ => Err(NvmlReturn::INVALID_ARGUMENT),
            })
        }
    )*};
}

instance_ids! {
    /// The id of an instance of the device.
    nvmlDeviceGetGpuInstanceId = GPU_INSTANCE;
    /// The id of an instance within it.
    nvmlDeviceGetComputeInstanceId = COMPUTE_INSTANCE;
}
