//! Invariants that can be checked from inside the pool, and the list of what is mapped.
//! Reads host memory only; for tests, the bench and reports, not for a hit.

use crate::block::{Block, DEVICE, Id, NIL, State};
use crate::config::UNIT_SHIFT;
use crate::core::{Core, LARGE, LOST};
use crate::order::Domain;

impl Core {
    /// Runs of mapped granules, as addresses.
    pub(crate) fn mapped_runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for arena in self.arenas.iter().filter(|_| self.config.vmm) {
            let bytes = arena.granule_bytes();
            for index in (0..arena.granule_count()).filter(|index| !matches!(arena.granule(*index).handle, 0 | LOST)) {
                let addr = arena.addr_of(index << arena.granule_shift);
                match runs.last_mut() {
                    Some((start, len)) if *start + *len == addr => *len += bytes,
                    _ => runs.push((addr, bytes)),
                }
            }
        }
        runs
    }

    /// Check every invariant; the message names the first that is broken.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut firsts = [NIL; 3];
        let mut counts = [0usize; 3];
        for id in 1..self.blocks.len() {
            let block = self.blocks.get(id);
            if block.state == State::Unused {
                continue;
            }
            let arena = usize::from(block.arena);
            if let (Some(first), Some(count)) = (firsts.get_mut(arena), counts.get_mut(arena)) {
                *count += 1;
                if block.prev == NIL {
                    if *first != NIL {
                        return Err(format!("arena {arena} has two first blocks, {first} and {id}"));
                    }
                    *first = id;
                }
            }
        }
        let (mut live, mut deferred, mut lost_or_busy) = (0, 0, 0);
        for (index, first) in firsts.iter().enumerate() {
            let (mut id, mut at, mut before, mut seen) = (*first, 0, NIL, 0);
            let mut last = Block::default();
            while id != NIL {
                let block = *self.blocks.get(id);
                if block.start != at || block.prev != before || block.len == 0 {
                    return Err(format!(
                        "arena {index}: block {id} {block:?} does not continue at {at} after {before}"
                    ));
                }
                self.check_block(index, id, &block)?;
                let joined = last.state == block.state && last.domain == block.domain;
                if seen > 0 && joined && matches!(block.state, State::Free | State::Void) {
                    return Err(format!("arena {index}: {last:?} and {block:?} should be one"));
                }
                match block.state {
                    State::Live => live += u64::from(block.len),
                    State::Deferred => deferred += u64::from(block.len),
                    State::Busy | State::Lost => lost_or_busy += u64::from(block.len),
                    _ => {}
                }
                (before, at, last) = (id, block.end(), block);
                id = block.next;
                seen += 1;
            }
            if at != self.arenas.get(index).map_or(0, |arena| arena.units) || Some(&seen) != counts.get(index) {
                return Err(format!("arena {index}: chain ends at {at} after {seen} blocks"));
            }
        }
        if live != self.counters.allocated_units || deferred != self.deferred.units {
            return Err(format!("live {live} or deferred {deferred} units are counted wrong"));
        }
        self.check_bins()?;
        self.check_mapped(lost_or_busy)
    }

    fn check_block(&self, index: usize, id: Id, block: &Block) -> Result<(), String> {
        let Some(arena) = self.arenas.get(index) else { return Ok(()) };
        let indexed = arena.live_at(&self.blocks, block.start) == Some(id);
        let known = arena.starts_in_page(block.start) == id;
        let wrongly = match block.state {
            State::Live | State::Listed => !known,
            // The caches were recalled.
            State::Cached => true,
            // What was live when it was freed stays in the index until it is proven.
            State::Deferred => false,
            _ => known,
        };
        if indexed != (block.state == State::Live) || wrongly {
            return Err(format!("arena {index}: block {id} {block:?} is indexed: {indexed}, {known}"));
        }
        let known = arena.touched(block.start, block.end().min(arena.granule_count() << arena.granule_shift));
        let shared = known.into_iter().any(|granule| arena.granule(granule).mesh != 0);
        // Beyond the known granules nothing is mapped, and only voids may lie there.
        let touched = arena.touched(block.start, block.end());
        if touched.end > arena.granule_count() && !matches!(block.state, State::Void | State::Wall | State::Busy) {
            return Err(format!("arena {index}: block {id} {block:?} lies beyond all memory"));
        }
        for granule in touched.start..touched.end.min(arena.granule_count()) {
            let granule = arena.granule(granule);
            let right = match block.state {
                State::Void | State::Wall => granule.handle == 0,
                State::Live | State::Free | State::Listed | State::Deferred | State::Limbo | State::Dead => {
                    granule.handle != 0
                }
                _ => true,
            };
            // A lost granule may still carry the job's blocks; nothing else may use it.
            let unused = matches!(block.state, State::Free | State::Listed | State::Deferred);
            let free_in_lost = granule.handle == LOST && unused;
            if !right || free_in_lost {
                return Err(format!("arena {index}: block {id} {block:?} over {granule:?}"));
            }
        }
        let unused = matches!(block.state, State::Dead | State::Free | State::Listed | State::Deferred);
        if (block.state == State::Dead) != shared && unused {
            return Err(format!("arena {index}: block {id} {block:?} in a shared granule: {shared}"));
        }
        Ok(())
    }

    fn check_bins(&self) -> Result<(), String> {
        let mut binned = 0;
        for (index, domain) in self.order.domains.iter().enumerate() {
            for (arena, bins) in domain.bins.iter().enumerate() {
                let (mut units, mut count) = (0, 0);
                for id in bins.iter(&self.blocks) {
                    let block = self.blocks.get(id);
                    let right = (block.state, usize::from(block.domain), usize::from(block.arena));
                    if right != (State::Free, index, arena) {
                        return Err(format!("bin of domain {index}, arena {arena} holds {block:?}"));
                    }
                    if index != usize::from(DEVICE) && domain.stream.is_none() {
                        return Err(format!("destroyed domain {index} holds {block:?}"));
                    }
                    units += u64::from(block.len);
                    count += 1;
                }
                if (units, count) != (bins.units, bins.count) {
                    return Err(format!("bins of domain {index} count {} units, hold {units}", bins.units));
                }
                binned += count;
            }
            self.check_free_lists(index, domain)?;
        }
        let listed: usize = self.order.domains.iter().flat_map(|domain| &domain.free_lists).map(|all| all.count).sum();
        let count = |state| (1..self.blocks.len()).filter(|id| self.blocks.get(*id).state == state).count();
        let found = (count(State::Free), count(State::Listed));
        if found != (binned, listed) {
            return Err(format!(
                "{found:?} blocks are free and listed, {binned} are in bins and {listed} on free lists"
            ));
        }
        Ok(())
    }

    fn check_free_lists(&self, index: usize, domain: &Domain) -> Result<(), String> {
        for (arena, free_lists) in domain.free_lists.iter().enumerate() {
            let (mut units, mut count) = (0, 0);
            for id in free_lists.iter(&self.blocks) {
                let block = self.blocks.get(id);
                let right = (block.state, usize::from(block.domain), usize::from(block.arena));
                if right != (State::Listed, index, arena) || (index != 0 && domain.stream.is_none()) {
                    return Err(format!("list of domain {index}, arena {arena} holds {block:?}"));
                }
                units += u64::from(block.len);
                count += 1;
            }
            if (units, count) != (free_lists.units, free_lists.count) {
                return Err(format!("free lists of domain {index} count {} units, hold {units}", free_lists.units));
            }
        }
        Ok(())
    }

    /// Every handle is behind a granule, spare or lost, and each only once unless shared.
    fn check_mapped(&self, busy: u64) -> Result<(), String> {
        if self.turn || busy > 0 && self.counters.lost_bytes == 0 {
            return Ok(());
        }
        let mut bytes: u64 = self.counters.lost_bytes;
        for (index, arena) in self.arenas.iter().enumerate() {
            let mut handles = std::collections::HashSet::new();
            for at in 0..arena.granule_count() {
                let granule = arena.granule(at);
                let fresh = matches!(granule.handle, 0 | LOST) || handles.insert(granule.handle) || !self.config.vmm;
                if !fresh && granule.mesh == 0 {
                    return Err(format!("arena {index}: {granule:?} shares its handle without a group"));
                }
                if granule.mesh != 0 && index == LARGE {
                    return Err(format!("arena {index}: {granule:?} is meshed"));
                }
                if !self.config.vmm && granule.handle != 0 {
                    bytes += arena.granule_bytes();
                }
            }
            if self.config.vmm {
                bytes += handles.len() as u64 * arena.granule_bytes();
            }
        }
        bytes += self.spare[0].len() as u64 * self.config.small_handle;
        bytes += self.spare[1].len() as u64 * self.config.large_handle;
        if bytes != self.counters.mapped_bytes {
            return Err(format!(
                "{} bytes are counted as mapped, {bytes} are (unit {UNIT_SHIFT})",
                self.counters.mapped_bytes
            ));
        }
        Ok(())
    }
}
