//! NVML's memory queries: of a device with a cap they report what CUDA reports.

use crate::cap::view;
use crate::process::guard::Call;
use weir_cuda::nvml::*;

pub(crate) type Memory = unsafe extern "C-unwind" fn(NvmlDevice, *mut NvmlMemory) -> NvmlReturn;
pub(crate) type MemoryV2 = unsafe extern "C-unwind" fn(NvmlDevice, *mut NvmlMemoryV2) -> NvmlReturn;

/// `nvmlDeviceGetMemoryInfo`.
pub(crate) unsafe fn memory(
    call: &Call<Memory, NvmlReturn>,
    device: NvmlDevice,
    memory: *mut NvmlMemory,
) -> NvmlReturn {
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(device, memory) });
    if result == NvmlReturn::SUCCESS
        // SAFETY: the driver has just written there.
        && let Some(reported) = view::of_nvml(device, unsafe { (*memory).free })
    {
        let own = NvmlMemory { total: reported.total, free: reported.free, used: reported.total - reported.free };
        // SAFETY: as above.
        unsafe { *memory = own };
    }
    result
}

/// `nvmlDeviceGetMemoryInfo_v2`.
pub(crate) unsafe fn memory_v2(
    call: &Call<MemoryV2, NvmlReturn>,
    device: NvmlDevice,
    memory: *mut NvmlMemoryV2,
) -> NvmlReturn {
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(device, memory) });
    if result == NvmlReturn::SUCCESS
        // SAFETY: the driver has just written there.
        && let Some(reported) = view::of_nvml(device, unsafe { (*memory).free })
    {
        let used = reported.total - reported.free;
        // SAFETY: as above. What the driver keeps for itself lies outside the cap.
        unsafe {
            *memory = NvmlMemoryV2 {
                version: (*memory).version,
                total: reported.total,
                reserved: 0,
                free: reported.free,
                used,
            };
        }
    }
    result
}
