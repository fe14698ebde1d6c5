//! What is known of a device when a request is refused: passed to the journal.

use super::pools;
use crate::cap;
use crate::driver::guards::{RelaxedCapture, current_device};
use crate::driver::real::{self, done};
use weir_journal::Situation;

/// Holes of the pools that are counted at most.
const HOLES: usize = 4096;

/// The device, its cap and its pools at this moment.
pub(crate) fn situation(ordinal: i32) -> Situation {
    let mut now = Situation::default();
    let _relaxed = RelaxedCapture::enter();
    if current_device() == Some(ordinal) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both places are live locals.
        if done(unsafe { real::cuMemGetInfo_v2(&raw mut free, &raw mut total) }).is_ok() {
            (now.device_free, now.device_total) = (free as u64, total as u64);
        }
    }
    if let Some(view) = cap::at(ordinal).and_then(|(caps, (_, account))| caps.ledger.view(account)) {
        now.cap = view.cap.unwrap_or(0);
        now.charged = view.used;
        now.charged_by_others = view.used.saturating_sub(view.own.charged);
    }
    for device_pool in pools().filter(|device_pool| device_pool.ordinal == ordinal) {
        let stats = device_pool.pool.stats();
        now.pool_free += stats.free_bytes + stats.stream_free_bytes + stats.spare_bytes;
        // Handles that are mapped nowhere can be mapped side by side: one range.
        now.pool_largest = now.pool_largest.max(stats.largest_hole).max(stats.spare_bytes);
        now.pool_holes += device_pool.pool.holes(HOLES).len() as u64 + u64::from(stats.spare_bytes > 0);
        now.pool_deferred += stats.deferred_bytes;
    }
    now
}
