//! A real library, libcuda or NVML: where it is, and where its functions are.
//!
//! Resolved once, whole, from a private handle and never by RTLD_NEXT: TensorFlow exports functions
//! of the driver's names itself, and RTLD_NEXT finds those. There is no lock: threads that come at
//! the same moment resolve side by side and store the same addresses, so neither a library's
//! initialiser that calls back into weir nor a fork in the middle can block anything.

use crate::process::elf;
use crate::process::linker;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use weir_cuda::{COUNT, driver_functions};
use weir_pool::shared;

/// Threads count their calls in so many places.
const PLACES: usize = 16;

/// Calls of each function, on cache lines of its own.
#[repr(align(128))]
struct Calls<const N: usize>([AtomicU64; N]);

/// Where a thread counts: threads that call the same function must not meet at its counter. A thread's stack tells it from
/// others, mostly, and costs nothing to find.
#[inline(always)]
fn place() -> usize {
    let here = 0_u8;
    let stack = core::ptr::from_ref(&here) as usize >> 16;
    (stack.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) % PLACES
}

/// A real library with `N` known functions.
pub(crate) struct Library<const N: usize> {
    names: [&'static CStr; 2],
    symbols: &'static [&'static CStr; N],
    handle: AtomicPtr<c_void>,
    /// All of it is resolved, and the job is made.
    ready: AtomicBool,
    real: [AtomicUsize; N],
    calls: [Calls<N>; PLACES],
    handed_out: [AtomicU64; N],
}

impl<const N: usize> Library<N> {
    /// A library that may go by one of `names`, with the functions of these symbols.
    pub(crate) const fn new(names: [&'static CStr; 2], symbols: &'static [&'static CStr; N]) -> Self {
        Self {
            names,
            symbols,
            handle: AtomicPtr::new(core::ptr::null_mut()),
            ready: AtomicBool::new(false),
            real: [const { AtomicUsize::new(0) }; N],
            calls: [const { Calls([const { AtomicU64::new(0) }; N]) }; PLACES],
            handed_out: [const { AtomicU64::new(0) }; N],
        }
    }

    /// The private handle, null while the library has not been found.
    pub(crate) fn handle(&self) -> *mut c_void {
        self.handle.load(Ordering::Acquire)
    }

    /// Finds the library and its functions; `load`: it may be loaded for that.
    pub(crate) fn resolve(&self, load: bool) -> bool {
        if !self.handle().is_null() {
            return true;
        }
        let Some(handle) = open(self.names, load) else { return false };
        shared::ready(&self.handle, handle, || {
            // What goes by the library's name may be this one.
            let own = elf::object_at(open as *const () as usize).map(|(_, object)| object);
            for (symbol, real) in self.symbols.iter().zip(&self.real) {
                let address = linker::lookup(handle, symbol);
                if address != 0 && !own.is_some_and(|own| own.contains(address)) {
                    real.store(address, Ordering::Release);
                }
            }
            // What the library does not have is no error of the caller's.
            linker::clear_error();
        });
        true
    }

    /// Whether a call may go its way: weir's own calls find every function, not only the one that was called.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// The job is made and `resolve` has found the library.
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// The real function `id`, 0 where it is not known (yet).
    #[inline(always)]
    pub(crate) fn real(&self, id: usize) -> usize {
        self.real.get(id).map_or(0, |r| r.load(Ordering::Acquire))
    }

    /// Remembers the real function `id` if its library does not export it.
    pub(crate) fn learn(&self, id: usize, address: usize) {
        if let Some(real) = self.real.get(id) {
            let _ = shared::keep_first(real, address);
        }
    }

    /// Counts a call of function `id`.
    #[inline(always)]
    pub(crate) fn count(&self, id: usize) {
        if let Some(calls) = self.calls.get(place()).and_then(|calls| calls.0.get(id)) {
            calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts that somebody was given weir's function `id`.
    pub(crate) fn count_handed_out(&self, id: usize) {
        if let Some(count) = self.handed_out.get(id) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often function `id` was called, and handed out.
    pub(crate) fn counts(&self, id: usize) -> (u64, u64) {
        let get = |of: &[AtomicU64; N]| of.get(id).map_or(0, |c| c.load(Ordering::Relaxed));
        (self.calls.iter().map(|calls| get(&calls.0)).sum(), get(&self.handed_out))
    }
}

/// Opens a library that goes by one of `names`; `load`: it may be loaded for that.
pub(crate) fn open(names: [&CStr; 2], load: bool) -> Option<*mut c_void> {
    #[cfg(feature = "fault-injection")]
    if crate::process::fault::is_set("resolve") {
        return None;
    }
    names.iter().map(|name| linker::open(name, load)).find(|handle| !handle.is_null())
}

/// A C string from a symbol's name, at compile time.
pub(crate) const fn symbol(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(symbol) => symbol,
        Err(_) => c"",
    }
}

macro_rules! ids {
    ($($symbol:ident of $base:ident = $name:tt $version:tt $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        /// Place of each driver function in [`weir_cuda::FUNCTIONS`] and in [`DRIVER`].
        #[allow(non_camel_case_types, dead_code, missing_docs, clippy::enum_variant_names)]
        #[repr(u16)]
        #[derive(Clone, Copy)]
        pub(crate) enum Id { $($symbol),* }

        /// The type of each driver function.
        #[allow(non_camel_case_types, dead_code, missing_docs)]
        pub(crate) mod signature {
            use weir_cuda::*;
            $(pub(crate) type $symbol = unsafe extern "C-unwind" fn($($ty),*) -> CUresult;)*
        }

        static SYMBOLS: [&CStr; COUNT] = [$(const { symbol(concat!(stringify!($symbol), "\0")) }),*];
    };
}
driver_functions!(ids);

/// libcuda.
pub(crate) static DRIVER: Library<COUNT> = Library::new([c"libcuda.so.1", c"libcuda.so"], &SYMBOLS);
