//! The state in a journal: what is live, and what was in flight.

use std::collections::{HashMap, HashSet};

use crate::event::{Event, FLAG_REBUILT, Kind, short_from_long};
use crate::flight::{InFlight, Intent};
use crate::layout::{BUCKET_WORDS, RECORD_BYTES, RECORD_WORDS, Section};
use crate::live::{FREE_BEGUN, LiveEntry, STATE_EMPTY, STATE_FREEING, STATE_LIVE};
use crate::reader::source::{read_words, records_of};
use crate::reader::{Error, Reader, Slot};

/// Live entries kept in memory at most; what is beyond is counted.
pub const MOST_LIVE: usize = 4 << 20;

/// Events rebuilt from the live table at most: one per thread that died in a free. More is damage.
const MOST_REBUILT: usize = 1 << 16;

/// What a call in flight was about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlightOf {
    /// To get something.
    Request(InFlight),
    /// To give back this allocation, which is listed as live too.
    Free(LiveEntry, u32),
}

/// What is live, and what was in flight.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Live allocations. One whose free was in flight is among them.
    pub live: Vec<LiveEntry>,
    /// Calls that had begun and not ended.
    pub in_flight: Vec<FlightOf>,
    /// Events that happened but whose record is not in the ring, rebuilt from the live table, by number.
    pub rebuilt: HashMap<u64, Event>,
    /// Entries and slots with a wrong checksum.
    pub damaged: u64,
    /// Live entries that were not kept, because there were too many.
    pub not_kept: u64,
    /// Bytes of the tables that the file does not have.
    pub cut: u64,
}

impl Reader {
    /// Reads what is live and what was in flight. For the journal of a dead process this is exact; of a living one it
    /// is a picture taken while things move.
    pub fn state(&self) -> Result<State, Error> {
        let mut state = State::default();
        self.read_table(&mut state)?;
        self.read_flights(&mut state)?;
        Ok(state)
    }

    fn read_table(&self, state: &mut State) -> Result<(), Error> {
        let range = self.header().section(Section::Live);
        state.cut = range.claimed.saturating_sub(range.present);
        let step = 512 * BUCKET_WORDS as u64 * 8;
        let mut bytes = vec![0; step.min(range.present) as usize];
        let mut at = 0;
        while at < range.present {
            let want = step.min(range.present - at) as usize;
            let done = self.source.read_at(bytes.get_mut(..want).unwrap_or_default(), range.offset + at)?;
            for (place, words) in records_of(bytes.get(..done).unwrap_or_default()).enumerate() {
                // The first line of a bucket is the control line.
                if place % (BUCKET_WORDS / RECORD_WORDS) != 0 && words[0] & 0xff != STATE_EMPTY {
                    self.note_entry(state, &words)?;
                }
            }
            if done < want {
                state.cut += (want - done) as u64;
                break;
            }
            at += want as u64;
        }
        Ok(())
    }

    fn note_entry(&self, state: &mut State, words: &[u64; RECORD_WORDS]) -> Result<(), Error> {
        let Some((entry, stage)) = LiveEntry::unpack(words) else {
            state.damaged += 1;
            return Ok(());
        };
        let end = words[7];
        match stage {
            STATE_FREEING if end != 0 && end & FREE_BEGUN == 0 => {
                // The free had happened; only its record, or the emptying of the entry, was missing.
                let seq = end - 1;
                if state.rebuilt.len() >= MOST_REBUILT {
                    state.damaged += 1;
                } else if !self.has_record(seq)? {
                    state.rebuilt.insert(seq, rebuilt_free(&entry, seq));
                }
                return Ok(());
            }
            STATE_FREEING => state.in_flight.push(FlightOf::Free(entry, (end & 0xff_ffff) as u32)),
            STATE_LIVE => {}
            _ => {
                state.damaged += 1;
                return Ok(());
            }
        }
        if state.live.len() >= MOST_LIVE {
            state.not_kept += 1;
            return Ok(());
        }
        state.live.push(entry);
        Ok(())
    }

    fn read_flights(&self, state: &mut State) -> Result<(), Error> {
        let range = self.header().section(Section::Flight);
        let words = read_words(&*self.source, range.offset, (range.present / 8) as usize)?;
        let slots: Vec<_> = words.as_chunks::<RECORD_WORDS>().0.iter().map(InFlight::unpack).collect();
        if slots.iter().all(|slot| *slot == Ok(None)) {
            return Ok(());
        }
        let births: HashSet<u64> = state.live.iter().map(|entry| entry.birth).collect();
        for slot in slots {
            match slot {
                Err(()) => state.damaged += 1,
                Ok(None) => {}
                Ok(Some(flight)) => {
                    let ended = match flight.seq {
                        Some(seq) => births.contains(&seq) || self.has_record(seq)?,
                        None => false,
                    };
                    if !ended {
                        state.in_flight.push(FlightOf::Request(flight));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the event is in the store, whole.
    pub(crate) fn has_record(&self, seq: u64) -> Result<bool, Error> {
        let (first, end) = self.range();
        if seq < first || seq >= end {
            return Ok(false);
        }
        let mut found = std::collections::VecDeque::new();
        self.batch(seq, seq + 1, &mut found)?;
        Ok(matches!(found.front(), Some(Slot::Event(event)) if event.seq == seq))
    }
}

fn rebuilt_free(entry: &LiveEntry, seq: u64) -> Event {
    Event {
        seq,
        time: entry.time,
        stream: entry.stream,
        address: entry.address,
        requested: entry.requested,
        allocated: entry.allocated,
        by: entry.by,
        aux: short_from_long(0),
        flags: FLAG_REBUILT,
        ..Event::new(Kind::Free, entry.class, entry.device)
    }
}

/// The event that made an allocation, from its entry.
pub fn rebuilt_alloc(entry: &LiveEntry) -> Event {
    Event {
        seq: entry.birth,
        time: entry.time,
        stream: entry.stream,
        address: entry.address,
        requested: entry.requested,
        allocated: entry.allocated,
        thread: entry.thread,
        by: entry.by,
        flags: FLAG_REBUILT,
        ..Event::new(Kind::Alloc, entry.class, entry.device)
    }
}

/// A free in flight as a request, for lists that show both alike.
impl FlightOf {
    /// What was wanted.
    pub fn intent(&self) -> Intent {
        match self {
            Self::Request(flight) => flight.intent,
            Self::Free(entry, _) => Intent {
                kind: Kind::Free,
                class: entry.class,
                device: entry.device,
                stream: entry.stream,
                requested: entry.requested,
                address: entry.address,
                by: entry.by,
            },
        }
    }

    /// By which thread; 0 is unknown.
    pub fn thread(&self) -> u32 {
        match self {
            Self::Request(flight) => flight.thread,
            Self::Free(_, thread) => *thread,
        }
    }
}

const _: () = assert!(RECORD_BYTES == 64 && RECORD_WORDS == 8);
