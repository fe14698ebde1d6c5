//! Admission: reserve before the driver is called, then commit or roll back; making room and waiting for it.

use super::{CapDevice, Caps, Fact, PAGE, measured};
use crate::process::surroundings;
use weir_cuda::CUresult;
use weir_ledger::ledger::TINY;
use weir_ledger::{Category, Crossing, DeviceId, News, Refusal, Reservation, Reserved, Urgency};
use weir_settings::limit::{OnCap, uuid_text};
use weir_settings::size::Human;

/// How badly a request of so many bytes is needed.
pub(crate) fn urgency(bytes: u64) -> Urgency {
    if bytes <= TINY { Urgency::Tiny } else { Urgency::Normal }
}

/// Whether so many bytes in whole chunks may be free under the cap once the pool gives back what it does not use.
pub(crate) fn fits(ordinal: i32, reusable: u64, bytes: u64) -> bool {
    let view = super::at(ordinal).and_then(|(caps, (_, account))| caps.ledger.view(account));
    view.is_some_and(|view| {
        let free = view.total().saturating_sub(view.used).saturating_add(reusable);
        bytes.checked_next_multiple_of(PAGE).is_some_and(|bytes| bytes <= free)
    })
}

impl Caps {
    /// Room for memory that is about to be requested of the driver, from outside the pool.
    pub(crate) fn admit(
        &self,
        (device, account): (&CapDevice, DeviceId),
        bytes: u64,
        category: Category,
        urgency: Urgency,
    ) -> Result<Reservation, CUresult> {
        let attempt = || self.ledger.reserve(account, bytes, category, urgency);
        self.look(device, account);
        let mut answer = attempt();
        if matches!(answer, Err(Refusal::Full { .. })) && self.make_room(device, false) {
            answer = attempt();
        }
        if matches!(answer, Err(Refusal::Full { .. })) {
            // Whether this thread made room or another one did meanwhile: it is tried once more.
            self.make_room(device, true);
            answer = attempt();
        }
        if let (Err(Refusal::Full { .. }), OnCap::Wait(patience)) = (&answer, self.terms.on_cap) {
            self.callbacks.waiting(device.ordinal, bytes, &mut || {
                answer = self.ledger.reserve_waiting(account, bytes, category, urgency, patience, &mut || {
                    // What the job frees meanwhile goes to the pool first.
                    self.make_room(device, false);
                    false
                });
                answer.is_ok()
            });
        }
        self.granted(device, answer).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Room for what is known to be needed on top; nothing is trimmed and nobody waits.
    pub(crate) fn admit_more(
        &self,
        (device, account): (&CapDevice, DeviceId),
        bytes: u64,
        category: Category,
    ) -> Result<Reservation, Refusal> {
        self.granted(device, self.ledger.reserve(account, bytes, category, Urgency::Normal))
    }

    /// Room for a tiny request, from what was set aside if need be. Nothing is trimmed and nobody waits.
    pub(crate) fn admit_tiny(
        &self,
        (device, account): (&CapDevice, DeviceId),
        bytes: u64,
        category: Category,
    ) -> Result<Reservation, Refusal> {
        self.granted(device, self.ledger.reserve(account, bytes, category, Urgency::Tiny))
    }

    /// Warns of a crossed mark.
    pub(crate) fn granted(
        &self,
        device: &CapDevice,
        answer: Result<Reserved, Refusal>,
    ) -> Result<Reservation, Refusal> {
        let grant = answer?;
        self.warn(device, grant.crossed_mark);
        Ok(grant.reservation)
    }

    /// The same where the mark may have been crossed. Not under a lock: it prints.
    pub(super) fn warn(&self, device: &CapDevice, crossing: Option<Crossing>) {
        let Some(crossing) = crossing else { return };
        let level = self.terms.warn.map_or(0, |mark| mark.of(crossing.cap));
        self.callbacks.happened(device.ordinal, Fact::Crossed(level, crossing.used));
        let mark = self.terms.warn.map(|mark| format!(" (WEIR_WARN={mark})")).unwrap_or_default();
        let (used, cap, uuid) = (Human(crossing.used), Human(crossing.cap), uuid_text(device.uuid));
        surroundings::say(&format!("{uuid}: {used} of the cap of {cap} are used{mark}"));
    }

    /// The driver has answered: the reservation becomes a charge of `used` bytes, or nothing.
    pub(crate) fn commit_or_roll_back(
        &self,
        (device, account): (&CapDevice, DeviceId),
        reservation: Reservation,
        category: Category,
        used: Option<u64>,
    ) {
        let Some(used) = used else {
            self.ledger.roll_back(reservation);
            return;
        };
        let reserved = reservation.bytes();
        self.ledger.commit(reservation);
        if used < reserved {
            self.ledger.release(account, category, reserved - used);
        } else if used > reserved {
            self.fact((device, account), category, used - reserved);
        }
    }

    /// Memory that is there already, whatever the cap is.
    pub(crate) fn fact(&self, (device, account): (&CapDevice, DeviceId), category: Category, bytes: u64) {
        self.warn(device, self.ledger.charge(account, category, bytes));
    }

    /// Memory went back to the driver.
    pub(crate) fn release(&self, ordinal: i32, category: Category, bytes: u64) {
        if bytes > 0
            && let Some((_, account)) = self.at(ordinal)
        {
            self.ledger.release(account, category, bytes);
        }
    }

    /// Somebody lacks memory or the cap is another one: what is free goes back where that helps.
    #[cold]
    pub(super) fn react(&self, device: &CapDevice, news: &News) {
        if news.cap_changed {
            self.callbacks.happened(device.ordinal, Fact::Cap(news.cap));
        }
        if news.over > 0 || (news.trim_wanted && self.terms.group.is_some()) {
            self.make_room(device, false);
        }
    }

    /// Gives everything of a device back that nobody uses; `idle` also waits for the device's work once, so that what
    /// the job has freed is provably free. Returns whether it is worth trying again.
    pub(crate) fn make_room(&self, device: &CapDevice, idle: bool) -> bool {
        let waited = idle && self.callbacks.wait_for(device.ordinal);
        if idle && !waited {
            return false;
        }
        let released = self.callbacks.trim(device.ordinal);
        released + measured::trim(self, device) > 0
    }
}
