//! Stream-ordered memory pools. A pool owns segments of linear memory and hands out pieces of them;
//! a freed piece may be taken again at once in the stream that freed it, and in another stream only
//! where an order is known, the free has completed, or a wait may be inserted, as the pool's three
//! reuse attributes allow.

use crate::config;
use crate::engine::{Clock, Op, Point, Touches};
use crate::error::*;
use crate::heap::{ALIGN, PAGE, Use};
use crate::state::{Map, State};
use crate::store::Protection;
use std::collections::BTreeMap;

/// A pool grows by at least this much, where the device has it.
const GROWTH: u64 = 32 << 20;

/// How far a piece is in its life, as the device sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Handed out, but the stream has not come to its allocation.
    Queued,
    Live,
    /// The job freed it; the stream has not come to the free.
    FreeQueued,
}

/// A stream-ordered allocation.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) size: u64,
    pub(crate) id: u64,
    pub(crate) ctx: u64,
    /// Where in stream order it begins.
    pub(crate) born: Point,
    stage: Stage,
}

#[derive(Clone)]
struct Hole {
    size: u64,
    /// Points after which nothing touches it.
    after: Vec<Point>,
}

/// The three reuse attributes.
#[derive(Clone, Copy)]
pub(crate) struct Reuse {
    pub(crate) events: bool,
    pub(crate) opportunistic: bool,
    pub(crate) internal: bool,
}

/// A memory pool.
pub(crate) struct Pool {
    pub(crate) device: usize,
    pub(crate) is_default: bool,
    pub(crate) destroyed: bool,
    /// Made from another process's pool: gives out no memory of its own.
    pub(crate) imported: Option<i32>,
    pub(crate) handle_types: u32,
    pub(crate) max_size: u64,
    pub(crate) threshold: u64,
    pub(crate) reuse: Reuse,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    access: Vec<(usize, Protection)>,
    segments: BTreeMap<u64, u64>,
    holes: BTreeMap<u64, Hole>,
    live: BTreeMap<u64, Piece>,
    /// Address of live pieces by id, and pieces whose free is queued.
    address: Map<u64>,
    leaving: Map<Piece>,
}

impl Pool {
    pub(crate) fn new(device: usize, is_default: bool) -> Self {
        Self {
            device,
            is_default,
            destroyed: false,
            imported: None,
            handle_types: 0,
            max_size: 0,
            threshold: 0,
            reuse: Reuse { events: true, opportunistic: true, internal: true },
            used: 0,
            used_high: 0,
            reserved: 0,
            reserved_high: 0,
            access: vec![(device, Protection::ReadWrite)],
            segments: BTreeMap::new(),
            holes: BTreeMap::new(),
            live: BTreeMap::new(),
            address: Map::default(),
            leaving: Map::default(),
        }
    }

    pub(crate) fn access_of(&self, device: usize) -> Protection {
        self.access.iter().find(|(d, _)| *d == device).map_or(Protection::None, |(_, p)| *p)
    }

    pub(crate) fn set_access(&mut self, device: usize, protection: Protection) {
        self.access.retain(|(d, _)| *d != device);
        self.access.push((device, protection));
    }

    pub(crate) fn live_at(&self, addr: u64) -> Option<(u64, &Piece)> {
        crate::space::around(&self.live, addr, |p| p.size)
    }

    pub(crate) fn piece(&self, id: u64) -> Option<&Piece> {
        self.address.get(&id).and_then(|a| self.live.get(a)).or_else(|| self.leaving.get(&id))
    }

    pub(crate) fn stage(&self, id: u64) -> Option<Stage> {
        self.piece(id).map(|p| p.stage)
    }

    pub(crate) fn has_live(&self) -> bool {
        !self.live.is_empty()
    }

    fn segment_of(&self, addr: u64) -> Option<(u64, u64)> {
        crate::space::around(&self.segments, addr, |s| *s).map(|(a, &s)| (a, s))
    }

    /// Opens a hole, merged with neighbours that wait for nothing more than it does.
    fn open(&mut self, addr: u64, size: u64, after: Vec<Point>, reached: impl Fn(Point) -> bool) {
        let Some((segment, length)) = self.segment_of(addr) else { return };
        let (mut addr, mut size, mut after) = (addr, size, after);
        let mergeable = |other: &Hole, after: &Vec<Point>| {
            other.after.iter().all(|p| reached(*p) || after.iter().any(|q| q.0 == p.0))
        };
        if let Some((&left, hole)) = self.holes.range(segment..addr).next_back()
            && left + hole.size == addr
            && mergeable(hole, &after)
        {
            size += hole.size;
            addr = left;
            let gone = self.holes.remove(&left);
            join(&mut after, gone, &reached);
        }
        let end = addr + size;
        if end < segment + length
            && let Some(hole) = self.holes.get(&end)
            && mergeable(hole, &after)
        {
            size += hole.size;
            let gone = self.holes.remove(&end);
            join(&mut after, gone, &reached);
        }
        self.holes.insert(addr, Hole { size, after });
    }

    /// Merges all holes that wait for nothing any more.
    fn complete_frees(&mut self, reached: impl Fn(Point) -> bool) {
        for hole in self.holes.values_mut() {
            hole.after.retain(|p| !reached(*p));
        }
        let free: Vec<(u64, u64)> =
            self.holes.iter().filter(|(_, h)| h.after.is_empty()).map(|(&a, h)| (a, h.size)).collect();
        let mut run: Option<(u64, u64)> = None;
        for (addr, size) in free {
            match run {
                Some((start, length)) if start + length == addr && self.segment_of(start) == self.segment_of(addr) => {
                    self.holes.remove(&addr);
                    if let Some(first) = self.holes.get_mut(&start) {
                        first.size += size;
                    }
                    run = Some((start, length + size));
                }
                _ => run = Some((addr, size)),
            }
        }
    }

    /// Segments of which nothing is used or may still be touched.
    fn idle_segments(&self) -> Vec<u64> {
        let whole = |a: u64, s: u64| self.holes.get(&a).is_some_and(|h| h.size == s && h.after.is_empty());
        self.segments.iter().filter(|&(&a, &s)| whole(a, s)).map(|(&a, _)| a).collect()
    }
}

fn join(after: &mut Vec<Point>, gone: Option<Hole>, reached: &impl Fn(Point) -> bool) {
    let mut clock = Clock::default();
    for point in after.drain(..).chain(gone.into_iter().flat_map(|h| h.after)) {
        if !reached(point) {
            clock.add(point);
        }
    }
    after.extend(clock.points());
}

/// Where devices have no memory pools every call that is about them is not supported.
pub(crate) fn pools_supported() -> R {
    if config::get().pools || config::fault("pools_off") { Ok(()) } else { Err(NOT_SUPPORTED) }
}

impl State {
    pub(crate) fn make_default_pools(&mut self) {
        for device in 0..self.devices.len() {
            let handle = self.fresh();
            self.pools.insert(handle, Pool::new(device, true));
            self.devices[device].default_pool = handle;
            self.devices[device].current_pool = handle;
        }
    }

    /// A pool that the job may use.
    pub(crate) fn pool(&self, handle: u64) -> R<&Pool> {
        pools_supported()?;
        self.pools.get(&handle).filter(|p| !p.destroyed).ok_or(INVALID_VALUE)
    }

    /// A hole for `room` bytes in `stream`, and what must be waited for before it is used.
    fn find_hole(&self, pool: &Pool, room: u64, stream: u64) -> Option<(u64, Vec<Point>)> {
        let clock = self.engine.streams.get(&stream).map(|s| s.clock.clone()).unwrap_or_default();
        let waits = |hole: &Hole| -> Option<Vec<Point>> {
            let mut waits = Vec::new();
            for &point in &hole.after {
                let known = point.0 == stream
                    || (pool.reuse.events && clock.at(point.0) >= point.1)
                    || (pool.reuse.opportunistic && self.engine.reached(point))
                    || self.engine.host.at(point.0) >= point.1;
                if !known {
                    if !pool.reuse.internal {
                        return None;
                    }
                    waits.push(point);
                }
            }
            Some(waits)
        };
        pool.holes
            .iter()
            .filter(|(_, h)| h.size >= room)
            .filter_map(|(&addr, h)| Some((waits(h)?, h.size, addr)))
            .min_by_key(|(waits, size, _)| (waits.len(), *size))
            .map(|(waits, _, addr)| (addr, waits))
    }

    fn grow(&mut self, handle: u64, room: u64) -> R {
        let (device, max) = {
            let pool = self.pool(handle)?;
            // A pool grows by pages: a smaller maximum stands for one.
            (pool.device, pool.max_size.next_multiple_of(PAGE))
        };
        let exact = room.next_multiple_of(PAGE);
        for size in [exact.max(GROWTH), exact] {
            let reserved = self.pool(handle)?.reserved;
            if max != 0 && reserved + size > max {
                continue;
            }
            if let Ok(addr) = self.take_linear(0, device, size, Use::Segment(handle)) {
                if let Some(pool) = self.pools.get_mut(&handle) {
                    pool.segments.insert(addr, size);
                    pool.holes.insert(addr, Hole { size, after: Vec::new() });
                    pool.reserved += size;
                    pool.reserved_high = pool.reserved_high.max(pool.reserved);
                }
                return Ok(());
            }
        }
        Err(OUT_OF_MEMORY)
    }

    /// `cuMemAllocFromPoolAsync`.
    pub(crate) fn pool_take(&mut self, handle: u64, size: u64, stream: u64, ctx: u64) -> R<u64> {
        if self.pool(handle)?.imported.is_some() || crate::call::oom_above(size) {
            return Err(if crate::call::oom_above(size) { OUT_OF_MEMORY } else { INVALID_VALUE });
        }
        let room = size.checked_next_multiple_of(ALIGN).ok_or(OUT_OF_MEMORY)?;
        let mut found = self.find_hole(self.pool(handle)?, room, stream);
        if found.is_none() {
            self.complete_frees(handle);
            found = self.find_hole(self.pool(handle)?, room, stream);
        }
        if found.is_none() {
            if self.grow(handle, room).is_err() {
                self.release_idle(handle, 0);
                self.grow(handle, room)?;
            }
            found = self.find_hole(self.pool(handle)?, room, stream);
        }
        let (addr, waits) = found.ok_or(OUT_OF_MEMORY)?;
        // In a stream with nothing to do the allocation happens at once, and every stream may use it.
        let at_once = waits.is_empty() && self.engine.idle(stream);
        for point in waits {
            self.wait_silently(stream, point);
        }
        let id = self.fresh();
        let next = self.engine.streams.get(&stream).map_or(0, |s| s.submitted) + 1;
        let (born, stage) = if at_once { ((stream, 0), Stage::Live) } else { ((stream, next), Stage::Queued) };
        let pool = self.pools.get_mut(&handle).ok_or(INVALID_VALUE)?;
        if let Some(hole) = pool.holes.remove(&addr)
            && hole.size > room
        {
            pool.holes.insert(addr + room, Hole { size: hole.size - room, after: hole.after });
        }
        pool.live.insert(addr, Piece { size, id, ctx, born, stage });
        pool.address.insert(id, addr);
        pool.used += room;
        pool.used_high = pool.used_high.max(pool.used);
        self.enqueue(stream, "cuMemAllocAsync", Op::Allocated { block: id }, Touches::NONE)?;
        Ok(addr)
    }

    /// A free in a stream must come after every use in another one.
    pub(crate) fn refuse_unordered_free(&mut self, ctx: u64, addr: u64, id: u64, stream: u64) -> R {
        if !crate::config::fault("free_async_pending")
            && let Some(work) = self.engine.pending_users(id, &self.order_of(stream))
        {
            let what = format!("cuMemFreeAsync({addr:#x}) in stream {stream:#x}, not ordered after its users: {work}");
            self.violation(ctx, &what)?;
        }
        Ok(())
    }

    /// `cuMemFreeAsync` of a piece, by its first address.
    pub(crate) fn pool_give(&mut self, handle: u64, addr: u64, stream: u64) -> R {
        let pool = self.pools.get(&handle).ok_or(INVALID_VALUE)?;
        let piece = pool.live.get(&addr).ok_or(INVALID_VALUE)?.clone();
        let ctx = self.engine.context_of(stream).unwrap_or(piece.ctx);
        self.refuse_unordered_free(ctx, addr, piece.id, stream)?;
        self.enqueue(stream, "cuMemFreeAsync", Op::Freed { block: piece.id }, Touches::NONE)?;
        let point = (stream, self.engine.streams.get(&stream).map_or(0, |s| s.submitted));
        self.unhand(handle, addr, vec![point], true);
        Ok(())
    }

    /// Takes a piece out of the live ones and opens its hole.
    fn unhand(&mut self, handle: u64, addr: u64, after: Vec<Point>, queued: bool) {
        let engine = &self.engine;
        let Some(pool) = self.pools.get_mut(&handle) else { return };
        let Some(mut piece) = pool.live.remove(&addr) else { return };
        pool.address.remove(&piece.id);
        let room = piece.size.next_multiple_of(ALIGN);
        pool.used -= room;
        pool.open(addr, room, after, |p| engine.reached(p));
        if queued {
            if piece.stage == Stage::Live {
                piece.stage = Stage::FreeQueued;
            }
            pool.leaving.insert(piece.id, piece);
        }
    }

    /// `cuMemFree` of a piece, after everything that may touch it has completed.
    pub(crate) fn pool_give_now(&mut self, handle: u64, addr: u64) -> R {
        if !self.pools.get(&handle).is_some_and(|p| p.live.contains_key(&addr)) {
            return Err(INVALID_VALUE);
        }
        self.unhand(handle, addr, Vec::new(), false);
        self.finish_pool(handle);
        Ok(())
    }

    fn pool_of_block(&mut self, id: u64) -> Option<&mut Pool> {
        self.pools.values_mut().find(|p| p.address.contains_key(&id) || p.leaving.contains_key(&id))
    }

    pub(crate) fn block_allocated(&mut self, id: u64) {
        if let Some(pool) = self.pool_of_block(id) {
            if let Some(piece) = pool.address.get(&id).copied().and_then(|a| pool.live.get_mut(&a)) {
                piece.stage = Stage::Live;
            } else if let Some(piece) = pool.leaving.get_mut(&id) {
                piece.stage = Stage::FreeQueued;
            }
        }
    }

    pub(crate) fn block_freed(&mut self, id: u64) {
        if let Some(pool) = self.pool_of_block(id) {
            pool.leaving.remove(&id);
        }
    }

    fn complete_frees(&mut self, handle: u64) {
        let engine = &self.engine;
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.complete_frees(|p| engine.reached(p));
        }
    }

    /// Gives idle segments back to the device until at most `keep` bytes are reserved.
    pub(crate) fn release_idle(&mut self, handle: u64, keep: u64) {
        self.complete_frees(handle);
        let Some(pool) = self.pools.get(&handle) else { return };
        let device = pool.device;
        for segment in pool.idle_segments() {
            let Some(pool) = self.pools.get_mut(&handle) else { return };
            // Never below what is to be kept.
            let size = pool.segments.get(&segment).copied().unwrap_or(0);
            if pool.reserved - size < keep {
                continue;
            }
            pool.holes.remove(&segment);
            if let Some(size) = pool.segments.remove(&segment) {
                pool.reserved -= size;
            }
            self.give_linear(device, segment);
        }
    }

    /// After a synchronisation pools shrink to their thresholds.
    pub(crate) fn pools_synchronized(&mut self) {
        let over: Vec<(u64, u64)> =
            self.pools.iter().filter(|(_, p)| p.reserved > p.threshold).map(|(&h, p)| (h, p.threshold)).collect();
        for (handle, keep) in over {
            self.release_idle(handle, keep);
            self.finish_pool(handle);
        }
    }

    /// Destroyed pools go once the last free in them has completed.
    pub(crate) fn finish_destroyed_pools(&mut self) {
        let destroyed: Vec<u64> = self.pools.iter().filter(|(_, p)| p.destroyed).map(|(&h, _)| h).collect();
        for handle in destroyed {
            self.finish_pool(handle);
        }
    }

    /// A destroyed pool goes with its last piece.
    pub(crate) fn finish_pool(&mut self, handle: u64) {
        if self.pools.get(&handle).is_some_and(|p| p.destroyed && !p.has_live()) {
            self.release_idle(handle, 0);
            if self.pools.get(&handle).is_some_and(|p| p.segments.is_empty()) {
                self.pools.remove(&handle);
            }
        }
    }
}
