//! The only unsafe code: mapping a ledger's words, the locks that the kernel releases at death, sleeping on a word.
//!
//! It touches file descriptors only while a call runs; none is kept, so a job that closes every descriptor does no harm
//! and finds none of ours.
//!
//! **How death is noticed.** A member holds an open-file-description lock on the byte of its row. Such a lock belongs to
//! the open file, and a mapping keeps the file open after its descriptor is closed. The mapping is not inherited by
//! `fork` (`MADV_DONTFORK`). So the lock lives exactly as long as the address space that uses the row: exit, SIGKILL and
//! `exec` end it, closing descriptors and forking do not.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::fault;
use crate::word::SharedWord;

/// Words shared with other processes, or private ones when there is no file.
pub(crate) struct Mapping {
    words: NonNull<SharedWord>,
    len: usize,
    /// A page that the kernel wipes in a child: 1 in the process that made the mapping, 0 in its forks.
    witness: NonNull<AtomicU64>,
}

// SAFETY: the memory is only ever reached through atomics, which may be used from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

const PAGE: usize = 4096;

fn map(len: usize, flags: libc::c_int, fd: libc::c_int) -> io::Result<NonNull<AtomicU64>> {
    // SAFETY: a new mapping at an address of the kernel's choice; it replaces nothing.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

fn advise(at: NonNull<AtomicU64>, len: usize, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: the range is a whole mapping made by `map` a moment ago; these two pieces of advice only change what fork does.
    if unsafe { libc::madvise(at.as_ptr().cast(), len, advice) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

impl Mapping {
    /// Maps `len` words of a file that is at least so long.
    pub(crate) fn of_file(file: &File, len: usize) -> io::Result<Self> {
        if file.metadata()?.len() < (len * 8) as u64 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is too short"));
        }
        Self::new(len, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Maps `len` words that only this process has.
    pub(crate) fn private(len: usize) -> io::Result<Self> {
        Self::new(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    fn new(len: usize, flags: libc::c_int, fd: libc::c_int) -> io::Result<Self> {
        let witness = map(PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        let words = match advise(witness, PAGE, libc::MADV_WIPEONFORK).and_then(|()| map(len * 8, flags, fd)) {
            Ok(words) => words,
            Err(error) => {
                unmap(witness, PAGE);
                return Err(error);
            }
        };
        let this = Self { words: words.cast(), len, witness };
        advise(words, len * 8, libc::MADV_DONTFORK)?;
        this.witness().store(1, Relaxed);
        Ok(this)
    }

    fn witness(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped for the life of `self`, aligned, and only reached through this atomic.
        unsafe { self.witness.as_ref() }
    }

    /// Whether this is the process that made the mapping. In a fork the words are not there and must not be touched.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.witness().load(Relaxed) == 1
    }

    /// The words; `None` in a fork.
    #[inline]
    pub(crate) fn words(&self) -> Option<&[SharedWord]> {
        if !self.is_here() {
            return None;
        }
        // SAFETY: `len` words are mapped readable and writable for the life of `self` (the file was long enough and its
        // blocks are allocated), page alignment suffices for a transparent AtomicU64, any bit pattern is a valid u64, and everybody who
        // maps the file reaches it through atomics only. Somebody of the same user who truncates the file makes the next
        // access fault, as with any mapped file.
        Some(unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) })
    }
}

fn unmap(at: NonNull<AtomicU64>, len: usize) {
    // SAFETY: called once with exactly what `map` gave, by the process that mapped it, when no reference is left.
    unsafe { libc::munmap(at.as_ptr().cast(), len) };
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a fork the words' addresses may belong to somebody else by now: only the witness page is ours.
        if self.is_here() {
            unmap(self.words.cast(), self.len * 8);
        }
        unmap(self.witness, PAGE);
    }
}

/// Allocates the file's blocks, so that a full disk is an error now and not a fault later.
pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0 && limit.rlim_cur < bytes {
        // Going on would bring SIGXFSZ, which ends the job.
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    // SAFETY: plain system call on an open descriptor.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Descriptors are closed in the order of their numbers when a process dies: a member's share must come free after the
/// driver's own descriptors, and so its memory, are gone.
const LATE: libc::c_int = 900;

/// The same open file under a high number, or as it was where there is none.
pub(crate) fn closed_late(file: File) -> File {
    // SAFETY: duplicates a descriptor that is ours.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LATE) };
    if high < 0 {
        return file;
    }
    // SAFETY: the descriptor was made above and belongs to nobody else.
    unsafe { File::from_raw_fd(high) }
}

fn lock_call(file: &File, command: libc::c_int, kind: libc::c_int, first: u64, len: u64) -> io::Result<libc::flock> {
    // SAFETY: flock is plain data for which all-zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = first as libc::off_t;
    lock.l_len = len as libc::off_t;
    // SAFETY: the descriptor is open and `lock` outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } == 0 {
        Ok(lock)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Tries to lock bytes for the life of this open file, mappings included; `false` when another has one of them.
pub(crate) fn try_lock(file: &File, first: u64, len: u64) -> io::Result<bool> {
    match lock_call(file, libc::F_OFD_SETLK, libc::F_WRLCK, first, len) {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives up a lock of [`try_lock`].
pub(crate) fn unlock(file: &File, first: u64, len: u64) -> io::Result<()> {
    lock_call(file, libc::F_OFD_SETLK, libc::F_UNLCK, first, len).map(drop)
}

/// The first byte of the range that another open file has locked.
pub(crate) fn first_locked(file: &File, first: u64, len: u64) -> io::Result<Option<u64>> {
    let answer = lock_call(file, libc::F_OFD_GETLK, libc::F_WRLCK, first, len)?;
    Ok((i32::from(answer.l_type) != libc::F_UNLCK).then_some(answer.l_start as u64))
}

/// Whether a process with this id exists in our pid namespace (a zombie does).
pub(crate) fn process_exists(pid: u32) -> bool {
    if pid == 0 || pid > i32::MAX as u32 {
        return false;
    }
    // SAFETY: signal 0 only queries.
    let answer = unsafe { libc::kill(pid as libc::pid_t, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// The effective user.
pub(crate) fn user() -> u32 {
    // SAFETY: cannot fail, touches nothing.
    unsafe { libc::geteuid() }
}

/// Milliseconds of the monotonic clock, the same for all processes of the machine.
pub(crate) fn now_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// The half of a word that the kernel compares: the one with the low bits.
fn futex_half(word: &SharedWord) -> *mut u32 {
    let half: *mut u32 = word.0.as_ptr().cast();
    if cfg!(target_endian = "big") { half.wrapping_add(1) } else { half }
}

/// Sleeps until the word is no longer `seen`, somebody wakes us, or the time is over.
pub(crate) fn sleep_on(word: &SharedWord, seen: u64, at_most: Duration) {
    fault::step();
    let time = libc::timespec {
        tv_sec: at_most.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(at_most.subsec_nanos()),
    };
    // SAFETY: the word is mapped and aligned; FUTEX_WAIT only reads it. The call returns on any signal, which is fine:
    // the caller looks again.
    unsafe { libc::syscall(libc::SYS_futex, futex_half(word), libc::FUTEX_WAIT, seen as u32, &raw const time) };
}

/// Wakes all who sleep on the word, in every process.
pub(crate) fn wake_all(word: &SharedWord) {
    // SAFETY: FUTEX_WAKE uses the address as a name only.
    unsafe { libc::syscall(libc::SYS_futex, futex_half(word), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_outlives_its_descriptor_and_ends_with_the_mapping() {
        let path = std::env::temp_dir().join(format!("weir-map-{}", std::process::id()));
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let file = open();
        allocate(&file, 4096).unwrap();
        assert!(try_lock(&file, 100, 1).unwrap());
        let mapping = Mapping::of_file(&file, 512).unwrap();
        drop(file);
        let other = open();
        assert_eq!(first_locked(&other, 0, 1000).unwrap(), Some(100), "the mapping keeps the lock");
        assert!(!try_lock(&other, 100, 1).unwrap());
        drop(mapping);
        assert_eq!(first_locked(&other, 0, 1000).unwrap(), None);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_too_short_is_not_mapped() {
        let path = std::env::temp_dir().join(format!("weir-short-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        allocate(&file, 8).unwrap();
        assert!(Mapping::of_file(&file, 2).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
