//! A model of PyTorch's caching allocator, from its published behaviour. Touches nothing real.
//!
//! Requests are rounded to 512 bytes. Up to 1 MiB they come from segments of 2 MiB, below 10 MiB from segments of
//! 20 MiB, larger ones get a segment of their own, rounded to 2 MiB. Free blocks are kept by stream and by pool (small,
//! large), and the best fit is taken. A block is split if 512 bytes (small) or more than 1 MiB (large) are left. When the
//! device is full, segments that are wholly free go back to the driver, all of them, and the request is tried once more.

use std::collections::{BTreeMap, BTreeSet};

use weir_pool::sim::COSTS;

use super::{Allocator, Calls, Outcome};

const SMALL: u64 = 1 << 20;

/// A block, free or not; blocks of one segment touch each other.
#[derive(Clone, Copy)]
struct TorchBlock {
    bytes: u64,
    segment: u64,
    stream: u16,
    small: bool,
    free: bool,
}

pub(super) struct Torch {
    cap: u64,
    held: u64,
    /// Where the next segment starts; a gap follows each, so that segments never touch.
    next: u64,
    /// Free blocks: pool, stream, size, address.
    free: BTreeSet<(bool, u16, u64, u64)>,
    blocks: BTreeMap<u64, TorchBlock>,
    segments: BTreeMap<u64, u64>,
    addresses: Vec<u64>,
    calls: Calls,
}

impl Torch {
    pub(super) fn new(cap: u64, blocks: usize) -> Self {
        Self {
            cap,
            held: 0,
            next: 1 << 40,
            free: BTreeSet::new(),
            blocks: BTreeMap::new(),
            segments: BTreeMap::new(),
            addresses: vec![0; blocks + 1],
            calls: Calls::default(),
        }
    }

    /// Gives wholly free segments back; the device is synchronised first.
    fn release_cached(&mut self) {
        self.calls.syncs += 1;
        let whole =
            |start: &u64, size: &u64| self.blocks.get(start).is_some_and(|block| block.free && block.bytes == *size);
        let idle: Vec<(u64, u64)> = self
            .segments
            .iter()
            .filter(|(start, size)| whole(start, size))
            .map(|(start, size)| (*start, *size))
            .collect();
        for (start, size) in idle {
            self.segments.remove(&start);
            if let Some(block) = self.blocks.remove(&start) {
                self.free.remove(&(block.small, block.stream, block.bytes, start));
            }
            self.held -= size;
            self.calls.frees += 1;
        }
    }

    fn room_for(&mut self, bytes: u64) -> bool {
        if self.held.saturating_add(bytes) > self.cap {
            self.release_cached();
        }
        self.held.saturating_add(bytes) <= self.cap
    }

    fn new_segment(&mut self, bytes: u64, small: bool, stream: u16) -> Option<u64> {
        let size = if small {
            2 << 20
        } else if bytes < 10 << 20 {
            20 << 20
        } else {
            bytes.next_multiple_of(2 << 20)
        };
        if !self.room_for(size) {
            return None;
        }
        self.held += size;
        self.calls.allocations += 1;
        let start = self.next;
        self.next += size + (2 << 20);
        self.segments.insert(start, size);
        self.blocks.insert(start, TorchBlock { bytes: size, segment: start, stream, small, free: true });
        Some(start)
    }

    fn merge(&mut self, at: u64, other: u64) {
        let (first, second) = (at.min(other), at.max(other));
        let Some(tail) = self.blocks.remove(&second) else { return };
        if let Some(block) = self.blocks.get_mut(&first) {
            block.bytes += tail.bytes;
        }
    }
}

impl Allocator for Torch {
    fn request(&mut self, block: u32, bytes: u64, stream: u16) -> bool {
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(512) else { return false };
        let small = bytes <= SMALL;
        let range = (small, stream, bytes, 0)..=(small, stream, u64::MAX, u64::MAX);
        let found = self.free.range(range).next().copied();
        let start = match found {
            Some(key) => {
                self.free.remove(&key);
                key.3
            }
            None => match self.new_segment(bytes, small, stream) {
                Some(start) => start,
                None => return false,
            },
        };
        let Some(taken) = self.blocks.get_mut(&start) else { return false };
        taken.free = false;
        let rest = taken.bytes - bytes;
        if if small { rest >= 512 } else { rest > SMALL } {
            taken.bytes = bytes;
            let left = TorchBlock { bytes: rest, free: true, ..*taken };
            self.blocks.insert(start + bytes, left);
            self.free.insert((small, stream, rest, start + bytes));
        }
        if let Some(address) = self.addresses.get_mut(block as usize) {
            *address = start;
        }
        true
    }

    fn free(&mut self, block: u32, _: u16) {
        // A block goes back to the stream that it was made for, whoever frees it.
        let mut at = self.addresses.get(block as usize).copied().unwrap_or(0);
        let Some(own) = self.blocks.get_mut(&at) else { return };
        own.free = true;
        let own = *own;
        let next = self.blocks.range(at + 1..).next().map(|(start, block)| (*start, *block));
        if let Some((start, block)) = next.filter(|(_, block)| block.free && block.segment == own.segment) {
            self.free.remove(&(block.small, block.stream, block.bytes, start));
            self.merge(at, start);
        }
        let before = self.blocks.range(..at).next_back().map(|(start, block)| (*start, *block));
        if let Some((start, block)) = before.filter(|(_, block)| block.free && block.segment == own.segment) {
            self.free.remove(&(block.small, block.stream, block.bytes, start));
            self.merge(at, start);
            at = start;
        }
        if let Some(block) = self.blocks.get(&at) {
            self.free.insert((block.small, block.stream, block.bytes, at));
        }
    }

    fn hold(&mut self, bytes: u64) -> bool {
        let fits = self.held.saturating_add(bytes) <= self.cap;
        self.held += if fits { bytes } else { 0 };
        fits
    }

    fn unhold(&mut self, bytes: u64) {
        self.held -= bytes;
    }

    fn held(&self) -> u64 {
        self.held
    }

    fn sum_up(&self, outcome: &mut Outcome) {
        outcome.driver_calls = self.calls.allocations + self.calls.frees + self.calls.syncs;
        outcome.driver_micros = self.calls.allocations as f64 * COSTS.alloc + self.calls.frees as f64 * COSTS.free;
        outcome.self_syncs = self.calls.syncs;
    }
}
