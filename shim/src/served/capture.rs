//! The captures that are under way, and the streams that are part of one.

use super::stream::Lane;
use super::{pools_reached_by, real};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use weir_cuda::{CUresult, CUstream, CUstreamCaptureStatus};

/// Held for reading while weir uses streams of the job's, for writing while a capture begins: so no
/// call of weir's ever becomes part of one.
static CALM: RwLock<()> = RwLock::new(());
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Those of them under which the driver refuses calls that allocate.
static STRICT: AtomicUsize = AtomicUsize::new(0);
static LIST: Mutex<Vec<(Lane, bool)>> = Mutex::new(Vec::new());

/// Whether anything is being captured in this process.
#[inline]
pub(crate) fn under_way() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Whether the driver may refuse an allocation because of a capture: then it is asked.
#[inline]
pub(crate) fn forbids() -> bool {
    STRICT.load(Ordering::Acquire) > 0
}

fn count(list: &[(Lane, bool)]) {
    STRICT.store(list.iter().filter(|(_, strict)| *strict).count(), Ordering::Release);
    COUNT.store(list.len(), Ordering::Release);
}

/// While it is held no capture is under way and none begins; `None` if one is.
pub(crate) fn calm() -> Option<RwLockReadGuard<'static, ()>> {
    let calm = CALM.read().unwrap_or_else(PoisonError::into_inner);
    if under_way() { None } else { Some(calm) }
}

/// Held around the call that begins a capture.
pub(crate) fn beginning() -> RwLockWriteGuard<'static, ()> {
    CALM.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `stream` is part of a capture; costs a driver call only while there is one.
#[inline]
pub(crate) fn holds(stream: CUstream, per_thread: bool) -> bool {
    under_way() && asks(stream, per_thread) != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
}

fn asks(stream: CUstream, per_thread: bool) -> CUstreamCaptureStatus {
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
pub(crate) fn began(lane: Lane, strict: bool) {
    let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    list.push((lane, strict));
    count(&list);
    drop(list);
    for served in pools_reached_by(lane.ordinal) {
        served.pool.capture_began(lane.id, lane.ctx);
    }
}

/// A capture may have ended: it has if the stream is no part of one any more.
pub(crate) fn may_have_ended(stream: CUstream, per_thread: bool, lane: Lane) {
    if asks(stream, per_thread) == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        gone(|known| known.id == lane.id);
    }
}

/// Captures whose stream or context no longer exists.
pub(crate) fn gone(which: impl Fn(&Lane) -> bool) {
    let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let ended: Vec<Lane> = list.iter().map(|(lane, _)| *lane).filter(|lane| which(lane)).collect();
    list.retain(|(lane, _)| !which(lane));
    count(&list);
    drop(list);
    for lane in ended {
        for served in pools_reached_by(lane.ordinal) {
            served.pool.capture_ended(lane.id, lane.ctx);
        }
    }
}

/// The captures under way, for a pool that is made now.
pub(crate) fn list() -> Vec<Lane> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(lane, _)| *lane).collect()
}
