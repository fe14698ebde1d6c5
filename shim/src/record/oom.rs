//! Requests that found no memory: what the device, the pool and the cap looked like, kept in the journal, beside it as
//! JSON, and reported once on standard error and as the container's message. The journal collapses repeated failures of one cause.

use super::{Recorder, device};
use crate::attribute::{self, What};
use crate::process::{surroundings, termination};
use weir_cuda::CUresult;
use weir_journal::layout::HOST_DEVICE;
use weir_journal::{Class, Failure, Outcome, STREAM_UNKNOWN, Situation};

/// A request of the job's fails for lack of memory: `situation` is what is known of the device, its cap and its pools.
/// Makes system calls: it is rare.
pub(crate) fn report(
    recorder: &Recorder,
    ordinal: i32,
    class: Class,
    stream: u16,
    requested: u64,
    situation: impl FnOnce(i32) -> Situation,
) {
    let _kept = surroundings::Errno::keep();
    let journal = &recorder.journal;
    journal.sample_host(0);
    let failure = Failure {
        device: if ordinal < 0 { HOST_DEVICE } else { device(ordinal) },
        class,
        stream,
        requested,
        result: CUresult::CUDA_ERROR_OUT_OF_MEMORY.0 as u16,
        by: attribute::here(journal, What::OutOfMemory),
    };
    let situation = Situation {
        pinned: journal.live_bytes(HOST_DEVICE, Class::Pinned) + journal.live_bytes(HOST_DEVICE, Class::Registered),
        resident: journal.resident_bytes(),
        ..situation(ordinal)
    };
    let outcome = journal.out_of_memory(&failure, &situation);
    if let Outcome::Reported { text, .. } = outcome {
        if recorder.oom_text {
            surroundings::print(&text);
        }
        if let Some(path) = &recorder.termination {
            termination::leave(path, &text);
        }
    }
}

/// A tensor that TensorFlow can do without is refused: it tries another way.
pub(crate) fn tried(recorder: &Recorder, ordinal: i32, requested: u64) {
    let journal = &recorder.journal;
    journal.tried_in_vain(&Failure {
        device: device(ordinal),
        class: Class::Tensor,
        stream: STREAM_UNKNOWN,
        requested,
        result: CUresult::CUDA_ERROR_OUT_OF_MEMORY.0 as u16,
        by: attribute::here(journal, What::DriverCall),
    });
}
