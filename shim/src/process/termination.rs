//! The message that a container ends with: where Kubernetes reads it, `kubectl describe pod` then says that the container
//! died of GPU memory. Kubernetes mounts `/dev/termination-log` into every container; elsewhere there is no such file and
//! nothing happens.

use super::surroundings;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Kubernetes keeps so many bytes of it.
const MOST: usize = 4096;
/// How every text of ours begins.
const OURS: &[u8] = b"weir: ";

/// Leaves the text, cut to what Kubernetes keeps, in place of an earlier one of ours; a message of the job's own stays. The
/// file must be there, a regular one and writable: nothing is made, followed or waited for.
pub(crate) fn leave(path: &Path, text: &str) {
    let mut name = path.as_os_str().as_bytes().to_vec();
    name.push(0);
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a NUL, the buffers have the lengths that are given, and the descriptor is closed here and
    // used nowhere else.
    unsafe {
        let fd = libc::open(name.as_ptr().cast(), flags);
        if fd < 0 {
            return;
        }
        let mut meta: libc::stat = core::mem::zeroed();
        let regular = libc::fstat(fd, &raw mut meta) == 0 && meta.st_mode & libc::S_IFMT == libc::S_IFREG;
        // Writing more than the process may would end it.
        let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let may = libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut most) == 0 && most.rlim_cur >= MOST as libc::rlim_t;
        let mut start = [0_u8; OURS.len()];
        if regular && may {
            let there = libc::pread(fd, start.as_mut_ptr().cast(), start.len(), 0);
            if (there == 0 || start == OURS) && libc::ftruncate(fd, 0) == 0 {
                let whole = (0..=MOST.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default();
                surroundings::write_quietly(fd, whole.as_bytes());
            }
        }
        libc::close(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_file_or_our_own_text_is_written_over() {
        let dir = std::env::temp_dir().join(format!("weir-termination-{}", std::process::id()));
        assert!(std::fs::create_dir(&dir).is_ok());
        let path = dir.join("log");
        let after = |before: Option<&str>, text: &str| {
            let _ = std::fs::remove_file(&path);
            if let Some(before) = before {
                let _ = std::fs::write(&path, before);
            }
            leave(&path, text);
            std::fs::read_to_string(&path).ok()
        };
        assert_eq!(after(Some(""), "weir: new").as_deref(), Some("weir: new"));
        assert_eq!(after(Some("weir: a longer one"), "weir: new").as_deref(), Some("weir: new"));
        assert_eq!(after(Some("the job's own"), "weir: new").as_deref(), Some("the job's own"));
        assert_eq!(after(None, "weir: new"), None);
        let long = format!("weir: {}", "ä".repeat(4096));
        assert_eq!(after(Some(""), &long).map(|text| text.len()), Some(MOST));
        let _ = std::fs::remove_file(&path);
        assert!(
            std::os::unix::fs::symlink(dir.join("other"), &path).is_ok()
                && std::fs::write(dir.join("other"), "").is_ok()
        );
        leave(&path, "weir: new");
        assert_eq!(std::fs::read_to_string(dir.join("other")).as_deref().ok(), Some(""));
        assert!(std::fs::remove_dir_all(&dir).is_ok());
    }
}
