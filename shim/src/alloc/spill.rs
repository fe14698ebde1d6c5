//! Spilling: what does not fit under the cap gets host memory behind an ordinary device pointer.
//!
//! The spill of a device is a pool of its own, beside the one that serves the device: its handles are memory of the
//! host's NUMA node, mapped for the device like any other, and everything that holds for the pool holds for it. Where
//! the device cannot map host memory it has one for each context instead, made of managed memory that prefers the host.
//!
//! What was spilled comes back when the job itself waits for its work, finds the device idle, and there is room that it has
//! not needed for a while (`returns.rs`): handle by handle the bytes are copied into device memory, which takes the host
//! memory's place at the same address.

use super::backing::Driver;
use super::charge::full;
use super::construction::{install, making};
use super::returns::{MARGIN, Outcome, Returns, WORTH};
use super::{DevicePool, pools};
use crate::cap::{spill, wake};
use crate::driver::guards::RelaxedCapture;
use crate::driver::real::device_attribute;
use crate::driver::{DEVICES, work};
use crate::process::job;
use crate::record::physical;
use core::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_cuda::CUdevice_attribute;
use weir_pool::ranks::{Locked, Mutex, Rank};
use weir_pool::{AllocError, Allocation, Budget, Config, Effort, Request, Stats};

/// Host memory that nobody has needed for so long goes back.
const KEPT: Duration = Duration::from_secs(10);

/// Bytes of all handles that the spills of all devices hold.
static HELD: AtomicU64 = AtomicU64::new(0);
/// Waits of the job for its work while there is a spill.
static WAITS: AtomicU64 = AtomicU64::new(0);
/// The first of them at which a look may be due.
static DUE: AtomicU64 = AtomicU64::new(0);
/// When the memory of each device comes back. Never held at a driver call.
static RETURNS: [Mutex<Returns>; DEVICES] = [const { Mutex::new(Rank::Returns, Returns::new()) }; DEVICES];
/// When something was spilled last.
static LAST: Mutex<Option<Instant>> = Mutex::new(Rank::Spilled, None);

/// A handle of a spill came or went.
pub(super) fn held(bytes: u64, more: bool) {
    if more {
        HELD.fetch_add(bytes, Ordering::AcqRel)
    } else {
        HELD.fetch_sub(bytes, Ordering::AcqRel)
    };
}

fn returns(ordinal: i32) -> Option<Locked<'static, Returns>> {
    let returns = RETURNS.get(usize::try_from(ordinal).ok()?)?;
    Some(returns.lock())
}

/// The spill beside the pool of a device, if there is one.
fn beside(device_pool: &DevicePool, ctx: u64) -> Option<&'static DevicePool> {
    let own = |spill: &&DevicePool| spill.host && spill.ordinal == device_pool.ordinal;
    pools().filter(own).find(|spill| spill.mapped() || spill.driver.owner == ctx)
}

/// Serves a request of a job that spills: from the device, from host memory that is there unused, or, while waiting for the
/// device was of no use to the last ones, from new host memory. Refused: there is no memory at hand, although the
/// device was waited for.
pub(crate) fn serve(device_pool: &DevicePool, request: &Request, budget: &Budget) -> Result<Allocation, AllocError> {
    let mut answer = at_hand(device_pool, request, budget);
    if !full(&answer) {
        return answer;
    }
    let unproven = both(device_pool, request.context).map(|of| unproven(&of.pool.stats())).sum::<u64>();
    let worth = unproven >= request.bytes.max(spill::room(device_pool.ordinal).0 / WORTH);
    let waits = returns(device_pool.ordinal).is_none_or(|mut returns| returns.waits_first(worth));
    if let Some(block) = if waits { None } else { anew(device_pool, request) } {
        return Ok(block);
    }
    if prove_idle(device_pool, request.context) {
        answer = at_hand(device_pool, request, budget);
    }
    if full(&answer) {
        answer = device_pool.pool.allocate(&device_pool.driver, request, budget);
    }
    if let Some(mut returns) = returns(device_pool.ordinal) {
        returns.waited(!full(&answer));
    }
    answer
}

/// Serves a request without waiting for the device or taking host memory.
fn at_hand(device_pool: &DevicePool, request: &Request, budget: &Budget) -> Result<Allocation, AllocError> {
    let budget = Budget { effort: Effort::WithoutWait, tiny: budget.tiny, ..Budget::default() };
    let at_once = || device_pool.pool.allocate(&device_pool.driver, request, &budget);
    let mut answer = at_once();
    if full(&answer) && beside(device_pool, request.context).is_some_and(|spill| give_way(spill) > 0) {
        answer = at_once();
    }
    if full(&answer) { again(device_pool, request).map_or(answer, Ok) } else { answer }
}

/// Serves a request from host memory that the spill holds unused.
fn again(device_pool: &DevicePool, request: &Request) -> Option<Allocation> {
    let spill = beside(device_pool, request.context)?;
    let block = spill.pool.allocate_without_driver(request).ok()??;
    spilled(device_pool, &block);
    Some(block)
}

/// The pool of a device and the spill beside it.
fn both(device_pool: &DevicePool, ctx: u64) -> impl Iterator<Item = &DevicePool> {
    [Some(device_pool), beside(device_pool, ctx)].into_iter().flatten()
}

/// Free bytes of a pool that may become reusable by waiting for the device.
fn unproven(stats: &Stats) -> u64 {
    stats.deferred_bytes + stats.stream_free_bytes
}

/// Waits for the device if that could show that freed memory is free, here or in the spill. False: it could not.
fn prove_idle(device_pool: &DevicePool, ctx: u64) -> bool {
    let waiting = both(device_pool, ctx).filter(|of| unproven(&of.pool.stats()) > 0);
    let proofs: Vec<_> = waiting.map(|of| (of, of.proofs())).collect();
    let waited = !proofs.is_empty() && device_pool.driver.wait_for_all().is_ok();
    for (of, proofs) in proofs {
        for proof in proofs {
            of.pool.ended(proof, waited);
        }
    }
    waited
}

/// Serves a request from host memory, the last thing that can be done for it.
pub(crate) fn anew(device_pool: &DevicePool, request: &Request) -> Option<Allocation> {
    if !spill::wanted(device_pool.ordinal, request.bytes) || spill::limit() == 0 {
        return None;
    }
    let spill = beside(device_pool, request.context).or_else(|| make(device_pool, request.context))?;
    spill.pool.mempool_mirrored(request.mempool, device_pool.pool.mempool_reuse(request.mempool));
    let block = spill.pool.allocate(&spill.driver, request, &Budget::default()).ok()?;
    spilled(device_pool, &block);
    Some(block)
}

fn spilled(device_pool: &DevicePool, block: &Allocation) {
    *LAST.lock() = Some(Instant::now());
    physical::spilled(device_pool.ordinal, block.addr, block.bytes, block.allocated);
    // The device is full now; from here on it is watched how much of it the job needs.
    device_pool.pool.take_recent_peak();
    if let Some(mut returns) = returns(device_pool.ordinal) {
        returns.spilled(WAITS.load(Ordering::Relaxed));
        DUE.fetch_min(returns.due(), Ordering::Relaxed);
    }
}

#[cold]
fn make(device_pool: &DevicePool, ctx: u64) -> Option<&'static DevicePool> {
    type A = CUdevice_attribute;
    let _making = making()?;
    if let Some(known) = beside(device_pool, ctx) {
        return Some(known);
    }
    let _relaxed = RelaxedCapture::enter();
    let has = |attribute| device_attribute(device_pool.ordinal, attribute) == Some(1);
    let mut config = Config::switched(&job::active()?.config.pool, spill::limit(), spill::limit());
    // Memory is exchanged handle by handle.
    [config.small_handle, config.large_handle] = device_pool.handles;
    // Nothing is gained by stopping the device for host memory.
    config.mesh = false;
    let maps = device_pool.mapped() && has(A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    let spill = if maps {
        let driver = Driver::spilling(device_pool.ordinal, 0, device_pool.driver.traits);
        let least = driver.granularity()?.max(device_pool.driver.granularity()?);
        config.small_handle = config.small_handle.max(least);
        config.large_handle = config.large_handle.max(config.small_handle);
        install(device_pool.ordinal, driver, config, true)
    } else if has(A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) {
        config.vmm = false;
        install(
            device_pool.ordinal,
            Driver::spilling(device_pool.ordinal, ctx, device_pool.driver.traits),
            config,
            true,
        )
    } else {
        // Such managed memory would move to the device in whole whenever the device works.
        None
    };
    if spill.is_none() {
        job::remember("a device has no spill: what does not fit is refused");
    }
    spill
}

/// The job has waited for work, of a whole context (`whole`) or of a stream: what was spilled comes back, if it is time.
#[inline]
pub(crate) fn come_back(whole: bool) {
    wake::waited();
    if HELD.load(Ordering::Relaxed) > 0 {
        let now = WAITS.fetch_add(1, Ordering::Relaxed) + 1;
        if whole || now >= DUE.load(Ordering::Relaxed) {
            look(whole, now);
        }
    }
}

#[cold]
fn look(whole: bool, now: u64) {
    // A stream of another thread's own can't be queried, only waited for: the job has to have done so.
    if !whole && work::threads_have_streams() {
        return;
    }
    let mut due = u64::MAX;
    for spill in pools().filter(|device_pool| device_pool.host && device_pool.mapped()) {
        give_way(spill);
        if spill.pool.stats().allocated_bytes == 0 {
            let last = *LAST.lock();
            if last.is_none_or(|last| last.elapsed() > KEPT) {
                spill.pool.trim_to(&spill.driver, 0);
            }
        }
        let (cap, _) = spill::room(spill.ordinal);
        let most = returns(spill.ordinal).and_then(|mut returns| returns.look(now, cap));
        let outcome = most.map(|most| fetch(spill, most));
        if let Some(mut returns) = returns(spill.ordinal) {
            if let Some(outcome) = outcome {
                returns.looked(now, outcome);
            }
            due = due.min(returns.due());
        }
    }
    DUE.store(due, Ordering::Relaxed);
}

/// Device memory that had come to a spill and is free there goes back, for everybody to have. Returns the bytes.
fn give_way(spill: &DevicePool) -> u64 {
    let near = spill.driver.near();
    if near.is_empty() { 0 } else { spill.pool.trim_handles(&spill.driver, |handle| near.contains(&handle)) }
}

/// Lets up to `most` bytes come back into room that the job has not needed since the last look.
fn fetch(spill: &DevicePool, most: u64) -> Outcome {
    let [least, _] = spill.handles;
    let near = spill.driver.near();
    let away = spill.pool.migratable(|handle| !near.contains(&handle));
    let serving =
        pools().find(|device_pool| !device_pool.host && device_pool.ordinal == spill.ordinal && device_pool.mapped());
    // What the job held in the meantime and will hold again.
    let needed = serving.map_or(0, |serving| {
        let peak = serving.pool.take_recent_peak();
        peak.saturating_sub(serving.pool.stats().allocated_bytes)
    });
    if away == 0 {
        return Outcome::Later;
    }
    let (cap, room) = spill::room(spill.ordinal);
    let free = room.saturating_add(serving.map_or(0, DevicePool::reusable));
    let spare = free.saturating_sub(cap / MARGIN);
    if spare < least {
        return Outcome::InVain;
    }
    let wanted = away.min(most).min(spare.saturating_sub(needed));
    if wanted < least {
        return Outcome::Later;
    }
    if let Some(serving) = serving {
        give(serving, wanted);
        // What was freed and is not yet known to be free is, once the device is seen to be idle.
        if spill::room(spill.ordinal).1 < least && serving.prove_if_idle() {
            give(serving, wanted);
        }
    }
    let wanted = wanted.min(spill::room(spill.ordinal).1);
    if wanted < least {
        return Outcome::InVain;
    }
    match spill.pool.migrate(&spill.driver, wanted) {
        Ok(0) => Outcome::InVain,
        Ok(bytes) => {
            physical::came_back(spill.ordinal, bytes);
            Outcome::Copied(bytes)
        }
        Err(_) => {
            job::remember("what was spilled could not come back");
            Outcome::InVain
        }
    }
}

/// A pool gives back what it does not use, until so much is free under the cap.
fn give(serving: &DevicePool, wanted: u64) {
    let (_, room) = spill::room(serving.ordinal);
    let [_, most] = serving.handles;
    let lacking = wanted.saturating_sub(room).next_multiple_of(most);
    if lacking > 0 {
        let held = serving.pool.stats().mapped_bytes;
        physical::trimmed(serving.ordinal, serving.pool.trim_to(&serving.driver, held.saturating_sub(lacking)));
    }
}

/// A context is gone: what nobody uses any more goes back to the host.
pub(crate) fn context_left() {
    for spill in pools().filter(|device_pool| device_pool.host && device_pool.mapped()) {
        spill.pool.trim_to(&spill.driver, 0);
    }
}
