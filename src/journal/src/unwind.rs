//! Native stacks for the journal: captured by the fastest way that works, interned by the journal.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::names::STACK_DEPTH;
use crate::sys::stack::{TableUnwinder, by_backtrace, by_frame_pointers, generation_seen};
use crate::writer::Journal;

/// How to walk a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// By unwinding tables; by `backtrace` where that finds nothing.
    Best,
    /// By unwinding tables alone.
    Tables,
    /// By frame pointers alone.
    FramePointers,
    /// By the `backtrace` crate.
    Backtrace,
}

static UNWINDER: OnceLock<TableUnwinder> = OnceLock::new();

/// Reads the modules' unwinding tables. Call it once before the first capture, at a moment when allocating is fine.
pub fn prepare_unwinding() {
    UNWINDER.get_or_init(TableUnwinder::new);
}

/// Return addresses of the calling thread, innermost first. Without [`prepare_unwinding`] there are no tables.
#[inline(never)]
pub fn capture_stack(walk: Walk, to: &mut [u64]) -> usize {
    let by_tables = |to: &mut [u64]| UNWINDER.get().map_or(0, |unwinder| unwinder.capture(to));
    match walk {
        Walk::Tables => by_tables(to),
        Walk::FramePointers => by_frame_pointers(to),
        Walk::Backtrace => by_backtrace(to),
        Walk::Best => match by_tables(to) {
            0 | 1 => by_backtrace(to),
            count => count,
        },
    }
}

impl Journal {
    /// Captures and interns the calling thread's stack; 0 when there is none. Allocates when modules have come or gone.
    pub fn native_stack(&self, walk: Walk) -> u32 {
        let mut addresses = [0; STACK_DEPTH];
        let count = capture_stack(walk, &mut addresses);
        // A module that came since the last look: whoever reads the stack needs it, however the process dies.
        let generation = generation_seen();
        if self.generation.load(Ordering::Relaxed) != generation {
            self.generation.store(generation, Ordering::Relaxed);
            self.refresh_modules();
        }
        self.stack(addresses.get(..count).unwrap_or_default())
    }
}
