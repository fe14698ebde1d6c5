//! Growth: what happens when no hole serves a request. A step is planned under the lock, run against
//! the driver without it, and committed or undone under it again. Touches host memory only.
//!
//! The ladder, cheapest first: look whether the device is idle, map (create, or move free granules), look at fences, insert a wait,
//! turn free handles of the other size into what is needed, synchronise once, mesh, refuse.

use crate::arena::Segment;
use crate::backing::{BackingError, Fence, Handle};
use crate::block::{DEVICE, Id, NIL, State};
use crate::budget::Effort;
use crate::config::{LOOK_BLOCKS, LOOK_GRANULES, LOOK_UNITS, UNIT_SHIFT};
use crate::core::{Core, LARGE, LOST, Want};
use crate::plan::{FencePlan, FenceReport, MapPlan, MapReport, ReleasePlan, ReleaseReport, SegmentPlan, WaitPlan};
use crate::search::{Donor, Fit};
use crate::{AllocError, Allocation};

/// How often one request stops the device for a slice of a mesh.
const SLICES: u32 = 64;

/// How far up the ladder one request has come.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each rung is tried once, in any order")]
pub(crate) struct Ladder {
    refused: Option<BackingError>,
    exact_segment: bool,
    /// There was no memory to map what is there already: page tables take some, too.
    tables: bool,
    looked: bool,
    fences: bool,
    waited: bool,
    converted: bool,
    synced: bool,
    joined: bool,
    meshed: bool,
    /// How often the device was stopped for a mesh.
    slices: u32,
}

impl Ladder {
    /// The rungs that an effort includes: a mesh stops the device, a synchronisation waits for it.
    pub(crate) fn with(effort: Effort) -> Self {
        Self { synced: effort == Effort::WithoutWait, meshed: effort != Effort::Full, ..Self::default() }
    }

    /// Memory came free: what was tried in vain may work now.
    pub(crate) fn retry(&mut self) {
        (self.refused, self.converted, self.exact_segment) = (None, false, false);
    }

    /// A slice of a mesh has moved so many granules: another one follows where there were many.
    pub(crate) fn sliced(&mut self, moved: usize) {
        self.slices += 1;
        self.meshed = moved < crate::mesh::SLICE / 4 || self.slices >= SLICES;
    }
}

/// The next thing to do for a request.
pub(crate) enum Step {
    Done(Allocation),
    Map(MapPlan),
    Segment(SegmentPlan),
    Fences(Vec<FencePlan>),
    Wait(WaitPlan),
    Release(ReleasePlan),
    Look(u64),
    Sync(u64),
    Mesh,
    Unmesh(Vec<crate::mesh::Leave>),
    Fail(AllocError),
}

impl Core {
    /// The next step for a request that no single hole served.
    pub(crate) fn step(&mut self, want: &Want, ladder: &mut Ladder) -> Step {
        // What was proven or freed since the request missed may be just what it needs.
        if let Some(allocation) = self.hit_listed(want) {
            return Step::Done(allocation);
        }
        // What the free lists hold joins the search, also what another thread has freed since the request missed.
        self.flush_free_lists(self.arenas[want.arena()].handle_class);
        if let Some(allocation) = self.hit(want) {
            return Step::Done(allocation);
        }
        if self.promote(want.domain)
            && let Some(allocation) = self.hit(want)
        {
            return Step::Done(allocation);
        }
        if let Some(allocation) = self.ordered_hole(want) {
            return Step::Done(allocation);
        }
        if let Some(leaves) = self.plan_unmesh() {
            return Step::Unmesh(leaves);
        }
        if std::mem::take(&mut ladder.tables) {
            return Step::Release(self.plan_release(self.arenas[want.arena()].handle_class, 1));
        }
        let place =
            if self.config.vmm { self.search(want) } else { self.search(want).filter(|place| place.missing == 0) };
        let spare = self.spare[self.arenas[want.arena()].handle_class].len();
        let enough = place.is_some_and(|place| place.missing as usize <= spare);
        if !enough && !ladder.looked && self.worth_a_look(want) {
            ladder.looked = true;
            return Step::Look(self.order.now);
        }
        let mut need = 0;
        if let Some(place) = place {
            if place.missing == 0 {
                let busy = self.claim(place.first, place.start, place.start + want.units, want);
                if let Some(allocation) = self.unclaim(busy, want, Some(place.start)) {
                    return Step::Done(allocation);
                }
            } else {
                match self.plan_map(want, place, ladder) {
                    Ok(plan) => return Step::Map(plan),
                    Err(missing) => need = missing,
                }
            }
        } else if !self.config.vmm
            && let Some(plan) = self.plan_segment(want, ladder)
        {
            return Step::Segment(plan);
        }
        self.climb(want, ladder, need, place.is_some() || !self.config.vmm)
    }

    /// The steps that make something reusable; `need` handles are lacking.
    fn climb(&mut self, want: &Want, ladder: &mut Ladder, need: usize, place: bool) -> Step {
        let reuse = self.reuse(want);
        let quiet = self.order.captures == 0;
        if quiet && !ladder.fences && reuse.opportunistic {
            ladder.fences = true;
            let plans = self.plan_fences();
            if !plans.is_empty() {
                return Step::Fences(plans);
            }
        }
        if quiet && !ladder.waited && reuse.internal_waits && want.domain != DEVICE {
            ladder.waited = true;
            if let Some(plan) = self.plan_wait(want) {
                return Step::Wait(plan);
            }
        }
        if place && !ladder.converted {
            ladder.converted = true;
            if let Some(plan) = self.plan_convert(want, need) {
                ladder.retry();
                ladder.converted = true;
                return Step::Release(plan);
            }
        }
        if quiet && !ladder.synced {
            ladder.synced = true;
            ladder.converted = false;
            if self.has_unproven() {
                return Step::Sync(self.order.now);
            }
            return self.climb(want, ladder, need, place);
        }
        if !ladder.joined {
            ladder.joined = true;
            // The requester's own proven holes join everybody's: a granule with holes of both can be moved now.
            if self.promote(DEVICE) {
                ladder.converted = false;
                return self.step(want, ladder);
            }
        }
        if quiet && place && !ladder.meshed && self.config.mesh && self.config.vmm && !self.mesh_is_barren() {
            ladder.meshed = true;
            return Step::Mesh;
        }
        self.counters.refusals += 1;
        Step::Fail(match ladder.refused {
            Some(BackingError::Driver(code)) => AllocError::Driver(code),
            Some(BackingError::OverCap) => AllocError::OverCap,
            // Whatever memory there is, no stretch of addresses is long enough.
            None if !place => AllocError::TooLarge,
            _ => AllocError::OutOfMemory,
        })
    }

    /// Is anything free but not yet proven so?
    fn has_unproven(&self) -> bool {
        let streams = self.order.domains.iter().skip(1);
        self.deferred.count > 0 || !self.meshes.is_empty() || streams.into_iter().any(|domain| !domain.is_empty())
    }

    /// Is there so much to be proven that it pays to look whether the device is idle, before memory is taken or moved?
    fn worth_a_look(&self, want: &Want) -> bool {
        let (units, granule) = (u64::from(want.units), u64::from(self.arenas[want.arena()].granule_units()));
        let least = (LOOK_BLOCKS * units).min(LOOK_UNITS.max(units)).max(LOOK_GRANULES * granule);
        self.order.captures == 0 && self.deferred.units >= least.max(self.look_due)
    }

    /// Commit a look that began at `time`.
    pub(crate) fn finish_look(&mut self, time: u64, idle: bool) {
        self.counters.calls.fence += 1;
        if idle && self.order.captures == 0 {
            self.order.all_done(time);
            self.reclaim();
        }
        // While the device is at work, looks become rare.
        self.look_due = if idle { 0 } else { 2 * self.deferred.units };
    }

    fn plan_map(&mut self, want: &Want, place: Fit, ladder: &Ladder) -> Result<MapPlan, usize> {
        let arena = &self.arenas[want.arena()];
        let (shift, class, bytes) = (arena.granule_shift, arena.handle_class, arena.granule_bytes());
        let end = place.start + want.units;
        let touched = arena.touched(place.start, end);
        let missing: Vec<u32> = touched.filter(|index| arena.granule(*index).handle == 0).collect();
        // Whole granules are mapped, so whole granules are claimed.
        let low = missing.first().map_or(place.start, |index| place.start.min(index << shift));
        let high = missing.last().map_or(end, |index| end.max((index + 1) << shift));
        let base = arena.base;
        let need = missing.len();
        let spare = need.min(self.spare[class].len());
        let rest = need - spare;
        let first = if low < place.start { self.block_over(place.first, low) } else { place.first };
        let busy = self.claim(first, low, high, want);
        let counters = &self.counters;
        let peak = counters.peak_units().max(counters.allocated_units + u64::from(want.units));
        let limit = ((peak << UNIT_SHIFT) as f64 * (1.0 + self.config.slack)) as u64;
        let may_create = ladder.refused.is_none();
        let below = counters.mapped_bytes + rest as u64 * bytes <= limit.max(bytes);
        let loose =
            if rest == 0 || (may_create && below) || !self.config.remap { Vec::new() } else { self.loose(class) };
        let movable = loose.iter().map(|run| run.count as usize).sum::<usize>();
        let remap = rest.min(movable);
        let create = rest - remap;
        if create > 0 && !may_create {
            self.unclaim(busy, want, None);
            return Err(create);
        }
        let donors = self.claim_donors(&loose, remap);
        let donors = donors.into_iter().map(|donor| self.with_handles(donor)).collect();
        let at = self.spare[class].len() - spare;
        let spare = self.spare[class].split_off(at);
        let grants = self.grants.clone();
        Ok(MapPlan {
            busy,
            live: place.start,
            arena: want.arena(),
            handle_class: class,
            bytes,
            base,
            missing,
            spare,
            create,
            donors,
            grants,
        })
    }

    /// The block that covers `unit`, at or before `id`.
    fn block_over(&self, id: Id, unit: u32) -> Id {
        let mut id = id;
        while id != NIL && self.blocks.get(id).start > unit {
            id = self.blocks.get(id).prev;
        }
        id
    }

    fn with_handles(&self, donor: Donor) -> (Donor, u64, Vec<Handle>) {
        let arena = &self.arenas[donor.arena];
        let handles = (donor.first..donor.first + donor.count).map(|index| arena.granule(index).handle).collect();
        let addr = arena.addr_of(donor.first << arena.granule_shift);
        (donor, addr, handles)
    }

    /// Commit a map plan: the allocation if all went well, else everything as it really is now.
    pub(crate) fn finish_map(
        &mut self,
        want: &Want,
        ladder: &mut Ladder,
        plan: &MapPlan,
        report: MapReport,
    ) -> Result<Option<Allocation>, AllocError> {
        self.counters.calls.add(&report.calls);
        self.counters.mapped(report.created * plan.bytes);
        for (nth, (donor, _, _)) in plan.donors.iter().enumerate() {
            let unmapped = nth < report.unmapped;
            self.release_donor(donor, unmapped);
            self.counters.remaps += if unmapped { u64::from(donor.count) } else { 0 };
        }
        let arena = &mut self.arenas[plan.arena];
        let highest = plan.missing.last().map_or(0, |index| (index + 1) << arena.granule_shift);
        arena.prepare(highest);
        for (index, handle) in &report.mapped {
            if let Some(granule) = arena.granule_at(*index) {
                (granule.handle, granule.stamp) = (*handle, 0);
            }
        }
        for index in &report.lost {
            if let Some(granule) = arena.granule_at(*index) {
                granule.handle = LOST;
            }
        }
        self.counters.lost_bytes += report.lost.len() as u64 * plan.bytes;
        self.spare[plan.handle_class].extend(report.left);
        ladder.refused = ladder.refused.or(report.refused);
        let complete = report.mapped.len() == plan.missing.len();
        let allocation = self.unclaim(plan.busy, want, complete.then_some(plan.live));
        match report.error {
            Some(BackingError::Driver(code)) => Err(AllocError::Driver(code)),
            // A handle goes back to the driver for each time, so this comes to an end.
            Some(BackingError::OutOfMemory) if !self.spare[plan.handle_class].is_empty() => {
                ladder.refused = Some(BackingError::OutOfMemory);
                ladder.tables = true;
                Ok(None)
            }
            Some(_) => Err(AllocError::OutOfMemory),
            None => Ok(allocation),
        }
    }

    fn plan_segment(&mut self, want: &Want, ladder: &mut Ladder) -> Option<SegmentPlan> {
        if ladder.refused.is_some() && ladder.exact_segment {
            return None;
        }
        ladder.exact_segment = ladder.refused.is_some();
        let arena = &self.arenas[want.arena()];
        let chunk = if ladder.exact_segment { arena.granule_bytes() } else { self.config.segment };
        let chunk = (chunk >> UNIT_SHIFT) as u32;
        let len = want.units.checked_next_multiple_of(chunk)?;
        let room = arena.walled(len);
        let voids =
            std::iter::successors(Some(arena.voids), |id| Some(self.blocks.get(*id).after)).take_while(|id| *id != NIL);
        let void = voids.filter(|id| self.blocks.get(*id).len >= room).min_by_key(|id| self.blocks.get(*id).start)?;
        let start = self.blocks.get(void).start;
        let busy = self.cut_out(void, start, start + room);
        self.blocks.at(busy).state = State::Busy;
        Some(SegmentPlan { busy, start, len })
    }

    /// Commit a segment plan.
    pub(crate) fn finish_segment(
        &mut self,
        want: &Want,
        ladder: &mut Ladder,
        plan: &SegmentPlan,
        result: Result<u64, BackingError>,
    ) -> Option<Allocation> {
        self.counters.calls.segment += 1;
        let addr = match result {
            Ok(addr) => addr,
            Err(error) => {
                ladder.refused = Some(error);
                self.put_void(plan.busy);
                return None;
            }
        };
        let wall = self.blocks.split(plan.busy, plan.len);
        self.blocks.at(wall).state = State::Wall;
        let arena = &mut self.arenas[want.arena()];
        arena.prepare(plan.start + plan.len);
        arena.add_segment(Segment { addr, start: plan.start, len: plan.len });
        for index in arena.touched(plan.start, plan.start + plan.len) {
            if let Some(granule) = arena.granule_at(index) {
                (granule.handle, granule.stamp) = (1, 0);
            }
        }
        self.counters.mapped(u64::from(plan.len) << UNIT_SHIFT);
        self.blocks.at(plan.busy).stamp = 0;
        self.unclaim(plan.busy, want, Some(plan.start))
    }

    fn plan_fences(&mut self) -> Vec<FencePlan> {
        let now = self.order.now;
        let mut plans = Vec::new();
        for (index, domain) in self.order.domains.iter_mut().enumerate().skip(1) {
            if let Some(stream) = domain.stream
                && !domain.is_empty()
                && !domain.capturing
            {
                let open = std::mem::take(&mut domain.fences);
                plans.push(FencePlan { domain: index as u16, serial: domain.serial, stream, open, time: now });
            }
        }
        plans
    }

    /// Take note of a stream's progress. Fences of a stream that is gone are returned, to be dropped.
    pub(crate) fn finish_fences(&mut self, plan: &FencePlan, report: FenceReport) -> Vec<Fence> {
        self.counters.calls.fence += report.calls;
        self.order.finished(plan.serial, report.done);
        let domain = self.order.domain_at(plan.domain);
        if domain.serial != plan.serial || domain.stream.is_none() {
            return report.open.into_iter().map(|(fence, _)| fence).collect();
        }
        domain.fences.extend(report.open);
        // Two are enough: one that may finish soon and one that covers all.
        let surplus = domain.fences.len().saturating_sub(2);
        domain.fences.drain(..surplus).map(|(fence, _)| fence).collect()
    }

    fn plan_wait(&mut self, want: &Want) -> Option<WaitPlan> {
        if self.order.domain(want.domain).capturing {
            return None;
        }
        let (hole, owner) = self.waitable_hole(want)?;
        let time = self.order.now;
        let (serial, from) = (self.order.domain(owner).serial, self.order.domain(owner).stream?);
        let start = self.blocks.get(hole).start;
        let stamp = self.blocks.get(hole).stamp;
        let hole = self.cut_out(hole, start, start + want.units);
        self.blocks.at(hole).state = State::Busy;
        Some(WaitPlan { hole, owner, serial, stamp, time, from, to: want.stream })
    }

    /// Commit an inserted wait.
    pub(crate) fn finish_wait(
        &mut self,
        want: &Want,
        plan: &WaitPlan,
        result: Result<(), BackingError>,
    ) -> Option<Allocation> {
        self.counters.calls.fence += 2;
        let reader = self.order.domain(want.domain);
        if result.is_ok() && reader.stream == Some(want.stream) {
            self.order.ordered(want.domain, plan.serial, plan.time);
            self.counters.inserted_waits += 1;
            return Some(self.make_live(plan.hole, want));
        }
        let owner = self.order.domain(plan.owner);
        if owner.serial == plan.serial && owner.stream.is_some() {
            self.put_free(plan.hole, plan.owner, plan.stamp);
        } else {
            // The stream was destroyed meanwhile.
            let stamp = self.order.tick();
            let block = *self.blocks.get(plan.hole);
            self.arenas[want.arena()].touch(block.start, block.end(), stamp);
            self.defer(plan.hole, stamp);
        }
        None
    }

    /// Free handles of the other size, as many as would make room for what is lacking.
    fn plan_convert(&mut self, want: &Want, need: usize) -> Option<ReleasePlan> {
        if !self.config.vmm {
            return self.plan_release_segments(u64::MAX);
        }
        let arena = &self.arenas[want.arena()];
        let (class, lacking) = (1 - arena.handle_class.min(1), need as u64 * arena.granule_bytes());
        let headroom = arena.granule_bytes();
        let bytes = if class == 0 { self.config.small_handle } else { self.config.large_handle };
        self.flush_free_lists(class);
        let loose: u64 = self.loose(class).iter().map(|run| u64::from(run.count)).sum();
        let available = (loose + self.spare[class].len() as u64) * bytes;
        if available == 0 || lacking == 0 || available + headroom <= lacking {
            return None;
        }
        Some(self.plan_release(class, lacking.div_ceil(bytes) as usize))
    }

    /// Release up to `count` handles of a size class: spare ones first.
    fn plan_release(&mut self, class: usize, count: usize) -> ReleasePlan {
        self.flush_free_lists(class);
        let bytes = if class == 0 { self.config.small_handle } else { self.config.large_handle };
        let spare = count.min(self.spare[class].len());
        let at = self.spare[class].len() - spare;
        let spare: Vec<Handle> = self.spare[class].split_off(at);
        let loose = if count > spare.len() { self.loose(class) } else { Vec::new() };
        let donors = self.claim_donors(&loose, count - spare.len());
        let donors = donors.into_iter().map(|donor| self.with_handles(donor)).collect();
        ReleasePlan { donors, spare, segments: Vec::new(), handle_class: class, bytes }
    }

    /// The same for a trim, where no stream wants its own holes back.
    pub(crate) fn plan_trim(&mut self, class: usize, count: usize) -> ReleasePlan {
        self.flush_free_lists(class);
        // A granule may hold holes of everybody's and of streams that are through with them.
        self.promote(DEVICE);
        self.plan_release(class, count)
    }

    /// Release all handles of a size class that are free and `wanted`.
    pub(crate) fn plan_release_of(&mut self, class: usize, wanted: impl Fn(Handle) -> bool) -> ReleasePlan {
        self.flush_free_lists(class);
        let bytes = if class == 0 { self.config.small_handle } else { self.config.large_handle };
        let (spare, kept) = std::mem::take(&mut self.spare[class]).into_iter().partition(|handle| wanted(*handle));
        self.spare[class] = kept;
        let loose = self.loose_of(class, wanted);
        let donors = self.claim_donors(&loose, loose.len());
        let donors = donors.into_iter().map(|donor| self.with_handles(donor)).collect();
        ReleasePlan { donors, spare, segments: Vec::new(), handle_class: class, bytes }
    }

    /// Plain segments that are wholly free, up to `bytes` of them.
    pub(crate) fn plan_release_segments(&mut self, bytes: u64) -> Option<ReleasePlan> {
        self.flush_free_lists(0);
        self.flush_free_lists(1);
        // A granule may hold holes of everybody's and of streams that are through with them.
        self.promote(DEVICE);
        let mut segments = Vec::new();
        let mut left = bytes;
        for index in 0..self.arenas.len() {
            let holes: Vec<Id> = self.order.domain(DEVICE).bins[index].iter(&self.blocks).collect();
            for id in holes {
                let block = *self.blocks.get(id);
                let whole = self.arenas[index].segment_exactly(block.start, block.end());
                if left > 0
                    && let Some(segment) = whole
                {
                    let id = self.cut_out(id, block.start, block.end());
                    self.blocks.at(id).state = State::Busy;
                    left = left.saturating_sub(u64::from(segment.len) << UNIT_SHIFT);
                    segments.push((id, segment));
                }
            }
        }
        let plan = ReleasePlan { donors: Vec::new(), spare: Vec::new(), segments, handle_class: 0, bytes: 0 };
        (!plan.segments.is_empty()).then_some(plan)
    }

    /// Commit a release.
    pub(crate) fn finish_release(&mut self, plan: &ReleasePlan, report: &ReleaseReport) {
        self.counters.calls.add(&report.calls);
        self.counters.unmapped(report.released);
        for (nth, (donor, _, _)) in plan.donors.iter().enumerate() {
            self.release_donor(donor, nth < report.unmapped);
        }
        self.counters.trims += report.calls.release - report.kept.len() as u64;
        self.spare[plan.handle_class].extend(&report.kept);
        for ((id, segment), freed) in plan.segments.iter().zip(&report.freed) {
            let block = *self.blocks.get(*id);
            if !freed {
                self.put_free(*id, DEVICE, 0);
                continue;
            }
            self.counters.trims += 1;
            let arena = &mut self.arenas[usize::from(block.arena).min(LARGE)];
            arena.remove_segment(segment.addr);
            for index in arena.touched(block.start, block.end()) {
                if let Some(granule) = arena.granule_at(index) {
                    granule.handle = 0;
                }
            }
            // The wall behind the segment goes with it.
            if self.blocks.get(block.next).state == State::Wall {
                self.blocks.join(*id, block.next);
            }
            self.put_void(*id);
        }
    }

    /// Commit the pool's own synchronisation, which began at `time`.
    pub(crate) fn finish_sync(&mut self, time: u64, result: Result<(), BackingError>) -> Result<(), AllocError> {
        self.counters.calls.sync += 1;
        self.counters.self_syncs += 1;
        match result {
            Ok(()) => {
                self.order.all_done(time);
                self.reclaim();
                Ok(())
            }
            // Nothing is proven. What can be done without is still tried.
            Err(BackingError::Busy) => Ok(()),
            Err(BackingError::Driver(code)) => Err(AllocError::Driver(code)),
            Err(_) => Err(AllocError::OutOfMemory),
        }
    }
}
