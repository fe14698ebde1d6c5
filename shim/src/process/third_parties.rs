//! Libraries that have device memory pinned by the kernel and written to by other devices later, behind the driver's back:
//! a network card, a copy by the CPU, a disk. What they were given is known to them by its pages.

use super::elf;
use core::sync::atomic::{AtomicPtr, Ordering};

/// How their file names begin.
const NAMES: [&str; 3] = ["libibverbs.so", "libgdrapi.so", "libcufile.so"];
/// The one that was seen; null before. It counts from then on, though it may be unloaded: its registrations may not be.
static SEEN: AtomicPtr<&'static str> = AtomicPtr::new(core::ptr::null_mut());

/// The library of this kind in the process, if there is, or was, one. Takes the loader's lock while there is none: not for
/// the hot path.
pub(crate) fn present() -> Option<&'static str> {
    // SAFETY: null, or the address of a constant.
    if let Some(seen) = unsafe { SEEN.load(Ordering::Acquire).as_ref() } {
        return Some(seen);
    }
    let mut found: Option<&'static &'static str> = None;
    elf::each_object(&mut |object| {
        let path = object.path().to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        found = NAMES.iter().find(|name| file.starts_with(name.as_bytes()));
        found.is_some()
    });
    if let Some(name) = found {
        SEEN.store(core::ptr::from_ref(name).cast_mut(), Ordering::Release);
    }
    found.copied()
}
