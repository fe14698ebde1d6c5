//! The job's mempools. Each is a real one of the driver's, so that its handle, its properties and
//! its settings exist; what is allocated from it comes from weir's pool in its name. Pools that can be
//! shared with other processes, and pools from other processes, are the driver's alone.

use super::{DevicePool, pools};
use crate::driver::DEVICES;
use crate::driver::real::{self, done};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;
use weir_cuda::*;
use weir_pool::ranks::Rank;
use weir_pool::shared::{self, Guarded, List, Lock};
use weir_pool::{Mempool, Reuse};

const ROOM: usize = 1024;

/// A mempool whose allocations weir serves.
pub(crate) struct Pooled {
    handle: u64,
    ordinal: i32,
    mempool: OnceLock<Mempool>,
}

static LIST: List<AtomicPtr<Pooled>, AtomicUsize, ROOM> =
    List::new([const { AtomicPtr::new(core::ptr::null_mut()) }; ROOM], AtomicUsize::new(0));
/// Held while a mempool comes, goes, gets its name in the pool, or is set: what the driver has and what the pool has are
/// then the same, and no handle is taken for the mempool that had it before.
static TURN: Guarded<()> = Guarded::new(Rank::Mempools, ());
/// The mempool that a device's stream-ordered allocations come from, 0 for its default one.
static CURRENT: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];
/// The default mempool of each device, 0 before it is known.
static DEFAULT: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

fn all() -> impl Iterator<Item = &'static Pooled> {
    // SAFETY: a non-null pointer is a leaked `Pooled`.
    LIST.iter().filter_map(|pooled: *mut Pooled| unsafe { pooled.as_ref() })
}

/// The mempool of a handle, if weir serves it.
#[inline]
pub(crate) fn find(handle: u64) -> Option<&'static Pooled> {
    all().find(|pooled| pooled.handle == handle)
}

/// The mempool that allocations on a device come from at present; `None` if weir does not serve it.
#[inline]
pub(crate) fn current(ordinal: i32) -> Option<&'static Pooled> {
    match CURRENT.get(ordinal as usize)?.load(Ordering::Acquire) {
        0 => find(DEFAULT.get(ordinal as usize)?.load(Ordering::Acquire)),
        handle => find(handle),
    }
}

/// One at a time: a call of the driver's that changes a mempool, and what follows from it.
pub(crate) fn in_turn<R>(work: impl FnOnce() -> R) -> R {
    TURN.with(|()| work())
}

/// The job chose another mempool for a device. Only [`in_turn`].
pub(crate) fn set_current(ordinal: i32, handle: u64) {
    if let Some(current) = CURRENT.get(ordinal as usize) {
        current.store(handle, Ordering::Release);
    }
}

/// Adds a mempool, unless it is known. Only [`in_turn`].
pub(crate) fn add(handle: u64, ordinal: i32) {
    if find(handle).is_none() {
        LIST.add(Box::into_raw(Box::new(Pooled { handle, ordinal, mempool: OnceLock::new() })));
    }
}

/// A mempool is gone: its blocks live on until they are freed. Only [`in_turn`].
pub(crate) fn remove(handle: u64) {
    for current in &CURRENT {
        let _ = current.compare_exchange(handle, 0, Ordering::AcqRel, Ordering::Acquire);
    }
    let Some(pooled) = find(handle) else { return };
    LIST.remove(core::ptr::from_ref(pooled).cast_mut());
    if let Some(mempool) = pooled.mempool.get() {
        for device_pool in pools()
            .filter(|device_pool| device_pool.ordinal == pooled.ordinal && (device_pool.mapped() || device_pool.host))
        {
            device_pool.pool.mempool_destroyed(*mempool);
        }
    }
}

/// The default mempool of a device whose pool was just made.
pub(crate) fn adopt_default(device_pool: &'static DevicePool) {
    if !device_pool.mapped() {
        return;
    }
    let mut handle: CUmemoryPool = core::ptr::null_mut();
    // SAFETY: the place is a live local.
    if done(unsafe { real::cuDeviceGetDefaultMemPool(&raw mut handle, device_pool.ordinal) }).is_err() {
        return;
    }
    let (handle, ordinal) = (handle as u64, device_pool.ordinal);
    in_turn(|| {
        if find(handle).is_none() {
            // Seen only when all of it is there: nobody gives it another name.
            let pooled = Pooled { handle, ordinal, mempool: OnceLock::from(Mempool::default()) };
            pooled.copy_settings(device_pool, Mempool::default());
            LIST.add(Box::into_raw(Box::new(pooled)));
        }
        if let Some(default) = DEFAULT.get(ordinal as usize) {
            default.store(handle, Ordering::Release);
        }
    });
}

/// The handle of the mempool that a block came from.
pub(crate) fn handle_of(device_pool: &DevicePool, mempool: Mempool) -> Option<u64> {
    all()
        .find(|pooled| pooled.ordinal == device_pool.ordinal && pooled.mempool.get() == Some(&mempool))
        .map(|pooled| pooled.handle)
}

impl Pooled {
    /// The pool that serves it, if there is one already.
    pub(crate) fn device_pool(&self) -> Option<&'static DevicePool> {
        pools().find(|device_pool| !device_pool.host && device_pool.ordinal == self.ordinal && device_pool.mapped())
    }

    /// The device.
    pub(crate) fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Its counters, if anything was allocated from it.
    pub(crate) fn known(&self) -> Option<(&'static DevicePool, Mempool)> {
        Some((self.device_pool()?, *self.mempool.get()?))
    }

    /// Its name in the pool, made at its first allocation.
    #[inline]
    pub(crate) fn mempool(&self, device_pool: &DevicePool) -> Option<Mempool> {
        let make = || {
            let fresh = device_pool.pool.mempool_created()?;
            self.copy_settings(device_pool, fresh);
            Some(fresh)
        };
        shared::named(&TURN, || self.mempool.get().copied(), make, |fresh| _ = self.mempool.set(fresh))
    }

    /// Takes over what the job has set on the real mempool. Only [`in_turn`].
    pub(crate) fn copy_settings(&self, device_pool: &DevicePool, mempool: Mempool) {
        type A = CUmemPool_attribute;
        let on = |attribute| self.ask::<i32>(attribute).is_none_or(|value| value != 0);
        let reuse = Reuse {
            follow_events: on(A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES),
            opportunistic: on(A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
            internal_waits: on(A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES),
        };
        let threshold = self.ask::<u64>(A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD).unwrap_or(0);
        device_pool.pool.set_mempool(mempool, reuse, threshold);
    }

    fn ask<T: Default>(&self, attribute: CUmemPool_attribute) -> Option<T> {
        let _relaxed = crate::driver::guards::RelaxedCapture::enter();
        let mut value = T::default();
        // SAFETY: the place is a live local of the attribute's documented type.
        let result =
            unsafe { real::cuMemPoolGetAttribute(self.handle as CUmemoryPool, attribute, (&raw mut value).cast()) };
        done(result).ok().map(|()| value)
    }
}
