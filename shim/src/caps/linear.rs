//! Passed-through allocations by address: plain, pitched, managed, and those of the driver's mempools.
//!
//! The driver puts small blocks together into portions of 2 MiB ([`PAGE`]), and a portion is taken while one block
//! lives in it. So small blocks are charged by the portions that they touch, each once, and larger ones by whole
//! portions: never less than what is physically taken. No cost grows with the number of live blocks.

use super::admit::urgency;
use super::{Caps, Device, PAGE, lock};
use crate::served::real;
use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;
use std::sync::Mutex;
use weir_cuda::{CUdeviceptr, CUresult};
use weir_ledger::{Category, DeviceId, Urgency};

/// Blocks up to this size share portions.
const SMALL: u64 = 1 << 20;
const SHARDS: usize = 64;

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
pub(crate) struct Block {
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

/// All live blocks, and how many small ones touch each portion.
pub(crate) struct Books {
    blocks: [Mutex<Map<Block>>; SHARDS],
    pages: [Mutex<Map<u32>>; SHARDS],
}

impl Books {
    pub(super) fn new() -> Self {
        Self { blocks: std::array::from_fn(|_| Mutex::default()), pages: std::array::from_fn(|_| Mutex::default()) }
    }

    fn shard<T>(of: &[Mutex<T>; SHARDS], key: u64) -> Option<&Mutex<T>> {
        of.get((key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize)
    }

    /// Enters a block and tells what it costs.
    pub(crate) fn enter(&self, addr: u64, block: Block) -> u64 {
        if let Some(shard) = Self::shard(&self.blocks, addr) {
            lock(shard).insert(addr, block);
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

    /// Whether small blocks live in portions that other small things may share.
    pub(crate) fn shares(&self) -> bool {
        self.pages.iter().any(|shard| !lock(shard).is_empty())
    }

    /// Takes a block off the list before the driver frees it, so that nobody else's block of the same address is meant.
    pub(crate) fn take(&self, addr: u64) -> Option<Block> {
        lock(Self::shard(&self.blocks, addr)?).remove(&addr)
    }

    /// Puts a block back that the driver has not freed.
    pub(crate) fn put_back(&self, addr: u64, block: Block) {
        if let Some(shard) = Self::shard(&self.blocks, addr) {
            lock(shard).insert(addr, block);
        }
    }

    /// The driver has freed a block: what comes free.
    pub(crate) fn freed(&self, addr: u64, block: &Block) -> u64 {
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

    /// Takes all blocks of a context off the list: they went with it.
    pub(crate) fn take_all_of(&self, ctx: u64) -> Vec<(u64, Block)> {
        let mut gone = Vec::new();
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
        // One that lies across a boundary of two fresh portions is not worth a second one held back.
        _ if urgency(bytes) == Urgency::Tiny => PAGE,
        _ if bytes <= SMALL => 2 * PAGE,
        _ => bytes.next_multiple_of(PAGE),
    }
}

/// An allocation that the driver serves in the current context: charged before, corrected after. `told` gives the
/// bytes that were really taken, if the caller learns them only from the driver.
///
/// # Safety
/// `place` is the caller's place for the address, written by `call` if it succeeds.
pub(crate) unsafe fn allocate(
    bytes: u64,
    category: Category,
    place: *const CUdeviceptr,
    told: impl FnOnce() -> u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some((caps, at)) = super::on().and_then(|caps| Some((caps, caps.here()?))) else { return call() };
    if bytes == 0 || place.is_null() {
        return call();
    }
    let most = if category == Category::Managed { bytes.next_multiple_of(PAGE) } else { most(bytes) };
    let enter = || {
        let ctx = crate::served::quiet::current();
        // SAFETY: after success the address is there.
        let addr = unsafe { *place };
        caps.linear.enter(addr, Block { ordinal: at.0.ordinal, ctx, bytes: told(), category, mempool: 0 })
    };
    if category == Category::Device && urgency(bytes) == Urgency::Tiny {
        // SAFETY: as above.
        return tiny(caps, at, most, call, enter, || unsafe { *place });
    }
    let reservation = match caps.admit(at, most, category, urgency(bytes)) {
        Ok(reservation) => reservation,
        Err(code) => return code,
    };
    let result = call();
    let used = (result == CUresult::CUDA_SUCCESS).then(enter);
    caps.settle(at, reservation, category, used);
    result
}

/// A tiny request. At the cap, when even what was set aside is taken, it may still find a place in a portion that is
/// taken already: the driver is asked, and what does not lie in such a portion goes back at once.
fn tiny(
    caps: &Caps,
    at: (&Device, DeviceId),
    most: u64,
    call: impl FnOnce() -> CUresult,
    enter: impl FnOnce() -> u64,
    addr: impl FnOnce() -> u64,
) -> CUresult {
    let reservation = caps.admit_tiny(at, most, Category::Device);
    if reservation.is_err() && !caps.linear.shares() {
        return CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    }
    let result = call();
    let used = (result == CUresult::CUDA_SUCCESS).then(enter);
    match reservation {
        Ok(reservation) => caps.settle(at, reservation, Category::Device, used),
        Err(_) => {
            if let Some(fresh) = used.filter(|fresh| *fresh > 0) {
                caps.fact(at, Category::Device, fresh);
                let addr = addr();
                free(addr, || {
                    // SAFETY: it was allocated a moment ago, and nobody else knows it.
                    unsafe { real::cuMemFree_v2(addr) }
                });
                return CUresult::CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
    }
    result
}

/// A free of an address that is none of the pool's.
pub(crate) fn free(addr: CUdeviceptr, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = super::on() else { return call() };
    let Some(block) = caps.linear.take(addr) else { return call() };
    let result = call();
    if result == CUresult::CUDA_SUCCESS {
        caps.freed(addr, &block);
    } else {
        caps.linear.put_back(addr, block);
    }
    result
}

impl Caps {
    /// A block is gone: its charge goes too.
    pub(super) fn freed(&self, addr: u64, block: &Block) {
        let free = self.linear.freed(addr, block);
        self.release(block.ordinal, block.category, free);
        if block.mempool != 0 {
            super::measured::freed(self, block.mempool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: u64) -> Block {
        Block { ordinal: 0, ctx: 1, bytes, category: Category::Device, mempool: 0 }
    }

    #[test]
    fn small_blocks_share_a_portion_and_the_last_one_frees_it() {
        let books = Books::new();
        let base = 64 * PAGE;
        assert_eq!(books.enter(base, block(512)), PAGE);
        assert_eq!(books.enter(base + 512, block(1 << 20)), 0);
        assert_eq!(books.enter(base + PAGE - 512, block(1024)), PAGE, "it touches the next one too");
        let taken = |addr| books.take(addr).map(|block| books.freed(addr, &block));
        assert_eq!(taken(base), Some(0));
        assert_eq!(taken(base + PAGE - 512), Some(PAGE));
        assert_eq!(taken(base + 512), Some(PAGE));
        assert_eq!(taken(base + 512), None, "a second free is none of ours");
    }

    #[test]
    fn large_blocks_cost_whole_portions() {
        let books = Books::new();
        assert_eq!(books.enter(0, block(PAGE + 1)), 2 * PAGE);
        assert_eq!(books.enter(8 * PAGE, block(SMALL + 1)), PAGE);
        assert_eq!(books.take_all_of(1).len(), 2);
        for bytes in [1, 4096, 4097, SMALL, SMALL + 1, PAGE, 3 * PAGE - 1] {
            assert!(most(bytes) >= bytes.next_multiple_of(PAGE).min(PAGE), "{bytes}");
        }
    }
}
