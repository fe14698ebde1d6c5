//! Making a device pool, and letting everybody find it.

use super::backing::Driver;
use super::registry::{LIST, pools};
use super::{Served, fork, mempools};
use crate::cap;
use crate::driver::contexts::{self, Living, Slot};
use crate::driver::guards::RelaxedCapture;
use crate::driver::reach::{self, bit, reaches};
use crate::driver::real::{self, device_attribute, done};
use crate::driver::{DEVICES, capture};
use crate::process::job;
use std::time::Duration;
use weir_cuda::*;
use weir_journal::Numbering;
use weir_pool::ranks::{self, Rank};
use weir_pool::shared::{self, Guarded};
use weir_pool::{Config, Grant, Pool};

/// Whether somebody makes a pool.
static MAKING: Guarded<bool> = Guarded::new(Rank::TurnFlag, false);
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
pub(super) fn make(slot: &'static Slot) -> Option<&'static Served> {
    if slot.refused() {
        return None;
    }
    let _making = making()?;
    if let Some(served) = Served::of(slot) {
        return Some(served);
    }
    let Living { ordinal, ctx } = slot.living()?;
    let known = |served: &&Served| served.ordinal == ordinal && (served.mapped() || served.driver.owner == ctx);
    if let Some(served) = pools().filter(|served| !served.host).find(known) {
        slot.attach(ctx, Some(core::ptr::from_ref(served).cast()));
        return Some(served);
    }
    let Some(served) = build(ordinal, ctx) else {
        slot.attach(ctx, None);
        job::remember("a device has no pool: its memory calls pass through");
        return None;
    };
    slot.attach(ctx, Some(core::ptr::from_ref(served).cast()));
    mempools::adopt_default(served);
    Some(served)
}

fn build(ordinal: i32, ctx: u64) -> Option<&'static Served> {
    type A = CUdevice_attribute;
    let _relaxed = RelaxedCapture::enter();
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
pub(super) fn install(ordinal: i32, driver: Driver, config: Config, host: bool) -> Option<&'static Served> {
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
        fork::watch();
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

/// Injects the fault of the pool that `WEIR_FAULT=pool:NAME` names.
#[cfg(feature = "fault-injection")]
fn inject() {
    if let Some(fault) =
        weir_pool::Fault::ALL.into_iter().find(|known| crate::process::fault::is_set(&format!("pool:{known:?}")))
    {
        weir_pool::inject(fault);
    }
}
