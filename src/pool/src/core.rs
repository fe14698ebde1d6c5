//! The core: all state of a pool, and the moves that need no driver: hand out, take back, coalesce.
//! Touches host memory only; every function runs under the pool's one lock.

use crate::arena::Arena;
use crate::backing::{Handle, PeerAccess};
use crate::block::{Block, DEVICE, Id, NIL, Slab, State};
use crate::config::{Config, UNIT, UNIT_SHIFT};
use crate::fault::injected;
use crate::mempools::{Mempool, Mempools};
use crate::mesh::Mesh;
use crate::order::Order;
use crate::stats::Counters;
use crate::{AllocError, Allocation, BlockInfo, Fault, FreeError, Freed, Request};

/// Arena of blocks below `tiny_limit`.
pub(crate) const TINY: usize = 0;
/// Arena of blocks up to `small_limit`.
pub(crate) const SMALL: usize = 1;
/// Arena of all larger blocks.
pub(crate) const LARGE: usize = 2;

/// A granule whose mapping was lost by a failed undo.
pub(crate) const LOST: Handle = Handle::MAX;

/// A request, translated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) units: u32,
    pub(crate) slack: u16,
    arena: u32,
    pub(crate) domain: u16,
    pub(crate) stream: u64,
    pub(crate) context: u32,
    pub(crate) mempool: u16,
}

impl Want {
    /// The arena that it belongs to.
    #[inline(always)]
    pub(crate) fn arena(&self) -> usize {
        self.arena as usize
    }
}

/// Deferred blocks, oldest first.
#[derive(Default)]
pub(crate) struct Queue {
    head: Id,
    tail: Id,
    pub(crate) units: u64,
    /// Those of large blocks.
    pub(crate) large_units: u64,
    pub(crate) count: usize,
}

/// See the file's first comment.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) blocks: Slab,
    pub(crate) arenas: [Arena; 3],
    pub(crate) order: Order,
    pub(crate) mempools: Mempools,
    pub(crate) deferred: Queue,
    pub(crate) counters: Counters,
    pub(crate) buffers: u64,
    /// Caches of streams that may know blocks, a bit each.
    pub(crate) cached: u64,
    /// Handles that are mapped nowhere, by size class.
    pub(crate) spare: [Vec<Handle>; 2],
    pub(crate) grants: Vec<PeerAccess>,
    pub(crate) meshes: Vec<Mesh>,
    /// Units freed until a mesh found nothing; 0: the last one found something.
    pub(crate) barren: u64,
    /// Units that wait for proof at which it is worth looking again whether the device is idle; 0: it was the last time.
    pub(crate) look_due: u64,
    /// Address space for one handle that is about to take another's place; 0 before it is needed.
    pub(crate) window: u64,
    /// A growth is under way.
    pub(crate) turn: bool,
}

impl Core {
    pub(crate) fn new(config: Config, small: u64, small_bytes: u64, large: u64, large_bytes: u64) -> Self {
        let half = small_bytes / 2 / config.small_handle * config.small_handle;
        let listed = |bytes: u64| u32::try_from(bytes >> UNIT_SHIFT).unwrap_or(0);
        let large_class = usize::from(config.large_handle != config.small_handle);
        let mut core = Self {
            blocks: Slab::new(),
            arenas: [
                Arena::new(small, half, config.small_handle, UNIT, 2, 0),
                Arena::new(small + half, half, config.small_handle, config.tiny_limit, 4, 0),
                Arena::new(large, large_bytes, config.large_handle, config.small_limit, 32, large_class),
            ],
            order: Order::new([listed(config.tiny_limit), listed(config.small_limit), 0]),
            mempools: Mempools::new(config.large_handle),
            deferred: Queue::default(),
            counters: Counters::default(),
            buffers: 0,
            cached: 0,
            spare: [Vec::new(), Vec::new()],
            grants: Vec::new(),
            meshes: Vec::new(),
            barren: 0,
            look_due: 0,
            window: 0,
            turn: false,
            config,
        };
        for (index, arena) in core.arenas.iter_mut().enumerate() {
            if arena.units > 0 {
                let all = Block { len: arena.units, state: State::Void, arena: index as u8, ..Block::default() };
                let id = core.blocks.add(all);
                arena.push_void(&mut core.blocks, id);
            }
        }
        core
    }

    /// Check and translate a request.
    #[inline(always)]
    pub(crate) fn want(&mut self, request: &Request) -> Result<Want, AllocError> {
        if request.bytes == 0 {
            return Err(AllocError::Invalid);
        }
        let Some(allocated) = request.bytes.checked_add(UNIT - 1) else { return Err(AllocError::TooLarge) };
        let units = allocated >> UNIT_SHIFT;
        let arena = if request.bytes < self.config.tiny_limit {
            TINY
        } else if request.bytes <= self.config.small_limit {
            SMALL
        } else {
            LARGE
        };
        if units > u64::from(self.arenas[arena].units) {
            return Err(AllocError::TooLarge);
        }
        if self.mempools.get(request.mempool).is_none_or(|owner| !owner.alive) {
            return Err(AllocError::Invalid);
        }
        let context = self.order.context(request.context);
        let domain = request.stream.map_or(DEVICE, |stream| self.order.stream(stream, context));
        Ok(Want {
            units: units as u32,
            slack: ((units << UNIT_SHIFT) - request.bytes) as u16,
            arena: arena as u32,
            domain,
            stream: request.stream.unwrap_or(0),
            context,
            mempool: request.mempool.0,
        })
    }

    /// Serve a request from what the requester may reuse at once.
    ///
    /// All that most requests need is in one function, so that nothing of a request goes through memory.
    #[inline(always)]
    pub(crate) fn hit(&mut self, want: &Want) -> Option<Allocation> {
        let listed = self.hit_free_list(want.domain, want);
        let allocation = if listed.is_some() { listed } else { self.hit_elsewhere(want) }?;
        self.counters.hits += 1;
        Some(allocation)
    }

    /// Serve a request with a free block of just its length.
    pub(crate) fn hit_listed(&mut self, want: &Want) -> Option<Allocation> {
        let own = self.hit_free_list(want.domain, want);
        own.or_else(|| if want.domain == DEVICE { None } else { self.hit_free_list(DEVICE, want) })
    }

    /// The free list of the requester's own domain is empty.
    #[inline(never)]
    fn hit_elsewhere(&mut self, want: &Want) -> Option<Allocation> {
        let mut found = self.hit_bins(want.domain, want);
        if found.is_none() && want.domain != DEVICE {
            found = self.hit_free_list(DEVICE, want).or_else(|| self.hit_bins(DEVICE, want));
        }
        if found.is_none() {
            found = self.hit_longer(want.domain, want).or_else(|| self.hit_longer(DEVICE, want));
        }
        if found.is_none() && injected(Fault::FreeListsShared) {
            found = (0..self.order.domains.len() as u16).find_map(|domain| self.hit_free_list(domain, want));
        }
        found
    }

    /// Serve a request from the bins of one domain.
    #[inline]
    fn hit_bins(&mut self, domain: u16, want: &Want) -> Option<Allocation> {
        let hole = self.best_hole(domain, want)?;
        Some(self.take_hole(hole, want))
    }

    /// The hole of a domain that serves a request best: the tightest, or among large ones the one that
    /// loses the fewest whole granules.
    #[inline]
    fn best_hole(&self, domain: u16, want: &Want) -> Option<Id> {
        let bins = &self.order.domain(domain).bins[want.arena()];
        let arena = &self.arenas[want.arena()];
        if want.arena() != LARGE {
            return bins.find(&self.blocks, want.units, arena.scan, |_| true);
        }
        let cost = |id| {
            let hole = self.blocks.get(id);
            let whole = |start: u32, end: u32| arena.inside(start, end).len();
            let low = whole(hole.start + want.units, hole.end());
            let high = whole(hole.start, hole.end() - want.units);
            let lost = whole(hole.start, hole.end()) - low.max(high);
            let over = hole.len - want.units;
            (over / arena.granule_units(), lost, over)
        };
        bins.cheapest(&self.blocks, want.units, arena.scan, cost, |(_, lost, _)| *lost == 0)
    }

    /// Hand out one end of a free block: the one that leaves more whole granules to be moved.
    #[inline]
    pub(crate) fn take_hole(&mut self, id: Id, want: &Want) -> Allocation {
        let Block { start, len, domain, .. } = *self.blocks.get(id);
        let end = start.saturating_add(len);
        let bins = &mut self.order.domain_at(domain).bins[want.arena()];
        if len <= want.units {
            bins.remove(&mut self.blocks, id);
            return self.make_live(id, want);
        }
        let arena = &self.arenas[want.arena()];
        let whole = |start: u32, end: u32| arena.inside(start, end).len();
        let high = want.arena() == LARGE && whole(start, end - want.units) > whole(start + want.units, end);
        // The hole stays in its bin where it can: only the part handed out is a new block.
        let taken = if high {
            bins.resized(&mut self.blocks, id, start, len - want.units);
            self.blocks.put_after(id, end - want.units, want.units)
        } else {
            let skew = u32::from(injected(Fault::SplitOffByOne));
            bins.resized(&mut self.blocks, id, start + want.units - skew, len - want.units + skew);
            self.blocks.put_before(id, start, want.units)
        };
        self.make_live(taken, want)
    }

    #[inline]
    pub(crate) fn make_live(&mut self, id: Id, want: &Want) -> Allocation {
        self.arenas[want.arena()].set_live(self.blocks.get(id).start, id);
        self.revive(id, want)
    }

    /// Hand out a block that the arena's index still knows.
    #[inline(always)]
    pub(crate) fn revive(&mut self, id: Id, want: &Want) -> Allocation {
        self.buffers += 1;
        let buffer = self.buffers;
        let block = self.blocks.at(id);
        block.state = State::Live;
        block.buffer = buffer;
        block.context = want.context;
        block.mempool = want.mempool;
        block.slack = want.slack;
        (block.pins, block.tag) = (0, 0);
        let (start, len) = (block.start, block.len);
        let arena = &self.arenas[want.arena()];
        self.mempools.allocated(want.mempool, len);
        self.counters.allocated(len, want.slack);
        let allocated = u64::from(len) << UNIT_SHIFT;
        Allocation {
            addr: arena.addr_of(start),
            bytes: allocated - u64::from(want.slack),
            allocated,
            buffer,
            number: id as usize,
        }
    }

    /// The arena and unit that hold an address.
    #[inline]
    pub(crate) fn locate(&self, addr: u64) -> Option<(usize, u32)> {
        self.arenas.iter().enumerate().find_map(|(index, arena)| Some((index, arena.unit_of(addr)?)))
    }

    /// The live block that starts at `addr`.
    #[inline(always)]
    pub(crate) fn live_at(&self, addr: u64, going: impl FnOnce(usize)) -> Option<Id> {
        let (arena, unit) = self.locate(addr)?;
        let arena = &self.arenas[arena];
        let id = arena.starts_in_page(unit);
        going(id as usize);
        let block = self.blocks.get(id);
        (block.state == State::Live && block.start == unit && arena.addr_of(unit) == addr).then_some(id)
    }

    /// What is known about the live block that holds `addr`, be it inside the block or at its start.
    pub(crate) fn lookup(&self, addr: u64) -> Option<BlockInfo> {
        let (arena, unit) = self.locate(addr)?;
        let info = self.info(self.arenas[arena].live_over(&self.blocks, unit)?);
        // The last unit is allocated in whole, but the block ends where its request does.
        (addr < info.addr + info.bytes).then_some(info)
    }

    pub(crate) fn info(&self, id: Id) -> BlockInfo {
        let block = self.blocks.get(id);
        let allocated = u64::from(block.len) << UNIT_SHIFT;
        BlockInfo {
            addr: self.arenas[usize::from(block.arena).min(LARGE)].addr_of(block.start),
            bytes: allocated - u64::from(block.slack),
            allocated,
            buffer: block.buffer,
            context: self.order.context_id(block.context),
            mempool: Mempool(block.mempool),
            number: id as usize,
            tag: block.tag,
            pinned: block.pins > 0,
        }
    }

    /// Take back a block: `stream` for a stream-ordered free, `None` for a synchronous one.
    #[inline(always)]
    pub(crate) fn free(
        &mut self,
        addr: u64,
        stream: Option<(u64, u64)>,
        going: impl FnOnce(usize),
    ) -> Result<Freed, FreeError> {
        let id = self.live_at(addr, going).ok_or(FreeError::Unknown)?;
        let domain = stream.map_or(DEVICE, |(stream, context)| {
            let context = self.order.context(context);
            self.order.stream(stream, context)
        });
        Ok(self.free_block(id, domain, false))
    }

    /// Take back a live block into `domain`; with domain 0 it is deferred unless `safe`.
    #[inline(always)]
    pub(crate) fn free_block(&mut self, id: Id, domain: u16, safe: bool) -> Freed {
        let stamp = self.order.tick();
        self.free_block_at(id, domain, safe, stamp)
    }

    /// The same for a block that was freed at `stamp`.
    #[inline(always)]
    pub(crate) fn free_block_at(&mut self, id: Id, domain: u16, safe: bool, stamp: u64) -> Freed {
        let block = self.blocks.at(id);
        let arena = usize::from(block.arena).min(LARGE);
        self.mempools.freed(block.mempool, block.len);
        self.counters.freed(block.len, block.slack);
        let allocated = u64::from(block.len) << UNIT_SHIFT;
        let freed =
            Freed { bytes: allocated - u64::from(block.slack), allocated, buffer: block.buffer, number: id as usize };
        let shared = self.arenas[arena].shared(block.start, block.end());
        let listable = domain != DEVICE && block.pins == 0 && (!shared || injected(Fault::SharedFreeListed));
        if listable && self.order.domain_at(domain).free_lists[arena].put(block, id, domain, stamp) {
            // Its granules get the stamp when the free list is flushed; until then it is as good as live to them.
            return freed;
        }
        self.free_unlisted(id, domain, safe, stamp);
        freed
    }

    #[inline(never)]
    fn free_unlisted(&mut self, id: Id, domain: u16, safe: bool, stamp: u64) {
        let Block { start, len, arena, pins, .. } = *self.blocks.get(id);
        let (arena, end) = (usize::from(arena).min(LARGE), start.saturating_add(len));
        // What is deferred stays in the index, for it is likely to go into a free list; everything else leaves it.
        let shared = self.arenas[arena].shared(start, end);
        let kept = domain == DEVICE && !safe && pins == 0 && !shared;
        if !kept || injected(Fault::EpochsIgnored) {
            self.arenas[arena].set_live(start, NIL);
        }
        self.arenas[arena].touch(start, end, stamp);
        if pins > 0 && !injected(Fault::PinIgnored) {
            self.blocks.at(id).state = State::Limbo;
            return;
        }
        if shared {
            self.free_among_meshed(id, domain, safe, stamp);
        } else {
            self.retire(id, domain, safe, stamp);
        }
    }

    /// Bytes that are no longer live go where their domain wants them.
    #[inline]
    pub(crate) fn retire(&mut self, id: Id, domain: u16, safe: bool, stamp: u64) {
        if domain != DEVICE {
            self.put_free(id, domain, stamp);
        } else if safe || injected(Fault::EpochsIgnored) {
            self.put_free(id, DEVICE, 0);
        } else {
            self.defer(id, stamp);
        }
    }

    /// Queue a block until a synchronisation that began after `stamp`.
    pub(crate) fn defer(&mut self, id: Id, stamp: u64) {
        let tail = self.deferred.tail;
        let block = self.blocks.at(id);
        (block.state, block.stamp, block.domain) = (State::Deferred, stamp, DEVICE);
        (block.before, block.after) = (tail, NIL);
        self.deferred.units += u64::from(block.len);
        self.deferred.large_units += if usize::from(block.arena) == LARGE { u64::from(block.len) } else { 0 };
        self.deferred.count += 1;
        if tail == NIL {
            self.deferred.head = id;
        } else {
            self.blocks.at(tail).after = id;
        }
        self.deferred.tail = id;
    }

    /// Free what the device is known to be through with.
    pub(crate) fn reclaim(&mut self) {
        while self.deferred.head != NIL {
            let id = self.deferred.head;
            let Block { stamp, after, len, arena, .. } = *self.blocks.get(id);
            if stamp > self.order.device_done {
                return;
            }
            self.deferred.head = after;
            if after == NIL {
                self.deferred.tail = NIL;
            } else {
                self.blocks.at(after).before = NIL;
            }
            self.deferred.units = self.deferred.units.saturating_sub(u64::from(len));
            let large = if usize::from(arena) == LARGE { u64::from(len) } else { 0 };
            self.deferred.large_units = self.deferred.large_units.saturating_sub(large);
            self.deferred.count = self.deferred.count.saturating_sub(1);
            self.put_proven(id);
        }
    }

    /// Put bytes into the bins of a domain, joined with free neighbours of the same domain.
    #[inline]
    pub(crate) fn put_free(&mut self, id: Id, domain: u16, stamp: u64) {
        let block = self.blocks.at(id);
        (block.state, block.domain, block.stamp) = (State::Free, domain, stamp);
        let Block { start, len, prev, next, arena, .. } = *block;
        let arena = usize::from(arena).min(LARGE);
        let joins = |id| id != NIL && self.blocks.get(id).state == State::Free && self.blocks.get(id).domain == domain;
        let (join_left, join_right) = (joins(prev), joins(next));
        let Block { start: left, len: left_len, stamp: left_stamp, .. } = *self.blocks.get(prev);
        let Block { len: right_len, stamp: right_stamp, .. } = *self.blocks.get(next);
        let bins = &mut self.order.domain_at(domain).bins[arena];
        // A neighbour that is in a bin already stays in it where it can.
        let joined = if join_left {
            let mut len = left_len + len;
            self.blocks.join(prev, id);
            if join_right {
                bins.remove(&mut self.blocks, next);
                self.blocks.join(prev, next);
                len += right_len;
            }
            // `join` has set the new length; the bins still count the old one.
            self.blocks.at(prev).len = left_len;
            bins.resized(&mut self.blocks, prev, left, len);
            prev
        } else if join_right {
            bins.resized(&mut self.blocks, next, start, len + right_len);
            self.blocks.absorb(next, id);
            next
        } else {
            bins.insert(&mut self.blocks, id);
            id
        };
        if injected(Fault::OlderStampKept) {
            let stamps = [Some(stamp), join_left.then_some(left_stamp), join_right.then_some(right_stamp)];
            self.blocks.at(joined).stamp = stamps.into_iter().flatten().min().unwrap_or(stamp);
        }
    }

    /// Address space without memory, joined with its like.
    pub(crate) fn put_void(&mut self, id: Id) {
        let mut id = id;
        let Block { prev, next, arena, .. } = *self.blocks.get(id);
        let arena = &mut self.arenas[usize::from(arena).min(LARGE)];
        if prev != NIL && self.blocks.get(prev).state == State::Void {
            arena.drop_void(&mut self.blocks, prev);
            self.blocks.join(prev, id);
            id = prev;
        }
        if next != NIL && self.blocks.get(next).state == State::Void {
            arena.drop_void(&mut self.blocks, next);
            self.blocks.join(id, next);
        }
        let block = self.blocks.at(id);
        (block.domain, block.stamp) = (DEVICE, 0);
        arena.push_void(&mut self.blocks, id);
    }

    /// Export a block: its granules stay where they are until it is unpinned.
    pub(crate) fn pin(&mut self, addr: u64, pinned: bool) -> Result<(), FreeError> {
        let id = if pinned {
            self.live_at(addr, |_| ())
        } else {
            self.live_at(addr, |_| ()).or_else(|| self.limbo_at(addr))
        };
        let id = id.ok_or(FreeError::Unknown)?;
        let block = *self.blocks.get(id);
        let pins = if pinned { block.pins.checked_add(1) } else { block.pins.checked_sub(1) };
        self.blocks.at(id).pins = pins.ok_or(FreeError::Unknown)?;
        let arena = &mut self.arenas[usize::from(block.arena).min(LARGE)];
        for index in arena.touched(block.start, block.end()) {
            if let Some(granule) = arena.granule_at(index) {
                granule.pins = if pinned { granule.pins + 1 } else { granule.pins.saturating_sub(1) };
            }
        }
        let lost = arena.touched(block.start, block.end()).any(|index| arena.granule(index).handle == LOST);
        if block.state == State::Limbo && pins == Some(0) && lost {
            self.blocks.at(id).state = State::Lost;
        } else if block.state == State::Limbo && pins == Some(0) {
            let stamp = self.order.tick();
            let index = usize::from(block.arena).min(LARGE);
            self.arenas[index].touch(block.start, block.end(), stamp);
            if self.arenas[index].shared(block.start, block.end()) {
                self.free_among_meshed(id, DEVICE, false, stamp);
            } else {
                self.retire(id, DEVICE, false, stamp);
            }
        }
        Ok(())
    }

    /// A block that was freed while exported; rare, so it is looked for.
    fn limbo_at(&self, addr: u64) -> Option<Id> {
        let (arena, unit) = self.locate(addr)?;
        (1..self.blocks.len()).find(|id| {
            let block = self.blocks.get(*id);
            block.state == State::Limbo && usize::from(block.arena) == arena && block.start == unit
        })
    }

    /// A stream is gone: its handle may come again, its queued work may still run.
    pub(crate) fn stream_destroyed(&mut self, stream: u64, safe: bool) -> Vec<crate::backing::Fence> {
        let Some(domain) = self.order.drop_stream(stream) else { return Vec::new() };
        self.flush_free_lists(0);
        self.flush_free_lists(1);
        let done = self.order.domain(domain).done;
        for arena in 0..self.arenas.len() {
            let holes: Vec<Id> = self.order.domain(domain).bins[arena].iter(&self.blocks).collect();
            for id in holes {
                let block = *self.blocks.get(id);
                self.order.domain_at(domain).bins[arena].remove(&mut self.blocks, id);
                if safe || block.stamp <= done || injected(Fault::DestroyedStreamForgotten) {
                    self.put_free(id, DEVICE, 0);
                } else {
                    // The queue is in order of time, and granules remember the newest: both take "now".
                    let stamp = self.order.tick();
                    self.arenas[arena].touch(block.start, block.end(), stamp);
                    self.defer(id, stamp);
                }
            }
        }
        std::mem::take(&mut self.order.domain_at(domain).fences).into_iter().map(|(fence, _)| fence).collect()
    }

    /// A context is gone and all its work with it: its blocks come back at once.
    pub(crate) fn context_destroyed(&mut self, context: u64) -> (Vec<BlockInfo>, Vec<crate::backing::Fence>) {
        let index = self.order.context(context);
        let mut fences = Vec::new();
        for stream in self.order.drop_context(index) {
            fences.extend(self.stream_destroyed(stream, true));
        }
        let lost: Vec<Id> = (1..self.blocks.len())
            .filter(|id| {
                let block = self.blocks.get(*id);
                block.context == index && matches!(block.state, State::Live | State::Limbo)
            })
            .collect();
        let mut infos = Vec::with_capacity(lost.len());
        for id in lost {
            let block = *self.blocks.get(id);
            let addr = self.arenas[usize::from(block.arena).min(LARGE)].addr_of(block.start);
            if block.state == State::Live {
                infos.push(self.info(id));
                // Another context may have been granted access; only its own synchronisation proves it done.
                self.free_block(id, DEVICE, false);
            }
            for _ in 0..block.pins {
                let _ = self.pin(addr, false);
            }
        }
        self.order.advance_device();
        self.reclaim();
        (infos, fences)
    }
}
