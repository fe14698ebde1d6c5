//! Loads the virtual GPU's libcuda.so.1, which must lie in the folder of this library. CUDA is
//! not initialised: only the functions that libcuda exports for us are called.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// What libcuda reports of a device; the layout is an agreement between the two libraries.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct VgpuInfo {
    /// Bytes on the device.
    pub(crate) total: u64,
    /// Bytes that processes hold.
    pub(crate) used: u64,
    /// Bytes that the driver keeps for itself.
    pub(crate) reserved: u64,
    pub(crate) uuid: [u8; 16],
    pub(crate) name: [c_char; 96],
    /// `0000:07:00.0`.
    pub(crate) pci: [c_char; 32],
    pub(crate) compute_major: i32,
    pub(crate) compute_minor: i32,
    pub(crate) driver_version: i32,
}

/// How NVML reports processes (VGPU_NVML).
pub(crate) const FOREIGN_PIDS: i32 = 1;
pub(crate) const ZERO_BYTES: i32 = 2;
pub(crate) const NO_PROCESSES: i32 = 3;
pub(crate) const ABSENT: i32 = 4;

/// What NVML may report of a device on machines where it does not report the truth; the layout is an agreement too.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct VgpuLimits {
    pub(crate) mode: i32,
    pub(crate) p2p: i32,
    /// The device is an instance of a larger one.
    pub(crate) mig: i32,
    pub(crate) pad: i32,
    /// The uuid of the larger one.
    pub(crate) parent: [u8; 16],
    pub(crate) address_space: u64,
}

/// A process that holds memory of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VgpuProcess {
    pub(crate) pid: u32,
    pub(crate) pad: u32,
    pub(crate) bytes: u64,
}

/// The functions of libcuda that answer for the devices.
pub(crate) struct Driver {
    pub(crate) count: unsafe extern "C" fn() -> c_int,
    pub(crate) info: unsafe extern "C" fn(c_int, *mut VgpuInfo) -> c_int,
    pub(crate) processes: unsafe extern "C" fn(c_int, *mut VgpuProcess, c_int) -> c_int,
    pub(crate) limits: unsafe extern "C" fn(c_int, *mut VgpuLimits) -> c_int,
    pub(crate) version: unsafe extern "C" fn(*mut c_int) -> c_int,
}

impl Driver {
    /// The driver in this library's folder; none if there is none, or another vendor's.
    pub(crate) fn get() -> Option<&'static Self> {
        static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
        DRIVER.get_or_init(Self::find).as_ref()
    }

    fn find() -> Option<Self> {
        if cfg!(test) {
            return Self::for_tests();
        }
        Self::load(&beside("libcuda.so.1")?)
    }

    #[cfg(not(test))]
    const fn for_tests() -> Option<Self> {
        None
    }

    fn load(path: &CStr) -> Option<Self> {
        // SAFETY: loading a library that the user put beside this one; its initialisers are its own.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle is valid and is never closed.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let count = symbol(c"vgpu_device_count")?;
        let info = symbol(c"vgpu_device_info")?;
        let processes = symbol(c"vgpu_processes")?;
        let limits = symbol(c"vgpu_limits")?;
        let version = symbol(c"cuDriverGetVersion")?;
        // SAFETY: only the virtual GPU's libcuda exports the vgpu_ names, with these signatures, and
        // cuDriverGetVersion is public.
        Some(unsafe {
            Self {
                count: core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(count),
                info: core::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *mut VgpuInfo) -> c_int>(info),
                processes: core::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int, *mut VgpuProcess, c_int) -> c_int,
                >(processes),
                limits: core::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *mut VgpuLimits) -> c_int>(
                    limits,
                ),
                version: core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(version),
            }
        })
    }

    /// How many devices there are, whatever CUDA_VISIBLE_DEVICES says.
    pub(crate) fn device_count(&self) -> u32 {
        // SAFETY: takes nothing and may be called at any time.
        unsafe { (self.count)() }.try_into().unwrap_or(0)
    }

    /// What a device is; none if there is no such device.
    pub(crate) fn device(&self, index: u32) -> Option<VgpuInfo> {
        let mut info = VgpuInfo {
            total: 0,
            used: 0,
            reserved: 0,
            uuid: [0; 16],
            name: [0; 96],
            pci: [0; 32],
            compute_major: 0,
            compute_minor: 0,
            driver_version: 0,
        };
        // SAFETY: `info` has the layout that both libraries agree on.
        let result = unsafe { (self.info)(index.try_into().ok()?, &raw mut info) };
        (result == 0).then_some(info)
    }

    /// What NVML may report of a device.
    pub(crate) fn limits(&self, index: u32) -> VgpuLimits {
        let mut limits = VgpuLimits { p2p: 1, ..VgpuLimits::default() };
        // SAFETY: `limits` has the layout that both libraries agree on; an index without a device changes nothing.
        unsafe { (self.limits)(index.try_into().unwrap_or(-1), &raw mut limits) };
        limits
    }

    /// The processes that hold memory of a device.
    pub(crate) fn device_processes(&self, index: u32) -> Vec<VgpuProcess> {
        let Ok(index) = c_int::try_from(index) else {
            return Vec::new();
        };
        let mut found = vec![VgpuProcess::default(); 64];
        loop {
            // SAFETY: the list has room for as many rows as it says.
            let count = unsafe { (self.processes)(index, found.as_mut_ptr(), found.len() as c_int) };
            let count = usize::try_from(count).unwrap_or(0);
            if count <= found.len() {
                found.truncate(count);
                return found;
            }
            found.resize(count + 16, VgpuProcess::default());
        }
    }

    /// The CUDA version, as cuDriverGetVersion writes it.
    pub(crate) fn cuda_version(&self) -> Option<c_int> {
        let mut version = 0;
        // SAFETY: writes one number, and needs no initialisation.
        (unsafe { (self.version)(&raw mut version) } == 0).then_some(version)
    }
}

/// The path of a file in the folder of this library.
fn beside(file: &str) -> Option<CString> {
    // SAFETY: an all-zero Dl_info is a valid one, which dladdr fills.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    let here = beside as *const c_void;
    // SAFETY: `here` is an address of this library, and `info` is ours.
    if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader keeps the name as long as the library.
    let own = unsafe { CStr::from_ptr(info.dli_fname) };
    let folder = Path::new(OsStr::from_bytes(own.to_bytes())).parent()?;
    // A bare name would be searched for; the folder of a bare name is the current one.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    CString::new(folder.join(file).as_os_str().as_bytes()).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    impl Driver {
        /// Two devices as libcuda would report them, so that the rules of NVML can be tested alone.
        pub(super) fn for_tests() -> Option<Self> {
            let two_devices = Self { count, info, processes, limits, version };
            Some(two_devices).filter(|driver| driver.device_count() == 2)
        }
    }

    unsafe extern "C" fn count() -> c_int {
        2
    }

    unsafe extern "C" fn version(out: *mut c_int) -> c_int {
        // SAFETY: the caller passes a number to write to.
        unsafe { *out = 12080 };
        0
    }

    unsafe extern "C" fn info(index: c_int, out: *mut VgpuInfo) -> c_int {
        if !(0..2).contains(&index) {
            return 101;
        }
        // SAFETY: the caller passes a struct to write to.
        let info = unsafe { &mut *out };
        info.total = 8 << 30;
        info.used = 1000;
        info.reserved = 24;
        info.uuid = [0xa0 + index as u8; 16];
        info.compute_major = 8;
        info.compute_minor = 6;
        info.driver_version = 12080;
        let text = |to: &mut [c_char], from: &str| {
            for (to, from) in to.iter_mut().zip(from.bytes()) {
                *to = from as c_char;
            }
        };
        text(&mut info.name, "Virtual GPU");
        text(&mut info.pci, ["0000:07:00.0", "0000:0a:00.0"][index as usize]);
        0
    }

    unsafe extern "C" fn limits(_: c_int, _: *mut VgpuLimits) -> c_int {
        0
    }

    /// Device 0 is held by 100 processes, device 1 by none.
    unsafe extern "C" fn processes(index: c_int, out: *mut VgpuProcess, room: c_int) -> c_int {
        if index != 0 {
            return 0;
        }
        for row in 0..room.min(100) {
            // SAFETY: the caller has room for this many rows.
            unsafe {
                *out.add(row as usize) = VgpuProcess { pid: 1000 + row as u32, pad: 0, bytes: 10 };
            }
        }
        100
    }

    #[test]
    fn more_processes_than_expected_are_all_reported() {
        let driver = Driver::for_tests().expect("two devices");
        assert_eq!(driver.device_processes(0).len(), 100);
        assert_eq!(driver.device_processes(0)[99].pid, 1099);
        assert!(driver.device_processes(1).is_empty());
        assert!(driver.device(2).is_none());
    }

    #[test]
    fn a_library_without_our_functions_is_not_taken_for_the_driver() {
        assert!(Driver::load(c"libc.so.6").is_none());
        assert!(Driver::load(c"/no/such/libcuda.so.1").is_none());
        let path = beside("libcuda.so.1").expect("this program has a folder");
        assert!(path.to_bytes().ends_with(b"/libcuda.so.1"));
    }
}
