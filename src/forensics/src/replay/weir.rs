//! weir's own pool on the simulated device. The pool is the code that runs in jobs. Touches nothing real.

use weir_journal::STREAM_UNKNOWN;
use weir_pool::sim::SimulatedDevice;
use weir_pool::{Backing, BackingError, Budget, Call, Config, Pool, Request};

use super::{Allocator, Outcome, Settings};

/// The one context that a replay has.
const CONTEXT: u64 = 1;

pub(super) struct Pooled {
    pool: Pool,
    device: SimulatedDevice,
    addresses: Vec<u64>,
}

impl Pooled {
    pub(super) fn new(settings: &Settings, blocks: usize) -> Result<Self, BackingError> {
        let device = SimulatedDevice::new(settings.cap);
        // Address space is reserved by the size of the device: a small cap does not make that small.
        let config = Config { device_bytes: settings.cap.max(1 << 30), ..settings.pool.clone() };
        let pool = Pool::new(config, &device)?;
        Ok(Self { pool, device, addresses: vec![0; blocks + 1] })
    }
}

impl Allocator for Pooled {
    fn request(&mut self, block: u32, bytes: u64, stream: u16) -> bool {
        let stream = (stream != STREAM_UNKNOWN).then_some(u64::from(stream) + 1);
        let request = Request { bytes: bytes.max(1), stream, context: CONTEXT, ..Request::default() };
        match (self.pool.allocate(&self.device, &request, &Budget::default()), self.addresses.get_mut(block as usize)) {
            (Ok(allocation), Some(address)) => {
                *address = allocation.addr;
                true
            }
            _ => false,
        }
    }

    fn free(&mut self, block: u32, stream: u16) {
        let address = self.addresses.get(block as usize).copied().unwrap_or(0);
        // A free of what was never allocated is a free of address 0, which the pool does not know.
        let _ = if stream == STREAM_UNKNOWN {
            self.pool.free(&self.device, address, ())
        } else {
            self.pool.free_async(address, u64::from(stream) + 1, CONTEXT, ())
        };
    }

    fn sync(&mut self) {
        let proof = self.pool.began(Call::ContextSync(CONTEXT));
        self.device.finish();
        self.pool.ended(proof, true);
    }

    fn hold(&mut self, bytes: u64) -> bool {
        if self.device.segment_alloc(bytes, &Budget::default()).is_ok() {
            return true;
        }
        // As in a job: the pool gives back what is free, then everything after a synchronisation.
        self.sync();
        self.pool.trim_to(&self.device, 0);
        self.device.segment_alloc(bytes, &Budget::default()).is_ok()
    }

    fn unhold(&mut self, bytes: u64) {
        let _ = self.device.segment_free(0, bytes);
    }

    fn held(&self) -> u64 {
        self.device.used()
    }

    fn sum_up(&self, outcome: &mut Outcome) {
        let stats = self.pool.stats();
        outcome.driver_calls = stats.calls.total();
        outcome.driver_micros = self.device.micros();
        (outcome.remaps, outcome.meshes, outcome.self_syncs) = (stats.remaps, stats.meshes, stats.self_syncs);
    }
}
