//! The pool's handles: charged when they are created, by the budget of the request that needs them.

use super::watch::Change;
use super::{PAGE, at, on};
use weir_ledger::{Category, Reservation, Urgency};
use weir_pool::Budget;

/// What a new handle of the pool costs.
pub(crate) enum Cost {
    /// Nothing is kept account of.
    Free,
    /// It was granted before.
    Credit(u64, Change),
    /// It is reserved.
    Reserved(Reservation, Change),
}

/// Reserves the charge for a handle of the pool, or a segment; `None`: the cap forbids it.
pub(crate) fn reserve(ordinal: i32, bytes: u64, budget: &Budget) -> Option<Cost> {
    let Some((caps, (device, account))) = at(ordinal) else {
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

/// The driver has returned the handle or not.
pub(crate) fn commit_or_roll_back(cost: Cost, budget: &Budget, created: bool) {
    match (cost, on()) {
        (Cost::Credit(bytes, _), _) if !created => budget.refund(bytes),
        (Cost::Reserved(reservation, _), Some(caps)) if created => caps.ledger.commit(reservation),
        (Cost::Reserved(reservation, _), Some(caps)) => caps.ledger.roll_back(reservation),
        _ => {}
    }
}

/// A handle or a segment went back to the driver.
pub(crate) fn released(ordinal: i32, bytes: u64) {
    if let Some(caps) = on() {
        caps.release(ordinal, Category::Pool, bytes.next_multiple_of(PAGE));
    }
}
