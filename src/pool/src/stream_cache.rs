//! Stream caches: blocks that a stream frees and requests again, served without the pool's lock. Touches host memory only.
//!
//! A stream may reuse what was freed in it at once, so such a pair needs nothing of the pool's state. The block stays in
//! the slab and in the index, in the state [`State::Cached`], and counts as handed out; whether it is, and since when it is
//! free, only the cache knows. Whoever needs more than a hit or a free *recalls* all caches first: then every block is
//! again what it would be without them, with the time at which it was freed.
//!
//! Two rules keep this true (`shared::together` is the protocol, with a model):
//! - blocks come into a cache only while both locks are held, the cache's and the pool's, so whoever holds the pool's and
//!   has recalled the caches knows that they stay empty;
//! - a free in a cache gets the cache's time. A time that may prove something is read with all caches locked, and theirs
//!   moves on: so what is freed after it was read is later.
//!
//! A cache belongs to one stream, with one context and one mempool, from the first block in it until it is recalled.

use crate::block::{DEVICE, Id, NIL, State};
use crate::config::{Caching, Config, FREE_LIST_DEPTH, FREE_LIST_LONGEST, FREE_LIST_UNITS, UNIT, UNIT_SHIFT};
use crate::core::{Core, LARGE, SMALL, TINY};
use crate::fault::injected;
use crate::mempools::Mempool;
use crate::{Allocation, Fault, FreeError, Freed, Request};
use std::ops::Range;

/// Caches of a pool; streams share them by a hash, and who comes second does without.
pub(crate) const CACHES: usize = 64;

/// Blocks that a cache knows at most, free ones and those handed out: recalling them takes some ten microseconds.
const BLOCKS: usize = 1024;
/// Places of its table, a power of two: few are taken.
const SLOT_BITS: u32 = 12;
const SLOTS: usize = 1 << SLOT_BITS;
/// No entry.
const NONE: u16 = u16::MAX;

/// A cache is worth it to a stream that requests the lengths which it frees. A hit earns 1, a request that free blocks of
/// other lengths cannot serve costs `MISS`; a cache that has spent what it was given is recalled and rests for `REST` frees.
const CREDIT: i32 = 32;
const MOST_CREDIT: i32 = 256;
const MISS: i32 = 4;
pub(crate) const REST: u32 = 1 << 14;

/// Numbers for `Allocation::buffer` that a cache gets at a time.
const BUFFERS: u64 = 1 << 16;

/// The cache that a stream may have. Handles are addresses, or count up: both spread well.
#[inline]
pub(crate) fn place(stream: u64) -> usize {
    if injected(Fault::CacheForAll) {
        return 0;
    }
    (stream.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize % CACHES
}

/// Whose cache it is.
#[derive(Clone, Copy, Default)]
struct Owner {
    stream: u64,
    context: u64,
    mempool: u16,
    domain: u16,
}

/// A block.
#[derive(Clone, Copy)]
struct Entry {
    addr: u64,
    buffer: u64,
    /// When it was freed.
    stamp: u64,
    id: Id,
    units: u32,
    /// The next free one of its length.
    next: u16,
    list: u16,
    slack: u16,
    live: bool,
}

/// Free blocks of one length, the one that was freed last on top.
#[derive(Clone, Copy)]
struct List {
    top: u16,
    count: u16,
}

const EMPTY: List = List { top: NONE, count: 0 };

/// See the file's first comment.
pub(crate) struct StreamCache {
    owner: Owner,
    /// The time that frees get.
    stamp: u64,
    buffers: Range<u64>,
    entries: Vec<Entry>,
    /// Entries that are not in use.
    vacant: Vec<u16>,
    /// Entries by a hash of their addresses, each in the first free place from there on.
    slots: Box<[u16]>,
    /// By length, small blocks behind tiny ones.
    lists: Box<[List]>,
    tiny_limit: u64,
    small_limit: u64,
    /// Requests served since the last recall, and their units.
    hits: u64,
    reused_units: u64,
    /// Blocks in all lists.
    free: u32,
    credit: i32,
    /// It never gives up.
    patient: bool,
}

impl StreamCache {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            owner: Owner::default(),
            stamp: 0,
            buffers: 0..0,
            entries: Vec::new(),
            vacant: Vec::new(),
            slots: Box::default(),
            lists: Box::default(),
            tiny_limit: config.tiny_limit,
            small_limit: config.small_limit,
            hits: 0,
            reused_units: 0,
            free: 0,
            credit: CREDIT,
            patient: config.caching == Caching::Always,
        }
    }

    /// The list of an arena's blocks of so many units.
    fn list_of_units(&self, arena: usize, units: u32) -> Option<usize> {
        if units > FREE_LIST_LONGEST {
            return None;
        }
        match arena {
            TINY => Some(units as usize),
            SMALL => Some((self.tiny_limit >> UNIT_SHIFT) as usize + 1 + units as usize),
            _ => None,
        }
    }

    fn list_count(&self) -> usize {
        let longest = (self.small_limit >> UNIT_SHIFT).min(u64::from(FREE_LIST_LONGEST)) as usize;
        (self.tiny_limit >> UNIT_SHIFT) as usize + 1 + longest + 1
    }

    #[inline(always)]
    fn owned_by(&self, stream: u64, context: u64) -> bool {
        (self.owner.stream == stream && self.owner.context == context) || injected(Fault::CacheForAll)
    }

    /// Serve a request with the block of its length that its stream freed last.
    #[inline(always)]
    pub(crate) fn take(&mut self, request: &Request, stream: u64) -> Option<Allocation> {
        if !self.owned_by(stream, request.context) || self.owner.mempool != request.mempool.0 {
            return None;
        }
        let bytes = request.bytes;
        if bytes == 0 || bytes > self.small_limit {
            return None;
        }
        let units = bytes.div_ceil(UNIT);
        let behind = if bytes < self.tiny_limit { 0 } else { (self.tiny_limit >> UNIT_SHIFT) + 1 };
        let list = self.lists.get_mut((behind + units) as usize)?;
        let Some(entry) = self.entries.get_mut(usize::from(list.top)) else {
            self.credit -= if self.free > 0 { MISS } else { 0 };
            return None;
        };
        let buffer = self.buffers.next()?;
        (list.top, list.count) = (entry.next, list.count - 1);
        self.free -= 1;
        self.credit = (self.credit + 1).min(MOST_CREDIT);
        let allocated = units << UNIT_SHIFT;
        (entry.live, entry.buffer, entry.slack) = (true, buffer, (allocated - bytes) as u16);
        self.hits += 1;
        self.reused_units += units;
        Some(Allocation { addr: entry.addr, bytes, allocated, buffer, number: entry.id as usize })
    }

    /// Take back a block that its own stream frees. `None`: the pool has to.
    #[inline(always)]
    pub(crate) fn put(&mut self, addr: u64, stream: u64, context: u64, found: impl FnOnce(usize)) -> Option<Freed> {
        if !self.owned_by(stream, context) {
            return None;
        }
        let (_, at) = self.find(addr)?;
        let entry = self.entries.get_mut(usize::from(at)).filter(|entry| entry.live)?;
        found(entry.id as usize);
        let list = self.lists.get_mut(usize::from(entry.list))?;
        if list.count >= depth(entry.units) {
            return None;
        }
        (entry.live, entry.stamp, entry.next) = (false, self.stamp, list.top);
        (list.top, list.count) = (at, list.count + 1);
        self.free += 1;
        Some(entry.freed())
    }

    fn slot(addr: u64) -> usize {
        ((addr >> UNIT_SHIFT).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOT_BITS)) as usize
    }

    /// The place and the number of a block's entry.
    #[inline(always)]
    fn find(&self, addr: u64) -> Option<(usize, u16)> {
        let mut slot = Self::slot(addr);
        loop {
            // Three in four are free.
            let at = *self.slots.get(slot)?;
            if self.entries.get(usize::from(at))?.addr == addr {
                return Some((slot, at));
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    fn is_empty(&self) -> bool {
        self.entries.len() == self.vacant.len()
    }

    /// Would it know one more block, of an owner, in a list?
    fn accepts(&self, owner: &Owner, list: usize, units: u32) -> bool {
        let theirs = (self.owner.stream, self.owner.context, self.owner.mempool);
        let room = self.entries.len() < BLOCKS || !self.vacant.is_empty();
        let short = self.lists.get(list).is_none_or(|list| list.count < depth(units));
        room && short && (self.is_empty() || theirs == (owner.stream, owner.context, owner.mempool))
    }

    /// A block that was just freed comes in.
    fn add(&mut self, owner: Owner, mut entry: Entry) {
        if self.slots.is_empty() {
            self.slots = vec![NONE; SLOTS].into_boxed_slice();
            self.lists = vec![EMPTY; self.list_count()].into_boxed_slice();
            self.entries.reserve_exact(BLOCKS);
            self.vacant.reserve_exact(BLOCKS);
        }
        (self.owner, self.stamp) = (owner, entry.stamp);
        let Some(list) = self.lists.get_mut(usize::from(entry.list)) else { return };
        entry.next = list.top;
        let at = self.vacant.pop().unwrap_or(self.entries.len() as u16);
        match self.entries.get_mut(usize::from(at)) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        (list.top, list.count) = (at, list.count + 1);
        self.free += 1;
        let mut slot = Self::slot(entry.addr);
        while self.slots.get(slot).is_some_and(|known| *known != NONE) {
            slot = (slot + 1) % SLOTS;
        }
        if let Some(place) = self.slots.get_mut(slot) {
            *place = at;
        }
    }

    /// A block that is handed out leaves, for the pool to take it back.
    fn evict(&mut self, addr: u64, stream: u64, context: u64) -> Option<Entry> {
        if !self.owned_by(stream, context) {
            return None;
        }
        let (mut hole, at) = self.find(addr)?;
        let entry = *self.entries.get(usize::from(at)).filter(|entry| entry.live)?;
        // Those behind it move up, unless they would come before their own place.
        let mut slot = hole;
        loop {
            slot = (slot + 1) % SLOTS;
            let next = self.slots.get(slot).copied().unwrap_or(NONE);
            let Some(other) = self.entries.get(usize::from(next)) else { break };
            let home = Self::slot(other.addr);
            if (slot + SLOTS - home) % SLOTS >= (slot + SLOTS - hole) % SLOTS {
                self.slots[hole] = next;
                hole = slot;
            }
        }
        self.slots[hole] = NONE;
        if let Some(place) = self.entries.get_mut(usize::from(at)) {
            (place.addr, place.id, place.live) = (0, NIL, false);
        }
        self.vacant.push(at);
        Some(entry)
    }

    /// Has it served too little? Then it is to be recalled, and rests.
    pub(crate) fn gives_up(&mut self) -> bool {
        let spent = self.credit < 0 && !self.patient;
        if spent {
            self.credit = CREDIT;
        }
        spent
    }

    /// The time of its frees from now on.
    pub(crate) fn date(&mut self, stamp: u64) {
        self.stamp = stamp;
    }
}

/// Free blocks of one length that a cache holds at most.
#[inline]
fn depth(units: u32) -> u16 {
    let (least, most) = FREE_LIST_DEPTH;
    (FREE_LIST_UNITS / units.max(1)).clamp(least, most) as u16
}

impl Entry {
    #[inline]
    fn freed(&self) -> Freed {
        let allocated = u64::from(self.units) << UNIT_SHIFT;
        let (buffer, number) = (self.buffer, self.id as usize);
        Freed { bytes: allocated - u64::from(self.slack), allocated, buffer, number }
    }
}

impl Core {
    /// Take back a block in the order of a stream, into its cache if it is likely to be requested again. Both locks are held.
    pub(crate) fn free_into(
        &mut self,
        cache: &mut StreamCache,
        place: usize,
        addr: u64,
        (stream, context): (u64, u64),
        going: impl FnOnce(usize),
    ) -> Result<Freed, FreeError> {
        if let Some(entry) = cache.evict(addr, stream, context) {
            self.restore(&entry);
        }
        let id = self.live_at(addr, going).ok_or(FreeError::Unknown)?;
        let number = self.order.context(context);
        let domain = self.order.stream(stream, number);
        let block = self.blocks.get(id);
        let (arena, units, mempool) = (usize::from(block.arena).min(LARGE), block.len, block.mempool);
        let shared = self.arenas[arena].shared(block.start, block.end()) && !injected(Fault::SharedFreeListed);
        let owner = Owner { stream, context, mempool, domain };
        let list = cache.list_of_units(arena, units).filter(|list| cache.accepts(&owner, *list, units));
        let list = list.filter(|_| {
            domain != DEVICE
                && block.pins == 0
                && !shared
                && block.context == number
                && self.mempools.get(Mempool(mempool)).is_some_and(|owner| owner.alive)
                && self.order.domain(domain).free_lists[arena].wants(units)
        });
        let Some(list) = list else { return Ok(self.free_block(id, domain, false)) };
        let (slack, buffer) = (block.slack, block.buffer);
        let stamp = self.order.tick();
        let entry = Entry { addr, buffer, stamp, id, units, next: NONE, list: list as u16, slack, live: false };
        let block = self.blocks.at(id);
        (block.state, block.tag) = (State::Cached, 0);
        self.supply(cache);
        cache.add(owner, entry);
        self.cached |= 1 << place;
        Ok(entry.freed())
    }

    /// More numbers for a cache that has none left. Both locks are held.
    pub(crate) fn supply(&mut self, cache: &mut StreamCache) {
        if cache.buffers.is_empty() {
            cache.buffers = self.buffers + 1..self.buffers + 1 + BUFFERS;
            self.buffers += BUFFERS;
        }
    }

    /// Does a cache know a block that starts at `addr`?
    pub(crate) fn is_cached(&self, addr: u64) -> bool {
        let block = self.locate(addr).map(|(arena, unit)| self.blocks.get(self.arenas[arena].starts_in_page(unit)));
        block.is_some_and(|block| block.state == State::Cached)
    }

    /// A block is handed out again as far as the pool knows.
    fn restore(&mut self, entry: &Entry) {
        let block = self.blocks.at(entry.id);
        let slack = std::mem::replace(&mut block.slack, entry.slack);
        (block.state, block.buffer) = (State::Live, entry.buffer);
        self.counters.slack_bytes = self.counters.slack_bytes + u64::from(entry.slack) - u64::from(slack);
    }

    /// Everything that a cache knows is the pool's again. Both locks are held.
    pub(crate) fn recall(&mut self, cache: &mut StreamCache) {
        let hits = std::mem::take(&mut cache.hits);
        self.counters.hits += hits;
        self.counters.cache_hits += hits;
        self.counters.allocations += hits;
        self.counters.freed_units += std::mem::take(&mut cache.reused_units);
        if cache.entries.is_empty() {
            return;
        }
        cache.free = 0;
        let domain = cache.owner.domain;
        for entry in cache.entries.iter().filter(|entry| entry.id != NIL) {
            self.restore(entry);
            if !entry.live {
                self.free_block_at(entry.id, domain, false, entry.stamp);
            }
            if let Some(list) = cache.lists.get_mut(usize::from(entry.list)) {
                *list = EMPTY;
            }
        }
        // What comes into the bins now was not there when they were swept for proven blocks.
        self.order.domain_at(domain).swept = 0;
        cache.entries.clear();
        cache.vacant.clear();
        cache.slots.fill(NONE);
    }
}
