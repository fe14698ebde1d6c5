//! Where ledger files are, and a directory that only this user can write to.
//!
//! In this order: `$WEIR_DIR/ledger`, `$XDG_RUNTIME_DIR/weir`, `/run/user/UID/weir`, `/dev/shm/weir-UID`. The third is
//! usually the second, for processes that were started without the variable (cron, ssh): all processes of a user must
//! come to the same place, or their group falls apart. It touches only that directory.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::map;

/// Why the directory cannot be used.
#[derive(Debug)]
pub struct BadPlace {
    /// The directory.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

impl std::fmt::Display for BadPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {}; set WEIR_DIR to a directory on a local disk that is yours alone (mode 0700)",
            self.path.display(),
            self.problem
        )
    }
}

impl std::error::Error for BadPlace {}

/// A directory for ledger files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// The directory that the variables name, without looking at it; relative paths are not taken.
    pub fn from_variables(weir_dir: Option<&str>, xdg_runtime_dir: Option<&str>) -> Self {
        let user = map::user();
        let absolute = |text: Option<&str>| text.map(PathBuf::from).filter(|p| p.is_absolute());
        let run_user = PathBuf::from(format!("/run/user/{user}"));
        let path = if let Some(dir) = absolute(weir_dir) {
            dir.join("ledger")
        } else if let Some(dir) = absolute(xdg_runtime_dir) {
            dir.join("weir")
        } else if fs::symlink_metadata(&run_user).is_ok_and(|m| m.is_dir() && m.uid() == user) {
            run_user.join("weir")
        } else {
            PathBuf::from(format!("/dev/shm/weir-{user}"))
        };
        Self { path }
    }

    /// A directory by name.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory if it is missing, and makes sure that nobody else can write to it.
    pub fn prepare(&self) -> Result<(), BadPlace> {
        let bad = |problem: String| BadPlace { path: self.path.clone(), problem };
        // The usual case first: 200 processes of a group start one after another.
        let meta = match fs::symlink_metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.path)
                .and_then(|()| fs::symlink_metadata(&self.path)),
            other => other,
        }
        .map_err(|e| bad(e.to_string()))?;
        if !meta.is_dir() {
            return Err(bad("it is not a directory (links are not followed)".into()));
        }
        if meta.uid() != map::user() {
            return Err(bad(format!("it belongs to user {}, not to {}", meta.uid(), map::user())));
        }
        if meta.mode() & 0o022 != 0 {
            return Err(bad(format!("others can write to it (mode {:04o})", meta.mode() & 0o7777)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_variables_are_taken_in_order() {
        let path = |w, x| Place::from_variables(w, x).path;
        assert_eq!(path(Some("/a"), Some("/b")), Path::new("/a/ledger"));
        assert_eq!(path(None, Some("/b")), Path::new("/b/weir"));
        assert_eq!(path(Some("relative"), Some("/b")), Path::new("/b/weir"));
        let fallback = path(None, None);
        assert!(fallback.starts_with("/run/user") || fallback.starts_with("/dev/shm"), "{fallback:?}");
    }

    #[test]
    fn a_directory_that_others_control_is_refused() {
        let base = std::env::temp_dir().join(format!("weir-place-{}", std::process::id()));
        let good = base.join("good");
        Place::at(&good).prepare().unwrap();
        assert_eq!(fs::metadata(&good).unwrap().mode() & 0o777, 0o700);
        let link = base.join("link");
        symlink(&good, &link).unwrap();
        assert!(Place::at(&link).prepare().unwrap_err().to_string().contains("links are not followed"));
        fs::set_permissions(&good, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Place::at(&good).prepare().unwrap_err().to_string().contains("others can write"));
        let file = base.join("file");
        fs::write(&file, "").unwrap();
        assert!(Place::at(file.join("x")).prepare().is_err());
        if map::user() != 0 {
            assert!(Place::at("/proc").prepare().unwrap_err().to_string().contains("belongs to"));
        }
        fs::remove_dir_all(&base).unwrap();
    }
}
