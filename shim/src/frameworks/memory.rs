//! Reads of other people's structures: carefully, where a guess may be wrong, and directly, once it was seen to be right.

use crate::process::surroundings::Errno;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

/// A way to read memory of this process.
pub(crate) trait Memory {
    /// Copies `to.len()` bytes from `address`; false if they are not all readable.
    fn bytes(&self, address: usize, to: &mut [u8]) -> bool;

    /// The word at `address`.
    #[inline(always)]
    fn word(&self, address: usize) -> Option<usize> {
        let mut bytes = [0; 8];
        self.bytes(address, &mut bytes).then(|| usize::from_le_bytes(bytes))
    }

    /// The four bytes at `address` as a number.
    #[inline(always)]
    fn int(&self, address: usize) -> Option<i32> {
        let mut bytes = [0; 4];
        self.bytes(address, &mut bytes).then(|| i32::from_le_bytes(bytes))
    }
}

/// Calls the kernel for each read: slow, and never wrong about what is readable.
pub(crate) struct Careful;

impl Memory for Careful {
    fn bytes(&self, address: usize, to: &mut [u8]) -> bool {
        let _kept = Errno::keep();
        let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: to.len() };
        // SAFETY: the kernel checks both ranges; the local one is the caller's slice.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
        if copied >= 0 {
            return copied as usize == to.len();
        }
        // SAFETY: the calling thread's own errno.
        match unsafe { *libc::__errno_location() } {
            libc::ENOSYS | libc::EPERM => by_file(address, to),
            _ => false,
        }
    }
}

/// The same where the system call is forbidden, as in some containers.
fn by_file(address: usize, to: &mut [u8]) -> bool {
    // SAFETY: the name is a C string; the descriptor is this function's own; pread checks the range.
    unsafe {
        let file = libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return false;
        }
        let copied = libc::pread(file, to.as_mut_ptr().cast(), to.len(), address as libc::off_t);
        libc::close(file);
        copied == to.len() as isize
    }
}

/// Reads at once. Only for structures that [`Trust`] vouches for.
pub(crate) struct Direct(());

impl Direct {
    /// # Safety
    /// What is read through it must have been seen by [`Careful`] reads to be laid out as expected.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Memory for Direct {
    #[inline(always)]
    fn bytes(&self, address: usize, to: &mut [u8]) -> bool {
        // The first pages are never mapped, addresses of the kernel never readable.
        if !(0x1_0000..1 << 47).contains(&address) {
            return false;
        }
        // SAFETY: by the contract of `new` the address is one of a live structure.
        unsafe { core::ptr::copy_nonoverlapping(address as *const u8, to.as_mut_ptr(), to.len()) };
        true
    }
}

/// How often a layout must have been seen to fit before it is read directly.
const ENOUGH: u32 = 64;
const BROKEN: u32 = u32::MAX;

/// Whether a layout may be believed: it must have fitted many times, and never not.
pub(crate) struct Trust(AtomicU32);

impl Trust {
    /// Nothing is known yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// It was seen to fit.
    pub(crate) fn confirm(&self) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| (seen < ENOUGH).then(|| seen + 1));
    }

    /// It did not fit: never again.
    pub(crate) fn refuse(&self) {
        self.0.store(BROKEN, Ordering::Relaxed);
    }

    /// Whether it did not fit.
    #[inline(always)]
    pub(crate) fn is_refused(&self) -> bool {
        self.0.load(Ordering::Relaxed) == BROKEN
    }

    /// Whether it may be read directly.
    #[inline(always)]
    pub(crate) fn is_earned(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn careful_reads_answer_and_refuse() {
        let here = [7_u8; 16];
        let address = here.as_ptr() as usize;
        assert_eq!(Careful.word(address), Some(0x0707_0707_0707_0707));
        let mut to = [0; 16];
        assert!(by_file(address, &mut to) && to == here);
        for wild in [0, 8, 0xdead_beef, 1 << 46, usize::MAX - 3] {
            assert_eq!(Careful.word(wild), None, "{wild:x}");
            assert!(!by_file(wild, &mut to), "{wild:x}");
        }
    }

    #[test]
    fn trust_is_earned_slowly_and_lost_at_once() {
        let trust = Trust::new();
        (0..ENOUGH - 1).for_each(|_| trust.confirm());
        assert!(!trust.is_earned());
        trust.confirm();
        trust.confirm();
        assert!(trust.is_earned() && !trust.is_refused());
        trust.refuse();
        trust.confirm();
        assert!(trust.is_refused() && !trust.is_earned());
    }
}
