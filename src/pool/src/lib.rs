//! Where a request for device memory goes: arenas, bins, lazy reuse, compaction.
//!
//! A [`Pool`] serves one device. It decides, and reaches the driver only through a [`Backing`], never
//! while it holds a lock: a hit is one short lock and no driver call; a miss plans under the lock,
//! acts without it, and commits or undoes under it again.
//!
//! **The reuse rule.** Bytes are never handed out, unmapped or remapped while earlier device work may
//! still touch them. Frees are kept apart by who may reuse them:
//! - *everybody*: no device work can touch them any more;
//! - *one stream*: a stream-ordered free; its own stream reuses it at once, others when an event, a
//!   finished fence or an inserted wait orders them behind it;
//! - *nobody yet*: a synchronous free waits for a synchronisation that began after it.
//!
//! A small block that is freed first goes into the free list of its length, as it is, and the next request of its size takes
//! it from there; only a request that misses makes the pool coalesce them. Where threads meet at the pool's lock, a stream
//! gets a cache of such blocks with a lock of its own, which is recalled before anything is searched, moved or refused.
//!
//! Compaction, cheapest first: coalesce; move wholly free granules to where a hole needs them; trim to
//! the driver; mesh sparse granules of small blocks, in slices. A pointer handed out never changes its value or content.
//! That holds as well when the memory behind it is exchanged for better memory ([`Pool::migrate`]).
//!
//! A pool shares nothing between threads without its locks ([`shared`] is for its user), nothing panics on any input, and
//! no cost of a hit grows with the number of live blocks. docs/internals/pool.md describes the pool in a job.
#![forbid(unsafe_code)]

mod arena;
mod backing;
mod bins;
mod block;
mod budget;
mod check;
mod config;
mod core;
mod fault;
mod free_lists;
mod growth;
mod index;
mod lock;
mod mempools;
mod mesh;
mod migrate;
mod order;
mod plan;
mod pool;
pub mod ranks;
mod replace;
mod search;
pub mod shared;
pub mod sim;
mod stats;
mod stream_cache;

pub use backing::{Backing, BackingError, Fence, Handle, PeerAccess};
pub use budget::{Budget, Effort};
pub use config::{Caching, Config, UNIT};
pub use fault::Fault;
#[cfg(feature = "fault-injection")]
pub use fault::inject;
pub use mempools::{Mempool, MempoolBytes, Reuse};
pub use order::{Call, Proof};
pub use pool::Pool;
pub use stats::{DriverCalls, Hole, HoleKind, Stats};

/// A request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Request {
    /// How much; at least 1.
    pub bytes: u64,
    /// The stream of a stream-ordered allocation (an identity that is unique among live streams, so the
    /// per-thread default streams differ); `None` for a synchronous one.
    pub stream: Option<u64>,
    /// The context of the request.
    pub context: u64,
    /// The mempool that owns the block.
    pub mempool: Mempool,
}

/// Memory handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Where it starts; a multiple of [`UNIT`].
    pub addr: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// Bytes allocated.
    pub allocated: u64,
    /// Unique for ever.
    pub buffer: u64,
    /// The block's number: small, and no other live block's.
    pub number: usize,
}

/// Memory taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Bytes that had been requested.
    pub bytes: u64,
    /// Bytes that had been allocated.
    pub allocated: u64,
    /// Which block it was.
    pub buffer: u64,
    /// The number that it had.
    pub number: usize,
}

/// Sees a free under the lock of the pool or of the stream's cache, before anybody can get the block again.
pub trait Observer: Copy {
    /// A block of this number may be the one that is freed: time to bring what is known of it into the cache.
    #[inline]
    fn found(&self, number: usize) {
        let _ = number;
    }

    /// The block is free.
    #[inline]
    fn freed(&self, freed: &Freed) {
        let _ = freed;
    }
}

/// Sees nothing.
impl Observer for () {}

/// A live block, found by any address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Where it starts.
    pub addr: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// Bytes allocated.
    pub allocated: u64,
    /// Unique for ever.
    pub buffer: u64,
    /// The context of the request.
    pub context: u64,
    /// The mempool that owns it.
    pub mempool: Mempool,
    /// Its number among live blocks.
    pub number: usize,
    /// The caller's own word, 0 at first.
    pub tag: u16,
    /// Is it exported?
    pub pinned: bool,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// No bytes were requested, or the mempool does not exist.
    Invalid,
    /// The pool has no addresses left for it.
    TooLarge,
    /// The cap is reached and nothing could be compacted.
    OverCap,
    /// The device is full and nothing could be compacted.
    OutOfMemory,
    /// The driver failed with this code.
    Driver(i32),
    /// Another growth did not end in time, and nothing was tried.
    Busy,
}

/// Why a block could not be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError {
    /// No live block starts there: the caller's pointer belongs to somebody else.
    Unknown,
    /// A growth of the pool did not end in time.
    Busy,
}

impl std::fmt::Display for AllocError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invalid => write!(to, "the request is for 0 bytes or names a mempool that does not exist"),
            Self::TooLarge => write!(to, "the pool has no address space left for it"),
            Self::OverCap => write!(to, "the cap is reached and nothing could be compacted"),
            Self::OutOfMemory => write!(to, "the device is full and nothing could be compacted"),
            Self::Driver(code) => write!(to, "the driver failed with code {code}"),
            Self::Busy => write!(to, "another growth of the pool did not end in time"),
        }
    }
}

impl std::error::Error for AllocError {}

impl std::fmt::Display for FreeError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => write!(to, "no live block starts at this address"),
            Self::Busy => write!(to, "a growth of the pool did not end in time"),
        }
    }
}

impl std::error::Error for FreeError {}
