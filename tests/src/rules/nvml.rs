//! Rules of NVML where it reports the same devices and memory as the driver.

use crate::driver::{NVML_MODES, limits};
use crate::nvml::*;
use crate::prelude::*;
use std::ffi::c_uint;
use weir_cuda::nvml::*;

#[track_caller]
fn good(code: NvmlReturn) {
    assert_eq!(code, NvmlReturn::SUCCESS, "NVML must succeed");
}

/// Starts NVML; leaves the rule where there is none.
fn start() {
    if limits().nvml == 4 {
        skip(NVML_MODES[4]);
    }
    good(nvmlInit_v2());
}

/// The first device: of a divided one its instance.
fn device() -> NvmlDevice {
    start();
    if limits().mig == 0 {
        return handle(0);
    }
    let mut instance = null_mut();
    good(nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 0, &raw mut instance));
    instance
}

/// Leaves the rule where NVML does not report of processes what it should.
fn needs_processes() {
    match limits().nvml {
        0 => {}
        mode => skip(NVML_MODES[mode as usize]),
    }
}

fn handle(index: c_uint) -> NvmlDevice {
    let mut device = null_mut();
    good(nvmlDeviceGetHandleByIndex_v2(index, &raw mut device));
    device
}

fn memory(device: NvmlDevice) -> NvmlMemory {
    let mut memory = NvmlMemory::default();
    good(nvmlDeviceGetMemoryInfo(device, &raw mut memory));
    memory
}

fn memory_v2(device: NvmlDevice) -> NvmlMemoryV2 {
    let mut memory = NvmlMemoryV2 { version: NVML_MEMORY_V2, ..NvmlMemoryV2::default() };
    good(nvmlDeviceGetMemoryInfo_v2(device, &raw mut memory));
    memory
}

fn text(query: impl FnOnce(*mut c_char, c_uint) -> NvmlReturn) -> String {
    let mut buffer = [0 as c_char; 96];
    good(query(buffer.as_mut_ptr(), 96));
    // SAFETY: the library has terminated the text, or the scan ends at the last zero.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
}

pub(super) fn processes(device: NvmlDevice) -> Vec<NvmlProcessInfo> {
    let mut infos = vec![NvmlProcessInfo::default(); 64];
    let mut count = 64;
    good(nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, infos.as_mut_ptr()));
    infos.truncate(count as usize);
    infos
}

/// The other process: takes memory, says so, and ends on command.
fn take_memory(wire: &mut Wire) {
    context();
    let ptr = alloc(256 * MIB);
    wire.send_u64(ptr);
    wire.receive_u64();
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "nvml.comes_first",
        "nvmlDeviceGetCount",
        "Calls before initialisation are refused as not initialised.",
        || {
            let mut count = 0;
            assert_eq!(nvmlDeviceGetCount_v2(&raw mut count), NvmlReturn::UNINITIALIZED);
        },
    )
    .alone(),
    rule("nvml.counted", "nvmlShutdown", "Every initialisation needs a shutdown of its own.", || {
        let mut count = 0;
        start();
        good(nvmlInit_v2());
        good(nvmlShutdown());
        good(nvmlDeviceGetCount_v2(&raw mut count));
        good(nvmlShutdown());
        assert_eq!(nvmlDeviceGetCount_v2(&raw mut count), NvmlReturn::UNINITIALIZED);
        assert_eq!(nvmlShutdown(), NvmlReturn::UNINITIALIZED);
    })
    .alone(),
    rule("nvml.count", "nvmlDeviceGetCount", "NVML sees at least the devices of the driver.", || {
        init();
        start();
        let (mut seen, mut there) = (0, 0);
        good(nvmlDeviceGetCount_v2(&raw mut seen));
        ok(cuDeviceGetCount(&raw mut there));
        assert!(seen >= there as u32);
        assert_eq!(nvmlDeviceGetCount_v2(null_mut()), NvmlReturn::INVALID_ARGUMENT);
    }),
    rule(
        "nvml.count_ignores_visibility",
        "nvmlDeviceGetCount",
        "CUDA_VISIBLE_DEVICES hides nothing from NVML.",
        || {
            start();
            let mut count = 0;
            good(nvmlDeviceGetCount_v2(&raw mut count));
            assert!(count >= 1);
        },
    )
    .env(&[("CUDA_VISIBLE_DEVICES", "-1")]),
    rule(
        "nvml.index_out_of_range",
        "nvmlDeviceGetHandleByIndex",
        "An index beyond the last device is an invalid argument.",
        || {
            start();
            let mut device = null_mut();
            assert_eq!(nvmlDeviceGetHandleByIndex_v2(999, &raw mut device), NvmlReturn::INVALID_ARGUMENT);
        },
    ),
    rule("nvml.index_reported", "nvmlDeviceGetIndex", "A handle leads back to its index.", || {
        start();
        for index in 0..2 {
            let mut got = 77;
            good(nvmlDeviceGetIndex(handle(index), &raw mut got));
            assert_eq!(got, index);
        }
    })
    .devices(2),
    rule("nvml.uuid_agrees", "nvmlDeviceGetUUID", "NVML and the driver know a device by the same uuid.", || {
        init();
        let device = device();
        assert_eq!(text(|t, n| nvmlDeviceGetUUID(device, t, n)), super::device::uuid_text(0));
    }),
    rule(
        "nvml.handle_by_uuid",
        "nvmlDeviceGetHandleByUUID",
        "A uuid leads to its device; one of no device is not found.",
        || {
            let device = device();
            let uuid = CString::new(text(|t, n| nvmlDeviceGetUUID(device, t, n))).expect("a text");
            let mut got = null_mut();
            good(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut got));
            assert_eq!(got, device);
            let other = c"GPU-00000000-0000-0000-0000-000000000000";
            assert_eq!(nvmlDeviceGetHandleByUUID(other.as_ptr(), &raw mut got), NvmlReturn::NOT_FOUND);
        },
    ),
    rule(
        "nvml.handle_by_pci",
        "nvmlDeviceGetHandleByPciBusId",
        "The PCI bus id of NVML and that of the driver lead to the same device.",
        || {
            init();
            let device = device();
            let mut id = [0 as c_char; 32];
            ok(cuDeviceGetPCIBusId(id.as_mut_ptr(), 32, 0));
            let mut got = null_mut();
            good(nvmlDeviceGetHandleByPciBusId_v2(id.as_ptr(), &raw mut got));
            assert_eq!(got, handle(0));
            // SAFETY: all-zero is a valid value of the struct.
            let mut pci: NvmlPciInfo = unsafe { std::mem::zeroed() };
            good(nvmlDeviceGetPciInfo_v3(device, &raw mut pci));
            assert_eq!(pci.bus as i32, attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
        },
    ),
    rule("nvml.name_agrees", "nvmlDeviceGetName", "NVML and the driver know a device by the same name.", || {
        init();
        let device = device();
        let mut name = [0 as c_char; 96];
        ok(cuDeviceGetName(name.as_mut_ptr(), 96, 0));
        // SAFETY: the driver has terminated the text.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
        assert_eq!(text(|t, n| nvmlDeviceGetName(device, t, n)), name);
    }),
    rule("nvml.name_too_long", "nvmlDeviceGetName", "A place too small for the text is an insufficient size.", || {
        let device = device();
        let mut small = [0 as c_char; 2];
        assert_eq!(nvmlDeviceGetName(device, small.as_mut_ptr(), 2), NvmlReturn::INSUFFICIENT_SIZE);
    }),
    rule("nvml.memory_adds_up", "nvmlDeviceGetMemoryInfo", "Used and free memory together are the total.", || {
        let m = memory(device());
        assert_eq!(m.used + m.free, m.total);
        assert!(m.total > 0);
    }),
    rule(
        "nvml.memory_v2_adds_up",
        "nvmlDeviceGetMemoryInfo_v2",
        "In the second version reserved memory is separate.",
        || {
            let m = memory_v2(device());
            assert_eq!(m.used + m.free + m.reserved, m.total);
        },
    ),
    rule(
        "nvml.memory_v2_version",
        "nvmlDeviceGetMemoryInfo_v2",
        "A wrong version in the struct is a version mismatch.",
        || {
            let device = device();
            let mut memory = NvmlMemoryV2 { version: 7, ..NvmlMemoryV2::default() };
            assert_eq!(nvmlDeviceGetMemoryInfo_v2(device, &raw mut memory), NvmlReturn::ARGUMENT_VERSION_MISMATCH);
        },
    ),
    rule("nvml.memory_follows", "nvmlDeviceGetMemoryInfo", "What the driver allocates is used memory to NVML.", || {
        context();
        let device = device();
        let before = memory(device).used;
        let ptr = alloc(128 * MIB);
        assert!(memory(device).used - before >= 128 * MIB as u64);
        free(ptr);
    })
    .alone(),
    rule(
        "nvml.memory_agrees",
        "nvmlDeviceGetMemoryInfo",
        "NVML reports at least as much total memory as the driver.",
        || {
            context();
            assert!(memory(device()).total >= memory_info().1 as u64);
        },
    ),
    rule(
        "nvml.processes",
        "nvmlDeviceGetComputeRunningProcesses",
        "A process with a context is among the compute processes.",
        || {
            context();
            needs_processes();
            let ptr = alloc(64 * MIB);
            let me = std::process::id();
            let found = processes(device()).into_iter().find(|p| p.pid == me);
            assert!(found.is_some_and(|p| p.used_gpu_memory >= 64 * MIB as u64), "{found:?}");
            free(ptr);
        },
    )
    .alone(),
    rule(
        "nvml.processes_count",
        "nvmlDeviceGetComputeRunningProcesses",
        "Without enough room only the number of processes is reported.",
        || {
            context();
            let device = device();
            if limits().nvml == 3 {
                skip(NVML_MODES[3]);
            }
            let mut count = 0;
            assert_eq!(
                nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, null_mut()),
                NvmlReturn::INSUFFICIENT_SIZE
            );
            assert!(count >= 1);
        },
    )
    .alone(),
    rule(
        "nvml.processes_of_others",
        "nvmlDeviceGetComputeRunningProcesses",
        "Other processes and what they hold are seen, until they end.",
        || {
            context();
            needs_processes();
            let device = device();
            let before = memory(device).used;
            let mut peer = Peer::start("nvml.processes_of_others", &[]);
            let pid = peer.pid();
            peer.wire.receive_u64();
            let found = processes(device).into_iter().find(|p| p.pid == pid);
            assert!(found.is_some_and(|p| p.used_gpu_memory >= 256 * MIB as u64), "{found:?}");
            assert!(memory(device).used - before >= 256 * MIB as u64);
            peer.kill();
            assert!(processes(device).iter().all(|p| p.pid != pid));
            assert!(memory(device).used - before < 256 * MIB as u64);
        },
    )
    .env(&[("VGPU_SHARED", "@file")])
    .peer(take_memory),
    rule(
        "nvml.driver_version",
        "nvmlSystemGetCudaDriverVersion",
        "NVML reports the CUDA version of the driver, and a driver version.",
        || {
            start();
            let mut version = 0;
            good(nvmlSystemGetCudaDriverVersion_v2(&raw mut version));
            assert_eq!(version, driver_version());
            assert!(text(nvmlSystemGetDriverVersion).contains('.'));
        },
    ),
];
