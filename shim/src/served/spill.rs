//! Spilling: what does not fit under the cap gets host memory behind an ordinary device pointer.
//!
//! The spill of a device is a pool of its own, beside the one that serves the device: its handles are memory of the
//! host's NUMA node, mapped for the device like any other, and everything that holds for the pool holds for it. Where
//! the device cannot map host memory it has one for each context instead, made of managed memory that prefers the host.
//!
//! What was spilled comes back when the job itself waits for its work, finds the device idle, and there is room: handle by
//! handle the bytes are copied into device memory, which takes the host memory's place at the same address.

use super::driver::Driver;
use super::quiet::Relaxed;
use super::{Served, device_attribute, install, pools, work};
use crate::caps::spill;
use crate::job;
use crate::recorder::physical;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_cuda::CUdevice_attribute;
use weir_pool::{Allocation, Request};

/// Handles that come back at one time: how long the job waits for it is bounded.
const BATCH: usize = 32;
/// Host memory that nobody has needed for so long goes back.
const KEPT: Duration = Duration::from_secs(10);

/// Bytes of all handles that the spills of all devices hold.
static HELD: AtomicU64 = AtomicU64::new(0);
/// When something was spilled last.
static LAST: Mutex<Option<Instant>> = Mutex::new(None);
static MAKING: Mutex<()> = Mutex::new(());

/// A handle of a spill came or went.
pub(super) fn held(bytes: u64, more: bool) {
    if more {
        HELD.fetch_add(bytes, Ordering::AcqRel)
    } else {
        HELD.fetch_sub(bytes, Ordering::AcqRel)
    };
}

/// The spill beside the pool of a device, if there is one.
fn beside(served: &Served, ctx: u64) -> Option<&'static Served> {
    let own = |spill: &&Served| spill.host && spill.ordinal == served.ordinal;
    pools().filter(own).find(|spill| spill.mapped() || spill.driver.owner == ctx)
}

/// Serves a request from host memory that the spill holds unused.
pub(crate) fn again(served: &Served, request: &Request) -> Option<Allocation> {
    let spill = beside(served, request.context)?;
    let block = spill.pool.allocate_without_driver(request).ok()??;
    spilled(spill, &block);
    Some(block)
}

/// Serves a request from host memory, the last thing that can be done for it.
pub(crate) fn anew(served: &Served, request: &Request) -> Option<Allocation> {
    if !spill::wanted(served.ordinal, request.bytes) || spill::limit() == 0 {
        return None;
    }
    let spill = beside(served, request.context).or_else(|| make(served, request.context))?;
    spill.pool.mempool_mirrored(request.mempool, served.pool.reuse(request.mempool));
    let block = spill.pool.allocate(&spill.driver, request).ok()?;
    spilled(spill, &block);
    Some(block)
}

fn spilled(spill: &Served, block: &Allocation) {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    physical::spilled(spill.ordinal, block.addr, block.bytes, block.given);
}

#[cold]
fn make(served: &Served, ctx: u64) -> Option<&'static Served> {
    type A = CUdevice_attribute;
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = beside(served, ctx) {
        return Some(known);
    }
    let _relaxed = Relaxed::enter();
    let has = |attribute| device_attribute(served.ordinal, attribute) == Some(1);
    let mut config = job::active()?.config.pool.config(spill::limit(), spill::limit());
    // Memory is exchanged handle by handle.
    [config.small_handle, config.large_handle] = served.handles;
    // Nothing is gained by stopping the device for host memory.
    config.mesh = false;
    let maps = served.mapped() && has(A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    let spill = if maps {
        let driver = Driver::spilling(served.ordinal, 0);
        let least = driver.granularity()?.max(served.driver.granularity()?);
        config.small_handle = config.small_handle.max(least);
        config.large_handle = config.large_handle.max(config.small_handle);
        install(served.ordinal, driver, config, true)
    } else if has(A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) {
        config.vmm = false;
        install(served.ordinal, Driver::spilling(served.ordinal, ctx), config, true)
    } else {
        // Such managed memory would move to the device in whole whenever the device works.
        None
    };
    if spill.is_none() {
        job::remember("a device has no spill: what does not fit is refused");
    }
    spill
}

/// The job has waited for work, of a whole context (`whole`) or of a stream: what was spilled comes back, if it can.
#[inline]
pub(crate) fn come_back(whole: bool) {
    if HELD.load(Ordering::Acquire) > 0 {
        look(whole);
    }
}

#[cold]
fn look(whole: bool) {
    // A stream of another thread's own can't be asked whether it is idle, only waited for: the job has to have done so.
    if !whole && work::threads_have_streams() {
        return;
    }
    for spill in pools().filter(|served| served.host && served.mapped()) {
        give_way(spill);
        if spill.pool.stats().given_bytes == 0 {
            let last = *LAST.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_none_or(|last| last.elapsed() > KEPT) {
                spill.pool.trim_to(&spill.driver, 0);
            }
            continue;
        }
        fetch(spill);
    }
}

/// Device memory that had come to a spill and is free there goes back, for everybody to have. Returns the bytes.
fn give_way(spill: &Served) -> u64 {
    let near = spill.driver.near();
    if near.is_empty() { 0 } else { spill.pool.trim_handles(&spill.driver, |handle| near.contains(&handle)) }
}

/// The same for the spill beside a pool. False: there was none to be had.
pub(crate) fn gave_way(served: &Served, ctx: u64) -> bool {
    beside(served, ctx).is_some_and(|spill| give_way(spill) > 0)
}

fn fetch(spill: &Served) {
    let [least, most] = spill.handles;
    let near = spill.driver.near();
    let away = spill.pool.behind_live(|handle| !near.contains(&handle));
    let room = spill::room(spill.ordinal);
    let serving = pools().find(|served| !served.host && served.ordinal == spill.ordinal && served.mapped());
    let cached = serving.map_or(0, Served::reusable);
    if away == 0 || room.saturating_add(cached) < least {
        return;
    }
    // What the job has freed on the device is room too, and free once the device is seen to be idle.
    if let Some(serving) = serving.filter(|_| room < away) {
        if !serving.settle_if_idle() {
            return;
        }
        let lacking = (away - room).next_multiple_of(most);
        let given = serving.pool.trim_to(&serving.driver, serving.pool.stats().mapped_bytes.saturating_sub(lacking));
        physical::trimmed(serving.ordinal, given);
    }
    if spill::room(spill.ordinal) < least {
        return;
    }
    match spill.pool.rehouse(&spill.driver, BATCH) {
        Ok(bytes) => physical::came_back(spill.ordinal, bytes),
        Err(_) => job::remember("what was spilled could not come back"),
    }
}

/// A context is gone: what nobody uses any more goes back to the host.
pub(crate) fn context_left() {
    for spill in pools().filter(|served| served.host && served.mapped()) {
        spill.pool.trim_to(&spill.driver, 0);
    }
}
