//! Requests that found no memory: what the device, the pool and the cap looked like, kept in the journal, beside it as
//! JSON, and told once on standard error. The journal collapses repeated failures of one cause.

use super::{Recorder, device};
use crate::attribute::{self, What};
use crate::driver::guards::Relaxed;
use crate::driver::real::{self, done};
use crate::process::surroundings;
use crate::{alloc, cap};
use weir_cuda::CUresult;
use weir_journal::layout::HOST_DEVICE;
use weir_journal::{Class, Failure, Outcome, STREAM_UNKNOWN, Situation};

/// Holes of the pool that are counted at most.
const HOLES: usize = 4096;

/// The job is told that there is no memory for a request. Makes system calls: it is rare.
pub(crate) fn tell(recorder: &Recorder, ordinal: i32, class: Class, stream: u16, asked: u64) {
    let _kept = surroundings::Errno::keep();
    let journal = &recorder.journal;
    journal.sample_host(0);
    let failure = Failure {
        device: if ordinal < 0 { HOST_DEVICE } else { device(ordinal) },
        class,
        stream,
        requested: asked,
        result: CUresult::CUDA_ERROR_OUT_OF_MEMORY.0 as u16,
        by: attribute::here(journal, What::Shortage),
    };
    let outcome = journal.out_of_memory(&failure, &situation(recorder, ordinal));
    if let Outcome::Reported { text, .. } = outcome
        && recorder.oom_text
    {
        surroundings::write_quietly(2, text.as_bytes());
    }
}

/// TensorFlow is told that there is no memory for a tensor that it can do without: it tries another way.
pub(crate) fn tried(recorder: &Recorder, ordinal: i32, asked: u64) {
    let journal = &recorder.journal;
    journal.tried_in_vain(&Failure {
        device: device(ordinal),
        class: Class::Tensor,
        stream: STREAM_UNKNOWN,
        requested: asked,
        result: CUresult::CUDA_ERROR_OUT_OF_MEMORY.0 as u16,
        by: attribute::here(journal, What::DriverCall),
    });
}

/// What is known of a device at this moment.
fn situation(recorder: &Recorder, ordinal: i32) -> Situation {
    let journal = &recorder.journal;
    let mut now = Situation {
        pinned: journal.live_bytes(HOST_DEVICE, Class::Pinned) + journal.live_bytes(HOST_DEVICE, Class::Registered),
        resident: journal.resident_bytes(),
        ..Situation::default()
    };
    let _relaxed = Relaxed::enter();
    if cap::current_device() == Some(ordinal) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both places are live locals.
        if done(unsafe { real::cuMemGetInfo_v2(&raw mut free, &raw mut total) }).is_ok() {
            (now.device_free, now.device_total) = (free as u64, total as u64);
        }
    }
    if let Some(view) = cap::on().and_then(|caps| caps.ledger.view(caps.at(ordinal)?.1)) {
        now.cap = view.cap.unwrap_or(0);
        now.charged = view.used;
        now.charged_by_others = view.used.saturating_sub(view.own.charged);
    }
    for served in alloc::pools().filter(|served| served.ordinal == ordinal) {
        let stats = served.pool.stats();
        now.pool_free += stats.free_bytes + stats.stream_free_bytes + stats.spare_bytes;
        now.pool_largest = now.pool_largest.max(stats.largest_hole);
        now.pool_holes += served.pool.holes(HOLES).len() as u64;
        now.pool_deferred += stats.deferred_bytes;
    }
    now
}
