//! The contexts of the job: which there are, of which device, and which pool serves each.
//!
//! Read without a lock on every allocation; written under one when a context comes or goes (`weir_pool::shared::Roster`
//! states the rules). A context that the table has no room for is simply not supported.

use super::guards::ContextGuard;
use super::real::{self, done};
use super::{DEVICES, observer, stream, wait};
use crate::process::stack::roomy;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use weir_pool::ranks::{self, Rank};
use weir_pool::shared::{Coming, Guarded, Roster, Seat, Seated, Uses};

const ROOM: usize = 256;
/// How long a thread waits for another one that makes a context of the same handle go.
const PATIENCE: Duration = Duration::from_secs(10);

/// A place for one context.
pub(crate) struct Slot {
    /// The context, and its device.
    seat: Seat<AtomicU64>,
    /// What the layer above keeps for it.
    attached: AtomicPtr<()>,
    refused: AtomicBool,
}

impl Seated for Slot {
    type Word = AtomicU64;
    #[inline(always)]
    fn seat(&self) -> &Seat<AtomicU64> {
        &self.seat
    }
}

static ROSTER: Roster<Guarded<Coming>, Slot, AtomicUsize, ROOM> = Roster::new(
    Guarded::new(Rank::Roster, Coming::new()),
    [const {
        Slot {
            seat: Seat::new(AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)),
            attached: AtomicPtr::new(core::ptr::null_mut()),
            refused: AtomicBool::new(false),
        }
    }; ROOM],
    AtomicUsize::new(0),
);

/// Short uses of contexts by weir, barred while one begins to go.
static ALIVE: Uses<AtomicU64> = Uses::new(AtomicU64::new(0), AtomicU64::new(0));
/// Set for good when a context could not be added: its work is nobody's to wait for.
static UNSEEN: AtomicBool = AtomicBool::new(false);

/// A living context.
#[derive(Clone, Copy)]
pub(crate) struct Living {
    /// The context.
    pub(crate) ctx: u64,
    /// Its device.
    pub(crate) ordinal: i32,
}

impl Slot {
    /// The context, 0 while it is about to go.
    #[inline(always)]
    pub(crate) fn ctx(&self) -> u64 {
        self.seat.key()
    }

    /// Its device.
    #[inline(always)]
    pub(crate) fn ordinal(&self) -> i32 {
        self.seat.value() as i32
    }

    /// The context and its device, unless it is about to go.
    pub(crate) fn living(&self) -> Option<Living> {
        self.seat.seen().map(living)
    }

    /// Unique among all contexts that ever were.
    pub(crate) fn serial(&self) -> u64 {
        self.seat.serial()
    }

    /// What was attached to it, null for nothing.
    #[inline(always)]
    pub(crate) fn attached(&self) -> *const () {
        self.attached.load(Ordering::Acquire)
    }

    /// Attaches `what` to the context `ctx`, if this is still its place; `None`: it is refused for good.
    pub(crate) fn attach(&self, ctx: u64, what: Option<*const ()>) {
        announce(|_| match what.filter(|_| self.ctx() == ctx) {
            Some(what) => self.attached.store(what.cast_mut(), Ordering::Release),
            None => self.refused.store(self.ctx() == ctx, Ordering::Relaxed),
        });
    }

    /// Whether it was refused.
    pub(crate) fn refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

fn living((ctx, ordinal): (u64, u64)) -> Living {
    Living { ctx, ordinal: ordinal as i32 }
}

/// All living contexts.
pub(crate) fn all() -> impl Iterator<Item = Living> {
    ROSTER.all().map(living)
}

/// A living context.
#[inline(always)]
pub(crate) fn find(ctx: u64) -> Option<&'static Slot> {
    ROSTER.find(ctx)
}

/// A living context of the job, added at first sight; `None` for 0 and for what the driver does not know.
#[inline]
pub(crate) fn seen(ctx: u64) -> Option<&'static Slot> {
    find(ctx).or_else(|| roomy(|| see(ctx)))
}

#[cold]
fn see(ctx: u64) -> Option<&'static Slot> {
    if ctx == 0 {
        return None;
    }
    let mut device = -1;
    {
        let _within = ContextGuard::enter(ctx).ok()?;
        // SAFETY: the place is a live local.
        done(unsafe { real::cuCtxGetDevice(&raw mut device) }).ok()?;
    }
    if !(0..DEVICES as i32).contains(&device) {
        return None;
    }
    add(ctx, device, || observer::notify(|observer| (observer.context_seen)(ctx, device)))
}

/// Adds a context, unless it is there; `announce` makes it known to the pools before anybody sees it. Waits for the end of
/// a context that had the same handle. `None` if it is this thread that ends it, if that took too long, or if there is no
/// room: then the context is not supported, and from now on no wait of weir's proves anything.
fn add(ctx: u64, ordinal: i32, announce: impl FnOnce()) -> Option<&'static Slot> {
    let fresh = |slot: &Slot| {
        slot.attached.store(core::ptr::null_mut(), Ordering::Release);
        slot.refused.store(false, Ordering::Relaxed);
    };
    let added = ROSTER.add(ctx, ordinal as u64, stream::thread_number(), PATIENCE, fresh, announce);
    added.unwrap_or_else(|_| {
        UNSEEN.store(true, Ordering::Release);
        None
    })
}

/// Nobody comes or goes while `meet` lasts: it gets all contexts whose work may run, and makes something known to them, or
/// them to something. No driver call in it.
pub(crate) fn announce<R>(meet: impl FnOnce(&[Living]) -> R) -> R {
    ROSTER.announce(|known| meet(&known.iter().copied().map(living).collect::<Vec<_>>()))
}

/// While it lives, every context whose work may run is in the table and stays.
pub(crate) struct Alive {
    _held: ranks::Held,
}

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.leave();
    }
}

/// Tries to use contexts other than the caller's, for a moment in which nobody waits. `None`: one begins to go, may be
/// about to, or is not known.
#[track_caller]
pub(crate) fn alive() -> Option<Alive> {
    using().filter(|_| certain() && !some_unseen())
}

/// Whether a context is not known, so that no wait proves anything.
pub(crate) fn some_unseen() -> bool {
    UNSEEN.load(Ordering::Acquire)
}

/// Tries to use one context, which is to be found afterwards.
#[track_caller]
pub(crate) fn using() -> Option<Alive> {
    ALIVE.enter().then(|| Alive { _held: ranks::take(Rank::UseOfContexts) })
}

/// In a forked child: whoever was in a use is not here.
pub(crate) fn forked() {
    ALIVE.clear();
}

/// Waits until everybody was notified of the end of a context that another thread makes go, or it stays. False: that took
/// too long.
pub(crate) fn await_end(ctx: u64) -> bool {
    ROSTER.await_end(ctx, stream::thread_number(), PATIENCE)
}

/// Whether it is certain of every context whether it goes.
pub(crate) fn certain() -> bool {
    ROSTER.certain(stream::thread_number())
}

/// A context that is about to go: nobody finds it, and nobody has its place. Dropped when everybody was notified.
pub(crate) struct Leaving {
    /// What goes.
    pub(crate) of: Living,
    stays: bool,
}

/// Nobody finds a context any more. Waits for those that use it. `None`: it is not known, or another thread makes it go
/// and has not come to an end.
pub(crate) fn leave(ctx: u64) -> Option<Leaving> {
    let me = stream::thread_number();
    while await_end(ctx) {
        let left = ALIVE.bar(wait::for_uses("a use of contexts before one goes"), || ROSTER.leave(ctx, me));
        if let Some(left) = left {
            return left.map(|ordinal| Leaving { of: living((ctx, ordinal)), stays: false });
        }
    }
    None
}

impl Leaving {
    /// It lives on, as it was.
    pub(crate) fn stays(mut self) {
        self.stays = true;
        ROSTER.stay(self.of.ctx);
    }

    /// It is gone: pools that come from now on need not know it.
    pub(crate) fn ended(&self) {
        ROSTER.ended(self.of.ctx);
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.stays {
            ROSTER.left(self.of.ctx);
        }
    }
}
