//! Fences: events of weir's own behind work of the job, asked whenever it matters whether a stream has come there.
//! Nobody ever waits for one.
//!
//! An event goes with its context. So a context that is about to end is set aside first: its events are not asked
//! meanwhile, and once it is gone they count as passed, because the end of a context waits for its work.

use super::lock;
use crate::driver::guards::{ContextGuard, RelaxedCapture, current};
use crate::driver::real::{self, done};
use crate::driver::stream;
use std::collections::HashMap;
use weir_cuda::{CUevent, CUevent_flags, CUresult, CUstream};
use weir_pool::ranks::{Mutex, Rank};

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: CUstream = 2 as CUstream;

/// The name of a fence.
pub(super) type Fence = u64;

struct Event {
    /// 0: it could not be recorded, so that only the end of the context proves anything.
    event: u64,
    ctx: u64,
}

#[derive(Default)]
struct Known {
    last: Fence,
    events: HashMap<Fence, Event>,
    /// Contexts that are about to end.
    ending: Vec<u64>,
}

/// The fences that have not been passed, as far as is known.
pub(super) struct Fences(Mutex<Known>);

impl Default for Fences {
    fn default() -> Self {
        Self(Mutex::new(Rank::LeavingFences, Known::default()))
    }
}

/// Records an event behind all that `stream` has been given. 0 if the driver refuses.
fn record(stream: CUstream, ctx: u64) -> u64 {
    let Ok(_within) = ContextGuard::enter(ctx) else { return 0 };
    let mut event: CUevent = core::ptr::null_mut();
    // SAFETY: the place is a live local.
    if done(unsafe { real::cuEventCreate(&raw mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0) }).is_err() {
        return 0;
    }
    // SAFETY: the event was made above in the stream's context; the job has just used the stream.
    if done(unsafe { real::cuEventRecord(event, stream) }).is_err() {
        // SAFETY: as above, and nobody else knows it.
        unsafe { real::cuEventDestroy_v2(event) };
        return 0;
    }
    event as u64
}

impl Fences {
    /// A fence behind all that a stream has been given so far. `own`: 0 means the calling thread's default stream.
    pub(super) fn behind(&self, stream: CUstream, own: bool) -> Fence {
        let ctx = stream::find(stream, own).map_or_else(current, |(stream_ref, _)| stream_ref.ctx);
        let event = record(if own { PER_THREAD } else { stream }, ctx);
        let mut known = lock(&self.0);
        known.last += 1;
        let fence = known.last;
        known.events.insert(fence, Event { event, ctx });
        fence
    }

    /// Whether its stream has come to a fence; then it is forgotten.
    pub(super) fn passed(&self, fence: Fence) -> bool {
        let mut known = lock(&self.0);
        let Some(Event { event, ctx }) = known.events.get(&fence) else { return true };
        if *event == 0 || known.ending.contains(ctx) {
            return false;
        }
        let event = *event as CUevent;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: in the list, so it exists; its context is not about to end, and can't begin to while the lock is held.
        if unsafe { real::cuEventQuery(event) } != CUresult::CUDA_SUCCESS {
            return false;
        }
        // SAFETY: as above.
        unsafe { real::cuEventDestroy_v2(event) };
        known.events.remove(&fence);
        true
    }

    /// A context is about to end: its events are left alone.
    pub(super) fn context_leaves(&self, ctx: u64) {
        lock(&self.0).ending.push(ctx);
    }

    /// It has ended, and its events with it, or it stays.
    pub(super) fn context_left(&self, ctx: u64, ended: bool) {
        let mut known = lock(&self.0);
        if let Some(at) = known.ending.iter().position(|ending| *ending == ctx) {
            known.ending.swap_remove(at);
        }
        if ended {
            known.events.retain(|_, event| event.ctx != ctx);
        }
    }
}
