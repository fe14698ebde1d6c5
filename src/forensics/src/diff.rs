//! Two runs side by side: what grew, by role, operation and Python line, at each run's peak and at its end. Reads two runs;
//! events are read twice and never kept.

use std::collections::{BTreeMap, HashMap};

use weir_journal::reader::{Error as ReadError, Slot};
use weir_journal::{Attribution, Class, Kind, LiveEntry, xla_folder};

use crate::export::timeline::Timeline;
use crate::survey::Survey;
use crate::{Error, Run, is_held, roles, xla};

/// Bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Amount {
    /// Bytes allocated.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// One group in both runs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Change {
    /// The role, operation or line.
    pub name: String,
    /// In the first run.
    pub before: Amount,
    /// In the second run.
    pub after: Amount,
}

impl Change {
    /// Bytes that the second run has more.
    pub fn bytes(&self) -> i64 {
        self.after.bytes as i64 - self.before.bytes as i64
    }
}

/// One moment of both runs, by group; the largest change first.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Moment {
    /// All that is held.
    pub total: (Amount, Amount),
    /// By what the memory is for, as far as names and lines show; how long it lives does not count here.
    pub by_role: Vec<Change>,
    /// By TensorFlow operation.
    pub by_op: Vec<Change>,
    /// By the user's Python line.
    pub by_line: Vec<Change>,
}

/// What is different between two runs on one device.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Diff {
    /// Which device.
    pub device: u8,
    /// The commands.
    pub commands: (String, String),
    /// When each held most.
    pub peak: Moment,
    /// At the end of each, or now.
    pub end: Moment,
    /// By operation and role inside the largest arena of compiled code of each, at that arena's own peak.
    pub compiled: Vec<Change>,
    /// Allocations in each, as far as they were recorded.
    pub allocations: (u64, u64),
    /// Events that are missing in each.
    pub lost: (u64, u64),
}

type Held = HashMap<(Attribution, Class), Amount>;

/// One run, summed up.
struct Side {
    peak: Held,
    end: Held,
    allocations: u64,
    lost: u64,
}

/// Compares two runs on a device. `progress` receives how much is done, and of how much.
pub fn diff(before: &Run, after: &Run, device: u8, progress: &mut dyn FnMut(u64, u64)) -> Result<Diff, Error> {
    let (first, second) = (sum_up(before, device, progress)?, sum_up(after, device, progress)?);
    let moment = |one: &Held, other: &Held| {
        let by = |name: &dyn Fn(&Run, Attribution, Class) -> String| changes((before, one), (after, other), name);
        let total = |held: &Held| held.values().fold(Amount::default(), |sum, part| sum.plus(*part));
        Moment {
            total: (total(one), total(other)),
            by_role: by(&|run, by, class| roles::by_name(&run.who(by), class, device).0.word().to_owned()),
            by_op: by(&|run, by, _| named(run.who(by).op_name(), "no operation known")),
            by_line: by(&|run, by, _| named(&run.who(by).place_in(), "no Python line known")),
        }
    };
    Ok(Diff {
        device,
        commands: (before.command(), after.command()),
        peak: moment(&first.peak, &second.peak),
        end: moment(&first.end, &second.end),
        compiled: inside((before, after), device, progress)?,
        allocations: (first.allocations, second.allocations),
        lost: (first.lost, second.lost),
    })
}

fn named(name: &str, otherwise: &str) -> String {
    if name.is_empty() { otherwise } else { name }.to_owned()
}

impl Amount {
    fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), blocks: self.blocks + other.blocks }
    }

    fn less(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), blocks: self.blocks.saturating_sub(other.blocks) }
    }
}

fn changes(
    (before, one): (&Run, &Held),
    (after, other): (&Run, &Held),
    name: &dyn Fn(&Run, Attribution, Class) -> String,
) -> Vec<Change> {
    let mut groups: BTreeMap<String, (Amount, Amount)> = BTreeMap::new();
    for ((by, class), amount) in one {
        let group = groups.entry(name(before, *by, *class)).or_default();
        group.0 = group.0.plus(*amount);
    }
    for ((by, class), amount) in other {
        let group = groups.entry(name(after, *by, *class)).or_default();
        group.1 = group.1.plus(*amount);
    }
    sorted(groups)
}

/// What is inside the largest arena of compiled code in both runs.
fn inside((before, after): (&Run, &Run), device: u8, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<Change>, Error> {
    let mut groups: BTreeMap<String, (Amount, Amount)> = BTreeMap::new();
    for (run, second) in [(before, false), (after, true)] {
        if !xla_folder(run.path()).is_dir() {
            continue;
        }
        let survey = Survey::of(run, None, &mut *progress)?;
        let arenas = xla::arenas(run, &survey, device, None);
        let Some(arena) = arenas.iter().max_by_key(|arena| arena.bytes) else { continue };
        let rest = Amount { bytes: arena.rest, blocks: u64::from(arena.rest > 0) };
        let parts = arena.parts.iter().map(|part| (part.words(), Amount { bytes: part.bytes, blocks: part.buffers }));
        for (name, amount) in parts.chain([("others together".to_owned(), rest)]) {
            let (first, last) = groups.entry(name).or_default();
            let side = if second { last } else { first };
            *side = side.plus(amount);
        }
    }
    Ok(sorted(groups))
}

/// The largest change first.
fn sorted(groups: BTreeMap<String, (Amount, Amount)>) -> Vec<Change> {
    let groups = groups.into_iter().filter(|(_, (before, after))| before.blocks + after.blocks > 0);
    let mut changes: Vec<Change> = groups.map(|(name, (before, after))| Change { name, before, after }).collect();
    changes.sort_by_key(|change| (std::cmp::Reverse(change.bytes().unsigned_abs()), change.name.clone()));
    changes
}

/// The books of a run on its way through its events.
#[derive(Default)]
struct Books {
    held: Held,
    total: u64,
}

impl Books {
    fn enter(&mut self, by: Attribution, class: Class, bytes: u64, comes: bool) {
        let one = Amount { bytes, blocks: 1 };
        let amount = self.held.entry((by, class)).or_default();
        *amount = if comes { amount.plus(one) } else { amount.less(one) };
        self.total = if comes { self.total + bytes } else { self.total.saturating_sub(bytes) };
    }

    fn open(entries: &[LiveEntry], device: u8) -> Self {
        let mut books = Self::default();
        for entry in entries.iter().filter(|entry| entry.device == device && is_held(entry.class)) {
            books.enter(entry.by, entry.class, entry.allocated, true);
        }
        books
    }
}

/// What is met on the way.
enum Seen {
    Entered { seq: u64, total: u64, comes: bool },
    Lost(u64),
}

fn sum_up(run: &Run, device: u8, progress: &mut dyn FnMut(u64, u64)) -> Result<Side, Error> {
    let broken = |error: ReadError| run.broken(&error);
    let timeline = Timeline::of(run.reader()).map_err(broken)?;
    let opening = timeline.opening().map_err(broken)?;
    let (mut allocations, mut lost) = (0, 0);
    // First where the peak is, then what is held there: keeping every candidate would cost more than reading twice.
    let mut books = Books::open(&opening, device);
    let (mut most, mut peak_at) = (books.total, None);
    let mut follow = |books: &mut Books, until: Option<u64>, seen: &mut dyn FnMut(Seen)| {
        for (done, slot) in timeline.events().enumerate() {
            if done % 8192 == 0 {
                progress(done as u64, timeline.length());
            }
            match slot? {
                Slot::Event(event) if event.device == device && is_held(event.class) => {
                    let comes = event.kind == Kind::Alloc;
                    if comes || event.kind == Kind::Free {
                        books.enter(event.by, event.class, event.allocated, comes);
                        seen(Seen::Entered { seq: event.seq, total: books.total, comes });
                        if until == Some(event.seq) {
                            break;
                        }
                    }
                }
                Slot::Event(_) => {}
                Slot::Lost(loss) => seen(Seen::Lost(loss.count)),
            }
        }
        Ok::<(), ReadError>(())
    };
    follow(&mut books, None, &mut |seen| match seen {
        Seen::Entered { seq, total, comes: true } => {
            allocations += 1;
            if total > most {
                (most, peak_at) = (total, Some(seq));
            }
        }
        Seen::Entered { .. } => {}
        Seen::Lost(count) => lost += count,
    })
    .map_err(broken)?;
    let mut at_peak = Books::open(&opening, device);
    if let Some(seq) = peak_at {
        follow(&mut at_peak, Some(seq), &mut |_| {}).map_err(broken)?;
    }
    let end = Books::open(timeline.live(), device);
    Ok(Side { peak: at_peak.held, end: end.held, allocations, lost })
}
