//! The driver as the pool sees it: a trait, and the words it is spoken to with. Touches nothing.

use crate::budget::Budget;

/// A physical allocation of the driver (`CUmemGenericAllocationHandle`). Never 0.
pub type Handle = u64;

/// A point in a stream's work (a driver event owned by the backing).
pub type Fence = u64;

/// Why a call into the driver did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackingError {
    /// The cap forbids it: the driver was not called.
    OverCap,
    /// The driver has no memory left.
    OutOfMemory,
    /// Anything else, with the driver's own code.
    Driver(i32),
    /// It was not to be had in time, and nothing was done.
    Busy,
}

/// A device that may reach the pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAccess {
    /// Ordinal of the device.
    pub device: i32,
    /// May it write too?
    pub write: bool,
}

/// All calls of the pool into the driver. No call is made while a lock of the pool is held.
///
/// Sizes and addresses are multiples of the handle size where handles are concerned.
pub trait Backing {
    /// Reserve address space.
    fn reserve(&self, bytes: u64, align: u64) -> Result<u64, BackingError>;
    /// Give address space back; same pointer and size as reserved.
    fn unreserve(&self, addr: u64, bytes: u64) -> Result<(), BackingError>;
    /// Create one physical handle, if the cap and the request's budget allow it.
    fn create(&self, bytes: u64, budget: &Budget) -> Result<Handle, BackingError>;
    /// Give a handle back to the driver and the cap.
    fn release(&self, handle: Handle, bytes: u64) -> Result<(), BackingError>;
    /// Map one whole handle; no access yet.
    fn map(&self, addr: u64, bytes: u64, handle: Handle) -> Result<(), BackingError>;
    /// Unmap a run of whole mappings.
    fn unmap(&self, addr: u64, bytes: u64) -> Result<(), BackingError>;
    /// Make a run accessible to its own device and to `grants`.
    fn set_access(&self, addr: u64, bytes: u64, grants: &[PeerAccess]) -> Result<(), BackingError>;
    /// Make a run inaccessible to another device. Nothing to do where access is not kept account of.
    fn end_access(&self, addr: u64, bytes: u64, device: i32) -> Result<(), BackingError> {
        let _ = (addr, bytes, device);
        Ok(())
    }
    /// A plain allocation, for a device without virtual memory management, if the cap and the budget allow it.
    fn segment_alloc(&self, bytes: u64, budget: &Budget) -> Result<u64, BackingError>;
    /// Give a plain allocation back.
    fn segment_free(&self, addr: u64, bytes: u64) -> Result<(), BackingError>;
    /// Record a fence behind all work queued on `stream` so far.
    fn fence_record(&self, stream: u64) -> Result<Fence, BackingError>;
    /// Has all work before the fence finished?
    fn fence_query(&self, fence: Fence) -> Result<bool, BackingError>;
    /// Make later work of `stream` wait for the fence.
    fn fence_wait(&self, stream: u64, fence: Fence) -> Result<(), BackingError>;
    /// The fence is no longer needed.
    fn fence_drop(&self, fence: Fence);
    /// Wait until all work that was queued when it began, in every context that reaches the memory, has finished. An
    /// error: that could not be seen, or not in time, and nothing is proven.
    fn synchronise(&self) -> Result<(), BackingError>;
    /// Whether all work that was queued when it began, in every context that reaches the memory, has finished. Waits for
    /// none of it. `false`: it has not, or that could not be seen.
    fn idle(&self) -> bool {
        false
    }
    /// Stop new work from being queued and wait for what is queued. `false`: not possible, nothing was stopped.
    fn quiesce(&self) -> Result<bool, BackingError>;
    /// Let work be queued again after `quiesce`.
    fn resume(&self);
    /// Copy device memory; finished when it returns. Only called between `quiesce` and `resume`.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), BackingError>;
    /// The same as `quiesce`, but only if the device is idle as it is.
    fn quiesce_if_idle(&self) -> Result<bool, BackingError> {
        self.quiesce()
    }
    /// A new handle of better memory than `handle`, to take its place. `None`: it is good as it is; an
    /// error: there is no better memory left. Only called between `quiesce_if_idle` and `resume`.
    fn better(&self, handle: Handle, bytes: u64) -> Result<Option<Handle>, BackingError> {
        let _ = (handle, bytes);
        Ok(None)
    }
}
