//! A simulated device for replays and benchmarks: it counts handles against a capacity, charges every
//! call with a cost, and finishes queued work only when it is synchronised with. Touches nothing real.

use crate::backing::{Backing, BackingError, Fence, Handle, PeerAccess};
use crate::budget::Budget;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Microseconds per driver call. Published figures of one data-centre card, for comparison only.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// One handle created.
    pub create: f64,
    /// One handle released.
    pub release: f64,
    /// One handle mapped.
    pub map: f64,
    /// Access set, per handle.
    pub set_access: f64,
    /// Unmapped, per handle.
    pub unmap: f64,
    /// `cuMemAlloc` as the driver serves it.
    pub alloc: f64,
    /// `cuMemFree` as the driver serves it.
    pub free: f64,
}

/// The default table; per 2 MiB handle.
pub const COSTS: Costs =
    Costs { create: 193.0, release: 26.0, map: 1.5, set_access: 36.0, unmap: 26.0, alloc: 97.0, free: 450.0 };

/// See the file's first comment.
#[derive(Debug)]
pub struct SimulatedDevice {
    capacity: u64,
    used: AtomicU64,
    peak: AtomicU64,
    next: AtomicU64,
    space: AtomicU64,
    syncs: AtomicU64,
    nanos: AtomicU64,
}

impl SimulatedDevice {
    /// A device with this much physical memory.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            next: AtomicU64::new(0),
            space: AtomicU64::new(1 << 44),
            syncs: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }
    }

    /// The job synchronises: queued work is finished.
    pub fn finish(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    /// Physical bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Most physical bytes ever in use.
    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// Time that the driver calls would have taken, in microseconds.
    pub fn micros(&self) -> f64 {
        self.nanos.load(Relaxed) as f64 / 1000.0
    }

    fn charge(&self, micros: f64) {
        self.nanos.fetch_add((micros * 1000.0) as u64, Relaxed);
    }

    fn take(&self, bytes: u64) -> Result<(), BackingError> {
        let used = self.used.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if used > self.capacity {
            self.used.fetch_sub(bytes, Relaxed);
            return Err(BackingError::OutOfMemory);
        }
        self.peak.fetch_max(used, Relaxed);
        Ok(())
    }
}

/// Cost follows the number of handles' worth of memory.
fn handles(bytes: u64) -> f64 {
    (bytes as f64 / f64::from(2 << 20)).max(1.0)
}

impl Backing for SimulatedDevice {
    fn reserve(&self, bytes: u64, align: u64) -> Result<u64, BackingError> {
        Ok(self.space.fetch_add(bytes.next_multiple_of(align.max(1)), Relaxed))
    }
    fn unreserve(&self, _: u64, _: u64) -> Result<(), BackingError> {
        Ok(())
    }
    fn create(&self, bytes: u64, _: &Budget) -> Result<Handle, BackingError> {
        self.take(bytes)?;
        self.charge(COSTS.create);
        Ok(self.next.fetch_add(1, Relaxed) + 1)
    }
    fn release(&self, _: Handle, bytes: u64) -> Result<(), BackingError> {
        self.used.fetch_sub(bytes, Relaxed);
        self.charge(COSTS.release);
        Ok(())
    }
    fn map(&self, _: u64, _: u64, _: Handle) -> Result<(), BackingError> {
        self.charge(COSTS.map);
        Ok(())
    }
    fn unmap(&self, _: u64, bytes: u64) -> Result<(), BackingError> {
        self.charge(COSTS.unmap * handles(bytes));
        Ok(())
    }
    fn set_access(&self, _: u64, bytes: u64, _: &[PeerAccess]) -> Result<(), BackingError> {
        self.charge(COSTS.set_access * handles(bytes));
        Ok(())
    }
    fn segment_alloc(&self, bytes: u64, _: &Budget) -> Result<u64, BackingError> {
        self.take(bytes)?;
        self.charge(COSTS.alloc);
        self.reserve(bytes, 2 << 20)
    }
    fn segment_free(&self, _: u64, bytes: u64) -> Result<(), BackingError> {
        self.used.fetch_sub(bytes, Relaxed);
        self.charge(COSTS.free);
        Ok(())
    }
    fn fence_record(&self, _: u64) -> Result<Fence, BackingError> {
        Ok(self.syncs.load(Relaxed))
    }
    fn fence_query(&self, fence: Fence) -> Result<bool, BackingError> {
        Ok(self.syncs.load(Relaxed) > fence)
    }
    fn fence_wait(&self, _: u64, _: Fence) -> Result<(), BackingError> {
        Ok(())
    }
    fn fence_drop(&self, _: Fence) {}
    fn synchronise(&self) -> Result<(), BackingError> {
        self.finish();
        Ok(())
    }
    fn quiesce(&self) -> Result<bool, BackingError> {
        self.finish();
        Ok(true)
    }
    fn resume(&self) {}
    fn copy(&self, _: u64, _: u64, _: u64) -> Result<(), BackingError> {
        Ok(())
    }
}
