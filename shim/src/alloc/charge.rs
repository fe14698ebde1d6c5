//! A request to the device pool of a device with an account. What finds no room waits for it here, outside the pool, where
//! the job's own frees count too.

use super::{DevicePool, pools, spill};
use crate::cap::admit::urgency;
use crate::cap::watch::Change;
use crate::cap::{Account, measured};
use crate::driver::capture;
use crate::record;
use std::time::Instant;
use weir_ledger::{Category, Refusal, Urgency};
use weir_pool::{AllocError, Allocation, Budget, Effort, Request};
use weir_settings::limit::OnCap;

/// Whether an answer means that there is no memory.
pub(super) fn full(answer: &Result<Allocation, AllocError>) -> bool {
    matches!(answer, Err(AllocError::OverCap | AllocError::OutOfMemory))
}

/// A request to the pool of a device with an account.
pub(super) fn serve(
    device_pool: &DevicePool,
    request: &Request,
    (caps, (device, account)): Account,
) -> Result<Allocation, AllocError> {
    let tiny = urgency(request.bytes) == Urgency::Tiny;
    let budget = Budget { tiny, ..Budget::default() };
    let ask = || match caps.on_cap() {
        OnCap::Spill => spill::serve(device_pool, request, &budget),
        _ => device_pool.pool.allocate(&device_pool.driver, request, &budget),
    };
    let mut answer = ask();
    if answer == Err(AllocError::OverCap) && measured::trim(caps, device) > 0 {
        answer = ask();
    }
    // The pool has waited for its own memory. What the driver holds for the job outside it counts too, and so does what
    // pools of other contexts hold.
    if answer == Err(AllocError::OverCap) && (measured::may_shrink(caps, device) || others_may_shrink(device_pool)) {
        caps.make_room(device, true);
        answer = ask();
    }
    if let (Err(AllocError::OverCap), OnCap::Wait(patience)) = (&answer, caps.on_cap())
        && !capture::under_way()
    {
        let wait_for_room = || wait(device_pool, request, (caps, (device, account)), Instant::now() + patience);
        answer = record::waiting(device.ordinal, request.bytes, wait_for_room, Result::is_ok);
    }
    answer
}

/// Whether another pool of the device holds what nobody uses. Without virtual memory management each context has its own.
fn others_may_shrink(device_pool: &DevicePool) -> bool {
    let mut others = pools().filter(|other| other.ordinal == device_pool.ordinal && !std::ptr::eq(*other, device_pool));
    others.any(|other| other.reusable() > 0)
}

/// Waits until the ledger grants what the request lacks, or the pool can serve it from what the job has freed.
fn wait(
    device_pool: &DevicePool,
    request: &Request,
    (caps, (device, account)): Account,
    until: Instant,
) -> Result<Allocation, AllocError> {
    let tiny = urgency(request.bytes) == Urgency::Tiny;
    let want = request.bytes.next_multiple_of(device_pool.chunk(request.bytes));
    // It is worth a try once, as something may have been freed since the pool tried everything, and then only when something
    // was freed. Frees are counted: another thread may have taken the memory and freed it again since the last try.
    let frees = || Some(device_pool.pool.stats().frees());
    let mut tried = None;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut found = Err(AllocError::OverCap);
        let granted =
            caps.ledger.reserve_waiting(account, want, Category::Pool, urgency(request.bytes), left, &mut || {
                measured::trim(caps, device);
                if std::mem::replace(&mut tried, frees()) == tried {
                    return false;
                }
                let budget = Budget { effort: Effort::WithoutMesh, tiny, closed: true, ..Budget::default() };
                found = device_pool.pool.allocate(&device_pool.driver, request, &budget);
                found != Err(AllocError::OverCap)
            });
        match caps.granted(device, granted) {
            Ok(reservation) => {
                // It is charged from here on, and not taken yet.
                let _change = Change::begin();
                let bytes = reservation.bytes();
                caps.ledger.commit(reservation);
                let budget = Budget { tiny, credit: bytes.into(), ..Budget::default() };
                let answer = device_pool.pool.allocate(&device_pool.driver, request, &budget);
                caps.release(device.ordinal, Category::Pool, budget.credit.take());
                if answer != Err(AllocError::OverCap) || left.is_zero() {
                    return answer;
                }
            }
            Err(Refusal::Withdrawn) => return found,
            Err(_) => return Err(AllocError::OverCap),
        }
    }
}
