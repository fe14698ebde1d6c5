//! Builds and stages what the tests run, once, and knows where it lies.

use super::job::bare;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The staged build.
pub struct Stage {
    /// The repository.
    pub root: PathBuf,
    folder: PathBuf,
}

/// The staged build, which is made or brought up to date at the first call. `STAGE` names another folder, which is
/// taken as it is.
pub fn stage() -> &'static Stage {
    static STAGE: LazyLock<Stage> = LazyLock::new(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned();
        if let Some(folder) = std::env::var_os("STAGE") {
            return Stage { root, folder: folder.into() };
        }
        let folder = root.join("target/weir");
        build(&root, &folder);
        Stage { root, folder }
    });
    &STAGE
}

impl Stage {
    /// A part that must be there: the loader passes over a library that is not, and a fault in it would seem noticed.
    fn part(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        assert!(path.exists(), "there is no {}; run scripts/build --tests", path.display());
        path
    }

    /// The library for `LD_PRELOAD`.
    pub fn weir(&self) -> PathBuf {
        self.part("lib/libweir.so")
    }

    /// The same with switchable faults (`WEIR_FAULT`).
    pub fn weir_with_faults(&self) -> PathBuf {
        self.part("lib-faults/libweir.so")
    }

    /// The command.
    pub fn command(&self) -> PathBuf {
        self.part("bin/weir")
    }

    /// The folder of the virtual GPU.
    pub fn vgpu(&self) -> PathBuf {
        self.part("vgpu")
    }

    /// The virtual GPU with switchable faults (`VGPU_FAULT`).
    pub fn vgpu_with_faults(&self) -> PathBuf {
        self.part("vgpu-faults")
    }

    /// A program that only the tests use.
    pub fn program(&self, name: &str) -> PathBuf {
        self.part(&format!("tests/{name}"))
    }

    /// A file of the folder `tests`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.root.join("tests").join(name)
    }
}

/// Runs `scripts/build --tests`, unless another process of this run of the tests has.
fn build(root: &Path, folder: &Path) {
    std::fs::create_dir_all(folder).expect("target/weir can be made");
    let lock = File::create(folder.join("tests.lock")).expect("target/weir can be written to");
    // SAFETY: the descriptor is open; the lock ends with the file.
    let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(locked, 0, "target/weir/tests.lock can't be locked: {}", std::io::Error::last_os_error());
    let (stamp, run) = (folder.join("tests.run"), this_run());
    if run.is_some() && std::fs::read_to_string(&stamp).ok() == run {
        return;
    }
    eprintln!("weir-tests: scripts/build --tests builds what the tests run");
    let mut command = Command::new(root.join("scripts/build"));
    bare(&mut command);
    if let Some(cache) = std::env::var_os("WEIR_CACHE") {
        command.env("WEIR_CACHE", cache);
    }
    let status = command.arg("--tests").status().expect("scripts/build can be started");
    assert!(status.success(), "scripts/build --tests: {status}");
    std::fs::write(stamp, run.unwrap_or_default()).expect("target/weir can be written to");
}

/// What distinguishes this run of the tests from the next: nextest says it, and cargo is one process that starts all of them.
/// None for a test program that somebody starts by hand.
fn this_run() -> Option<String> {
    if let Ok(id) = std::env::var("NEXTEST_RUN_ID") {
        return Some(id);
    }
    let parent = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).ok()?;
    let (name, fields) = stat.rsplit_once(')')?;
    // Field 22: when it was started; a process id comes again.
    let started = fields.split_whitespace().nth(19)?;
    name.ends_with("(cargo").then(|| format!("{parent}-{started}"))
}
