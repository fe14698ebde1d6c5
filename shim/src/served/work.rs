//! Stopping the device: while a mesh moves bytes, no new work is queued and none runs.
//!
//! Every function of the table's topic `work` passes [`enter`]: two additions on a counter that few
//! threads share. A stop waits until nobody is inside and the streams are idle, and gives up soon
//! rather than hold a job whose device waits for the host.

use super::driver::Driver;
use super::quiet::Within;
use super::{capture, contexts, reaches, real, stream};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::time::Instant;
use weir_cuda::{CUresult, Variant};
use weir_pool::BackingError;
use weir_pool::shared::{self, Guarded};

/// How long a stop waits for calls to return and for streams to become idle.
const PATIENCE: Duration = Duration::from_millis(250);

const SHARDS: usize = 16;

/// Calls under way, of the threads that share it; apart from the others in the cache.
#[repr(align(128))]
pub(crate) struct Shard(AtomicU64);

static SHARD: [Shard; SHARDS] = [const { Shard(AtomicU64::new(0)) }; SHARDS];
/// Whether the job has used streams that belong to a thread each.
static THREADS_HAVE_STREAMS: AtomicBool = AtomicBool::new(false);
/// Not 0 while the device is stopped.
static STOPPED: AtomicU64 = AtomicU64::new(0);
static TURN: Guarded<()> = Guarded::new(());
/// Whether there may ever be a pool: from before the job's first call.
static WANTED: AtomicBool = AtomicBool::new(false);

/// The job begins.
pub(crate) fn begin(wanted: bool) {
    WANTED.store(wanted, Ordering::Relaxed);
}

/// In a forked child: nothing is stopped here, and nothing will be.
pub(super) fn forked() {
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

/// Whether there may be work in a stream that only its own thread can ask about.
pub(crate) fn threads_have_streams() -> bool {
    THREADS_HAVE_STREAMS.load(Ordering::Relaxed)
}

/// Notes a call that queues work by this variant of its function.
#[inline]
pub(crate) fn enter_as(variant: Variant) -> Queueing {
    if variant != Variant::Legacy {
        THREADS_HAVE_STREAMS.store(true, Ordering::Relaxed);
    }
    enter()
}

/// Notes a call that queues work; waits while the device is stopped.
#[inline]
pub(crate) fn enter() -> Queueing {
    if !WANTED.load(Ordering::Relaxed) {
        return Queueing(None);
    }
    let Some(shard) = SHARD.get(stream::thread_number() as usize % SHARDS) else {
        return Queueing(None);
    };
    loop {
        if shared::enter(&shard.0, &STOPPED) {
            return Queueing(Some(shard));
        }
        wait();
    }
}

#[cold]
fn wait() {
    shared::wait(&TURN, &STOPPED);
}

/// Stops new work and waits for what is queued. `false`: it goes on as before.
pub(crate) fn stop(driver: &Driver) -> Result<bool, BackingError> {
    stop_within(driver, PATIENCE)
}

/// Stops new work if nothing is queued or about to be. `false`: it goes on as before.
pub(crate) fn stop_if_idle(driver: &Driver) -> Result<bool, BackingError> {
    stop_within(driver, Duration::ZERO)
}

fn stop_within(driver: &Driver, patience: Duration) -> Result<bool, BackingError> {
    if !shared::stop(&STOPPED) {
        return Ok(false);
    }
    let until = Instant::now() + patience;
    let stopped = patiently(until, || SHARD.iter().all(|shard| shared::nobody(&shard.0)))
        && !capture::under_way()
        && patiently(until, || idle(driver.ordinal));
    // What is known is idle; this also covers the default streams of other threads.
    let result = if stopped { driver.wait_for_all().map(|()| true) } else { Ok(false) };
    if result != Ok(true) {
        go_on();
    }
    result
}

fn patiently(until: Instant, done: impl Fn() -> bool) -> bool {
    while !done() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}

/// Whether every stream that can be asked and that may reach memory of the device `ordinal` has finished.
pub(crate) fn idle(ordinal: i32) -> bool {
    // One that is about to go may stay, and can't be asked meanwhile.
    if !contexts::certain() {
        return false;
    }
    let reached: Vec<u64> =
        contexts::all().filter(|context| reaches(context.ordinal, ordinal)).map(|context| context.ctx).collect();
    stream::created_in(&reached).into_iter().chain(reached.iter().map(|ctx| ctx | 1)).all(|id| {
        stream::with(id, |ctx, handle| {
            let Ok(_within) = Within::context(ctx) else { return true };
            // SAFETY: the stream is alive while `with` holds it.
            let result = unsafe { real::cuStreamQuery(handle) };
            result != CUresult::CUDA_ERROR_NOT_READY
        })
        .unwrap_or(true)
    })
}

/// Lets work be queued again.
pub(crate) fn go_on() {
    shared::go_on(&TURN, &STOPPED);
}
