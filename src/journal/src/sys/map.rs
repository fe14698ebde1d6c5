//! Memory of a journal: a mapped file, or anonymous memory when there can be no file. It is never unmapped: a job's
//! last destructor may still record a free, and a fault there would kill it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

/// A mapping of whole words that lives as long as the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    words: &'static [AtomicU64],
}

impl Mapping {
    /// Maps the first `bytes` of a file that has them, shared with everyone who reads it.
    pub(crate) fn of_file(file: &File, bytes: u64) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Gets the pages of the first `bytes` ready to be written, so that no store there enters the kernel; the others come
    /// with the first store to each. (`MAP_POPULATE` would get pages of a shared mapping ready to be read alone.) From
    /// `scattered` on, a page that comes does not bring adjacent ones. Both are hints.
    pub(crate) fn make_ready(&self, bytes: u64, scattered: u64) {
        let advise = |from: u64, to: u64, what: i32| {
            if let Some(words) = self.words.get(from as usize / 8..to as usize / 8) {
                let place = words.as_ptr().cast_mut().cast();
                // SAFETY: pages of this mapping, which is never unmapped; their content does not change.
                unsafe { libc::madvise(place, std::mem::size_of_val(words), what) };
            }
        };
        let end = std::mem::size_of_val(self.words) as u64;
        advise(0, end, libc::MADV_RANDOM);
        advise(0, bytes.min(end), libc::MADV_POPULATE_WRITE);
        advise(0, scattered / page_size() * page_size(), libc::MADV_NORMAL);
    }

    /// Memory that nobody else sees and that dies with the process.
    pub(crate) fn anonymous(bytes: u64) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    fn map(bytes: u64, flags: i32, fd: i32) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing that exists.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is page-aligned, readable and writable, holds `bytes / 8` whole words, is never unmapped
        // (only replaced in place by `abandon`), and is only ever seen as atomics, for which any bit pattern is valid
        // and shared mutation is allowed.
        let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), bytes / 8) };
        Ok(Self { words })
    }

    /// All words.
    pub(crate) fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// Puts zeroed private memory in place of the file, at the same address. For the child after a fork: whatever it
    /// still writes through an old reference stays its own.
    pub(crate) fn abandon(&self) -> io::Result<()> {
        let bytes = std::mem::size_of_val(self.words);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range is exactly the mapping made by `map`, which this type alone owns; replacing its pages
        // keeps every address valid, and the words are only seen as atomics.
        let start = unsafe {
            libc::mmap(self.words.as_ptr().cast_mut().cast(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Bytes of a page. Not a system call: the C library knows.
pub(crate) fn page_size() -> u64 {
    // SAFETY: sysconf takes a number and touches nothing of ours.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
