//! Why a request could not be met, from the numbers of the moment alone. Pure.

use serde::{Deserialize, Serialize};

/// Device, pool and cap at that moment, as far as the caller knows; 0 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Situation {
    /// Memory of the device.
    pub device_total: u64,
    /// Free by the driver.
    pub device_free: u64,
    /// Cap of this process or its group; 0 is none.
    pub cap: u64,
    /// Charged against the cap.
    pub charged: u64,
    /// Of that, charged by other processes of the group.
    pub charged_by_others: u64,
    /// Free inside the pool.
    pub pool_free: u64,
    /// Largest hole in the pool.
    pub pool_largest: u64,
    /// Holes in the pool.
    pub pool_holes: u64,
    /// Freed by the job, not yet reusable because device work may still touch it.
    pub pool_deferred: u64,
    /// Pinned host memory.
    pub pinned: u64,
    /// Resident host memory.
    pub resident: u64,
}

/// Of the free memory of a pool, what is kept for tiny requests.
const TINY_RESERVE: u64 = 2 << 20;
/// A pool takes memory from the device in handles: of less than the largest one's size it can make nothing.
const LAST_HANDLE: u64 = 8 << 20;
/// Why a request could not be met, from the numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The cap was reached.
    Cap,
    /// There was room, but not in one piece.
    Fragmentation,
    /// There was room that is still waiting for device work to end.
    #[serde(alias = "deferred")]
    FreedTooLate,
    /// The device is full.
    #[serde(alias = "device")]
    DeviceFull,
    /// The numbers do not show it.
    Unknown,
}

impl Situation {
    /// The cause that these numbers show for a request of this size.
    pub fn cause(&self, requested: u64) -> Cause {
        if self.pool_free >= requested.saturating_add(TINY_RESERVE) && self.pool_largest < requested {
            Cause::Fragmentation
        } else if self.pool_free.saturating_add(self.pool_deferred) >= requested && self.pool_deferred > 0 {
            Cause::FreedTooLate
        } else if self.cap > 0 && self.charged.saturating_add(requested) > self.cap {
            Cause::Cap
        } else if self.device_total > 0 && self.device_free < requested.saturating_add(LAST_HANDLE) {
            Cause::DeviceFull
        } else {
            Cause::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_from_the_numbers() {
        let free = Situation { pool_free: 4 << 30, pool_largest: 1 << 30, ..Situation::default() };
        assert_eq!(free.cause(2 << 30), Cause::Fragmentation);
        // Without what is kept for tiny requests it would not fit in one piece either.
        assert_eq!(free.cause((4 << 30) - (1 << 20)), Cause::Unknown);
        let cap = Situation { cap: 8 << 30, charged: 7 << 30, ..Situation::default() };
        assert_eq!(cap.cause(2 << 30), Cause::Cap);
        let deferred = Situation { pool_free: 1 << 30, pool_deferred: 4 << 30, ..cap };
        assert_eq!(deferred.cause(2 << 30), Cause::FreedTooLate);
        let device = Situation { device_total: 8 << 30, device_free: 1 << 20, ..Situation::default() };
        assert_eq!(device.cause(2 << 30), Cause::DeviceFull);
        assert_eq!(Situation::default().cause(1), Cause::Unknown);
    }
}
