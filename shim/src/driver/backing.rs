//! Memory of the host that stands for device memory: only the virtual GPU has it, in the job's own process.
//!
//! It is resident memory of the process, and yet nothing that the job keeps on the host: on a GPU it would not be there.

use super::library::DRIVER;
use crate::process::linker;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

static COUNTER: AtomicUsize = AtomicUsize::new(0);
const STATUS: &CStr = c"/proc/self/status";
const SHARED: &[u8] = b"RssShmem:";

/// Whether the driver is the virtual GPU, and has such memory.
pub(crate) fn is_there() -> bool {
    let counter = linker::lookup(DRIVER.handle(), c"vgpu_host_bytes");
    linker::clear_error();
    COUNTER.store(counter, Ordering::Release);
    counter != 0
}

/// Its resident bytes. Part of what lies behind device memory may not be mapped now, and is not resident then; all of it is
/// shared memory to the kernel. One read of a file.
pub(crate) fn resident() -> u64 {
    let counter = COUNTER.load(Ordering::Acquire);
    if counter == 0 {
        return 0;
    }
    // SAFETY: the virtual GPU's function of this name takes nothing, locks nothing and answers a number.
    let bytes = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> u64>(counter)() };
    if bytes == 0 { 0 } else { bytes.min(shared().unwrap_or(0)) }
}

/// Resident shared memory of this process.
fn shared() -> Option<u64> {
    let mut text = [0_u8; 4096];
    // SAFETY: the name is a C string, the descriptor is this function's own, and the buffer is as long as its length argument.
    let length = unsafe {
        let file = libc::open(STATUS.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length
    };
    in_status(text.get(..usize::try_from(length).ok()?)?)
}

/// The bytes of shared memory in the kernel's text.
fn in_status(text: &[u8]) -> Option<u64> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(SHARED))?;
    let digits = line.iter().filter(|byte| byte.is_ascii_digit());
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    digits.into_iter().try_fold(0, add)?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_read_from_the_kernels_text() {
        assert_eq!(
            in_status(b"Name:\tpython\nRssFile:\t   500 kB\nRssShmem:\t   2048 kB\nVmData:\t 7 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(in_status(b"Name:\tpython\n"), None);
        assert!(shared().is_some());
        assert_eq!(resident(), 0, "no virtual GPU here");
    }
}
