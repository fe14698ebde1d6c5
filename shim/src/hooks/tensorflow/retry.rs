//! Trying again where TensorFlow's own allocator would: `tsl::Allocator::AllocateRaw` takes a flag for it, and an allocator without
//! a retry of its own, like `cuda_malloc_async`, never sees it. The function is virtual and exported like BFC's (`bfc.rs`). Its
//! body is the same in every library: it calls the allocator's function without attributes.

use crate::alloc::patience::Waiting;
use crate::frameworks::tensorflow::allocator::patience;
use crate::frameworks::tensorflow::loaded;
use crate::process::{elf, guard, linker};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

type Allocate = unsafe extern "C-unwind" fn(*mut c_void, usize, usize, *const bool) -> *mut c_void;

const NAME: &CStr = c"_ZN3tsl9Allocator11AllocateRawEmmRKNS_20AllocationAttributesE";
/// The real function; 0 before it is known.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// `tsl::Allocator::AllocateRaw(alignment, bytes, attributes)`; the attributes begin with whether to try again.
#[cfg_attr(not(test), unsafe(export_name = "_ZN3tsl9Allocator11AllocateRawEmmRKNS_20AllocationAttributesE"))]
unsafe extern "C-unwind" fn allocate(
    allocator: *mut c_void,
    alignment: usize,
    bytes: usize,
    attributes: *const bool,
) -> *mut c_void {
    let real = match REAL.load(Ordering::Relaxed) {
        0 => learn(allocator),
        real => real,
    };
    if real == 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: the address is that of the real function of this name; the arguments are the caller's own.
    let ask = || unsafe { core::mem::transmute::<usize, Allocate>(real)(allocator, alignment, bytes, attributes) };
    // SAFETY: a reference of the caller's, whose first byte is a flag.
    let retried = unsafe { attributes.cast::<u8>().read() } != 0;
    let Some(patience) = patience().filter(|_| retried) else { return ask() };
    let waiting = Waiting::begin(patience);
    let mut tensor = ask();
    if tensor.is_null() {
        while tensor.is_null() && guard::run("AllocateRaw", || waiting.wait()) == Some(true) {
            tensor = ask();
        }
        drop(waiting);
        if tensor.is_null() {
            // For the last time: now it counts.
            tensor = ask();
        }
    }
    tensor
}

/// Finds the function in the library that the allocator's function table lies in, else in TensorFlow's.
#[cold]
fn learn(allocator: *mut c_void) -> usize {
    // SAFETY: an object with virtual functions begins with the address of their table.
    let table = unsafe { allocator.cast::<usize>().read() };
    let other = |address: &usize| *address != 0 && *address != allocate as *const () as usize;
    let home = || elf::object_at(table).and_then(|(_, object)| object.find(NAME));
    let framework = || loaded::find().map(|loaded| loaded::symbol(loaded.framework, NAME));
    let next = || Some(linker::lookup(libc::RTLD_NEXT, NAME));
    let found = home().filter(other).or_else(|| framework().filter(other)).or_else(|| next().filter(other));
    linker::clear_error();
    let found = found.unwrap_or(0);
    REAL.store(found, Ordering::Relaxed);
    found
}
