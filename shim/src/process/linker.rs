//! The dynamic linker's real functions, found without the ones that this library exports.

use super::elf;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use weir_pool::shared;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The real `dlsym`, 0 until found. Read by the code in `arch/`.
pub(crate) static REAL_DLSYM: AtomicUsize = AtomicUsize::new(0);
/// The real `dlvsym`, 0 until found. Read by the code in `arch/`.
pub(crate) static REAL_DLVSYM: AtomicUsize = AtomicUsize::new(0);

/// The libraries that define them: libc since glibc 2.34, libdl before.
const HOMES: [&CStr; 2] = [c"libc.so.6", c"libdl.so.2"];

/// Finds both. Any number of threads may do so at once: all find the same.
fn find() {
    for home in HOMES {
        elf::each_object(&mut |object| {
            if object.soname() != Some(home) {
                return false;
            }
            for (name, real) in [(c"dlsym", &REAL_DLSYM), (c"dlvsym", &REAL_DLVSYM)] {
                if let Some(address) = object.find(name) {
                    let _ = shared::keep_first(real, address);
                }
            }
            true
        });
    }
}

/// Address of the real `dlsym`, 0 where there is none.
pub(crate) fn real_dlsym() -> usize {
    if REAL_DLSYM.load(Ordering::Acquire) == 0 {
        find();
    }
    REAL_DLSYM.load(Ordering::Acquire)
}

/// Address of the real `dlvsym`, 0 where there is none.
pub(crate) fn real_dlvsym() -> usize {
    if REAL_DLVSYM.load(Ordering::Acquire) == 0 {
        find();
    }
    REAL_DLVSYM.load(Ordering::Acquire)
}

/// The real `dlsym`, called by this library: RTLD_NEXT means "after libweir.so".
pub(crate) fn lookup(handle: *mut c_void, name: &CStr) -> usize {
    match real_dlsym() {
        0 => 0,
        // SAFETY: the address is that of libc's dlsym, and the name is a C string.
        real => unsafe { core::mem::transmute::<usize, Dlsym>(real)(handle, name.as_ptr()) as usize },
    }
}

/// The real `dlvsym`, called by this library.
pub(crate) fn lookup_version(handle: *mut c_void, name: &CStr, version: *const c_char) -> usize {
    match real_dlvsym() {
        0 => 0,
        // SAFETY: the address is that of libc's dlvsym, and both names are the caller's C strings.
        real => unsafe { core::mem::transmute::<usize, Dlvsym>(real)(handle, name.as_ptr(), version) as usize },
    }
}

/// A handle of `name`, to be kept for ever; `load`: it may be loaded for that.
pub(crate) fn open(name: &CStr, load: bool) -> *mut c_void {
    let flags: c_int = libc::RTLD_LAZY | if load { 0 } else { libc::RTLD_NOLOAD };
    // SAFETY: the name is a C string.
    unsafe { libc::dlopen(name.as_ptr(), flags) }
}

/// Forgets the error that an inner lookup has left, so that the caller's `dlerror` is not ours.
pub(crate) fn clear_error() {
    // SAFETY: dlerror has no precondition.
    unsafe { libc::dlerror() };
}
