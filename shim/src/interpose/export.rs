//! Makes, from the table, what the outside sees: the exported functions and the list of entries.

use super::entry::{Entry, Hook};
use super::table::Topic;
use super::{gate, proc_address};
use crate::alloc;
use crate::driver::library::{DRIVER, Id, Library, symbol};
use crate::driver::memops;
use crate::driver::real;
#[allow(unused_imports)] // every argument has the method: most by the trait
use crate::driver::work::{self, NoStream};
use crate::hooks;
use crate::process::guard::{self, Call};
use crate::process::linker;
use core::mem::transmute;
use weir_cuda::nvml::*;
use weir_cuda::*;

/// A call of the driver's, made again where it found no memory and weir could make room. The call itself stays outside the
/// guard, as in a plain export.
macro_rules! with_room {
    ($name:expr, $call:expr) => {{
        let mut result = $call;
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            for effort in alloc::Effort::ALL {
                let released = guard::run($name, || alloc::make_room(effort)).unwrap_or(0);
                if released > 0 {
                    result = $call;
                }
                if result != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                    guard::run($name, || alloc::needed(released));
                    break;
                }
            }
        }
        result
    }};
}

/// An exported function. A plain one is a count and a jump; one with a body runs it under the guard; one that
/// waits has guarded work before and after, and the wait between them.
/// The calling convention lets a thread's cancellation unwind through it.
macro_rules! export {
    // What all have in common: `$body` with the real function in `$real`.
    (@as $real:ident => $body:expr; $library:ident $entries:ident $id:ident $result:ident $symbol:ident ($($arg:ident : $ty:ty),*)) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(non_snake_case, missing_docs)]
        pub(crate) unsafe extern "C-unwind" fn $symbol($($arg: $ty),*) -> $result {
            type Real = unsafe extern "C-unwind" fn($($ty),*) -> $result;
            match gate::enter(&$library, &$entries, $id::$symbol as usize) {
                Ok(real) => {
                    // SAFETY: the address is that of the real function of this name, which the public headers declare
                    // with these types.
                    let $real = unsafe { transmute::<usize, Real>(real) };
                    $body
                }
                Err(absent) => absent.into(),
            }
        }
    };
    (hooked work forward; $library:ident $entries:ident $id:ident $result:ident $symbol:ident ($($arg:ident : $ty:ty),*)) => {
        export! { @as real => {
            let own = false $(|| work::Probe($arg).per_thread())*;
            let result = with_room!(stringify!($symbol), {
                let Some(_queueing) = work::enter_as(const { $id::$symbol.variant() }, own) else {
                    return work::REFUSED;
                };
                // SAFETY: the caller's own arguments.
                unsafe { real($($arg),*) }
            });
            if memops::wanted() {
                return memops::complete(stringify!($symbol), const { $id::$symbol.variant() }, result);
            }
            result
        }; $library $entries $id $result $symbol ($($arg: $ty),*) }
    };
    (hooked code forward; $library:ident $entries:ident $id:ident $result:ident $symbol:ident ($($arg:ident : $ty:ty),*)) => {
        export! { @as real => {
            let first = [$($arg as usize),*].first().copied().unwrap_or(0);
            let begin = || crate::cap::contexts::loading(stringify!($symbol), first);
            let loading = guard::run(stringify!($symbol), begin).flatten();
            // SAFETY: the caller's own arguments.
            let result = with_room!(stringify!($symbol), unsafe { real($($arg),*) });
            if let Some(loading) = loading {
                guard::run(stringify!($symbol), move || loading.over(stringify!($symbol), first, result));
            }
            if stringify!($symbol).contains("Load") {
                guard::run(stringify!($symbol), crate::record::code_loaded);
            }
            result
        }; $library $entries $id $result $symbol ($($arg: $ty),*) }
    };
    (hooked hidden forward; $library:ident $entries:ident $id:ident $result:ident $symbol:ident ($($arg:ident : $ty:ty),*)) => {
        export! { @as real => {
            // SAFETY: the caller's own arguments.
            with_room!(stringify!($symbol), unsafe { real($($arg),*) })
        }; $library $entries $id $result $symbol ($($arg: $ty),*) }
    };
    (hooked $topic:ident forward; $library:ident $entries:ident $id:ident $result:ident $symbol:ident ($($arg:ident : $ty:ty),*)) => {
        export! { @as real => {
            // SAFETY: the caller's own arguments.
            unsafe { real($($arg),*) }
        }; $library $entries $id $result $symbol ($($arg: $ty),*) }
    };
    (hooked $topic:ident {waits $body:path}; $library:ident $entries:ident $id:ident $result:ident $symbol:ident ($($arg:ident : $ty:ty),*)) => {
        export! { @as real => {
            let variant = const { $id::$symbol.variant() };
            // SAFETY: the body gets the caller's own arguments.
            let after = guard::run(stringify!($symbol), || unsafe { $body(variant, $($arg),*) });
            // SAFETY: the caller's own arguments.
            let result = unsafe { real($($arg),*) };
            if let Some(after) = after {
                guard::run(stringify!($symbol), move || after(result));
            }
            result
        }; $library $entries $id $result $symbol ($($arg: $ty),*) }
    };
    (hooked $topic:ident {quick $body:path}; $($rest:tt)*) => { export! { hooked $topic {$body} run_quick; $($rest)* } };
    (hooked $topic:ident {$body:path}; $($rest:tt)*) => { export! { hooked $topic {$body} run; $($rest)* } };
    (hooked $topic:ident {$body:path} $run:ident; $library:ident $entries:ident $id:ident $result:ident $symbol:ident ($($arg:ident : $ty:ty),*)) => {
        export! { @as real => {
            let call = Call::new(real, const { $id::$symbol.variant() });
            // SAFETY: the body gets the caller's own arguments and the real function.
            guard::$run(stringify!($symbol), || unsafe { $body(&call, $($arg),*) })
                .or_else(|| call.result())
                // SAFETY: the caller's own arguments; the body has not called it.
                .unwrap_or_else(|| unsafe { real($($arg),*) })
        }; $library $entries $id $result $symbol ($($arg: $ty),*) }
    };
    (unhooked; $($rest:tt)*) => {};
}

macro_rules! entry {
    (hooked $topic:ident $how:tt; $symbol:ident) => {
        Entry {
            symbol: const { symbol(concat!(stringify!($symbol), "\0")) },
            hook: Some(Hook { export: $symbol as *const core::ffi::c_void, topic: Topic::$topic }),
        }
    };
    (unhooked; $symbol:ident) => {
        Entry { symbol: const { symbol(concat!(stringify!($symbol), "\0")) }, hook: None }
    };
}

macro_rules! driver {
    ($($symbol:ident of $base:ident = $name:tt $version:tt $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        $(hooked_row! { export $name $base DRIVER DRIVER_ENTRIES Id CUresult $symbol ($($arg: $ty),*) })*
        /// What weir knows of the driver.
        pub(crate) static DRIVER_ENTRIES: [Entry; COUNT] = [$(hooked_row! { entry $name $base $symbol }),*];
    };
}
driver_functions!(driver);

/// An exported function of NVML, which has no stream variants.
macro_rules! nvml_export {
    ({$body:path} $symbol:ident $arguments:tt) => {
        export! { hooked nvml {$body}; NVML NVML_ENTRIES NvmlId NvmlReturn $symbol $arguments }
    };
    ($symbol:ident $arguments:tt) => {
        export! { hooked nvml forward; NVML NVML_ENTRIES NvmlId NvmlReturn $symbol $arguments }
    };
}

macro_rules! nvml {
    ($($symbol:ident ($($arg:ident : $ty:ty),*) $({$body:path})?;)*) => {
        #[allow(non_camel_case_types)]
        #[repr(u16)]
        enum NvmlId { $($symbol),* }
        /// How many NVML functions are intercepted.
        pub(crate) const NVML_COUNT: usize = [$(NvmlId::$symbol as u16),*].len();
        $(nvml_export! { $({$body})? $symbol ($($arg: $ty),*) })*
        static NVML_SYMBOLS: [&core::ffi::CStr; NVML_COUNT] = [$(const { symbol(concat!(stringify!($symbol), "\0")) }),*];
        /// What weir knows of NVML.
        pub(crate) static NVML_ENTRIES: [Entry; NVML_COUNT] = [$(entry! { hooked nvml forward; $symbol }),*];
    };
}
nvml_functions!(nvml);

/// NVML.
pub(crate) static NVML: Library<NVML_COUNT> = Library::new([c"libnvidia-ml.so.1", c"libnvidia-ml.so"], &NVML_SYMBOLS);

/// The real driver's version, as `cuDriverGetVersion` writes it; it needs no initialised driver.
pub(crate) fn driver_version() -> Option<i32> {
    let mut version = 0;
    // SAFETY: the pointer is to a local.
    real::done(unsafe { real::cuDriverGetVersion(&raw mut version) }).ok().map(|()| version)
}

impl Id {
    // The compiler runs this: an index out of range would not compile.
    #[allow(clippy::indexing_slicing)]
    const fn variant(self) -> Variant {
        FUNCTIONS[self as usize].variant
    }
}

impl NvmlId {
    #[allow(clippy::unused_self, reason = "called like the driver's functions, which have stream variants")]
    const fn variant(self) -> Variant {
        Variant::Legacy
    }
}

/// What a caller gets when the real function does not exist.
#[derive(Clone, Copy)]
pub(crate) enum Absent {
    /// There is no such library on this machine.
    Library,
    /// The library is older than the function.
    Function,
}

impl From<Absent> for CUresult {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::Library => Self::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
            Absent::Function => Self::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
        }
    }
}

impl From<Absent> for NvmlReturn {
    fn from(absent: Absent) -> Self {
        match absent {
            Absent::Library => Self(12), // NVML_ERROR_LIBRARY_NOT_FOUND
            Absent::Function => Self::FUNCTION_NOT_FOUND,
        }
    }
}

/// The next definition of a function after this library's, for a process without the real one: what
/// it would call if weir were not there (TensorFlow brings such functions, which answer an error).
pub(crate) fn next_definition(entry: &Entry) -> Option<usize> {
    let address = linker::lookup(libc::RTLD_NEXT, entry.symbol);
    linker::clear_error();
    let own = entry.hook.is_some_and(|h| h.export as usize == address);
    (address != 0 && !own).then_some(address)
}
