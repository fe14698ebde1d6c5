//! Turns a journal into lifetimes: every block with the entry that made it and the entry that ended it. From these the
//! page derives what was live at any moment.

use std::collections::{BTreeMap, HashMap};

use weir_journal::reader::{Error, Reader, Slot};
use weir_journal::{Attribution, Class, Event, FLAG_UNKNOWN_ADDRESS, Kind};

use crate::is_held;

/// Entries kept in full, the newest; what is older is shown as a curve only.
pub(super) const MOST_ENTRIES: usize = 2 << 20;
/// Marks, such as steps, kept at most.
const MOST_MARKS: usize = 1 << 18;
/// Points of the curve of what is older.
const MOST_HISTORY: usize = 2048;

/// What a block is, and who requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HolderKey {
    /// The sort of memory; none for memory that was mapped.
    pub class: Option<Class>,
    pub device: u8,
    pub by: Attribution,
}

/// A piece of memory from its allocation to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveBlock {
    pub address: u64,
    pub allocated: u64,
    pub requested: u64,
    pub owner: HolderKey,
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
    pub blocks: Vec<LiveBlock>,
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
    use Kind::{
        Attempt, CapChange, Exit, Failed, Fork, Mark, Oom, Refused, RegionBegin, RegionEnd, SoftMark, Spill, Step,
        TurnedOff, Unspill, Wait,
    };
    matches!(
        kind,
        Oom | Failed
            | Refused
            | Attempt
            | CapChange
            | Step
            | SoftMark
            | Fork
            | TurnedOff
            | Spill
            | Unspill
            | Wait
            | Exit
            | Mark
            | RegionBegin
            | RegionEnd
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
                && (matches!(event.kind, Kind::Alloc | Kind::Free | Kind::Map | Kind::Unmap | Kind::Remap | Kind::Mesh)
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
            let owner = HolderKey { class: Some(entry.class), device: entry.device, by: entry.by };
            let block =
                LiveBlock { address: entry.address, allocated: entry.allocated, requested: entry.requested, owner };
            order.birth(entry.class, block);
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
    at: HashMap<(Class, u64), usize>,
    /// Which memory is mapped where.
    mapped: BTreeMap<u64, usize>,
    time: u64,
}

impl Forward {
    fn take(&mut self, event: &Event, time: u64) {
        self.time = self.time.max(time);
        match event.kind {
            Kind::HostSample => {
                let (resident, pinned) = (event.allocated, event.requested);
                self.lifetimes.host.push(HostSample { time: self.time, resident, pinned });
            }
            Kind::Alloc => {
                let owner = HolderKey { class: Some(event.class), device: event.device, by: event.by };
                let block =
                    LiveBlock { address: event.address, allocated: event.allocated, requested: event.requested, owner };
                // What is still there at the same address has ended unseen: its event is missing.
                self.free(event);
                self.entry(event.seq, Change::Birth);
                self.birth(event.class, block);
            }
            Kind::Free if event.flags & FLAG_UNKNOWN_ADDRESS == 0 => self.free(event),
            Kind::Map | Kind::Remap | Kind::Mesh => {
                self.unmap(event);
                self.entry(event.seq, Change::Birth);
                self.mapped.insert(event.address, self.lifetimes.blocks.len());
                let owner = HolderKey { class: None, device: event.device, by: Attribution::default() };
                let (address, allocated) = (event.address, event.allocated);
                self.lifetimes.blocks.push(LiveBlock { address, allocated, requested: allocated, owner });
            }
            Kind::Unmap => self.unmap(event),
            kind if is_mark(kind) && self.lifetimes.marks.len() < MOST_MARKS => {
                self.lifetimes.marks.push(Mark { entry: self.lifetimes.entries.len(), event: *event });
                self.entry(event.seq, Change::Mark);
            }
            _ => {}
        }
    }

    fn birth(&mut self, class: Class, block: LiveBlock) {
        self.at.insert((class, block.address), self.lifetimes.blocks.len());
        self.lifetimes.blocks.push(block);
    }

    fn entry(&mut self, seq: u64, change: Change) {
        self.lifetimes.entries.push(Entry { seq, time: self.time, change });
    }

    fn free(&mut self, event: &Event) {
        if let Some(block) = self.at.remove(&(event.class, event.address)) {
            self.entry(event.seq, Change::End(block));
        }
    }

    /// What was mapped anywhere in the event's range is no longer.
    fn unmap(&mut self, event: &Event) {
        let range = event.address..event.address.saturating_add(event.allocated.max(1));
        let gone: Vec<(u64, usize)> = self.mapped.range(range).map(|(address, block)| (*address, *block)).collect();
        for (address, block) in gone {
            self.mapped.remove(&address);
            self.entry(event.seq, Change::End(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{End, Job, MIB};
    use std::path::PathBuf;

    /// A job of some hundred blocks that come and go, and the folder of its journal.
    fn journal(name: &str, ring: u64) -> (PathBuf, Reader) {
        let dir = std::env::temp_dir().join(format!("weir-lifetimes-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let mut job = Job::new(&dir, ring).unwrap();
        let who = job.who("dense/MatMul", 7);
        let mut live = Vec::new();
        for n in 0..600_u64 {
            if n % 3 == 2 {
                let place = (n * 7919 % live.len() as u64) as usize;
                job.free(live.swap_remove(place));
            } else {
                live.push(job.alloc(who, (n % 50 + 1) * MIB));
            }
            if n % 100 == 0 {
                job.step();
                job.host(n, n);
            }
            job.wait(0.001);
        }
        let path = job.end(End::Killed).unwrap();
        (dir, Reader::open(&path).unwrap())
    }

    /// The live set after entry `entry`, from the lifetimes alone.
    fn live_after(lifetimes: &Lifetimes, entry: usize) -> (u64, usize) {
        let mut live: Vec<bool> = vec![true; lifetimes.before];
        for entry in &lifetimes.entries[..=entry] {
            match entry.change {
                Change::Birth => live.push(true),
                Change::End(block) => live[block] = false,
                Change::Mark => {}
            }
        }
        let there = lifetimes.blocks.iter().zip(live).filter(|(_, live)| *live);
        there.fold((0, 0), |(bytes, blocks), (block, _)| (bytes + block.allocated, blocks + 1))
    }

    #[test]
    fn every_moment_is_that_of_the_journal_however_much_is_kept() {
        // Whole; cut by the page's limit; cut by the ring.
        for (name, ring, most) in [("whole", 1024, usize::MAX), ("cut", 1024, 150), ("lapped", 128, usize::MAX)] {
            let (dir, reader) = journal(name, ring);
            let lifetimes = Lifetimes::of(&reader, most).unwrap();
            assert_eq!(lifetimes.before == 0, name == "whole");
            for place in [0, lifetimes.entries.len() / 2, lifetimes.entries.len() - 1] {
                let true_live = reader.live_at(lifetimes.entries[place].seq).unwrap().unwrap();
                let bytes = true_live.iter().map(|entry| entry.allocated).sum();
                assert_eq!(live_after(&lifetimes, place), (bytes, true_live.len()), "{name}, entry {place}");
            }
            assert!(lifetimes.entries.is_sorted_by_key(|entry| (entry.time, entry.seq)));
            std::fs::remove_dir_all(dir).unwrap();
        }
    }

    #[test]
    fn what_is_older_than_the_entries_is_a_curve_that_meets_them() {
        let (dir, reader) = journal("past", 1024);
        let lifetimes = Lifetimes::of(&reader, 150).unwrap();
        assert!(lifetimes.older > 400 && !lifetimes.past.is_empty());
        let last = lifetimes.past.last().unwrap();
        let before: u64 = lifetimes.blocks[..lifetimes.before].iter().map(|block| block.allocated).sum();
        assert!(last.time <= lifetimes.entries[0].time && last.bytes >= before, "{last:?}, then {before}");
        assert!(Lifetimes::of(&reader, usize::MAX).unwrap().past.is_empty());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
