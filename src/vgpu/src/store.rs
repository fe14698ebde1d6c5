//! The bytes behind device memory: memory files, so that two mappings share bytes and another
//! process can map them too. The only module that maps or unmaps memory of the job's address space.

use crate::error::{OUT_OF_MEMORY, R};
use std::os::fd::RawFd;

/// Address space without bytes: touching it is a fault.
pub(crate) fn reserve(bytes: u64, align: u64, hint: u64) -> R<u64> {
    let len = bytes.checked_add(align).ok_or(OUT_OF_MEMORY)? as usize;
    // SAFETY: asks the kernel for a fresh range; a hint is only a hint without MAP_FIXED.
    let got = unsafe {
        libc::mmap(
            hint as *mut libc::c_void,
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

/// Gives address space back, with whatever is mapped there.
pub(crate) fn unreserve(addr: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: callers own the range: it came from `reserve` or `File::map`.
        unsafe { libc::munmap(addr as *mut libc::c_void, bytes as usize) };
    }
}

/// Puts bare reserved address space where something was mapped.
pub(crate) fn unmap(addr: u64, bytes: u64) {
    // SAFETY: replaces a mapping inside a range that this driver reserved.
    unsafe {
        libc::mmap(
            addr as *mut libc::c_void,
            bytes as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
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

/// Changes what instructions may do in a mapped range.
pub(crate) fn protect(addr: u64, bytes: u64, protection: Protection) -> R {
    // SAFETY: changes the rights of a range that this driver mapped.
    let done = unsafe { libc::mprotect(addr as *mut libc::c_void, bytes as usize, protection.bits()) };
    if done == 0 { Ok(()) } else { Err(OUT_OF_MEMORY) }
}

/// A sparse memory file.
pub(crate) struct File {
    fd: RawFd,
}

impl File {
    pub(crate) fn new(name: &std::ffi::CStr, bytes: u64) -> R<Self> {
        // SAFETY: a NUL-terminated name.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
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
        Ok(Self { fd })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Maps `bytes` from `offset` over the reserved range at `addr`.
    pub(crate) fn map(&self, addr: u64, bytes: u64, offset: u64, protection: Protection) -> R {
        map_fd(self.fd, addr, bytes, offset, protection)
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

/// Maps a range of an open memory file over reserved address space.
pub(crate) fn map_fd(fd: RawFd, addr: u64, bytes: u64, offset: u64, protection: Protection) -> R {
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
