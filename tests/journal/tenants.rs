//! Folders that others may write to, and what others plant there. Other users can be had only by root.

use crate::{job, journals, weir};
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use weir_tests::harness::{Job, Scratch, Suite, files_below, mode};

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    // SAFETY: getuid(2) touches nothing.
    let root = unsafe { libc::getuid() } == 0;
    if !root {
        eprintln!("not root: other users are not tried");
    }
    root
}

fn bits(path: &Path) -> u32 {
    path.metadata().expect("a file").permissions().mode() & 0o777
}

/// The same by another user.
fn stranger(job: Job) -> Job {
    job.with(|command| _ = command.uid(NOBODY).gid(NOBODY).current_dir("/"))
}

/// A folder for everybody, as /tmp is.
fn common(scratch: &Scratch, name: &str) -> std::path::PathBuf {
    mode(scratch.path(), 0o755);
    let folder = scratch.folder(name);
    mode(&folder, 0o1777);
    folder
}

pub(crate) fn tenants(suite: &mut Suite) {
    suite.add("tenants: in a folder of everybody's the files are in one of the user's own", || {
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        let folder = common(&scratch, "common");
        let _ = job("tour", &folder, "WEIR_CAP=256MiB").well();
        let files = files_below(&folder);
        assert!(files.len() >= 2 && files.iter().all(|f| bits(f) == 0o600), "{files:?}");
        let homes: BTreeSet<_> = journals(&folder).iter().filter_map(|f| f.parent().map(Path::to_owned)).collect();
        assert_eq!(homes.into_iter().collect::<Vec<_>>(), [folder.join("weir-0")]);
        assert_eq!(bits(&folder.join("weir-0")), 0o700);
        // Others read and remove nothing of it.
        let journal = journals(&folder).pop().expect("a journal");
        if stranger(weir().arg("--version")).try_start().is_err() {
            eprintln!("another user cannot start the command here: what it would see is not tried");
            return;
        }
        let seen = stranger(weir().arg("tail").arg(&journal).words("--all --no-follow")).run().code(1);
        let listed = stranger(weir().words("list --dir").arg(&folder)).run();
        let name = journal.file_stem().expect("a name").to_string_lossy();
        assert!(seen.out.is_empty() && !listed.out.contains(&*name), "{seen}\n{listed}");
        let removed = stranger(Job::new("rm").arg("-f").arg(&journal)).run();
        assert!(removed.code != 0 && journal.exists(), "{removed}");
    });
    type Plant = fn(&Path, &Path);
    let plants: [(&str, Plant); 3] = [
        ("a folder of somebody else's", |at, _| {
            std::fs::create_dir(at).expect("a folder");
            chown(at, Some(NOBODY), Some(NOBODY)).expect("root may");
        }),
        ("a link", |at, trap| symlink(trap, at).expect("a link")),
        ("a folder that others may enter", |at, _| {
            std::fs::create_dir(at).expect("a folder");
            mode(at, 0o755);
        }),
    ];
    for (name, plant) in plants {
        suite.add(
            format!("tenants: {name} in its place: nothing is written there, the next name is taken and found"),
            move || {
                if !is_root() {
                    return;
                }
                let scratch = Scratch::new();
                let folder = common(&scratch, "planted");
                let trap = scratch.folder("trap");
                let place = folder.join("weir-0");
                plant(&place, &trap);
                let _ = job("tour", &folder, "WEIR_CAP=256MiB").quiet();
                let planted = files_below(&place);
                let journal = planted.iter().find(|f| f.to_string_lossy().contains(".weir"));
                assert!(files_below(&trap).is_empty() && journal.is_none(), "{planted:?}");
                let taken = journals(&folder);
                let homes: Vec<_> = taken.iter().filter_map(|f| f.parent()).collect();
                assert_eq!(homes, [folder.join("weir-0-1")]);
                let listed = weir().words("list --dir").arg(&folder).run().well();
                assert!(listed.out.contains(&*taken[0].file_stem().expect("a name").to_string_lossy()), "{listed}");
            },
        );
    }
    suite.add("tenants: a folder where anybody may replace files is not used", || {
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        let folder = common(&scratch, "open");
        mode(&folder, 0o777);
        chown(&folder, Some(NOBODY), Some(NOBODY)).expect("root may");
        let done = job("tour", &folder, "WEIR_CAP=256MiB").well();
        assert!(files_below(&folder).is_empty() && done.err.contains("sticky"), "{done}");
    });
}
