//! The pools whose memory a device's work may touch, and access to them.

use super::{Served, pools};
use crate::driver::reach::{self, reaches};
use weir_cuda::CUresult;
use weir_pool::{Grant, Pool};

/// The pools whose memory work of the device `ordinal` may touch.
#[inline]
pub(crate) fn pools_reached_by(ordinal: i32) -> impl Iterator<Item = &'static Served> {
    pools().filter(move |served| reaches(ordinal, served.ordinal))
}

/// Work of the device `from` may touch memory of the device `memory` from now on.
#[inline]
pub(crate) fn may_reach(from: i32, memory: i32) {
    reach::extend(from, memory, |context| {
        for served in pools().filter(|served| served.ordinal == memory) {
            served.pool.context_created(context.ctx);
        }
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
