//! One exported C function a row of the ABI table, around the body of that name in `api`.

use crate::api;
use crate::call::{Arg, Call};
use crate::error::{NOT_INITIALIZED, NOT_PERMITTED, R};
use crate::state::{forked, thread};
use weir_cuda::*;

/// Positions in [`weir_cuda::FUNCTIONS`], by symbol.
macro_rules! index {
    ($($symbol:ident of $base:ident = $name:literal $version:literal $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        #[repr(usize)]
        enum Index { $($symbol),* }
    };
}
driver_functions!(index);

macro_rules! per_thread {
    (legacy) => {
        false
    };
    ($other:ident) => {
        true
    };
}

fn run<'a>(index: usize, per_thread: bool, body: impl FnOnce() -> R, args: impl FnOnce() -> Vec<Arg<'a>>) -> CUresult {
    let call = match Call::enter(index) {
        Ok(call) => call,
        Err(code) => return code,
    };
    let result = if forked() {
        Err(NOT_INITIALIZED)
    } else if thread::in_host_function() {
        // A host function must not call the driver.
        Err(NOT_PERMITTED)
    } else {
        thread::set_per_thread(per_thread);
        body()
    };
    let code = result.err().unwrap_or(CUresult::CUDA_SUCCESS);
    if call.tracing() {
        return call.leave(code, &args());
    }
    code
}

macro_rules! export {
    ($($symbol:ident of $base:ident = $name:literal $version:literal $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        $(
            /// # Safety
            /// As the driver's documentation demands of the caller.
            #[allow(non_snake_case, clippy::too_many_arguments)]
            // Test programs are not to answer for libcuda.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $symbol($($arg: $ty),*) -> CUresult {
                run(
                    Index::$symbol as usize,
                    per_thread!($variant),
                    // SAFETY: the caller keeps the function's documented promises.
                    || unsafe { api::$base($($arg),*) },
                    || vec![$(Arg::of(&$arg)),*],
                )
            }
        )*
    };
}
driver_functions!(export);

macro_rules! addresses {
    ($($symbol:ident of $base:ident = $name:literal $version:literal $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        static ADDRESSES: [usize_fn::Address; COUNT] = [$(usize_fn::Address($symbol as *const ())),*];
    };
}
driver_functions!(addresses);

mod usize_fn {
    /// The address of an exported function.
    pub(super) struct Address(pub(super) *const ());
    // SAFETY: an address of code, never written through.
    unsafe impl Sync for Address {}
}

/// Where a function of the table begins.
pub(crate) fn address(function: &Function) -> *mut c_void {
    FUNCTIONS
        .iter()
        .position(|f| f.symbol == function.symbol)
        .map_or(std::ptr::null_mut(), |i| ADDRESSES[i].0 as *mut c_void)
}
