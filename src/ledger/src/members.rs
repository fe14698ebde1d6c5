//! Who is alive, and giving back what the dead held.
//!
//! A member is dead when the kernel has released the lock on its row, or when its process id is gone or belongs to a
//! process that started at another time. The second catches a child that was forked in the few instructions between
//! opening and closing the descriptor and keeps the lock by accident; it is used only within the same pid namespace.
//!
//! The driver frees the memory of a killed process a moment after the kernel has ended its address space. A request
//! admitted in that moment can still be refused by the driver itself; it is then given back like any other.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use crate::admission;
use crate::faults::{Defect, planted};
use crate::file::Book;
use crate::map;
use crate::table::MAX_DEVICES;
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
            start: start_time("self").unwrap_or(0),
            namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino()),
        }
    }
}

/// When a process started, in clock ticks since boot: field 22 of its stat line, counted after the command's name.
fn start_time(pid: &str) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(after_name + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Tells the living from the dead during one call; opens the file at most once.
pub(crate) struct Census<'b> {
    book: &'b Book,
    file: Option<File>,
    own: Identity,
    thorough: bool,
}

impl<'b> Census<'b> {
    pub(crate) fn new(book: &'b Book, own: Identity) -> Self {
        Self { book, file: book.reopen(), own, thorough: false }
    }

    /// Compares start times too: that reads a file of the system for every member, and finds only a process id that
    /// was used again while a child of the dead one keeps the lock. So it is not done every time.
    pub(crate) fn thorough(book: &'b Book, own: Identity) -> Self {
        Self { thorough: true, ..Self::new(book, own) }
    }

    /// Whether the row's owner is dead. In doubt it lives.
    pub(crate) fn is_dead(&self, slot: usize) -> bool {
        if planted(Defect::NoLivenessCheck) {
            return true;
        }
        let Some(table) = self.book.table() else {
            return false;
        };
        if let Some(file) = &self.file
            && map::first_locked(file, slot as u64, 1).is_ok_and(|locked| locked.is_none())
        {
            return true;
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

    /// Gives back all that dead members held and frees their rows; tells whether there was a dead one.
    pub(crate) fn bury_dead(&self, own_slot: Option<usize>) -> bool {
        let Some(table) = self.book.table() else {
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
                admission::bury(table, slot, device, || self.is_dead(slot));
            }
            // Its cap, order and ticket count no more once the row has no owner. A new owner has another generation in
            // this word, so that a late hand cannot put it out.
            owner.replace(seen, seen & !u64::from(u32::MAX));
        }
        any
    }
}

/// Makes a row ours, whose lock we have: buries what its last owner left, wipes its wishes, then signs.
pub(crate) fn move_in(book: &Book, slot: usize, own: Identity) {
    let Some(table) = book.table() else { return };
    for device in 0..MAX_DEVICES {
        admission::bury(table, slot, device, || true);
        let cell = table.cell(slot, device);
        let wishes = [cell.declared, cell.ordered, cell.ticket, cell.want, cell.beat, cell.peak];
        for word in wishes.into_iter().chain(cell.categories) {
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

/// Gives everything back and leaves the row.
pub(crate) fn move_out(book: &Book, slot: usize) {
    let Some(table) = book.table() else { return };
    for device in 0..MAX_DEVICES {
        admission::give_back(table, slot, device, u64::MAX);
    }
    let owner = table.owner(slot).pid;
    owner.store(owner.load() & !u64::from(u32::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(name: &str) -> (Book, usize, std::path::PathBuf) {
        let dir = std::env::temp_dir().join(format!("weir-members-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let (book, slot) = Book::join_group(&crate::Place::at(&dir), "g").unwrap();
        move_in(&book, slot, Identity::own());
        (book, slot, dir)
    }

    #[test]
    fn a_process_id_used_again_does_not_keep_a_dead_member_alive() {
        let (book, slot, dir) = joined("reuse");
        let own = Identity::own();
        let owner = book.table().unwrap().owner(slot);
        assert!(!Census::new(&book, own).is_dead(slot));
        // The lock is still held (as by a child that inherited it), but the process of that id is another one.
        owner.start.store(own.start + 1);
        assert!(Census::thorough(&book, own).is_dead(slot), "another start time");
        owner.start.store(own.start);
        owner.pid.store(0x7fff_fff0);
        assert!(Census::new(&book, own).is_dead(slot), "no such process");
        owner.namespace.store(own.namespace + 1);
        assert!(!Census::new(&book, own).is_dead(slot), "in another namespace only the lock counts");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn in_doubt_a_member_lives() {
        let (book, slot, dir) = joined("doubt");
        fs::remove_file(&book.path).unwrap();
        assert!(!Census::new(&book, Identity::own()).is_dead(slot), "the locks cannot be asked any more");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn this_process_has_a_start_time_and_a_namespace() {
        let own = Identity::own();
        assert!(own.start > 0 && own.namespace > 0, "{own:?}");
        assert_eq!(start_time(&own.pid.to_string()), Some(own.start));
        assert_eq!(start_time("0"), None);
    }
}
