//! What the virtual GPU itself says is taken: weir has no part in it.

use crate::driver;
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

/// What `vgpu_device_info` writes.
#[repr(C)]
struct Info {
    total: u64,
    used: u64,
    reserved: u64,
    uuid: [u8; 16],
    name: [c_char; 96],
    pci: [c_char; 32],
    compute: [i32; 2],
    driver: i32,
}

struct Functions {
    bytes: unsafe extern "C" fn(c_int) -> u64,
    peak: unsafe extern "C" fn(c_int) -> u64,
    info: unsafe extern "C" fn(c_int, *mut Info) -> c_int,
    processes: unsafe extern "C" fn(c_int, *mut Process, c_int) -> c_int,
}

/// What `vgpu_processes` writes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: u32,
    unused: u32,
    bytes: u64,
}

fn functions() -> &'static Functions {
    static FOUND: OnceLock<Functions> = OnceLock::new();
    FOUND.get_or_init(|| {
        let library = driver::load().expect("the virtual GPU");
        // SAFETY: the virtual GPU documents these signatures.
        unsafe {
            Functions {
                bytes: *library.get(b"vgpu_physical_bytes").expect("the virtual GPU"),
                peak: *library.get(b"vgpu_physical_peak").expect("the virtual GPU"),
                info: *library.get(b"vgpu_device_info").expect("the virtual GPU"),
                processes: *library.get(b"vgpu_processes").expect("the virtual GPU"),
            }
        }
    })
}

/// Bytes that this process holds now.
pub(crate) fn physical() -> u64 {
    // SAFETY: it takes any number.
    unsafe { (functions().bytes)(0) }
}

/// The most that this process ever held, between two looks too.
pub(crate) fn peak() -> u64 {
    // SAFETY: it takes any number.
    unsafe { (functions().peak)(0) }
}

/// Bytes that all processes on the device hold now.
pub(crate) fn everybody() -> u64 {
    // SAFETY: the place is a live local of the type that is written; all zeroes are a valid one.
    unsafe {
        let mut info: Info = std::mem::zeroed();
        if (functions().info)(0, &raw mut info) == 0 { info.used } else { 0 }
    }
}

/// Who holds how much, and whether the kernel is tearing it down.
pub(crate) fn holders() -> String {
    let mut list = [Process::default(); 64];
    // SAFETY: the list has the room that is passed.
    let count = unsafe { (functions().processes)(0, list.as_mut_ptr(), list.len() as c_int) };
    let words = list.iter().take(usize::try_from(count).unwrap_or(0)).map(|process| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // The flag by which the kernel marks a process that is on its way out: field 9 of proc(5).
        let exiting = fields.get(6).and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & 4 != 0);
        let state = fields.first().copied().unwrap_or("gone");
        format!("{} holds {} MiB ({state}{})", process.pid, process.bytes >> 20, if exiting { ", exiting" } else { "" })
    });
    words.collect::<Vec<_>>().join(", ")
}

/// What weir itself says of its account, to explain a failure; empty without weir.
pub(crate) fn account() -> String {
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"weir_status".as_ptr()) };
    if found.is_null() {
        return String::new();
    }
    let mut text = vec![0_u8; 1 << 20];
    // SAFETY: the function that weir documents under this name, and a place of the length that is passed.
    unsafe {
        let status: unsafe extern "C" fn(*mut c_char, usize) -> usize = std::mem::transmute(found);
        status(text.as_mut_ptr().cast(), text.len());
    }
    let reported = text.split(|byte| *byte == 0).next().and_then(|text| serde_json::from_slice(text).ok());
    reported.map_or_else(String::new, |reported: serde_json::Value| reported["caps"]["devices"][0].to_string())
}

/// Loads the library and finds its functions: before a fork, so that no child has to.
pub(crate) fn load() {
    functions();
}
