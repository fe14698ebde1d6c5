//! Faults for tests, compiled in only with the feature `fault-injection`: each must be caught by the
//! property test, which proves that the test can see. Touches one process-wide switch.

/// A fault that can be switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// No fault.
    None,
    /// A synchronous free is reusable at once.
    EpochsIgnored,
    /// A synchronisation proves frees that came after it began.
    EpochTakenAtTheEnd,
    /// Another stream's frees are reused without an event between them.
    EventsIgnored,
    /// A wait for an event that was recorded anew meanwhile counts for the old record.
    StaleEventTrusted,
    /// A destroyed stream's frees count as finished.
    DestroyedStreamForgotten,
    /// Granules are unmapped without proof that work on them has finished.
    RemapWithoutProof,
    /// Joining two free blocks keeps the older stamp.
    OlderStampKept,
    /// Granules whose live bytes collide are meshed.
    MeshWithCollision,
    /// A mesh moves bytes without stopping the device.
    MeshWithoutQuiesce,
    /// Exported blocks are treated as any other.
    PinIgnored,
    /// A split leaves both parts with one unit in common.
    SplitOffByOne,
    /// A failed map is taken for a success.
    MapFailureIgnored,
    /// An inserted wait is not inserted.
    WaitNotInserted,
    /// A stream takes from the free lists of other streams.
    FreeListsShared,
    /// Granules do not get the stamps of blocks in free lists.
    FreeListStampForgotten,
    /// Memory is exchanged without stopping the device.
    MigrateWithoutQuiesce,
    /// Memory is exchanged without its content.
    MigrateWithoutCopy,
    /// What is freed in a granule that shares its handle goes into a free list.
    SharedFreeListed,
    /// A granule joins a group in which it collides with another guest.
    GuestsForgotten,
    /// A look at the device finds it idle, whatever it does.
    IdleTakenForGranted,
    /// A request that finds nothing does not recall what streams keep in their caches.
    CachesForgotten,
    /// What is freed into a cache keeps the time from before a proof began.
    CacheNotDated,
    /// All streams share one cache.
    CacheForAll,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 23] = [
        Self::EpochsIgnored,
        Self::EpochTakenAtTheEnd,
        Self::EventsIgnored,
        Self::StaleEventTrusted,
        Self::DestroyedStreamForgotten,
        Self::RemapWithoutProof,
        Self::OlderStampKept,
        Self::MeshWithCollision,
        Self::MeshWithoutQuiesce,
        Self::PinIgnored,
        Self::SplitOffByOne,
        Self::MapFailureIgnored,
        Self::WaitNotInserted,
        Self::FreeListsShared,
        Self::FreeListStampForgotten,
        Self::MigrateWithoutQuiesce,
        Self::MigrateWithoutCopy,
        Self::SharedFreeListed,
        Self::GuestsForgotten,
        Self::IdleTakenForGranted,
        Self::CachesForgotten,
        Self::CacheNotDated,
        Self::CacheForAll,
    ];
}

#[cfg(feature = "fault-injection")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};
    static ACTIVE: AtomicU8 = AtomicU8::new(0);

    /// Switch one fault on, for the whole process.
    pub fn inject(fault: super::Fault) {
        ACTIVE.store(fault as u8, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn injected(fault: super::Fault) -> bool {
        ACTIVE.load(Ordering::Relaxed) == fault as u8
    }
}

#[cfg(not(feature = "fault-injection"))]
mod switch {
    #[inline]
    pub(crate) const fn injected(_: super::Fault) -> bool {
        false
    }
}

#[cfg(feature = "fault-injection")]
pub use switch::inject;
pub(crate) use switch::injected;
