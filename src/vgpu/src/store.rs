//! The bytes behind device memory: memory files, so that two mappings share bytes and another
//! process can map them too. The only module that maps or unmaps memory of the job's address space.
//!
//! Device addresses lie in one window of the address space and have no bytes there: an instruction
//! of the host that touches one is a fault, as it is with a device's own memory. The driver itself
//! reads and writes through a view of the same bytes, a fixed distance above.

use crate::error::{NOT_SUPPORTED, OUT_OF_MEMORY, R};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where device addresses lie: above the shadow memory of sanitizers, below programs and libraries.
const WINDOW: std::ops::Range<u64> = 0x1100_0000_0000..0x3000_0000_0000;
/// How far above a device address the driver's own view of it lies.
const VIEW: u64 = 0x2000_0000_0000;

/// What is taken of the window, and where the search for room goes on: an address returned comes
/// into use again as late as possible.
struct Taken {
    ranges: BTreeMap<u64, u64>,
    next: u64,
}

static TAKEN: Mutex<Taken> = Mutex::new(Taken { ranges: BTreeMap::new(), next: WINDOW.start });

impl Taken {
    /// Room for `bytes` in `from..to`.
    fn room(&self, bytes: u64, align: u64, from: u64, to: u64) -> Option<u64> {
        let mut start = from.checked_next_multiple_of(align)?;
        while start.checked_add(bytes)? <= to {
            match self.ranges.range(..start + bytes).next_back() {
                Some((&at, &len)) if at + len > start => start = (at + len).checked_next_multiple_of(align)?,
                _ => return Some(start),
            }
        }
        None
    }
}

/// Device addresses without bytes.
pub(crate) fn reserve_device(bytes: u64, align: u64, hint: u64) -> R<u64> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let hinted = hint >= WINDOW.start && taken.room(bytes, align, hint, WINDOW.end) == Some(hint);
    let mut from = if hinted { hint } else { taken.next };
    let mut wrapped = false;
    let start = loop {
        let Some(start) = taken.room(bytes, align, from, WINDOW.end) else {
            if std::mem::replace(&mut wrapped, true) {
                return Err(OUT_OF_MEMORY);
            }
            from = WINDOW.start;
            continue;
        };
        if bare(start, bytes) {
            if bare(start + VIEW, bytes) {
                break start;
            }
            unreserve(start, bytes);
        }
        // Something else of the process lies there.
        from = start + align.max(1 << 30);
    };
    taken.ranges.insert(start, bytes);
    if !hinted {
        taken.next = start + bytes;
    }
    Ok(start)
}

/// Gives device addresses back, with whatever is mapped there.
pub(crate) fn unreserve_device(addr: u64) {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = taken.ranges.remove(&addr) {
        unreserve(addr, bytes);
        unreserve(addr + VIEW, bytes);
    }
}

/// Whether an address is a device's.
pub(crate) fn on_device(addr: u64) -> bool {
    WINDOW.contains(&addr)
}

/// Where the driver finds the bytes of an address: its own view of a device's, else the address.
pub(crate) fn view(addr: u64) -> u64 {
    if on_device(addr) { addr + VIEW } else { addr }
}

/// Takes exactly this range, if it is free.
fn bare(addr: u64, bytes: u64) -> bool {
    // SAFETY: MAP_FIXED_NOREPLACE never touches what is mapped already.
    let got = unsafe {
        libc::mmap(
            addr as *mut libc::c_void,
            bytes as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    if got == libc::MAP_FAILED {
        return false;
    }
    // A kernel that does not know the flag takes the address as a hint.
    if got as u64 != addr {
        unreserve(got as u64, bytes);
    }
    got as u64 == addr
}

/// Address space of the host without bytes: touching it is a fault.
pub(crate) fn reserve(bytes: u64, align: u64) -> R<u64> {
    let len = bytes.checked_add(align).ok_or(OUT_OF_MEMORY)? as usize;
    // SAFETY: maps a fresh range.
    let got = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if got == libc::MAP_FAILED {
        return Err(OUT_OF_MEMORY);
    }
    let start = got as u64;
    let aligned = start.next_multiple_of(align);
    unreserve(start, aligned - start);
    unreserve(aligned + bytes, start + len as u64 - aligned - bytes);
    Ok(aligned)
}

/// Gives address space of the host back, with whatever is mapped there.
pub(crate) fn unreserve(addr: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: callers own the range: it came from `reserve` or `File::map`.
        unsafe { libc::munmap(addr as *mut libc::c_void, bytes as usize) };
    }
}

/// Takes the bytes away from device addresses.
pub(crate) fn unmap(addr: u64, bytes: u64) {
    for start in [addr, addr + VIEW] {
        // SAFETY: replaces a mapping inside a range that this driver reserved.
        unsafe {
            libc::mmap(
                start as *mut libc::c_void,
                bytes as usize,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
    }
}

/// What an instruction may do at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protection {
    None,
    Read,
    ReadWrite,
}

impl Protection {
    fn bits(self) -> i32 {
        match self {
            Self::None => libc::PROT_NONE,
            Self::Read => libc::PROT_READ,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// Changes what instructions may do in a range of the host.
pub(crate) fn protect(addr: u64, bytes: u64, protection: Protection) -> R {
    // SAFETY: changes the rights of a range that this driver mapped.
    let done = unsafe { libc::mprotect(addr as *mut libc::c_void, bytes as usize, protection.bits()) };
    if done == 0 { Ok(()) } else { Err(OUT_OF_MEMORY) }
}

/// The memory files of this process; -1 is none. Files are made once for a device and never closed.
static FILES: [AtomicI32; 256] = [const { AtomicI32::new(-1) }; 256];

/// Bytes in them that the job requested as memory of the host.
pub(crate) static ON_HOST: AtomicU64 = AtomicU64::new(0);

/// Bytes of the host's memory that lie behind device memory. Takes no lock.
pub(crate) fn host_bytes() -> u64 {
    let files = FILES.iter().map(|file| file.load(Ordering::Acquire)).take_while(|fd| *fd >= 0);
    files.map(allocated).sum::<u64>().saturating_sub(ON_HOST.load(Ordering::Relaxed))
}

/// Bytes that a sparse file takes.
fn allocated(fd: RawFd) -> u64 {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the place is a live local, which is read only if the kernel has filled it.
    unsafe { if libc::fstat(fd, status.as_mut_ptr()) == 0 { status.assume_init().st_blocks as u64 * 512 } else { 0 } }
}

/// A file in memory; negative if there can be none.
pub(crate) fn memory_file(name: &std::ffi::CStr) -> RawFd {
    // By number: glibc has a function for it only since 2.27.
    // SAFETY: a NUL-terminated name.
    unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) as RawFd }
}

/// A sparse memory file.
pub(crate) struct File {
    fd: RawFd,
}

impl File {
    pub(crate) fn new(name: &std::ffi::CStr, bytes: u64) -> R<Self> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the place is a live local.
        if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0 && limit.rlim_cur < bytes {
            // Going on would bring SIGXFSZ, which ends the process.
            return Err(NOT_SUPPORTED);
        }
        let fd = memory_file(name);
        if fd < 0 {
            return Err(OUT_OF_MEMORY);
        }
        // Out of the way of programs that expect the low numbers to be theirs.
        // SAFETY: duplicates and closes a descriptor that is ours.
        let high = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 200) };
        let fd = if high >= 0 {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
            high
        } else {
            fd
        };
        // SAFETY: our own descriptor.
        if unsafe { libc::ftruncate(fd, bytes as libc::off_t) } != 0 {
            return Err(OUT_OF_MEMORY);
        }
        // One too many is not counted.
        let free = |file: &&AtomicI32| file.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        FILES.iter().find(free);
        Ok(Self { fd })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Puts `bytes` from `offset` behind the device addresses at `addr`.
    pub(crate) fn map(&self, addr: u64, bytes: u64, offset: u64) -> R {
        map_device(self.fd, addr, bytes, offset)
    }

    /// Makes `bytes` from `offset` zero again and returns their memory to the machine.
    pub(crate) fn clear(&self, offset: u64, bytes: u64) {
        // SAFETY: our own descriptor; the range is a part of the file.
        unsafe {
            libc::fallocate(
                self.fd,
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                offset as libc::off_t,
                bytes as libc::off_t,
            )
        };
    }
}

/// Puts a range of an open memory file behind device addresses, for the driver alone.
pub(crate) fn map_device(fd: RawFd, addr: u64, bytes: u64, offset: u64) -> R {
    if crate::config::fault("host_touches_device") {
        map_fd(fd, addr, bytes, offset, Protection::ReadWrite)?;
    }
    map_fd(fd, addr + VIEW, bytes, offset, Protection::ReadWrite)
}

/// Lets instructions of the host touch a range of device addresses, or no longer.
pub(crate) fn map_for_host(fd: RawFd, addr: u64, bytes: u64, offset: u64, protection: Protection) -> R {
    map_fd(fd, addr, bytes, offset, protection)
}

fn map_fd(fd: RawFd, addr: u64, bytes: u64, offset: u64, protection: Protection) -> R {
    // SAFETY: MAP_FIXED inside a range that this driver reserved and knows to be unmapped.
    let got = unsafe {
        libc::mmap(
            addr as *mut libc::c_void,
            bytes as usize,
            protection.bits(),
            libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED,
            fd,
            offset as libc::off_t,
        )
    };
    if got == libc::MAP_FAILED {
        return Err(OUT_OF_MEMORY);
    }
    // A forked child has no device: what it wrote would appear in the parent's memory.
    // SAFETY: advice on the mapping just made.
    unsafe { libc::madvise(addr as *mut libc::c_void, bytes as usize, libc::MADV_DONTFORK) };
    Ok(())
}
