//! User objects: counted references of the job, owned by graphs, whose destructor runs on the
//! device's own thread once nobody holds them and no launch may use them.

use crate::engine::{Clock, HostCall, Op, Point, Touches};
use crate::error::*;
use crate::state::State;
use std::ffi::c_void;

/// An object of the job.
pub(crate) struct UserObject {
    pub(crate) destroy: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: usize,
    /// All references.
    pub(crate) count: u64,
    /// References that the job itself owns.
    pub(crate) owned_by_job: u64,
    /// Launches that must be over before the destructor may run.
    pub(crate) after: Vec<Point>,
}

impl State {
    pub(crate) fn object(&mut self, object: u64) -> R<&mut UserObject> {
        self.graphs.objects.get_mut(&object).ok_or(INVALID_VALUE)
    }

    /// A graph or an executable graph holds references.
    pub(crate) fn object_hold(&mut self, object: u64, count: u32) {
        if let Some(known) = self.graphs.objects.get_mut(&object) {
            known.count += u64::from(count);
        }
    }

    /// References go; with the last one the destructor is queued, behind `after`.
    pub(crate) fn object_let_go(&mut self, object: u64, count: u32, after: Option<Point>) {
        let Some(known) = self.graphs.objects.get_mut(&object) else { return };
        known.count = known.count.saturating_sub(u64::from(count));
        known.after.extend(after);
        if known.count > 0 {
            return;
        }
        let Some(gone) = self.graphs.objects.remove(&object) else { return };
        if self.graphs.destructors == 0 {
            let stream = self.fresh();
            // No context: nothing that the job can call waits for it.
            self.engine.add_stream(stream, 0, 0, true, 0);
            self.graphs.destructors = stream;
        }
        let stream = self.graphs.destructors;
        for point in gone.after {
            self.wait_for(stream, point, &Clock::default());
        }
        let op = Op::Host { call: HostCall::Function(gone.destroy), data: gone.data };
        let _ = self.enqueue(stream, "destructor of a user object", op, Touches::NONE);
    }

    /// `cuGraphRetainUserObject`.
    pub(crate) fn graph_retain(&mut self, graph: u64, object: u64, count: u32, moved: bool) -> R {
        self.graph(graph)?;
        let known = self.object(object)?;
        if moved {
            known.owned_by_job = known.owned_by_job.checked_sub(u64::from(count)).ok_or(INVALID_VALUE)?;
        } else {
            known.count += u64::from(count);
        }
        *self.graph_mut(graph)?.objects.entry(object).or_default() += count;
        Ok(())
    }

    /// `cuGraphReleaseUserObject`.
    pub(crate) fn graph_release(&mut self, graph: u64, object: u64, count: u32) -> R {
        self.object(object)?;
        let held = self.graph_mut(graph)?.objects.get_mut(&object).ok_or(INVALID_VALUE)?;
        *held = held.checked_sub(count).ok_or(INVALID_VALUE)?;
        if *held == 0 {
            self.graph_mut(graph)?.objects.remove(&object);
        }
        self.object_let_go(object, count, None);
        Ok(())
    }
}
