//! How many old journals are kept: `WEIR_KEEP`. Journals of living processes are never removed, and those of runs that
//! ran out of memory are counted apart: many short runs do not drive out the one that matters. Allocates and makes system
//! calls; runs when a journal is made, and in the command.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::create::{Identity, boot_id, pid_namespace, stat_fields, stat_of};
use crate::reader::{Header, Reader};
use crate::sys::clock::Clock;
use crate::sys::files::{self, SafeDir};
pub use weir_settings::record::Keep;

/// Whether the writer of a journal lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It lives.
    Alive,
    /// It is certainly dead.
    Dead,
    /// It runs, or ran, in another pid namespace of this machine: its number means nothing here.
    Unknown,
}

/// Whether the process with this identity lives, as far as it can be known from here.
pub fn life_of(identity: &Identity) -> Life {
    if identity.boot != boot_id() {
        return Life::Dead;
    }
    if identity.namespace != pid_namespace() {
        return Life::Unknown;
    }
    match stat_of(identity.pid).ok().as_deref().and_then(stat_fields) {
        Some((_, start)) if start == identity.start => Life::Alive,
        _ => Life::Dead,
    }
}

/// Whether the writer of this journal lives: it holds the file's lock, or the process is still there.
pub fn journal_life(file: &File, header: Option<&Header>) -> Life {
    if !files::try_lock_shared(file) {
        return Life::Alive;
    }
    match header {
        Some(header) if began_before(header.identity.boot, header.started.monotonic, Clock::Monotonic.now()) => {
            Life::Dead
        }
        Some(header) => life_of(&header.identity),
        None => Life::Dead,
    }
}

/// Whether a journal is certainly of an earlier boot where the kernel does not name its boots: its clock, which began at
/// zero with its boot, was further than ours is. Numbers of processes and their starts are alike from boot to boot there.
fn began_before(boot: [u8; 16], begun: u64, now: u64) -> bool {
    boot == [0; 16] && begun > now
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Journals.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A journal of a dead process: when it was changed, its name and its size.
type Dead = (SystemTime, String, u64);

/// Which of some journals of dead processes go, those of one kind apart from those of the other: in each as many stay as
/// are kept, the newest. Bytes are those of both together; the kind that has more of them gives, its oldest first.
fn beyond(keep: Keep, mut kinds: [Vec<Dead>; 2]) -> Vec<Dead> {
    let mut gone = Vec::new();
    for kind in &mut kinds {
        kind.sort_unstable_by(|one, other| other.cmp(one));
        let most = keep.count.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        gone.extend(kind.drain(most.min(kind.len())..));
    }
    let size = |kind: &Vec<Dead>| kind.iter().map(|(_, _, size)| size).sum::<u64>();
    loop {
        let [ran_out, others] = &mut kinds;
        let (first, second) = (size(ran_out), size(others));
        let larger = if first > second { ran_out } else { others };
        match larger.pop().filter(|_| keep.bytes.is_some_and(|most| first.saturating_add(second) > most)) {
            Some(oldest) => gone.push(oldest),
            None => return gone,
        }
    }
}

/// Removes journals of dead processes beyond what is kept, oldest first, with their OOM files and XLA's. Touches only plain files
/// of this user with a journal's name.
pub fn clear_up(dir: &Path, keep: Keep) -> io::Result<Removed> {
    let dir = SafeDir::open(dir)?;
    let mut dead = [Vec::new(), Vec::new()];
    for entry in std::fs::read_dir(dir.path())? {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| is_journal_name(name)) else {
            continue;
        };
        let Ok(file) = dir.open_own(name) else {
            continue;
        };
        let (Ok(meta), Ok(copy)) = (file.metadata(), file.try_clone()) else {
            continue;
        };
        let reader = Reader::of(Box::new(copy)).ok();
        let life = journal_life(&file, reader.as_ref().map(Reader::header));
        if may_go(life, &meta, reader.is_some()) {
            let [ran_out, others] = &mut dead;
            let kind = if reader.is_some_and(|reader| reader.header().ran_out()) { ran_out } else { others };
            let beside = dir.folder(&xla_of(name)).and_then(|folder| folder.content()).unwrap_or_default();
            let bytes = meta.len() + beside.iter().map(|(_, size)| size).sum::<u64>();
            kind.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), name.to_owned(), bytes));
        }
    }
    let mut removed = Removed::default();
    for (_, name, size) in beyond(keep, dead) {
        if remove_with(&dir, &name).is_ok() {
            removed.count += 1;
            removed.bytes += size;
        }
    }
    Ok(removed)
}

/// Removes one journal or recording of this user, with its OOM file and XLA's. One whose writer lives, or may live in another
/// container, is refused.
pub fn remove(path: &Path) -> io::Result<Removed> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned()));
    let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| is_run_name(name)) else {
        return refused("its name is not that of a run");
    };
    let dir = SafeDir::open_plain(parent)?;
    let file = dir.open_own(name)?;
    let reader = Reader::of(Box::new(file.try_clone()?)).ok();
    let recording = reader.as_ref().is_some_and(Reader::is_recording);
    match journal_life(&file, reader.as_ref().map(Reader::header)) {
        // A recording that is complete so far may be of a process that lives.
        _ if recording => {}
        Life::Alive => return refused("its job runs"),
        Life::Unknown => return refused("its job may run in another container"),
        Life::Dead => {}
    }
    let beside = dir.folder(&xla_of(name)).and_then(|folder| folder.content()).unwrap_or_default();
    let bytes = file.metadata()?.len() + beside.iter().map(|(_, size)| size).sum::<u64>();
    remove_with(&dir, name)?;
    Ok(Removed { count: 1, bytes })
}

/// Removes a file and what lies beside it.
fn remove_with(dir: &SafeDir, name: &str) -> io::Result<()> {
    dir.remove(name)?;
    let _ = dir.remove(&format!("{name}.oom.json"));
    let _ = dir.remove_folder(&xla_of(name));
    Ok(())
}

/// The folder for XLA's files beside a journal of this name.
fn xla_of(name: &str) -> String {
    format!("{}.{}", name.strip_suffix(".weir").unwrap_or(name), crate::beside::EXTENSION)
}

/// A file that commands take for a run: a journal or a recording, whatever it is called otherwise.
fn is_run_name(name: &str) -> bool {
    [".weir", ".weirrec"].iter().any(|end| name.strip_suffix(end).is_some_and(|stem| !stem.is_empty()))
}

/// `SECONDS-PID.weir` or `SECONDS-PID-N.weir`.
fn is_journal_name(name: &str) -> bool {
    name.strip_suffix(".weir").is_some_and(|stem| {
        stem.contains('-')
            && stem.split('-').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Whether a journal counts as one of a dead process. A file that is not a journal yet may become one: its maker has a
/// minute. A job in another container may have closed the descriptor with the lock: its journal stays for a day.
fn may_go(life: Life, meta: &std::fs::Metadata, readable: bool) -> bool {
    let patience = match life {
        Life::Alive => return false,
        Life::Unknown => 24 * 60 * 60,
        Life::Dead if readable => 0,
        Life::Dead => 60,
    };
    meta.modified().ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age.as_secs() >= patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_journals() {
        assert!(is_journal_name("1700000000-42.weir") && is_journal_name("1700000000-42-7.weir"));
        for other in ["x.weir", "1.weir", "1-.weir", "1-2.weir.oom.json", "../1-2.weir", "1-2"] {
            assert!(!is_journal_name(other), "{other}");
        }
    }

    #[test]
    fn runs_that_ran_out_are_counted_apart() {
        let at = |second: u64| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
        let dead = |prefix: &str, from: u64, many: u64| -> Vec<Dead> {
            (from..from + many).map(|n| (at(n), format!("{prefix}{n}"), 10)).collect()
        };
        let gone = |keep, kinds| {
            let mut names: Vec<String> = beyond(keep, kinds).into_iter().map(|(_, name, _)| name).collect();
            names.sort();
            names
        };
        let two = Keep { count: Some(2), bytes: None };
        assert_eq!(gone(two, [dead("oom", 0, 1), dead("run", 1, 5)]), ["run1", "run2", "run3"]);
        assert_eq!(gone(two, [dead("oom", 0, 3), dead("run", 1, 1)]), ["oom0"]);
        let bytes = Keep { count: None, bytes: Some(40) };
        assert_eq!(gone(bytes, [dead("oom", 0, 4), dead("run", 7, 1)]), ["oom0"], "the newest run stays, too");
        assert_eq!(gone(bytes, [dead("oom", 0, 1), dead("run", 1, 5)]), ["run1", "run2"]);
        assert_eq!(gone(Keep { count: None, bytes: None }, [dead("oom", 0, 9), dead("run", 0, 9)]), [""; 0]);
        assert_eq!(
            gone(Keep { count: Some(0), bytes: None }, [dead("oom", 0, 1), dead("run", 0, 1)]),
            ["oom0", "run0"]
        );
    }

    #[test]
    fn the_folder_of_xla_goes_with_its_journal_and_links_in_it_lead_nowhere() {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
        let path = std::env::temp_dir().join(format!("weir-retention-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        let journal = crate::Journal::create(&crate::Options::in_dir(&path).sized(crate::Geometry::tiny())).unwrap();
        let folder = journal.make_xla_folder().unwrap();
        assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
        let precious = path.join("precious");
        std::fs::write(&precious, "x").unwrap();
        // What a process left that died before its journal was whole.
        let dead = path.join("1-1.weir");
        std::fs::write(&dead, "no journal").unwrap();
        std::fs::File::options().write(true).open(&dead).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let beside = crate::xla_folder(&dead);
        std::fs::create_dir(&beside).unwrap();
        std::fs::write(beside.join("module_0001.x.hlo.pb"), [0; 9000]).unwrap();
        symlink(&precious, beside.join("link")).unwrap();
        let removed = clear_up(&path, Keep { count: Some(0), bytes: None }).unwrap();
        assert!(removed.count == 1 && removed.bytes >= 9000, "{removed:?}");
        assert!(!dead.exists() && !beside.exists());
        assert!(precious.exists(), "a link was followed");
        assert!(folder.exists(), "that of a living process stays");
        drop(journal);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_run_is_removed_by_name_unless_its_job_runs() {
        let path = std::env::temp_dir().join(format!("weir-remove-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        let journal = crate::Journal::create(&crate::Options::in_dir(&path).sized(crate::Geometry::tiny())).unwrap();
        let living = journal.path().unwrap();
        assert_eq!(remove(&living).unwrap_err().to_string(), "its job runs");
        let (dead, note, link) = (path.join("1-1.weir"), path.join("1-1.weir.oom.json"), path.join("2-2.weir"));
        std::fs::write(&dead, "no journal").unwrap();
        std::fs::write(&note, "{}").unwrap();
        std::os::unix::fs::symlink(&dead, &link).unwrap();
        assert!(remove(&link).is_err() && dead.exists(), "a link is no run");
        assert!(remove(&note).unwrap_err().to_string().contains("not that of a run") && note.exists());
        assert_eq!(remove(&dead).unwrap(), Removed { count: 1, bytes: 10 });
        assert!(!dead.exists() && !note.exists() && living.exists());
        drop(journal);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_process_that_is_not_there_is_dead() {
        let own = Identity::own();
        assert_eq!(life_of(&own), Life::Alive);
        assert_eq!(life_of(&Identity { start: own.start + 1, ..own.clone() }), Life::Dead);
        assert_eq!(life_of(&Identity { boot: [1; 16], ..own }), Life::Dead);
    }

    #[test]
    fn a_clock_that_was_further_shows_another_boot_where_boots_have_no_name() {
        assert!(began_before([0; 16], 2, 1));
        assert!(!began_before([0; 16], 1, 2) && !began_before([1; 16], 2, 1));
    }
}
