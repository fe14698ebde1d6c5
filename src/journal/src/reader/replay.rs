//! The state at every event that is still there: the last state, and the events undone one by one, newest first.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use crate::event::{Class, Event, FLAG_NOT_IN_TABLE, FLAG_UNKNOWN_ADDRESS, Kind};
use crate::live::LiveEntry;
use crate::reader::state::{State, rebuilt_alloc};
use crate::reader::{Error, Loss, Reader, Slot, Why};

/// The birth of an allocation that is known only from its free: the event is older than the oldest one.
pub const BIRTH_UNKNOWN: u64 = u64::MAX;

type Key = (Class, u64);

/// A hash for addresses: millions of them are looked up, and nobody gains from making them collide.
#[derive(Clone, Copy, Debug, Default)]
struct AddressHash(u64);

impl Hasher for AddressHash {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}

type Live = HashMap<Key, LiveEntry, BuildHasherDefault<AddressHash>>;

/// Goes back through time.
#[derive(Debug)]
pub struct Replay<'reader> {
    reader: &'reader Reader,
    live: Live,
    /// Older owners of an address that has a newer one: the older free was not written down yet.
    shadowed: Vec<LiveEntry>,
    rebuilt: HashMap<u64, Event>,
    /// Which live entry each event made; built when the first missing event is met.
    births: Option<HashMap<u64, LiveEntry>>,
    ready: VecDeque<Slot>,
    first: u64,
    next: u64,
    missed: u64,
}

impl Reader {
    /// Starts at the last state.
    pub fn replay(&self) -> Result<Replay<'_>, Error> {
        Ok(Replay::from(self, self.state()?))
    }

    /// What was live right after event `seq`; `None` when that event is no longer, or not yet, there.
    pub fn live_at(&self, seq: u64) -> Result<Option<Vec<LiveEntry>>, Error> {
        let (first, end) = self.range();
        if seq < first || seq >= end {
            return Ok(None);
        }
        let mut replay = self.replay()?;
        while replay.position() > seq + 1 {
            if replay.back()?.is_none() {
                break;
            }
        }
        Ok(Some(replay.live().copied().collect()))
    }
}

impl<'reader> Replay<'reader> {
    fn from(reader: &'reader Reader, state: State) -> Self {
        let (first, end) = reader.range();
        let mut replay = Self {
            reader,
            live: Live::with_capacity_and_hasher(state.live.len(), BuildHasherDefault::default()),
            shadowed: Vec::new(),
            rebuilt: state.rebuilt,
            births: None,
            ready: VecDeque::new(),
            first,
            next: end,
            missed: 0,
        };
        for entry in state.live {
            replay.add(entry);
        }
        replay
    }

    /// What is live here.
    pub fn live(&self) -> impl Iterator<Item = &LiveEntry> {
        self.live.values().chain(&self.shadowed)
    }

    /// The number of events before here: the state is that right after event `position() - 1`.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Events on the way that were missing: above 0, the state here may be wrong by as many allocations or frees.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    fn add(&mut self, entry: LiveEntry) {
        if let Some(other) = self.live.insert((entry.class, entry.address), entry) {
            let known = |entry: &LiveEntry| entry.birth.wrapping_add(1);
            let (newer, older) = if known(&other) > known(&entry) { (other, entry) } else { (entry, other) };
            self.live.insert((newer.class, newer.address), newer);
            self.shadowed.push(older);
        }
    }

    /// Undoes the last event and returns it; `None` at the oldest one.
    pub fn back(&mut self) -> Result<Option<Slot>, Error> {
        if self.ready.is_empty() && !self.fetch()? {
            return Ok(None);
        }
        let Some(slot) = self.ready.pop_back() else {
            return Ok(None);
        };
        let slot = match slot {
            Slot::Event(event) => Slot::Event(event),
            Slot::Lost(Loss { first, count, why }) => {
                // One at a time: single ones among them may be known from the live table.
                let last = first + count - 1;
                if count > 1 && (why == Why::Unwritten || why == Why::Torn) {
                    self.ready.push_back(Slot::Lost(Loss { first, count: count - 1, why }));
                    self.recovered(last).map_or(Slot::Lost(Loss { first: last, count: 1, why }), Slot::Event)
                } else {
                    self.recovered(last)
                        .filter(|_| count == 1)
                        .map_or(Slot::Lost(Loss { first, count, why }), Slot::Event)
                }
            }
        };
        match slot {
            Slot::Event(event) => {
                self.undo(&event);
                self.next = event.seq;
            }
            Slot::Lost(loss) => {
                self.missed += loss.count;
                self.next = loss.first;
            }
        }
        Ok(Some(slot))
    }

    fn recovered(&mut self, seq: u64) -> Option<Event> {
        if let Some(event) = self.rebuilt.get(&seq) {
            return Some(*event);
        }
        let all = self.live.values().chain(&self.shadowed);
        let births = self.births.get_or_insert_with(|| all.map(|entry| (entry.birth, *entry)).collect());
        births.get(&seq).map(rebuilt_alloc)
    }

    fn fetch(&mut self) -> Result<bool, Error> {
        if self.next <= self.first {
            return Ok(false);
        }
        let mut at = self.reader.batch_before(self.next).max(self.first);
        while at < self.next {
            at = self.reader.batch(at, self.next, &mut self.ready)?;
        }
        Ok(!self.ready.is_empty())
    }

    /// Takes the owner of an address that has this birth away; whether there was one.
    fn remove(&mut self, key: Key, birth: u64) -> bool {
        let shadow = |entry: &LiveEntry| (entry.class, entry.address) == key;
        if self.live.get(&key).is_some_and(|entry| entry.birth == birth) {
            self.live.remove(&key);
            if let Some(place) = self.shadowed.iter().position(shadow) {
                let older = self.shadowed.swap_remove(place);
                self.live.insert(key, older);
            }
            return true;
        }
        let place = self.shadowed.iter().rposition(|entry| shadow(entry) && entry.birth == birth);
        place.map(|place| self.shadowed.swap_remove(place)).is_some()
    }

    fn undo(&mut self, event: &Event) {
        let key = (event.class, event.address);
        match event.kind {
            Kind::Alloc if event.flags & FLAG_NOT_IN_TABLE == 0 => {
                // What is known only from its free has no birth; an older owner beside it keeps its own.
                let _ = self.remove(key, event.seq) || self.remove(key, BIRTH_UNKNOWN);
            }
            Kind::Free if event.flags & FLAG_UNKNOWN_ADDRESS == 0 => self.add(LiveEntry {
                address: event.address,
                allocated: event.allocated,
                requested: event.requested,
                class: event.class,
                device: event.device,
                stream: event.stream,
                birth: BIRTH_UNKNOWN,
                time: event.time.saturating_sub(event.age().unwrap_or(0)),
                thread: 0,
                by: event.by,
            }),
            _ => {}
        }
    }
}
