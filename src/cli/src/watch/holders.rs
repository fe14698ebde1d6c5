//! Who holds the memory: live allocations summed up by who requested them.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use weir_forensics::export::holdings::{Holding, holdings};
use weir_forensics::names::{self, tail};
use weir_forensics::xla::Live;
use weir_journal::reader::{Line, Reader};
use weir_journal::{Attribution, Class, LiveEntry};

use super::clean;

/// Names that are kept; further ones of a job that makes new names without end are summed up.
const MOST_NAMES: usize = 20_000;

/// Somebody who holds memory of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LiveHolder {
    /// TensorFlow operation; may be empty.
    pub(crate) op: String,
    /// Python line, `train.py:118 in train_step`; may be empty.
    pub(crate) line: String,
    /// What sort of memory.
    pub(crate) class: Class,
    /// Bytes live.
    pub(crate) bytes: u64,
    /// Allocations live.
    pub(crate) blocks: u64,
    /// Change over the time that the job's history covers.
    pub(crate) change: i64,
}

impl LiveHolder {
    /// What to call it, in at most `most` characters: the line, which is short, and the end of the operation's name, else
    /// what sort of memory it is.
    pub(crate) fn name(&self, most: usize) -> String {
        let line = tail(&self.line, most);
        match (self.line.is_empty(), self.op.is_empty()) {
            (false, false) => match most.saturating_sub(line.chars().count() + 2) {
                0..=3 => line,
                room => format!("{line}  {}", tail(&self.op, room)),
            },
            (false, true) => line,
            (true, false) => tail(&self.op, most),
            (true, true) => tail(&format!("({}, caller not known)", class_name(self.class)), most),
        }
    }
}

/// A class in words.
pub(crate) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Block => "pool block",
        Class::Device => "device memory",
        Class::Managed => "managed memory",
        Class::Array => "array",
        Class::Handle => "physical handle",
        Class::Pinned => "pinned host memory",
        Class::Registered => "registered host memory",
        Class::Imported => "imported memory",
        Class::Tensor => "tensor",
        Class::HostTensor => "tensor in host memory",
        Class::Overhead => "context and modules",
        Class::Reservation => "address range",
        Class::Other => "other memory",
    }
}

/// Names by their numbers in one journal; a number's name never changes.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<(u32, u32), (String, String)>, HashMap<u32, bool>);

impl Names {
    /// Whether XLA makes requests of this sort, each for a whole step.
    pub(super) fn is_xlas(&mut self, reader: &Reader, op: u32) -> bool {
        if self.1.len() > MOST_NAMES {
            self.1.clear();
        }
        let look = || reader.op(op).ok().flatten().is_some_and(|op| op.region == "xla");
        op != 0 && *self.1.entry(op).or_insert_with(look)
    }

    fn of(&mut self, reader: &Reader, by: Attribution) -> (String, String) {
        let key = (by.op, by.python);
        if let Some(known) = self.0.get(&key) {
            return known.clone();
        }
        let op = reader.op(by.op).ok().flatten().map(|op| clean(names::short_op(&op.name))).unwrap_or_default();
        let line = reader.python(by.python).ok().as_deref().and_then(own_line).map(shown).unwrap_or_default();
        if self.0.len() < MOST_NAMES && (by.op == 0 || !op.is_empty()) && (by.python == 0 || !line.is_empty()) {
            self.0.insert(key, (op.clone(), line.clone()));
        }
        (op, line)
    }
}

/// The innermost line of the user's own code, else the innermost one.
fn own_line(lines: &[Line]) -> Option<&Line> {
    lines.iter().find(|line| names::is_users(&line.file)).or(lines.first())
}

fn shown(line: &Line) -> String {
    let place = format!("{}:{}", names::base_name(&line.file), line.line);
    clean(&if line.function.is_empty() || line.function == "<module>" {
        place
    } else {
        format!("{place} in {}", line.function)
    })
}

/// A holder without its sums.
pub(super) type Key = (u8, String, String, Class);

/// Bytes and blocks by device and holder. What lies inside a region of TensorFlow's own allocator is counted for who
/// requested it, and only the rest of the region for who requested the region. So it is with what is known of the inside of
/// an arena of XLA's, as it is at the arena's own peak.
pub(super) fn sums(
    live: &[LiveEntry],
    reader: &Reader,
    known: &mut Names,
    mut xla: Option<(&mut Live, &Path)>,
) -> HashMap<Key, (u64, u64)> {
    if let Some((xla, journal)) = &mut xla {
        let arenas: Vec<u64> =
            live.iter().filter(|entry| known.is_xlas(reader, entry.by.op)).map(|entry| entry.requested).collect();
        xla.look(reader, journal, arenas.into_iter());
    }
    let mut sums: HashMap<Key, (u64, u64)> = HashMap::new();
    // First by number, which is cheap, then by name: different numbers may have one name.
    let mut by_number: HashMap<(u8, Attribution, Class), (u64, u64)> = HashMap::new();
    for Holding { entry, bytes } in holdings(live) {
        let by = Attribution { stack: 0, ..entry.by };
        let sum = by_number.entry((entry.device, by, entry.class)).or_default();
        let mut left = bytes;
        let arena = xla.as_ref().and_then(|(xla, _)| xla.arena(entry.requested));
        let arena = arena.filter(|_| known.is_xlas(reader, entry.by.op));
        for part in arena.map_or(&[][..], |arena| &arena.parts) {
            let bytes = part.bytes.min(left);
            left -= bytes;
            let key = (entry.device, clean(names::short_op(&part.op)), clean(&part.place()), entry.class);
            sums.entry(key).or_default().0 += bytes;
        }
        sum.0 += left;
        sum.1 += 1;
    }
    for ((device, by, class), (bytes, blocks)) in by_number {
        let (op, line) = known.of(reader, by);
        let sum = sums.entry((device, op, line, class)).or_default();
        sum.0 += bytes;
        sum.1 += blocks;
    }
    sums
}

/// The holders of these allocations, largest first.
pub(crate) fn holders_of(live: &[LiveEntry], reader: &Reader) -> Vec<LiveHolder> {
    let sums = sums(live, reader, &mut Names::default(), None).into_iter().filter(|(_, (bytes, _))| *bytes > 0);
    let mut holders: Vec<_> = sums
        .map(|((_, op, line, class), (bytes, blocks))| LiveHolder { op, line, class, bytes, blocks, change: 0 })
        .collect();
    holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| (&a.line, &a.op).cmp(&(&b.line, &b.op))));
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(file: &str, function: &str, line: u32) -> Line {
        Line { file: file.into(), function: function.into(), line }
    }

    #[test]
    fn the_users_line_is_found_below_the_packages() {
        let lines = [
            line("/v/lib/python3.11/site-packages/keras/x.py", "call", 9),
            line("/home/u/train.py", "step", 118),
            line("/home/u/main.py", "<module>", 3),
        ];
        assert_eq!(own_line(&lines).map(shown).unwrap(), "train.py:118 in step");
        assert_eq!(own_line(&lines[..1]).map(shown).unwrap(), "x.py:9 in call");
        assert_eq!(own_line(&lines[2..]).map(shown).unwrap(), "main.py:3");
    }
}
