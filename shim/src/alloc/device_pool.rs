//! A device pool: the pool of one device's memory, the driver behind it, and how it serves a request.

use super::backing::Driver;
use super::{charge, oom, patience, pins, registry, spill};
use crate::cap::{self, Account};
use crate::driver::contexts::Slot;
use crate::driver::reach::reaches;
use crate::driver::{contexts, work};
use crate::frameworks::tensorflow::ForTensors;
use crate::process::stack::roomy;
use crate::record;
use core::sync::atomic::{AtomicU32, Ordering};
use weir_cuda::CUresult;
use weir_journal::Numbering;
use weir_pool::{AllocError, BlockInfo, Budget, Mempool, Pool, Proof, Request};

/// Blocks up to this size come from the arena of small ones.
const SMALL_BLOCK: u64 = 1 << 20;

/// One pool and the driver behind it.
pub(crate) struct DevicePool {
    /// The device.
    pub(crate) ordinal: i32,
    /// Where requests go.
    pub(crate) pool: Pool,
    /// How it reaches the driver.
    pub(crate) driver: Driver,
    /// The owner of synchronous allocations, which belong to no mempool of the job.
    pub(crate) plain: Mempool,
    /// Its memory is the host's: what did not fit under the cap.
    pub(crate) host: bool,
    /// Where its blocks stand in the journal.
    pub(crate) numbering: Numbering,
    pub(super) arenas: [(u64, u64); 2],
    /// Bytes of a handle for small blocks, and for large ones.
    pub(super) handles: [u64; 2],
    /// Errors of the driver, other than for want of memory, since a growth last went well.
    pub(super) errors: AtomicU32,
}

/// After so many errors of the driver in a row the pool takes no new memory: it would fail at every request.
const MOST_ERRORS: u32 = 8;

impl DevicePool {
    /// The device pool that serves a context, if it has one already.
    #[inline(always)]
    pub(super) fn of(slot: &Slot) -> Option<&'static Self> {
        // SAFETY: what is attached to a context is a leaked device pool.
        unsafe { slot.attached().cast::<Self>().as_ref() }
    }

    /// Whether an address is of this pool's memory.
    #[inline]
    pub(crate) fn holds(&self, addr: u64) -> bool {
        self.arenas.iter().any(|(start, end)| (*start..*end).contains(&addr))
            || (self.driver.owner != 0 && self.has_segment(addr))
    }

    /// The same for plain segments. They go with their context, and then the driver may give the address again before
    /// the pool is notified.
    #[cold]
    fn has_segment(&self, addr: u64) -> bool {
        let has = || self.driver.has_segment(addr);
        has() && (contexts::find(self.driver.owner).is_some() || (contexts::await_end(self.driver.owner) && has()))
    }

    /// What physical memory for a request of so many bytes comes in.
    pub(crate) fn chunk(&self, bytes: u64) -> u64 {
        let [small, large] = self.handles;
        if bytes <= SMALL_BLOCK { small } else { large }
    }

    /// Whether it stands on virtual memory management.
    pub(crate) fn mapped(&self) -> bool {
        self.driver.owner == 0
    }

    /// Serves a request; what the pool itself can't do is left to the driver (`None`).
    #[inline(always)]
    pub(crate) fn allocate(&self, request: &Request) -> Option<Result<u64, CUresult>> {
        let account = cap::enter(self.ordinal);
        if let Ok(Some(allocation)) = self.pool.allocate_without_driver(request) {
            record::blocks::hit(self.ordinal, &self.numbering, request, &allocation);
            return Some(Ok(allocation.addr));
        }
        roomy(|| self.grow(request, account))
    }

    /// Serves a request that the pool has nothing ready for.
    #[cold]
    fn grow(&self, request: &Request, account: Option<Account>) -> Option<Result<u64, CUresult>> {
        if self.errors.load(Ordering::Relaxed) >= MOST_ERRORS {
            return None;
        }
        let _for_tensors = request.stream.is_some().then(ForTensors::begin);
        let growth = record::blocks::growing(self.ordinal, request);
        let answer = match account {
            None => self.pool.allocate(&self.driver, request, &Budget::default()),
            Some(account) => charge::serve(self, request, account),
        };
        let answer = match answer {
            // Only addresses are lacking: the driver serves it.
            Err(AllocError::TooLarge) if cap::admit::fits(self.ordinal, self.reusable(), request.bytes) => answer,
            Err(AllocError::OverCap | AllocError::OutOfMemory | AllocError::TooLarge) => {
                spill::anew(self, request).map_or(answer, Ok)
            }
            answer => answer,
        };
        let (code, capped) = match answer {
            Ok(allocation) => {
                self.errors.store(0, Ordering::Relaxed);
                // What was spilled is another pool's.
                growth.granted(&registry::owner(allocation.addr).unwrap_or(self).numbering, &allocation);
                return Some(Ok(allocation.addr));
            }
            Err(AllocError::Invalid) => (CUresult::CUDA_ERROR_INVALID_VALUE, false),
            // The rest under the cap may be less than a handle, or held in spare ones: the driver serves it in smaller
            // chunks, after the pool has released what it does not use.
            Err(AllocError::OverCap)
                if request.stream.is_none() && cap::admit::fits(self.ordinal, self.reusable(), request.bytes) =>
            {
                return None;
            }
            Err(AllocError::OverCap) => (CUresult::CUDA_ERROR_OUT_OF_MEMORY, true),
            Err(AllocError::OutOfMemory) => (CUresult::CUDA_ERROR_OUT_OF_MEMORY, false),
            // Something of weir's own went wrong. The job goes on as if weir were not there.
            Err(AllocError::Driver(code)) => {
                self.failed(code);
                return None;
            }
            // There may be less address space than memory.
            Err(AllocError::Busy | AllocError::TooLarge) => return None,
        };
        if !patience::lacks(self, request) {
            growth.refused(self.ordinal, request, capped, code, oom::situation);
        }
        Some(Err(code))
    }

    /// The driver refused a growth, not for want of memory. What was created for it goes back.
    fn failed(&self, code: i32) {
        self.trim();
        if self.errors.fetch_add(1, Ordering::Relaxed) + 1 == MOST_ERRORS {
            let words = format!("takes no new memory after {MOST_ERRORS} errors of the driver, the last {code}");
            record::chose("pool", format!("device {}: {words}", self.ordinal));
        }
    }

    /// Returns idle memory to the driver. How many bytes.
    pub(crate) fn trim(&self) -> u64 {
        let released = self.pool.trim_to(&self.driver, 0);
        record::physical::trimmed(self.ordinal, released);
        released
    }

    /// A context is gone, and with it the blocks that it had not freed.
    pub(super) fn blocks_go_with(&'static self, ctx: u64) {
        let note = |block: &BlockInfo| record::blocks::gone(&self.numbering, block.addr, block.number);
        for block in self.pool.context_destroyed(&self.driver, ctx, note) {
            pins::freed(self, block.addr);
        }
    }

    /// Waits for all work on this memory, so that what was freed is known to be free.
    pub(super) fn prove_idle(&self) -> bool {
        let proofs = self.proofs();
        let waited = self.driver.wait_for_all().is_ok();
        for proof in proofs {
            self.pool.ended(proof, waited);
        }
        waited
    }

    /// What the end of a wait that begins now would prove.
    pub(super) fn proofs(&self) -> Vec<Proof> {
        // A context that goes meanwhile would be one that the pool takes for new.
        let Some(_alive) = contexts::alive() else { return Vec::new() };
        let reaching = contexts::all().filter(|context| reaches(context.ordinal, self.ordinal));
        reaching.map(|context| self.pool.began(weir_pool::Call::ContextSync(context.ctx))).collect()
    }

    /// Takes note that the device is idle, if it is. Waits for nobody.
    pub(super) fn prove_if_idle(&self) -> bool {
        let proofs = self.proofs();
        let idle = work::stop_if_idle(self.ordinal) == Ok(true);
        if idle {
            work::go_on();
        }
        for proof in proofs {
            self.pool.ended(proof, idle);
        }
        idle
    }

    /// Bytes of the device that the pool holds and that could serve any request: free memory in the job's eyes.
    pub(crate) fn reusable(&self) -> u64 {
        if self.host { 0 } else { self.pool.available() }
    }
}
