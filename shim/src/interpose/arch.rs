//! The exported `dlsym` and `dlvsym`: the only architecture-specific code.
//!
//! What RTLD_NEXT means depends on the caller's return address, so a wrapper may not *call* the real
//! function: it has to jump to it with everything in place. The instructions are in `arch/*.s`, as
//! templates with two blanks: `{real}`, the pointer to the real function, and `{decide}`, which is
//! called for the few names that weir may answer. The aarch64 template is also assembled alone and
//! run in an emulator by `shim/tests/aarch64`.

use super::lookup;
use crate::process::linker;
use core::arch::naked_asm;
use core::ffi::{c_char, c_void};

/// The exported `dlsym`.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        include_str!("arch/x86_64.s"),
        real = sym linker::REAL_DLSYM,
        decide = sym lookup::decide_dlsym,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        include_str!("arch/aarch64.s"),
        real = sym linker::REAL_DLSYM,
        decide = sym lookup::decide_dlsym,
    );
}

/// The exported `dlvsym`.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        include_str!("arch/x86_64.s"),
        real = sym linker::REAL_DLVSYM,
        decide = sym lookup::decide_dlvsym,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        include_str!("arch/aarch64.s"),
        real = sym linker::REAL_DLVSYM,
        decide = sym lookup::decide_dlvsym,
    );
}
