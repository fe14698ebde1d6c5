//! `TF_FinishOperation`: Python makes each node of a graph through it. The node's name and the lines are kept.

use crate::frameworks::python;
use crate::frameworks::tensorflow::{loaded, nodes, xla};
use crate::process::{guard, linker};
use crate::record;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

type Finish = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void) -> *mut c_void;
type Name = unsafe extern "C-unwind" fn(*mut c_void) -> *const c_char;

static FINISH: AtomicUsize = AtomicUsize::new(0);
static NAME: AtomicUsize = AtomicUsize::new(0);

/// `TF_FinishOperation(description, status)`; null without TensorFlow, as nothing was made.
#[cfg_attr(not(test), unsafe(export_name = "TF_FinishOperation"))]
unsafe extern "C-unwind" fn finish(description: *mut c_void, status: *mut c_void) -> *mut c_void {
    let real = match FINISH.load(Ordering::Acquire) {
        0 => resolve(),
        real => real,
    };
    if real == 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: the address is that of the real function of this name; the arguments are the caller's own.
    let operation = unsafe { core::mem::transmute::<usize, Finish>(real)(description, status) };
    if !operation.is_null()
        && let Some(recorder) = record::open()
    {
        guard::run("TF_FinishOperation", || {
            let python = python::for_node(&recorder.journal);
            let name = NAME.load(Ordering::Acquire);
            if python != 0 && name != 0 {
                // SAFETY: TF_OperationName answers a C string that lives as long as the operation, just made.
                let name = unsafe { CStr::from_ptr(core::mem::transmute::<usize, Name>(name)(operation)) };
                nodes::remember(name.to_bytes(), python);
                if xla::keeps_nodes() {
                    recorder.journal.node(&name.to_string_lossy(), python);
                }
            }
        });
    }
    operation
}

#[cold]
fn resolve() -> usize {
    let main = loaded::find().map_or(core::ptr::null_mut(), |loaded| loaded.main);
    let find = |name: &CStr| match loaded::symbol(main, name) {
        0 => linker::lookup(libc::RTLD_NEXT, name),
        address => address,
    };
    let found = find(c"TF_FinishOperation");
    if found == 0 || found == finish as *const () as usize {
        return 0;
    }
    NAME.store(find(c"TF_OperationName"), Ordering::Release);
    linker::clear_error();
    FINISH.store(found, Ordering::Release);
    found
}
