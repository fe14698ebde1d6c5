//! The job that this process is: its configuration, and whether weir still has an effect on it.
//!
//! Made at the first CUDA call, never freed. What weir does with a job's memory hangs from here: a
//! body asks [`active`] and forwards when the answer is `None`.

use crate::config::Config;
use crate::served::work;
use crate::{note, recorder, reserve, surroundings};
use core::sync::atomic::{AtomicPtr, Ordering};
use weir_pool::shared;

/// The state of a process that uses CUDA.
pub(crate) struct Job {
    /// What the environment asks for.
    pub(crate) config: Config,
}

static JOB: AtomicPtr<Job> = AtomicPtr::new(core::ptr::null_mut());
/// Why weir has no effect; null while it has.
static OFF: AtomicPtr<String> = AtomicPtr::new(core::ptr::null_mut());
/// Something went wrong that does not turn weir off.
static REMEMBERED: AtomicPtr<&'static str> = AtomicPtr::new(core::ptr::null_mut());

/// Whether the job has been made.
#[inline(always)]
pub(crate) fn started() -> bool {
    !JOB.load(Ordering::Acquire).is_null()
}

/// The job, once made.
pub(crate) fn get() -> Option<&'static Job> {
    // SAFETY: a non-null pointer comes from `start`, which leaks what it points to.
    unsafe { JOB.load(Ordering::Acquire).as_ref() }
}

/// The job while weir has an effect on it.
pub(crate) fn active() -> Option<&'static Job> {
    get().filter(|job| job.config.problems.is_empty() && OFF.load(Ordering::Acquire).is_null())
}

/// Makes the job out of the environment. Threads that come at the same moment each read it, one
/// job is kept, and the thread whose it is speaks: nobody waits for anybody.
pub(crate) fn start() {
    if started() {
        return;
    }
    reserve::begin();
    // The copy of std in this library is its own, and so is its panic hook: the default one would
    // print into the job's output. What happened is kept as the reason instead.
    std::panic::set_hook(Box::new(|_| {}));
    let config = crate::guard::run("start", || {
        #[cfg(feature = "faults")]
        crate::faults::strike("start");
        Config::from_environment()
    })
    .unwrap_or_default();
    work::begin(config.pool.on && config.problems.is_empty());
    if let Err(mine) = shared::keep_first(&JOB, Box::into_raw(Box::new(Job { config }))) {
        // SAFETY: made above, and nobody else has seen it.
        drop(unsafe { Box::from_raw(mine) });
        return;
    }
    let problems = get().map_or(&[][..], |job| &job.config.problems);
    for problem in problems {
        surroundings::say(problem);
    }
    if !problems.is_empty() {
        turn_off(problems.join("; "));
    }
}

/// From now on weir passes everything through. The first reason is kept and noted.
pub(crate) fn turn_off(reason: String) {
    if let Err(mine) = shared::keep_first(&OFF, Box::into_raw(Box::new(reason))) {
        // SAFETY: made above, and nobody else has seen it.
        drop(unsafe { Box::from_raw(mine) });
        return;
    }
    if let Some(text) = off() {
        recorder::turned_off(text);
        note::leave(text);
    }
}

/// Why weir has no effect, where it has none.
pub(crate) fn off() -> Option<&'static str> {
    // SAFETY: a non-null pointer comes from `turn_off`, which leaks what it points to.
    unsafe { OFF.load(Ordering::Acquire).as_ref() }.map(String::as_str)
}

/// Keeps something that went wrong and that weir itself has no part in, for `weir doctor`.
pub(crate) fn remember(what: &'static str) {
    if REMEMBERED.load(Ordering::Acquire).is_null() {
        REMEMBERED.store(Box::leak(Box::new(what)), Ordering::Release);
    }
}

/// What [`remember`] has kept.
pub(crate) fn remembered() -> Option<&'static str> {
    // SAFETY: a non-null pointer comes from `remember`, which leaks what it points to.
    unsafe { REMEMBERED.load(Ordering::Acquire).as_ref() }.copied()
}
