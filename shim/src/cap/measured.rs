//! Memory of which only the driver knows the size: what its own mempools hold in reserve, and what its graphs keep (`graphs.rs`).
//!
//! Both are charged by the driver's figure, read again whenever it matters. A call that may let one grow reserves the
//! most that it could grow by, and the charge is corrected by what was really taken when it has returned. No lock is held
//! at a driver call: others may be under way beside it. Each charge has a stamp, which changes with it and whenever a call
//! returns that may have let it grow; a figure counts only if the stamp is the same as before it was read.

use super::watch::Change;
use super::{CapDevice, Caps, Fact, PAGE, graphs, lock, on};
use crate::driver::graph_memory;
use crate::driver::guards::RelaxedCapture;
use crate::driver::real::{self, done};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use weir_cuda::*;
use weir_ledger::{Category, DeviceId};

/// The driver lets a mempool grow by so much at a time, where the device has it.
const GROWTH: u64 = 32 << 20;
/// How often a figure is read again because something has changed meanwhile. Each time, another thread has come on.
pub(super) const RETRIES: u32 = 64;

/// A mempool of the driver's.
#[derive(Clone, Copy, Default)]
struct Reserve {
    ordinal: i32,
    charged: u64,
    /// No other mempool has the same, nor this one after a change.
    stamp: u64,
    /// Calls that may let it grow and have not returned. What they may take is reserved besides `charged`.
    growing: u32,
    /// Calls of weir's own with its handle. The driver does not destroy it meanwhile.
    uses: u32,
    /// The job has destroyed it, and the driver will once it holds nothing.
    destroyed: bool,
}

impl Reserve {
    /// Whether the driver may destroy it now.
    fn is_over(&self) -> bool {
        self.destroyed && self.charged == 0 && self.uses == 0 && self.growing == 0
    }
}

/// What is charged by the driver's figures.
#[derive(Default)]
pub(crate) struct Measured {
    mempools: HashMap<u64, Reserve>,
    stamps: u64,
    pub(super) graphs: HashMap<i32, graphs::Graphs>,
    /// Instantiated graphs that allocate or free.
    pub(super) execs: HashMap<u64, Vec<graphs::Need>>,
}

/// Mempools that the job has destroyed and the driver has not.
static DESTROYED: AtomicUsize = AtomicUsize::new(0);

fn reserved(pool: u64) -> Option<u64> {
    let _relaxed = RelaxedCapture::enter();
    let mut bytes = 0_u64;
    let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    // SAFETY: the place is a live local of the attribute's type; the mempool is one that the job uses.
    done(unsafe { real::cuMemPoolGetAttribute(pool as CUmemoryPool, attribute, (&raw mut bytes).cast()) }).ok()?;
    Some(bytes)
}

impl Measured {
    /// The mempool of this handle, a new one where none is known.
    fn enter(&mut self, pool: u64, ordinal: i32) -> &mut Reserve {
        self.stamps += 1;
        let stamp = self.stamps;
        self.mempools.entry(pool).or_insert(Reserve { ordinal, stamp, ..Reserve::default() })
    }

    /// The driver `holds` so much in a mempool, read when its stamp was `stamp`. `Err`: something has changed since. Else
    /// what was charged before, if that was another amount.
    fn correct(&mut self, pool: u64, stamp: u64, holds: u64) -> Result<Option<u64>, ()> {
        let Some(reserve) = self.mempools.get_mut(&pool) else { return Ok(None) };
        if reserve.stamp != stamp {
            return Err(());
        }
        // What grows meanwhile is reserved by the call that lets it grow.
        if holds == reserve.charged || (reserve.growing > 0 && holds > reserve.charged) {
            return Ok(None);
        }
        self.stamps += 1;
        reserve.stamp = self.stamps;
        Ok(Some(std::mem::replace(&mut reserve.charged, holds)))
    }

    /// A call has returned that may have let a mempool grow, by no more than it had `reserved`. The driver `holds` so much
    /// in it, read when its stamp was `stamp`; `None`: nobody knows. `Err`: something has changed since. Else what was
    /// charged before and what is charged now.
    fn grown(&mut self, pool: u64, stamp: Option<u64>, holds: Option<u64>, by: u64) -> Result<Option<(u64, u64)>, ()> {
        let Some(reserve) = self.mempools.get_mut(&pool) else { return Ok(None) };
        if stamp.is_some_and(|stamp| stamp != reserve.stamp) {
            return Err(());
        }
        self.stamps += 1;
        (reserve.stamp, reserve.growing) = (self.stamps, reserve.growing - 1);
        // Of what it holds now, what this call has not reserved is charged already, or reserved by calls beside it.
        let most = reserve.charged.saturating_add(by);
        let now = holds.map_or(most, |holds| holds.min(most));
        Ok(Some((std::mem::replace(&mut reserve.charged, now), now)))
    }

    /// Takes a mempool out of the table if the driver may destroy it.
    fn take_over(&mut self, pool: u64) -> Option<(u64, Reserve)> {
        self.mempools.get(&pool).filter(|reserve| reserve.is_over())?;
        self.mempools.remove_entry(&pool)
    }

    /// Puts one back that the driver has not destroyed.
    fn put_back(&mut self, pool: u64, reserve: Reserve) {
        self.enter(pool, reserve.ordinal);
        if let Some(known) = self.mempools.get_mut(&pool) {
            (known.charged, known.destroyed) = (known.charged + reserve.charged, reserve.destroyed);
        }
    }
}

/// The mempools of a device, with their stamps. While it lives the driver destroys none of them.
struct Using<'a> {
    caps: &'a Caps,
    mempools: Vec<(u64, u64)>,
}

impl<'a> Using<'a> {
    fn of(caps: &'a Caps, ordinal: i32) -> Self {
        let mut measured = lock(&caps.measured);
        let here = measured.mempools.iter_mut().filter(|(_, reserve)| reserve.ordinal == ordinal);
        let mempools = here
            .map(|(pool, reserve)| {
                reserve.uses += 1;
                (*pool, reserve.stamp)
            })
            .collect();
        Self { caps, mempools }
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        let over: Vec<(u64, Reserve)> = {
            let mut measured = lock(&self.caps.measured);
            let end = |(pool, _): &(u64, u64)| {
                measured.mempools.get_mut(pool)?.uses -= 1;
                measured.take_over(*pool)
            };
            self.mempools.iter().filter_map(end).collect()
        };
        for (pool, reserve) in over {
            destroy_unused(self.caps, pool, reserve);
        }
    }
}

/// The driver destroys a mempool that the job has destroyed and that holds nothing any more. It is in no table.
fn destroy_unused(caps: &Caps, pool: u64, reserve: Reserve) {
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: a mempool that the job has destroyed, so nobody uses it; the driver still knows it.
    if done(unsafe { real::cuMemPoolDestroy(pool as CUmemoryPool) }).is_ok() {
        DESTROYED.fetch_sub(1, Ordering::Relaxed);
    } else {
        lock(&caps.measured).put_back(pool, reserve);
    }
}

/// Corrects what is charged for the mempools of a device. The bytes that came free, and whether figures are to be read again
/// because something has changed meanwhile.
fn correct(caps: &Caps, (device, account): (&CapDevice, DeviceId)) -> (u64, bool) {
    let using = Using::of(caps, device.ordinal);
    let (mut free, mut again) = (0, false);
    for (pool, stamp) in &using.mempools {
        let Some(now) = reserved(*pool) else { continue };
        let mut measured = lock(&caps.measured);
        match measured.correct(*pool, *stamp, now) {
            Ok(Some(before)) if before > now => {
                caps.ledger.release(account, Category::Device, before - now);
                free += before - now;
            }
            Ok(Some(before)) => {
                let crossing = caps.ledger.charge(account, Category::Device, now - before);
                drop(measured);
                caps.warn(device, crossing);
            }
            Ok(None) => {}
            Err(()) => again = true,
        }
    }
    (free, again)
}

/// Reads all figures of a device again; returns the bytes that came free.
fn read_again(caps: &Caps, at: (&CapDevice, DeviceId)) -> u64 {
    let mut free = 0;
    for _ in 0..RETRIES {
        let (mempools, graphs) = (correct(caps, at), graphs::correct(caps, at));
        free += mempools.0 + graphs.0;
        if !mempools.1 && !graphs.1 {
            break;
        }
    }
    free
}

/// Reads the figures of a device again.
pub(crate) fn refresh(caps: &Caps, device: &CapDevice) {
    caps.release_passed_frees();
    if let Some(account) = caps.account(device) {
        read_again(caps, (device, account));
    }
}

/// Reads the figures of the device with this number again.
pub(crate) fn refresh_at(ordinal: i32) {
    if let Some(caps) = on()
        && let Some(device) = caps.device(ordinal)
    {
        refresh(caps, device);
    }
}

/// What the driver keeps in its mempools and for graphs on a device.
pub(super) fn kept(caps: &Caps, device: &CapDevice) -> u64 {
    let any_graphs = lock(&caps.measured).graphs.contains_key(&device.ordinal);
    let graphs = if any_graphs { graph_memory::reserved(device.ordinal) } else { 0 };
    let using = Using::of(caps, device.ordinal);
    using.mempools.iter().filter_map(|(pool, _)| reserved(*pool)).fold(graphs, u64::saturating_add)
}

/// What `look` finds, if all that the driver keeps on a device in its mempools and for graphs is charged exactly, before
/// it and after it, and nothing has changed meanwhile.
pub(super) fn while_exact<R>(caps: &Caps, device: &CapDevice, look: impl FnOnce() -> R) -> Option<R> {
    let exact = || {
        let stamps = lock(&caps.measured).stamps;
        let using = Using::of(caps, device.ordinal);
        let exact = using.mempools.iter().all(|(pool, _)| {
            let holds = reserved(*pool);
            let charged = |reserve: &Reserve| reserve.growing == 0 && holds == Some(reserve.charged);
            lock(&caps.measured).mempools.get(pool).is_some_and(charged)
        });
        let graphs = graphs::exact(caps, device.ordinal)?;
        (exact && lock(&caps.measured).stamps == stamps).then_some((stamps, graphs))
    };
    let before = exact()?;
    let seen = look();
    (exact()? == before).then_some(seen)
}

/// Takes off the account what the driver has let go of, after making it let go of what it keeps for nobody. Waits for
/// nothing: what a stream has yet to come to stays charged. Returns the bytes that came free.
pub(crate) fn trim(caps: &Caps, device: &CapDevice) -> u64 {
    let free = let_go(caps, device);
    // Only when the rest is charged by the driver's figures is what is left code.
    free + caps.account(device).map_or(0, |account| super::contexts::look_again(caps, (device, account)))
}

fn let_go(caps: &Caps, device: &CapDevice) -> u64 {
    let free = caps.release_passed_frees();
    let Some(account) = caps.account(device) else { return free };
    let _change = Change::begin();
    let (none, any_graphs) = {
        let measured = lock(&caps.measured);
        let any_graphs = measured.graphs.contains_key(&device.ordinal);
        (measured.mempools.is_empty() && measured.graphs.is_empty(), any_graphs)
    };
    if none {
        return free;
    }
    {
        let _relaxed = RelaxedCapture::enter();
        for (pool, _) in &Using::of(caps, device.ordinal).mempools {
            // SAFETY: a mempool that the driver does not destroy meanwhile.
            unsafe { real::cuMemPoolTrimTo(*pool as CUmemoryPool, 0) };
        }
        if any_graphs {
            // SAFETY: takes a device's number.
            unsafe { real::cuDeviceGraphMemTrim(device.ordinal) };
            caps.callbacks.happened(device.ordinal, Fact::GraphMemory);
        }
    }
    free + read_again(caps, (device, account))
}

/// Whether more may come free of itself once the device has done its work.
pub(crate) fn may_shrink(caps: &Caps, device: &CapDevice) -> bool {
    let measured = lock(&caps.measured);
    let held = |reserve: &Reserve| reserve.ordinal == device.ordinal && reserve.charged > 0;
    measured.mempools.values().any(held)
        || measured.graphs.get(&device.ordinal).is_some_and(|graphs| graphs.charged() > 0)
        || caps.linear.any_leaving()
}

/// The device of a mempool: the one that it was made on, or whose default it is.
fn device_of(caps: &Caps, pool: u64) -> Option<i32> {
    if let Some(known) = lock(&caps.measured).mempools.get(&pool) {
        return Some(known.ordinal);
    }
    caps.devices().iter().map(|device| device.ordinal).find(|ordinal| default_of(*ordinal) == pool)
}

/// The job made a mempool on a device.
pub(crate) fn mempool_made(pool: u64, ordinal: i32) {
    if let Some(caps) = on() {
        lock(&caps.measured).enter(pool, ordinal);
    }
}

/// Whether the job has destroyed a mempool that the driver still knows.
pub(crate) fn is_destroyed(pool: u64) -> bool {
    DESTROYED.load(Ordering::Relaxed) > 0
        && on().is_some_and(|caps| lock(&caps.measured).mempools.get(&pool).is_some_and(|reserve| reserve.destroyed))
}

/// The mempool that is a device's default.
fn default_of(ordinal: i32) -> u64 {
    let mut default: CUmemoryPool = core::ptr::null_mut();
    // SAFETY: the place is a live local.
    unsafe { real::cuDeviceGetDefaultMemPool(&raw mut default, ordinal) };
    default as u64
}

/// The job destroys a mempool by `call`. Once the driver has destroyed it nobody can query any more when the last of its
/// memory goes: so that is done at once only if nothing is left and weir does not use it, and else later (see [`Using`]).
pub(crate) fn mempool_destroy(pool: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let Some(caps) = on() else { return call() };
    let known = {
        let mut measured = lock(&caps.measured);
        match measured.mempools.get_mut(&pool) {
            Some(reserve) if reserve.destroyed => return CUresult::CUDA_ERROR_INVALID_VALUE,
            Some(reserve) => {
                reserve.uses += 1;
                Some(reserve.ordinal)
            }
            None => None,
        }
    };
    let Some(ordinal) = known else { return call() };
    if caps.at(ordinal).is_none() {
        // Nothing is charged there.
        lock(&caps.measured).mempools.remove(&pool);
        return call();
    }
    let _change = Change::begin();
    let default = default_of(ordinal);
    let left = {
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the job's own mempool, which it is about to destroy.
        unsafe { real::cuMemPoolTrimTo(pool as CUmemoryPool, 0) };
        reserved(pool)
    };
    let empty = left.is_none_or(|left| left == 0);
    let taken = {
        let mut measured = lock(&caps.measured);
        let alone = measured.mempools.get_mut(&pool).is_some_and(|reserve| {
            reserve.uses -= 1;
            reserve.uses == 0 && reserve.growing == 0
        });
        if alone && empty && pool != default { measured.mempools.remove(&pool) } else { None }
    };
    if let Some(reserve) = taken {
        // Out of the table: the driver may give its handle to another thread as soon as it is destroyed.
        let result = call();
        if result == CUresult::CUDA_SUCCESS {
            caps.release(ordinal, Category::Device, reserve.charged);
        } else {
            lock(&caps.measured).put_back(pool, reserve);
        }
        return result;
    }
    if pool == default {
        // The driver refuses.
        return call();
    }
    let mut current: CUmemoryPool = core::ptr::null_mut();
    // SAFETY: the place is a live local; a mempool of the device itself takes the place of the one that goes.
    unsafe {
        if done(real::cuDeviceGetMemPool(&raw mut current, ordinal)).is_ok() && current as u64 == pool {
            real::cuDeviceSetMemPool(ordinal, default as CUmemoryPool);
        }
    }
    match lock(&caps.measured).mempools.get_mut(&pool) {
        Some(reserve) if !reserve.destroyed => {
            reserve.destroyed = true;
            DESTROYED.fetch_add(1, Ordering::Relaxed);
        }
        _ => return CUresult::CUDA_ERROR_INVALID_VALUE,
    }
    refresh_at(ordinal);
    CUresult::CUDA_SUCCESS
}

/// A stream-ordered allocation that the driver serves. `pool` is its mempool; `None` the device's current one.
///
/// # Safety
/// `place` is the caller's place for the address, written by `call` if it succeeds.
pub(crate) unsafe fn allocate(
    bytes: u64,
    pool: Option<u64>,
    ordinal: Option<i32>,
    place: *const CUdeviceptr,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(caps) = on() else { return call() };
    let pool = pool.or_else(|| {
        let mut current: CUmemoryPool = core::ptr::null_mut();
        // SAFETY: the place is a live local.
        done(unsafe { real::cuDeviceGetMemPool(&raw mut current, ordinal?) }).ok().map(|()| current as u64)
    });
    if pool.is_some_and(is_destroyed) {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    let known = pool.and_then(|pool| Some((pool, device_of(caps, pool)?)));
    let at = known.and_then(|(pool, ordinal)| Some((pool, caps.at(ordinal)?)));
    let Some((pool, at)) = at.filter(|_| bytes > 0 && !place.is_null()) else { return call() };
    let most = bytes.next_multiple_of(PAGE).max(GROWTH);
    let reservation = match caps.admit(at, most, Category::Device, super::admit::urgency(bytes)) {
        Ok(reservation) => reservation,
        Err(code) => return code,
    };
    let _change = Change::begin();
    lock(&caps.measured).enter(pool, at.0.ordinal).growing += 1;
    let result = call();
    for retry in 0..=RETRIES {
        let stamp = lock(&caps.measured).mempools.get(&pool).map(|reserve| reserve.stamp);
        let holds = reserved(pool);
        // With the last try all that was reserved is charged; the next reading corrects it.
        let (stamp, holds) = if retry < RETRIES { (stamp, holds) } else { (None, None) };
        let mut measured = lock(&caps.measured);
        let Ok(charged) = measured.grown(pool, stamp, holds, reservation.bytes()) else { continue };
        // Under the lock: nobody takes off what is not on the account yet.
        if let Some((before, now)) = charged {
            caps.ledger.release(at.1, Category::Device, before.saturating_sub(now));
        }
        let grown = charged.map(|(before, now)| now.saturating_sub(before));
        caps.commit_or_roll_back(at, reservation, Category::Device, grown);
        break;
    }
    if result == CUresult::CUDA_SUCCESS {
        let block = super::linear::Allocation {
            ordinal: at.0.ordinal,
            ctx: 0,
            bytes,
            category: Category::Device,
            mempool: pool,
        };
        // SAFETY: after success the address is there.
        caps.enter(unsafe { *place }, block);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: u64 = 9;

    fn stamp(measured: &Measured) -> u64 {
        measured.mempools.get(&POOL).map_or(0, |reserve| reserve.stamp)
    }

    fn charged(measured: &Measured) -> u64 {
        measured.mempools.get(&POOL).map_or(0, |reserve| reserve.charged)
    }

    #[test]
    fn a_figure_from_before_a_growth_does_not_count() {
        let mut measured = Measured::default();
        measured.enter(POOL, 0).growing += 1;
        let early = stamp(&measured);
        assert_eq!(measured.grown(POOL, Some(early), Some(40), 32), Ok(Some((0, 32))), "the rest is another call's");
        assert_eq!(measured.correct(POOL, early, 0), Err(()), "read before the call returned");
        assert_eq!(charged(&measured), 32);
        let now = stamp(&measured);
        assert_eq!(measured.correct(POOL, now, 8), Ok(Some(32)));
        assert_eq!(measured.correct(POOL, now, 16), Err(()), "another thread was faster");
        assert_eq!(charged(&measured), 8);
    }

    #[test]
    fn of_two_calls_that_grow_at_once_each_charges_what_it_reserved() {
        let mut measured = Measured::default();
        measured.enter(POOL, 0).growing += 2;
        let both = stamp(&measured);
        assert_eq!(measured.grown(POOL, Some(both), Some(64), 32), Ok(Some((0, 32))));
        assert_eq!(
            measured.grown(POOL, Some(both), Some(32), 32),
            Err(()),
            "its figure is from before the other's end"
        );
        assert_eq!(measured.grown(POOL, Some(stamp(&measured)), Some(64), 32), Ok(Some((32, 64))));
        assert_eq!(measured.mempools.get(&POOL).map(|reserve| reserve.growing), Some(0));
    }

    #[test]
    fn the_last_try_charges_all_that_was_reserved() {
        let mut measured = Measured::default();
        measured.enter(POOL, 0).growing += 1;
        assert_eq!(measured.grown(POOL, None, None, 32), Ok(Some((0, 32))));
    }

    #[test]
    fn a_mempool_is_over_when_nobody_uses_it() {
        let mut measured = Measured::default();
        let reserve = measured.enter(POOL, 0);
        (reserve.destroyed, reserve.uses) = (true, 1);
        assert!(measured.take_over(POOL).is_none());
        measured.enter(POOL, 0).uses = 0;
        let reserve = measured.take_over(POOL).map(|(_, reserve)| reserve).unwrap_or_default();
        assert!(reserve.destroyed && measured.mempools.is_empty());
        // The driver has given the handle to a new mempool and then refused to destroy the old one: nothing is lost.
        measured.enter(POOL, 0).charged = 8;
        measured.put_back(POOL, Reserve { charged: 4, ..reserve });
        assert_eq!(charged(&measured), 12);
    }
}
