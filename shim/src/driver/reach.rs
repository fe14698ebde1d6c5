//! Which devices' work may touch which devices' memory.

use super::{DEVICES, contexts};
use core::sync::atomic::{AtomicU64, Ordering};

/// For each device: which devices may reach its memory, as bits. Who sees one knows that its pools know it.
static REACH: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

/// Which devices may reach the memory of a device, as bits.
pub(crate) fn of(memory: i32) -> u64 {
    REACH.get(memory as usize).map_or(0, |bits| bits.load(Ordering::Acquire))
}

/// Whether work of the device `from` may touch memory of the device `memory`.
pub(crate) fn reaches(from: i32, memory: i32) -> bool {
    from == memory || of(memory) & bit(from) != 0
}

/// The bit of a device.
pub(crate) fn bit(ordinal: i32) -> u64 {
    1u64.checked_shl(ordinal as u32).unwrap_or(0)
}

/// Work of the device `from` may touch memory of the device `memory` from now on. `announce` makes the contexts of `from` known
/// to whoever watches over that memory, once, before anybody sees the reach.
pub(crate) fn extend(from: i32, memory: i32, announce: impl Fn(&contexts::Living)) {
    if from == memory {
        return;
    }
    let Some(bits) = REACH.get(memory as usize) else { return };
    if reaches(from, memory) {
        return;
    }
    contexts::announce(|known| {
        // Notified once: a pool takes what it learns of for something that has no work yet.
        if reaches(from, memory) {
            return;
        }
        known.iter().filter(|context| context.ordinal == from).for_each(announce);
        bits.fetch_or(bit(from), Ordering::AcqRel);
    });
}
