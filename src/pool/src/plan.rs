//! Plans: the driver calls of a growth, made under the lock and run without it, and the reports about
//! what became of it. Touches the driver through the `Backing` only, and nothing of the pool.

use crate::Fault;
use crate::arena::Segment;
use crate::backing::{Backing, BackingError, Fence, Handle, PeerAccess};
use crate::block::Id;
use crate::budget::Budget;
use crate::config::UNIT_SHIFT;
use crate::fault::injected;
use crate::search::Donor;
use crate::stats::DriverCalls;

/// Map memory behind a claimed place.
pub(crate) struct MapPlan {
    pub(crate) busy: Id,
    pub(crate) live: u32,
    pub(crate) arena: usize,
    pub(crate) handle_class: usize,
    pub(crate) bytes: u64,
    pub(crate) base: u64,
    pub(crate) missing: Vec<u32>,
    pub(crate) spare: Vec<Handle>,
    pub(crate) create: usize,
    pub(crate) donors: Vec<(Donor, u64, Vec<Handle>)>,
    pub(crate) grants: Vec<PeerAccess>,
}

/// What became of a `MapPlan`.
#[derive(Default)]
pub(crate) struct MapReport {
    pub(crate) created: u64,
    pub(crate) unmapped: usize,
    pub(crate) mapped: Vec<(u32, Handle)>,
    pub(crate) lost: Vec<u32>,
    pub(crate) left: Vec<Handle>,
    pub(crate) refused: Option<BackingError>,
    pub(crate) error: Option<BackingError>,
    pub(crate) calls: DriverCalls,
}

impl MapPlan {
    pub(crate) fn run(&self, backing: &impl Backing, budget: &Budget) -> MapReport {
        let mut report = MapReport { left: self.spare.clone(), ..MapReport::default() };
        for _ in 0..self.create {
            report.calls.create += 1;
            match backing.create(self.bytes, budget) {
                Ok(handle) => {
                    report.created += 1;
                    report.left.push(handle);
                }
                Err(error) => {
                    report.refused = Some(error);
                    return report;
                }
            }
        }
        for (donor, addr, handles) in &self.donors {
            report.calls.unmap += 1;
            if let Err(error) = backing.unmap(*addr, u64::from(donor.count) * self.bytes) {
                report.error = Some(error);
                return report;
            }
            report.unmapped += 1;
            report.left.extend(handles);
        }
        for run in self.missing.chunk_by(|left, right| left + 1 == *right) {
            if !self.run_run(backing, run, &mut report) {
                break;
            }
        }
        report
    }

    /// Map one run of granules and make it accessible; on failure undo it.
    fn run_run(&self, backing: &impl Backing, run: &[u32], report: &mut MapReport) -> bool {
        let addr = |index: u32| self.base + u64::from(index) * self.bytes;
        let first = run.first().copied().unwrap_or(0);
        let mut mapped = Vec::with_capacity(run.len());
        let mut failure = None;
        for index in run {
            let Some(handle) = report.left.pop() else {
                failure = Some(BackingError::OutOfMemory);
                break;
            };
            report.calls.map += 1;
            if let Err(error) = backing.map(addr(*index), self.bytes, handle)
                && !injected(Fault::MapFailureIgnored)
            {
                report.left.push(handle);
                failure = Some(error);
                break;
            }
            mapped.push((*index, handle));
        }
        if failure.is_none() {
            report.calls.set_access += 1;
            match backing.set_access(addr(first), run.len() as u64 * self.bytes, &self.grants) {
                Ok(()) => {
                    report.mapped.extend(mapped);
                    return true;
                }
                Err(error) => failure = Some(error),
            }
        }
        if !mapped.is_empty() {
            report.calls.unmap += 1;
            if backing.unmap(addr(first), mapped.len() as u64 * self.bytes).is_ok() {
                report.left.extend(mapped.iter().map(|(_, handle)| handle));
            } else {
                report.lost.extend(mapped.iter().map(|(index, _)| index));
            }
        }
        report.error = failure;
        false
    }
}

/// Allocate a plain segment for a claimed stretch of the arena's numbering.
pub(crate) struct SegmentPlan {
    pub(crate) busy: Id,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl SegmentPlan {
    pub(crate) fn run(&self, backing: &impl Backing, budget: &Budget) -> Result<u64, BackingError> {
        backing.segment_alloc(u64::from(self.len) << UNIT_SHIFT, budget)
    }
}

/// Look at a stream's progress: older fences, and a new one.
pub(crate) struct FencePlan {
    pub(crate) domain: u16,
    pub(crate) serial: u64,
    pub(crate) stream: u64,
    pub(crate) open: Vec<(Fence, u64)>,
    pub(crate) time: u64,
}

/// What was seen of a stream's progress.
pub(crate) struct FenceReport {
    pub(crate) done: u64,
    pub(crate) open: Vec<(Fence, u64)>,
    pub(crate) calls: u64,
}

impl FencePlan {
    pub(crate) fn run(&self, backing: &impl Backing) -> FenceReport {
        let mut report = FenceReport { done: 0, open: Vec::new(), calls: 0 };
        let mut fences = self.open.clone();
        report.calls += 1;
        if let Ok(fence) = backing.fence_record(self.stream) {
            fences.push((fence, self.time));
        }
        for (fence, time) in fences {
            report.calls += 1;
            match backing.fence_query(fence) {
                Ok(true) => {
                    report.done = report.done.max(time);
                    backing.fence_drop(fence);
                }
                Ok(false) => report.open.push((fence, time)),
                Err(_) => backing.fence_drop(fence),
            }
        }
        report
    }
}

/// Let the requester's stream wait for the stream that freed a claimed hole.
pub(crate) struct WaitPlan {
    pub(crate) hole: Id,
    pub(crate) owner: u16,
    pub(crate) serial: u64,
    pub(crate) stamp: u64,
    pub(crate) time: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl WaitPlan {
    pub(crate) fn run(&self, backing: &impl Backing) -> Result<(), BackingError> {
        if injected(Fault::WaitNotInserted) {
            return Ok(());
        }
        let fence = backing.fence_record(self.from)?;
        let result = backing.fence_wait(self.to, fence);
        backing.fence_drop(fence);
        result
    }
}

/// Give granules back to the driver.
pub(crate) struct ReleasePlan {
    pub(crate) donors: Vec<(Donor, u64, Vec<Handle>)>,
    pub(crate) spare: Vec<Handle>,
    pub(crate) segments: Vec<(Id, Segment)>,
    pub(crate) handle_class: usize,
    pub(crate) bytes: u64,
}

/// What was released.
#[derive(Default)]
pub(crate) struct ReleaseReport {
    pub(crate) unmapped: usize,
    pub(crate) kept: Vec<Handle>,
    pub(crate) freed: Vec<bool>,
    pub(crate) released: u64,
    pub(crate) error: Option<BackingError>,
    pub(crate) calls: DriverCalls,
}

impl ReleasePlan {
    pub(crate) fn run(&self, backing: &impl Backing) -> ReleaseReport {
        let mut report = ReleaseReport::default();
        let mut handles = self.spare.clone();
        for (donor, addr, mapped) in &self.donors {
            report.calls.unmap += 1;
            if let Err(error) = backing.unmap(*addr, u64::from(donor.count) * self.bytes) {
                report.error = Some(error);
                break;
            }
            report.unmapped += 1;
            handles.extend(mapped);
        }
        for handle in handles {
            report.calls.release += 1;
            match backing.release(handle, self.bytes) {
                Ok(()) => report.released += self.bytes,
                Err(error) => {
                    report.error = Some(error);
                    report.kept.push(handle);
                }
            }
        }
        for (_, segment) in &self.segments {
            report.calls.segment += 1;
            let bytes = u64::from(segment.len) << UNIT_SHIFT;
            let result = backing.segment_free(segment.addr, bytes);
            report.freed.push(result.is_ok());
            match result {
                Ok(()) => report.released += bytes,
                Err(error) => report.error = Some(error),
            }
        }
        report
    }
}
