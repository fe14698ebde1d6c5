//! Ledger files: made whole or not at all, checked before use, put aside when damaged, joined by locking a row.
//!
//! No step waits for another process. A new file is written under a temporary name and linked to its own; whoever
//! comes second finds it there. A file of another format is renamed, but only when nobody has a row in it.
//!
//! It touches the files `group-NAME.ledger`, `process-PID-START.ledger` and `.new-*` in one directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::directory::{BadDirectory, LedgerDir};
use crate::map::{self, Mapping};
use crate::members;
use crate::table::{GROUP_MEMBERS, Table, words_for};
use crate::word::{MAX_MEMBERS, SharedWord};

/// Why a ledger could not be joined or opened. The job can go on without it.
#[derive(Debug)]
pub enum LedgerError {
    /// The directory is not fit.
    LedgerDir(BadDirectory),
    /// The system refused something.
    System {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// The file is damaged or of another version, and living processes use it.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// All rows belong to living processes.
    GroupFull {
        /// The file.
        path: PathBuf,
        /// How many rows there are.
        members: usize,
    },
    /// The file was deleted while a living process is in the group.
    Deleted {
        /// The file.
        path: PathBuf,
        /// The process.
        pid: u32,
    },
    /// The file is replaced again and again.
    Restless {
        /// The file.
        path: PathBuf,
    },
    /// The table of devices is full.
    TooManyDevices,
    /// There is no such ledger.
    NotFound {
        /// What was looked for.
        wanted: String,
    },
}

impl std::fmt::Display for LedgerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LedgerDir(bad) => bad.fmt(f),
            Self::System { path, doing, error } => {
                write!(f, "{}: cannot {doing}: {error}", path.display())
            }
            Self::Foreign { path } => write!(
                f,
                "{}: this ledger is damaged or of another version of weir, and living processes use it; \
                 end them first, or use another WEIR_GROUP",
                path.display()
            ),
            Self::GroupFull { path, members } => write!(
                f,
                "{}: the group has {members} living processes already, which is the most; use another WEIR_GROUP",
                path.display()
            ),
            Self::Deleted { path, pid } => write!(
                f,
                "{}: this ledger was deleted while process {pid} is in the group, so that its use cannot be counted; \
                 end that process first, or use another WEIR_GROUP",
                path.display()
            ),
            Self::Restless { path } => {
                write!(f, "{}: this ledger is replaced again and again; find out by whom", path.display())
            }
            Self::TooManyDevices => write!(f, "a ledger can account for {} devices", crate::table::MAX_DEVICES),
            Self::NotFound { wanted } => {
                write!(f, "there is no ledger of {wanted}: no such process or group has a cap")
            }
        }
    }
}

impl std::error::Error for LedgerError {}

impl From<BadDirectory> for LedgerError {
    fn from(bad: BadDirectory) -> Self {
        Self::LedgerDir(bad)
    }
}

fn system<'p>(path: &'p Path, doing: &'static str) -> impl FnOnce(io::Error) -> LedgerError + 'p {
    move |error| LedgerError::System { path: path.to_owned(), doing, error }
}

/// A ledger file that is mapped, and how to come back to it without keeping a descriptor.
pub(crate) struct LedgerFile {
    pub(crate) path: PathBuf,
    identity: (u64, u64),
    pub(crate) mapping: Mapping,
    pub(crate) members: usize,
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|m| (m.dev(), m.ino()))
}

fn open(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != map::user() || meta.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a plain file of this user alone"));
    }
    Ok(map::closed_late(file))
}

/// Makes a complete file under a temporary name; it is locked on byte 0, so that nobody sweeps it away.
fn draft(place: &LedgerDir, members: usize) -> Result<(File, PathBuf), LedgerError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let path = place.path().join(format!(".new-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed)));
    let _ = fs::remove_file(&path); // of a dead process that had our id
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(&path)
        .map(map::closed_late)
        .map_err(system(&path, "create the file"))?;
    let fill = || -> io::Result<()> {
        map::try_lock(&file, 0, 1)?;
        map::allocate(&file, (words_for(members) * 8) as u64)?;
        let mapping = Mapping::of_file(&file, words_for(members))?;
        if let Some(table) = mapping.words().and_then(|w| Table::new(w, members)) {
            table.write_header();
        }
        Ok(())
    };
    if let Err(error) = fill() {
        let _ = fs::remove_file(&path);
        return Err(system(&path, "allocate the ledger (is the disk full?)")(error));
    }
    Ok((file, path))
}

/// What was found under a ledger's name.
enum Found {
    Ours(Box<LedgerFile>, File),
    Damaged(File),
    Missing,
}

fn look(path: &Path, members: usize) -> Result<Found, LedgerError> {
    let file = match open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
        Err(e) => return Err(system(path, "open the ledger")(e)),
    };
    let length = file.metadata().map_err(system(path, "look at the ledger"))?.len();
    if length < (words_for(members) * 8) as u64 {
        return Ok(Found::Damaged(file));
    }
    let mapping = Mapping::of_file(&file, words_for(members)).map_err(system(path, "map the ledger"))?;
    let ours = mapping.words().and_then(|w| Table::new(w, members)).is_some_and(Table::header_is_ours);
    if !ours {
        return Ok(Found::Damaged(file));
    }
    let identity = identity(&file).map_err(system(path, "look at the ledger"))?;
    let ledger_file = LedgerFile { path: path.to_owned(), identity, mapping, members };
    Ok(Found::Ours(Box::new(ledger_file), file))
}

/// Puts a damaged file aside, if no living process is in it.
fn put_aside(path: &Path, file: &File) -> Result<(), LedgerError> {
    // With every row locked nobody can join it while we rename.
    if !map::try_lock(file, 0, MAX_MEMBERS as u64).map_err(system(path, "lock the damaged ledger"))? {
        return Err(LedgerError::Foreign { path: path.to_owned() });
    }
    let still_there = fs::symlink_metadata(path).is_ok_and(|m| identity(file).is_ok_and(|i| i == (m.dev(), m.ino())));
    if still_there {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".damaged");
        fs::rename(path, &aside).map_err(system(path, "put the damaged ledger aside"))?;
    }
    Ok(())
}

impl LedgerFile {
    /// Words with names; `None` in a fork.
    #[inline]
    pub(crate) fn table(&self) -> Option<Table<'_, SharedWord>> {
        self.mapping.words().and_then(|words| Table::new(words, self.members))
    }

    /// The file again, if its name still leads to it.
    pub(crate) fn reopen(&self) -> Option<File> {
        let file = open(&self.path).ok()?;
        (identity(&file).ok()? == self.identity).then_some(file)
    }

    /// Joins the ledger of a group: makes the file if need be and takes a row.
    pub(crate) fn join_group(place: &LedgerDir, name: &str) -> Result<(Self, usize), LedgerError> {
        let place = home_of(place, name);
        place.prepare()?;
        let path = group_path(place, name);
        let mut attempts = 0;
        loop {
            attempts += 1;
            match look(&path, GROUP_MEMBERS)? {
                Found::Missing => {
                    // One who has just come to see that the file is gone has it mapped for another moment.
                    if let Some(pid) = deleted_but_used(place, &path) {
                        if attempts < 20 {
                            pause();
                            continue;
                        }
                        return Err(LedgerError::Deleted { path, pid });
                    }
                    let (file, temporary) = draft(place, GROUP_MEMBERS)?;
                    let linked = fs::hard_link(&temporary, &path);
                    let _ = fs::remove_file(&temporary);
                    drop(file);
                    match linked {
                        Ok(()) => {}
                        Err(e)
                            if matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound)
                                && attempts < 20 => {}
                        Err(e) => return Err(system(&path, "name the new ledger")(e)),
                    }
                }
                Found::Damaged(file) => match put_aside(&path, &file) {
                    // Another newcomer may be putting it aside this very moment.
                    Err(LedgerError::Foreign { .. }) if attempts < 20 => {
                        pause();
                    }
                    other => other?,
                },
                Found::Ours(ledger_file, file) => {
                    let taken = ledger_file.take_row(&file)?;
                    // The name may have gone to another file while we locked: a row there would count for nothing.
                    if ledger_file.reopen().is_none() {
                        if attempts < 20 {
                            continue;
                        }
                        return Err(LedgerError::Restless { path });
                    }
                    match taken {
                        Some(slot) => return Ok((*ledger_file, slot)),
                        None if attempts < 3 => {
                            pause();
                        }
                        None => {
                            return Err(LedgerError::GroupFull { path, members: GROUP_MEMBERS });
                        }
                    }
                }
            }
        }
    }

    /// Locks a row that no living process has: first one without an owner, then one whose owner died.
    fn take_row(&self, file: &File) -> Result<Option<usize>, LedgerError> {
        let Some(table) = self.table() else {
            return Ok(None);
        };
        let start = std::process::id() as usize;
        let namespace = members::Identity::own().namespace;
        for only_free in [true, false] {
            for n in 0..self.members {
                let slot = (start + n) % self.members;
                if only_free && table.is_owned(slot) {
                    continue;
                }
                let cannot = system(&self.path, "lock a row (are locks supported there?)");
                if !map::try_lock(file, slot as u64, 1).map_err(cannot)? {
                    continue;
                }
                // What is left in the row of a process that is being torn down is still taken.
                if !members::is_ending(table, slot, namespace) {
                    return Ok(Some(slot));
                }
                let _ = map::unlock(file, slot as u64, 1);
            }
        }
        Ok(None)
    }

    /// Makes the ledger of this process alone, so that its cap can be changed from outside.
    pub(crate) fn of_process(place: &LedgerDir, start: u64) -> Result<Self, LedgerError> {
        place.prepare()?;
        sweep(place);
        let path = place.path().join(format!("process-{}-{start}.ledger", std::process::id()));
        let (file, temporary) = draft(place, 1)?; // locked on byte 0, which is its only row
        let named = fs::rename(&temporary, &path).map_err(system(&path, "name the new ledger"));
        if named.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        named?;
        let mapping = Mapping::of_file(&file, words_for(1)).map_err(system(&path, "map the ledger"))?;
        let identity = identity(&file).map_err(system(&path, "look at the ledger"))?;
        Ok(Self { path, identity, mapping, members: 1 })
    }

    /// A ledger without a file, for a process that cannot have one.
    pub(crate) fn private() -> io::Result<Self> {
        let ledger_file =
            Self { path: PathBuf::new(), identity: (0, 0), mapping: Mapping::private(words_for(1))?, members: 1 };
        if let Some(table) = ledger_file.table() {
            table.write_header();
        }
        Ok(ledger_file)
    }

    /// Opens an existing ledger as a visitor, without a row.
    pub(crate) fn visit(path: &Path, members: usize) -> Result<Self, LedgerError> {
        match look(path, members)? {
            Found::Ours(ledger_file, _) => Ok(*ledger_file),
            Found::Damaged(_) => Err(LedgerError::Foreign { path: path.to_owned() }),
            Found::Missing => Err(LedgerError::NotFound { wanted: path.display().to_string() }),
        }
    }
}

/// Where a group lives: at this place, or at another one where somebody is in it already.
pub(crate) fn home_of<'p>(place: &'p LedgerDir, name: &str) -> &'p LedgerDir {
    let lived_in = |place: &&LedgerDir| {
        let file = open(&group_path(place, name)).ok();
        file.is_some_and(|file| map::first_locked(&file, 0, MAX_MEMBERS as u64).is_ok_and(|row| row.is_some()))
    };
    let mut others = place.others().iter().filter(|other| lived_in(other) && other.prepare().is_ok());
    Some(place).filter(lived_in).or_else(|| others.next()).unwrap_or(place)
}

/// A process of this user that is in a group whose file has been deleted: its name in the list of mappings says so. Who
/// made a new file beside it would be alone there, with the whole cap. A process that cannot be looked at (in another pid
/// namespace, or protected) is not found.
fn deleted_but_used(place: &LedgerDir, path: &Path) -> Option<u32> {
    // The list has no links in its names.
    let folder = fs::canonicalize(path.parent()?).ok()?;
    let deleted = |mut name: Vec<u8>| {
        name.extend(b" (deleted)");
        name
    };
    let mut names = vec![deleted(folder.join(path.file_name()?).into_os_string().into_vec())];
    for other in place.others() {
        // Such a place may have gone with all that it was mounted on: then the list has only the end of its name.
        let end = Path::new("/").join(other.path().file_name()?).join(path.file_name()?);
        names.push(deleted(end.into_os_string().into_vec()));
    }
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        if entry.metadata().ok()?.uid() != map::user() || pid == std::process::id() {
            return None;
        }
        let mappings = fs::read(entry.path().join("maps")).ok()?;
        let gone = |line: &[u8]| names.iter().any(|name| line.ends_with(name));
        mappings.split(|byte| *byte == b'\n').any(gone).then_some(pid)
    })
}

/// Removes the file of a group without a living member; true if it is gone. Who joins meanwhile makes a new one.
pub(crate) fn remove_empty(path: &Path) -> bool {
    let Ok(file) = open(path) else { return !path.exists() };
    // With every row locked nobody can join it while it is removed.
    if !map::try_lock(&file, 0, MAX_MEMBERS as u64).unwrap_or(false) {
        return false;
    }
    let same = fs::symlink_metadata(path).is_ok_and(|m| identity(&file).is_ok_and(|i| i == (m.dev(), m.ino())));
    same && fs::remove_file(path).is_ok()
}

/// Lets another newcomer finish what it is about.
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(1));
}

/// The file of a group.
pub(crate) fn group_path(place: &LedgerDir, name: &str) -> PathBuf {
    place.path().join(format!("group-{name}.ledger"))
}

/// The process id in the name of a process's ledger.
pub(crate) fn process_in_name(name: &str) -> Option<u32> {
    let (pid, start) = name.strip_prefix("process-")?.strip_suffix(".ledger")?.split_once('-')?;
    start.bytes().all(|b| b.is_ascii_digit()).then(|| pid.parse().ok())?
}

/// Removes what dead processes left: their own ledgers and unfinished files. A bounded piece of work at every start.
fn sweep(place: &LedgerDir) {
    let Ok(entries) = fs::read_dir(place.path()) else {
        return;
    };
    let mut opened = 0;
    for entry in entries.flatten().take(1024) {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let pid = process_in_name(name).or_else(|| name.strip_prefix(".new-")?.split_once('-')?.0.parse().ok());
        // A living process of that id is left alone here: it is the owner, or its end will bring the next sweep.
        if pid.is_none_or(map::process_exists) {
            continue;
        }
        opened += 1;
        if opened > 16 {
            return;
        }
        // A name is never used twice (it holds the start time), so what is unlocked now stays so.
        if let Ok(file) = open(&entry.path())
            && map::first_locked(&file, 0, 1).is_ok_and(|l| l.is_none())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_joined_where_it_lives() {
        let base = std::env::temp_dir().join(format!("weir-home-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let (chosen, other) = (base.join("chosen"), base.join("other"));
        let place = LedgerDir::at_or(&chosen, &other);
        let join = |place: &LedgerDir| LedgerFile::join_group(place, "g").unwrap().0;
        let first = join(&LedgerDir::at(&other));
        let second = join(&place);
        assert_eq!((first.identity, second.path.parent()), (second.identity, Some(other.as_path())));
        drop((first, second));
        let third = join(&place);
        assert_eq!(third.path.parent(), Some(chosen.as_path()), "no member is left there");
        let fourth = join(&place);
        assert_eq!(fourth.identity, third.identity);
        fs::remove_dir_all(&base).unwrap();
    }
}
