//! The job that this process is: its configuration, and whether weir still has an effect on it.
//!
//! Made at the first CUDA call, never freed. What weir does with a job's memory hangs from here: a
//! body calls [`active`] and forwards when the answer is `None`.

use super::config::Config;
use super::{note, reserve, surroundings};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use weir_pool::shared;

/// The state of a process that uses CUDA.
pub(crate) struct Job {
    /// What the environment configures.
    pub(crate) config: Config,
    parts: &'static Parts,
}

/// What the layers above do at turns of the job: handed in by whoever starts it.
pub(crate) struct Parts {
    /// Before anybody sees the job.
    pub(crate) begin: fn(&Config),
    /// Weir has turned itself off, for this reason.
    pub(crate) turned_off: fn(&str),
    /// The process reports its state to `weir run`, unless it has.
    pub(crate) report: fn(),
}

/// Set in a forked child: nothing of the parent's device state is usable there.
static FORKED: AtomicBool = AtomicBool::new(false);
static JOB: AtomicPtr<Job> = AtomicPtr::new(core::ptr::null_mut());
/// Why weir has no effect; null while it has.
static OFF: AtomicPtr<String> = AtomicPtr::new(core::ptr::null_mut());
/// Why cuInit fails: a limit that the job was to have cannot be kept. Null while it need not.
static REFUSED: AtomicPtr<String> = AtomicPtr::new(core::ptr::null_mut());
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
    get().filter(|_| OFF.load(Ordering::Acquire).is_null())
}

/// Whether the pool has an effect on this process.
#[inline]
pub(crate) fn pools() -> bool {
    active().is_some_and(|job| job.config.pool.on) && !FORKED.load(Ordering::Relaxed)
}

/// Who serves a request for device memory.
pub(crate) enum Server {
    /// The pool of its device.
    Pool,
    /// The driver: there are no pools.
    Driver,
    /// Nobody can keep account of it: host memory is short.
    Unaccounted,
}

/// Who serves a request for device memory now.
#[inline(always)]
pub(crate) fn server() -> Server {
    if reserve::short() {
        Server::Unaccounted
    } else if pools() {
        Server::Pool
    } else {
        Server::Driver
    }
}

/// In a forked child: the pool has no effect on it.
pub(crate) fn forked() {
    FORKED.store(true, Ordering::Release);
}

/// Reports the state of this process to `weir run`, unless it knows.
pub(crate) fn report() {
    if let Some(job) = get() {
        (job.parts.report)();
    }
}

/// Makes the job out of the environment. Threads that come at the same moment each read it, one
/// job is kept, and the thread whose it is speaks: nobody waits for anybody.
pub(crate) fn start(parts: &'static Parts) {
    if started() {
        return;
    }
    reserve::begin();
    // The copy of std in this library is its own, and so is its panic hook: the default one would
    // print into the job's output. What happened is kept as the reason instead.
    std::panic::set_hook(Box::new(|_| {}));
    let config = super::guard::run("start", || {
        #[cfg(feature = "fault-injection")]
        super::fault::strike("start");
        Config::from_environment()
    })
    .unwrap_or_else(|| Config::unread(off().unwrap_or_default()));
    (parts.begin)(&config);
    if let Err(mine) = shared::keep_first(&JOB, Box::into_raw(Box::new(Job { config, parts }))) {
        // SAFETY: made above, and nobody else has seen it.
        drop(unsafe { Box::from_raw(mine) });
        return;
    }
    let Some(job) = get() else { return };
    for line in job.config.lines() {
        surroundings::say(&line);
    }
    if let Some(lost) = job.config.lost().filter(|_| job.config.strict) {
        refuse(lost);
    }
}

/// From now on cuInit fails, because a limit cannot be kept. The first reason is kept and noted; it was said already.
pub(crate) fn refuse(reason: String) {
    if keep(&REFUSED, reason)
        && let Some(text) = refused()
    {
        note::leave(text);
    }
}

/// Why cuInit fails, where it does.
pub(crate) fn refused() -> Option<&'static str> {
    // SAFETY: a non-null pointer comes from `keep`, which leaks what it points to.
    unsafe { REFUSED.load(Ordering::Acquire).as_ref() }.map(String::as_str)
}

/// Keeps a reason for ever, if it is the first.
fn keep(place: &AtomicPtr<String>, reason: String) -> bool {
    let first = shared::keep_first(place, Box::into_raw(Box::new(reason)));
    if let Err(mine) = first {
        // SAFETY: made above, and nobody else has seen it.
        drop(unsafe { Box::from_raw(mine) });
    }
    first.is_ok()
}

/// From now on weir passes everything through, which also lifts a cap: then it is said aloud. The first reason is kept and
/// noted.
pub(crate) fn turn_off(reason: String) {
    if !keep(&OFF, reason) {
        return;
    }
    if let Some(text) = off() {
        if get().is_some_and(|job| job.config.caps.any()) {
            surroundings::say(&format!("{text}; weir is disabled for this process, and so is its cap"));
        }
        if let Some(job) = get() {
            (job.parts.turned_off)(text);
        }
        note::leave(text);
    }
}

/// Why weir has no effect, where it has none.
pub(crate) fn off() -> Option<&'static str> {
    // SAFETY: a non-null pointer comes from `keep`, which leaks what it points to.
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
