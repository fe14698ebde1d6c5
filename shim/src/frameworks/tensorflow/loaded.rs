//! TensorFlow in this process: found if it is loaded, never loaded.

use crate::process::{elf, linker};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Handles of TensorFlow's two libraries; null where one is not loaded.
#[derive(Clone, Copy)]
pub(crate) struct Loaded {
    /// `libtensorflow_framework.so.2`: allocators and annotations.
    pub(crate) framework: *mut c_void,
    /// `libtensorflow_cc.so.2`: everything else, and the C interface.
    pub(crate) main: *mut c_void,
}

static FRAMEWORK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static MAIN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The libraries, if the framework is loaded. Takes the loader's lock while it is not.
pub(crate) fn find() -> Option<Loaded> {
    let keep = |place: &AtomicPtr<c_void>, name: &CStr| {
        let known = place.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        let handle = linker::open(name, false);
        linker::clear_error();
        place.store(handle, Ordering::Release);
        handle
    };
    let framework = keep(&FRAMEWORK, c"libtensorflow_framework.so.2");
    if framework.is_null() {
        return None;
    }
    Some(Loaded { framework, main: keep(&MAIN, c"libtensorflow_cc.so.2") })
}

/// Where the library of `handle` (or one that it depends on) defines `name`; 0 if nowhere.
pub(crate) fn symbol(handle: *mut c_void, name: &CStr) -> usize {
    if handle.is_null() {
        return 0;
    }
    let address = linker::lookup(handle, name);
    linker::clear_error();
    address
}

/// Where TensorFlow defines a function that this library stands in for, at `own`: in its libraries, else in whichever
/// object has it. 0 if nowhere.
#[cold]
pub(crate) fn definition(name: &CStr, own: usize) -> usize {
    let (framework, main) = find().map_or((core::ptr::null_mut(), core::ptr::null_mut()), |it| (it.framework, it.main));
    let mut found = [symbol(framework, name), symbol(main, name)].into_iter().find(|at| *at != 0 && *at != own);
    if found.is_none() {
        elf::each_object(&mut |object| {
            found = object.find(name).filter(|address| *address != own);
            found.is_some()
        });
    }
    found.unwrap_or(0)
}
