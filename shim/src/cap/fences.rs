//! Fences: events of weir's own behind work of the job, queried whenever it matters whether a stream has come there.
//! Nobody ever waits for one.
//!
//! An event goes with its context. So a context that is about to end is set aside first: its events are not queried
//! meanwhile, and once it is gone they count as passed, because the end of a context waits for its work. A query is a use
//! of contexts: the end of one waits for the queries under way, and sets the context aside before it does.

use super::lock;
use crate::driver::guards::{ContextGuard, RelaxedCapture, current};
use crate::driver::real::{self, done};
use crate::driver::{contexts, stream};
use std::collections::HashMap;
use weir_cuda::{CUevent, CUevent_flags, CUresult, CUstream};
use weir_pool::ranks::{Mutex, Rank};

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: CUstream = 2 as CUstream;

/// The name of a fence.
pub(super) type Fence = u64;

struct Event {
    /// 0: it could not be recorded, so that only the end of the context proves anything.
    handle: u64,
    ctx: u64,
    /// Threads that query it. The last one destroys it, if it has `passed`.
    queries: u32,
    passed: bool,
}

#[derive(Default)]
struct Pending {
    last: Fence,
    events: HashMap<Fence, Event>,
    /// Contexts that are about to end.
    ending: Vec<u64>,
}

impl Pending {
    /// A query has ended; whether it was the last one of a fence that has passed, which is forgotten then.
    fn queried(&mut self, fence: Fence, passed: bool) -> bool {
        let Some(event) = self.events.get_mut(&fence) else { return false };
        event.queries -= 1;
        event.passed |= passed;
        let over = event.passed && event.queries == 0;
        if over {
            self.events.remove(&fence);
        }
        over
    }
}

/// The fences that have not been passed, as far as is known.
pub(super) struct Fences(Mutex<Pending>);

impl Default for Fences {
    fn default() -> Self {
        Self(Mutex::new(Rank::LeavingFences, Pending::default()))
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
        known.events.insert(fence, Event { handle: event, ctx, queries: 0, passed: false });
        fence
    }

    /// Whether its stream is known to have come to a fence; then it is forgotten.
    pub(super) fn passed(&self, fence: Fence) -> bool {
        // Where a context begins to end nothing is queried.
        let using = contexts::using();
        let event = {
            let known = &mut *lock(&self.0);
            let Some(event) = known.events.get_mut(&fence) else { return true };
            if event.passed || event.handle == 0 || using.is_none() || known.ending.contains(&event.ctx) {
                return event.passed;
            }
            event.queries += 1;
            event.handle as CUevent
        };
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: it is destroyed by the last who queries it; its context is not set aside, so that its end waits for this.
        let passed = unsafe { real::cuEventQuery(event) } == CUresult::CUDA_SUCCESS;
        if lock(&self.0).queried(fence, passed) {
            // SAFETY: as above, and nobody finds it any more.
            unsafe { real::cuEventDestroy_v2(event) };
        }
        passed
    }

    /// A context is about to end: its events are left alone. Before its end waits for uses of contexts.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_query_of_a_passed_fence_destroys_it() {
        let mut known = Pending::default();
        known.events.insert(1, Event { handle: 9, ctx: 5, queries: 3, passed: false });
        assert!(!known.queried(1, false), "not passed");
        assert!(!known.queried(1, true), "another thread still queries it");
        assert!(known.queried(1, false), "one saw it passed");
        assert!(known.events.is_empty() && !known.queried(1, true));
    }
}
