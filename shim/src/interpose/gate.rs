//! What every exported function passes first: count, start what is not started, find the real one.

use super::entry::Entry;
use super::export::{Absent, next_definition};
use super::presence;
use crate::driver::library::Library;
use crate::process::calls::Uncancelled;
use crate::process::{guard, job, surroundings};
use crate::{alloc, record};

/// What the job calls of the layers above it.
static PARTS: job::Parts = job::Parts {
    begin: alloc::begin,
    turned_off: |reason| {
        record::turned_off(reason);
        presence::report();
    },
    report: presence::first,
};

/// Counts the call and finds the real function. Two loads and an addition once all is started: no
/// lock, no allocation, no thread-local.
#[inline(always)]
pub(crate) fn enter<const N: usize>(library: &Library<N>, entries: &[Entry; N], id: usize) -> Result<usize, Absent> {
    library.count(id);
    #[cfg(feature = "fault-injection")]
    if let Some(entry) = entries.get(id) {
        guard::run(entry.name(), || crate::process::fault::strike(entry.name()));
    }
    match library.real(id) {
        real if real != 0 && library.is_ready() => Ok(real),
        _ => first(library, entries, id),
    }
}

#[cold]
fn first<const N: usize>(library: &Library<N>, entries: &[Entry; N], id: usize) -> Result<usize, Absent> {
    let _kept = surroundings::Errno::keep();
    // The libraries that are loaded now run code of their own.
    let _uncancelled = Uncancelled::enter();
    job::start(&PARTS);
    let found = guard::run("resolution", || library.resolve(true)).unwrap_or(false);
    if found {
        library.set_ready();
    } else {
        job::remember("the real library was not found: its functions answer an error");
    }
    match library.real(id) {
        0 => entries.get(id).and_then(next_definition).ok_or(if found { Absent::Function } else { Absent::Library }),
        real => Ok(real),
    }
}
