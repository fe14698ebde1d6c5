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

/// Loads the library and finds its functions: before a fork, so that no child has to.
pub(crate) fn load() {
    functions();
}
