//! What the suites of this folder share: the staged build, processes with a bare environment and a bound on time,
//! scratch folders, and trials that `cargo test` lists and filters one by one.

mod job;
mod stage;
mod suite;

pub use job::{Done, Job, Living, bare, signal};
pub use stage::{Stage, stage};
pub use suite::Suite;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A MiB.
pub const MIB: u64 = 1 << 20;

/// How long a test waits for what must come, if it says nothing else. Only what never comes takes so long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The size of a heavy test: `WEIR_TEST_<name>`, or what a run of all tests has time for.
pub fn size(name: &str, default: u64) -> u64 {
    let variable = format!("WEIR_TEST_{name}");
    let Ok(text) = std::env::var(&variable) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number"))
}

/// A folder that goes with its value.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A new, empty folder that only its owner may enter.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("weir-test-").tempdir().expect("a folder for temporary files"))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path in the folder; nothing is made there.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// A new folder in the folder, for its owner alone.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        std::fs::create_dir(&path).expect("a new folder");
        mode(&path, 0o700);
        path
    }
}

/// Sets the permissions of a file or folder.
pub fn mode(path: &Path, bits: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).expect("permissions can be set");
}

/// All files below a folder, in order; none if there is no such folder.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Compiles C with the system's compiler: arguments as `cc` has them, behind `-o OUT`.
pub fn cc<S: AsRef<std::ffi::OsStr>>(out: &Path, arguments: impl IntoIterator<Item = S>) {
    let _ = Job::new("cc").words("-O1 -w -pthread -o").arg(out).args(arguments).run().well();
}

/// Waits until `what` gives something, and panics if it never does.
pub fn eventually<T>(what: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(Instant::now() < end, "it did not happen within {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
