//! The folder beside a journal in which XLA leaves what it knows of its arenas: `1700000000-42.xla` beside
//! `1700000000-42.weir`. Made for this user alone, kept small while the job runs, and removed with its journal.

use std::io;
use std::path::{Path, PathBuf};

use crate::sys::files;
use crate::writer::Journal;

/// The end of the folder's name.
pub(crate) const EXTENSION: &str = "xla";
/// The end of the names of the files that have buffers; nothing else in the folder is read.
pub const XLA_MODULE: &str = "gpu_after_optimizations.hlo.pb";

/// Modules that are kept, fewer than XLA is told to write at most; and their bytes.
const MOST_MODULES: usize = 192;
const MOST_BYTES: u64 = 256 << 20;
/// A smaller limit on the size of files could end the job: writing beyond one raises a signal.
const LARGEST_FILE: u64 = 4 << 30;
/// What is to be free on the disk.
const LEAST_FREE: u64 = 2 << 30;

/// The folder of a journal, whether it exists or not.
pub fn xla_folder(journal: &Path) -> PathBuf {
    journal.with_extension(EXTENSION)
}

impl Journal {
    /// Makes the folder for XLA's files; an error where the journal itself is not on disk or little can be written.
    pub fn make_xla_folder(&self) -> io::Result<PathBuf> {
        let refused = |why: &str| Err(io::Error::new(io::ErrorKind::StorageFull, why));
        let Some((dir, name)) = self.xla() else { return refused("the journal is not on disk") };
        if self.backing.moved.is_some() {
            return refused("the journal is not where it should be");
        }
        if files::file_size_limit() < LARGEST_FILE {
            return refused("the process may not write large files");
        }
        if dir.free_bytes()? < LEAST_FREE {
            return refused("less than 2 GiB are free on the disk");
        }
        Ok(dir.sub_folder(&name)?.path().to_path_buf())
    }

    /// Removes from the folder what nothing reads and what is beyond its bound. `before`: what this returned the last time,
    /// or 0; nothing is done while the folder is as it was then. A file that XLA is writing may go: it is written to its end.
    pub fn tidy_xla_folder(&self, before: u64) -> u64 {
        let folder = self.xla().and_then(|(dir, name)| dir.folder(&name).ok());
        let Some(folder) = folder else { return before };
        if folder.changed() == before {
            return before;
        }
        for name in superfluous(folder.content().unwrap_or_default()) {
            let _ = folder.remove(&name);
        }
        folder.changed()
    }

    /// Removes the folder if nothing is in it.
    pub(crate) fn remove_empty_xla_folder(&self) {
        if let Some((dir, name)) = self.xla() {
            let _ = dir.remove_empty(&name);
        }
    }

    fn xla(&self) -> Option<(&files::SafeDir, String)> {
        let stem = self.backing.name.strip_suffix(".weir")?;
        Some((self.backing.dir.as_ref()?, format!("{stem}.{EXTENSION}")))
    }
}

/// Of these files with their sizes, those that go: what is no module; of more modules than are kept the smallest, whose arenas
/// are small; of more bytes the oldest, by XLA's own numbers.
fn superfluous(files: Vec<(String, u64)>) -> Vec<String> {
    let (mut modules, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|(name, _)| name.ends_with(XLA_MODULE));
    let mut gone: Vec<String> = others.into_iter().map(|(name, _)| name).collect();
    let number = |name: &str| {
        let digits = name.split("module_").nth(1).and_then(|rest| rest.split('.').next());
        digits.and_then(|digits| digits.parse::<u64>().ok()).unwrap_or(0)
    };
    modules.sort_unstable_by_key(|(name, bytes)| std::cmp::Reverse((*bytes, number(name))));
    gone.extend(modules.drain(MOST_MODULES.min(modules.len())..).map(|(name, _)| name));
    modules.sort_unstable_by_key(|(name, _)| std::cmp::Reverse(number(name)));
    let mut kept = 0_u64;
    let beyond = modules.into_iter().filter(|(_, bytes)| {
        let fits = kept.saturating_add(*bytes) <= MOST_BYTES;
        kept += if fits { *bytes } else { 0 };
        !fits
    });
    gone.extend(beyond.map(|(name, _)| name));
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(number: u64, bytes: u64) -> (String, u64) {
        (format!("module_{number:04}.f__.1.sm_8.0_{XLA_MODULE}"), bytes)
    }

    #[test]
    fn what_nothing_reads_goes() {
        let files =
            ["module_0001.f.ptx", "module_0001.f.before_optimizations.hlo.pb", "x"].map(|name| (name.to_owned(), 9));
        let mut gone = superfluous(files.iter().cloned().chain([module(1, 9)]).collect());
        gone.sort();
        assert_eq!(gone, ["module_0001.f.before_optimizations.hlo.pb", "module_0001.f.ptx", "x"]);
    }

    #[test]
    fn the_folder_is_tidied_when_it_has_changed_and_goes_when_it_is_empty() {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("weir-beside-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        let journal = crate::Journal::create(&crate::Options::in_dir(&path).sized(crate::Geometry::tiny())).unwrap();
        assert_eq!(journal.tidy_xla_folder(7), 7, "there is no folder");
        let folder = journal.make_xla_folder().unwrap();
        let (kept, text) = (folder.join(module(1, 0).0), folder.join("module_0001.f.ptx"));
        for file in [&kept, &text] {
            std::fs::write(file, "x").unwrap();
        }
        let after = journal.tidy_xla_folder(0);
        assert!(kept.exists() && !text.exists());
        std::fs::write(&text, "x").unwrap();
        // Clocks of file systems tick slowly: this is the state that was seen.
        let now = std::fs::metadata(&folder).unwrap();
        let seen = std::os::unix::fs::MetadataExt::mtime(&now) as u64 * 1_000_000_000
            + std::os::unix::fs::MetadataExt::mtime_nsec(&now) as u64;
        assert_eq!(journal.tidy_xla_folder(seen), seen);
        assert!(text.exists(), "looked at again though nothing had changed");
        assert!(journal.tidy_xla_folder(after.wrapping_sub(1)) >= after && !text.exists());
        journal.exiting(Some(0));
        assert!(kept.exists(), "what is in the folder stays");
        std::fs::remove_file(kept).unwrap();
        journal.exiting(Some(0));
        assert!(!folder.exists());
        drop(journal);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn too_many_modules_lose_the_smallest_and_too_many_bytes_the_oldest() {
        let many: Vec<_> = (0..MOST_MODULES as u64 + 2).map(|number| module(number, 1000 + number)).collect();
        assert_eq!(superfluous(many), [module(1, 0).0, module(0, 0).0]);
        // Numbers of five digits sort behind those of four.
        let large = vec![module(9_999, MOST_BYTES / 2), module(10_000, MOST_BYTES / 2), module(10_001, 1)];
        assert_eq!(superfluous(large), [module(9_999, 0).0]);
        let huge = vec![module(1, MOST_BYTES + 1), module(2, 5)];
        assert_eq!(superfluous(huge), [module(1, 0).0]);
    }
}
