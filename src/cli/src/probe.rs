//! The child of `weir doctor`: runs under the preload, reaches the driver through every entry point, and prints
//! what it saw as JSON. On each device it makes a context and a small allocation and gives both back: what weir's pool can
//! stand on is known when it is made.
//!
//! The only file of the command with unsafe code.

use serde_json::{Value, json};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::process::ExitCode;

type Status = unsafe extern "C" fn(*mut c_char, usize) -> usize;
type Init = unsafe extern "C" fn(c_uint) -> c_int;
type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type Release = unsafe extern "C" fn(c_int) -> c_int;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type Alloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;
type TotalMem = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

/// A version that every driver of CUDA 12 and later knows.
const CUDA_12: c_int = 12000;
const PER_THREAD_STREAM: u64 = 2;

/// Runs the probe.
pub(crate) fn run() -> ExitCode {
    crate::output::json(&report(), false);
    ExitCode::SUCCESS
}

fn report() -> Value {
    // A program that looks for CUDA before loading it must find nothing.
    let before = symbol(libc::RTLD_DEFAULT, c"cuMemAlloc_v2");
    let driver = open(c"libcuda.so.1");
    let mut entry_points = vec![];
    let mut init = Value::Null;
    let (mut devices, mut pools) = (Value::Null, Value::Null);
    match &driver {
        Err(_) => {}
        Ok(handle) => {
            let handle = *handle;
            entry_points.push(entry_point("dlsym", symbol(handle, c"cuMemAlloc_v2")));
            entry_points.push(entry_point("dlsym, default scope", symbol(libc::RTLD_DEFAULT, c"cuMemAlloc_v2")));
            let get = symbol(handle, c"cuGetProcAddress_v2");
            for (name, what, flags) in [
                ("cuGetProcAddress", c"cuMemAlloc", 0),
                ("cuGetProcAddress, per-thread stream", c"cuMemAllocAsync", PER_THREAD_STREAM),
            ] {
                entry_points.push(entry_point(name, proc_address(get, what, flags)));
            }
            (init, devices) = initialise(handle);
            pools = json!(try_pools(handle, devices.as_array().map_or(0, Vec::len)));
        }
    }
    let nvml = open(c"libnvidia-ml.so.1");
    if let Ok(handle) = nvml {
        entry_points.push(entry_point("dlsym, NVML", symbol(handle, c"nvmlDeviceGetMemoryInfo")));
    }
    json!({
        "visible_before": !before.is_null(),
        "driver_error": driver.err(),
        "nvml_error": nvml.err(),
        "init": init,
        "devices": devices,
        "entry_points": entry_points,
        "pools": pools,
        "status": status(),
    })
}

/// Calls cuInit and looks at the devices through the functions that `dlsym` returns.
fn initialise(handle: *mut c_void) -> (Value, Value) {
    let names = [c"cuInit", c"cuDeviceGetCount", c"cuDeviceTotalMem_v2"];
    let found = names.map(|name| symbol(handle, name));
    if found.iter().any(|address| address.is_null()) {
        return (Value::Null, Value::Null);
    }
    let [init, count, total] = found;
    // SAFETY: each address is that of the function of this name, and the public header declares
    // these types.
    let (init, count, total) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Init>(init),
            std::mem::transmute::<*mut c_void, Count>(count),
            std::mem::transmute::<*mut c_void, TotalMem>(total),
        )
    };
    // SAFETY: cuInit takes no pointer.
    let result = unsafe { init(0) };
    let mut devices = 0;
    // SAFETY: the pointer is to a local of the right type.
    if result != 0 || unsafe { count(&raw mut devices) } != 0 {
        return (json!(result), Value::Null);
    }
    let sizes: Vec<_> = (0..devices)
        .map(|device| {
            let mut bytes = 0;
            // SAFETY: as above; devices are their own ordinals.
            let result = unsafe { total(&raw mut bytes, device) };
            json!({"result": result, "bytes": bytes})
        })
        .collect();
    (json!(result), json!(sizes))
}

/// Makes a context and an allocation on each device, and gives both back; the first result that is not 0, for each.
fn try_pools(handle: *mut c_void, devices: usize) -> Vec<c_int> {
    let names = [c"cuDevicePrimaryCtxRetain", c"cuCtxSetCurrent", c"cuMemAlloc_v2", c"cuMemFree_v2"];
    let found = names.map(|name| symbol(handle, name));
    let release = symbol(handle, c"cuDevicePrimaryCtxRelease_v2");
    if found.iter().any(|address| address.is_null()) || release.is_null() {
        return Vec::new();
    }
    let [retain, set, alloc, free] = found;
    // SAFETY: each address is that of the function of this name, and the public header declares these types.
    let (retain, set, alloc, free, release) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Retain>(retain),
            std::mem::transmute::<*mut c_void, SetCurrent>(set),
            std::mem::transmute::<*mut c_void, Alloc>(alloc),
            std::mem::transmute::<*mut c_void, Free>(free),
            std::mem::transmute::<*mut c_void, Release>(release),
        )
    };
    let one = |device: usize| {
        let (mut context, mut address) = (std::ptr::null_mut(), 0);
        // SAFETY: every place is a local of the right type; what was made is freed once.
        unsafe {
            let mut result = retain(&raw mut context, device as c_int);
            if result != 0 {
                return result;
            }
            result = set(context);
            if result == 0 {
                result = alloc(&raw mut address, 1);
            }
            if result == 0 {
                result = free(address);
            }
            set(std::ptr::null_mut());
            release(device as c_int);
            result
        }
    };
    (0..devices).map(one).collect()
}

fn entry_point(name: &str, address: *mut c_void) -> Value {
    let library = library_of(address);
    let ours = library.as_deref().is_some_and(|h| h.ends_with("libweir.so"));
    json!({"name": name, "ok": ours, "library": library})
}

fn proc_address(get: *mut c_void, name: &CStr, flags: u64) -> *mut c_void {
    let mut address = std::ptr::null_mut();
    let mut status = 0;
    if !get.is_null() {
        // SAFETY: the address is that of cuGetProcAddress_v2, and all pointers are to locals.
        unsafe {
            let get = std::mem::transmute::<*mut c_void, GetProcAddress>(get);
            get(name.as_ptr(), &raw mut address, CUDA_12, flags, &raw mut status);
        }
    }
    address
}

fn open(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the name is a C string; global, as a program linked with the library would have it.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        // SAFETY: after a failure dlerror returns a C string or null.
        let text = unsafe { libc::dlerror() };
        return Err(if text.is_null() {
            "unknown error".to_owned()
        } else {
            // SAFETY: not null.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        });
    }
    Ok(handle)
}

fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the handle is open or a pseudo-handle, and the name is a C string.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// The file that an address comes from.
fn library_of(address: *mut c_void) -> Option<String> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: dladdr takes any address and fills the struct when it knows it.
    let known = !address.is_null() && unsafe { libc::dladdr(address, &raw mut info) } != 0;
    (known && !info.dli_fname.is_null()).then(|| {
        // SAFETY: the name belongs to a loaded object.
        unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned()
    })
}

/// The status that the preloaded library reports; null when it is not there.
fn status() -> Value {
    let address = symbol(libc::RTLD_DEFAULT, c"weir_status");
    if address.is_null() {
        return Value::Null;
    }
    // SAFETY: weir_status has this type and writes at most as many bytes as are passed.
    let text = unsafe {
        let status = std::mem::transmute::<*mut c_void, Status>(address);
        let size = status(std::ptr::null_mut(), 0) + 4096;
        let mut buffer = vec![0u8; size];
        status(buffer.as_mut_ptr().cast(), size);
        CString::from_vec_with_nul(buffer.split_inclusive(|&b| b == 0).next().unwrap_or(b"\0").to_vec())
    };
    text.ok().and_then(|t| serde_json::from_slice(t.as_bytes()).ok()).unwrap_or(Value::Null)
}
