//! A file that stays open for the life of the process, in a process that may close descriptors it did
//! not open. Every use first makes sure that the descriptor still names our file.

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire};

/// Descriptors below this are left to the program, which may count on getting 0, 1, 2 or the next one.
const LOWEST: RawFd = 100;

/// The file under a descriptor: what distinguishes it from any other.
struct Open {
    fd: RawFd,
    device: u64,
    inode: u64,
}

/// A file that is opened again by its path when somebody else has closed it.
pub(crate) struct HeldFile {
    path: CString,
    flags: i32,
    /// Never null. A replaced one is leaked: another thread may be looking at it.
    open: AtomicPtr<Open>,
}

impl HeldFile {
    /// Opens a file with these open(2) flags, for its owner alone where it is created.
    pub(crate) fn open(path: &Path, flags: i32) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let open = Box::into_raw(Box::new(open(&path, flags)?));
        Ok(Self { path, flags, open: AtomicPtr::new(open) })
    }

    /// A descriptor that names the file right now.
    pub(crate) fn fd(&self) -> io::Result<RawFd> {
        let seen = self.open.load(Acquire);
        // SAFETY: the pointer is never null and what it names is never freed.
        let held = unsafe { &*seen };
        if identity(held.fd).is_ok_and(|found| found == (held.device, held.inode)) {
            return Ok(held.fd);
        }
        let fresh = open(&self.path, self.flags)?;
        let fd = fresh.fd;
        let fresh = Box::into_raw(Box::new(fresh));
        match self.open.compare_exchange(seen, fresh, AcqRel, Acquire) {
            Ok(_) => Ok(fd),
            Err(other) => {
                // SAFETY: nobody else has seen `fresh`, and its descriptor is ours.
                unsafe { drop(Box::from_raw(fresh)) };
                close(fd);
                // SAFETY: as above, never null and never freed.
                Ok(unsafe { &*other }.fd)
            }
        }
    }

    /// Closes the descriptor if it still names the file: for a forked child, which must not keep its
    /// parent's open file.
    pub(crate) fn close(&self) {
        // SAFETY: never null and never freed.
        let held = unsafe { &*self.open.load(Acquire) };
        if identity(held.fd).is_ok_and(|found| found == (held.device, held.inode)) {
            close(held.fd);
        }
    }

    /// Appends with one write, which the kernel keeps whole where the file was opened with `O_APPEND`.
    pub(crate) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let fd = self.fd()?;
        // SAFETY: the buffer is valid for its length.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        if written == bytes.len() as isize {
            Ok(())
        } else if written < 0 {
            Err(io::Error::last_os_error())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }
}

fn open(path: &CString, flags: i32) -> io::Result<Open> {
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain descriptor arithmetic on a descriptor of ours.
    let high = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, LOWEST) };
    let fd = if high < 0 {
        fd
    } else {
        close(fd);
        high
    };
    let (device, inode) = identity(fd)?;
    Ok(Open { fd, device, inode })
}

fn close(fd: RawFd) {
    // SAFETY: the caller owns the descriptor.
    unsafe { libc::close(fd) };
}

fn identity(fd: RawFd) -> io::Result<(u64, u64)> {
    let stat = stat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// What fstat(2) says of a descriptor.
pub(super) fn stat(fd: RawFd) -> io::Result<libc::stat> {
    // SAFETY: a stat of zeroes is a valid one, and the kernel fills it.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `stat` is ours.
    if unsafe { libc::fstat(fd, &raw mut stat) } == 0 { Ok(stat) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_closed_by_others_is_opened_again_and_a_reused_number_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("vgpu-held-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("trace");
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT;
        let file = HeldFile::open(&path, flags).expect("a file");
        file.append(b"one\n").expect("a line");
        let fd = file.fd().expect("a descriptor");
        assert!(fd >= LOWEST);
        // Somebody closes it and gets the same number for a file of his own.
        let other = std::fs::File::create(folder.join("other")).expect("a file");
        // SAFETY: the number of the other file replaces that of ours.
        let reused = unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&other), fd) };
        assert_eq!(reused, fd);
        file.append(b"two\n").expect("a line");
        assert_eq!(std::fs::read_to_string(&path).expect("the trace"), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(folder.join("other")).expect("the other"), "");
        std::fs::remove_dir_all(&folder).expect("cleared");
    }
}
