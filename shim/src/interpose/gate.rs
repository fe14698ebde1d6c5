//! What every exported function passes first: count, start what is not started, find the real one.

use super::export::{Absent, next_definition};
use crate::driver::library::Library;
use crate::process::calls::Uncancelled;
use crate::process::{guard, job, surroundings};

/// Counts the call and finds the real function. Two loads and an addition once all is started: no
/// lock, no allocation, no thread-local.
#[inline(always)]
pub(crate) fn enter<const N: usize>(library: &Library<N>, id: usize) -> Result<usize, Absent> {
    library.count(id);
    #[cfg(feature = "fault-injection")]
    if let Some(entry) = library.entries.get(id) {
        guard::run(entry.name(), || crate::process::fault::strike(entry.name()));
    }
    match library.real(id) {
        real if real != 0 && library.is_ready() => Ok(real),
        _ => first(library, id),
    }
}

#[cold]
fn first<const N: usize>(library: &Library<N>, id: usize) -> Result<usize, Absent> {
    let _kept = surroundings::Errno::keep();
    // The libraries that are loaded now run code of their own.
    let _uncancelled = Uncancelled::enter();
    job::start();
    let found = guard::run("resolution", || library.resolve(true)).unwrap_or(false);
    if found {
        library.set_ready();
    } else {
        job::remember("the real library was not found: its functions answer an error");
    }
    match library.real(id) {
        0 => library.entries.get(id).and_then(next_definition).ok_or(if found {
            Absent::Function
        } else {
            Absent::Library
        }),
        real => Ok(real),
    }
}
