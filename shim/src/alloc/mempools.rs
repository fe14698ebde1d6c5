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
/// Held while what is known of mempools changes; never at a driver call. It guards how often settings and current mempools
/// were entered: what the driver has is read first, and entered only if nobody has entered anything since.
static ENTERED: Guarded<u64> = Guarded::new(Rank::Mempools, 0);
/// How often the driver is queried again because another thread has entered something meanwhile.
const RETRIES: u32 = 64;
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

/// Enters what `read` learns from the driver without the lock. `enter` runs under it.
fn follow<T, R>(read: impl Fn() -> T, enter: impl Fn(T) -> R) -> R {
    shared::follow(&ENTERED, RETRIES, read, enter)
}

/// The job has chosen a mempool for a device: the one that the driver has, if several threads choose.
pub(crate) fn chosen(ordinal: i32, handle: u64) {
    let Some(current) = CURRENT.get(ordinal as usize) else { return };
    let read = || {
        let mut now: CUmemoryPool = core::ptr::null_mut();
        // SAFETY: the place is a live local.
        done(unsafe { real::cuDeviceGetMemPool(&raw mut now, ordinal) }).map_or(handle, |()| now as u64)
    };
    follow(read, |now| current.store(now, Ordering::Release));
}

/// The job has set something on a mempool: the pool follows it.
pub(crate) fn changed(handle: u64) {
    let Some(pooled) = find(handle) else { return };
    follow(
        || pooled.settings(),
        |settings| {
            if let Some((device_pool, mempool)) = pooled.known() {
                settings.apply(device_pool, mempool);
            }
        },
    );
}

/// Adds a mempool that was just made, unless it is known.
pub(crate) fn add(handle: u64, ordinal: i32) {
    ENTERED.with(|_| {
        if find(handle).is_none() {
            LIST.add(Box::into_raw(Box::new(Pooled { handle, ordinal, mempool: OnceLock::new() })));
        }
    });
}

/// The job destroys a mempool by `call`. It is off the list before the driver is called, which may give its handle to
/// another mempool at once, and back on it if the driver refuses. Its blocks live on until they are freed.
pub(crate) fn destroy(handle: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    // The driver keeps a device's default one.
    if DEFAULT.iter().any(|default| default.load(Ordering::Acquire) == handle) {
        return call();
    }
    let exchange =
        |current: &AtomicU64, from, to| current.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok();
    let (pooled, current): (_, Vec<&AtomicU64>) = ENTERED.with(|_| {
        let pooled = find(handle);
        if let Some(pooled) = pooled {
            LIST.remove(core::ptr::from_ref(pooled).cast_mut());
        }
        (pooled, CURRENT.iter().filter(|current| exchange(current, handle, 0)).collect())
    });
    let result = call();
    let Some(pooled) = pooled else { return result };
    if result != CUresult::CUDA_SUCCESS {
        ENTERED.with(|_| {
            LIST.add(core::ptr::from_ref(pooled).cast_mut());
            for current in current {
                exchange(current, 0, handle);
            }
        });
        return result;
    }
    if let Some(mempool) = pooled.mempool.get() {
        for device_pool in pools()
            .filter(|device_pool| device_pool.ordinal == pooled.ordinal && (device_pool.mapped() || device_pool.host))
        {
            device_pool.pool.mempool_destroyed(*mempool);
        }
    }
    result
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
    let pooled = || Pooled { handle, ordinal, mempool: OnceLock::from(Mempool::default()) };
    follow(
        || pooled().settings(),
        |settings| {
            if find(handle).is_none() {
                // Seen only when all of it is there: nobody gives it another name.
                settings.apply(device_pool, Mempool::default());
                LIST.add(Box::into_raw(Box::new(pooled())));
            }
            if let Some(default) = DEFAULT.get(ordinal as usize) {
                default.store(handle, Ordering::Release);
            }
        },
    );
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
        self.mempool.get().copied().or_else(|| self.name(device_pool))
    }

    #[cold]
    fn name(&self, device_pool: &DevicePool) -> Option<Mempool> {
        let known = || self.mempool.get().copied();
        follow(
            || self.settings(),
            |settings| {
                known().or_else(|| {
                    let fresh = device_pool.pool.mempool_created()?;
                    settings.apply(device_pool, fresh);
                    let _ = self.mempool.set(fresh);
                    known()
                })
            },
        )
    }

    /// What the job has set on the real mempool.
    fn settings(&self) -> Settings {
        type A = CUmemPool_attribute;
        let on = |attribute| self.attribute::<i32>(attribute).is_none_or(|value| value != 0);
        let reuse = Reuse {
            follow_events: on(A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES),
            opportunistic: on(A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
            internal_waits: on(A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES),
        };
        let threshold = self.attribute::<u64>(A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD).unwrap_or(0);
        Settings { reuse, threshold }
    }

    fn attribute<T: Default>(&self, attribute: CUmemPool_attribute) -> Option<T> {
        let _relaxed = crate::driver::guards::RelaxedCapture::enter();
        let mut value = T::default();
        // SAFETY: the place is a live local of the attribute's documented type.
        let result =
            unsafe { real::cuMemPoolGetAttribute(self.handle as CUmemoryPool, attribute, (&raw mut value).cast()) };
        done(result).ok().map(|()| value)
    }
}

/// The settings of a mempool that the pool follows.
struct Settings {
    reuse: Reuse,
    threshold: u64,
}

impl Settings {
    fn apply(self, device_pool: &DevicePool, mempool: Mempool) {
        device_pool.pool.set_mempool(mempool, self.reuse, self.threshold);
    }
}
