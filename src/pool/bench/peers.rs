//! Models of other allocators, written from their published behaviour, to be measured in the same run.
//! They keep what decides speed and capacity, and leave out what does not. Touch nothing real.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An allocator on a device with a limited capacity.
pub(crate) trait Peer {
    fn name(&self) -> &'static str;
    /// An address, or `None` if it does not fit.
    fn allocate(&mut self, bytes: u64) -> Option<u64>;
    fn free(&mut self, addr: u64);
}

/// TensorFlow's best-fit-with-coalescing allocator on one region: 256-byte chunks in a slab, 21 bins of
/// ordered chunks, split if the chunk is twice the request or 128 MiB too large.
pub(crate) struct Bfc {
    chunks: Vec<Chunk>,
    unused: Vec<u32>,
    bins: Vec<BTreeSet<(u64, u64, u32)>>,
    /// TensorFlow maps each 256-byte piece of a region to its chunk; a map of starts serves the same lookups.
    starts: HashMap<u64, u32>,
}

#[derive(Clone, Copy)]
struct Chunk {
    addr: u64,
    bytes: u64,
    prev: u32,
    next: u32,
    free: bool,
}

const NONE: u32 = u32::MAX;

fn bin_of(bytes: u64) -> usize {
    (63 - (bytes / 256).max(1).leading_zeros() as usize).min(20)
}

impl Bfc {
    pub(crate) fn new(capacity: u64) -> Self {
        let mut bfc = Self {
            chunks: vec![Chunk { addr: 1 << 40, bytes: capacity / 256 * 256, prev: NONE, next: NONE, free: true }],
            unused: Vec::new(),
            bins: vec![BTreeSet::new(); 21],
            starts: HashMap::new(),
        };
        bfc.insert(0);
        bfc
    }

    fn insert(&mut self, id: u32) {
        let chunk = self.chunks[id as usize];
        self.bins[bin_of(chunk.bytes)].insert((chunk.bytes, chunk.addr, id));
    }

    fn remove(&mut self, id: u32) {
        let chunk = self.chunks[id as usize];
        self.bins[bin_of(chunk.bytes)].remove(&(chunk.bytes, chunk.addr, id));
    }

    fn join(&mut self, left: u32, right: u32) {
        let gone = self.chunks[right as usize];
        self.chunks[left as usize].bytes += gone.bytes;
        self.chunks[left as usize].next = gone.next;
        if gone.next != NONE {
            self.chunks[gone.next as usize].prev = left;
        }
        self.unused.push(right);
    }
}

impl Peer for Bfc {
    fn name(&self) -> &'static str {
        "tensorflow_bfc"
    }

    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.next_multiple_of(256);
        let id =
            (bin_of(bytes)..21).find_map(|bin| self.bins[bin].range((bytes, 0, 0)..).next().map(|entry| entry.2))?;
        self.remove(id);
        let chunk = self.chunks[id as usize];
        if chunk.bytes >= bytes * 2 || chunk.bytes - bytes >= 128 << 20 {
            let rest =
                Chunk { addr: chunk.addr + bytes, bytes: chunk.bytes - bytes, prev: id, next: chunk.next, free: true };
            let new = self.unused.pop().unwrap_or_else(|| {
                self.chunks.push(rest);
                self.chunks.len() as u32 - 1
            });
            self.chunks[new as usize] = rest;
            if chunk.next != NONE {
                self.chunks[chunk.next as usize].prev = new;
            }
            self.chunks[id as usize].next = new;
            self.chunks[id as usize].bytes = bytes;
            self.insert(new);
        }
        self.chunks[id as usize].free = false;
        self.starts.insert(chunk.addr, id);
        Some(chunk.addr)
    }

    fn free(&mut self, addr: u64) {
        let Some(mut id) = self.starts.remove(&addr) else { return };
        self.chunks[id as usize].free = true;
        let Chunk { prev, next, .. } = self.chunks[id as usize];
        if next != NONE && self.chunks[next as usize].free {
            self.remove(next);
            self.join(id, next);
        }
        if prev != NONE && self.chunks[prev as usize].free {
            self.remove(prev);
            self.join(prev, id);
            id = prev;
        }
        self.insert(id);
    }
}

/// RMM's pool on one region: a list of free blocks in address order, linear best fit, and a lookup of
/// the allocated blocks by address. (Its event per free is left out: it is the driver's time.)
pub(crate) struct Rmm {
    free: Vec<(u64, u64)>,
    taken: BTreeMap<u64, u64>,
}

impl Rmm {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { free: vec![(1 << 40, capacity)], taken: BTreeMap::new() }
    }
}

impl Peer for Rmm {
    fn name(&self) -> &'static str {
        "rmm_pool"
    }

    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.next_multiple_of(256);
        let mut best: Option<usize> = None;
        for (at, (_, size)) in self.free.iter().enumerate() {
            if *size >= bytes && best.is_none_or(|best| *size < self.free[best].1) {
                best = Some(at);
                if *size == bytes {
                    break;
                }
            }
        }
        let at = best?;
        let (addr, size) = self.free[at];
        if size == bytes {
            self.free.remove(at);
        } else {
            self.free[at] = (addr + bytes, size - bytes);
        }
        self.taken.insert(addr, bytes);
        Some(addr)
    }

    fn free(&mut self, addr: u64) {
        let Some(bytes) = self.taken.remove(&addr) else { return };
        // The list is walked from its beginning, as a list is.
        let at = self.free.iter().position(|(start, _)| *start > addr).unwrap_or(self.free.len());
        let after = self.free.get(at).is_some_and(|(start, _)| *start == addr + bytes);
        let before = at > 0 && self.free[at - 1].0 + self.free[at - 1].1 == addr;
        match (before, after) {
            (true, true) => {
                self.free[at - 1].1 += bytes + self.free[at].1;
                self.free.remove(at);
            }
            (true, false) => self.free[at - 1].1 += bytes,
            (false, true) => self.free[at] = (addr, bytes + self.free[at].1),
            (false, false) => self.free.insert(at, (addr, bytes)),
        }
    }
}

/// PyTorch's native caching allocator on one stream: 512-byte blocks; up to 1 MiB from segments of 2 MiB,
/// up to 10 MiB from segments of 20 MiB, larger ones get a segment of their own; wholly free segments
/// are released when the device is full.
pub(crate) struct Torch {
    capacity: u64,
    held: u64,
    next: u64,
    /// Free blocks of the small and of the large pool, by size.
    free: [BTreeSet<(u64, u64)>; 2],
    /// All blocks: bytes, segment, free, small.
    blocks: BTreeMap<u64, (u64, u64, bool, bool)>,
    segments: HashMap<u64, u64>,
}

impl Torch {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            held: 0,
            next: 1 << 40,
            free: [BTreeSet::new(), BTreeSet::new()],
            blocks: BTreeMap::new(),
            segments: HashMap::new(),
        }
    }

    fn release_free_segments(&mut self) {
        let whole: Vec<(u64, u64, bool)> = self
            .segments
            .iter()
            .filter_map(|(start, size)| {
                let (bytes, _, free, small) = self.blocks.get(start)?;
                (*free && bytes == size).then_some((*start, *size, *small))
            })
            .collect();
        for (start, size, small) in whole {
            self.segments.remove(&start);
            self.blocks.remove(&start);
            self.free[usize::from(!small)].remove(&(size, start));
            self.held -= size;
        }
    }
}

impl Peer for Torch {
    fn name(&self) -> &'static str {
        "pytorch_native"
    }

    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.next_multiple_of(512);
        let small = bytes <= 1 << 20;
        let pool = usize::from(!small);
        let found = self.free[pool].range((bytes, 0)..).next().copied();
        // A request above 10 MiB does not cut up a cached block that is 1 MiB or more too large only if
        // the limit for splitting is set; by default it does.
        let (size, addr) = if let Some(block) = found {
            block
        } else {
            let segment = if small {
                2 << 20
            } else if bytes < 10 << 20 {
                20 << 20
            } else {
                bytes.next_multiple_of(2 << 20)
            };
            if self.held + segment > self.capacity {
                self.release_free_segments();
                if self.held + segment > self.capacity {
                    return None;
                }
            }
            self.held += segment;
            let addr = self.next;
            self.next += segment + (1 << 30);
            self.segments.insert(addr, segment);
            self.blocks.insert(addr, (segment, addr, true, small));
            self.free[pool].insert((segment, addr));
            (segment, addr)
        };
        self.free[pool].remove(&(size, addr));
        let (_, segment, _, _) = *self.blocks.get(&addr)?;
        let rest = size - bytes;
        let split = if small { rest >= 512 } else { rest > 1 << 20 };
        let allocated = if split { bytes } else { size };
        if split {
            self.blocks.insert(addr + bytes, (rest, segment, true, small));
            self.free[pool].insert((rest, addr + bytes));
        }
        self.blocks.insert(addr, (allocated, segment, false, small));
        Some(addr)
    }

    fn free(&mut self, addr: u64) {
        let Some((mut bytes, segment, false, small)) = self.blocks.get(&addr).copied() else { return };
        let pool = usize::from(!small);
        let mut start = addr;
        if let Some((next, (size, same, true, _))) =
            self.blocks.range(addr + 1..).next().map(|(at, block)| (*at, *block))
            && same == segment
        {
            self.free[pool].remove(&(size, next));
            self.blocks.remove(&next);
            bytes += size;
        }
        if let Some((prev, (size, same, true, _))) =
            self.blocks.range(..addr).next_back().map(|(at, block)| (*at, *block))
            && same == segment
        {
            self.free[pool].remove(&(size, prev));
            self.blocks.remove(&start);
            start = prev;
            bytes += size;
        }
        self.blocks.insert(start, (bytes, segment, true, small));
        self.free[pool].insert((bytes, start));
    }
}

/// The crate `offset-allocator`, in units of 512 bytes as its offsets have 32 bits.
pub(crate) struct Offsets {
    inner: offset_allocator::Allocator<u32>,
    taken: HashMap<u64, offset_allocator::Allocation<u32>>,
}

impl Offsets {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            inner: offset_allocator::Allocator::with_max_allocs((capacity / 512) as u32, 1 << 20),
            taken: HashMap::new(),
        }
    }
}

impl Peer for Offsets {
    fn name(&self) -> &'static str {
        "offset_allocator"
    }

    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let allocation = self.inner.allocate(u32::try_from(bytes.div_ceil(512)).ok()?)?;
        let addr = u64::from(allocation.offset) * 512;
        self.taken.insert(addr, allocation);
        Some(addr)
    }

    fn free(&mut self, addr: u64) {
        if let Some(allocation) = self.taken.remove(&addr) {
            self.inner.free(allocation);
        }
    }
}
