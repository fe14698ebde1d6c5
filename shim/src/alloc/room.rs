//! What makes room on a device: the pools give back what nobody uses, and the device is waited for. For the cap, and for
//! calls of the driver's that take memory outside the pools.

use super::{DevicePool, any, pools, pools_reached_by};
use crate::cap::{Around, Fact};
use crate::driver::guards::current;
use crate::driver::wait::{self, Whose};
use crate::driver::{capture, contexts};
use crate::record;
use core::cell::Cell;
use weir_cuda::CUresult;
use weir_pool::Call;

/// What the account is handed.
pub(crate) static ROOM: Room = Room;

/// The pools and the journal, as the account sees them.
pub(crate) struct Room;

fn pools_of(ordinal: i32) -> impl Iterator<Item = &'static DevicePool> {
    pools().filter(move |device_pool| device_pool.ordinal == ordinal)
}

impl Around for Room {
    fn give_back(&self, ordinal: i32) -> u64 {
        pools_of(ordinal).map(DevicePool::give_back).sum()
    }

    fn wait_for(&self, ordinal: i32) -> bool {
        wait_for(ordinal)
    }

    fn reusable(&self, ordinal: i32) -> u64 {
        pools_of(ordinal).map(DevicePool::reusable).sum()
    }

    fn waiting(&self, ordinal: i32, bytes: u64, wait: &mut dyn FnMut() -> bool) {
        record::waiting(ordinal, bytes, wait, |granted| *granted);
    }

    fn happened(&self, ordinal: i32, fact: Fact) {
        match fact {
            Fact::Cap(cap) => record::cap_changed(ordinal, cap),
            Fact::Crossed(mark, used) => record::soft_mark(ordinal, mark, used),
            Fact::GraphMemory => record::graphs::changed(ordinal),
        }
    }
}

/// Waits for all work of a device, but not for ever. False: nothing is proven.
fn wait_for(ordinal: i32) -> bool {
    // Without the pool only the contexts are known that were made under weir's eyes.
    contexts::seen(current());
    let proofs: Vec<_> = {
        let Some(_alive) = contexts::alive() else { return false };
        let known = contexts::all().filter(|context| context.ordinal == ordinal);
        let reached: Vec<&DevicePool> = pools_reached_by(ordinal).collect();
        let began =
            |ctx| reached.iter().map(move |device_pool| (*device_pool, device_pool.pool.began(Call::ContextSync(ctx))));
        known.flat_map(|context| began(context.ctx).collect::<Vec<_>>()).collect()
    };
    let waited = wait::for_work(Whose::Of(ordinal), wait::PATIENCE).is_ok();
    for (device_pool, proof) in proofs {
        device_pool.pool.ended(proof, waited);
    }
    waited
}

/// A call of the driver's that takes device memory, made again after the pools gave back what they
/// could, should it have failed for want of it.
pub(crate) fn with_room(call: impl Fn() -> CUresult) -> CUresult {
    with_room_for(|asked| asked.ask(&call))
}

/// What the driver has answered.
#[derive(Default)]
pub(crate) struct Asked(Cell<bool>);

impl Asked {
    /// Asks the driver.
    pub(crate) fn ask(&self, call: impl FnOnce() -> CUresult) -> CUresult {
        let result = call();
        self.0.set(result == CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        result
    }
}

/// The same for a call with an account around it, which may hold locks while it asks the driver: room is made without
/// them, and the whole is done again.
pub(crate) fn with_room_for(call: impl Fn(&Asked) -> CUresult) -> CUresult {
    let asked = Asked::default();
    let result = call(&asked);
    if !asked.0.take() || !any() {
        return result;
    }
    let given: u64 = pools().map(DevicePool::give_back).sum();
    let result = if given > 0 { call(&asked) } else { result };
    if (given > 0 && !asked.0.take()) || capture::under_way() {
        return result;
    }
    // What was freed and is not yet proven idle: the last thing that can be done.
    let given: u64 = pools().filter(|device_pool| device_pool.settle()).map(DevicePool::give_back).sum();
    if given > 0 { call(&asked) } else { result }
}
