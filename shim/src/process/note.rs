//! A note for `weir doctor`, left in `WEIR_DIR` when weir had to turn itself off.
//!
//! One small JSON file a process, `note-PID-TIME.json`, made only when something went wrong. If it
//! cannot be made (no directory, no permission, full disk) there is no note and no noise.

use super::{job, surroundings};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Leaves a note of `reason`.
pub(crate) fn leave(reason: &str) {
    let _kept = surroundings::Errno::keep();
    let Some(dir) = job::get().and_then(|job| job.config.dir.as_deref()) else {
        return;
    };
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    let text = serde_json::json!({
        "pid": std::process::id(),
        "time_ms": time,
        "program": program.to_string_lossy(),
        "reason": reason,
    });
    let name = format!("note-{}-{time}.json", std::process::id());
    write(dir, &name, format!("{text}\n").as_bytes());
}

fn write(dir: &Path, name: &str, text: &[u8]) {
    if std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).is_ok() {
        place(dir, name, text);
    }
}

/// Writes a new file, readable by its owner alone, without following a link; all of it or nothing.
pub(crate) fn place(dir: &Path, name: &str, text: &[u8]) {
    let mut path = dir.join(name).as_os_str().as_bytes().to_vec();
    path.push(0);
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the path ends with a NUL, and the descriptor is closed here and used nowhere else.
    unsafe {
        let fd = libc::open(path.as_ptr().cast(), flags, 0o600);
        if fd < 0 {
            return;
        }
        #[cfg(feature = "fault-injection")]
        if super::fault::is_set("full") {
            let full = libc::open(c"/dev/full".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            libc::dup2(full, fd);
            libc::close(full);
        }
        if !surroundings::write_quietly(fd, text) {
            libc::unlink(path.as_ptr().cast());
        }
        libc::close(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_note_is_its_owners_and_never_follows_a_link() {
        let dir = std::env::temp_dir().join(format!("weir-note-{}", std::process::id()));
        write(&dir.join("state"), "one", b"text");
        let file = dir.join("state/one");
        assert_eq!(std::fs::read(&file).ok().as_deref(), Some(&b"text"[..]));
        let mode = std::fs::metadata(&file).map(|m| m.permissions().mode() & 0o777);
        assert_eq!(mode.ok(), Some(0o600));

        let target = dir.join("target");
        assert!(std::os::unix::fs::symlink(&target, dir.join("two")).is_ok());
        write(&dir, "two", b"text");
        assert!(!target.exists());
        assert!(std::fs::remove_dir_all(&dir).is_ok());
    }
}
