//! The folder beside a journal in which XLA leaves what it knows of its arenas: `1700000000-42.xla` beside
//! `1700000000-42.weir`. Made for this user alone, and removed with its journal.

use std::io;
use std::path::{Path, PathBuf};

use crate::writer::Journal;

/// The end of the folder's name.
pub(crate) const EXTENSION: &str = "xla";

/// The folder of a journal, whether it exists or not.
pub fn xla_folder(journal: &Path) -> PathBuf {
    journal.with_extension(EXTENSION)
}

impl Journal {
    /// Makes the folder for XLA's files; an error where the journal itself is not on disk.
    pub fn make_xla_folder(&self) -> io::Result<PathBuf> {
        let (Some(dir), Some(stem)) = (&self.backing.dir, self.backing.name.strip_suffix(".weir")) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the journal is not on disk"));
        };
        let folder = dir.sub_folder(&format!("{stem}.{EXTENSION}"))?;
        Ok(folder.path().to_path_buf())
    }
}
