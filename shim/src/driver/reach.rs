//! Which devices' work may touch which devices' memory.

use super::contexts;
use crate::alloc::{DEVICES, Served, pools};
use core::sync::atomic::{AtomicU64, Ordering};
use weir_cuda::CUresult;
use weir_pool::{Grant, Pool};

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

/// The pools whose memory work of the device `ordinal` may touch.
#[inline]
pub(crate) fn pools_reached_by(ordinal: i32) -> impl Iterator<Item = &'static Served> {
    pools().filter(move |served| reaches(ordinal, served.ordinal))
}

/// Work of the device `from` may touch memory of the device `memory` from now on.
pub(crate) fn may_reach(from: i32, memory: i32) {
    if from == memory {
        return;
    }
    let Some(bits) = REACH.get(memory as usize) else { return };
    if reaches(from, memory) {
        return;
    }
    contexts::announce(|known| {
        // Told once: a pool takes what it is told of for something that has no work yet.
        if reaches(from, memory) {
            return;
        }
        for context in known.iter().filter(|context| context.ordinal == from) {
            for served in pools().filter(|served| served.ordinal == memory) {
                served.pool.context_created(context.ctx);
            }
        }
        bits.fetch_or(bit(from), Ordering::AcqRel);
    });
}

/// The device `from` gets access to memory of the device `memory`, now and later.
pub(crate) fn grant(from: i32, memory: i32, write: bool) -> Result<(), CUresult> {
    may_reach(from, memory);
    for served in pools().filter(|served| served.ordinal == memory && memory != from && served.mapped()) {
        if served.pool.grant(&served.driver, Grant { device: from, write }, Pool::PATIENCE).is_err() {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    Ok(())
}
