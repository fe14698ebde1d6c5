//! `_mlir_ciface_tf_alloc`: kernels that TensorFlow's compiler made ask for their results through it, and leave no data
//! type in the annotation. It is asked from TensorFlow's own interface for kernels, for the time of the call.

use super::loaded;
use crate::{guard, linker, recorder};
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

type Alloc = unsafe extern "C-unwind" fn(*mut c_void, usize, usize, i32, i32, *const i32) -> *mut c_void;
type Count = unsafe extern "C-unwind" fn(*mut c_void) -> i32;
type TypeOf = unsafe extern "C-unwind" fn(*mut c_void, i32) -> i32;
type Version = unsafe extern "C-unwind" fn() -> *const c_char;

const ALLOC: &CStr = c"_mlir_ciface_tf_alloc";
/// Releases whose kernels hand over what the interface for kernels takes: `2.15` to `2.21`.
const KNOWN: core::ops::RangeInclusive<u32> = 15..=21;

static REAL: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static TYPE_OF: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The data type of the result that this thread is allocating, 0 is unknown. Constant and without a destructor.
    static RESULT: Cell<u32> = const { Cell::new(0) };
}

/// The data type of the result that a compiled kernel is asking for on this thread; 0 if none is, or it is not known.
#[inline]
pub(crate) fn result_type() -> u32 {
    RESULT.try_with(Cell::get).unwrap_or(0)
}

/// `_mlir_ciface_tf_alloc(kernel, elements, bytes each, output, candidates…)`; null without TensorFlow.
#[cfg_attr(not(test), unsafe(export_name = "_mlir_ciface_tf_alloc"))]
unsafe extern "C-unwind" fn alloc(
    kernel: *mut c_void,
    elements: usize,
    width: usize,
    output: i32,
    candidates: i32,
    which: *const i32,
) -> *mut c_void {
    let real = match REAL.load(Ordering::Acquire) {
        0 => resolve(),
        real => real,
    };
    if real == 0 {
        return core::ptr::null_mut();
    }
    if recorder::open().is_some() {
        guard::run("_mlir_ciface_tf_alloc", || {
            let dtype = type_of(kernel, output);
            let _ = RESULT.try_with(|result| result.set(dtype));
        });
    }
    // SAFETY: the address is that of the real function of this name; the arguments are the caller's own.
    let memory =
        unsafe { core::mem::transmute::<usize, Alloc>(real)(kernel, elements, width, output, candidates, which) };
    let _ = RESULT.try_with(|result| result.set(0));
    memory
}

/// The data type of a kernel's output; 0 for scratch memory, and where the interface is not known.
fn type_of(kernel: *mut c_void, output: i32) -> u32 {
    let (count, type_of) = (COUNT.load(Ordering::Acquire), TYPE_OF.load(Ordering::Acquire));
    if count == 0 || type_of == 0 || output < 0 {
        return 0;
    }
    // SAFETY: functions of TensorFlow's interface for kernels, in releases where its kernel is the one handed over here.
    // The second ends the process for an output that is not there, so the first is asked before.
    unsafe {
        if output >= core::mem::transmute::<usize, Count>(count)(kernel) {
            return 0;
        }
        u32::try_from(core::mem::transmute::<usize, TypeOf>(type_of)(kernel, output)).unwrap_or(0)
    }
}

#[cold]
fn resolve() -> usize {
    let Some(loaded) = loaded::find() else { return 0 };
    let find = |name: &CStr| match (loaded::symbol(loaded.main, name), loaded::symbol(loaded.framework, name)) {
        (0, 0) => linker::lookup(libc::RTLD_NEXT, name),
        (0, address) | (address, _) => address,
    };
    let found = find(ALLOC);
    if found == 0 || found == alloc as *const () as usize {
        return 0;
    }
    let version = find(c"TF_Version");
    // SAFETY: it takes nothing and answers a C string that lives as long as the library.
    let known = version != 0
        && minor(unsafe { CStr::from_ptr(core::mem::transmute::<usize, Version>(version)()) })
            .is_some_and(|minor| KNOWN.contains(&minor));
    if known {
        COUNT.store(find(c"TF_NumOutputs"), Ordering::Release);
        TYPE_OF.store(find(c"TF_ExpectedOutputDataType"), Ordering::Release);
    }
    linker::clear_error();
    REAL.store(found, Ordering::Release);
    found
}

/// The second number of a version 2.
fn minor(version: &CStr) -> Option<u32> {
    version.to_str().ok()?.strip_prefix("2.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!((minor(c"2.21.0"), minor(c"2.9.0-rc1"), minor(c"2.22")), (Some(21), Some(9), Some(22)));
        assert_eq!((minor(c"1.15.0"), minor(c"2"), minor(c"")), (None, None, None));
    }
}
