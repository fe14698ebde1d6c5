//! Faults that tests inject: a death or a halt at the n-th step of the shared protocol, and injected faults.
//!
//! Without the feature `fault-injection` everything here is a constant `false` or nothing, and costs nothing. It touches only
//! its own thread's variables.

/// A injected fault. Each one removes one guard of the protocol; the tests must notice every one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Members are taken for dead without a query to the kernel.
    NoLivenessCheck = 1,
    /// The sum is read, compared and written in separate steps.
    SplitAdmission = 2,
    /// Waiting requests are granted in any order.
    NoTicketOrder = 3,
    /// A reservation that is released stays charged.
    KeepOnRollBack = 4,
    /// A change that its owner did not live to note is not finished by the next one.
    NoHelp = 5,
    /// A changed cap does not overtake the requests that are under way.
    NoCapFence = 6,
    /// A dead member's row is not read again after its death is certain.
    NoSecondLook = 7,
}

impl Fault {
    /// All of them, for tests that go through the list.
    pub const ALL: [Self; 7] = [
        Self::NoLivenessCheck,
        Self::SplitAdmission,
        Self::NoTicketOrder,
        Self::KeepOnRollBack,
        Self::NoHelp,
        Self::NoCapFence,
        Self::NoSecondLook,
    ];
}

#[cfg(feature = "fault-injection")]
mod switched {
    use super::Fault;
    use std::cell::Cell;

    thread_local! {
        static FAULT: Cell<u8> = const { Cell::new(0) };
        static COUNTDOWN: Cell<u64> = const { Cell::new(0) };
        static ACTION: Cell<Option<fn()>> = const { Cell::new(None) };
    }

    /// Switches one fault on for this thread, or all off.
    pub fn inject(fault: Option<Fault>) {
        FAULT.set(fault.map_or(0, |d| d as u8));
    }

    /// Runs `action` (a kill, a stop) just before the `steps`-th shared access of this thread from now on; 0 disarms.
    pub fn arm(steps: u64, action: fn()) {
        COUNTDOWN.set(steps);
        ACTION.set(Some(action));
    }

    pub(crate) fn injected(fault: Fault) -> bool {
        FAULT.get() == fault as u8
    }

    pub(crate) fn step() {
        let left = COUNTDOWN.get();
        if left == 0 {
            return;
        }
        COUNTDOWN.set(left - 1);
        if left == 1
            && let Some(action) = ACTION.get()
        {
            action();
        }
    }
}

#[cfg(feature = "fault-injection")]
pub use switched::{arm, inject};
#[cfg(feature = "fault-injection")]
pub(crate) use switched::{injected, step};

#[cfg(not(feature = "fault-injection"))]
#[inline]
pub(crate) const fn injected(_: Fault) -> bool {
    false
}

#[cfg(not(feature = "fault-injection"))]
#[inline]
pub(crate) const fn step() {}
