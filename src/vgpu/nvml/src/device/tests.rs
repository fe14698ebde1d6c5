//! The rules of NVML, on two devices that only these tests have.

use super::*;
use crate::session;
use crate::system::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: whether NVML is initialised is a matter of the whole process.
struct Session(#[allow(dead_code)] MutexGuard<'static, ()>);

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    fn begin() -> Self {
        let guard = alone();
        assert_eq!(nvmlInit_v2(), NvmlReturn::SUCCESS);
        Self(guard)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        nvmlShutdown();
    }
}

/// A function that writes a C string into a buffer of this size: its code and what it wrote.
fn written(size: usize, call: impl Fn(*mut c_char, c_uint) -> NvmlReturn) -> (NvmlReturn, String) {
    let mut buffer = vec![0x7f as c_char; size + 1];
    let code = call(buffer.as_mut_ptr(), size as c_uint);
    assert_eq!(buffer[size], 0x7f, "written past the end");
    (code, if code == NvmlReturn::SUCCESS { string(&buffer) } else { String::new() })
}

#[test]
fn nothing_answers_before_init_or_after_the_last_shutdown() {
    let _alone = alone();
    let mut count = 7;
    // SAFETY: a number of ours.
    let mut query = || unsafe { nvmlDeviceGetCount_v2(&raw mut count) };
    assert_eq!(query(), NvmlReturn::UNINITIALIZED);
    assert_eq!(session::not_supported(), NvmlReturn::UNINITIALIZED);
    assert_eq!(nvmlShutdown(), NvmlReturn::UNINITIALIZED);
    assert_eq!(nvmlInit_v2(), NvmlReturn::SUCCESS);
    assert_eq!(nvmlInit(), NvmlReturn::SUCCESS);
    assert_eq!(nvmlShutdown(), NvmlReturn::SUCCESS);
    assert_eq!(query(), NvmlReturn::SUCCESS);
    assert_eq!(session::not_supported(), NvmlReturn::NOT_SUPPORTED);
    assert_eq!(nvmlShutdown(), NvmlReturn::SUCCESS);
    assert_eq!(query(), NvmlReturn::UNINITIALIZED);
    assert_eq!(nvmlInitWithFlags(4), NvmlReturn::INVALID_ARGUMENT);
    assert_eq!(count, 2);
}

#[test]
fn devices_are_found_by_index_uuid_and_place() {
    let _session = Session::begin();
    let mut device: NvmlDevice = core::ptr::null_mut();
    let out = &raw mut device;
    // SAFETY: C strings and a handle of ours; NULL is allowed everywhere.
    unsafe {
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(2, out), NvmlReturn::INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(0, core::ptr::null_mut()), NvmlReturn::INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetHandleByIndex(1, out), NvmlReturn::SUCCESS);
        assert_eq!(*out, handle(1));
        let uuid = c"GPU-a0a0a0a0-A0A0-a0a0-a0a0-a0a0a0a0a0a0";
        assert_eq!(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), out), NvmlReturn::SUCCESS);
        assert_eq!(*out, handle(0));
        assert_eq!(nvmlDeviceGetHandleByUUID(c"GPU-a0a0".as_ptr(), out), NvmlReturn::NOT_FOUND);
        assert_eq!(nvmlDeviceGetHandleByUUID(core::ptr::null(), out), NvmlReturn::INVALID_ARGUMENT);
        for place in [c"0000:0a:00.0", c"00000000:0A:00.0", c"0:a:0", c"0a:00.0"] {
            *out = core::ptr::null_mut();
            assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(place.as_ptr(), out), NvmlReturn::SUCCESS);
            assert_eq!(*out, handle(1), "{place:?}");
        }
        for (place, code) in [
            (c"0000:0b:00.0", NvmlReturn::NOT_FOUND),
            (c"0001:0a:00.0", NvmlReturn::NOT_FOUND),
            (c"0a:00", NvmlReturn::INVALID_ARGUMENT),
            (c"", NvmlReturn::INVALID_ARGUMENT),
            (c"x:y:z.w", NvmlReturn::INVALID_ARGUMENT),
            (c"+0:0a:00.0", NvmlReturn::INVALID_ARGUMENT),
        ] {
            assert_eq!(nvmlDeviceGetHandleByPciBusId(place.as_ptr(), out), code, "{place:?}");
        }
        assert_eq!(nvmlDeviceGetHandleBySerial(c"1".as_ptr(), out), NvmlReturn::NOT_FOUND);
    }
}

#[test]
fn what_is_no_handle_is_refused() {
    let _session = Session::begin();
    for device in [core::ptr::null_mut(), 1 as NvmlDevice, handle(2), usize::MAX as NvmlDevice] {
        let mut memory = NvmlMemory::default();
        // SAFETY: a struct of ours.
        let code = unsafe { nvmlDeviceGetMemoryInfo(device, &raw mut memory) };
        assert_eq!(code, NvmlReturn::INVALID_ARGUMENT, "{device:?}");
    }
}

#[test]
fn a_device_reports_what_it_is() {
    let _session = Session::begin();
    let device = handle(1);
    let uuid = |size| {
        // SAFETY: `written` passes a buffer and its size.
        written(size, |out, length| unsafe { nvmlDeviceGetUUID(device, out, length) })
    };
    assert_eq!(uuid(41).1, "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1");
    assert_eq!(uuid(40).0, NvmlReturn::INSUFFICIENT_SIZE);
    let name = |size| {
        // SAFETY: `written` passes a buffer and its size.
        written(size, |out, length| unsafe { nvmlDeviceGetName(device, out, length) })
    };
    assert_eq!(name(64).1, "Virtual GPU");
    assert_eq!(name(11).0, NvmlReturn::INSUFFICIENT_SIZE);
    let (mut index, mut major, mut minor) = (9, 0, 0);
    // SAFETY: numbers and structs of ours; NULL is allowed.
    unsafe {
        assert_eq!(nvmlDeviceGetIndex(device, &raw mut index), NvmlReturn::SUCCESS);
        let code = nvmlDeviceGetCudaComputeCapability(device, &raw mut major, &raw mut minor);
        assert_eq!(code, NvmlReturn::SUCCESS);
        assert_eq!(nvmlDeviceGetUUID(device, core::ptr::null_mut(), 99), NvmlReturn::INVALID_ARGUMENT);
    }
    assert_eq!((index, major, minor), (1, 8, 6));
}

#[test]
fn the_bus_address_of_a_device_is_reported_in_both_lengths() {
    let _session = Session::begin();
    let mut pci = NvmlPciInfo {
        bus_id_legacy: [1; 16],
        domain: 1,
        bus: 1,
        device: 1,
        pci_device_id: 1,
        pci_subsystem_id: 1,
        bus_id: [1; 32],
    };
    // SAFETY: a struct of ours.
    let code = unsafe { nvmlDeviceGetPciInfo(handle(1), &raw mut pci) };
    assert_eq!(code, NvmlReturn::SUCCESS);
    assert_eq!(string(&pci.bus_id_legacy), "0000:0A:00.0");
    assert_eq!((pci.domain, pci.bus, pci.device), (0, 10, 0));
    assert_eq!(pci.bus_id, [1; 32], "the first version of the struct ends before this");
    // SAFETY: a struct of ours.
    let code = unsafe { nvmlDeviceGetPciInfo_v3(handle(1), &raw mut pci) };
    assert_eq!(code, NvmlReturn::SUCCESS);
    assert_eq!(string(&pci.bus_id), "00000000:0A:00.0");
}

#[test]
fn reserved_memory_is_used_in_the_first_version_and_separate_in_the_second() {
    let _session = Session::begin();
    let mut first = NvmlMemory::default();
    let mut second = NvmlMemoryV2 { version: NVML_MEMORY_V2, ..NvmlMemoryV2::default() };
    let mut wrong = NvmlMemoryV2 { version: 2, ..NvmlMemoryV2::default() };
    // SAFETY: structs of ours.
    unsafe {
        assert_eq!(nvmlDeviceGetMemoryInfo(handle(0), &raw mut first), NvmlReturn::SUCCESS);
        assert_eq!(nvmlDeviceGetMemoryInfo_v2(handle(0), &raw mut second), NvmlReturn::SUCCESS);
        let code = nvmlDeviceGetMemoryInfo_v2(handle(0), &raw mut wrong);
        assert_eq!(code, NvmlReturn::ARGUMENT_VERSION_MISMATCH);
    }
    let free = (8 << 30) - 1024;
    assert_eq!((first.total, first.used, first.free), (8 << 30, 1024, free));
    assert_eq!((second.total, second.used, second.reserved, second.free), (8 << 30, 1000, 24, free));
    assert_eq!(wrong.total, 0, "nothing is written to a struct of another version");
}

#[test]
fn processes_are_reported_by_the_rules_of_counts() {
    let _session = Session::begin();
    let mut count = 0;
    let mut rows = vec![NvmlProcessInfo::default(); 101];
    let mut old = vec![NvmlProcessInfoV1::default(); 100];
    // SAFETY: lists of ours with as much room as is said.
    unsafe {
        let none = core::ptr::null_mut();
        let query = nvmlDeviceGetComputeRunningProcesses_v3;
        assert_eq!(query(handle(0), &raw mut count, none), NvmlReturn::INSUFFICIENT_SIZE);
        assert_eq!(count, 100);
        count = 99;
        assert_eq!(query(handle(0), &raw mut count, rows.as_mut_ptr()), NvmlReturn::INSUFFICIENT_SIZE);
        assert_eq!((count, rows[0].pid), (100, 0), "a list that is too short is not begun");
        count = 101;
        assert_eq!(query(handle(0), &raw mut count, rows.as_mut_ptr()), NvmlReturn::SUCCESS);
        assert_eq!((count, rows[99].pid, rows[99].used_gpu_memory), (100, 1099, 10));
        assert_eq!((rows[0].gpu_instance_id, rows[100].pid), (u32::MAX, 0));
        assert_eq!(query(handle(0), &raw mut count, none), NvmlReturn::INVALID_ARGUMENT);
        assert_eq!(query(handle(0), core::ptr::null_mut(), none), NvmlReturn::INVALID_ARGUMENT);
        count = 0;
        assert_eq!(query(handle(1), &raw mut count, none), NvmlReturn::SUCCESS);
        count = 100;
        let query = nvmlDeviceGetComputeRunningProcesses;
        assert_eq!(query(handle(0), &raw mut count, old.as_mut_ptr()), NvmlReturn::SUCCESS);
        assert_eq!((old[99].pid, old[99].used_gpu_memory), (1099, 10));
        let query = nvmlDeviceGetGraphicsRunningProcesses_v3;
        assert_eq!(query(handle(0), &raw mut count, none), NvmlReturn::SUCCESS);
    }
    assert_eq!(count, 0);
}

#[test]
fn the_system_reports_its_versions_and_its_processes() {
    let _session = Session::begin();
    // SAFETY: `written` passes a buffer and its size.
    let (_, version) = written(80, |out, length| unsafe { nvmlSystemGetDriverVersion(out, length) });
    assert_eq!(version, "570.00.00");
    // SAFETY: as above.
    let (_, version) = written(80, |out, length| unsafe { nvmlSystemGetNVMLVersion(out, length) });
    assert_eq!(version, "12.570.00.00");
    let mut cuda = 0;
    // SAFETY: a number of ours; NULL is allowed.
    unsafe {
        assert_eq!(nvmlSystemGetCudaDriverVersion_v2(&raw mut cuda), NvmlReturn::SUCCESS);
        assert_eq!(nvmlSystemGetCudaDriverVersion(core::ptr::null_mut()), NvmlReturn::INVALID_ARGUMENT);
    }
    assert_eq!(cuda, 12080);
    let own = std::process::id();
    let name = |pid, size| {
        // SAFETY: `written` passes a buffer and its size.
        written(size, |out, length| unsafe { nvmlSystemGetProcessName(pid, out, length) })
    };
    let whole = name(own, 4096).1;
    assert!(whole.contains("nvidia_ml"), "{whole}");
    assert_eq!(name(own, 5), (NvmlReturn::SUCCESS, whole[..4].to_owned()));
    assert_eq!(name(u32::MAX, 64).0, NvmlReturn::NOT_FOUND);
    assert_eq!(name(own, 0).0, NvmlReturn::INVALID_ARGUMENT);
    for code in (0..40).chain([999, u32::MAX]) {
        assert!(!nvmlErrorString(NvmlReturn(code)).is_null());
    }
}
