//! How weir's own driver calls leave the job undisturbed: under a relaxed capture mode while any
//! capture is under way, and with the right context current for as long as they take.

use super::capture;
use super::real::{self, done};
use weir_cuda::{CUcontext, CUresult, CUstreamCaptureMode};

/// While it lives, driver calls of this thread break no capture.
pub(crate) struct RelaxedCapture(Option<CUstreamCaptureMode>);

impl RelaxedCapture {
    /// Exchanges the thread's capture mode, if anything is being captured.
    pub(crate) fn enter() -> Self {
        if !capture::under_way() {
            return Self(None);
        }
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the mode is a live local.
        let exchanged = done(unsafe { real::cuThreadExchangeStreamCaptureMode(&raw mut mode) });
        Self(exchanged.ok().map(|()| mode))
    }
}

impl Drop for RelaxedCapture {
    fn drop(&mut self) {
        if let Some(mode) = &mut self.0 {
            // SAFETY: as above; this puts back what was found.
            unsafe { real::cuThreadExchangeStreamCaptureMode(mode) };
        }
    }
}

/// The calling thread's current context, 0 if it has none.
#[inline]
pub(crate) fn current() -> u64 {
    let mut ctx: CUcontext = core::ptr::null_mut();
    // SAFETY: the place is a live local.
    match unsafe { real::cuCtxGetCurrent(&raw mut ctx) } {
        CUresult::CUDA_SUCCESS => ctx as u64,
        _ => 0,
    }
}

/// The device of the calling thread's current context.
pub(crate) fn current_device() -> Option<i32> {
    let mut device = -1;
    // SAFETY: the place is a live local.
    done(unsafe { real::cuCtxGetDevice(&raw mut device) }).ok().map(|()| device)
}

/// While it lives, a context is current to this thread; then what was current is so again.
pub(crate) struct ContextGuard {
    pushed: bool,
    _relaxed: RelaxedCapture,
}

impl ContextGuard {
    /// Makes `ctx` current. 0 stands for whatever is.
    pub(crate) fn enter(ctx: u64) -> Result<Self, CUresult> {
        let relaxed = RelaxedCapture::enter();
        let pushed = ctx != 0 && current() != ctx;
        if pushed {
            // SAFETY: a context that is in the table of living ones.
            done(unsafe { real::cuCtxPushCurrent_v2(ctx as CUcontext) })?;
        }
        Ok(Self { pushed, _relaxed: relaxed })
    }
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped: CUcontext = core::ptr::null_mut();
            // SAFETY: takes off what `enter` has pushed.
            unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
        }
    }
}
