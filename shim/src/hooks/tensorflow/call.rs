//! `TFE_Execute`: Python calls every eager operation and every `tf.function` through it. The lines are kept for the time
//! of the call, for what TensorFlow's own threads allocate on its behalf.

use crate::frameworks::python;
use crate::frameworks::tensorflow::{calls::Call, loaded};
use crate::process::guard;
use crate::record;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

type Execute = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_int, *mut c_void);
type Name = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void) -> *const c_char;

static EXECUTE: AtomicUsize = AtomicUsize::new(0);
static NAME: AtomicUsize = AtomicUsize::new(0);

/// `TFE_Execute(operation, results, number of results, status)`.
#[cfg_attr(not(test), unsafe(export_name = "TFE_Execute"))]
unsafe extern "C-unwind" fn execute(
    operation: *mut c_void,
    results: *mut c_void,
    count: *mut c_int,
    status: *mut c_void,
) {
    let real = match EXECUTE.load(Ordering::Acquire) {
        0 => resolve(),
        real => real,
    };
    if real == 0 {
        return;
    }
    let _call = record::open().and_then(|recorder| {
        guard::run("TFE_Execute", || {
            let (lines, name) = (python::here(&recorder.journal), NAME.load(Ordering::Acquire));
            (lines != 0 && name != 0).then(|| {
                // SAFETY: TFE_OpGetName answers a C string that lives as long as the operation, and leaves the status alone.
                let name = unsafe { CStr::from_ptr(core::mem::transmute::<usize, Name>(name)(operation, status)) };
                Call::begin(name.to_bytes(), lines)
            })
        })
        .flatten()
    });
    // SAFETY: the address is that of the real function of this name; the arguments are the caller's own.
    unsafe { core::mem::transmute::<usize, Execute>(real)(operation, results, count, status) };
}

#[cold]
fn resolve() -> usize {
    let found = loaded::definition(c"TFE_Execute", execute as *const () as usize);
    NAME.store(loaded::definition(c"TFE_OpGetName", 0), Ordering::Release);
    EXECUTE.store(found, Ordering::Release);
    found
}
