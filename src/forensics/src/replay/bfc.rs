//! A model of TensorFlow's best-fit-with-coalescing allocator, from its published behaviour. Touches nothing real.
//!
//! Requests are rounded to 256 bytes. Free chunks lie in 21 bins by powers of two; from the first bin that can serve on,
//! the smallest chunk that fits is taken, and split if it is twice the request or leaves 128 MiB. A freed chunk is joined
//! with its free other_processes at once. Memory comes in regions: all of it at the start, or with growth from 2 MiB on,
//! each twice the last. When nothing fits, regions that are wholly free are returned to the driver, if that helps, and the request is tried once more.

use std::collections::{BTreeMap, BTreeSet};

use weir_pool::sim::COSTS;

use super::{Allocator, Calls, Outcome};

const ROUND: u64 = 256;
const BINS: usize = 21;
const FIRST_REGION: u64 = 2 << 20;
const MOST_SLACK: u64 = 128 << 20;
const NONE: u32 = u32::MAX;
/// Regions lie this far apart, so that their chunks never touch.
const GAP: u64 = 1 << 20;

#[derive(Clone, Copy)]
struct Chunk {
    start: u64,
    bytes: u64,
    prev: u32,
    next: u32,
    free: bool,
}

struct Region {
    bytes: u64,
    first: u32,
    /// End of the highest chunk ever used, from the region's start.
    touched: u64,
}

pub(super) struct Bfc {
    cap: u64,
    /// All regions together.
    most: u64,
    growth: bool,
    /// Whether regions count as held though nothing in them was ever touched.
    whole: bool,
    /// Size of the next region.
    step: u64,
    in_regions: u64,
    outside: u64,
    next_start: u64,
    regions: BTreeMap<u64, Region>,
    chunks: Vec<Chunk>,
    vacant: Vec<u32>,
    bins: Vec<BTreeSet<(u64, u64, u32)>>,
    taken: Vec<u32>,
    touched: u64,
    calls: Calls,
}

fn bin_of(bytes: u64) -> usize {
    ((bytes.max(ROUND) / ROUND).ilog2() as usize).min(BINS - 1)
}

impl Bfc {
    pub(super) fn new(cap: u64, growth: bool, region: Option<u64>, blocks: usize) -> Self {
        let most = region.unwrap_or(cap);
        Self {
            cap,
            most,
            growth,
            whole: growth || region.is_some(),
            step: if growth { FIRST_REGION.min(cap) } else { most } / ROUND * ROUND,
            in_regions: 0,
            outside: 0,
            next_start: GAP,
            regions: BTreeMap::new(),
            chunks: Vec::new(),
            vacant: Vec::new(),
            bins: vec![BTreeSet::new(); BINS],
            taken: vec![NONE; blocks + 1],
            touched: 0,
            calls: Calls::default(),
        }
    }

    fn new_chunk(&mut self, chunk: Chunk) -> u32 {
        if let Some(id) = self.vacant.pop()
            && let Some(place) = self.chunks.get_mut(id as usize)
        {
            *place = chunk;
            return id;
        }
        self.chunks.push(chunk);
        self.chunks.len() as u32 - 1
    }

    fn put_in_bin(&mut self, id: u32) {
        let chunk = self.chunks[id as usize];
        self.bins[bin_of(chunk.bytes)].insert((chunk.bytes, chunk.start, id));
    }

    fn take_from_bin(&mut self, id: u32) {
        let chunk = self.chunks[id as usize];
        self.bins[bin_of(chunk.bytes)].remove(&(chunk.bytes, chunk.start, id));
    }

    /// Gets a region that can serve the request.
    fn extend(&mut self, bytes: u64) -> bool {
        let available = self.cap.saturating_sub(self.in_regions + self.outside);
        let available = available.min(self.most.saturating_sub(self.in_regions)) / ROUND * ROUND;
        if bytes > available {
            return false;
        }
        let mut enlarged = false;
        while self.step < bytes {
            self.step *= 2;
            enlarged = true;
        }
        // TensorFlow tries nine tenths when the device refuses; here the device has what the limit allows.
        let size = self.step.min(available);
        if self.growth && !enlarged {
            self.step *= 2;
        }
        let start = self.next_start;
        self.next_start += size + GAP;
        self.in_regions += size;
        self.calls.allocations += 1;
        let first = self.new_chunk(Chunk { start, bytes: size, prev: NONE, next: NONE, free: true });
        self.regions.insert(start, Region { bytes: size, first, touched: 0 });
        self.put_in_bin(first);
        true
    }

    /// Gives wholly free regions back, if the request fits then.
    fn release_free_regions(&mut self, bytes: u64) -> bool {
        let free: Vec<u64> = self
            .regions
            .iter()
            .filter(|(_, region)| {
                let chunk = self.chunks[region.first as usize];
                chunk.free && chunk.bytes == region.bytes
            })
            .map(|(start, _)| *start)
            .collect();
        let gain: u64 = free.iter().filter_map(|start| self.regions.get(start)).map(|region| region.bytes).sum();
        let available = self.cap.saturating_sub(self.in_regions + self.outside);
        if free.is_empty() || bytes > available + gain {
            return false;
        }
        for start in free {
            let Some(region) = self.regions.remove(&start) else { continue };
            self.take_from_bin(region.first);
            self.vacant.push(region.first);
            self.in_regions -= region.bytes;
            self.touched -= region.touched;
            self.calls.frees += 1;
        }
        true
    }

    fn find(&mut self, bytes: u64) -> Option<u32> {
        let (_, _, id) = (bin_of(bytes)..BINS).find_map(|bin| self.bins[bin].range((bytes, 0, 0)..).next().copied())?;
        self.take_from_bin(id);
        let chunk = self.chunks[id as usize];
        let rest = chunk.bytes - bytes;
        if chunk.bytes >= bytes * 2 || rest >= MOST_SLACK {
            let tail = Chunk { start: chunk.start + bytes, bytes: rest, prev: id, next: chunk.next, free: true };
            let tail = self.new_chunk(tail);
            if let Some(after) = self.chunks.get_mut(chunk.next as usize) {
                after.prev = tail;
            }
            let own = &mut self.chunks[id as usize];
            (own.bytes, own.next) = (bytes, tail);
            self.put_in_bin(tail);
        }
        let own = &mut self.chunks[id as usize];
        own.free = false;
        let end = own.start + own.bytes;
        if let Some((start, region)) = self.regions.range_mut(..end).next_back() {
            let more = (end - start).saturating_sub(region.touched);
            region.touched += more;
            self.touched += more;
        }
        Some(id)
    }

    /// Joins a chunk with the one behind it.
    fn join(&mut self, first: u32, second: u32) {
        let tail = self.chunks[second as usize];
        let own = &mut self.chunks[first as usize];
        own.bytes += tail.bytes;
        own.next = tail.next;
        if let Some(after) = self.chunks.get_mut(tail.next as usize) {
            after.prev = first;
        }
        self.vacant.push(second);
    }
}

impl Allocator for Bfc {
    fn request(&mut self, block: u32, bytes: u64, _: u16) -> bool {
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(ROUND).filter(|bytes| *bytes <= self.cap) else {
            return false;
        };
        let found = self.find(bytes).or_else(|| {
            let extended = self.extend(bytes) || (self.release_free_regions(bytes) && self.extend(bytes));
            extended.then(|| self.find(bytes)).flatten()
        });
        if let (Some(id), Some(place)) = (found, self.taken.get_mut(block as usize)) {
            *place = id;
        }
        // What is taken past the allocator narrows the one region afterwards.
        found.is_some() && self.held() <= self.cap
    }

    fn is_passed_by(&self) -> bool {
        true
    }

    fn free(&mut self, block: u32, _: u16) {
        let Some(mut id) = self.taken.get_mut(block as usize).map(|place| std::mem::replace(place, NONE)) else {
            return;
        };
        let Some(chunk) = self.chunks.get_mut(id as usize) else { return };
        chunk.free = true;
        let (prev, next) = (chunk.prev, chunk.next);
        let free = |bfc: &Self, id: u32| bfc.chunks.get(id as usize).is_some_and(|chunk| chunk.free);
        if free(self, next) {
            self.take_from_bin(next);
            self.join(id, next);
        }
        if free(self, prev) {
            self.take_from_bin(prev);
            self.join(prev, id);
            id = prev;
        }
        self.put_in_bin(id);
    }

    fn hold(&mut self, bytes: u64) -> bool {
        let fits = self.held().saturating_add(bytes) <= self.cap;
        self.outside += if fits { bytes } else { 0 };
        fits
    }

    fn unhold(&mut self, bytes: u64) {
        self.outside -= bytes;
    }

    /// Without growth, what was ever touched counts: the rest of the region was taken for nothing.
    fn held(&self) -> u64 {
        self.outside + if self.whole { self.in_regions } else { self.touched }
    }

    fn sum_up(&self, outcome: &mut Outcome) {
        outcome.driver_calls = self.calls.allocations + self.calls.frees;
        outcome.driver_micros = self.calls.allocations as f64 * COSTS.alloc + self.calls.frees as f64 * COSTS.free;
    }
}
