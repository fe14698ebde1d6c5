//! The captures that are under way, and the streams that are part of one.

use super::contexts::Slot;
use super::stream::{StreamRef, find, per_thread};
use super::{contexts, observer, real, wait};
use core::sync::atomic::{AtomicU64, AtomicUsize};
use weir_cuda::{CUresult, CUstream, CUstreamCaptureStatus, Variant};
use weir_pool::ranks::{self, Rank};
use weir_pool::shared::{Counted, Counts, Guarded, Uses};

/// Short uses of the job's streams by weir, barred while a capture begins: so no call of weir's ever becomes part of one.
static USES: Uses<AtomicU64> = Uses::new(AtomicU64::new(0), AtomicU64::new(0));
static LIST: Counted<Guarded<Captures>, AtomicUsize, 2> =
    Counted::new(Guarded::new(Rank::Captures, Captures(Vec::new())), [const { AtomicUsize::new(0) }; 2]);

/// Captured streams, each with whether the driver refuses calls that allocate meanwhile.
struct Captures(Vec<(StreamRef, bool)>);

const STRICT: usize = 1;

impl Counts<2> for Captures {
    fn counts(&self) -> [usize; 2] {
        [self.0.len(), self.0.iter().filter(|(_, strict)| *strict).count()]
    }
}

/// Whether anything is being captured in this process.
#[inline]
pub(crate) fn under_way() -> bool {
    LIST.any()
}

/// Whether the driver may refuse an allocation because of a capture: then it is called.
#[inline]
pub(crate) fn forbids() -> bool {
    LIST.has(STRICT)
}

/// While it lives no capture is under way and none begins.
pub(crate) struct NoCapture {
    _held: ranks::Held,
}

impl Drop for NoCapture {
    fn drop(&mut self) {
        USES.leave();
    }
}

/// Tries to use streams of the job's, for a moment in which nobody waits; `None` if a capture is under way or begins.
#[track_caller]
pub(crate) fn no_capture() -> Option<NoCapture> {
    if !USES.enter() {
        return None;
    }
    let guard = NoCapture { _held: ranks::take(Rank::UseBesideCaptures) };
    if under_way() { None } else { Some(guard) }
}

/// Runs the call that begins a capture, and what makes it known.
pub(crate) fn beginning<R>(begin: impl FnOnce() -> R) -> R {
    USES.bar(wait::for_uses("a use of streams before a capture"), begin)
}

/// In a forked child: whoever was in a use is not here.
pub(crate) fn forked() {
    USES.clear();
}

/// Whether `stream` is part of a capture; costs a driver call only while there is one.
#[inline]
pub(crate) fn holds(stream: CUstream, per_thread: bool) -> bool {
    under_way() && captured(stream, per_thread)
}

/// The stream that `stream` means in the called variant, and its context; `None` if it is part of a capture or the driver
/// does not know it.
#[inline(always)]
pub(crate) fn outside(stream: CUstream, variant: Variant) -> Option<(StreamRef, &'static Slot)> {
    let per_thread = per_thread(variant, stream);
    if holds(stream, per_thread) { None } else { find(stream, per_thread) }
}

/// Whether `stream` is part of a capture, seen by weir or not: then an allocation is a node of a graph.
pub(crate) fn captured(stream: CUstream, per_thread: bool) -> bool {
    status(stream, per_thread) != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
}

fn status(stream: CUstream, per_thread: bool) -> CUstreamCaptureStatus {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is the job's own argument, the place a live local.
    let result = unsafe {
        if per_thread {
            real::cuStreamIsCapturing_ptsz(stream, &raw mut status)
        } else {
            real::cuStreamIsCapturing(stream, &raw mut status)
        }
    };
    match result {
        CUresult::CUDA_SUCCESS => status,
        // The legacy stream while a blocking one is captured: it can't be captured itself.
        _ => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
    }
}

/// A capture began; `strict`: in another than the relaxed mode.
pub(crate) fn began(stream_ref: StreamRef, strict: bool) {
    contexts::announce(|_| {
        observer::notify(|observer| (observer.capture_began)(stream_ref));
        LIST.with(|list: &mut Captures| list.0.push((stream_ref, strict)));
    });
}

/// A capture may have ended: it has if the stream is no part of one any more.
pub(crate) fn may_have_ended(stream: CUstream, per_thread: bool, stream_ref: StreamRef) {
    if status(stream, per_thread) == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        gone(|known| known.id == stream_ref.id);
    }
}

/// Captures whose stream or context no longer exists.
pub(crate) fn gone(which: impl Fn(&StreamRef) -> bool) {
    if !under_way() {
        return;
    }
    contexts::announce(|_| {
        let ended: Vec<StreamRef> = list().into_iter().filter(|stream_ref| which(stream_ref)).collect();
        for stream_ref in ended {
            observer::notify(|observer| (observer.capture_ended)(stream_ref));
        }
        LIST.with(|list: &mut Captures| list.0.retain(|(stream_ref, _)| !which(stream_ref)));
    });
}

/// Whether a capture began on this stream and is not known to have ended.
pub(crate) fn is_of(stream: u64) -> bool {
    under_way() && list().iter().any(|stream_ref| stream_ref.id == stream)
}

/// The captures under way, for a pool that is made now.
pub(crate) fn list() -> Vec<StreamRef> {
    LIST.with(|list: &mut Captures| list.0.iter().map(|(stream_ref, _)| *stream_ref).collect())
}
