//! What weir must leave as it found it: errno, signals, standard error's reader.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_pool::ranks;

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

/// How long a text waits for the reader behind standard error, or for whatever else a descriptor leads to.
const PATIENCE: Duration = Duration::from_secs(2);
/// A pipe that has room at all has room for so much.
const AT_ONCE: usize = 4096;
/// The last text was not taken in all that time: until one is, none waits.
static STUCK: AtomicBool = AtomicBool::new(false);

/// Writes to a descriptor without raising a signal in the job: a closed pipe behind stderr (SIGPIPE) and a file size limit
/// (SIGXFSZ) are failures like any other. A pipe that nobody reads and a terminal that is stopped are waited for, but not
/// for ever. True if all was written.
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
        let written = write_within(fd, text);
        if !written {
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
        written
    }
}

/// Writes as much at a time as there is room for, and waits for room no longer than a text may.
fn write_within(fd: c_int, text: &[u8]) -> bool {
    let patience = if STUCK.load(Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
    let until = Instant::now() + patience;
    let mut rest = text;
    while !rest.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        let mut room = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one descriptor, in a live local.
        let ready = unsafe { libc::poll(&raw mut room, 1, left.as_millis() as c_int) };
        if ready == 0 {
            STUCK.store(true, Ordering::Relaxed);
            return false;
        }
        let now = rest.get(..AT_ONCE).unwrap_or(rest);
        // SAFETY: the text lives through the call.
        let written = if ready > 0 { unsafe { libc::write(fd, now.as_ptr().cast(), now.len()) } } else { -1 };
        if written < 0 {
            // A signal of the job's has come; or the job reads without blocking, and another thread was faster.
            let again = std::io::Error::last_os_error().raw_os_error();
            if matches!(again, Some(libc::EINTR | libc::EAGAIN)) && !left.is_zero() {
                continue;
            }
            return false;
        }
        rest = rest.get(written as usize..).unwrap_or_default();
    }
    STUCK.store(false, Ordering::Relaxed);
    true
}

/// One line of weir's on standard error. It may quote the environment, which must not steer a terminal.
#[track_caller]
pub(crate) fn say(line: &str) {
    print(&format!("weir: {}\n", weir_journal::text::plain(line)));
}

/// A text of weir's on standard error. Not under a lock: it may wait for the reader.
#[track_caller]
pub(crate) fn print(text: &str) {
    ranks::waiting("standard error");
    write_quietly(2, text.as_bytes());
}
