//! Turns a journal into lifetimes: every block with the entry that made it and the entry that ended it. From these the
//! page derives what was live at any moment.

use std::collections::HashMap;

use weir_journal::reader::{Error, Reader, Slot};
use weir_journal::{Attribution, Class, Event, FLAG_UNKNOWN_ADDRESS, Kind};

use crate::is_held;

/// Entries kept in full, the newest; what is older is shown as a curve only.
pub(super) const MOST_ENTRIES: usize = 2 << 20;
/// Marks, such as steps, kept at most.
const MOST_MARKS: usize = 1 << 18;
/// Points of the curve of what is older.
const MOST_HISTORY: usize = 2048;

/// What a block is, and who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    /// The sort of memory; none for memory that was mapped.
    pub class: Option<Class>,
    pub device: u8,
    pub by: Attribution,
}

/// A piece of memory from its allocation to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub address: u64,
    pub given: u64,
    pub asked: u64,
    pub owner: Owner,
}

/// What an entry does to the live set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    Mark,
    /// The next block comes to life.
    Birth,
    /// This block ends.
    End(usize),
}

/// One event that the page can stop at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The event's number in the journal.
    pub seq: u64,
    /// Nanoseconds since the journal's start; never less than that of the entry before.
    pub time: u64,
    pub change: Change,
}

/// An event that is drawn as a mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Its entry.
    pub entry: usize,
    pub event: Event,
}

/// Host memory at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostSample {
    pub time: u64,
    pub resident: u64,
    pub pinned: u64,
}

/// Most bytes live on a device in a stretch of time before the first entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub device: u8,
    pub time: u64,
    pub bytes: u64,
}

/// Everything that the page needs of a journal's events.
#[derive(Debug, Default)]
pub(super) struct Lifetimes {
    pub entries: Vec<Entry>,
    pub blocks: Vec<Block>,
    /// Blocks that were live before the first entry; they are the first ones.
    pub before: usize,
    pub marks: Vec<Mark>,
    pub host: Vec<HostSample>,
    pub past: Vec<Past>,
    /// Events on the way that are missing in the journal.
    pub missed: u64,
    /// Events older than the first entry that are there.
    pub older: u64,
}

fn is_mark(kind: Kind) -> bool {
    use Kind::{CapChange, Exit, Failed, Fork, Oom, Refused, SoftMark, Spill, Step, TurnedOff, Unspill, Wait};
    matches!(
        kind,
        Oom | Failed | Refused | CapChange | Step | SoftMark | Fork | TurnedOff | Spill | Unspill | Wait | Exit
    )
}

impl Lifetimes {
    /// Reads a journal, newest event first, and puts it in order.
    pub(super) fn of(reader: &Reader, most: usize) -> Result<Self, Error> {
        let mut replay = reader.replay()?;
        let mut newest = Vec::new();
        while newest.len() < most
            && let Some(slot) = replay.back()?
        {
            if let Slot::Event(event) = slot
                && (matches!(event.kind, Kind::Alloc | Kind::Free | Kind::Map | Kind::Unmap | Kind::Steal)
                    || is_mark(event.kind)
                    || event.kind == Kind::HostSample)
            {
                newest.push(event);
            }
        }
        let mut order =
            Forward { lifetimes: Self { missed: replay.missed(), ..Self::default() }, ..Forward::default() };
        let mut before: Vec<_> = replay.live().copied().collect();
        before.sort_unstable_by_key(|entry| (entry.time, entry.address));
        for entry in before {
            let owner = Owner { class: Some(entry.class), device: entry.device, by: entry.by };
            order.birth(entry.address, Block { address: entry.address, given: entry.given, asked: entry.asked, owner });
        }
        let first = replay.position();
        drop(replay);
        order.lifetimes.before = order.lifetimes.blocks.len();
        let header = reader.header();
        for event in newest.iter().rev() {
            let elapsed = header.elapsed_ns(header.started.ticks, event.time);
            order.take(event, u64::try_from(elapsed).unwrap_or(0));
        }
        let mut lifetimes = order.lifetimes;
        lifetimes.past(reader, first)?;
        Ok(lifetimes)
    }

    /// The curve of what happened before event `first`.
    fn past(&mut self, reader: &Reader, first: u64) -> Result<(), Error> {
        let (oldest, _) = reader.range();
        self.older = first.saturating_sub(oldest);
        let width = (self.older / MOST_HISTORY as u64).max(1);
        let header = reader.header();
        let mut live: HashMap<(u8, Class), u64> = HashMap::new();
        let mut bins: HashMap<u8, Past> = HashMap::new();
        for (count, slot) in reader.events().enumerate() {
            let Slot::Event(event) = slot? else { continue };
            if event.seq >= first {
                break;
            }
            if matches!(event.kind, Kind::Alloc | Kind::Free) && is_held(event.class) {
                live.insert((event.device, event.class), event.live_after);
                let bytes =
                    live.iter().filter(|((device, _), _)| *device == event.device).map(|(_, bytes)| bytes).sum();
                let time = u64::try_from(header.elapsed_ns(header.started.ticks, event.time)).unwrap_or(0);
                let bin = bins.entry(event.device).or_insert(Past { device: event.device, time, bytes: 0 });
                bin.time = time;
                bin.bytes = bin.bytes.max(bytes);
            }
            if count as u64 % width == width - 1 {
                self.past.extend(bins.drain().map(|(_, bin)| bin));
            }
        }
        self.past.extend(bins.into_values());
        self.past.sort_by_key(|past| past.time);
        Ok(())
    }
}

/// Events put in order, oldest first.
#[derive(Default)]
struct Forward {
    lifetimes: Lifetimes,
    /// Which block is live at an address, by class.
    at: HashMap<(Option<Class>, u64), usize>,
    time: u64,
}

impl Forward {
    fn birth(&mut self, address: u64, block: Block) {
        self.at.insert((block.owner.class, address), self.lifetimes.blocks.len());
        self.lifetimes.blocks.push(block);
    }

    fn entry(&mut self, seq: u64, change: Change) {
        self.lifetimes.entries.push(Entry { seq, time: self.time, change });
    }

    fn take(&mut self, event: &Event, time: u64) {
        self.time = self.time.max(time);
        let mapped = Owner { class: None, device: event.device, by: Attribution::default() };
        match event.kind {
            Kind::HostSample => {
                self.lifetimes.host.push(HostSample { time: self.time, resident: event.given, pinned: event.asked });
            }
            Kind::Alloc => {
                let owner = Owner { class: Some(event.class), device: event.device, by: event.by };
                self.replace(event.seq, event.address, Block { owner, ..block_of(event) });
            }
            Kind::Free if event.flags & FLAG_UNKNOWN_ADDRESS == 0 => {
                self.end(event.seq, (Some(event.class), event.address));
            }
            Kind::Map => self.replace(event.seq, event.address, Block { owner: mapped, ..block_of(event) }),
            Kind::Unmap => self.end(event.seq, (None, event.address)),
            Kind::Steal => {
                self.end(event.seq, (None, event.asked));
                let block = Block { owner: mapped, asked: event.given, ..block_of(event) };
                self.replace(event.seq, event.address, block);
            }
            kind if is_mark(kind) && self.lifetimes.marks.len() < MOST_MARKS => {
                self.lifetimes.marks.push(Mark { entry: self.lifetimes.entries.len(), event: *event });
                self.entry(event.seq, Change::Mark);
            }
            _ => {}
        }
    }

    /// A block comes to life. One that is still there at the same address has ended unseen: its event is missing.
    fn replace(&mut self, seq: u64, address: u64, block: Block) {
        self.end(seq, (block.owner.class, address));
        self.entry(seq, Change::Birth);
        self.birth(address, block);
    }

    fn end(&mut self, seq: u64, key: (Option<Class>, u64)) {
        if let Some(block) = self.at.remove(&key) {
            self.entry(seq, Change::End(block));
        }
    }
}

fn block_of(event: &Event) -> Block {
    let owner = Owner { class: None, device: event.device, by: Attribution::default() };
    Block { address: event.address, given: event.given, asked: event.asked, owner }
}
