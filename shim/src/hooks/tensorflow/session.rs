//! `TF_SessionRun`: code that is written for TensorFlow 1 runs its graph through it. The graph was made before there was a
//! journal, so its nodes have no lines; those of the call are kept for its time.

use crate::frameworks::python;
use crate::frameworks::tensorflow::{calls::Call, loaded};
use crate::process::guard;
use crate::record;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

type Pointer = *mut c_void;
type Run = unsafe extern "C-unwind" fn(
    Pointer,
    Pointer,
    Pointer,
    Pointer,
    c_int,
    Pointer,
    Pointer,
    c_int,
    Pointer,
    c_int,
    Pointer,
    Pointer,
);

static RUN: AtomicUsize = AtomicUsize::new(0);

/// `TF_SessionRun(session, options, inputs, their values and number, outputs, their values and number, targets and their
/// number, metadata, status)`.
#[cfg_attr(not(test), unsafe(export_name = "TF_SessionRun"))]
unsafe extern "C-unwind" fn run(
    session: Pointer,
    options: Pointer,
    inputs: Pointer,
    input_values: Pointer,
    input_count: c_int,
    outputs: Pointer,
    output_values: Pointer,
    output_count: c_int,
    targets: Pointer,
    target_count: c_int,
    metadata: Pointer,
    status: Pointer,
) {
    let real = match RUN.load(Ordering::Acquire) {
        0 => resolve(),
        real => real,
    };
    if real == 0 {
        return;
    }
    let _call = record::open().and_then(|recorder| {
        guard::run("TF_SessionRun", || {
            let lines = python::here(&recorder.journal);
            (lines != 0).then(|| Call::begin(b"TF_SessionRun", lines))
        })
        .flatten()
    });
    // SAFETY: the address is that of the real function of this name; the arguments are the caller's own.
    unsafe {
        core::mem::transmute::<usize, Run>(real)(
            session,
            options,
            inputs,
            input_values,
            input_count,
            outputs,
            output_values,
            output_count,
            targets,
            target_count,
            metadata,
            status,
        );
    }
}

#[cold]
fn resolve() -> usize {
    let found = loaded::definition(c"TF_SessionRun", run as *const () as usize);
    RUN.store(found, Ordering::Release);
    found
}
