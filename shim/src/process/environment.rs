//! The environment as it was when the program was started, kept by a constructor that runs when the library is loaded.
//!
//! A job must not lift its own cap by changing a variable before its first CUDA call, and a program that writes over its
//! own environment (setproctitle) must not lose it. The constructor runs in every process under the preload, also in bash
//! and git: it copies a few strings into a buffer of this library. It allocates nothing, opens nothing and prints nothing.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Bytes that are kept at most; more than anybody needs.
const ROOM: usize = 16 << 10;
/// What is kept: weir's own variables, limits of schedulers, and the variables that say where files go.
const KEPT: [&[u8]; 6] =
    [b"WEIR_", b"CUDA_DEVICE_MEMORY_LIMIT", b"GPU_MEMORY_LIMIT=", b"HOME=", b"XDG_STATE_HOME=", b"XDG_RUNTIME_DIR="];

/// Strings as they stood, each with its NUL.
struct Kept(UnsafeCell<[u8; ROOM]>);

// SAFETY: written by the constructor alone, before `LENGTH` says that there is something to read.
unsafe impl Sync for Kept {}

static TEXT: Kept = Kept(UnsafeCell::new([0; ROOM]));
/// Bytes that are there and one; 0 before the constructor ran; [`TOO_LONG`] where they did not fit.
static LENGTH: AtomicUsize = AtomicUsize::new(0);
const TOO_LONG: usize = usize::MAX;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = at_load;

/// Runs when the library is loaded; glibc gives every constructor what `main` gets.
unsafe extern "C" fn at_load(_count: c_int, _arguments: *const *const c_char, environment: *const *const c_char) {
    let mut length = 0_usize;
    let mut at = environment;
    // SAFETY: the environment ends with a null pointer, each string before it with a NUL, and nobody changes them while a
    // library is loaded; the buffer is this constructor's alone until the length is stored.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes_with_nul();
            at = at.add(1);
            if !KEPT.iter().any(|start| text.starts_with(start)) {
                continue;
            }
            let Some(end) = length.checked_add(text.len()).filter(|end| *end <= ROOM) else {
                LENGTH.store(TOO_LONG, Ordering::Release);
                return;
            };
            core::ptr::copy_nonoverlapping(text.as_ptr(), TEXT.0.get().cast::<u8>().add(length), text.len());
            length = end;
        }
    }
    LENGTH.store(length + 1, Ordering::Release);
}

/// The variables that weir reads. `Err`: there were too many of them to be kept.
pub(crate) fn variables() -> Result<Vec<(OsString, OsString)>, &'static str> {
    match LENGTH.load(Ordering::Acquire) {
        // Loaded in a way in which no constructor ran: what is there now.
        0 => Ok(std::env::vars_os().collect()),
        TOO_LONG => Err("the variables that weir reads have more than 16 KiB together"),
        length => {
            // SAFETY: that much was written before the length was stored, and never again.
            let text = unsafe { core::slice::from_raw_parts(TEXT.0.get().cast::<u8>(), (length - 1).min(ROOM)) };
            Ok(pairs(text))
        }
    }
}

fn pairs(text: &[u8]) -> Vec<(OsString, OsString)> {
    let own = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    text.split(|byte| *byte == 0)
        .filter_map(|one| {
            let at = one.iter().position(|byte| *byte == b'=')?;
            Some((own(one.get(..at)?), own(one.get(at + 1..)?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_read_is_kept() {
        let limit = c"CUDA_DEVICE_MEMORY_LIMIT_0=1g";
        let strings = [c"PATH=/bin", c"WEIR_CAP=8GiB", c"HOME=/h", c"HOMER=x", c"WEIR_EMPTY=", c"WEIR_ODD", limit];
        let mut pointers: Vec<*const c_char> = strings.iter().map(|text| text.as_ptr()).collect();
        pointers.push(core::ptr::null());
        // SAFETY: an environment as the kernel makes one.
        unsafe { at_load(0, core::ptr::null(), pointers.as_ptr()) };
        let found = variables().unwrap_or_default();
        let text: Vec<_> = found.iter().map(|(n, v)| format!("{}={}", n.display(), v.display())).collect();
        assert_eq!(text, ["WEIR_CAP=8GiB", "HOME=/h", "WEIR_EMPTY=", "CUDA_DEVICE_MEMORY_LIMIT_0=1g"]);

        let long = std::ffi::CString::new(format!("WEIR_CAP={}", "x".repeat(ROOM))).unwrap_or_default();
        let pointers = [long.as_ptr(), core::ptr::null()];
        // SAFETY: as above.
        unsafe { at_load(0, core::ptr::null(), pointers.as_ptr()) };
        assert!(variables().is_err());
        LENGTH.store(0, Ordering::Release);
    }
}
