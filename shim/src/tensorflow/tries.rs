//! Requests that TensorFlow can do without: it tries, and takes another way if there is nothing. That is no failure.
//!
//! Whether it can is told in the attributes that come with a request. An allocator that has no use for them, such as the
//! one that asks the driver's pools, inherits a function that drops them. It is virtual and exported, as those of BFC are:
//! a preloaded library comes first, keeps what the attributes say while the request lasts, and goes on to the real one.

use super::loaded;
use core::cell::Cell;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

type Allocate = unsafe extern "C-unwind" fn(*mut c_void, usize, usize, *const bool) -> *mut c_void;

const ALLOCATE: &CStr = c"_ZN3tsl9Allocator11AllocateRawEmmRKNS_20AllocationAttributesE";

thread_local! {
    /// Whether TensorFlow can do without what this thread asks for. Constant and without a destructor.
    static TRYING: Cell<bool> = const { Cell::new(false) };
}

/// Whether TensorFlow can do without what this thread asks for.
pub(crate) fn now() -> bool {
    TRYING.try_with(Cell::get).unwrap_or(false)
}

/// While it lives, it is known whether TensorFlow can do without what this thread asks for.
pub(super) struct Request {
    before: bool,
}

impl Request {
    /// A request with these attributes, which begin with whether to wait and try again: without that, it is a try.
    ///
    /// # Safety
    /// They must be attributes of TensorFlow's.
    #[inline]
    pub(super) unsafe fn begin(attributes: *const bool) -> Self {
        // SAFETY: by this function's own terms; any byte is a valid one.
        let tries = unsafe { attributes.cast::<u8>().read() } == 0;
        Self { before: TRYING.try_with(|flag| flag.replace(tries)).unwrap_or(false) }
    }
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        let _ = TRYING.try_with(|flag| flag.set(self.before));
    }
}

/// `tsl::Allocator::AllocateRaw(alignment, bytes, attributes)`, of allocators that do not look at the attributes.
#[cfg_attr(not(test), unsafe(export_name = "_ZN3tsl9Allocator11AllocateRawEmmRKNS_20AllocationAttributesE"))]
unsafe extern "C-unwind" fn allocate(
    allocator: *mut c_void,
    alignment: usize,
    bytes: usize,
    attributes: *const bool,
) -> *mut c_void {
    // SAFETY: an object with virtual functions begins with the address of their table.
    let real = real_of(unsafe { allocator.cast::<usize>().read() });
    if real == 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: a reference of the caller's.
    let _request = unsafe { Request::begin(attributes) };
    // SAFETY: the address is that of the real function of this name; the arguments are the caller's own.
    unsafe { core::mem::transmute::<usize, Allocate>(real)(allocator, alignment, bytes, attributes) }
}

/// Tables of allocators and the real function of the library that each lies in: the place of the function that it goes on
/// to is that library's own.
static REALS: [[AtomicUsize; 2]; 32] = [const { [const { AtomicUsize::new(0) }; 2] }; 32];

#[inline]
fn real_of(table: usize) -> usize {
    for [known, real] in &REALS {
        match known.load(Ordering::Acquire) {
            0 => break,
            known if known == table => return real.load(Ordering::Relaxed),
            _ => {}
        }
    }
    learn(table)
}

#[cold]
fn learn(table: usize) -> usize {
    let found = loaded::behind(table, ALLOCATE, allocate as *const () as usize);
    for [known, real] in &REALS {
        // The function first: who sees the table sees it.
        if found != 0 && real.compare_exchange(0, found, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            known.store(table, Ordering::Release);
            break;
        }
    }
    found
}
