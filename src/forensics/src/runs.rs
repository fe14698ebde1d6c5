//! The runs of a directory: finding one by its name, and listing them all. Reads directories and files.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use weir_settings::Reading;

use crate::run::{Error, Run};

/// Where journals are, by the settings: `WEIR_DIR`, else the user's state directory.
pub fn directory(reading: &Reading) -> Result<PathBuf, Error> {
    if let Some(bad) = reading.problems.iter().find(|problem| problem.variable == "WEIR_DIR") {
        return Err(Error::new(format!("WEIR_DIR={}", bad.value), bad.why.clone()));
    }
    reading.settings.dir.clone().ok_or_else(|| Error::new("WEIR_DIR", "not set, and HOME is not set; use --dir"))
}

/// Files of a directory that may be journals or recordings, newest first. A directory that others may write to has
/// them in a sub-folder of each user: this user's is looked into as well, by root those of all, and so is where they go if
/// the directory is slow.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    let elsewhere = weir_journal::folders_instead_of(dir);
    let shared = if is_root() { folders_of_all(dir) } else { weir_journal::folders_in(dir) };
    let shared = shared.into_iter().chain(elsewhere).map(|dir| (dir, false));
    for (place, required) in std::iter::once((dir.to_owned(), true)).chain(shared) {
        let entries = match std::fs::read_dir(&place) {
            Ok(entries) => entries,
            Err(error) if required && error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::at(&place, format!("cannot list: {error}")));
            }
            Err(_) => continue,
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let named = path.extension().is_some_and(|end| end == "weir" || end == "weirrec");
            if let Some(meta) = entry.metadata().ok().filter(|meta| named && meta.is_file()) {
                found.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), path));
            }
        }
    }
    found.sort();
    Ok(found.into_iter().rev().map(|(_, path)| path).collect())
}

/// Whether this is root.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Whether a run was made on this machine, since it was booted.
pub fn is_of_this_boot(run: &Run) -> bool {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = boot.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    run.header().identity.boot == u128::from_str_radix(&hex, 16).unwrap_or(0).to_be_bytes()
}

/// The sub-folders of all users: each belongs to the user whose number is in its name.
fn folders_of_all(dir: &Path) -> Vec<PathBuf> {
    let of_its_user = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let user: u32 = name.to_str()?.strip_prefix("weir-")?.split('-').next()?.parse().ok()?;
        let meta = entry.metadata().ok()?;
        (meta.is_dir() && meta.uid() == user).then(|| entry.path())
    };
    std::fs::read_dir(dir).into_iter().flatten().flatten().filter_map(of_its_user).collect()
}

/// A run by what a person calls it: a path, a process id, the stem of a file, or nothing at all, which is the newest run,
/// whatever became of it.
pub fn find(name: Option<&OsStr>, dir: impl Fn() -> Result<PathBuf, Error>) -> Result<Run, Error> {
    match name {
        Some(name) => Run::open(&path_of(name, dir)?),
        None => newest(&dir()?),
    }
}

/// The file of a run by what a person calls it, whether it can be read or not.
pub fn path_of(name: &OsStr, dir: impl Fn() -> Result<PathBuf, Error>) -> Result<PathBuf, Error> {
    let path = Path::new(name);
    let folder = || Error::at(path, "is a directory; use --dir to look into it");
    if path.components().count() > 1 || path.is_file() {
        return if path.is_dir() { Err(folder()) } else { Ok(path.to_owned()) };
    }
    let (name, dir) = (&*name.to_string_lossy(), dir()?);
    let all = files(&dir)?;
    let stem = |path: &PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(path) = all.iter().find(|path| stem(path) == name || path.file_name().is_some_and(|file| file == name))
    {
        return Ok(path.clone());
    }
    if let Ok(pid) = name.parse::<u32>()
        && let Some(run) = all.iter().filter_map(|path| Run::open(path).ok()).find(|run| run.pid() == pid)
    {
        return Ok(run.path().to_owned());
    }
    let starting: Vec<&PathBuf> = all.iter().filter(|path| stem(path).starts_with(name)).collect();
    match starting[..] {
        [path] => Ok(path.clone()),
        [] if path.is_dir() => Err(folder()),
        [] => {
            Err(Error::new(name, format!("no run in {} has this process id or name; see `weir list`", dir.display())))
        }
        _ => Err(Error::new(name, format!("ambiguous: {} runs match; see `weir list`", starting.len()))),
    }
}

/// The newest run that ran out of memory.
pub fn newest_oom(dir: &Path) -> Result<Run, Error> {
    let found = files(dir)?.iter().filter_map(|path| Run::open(path).ok()).find(Run::ran_out);
    found.ok_or_else(|| Error::at(dir, "no run here ran out of memory; `weir list` shows them"))
}

fn newest(dir: &Path) -> Result<Run, Error> {
    let mut problem = None;
    for path in files(dir)? {
        match Run::open(&path) {
            Ok(run) => return Ok(run),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    Err(problem.unwrap_or_else(|| {
        Error::at(dir, "no runs yet; start a job with `weir run -- COMMAND`, or set WEIR_DIR to where they are")
    }))
}
