//! What a verdict rests on: the numbers of the moment. Pure.

use weir_journal::Class;

use crate::Fate;

/// Of the pool's free memory, what is kept so that tiny requests are always answered.
pub(super) const TINY_RESERVE: u64 = 2 << 20;
/// The pool takes memory from the device in handles of up to this size: what is left below that cannot be used.
pub(super) const LARGEST_HANDLE: u64 = 8 << 20;

/// What the verdict rests on. Bytes; 0 is unknown.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether a request was refused for want of memory.
    pub refused: bool,
    /// Bytes requested.
    pub requested: u64,
    /// Of these, bytes of an arena of compiled code that do not come with the batch.
    pub of_arena_fixed: u64,
    /// Of which sort.
    pub class: Option<Class>,
    /// Whether an operation of TensorFlow made the request.
    pub by_op: bool,
    /// Memory of the device.
    pub total: u64,
    /// Free by the driver; only where it was queried.
    pub free: Option<u64>,
    /// Cap.
    pub cap: u64,
    /// Charged against the cap.
    pub charged: u64,
    /// Of that, by other processes of the group.
    pub charged_by_others: u64,
    /// Free in the pool.
    pub pool_free: u64,
    /// Largest hole in the pool.
    pub pool_largest: u64,
    /// Freed and not reusable yet.
    pub pool_deferred: u64,
    /// Held by the job.
    pub live: u64,
    /// Held by other processes on the device.
    pub others: u64,
    /// Grown since the job was built up.
    pub grown: u64,
    /// Where, and how fast, in words.
    pub growing: String,
    /// Bytes of the refused request where another line made it than those that grow.
    pub spike: u64,
    /// Reserved by TensorFlow's own allocator; 0 if it is not in charge.
    pub tf_reserved: u64,
    /// Chunks of tensors inside.
    pub tf_used: u64,
    /// Of these, bytes beyond the tensors' own.
    pub tf_slack: u64,
    /// Resident host memory at the end.
    pub resident: u64,
    /// Host memory of the machine, where it is the machine of the run.
    pub host_total: u64,
    /// Whether resident memory grew steadily.
    pub host_grows: bool,
    /// By how much since the run began.
    pub host_grown: u64,
    /// Who accounts for that: the place, and what it did, in words.
    pub host_by: Option<(String, String)>,
    /// How the process ended.
    pub fate: Option<Fate>,
    /// Times that memory moved to the host because the cap was reached.
    pub spills: u64,
}

impl Facts {
    /// What the job may have: its cap, else the device.
    pub fn limit(&self) -> u64 {
        if self.cap > 0 && (self.total == 0 || self.cap < self.total) { self.cap } else { self.total }
    }

    /// What is left under the limit; nothing where a request was refused.
    pub fn room(&self) -> u64 {
        if self.refused { 0 } else { self.limit().saturating_sub(self.live) }
    }

    /// Free in the pool, without what is kept for tiny requests.
    pub(super) fn pool_usable(&self) -> u64 {
        self.pool_free.saturating_sub(TINY_RESERVE)
    }

    /// Whether host memory was requested.
    pub fn is_pinned(&self) -> bool {
        matches!(self.class, Some(Class::Pinned | Class::Registered))
    }

    /// Whether TensorFlow's own allocator was requested a tensor.
    pub fn is_tensor(&self) -> bool {
        self.class == Some(Class::Tensor) && self.tf_reserved > 0
    }

    /// Whether TensorFlow's allocator refused what device and cap have.
    pub fn by_own_limit(&self) -> bool {
        self.is_tensor() && self.missing_under_cap() == 0 && self.missing_on_device() == 0
    }

    /// Bytes that are missing under the cap; 0 if the cap allows the request.
    pub(super) fn missing_under_cap(&self) -> u64 {
        if self.cap == 0 { 0 } else { (self.charged + self.requested).saturating_sub(self.cap) }
    }

    /// Bytes that are missing on the device; 0 if it has them, or if it was not queried.
    pub(super) fn missing_on_device(&self) -> u64 {
        self.free.map_or(0, |free| self.requested.saturating_sub(free))
    }
}
