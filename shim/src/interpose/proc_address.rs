//! `cuGetProcAddress`: the entry point that CUDA's own libraries use.
//!
//! The real driver is called first, and what it returned is routed: by its address, which says which
//! version and which variant it is. A name alone never decides: a newer driver may hand out a version
//! with another signature, and that one has to reach its caller as it is.

use super::export::DRIVER_ENTRIES;
use crate::driver::library::{DRIVER, signature};
use crate::process::calls::Uncancelled;
use crate::process::guard::Call;
use crate::process::job;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use weir_cuda::{COUNT, CUdriverProcAddress_flags, CUdriverProcAddressQueryResult, CUresult, FUNCTIONS, Function};

/// How often a function was looked up here.
static LOOKUPS: AtomicU64 = AtomicU64::new(0);
/// How often an answer was none of the functions in the ABI list.
static UNKNOWN: AtomicU64 = AtomicU64::new(0);
/// What was done with each function that was looked up here: [`PASSED`] or [`WRAPPED`].
static ROUTED: [AtomicU8; COUNT] = [const { AtomicU8::new(0) }; COUNT];
const PASSED: u8 = 1;
const WRAPPED: u8 = 2;

/// `cuGetProcAddress`.
pub(crate) unsafe fn first(
    call: &Call<signature::cuGetProcAddress, CUresult>,
    name: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(name, place, version, flags) });
    let ask = |version| {
        let mut address = core::ptr::null_mut();
        // SAFETY: the same question for another version, answered into a place of our own.
        let result = unsafe {
            let _uncancelled = Uncancelled::enter();
            (call.real())(name, &raw mut address, version, flags)
        };
        (result == CUresult::CUDA_SUCCESS).then_some(address as usize)
    };
    // SAFETY: the driver has taken name and place for valid and answered.
    unsafe { substitute(result, name, place, version, flags, ask) };
    result
}

/// `cuGetProcAddress_v2`.
pub(crate) unsafe fn second(
    call: &Call<signature::cuGetProcAddress_v2, CUresult>,
    name: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = call.forward(|real| unsafe { real(name, place, version, flags, status) });
    let ask = |version| {
        let mut address = core::ptr::null_mut();
        let mut status = CUdriverProcAddressQueryResult(0);
        let to = &raw mut address;
        // SAFETY: the same question for another version, answered into places of our own.
        let result = unsafe {
            let _uncancelled = Uncancelled::enter();
            (call.real())(name, to, version, flags, &raw mut status)
        };
        (result == CUresult::CUDA_SUCCESS).then_some(address as usize)
    };
    // SAFETY: the driver has taken name and place for valid and answered.
    unsafe { substitute(result, name, place, version, flags, ask) };
    result
}

/// Puts weir's function in place of the driver's, if it has one.
unsafe fn substitute(
    result: CUresult,
    name: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: u64,
    ask: impl Fn(c_int) -> Option<usize>,
) {
    if result != CUresult::CUDA_SUCCESS || name.is_null() || place.is_null() {
        return;
    }
    if job::active().is_none() {
        return;
    }
    // SAFETY: not null, and the driver has just read the one and written the other.
    let (name, address) = unsafe { (CStr::from_ptr(name), *place as usize) };
    let Ok(name) = name.to_str() else { return };
    if address == 0 {
        return;
    }
    LOOKUPS.fetch_add(1, Ordering::Relaxed);
    let Some(id) = identify(name, address, version, flags, &ask) else {
        UNKNOWN.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let hook = DRIVER_ENTRIES.get(id).and_then(|entry| entry.hook);
    if let Some(routed) = ROUTED.get(id) {
        let how = if hook.is_some() { WRAPPED } else { PASSED };
        routed.store(how, Ordering::Relaxed);
    }
    if let Some(hook) = hook {
        DRIVER.learn(id, address);
        DRIVER.count_handed_out(id);
        // SAFETY: as above; the function has the signature of what it stands for.
        unsafe { *place = hook.export.cast_mut() };
    }
}

/// Which function of the ABI list the driver's answer is.
fn identify(
    name: &str,
    address: usize,
    version: c_int,
    flags: u64,
    ask: &impl Fn(c_int) -> Option<usize>,
) -> Option<usize> {
    let per_thread = CUdriverProcAddress_flags::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    let per_thread = flags & u64::from(per_thread.0) != 0;
    let meant = weir_cuda::resolve(name, version, per_thread).and_then(place_of);
    // The exported function that name, version and flags mean: where variants share one address,
    // this distinguishes them.
    if let Some(id) = meant.filter(|&id| DRIVER.real(id) == address) {
        return Some(id);
    }
    // Another exported version or variant of the name.
    let exported = FUNCTIONS.iter().enumerate().find(|(id, f)| f.name == name && DRIVER.real(*id) == address);
    if let Some((id, _)) = exported {
        return Some(id);
    }
    // An address that is not exported: it is what it should be only if the driver gives the same
    // for exactly the version in the ABI list.
    meant.filter(|&id| FUNCTIONS.get(id).is_some_and(|f| ask(f.version) == Some(address)))
}

fn place_of(function: &'static Function) -> Option<usize> {
    FUNCTIONS.iter().position(|f| core::ptr::eq(f, function))
}

/// What this entry point has seen, for the status: lookups, unknown, and the symbols wrapped and passed.
pub(crate) fn seen() -> (u64, u64, Vec<&'static str>, Vec<&'static str>) {
    let symbols = |how: u8| {
        ROUTED
            .iter()
            .zip(&FUNCTIONS)
            .filter(|(routed, _)| routed.load(Ordering::Relaxed) == how)
            .map(|(_, function)| function.symbol)
            .collect()
    };
    (LOOKUPS.load(Ordering::Relaxed), UNKNOWN.load(Ordering::Relaxed), symbols(WRAPPED), symbols(PASSED))
}
