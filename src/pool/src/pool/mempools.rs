//! The job's mempools: their settings and figures. Touches host memory only.

use super::Pool;
use crate::mempools::{Mempool, MempoolBytes, Reuse};

impl Pool {
    /// A mempool of the job's own. `None`: there are too many.
    pub fn mempool_created(&self) -> Option<Mempool> {
        self.whole().mempools.create()
    }

    /// A mempool of another pool is known here under the same name, so that blocks of both can have it.
    pub fn mempool_mirrored(&self, mempool: Mempool, reuse: Reuse) {
        self.whole().mempools.mirror(mempool, reuse);
    }

    /// The job destroyed a mempool; its blocks live on until they are freed.
    pub fn mempool_destroyed(&self, mempool: Mempool) {
        if let Some(owner) = self.whole().mempools.at(mempool) {
            owner.alive = false;
        }
    }

    /// Set the reuse attributes of a mempool, and the bytes that it keeps at a synchronisation.
    pub fn set_mempool(&self, mempool: Mempool, reuse: Reuse, threshold: u64) {
        if let Some(state) = self.whole().mempools.at(mempool) {
            (state.reuse, state.threshold) = (reuse, threshold);
        }
    }

    /// The reuse attributes of a mempool.
    pub fn mempool_reuse(&self, mempool: Mempool) -> Reuse {
        self.whole().mempools.get(mempool).map_or(Reuse::default(), |state| state.reuse)
    }

    /// Bytes of a mempool.
    pub fn mempool_bytes(&self, mempool: Mempool) -> MempoolBytes {
        self.whole().mempools.get(mempool).map_or(MempoolBytes::default(), |state| state.bytes)
    }

    /// Start the high marks of a mempool anew: of what it has handed out, of what it holds.
    pub fn reset_mempool_peaks(&self, mempool: Mempool, used: bool, reserved: bool) {
        if let Some(state) = self.whole().mempools.at(mempool) {
            let bytes = &mut state.bytes;
            bytes.used_high = if used { bytes.used } else { bytes.used_high };
            bytes.reserved_high = if reserved { bytes.reserved } else { bytes.reserved_high };
        }
    }
}
