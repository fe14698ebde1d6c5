//! What the job says of itself: `weir_mark` and `weir_region`, which `import weir` calls. They record, and do nothing else.

use crate::process::guard;
use crate::record;
use core::ffi::{CStr, c_char, c_int};
use weir_journal::Kind;

/// Longest name kept, in bytes.
const LONGEST: usize = 200;

/// Sets a mark in the journal. 1 if it was recorded, 0 where nothing is.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn weir_mark(name: *const c_char) -> c_int {
    // SAFETY: the caller's name is null or ends with a NUL.
    unsafe { said(Kind::Mark, name) }
}

/// Begins a region of the calling thread, or ends it (`begins` is 0). 1 if it was recorded, 0 where nothing is.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn weir_region(name: *const c_char, begins: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { said(if begins != 0 { Kind::RegionBegin } else { Kind::RegionEnd }, name) }
}

/// # Safety
/// `name` is null or ends with a NUL.
unsafe fn said(kind: Kind, name: *const c_char) -> c_int {
    if name.is_null() {
        return 0;
    }
    // SAFETY: not null, so it ends with a NUL.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    guard::run("a mark", || record::said(kind, start(name))).unwrap_or(false).into()
}

/// As much of the beginning of a name as is kept: whole characters, as far as it is UTF-8.
fn start(name: &[u8]) -> &str {
    let name = name.get(..LONGEST).unwrap_or(name);
    match core::str::from_utf8(name) {
        Ok(name) => name,
        Err(error) => core::str::from_utf8(name.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_between_characters() {
        assert_eq!(start(b"epoch 3"), "epoch 3");
        assert_eq!(start(b"a\xff b"), "a");
        let long = "é".repeat(LONGEST);
        assert_eq!(start(long.as_bytes()), "é".repeat(LONGEST / 2));
        assert_eq!(start(format!("x{long}").as_bytes()).len(), LONGEST - 1);
    }
}
