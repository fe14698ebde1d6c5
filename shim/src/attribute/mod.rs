//! Who requests memory: TensorFlow's operation, the Python lines, and the native stack of the calling thread.
//!
//! Operation and lines on every event: a few dozen nanoseconds once they have been seen. The stack by the rule of
//! `WEIR_STACKS`: always for calls into the driver and for failed requests, which are rare and dear; for requests that the pool
//! answers by itself once in so many bytes, of which those that an operation or a line names already count less.

use crate::frameworks::{self, python, tensorflow};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use weir_journal::{Attribution, Journal, Walk};
use weir_settings::record::Stacks;

/// What is about to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// So many bytes that the pool had ready; whether they are known to be for a tensor.
    Hit(u64, bool),
    /// A tensor in host memory, whose operation may be one of an input pipeline: no step of the training.
    OnHost,
    /// A call into the driver.
    DriverCall,
    /// A request that found no memory.
    OutOfMemory,
}

/// Bytes handed out by the pool between two stacks of a thread.
const SAMPLE: u64 = 4 << 20;
/// The same where an operation or a line says who requests: the stack adds little, and takes longer than all the rest.
const SAMPLE_OF_NAMED: u64 = 64 << 20;

static STACKS: AtomicU8 = AtomicU8::new(Stacks::Off as u8);

thread_local! {
    /// Bytes until this thread's next stack. Constant and without a destructor.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Whether the names of all nodes of graphs will come into the journal that is about to be made.
pub(crate) fn keeps_nodes() -> bool {
    tensorflow::xla::wanted()
}

/// Sets when stacks are taken; at the making of the journal, when allocating is fine.
pub(crate) fn begin(journal: &Journal, stacks: Stacks) {
    static BEFORE: AtomicBool = AtomicBool::new(false);
    // A forked child's journal is another one: what was interned before means nothing in it. In a process's first there is
    // nothing to forget, and the tables stay untouched.
    if BEFORE.swap(true, Ordering::AcqRel) {
        python::forget();
        tensorflow::forget();
    }
    python::begin();
    tensorflow::begin();
    tensorflow::record();
    tensorflow::xla::begin(journal);
    if stacks != Stacks::Off {
        weir_journal::prepare_unwinding();
    }
    STACKS.store(stacks as u8, Ordering::Relaxed);
}

/// The job has loaded code.
pub(crate) fn code_loaded(journal: &Journal) {
    tensorflow::xla::tidy(journal);
}

/// The requester.
#[inline]
pub(crate) fn here(journal: &Journal, what: What) -> Attribution {
    if !frameworks::present() {
        return Attribution { stack: if due(what, false) { stack(journal) } else { 0 }, op: 0, python: 0 };
    }
    let running = tensorflow::here(journal, what != What::OnHost, matches!(what, What::Hit(_, true)));
    // A node of a graph was made by Python earlier, whoever runs it now; all else is requested by the lines of the moment:
    // those of the thread, or of the thread that waits for it. What is in host memory may be for nobody who waits.
    let python = match &running {
        Some(node) if node.is_node => {
            or_else(or_else(node.call_lines(), || node.node_lines()), || python::here(journal))
        }
        Some(node) => or_else(or_else(python::here(journal), || node.call_lines()), || node.node_lines()),
        None => python::here(journal),
    };
    let waiting = python == 0 && running.is_some() && what != What::OnHost;
    let python = if waiting { tensorflow::calls::only() } else { python };
    let op = running.map_or(0, |running| running.op);
    let stack = if due(what, op != 0 || python != 0) { stack(journal) } else { 0 };
    Attribution { stack, op, python }
}

#[inline]
fn or_else(id: u32, other: impl FnOnce() -> u32) -> u32 {
    if id == 0 { other() } else { id }
}

#[inline]
fn due(what: What, named: bool) -> bool {
    let stacks = STACKS.load(Ordering::Relaxed);
    match what {
        _ if stacks == Stacks::Off as u8 => false,
        What::OnHost => stacks == Stacks::All as u8,
        What::Hit(bytes, _) if stacks == Stacks::Sampled as u8 => {
            sampled(if named { bytes / (SAMPLE_OF_NAMED / SAMPLE) } else { bytes })
        }
        _ => true,
    }
}

#[inline]
fn sampled(bytes: u64) -> bool {
    LEFT.try_with(|left| {
        let rest = left.get().checked_sub(bytes);
        left.set(rest.unwrap_or(SAMPLE));
        rest.is_none()
    })
    .unwrap_or(false)
}

#[cold]
#[inline(never)]
fn stack(journal: &Journal) -> u32 {
    // It is the thread's own stack that is walked, so that no other can be used for it.
    if crate::process::stack::has_room() { journal.native_stack(Walk::Best) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_sampled_by_bytes_and_less_where_who_asks_is_known() {
        STACKS.store(Stacks::Sampled as u8, Ordering::Relaxed);
        let taken = |named| (0..4096).filter(|_| due(What::Hit(1 << 20, false), named)).count();
        // One for every 4 MiB and the block that begins anew, of 4 GiB; and the first of the thread.
        assert!((4096 / 5..=4096 / 5 + 1).contains(&taken(false)), "{}", taken(false));
        assert!((4096 / 65..=4096 / 65 + 1).contains(&taken(true)), "{}", taken(true));
        assert!(due(What::DriverCall, true) && due(What::OutOfMemory, true) && !due(What::OnHost, false));
        STACKS.store(Stacks::Off as u8, Ordering::Relaxed);
    }
}
