//! Initialisation, versions, error texts, and the way to every function.

use super::{given, need, put};
use crate::config;
use crate::error::*;
use crate::{exports, names, state};
use std::ffi::CStr;
use weir_cuda::*;

pub(crate) unsafe fn cuInit(flags: c_uint) -> R {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    state::initialize()
}

pub(crate) unsafe fn cuDriverGetVersion(driver_version: *mut c_int) -> R {
    need(driver_version)?;
    // SAFETY: checked above; the caller's place for the result.
    unsafe { put(driver_version, config::get().driver_version) };
    Ok(())
}

pub(crate) unsafe fn cuGetErrorName(error: CUresult, p_str: *mut *const c_char) -> R {
    // SAFETY: passed on as promised.
    unsafe { text(p_str, names::error_name(error)) }
}

pub(crate) unsafe fn cuGetErrorString(error: CUresult, p_str: *mut *const c_char) -> R {
    // SAFETY: passed on as promised.
    unsafe { text(p_str, names::error_string(error)) }
}

unsafe fn text(p_str: *mut *const c_char, found: Option<&'static CStr>) -> R {
    need(p_str)?;
    // SAFETY: checked above; the texts live for ever.
    unsafe { put(p_str, found.map_or(std::ptr::null(), CStr::as_ptr)) };
    found.map(|_| ()).ok_or(INVALID_VALUE)
}

/// Private tables exist in the real driver; this one has none, by intention.
pub(crate) unsafe fn cuGetExportTable(pp_export_table: *mut *const c_void, p_export_table_id: *const CUuuid) -> R {
    need(pp_export_table)?;
    given(p_export_table_id)?;
    // SAFETY: checked above.
    unsafe { put(pp_export_table, std::ptr::null()) };
    Err(NOT_FOUND)
}

pub(crate) unsafe fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    driver_version: c_int,
    flags: u64,
) -> R {
    // The first version of the function had no status and reported a missing symbol by its result.
    let mut status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS;
    // SAFETY: passed on as promised.
    unsafe { cuGetProcAddress_v2(symbol, pfn, driver_version, flags, &raw mut status)? };
    if status == CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS { Ok(()) } else { Err(NOT_FOUND) }
}

pub(crate) unsafe fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    driver_version: c_int,
    flags: u64,
    symbol_found: *mut CUdriverProcAddressQueryResult,
) -> R {
    given(symbol)?;
    need(pfn)?;
    let own = config::get().driver_version;
    // Refusing a version that the driver does not have came with CUDA 13; older drivers give what they have.
    if flags > 2 || (own >= 13000 && driver_version > own) {
        return Err(INVALID_VALUE);
    }
    // SAFETY: checked above; a C string by the function's contract.
    let name = unsafe { CStr::from_ptr(symbol) }.to_str().map_err(|_| INVALID_VALUE)?;
    let version = if config::fault("getproc_version_ignored") { i32::MAX } else { driver_version.min(own) };
    let found = resolve(name, version, flags == 2);
    let status = match found {
        Some(_) => CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS,
        None if resolve(name, own, false).is_some() => {
            CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
        }
        None => CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    };
    let address = found.map_or(std::ptr::null_mut(), exports::address);
    // SAFETY: places of the caller; NULL is left alone.
    unsafe {
        put(pfn, address);
        put(symbol_found, status);
    }
    Ok(())
}
