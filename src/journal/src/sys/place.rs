//! Whether a directory is fit for a journal, and where journals go instead. A journal is a mapped file, and a store to it may
//! be a page fault: on a remote or slow file system one takes as long as the network does, in the middle of the job.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::files::{self, SafeDir};

/// File systems that are, or may be, on another machine or behind another process: what statfs(2) calls them.
const REMOTE: [(u64, &str); 14] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x00C3_6400, "Ceph"),
    (0x1983_0326, "BeeGFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0x2003_0528, "OrangeFS"),
    (0x5346_414F, "AFS"),
    (0x7375_7245, "Coda"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
];
/// What is written to see how long it takes, and how long it may. It is tried a few times: a busy machine is not a slow disk.
static PROBE: [u8; 64 << 10] = [0; 64 << 10];
const PATIENCE: Duration = Duration::from_millis(200);
const TRIES: u32 = 3;
/// Directories that every machine has in memory, or at least to itself.
const FAST: [&str; 2] = ["/dev/shm", "/tmp"];

/// The remote file system that an open directory is on.
pub(crate) fn remote(dir: &File) -> Option<&'static str> {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the place is a live local.
    if unsafe { libc::fstatfs(dir.as_raw_fd(), &raw mut found) } != 0 {
        return None;
    }
    // The width of the field differs by architecture; magics have 32 bits.
    let kind = found.f_type as u64 & 0xFFFF_FFFF;
    REMOTE.iter().find(|(magic, _)| *magic == kind).map(|(_, name)| *name)
}

/// Whether writing to a new file takes long each time. Writing more than the process may would end it.
pub(crate) fn slow(file: &File) -> bool {
    PROBE.len() as u64 <= files::file_size_limit() && takes_long(|| file.write_all_at(&PROBE, 0).is_ok())
}

fn takes_long(write: impl Fn() -> bool) -> bool {
    (0..TRIES).all(|_| {
        let began = Instant::now();
        write() && began.elapsed() > PATIENCE
    })
}

/// The folder of journals that would have been in `dir`, below a private folder. Its name has the other's.
fn name(dir: &Path) -> String {
    let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    format!("instead-of-{:08x}", crc32c::crc32c(whole.as_os_str().as_encoded_bytes()))
}

/// Where journals may go instead of `dir`: opened, safe, and not remote.
pub(crate) fn instead(dir: &Path) -> impl Iterator<Item = SafeDir> {
    let name = name(dir);
    FAST.into_iter().filter_map(move |base| {
        let private = SafeDir::private(Path::new(base)).ok()?;
        private.sub_folder(&name).ok().filter(|inner| remote(inner.handle()).is_none())
    })
}

/// Folders of this user that have journals instead of `dir`, for readers. They may hold none.
pub fn folders_instead_of(dir: &Path) -> Vec<PathBuf> {
    let own = |path: &PathBuf| path.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == files::user());
    let inside = |base: &str| {
        files::sub_folders(files::user()).map(|name| Path::new(base).join(name)).filter(own).collect::<Vec<_>>()
    };
    FAST.into_iter().flat_map(inside).map(|private| private.join(name(dir))).filter(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_file_system_is_slow_if_each_write_is() {
        let wait = || std::thread::sleep(PATIENCE + Duration::from_millis(20));
        let always = || {
            wait();
            true
        };
        assert!(takes_long(always));
        let first = Cell::new(true);
        let once = || {
            if first.replace(false) {
                wait();
            }
            true
        };
        assert!(!takes_long(once), "one slow write is a busy machine");
        assert!(!takes_long(|| false), "a full disk is another matter");
    }

    #[test]
    fn the_folder_instead_of_another_is_private_and_has_its_name() {
        let dir = std::env::temp_dir().join(format!("weir-place-{}", std::process::id()));
        assert_eq!(folders_instead_of(&dir), Vec::<PathBuf>::new());
        let place = instead(&dir).next().expect("a folder in memory");
        assert_eq!(place.handle().metadata().unwrap().mode() & 0o777, 0o700);
        assert!(place.path().to_string_lossy().ends_with(&name(&dir)) && name(&dir) != name(Path::new("/")));
        assert!(folders_instead_of(&dir).contains(&place.path().to_owned()));
        std::fs::remove_dir(place.path()).unwrap();
    }

    #[test]
    fn this_machines_own_file_systems_are_not_remote() {
        assert_eq!(remote(&File::open("/dev/shm").unwrap()), None);
        assert_eq!(remote(&File::open("/proc").unwrap()), None);
    }
}
