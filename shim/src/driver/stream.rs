//! Streams as the pool knows them. An identity is unique among living streams: a created stream's is
//! its handle, a context's legacy stream has the context's own with the lowest bit set, and each
//! thread's own default stream of a context has one made of the thread's and the context's numbers.
//!
//! The legacy stream synchronises with the blocking streams of its context. That order is not used:
//! what the pool does not know of it never takes for granted.

use super::contexts::{self, Slot};
use super::guards::{RelaxedCapture, current};
use super::real::{self, done};
use super::wait;
use crate::process::stack::roomy;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use weir_cuda::{CUcontext, CUstream, Variant};
use weir_pool::ranks::{self, Mutex, Rank};
use weir_pool::shared::{self, Uses};

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
pub(crate) const LEGACY: u64 = 1;
pub(crate) const PER_THREAD: u64 = 2;
/// Marks the identity of a thread's own stream.
const THREAD_BIT: u64 = 1 << 63;

/// A stream, its context and its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamRef {
    /// The identity.
    pub(crate) id: u64,
    /// The context.
    pub(crate) ctx: u64,
    /// The device.
    pub(crate) ordinal: i32,
}

/// Contexts of created streams.
static CREATED: Mutex<Option<HashMap<u64, u64>>> = Mutex::new(Rank::Streams, None);
/// Short uses of created streams by weir, barred while one is about to be destroyed.
static USES: Uses<AtomicU64> = Uses::new(AtomicU64::new(0), AtomicU64::new(0));
/// Counts every stream that goes, so that no thread remembers one for too long.
static GENERATION: AtomicU64 = AtomicU64::new(1);
static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The created stream this thread used last, as of a generation, and its context's place.
    static LAST: Cell<Option<(u64, StreamRef, &'static Slot)>> = const { Cell::new(None) };
    /// This thread's number, 0 before it is needed.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's number.
#[inline]
pub(crate) fn thread_number() -> u64 {
    THREAD
        .try_with(|cell| {
            if cell.get() == 0 {
                cell.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
            }
            cell.get()
        })
        // A thread that is ending: a number of its own each time orders it with nothing.
        .unwrap_or_else(|_| THREADS.fetch_add(1, Ordering::Relaxed) + 1)
}

fn thread_stream(slot: &Slot) -> u64 {
    THREAD_BIT | (slot.serial() & 0x7FFF_FFFF) << 32 | (thread_number() & 0xFFFF_FFFF)
}

/// Whether `stream` means the calling thread's own default stream in the called variant.
#[inline]
pub(crate) fn per_thread(variant: Variant, stream: CUstream) -> bool {
    stream.is_null() && variant != Variant::Legacy
}

/// The stream that `stream` means, and its context; `None` if the driver does not know it.
/// `per_thread`: 0 means the calling thread's own stream.
#[inline(always)]
pub(crate) fn find(stream: CUstream, per_thread: bool) -> Option<(StreamRef, &'static Slot)> {
    let handle = stream as u64;
    if handle > PER_THREAD {
        let generation = shared::generation(&GENERATION);
        if let Ok(Some((known, stream_ref, slot))) = LAST.try_with(Cell::get)
            && (stream_ref.id, known) == (handle, generation)
            // A context that goes leaves its place before its streams are forgotten.
            && slot.ctx() == stream_ref.ctx
        {
            return Some((stream_ref, slot));
        }
        return roomy(|| another(stream));
    }
    let ctx = current();
    let slot = contexts::seen(ctx)?;
    let id = if handle == LEGACY || (handle == 0 && !per_thread) { ctx | 1 } else { thread_stream(slot) };
    Some((StreamRef { id, ctx, ordinal: slot.ordinal() }, slot))
}

/// A created stream that this thread did not use last.
#[cold]
fn another(stream: CUstream) -> Option<(StreamRef, &'static Slot)> {
    let (generation, ctx) = shared::learn(&GENERATION, || context_of(stream))?;
    let slot = contexts::seen(ctx)?;
    let stream_ref = StreamRef { id: stream as u64, ctx, ordinal: slot.ordinal() };
    let _ = LAST.try_with(|cell| cell.set(Some((generation, stream_ref, slot))));
    Some((stream_ref, slot))
}

/// The context of a created stream: known, or queried once.
fn context_of(stream: CUstream) -> Option<u64> {
    let known = CREATED.lock();
    if let Some(ctx) = known.as_ref().and_then(|known| known.get(&(stream as u64))) {
        return Some(*ctx);
    }
    drop(known);
    let mut ctx: CUcontext = core::ptr::null_mut();
    {
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the stream is the job's own argument, the place a live local.
        done(unsafe { real::cuStreamGetCtx(stream, &raw mut ctx) }).ok()?;
    }
    contexts::seen(ctx as u64)?;
    let mut known = CREATED.lock();
    known.get_or_insert_default().insert(stream as u64, ctx as u64);
    Some(ctx as u64)
}

/// A stream was created in a context.
pub(crate) fn created(stream: CUstream, ctx: u64) {
    if contexts::seen(ctx).is_some() {
        let mut known = CREATED.lock();
        known.get_or_insert_default().insert(stream as u64, ctx);
    }
}

/// The identities of the created streams of some contexts.
pub(crate) fn created_in(contexts: &[u64]) -> Vec<u64> {
    let known = CREATED.lock();
    let all = known.iter().flatten();
    all.filter(|(_, ctx)| contexts.contains(ctx)).map(|(stream, _)| *stream).collect()
}

/// A stream is about to be destroyed: nobody uses it for weir's purposes from now on.
pub(crate) fn forget(handle: u64) -> Option<u64> {
    USES.bar(wait::for_uses("a use of streams before one is destroyed"), || {
        let mut known = CREATED.lock();
        shared::forget(&GENERATION, || known.as_mut()?.remove(&handle))
    })
}

/// In a forked child: whoever was in a use is not here.
pub(crate) fn forked() {
    USES.clear();
}

/// The identity of a context's legacy stream.
pub(crate) fn legacy_of(ctx: u64) -> u64 {
    ctx | 1
}

/// The streams of a context, as of the generation in which they went with it.
pub(crate) type Forgotten = (u64, Vec<u64>);

/// The streams of a context go with it.
pub(crate) fn forget_all_of(ctx: u64) -> Forgotten {
    USES.bar(wait::for_uses("a use of streams before their context goes"), || {
        let mut known = CREATED.lock();
        let gone = shared::forget(&GENERATION, || {
            let mut gone = Vec::new();
            if let Some(known) = known.as_mut() {
                gone.extend(known.iter().filter(|(_, of)| **of == ctx).map(|(stream, _)| *stream));
                known.retain(|_, of| *of != ctx);
            }
            gone
        });
        (shared::generation(&GENERATION), gone)
    })
}

/// The context stays, and its streams with it, unless one of them may be gone: then they are known again when they are used.
pub(crate) fn remember((generation, streams): &Forgotten, ctx: u64) {
    let mut known = CREATED.lock();
    if shared::generation(&GENERATION) == *generation {
        known.get_or_insert_default().extend(streams.iter().map(|stream| (*stream, ctx)));
    }
}

/// A use of streams, while it lasts.
struct Using {
    _held: ranks::Held,
}

impl Drop for Using {
    fn drop(&mut self) {
        USES.leave();
    }
}

/// Runs `work`, which waits for nobody, with the context and the handle of the stream `id`, which stays alive meanwhile;
/// `None` if weir can't reach it from this thread, or if a stream is about to go.
pub(crate) fn with<R>(id: u64, work: impl FnOnce(u64, CUstream) -> R) -> Option<R> {
    if id & THREAD_BIT != 0 {
        let ctx = current();
        let slot = contexts::find(ctx)?;
        return (thread_stream(slot) == id).then(|| work(ctx, PER_THREAD as CUstream));
    }
    if id & 1 != 0 {
        contexts::find(id & !1)?;
        return Some(work(id & !1, LEGACY as CUstream));
    }
    if !USES.enter() {
        return None;
    }
    let _using = Using { _held: ranks::take(Rank::UseOfStreams) };
    let ctx = *CREATED.lock().as_ref()?.get(&id)?;
    Some(work(ctx, id as CUstream))
}
