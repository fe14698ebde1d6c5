//! How the virtual GPU's stand-ins of CUDA libraries reach the driver: as NVIDIA's own libraries do, with
//! a `dlopen` of `libcuda.so.1`, one `dlsym` of `cuGetProcAddress_v2`, and then each function by name at
//! the version that the caller was made for.
//!
//! Every legacy function of the driver is here as a function of the same symbol. It is looked up when it is
//! first called. Whatever sits between a program and its driver therefore sees the stand-ins as it sees
//! the real libraries.

#![allow(non_snake_case, clippy::too_many_arguments)]

pub mod trace;

use core::ffi::CStr;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use weir_cuda::*;

type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut CUdriverProcAddressQueryResult) -> CUresult;

/// Stands in a slot for a function that the driver does not have.
const MISSING: *mut c_void = std::ptr::dangling_mut();

/// The driver's function that finds all others; none without a driver.
fn finder() -> Option<GetProcAddress> {
    static FINDER: OnceLock<Option<GetProcAddress>> = OnceLock::new();
    *FINDER.get_or_init(|| {
        // SAFETY: both are C strings; the handle is kept for ever.
        let found = unsafe {
            let handle = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            if handle.is_null() {
                return None;
            }
            libc::dlsym(handle, c"cuGetProcAddress_v2".as_ptr())
        };
        // SAFETY: the driver's function of that name has this signature.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, GetProcAddress>(found) })
    })
}

/// Whether there is a driver at all.
pub fn present() -> bool {
    finder().is_some()
}

/// The address of a driver function at a version, and how the search for it ended.
pub fn address(name: &CStr, version: c_int, flags: u64) -> Result<*mut c_void, CUdriverProcAddressQueryResult> {
    let absent = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    let mut found = null_mut();
    let mut status = absent;
    let finder = finder().ok_or(absent)?;
    // SAFETY: a C string and two places for results.
    let code = unsafe { finder(name.as_ptr(), &raw mut found, version, flags, &raw mut status) };
    if code == CUresult::CUDA_SUCCESS && !found.is_null() { Ok(found) } else { Err(status) }
}

fn slot(slot: &AtomicPtr<c_void>, name: &CStr, version: c_int) -> *mut c_void {
    let known = slot.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let found = address(name, version, 0).unwrap_or(MISSING);
    slot.store(found, Ordering::Release);
    found
}

macro_rules! call {
    (@one legacy $symbol:ident $name:literal $version:literal ($($arg:ident : $ty:ty),*)) => {
        /// The driver's function of that symbol; `CUDA_ERROR_NOT_FOUND` where the driver has none.
        ///
        /// # Safety
        /// As the driver's documentation demands of the caller.
        pub unsafe fn $symbol($($arg: $ty),*) -> CUresult {
            static SLOT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            let found = slot(&SLOT, NAME, $version);
            if found == MISSING {
                return CUresult::CUDA_ERROR_NOT_FOUND;
            }
            // SAFETY: the driver's function of that name and version has this signature; the caller
            // keeps its promises.
            unsafe {
                let function: unsafe extern "C" fn($($ty),*) -> CUresult = std::mem::transmute(found);
                function($($arg),*)
            }
        }
    };
    // The stand-ins mean the legacy default stream by stream 0.
    (@one $variant:ident $symbol:ident $name:literal $version:literal ($($arg:ident : $ty:ty),*)) => {};
    ($($symbol:ident of $base:ident = $name:literal $version:literal $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        $(call!(@one $variant $symbol $name $version ($($arg: $ty),*));)*
    };
}
driver_functions!(call);
