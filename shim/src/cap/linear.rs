//! Passed-through allocations by address: plain, pitched, managed, and those of the driver's mempools.
//!
//! The driver puts small blocks together into chunks of 2 MiB ([`PAGE`]), and a chunk is taken while one block
//! lives in it. So small blocks are charged by the chunks that they touch, each once, and larger ones by whole
//! chunks: never less than what is physically taken. No cost grows with the number of live blocks.
//!
//! A block that is freed in the order of a stream is the driver's until the stream has come there. It stays charged
//! until a fence behind the free is passed, which is looked at when room is needed.

use super::admit::urgency;
use super::fences::{Fence, Fences};
use super::watch::Change;
use super::{CapDevice, Caps, PAGE, lock};
use crate::driver::real::{self, done};
use core::hash::{BuildHasherDefault, Hasher};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::{HashMap, HashSet, VecDeque};
use weir_cuda::{CUdeviceptr, CUresult, CUstream};
use weir_ledger::{Category, DeviceId, Urgency};
use weir_pool::ranks::{Mutex, Rank};

/// Blocks up to this size share chunks.
const SMALL: u64 = 1 << 20;
const SHARDS: usize = 64;
/// So many of the oldest queued frees are looked at whenever one more is queued.
const LOOKS: usize = 4;

/// Addresses are spread by a multiplication; nobody chooses them to collide.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

type Map<T> = HashMap<u64, T, BuildHasherDefault<Spread>>;

/// A live block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    /// The device that is charged.
    pub(crate) ordinal: i32,
    /// The context that it goes with, 0 for none.
    pub(crate) ctx: u64,
    /// Its size.
    pub(crate) bytes: u64,
    /// What it is.
    pub(crate) category: Category,
    /// The mempool of the driver's whose reserve is charged instead, else 0.
    pub(crate) mempool: u64,
}

/// All live blocks, and how many small ones touch each chunk.
pub(crate) struct Allocations {
    blocks: [Mutex<Map<Allocation>>; SHARDS],
    pages: [Mutex<Map<u32>>; SHARDS],
    /// Freed by the job in the order of a stream that may not have come there, oldest first.
    leaving: Mutex<VecDeque<(u64, Allocation, Fence)>>,
    /// Live blocks of managed memory, which moves between host and device by itself.
    managed: AtomicUsize,
    /// Behind those frees, and behind launches of graphs.
    pub(super) fences: Fences,
}

impl Allocations {
    pub(super) fn new() -> Self {
        Self {
            blocks: std::array::from_fn(|_| Mutex::new(Rank::Blocks, Map::default())),
            pages: std::array::from_fn(|_| Mutex::new(Rank::Chunks, Map::default())),
            leaving: Mutex::new(Rank::Leaving, VecDeque::new()),
            managed: AtomicUsize::new(0),
            fences: Fences::default(),
        }
    }

    fn shard<T>(of: &[Mutex<T>; SHARDS], key: u64) -> Option<&Mutex<T>> {
        of.get((key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize)
    }

    /// Enters a block and returns what it costs.
    pub(crate) fn enter(&self, addr: u64, block: Allocation) -> u64 {
        if let Some(shard) = Self::shard(&self.blocks, addr) {
            lock(shard).insert(addr, block);
        }
        if block.category == Category::Managed {
            self.managed.fetch_add(1, Ordering::Relaxed);
        }
        if block.mempool != 0 {
            return 0;
        }
        if block.bytes > SMALL || block.category == Category::Managed {
            return whole(addr, block.bytes);
        }
        let mut fresh = 0;
        for page in touched(addr, block.bytes) {
            let Some(shard) = Self::shard(&self.pages, page) else { continue };
            let mut pages = lock(shard);
            let users = pages.entry(page).or_insert(0);
            fresh += u64::from(*users == 0);
            *users += 1;
        }
        fresh * PAGE
    }

    /// Whether small blocks live in chunks that other small things may share.
    pub(crate) fn shares(&self) -> bool {
        self.pages.iter().any(|shard| !lock(shard).is_empty())
    }

    /// Bytes of the chunks that small blocks live in.
    pub(super) fn small_chunks(&self) -> u64 {
        self.pages.iter().map(|shard| lock(shard).len() as u64 * PAGE).sum()
    }

    /// Whether there is memory that moves between host and device by itself.
    pub(crate) fn moves(&self) -> bool {
        self.managed.load(Ordering::Relaxed) > 0
    }

    /// Takes a block off the list before the driver frees it, so that nobody else's block of the same address is meant.
    pub(crate) fn take(&self, addr: u64) -> Option<Allocation> {
        lock(Self::shard(&self.blocks, addr)?).remove(&addr)
    }

    /// The device whose memory a block is.
    fn device_of(&self, addr: u64) -> Option<i32> {
        lock(Self::shard(&self.blocks, addr)?).get(&addr).map(|block| block.ordinal)
    }

    /// Puts a block back that the driver has not freed.
    pub(crate) fn put_back(&self, addr: u64, block: Allocation) {
        if let Some(shard) = Self::shard(&self.blocks, addr) {
            lock(shard).insert(addr, block);
        }
    }

    /// The driver has freed a block: what comes free.
    pub(crate) fn freed(&self, addr: u64, block: &Allocation) -> u64 {
        if block.category == Category::Managed {
            self.managed.fetch_sub(1, Ordering::Relaxed);
        }
        if block.mempool != 0 {
            return 0;
        }
        if block.bytes > SMALL || block.category == Category::Managed {
            return whole(addr, block.bytes);
        }
        let mut free = 0;
        for page in touched(addr, block.bytes) {
            let Some(shard) = Self::shard(&self.pages, page) else { continue };
            let mut pages = lock(shard);
            if let Some(users) = pages.get_mut(&page) {
                *users = users.saturating_sub(1);
                if *users == 0 {
                    pages.remove(&page);
                    free += 1;
                }
            }
        }
        free * PAGE
    }

    /// Whether any queued free may not have happened.
    pub(crate) fn any_leaving(&self) -> bool {
        !lock(&self.leaving).is_empty()
    }

    /// The most bytes that queued frees may have released on a device without anybody knowing.
    pub(super) fn leaving_on(&self, ordinal: i32) -> u64 {
        let leaving = lock(&self.leaving);
        let here = leaving.iter().filter(|(_, block, _)| block.ordinal == ordinal);
        here.map(|(addr, block, _)| whole(*addr, block.bytes)).fold(0, u64::saturating_add)
    }

    /// Takes up to `most` blocks whose free has happened off the list of queued frees, oldest first. Without `all` the
    /// first one that has not happened ends the search.
    fn take_left(&self, most: usize, all: bool) -> Vec<(u64, Allocation)> {
        let looks = if all { usize::MAX } else { most };
        let fences: Vec<Fence> = lock(&self.leaving).iter().take(looks).map(|(_, _, fence)| *fence).collect();
        let mut passed = HashSet::new();
        for fence in fences {
            if self.fences.passed(fence) {
                passed.insert(fence);
            } else if !all {
                break;
            }
            if passed.len() == most {
                break;
            }
        }
        // What another thread has taken off meanwhile is its own.
        let mut leaving = lock(&self.leaving);
        let mut gone = Vec::new();
        if all && !passed.is_empty() {
            leaving.retain(|(addr, block, fence)| {
                let goes = passed.contains(fence);
                if goes {
                    gone.push((*addr, *block));
                }
                !goes
            });
        }
        while let Some((addr, block, fence)) = leaving.front()
            && passed.contains(fence)
        {
            gone.push((*addr, *block));
            leaving.pop_front();
        }
        gone
    }

    /// Takes all blocks of a context off the list: they went with it.
    pub(crate) fn take_all_of(&self, ctx: u64) -> Vec<(u64, Allocation)> {
        let mut gone = Vec::new();
        lock(&self.leaving).retain(|(addr, block, _)| {
            let goes = block.ctx == ctx;
            if goes {
                gone.push((*addr, *block));
            }
            !goes
        });
        for shard in &self.blocks {
            lock(shard).retain(|addr, block| {
                let goes = block.ctx == ctx && block.mempool == 0;
                if goes {
                    gone.push((*addr, *block));
                }
                !goes
            });
        }
        gone
    }
}

fn touched(addr: u64, bytes: u64) -> impl Iterator<Item = u64> {
    addr / PAGE..=(addr + bytes.max(1) - 1) / PAGE
}

fn whole(addr: u64, bytes: u64) -> u64 {
    (addr % PAGE + bytes).next_multiple_of(PAGE)
}

/// The most that a block of so many bytes can cost, wherever it comes to lie.
fn most(bytes: u64) -> u64 {
    match bytes {
        // One that lies across a boundary of two fresh chunks is not worth a second one held back.
        _ if urgency(bytes) == Urgency::Tiny => PAGE,
        _ if bytes <= SMALL => 2 * PAGE,
        _ => bytes.next_multiple_of(PAGE),
    }
}

/// An allocation that the driver serves in the current context: charged before, corrected after. `allocated` gives the
/// bytes that were really taken, if the caller learns them only from the driver.
///
/// # Safety
/// `place` is the caller's place for the address, written by `call` if it succeeds.
pub(crate) unsafe fn allocate(
    bytes: u64,
    category: Category,
    place: *const CUdeviceptr,
    allocated: impl FnOnce() -> u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some((caps, at)) = super::on().and_then(|caps| Some((caps, caps.here()?))) else { return call() };
    if bytes == 0 || place.is_null() {
        return call();
    }
    let most = if category == Category::Managed { bytes.next_multiple_of(PAGE) } else { most(bytes) };
    let enter = || {
        let ctx = crate::driver::guards::current();
        // SAFETY: after success the address is there.
        let addr = unsafe { *place };
        caps.enter(addr, Allocation { ordinal: at.0.ordinal, ctx, bytes: allocated(), category, mempool: 0 })
    };
    if category == Category::Device && urgency(bytes) == Urgency::Tiny {
        // SAFETY: as above.
        return tiny(caps, at, most, call, enter, || unsafe { *place });
    }
    let reservation = match caps.admit(at, most, category, urgency(bytes)) {
        Ok(reservation) => reservation,
        Err(code) => return code,
    };
    let _change = Change::begin();
    let result = call();
    let used = (result == CUresult::CUDA_SUCCESS).then(enter);
    caps.commit_or_roll_back(at, reservation, category, used);
    result
}

/// What is set aside for tiny requests: one chunk for the pool's handle. Where the driver serves them, one for the
/// driver to take, and one more to try it with (see [`tiny`]).
pub(super) fn aside() -> u64 {
    if crate::process::job::pools() { PAGE } else { 2 * PAGE }
}

/// A tiny request. It may find a place in a chunk that is taken already, but only the driver knows, and trying may
/// take a fresh one. So a chunk is reserved to try with; at the cap it is the last one that was set aside, and what
/// would keep that one goes back at once.
fn tiny(
    caps: &Caps,
    at: (&CapDevice, DeviceId),
    most: u64,
    call: impl FnOnce() -> CUresult,
    enter: impl FnOnce() -> u64,
    addr: impl FnOnce() -> u64,
) -> CUresult {
    let refused = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let attempt = || caps.admit_more(at, most, Category::Device);
    let answer = attempt();
    let mut at_the_cap = answer.is_err();
    let mut answer = answer.or_else(|_| caps.admit_tiny(at, most, Category::Device));
    let is_last = || caps.ledger.view(at.1).is_some_and(|view| view.own.set_aside < PAGE);
    // Before it is refused, what was freed in the order of a stream is waited for, as for any other request.
    if (answer.is_err() || (at_the_cap && is_last())) && caps.linear.any_leaving() {
        caps.make_room(at.0, true);
        if let Ok(more) = attempt() {
            if let Ok(last) = answer {
                caps.ledger.roll_back(last);
            }
            (answer, at_the_cap) = (Ok(more), false);
        }
    }
    let Ok(reservation) = answer else { return refused };
    let last = at_the_cap && is_last();
    let _change = Change::begin();
    let result = call();
    let used = (result == CUresult::CUDA_SUCCESS).then(enter);
    if !last || used.is_none_or(|fresh| fresh == 0) {
        caps.commit_or_roll_back(at, reservation, Category::Device, used);
        return result;
    }
    let addr = addr();
    let block = caps.linear.take(addr);
    // SAFETY: it was allocated a moment ago, and nobody else knows it.
    let gone = done(unsafe { real::cuMemFree_v2(addr) }).is_ok();
    if let Some(block) = block.filter(|_| gone) {
        caps.linear.freed(addr, &block);
    }
    caps.commit_or_roll_back(at, reservation, Category::Device, used.filter(|_| !gone));
    refused
}

/// The device whose memory is at an address that is none of the pool's, as far as it is charged.
pub(crate) fn device_of(addr: CUdeviceptr) -> Option<i32> {
    super::on()?.linear.device_of(addr)
}

/// A free of an address that is none of the pool's.
pub(crate) fn free(addr: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = super::on() else { return call() };
    let Some(block) = caps.linear.take(addr) else { return call() };
    let _change = Change::begin();
    let result = call();
    if result == CUresult::CUDA_SUCCESS {
        caps.freed(addr, &block);
    } else {
        caps.linear.put_back(addr, block);
    }
    result
}

/// A free of an address that is none of the pool's, in the order of a stream. `own`: stream 0 is the thread's own.
pub(crate) fn free_in_order(
    addr: CUdeviceptr,
    stream: CUstream,
    own: bool,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(caps) = super::on() else { return call() };
    let Some(block) = caps.linear.take(addr) else {
        return super::graphs::free_in_order(caps, addr, stream, own, call);
    };
    let _change = Change::begin();
    let result = call();
    if result != CUresult::CUDA_SUCCESS {
        caps.linear.put_back(addr, block);
    } else if block.mempool != 0 {
        // What its mempool holds is charged, by the driver's figure.
        caps.freed(addr, &block);
    } else {
        let fence = caps.linear.fences.behind(stream, own);
        lock(&caps.linear.leaving).push_back((addr, block, fence));
        caps.release_frees(LOOKS, false);
    }
    result
}

impl Caps {
    /// Enters a block that the driver has just allocated, and returns what it costs. A block of the same address that is
    /// still in the table has gone with its context, whose end has not returned in another thread: its charge goes here.
    pub(super) fn enter(&self, addr: u64, block: Allocation) -> u64 {
        if let Some(gone) = self.linear.take(addr) {
            self.freed(addr, &gone);
        }
        self.linear.enter(addr, block)
    }

    /// Takes queued frees that have happened off the account.
    fn release_frees(&self, most: usize, all: bool) -> u64 {
        self.linear.take_left(most, all).iter().map(|(addr, block)| self.freed(*addr, block)).sum()
    }

    /// Takes all queued frees that have happened off the account; returns the bytes that came free.
    pub(super) fn release_passed_frees(&self) -> u64 {
        if !self.linear.any_leaving() {
            return 0;
        }
        let _change = Change::begin();
        self.release_frees(usize::MAX, true)
    }

    /// A block is gone: its charge goes too.
    pub(super) fn freed(&self, addr: u64, block: &Allocation) -> u64 {
        let free = self.linear.freed(addr, block);
        self.release(block.ordinal, block.category, free);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: u64) -> Allocation {
        Allocation { ordinal: 0, ctx: 1, bytes, category: Category::Device, mempool: 0 }
    }

    #[test]
    fn small_blocks_share_a_chunk_and_the_last_one_frees_it() {
        let allocations = Allocations::new();
        let base = 64 * PAGE;
        assert_eq!(allocations.enter(base, block(512)), PAGE);
        assert_eq!(allocations.enter(base + 512, block(1 << 20)), 0);
        assert_eq!(allocations.enter(base + PAGE - 512, block(1024)), PAGE, "it touches the next one too");
        let taken = |addr| allocations.take(addr).map(|block| allocations.freed(addr, &block));
        assert_eq!(taken(base), Some(0));
        assert_eq!(taken(base + PAGE - 512), Some(PAGE));
        assert_eq!(taken(base + 512), Some(PAGE));
        assert_eq!(taken(base + 512), None, "a second free is none of ours");
    }

    #[test]
    fn large_blocks_cost_whole_chunks() {
        let allocations = Allocations::new();
        assert_eq!(allocations.enter(0, block(PAGE + 1)), 2 * PAGE);
        assert_eq!(allocations.enter(8 * PAGE, block(SMALL + 1)), PAGE);
        assert_eq!(allocations.take_all_of(1).len(), 2);
        for bytes in [1, 4096, 4097, SMALL, SMALL + 1, PAGE, 3 * PAGE - 1] {
            assert!(most(bytes) >= bytes.next_multiple_of(PAGE).min(PAGE), "{bytes}");
        }
    }
}
