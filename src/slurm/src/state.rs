//! What a node keeps of a job until its end: `STATE/JOB/`, made by root, with the job's --gpu-mem (`requested`), and in it the
//! folder `processes` of the job's user, in which processes under weir report themselves and tasks leave their limits
//! and facts. What lies in the user's folder is read with care: regular files of the user only, a bounded number and size.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_settings::size::Amount;

use crate::limit;

/// Files that are read at most, and bytes of each.
const MOST: usize = 4096;
const MOST_BYTES: u64 = 64 << 10;
/// The end of the name of a file that holds a group's limit.
const LIMIT: &str = ".limit";

/// See the file's first comment.
#[derive(Clone, Debug)]
pub(crate) struct JobFolder(PathBuf);

/// What the end of a job has to know of its tasks; values come from the user.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    /// The folder in which the first task ran.
    pub(crate) folder: PathBuf,
    /// Variables of that task that say where journals and ledgers are.
    pub(crate) variables: Vec<(String, String)>,
}

impl JobFolder {
    /// The folder of a job.
    pub(crate) fn of(state: &Path, job: u32) -> Self {
        Self(state.join(job.to_string()))
    }

    /// The user's folder in it.
    pub(crate) fn processes(&self) -> PathBuf {
        self.0.join("processes")
    }

    /// Makes both; as root.
    pub(crate) fn make(&self, user: u32, group: u32) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o755).create(&self.0)?;
        let processes = self.processes();
        match DirBuilder::new().mode(0o700).create(&processes) {
            Ok(()) => std::os::unix::fs::lchown(&processes, Some(user), Some(group)),
            // Another step has made it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The user of the job; none if no step has begun here.
    pub(crate) fn user(&self) -> Option<(u32, u32)> {
        let meta = fs::symlink_metadata(self.processes()).ok().filter(fs::Metadata::is_dir)?;
        Some((meta.uid(), meta.gid()))
    }

    /// Keeps what the whole job requests; as root, before its first step.
    pub(crate) fn keep_requested(&self, text: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o755).create(&self.0)?;
        fs::write(self.0.join("requested"), text)
    }

    /// What the whole job requests.
    pub(crate) fn requested(&self) -> Option<String> {
        fs::read_to_string(self.0.join("requested")).ok()
    }

    /// Keeps a group's limit; as the user.
    pub(crate) fn keep_limit(&self, group: &str, amount: Amount) -> io::Result<()> {
        let text = match amount {
            Amount::Bytes(bytes) => format!("{bytes}B"),
            Amount::Share(_) => amount.to_string(),
        };
        once(&self.processes().join(format!("{group}{LIMIT}")), &text)
    }

    /// The limits that tasks were given here.
    pub(crate) fn limits(&self) -> Vec<(String, Amount)> {
        let files = self.files(LIMIT);
        files.into_iter().filter_map(|(name, text)| Some((name, limit::amount(&text).ok()?))).collect()
    }

    /// Keeps what the end of the job has to know; as the user, the first task's.
    pub(crate) fn keep_facts(&self, facts: &Facts) -> io::Result<()> {
        let variables: Vec<_> = facts.variables.iter().map(|(name, value)| json!([name, value])).collect();
        once(
            &self.processes().join("facts"),
            &json!({"folder": facts.folder.to_string_lossy(), "variables": variables}).to_string(),
        )
    }

    /// What the first task has left.
    pub(crate) fn facts(&self) -> Facts {
        let text = self.user().and_then(|(user, _)| read(&self.processes().join("facts"), user)).unwrap_or_default();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let pair = |pair: &Value| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()));
        let variables = value["variables"].as_array().into_iter().flatten().filter_map(pair).collect();
        Facts { folder: value["folder"].as_str().unwrap_or_default().into(), variables }
    }

    /// The last record of each process that has reported itself.
    pub(crate) fn records(&self) -> Vec<Value> {
        let mut all: Vec<Value> =
            self.files(".json").into_iter().filter_map(|(_, text)| serde_json::from_str(&text).ok()).collect();
        all.sort_by_key(|record: &Value| record["time"].as_u64());
        let mut last: Vec<Value> = Vec::new();
        for record in all {
            match last.iter_mut().find(|earlier| earlier["id"] == record["id"]) {
                Some(earlier) => *earlier = record,
                None => last.push(record),
            }
        }
        last
    }

    /// Whether nobody has looked at what the job has left; as root.
    pub(crate) fn first_look(&self) -> bool {
        OpenOptions::new().write(true).create_new(true).open(self.0.join("looked")).is_ok()
    }

    /// Removes everything; as root, at the end of the job.
    pub(crate) fn remove(&self) {
        // It follows no link in it.
        let _ = fs::remove_dir_all(&self.0);
    }

    /// The user's files whose names end so: the rest of the name and the text, in the order of names.
    fn files(&self, end: &str) -> Vec<(String, String)> {
        let Some((user, _)) = self.user() else { return Vec::new() };
        let entries = fs::read_dir(self.processes()).into_iter().flatten().flatten().take(MOST);
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?.strip_suffix(end)?.to_owned();
                Some((name, read(&entry.path(), user)?))
            })
            .collect();
        found.sort();
        found
    }
}

/// Writes a file unless it is there.
fn once(path: &Path, text: &str) -> io::Result<()> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(flags).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The text of a regular file of the user; a link, a pipe or the file of another is none.
fn read(path: &Path, user: u32) -> Option<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok().filter(|meta| meta.is_file() && meta.uid() == user && meta.nlink() == 1)?;
    let mut text = String::new();
    (meta.len() <= MOST_BYTES).then_some(())?;
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> (Self, JobFolder) {
            let dir = std::env::temp_dir().join(format!("weir-slurm-{name}-{}", std::process::id()));
            let folder = JobFolder::of(&dir, 7);
            let own = fs::metadata("/proc/self").unwrap();
            folder.make(own.uid(), own.gid()).unwrap();
            (Self(dir), folder)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_kept_is_found_again_and_the_first_word_counts() {
        let (_scratch, folder) = Scratch::new("kept");
        folder.make(0, 0).unwrap();
        folder.keep_limit("slurm-7-n1", Amount::Bytes(12)).unwrap();
        folder.keep_limit("slurm-7-n1", Amount::Bytes(99)).unwrap();
        folder.keep_limit("a", Amount::Share(333_333)).unwrap();
        assert_eq!(folder.limits(), [("a".into(), Amount::Share(333_333)), ("slurm-7-n1".into(), Amount::Bytes(12))]);
        let facts = Facts { folder: "/a b".into(), variables: vec![("HOME".into(), "/h\n".into())] };
        folder.keep_facts(&facts).unwrap();
        folder.keep_facts(&Facts::default()).unwrap();
        assert_eq!(folder.facts(), facts);
        folder.keep_requested("8G").unwrap();
        assert_eq!(folder.requested().as_deref(), Some("8G"));
        assert!(folder.first_look() && !folder.first_look());
        folder.remove();
        assert!(!folder.0.exists() && folder.user().is_none() && folder.records().is_empty());
    }

    #[test]
    fn the_last_word_of_a_process_counts() {
        let (_scratch, folder) = Scratch::new("last");
        for (name, record) in [
            ("7-2.json", r#"{"pid": 7, "id": "7-1", "time": 2, "state": "off"}"#),
            ("7-1.json", r#"{"pid": 7, "id": "7-1", "time": 1, "state": "on"}"#),
            ("8-1.json", "{"),
        ] {
            fs::write(folder.processes().join(name), record).unwrap();
        }
        let found = folder.records();
        assert!(found.len() == 1 && found[0]["state"] == "off", "{found:?}");
    }

    #[test]
    fn what_a_user_puts_there_cannot_make_root_read_another_file_or_wait() {
        let (_scratch, folder) = Scratch::new("hostile");
        let processes = folder.processes();
        let outside = folder.0.join("outside");
        fs::write(&outside, "8G").unwrap();
        std::os::unix::fs::symlink(&outside, processes.join("1.limit")).unwrap();
        fs::write(processes.join("2.limit"), vec![b'1'; MOST_BYTES as usize + 1]).unwrap();
        fs::write(processes.join("3.limit"), "8G").unwrap();
        fs::hard_link(processes.join("3.limit"), processes.join("4.json")).unwrap();
        let pipe = std::ffi::CString::new(processes.join("5.limit").to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        fs::create_dir(processes.join("6.limit")).unwrap();
        assert_eq!(folder.limits(), [], "a link, too much, another name of a file, a pipe and a processes");
        let own = fs::metadata(&processes).unwrap().uid();
        assert_eq!(read(&processes.join("3.limit"), own + 1), None, "another's file");
    }
}
