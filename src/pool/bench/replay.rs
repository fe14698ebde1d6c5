//! A trace replayed through the pool on a simulated device. Touches nothing real.
//!
//! How the simulation decides what is reusable: all blocks are stream-ordered on one stream, as
//! TensorFlow's asynchronous allocator does it, so a free is reusable at once by the same stream. But
//! the device finishes work only when it is synchronised with: once at the end of each iteration (the
//! job fetches its loss), or when the pool itself synchronises because nothing proven is left. Until
//! then nothing freed since may be unmapped or moved.

use crate::trace::Trace;
use weir_pool::sim::SimulatedDevice;
use weir_pool::{Budget, Call, Config, Pool, Request, Stats};

/// How a replay went.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) stats: Stats,
    /// Statistics at the end of each iteration.
    pub(crate) iterations: Vec<Stats>,
    pub(crate) micros: f64,
}

/// Replay a trace with this much memory. `None`: it did not fit.
pub(crate) fn replay(trace: &Trace, handle: u64, capacity: u64, synchronous: bool) -> Option<Outcome> {
    let device = SimulatedDevice::new(capacity);
    let config = Config { large_handle: handle, ..Config::new(capacity.max(1 << 30)) };
    let pool = Pool::new(config, &device).ok()?;
    let mut addresses = vec![0; trace.blocks as usize];
    let mut iterations = Vec::new();
    for (at, event) in trace.events.iter().enumerate() {
        if trace.boundary(at) {
            let proof = pool.began(Call::ContextSync(1));
            device.finish();
            pool.ended(proof, true);
            iterations.push(pool.stats());
        }
        let address = &mut addresses[event.block as usize];
        if event.bytes > 0 {
            let stream = (!synchronous).then_some(1);
            let request = Request { bytes: event.bytes as u64, stream, context: 1, ..Request::default() };
            *address = pool.allocate(&device, &request, &Budget::default()).ok()?.addr;
        } else if synchronous {
            pool.free(&device, *address, ()).ok()?;
        } else {
            pool.free_async(*address, 1, 1, ()).ok()?;
        }
    }
    iterations.push(pool.stats());
    Some(Outcome { stats: pool.stats(), iterations, micros: device.micros() })
}

/// The smallest capacity at which `fits` says yes, to a resolution of 2 MiB, not below `least`.
pub(crate) fn smallest(least: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    const STEP: u64 = 2 << 20;
    let mut high = least.next_multiple_of(STEP);
    let mut low = high.saturating_sub(STEP);
    let mut reach = STEP;
    while !fits(high) {
        low = high;
        high += reach;
        reach *= 2;
        if high > least.saturating_mul(8).max(1 << 36) {
            return None;
        }
    }
    while high - low > STEP {
        let middle = low + (high - low) / 2 / STEP * STEP;
        if fits(middle) { high = middle } else { low = middle }
    }
    Some(high)
}
