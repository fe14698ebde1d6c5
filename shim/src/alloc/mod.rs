//! The pool in the job: which pool serves which device, and what a hook asks of it.
//!
//! One pool a physical device, made at the first allocation that it serves with the job's own
//! context current, and never freed. A device without virtual memory management has one for each
//! context instead, because there the memory belongs to the context. How requests flow and what each
//! file does is told in docs/internals/pool.md.

pub(crate) mod backing;
mod context_end;
pub(crate) mod ipc;
pub(crate) mod mempools;
pub(crate) mod peers;
pub(crate) mod pins;
pub(crate) mod proofs;
mod returns;
pub(crate) mod spill;
mod transport;

use crate::cap::{Caps, Device};
pub(crate) use crate::driver::DEVICES;
use crate::driver::contexts::{self, Living, Slot};
use crate::driver::guards::{Relaxed, Within, current};
use crate::driver::reach::bit;
pub(crate) use crate::driver::reach::{grant, may_reach, pools_reached_by, reaches};
use crate::driver::real::{self, done};
use crate::driver::{capture, reach, stream, work};
use crate::process::job;
use crate::process::stack::roomy;
use crate::{cap, record};
use backing::Driver;
pub(crate) use context_end::context_leaves;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;
use weir_cuda::*;
use weir_journal::Numbering;
use weir_ledger::DeviceId;
use weir_pool::ranks::{self, Rank};
use weir_pool::shared::{self, Guarded, List};
use weir_pool::{AllocError, BlockInfo, Budget, Config, Grant, Mempool, Pool, Proof, Request};

const POOLS: usize = 256;
/// Blocks up to this size come from the arena of small ones.
const SMALL_BLOCK: u64 = 1 << 20;

/// One pool and the driver behind it.
pub(crate) struct Served {
    /// The device.
    pub(crate) ordinal: i32,
    /// Where requests go.
    pub(crate) pool: Pool,
    /// How it reaches the driver.
    pub(crate) driver: Driver,
    /// The owner of synchronous allocations, which belong to no mempool of the job.
    pub(crate) plain: Mempool,
    /// Its memory is the host's: what did not fit under the cap.
    pub(crate) host: bool,
    /// Where its blocks stand in the journal.
    pub(crate) numbering: Numbering,
    arenas: [(u64, u64); 2],
    /// Bytes of a handle for small blocks, and for large ones.
    handles: [u64; 2],
}

static LIST: List<AtomicPtr<Served>, AtomicUsize, POOLS> =
    List::new([const { AtomicPtr::new(core::ptr::null_mut()) }; POOLS], AtomicUsize::new(0));
/// Whether somebody makes a pool.
static MAKING: Guarded<bool> = Guarded::new(Rank::TurnFlag, false);
/// How long a request waits for another thread that makes a pool; then the driver serves it.
const MAKING_TAKES: Duration = Duration::from_secs(10);
/// Set in a forked child: nothing of the parent's device state is usable there.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Release);
    // A lock of theirs may have been held by a thread that is not here.
    LIST.clear();
    work::forked();
    capture::forked();
    contexts::forked();
    stream::forked();
}

/// Whether the pool has an effect on this process.
#[inline]
pub(crate) fn on() -> bool {
    job::active().is_some_and(|job| job.config.pool.on) && !FORKED.load(Ordering::Relaxed)
}

/// Whether contexts and captures of this process must be known: for the pool, or for a cap without it.
#[inline]
pub(crate) fn watching() -> bool {
    on() || cap::on().is_some()
}

/// Whether any pool exists: without one there is nothing to notify or to describe.
#[inline]
pub(crate) fn any() -> bool {
    LIST.any() && on()
}

/// All pools. None in a forked child.
#[inline]
pub(crate) fn pools() -> impl Iterator<Item = &'static Served> {
    // SAFETY: a non-null pointer is a leaked `Served`.
    LIST.iter().filter_map(|served: *mut Served| unsafe { served.as_ref() })
}

/// The pool that an address belongs to, live or not.
#[inline]
pub(crate) fn owner(addr: u64) -> Option<&'static Served> {
    pools().find(|served| served.holds(addr))
}

/// The live block that holds an address.
pub(crate) fn block(addr: u64) -> Option<(&'static Served, BlockInfo)> {
    let served = owner(addr)?;
    Some((served, served.pool.lookup(addr)?))
}

/// An attribute of a device.
pub(crate) fn device_attribute(ordinal: i32, attribute: CUdevice_attribute) -> Option<i32> {
    let mut value = 0;
    // SAFETY: the place is a live local.
    done(unsafe { real::cuDeviceGetAttribute(&raw mut value, attribute, ordinal) }).ok().map(|()| value)
}

impl Served {
    /// Whether an address is of this pool's memory.
    #[inline]
    pub(crate) fn holds(&self, addr: u64) -> bool {
        self.arenas.iter().any(|(start, end)| (*start..*end).contains(&addr))
            || (self.driver.owner != 0 && self.has_segment(addr))
    }

    /// The same for plain segments. They go with their context, and then the driver may give the address again before
    /// the pool is told.
    #[cold]
    fn has_segment(&self, addr: u64) -> bool {
        let has = || self.driver.has_segment(addr);
        has() && (contexts::find(self.driver.owner).is_some() || (contexts::settled(self.driver.owner) && has()))
    }

    /// What physical memory for a request of so many bytes comes in.
    pub(crate) fn portion(&self, bytes: u64) -> u64 {
        let [small, large] = self.handles;
        if bytes <= SMALL_BLOCK { small } else { large }
    }

    /// Whether it stands on virtual memory management.
    pub(crate) fn mapped(&self) -> bool {
        self.driver.owner == 0
    }

    /// Serves a request; what the pool itself can't do is left to the driver (`None`).
    #[inline(always)]
    pub(crate) fn allocate(&self, request: &Request) -> Option<Result<u64, CUresult>> {
        let account = cap::on().and_then(|caps| Some((caps, caps.at(self.ordinal)?)));
        if let Some((caps, (device, account))) = account {
            caps.heed(device, account);
        }
        if let Ok(Some(allocation)) = self.pool.allocate_without_driver(request) {
            record::blocks::hit(self, request, &allocation);
            return Some(Ok(allocation.addr));
        }
        roomy(|| self.grow(request, account))
    }

    /// Serves a request that the pool has nothing ready for.
    #[cold]
    fn grow(&self, request: &Request, account: Option<(&Caps, (&Device, DeviceId))>) -> Option<Result<u64, CUresult>> {
        let growth = record::blocks::growing(self.ordinal, request);
        let answer = match account {
            None => self.pool.allocate(&self.driver, request, &Budget::default()),
            Some((caps, at)) => caps.serve(self, request, at),
        };
        let answer = match answer {
            Err(AllocError::OverCap | AllocError::OutOfMemory | AllocError::TooLarge) => {
                spill::anew(self, request).map_or(answer, Ok)
            }
            answer => answer,
        };
        let (code, capped) = match answer {
            Ok(allocation) => {
                // What was spilled is another pool's.
                growth.served(owner(allocation.addr).unwrap_or(self), &allocation);
                return Some(Ok(allocation.addr));
            }
            Err(AllocError::Invalid) => (CUresult::CUDA_ERROR_INVALID_VALUE, false),
            // The rest under the cap may be less than a handle, or held in spare ones: the driver serves it in smaller
            // portions, after the pool has given back what it does not use.
            Err(AllocError::OverCap) if request.stream.is_none() && cap::admit::fits(self, request.bytes) => {
                return None;
            }
            Err(AllocError::OverCap) => (CUresult::CUDA_ERROR_OUT_OF_MEMORY, true),
            Err(AllocError::TooLarge | AllocError::OutOfMemory) => (CUresult::CUDA_ERROR_OUT_OF_MEMORY, false),
            // Something of weir's own went wrong. The job goes on as if weir were not there.
            Err(AllocError::Driver(_) | AllocError::Busy) => return None,
        };
        growth.refused(self.ordinal, request, capped, code);
        Some(Err(code))
    }

    /// Gives back to the driver what nobody can use any more. Returns the bytes.
    pub(crate) fn give_back(&self) -> u64 {
        let given = self.pool.trim_to(&self.driver, 0);
        record::physical::trimmed(self.ordinal, given);
        given
    }

    /// A context is gone, and with it the blocks that it had not freed.
    fn blocks_go_with(&'static self, ctx: u64) {
        let note = |block: &BlockInfo| record::blocks::gone(self, block);
        for block in self.pool.context_destroyed(&self.driver, ctx, note) {
            pins::freed(self, block.addr);
        }
    }

    /// Waits for all work on this memory, so that what was freed is known to be free.
    fn settle(&self) -> bool {
        let proofs = self.proofs();
        let waited = self.driver.wait_for_all().is_ok();
        for proof in proofs {
            self.pool.ended(proof, waited);
        }
        waited
    }

    /// What the end of a wait that begins now would prove.
    fn proofs(&self) -> Vec<Proof> {
        // A context that goes meanwhile would be one that the pool takes for new.
        let Some(_alive) = contexts::alive() else { return Vec::new() };
        let reaching = contexts::all().filter(|context| reaches(context.ordinal, self.ordinal));
        reaching.map(|context| self.pool.began(weir_pool::Call::ContextSync(context.ctx))).collect()
    }

    /// Takes note that the device is idle, if it is. Waits for nobody.
    fn settle_if_idle(&self) -> bool {
        let proofs = self.proofs();
        let idle = work::stop_if_idle(&self.driver) == Ok(true);
        if idle {
            work::go_on();
        }
        for proof in proofs {
            self.pool.ended(proof, idle);
        }
        idle
    }

    /// Bytes of the device that the pool holds and the job does not: free memory in the job's eyes.
    pub(crate) fn reusable(&self) -> u64 {
        if self.host {
            return 0;
        }
        let stats = self.pool.stats();
        stats.free_bytes + stats.stream_free_bytes + stats.deferred_bytes + stats.spare_bytes
    }
}

/// A living context of the job, added at first sight; `None` for 0 and for what the driver does not know.
#[inline]
pub(crate) fn context(ctx: u64) -> Option<&'static Slot> {
    contexts::find(ctx).or_else(|| roomy(|| context_seen(ctx)))
}

#[cold]
fn context_seen(ctx: u64) -> Option<&'static Slot> {
    if ctx == 0 {
        return None;
    }
    let mut device = -1;
    {
        let _within = Within::context(ctx).ok()?;
        // SAFETY: the place is a live local.
        done(unsafe { real::cuCtxGetDevice(&raw mut device) }).ok()?;
    }
    if !(0..DEVICES as i32).contains(&device) {
        return None;
    }
    #[cfg(feature = "fault-injection")]
    if crate::process::fault::is_set("inversion") {
        contexts::announce(|_| peers::context_left(0));
    }
    contexts::add(ctx, device, || pools_reached_by(device).for_each(|served| served.pool.context_created(ctx)))
}

/// The pool that serves the calling thread's current context.
#[inline]
pub(crate) fn here() -> Option<(&'static Served, u64)> {
    if !on() {
        return None;
    }
    let ctx = current();
    Some((serving(context(ctx)?)?, ctx))
}

/// The pool that serves a context.
#[inline]
pub(crate) fn serving(slot: &'static Slot) -> Option<&'static Served> {
    slot.served().or_else(|| roomy(|| make(slot)))
}

/// The turn of whoever makes a pool.
struct Making {
    _held: ranks::Held,
}

impl Drop for Making {
    fn drop(&mut self) {
        shared::give_turn(&MAKING);
    }
}

fn making() -> Option<Making> {
    shared::take_turn(&MAKING, MAKING_TAKES).then(|| Making { _held: ranks::take(Rank::Making) })
}

#[cold]
fn make(slot: &'static Slot) -> Option<&'static Served> {
    if slot.refused() {
        return None;
    }
    let _making = making()?;
    if let Some(served) = slot.served() {
        return Some(served);
    }
    let Living { ordinal, ctx } = slot.living()?;
    let known = |served: &&Served| served.ordinal == ordinal && (served.mapped() || served.driver.owner == ctx);
    if let Some(served) = pools().filter(|served| !served.host).find(known) {
        slot.serve(ctx, Some(served));
        return Some(served);
    }
    let Some(served) = build(ordinal, ctx) else {
        slot.serve(ctx, None);
        job::remember("a device has no pool: its memory calls pass through");
        return None;
    };
    slot.serve(ctx, Some(served));
    mempools::adopt_default(served);
    Some(served)
}

fn build(ordinal: i32, ctx: u64) -> Option<&'static Served> {
    type A = CUdevice_attribute;
    let _relaxed = Relaxed::enter();
    #[cfg(feature = "fault-injection")]
    inject();
    let switches = &job::active()?.config.pool;
    let mut total = 0;
    // SAFETY: the place is a live local.
    done(unsafe { real::cuDeviceTotalMem_v2(&raw mut total, ordinal) }).ok()?;
    let vmm = !switches.plain
        && device_attribute(ordinal, A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == Some(1);
    let driver = Driver::new(ordinal, if vmm { 0 } else { ctx });
    let cap = cap::on().and_then(|caps| caps.known_cap(ordinal)).unwrap_or(u64::MAX);
    let mut config = Config::switched(switches, total as u64, cap.min(total as u64));
    config.vmm = vmm;
    if vmm {
        let least = driver.granularity()?;
        config.small_handle = config.small_handle.max(least);
        config.large_handle = config.large_handle.max(config.small_handle);
    }
    install(ordinal, driver, config, false)
}

/// Makes a pool and lets everybody find it.
fn install(ordinal: i32, driver: Driver, config: Config, host: bool) -> Option<&'static Served> {
    let handles = [config.small_handle, config.large_handle];
    let pool = Pool::new(config, &driver).ok()?;
    let plain = pool.mempool_created()?;
    let mut arenas = [(0, 0); 2];
    for (at, range) in arenas.iter_mut().zip(pool.address_ranges()) {
        *at = (range.start, range.end);
    }
    let served: &'static Served = Box::leak(Box::new(Served {
        ordinal,
        pool,
        driver,
        plain,
        host,
        numbering: Numbering::default(),
        arenas,
        handles,
    }));
    if !LIST.any() {
        // SAFETY: registers a function that only stores.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    let mut granted = 0;
    while let Err(devices) = appear(served, granted) {
        for device in (0..DEVICES as i32).filter(|device| devices & bit(*device) != 0) {
            served.pool.grant(&served.driver, Grant { device, write: true }, Duration::ZERO).ok()?;
        }
        granted |= devices;
    }
    pools().find(|known| core::ptr::eq(*known, served))
}

/// Tells a new pool of everything that runs, and then lets everybody find it. An error: these devices got access
/// meanwhile, and it has not granted it yet.
fn appear(served: &'static Served, granted: u64) -> Result<(), u64> {
    contexts::announce(|known| {
        let lacking = reach::of(served.ordinal) & !granted & !bit(served.ordinal);
        if lacking != 0 {
            return Err(lacking);
        }
        for context in known.iter().filter(|context| reaches(context.ordinal, served.ordinal)) {
            served.pool.context_created(context.ctx);
        }
        for lane in capture::list().into_iter().filter(|lane| reaches(lane.ordinal, served.ordinal)) {
            served.pool.set_capturing(lane.id, lane.ctx, true);
        }
        LIST.add(core::ptr::from_ref(served).cast_mut());
        Ok(())
    })
}

/// For tests: how many pools are not consistent; says on standard error what is wrong.
#[cfg(feature = "fault-injection")]
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn weir_pool_check() -> core::ffi::c_int {
    let wrong = pools().filter_map(|served| served.pool.check().err());
    wrong.inspect(|what| crate::process::surroundings::say(what)).count() as core::ffi::c_int
}

/// For tests: bytes that the pools have lost because an undo failed.
#[cfg(feature = "fault-injection")]
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn weir_pool_lost() -> u64 {
    pools().map(|served| served.pool.stats().lost_bytes).sum()
}

/// Injects the fault of the pool that `WEIR_FAULT=pool:NAME` names.
#[cfg(feature = "fault-injection")]
fn inject() {
    if let Some(fault) =
        weir_pool::Fault::ALL.into_iter().find(|known| crate::process::fault::is_set(&format!("pool:{known:?}")))
    {
        weir_pool::inject(fault);
    }
}

/// A call of the driver's that takes device memory, made again after the pools gave back what they
/// could, should it have failed for want of it.
pub(crate) fn with_room(call: impl Fn() -> CUresult) -> CUresult {
    with_room_for(|asked| asked.ask(&call))
}

/// What the driver has answered.
#[derive(Default)]
pub(crate) struct Asked(Cell<bool>);

impl Asked {
    /// Asks the driver.
    pub(crate) fn ask(&self, call: impl FnOnce() -> CUresult) -> CUresult {
        let result = call();
        self.0.set(result == CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        result
    }
}

/// The same for a call with an account around it, which may hold locks while it asks the driver: room is made without
/// them, and the whole is done again.
pub(crate) fn with_room_for(call: impl Fn(&Asked) -> CUresult) -> CUresult {
    let asked = Asked::default();
    let result = call(&asked);
    if !asked.0.take() || !any() {
        return result;
    }
    let given: u64 = pools().map(Served::give_back).sum();
    let result = if given > 0 { call(&asked) } else { result };
    if (given > 0 && !asked.0.take()) || capture::under_way() {
        return result;
    }
    // What was freed and is not yet proven idle: the last thing that can be done.
    let given: u64 = pools().filter(|served| served.settle()).map(Served::give_back).sum();
    if given > 0 { call(&asked) } else { result }
}
