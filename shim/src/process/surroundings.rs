//! What weir must leave as it found it: errno, signals, standard error's reader.

use core::ffi::c_int;

/// Puts errno back when it goes.
pub(crate) struct Errno(c_int);

impl Errno {
    /// Keeps errno as it is now.
    pub(crate) fn keep() -> Self {
        // SAFETY: the location is the calling thread's own.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// Writes to a descriptor without raising a signal in the job: a closed pipe behind stderr
/// (SIGPIPE) and a file size limit (SIGXFSZ) are failures like any other. True if all was written.
pub(crate) fn write_quietly(fd: c_int, text: &[u8]) -> bool {
    // SAFETY: all sets are initialised by sigemptyset before use; the thread's mask is put back; a
    // signal that this write raised is taken off while it is blocked, one that was pending before is
    // left alone.
    unsafe {
        let mut quiet: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        let mut pending: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&raw mut quiet);
        libc::sigaddset(&raw mut quiet, libc::SIGPIPE);
        libc::sigaddset(&raw mut quiet, libc::SIGXFSZ);
        libc::sigpending(&raw mut pending);
        if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const quiet, &raw mut before) != 0 {
            return false;
        }
        let written = libc::write(fd, text.as_ptr().cast(), text.len());
        if written < 0 {
            let at_once: libc::timespec = core::mem::zeroed();
            for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
                if libc::sigismember(&raw const pending, signal) == 0 {
                    let mut one: libc::sigset_t = core::mem::zeroed();
                    libc::sigemptyset(&raw mut one);
                    libc::sigaddset(&raw mut one, signal);
                    libc::sigtimedwait(&raw const one, core::ptr::null_mut(), &raw const at_once);
                }
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        written == text.len() as isize
    }
}

/// One line of weir's on standard error. It may quote the environment, which must not steer a terminal.
pub(crate) fn say(line: &str) {
    write_quietly(2, format!("weir: {}\n", weir_journal::text::plain(line)).as_bytes());
}
