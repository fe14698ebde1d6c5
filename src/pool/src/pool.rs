//! The pool as its users see it: one lock around the core, and the driver calls of a growth made
//! without it. Touches the driver only through the `Backing` that is passed in.

use crate::backing::{Backing, BackingError, Grant, Handle};
use crate::budget::Budget;
use crate::config::Config;
use crate::core::{Core, Want};
use crate::fault::injected;
use crate::growth::{Ladder, Step};
use crate::mempools::{Mempool, MempoolBytes, Reuse};
use crate::mesh::{Leave, Moved};
use crate::migrate::{Exchange, Exchanged};
use crate::order::Proof;
use crate::ranks::{self, Locked, Mutex, Rank};
use crate::shared::{Guarded, give_turn, take_turn};
use crate::stats::{DriverCalls, Hole, Stats};
use crate::{AllocError, Allocation, BlockInfo, Fault, FreeError, Freed, Request};
use std::time::Duration;

/// Address space per byte of device memory, for small and for large blocks.
const SMALL_SPACE: u64 = 2;
const LARGE_SPACE: u64 = 4;

/// How long a thread waits for its turn. Nobody waits for the device while it has the turn, so this is long for the
/// driver calls of all who come before; who has waited for so long does without.
const PATIENCE: Duration = Duration::from_secs(10);

/// The memory of one device. All methods may be called from any thread.
pub struct Pool {
    core: Mutex<Core>,
    /// Whether somebody has the turn.
    turn: Guarded<bool>,
    reservations: [(u64, u64); 2],
}

/// The right to grow; given up when dropped, also if a backing panics. Whoever waits for it holds nothing.
struct Turn<'a> {
    pool: &'a Pool,
    _held: ranks::Held,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pool.lock().turn = false;
        give_turn(&self.pool.turn);
    }
}

/// A device that is stopped; goes on when dropped, also if a backing panics.
struct Stopped<'a, B: Backing> {
    backing: &'a B,
    _held: ranks::Held,
}

impl<'a, B: Backing> Stopped<'a, B> {
    fn by(backing: &'a B) -> Self {
        Self { backing, _held: ranks::take(Rank::Stopped) }
    }
}

impl<B: Backing> Drop for Stopped<'_, B> {
    fn drop(&mut self) {
        self.backing.resume();
    }
}

impl Pool {
    /// A pool for one device. Reserves address space, nothing else.
    pub fn new(config: Config, backing: &impl Backing) -> Result<Self, BackingError> {
        let config = config.sound();
        let chunk = config.large_handle.max(config.small_handle);
        let space = |factor: u64| {
            let bytes = config.device_bytes.saturating_mul(factor).clamp(chunk * 64, 1 << 40);
            bytes.next_multiple_of(2 * chunk)
        };
        let (small, large) = (space(SMALL_SPACE), space(LARGE_SPACE));
        let mut reservations = [(0, small), (0, large)];
        if config.vmm {
            reservations[0].0 = backing.reserve(small, chunk)?;
            match backing.reserve(large, chunk) {
                Ok(addr) => reservations[1].0 = addr,
                Err(error) => {
                    let _ = backing.unreserve(reservations[0].0, small);
                    return Err(error);
                }
            }
        } else {
            // No address space of its own: the numbering of units only has to be large enough.
            reservations = [(0, 1 << 40), (0, 1 << 40)];
        }
        let core = Core::new(config, reservations[0].0, reservations[0].1, reservations[1].0, reservations[1].1);
        Ok(Self { core: Mutex::new(Rank::Pool, core), turn: Guarded::new(Rank::TurnFlag, false), reservations })
    }

    /// The address ranges the pool hands out from; empty without virtual memory management.
    pub fn address_ranges(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        self.reservations.into_iter().filter(|(addr, _)| *addr != 0).map(|(addr, bytes)| addr..addr + bytes)
    }

    #[inline]
    #[track_caller]
    fn lock(&self) -> Locked<'_, Core> {
        self.core.lock_by(crate::lock::lock)
    }

    /// Wait until no other growth is under way. `None`: one did not end in time.
    #[track_caller]
    fn turn(&self) -> Option<Turn<'_>> {
        self.turn_within(PATIENCE)
    }

    #[track_caller]
    fn turn_within(&self, patience: Duration) -> Option<Turn<'_>> {
        if !patience.is_zero() {
            ranks::waiting(Rank::Turn.name());
        }
        if !take_turn(&self.turn, patience) {
            return None;
        }
        let held = ranks::take(Rank::Turn);
        self.lock().turn = true;
        Some(Turn { pool: self, _held: held })
    }

    /// Serve a request within its budget.
    #[inline]
    pub fn allocate(
        &self,
        backing: &impl Backing,
        request: &Request,
        budget: &Budget,
    ) -> Result<Allocation, AllocError> {
        let mut core = self.lock();
        let want = core.want(request)?;
        if let Some(allocation) = core.hit(&want) {
            return Ok(allocation);
        }
        drop(core);
        self.grow(backing, &want, budget)
    }

    /// Serve a request from what is there, or not at all.
    #[inline(always)]
    pub fn allocate_without_driver(&self, request: &Request) -> Result<Option<Allocation>, AllocError> {
        let mut core = self.lock();
        let want = core.want(request)?;
        Ok(core.hit(&want))
    }

    #[cold]
    fn grow(&self, backing: &impl Backing, want: &Want, budget: &Budget) -> Result<Allocation, AllocError> {
        let mut ladder = Ladder::with(budget.effort);
        let mut turn = self.turn().ok_or(AllocError::Busy)?;
        let mut core = self.lock();
        loop {
            let step = core.step(want, &mut ladder);
            drop(core);
            match step {
                Step::Done(allocation) => return Ok(allocation),
                Step::Fail(error) => return Err(error),
                Step::Map(plan) => {
                    let report = plan.run(backing, budget);
                    core = self.lock();
                    if let Some(allocation) = core.finish_map(want, &mut ladder, &plan, report)? {
                        return Ok(allocation);
                    }
                }
                Step::Segment(plan) => {
                    let result = plan.run(backing, budget);
                    core = self.lock();
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
                    core = self.lock();
                }
                Step::Wait(plan) => {
                    let result = plan.run(backing);
                    core = self.lock();
                    if let Some(allocation) = core.finish_wait(want, &plan, result) {
                        return Ok(allocation);
                    }
                }
                Step::Release(plan) => {
                    let report = plan.run(backing);
                    core = self.lock();
                    core.finish_release(&plan, &report);
                }
                Step::Sync(time) => {
                    // Others grow while this thread waits.
                    drop(turn);
                    let result = backing.synchronise();
                    self.lock().finish_sync(time, result)?;
                    turn = self.turn().ok_or(AllocError::Busy)?;
                    core = self.lock();
                }
                Step::Unmesh(leaves) => core = self.unmesh(backing, &leaves),
                Step::Mesh(need) => {
                    drop(turn);
                    self.mesh(backing, need)?;
                    turn = self.turn().ok_or(AllocError::Busy)?;
                    core = self.lock();
                    ladder.retry();
                }
            }
        }
    }

    /// Granules without live bytes leave the handles they share.
    fn unmesh(&self, backing: &impl Backing, leaves: &[Leave]) -> Locked<'_, Core> {
        for leave in leaves {
            let result = leave.run(backing);
            self.lock().finish_leave(leave, result);
        }
        let mut core = self.lock();
        core.finish_mesh();
        core
    }

    /// Stop the device, share handles between sparse granules, let it go on.
    fn mesh(&self, backing: &impl Backing, need: usize) -> Result<(), AllocError> {
        let began = self.lock().order.now;
        let stopped = injected(Fault::MeshWithoutQuiesce) || backing.quiesce() == Ok(true);
        if !stopped {
            return Ok(());
        }
        let _stopped = Stopped::by(backing);
        // Nobody is kept waiting by a device that stands still for want of a turn.
        let Some(_turn) = self.turn_within(Duration::ZERO) else { return Ok(()) };
        let mut core = self.lock();
        if core.order.captures > 0 {
            return Ok(());
        }
        core.counters.calls.sync += 1;
        core.order.all_done(began);
        core.reclaim();
        let (small, large) = (core.config.small_handle, core.config.large_handle);
        // What is lacking counts in the larger handles; mesh a few more, for the stop is what is dear.
        let moves = core.plan_mesh(need.max(1).saturating_mul((large / small) as usize).max(32));
        drop(core);
        let mut calls = DriverCalls::default();
        let mut lost = None;
        for plan in &moves {
            let moved = plan.run(backing, &mut calls);
            if let Moved::Lost(error) = &moved {
                lost = Some(*error);
            }
            self.lock().finish_move(plan, &moved);
        }
        let mut core = self.lock();
        core.counters.calls.add(&calls);
        core.finish_mesh();
        drop(core);
        match lost {
            None => Ok(()),
            Some(BackingError::Driver(code)) => Err(AllocError::Driver(code)),
            Some(_) => Err(AllocError::OutOfMemory),
        }
    }

    /// If the device is idle, exchange the memory behind live blocks for better memory, at most `limit`
    /// bytes of it; what the backing calls better, [`Backing::better`] tells. Pointers and contents
    /// stay, and what is exported stays where it is. Returns the bytes that were exchanged.
    pub fn migrate(&self, backing: &impl Backing, limit: u64) -> Result<u64, BackingError> {
        let core = self.lock();
        if !core.config.vmm || core.order.captures > 0 {
            return Ok(0);
        }
        let began = core.order.now;
        let chunk = core.config.large_handle.max(core.config.small_handle);
        drop(core);
        if !injected(Fault::MigrateWithoutQuiesce) && backing.quiesce_if_idle() != Ok(true) {
            return Ok(0);
        }
        let _stopped = Stopped::by(backing);
        let Some(_turn) = self.turn_within(Duration::ZERO) else { return Ok(0) };
        let mut window = self.lock().window;
        if window == 0 {
            window = backing.reserve(chunk, chunk)?;
            self.lock().window = window;
        }
        let mut core = self.lock();
        if core.order.captures > 0 {
            return Ok(0);
        }
        core.counters.calls.sync += 1;
        if !injected(Fault::MigrateWithoutQuiesce) {
            core.order.all_done(began);
            core.reclaim();
        }
        let plans = core.plan_exchanges();
        drop(core);
        self.exchange(backing, &plans, window, limit)
    }

    /// Most bytes handed out at the same time since the last call of this function.
    pub fn take_recent_peak(&self) -> u64 {
        self.lock().counters.take_recent_peak() << crate::config::UNIT_SHIFT
    }

    /// Bytes of the handles behind live blocks that could be exchanged and are `wanted`.
    pub fn behind_live(&self, wanted: impl Fn(Handle) -> bool) -> u64 {
        let plans = self.lock().plan_exchanges();
        plans.iter().filter(|plan| wanted(plan.old)).map(|plan| plan.bytes).sum()
    }

    fn exchange(
        &self,
        backing: &impl Backing,
        plans: &[Exchange],
        window: u64,
        limit: u64,
    ) -> Result<u64, BackingError> {
        let (mut bytes, mut left, mut calls) = (0, limit, DriverCalls::default());
        let mut problem = None;
        for plan in plans {
            if left == 0 || problem.is_some() {
                break;
            }
            if plan.bytes > left {
                continue;
            }
            let new = match backing.better(plan.old, plan.bytes) {
                Ok(Some(new)) => new,
                Ok(None) => continue,
                Err(_) => break,
            };
            calls.create += 1;
            left -= plan.bytes;
            let exchanged = plan.run(backing, window, new, &mut calls);
            match &exchanged {
                Exchanged::Yes => bytes += plan.bytes,
                Exchanged::No => {}
                Exchanged::Stuck => left = 0,
                Exchanged::Lost(error) => problem = Some(*error),
            }
            let gone = self.lock().finish_exchange(plan, new, &exchanged);
            if let Some(handle) = gone {
                calls.release += 1;
                let released = backing.release(handle, plan.bytes).is_ok();
                self.lock().finish_exchanged(plan, handle, released);
            }
        }
        self.lock().counters.calls.add(&calls);
        problem.map_or(Ok(bytes), Err)
    }

    /// Take back a block synchronously (`cuMemFree`): lazily, its bytes wait for a synchronisation.
    #[inline]
    pub fn free(&self, backing: &impl Backing, addr: u64) -> Result<Freed, FreeError> {
        self.free_noting(backing, addr, |_| ())
    }

    /// The same; `note` is called before anybody can get the block again. It runs under the pool's lock.
    #[inline]
    pub fn free_noting(
        &self,
        backing: &impl Backing,
        addr: u64,
        note: impl FnOnce(&Freed),
    ) -> Result<Freed, FreeError> {
        let mut core = self.lock();
        let freed = core.free(addr, None, |_| ());
        if let Ok(freed) = &freed {
            note(freed);
        }
        if core.config.lazy || core.order.captures > 0 || freed.is_err() {
            return freed;
        }
        let time = core.order.now;
        drop(core);
        let result = backing.synchronise();
        let _ = self.lock().finish_sync(time, result);
        freed
    }

    /// Take back a block in the order of a stream (`cuMemFreeAsync`).
    #[inline]
    pub fn free_async(&self, addr: u64, stream: u64, context: u64) -> Result<Freed, FreeError> {
        self.free_async_noting(addr, stream, context, |_| (), |_| ())
    }

    /// The same; `note` is called before anybody can get the block again. It runs under the pool's lock.
    #[inline(always)]
    pub fn free_async_noting(
        &self,
        addr: u64,
        stream: u64,
        context: u64,
        going: impl FnOnce(usize),
        note: impl FnOnce(&Freed),
    ) -> Result<Freed, FreeError> {
        let mut core = self.lock();
        let freed = core.free(addr, Some((stream, context)), going)?;
        note(&freed);
        Ok(freed)
    }

    /// The live block that holds `addr`.
    #[inline]
    pub fn lookup(&self, addr: u64) -> Option<BlockInfo> {
        self.lock().lookup(addr)
    }

    /// Change the caller's word of the live block that starts at `addr`.
    pub fn set_tag(&self, addr: u64, tag: u16) -> Result<(), FreeError> {
        let mut core = self.lock();
        let id = core.live_at(addr, |_| ()).ok_or(FreeError::Unknown)?;
        core.blocks.at(id).tag = tag;
        Ok(())
    }

    /// All live blocks, in no particular order.
    pub fn live(&self) -> Vec<BlockInfo> {
        let core = self.lock();
        (1..core.blocks.len())
            .filter(|id| core.blocks.get(*id).state == crate::block::State::Live)
            .map(|id| core.info(id))
            .collect()
    }

    /// The block that starts at `addr` is exported: it stays where it is, and its bytes are not reused,
    /// until it is unpinned as often as it was pinned.
    pub fn pin(&self, addr: u64) -> Result<(), FreeError> {
        // Nothing moves while it is being pinned.
        let _turn = self.turn().ok_or(FreeError::Busy)?;
        self.lock().pin(addr, true)
    }

    /// Undo one `pin`.
    pub fn unpin(&self, addr: u64) -> Result<(), FreeError> {
        self.lock().pin(addr, false)
    }

    /// A context was created.
    pub fn context_created(&self, context: u64) {
        self.lock().order.context_created(context);
    }

    /// A context was destroyed or reset, and its work with it. Returns the blocks it had not freed.
    pub fn context_destroyed(&self, backing: &impl Backing, context: u64) -> Vec<BlockInfo> {
        self.context_destroyed_noting(backing, context, |_| ())
    }

    /// The same; `note` is called for each block before anybody can get it again. It runs under the pool's lock.
    pub fn context_destroyed_noting(
        &self,
        backing: &impl Backing,
        context: u64,
        note: impl FnMut(&BlockInfo),
    ) -> Vec<BlockInfo> {
        let mut core = self.lock();
        let (blocks, fences) = core.context_destroyed(context);
        blocks.iter().for_each(note);
        drop(core);
        for fence in fences {
            backing.fence_drop(fence);
        }
        blocks
    }

    /// A synchronisation of a whole context is about to be called.
    pub fn sync_began(&self, context: u64) -> Proof {
        self.lock().order.begin_context(context)
    }

    /// It has returned.
    pub fn sync_ended(&self, proof: Proof, ok: bool) {
        let mut core = self.lock();
        if core.order.end_proof(proof, ok) {
            core.reclaim();
            core.mempools.synchronised();
        }
    }

    /// A stream exists.
    pub fn stream_created(&self, stream: u64, context: u64) {
        let mut core = self.lock();
        let context = core.order.context(context);
        core.order.stream(stream, context);
    }

    /// A stream was destroyed; its queued work may still run.
    pub fn stream_destroyed(&self, backing: &impl Backing, stream: u64) {
        let fences = self.lock().stream_destroyed(stream, false);
        for fence in fences {
            backing.fence_drop(fence);
        }
    }

    /// A stream is about to be synchronised with, or asked whether it is idle.
    pub fn stream_sync_began(&self, stream: u64) -> Proof {
        self.lock().order.begin_stream(stream)
    }

    /// The call has returned: `idle` if everything queued before it has finished.
    pub fn stream_sync_ended(&self, proof: Proof, idle: bool) {
        // Jobs ask again and again whether work has finished; until it has, there is nothing to learn.
        if idle {
            let mut core = self.lock();
            core.order.end_proof(proof, true);
            core.mempools.synchronised();
        }
    }

    /// An event is about to be recorded on a stream.
    pub fn event_record_began(&self, event: u64, stream: u64) -> Proof {
        self.lock().order.begin_record(event, stream)
    }

    /// It was recorded, or not.
    pub fn event_recorded(&self, proof: Proof, ok: bool) {
        self.lock().order.end_record(proof, ok);
    }

    /// A stream is about to be made to wait for an event, or the host is about to wait for it or to query it.
    pub fn event_use_began(&self, event: u64) -> Proof {
        self.lock().order.begin_event(event)
    }

    /// The stream waits for the event now.
    pub fn event_waited(&self, proof: Proof, stream: u64, context: u64, ok: bool) {
        self.lock().order.end_wait(proof, stream, context, ok);
    }

    /// The host has seen the event finished (`done`), or not.
    pub fn event_synced(&self, proof: Proof, done: bool) {
        self.stream_sync_ended(proof, done);
    }

    /// An event was destroyed.
    pub fn event_destroyed(&self, event: u64) {
        self.lock().order.event_destroyed(event);
    }

    /// A stream began to be captured: no synchronisation, fence or mesh until no capture is under way.
    pub fn capture_began(&self, stream: u64, context: u64) {
        self.lock().order.capture(stream, context, true);
    }

    /// The capture ended.
    pub fn capture_ended(&self, stream: u64, context: u64) {
        self.lock().order.capture(stream, context, false);
    }

    /// Another device may reach this memory from now on: what is mapped and what will be.
    pub fn grant(&self, backing: &impl Backing, grant: Grant) -> Result<(), BackingError> {
        self.grant_within(backing, grant, PATIENCE)
    }

    /// The same on a pool that nobody grows: an error if somebody does.
    pub fn grant_at_once(&self, backing: &impl Backing, grant: Grant) -> Result<(), BackingError> {
        self.grant_within(backing, grant, Duration::ZERO)
    }

    fn grant_within(&self, backing: &impl Backing, grant: Grant, patience: Duration) -> Result<(), BackingError> {
        let _turn = self.turn_within(patience).ok_or(BackingError::Busy)?;
        let mut core = self.lock();
        core.grants.retain(|known| known.device != grant.device);
        core.grants.push(grant);
        let (runs, grants) = (core.mapped_runs(), core.grants.clone());
        drop(core);
        for (addr, bytes) in runs {
            let result = backing.set_access(addr, bytes, &grants);
            self.lock().counters.calls.set_access += 1;
            result?;
        }
        Ok(())
    }

    /// Another device may no longer reach this memory: what will be mapped, and where `idle`, which says that no
    /// work of that device is under way, what is mapped too.
    pub fn revoke(&self, backing: &impl Backing, device: i32, idle: bool) -> Result<(), BackingError> {
        let turn = self.turn();
        let mut core = self.lock();
        core.grants.retain(|known| known.device != device);
        if turn.is_none() {
            return Err(BackingError::Busy);
        }
        let runs = if idle { core.mapped_runs() } else { Vec::new() };
        drop(core);
        for (addr, bytes) in runs {
            let result = backing.end_access(addr, bytes, device);
            self.lock().counters.calls.set_access += 1;
            result?;
        }
        Ok(())
    }

    /// A mempool of the job's own. `None`: there are too many.
    pub fn mempool_created(&self) -> Option<Mempool> {
        self.lock().mempools.create()
    }

    /// A mempool of another pool is known here under the same name, so that blocks of both can have it.
    pub fn mempool_mirrored(&self, mempool: Mempool, reuse: Reuse) {
        self.lock().mempools.mirror(mempool, reuse);
    }

    /// The job destroyed a mempool; its blocks live on until they are freed.
    pub fn mempool_destroyed(&self, mempool: Mempool) {
        if let Some(owner) = self.lock().mempools.at(mempool) {
            owner.alive = false;
        }
    }

    /// Set the reuse attributes of a mempool.
    pub fn set_reuse(&self, mempool: Mempool, reuse: Reuse) {
        if let Some(owner) = self.lock().mempools.at(mempool) {
            owner.reuse = reuse;
        }
    }

    /// The reuse attributes of a mempool.
    pub fn reuse(&self, mempool: Mempool) -> Reuse {
        self.lock().mempools.get(mempool).map_or(Reuse::default(), |owner| owner.reuse)
    }

    /// Bytes that a mempool keeps at a synchronisation.
    pub fn set_release_threshold(&self, mempool: Mempool, bytes: u64) {
        if let Some(owner) = self.lock().mempools.at(mempool) {
            owner.threshold = bytes;
        }
    }

    /// Bytes that a mempool keeps at a synchronisation.
    pub fn release_threshold(&self, mempool: Mempool) -> u64 {
        self.lock().mempools.get(mempool).map_or(0, |owner| owner.threshold)
    }

    /// Bytes of a mempool.
    pub fn mempool_bytes(&self, mempool: Mempool) -> MempoolBytes {
        self.lock().mempools.get(mempool).map_or(MempoolBytes::default(), |owner| owner.bytes)
    }

    /// Start the high mark of what a mempool has handed out anew.
    pub fn reset_used_high(&self, mempool: Mempool) {
        if let Some(owner) = self.lock().mempools.at(mempool) {
            owner.bytes.used_high = owner.bytes.used;
        }
    }

    /// Start the high mark of what a mempool holds anew.
    pub fn reset_reserved_high(&self, mempool: Mempool) {
        if let Some(owner) = self.lock().mempools.at(mempool) {
            owner.bytes.reserved_high = owner.bytes.reserved;
        }
    }

    /// A mempool shall keep at most `keep` bytes beyond need; free memory goes back to the driver accordingly.
    pub fn trim_mempool(&self, backing: &impl Backing, mempool: Mempool, keep: u64) -> u64 {
        let mut core = self.lock();
        let before = core.mempools.get(mempool).map_or(0, |owner| owner.bytes.reserved);
        if let Some(owner) = core.mempools.at(mempool) {
            owner.shrink(keep);
        }
        let after = core.mempools.get(mempool).map_or(0, |owner| owner.bytes.reserved);
        let target = core.counters.mapped_bytes.saturating_sub(before.saturating_sub(after));
        drop(core);
        self.trim_to(backing, target)
    }

    /// Give proven free memory back to the driver until at most `keep` bytes are held. Returns the released bytes.
    pub fn trim_to(&self, backing: &impl Backing, keep: u64) -> u64 {
        let Some(_turn) = self.turn() else { return 0 };
        let mut core = self.lock();
        let mut released = 0;
        if let Some(leaves) = core.plan_unmesh() {
            drop(core);
            core = self.unmesh(backing, &leaves);
        }
        for class in [1, 0] {
            let surplus = core.counters.mapped_bytes.saturating_sub(keep);
            let handle = if class == 0 { core.config.small_handle } else { core.config.large_handle };
            let plan = if core.config.vmm {
                Some(core.plan_trim(class, usize::try_from(surplus / handle).unwrap_or(usize::MAX)))
            } else {
                core.plan_release_segments(surplus)
            };
            let Some(plan) = plan else { continue };
            drop(core);
            let report = plan.run(backing);
            core = self.lock();
            core.finish_release(&plan, &report);
            released += report.released;
        }
        released
    }

    /// Give proven free memory back to the driver, but only handles that are `wanted`. Returns the released bytes.
    pub fn trim_handles(&self, backing: &impl Backing, wanted: impl Fn(Handle) -> bool) -> u64 {
        let Some(_turn) = self.turn() else { return 0 };
        let mut core = self.lock();
        let mut released = 0;
        for class in [1, 0].into_iter().filter(|_| core.config.vmm).collect::<Vec<usize>>() {
            let plan = core.plan_release_of(class, &wanted);
            drop(core);
            let report = plan.run(backing);
            core = self.lock();
            core.finish_release(&plan, &report);
            released += report.released;
        }
        released
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        self.lock().stats()
    }

    /// Holes, for the report about an allocation that failed; at most `limit`.
    pub fn holes(&self, limit: usize) -> Vec<Hole> {
        self.lock().holes(limit)
    }

    /// Check every invariant that can be checked from inside; the message names the first that is broken.
    pub fn check(&self) -> Result<(), String> {
        self.lock().check()
    }
}
