//! The contexts of the job: which there are, of which device, and which pool serves each.
//!
//! Read without a lock on every allocation; written under one when a context comes or goes. A
//! context that the table has no room for is simply not served.

use super::Served;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

const ROOM: usize = 256;

/// A place for one context.
pub(crate) struct Slot {
    ctx: AtomicU64,
    ordinal: AtomicI32,
    serial: AtomicU64,
    served: AtomicPtr<Served>,
    refused: AtomicBool,
}

static SLOTS: [Slot; ROOM] = [const {
    Slot {
        ctx: AtomicU64::new(0),
        ordinal: AtomicI32::new(0),
        serial: AtomicU64::new(0),
        served: AtomicPtr::new(core::ptr::null_mut()),
        refused: AtomicBool::new(false),
    }
}; ROOM];
static USED: AtomicUsize = AtomicUsize::new(0);
static SERIALS: AtomicU64 = AtomicU64::new(0);

/// Held for reading while weir uses contexts other than the caller's, for writing while one goes.
pub(crate) static ALIVE: RwLock<()> = RwLock::new(());

impl Slot {
    /// The context.
    pub(crate) fn ctx(&self) -> u64 {
        self.ctx.load(Ordering::Acquire)
    }

    /// Its device.
    pub(crate) fn ordinal(&self) -> i32 {
        self.ordinal.load(Ordering::Relaxed)
    }

    /// Unique among all contexts that ever were.
    pub(crate) fn serial(&self) -> u64 {
        self.serial.load(Ordering::Relaxed)
    }

    /// The pool that serves it, if it has one already.
    #[inline]
    pub(crate) fn served(&self) -> Option<&'static Served> {
        // SAFETY: a non-null pointer is a leaked `Served`.
        unsafe { self.served.load(Ordering::Acquire).as_ref() }
    }

    /// From now on `served` serves it.
    pub(crate) fn serve(&self, served: &'static Served) {
        self.served.store(core::ptr::from_ref(served).cast_mut(), Ordering::Release);
    }

    /// Whether making a pool for it has failed.
    pub(crate) fn refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Making a pool for it has failed: it is passed through for good.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }
}

/// All living contexts.
#[inline]
pub(crate) fn all() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().take(USED.load(Ordering::Acquire)).filter(|slot| slot.ctx() != 0)
}

/// A living context.
#[inline]
pub(crate) fn find(ctx: u64) -> Option<&'static Slot> {
    if ctx == 0 {
        return None;
    }
    SLOTS.iter().take(USED.load(Ordering::Acquire)).find(|slot| slot.ctx.load(Ordering::Acquire) == ctx)
}

/// Adds a context; `None` if there is no room. True: it was not there before.
pub(crate) fn add(ctx: u64, ordinal: i32) -> Option<(&'static Slot, bool)> {
    let _alive = ALIVE.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = find(ctx) {
        return Some((known, false));
    }
    let used = USED.load(Ordering::Acquire);
    let place = SLOTS.iter().position(|slot| slot.ctx() == 0)?;
    let slot = SLOTS.get(place)?;
    slot.ordinal.store(ordinal, Ordering::Relaxed);
    slot.serial.store(SERIALS.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
    slot.served.store(core::ptr::null_mut(), Ordering::Release);
    slot.refused.store(false, Ordering::Relaxed);
    slot.ctx.store(ctx, Ordering::Release);
    USED.store(used.max(place + 1), Ordering::Release);
    Some((slot, true))
}

/// Forgets a context and tells its device. Waits for those that use it.
pub(crate) fn remove(ctx: u64) -> Option<i32> {
    let _alive = ALIVE.write().unwrap_or_else(PoisonError::into_inner);
    let slot = find(ctx)?;
    slot.ctx.store(0, Ordering::Release);
    Some(slot.ordinal())
}
