//! A journal's events as a whole story: what was live before the first event, the events in order with those that
//! only the live table still knows put back in their places, and what is live at the end. Reads a journal.

use std::collections::BTreeMap;

use weir_journal::reader::{Error, Loss, Reader, Slot, State, rebuilt_alloc};
use weir_journal::{Event, LiveEntry};

/// See the file's first comment.
#[derive(Debug)]
pub struct Timeline<'reader> {
    reader: &'reader Reader,
    state: State,
    known: BTreeMap<u64, Event>,
}

impl<'reader> Timeline<'reader> {
    /// Reads the final state of a journal.
    pub fn of(reader: &'reader Reader) -> Result<Self, Error> {
        let state = reader.state()?;
        let (first, end) = reader.range();
        let born = state.live.iter().filter(|entry| (first..end).contains(&entry.birth));
        let mut known: BTreeMap<u64, Event> = born.map(|entry| (entry.birth, rebuilt_alloc(entry))).collect();
        known.extend(state.rebuilt.iter().map(|(seq, event)| (*seq, *event)));
        Ok(Self { reader, state, known })
    }

    /// The journal.
    pub fn reader(&self) -> &'reader Reader {
        self.reader
    }

    /// What is live at the end.
    pub fn live(&self) -> &[LiveEntry] {
        &self.state.live
    }

    /// What was live before the first event that is still there. Goes back through all events once.
    pub fn opening(&self) -> Result<Vec<LiveEntry>, Error> {
        self.live_before(self.reader.range().0)
    }

    /// What was live before this event. Goes back through it and all later ones once.
    pub fn live_before(&self, event: u64) -> Result<Vec<LiveEntry>, Error> {
        let mut replay = self.reader.replay()?;
        while replay.position() > event && replay.back()?.is_some() {}
        let mut opening: Vec<LiveEntry> = replay.live().copied().collect();
        opening.sort_unstable_by_key(|entry| (entry.time, entry.address, entry.class as u8));
        Ok(opening)
    }

    /// How many events there may be.
    pub fn length(&self) -> u64 {
        let (first, end) = self.reader.range();
        end - first
    }

    /// The events in order; lost ones that the live table knows are put back.
    pub fn events(&self) -> impl Iterator<Item = Result<Slot, Error>> + '_ {
        self.events_from(self.reader.range().0)
    }

    /// The same from this event on.
    pub fn events_from(&self, first: u64) -> impl Iterator<Item = Result<Slot, Error>> + '_ {
        self.reader.events_from(first).flat_map(|slot| match slot {
            Ok(Slot::Lost(loss)) => self.pieces(loss),
            other => vec![other],
        })
    }

    /// A loss, cut where single events of it are known.
    fn pieces(&self, loss: Loss) -> Vec<Result<Slot, Error>> {
        let (mut pieces, mut at) = (Vec::new(), loss.first);
        let end = loss.first + loss.count;
        for (seq, event) in self.known.range(loss.first..end) {
            if *seq > at {
                pieces.push(Ok(Slot::Lost(Loss { first: at, count: seq - at, why: loss.why })));
            }
            pieces.push(Ok(Slot::Event(*event)));
            at = seq + 1;
        }
        if at < end {
            pieces.push(Ok(Slot::Lost(Loss { first: at, count: end - at, why: loss.why })));
        }
        pieces
    }
}
