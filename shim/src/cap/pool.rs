//! The pool's part: its handles are charged when they are created, and a request that finds no room waits for it here,
//! outside the pool, where the job's own frees count too.

use super::admit::urgency;
use super::watch::Change;
use super::{Caps, Device, PAGE, on};
use crate::alloc::{Served, spill};
use crate::driver::capture;
use crate::record;
use std::time::Instant;
use weir_ledger::{Category, DeviceId, Refusal, Reservation, Urgency};
use weir_pool::{AllocError, Allocation, Budget, Effort, Request};
use weir_settings::limit::OnCap;

/// What a new handle of the pool costs.
pub(crate) enum Cost {
    /// Nothing is kept account of.
    Free,
    /// It was granted before.
    Credit(u64, Change),
    /// It is reserved.
    Reserved(Reservation, Change),
}

/// Asks for a handle of the pool, or a segment; `None`: the cap forbids it.
pub(crate) fn ask(ordinal: i32, bytes: u64, budget: &Budget) -> Option<Cost> {
    let Some((caps, (device, account))) = on().and_then(|caps| Some((caps, caps.at(ordinal)?))) else {
        return Some(Cost::Free);
    };
    let bytes = bytes.next_multiple_of(PAGE);
    if budget.spend(bytes) {
        return Some(Cost::Credit(bytes, Change::begin()));
    }
    if budget.closed {
        return None;
    }
    let urgency = if budget.tiny { Urgency::Tiny } else { Urgency::Normal };
    let answer = caps.ledger.reserve(account, bytes, Category::Pool, urgency);
    caps.granted(device, answer).ok().map(|reservation| Cost::Reserved(reservation, Change::begin()))
}

/// The driver has given the handle or not.
pub(crate) fn settle(cost: Cost, budget: &Budget, given: bool) {
    match (cost, on()) {
        (Cost::Credit(bytes, _), _) if !given => budget.refund(bytes),
        (Cost::Reserved(reservation, _), Some(caps)) if given => caps.ledger.commit(reservation),
        (Cost::Reserved(reservation, _), Some(caps)) => caps.ledger.give_back(reservation),
        _ => {}
    }
}

/// A handle or a segment went back to the driver.
pub(crate) fn released(ordinal: i32, bytes: u64) {
    if let Some(caps) = on() {
        caps.release(ordinal, Category::Pool, bytes.next_multiple_of(PAGE));
    }
}

/// Whether an answer means that there is no memory.
pub(crate) fn full(answer: &Result<Allocation, AllocError>) -> bool {
    matches!(answer, Err(AllocError::OverCap | AllocError::OutOfMemory))
}

impl Caps {
    /// A request to the pool of a device with an account.
    pub(crate) fn serve(
        &self,
        served: &Served,
        request: &Request,
        (device, account): (&Device, DeviceId),
    ) -> Result<Allocation, AllocError> {
        let tiny = urgency(request.bytes) == Urgency::Tiny;
        let budget = Budget { tiny, ..Budget::default() };
        let ask = || match self.terms.on_cap {
            OnCap::Spill => spill::serve(served, request, &budget),
            _ => served.pool.allocate(&served.driver, request, &budget),
        };
        let mut answer = ask();
        if answer == Err(AllocError::OverCap) && super::measured::trim(self, device) > 0 {
            answer = ask();
        }
        // The pool has waited for its own memory. What the driver holds for the job outside it counts too.
        if answer == Err(AllocError::OverCap) && super::measured::may_shrink(self, device) {
            self.make_room(device, true);
            answer = ask();
        }
        if let (Err(AllocError::OverCap), OnCap::Wait(patience)) = (&answer, self.terms.on_cap)
            && !capture::under_way()
        {
            let wait = || self.wait(served, request, (device, account), Instant::now() + patience);
            answer = record::waiting(device.ordinal, request.bytes, wait, Result::is_ok);
        }
        answer
    }

    /// Waits until the ledger grants what the request lacks, or the pool can serve it from what the job has freed.
    fn wait(
        &self,
        served: &Served,
        request: &Request,
        (device, account): (&Device, DeviceId),
        until: Instant,
    ) -> Result<Allocation, AllocError> {
        let tiny = urgency(request.bytes) == Urgency::Tiny;
        let want = request.bytes.next_multiple_of(served.portion(request.bytes));
        // The pool has just tried everything: it is worth another try only when something was freed.
        // Frees are counted: another thread may have taken the memory and freed it again since the last try.
        let frees = || served.pool.stats().frees();
        let mut tried = frees();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut found = Err(AllocError::OverCap);
            let granted = self.ledger.reserve_waiting_unless(
                account,
                want,
                Category::Pool,
                urgency(request.bytes),
                left,
                &mut || {
                    super::measured::trim(self, device);
                    if std::mem::replace(&mut tried, frees()) == tried {
                        return false;
                    }
                    let budget = Budget { effort: Effort::WithoutMesh, tiny, closed: true, ..Budget::default() };
                    found = served.pool.allocate(&served.driver, request, &budget);
                    found != Err(AllocError::OverCap)
                },
            );
            match self.granted(device, granted) {
                Ok(reservation) => {
                    // It is charged from here on, and not taken yet.
                    let _change = Change::begin();
                    let bytes = reservation.bytes();
                    self.ledger.commit(reservation);
                    let budget = Budget { tiny, credit: bytes.into(), ..Budget::default() };
                    let answer = served.pool.allocate(&served.driver, request, &budget);
                    self.release(device.ordinal, Category::Pool, budget.credit.take());
                    if answer != Err(AllocError::OverCap) || left.is_zero() {
                        return answer;
                    }
                }
                Err(Refusal::Withdrawn) => return found,
                Err(_) => return Err(AllocError::OverCap),
            }
        }
    }
}
