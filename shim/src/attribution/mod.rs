//! Who asks for memory: the native stack of the calling thread, by the rule of `WEIR_STACKS`.
//!
//! Always for calls into the driver and for shortages, which are rare and dear; for requests that the pool answers by
//! itself once in so many bytes. Asked on the way of every request: a few instructions where no stack is due.

use core::cell::Cell;
use core::sync::atomic::{AtomicU8, Ordering};
use weir_journal::{Attribution, Journal, Walk};

/// When native stacks are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stacks {
    /// Never.
    Off,
    /// For calls into the driver and shortages, and once in [`SAMPLE`] bytes of what the pool hands out.
    #[default]
    Sampled,
    /// For every request.
    All,
}

/// What is about to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// So many bytes that the pool had ready.
    Hit(u64),
    /// A call into the driver.
    DriverCall,
    /// A request that found no memory.
    Shortage,
}

/// Bytes handed out by the pool between two stacks of a thread.
const SAMPLE: u64 = 4 << 20;

static STACKS: AtomicU8 = AtomicU8::new(Stacks::Off as u8);

thread_local! {
    /// Bytes until this thread's next stack. Constant and without a destructor.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Sets when stacks are taken; at the making of the journal, when allocating is fine.
pub(crate) fn begin(stacks: Stacks) {
    if stacks != Stacks::Off {
        weir_journal::prepare_unwinding();
    }
    STACKS.store(stacks as u8, Ordering::Relaxed);
}

/// Who asks.
#[inline]
pub(crate) fn here(journal: &Journal, what: What) -> Attribution {
    let stack = if due(what) { stack(journal) } else { 0 };
    Attribution { stack, op: 0, python: 0 }
}

#[inline]
fn due(what: What) -> bool {
    let stacks = STACKS.load(Ordering::Relaxed);
    match what {
        _ if stacks == Stacks::Off as u8 => false,
        What::Hit(bytes) if stacks == Stacks::Sampled as u8 => sampled(bytes),
        _ => true,
    }
}

#[inline]
fn sampled(bytes: u64) -> bool {
    LEFT.try_with(|left| match left.get().checked_sub(bytes) {
        Some(rest) => {
            left.set(rest);
            false
        }
        None => {
            left.set(SAMPLE);
            true
        }
    })
    .unwrap_or(false)
}

#[cold]
#[inline(never)]
fn stack(journal: &Journal) -> u32 {
    journal.native_stack(Walk::Best)
}
