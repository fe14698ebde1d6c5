//! Which process is which, and whether it lives: a pid alone may be given to another process.

use std::fs;
use std::io;

/// A process: its id and when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: u32,
    /// Clock ticks between boot and start.
    pub(super) start: u64,
}

impl Identity {
    /// The calling process.
    pub(super) fn own() -> io::Result<Self> {
        let pid = std::process::id();
        let stat = Stat::of(pid).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat cannot be read")))?;
        Ok(Self { pid, start: stat.start })
    }

    /// Whether this very process still lives. One that has ended but was not waited for holds nothing.
    pub(super) fn is_alive(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.start == self.start && !stat.ended)
    }
}

/// What /proc says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    start: u64,
    ended: bool,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        // By its first thread, which began with it: an emulator (QEMU) makes up the other file where a process reads its own.
        Self::parse(&fs::read(format!("/proc/{pid}/task/{pid}/stat")).ok()?)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        // The name of the program stands in parentheses and may hold anything, also parentheses.
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = core::str::from_utf8(&text[name_end + 1..]).ok()?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        // Counted from the state, which is field 3 of proc(5).
        let field = |number: usize| fields.get(number - 3).copied();
        let threads: u64 = field(20)?.parse().ok()?;
        // The first thread of a process may have ended while others go on.
        let ended = matches!(field(3)?, "Z" | "X" | "x") && threads <= 1;
        Some(Self { start: field(22)?.parse().ok()?, ended })
    }
}

/// What distinguishes one boot of the host from another; 0 where the kernel does not say.
pub(super) fn boot_id() -> u128 {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_process_is_read_whatever_its_name() {
        let line = b"42 (a) b) (c) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 9753 1 2 3";
        assert_eq!(Stat::parse(line), Some(Stat { start: 9753, ended: false }));
        let zombie = b"42 (a) Z 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9753 1 2 3";
        assert_eq!(Stat::parse(zombie), Some(Stat { start: 9753, ended: true }));
        let threads_go_on = b"42 (a) Z 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 9753 1 2 3";
        assert_eq!(Stat::parse(threads_go_on), Some(Stat { start: 9753, ended: false }));
        assert_eq!(Stat::parse(b"nonsense"), None);
    }

    #[test]
    fn a_process_is_itself_and_nobody_else() {
        let own = Identity::own().expect("an identity");
        assert!(own.is_alive());
        assert!(!Identity { start: own.start + 1, ..own }.is_alive());
        assert!(!Identity { pid: u32::MAX, ..own }.is_alive());
    }
}
