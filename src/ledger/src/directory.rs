//! Where ledger files are: a directory of this user alone, the same for all processes of the user.
//!
//! In this order: `$WEIR_DIR/ledger`, `$XDG_RUNTIME_DIR/weir`, `/run/user/UID/weir`, `/dev/shm/weir-UID`. A WEIR_DIR that
//! several users share has a sub-folder for each: `$WEIR_DIR/weir-UID/ledger`. The third is usually the second, for
//! processes that were started without the variable (cron, ssh): all processes of a user must come to the same place, or
//! their group falls apart. A group that lives at one of the last two already is joined there, wherever the newcomer would
//! have begun one.
//!
//! **What a stranger can do.** Where a name lies in a directory that others may write to, a stranger may have made it
//! first. Then it is not used, nor is another place: the stranger could clear the name later, and the next process of the
//! group would be alone at the first place. It is an error that names the directory and its owner, and the cap of a group
//! that cannot be kept ends the job's cuInit. Once the directory is ours nobody else can rename or remove it: its parents
//! are ours, or root's and sticky. (Who opens a WEIR_DIR of his own to others without the sticky bit lets them do it.)
//! It touches only these directories.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::map;

/// Why the directory cannot be used.
#[derive(Debug)]
pub struct BadDirectory {
    /// The directory.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

impl std::fmt::Display for BadDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {}; set WEIR_DIR to a directory on a local disk that is yours alone (mode 0700)",
            self.path.display(),
            self.problem
        )
    }
}

impl std::error::Error for BadDirectory {}

/// A directory for ledger files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerDir {
    path: PathBuf,
    parent: Parent,
    /// Where else processes of this user may have come to, with other variables or at another time.
    others: Vec<LedgerDir>,
}

/// What the directory's parent must be, beside no stranger's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    /// Anything.
    Any,
    /// This user's alone.
    Private,
    /// This user's alone, and no link: its name is anybody's.
    Folder,
}

/// A directory's owner and mode, read from the open directory itself; a link is not followed.
fn look(path: &Path) -> io::Result<Metadata> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_PATH;
    File::options().read(true).custom_flags(flags).open(path)?.metadata()
}

/// Whether only this user can change what is in a directory.
fn is_private(meta: &Metadata) -> bool {
    meta.uid() == map::user() && meta.mode() & 0o022 == 0
}

/// Whether a user is one who may replace this user's directories: oneself, or one who can do anything anyway.
fn is_trusted(user: u32) -> bool {
    [map::user(), 0].contains(&user) || fs::metadata("/").is_ok_and(|root| root.uid() == user)
}

impl LedgerDir {
    /// The directory that the variables name, without making it; relative paths are not taken.
    pub fn from_variables(weir_dir: Option<&Path>, xdg_runtime_dir: Option<&Path>) -> Self {
        let user = map::user();
        let absolute = |path: Option<&Path>| path.filter(|path| path.is_absolute()).map(Path::to_owned);
        // Whether these two are there and ours is nothing that a stranger can change.
        let private = |dir: &PathBuf| look(dir).is_ok_and(|meta| is_private(&meta));
        let at = |path, parent| Self { path, parent, others: Vec::new() };
        if let Some(dir) = absolute(weir_dir) {
            // A missing one will be made, and is private then.
            let shared = fs::metadata(&dir).is_ok_and(|meta| meta.is_dir() && !is_private(&meta));
            return if shared {
                at(dir.join(format!("weir-{user}/ledger")), Parent::Folder)
            } else {
                at(dir.join("ledger"), Parent::Private)
            };
        }
        let run_user = PathBuf::from(format!("/run/user/{user}"));
        let chosen = absolute(xdg_runtime_dir).filter(private).or_else(|| Some(run_user.clone()).filter(private));
        let shared_memory = PathBuf::from(format!("/dev/shm/weir-{user}"));
        let mut places = vec![at(run_user.join("weir"), Parent::Private), at(shared_memory, Parent::Any)];
        let chosen = match chosen {
            Some(dir) => at(dir.join("weir"), Parent::Private),
            None => places.remove(1),
        };
        places.retain(|place| *place != chosen);
        Self { others: places, ..chosen }
    }

    /// A directory by name.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), parent: Parent::Any, others: Vec::new() }
    }

    /// A directory by name, and another one that others may have come to.
    #[cfg(test)]
    pub(crate) fn at_or(path: &Path, other: &Path) -> Self {
        Self { others: vec![Self::at(other)], ..Self::at(path) }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where processes of this user may have come to that were started with other variables, or when there was another
    /// place: `/run/user/UID` comes with the user's first login and goes with the last one. None where WEIR_DIR names the place.
    pub(crate) fn others(&self) -> &[Self] {
        &self.others
    }

    /// Makes the directory if it is missing, and makes sure that nobody else can write to it or replace it.
    pub fn prepare(&self) -> Result<(), BadDirectory> {
        // The usual case first: 200 processes of a group start one after another.
        let meta = match look(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.check_parents()?;
                // What another has made meanwhile is looked at below.
                DirBuilder::new().recursive(true).mode(0o700).create(&self.path).and_then(|()| look(&self.path))
            }
            other => other,
        };
        // A stranger's parent explains why the rest cannot be reached.
        self.check_parents()?;
        match meta {
            Ok(meta) if meta.uid() != map::user() => Err(bad(&self.path, stranger(meta.uid()))),
            Ok(meta) if !is_private(&meta) => Err(bad(&self.path, open_to_all(&meta))),
            Ok(_) => Ok(()),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP)) => {
                Err(bad(&self.path, LINK.into()))
            }
            Err(e) => Err(bad(&self.path, e.to_string())),
        }
    }

    /// Up to the first parent that is not ours alone, nobody else may be able to replace what is ours. A parent may be
    /// reached by a link, if it is not a stranger's.
    fn check_parents(&self) -> Result<(), BadDirectory> {
        for (up, parent) in self.path.ancestors().enumerate().skip(1) {
            let (Ok(name), Ok(meta)) = (fs::symlink_metadata(parent), fs::metadata(parent)) else {
                continue; // cannot be reached, for a reason that lies further up
            };
            if let Some(user) = [name.uid(), meta.uid()].into_iter().find(|user| !is_trusted(*user)) {
                return Err(bad(parent, stranger(user)));
            }
            if up == 1 && self.parent == Parent::Folder && name.is_symlink() {
                return Err(bad(parent, LINK.into()));
            }
            if is_private(&meta) {
                continue;
            }
            let protected = meta.mode() & 0o022 == 0 || meta.mode() & 0o1000 != 0 || meta.uid() == map::user();
            if !protected || (up == 1 && self.parent != Parent::Any) {
                return Err(bad(parent, open_to_all(&meta)));
            }
            if !name.is_symlink() {
                break;
            }
        }
        Ok(())
    }
}

const LINK: &str = "it is not a directory (links are not followed)";

fn bad(path: &Path, problem: String) -> BadDirectory {
    BadDirectory { path: path.to_owned(), problem }
}

fn stranger(user: u32) -> String {
    format!("it belongs to user {user}, not to {}", map::user())
}

fn open_to_all(meta: &Metadata) -> String {
    format!("others can write to it (mode {:04o})", meta.mode() & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch(name: &str) -> PathBuf {
        let base = std::env::temp_dir().join(format!("weir-place-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        DirBuilder::new().mode(0o700).create(&base).unwrap();
        base
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_variables_are_taken_in_order() {
        let base = scratch("order");
        let runtime = base.to_str();
        let path =
            |w: Option<&str>, x: Option<&str>| LedgerDir::from_variables(w.map(Path::new), x.map(Path::new)).path;
        assert_eq!(path(Some("/a"), runtime), Path::new("/a/ledger"));
        assert_eq!(path(None, runtime), base.join("weir"));
        assert_eq!(path(Some("relative"), runtime), base.join("weir"));
        for not_mine in ["/tmp", "/nowhere"] {
            let fallback = path(None, Some(not_mine));
            assert!(fallback.starts_with("/run/user") || fallback.starts_with("/dev/shm"), "{fallback:?}");
        }
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_shared_directory_has_a_folder_for_each_user() {
        let base = scratch("shared");
        let given = Some(base.as_path());
        assert_eq!(LedgerDir::from_variables(given, None).path, base.join("ledger"));
        let chosen_before = LedgerDir::from_variables(given, None);
        chmod(&base, 0o1777);
        let place = LedgerDir::from_variables(given, None);
        assert_eq!(place.path, base.join(format!("weir-{}/ledger", map::user())));
        place.prepare().unwrap();
        assert!(chosen_before.prepare().is_err(), "its name in a shared directory is anybody's");
        chmod(place.path.parent().unwrap(), 0o777);
        assert!(place.prepare().is_err(), "somebody could replace it");
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_directory_that_others_control_is_refused() {
        let base = scratch("control");
        let good = base.join("good");
        LedgerDir::at(&good).prepare().unwrap();
        assert_eq!(fs::metadata(&good).unwrap().mode() & 0o777, 0o700);
        let link = base.join("link");
        symlink(&good, &link).unwrap();
        assert!(LedgerDir::at(&link).prepare().unwrap_err().to_string().contains("links are not followed"));
        chmod(&good, 0o777);
        assert!(LedgerDir::at(&good).prepare().unwrap_err().to_string().contains("others can write"));
        let file = base.join("file");
        fs::write(&file, "").unwrap();
        assert!(LedgerDir::at(file.join("x")).prepare().is_err());
        if map::user() != 0 {
            assert!(LedgerDir::at("/proc").prepare().unwrap_err().to_string().contains("belongs to"));
        }
        fs::remove_dir_all(&base).unwrap();
    }
}
