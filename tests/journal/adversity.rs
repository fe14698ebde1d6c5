//! Disks that are full, folders that vanish, files that are cut short: the job goes on, the journal is whole or absent.

use crate::{arrange, job, journals, the_journal};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weir_tests::harness::{Done, Job, Scratch, Suite, files_below, stage};

/// The job went on, and standard error has one line about its journal.
fn goes_on_and_says_it_once(done: Done) {
    let done = done.well();
    assert_eq!(done.err.matches("no journal can be kept on disk").count(), 1, "{done}");
}

/// A small file system of its own, where mounting is allowed.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(at: &Path) -> Option<Self> {
        let done = Job::new("mount").words("-t tmpfs -o size=8m,mode=700 none").arg(at).run();
        if done.code != 0 {
            eprintln!("no tmpfs can be mounted here: the full disk is not tried");
        }
        (done.code == 0).then(|| Self(at.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Job::new("umount").arg(&self.0).run();
    }
}

pub(crate) fn adversity(suite: &mut Suite) {
    suite.add("adversity: a disk without room for a journal: the job goes on, and it is reported once", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("disk");
        let Some(_disk) = Disk::mount(&folder) else { return };
        goes_on_and_says_it_once(job("tour", &folder, "WEIR_RING=1M WEIR_CAP=256MiB"));
        assert!(journals(&folder).is_empty());
    });
    suite.add("adversity: a disk that fills up while the job runs: the journal is whole", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("disk");
        let Some(_disk) = Disk::mount(&folder) else { return };
        let _ = job(&format!("fill {}", folder.join("filler").display()), &folder, "").well();
        let journal = the_journal(&folder);
        assert!(journal["clean_exit"] == true && journal["torn"] == 0, "{journal}");
    });
    suite.add("adversity: the folder is removed while the job runs: it goes on", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("gone");
        let _ = job(&format!("vanish {}", folder.display()), &folder, "").well();
        assert!(!folder.exists());
    });
    for umask in ["777", "000"] {
        suite.add(format!("adversity: umask {umask}: files are the owner's alone"), move || {
            let scratch = Scratch::new();
            let folder = scratch.at("umask/deep");
            let script = format!("umask {umask}; exec python3 {} tour", stage().file("journal/jobs.py").display());
            let _ = arrange(Job::new("sh").arg("-c").arg(script), &folder, "WEIR_CAP=256MiB").run().well();
            let mut files = files_below(&folder);
            files.retain(|path| path.file_name().is_some_and(|n| n.to_string_lossy().contains(".weir")));
            let bits = |path: &Path| path.metadata().expect("a file").permissions().mode() & 0o777;
            assert!(!files.is_empty() && files.iter().all(|path| bits(path) == 0o600), "{files:?}");
        });
    }
    suite.add("adversity: a directory that cannot be: the job goes on, and it is reported once", || {
        let scratch = Scratch::new();
        std::fs::write(scratch.at("file"), "").expect("a file");
        goes_on_and_says_it_once(job("tour", &scratch.at("file/dir"), "WEIR_CAP=256MiB"));
    });
    suite.add("adversity: a read-only folder: the journal is whole in another one, and it is reported once", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("read-only");
        let (at, jobs) = (folder.display(), stage().file("journal/jobs.py"));
        let script =
            format!("mount --bind {at} {at} && mount -o remount,bind,ro {at} && exec python3 {} tour", jobs.display());
        let job = arrange(Job::new("unshare").words("-m sh -c").arg(script), &folder, "LD_PRELOAD= WEIR_CAP=256MiB");
        let done = job.env("JOB_PRELOAD", stage().weir()).run();
        if done.err.contains("unshare") || done.err.contains("mount") {
            eprintln!("nothing can be mounted here: the read-only folder is not tried");
            return;
        }
        let done = done.well();
        let line = format!("{at} cannot be written to (Read-only file system");
        assert!(done.err.lines().count() == 1 && done.err.contains(&line), "{done}");
        let other = done.err.split("kept in ").nth(1).and_then(|rest| rest.split(": ").next()).expect("a folder");
        let journal = the_journal(Path::new(other));
        std::fs::remove_dir_all(other).expect("the folder");
        assert!(journal["clean_exit"] == true && journal["torn"] == 0 && journals(&folder).is_empty(), "{journal}");
    });
    suite.add("adversity: a journal that was cut short is read as far as it goes, or refused with the reason", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("cut");
        let _ = job("tour", &folder, "WEIR_RING=4096,512 WEIR_CAP=256MiB").well();
        let whole = std::fs::read(&journals(&folder)[0]).expect("the journal");
        for size in [0, 1, 4095, 4096, 70_000, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
            let copy = scratch.at("cut.weir");
            std::fs::write(&copy, &whole[..size]).expect("a copy");
            let done = Job::new(stage().program("journal-kill")).arg("show").arg(&copy).run();
            let reasons = ["cut off", "not a weir journal", "not finished"];
            let fine = match done.code {
                0 => done.json()["truncated"] == true,
                1 => reasons.iter().any(|reason| done.says(reason)),
                _ => false,
            };
            assert!(fine, "{size} bytes of {}\n{done}", whole.len());
        }
    });
    suite.add("adversity: WEIR_KEEP=3: of six jobs the last three and the one that cleared up stay", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("many");
        for _ in 0..6 {
            let _ = job("tour", &folder, "WEIR_KEEP=3 WEIR_CAP=256MiB").well();
        }
        assert_eq!(journals(&folder).len(), 4, "{:?}", journals(&folder));
    });
    suite.add("adversity: a panic of weir's own is the journal's last word", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("turned-off");
        let faulty = stage().weir_with_faults();
        job("tour", &folder, format!("LD_PRELOAD={} WEIR_FAULT=panic:cuMemFree_v2", faulty.display()));
        let journal = the_journal(&folder);
        assert!(journal["turned_off"].to_string().contains("panic in cuMemFree"), "{journal}");
    });
}
