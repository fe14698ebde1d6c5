//! The pool as its users see it: one lock around the core, hits, frees and queries; [`caches`] serves hits without it.
//! What needs the driver is in the files beside, made without a lock: [`miss`], [`migrate`], [`trim`], [`access`];
//! [`progress`] is what the job's own calls prove, [`mempools`] what it sets. Touches the driver only through the `Backing`
//! that is passed in.

mod access;
mod caches;
mod mempools;
mod migrate;
mod miss;
mod progress;
mod trim;

use crate::backing::{Backing, BackingError};
use crate::budget::Budget;
use crate::config::Config;
use crate::core::Core;
use crate::ranks::{self, Locked, Mutex, Rank};
use crate::shared::{Guarded, Turns, give_turn, take_turn};
use crate::stats::{Hole, Stats};
use crate::{AllocError, Allocation, BlockInfo, FreeError, Freed, Observer, Request};
use std::time::Duration;

/// Address space per byte of device memory, for small and for large blocks.
const SMALL_SPACE: u64 = 2;
const LARGE_SPACE: u64 = 4;
/// Address space for fewer handles than this is not worth a pool.
const LEAST_HANDLES: u64 = 64;

/// Address space for small and for large blocks, or neither.
fn reserve_both(
    backing: &impl Backing,
    (small, large): (u64, u64),
    align: u64,
) -> Result<[(u64, u64); 2], BackingError> {
    let first = backing.reserve(small, align)?;
    match backing.reserve(large, align) {
        Ok(second) => Ok([(first, small), (second, large)]),
        Err(error) => {
            let _ = backing.unreserve(first, small);
            Err(error)
        }
    }
}

/// The memory of one device. All methods may be called from any thread.
pub struct Pool {
    core: Mutex<Core>,
    /// Whether somebody has the turn.
    turn: Guarded<Turns>,
    reservations: [(u64, u64); 2],
    caches: caches::Caches,
}

/// The right to grow; released when dropped, also if a backing panics. Whoever waits for it holds nothing.
struct Turn<'a> {
    pool: &'a Pool,
    _held: ranks::Held,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pool.lock().turn = false;
        give_turn(&self.pool.turn);
    }
}

impl Pool {
    /// How long a thread waits for its turn. Nobody waits for the device while it has the turn, so this is long for the
    /// driver calls of all who come before; who has waited for so long does without.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// A pool for one device. Reserves address space, nothing else: less of it, down to a few handles, where the driver
    /// refuses so much.
    pub fn new(config: Config, backing: &impl Backing) -> Result<Self, BackingError> {
        let config = config.sound();
        let chunk = config.large_handle.max(config.small_handle);
        let space = |factor: u64| {
            let bytes = config.device_bytes.saturating_mul(factor).clamp(chunk * LEAST_HANDLES, 1 << 40);
            bytes.next_multiple_of(2 * chunk)
        };
        let mut sizes = (space(SMALL_SPACE), space(LARGE_SPACE));
        let reservations = if config.vmm {
            loop {
                match reserve_both(backing, sizes, chunk) {
                    Ok(both) => break both,
                    Err(error) if sizes.1 / 2 < chunk * LEAST_HANDLES => return Err(error),
                    Err(_) => {
                        let half = |bytes: u64| (bytes / 2).next_multiple_of(2 * chunk);
                        sizes = (half(sizes.0), half(sizes.1));
                    }
                }
            }
        } else {
            // No address space of its own: the numbering of units only has to be large enough.
            [(0, 1 << 40), (0, 1 << 40)]
        };
        let caches = caches::Caches::new(&config);
        let core = Core::new(config, reservations[0].0, reservations[0].1, reservations[1].0, reservations[1].1);
        Ok(Self {
            core: Mutex::new(Rank::Pool, core),
            turn: Guarded::new(Rank::TurnFlag, Turns::free()),
            reservations,
            caches,
        })
    }

    /// Bytes of a handle for small blocks, and for large ones.
    pub fn handle_sizes(&self) -> [u64; 2] {
        let core = self.lock();
        [core.config.small_handle, core.config.large_handle]
    }

    /// The address ranges the pool hands out from; empty without virtual memory management.
    pub fn address_ranges(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        self.reservations.into_iter().filter(|(addr, _)| *addr != 0).map(|(addr, bytes)| addr..addr + bytes)
    }

    #[inline]
    #[track_caller]
    fn lock(&self) -> Locked<'_, Core> {
        self.core.lock_by(|mutex| crate::lock::lock(mutex, || self.caches.met()))
    }

    /// Wait until no other growth is under way. `None`: one did not end in time.
    #[track_caller]
    fn turn(&self) -> Option<Turn<'_>> {
        self.turn_within(Self::PATIENCE)
    }

    #[track_caller]
    fn turn_within(&self, patience: Duration) -> Option<Turn<'_>> {
        if !patience.is_zero() {
            ranks::waiting(Rank::Turn.name());
        }
        if !take_turn(&self.turn, patience) {
            return None;
        }
        let held = ranks::take(Rank::Turn);
        self.lock().turn = true;
        Some(Turn { pool: self, _held: held })
    }

    /// Serve a request within its budget.
    #[inline]
    pub fn allocate(
        &self,
        backing: &impl Backing,
        request: &Request,
        budget: &Budget,
    ) -> Result<Allocation, AllocError> {
        match self.hit(request)? {
            Ok(allocation) => Ok(allocation),
            Err(want) => self.grow(backing, &want, budget),
        }
    }

    /// Serve a request from what is there, or not at all.
    #[inline(always)]
    pub fn allocate_without_driver(&self, request: &Request) -> Result<Option<Allocation>, AllocError> {
        Ok(self.hit(request)?.ok())
    }

    /// Most bytes handed out at the same time since the last call of this function.
    pub fn take_recent_peak(&self) -> u64 {
        self.whole().counters.take_recent_peak() << crate::config::UNIT_SHIFT
    }

    /// Take back a block synchronously (`cuMemFree`): lazily, its bytes wait for a synchronisation.
    #[inline]
    pub fn free(&self, backing: &impl Backing, addr: u64, observer: impl Observer) -> Result<Freed, FreeError> {
        let mut core = self.lock();
        let mut freed = core.free(addr, None, |_| ());
        if freed.is_err() && core.is_cached(addr) {
            drop(core);
            core = self.whole();
            freed = core.free(addr, None, |_| ());
        }
        if let Ok(freed) = &freed {
            observer.freed(freed);
        }
        if core.config.lazy || core.order.captures > 0 || freed.is_err() {
            return freed;
        }
        drop(core);
        let time = self.dated(|core| core.order.now);
        let result = backing.synchronise();
        let _ = self.lock().finish_sync(time, result);
        freed
    }

    /// Take back a block in the order of a stream (`cuMemFreeAsync`).
    #[inline(always)]
    pub fn free_async(
        &self,
        addr: u64,
        stream: u64,
        context: u64,
        observer: impl Observer,
    ) -> Result<Freed, FreeError> {
        self.free_in_order(addr, stream, context, observer)
    }

    /// The live block that holds `addr`.
    #[inline]
    pub fn lookup(&self, addr: u64) -> Option<BlockInfo> {
        self.whole().lookup(addr)
    }

    /// Change the caller's word of the live block that starts at `addr`.
    pub fn set_tag(&self, addr: u64, tag: u16) -> Result<(), FreeError> {
        let mut core = self.whole();
        let id = core.live_at(addr, |_| ()).ok_or(FreeError::Unknown)?;
        core.blocks.at(id).tag = tag;
        Ok(())
    }

    /// All live blocks, in no particular order.
    pub fn live(&self) -> Vec<BlockInfo> {
        let core = self.whole();
        (1..core.blocks.len())
            .filter(|id| core.blocks.get(*id).state == crate::block::State::Live)
            .map(|id| core.info(id))
            .collect()
    }

    /// The block that starts at `addr` is exported: it stays where it is, and its bytes are not reused,
    /// until it is unpinned as often as it was pinned.
    pub fn pin(&self, addr: u64) -> Result<(), FreeError> {
        // Nothing moves while it is being pinned.
        let _turn = self.turn().ok_or(FreeError::Busy)?;
        self.whole().pin(addr, true)
    }

    /// Undo one `pin`.
    pub fn unpin(&self, addr: u64) -> Result<(), FreeError> {
        self.whole().pin(addr, false)
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        self.whole().stats()
    }

    /// Bytes that the job does not hold and that serve a request of any size: what is reported as free. What is free
    /// between small blocks is not, nor is it reported by the driver, whose small blocks share pages too.
    pub fn available(&self) -> u64 {
        let core = self.whole();
        if core.config.vmm {
            return core.available();
        }
        let stats = core.stats();
        stats.free_bytes + stats.stream_free_bytes + stats.deferred_bytes
    }

    /// Holes, for the report about an allocation that failed; at most `limit`.
    pub fn holes(&self, limit: usize) -> Vec<Hole> {
        self.whole().holes(limit)
    }

    /// Check every invariant that can be checked from inside; the message names the first that is broken.
    pub fn check(&self) -> Result<(), String> {
        self.whole().check()
    }
}
