//! Which members are alive, and releasing what dead ones held.
//!
//! A member is dead when the kernel has released the lock on its row *and* its process is really gone: ended, waited for
//! or a zombie without threads. The lock goes with the address space, and the driver's descriptors, with which the memory
//! comes back, only after it: what was released in between would be counted twice. A process that lives on without its
//! lock has called exec or left. In another pid namespace, where a process id means nothing, the lock alone counts.
//!
//! A member is also dead when its process id is gone or belongs to a process that started at another time. That catches a
//! child that was forked in the few instructions between opening and closing the descriptor and keeps the lock by accident.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use crate::admission;
use crate::fault::{Fault, injected};
use crate::file::LedgerFile;
use crate::map;
use crate::table::{MAX_DEVICES, Table};
use crate::word::{Amount, Word};

/// Who this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) namespace: u64,
}

impl Identity {
    pub(crate) fn own() -> Self {
        Self {
            pid: std::process::id(),
            start: start_time(&std::process::id().to_string()).unwrap_or(0),
            namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino()),
        }
    }
}

/// Where a process is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Alive,
    /// It is being torn down: its memory may still be taken.
    Ending,
    /// It has ended, and only waits to be waited for.
    Ended,
}

/// What the system says of a process: where it is on its way, and when it started, in clock ticks since boot. The
/// command's name in the line may hold anything.
fn parse_stat(stat: &[u8]) -> Option<(Life, u64)> {
    /// The kernel's flag of a task that is on its way out.
    const EXITING: u64 = 4;
    let after_name = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(after_name + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Counted as in proc(5), where the state is the third.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    // The first thread may have ended while others go on, and keep everything.
    let ended = matches!(*fields.first()?, "Z" | "X" | "x") && number(20)? <= 1;
    let ending = number(9)? & EXITING != 0;
    Some((
        if ended {
            Life::Ended
        } else if ending {
            Life::Ending
        } else {
            Life::Alive
        },
        number(22)?,
    ))
}

fn stat_of(pid: &str) -> Option<(Life, u64)> {
    // By its first thread, which began with it: an emulator (QEMU) makes up the other file where a process reads its own.
    parse_stat(&fs::read(format!("/proc/{pid}/task/{pid}/stat")).ok()?)
}

/// When a process started, in clock ticks since boot.
fn start_time(pid: &str) -> Option<u64> {
    stat_of(pid).map(|(_, start)| start)
}

/// Distinguishes the living from the dead during one call; opens the file at most once.
pub(crate) struct Liveness<'b> {
    ledger: &'b LedgerFile,
    file: Option<File>,
    own: Identity,
    thorough: bool,
}

impl<'b> Liveness<'b> {
    pub(crate) fn new(ledger: &'b LedgerFile, own: Identity) -> Self {
        Self { ledger, file: ledger.reopen(), own, thorough: false }
    }

    /// Compares start times too: that reads a file of the system for every member, and finds only a process id that
    /// was used again while a child of the dead one keeps the lock. So it is not done every time.
    pub(crate) fn thorough(ledger: &'b LedgerFile, own: Identity) -> Self {
        Self { thorough: true, ..Self::new(ledger, own) }
    }

    /// Whether the row's owner is dead. In doubt it lives.
    pub(crate) fn is_dead(&self, slot: usize) -> bool {
        if injected(Fault::NoLivenessCheck) {
            return true;
        }
        let Some(table) = self.ledger.table() else {
            return false;
        };
        if let Some(file) = &self.file
            && map::first_locked(file, slot as u64, 1).is_ok_and(|locked| locked.is_none())
        {
            return !is_ending(table, slot, self.own.namespace);
        }
        let owner = table.owner(slot);
        let word = owner.pid.load();
        let (pid, start, namespace) = (word as u32, owner.start.load(), owner.namespace.load());
        if pid == 0 || namespace == 0 || namespace != self.own.namespace {
            return false;
        }
        let gone = !map::process_exists(pid)
            || (self.thorough && start != 0 && start_time(&pid.to_string()).is_some_and(|now| now != start));
        // The row may have got a new owner between the lock and the words.
        gone && owner.pid.load() == word
    }

    /// Releases all that dead members held and frees their rows; returns whether there was one.
    pub(crate) fn reclaim_dead(&self, own_slot: Option<usize>) -> bool {
        let Some(table) = self.ledger.table() else {
            return false;
        };
        let mut any = false;
        for slot in (0..table.members()).filter(|s| Some(*s) != own_slot) {
            let owner = table.owner(slot).pid;
            let seen = owner.load();
            // A row without an owner holds nothing, unless the file was damaged.
            let concerns = seen as u32 != 0
                || (0..MAX_DEVICES)
                    .filter(|d| table.device(*d).key.load() != 0)
                    .any(|d| Amount::unpack(table.cell(slot, d).held.load()).units != 0);
            if !concerns || !self.is_dead(slot) {
                continue;
            }
            any = true;
            for device in 0..MAX_DEVICES {
                admission::reclaim(table, slot, device, || self.is_dead(slot));
            }
            // Its cap, order and ticket count no more once the row has no owner. A new owner has another generation in
            // this word, so that a late call cannot clear it.
            owner.replace(seen, seen & !u64::from(u32::MAX));
        }
        any
    }
}

/// Whether the row's owner, who has lost its lock, is a process that is being torn down at this moment.
pub(crate) fn is_ending<W: Word>(table: Table<'_, W>, slot: usize, namespace: u64) -> bool {
    let owner = table.owner(slot);
    let pid = owner.pid.load() as u32;
    let here = pid != 0 && namespace != 0 && owner.namespace.load() == namespace;
    here && stat_of(&pid.to_string()) == Some((Life::Ending, owner.start.load()))
}

/// Makes a row ours, whose lock we have: reclaims what its last owner held, clears its requests, then writes the owner.
pub(crate) fn enter_row(ledger: &LedgerFile, slot: usize, own: Identity) {
    let Some(table) = ledger.table() else { return };
    for device in 0..MAX_DEVICES {
        admission::reclaim(table, slot, device, || true);
        let cell = table.cell(slot, device);
        let words = [cell.declared, cell.ordered, cell.ticket, cell.want, cell.beat, cell.peak];
        for word in words.into_iter().chain(cell.categories) {
            if word.load() != 0 {
                word.store(0);
            }
        }
    }
    let owner = table.owner(slot);
    owner.start.store(own.start);
    owner.namespace.store(own.namespace);
    let generation = (owner.pid.load() >> 32).wrapping_add(1) & u64::from(u32::MAX);
    owner.pid.store((generation << 32) | u64::from(own.pid));
}

/// Releases everything and leaves the row.
pub(crate) fn leave_row(ledger: &LedgerFile, slot: usize) {
    let Some(table) = ledger.table() else { return };
    for device in 0..MAX_DEVICES {
        admission::release(table, slot, device, u64::MAX);
    }
    let owner = table.owner(slot).pid;
    owner.store(owner.load() & !u64::from(u32::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(name: &str) -> (LedgerFile, usize, std::path::PathBuf) {
        let dir = std::env::temp_dir().join(format!("weir-members-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let (ledger, slot) = LedgerFile::join_group(&crate::LedgerDir::at(&dir), "g").unwrap();
        enter_row(&ledger, slot, Identity::own());
        (ledger, slot, dir)
    }

    #[test]
    fn a_process_id_used_again_does_not_keep_a_dead_member_alive() {
        let (ledger, slot, dir) = joined("reuse");
        let own = Identity::own();
        let owner = ledger.table().unwrap().owner(slot);
        assert!(!Liveness::new(&ledger, own).is_dead(slot));
        // The lock is still held (as by a child that inherited it), but the process of that id is another one.
        owner.start.store(own.start + 1);
        assert!(Liveness::thorough(&ledger, own).is_dead(slot), "another start time");
        owner.start.store(own.start);
        owner.pid.store(0x7fff_fff0);
        assert!(Liveness::new(&ledger, own).is_dead(slot), "no such process");
        owner.namespace.store(own.namespace + 1);
        assert!(!Liveness::new(&ledger, own).is_dead(slot), "in another namespace only the lock counts");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn in_doubt_a_member_lives() {
        let (ledger, slot, dir) = joined("doubt");
        fs::remove_file(&ledger.path).unwrap();
        assert!(!Liveness::new(&ledger, Identity::own()).is_dead(slot), "the locks cannot be queried any more");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn this_process_has_a_start_time_and_a_namespace() {
        let own = Identity::own();
        assert!(own.start > 0 && own.namespace > 0, "{own:?}");
        assert_eq!(start_time(&own.pid.to_string()), Some(own.start));
        assert_eq!(start_time("0"), None);
    }

    #[test]
    fn a_process_is_gone_when_its_last_thread_is() {
        let line = |state: &str, flags: u32, threads: u32| {
            format!("42 (a) b) {state} 1 1 1 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 {threads} 0 9753 1 2 3").into_bytes()
        };
        for (state, flags, threads, life) in [
            ("S", 0x40_0100, 3, Life::Alive),
            ("R", 0x40_0104, 1, Life::Ending),
            ("Z", 0x40_0104, 2, Life::Ending),
            ("Z", 0x40_0104, 1, Life::Ended),
            ("X", 0x40_0104, 1, Life::Ended),
        ] {
            assert_eq!(parse_stat(&line(state, flags, threads)), Some((life, 9753)), "{state} {flags:x} {threads}");
        }
        assert_eq!(parse_stat(b"nonsense"), None);
    }
}
