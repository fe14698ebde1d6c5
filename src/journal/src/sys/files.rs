//! Files and directories, opened so that nobody else can redirect them: every name is taken relative to an open
//! directory, no link is followed, nothing that exists is written to.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// An open directory that only this user (or root) can change.
#[derive(Debug)]
pub(crate) struct SafeDir {
    handle: File,
    path: PathBuf,
}

/// The effective user id.
pub(crate) fn user() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

fn name_of(name: &str) -> io::Result<CString> {
    if name.contains('/') || name.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file name must not contain a slash"));
    }
    CString::new(name).map_err(io::Error::other)
}

fn open_at(dir: i32, name: &CStr, flags: i32, mode: u32) -> io::Result<File> {
    // SAFETY: `name` is NUL-terminated and outlives the call; `dir` is AT_FDCWD or an open directory.
    let fd = unsafe { libc::openat(dir, name.as_ptr(), flags | libc::O_CLOEXEC | libc::O_NOFOLLOW, mode) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open and owned by nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

impl SafeDir {
    /// Opens `path` for writing journals, creating it if it is missing. A directory that others may write to is not
    /// used itself: the files go to a sub-folder `weir-UID` that belongs to this user alone.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if !path.exists() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        let dir = Self::open_plain(path)?;
        let meta = dir.handle.metadata()?;
        let mine = meta.uid() == user();
        if mine && meta.mode() & 0o022 == 0 {
            return Ok(dir);
        }
        if meta.mode() & 0o002 != 0 && meta.mode() & 0o1000 == 0 && !mine {
            return Err(refused(path, "anybody may replace files in it (world-writable without the sticky bit)"));
        }
        dir.own_folder()
    }

    /// A folder of this user alone in a directory that all may write to.
    pub(crate) fn private(path: &Path) -> io::Result<Self> {
        Self::open_plain(path)?.own_folder()
    }

    fn own_folder(&self) -> io::Result<Self> {
        // A name that somebody else took first is not used, and keeps nobody from the next.
        let mut taken = None;
        for name in sub_folders(user()) {
            match self.sub_folder(&name) {
                Ok(inner) => return Ok(inner),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() => {
                    taken = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(taken.unwrap_or_else(|| refused(&self.path, "it has no folder for this user")))
    }

    /// A folder inside that belongs to this user alone, made if it is missing.
    pub(crate) fn sub_folder(&self, name: &str) -> io::Result<Self> {
        let inner = name_of(name)?;
        let path = self.path.join(name);
        // SAFETY: the directory is open, the name NUL-terminated.
        if unsafe { libc::mkdirat(self.handle.as_raw_fd(), inner.as_ptr(), 0o700) } != 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
        }
        let handle = match open_at(self.handle.as_raw_fd(), &inner, libc::O_RDONLY | libc::O_DIRECTORY, 0) {
            Ok(handle) => handle,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::ELOOP | libc::ENOTDIR)) => {
                return Err(refused(&path, "it is not a folder of this user"));
            }
            Err(error) => return Err(error),
        };
        let meta = handle.metadata()?;
        if meta.uid() != user() {
            return Err(refused(&path, "it belongs to somebody else"));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(refused(&path, "others may enter it (mode must be 0700)"));
        }
        Ok(Self { handle, path })
    }

    /// Opens an existing directory without checking who may write to it, for reading and clearing up.
    pub(crate) fn open_plain(path: &Path) -> io::Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
        let handle = open_at(libc::AT_FDCWD, &name, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        Ok(Self { handle, path: path.to_path_buf() })
    }

    /// The open directory.
    pub(crate) fn handle(&self) -> &File {
        &self.handle
    }

    /// Where it is, for messages and for showing paths to the user.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a file that did not exist, readable and writable by this user alone.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let file = open_at(self.handle.as_raw_fd(), &name_of(name)?, flags, 0o600)?;
        // The umask may have taken more away than it should.
        // SAFETY: the descriptor is open.
        unsafe { libc::fchmod(file.as_raw_fd(), 0o600) };
        Ok(file)
    }

    /// Opens a file for reading if it is a plain file of this user, of which this is the only name.
    pub(crate) fn open_own(&self, name: &str) -> io::Result<File> {
        let file = open_at(self.handle.as_raw_fd(), &name_of(name)?, libc::O_RDONLY | libc::O_NONBLOCK, 0)?;
        let meta = file.metadata()?;
        if !meta.is_file() || meta.uid() != user() || meta.nlink() > 1 {
            return Err(refused(&self.path.join(name), "it is not a plain file of this user alone"));
        }
        Ok(file)
    }

    /// Gives a file another name, replacing what had that name.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to, dir) = (name_of(from)?, name_of(to)?, self.handle.as_raw_fd());
        // SAFETY: the directory is open, both names are NUL-terminated.
        let done = unsafe { libc::renameat(dir, from.as_ptr(), dir, to.as_ptr()) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// An existing folder inside that belongs to this user; links are not followed.
    pub(crate) fn folder(&self, name: &str) -> io::Result<Self> {
        let handle = open_at(self.handle.as_raw_fd(), &name_of(name)?, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
        let path = self.path.join(name);
        if handle.metadata()?.uid() != user() {
            return Err(refused(&path, "it belongs to somebody else"));
        }
        Ok(Self { handle, path })
    }

    /// The names and sizes of what is in it.
    pub(crate) fn content(&self) -> io::Result<Vec<(String, u64)>> {
        let listed = std::fs::read_dir(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))?;
        let named = listed.flatten().filter_map(|entry| {
            let size = entry.path().symlink_metadata().map_or(0, |meta| meta.len());
            Some((entry.file_name().into_string().ok()?, size))
        });
        Ok(named.collect())
    }

    /// When something was last made or removed in it, as a number that changes with each moment.
    pub(crate) fn changed(&self) -> u64 {
        let nanos = |meta: std::fs::Metadata| meta.mtime().wrapping_mul(1_000_000_000).wrapping_add(meta.mtime_nsec());
        self.handle.metadata().map_or(0, |meta| nanos(meta) as u64)
    }

    /// Bytes that this user may still write to the file system.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        // SAFETY: the directory is open; the structure is plain numbers, all of which may be zero.
        let mut found: libc::statvfs = unsafe { core::mem::zeroed() };
        // SAFETY: the directory is open and `found` a valid place for the answer.
        if unsafe { libc::fstatvfs(self.handle.as_raw_fd(), &raw mut found) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Removes a folder if nothing is in it.
    pub(crate) fn remove_empty(&self, name: &str) -> io::Result<()> {
        let name = name_of(name)?;
        // SAFETY: the directory is open, the name NUL-terminated.
        let done = unsafe { libc::unlinkat(self.handle.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Removes a folder and the files in it; one with folders in it stays, as does what links lead to.
    pub(crate) fn remove_folder(&self, name: &str) -> io::Result<()> {
        let folder = self.folder(name)?;
        for (file, _) in folder.content()? {
            folder.remove(&file)?;
        }
        self.remove_empty(name)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let name = name_of(name)?;
        // SAFETY: the directory is open, the name NUL-terminated.
        let done = unsafe { libc::unlinkat(self.handle.as_raw_fd(), name.as_ptr(), 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// The folders of a user in a directory that others may write to, in the order in which they are tried.
pub(crate) fn sub_folders(user: u32) -> impl Iterator<Item = String> {
    (0..100).map(move |turn| if turn == 0 { format!("weir-{user}") } else { format!("weir-{user}-{turn}") })
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {why}", path.display()))
}

/// Gives a file its whole size on disk now, so that no later store can find the disk full.
pub(crate) fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    if bytes > file_size_limit() {
        return Err(io::Error::new(io::ErrorKind::StorageFull, "the process may not write files of this size"));
    }
    // SAFETY: the descriptor is open for writing.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// The largest file that this process may write. Going beyond raises a signal that ends it, so ask first.
pub(crate) fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if done == 0 { limit.rlim_cur } else { 0 }
}

/// Locks a file for as long as it stays open, unless another process has locked it.
pub(crate) fn try_lock(file: &File) -> bool {
    // SAFETY: the descriptor is open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Whether nobody has locked a file.
pub(crate) fn try_lock_shared(file: &File) -> bool {
    // SAFETY: the descriptor is open.
    unsafe {
        let free = libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) == 0;
        if free {
            libc::flock(file.as_raw_fd(), libc::LOCK_UN);
        }
        free
    }
}

/// Whether this descriptor still is the file it was. A job may close every descriptor it finds and reuse the number.
pub(crate) fn is_same(file: &File, device: u64, inode: u64) -> bool {
    file.metadata().is_ok_and(|meta| meta.dev() == device && meta.ino() == inode)
}

/// Closes a descriptor that was inherited over a fork and that nobody will use or close again.
pub(crate) fn close_inherited(file: &File) {
    // SAFETY: the caller has made sure that the number still is this file, and keeps it from being dropped.
    unsafe { libc::close(file.as_raw_fd()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-files-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_private_directory_is_used_itself_and_files_are_private() {
        let path = scratch("private");
        let dir = SafeDir::open(&path.join("a/b")).unwrap();
        let file = dir.create("x.weir").unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(path.join("a/b")).unwrap().mode() & 0o777, 0o700);
        assert!(dir.create("x.weir").is_err(), "an existing file must not be taken");
        assert!(dir.create("../x").is_err());
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_shared_directory_gets_a_private_sub_folder() {
        let path = scratch("shared");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o1777)).unwrap();
        let dir = SafeDir::open(&path).unwrap();
        assert_eq!(dir.path(), path.join(format!("weir-{}", user())));
        assert_eq!(std::fs::metadata(dir.path()).unwrap().mode() & 0o777, 0o700);
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let next = SafeDir::open(&path).unwrap();
        assert_eq!(next.path(), path.join(format!("weir-{}-1", user())), "not one that others may enter");
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn links_are_not_followed() {
        let path = scratch("links");
        std::fs::create_dir(path.join("real")).unwrap();
        symlink(path.join("real"), path.join("link")).unwrap();
        assert!(SafeDir::open(&path.join("link")).is_err());
        let dir = SafeDir::open(&path.join("real")).unwrap();
        std::fs::write(path.join("target"), "precious").unwrap();
        symlink(path.join("target"), path.join("real/j")).unwrap();
        assert!(dir.create("j").is_err() && dir.open_own("j").is_err());
        std::fs::hard_link(path.join("target"), path.join("real/h")).unwrap();
        assert!(dir.create("h").is_err() && dir.open_own("h").is_err());
        assert_eq!(std::fs::read(path.join("target")).unwrap(), b"precious");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o1777)).unwrap();
        symlink(path.join("real"), path.join(format!("weir-{}", user()))).unwrap();
        let next = SafeDir::open(&path).unwrap();
        assert_eq!(next.path(), path.join(format!("weir-{}-1", user())), "not where a planted link leads");
        std::fs::remove_dir_all(path).unwrap();
    }
}
