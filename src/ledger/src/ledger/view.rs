//! One moment's truth about a device, behind every query; and what has changed since the last look.

use super::{DeviceId, Ledger};
use crate::admission;
use crate::table::CATEGORIES;
use crate::word::{self, MAX_UNITS, UNIT, Word};

/// What this process uses on one device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// By [`Category`](super::Category); the last, spilled, is host memory.
    pub by_category: [u64; CATEGORIES],
    /// Reserved and neither committed nor rolled back.
    pub pending: u64,
    /// Set aside for tiny requests.
    pub set_aside: u64,
    /// All that is charged to this process.
    pub charged: u64,
    /// The most that ever was.
    pub peak: u64,
}

/// One moment's truth about a device, behind every query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Physical bytes.
    pub physical: u64,
    /// The cap in force.
    pub cap: Option<u64>,
    /// Bytes charged to all members.
    pub used: u64,
    /// The most that ever was.
    pub peak: u64,
    /// This process's part.
    pub own: Usage,
}

impl View {
    /// Reported to the job as the device's size.
    pub fn total(&self) -> u64 {
        self.cap.map_or(self.physical, |cap| cap.min(self.physical))
    }

    /// Reported to the job as free: what a request could really get. `cached` is what the pool could hand out without
    /// the driver, `driver_free` what the driver says is free on the whole device.
    pub fn free(&self, driver_free: Option<u64>, cached: u64) -> u64 {
        let under_cap = self.total().saturating_sub(self.used);
        let fresh = driver_free.map_or(under_cap, |d| d.min(under_cap));
        fresh.saturating_add(cached).min(self.total())
    }
}

/// News that a process sees at its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// The cap is another than at the last look.
    pub cap_changed: bool,
    /// Somebody found no room since the last look, or the cap is exceeded: give back what is not in use.
    pub trim_wanted: bool,
    /// Bytes above the cap: nothing is admitted until they are gone.
    pub over: u64,
    /// The cap in force.
    pub cap: Option<u64>,
}

impl Ledger {
    /// One moment's truth about a device; `None` in a fork.
    pub fn view(&self, device: DeviceId) -> Option<View> {
        if device == DeviceId::CLOSED {
            return Some(View { physical: 0, cap: Some(0), used: 0, peak: 0, own: Usage::default() });
        }
        let table = self.file.table()?;
        let local = self.local(device);
        let shared = table.device(device.0);
        let cell = table.cell(self.slot, device.0);
        let charged = admission::held(table, self.slot, device.0) * UNIT;
        let cap = word::Amount::unpack(shared.cap.load()).units;
        Some(View {
            physical: shared.physical.load(),
            cap: (cap != 0).then_some(cap * UNIT),
            used: word::Sum::unpack(shared.sum.load()).units * UNIT,
            peak: shared.peak.load().min(MAX_UNITS) * UNIT,
            own: Usage {
                by_category: local.categories,
                pending: local.pending * UNIT,
                set_aside: local.aside * UNIT,
                charged,
                peak: cell.peak.load().min(MAX_UNITS) * UNIT,
            },
        })
    }

    /// What has happened since the last call; `None` when nothing has. Two loads: cheap enough for every request.
    pub fn news(&self, device: DeviceId) -> Option<News> {
        let table = self.table_of(device).ok()?;
        let shared = table.device(device.0);
        let cap = word::Amount::unpack(shared.cap.load()).units;
        let trim = shared.trim.load();
        let mut local = self.local(device);
        let cap_changed = std::mem::replace(&mut local.cap_seen, cap) != cap;
        let requested = std::mem::replace(&mut local.trim_seen, trim) != trim;
        if !cap_changed && !requested {
            return None;
        }
        let used = word::Sum::unpack(shared.sum.load()).units;
        let over = if cap == 0 { 0 } else { used.saturating_sub(cap) };
        Some(News {
            cap_changed,
            trim_wanted: requested || over != 0,
            over: over * UNIT,
            cap: (cap != 0).then_some(cap * UNIT),
        })
    }
}
