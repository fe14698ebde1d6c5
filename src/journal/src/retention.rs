//! How many old journals are kept: `WEIR_KEEP`. Journals of living processes are never removed. Allocates and makes
//! system calls; runs when a journal is made, and in the command.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::create::{Identity, boot_id, pid_namespace, stat_fields};
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

/// Whether the process with this identity lives, as far as it can be told from here.
pub fn life_of(identity: &Identity) -> Life {
    if identity.boot != boot_id() {
        return Life::Dead;
    }
    if identity.namespace != pid_namespace() {
        return Life::Unknown;
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", identity.pid));
    match stat.ok().as_deref().and_then(stat_fields) {
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

/// Removes journals of dead processes beyond what is kept, oldest first, with their OOM files. Touches only plain files
/// of this user with a journal's name.
pub fn clear_up(dir: &Path, keep: Keep) -> io::Result<Removed> {
    let dir = SafeDir::open(dir)?;
    let mut dead = Vec::new();
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
            dead.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), name.to_owned(), meta.len()));
        }
    }
    dead.sort();
    let (mut count, mut bytes) = (dead.len() as u64, dead.iter().map(|(_, _, size)| size).sum::<u64>());
    let mut removed = Removed::default();
    for (_, name, size) in dead {
        if keep.count.is_none_or(|most| count <= most) && keep.bytes.is_none_or(|most| bytes <= most) {
            break;
        }
        if dir.remove(&name).is_ok() {
            let _ = dir.remove(&format!("{name}.oom.json"));
            removed.count += 1;
            removed.bytes += size;
        }
        count -= 1;
        bytes -= size;
    }
    Ok(removed)
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
    fn a_process_that_is_not_there_is_dead() {
        let own = Identity::own();
        assert_eq!(life_of(&own), Life::Alive);
        assert_eq!(life_of(&Identity { start: own.start + 1, ..own.clone() }), Life::Dead);
        assert_eq!(life_of(&Identity { boot: [1; 16], ..own }), Life::Dead);
    }

    #[test]
    fn a_clock_that_was_further_tells_another_boot_where_boots_have_no_name() {
        assert!(began_before([0; 16], 2, 1));
        assert!(!began_before([0; 16], 1, 2) && !began_before([1; 16], 2, 1));
    }
}
