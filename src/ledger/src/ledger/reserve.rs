//! Reserve, then commit or roll back; release; charge what is a fact. One short process-local lock and the protocol of
//! [`crate::admission`]; files and processes are looked at only when a request does not fit.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Category, Crossing, DeviceId, Ledger, Local, Refusal, Reservation, Reserved, Urgency};
use crate::admission::{self, Admitted, Refused};
use crate::fault::{Fault, injected};
use crate::map;
use crate::members::Liveness;
use crate::table::{CATEGORIES, MAX_DEVICES, Table};
use crate::word::{self, MAX_UNITS, SharedWord, UNIT, Word, units_up};

/// How often it compares start times of processes at most.
const THOROUGH_MS: u64 = 1000;

impl Ledger {
    /// Reserves memory; answers at once.
    pub fn reserve(
        &self,
        device: DeviceId,
        bytes: u64,
        category: Category,
        urgency: Urgency,
    ) -> Result<Reserved, Refusal> {
        let table = self.table_of(device)?;
        let first = self.try_reserve(table, device, bytes, category, urgency);
        let Err(Refusal::Full { .. }) = first else {
            return first;
        };
        // Before it is refused: are there dead members, is the cap still what it was, does the sum add up?
        self.refresh(table, device);
        let second = self.try_reserve(table, device, bytes, category, urgency);
        if second.is_err() {
            table.device(device.0).trim.add(1);
        }
        second
    }

    pub(super) fn refresh(&self, table: Table<'_, SharedWord>, device: DeviceId) {
        if self.group {
            let now = map::now_ms();
            let last = self.last_thorough.load(Relaxed);
            let liveness = if now.abs_diff(last) > THOROUGH_MS {
                self.last_thorough.store(now, Relaxed);
                Liveness::thorough(&self.file, self.own)
            } else {
                Liveness::new(&self.file, self.own)
            };
            liveness.reclaim_dead(Some(self.slot));
        }
        admission::refresh_cap(table, device.0, false, |s| table.is_owned(s));
        admission::audit(table, device.0);
    }

    fn try_reserve(
        &self,
        table: Table<'_, SharedWord>,
        device: DeviceId,
        bytes: u64,
        category: Category,
        urgency: Urgency,
    ) -> Result<Reserved, Refusal> {
        let units = units_up(bytes);
        let mut local = self.local(device);
        let grant = |crossed_mark| Reserved {
            reservation: Reservation { units, owner: self.own.pid, device: device.0 as u16, category: category as u8 },
            crossed_mark,
            waited: Duration::ZERO,
        };
        let cap = word::Amount::unpack(table.device(device.0).cap.load()).units;
        // What was set aside counts. A fact or a lowered cap may have put the sum above the cap: then it is not there.
        let fits = |left: u64| {
            cap == 0 || word::Sum::unpack(table.device(device.0).sum.load()).units.saturating_sub(left) <= cap
        };
        if urgency == Urgency::Tiny && units <= local.aside && fits(local.aside - units) {
            local.aside -= units;
            local.pending += units;
            return Ok(grant(None));
        }
        let largest = if cap == 0 { MAX_UNITS } else { cap.saturating_sub(local.aside_target) };
        if units > largest {
            return Err(Refusal::TooLarge { largest: largest * UNIT });
        }
        match admission::take(table, self.slot, device.0, units, true) {
            Ok(admitted) => {
                local.pending += units;
                Ok(grant(mark(&mut local, admitted)))
            }
            Err(Refused::Full { free }) => Err(Refusal::Full { free: free * UNIT }),
            Err(Refused::Absurd) => Err(Refusal::TooLarge { largest: MAX_UNITS * UNIT }),
        }
    }

    /// The driver has allocated the memory.
    #[expect(clippy::needless_pass_by_value, reason = "a reservation is used once")]
    pub fn commit(&self, reservation: Reservation) {
        let Some((table, device)) = self.own_reservation(&reservation) else {
            return;
        };
        let mut local = self.local(device);
        let units = reservation.units.min(local.pending);
        local.pending -= units;
        let category = reservation.category as usize % CATEGORIES;
        local.categories[category] += units * UNIT;
        table.cell(self.slot, device.0).categories[category].store(local.categories[category]);
    }

    /// The driver has not allocated the memory.
    #[expect(clippy::needless_pass_by_value, reason = "a reservation is used once")]
    pub fn roll_back(&self, reservation: Reservation) {
        let Some((table, device)) = self.own_reservation(&reservation) else {
            return;
        };
        if injected(Fault::KeepOnRollBack) {
            return;
        }
        let mut local = self.local(device);
        let units = reservation.units.min(local.pending);
        local.pending -= units;
        self.free_units(table, device, local, units);
    }

    fn own_reservation(&self, reservation: &Reservation) -> Option<(Table<'_, SharedWord>, DeviceId)> {
        let table = self.file.table()?;
        (reservation.owner == self.own.pid).then_some((table, DeviceId(reservation.device as usize % MAX_DEVICES)))
    }

    /// Committed memory went back to the driver. Returns how many bytes were really charged in that category: never more
    /// than there were, so that no account goes below 0.
    pub fn release(&self, device: DeviceId, category: Category, bytes: u64) -> u64 {
        let Ok(table) = self.table_of(device) else {
            return 0;
        };
        let mut local = self.local(device);
        let at = category as usize;
        let bytes = units_up(bytes).saturating_mul(UNIT).min(local.categories[at]);
        local.categories[at] -= bytes;
        table.cell(self.slot, device.0).categories[at].store(local.categories[at]);
        if category != Category::Spilled {
            self.free_units(table, device, local, bytes / UNIT);
        }
        bytes
    }

    /// Charges memory that is there already, such as the context's own: it is a fact, so the cap is not consulted.
    pub fn charge(&self, device: DeviceId, category: Category, bytes: u64) -> Option<Crossing> {
        let table = self.table_of(device).ok()?;
        let mut local = self.local(device);
        let at = category as usize;
        let mut crossed = None;
        if category != Category::Spilled {
            let admitted = admission::take(table, self.slot, device.0, units_up(bytes), false).ok()?;
            crossed = mark(&mut local, admitted);
        }
        local.categories[at] = local.categories[at].saturating_add(units_up(bytes).saturating_mul(UNIT));
        table.cell(self.slot, device.0).categories[at].store(local.categories[at]);
        crossed
    }

    /// Gives units back to the group, after what is missing was set aside again.
    fn free_units(&self, table: Table<'_, SharedWord>, device: DeviceId, mut local: MutexGuard<'_, Local>, units: u64) {
        let aside = local.aside_target.saturating_sub(local.aside).min(units);
        local.aside += aside;
        if units > aside {
            let (_, sum) = admission::release(table, self.slot, device.0, units - aside);
            let cap = word::Amount::unpack(table.device(device.0).cap.load()).units;
            mark(&mut local, Admitted { sum, cap });
            drop(local);
            self.wake_waiters(device);
        }
    }
}

/// Reports a crossing of the soft mark, once; the next is reported after the use has been a twentieth of the cap below it.
fn mark(local: &mut Local, admitted: Admitted) -> Option<Crossing> {
    let level = local.warn?.of(admitted.cap * UNIT).min(admitted.cap * UNIT) / UNIT;
    if admitted.cap == 0 || level == 0 {
        return None;
    }
    if admitted.sum >= level {
        return (!std::mem::replace(&mut local.above_mark, true))
            .then_some(Crossing { used: admitted.sum * UNIT, cap: admitted.cap * UNIT });
    }
    if admitted.sum < level.saturating_sub(admitted.cap / 20) {
        local.above_mark = false;
    }
    None
}
