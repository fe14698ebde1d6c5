//! The machine's devices, by UUID, without making a context: what CUDA lets the job see, and what NVML knows of all.
//!
//! An index in WEIR_CAP is the physical one. Only NVML knows it, whatever CUDA_VISIBLE_DEVICES is; it is loaded
//! only for a job with a cap, and stays initialised.

use crate::driver::guards::{RelaxedCapture, current_device};
use crate::driver::library;
use crate::driver::real::{self, done};
use crate::process::linker;
use core::ffi::{CStr, c_char, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use weir_cuda::CUuuid;
use weir_cuda::nvml::*;
use weir_settings::limit::{CapSetting, DeviceFacts};

/// The devices that the job sees, in CUDA's order; their physical index is not known.
pub(crate) fn visible() -> Vec<DeviceFacts> {
    let mut count = 0;
    // SAFETY: the place is a live local.
    if unsafe { done(real::cuDeviceGetCount(&raw mut count)) }.is_err() {
        return Vec::new();
    }
    (0..count)
        .map(|ordinal| {
            let mut uuid = CUuuid { bytes: [0; 16] };
            let mut physical = 0;
            // SAFETY: both places are live locals. The second version distinguishes a partition from its device.
            unsafe {
                if done(real::cuDeviceGetUuid_v2(&raw mut uuid, ordinal)).is_err() {
                    real::cuDeviceGetUuid(&raw mut uuid, ordinal);
                }
                real::cuDeviceTotalMem_v2(&raw mut physical, ordinal);
            }
            DeviceFacts { uuid: uuid.bytes.map(|b| b as u8), index: None, physical: physical as u64, parent: None }
        })
        .collect()
}

/// All devices that can be known. NVML is queried only where an entry names a device.
pub(crate) fn facts(visible: &[DeviceFacts], cap: Option<&CapSetting>) -> Vec<DeviceFacts> {
    let mut facts = match cap {
        Some(cap) if cap.names_devices() => nvml().map_or_else(Vec::new, |nvml| nvml.devices.clone()),
        _ => Vec::new(),
    };
    let sees = |fact: &DeviceFacts| visible.iter().any(|device| device.uuid == fact.uuid);
    // A part of a GPU that the job sees stands for the GPU; one that it does not see is known by its own name alone.
    let divided: Vec<_> = facts.iter().filter(|fact| sees(fact)).filter_map(|fact| fact.parent).collect();
    facts.retain(|fact| !divided.contains(&fact.uuid));
    for hidden in facts.iter_mut().filter(|fact| fact.parent.is_some() && !sees(fact)) {
        (hidden.index, hidden.parent) = (None, None);
    }
    // NVML knows nothing of what the job sees, so none of the GPUs that it lists can be identified as another one.
    if visible.iter().any(|device| !facts.iter().any(|fact| fact.uuid == device.uuid)) {
        facts.retain(sees);
    }
    for device in visible {
        match facts.iter_mut().find(|fact| fact.uuid == device.uuid) {
            // What the driver can hand out is a little less than what is built in.
            Some(fact) => fact.physical = device.physical,
            None => facts.push(*device),
        }
    }
    facts
}

type Init = unsafe extern "C" fn() -> NvmlReturn;
type Count = unsafe extern "C" fn(*mut c_uint) -> NvmlReturn;
type ByIndex = unsafe extern "C" fn(c_uint, *mut NvmlDevice) -> NvmlReturn;
type Uuid = unsafe extern "C" fn(NvmlDevice, *mut c_char, c_uint) -> NvmlReturn;
type Count1 = unsafe extern "C" fn(NvmlDevice, *mut c_uint) -> NvmlReturn;
type PartByIndex = unsafe extern "C" fn(NvmlDevice, c_uint, *mut NvmlDevice) -> NvmlReturn;
type Memory = unsafe extern "C" fn(NvmlDevice, *mut NvmlMemory) -> NvmlReturn;
type Processes = unsafe extern "C" fn(NvmlDevice, *mut c_uint, *mut NvmlProcessInfo) -> NvmlReturn;

/// NVML, initialised.
struct Nvml {
    devices: Vec<DeviceFacts>,
    handles: Vec<usize>,
    processes: Option<Processes>,
    memory: Memory,
}

fn nvml() -> Option<&'static Nvml> {
    static KNOWN: OnceLock<Option<Nvml>> = OnceLock::new();
    KNOWN.get_or_init(find).as_ref()
}

/// The real NVML, from a private handle.
fn handle() -> Option<*mut c_void> {
    static HANDLE: OnceLock<usize> = OnceLock::new();
    let open = || library::open([c"libnvidia-ml.so.1", c"libnvidia-ml.so"], true).map_or(0, |handle| handle as usize);
    Some(*HANDLE.get_or_init(open)).filter(|handle| *handle != 0).map(|handle| handle as *mut c_void)
}

/// A function of the real NVML.
///
/// # Safety
/// `F` must be the type of that function.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    let address = linker::lookup(handle()?, name);
    // SAFETY: a function pointer is as large as an address, and F is its type by contract.
    (address != 0).then(|| unsafe { core::mem::transmute_copy::<usize, F>(&address) })
}

fn find() -> Option<Nvml> {
    if handle().is_none() {
        linker::clear_error();
        return None;
    }
    // SAFETY: these are the public signatures of these functions; every place is a live local.
    let found = unsafe {
        let ok = |result: NvmlReturn| (result == NvmlReturn::SUCCESS).then_some(());
        let (init, count) = (function::<Init>(c"nvmlInit_v2")?, function::<Count>(c"nvmlDeviceGetCount_v2")?);
        let by_index = function::<ByIndex>(c"nvmlDeviceGetHandleByIndex_v2")?;
        let memory = function::<Memory>(c"nvmlDeviceGetMemoryInfo")?;
        ok(init())?;
        let mut number = 0;
        ok(count(&raw mut number))?;
        let (mut devices, mut handles) = (Vec::new(), Vec::new());
        for index in 0..number {
            let (mut handle, mut memory_info) = (core::ptr::null_mut(), NvmlMemory::default());
            if ok(by_index(index, &raw mut handle)).is_none() {
                continue;
            }
            let Some(uuid) = uuid_of(handle) else { continue };
            let _ = memory(handle, &raw mut memory_info);
            devices.push(DeviceFacts { uuid, index: Some(index), physical: memory_info.total, parent: None });
            handles.push(handle as usize);
            for part in parts(handle) {
                let Some(own) = uuid_of(part) else { continue };
                let _ = memory(part, &raw mut memory_info);
                devices.push(DeviceFacts {
                    uuid: own,
                    index: Some(index),
                    physical: memory_info.total,
                    parent: Some(uuid),
                });
                handles.push(part as usize);
            }
        }
        let processes = function::<Processes>(c"nvmlDeviceGetComputeRunningProcesses_v3")
            .or_else(|| function::<Processes>(c"nvmlDeviceGetComputeRunningProcesses_v2"));
        Nvml { devices, handles, processes, memory }
    };
    linker::clear_error();
    Some(found)
}

/// The parts of a GPU that is divided (MIG); none of one that is not, or where NVML does not know of such.
fn parts(device: NvmlDevice) -> Vec<NvmlDevice> {
    // SAFETY: these are the public signatures of these functions; every place is a live local.
    unsafe {
        let most = function::<Count1>(c"nvmlDeviceGetMaxMigDeviceCount");
        let by_index = function::<PartByIndex>(c"nvmlDeviceGetMigDeviceHandleByIndex");
        let (Some(most), Some(by_index)) = (most, by_index) else { return Vec::new() };
        let mut count = 0;
        if most(device, &raw mut count) != NvmlReturn::SUCCESS {
            return Vec::new();
        }
        let part = |index| {
            let mut part = core::ptr::null_mut();
            (by_index(device, index, &raw mut part) == NvmlReturn::SUCCESS).then_some(part)
        };
        (0..count.min(64)).filter_map(part).collect()
    }
}

/// The UUID of an NVML device, which anybody may have made.
pub(crate) fn uuid_of(device: NvmlDevice) -> Option<[u8; 16]> {
    let mut text = [0; 96];
    // SAFETY: the public signature; the place is a live local of the length given.
    let result = unsafe { function::<Uuid>(c"nvmlDeviceGetUUID")?(device, text.as_mut_ptr(), 96) };
    if result != NvmlReturn::SUCCESS {
        return None;
    }
    let digits: String =
        text.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).skip(4).filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32).map(u128::to_be_bytes)
}

/// Whether NVML was seen not to know this process: in a container it lists process ids of the host, on some drivers 0 bytes.
static DENIED: AtomicBool = AtomicBool::new(false);

/// NVML was silent about memory that this process took: its figures count no more. A process id that it lists may be
/// another process's.
pub(crate) fn deny() {
    DENIED.store(true, Ordering::Relaxed);
}

/// Bytes that all processes together hold on a device, by NVML.
pub(crate) fn all_bytes(uuid: [u8; 16]) -> Option<u64> {
    let nvml = nvml()?;
    let at = nvml.devices.iter().position(|device| device.uuid == uuid)?;
    let mut memory = NvmlMemory::default();
    // SAFETY: the public signature; the place is a live local.
    let result = unsafe { (nvml.memory)(*nvml.handles.get(at)? as NvmlDevice, &raw mut memory) };
    (result == NvmlReturn::SUCCESS).then_some(memory.used)
}

/// Bytes that all processes together hold on a device, by the driver, if the current context is of this device.
pub(crate) fn used_here(ordinal: i32) -> Option<u64> {
    current_device().filter(|device| *device == ordinal)?;
    let _relaxed = RelaxedCapture::enter();
    let (mut free, mut total) = (0, 0);
    // SAFETY: both places are live locals.
    done(unsafe { real::cuMemGetInfo_v2(&raw mut free, &raw mut total) }).ok()?;
    Some((total as u64).saturating_sub(free as u64))
}

/// Bytes that this process holds on a device by the driver's figure, everything included; `None` if there is none.
pub(crate) fn own_bytes(uuid: [u8; 16]) -> Option<u64> {
    let nvml = nvml().filter(|_| !DENIED.load(Ordering::Relaxed))?;
    let at = nvml.devices.iter().position(|device| device.uuid == uuid)?;
    let mut list = vec![NvmlProcessInfo::default(); 256];
    let mut count = list.len() as c_uint;
    // SAFETY: the public signature; the list has room for `count`.
    let result = unsafe { nvml.processes?(*nvml.handles.get(at)? as NvmlDevice, &raw mut count, list.as_mut_ptr()) };
    let own = std::process::id();
    let listed = list.iter().take(count as usize).find(|process| process.pid == own);
    (result == NvmlReturn::SUCCESS)
        .then(|| listed.map_or(0, |process| process.used_gpu_memory))
        // "Not available" is written as all ones.
        .filter(|bytes| *bytes != u64::MAX)
}
