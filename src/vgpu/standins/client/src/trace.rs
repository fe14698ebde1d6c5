//! Calls of library functions in the log that `VGPU_TRACE` names, beside the driver's calls.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;

fn log() -> Option<&'static File> {
    static LOG: OnceLock<Option<File>> = OnceLock::new();
    LOG.get_or_init(|| {
        let path = std::env::var_os("VGPU_TRACE").filter(|path| !path.is_empty())?;
        OpenOptions::new().append(true).create(true).open(path).ok()
    })
    .as_ref()
}

/// Logs the call of a library's function: when, by whom, which.
pub fn called(function: &str) {
    let Some(mut log) = log() else { return };
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let t = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    // By number: glibc has a function for it only since 2.30.
    // SAFETY: has no arguments and cannot fail.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    let line = format!("{{\"t\":{t},\"pid\":{},\"tid\":{tid},\"fn\":\"{function}\"}}\n", std::process::id());
    // One write a line; a log that cannot be written is no reason to fail the call.
    let _ = log.write_all(line.as_bytes());
}
