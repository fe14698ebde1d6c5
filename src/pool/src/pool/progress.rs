//! What the job's own calls prove about the progress of the device: contexts, streams, events and captures.
//! Touches the driver only to drop fences, through the `Backing`.

use super::Pool;
use crate::BlockInfo;
use crate::backing::Backing;
use crate::order::{Call, Progress, Proof};

impl Pool {
    /// A context was created.
    pub fn context_created(&self, context: u64) {
        self.dated(|core| core.order.context_created(context));
    }

    /// A context was destroyed or reset, and its work with it. Returns the blocks it had not freed; `lost` is called for
    /// each under the pool's lock, before anybody can get it again.
    pub fn context_destroyed(
        &self,
        backing: &impl Backing,
        context: u64,
        lost: impl FnMut(&BlockInfo),
    ) -> Vec<BlockInfo> {
        let mut core = self.whole();
        let (blocks, fences) = core.context_destroyed(context);
        blocks.iter().for_each(lost);
        drop(core);
        for fence in fences {
            backing.fence_drop(fence);
        }
        blocks
    }

    /// A stream was destroyed; its queued work may still run.
    pub fn stream_destroyed(&self, backing: &impl Backing, stream: u64) {
        let fences = self.whole().stream_destroyed(stream, false);
        for fence in fences {
            backing.fence_drop(fence);
        }
    }

    /// An event was destroyed.
    pub fn event_destroyed(&self, event: u64) {
        self.lock().order.event_destroyed(event);
    }

    /// A call is about to be made: what it would prove, if it succeeded.
    pub fn began(&self, call: Call) -> Proof {
        self.dated(|core| core.order.begin(call))
    }

    /// The call has returned; `ok`: it has done or seen what it was made for.
    pub fn ended(&self, proof: Proof, ok: bool) {
        // Jobs query again and again whether work has finished; until it has, nothing is new.
        if !ok && !proof.is_record() {
            return;
        }
        let mut core = self.lock();
        let progress = core.order.end(proof, ok);
        if progress == Progress::Device {
            core.reclaim();
        }
        if progress != Progress::None {
            core.mempools.synchronised();
        }
    }

    /// A stream is captured from now on, or no longer: no synchronisation, fence or mesh while any is.
    pub fn set_capturing(&self, stream: u64, context: u64, capturing: bool) {
        self.lock().order.capture(stream, context, capturing);
    }
}
