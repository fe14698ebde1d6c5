//! The patience that TensorFlow's own allocator has and `cuda_malloc_async` has not: a request that finds no memory, under the
//! cap or on a full device, waits for what other threads and processes free.
//!
//! TensorFlow calls the driver with its allocator's mutex held, and frees under the same mutex: a wait inside the driver's
//! function would keep others from freeing. So the pool notes what it lacked, the request is refused, and the wait is where
//! TensorFlow's own allocator waits: outside, in the function that called it ([`crate::hooks`], `tensorflow/retry.rs`).

use super::{DevicePool, charge, pools};
use crate::cap::{self, Account};
use crate::driver::capture;
use crate::record;
use core::cell::Cell;
use std::time::{Duration, Instant};
use weir_pool::{AllocError, Allocation, Budget, Request};
use weir_settings::limit::OnCap;

/// Between two looks at what was freed: from this to this.
const PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(20));
/// How often the request is tried though this process has freed nothing: others may have.
const ANYWAY: Duration = Duration::from_millis(250);

/// What a thread's allocation may do.
#[derive(Clone, Copy)]
enum State {
    /// Nothing waits.
    Off,
    /// Who called waits, should memory be lacking.
    On,
    /// This was lacking.
    Lacked(usize, Request),
}

thread_local! {
    /// Constant and without a destructor.
    static STATE: Cell<State> = const { Cell::new(State::Off) };
}

/// While it lives, a refusal of the calling thread's requests is noted and not final.
pub(crate) struct Waiting {
    patience: Duration,
    /// From the first wait on.
    until: Cell<Option<Instant>>,
}

impl Waiting {
    /// The caller waits for so long in all.
    pub(crate) fn begin(patience: Duration) -> Self {
        let _ = STATE.try_with(|state| state.set(State::On));
        Self { patience, until: Cell::new(None) }
    }

    /// Waits for what was lacking. True: it is there now, and the request is worth another try.
    pub(crate) fn wait(&self) -> bool {
        let lacked = STATE.try_with(|state| state.replace(State::On)).unwrap_or(State::Off);
        let State::Lacked(at, request) = lacked else { return false };
        let until = self.until.get().unwrap_or_else(|| Instant::now() + self.patience);
        self.until.set(Some(until));
        let device_pool = pools().find(|device_pool| core::ptr::from_ref(*device_pool) as usize == at);
        device_pool.filter(|_| !capture::under_way()).is_some_and(|device_pool| wait(device_pool, &request, until))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = STATE.try_with(|state| state.set(State::Off));
    }
}

/// A request found no memory. True: its caller waits for it, and this refusal is not final.
pub(super) fn lacks(device_pool: &DevicePool, request: &Request) -> bool {
    let note = |state: &Cell<State>| {
        let waits = !matches!(state.get(), State::Off);
        if waits {
            state.set(State::Lacked(core::ptr::from_ref(device_pool) as usize, *request));
        }
        waits
    };
    STATE.try_with(note).unwrap_or(false)
}

/// Waits until the pool could serve the request: it does, and has it back at once, so that the next one like it finds it.
fn wait(device_pool: &'static DevicePool, request: &Request, until: Instant) -> bool {
    let Some(stream) = request.stream else { return false };
    // Where the setting says how long a request waits at the cap, it has waited as long.
    let by_setting = |(caps, _): &Account| matches!(caps.on_cap(), OnCap::Wait(_));
    let account = cap::enter(device_pool.ordinal).filter(|account| !by_setting(account));
    let ask = || match account {
        Some(account) => charge::serve(device_pool, request, account),
        None => device_pool.pool.allocate(&device_pool.driver, request, &Budget::default()),
    };
    let frees = || device_pool.pool.stats().frees();
    let looks = || {
        let (mut pause, longest) = PAUSES;
        let (mut tried, mut freed) = (Instant::now(), frees());
        loop {
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
            let now = Instant::now();
            if frees() == freed && now < tried + ANYWAY && now < until {
                continue;
            }
            (tried, freed, pause) = (now, frees(), PAUSES.0);
            let answer: Result<Allocation, AllocError> = ask();
            if !charge::full(&answer) || now >= until {
                return answer;
            }
        }
    };
    match record::waiting(device_pool.ordinal, request.bytes, looks, Result::is_ok) {
        Ok(allocation) => super::owner(allocation.addr)
            .is_some_and(|of| of.pool.free_async(allocation.addr, stream, request.context, ()).is_ok()),
        Err(_) => false,
    }
}
