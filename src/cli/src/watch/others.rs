//! Journals of other users' jobs, for root: each user has a folder of their own, and root has the kernel's list of locks.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Journals that living processes hold locks on, wherever they are. In another mount namespace they are reached through its root.
pub(super) fn journals_of_living() -> Vec<PathBuf> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut found = Vec::new();
    for pid in holders(&locks) {
        let Ok(links) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for link in links.flatten() {
            let Some(place) =
                fs::read_link(link.path()).ok().filter(|place| place.extension().is_some_and(|end| end == "weir"))
            else {
                continue;
            };
            let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
            let Some(open) = fs::metadata(link.path()).ok().map(identity) else { continue };
            let inside = PathBuf::from(format!("/proc/{pid}/root{}", place.display()));
            // A file that was deleted has no path any more.
            found.extend([place, inside].into_iter().find(|path| fs::metadata(path).ok().map(identity) == Some(open)));
        }
    }
    found
}

/// Processes that hold an exclusive flock, as /proc/locks has them.
fn holders(locks: &str) -> BTreeSet<u32> {
    let lines = locks.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, ..] = words[..] else { return None };
        pid.parse().ok()
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_of_exclusive_locks_are_found() {
        let locks = "1: FLOCK  ADVISORY  WRITE 42 fe:00:7 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 43 fe:00:7 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 44 fe:00:8 0 EOF\n3: FLOCK  ADVISORY  READ 45 fe:00:9 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE -1 fe:00:9 0 EOF\nnonsense\n";
        assert_eq!(holders(locks).into_iter().collect::<Vec<_>>(), [42]);
    }
}
