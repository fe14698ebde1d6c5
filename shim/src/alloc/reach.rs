//! The pools whose memory a device's work may touch, and access to them.

use super::{DevicePool, pools};
use crate::driver::reach::{self, reaches};
use weir_cuda::CUresult;
use weir_pool::{PeerAccess, Pool};

/// The pools whose memory work of the device `ordinal` may touch.
#[inline]
pub(crate) fn pools_reached_by(ordinal: i32) -> impl Iterator<Item = &'static DevicePool> {
    pools().filter(move |device_pool| reaches(ordinal, device_pool.ordinal))
}

/// Work of the device `from` may touch memory of the device `memory` from now on.
#[inline]
pub(crate) fn may_reach(from: i32, memory: i32) {
    reach::extend(from, memory, |context| {
        for device_pool in pools().filter(|device_pool| device_pool.ordinal == memory) {
            device_pool.pool.context_created(context.ctx);
        }
    });
}

/// The device `from` gets access to memory of the device `memory`, now and later.
pub(crate) fn grant(from: i32, memory: i32, write: bool) -> Result<(), CUresult> {
    may_reach(from, memory);
    for device_pool in
        pools().filter(|device_pool| device_pool.ordinal == memory && memory != from && device_pool.mapped())
    {
        if device_pool.pool.grant(&device_pool.driver, PeerAccess { device: from, write }, Pool::PATIENCE).is_err() {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    Ok(())
}
