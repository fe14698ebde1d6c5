//! What makes room on a device: the pools return idle memory, and the device is waited for. For the cap, and for
//! calls of the driver's that take memory outside the pools.

use super::{DevicePool, any, pools, pools_reached_by};
use crate::cap::{Callbacks, Fact};
use crate::driver::DEVICES;
use crate::driver::guards::{ContextGuard, RelaxedCapture, current, current_device};
use crate::driver::reach::reaches;
use crate::driver::real::{self, done};
use crate::driver::wait::{self, Whose};
use crate::driver::{capture, contexts};
use crate::record;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use weir_cuda::CUresult;
use weir_pool::Call;

/// What the account is handed.
pub(crate) static CALLBACKS: CapCallbacks = CapCallbacks;

/// The pools and the journal, as the account sees them.
pub(crate) struct CapCallbacks;

fn pools_of(ordinal: i32) -> impl Iterator<Item = &'static DevicePool> {
    pools().filter(move |device_pool| device_pool.ordinal == ordinal)
}

impl Callbacks for CapCallbacks {
    fn trim(&self, ordinal: i32) -> u64 {
        pools_of(ordinal).map(DevicePool::trim).sum()
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

/// Waits for all work that may touch a device's memory, but not for ever. False: nothing is proven.
fn wait_for(ordinal: i32) -> bool {
    // Without the pool only the contexts are known that were made under weir's eyes.
    contexts::seen(current());
    let proofs: Vec<_> = {
        let Some(_alive) = contexts::alive() else { return false };
        let known = contexts::all().filter(|context| reaches(context.ordinal, ordinal));
        let began = |context: contexts::Living| {
            pools_reached_by(context.ordinal)
                .map(move |device_pool| (device_pool, device_pool.pool.began(Call::ContextSync(context.ctx))))
        };
        known.flat_map(began).collect()
    };
    let waited = wait::for_work(Whose::Reaching(ordinal), wait::PATIENCE).is_ok();
    for (device_pool, proof) in proofs {
        device_pool.pool.ended(proof, waited);
    }
    waited
}

/// A call of the driver's that takes device memory, made again after the pools returned what they
/// could, should it have failed for want of it.
pub(crate) fn with_room(call: impl Fn() -> CUresult) -> CUresult {
    with_room_for(|attempt| attempt.call(&call))
}

/// What the driver has answered.
#[derive(Default)]
pub(crate) struct Attempt(Cell<bool>);

impl Attempt {
    /// Queries the driver.
    pub(crate) fn call(&self, call: impl FnOnce() -> CUresult) -> CUresult {
        let result = call();
        self.0.set(result == CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        result
    }
}

/// The same for a call with an account around it, which may hold locks while it calls the driver: room is made without
/// them, and the whole is done again.
pub(crate) fn with_room_for(call: impl Fn(&Attempt) -> CUresult) -> CUresult {
    let attempt = Attempt::default();
    let mut result = call(&attempt);
    for effort in Effort::ALL {
        if !attempt.0.get() {
            return result;
        }
        if make_room(effort) > 0 {
            result = call(&attempt);
        }
    }
    result
}

/// How far weir goes to make room for a call of the driver's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// The pools return idle memory to the driver.
    Trim,
    /// What was freed and is not yet proven idle is waited for: the last thing that can be done.
    Wait,
}

impl Effort {
    pub(crate) const ALL: [Self; 2] = [Self::Trim, Self::Wait];
}

/// Makes room on every device for a call of the driver's that found no memory. Returns the bytes that were released.
#[cold]
pub(crate) fn make_room(effort: Effort) -> u64 {
    if !any() || (effort == Effort::Wait && capture::under_way()) {
        return 0;
    }
    pools().filter(|device_pool| effort == Effort::Trim || device_pool.prove_idle()).map(DevicePool::trim).sum()
}

/// For each device: what the pools leave free, because calls of the driver's were seen to need it.
static KEPT_FREE: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];
/// No more than this part of a device is left free.
const LARGEST_PART: u64 = 16;

/// A call of the driver's on the current device succeeded after so many bytes were released to it: what it took is left
/// free from now on, for the next one like it.
#[cold]
pub(crate) fn needed(released: u64) {
    let (mut free, mut total) = (0, 0);
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: both places are live locals.
    let known = done(unsafe { real::cuMemGetInfo_v2(&raw mut free, &raw mut total) }).is_ok();
    let place = current_device().and_then(|ordinal| KEPT_FREE.get(ordinal as usize));
    if let Some(kept) = place.filter(|_| known) {
        let took = released.saturating_sub(free as u64).min(total as u64 / LARGEST_PART);
        kept.fetch_max(took, Ordering::Relaxed);
    }
}

/// Whether a pool may take so many bytes of a device and leave free what others were seen to need.
pub(super) fn leaves_enough(ordinal: i32, bytes: u64) -> bool {
    let kept = KEPT_FREE.get(ordinal as usize).map_or(0, |kept| kept.load(Ordering::Relaxed));
    if kept == 0 {
        return true;
    }
    let Some(context) = contexts::all().find(|of| of.ordinal == ordinal) else { return true };
    let Ok(_within) = ContextGuard::enter(context.ctx) else { return true };
    let (mut free, mut total) = (0, 0);
    // SAFETY: both places are live locals.
    let known = done(unsafe { real::cuMemGetInfo_v2(&raw mut free, &raw mut total) }).is_ok();
    !known || free as u64 >= bytes.saturating_add(kept)
}
