//! One truth behind every query: cuMemGetInfo, cuDeviceTotalMem and NVML report the same figures, and what they report
//! as free is what a request could really get.

use super::{CapDevice, Caps, PAGE, measured, on};
use serde_json::{Value, json};
use weir_ledger::{Category, DeviceId, View};
use weir_settings::limit::uuid_text;

/// What is reported of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    /// Its size.
    pub(crate) total: u64,
    /// What could be got.
    pub(crate) free: u64,
}

/// What is reported of a view, given what the driver has free and the pool could hand out.
fn report(view: &View, driver_free: u64, cached: u64) -> Reported {
    let total = view.total();
    // New memory comes in whole chunks: less than one cannot be got.
    let fresh = driver_free.min(total.saturating_sub(view.used)) / PAGE * PAGE;
    Reported { total, free: fresh.saturating_add(cached).min(total) }
}

impl Caps {
    fn reported(&self, device: &CapDevice, account: DeviceId, driver_free: u64) -> Option<Reported> {
        measured::refresh(self, device);
        let look = || Some((self.ledger.view(account)?, self.callbacks.reusable(device.ordinal)));
        // A pool that grows or gives back between a look at the account and one at the pool would count twice.
        let ((first, cached), (mut view, cached_now)) = (look()?, look()?);
        view.cap?;
        view.used = view.used.max(first.used);
        Some(report(&view, driver_free, cached.min(cached_now)))
    }
}

/// What is reported of the device with this number, given what the driver has free; `None`: the driver's own figures.
pub(crate) fn of(ordinal: i32, driver_free: u64) -> Option<Reported> {
    let caps = on()?;
    let (device, account) = caps.at(ordinal)?;
    caps.reported(device, account, driver_free)
}

/// The size of a device; `None`: the driver's own figure.
pub(crate) fn total(ordinal: i32) -> Option<u64> {
    let caps = on()?;
    let (_, account) = caps.at(ordinal)?;
    let view = caps.ledger.view(account)?;
    view.cap.map(|_| view.total())
}

/// What is reported of the device of an NVML handle.
pub(crate) fn of_nvml(handle: weir_cuda::nvml::NvmlDevice, driver_free: u64) -> Option<Reported> {
    let caps = on()?;
    let uuid = super::machine::uuid_of(handle)?;
    // A device that CUDA hides from the job has no account and is reported as it is.
    let device = caps.devices().iter().find(|device| device.uuid == uuid)?;
    caps.reported(device, caps.account(device)?, driver_free)
}

/// The devices that the job sees, each with the cap that it has.
pub(crate) fn terms() -> Vec<Value> {
    let devices = on().map(Caps::devices).unwrap_or_default();
    let cap = |device: &CapDevice| on().and_then(|caps| caps.known_cap(device.ordinal));
    devices
        .iter()
        .map(|device| {
            json!({"device": device.ordinal, "uuid": uuid_text(device.uuid), "physical": device.physical, "cap": cap(device)})
        })
        .collect()
}

/// The account, for `weir doctor` and the tests.
pub(crate) fn status() -> Option<Value> {
    const NAMES: [&str; 8] = ["pool", "device", "managed", "array", "vmm", "imported", "context", "spilled"];
    let caps = on().filter(|caps| caps.lost.is_none() || caps.strict)?;
    let devices: Vec<Value> = caps
        .devices()
        .iter()
        .filter_map(|device| {
            let account = (*device.opened.get()?)?;
            let view = caps.ledger.view(account)?;
            let uses: serde_json::Map<String, Value> = Category::ALL
                .iter()
                .zip(NAMES)
                .map(|(category, name)| (name.to_owned(), json!(view.own.by_category.get(*category as usize))))
                .collect();
            Some(json!({
                "device": device.ordinal,
                "uuid": uuid_text(device.uuid),
                "physical": view.physical,
                "cap": view.cap,
                "used": view.used,
                "own": view.own.charged,
                "set_aside": view.own.set_aside,
                "pending": view.own.pending,
                "peak": view.peak,
                "uses": uses,
            }))
        })
        .collect();
    Some(json!({"file": caps.ledger.path(), "group": caps.terms.group, "devices": devices}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ledger::Usage;

    #[test]
    fn free_is_what_can_be_got() {
        let view = |cap, used| View { physical: 100 * PAGE, cap, used, peak: used, own: Usage::default() };
        let reported =
            |v: &View, free, cached| (report(v, free, cached).total / PAGE, report(v, free, cached).free / PAGE);
        assert_eq!(reported(&view(Some(10 * PAGE), 4 * PAGE), 90 * PAGE, 0), (10, 6));
        assert_eq!(reported(&view(Some(10 * PAGE), 4 * PAGE), 3 * PAGE, PAGE), (10, 4), "the device has no more");
        assert_eq!(reported(&view(Some(10 * PAGE), 12 * PAGE), 90 * PAGE, 0), (10, 0), "a lowered cap");
        let odd = report(&view(Some(10 * PAGE), 9 * PAGE + 512), 90 * PAGE, 0);
        assert_eq!(odd.free, 0, "a part of a chunk cannot be allocated");
    }
}
