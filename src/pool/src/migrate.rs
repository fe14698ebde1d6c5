//! Migration: the memory behind live bytes is exchanged for better memory, as the backing judges it: a
//! spill's host memory for device memory once there is room. Pointers and contents stay. Only with the
//! device stopped. Plans under the lock, copies and remaps without it.

use crate::Fault;
use crate::backing::{Backing, BackingError, Handle, PeerAccess};
use crate::block::State;
use crate::core::{Core, LOST};
use crate::fault::injected;
use crate::replace::{Place, Replaced};
use crate::stats::DriverCalls;

/// A granule whose memory may be exchanged.
pub(crate) struct Exchange {
    arena: usize,
    index: u32,
    addr: u64,
    pub(crate) old: Handle,
    pub(crate) bytes: u64,
    grants: Vec<PeerAccess>,
}

/// What became of an exchange.
pub(crate) enum Exchanged {
    /// The new memory is in place; the old is mapped nowhere.
    Yes,
    /// As it was; the new memory is mapped nowhere.
    No,
    /// As it was, but the new memory could not be taken out of the window again.
    Stuck,
    /// Neither: the granule's memory is gone. The new one is mapped nowhere.
    Lost(BackingError),
}

impl Exchange {
    /// Fill `new` at `window`, where nothing else is mapped, and put it in the old one's place.
    pub(crate) fn run(&self, backing: &impl Backing, window: u64, new: Handle, calls: &mut DriverCalls) -> Exchanged {
        calls.map += 1;
        if backing.map(window, self.bytes, new).is_err() {
            return Exchanged::No;
        }
        let filled = self.fill(backing, window, calls);
        // Once more, for what can't be taken out of the window is lost.
        calls.unmap += 1;
        if backing.unmap(window, self.bytes).is_err() && backing.unmap(window, self.bytes).is_err() {
            return Exchanged::Stuck;
        }
        if filled.is_err() {
            return Exchanged::No;
        }
        let place = Place { addr: self.addr, bytes: self.bytes, grants: &self.grants };
        match place.replace(backing, self.old, new, calls) {
            Replaced::Yes => Exchanged::Yes,
            Replaced::No => Exchanged::No,
            Replaced::Lost(error) => Exchanged::Lost(error),
        }
    }

    fn fill(&self, backing: &impl Backing, window: u64, calls: &mut DriverCalls) -> Result<(), BackingError> {
        calls.set_access += 1;
        backing.set_access(window, self.bytes, &[])?;
        if injected(Fault::MigrateWithoutCopy) {
            return Ok(());
        }
        calls.copy += 1;
        backing.copy(window, self.addr, self.bytes)
    }
}

impl Core {
    /// Every granule with live bytes that may be exchanged: nobody else knows its memory.
    pub(crate) fn plan_exchanges(&mut self) -> Vec<Exchange> {
        self.flush_free_lists(0);
        self.flush_free_lists(1);
        let mut plans = Vec::new();
        for (number, arena) in self.arenas.iter().enumerate() {
            for index in 0..arena.granule_count() {
                let granule = arena.granule(index);
                let pinned = granule.pins > 0 && !injected(Fault::PinIgnored);
                if matches!(granule.handle, 0 | LOST) || granule.mesh != 0 || pinned {
                    continue;
                }
                let (start, end) = (index << arena.granule_shift, (index + 1) << arena.granule_shift);
                let live = arena.live_over(&self.blocks, start).is_some()
                    || arena.live_within(&self.blocks, start, end).is_some();
                if live {
                    plans.push(Exchange {
                        arena: number,
                        index,
                        addr: arena.addr_of(start),
                        old: granule.handle,
                        bytes: arena.granule_bytes(),
                        grants: self.grants.clone(),
                    });
                }
            }
        }
        plans
    }

    /// Commit one exchange. Returns the handle that is to be released now.
    pub(crate) fn finish_exchange(&mut self, plan: &Exchange, new: Handle, exchanged: &Exchanged) -> Option<Handle> {
        // Until one of the two is released both are held.
        self.counters.mapped(plan.bytes);
        let granule = self.arenas.get_mut(plan.arena).and_then(|arena| arena.granule_at(plan.index));
        match (exchanged, granule) {
            (Exchanged::Yes, Some(granule)) => {
                granule.handle = new;
                self.counters.migrated += 1;
                Some(plan.old)
            }
            (Exchanged::Lost(_), Some(granule)) => {
                granule.handle = LOST;
                self.counters.lost_bytes += plan.bytes;
                self.abandon(plan.arena, plan.index);
                Some(new)
            }
            (Exchanged::Stuck, _) => {
                self.window = 0;
                self.counters.lost_bytes += plan.bytes;
                None
            }
            _ => Some(new),
        }
    }

    /// A granule's memory is lost: its free bytes are never used again, nor are its live ones once freed.
    fn abandon(&mut self, arena: usize, index: u32) {
        let shift = self.arenas.get(arena).map_or(0, |arena| arena.granule_shift);
        let (start, end) = (index << shift, (index + 1) << shift);
        for id in 1..self.blocks.len() {
            let block = *self.blocks.get(id);
            if usize::from(block.arena) != arena || block.start >= end || block.end() <= start {
                continue;
            }
            match block.state {
                State::Live => self.blocks.at(id).pins = block.pins.saturating_add(1),
                State::Free => {
                    let piece = self.cut_out(id, start, end);
                    self.blocks.at(piece).state = State::Lost;
                }
                _ => {}
            }
        }
    }

    /// The handle was released, or is kept for later.
    pub(crate) fn finish_exchanged(&mut self, plan: &Exchange, handle: Handle, released: bool) {
        if released {
            self.counters.unmapped(plan.bytes);
        } else if let Some(arena) = self.arenas.get(plan.arena) {
            self.spare[arena.handle_class.min(1)].push(handle);
        }
    }
}
