//! What the two kill tests share (that of the journal alone in src/journal, and that of jobs under libweir.so here): the
//! truth that a fixture keeps in a mapped file, and how it is made to die.

use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maps so many words of truth. The first says that the fixture has begun.
pub(crate) fn map_truth(path: &Path, words: usize) -> &'static [AtomicU64] {
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    file.set_len(words as u64 * 8).unwrap();
    // SAFETY: a fresh shared mapping of a file that is long enough, seen only as atomics.
    unsafe {
        let flags = libc::PROT_READ | libc::PROT_WRITE;
        let start = libc::mmap(std::ptr::null_mut(), words * 8, flags, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(start, libc::MAP_FAILED);
        std::slice::from_raw_parts(start.cast(), words)
    }
}

/// Gives a mapping back.
///
/// # Safety
/// It came from [`map_truth`] and is not used any more.
pub(crate) unsafe fn unmap(truth: &'static [AtomicU64]) {
    // SAFETY: as promised.
    unsafe { libc::munmap(truth.as_ptr().cast_mut().cast(), std::mem::size_of_val(truth)) };
}

/// Waits until the fixture has begun, kills it after so many nanoseconds if that is its death, and waits for its end.
/// Returns what it wrote to a standard error that is piped, if it did not end in that way.
pub(crate) fn dies(mut fixture: Child, truth: &[AtomicU64], death: &str, after: u64) -> Result<(), String> {
    while truth[0].load(Ordering::SeqCst) == 0 {
        assert!(fixture.try_wait().unwrap().is_none(), "the fixture did not start");
        std::thread::sleep(Duration::from_micros(200));
    }
    if death == "kill" {
        std::thread::sleep(Duration::from_nanos(after));
        fixture.kill().unwrap();
    }
    let output = fixture.wait_with_output().unwrap();
    let status = output.status;
    let expected = match death {
        "kill" => status.signal() == Some(libc::SIGKILL),
        "segfault" => status.signal() == Some(libc::SIGSEGV),
        "abort" => status.signal() == Some(libc::SIGABRT),
        "handler" => status.code() == Some(3),
        _ => status.success(),
    };
    if expected { Ok(()) } else { Err(format!("{death}: {status}: {}", String::from_utf8_lossy(&output.stderr))) }
}
