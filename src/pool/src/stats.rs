//! Figures of a pool: counted where things happen, read at the cost of a copy. Touches host memory only.

use crate::config::UNIT_SHIFT;
use crate::core::LARGE;

/// Calls into the driver, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCalls {
    /// Handles created.
    pub create: u64,
    /// Handles released.
    pub release: u64,
    /// Handles mapped.
    pub map: u64,
    /// Runs unmapped.
    pub unmap: u64,
    /// Runs made accessible.
    pub set_access: u64,
    /// Plain segments allocated and freed.
    pub segment: u64,
    /// Fences recorded, queried, waited for.
    pub fence: u64,
    /// Device synchronisations by the pool itself.
    pub sync: u64,
    /// Copies for meshing and migrating.
    pub copy: u64,
}

impl DriverCalls {
    /// Calls that take, move or give memory.
    pub fn memory(&self) -> u64 {
        self.create + self.release + self.map + self.unmap + self.set_access + self.segment
    }

    /// All calls.
    pub fn total(&self) -> u64 {
        self.memory() + self.fence + self.sync + self.copy
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.create += other.create;
        self.release += other.release;
        self.map += other.map;
        self.unmap += other.unmap;
        self.set_access += other.set_access;
        self.segment += other.segment;
        self.fence += other.fence;
        self.sync += other.sync;
        self.copy += other.copy;
    }
}

/// What a pool holds and what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks handed out now.
    pub live_blocks: u64,
    /// Bytes requested by the job and live.
    pub live_bytes: u64,
    /// Bytes handed out for them.
    pub allocated_bytes: u64,
    /// Physical bytes held, spare handles included.
    pub mapped_bytes: u64,
    /// Free bytes that anybody may reuse at once.
    pub free_bytes: u64,
    /// Free bytes that their own stream may reuse at once.
    pub stream_free_bytes: u64,
    /// Free bytes that wait for a synchronisation.
    pub deferred_bytes: u64,
    /// Handles that are mapped nowhere at the moment, in bytes.
    pub spare_bytes: u64,
    /// Physical bytes that a failed undo made unusable.
    pub lost_bytes: u64,
    /// Largest hole.
    pub largest_hole: u64,
    /// Requests served.
    pub allocations: u64,
    /// Requests served without a growth.
    pub hits: u64,
    /// Requests served by the cache of a stream.
    pub cache_hits: u64,
    /// Requests served from another stream's frees by an event's order.
    pub ordered_reuses: u64,
    /// Requests served from another stream's frees by an inserted wait.
    pub inserted_waits: u64,
    /// Granules moved from where they lay free to where they were needed.
    pub remaps: u64,
    /// Granules released to the driver.
    pub trims: u64,
    /// Granules freed by sharing.
    pub meshes: u64,
    /// Granules whose memory was exchanged for better.
    pub migrated: u64,
    /// Synchronisations that the pool made by itself.
    pub self_syncs: u64,
    /// Requests refused.
    pub refusals: u64,
    /// Calls into the driver.
    pub calls: DriverCalls,
}

impl Stats {
    /// Blocks that were handed out and taken back so far.
    pub fn frees(&self) -> u64 {
        self.allocations.saturating_sub(self.live_blocks)
    }
}

/// The part of `Stats` that is counted as it happens.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) live_blocks: u64,
    pub(crate) allocated_units: u64,
    /// The high marks of `allocated_units`: since the last call of `take_recent_peak`, and before it.
    pub(crate) recent_peak_units: u64,
    pub(crate) earlier_peak_units: u64,
    pub(crate) slack_bytes: u64,
    /// Units that were ever freed.
    pub(crate) freed_units: u64,
    pub(crate) mapped_bytes: u64,
    pub(crate) lost_bytes: u64,
    pub(crate) allocations: u64,
    pub(crate) hits: u64,
    pub(crate) cache_hits: u64,
    pub(crate) ordered_reuses: u64,
    pub(crate) inserted_waits: u64,
    pub(crate) remaps: u64,
    pub(crate) trims: u64,
    pub(crate) meshes: u64,
    pub(crate) migrated: u64,
    pub(crate) self_syncs: u64,
    pub(crate) refusals: u64,
    pub(crate) calls: DriverCalls,
}

impl Counters {
    #[inline]
    pub(crate) fn allocated(&mut self, units: u32, slack: u16) {
        self.allocations += 1;
        self.live_blocks += 1;
        self.allocated_units += u64::from(units);
        self.recent_peak_units = self.recent_peak_units.max(self.allocated_units);
        self.slack_bytes += u64::from(slack);
    }

    #[inline]
    pub(crate) fn freed(&mut self, units: u32, slack: u16) {
        self.live_blocks = self.live_blocks.saturating_sub(1);
        self.allocated_units = self.allocated_units.saturating_sub(u64::from(units));
        self.freed_units += u64::from(units);
        self.slack_bytes = self.slack_bytes.saturating_sub(u64::from(slack));
    }

    /// Most units ever handed out at the same time.
    pub(crate) fn peak_units(&self) -> u64 {
        self.earlier_peak_units.max(self.recent_peak_units)
    }

    /// Most units handed out at the same time since the last call.
    pub(crate) fn take_recent_peak(&mut self) -> u64 {
        self.earlier_peak_units = self.peak_units();
        std::mem::replace(&mut self.recent_peak_units, self.allocated_units)
    }

    pub(crate) fn mapped(&mut self, bytes: u64) {
        self.mapped_bytes += bytes;
    }

    pub(crate) fn unmapped(&mut self, bytes: u64) {
        self.mapped_bytes = self.mapped_bytes.saturating_sub(bytes);
    }
}

/// A hole, for a report about an allocation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// First address.
    pub addr: u64,
    /// Length.
    pub bytes: u64,
    /// Why it could not serve everybody, if it could not.
    pub kind: HoleKind,
}

/// Who may reuse a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoleKind {
    /// Everybody.
    Free,
    /// One stream, until it is synchronised or waited for.
    Stream(u64),
    /// Nobody before a synchronisation.
    Deferred,
    /// Nobody: it shares its memory with live bytes, or is exported.
    Held,
}

impl crate::core::Core {
    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.counters;
        let bytes = |units: u64| units << UNIT_SHIFT;
        let free = |domain: usize| {
            self.order.domains.get(domain).map_or(0, |domain| {
                let binned = domain.bins.iter().map(|bins| bins.units).sum::<u64>();
                binned + domain.free_lists.iter().map(|free_lists| free_lists.units).sum::<u64>()
            })
        };
        let largest = self
            .order
            .domains
            .iter()
            .flat_map(|domain| &domain.bins)
            .map(|bins| bins.iter(&self.blocks).take(64).map(|id| self.blocks.get(id).len).max().unwrap_or(0));
        let spare = |class: usize, handle: u64| self.spare.get(class).map_or(0, |spare| spare.len() as u64 * handle);
        Stats {
            live_blocks: counters.live_blocks,
            live_bytes: bytes(counters.allocated_units) - counters.slack_bytes.min(bytes(counters.allocated_units)),
            allocated_bytes: bytes(counters.allocated_units),
            mapped_bytes: counters.mapped_bytes,
            free_bytes: bytes(free(0)),
            stream_free_bytes: bytes((1..self.order.domains.len()).map(free).sum()),
            deferred_bytes: bytes(self.deferred.units),
            spare_bytes: spare(0, self.config.small_handle) + spare(1, self.config.large_handle),
            lost_bytes: counters.lost_bytes,
            largest_hole: bytes(u64::from(largest.max().unwrap_or(0))),
            allocations: counters.allocations,
            hits: counters.hits,
            cache_hits: counters.cache_hits,
            ordered_reuses: counters.ordered_reuses,
            inserted_waits: counters.inserted_waits,
            remaps: counters.remaps,
            trims: counters.trims,
            meshes: counters.meshes,
            migrated: counters.migrated,
            self_syncs: counters.self_syncs,
            refusals: counters.refusals,
            calls: counters.calls,
        }
    }

    /// Free bytes that serve a request of any size, once the device is through with them: whole granules without a live
    /// block, handles that are mapped nowhere, and what is free among large blocks. Holes between small blocks serve small
    /// requests only.
    pub(crate) fn available(&self) -> u64 {
        let free =
            |domains: &[crate::order::Domain]| domains.iter().map(|domain| domain.bins[LARGE].units).sum::<u64>();
        let large = (free(&self.order.domains) + self.deferred.large_units) << UNIT_SHIFT;
        let spare = self.spare[0].len() as u64 * self.config.small_handle
            + self.spare[1].len() as u64 * self.config.large_handle;
        let whole = self.arenas.iter().take(LARGE).map(|arena| {
            let idle = (0..arena.granule_count()).filter(|index| arena.idle(&self.blocks, *index));
            idle.count() as u64 * arena.granule_bytes()
        });
        whole.sum::<u64>() + large + spare
    }

    /// All holes, by address; at most `limit` of them.
    pub(crate) fn holes(&self, limit: usize) -> Vec<Hole> {
        use crate::block::State;
        let mut holes: Vec<Hole> = (1..self.blocks.len())
            .filter_map(|id| {
                let block = self.blocks.get(id);
                let kind = match block.state {
                    State::Free | State::Listed => {
                        self.order.domain(block.domain).stream.map_or(HoleKind::Free, HoleKind::Stream)
                    }
                    State::Deferred => HoleKind::Deferred,
                    State::Dead | State::Limbo | State::Busy => HoleKind::Held,
                    _ => return None,
                };
                let arena = self.arenas.get(usize::from(block.arena))?;
                Some(Hole { addr: arena.addr_of(block.start), bytes: u64::from(block.len) << UNIT_SHIFT, kind })
            })
            .take(limit)
            .collect();
        holes.sort_by_key(|hole| hole.addr);
        holes
    }
}
