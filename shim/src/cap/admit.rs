//! Asking for room: reserve before the driver is asked, then commit or give back; making room and waiting for it.

use super::{Caps, Device, PAGE, measured};
use crate::alloc::{self, Served};
use crate::driver::contexts;
use crate::driver::wait::{self, Whose};
use crate::process::surroundings;
use crate::record;
use weir_cuda::CUresult;
use weir_ledger::ledger::TINY;
use weir_ledger::{Category, Crossing, DeviceId, Grant, Refusal, Reservation, Urgency};
use weir_settings::limit::{OnCap, uuid_text};
use weir_settings::size::Human;

/// How badly a request of so many bytes is needed.
pub(crate) fn urgency(bytes: u64) -> Urgency {
    if bytes <= TINY { Urgency::Tiny } else { Urgency::Normal }
}

/// Whether so many bytes in whole portions may be free under the cap once the pool gives back what it does not use.
pub(crate) fn fits(served: &Served, bytes: u64) -> bool {
    let view = super::on().and_then(|caps| caps.ledger.view(caps.at(served.ordinal)?.1));
    view.is_some_and(|view| {
        let free = view.total().saturating_sub(view.used).saturating_add(served.reusable());
        bytes.checked_next_multiple_of(PAGE).is_some_and(|bytes| bytes <= free)
    })
}

impl Caps {
    /// Room for memory that the driver is about to be asked for, from outside the pool.
    pub(crate) fn admit(
        &self,
        (device, account): (&Device, DeviceId),
        bytes: u64,
        category: Category,
        urgency: Urgency,
    ) -> Result<Reservation, CUresult> {
        let ask = || self.ledger.reserve(account, bytes, category, urgency);
        self.heed(device, account);
        let mut answer = ask();
        if matches!(answer, Err(Refusal::Full { .. })) && self.make_room(device, false) {
            answer = ask();
        }
        if matches!(answer, Err(Refusal::Full { .. })) {
            // Whether this thread made room or another one did meanwhile: it is asked once more.
            self.make_room(device, true);
            answer = ask();
        }
        if let (Err(Refusal::Full { .. }), OnCap::Wait(patience)) = (&answer, self.terms.on_cap) {
            let wait = || {
                self.ledger.reserve_waiting_unless(account, bytes, category, urgency, patience, &mut || {
                    // What the job frees meanwhile goes to the pool first.
                    self.make_room(device, false);
                    false
                })
            };
            answer = record::waiting(device.ordinal, bytes, wait, Result::is_ok);
        }
        self.granted(device, answer).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Room for what is known to be needed on top; nothing is trimmed and nobody waits.
    pub(crate) fn admit_more(
        &self,
        (device, account): (&Device, DeviceId),
        bytes: u64,
        category: Category,
    ) -> Result<Reservation, Refusal> {
        self.granted(device, self.ledger.reserve(account, bytes, category, Urgency::Normal))
    }

    /// Room for a tiny request, from what was set aside if need be. Nothing is trimmed and nobody waits.
    pub(crate) fn admit_tiny(
        &self,
        (device, account): (&Device, DeviceId),
        bytes: u64,
        category: Category,
    ) -> Result<Reservation, Refusal> {
        self.granted(device, self.ledger.reserve(account, bytes, category, Urgency::Tiny))
    }

    /// Tells of a crossed mark.
    pub(super) fn granted(&self, device: &Device, answer: Result<Grant, Refusal>) -> Result<Reservation, Refusal> {
        let grant = answer?;
        if let Some(crossing) = grant.crossed_mark {
            self.warn(device, crossing);
        }
        Ok(grant.reservation)
    }

    fn warn(&self, device: &Device, crossing: Crossing) {
        let level = self.terms.warn.map_or(0, |mark| mark.of(crossing.cap));
        record::soft_mark(device.ordinal, level, crossing.used);
        let mark = self.terms.warn.map(|mark| format!(" (WEIR_WARN={mark})")).unwrap_or_default();
        let (used, cap, uuid) = (Human(crossing.used), Human(crossing.cap), uuid_text(device.uuid));
        surroundings::say(&format!("{uuid}: {used} of the cap of {cap} are used{mark}"));
    }

    /// The driver has answered: the reservation becomes a charge of `used` bytes, or nothing.
    pub(crate) fn settle(
        &self,
        (device, account): (&Device, DeviceId),
        reservation: Reservation,
        category: Category,
        used: Option<u64>,
    ) {
        let Some(used) = used else {
            self.ledger.give_back(reservation);
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

    /// Memory that is there already, whatever the cap says.
    pub(crate) fn fact(&self, (device, account): (&Device, DeviceId), category: Category, bytes: u64) {
        if let Some(crossing) = self.ledger.charge(account, category, bytes) {
            self.warn(device, crossing);
        }
    }

    /// Memory went back to the driver.
    pub(crate) fn release(&self, ordinal: i32, category: Category, bytes: u64) {
        if bytes > 0
            && let Some((_, account)) = self.at(ordinal)
        {
            self.ledger.release(account, category, bytes);
        }
    }

    /// Looks whether somebody lacks memory or the cap was lowered: then what is free goes back.
    pub(crate) fn heed(&self, device: &Device, account: DeviceId) {
        let Some(news) = self.ledger.news(account) else { return };
        if news.cap_changed {
            record::cap_changed(device.ordinal, news.cap);
        }
        if news.over > 0 || (news.trim_wanted && self.terms.group.is_some()) {
            self.make_room(device, false);
        }
    }

    /// Gives everything of a device back that nobody uses; `idle` also waits for the device's work once, so that what
    /// the job has freed is provably free. Says whether it is worth asking again.
    pub(super) fn make_room(&self, device: &Device, idle: bool) -> bool {
        let waited = idle && wait_for(device.ordinal);
        if idle && !waited {
            return false;
        }
        let mut given = 0;
        for served in alloc::pools().filter(|served| served.ordinal == device.ordinal) {
            given += served.give_back();
        }
        given += measured::trim(self, device);
        given > 0
    }
}

/// Waits for all work of a device, but not for ever. False: nothing is proven.
fn wait_for(ordinal: i32) -> bool {
    // Without the pool only the contexts are known that were made under weir's eyes.
    alloc::context(crate::driver::guards::current());
    let proofs: Vec<_> = {
        let Some(_alive) = contexts::alive() else { return false };
        let known = contexts::all().filter(|context| context.ordinal == ordinal);
        let reached: Vec<&Served> = alloc::pools_reached_by(ordinal).collect();
        let began =
            |ctx| reached.iter().map(move |served| (*served, served.pool.began(weir_pool::Call::ContextSync(ctx))));
        known.flat_map(|context| began(context.ctx).collect::<Vec<_>>()).collect()
    };
    let waited = wait::for_work(Whose::Of(ordinal), wait::PATIENCE).is_ok();
    for (served, proof) in proofs {
        served.pool.ended(proof, waited);
    }
    waited
}
