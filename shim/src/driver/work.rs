//! Stopping the device: while a mesh moves bytes, no new work is queued and none runs.
//!
//! Every function of the table's topic `work` passes [`enter`]: two additions on a counter that few
//! threads share. A stop waits until nobody is inside and the streams are idle, and gives up soon
//! rather than hold a job whose device waits for the host. Whoever stops the device holds nothing then.

use super::guards::ContextGuard;
use super::reach::reaches;
use super::wait::{self, Pauses, Whose};
use super::{capture, contexts, real, stream};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use weir_cuda::{CUlaunchConfig, CUresult, CUstream, Variant};
use weir_pool::BackingError;
use weir_pool::ranks::{self, Rank};
use weir_pool::shared::{self, Guarded};

/// How long a stop waits for calls to return and for streams to become idle.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long it waits for a device that looks idle to be so.
const AT_ONCE: Duration = Duration::from_millis(20);
/// How long a call that queues work waits while the device is stopped: a stop takes as long as its copies.
const STOPPED_FOR: Duration = Duration::from_secs(60);

/// What a call gets that came while the device was stopped, and waited in vain for it to go on.
pub(crate) const REFUSED: CUresult = CUresult::CUDA_ERROR_SYSTEM_NOT_READY;

const SHARDS: usize = 16;

/// Calls under way, of the threads that share it; apart from the others in the cache.
#[repr(align(128))]
pub(crate) struct Shard(AtomicU64);

static SHARD: [Shard; SHARDS] = [const { Shard(AtomicU64::new(0)) }; SHARDS];
/// Whether the job has used streams that belong to a thread each.
static THREADS_HAVE_STREAMS: AtomicBool = AtomicBool::new(false);
/// Not 0 while the device is stopped.
static STOPPED: AtomicU64 = AtomicU64::new(0);
/// Calls that wait for a stopped device. No other stop begins before they are through.
static WAITING: AtomicU64 = AtomicU64::new(0);
static TURN: Guarded<()> = Guarded::new(Rank::Gate, ());
/// Whether there may ever be a pool: from before the job's first call.
static WANTED: AtomicBool = AtomicBool::new(false);

/// The job begins.
pub(crate) fn begin(wanted: bool) {
    WANTED.store(wanted, Ordering::Relaxed);
}

/// In a forked child: nothing is stopped here, and nothing will be.
pub(crate) fn forked() {
    WANTED.store(false, Ordering::Relaxed);
}

/// A call that queues work, while it lasts.
pub(crate) struct Queueing(Option<&'static Shard>);

impl Drop for Queueing {
    #[inline]
    fn drop(&mut self) {
        if let Some(shard) = self.0 {
            shared::leave(&shard.0);
        }
    }
}

/// Whether there may be work in a stream that only its own thread can query.
pub(crate) fn threads_have_streams() -> bool {
    THREADS_HAVE_STREAMS.load(Ordering::Relaxed)
}

/// There may be work in a stream that can't be queried.
pub(crate) fn streams_are_unknown() {
    THREADS_HAVE_STREAMS.store(true, Ordering::Relaxed);
}

/// Notes a call that queues work by this variant of its function, perhaps in a thread's own stream. `None`: the device is stopped, and has been for so long
/// that the call is refused.
#[inline]
pub(crate) fn enter_as(variant: Variant, per_thread: bool) -> Option<Queueing> {
    if per_thread || variant != Variant::Legacy {
        streams_are_unknown();
    }
    enter()
}

/// Notes the stream of a call that queues work.
#[inline]
pub(crate) fn saw_stream(stream: CUstream) {
    if Probe(stream).per_thread() {
        streams_are_unknown();
    }
}

/// An argument of a call that queues work: does it name the calling thread's own stream?
pub(crate) struct Probe<T>(pub(crate) T);

impl Probe<CUstream> {
    #[inline(always)]
    pub(crate) fn per_thread(&self) -> bool {
        self.0 as u64 == stream::PER_THREAD
    }
}

impl Probe<*const CUlaunchConfig> {
    #[inline(always)]
    pub(crate) fn per_thread(&self) -> bool {
        // SAFETY: null, or the caller's own description of a launch.
        unsafe { self.0.as_ref() }.is_some_and(|config| Probe(config.hStream).per_thread())
    }
}

/// Any other argument does not.
pub(crate) trait NoStream {
    #[inline(always)]
    fn per_thread(&self) -> bool {
        false
    }
}

impl<T> NoStream for Probe<T> {}

/// Notes a call that queues work; waits while the device is stopped.
#[inline]
pub(crate) fn enter() -> Option<Queueing> {
    if !WANTED.load(Ordering::Relaxed) {
        return Some(Queueing(None));
    }
    let Some(shard) = SHARD.get(stream::thread_number() as usize % SHARDS) else {
        return Some(Queueing(None));
    };
    (shared::enter(&shard.0, &STOPPED) || enter_late(shard)).then_some(Queueing(Some(shard)))
}

#[cold]
fn enter_late(shard: &Shard) -> bool {
    shared::enter_late(&shard.0, &STOPPED, &WAITING, &TURN, STOPPED_FOR)
}

/// Stops new work and waits for what is queued, but not for long. `false`: it goes on as before.
pub(crate) fn stop(ordinal: i32) -> Result<bool, BackingError> {
    stop_if(ordinal, PATIENCE, || true)
}

/// Stops new work if nothing is queued or about to be. `false`: it goes on as before.
pub(crate) fn stop_if_idle(ordinal: i32) -> Result<bool, BackingError> {
    stop_if(ordinal, AT_ONCE, || nobody() && idle(ordinal))
}

fn nobody() -> bool {
    SHARD.iter().all(|shard| shared::nobody(&shard.0))
}

fn stop_if(ordinal: i32, patience: Duration, sensible: impl Fn() -> bool) -> Result<bool, BackingError> {
    ranks::waiting("the device to stop");
    let mut pauses = Pauses::within(patience);
    // Calls that the stop before kept out come first.
    while WAITING.load(Ordering::Relaxed) > 0 {
        if !pauses.pause() {
            return Ok(false);
        }
    }
    if !sensible() || !shared::stop(&STOPPED, &WAITING) {
        return Ok(false);
    }
    let _held = ranks::take(Rank::Stopped);
    let empty = loop {
        if nobody() {
            break true;
        }
        if !pauses.pause() {
            break false;
        }
    };
    // Behind the closed gate nothing is queued any more: what is marked now is all there is.
    let marked = if empty { wait::look_until(Whose::Reaching(ordinal), patience) } else { Err(BackingError::Busy) };
    let result = match marked {
        Ok(()) => Ok(true),
        Err(BackingError::Busy | wait::CAPTURING) => Ok(false),
        Err(error) => Err(error),
    };
    if result != Ok(true) {
        go_on();
    }
    result
}

/// Whether every stream that can be queried and that may reach memory of the device `ordinal` has finished. Waits for
/// nobody, and queries nothing beside a capture.
pub(crate) fn idle(ordinal: i32) -> bool {
    let Some(_no_capture) = capture::no_capture() else { return false };
    // One that is about to go may stay, and can't be queried meanwhile.
    let Some(_alive) = contexts::alive() else { return false };
    let reached: Vec<u64> =
        contexts::all().filter(|context| reaches(context.ordinal, ordinal)).map(|context| context.ctx).collect();
    stream::created_in(&reached).into_iter().chain(reached.iter().map(|ctx| stream::legacy_of(*ctx))).all(|id| {
        stream::with(id, |ctx, handle| {
            let Ok(_within) = ContextGuard::enter(ctx) else { return true };
            // SAFETY: the stream is alive while `with` holds it.
            let result = unsafe { real::cuStreamQuery(handle) };
            result != CUresult::CUDA_ERROR_NOT_READY
        })
        .unwrap_or(false)
    })
}

/// Whether all work that was queued when this began has finished, as far as that shows at once. Stops nothing: others go on
/// queueing work, and at worst a mark has to be waited for that came behind theirs.
pub(crate) fn finished(ordinal: i32) -> bool {
    ranks::waiting("the device");
    idle(ordinal) && wait::look_until(Whose::Reaching(ordinal), AT_ONCE).is_ok()
}

/// Lets work be queued again.
pub(crate) fn go_on() {
    shared::go_on(&TURN, &STOPPED);
}
