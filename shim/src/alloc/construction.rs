//! Making a device pool, and letting everybody find it.

use super::backing::Driver;
use super::footing::{self, Footing};
use super::registry::{LIST, pools};
use super::{DevicePool, mempools};
use crate::cap;
use crate::driver::contexts::{self, Living, Slot};
use crate::driver::guards::RelaxedCapture;
use crate::driver::reach::{self, bit, reaches};
use crate::driver::real::{self, done};
use crate::driver::{DEVICES, capture};
use crate::process::job;
use crate::record;
use core::sync::atomic::AtomicU32;
use std::time::Duration;
use weir_journal::Numbering;
use weir_pool::ranks::{self, Rank};
use weir_pool::shared::{self, Guarded, Turns};
use weir_pool::{Config, PeerAccess, Pool};

/// Whether somebody makes a pool.
static MAKING: Guarded<Turns> = Guarded::new(Rank::TurnFlag, Turns::free());
/// How long a request waits for another thread that makes a pool; then the driver serves it.
const MAKING_TAKES: Duration = Duration::from_secs(10);
/// The turn of whoever makes a pool.
pub(super) struct Making {
    _held: ranks::Held,
}

impl Drop for Making {
    fn drop(&mut self) {
        shared::give_turn(&MAKING);
    }
}

pub(super) fn making() -> Option<Making> {
    shared::take_turn(&MAKING, MAKING_TAKES).then(|| Making { _held: ranks::take(Rank::Making) })
}

#[cold]
pub(super) fn make(slot: &'static Slot) -> Option<&'static DevicePool> {
    if slot.refused() {
        return None;
    }
    // What the pool stands on is tried with memory that is charged: the account is opened before the turn is taken.
    let _ = cap::at(slot.ordinal());
    let _making = making()?;
    if let Some(device_pool) = DevicePool::of(slot) {
        return Some(device_pool);
    }
    let Living { ordinal, ctx } = slot.living()?;
    let known = |device_pool: &&DevicePool| {
        device_pool.ordinal == ordinal && (device_pool.mapped() || device_pool.driver.owner == ctx)
    };
    if let Some(device_pool) = pools().filter(|device_pool| !device_pool.host).find(known) {
        slot.attach(ctx, Some(core::ptr::from_ref(device_pool).cast()));
        return Some(device_pool);
    }
    let Some(device_pool) = build(ordinal, ctx) else {
        slot.attach(ctx, None);
        job::remember("a device has no pool: its memory calls pass through");
        return None;
    };
    slot.attach(ctx, Some(core::ptr::from_ref(device_pool).cast()));
    mempools::adopt_default(device_pool);
    Some(device_pool)
}

fn build(ordinal: i32, ctx: u64) -> Option<&'static DevicePool> {
    let _relaxed = RelaxedCapture::enter();
    #[cfg(feature = "fault-injection")]
    inject();
    let switches = &job::active()?.config.pool;
    let mut total = 0;
    // SAFETY: the place is a live local.
    done(unsafe { real::cuDeviceTotalMem_v2(&raw mut total, ordinal) }).ok()?;
    let cap = cap::on().and_then(|caps| caps.known_cap(ordinal)).unwrap_or(u64::MAX);
    let config = Config::switched(switches, total as u64, cap.min(total as u64));
    match footing::find(ordinal, ctx, config) {
        Ok(Footing { driver, pool, words }) => {
            record::chose("pool", format!("device {ordinal}: {words}"));
            appear_with(ordinal, driver, pool, false)
        }
        Err(why) => {
            record::chose("pool", format!("device {ordinal}: {why}"));
            None
        }
    }
}

/// Makes a pool and lets everybody find it.
pub(super) fn install(ordinal: i32, driver: Driver, config: Config, host: bool) -> Option<&'static DevicePool> {
    let pool = Pool::new(config, &driver).ok()?;
    appear_with(ordinal, driver, pool, host)
}

/// Lets everybody find a pool.
fn appear_with(ordinal: i32, driver: Driver, pool: Pool, host: bool) -> Option<&'static DevicePool> {
    let handles = pool.handle_sizes();
    let plain = pool.mempool_created()?;
    let mut arenas = [(0, 0); 2];
    for (at, range) in arenas.iter_mut().zip(pool.address_ranges()) {
        *at = (range.start, range.end);
    }
    let device_pool: &'static DevicePool = Box::leak(Box::new(DevicePool {
        ordinal,
        pool,
        driver,
        plain,
        host,
        numbering: Numbering::default(),
        arenas,
        handles,
        errors: AtomicU32::new(0),
    }));
    let mut granted = 0;
    while let Err(devices) = appear(device_pool, granted) {
        for device in (0..DEVICES as i32).filter(|device| devices & bit(*device) != 0) {
            device_pool.pool.grant(&device_pool.driver, PeerAccess { device, write: true }, Duration::ZERO).ok()?;
        }
        granted |= devices;
    }
    pools().find(|known| core::ptr::eq(*known, device_pool))
}

/// Notifies a new pool of everything that runs, and then lets everybody find it. An error: these devices got access
/// meanwhile, and it has not granted it yet.
fn appear(device_pool: &'static DevicePool, granted: u64) -> Result<(), u64> {
    contexts::announce(|known| {
        let lacking = reach::of(device_pool.ordinal) & !granted & !bit(device_pool.ordinal);
        if lacking != 0 {
            return Err(lacking);
        }
        for context in known.iter().filter(|context| reaches(context.ordinal, device_pool.ordinal)) {
            device_pool.pool.context_created(context.ctx);
        }
        for stream_ref in
            capture::list().into_iter().filter(|stream_ref| reaches(stream_ref.ordinal, device_pool.ordinal))
        {
            device_pool.pool.set_capturing(stream_ref.id, stream_ref.ctx, true);
        }
        LIST.add(core::ptr::from_ref(device_pool).cast_mut());
        Ok(())
    })
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
