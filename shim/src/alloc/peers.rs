//! Access between devices as the job enables it, from one context to another. The driver's own does not
//! cover mapped memory, so the pools grant it by device, and take it back when the last context of a
//! device has disabled it.

use super::{grant, pools};
use crate::driver::DEVICES;
use crate::driver::contexts::Slot;
use crate::driver::reach::bit;
use crate::driver::work;
use core::sync::atomic::{AtomicU64, Ordering};
use weir_pool::ranks::{Mutex, Rank};

/// Who has access to whose memory: context and device of both.
type Enabled = ((u64, i32), (u64, i32));

static ENABLED: Mutex<Vec<Enabled>> = Mutex::new(Rank::Peers, Vec::new());
/// For each device: which devices were given access through a mempool, as bits. That is never narrowed.
static BY_MEMPOOL: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

fn pair(mine: &Slot, theirs: &Slot) -> Enabled {
    ((mine.ctx(), mine.ordinal()), (theirs.ctx(), theirs.ordinal()))
}

/// Work of `mine` may touch memory of `theirs` from now on.
pub(crate) fn enabled(mine: &Slot, theirs: &Slot) {
    ENABLED.lock().push(pair(mine, theirs));
    // What can't be granted now is an error at the first touch, as without access.
    let _ = grant(mine.ordinal(), theirs.ordinal(), true);
}

/// A mempool of the device `memory` gives the device `from` access.
pub(crate) fn granted_by_mempool(from: i32, memory: i32) {
    if let Some(bits) = BY_MEMPOOL.get(memory as usize) {
        bits.fetch_or(bit(from), Ordering::AcqRel);
    }
    let _ = grant(from, memory, true);
}

/// Whether the device `from` was given access to memory of the device `memory` and has it still.
pub(crate) fn has_access(from: i32, memory: i32) -> bool {
    let by_mempool = BY_MEMPOOL.get(memory as usize).is_some_and(|bits| bits.load(Ordering::Acquire) & bit(from) != 0);
    by_mempool || ENABLED.lock().iter().any(|known| (known.0.1, known.1.1) == (from, memory))
}

/// Work of `mine` may no longer touch memory of `theirs`.
pub(crate) fn disabled(mine: &Slot, theirs: &Slot) {
    let gone = pair(mine, theirs);
    let (from, memory) = (gone.0.1, gone.1.1);
    ENABLED.lock().retain(|known| *known != gone);
    if from == memory || has_access(from, memory) {
        return;
    }
    for device_pool in pools().filter(|device_pool| device_pool.ordinal == memory && device_pool.mapped()) {
        // Work that is queued may have been meant to have access still: then what is mapped keeps it. Streams
        // that are captured must not be queried.
        let _ = device_pool.pool.revoke(&device_pool.driver, from, work::idle(memory));
    }
    // Nothing was held meanwhile: who has enabled it again may have granted it before it was taken.
    if has_access(from, memory) {
        let _ = grant(from, memory, true);
    }
}

/// A context is gone, and access from it and to it.
pub(crate) fn context_left(ctx: u64) {
    ENABLED.lock().retain(|(mine, theirs)| mine.0 != ctx && theirs.0 != ctx);
}
