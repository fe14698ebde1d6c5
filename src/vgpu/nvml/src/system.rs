//! Initialisation, versions, error texts and process names.

use crate::session::{self, Outcome, answer, code};
use core::ffi::{CStr, c_char, c_int, c_uint};
use std::fs;
use weir_cuda::nvml::NvmlReturn;

/// Initialises NVML.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlInit_v2() -> NvmlReturn {
    code(session::begin(0))
}

/// Initialises NVML, as the first version did: a host without a device is no error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlInit() -> NvmlReturn {
    code(session::begin(session::NO_GPUS))
}

/// Initialises NVML with flags.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlInitWithFlags(flags: c_uint) -> NvmlReturn {
    code(session::begin(flags))
}

/// Takes back one initialisation.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlShutdown() -> NvmlReturn {
    code(session::end())
}

/// What a code means, in our own words; never NULL.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlErrorString(result: NvmlReturn) -> *const c_char {
    let text: &CStr = match result.0 {
        0 => c"Success",
        1 => c"Uninitialized: nvmlInit has not been called",
        2 => c"Invalid argument",
        3 => c"Not supported",
        4 => c"No permission",
        5 => c"Already initialized",
        6 => c"Not found",
        7 => c"Insufficient size",
        8 => c"Insufficient power",
        9 => c"Driver not loaded: there is no libcuda.so.1 of the virtual GPU beside this library",
        10 => c"Timeout",
        11 => c"Interrupt issue",
        12 => c"Library not found",
        13 => c"Function not found",
        14 => c"Corrupted infoROM",
        15 => c"The device is lost",
        16 => c"The device needs a reset",
        17 => c"Blocked by the operating system",
        18 => c"Driver and library versions do not match",
        19 => c"In use",
        20 => c"Out of memory",
        21 => c"No data",
        22 => c"Not available while ECC is on",
        23 => c"Insufficient resources",
        24 => c"Frequency not supported",
        25 => c"The version of the argument is not supported",
        26 => c"Deprecated",
        27 => c"Not ready",
        28 => c"No device was found",
        29 => c"Invalid state",
        _ => c"Unknown error",
    };
    text.as_ptr()
}

/// The version of the display driver that came with this CUDA version.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> NvmlReturn {
    answer(|driver| {
        let branch = branch(driver.cuda_version().ok_or(NvmlReturn::UNKNOWN)?);
        // SAFETY: the caller's buffer has `length` bytes.
        unsafe { text(version, length, &format!("{branch}.00.00")) }
    })
}

/// The version of this library: that of the driver, after NVML's own.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> NvmlReturn {
    answer(|driver| {
        let cuda = driver.cuda_version().ok_or(NvmlReturn::UNKNOWN)?;
        let own = format!("{}.{}.00.00", cuda / 1000, branch(cuda));
        // SAFETY: the caller's buffer has `length` bytes.
        unsafe { text(version, length, &own) }
    })
}

/// The branch of display drivers that brought a CUDA version.
fn branch(cuda: c_int) -> u32 {
    match cuda / 10 {
        ..1200 => 470,
        1200 => 525,
        1201 => 530,
        1202 => 535,
        1203 => 545,
        1204 => 550,
        1205 => 555,
        1206 | 1207 => 560,
        1208 => 570,
        1209..1300 => 575,
        _ => 580,
    }
}

/// The CUDA version; unlike the others it may be queried before initialisation.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) -> NvmlReturn {
    // SAFETY: the caller passes a number to write to, or NULL.
    unsafe { nvmlSystemGetCudaDriverVersion_v2(version) }
}

/// The CUDA version.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> NvmlReturn {
    let found = crate::driver::Driver::get().ok_or(NvmlReturn(12));
    let found = found.and_then(|driver| driver.cuda_version().ok_or(NvmlReturn::UNKNOWN));
    // SAFETY: the caller passes a number to write to, or NULL.
    code(found.and_then(|found| unsafe { put(version, found) }))
}

/// The name of a process, cut to the buffer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) -> NvmlReturn {
    answer(|_| {
        if name.is_null() || length == 0 {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        let mut found = process_name(pid).ok_or(NvmlReturn::NOT_FOUND)?;
        let room = length as usize - 1;
        let cut = (0..=room.min(found.len())).rev().find(|at| found.is_char_boundary(*at));
        found.truncate(cut.unwrap_or(0));
        // SAFETY: the caller's buffer has `length` bytes.
        unsafe { text(name, length, &found) }
    })
}

fn process_name(pid: u32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
    if !first.is_empty() {
        return Some(String::from_utf8_lossy(first).into_owned());
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Writes a value to the caller.
///
/// # Safety
/// `out` is NULL or may be written to.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Outcome {
    if out.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    // SAFETY: not NULL, and the caller vouches for the rest.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a C string to the caller.
///
/// # Safety
/// `out` is NULL or has room for `length` bytes.
pub(crate) unsafe fn text(out: *mut c_char, length: c_uint, text: &str) -> Outcome {
    if out.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(NvmlReturn::INSUFFICIENT_SIZE);
    }
    // SAFETY: the text and its NUL fit into `length` bytes.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        *out.add(text.len()) = 0;
    }
    Ok(())
}
