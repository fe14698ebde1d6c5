//! The loaded `libnvidia-ml.so.1`: the few functions that rules call, looked up by name.

use crate::rule::skip;
use std::ffi::{c_char, c_uint};
use std::sync::OnceLock;
use weir_cuda::nvml::*;

fn library() -> &'static libloading::Library {
    static LIBRARY: OnceLock<Option<libloading::Library>> = OnceLock::new();
    // SAFETY: loading runs the library's initialisers, as in every program that uses it.
    let loaded = LIBRARY.get_or_init(|| unsafe { libloading::Library::new("libnvidia-ml.so.1") }.ok());
    loaded.as_ref().unwrap_or_else(|| skip("there is no libnvidia-ml.so.1"))
}

macro_rules! nvml_functions {
    ($($name:ident($($arg:ident : $ty:ty),*);)*) => {
        $(
            #[allow(non_snake_case)]
            pub(crate) fn $name($($arg: $ty),*) -> NvmlReturn {
                let symbol = stringify!($name);
                // SAFETY: the type is that of the public header.
                let f = unsafe {
                    library().get::<unsafe extern "C" fn($($ty),*) -> NvmlReturn>(symbol.as_bytes())
                };
                let Ok(f) = f else { skip(format!("NVML has no {symbol}")) };
                // SAFETY: rules pass pointers to live places, or what must be refused.
                unsafe { f($($arg),*) }
            }
        )*
    };
}

nvml_functions! {
    nvmlInit_v2();
    nvmlShutdown();
    nvmlDeviceGetCount_v2(count: *mut c_uint);
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut NvmlDevice);
    nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut NvmlDevice);
    nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, device: *mut NvmlDevice);
    nvmlDeviceGetIndex(device: NvmlDevice, index: *mut c_uint);
    nvmlDeviceGetUUID(device: NvmlDevice, uuid: *mut c_char, length: c_uint);
    nvmlDeviceGetName(device: NvmlDevice, name: *mut c_char, length: c_uint);
    nvmlDeviceGetPciInfo_v3(device: NvmlDevice, pci: *mut NvmlPciInfo);
    nvmlDeviceGetMemoryInfo(device: NvmlDevice, memory: *mut NvmlMemory);
    nvmlDeviceGetMemoryInfo_v2(device: NvmlDevice, memory: *mut NvmlMemoryV2);
    nvmlDeviceGetComputeRunningProcesses_v3(device: NvmlDevice, count: *mut c_uint, infos: *mut NvmlProcessInfo);
    nvmlDeviceGetMigMode(device: NvmlDevice, current: *mut c_uint, pending: *mut c_uint);
    nvmlDeviceGetMigDeviceHandleByIndex(device: NvmlDevice, index: c_uint, instance: *mut NvmlDevice);
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance: NvmlDevice, device: *mut NvmlDevice);
    nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint);
    nvmlSystemGetCudaDriverVersion_v2(version: *mut i32);
}
