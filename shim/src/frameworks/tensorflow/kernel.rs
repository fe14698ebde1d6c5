//! Kernels that the annotation says too little of; what is missing is queried from TensorFlow's own interface for kernels,
//! for the time of a call.
//!
//! `_mlir_ciface_tf_alloc`: kernels that TensorFlow's compiler made request their results through it, and leave no data
//! type in the annotation. `XlaLocalLaunchBase::ComputeAsync`, a virtual function: what XLA compiled runs in it, and the
//! annotation is empty then. `SendOp::Compute` and `RecvOp::ComputeAsync`, virtual too: where a tensor goes from one device
//! to another, whichever of them comes last makes the copy, and the annotation does not say of what.

use super::loaded;
use crate::process::{elf, guard, linker};
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::thread::LocalKey;

type Alloc = unsafe extern "C-unwind" fn(*mut c_void, usize, usize, i32, i32, *const i32) -> *mut c_void;
type Count = unsafe extern "C-unwind" fn(*mut c_void) -> i32;
type TypeOf = unsafe extern "C-unwind" fn(*mut c_void, i32) -> i32;
type Compute = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
type ComputeAsync = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void);
type NameOf = unsafe extern "C-unwind" fn(*mut c_void) -> Text;
type StepOf = unsafe extern "C-unwind" fn(*mut c_void) -> i64;
type Version = unsafe extern "C-unwind" fn() -> *const c_char;

/// `TF_StringView`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Text {
    start: *const u8,
    length: usize,
}

const ALLOC: &CStr = c"_mlir_ciface_tf_alloc";
const LAUNCH: &CStr = c"_ZN10tensorflow18XlaLocalLaunchBase12ComputeAsyncEPNS_15OpKernelContextESt8functionIFvvEE";
const SEND: &CStr = c"_ZN10tensorflow6SendOp7ComputeEPNS_15OpKernelContextE";
const RECEIVE: &CStr = c"_ZN10tensorflow6RecvOp12ComputeAsyncEPNS_15OpKernelContextESt8functionIFvvEE";
/// Releases whose kernels hand over what the interface for kernels takes: `2.15` to `2.21`.
const KNOWN: core::ops::RangeInclusive<u32> = 15..=21;

static REAL_ALLOC: AtomicUsize = AtomicUsize::new(0);
static REAL_LAUNCH: AtomicUsize = AtomicUsize::new(0);
static REAL_SEND: AtomicUsize = AtomicUsize::new(0);
static REAL_RECEIVE: AtomicUsize = AtomicUsize::new(0);
static NAME_OF: AtomicUsize = AtomicUsize::new(0);
static STEP_OF: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static TYPE_OF: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The data type of the result that this thread is allocating, 0 is unknown. Constant and without a destructor.
    static RESULT: Cell<u32> = const { Cell::new(0) };
    /// The name and the run of the compiled cluster that this thread launches; as above.
    static LAUNCHED: Cell<Option<(Text, i64)>> = const { Cell::new(None) };
    /// The same of the node by which this thread sends or receives a tensor.
    static COPIED: Cell<Option<(Text, i64)>> = const { Cell::new(None) };
}

/// The data type of the result that a compiled kernel is requesting on this thread; 0 if none is, or it is not known.
#[inline]
pub(crate) fn result_type() -> u32 {
    RESULT.try_with(Cell::get).unwrap_or(0)
}

/// The name of the node whose compiled cluster this thread launches, and the number of its run.
#[inline]
pub(crate) fn launched() -> Option<(&'static [u8], i64)> {
    running(&LAUNCHED)
}

/// The name of the node whose result this thread sends from one device to another, or receives.
#[inline]
pub(crate) fn copied() -> Option<&'static [u8]> {
    let (name, _) = running(&COPIED)?;
    // TensorFlow names the nodes that it adds for a copy after the one whose result it is, with a number: `MatMul/_3`.
    match name.iter().rposition(|byte| *byte == b'/') {
        Some(end) if name.get(end + 1) == Some(&b'_') => name.get(..end),
        _ => Some(name),
    }
}

#[inline]
fn running(of: &'static LocalKey<Cell<Option<(Text, i64)>>>) -> Option<(&'static [u8], i64)> {
    let (name, step) = of.try_with(Cell::get).ok()??;
    // SAFETY: it belongs to the kernel that is running, and is only looked at inside this call of it.
    Some((unsafe { core::slice::from_raw_parts(name.start, name.length) }, step))
}

/// `tensorflow::XlaLocalLaunchBase::ComputeAsync(kernel, done)`; `done` is an object of the caller's.
#[cfg_attr(
    not(test),
    unsafe(export_name = "_ZN10tensorflow18XlaLocalLaunchBase12ComputeAsyncEPNS_15OpKernelContextESt8functionIFvvEE")
)]
unsafe extern "C-unwind" fn launch(operation: *mut c_void, kernel: *mut c_void, done: *mut c_void) {
    let real = real(LAUNCH, launch as *const () as usize, &REAL_LAUNCH, operation);
    if real == 0 {
        return;
    }
    let _name = super::recording().then(|| Named::begin(&LAUNCHED, kernel));
    // SAFETY: the address is that of the real function of this name; the arguments are the caller's own.
    unsafe { core::mem::transmute::<usize, ComputeAsync>(real)(operation, kernel, done) };
}

/// `tensorflow::RecvOp::ComputeAsync(kernel, done)`.
#[cfg_attr(
    not(test),
    unsafe(export_name = "_ZN10tensorflow6RecvOp12ComputeAsyncEPNS_15OpKernelContextESt8functionIFvvEE")
)]
unsafe extern "C-unwind" fn receive(operation: *mut c_void, kernel: *mut c_void, done: *mut c_void) {
    let real = real(RECEIVE, receive as *const () as usize, &REAL_RECEIVE, operation);
    if real == 0 {
        return;
    }
    let _name = super::recording().then(|| Named::begin(&COPIED, kernel));
    // SAFETY: as above.
    unsafe { core::mem::transmute::<usize, ComputeAsync>(real)(operation, kernel, done) };
}

/// `tensorflow::SendOp::Compute(kernel)`.
#[cfg_attr(not(test), unsafe(export_name = "_ZN10tensorflow6SendOp7ComputeEPNS_15OpKernelContextE"))]
unsafe extern "C-unwind" fn send(operation: *mut c_void, kernel: *mut c_void) {
    let real = real(SEND, send as *const () as usize, &REAL_SEND, operation);
    if real == 0 {
        return;
    }
    let _name = super::recording().then(|| Named::begin(&COPIED, kernel));
    // SAFETY: as above.
    unsafe { core::mem::transmute::<usize, Compute>(real)(operation, kernel) };
}

/// The real function behind a virtual one of `operation`; 0 is none.
#[inline]
fn real(name: &CStr, own: usize, place: &AtomicUsize, operation: *mut c_void) -> usize {
    match place.load(Ordering::Acquire) {
        // SAFETY: an object with virtual functions begins with the address of their table.
        0 => resolve(name, own, place, unsafe { operation.cast::<usize>().read() }),
        real => real,
    }
}

/// While it lives, this thread runs a kernel whose name is known.
struct Named {
    place: &'static LocalKey<Cell<Option<(Text, i64)>>>,
    before: Option<(Text, i64)>,
}

impl Named {
    fn begin(place: &'static LocalKey<Cell<Option<(Text, i64)>>>, kernel: *mut c_void) -> Self {
        let name = guard::run("a kernel's name", || name_of(kernel)).flatten();
        Self { place, before: place.try_with(|running| running.replace(name)).unwrap_or(None) }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.place.try_with(|name| name.set(self.before));
    }
}

/// A kernel's name and the run that it works for.
fn name_of(kernel: *mut c_void) -> Option<(Text, i64)> {
    let (name_of, step_of) = (NAME_OF.load(Ordering::Acquire), STEP_OF.load(Ordering::Acquire));
    if name_of == 0 || step_of == 0 {
        return None;
    }
    // SAFETY: functions of TensorFlow's interface for kernels, in releases where its kernel is the one handed over here.
    let (name, step) = unsafe {
        (core::mem::transmute::<usize, NameOf>(name_of)(kernel), core::mem::transmute::<usize, StepOf>(step_of)(kernel))
    };
    (!name.start.is_null() && name.length > 0).then_some((name, step))
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
    let real = match REAL_ALLOC.load(Ordering::Acquire) {
        0 => resolve(ALLOC, alloc as *const () as usize, &REAL_ALLOC, 0),
        real => real,
    };
    if real == 0 {
        return core::ptr::null_mut();
    }
    if super::recording() {
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
    // The second ends the process for an output that is not there, so the first is called before.
    unsafe {
        if output >= core::mem::transmute::<usize, Count>(count)(kernel) {
            return 0;
        }
        u32::try_from(core::mem::transmute::<usize, TypeOf>(type_of)(kernel, output)).unwrap_or(0)
    }
}

/// The real function of a name, in the library that `table` lies in or in TensorFlow's, and those of the interface for
/// kernels.
#[cold]
fn resolve(name: &CStr, own: usize, place: &AtomicUsize, table: usize) -> usize {
    let Some(loaded) = loaded::find() else { return 0 };
    let home = elf::object_at(table).and_then(|(_, object)| object.find(name)).filter(|address| *address != own);
    let find = |name: &CStr| match (loaded::symbol(loaded.main, name), loaded::symbol(loaded.framework, name)) {
        (0, 0) => linker::lookup(libc::RTLD_NEXT, name),
        (0, address) | (address, _) => address,
    };
    let found = home.unwrap_or_else(|| loaded::definition(name, own));
    if found == 0 {
        return 0;
    }
    let version = find(c"TF_Version");
    // SAFETY: it takes nothing and answers a C string that lives as long as the library.
    let known = version != 0
        && minor(unsafe { CStr::from_ptr(core::mem::transmute::<usize, Version>(version)()) })
            .is_some_and(|minor| KNOWN.contains(&minor));
    if known {
        NAME_OF.store(find(c"TF_GetOpKernelName"), Ordering::Release);
        STEP_OF.store(find(c"TF_StepId"), Ordering::Release);
        COUNT.store(find(c"TF_NumOutputs"), Ordering::Release);
        TYPE_OF.store(find(c"TF_ExpectedOutputDataType"), Ordering::Release);
    }
    linker::clear_error();
    place.store(found, Ordering::Release);
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
