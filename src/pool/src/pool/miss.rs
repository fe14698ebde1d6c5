//! A request that nothing free serves: the steps of its growth, planned and committed under the lock, run without it; and
//! the mesh, for which the device is stopped. Touches the driver only through the `Backing`.

use super::Pool;
use crate::backing::{Backing, BackingError};
use crate::budget::Budget;
use crate::core::{Core, Want};
use crate::fault::injected;
use crate::growth::{Ladder, Step};
use crate::mesh::Leave;
use crate::ranks::{self, Locked, Rank};
use crate::replace::Replaced;
use crate::stats::DriverCalls;
use crate::{AllocError, Allocation, Fault};
use std::time::Duration;

/// A device that is stopped; goes on when dropped, also if a backing panics.
pub(super) struct Stopped<'a, B: Backing> {
    backing: &'a B,
    _held: ranks::Held,
}

impl<'a, B: Backing> Stopped<'a, B> {
    pub(super) fn by(backing: &'a B) -> Self {
        Self { backing, _held: ranks::take(Rank::Stopped) }
    }
}

impl<B: Backing> Drop for Stopped<'_, B> {
    fn drop(&mut self) {
        self.backing.resume();
    }
}

impl Pool {
    #[cold]
    pub(super) fn grow(&self, backing: &impl Backing, want: &Want, budget: &Budget) -> Result<Allocation, AllocError> {
        let mut ladder = Ladder::with(budget.effort);
        let mut turn = self.turn().ok_or(AllocError::Busy)?;
        let mut core = self.whole_for_growth();
        loop {
            let step = core.step(want, &mut ladder);
            drop(core);
            match step {
                Step::Done(allocation) => return Ok(allocation),
                Step::Fail(error) => return Err(error),
                Step::Map(plan) => {
                    let report = plan.run(backing, budget);
                    core = self.whole_for_growth();
                    if let Some(allocation) = core.finish_map(want, &mut ladder, &plan, report)? {
                        return Ok(allocation);
                    }
                }
                Step::Segment(plan) => {
                    let result = plan.run(backing, budget);
                    core = self.whole_for_growth();
                    if let Some(allocation) = core.finish_segment(want, &mut ladder, &plan, result) {
                        return Ok(allocation);
                    }
                }
                Step::Fences(plans) => {
                    let mut surplus = Vec::new();
                    for plan in &plans {
                        let report = plan.run(backing);
                        surplus.extend(self.lock().finish_fences(plan, report));
                    }
                    for fence in surplus {
                        backing.fence_drop(fence);
                    }
                    core = self.whole_for_growth();
                }
                Step::Wait(plan) => {
                    let result = plan.run(backing);
                    core = self.whole_for_growth();
                    if let Some(allocation) = core.finish_wait(want, &plan, result) {
                        return Ok(allocation);
                    }
                }
                Step::Release(plan) => {
                    let report = plan.run(backing);
                    core = self.whole_for_growth();
                    core.finish_release(&plan, &report);
                }
                Step::Look(time) => {
                    // Others grow while this thread looks.
                    drop(turn);
                    let idle = injected(Fault::IdleTakenForGranted) || backing.idle();
                    self.lock().finish_look(time, idle);
                    turn = self.turn().ok_or(AllocError::Busy)?;
                    core = self.whole_for_growth();
                }
                Step::Sync(time) => {
                    // Others grow while this thread waits.
                    drop(turn);
                    let result = backing.synchronise();
                    self.lock().finish_sync(time, result)?;
                    turn = self.turn().ok_or(AllocError::Busy)?;
                    core = self.whole_for_growth();
                }
                Step::Unmesh(leaves) => core = self.unmesh(backing, &leaves),
                Step::Mesh => {
                    drop(turn);
                    let moved = self.mesh(backing)?;
                    turn = self.turn().ok_or(AllocError::Busy)?;
                    core = self.whole_for_growth();
                    ladder.retry();
                    ladder.sliced(moved);
                }
            }
        }
    }

    /// Granules without live bytes leave the handles they share.
    pub(super) fn unmesh(&self, backing: &impl Backing, leaves: &[Leave]) -> Locked<'_, Core> {
        for leave in leaves {
            let result = leave.run(backing);
            self.lock().finish_leave(leave, result);
        }
        let mut core = self.whole_for_growth();
        core.finish_mesh();
        core
    }

    /// Stop the device, share handles between some sparse granules, let it go on. Returns how many were moved.
    fn mesh(&self, backing: &impl Backing) -> Result<usize, AllocError> {
        let began = self.dated(|core| core.order.now);
        let stopped = injected(Fault::MeshWithoutQuiesce) || backing.quiesce() == Ok(true);
        if !stopped {
            return Ok(0);
        }
        let _stopped = Stopped::by(backing);
        // Nobody is kept waiting by a device that stands still for want of a turn.
        let Some(_turn) = self.turn_within(Duration::ZERO) else { return Ok(0) };
        let mut core = self.whole_for_growth();
        if core.order.captures > 0 {
            return Ok(0);
        }
        core.counters.calls.sync += 1;
        core.order.all_done(began);
        core.reclaim();
        let moves = core.plan_mesh();
        drop(core);
        let (mut calls, mut done) = (DriverCalls::default(), 0);
        let mut lost = None;
        for plan in &moves {
            let moved = plan.run(backing, &mut calls);
            done += usize::from(matches!(moved, Replaced::Yes));
            if let Replaced::Lost(error) = &moved {
                lost = Some(*error);
            }
            self.lock().finish_move(plan, &moved);
        }
        let mut core = self.whole_for_growth();
        core.counters.calls.add(&calls);
        core.finish_mesh();
        drop(core);
        match lost {
            None => Ok(done),
            Some(BackingError::Driver(code)) => Err(AllocError::Driver(code)),
            Some(_) => Err(AllocError::OutOfMemory),
        }
    }
}
