//! Memory came free: those who wait for it look again at once. Checked at every free and every wait of the job, so one load
//! answers where nobody waits.

use super::{CapDevice, Caps, on};
use weir_ledger::DeviceId;
use weir_settings::limit::OnCap;

/// The account of a device for whose memory somebody waits.
#[inline]
fn wanted(ordinal: i32) -> Option<(&'static Caps, &'static CapDevice, DeviceId)> {
    let caps = on()?;
    if caps.terms.group.is_none() && !matches!(caps.terms.on_cap, OnCap::Wait(_)) {
        return None;
    }
    let device = caps.device(ordinal)?;
    let account = (*device.opened.get()?)?;
    caps.ledger.somebody_waits(account).then_some((caps, device, account))
}

/// The job has freed memory of a device to the pool.
#[inline]
pub(crate) fn freed(ordinal: i32) {
    if let Some((caps, _, account)) = wanted(ordinal) {
        notify(caps, account);
    }
}

#[cold]
fn notify(caps: &Caps, account: DeviceId) {
    caps.ledger.freed(account);
}

/// The job has waited for its work, so that what it had freed is known to be free: what the pool does not use goes back
/// where other processes wait for it.
#[inline]
pub(crate) fn waited() {
    if let Some(caps) = on().filter(|caps| caps.terms.group.is_some()) {
        for device in caps.devices().iter().filter(|device| wanted(device.ordinal).is_some()) {
            caps.make_room(device, false);
        }
    }
}
