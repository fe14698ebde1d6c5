//! Settings files: `/etc/weir/weir.conf`, and `weir.conf` beside the library, for jobs that lose their environment (SSH,
//! cron, nested containers). The one module of this crate that touches anything: it opens and reads these two.
//!
//! A file is lines of `NAME=VALUE` with the names of the variables; `#` begins a comment line. What it may do depends on
//! whose it is ([`FileOwner`]). Opening one never waits and never reads more than [`MOST`] bytes, whatever lies there.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file of the machine.
pub const MACHINE: &str = "/etc/weir/weir.conf";
/// The name of the file beside the library.
pub const NAME: &str = "weir.conf";
/// A larger file is not read.
pub const MOST: u64 = 64 << 10;

/// Who can change a file, which decides what it may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOwner {
    /// Root alone: the environment cannot raise its limits.
    Root,
    /// The user of this process alone: the environment replaces its values.
    User,
    /// Somebody else, or anybody: only its limits count, and the environment replaces them.
    Other,
}

/// A settings file that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFile {
    /// Where it is.
    pub path: PathBuf,
    /// Who can change it.
    pub owner: FileOwner,
    /// Its bytes, or why it cannot be read.
    pub text: Result<Vec<u8>, String>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// `NAME=VALUE`.
    Pair(OsString, OsString),
    /// Anything else: its number, and what stands there.
    Other(usize, String),
}

impl SettingsFile {
    /// The files that count for a library in this folder: the one beside it, then that of the machine.
    pub fn find(library: Option<&Path>) -> Vec<Self> {
        let machine = Path::new(MACHINE);
        let beside = library.map(|folder| folder.join(NAME)).filter(|path| path != machine);
        beside.iter().map(PathBuf::as_path).chain([machine]).filter_map(Self::at).collect()
    }

    /// The file at a path; `None` if nothing is there.
    pub fn at(path: &Path) -> Option<Self> {
        let found = |owner, text| Some(Self { path: path.to_owned(), owner, text });
        // Non-blocking: opening a FIFO would wait for its writer.
        match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path) {
            Ok(mut file) => match file.metadata() {
                Ok(meta) => found(owner(path, &meta), read(&mut file, &meta)),
                Err(error) => found(FileOwner::Other, Err(format!("cannot be read: {error}"))),
            },
            // A link to nothing was meant to be a file. In a folder that this process may not enter there is none for it.
            Err(error) if std::fs::symlink_metadata(path).is_ok() => {
                found(FileOwner::Other, Err(format!("cannot be read: {error}")))
            }
            Err(_) => None,
        }
    }

    /// Its lines, without comments and blank ones.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let text = self.text.as_deref().unwrap_or_default();
        let own = |bytes: &[u8]| OsStr::from_bytes(bytes.trim_ascii()).to_owned();
        let line = |(number, line): (usize, &[u8])| match line.iter().position(|byte| *byte == b'=') {
            Some(at) => Line::Pair(own(&line[..at]), own(&line[at + 1..])),
            None => Line::Other(number + 1, String::from_utf8_lossy(line).into_owned()),
        };
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#")).map(line).collect()
    }
}

fn read(file: &mut File, meta: &Metadata) -> Result<Vec<u8>, String> {
    if !meta.is_file() {
        return Err(format!("is {}, not a regular file", kind(meta)));
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MOST {
        return Err(format!("is larger than {} KiB", MOST >> 10));
    }
    Ok(bytes)
}

fn kind(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

/// By the file itself and the folder that it really lies in: who can replace it can change it.
fn owner(path: &Path, meta: &Metadata) -> FileOwner {
    let folder = path.canonicalize().ok().and_then(|real| std::fs::metadata(real.parent()?).ok());
    let Some(folder) = folder else { return FileOwner::Other };
    let shut = |meta: &Metadata| meta.mode() & 0o022 == 0;
    let sticky = folder.mode() & 0o1000 != 0;
    if !shut(meta) || !(shut(&folder) || sticky) {
        return FileOwner::Other;
    }
    match (meta.uid(), folder.uid()) {
        (0, 0) => FileOwner::Root,
        (file, folder) if [file, folder].iter().all(|uid| *uid == 0 || *uid == user()) => FileOwner::User,
        _ => FileOwner::Other,
    }
}

/// The user of this process.
fn user() -> u32 {
    std::fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-file-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    #[test]
    fn a_file_of_ours_is_read_and_a_missing_one_is_none() {
        let folder = scratch("own");
        let path = folder.join(NAME);
        assert_eq!(SettingsFile::at(&path), None);
        assert_eq!(SettingsFile::at(&path.join("below")), None, "a file where a folder should be");
        std::fs::write(&path, "# a comment\n\n WEIR_CAP = 8GiB \r\nrubbish\n=\n").unwrap();
        let file = SettingsFile::at(&path).unwrap();
        let own = if user() == 0 { FileOwner::Root } else { FileOwner::User };
        assert_eq!(file.owner, own);
        let pair = |name: &str, value: &str| Line::Pair(name.into(), value.into());
        assert_eq!(file.lines(), [pair("WEIR_CAP", "8GiB"), Line::Other(4, "rubbish".into()), pair("", "")]);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(SettingsFile::at(&path).unwrap().owner, FileOwner::Other, "anybody may write to it");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(SettingsFile::at(&path).unwrap().owner, FileOwner::Other, "anybody may replace it");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let folder = scratch("odd");
        let made = std::process::Command::new("mkfifo").arg(folder.join("fifo")).status().unwrap();
        assert!(made.success());
        std::os::unix::fs::symlink("nowhere", folder.join("dangling")).unwrap();
        std::os::unix::fs::symlink("loop", folder.join("loop")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.join("zero")).unwrap();
        std::fs::write(folder.join("large"), vec![b'#'; MOST as usize + 1]).unwrap();
        let why = |name: &str| SettingsFile::at(&folder.join(name)).map(|file| file.text.unwrap_err());
        assert_eq!(why("fifo").as_deref(), Some("is a FIFO, not a regular file"));
        assert_eq!(why("").as_deref(), Some("is a directory, not a regular file"));
        assert_eq!(why("zero").as_deref(), Some("is a device, not a regular file"));
        assert_eq!(why("large").as_deref(), Some("is larger than 64 KiB"));
        assert!(why("loop").is_some_and(|why| why.starts_with("cannot be read")));
        assert!(why("dangling").is_some_and(|why| why.starts_with("cannot be read")));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
