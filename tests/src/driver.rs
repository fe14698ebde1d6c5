//! The loaded driver: one Rust function for each of its functions, made from the list of `weir-cuda`.
//! This is the only place that calls into the library under test.

use std::sync::OnceLock;
use weir_cuda::*;

/// The library that the loader finds; it stays loaded for good.
pub(crate) fn load() -> Result<&'static libloading::Library, String> {
    static LIBRARY: OnceLock<Result<libloading::Library, String>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| {
        // SAFETY: loading runs the library's initialisers, which is what every CUDA program does.
        unsafe { libloading::Library::new("libcuda.so.1") }.map_err(|e| format!("libcuda.so.1 can't be loaded: {e}"))
    });
    loaded.as_ref().map_err(Clone::clone)
}

fn library() -> &'static libloading::Library {
    load().unwrap_or_else(|message| panic!("{message}"))
}

/// Whether the library exports `symbol`.
pub(crate) fn exports(symbol: &str) -> bool {
    // SAFETY: the symbol is looked up and not used.
    unsafe { library().get::<*const ()>(symbol.as_bytes()) }.is_ok()
}

/// Whether this is the virtual GPU, which tells so by an export of its own.
pub(crate) fn is_virtual() -> bool {
    exports("vgpu_physical_bytes")
}

/// Bytes that the virtual GPU holds for this process on `device`.
pub(crate) fn vgpu_physical_bytes(device: i32) -> u64 {
    // SAFETY: the virtual GPU documents this signature.
    let f = unsafe { library().get::<unsafe extern "C" fn(i32) -> u64>(b"vgpu_physical_bytes") };
    let f = f.expect("only the virtual GPU is asked");
    // SAFETY: it takes any number.
    unsafe { f(device) }
}

/// The most that it ever held.
pub(crate) fn vgpu_physical_peak(device: i32) -> u64 {
    // SAFETY: the virtual GPU documents this signature.
    let f = unsafe { library().get::<unsafe extern "C" fn(i32) -> u64>(b"vgpu_physical_peak") };
    let f = f.expect("only the virtual GPU is asked");
    // SAFETY: it takes any number.
    unsafe { f(device) }
}

/// Calls of this process that met a function which the virtual GPU does not implement.
pub(crate) fn vgpu_unsupported_count() -> u64 {
    // SAFETY: the virtual GPU documents this signature.
    let f = unsafe { library().get::<unsafe extern "C" fn() -> u64>(b"vgpu_unsupported_count") };
    let f = f.expect("only the virtual GPU is asked");
    // SAFETY: it takes nothing.
    unsafe { f() }
}

macro_rules! functions {
    ($($symbol:ident of $base:ident = $name:literal $version:literal $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Table {
            $($symbol: Option<unsafe extern "C" fn($($ty),*) -> CUresult>,)*
        }

        fn table() -> &'static Table {
            static TABLE: OnceLock<Box<Table>> = OnceLock::new();
            TABLE.get_or_init(|| {
                let library = library();
                Box::new(Table {
                    // SAFETY: the types come from the public headers, by the same list.
                    $($symbol: unsafe { library.get(stringify!($symbol).as_bytes()) }.ok().map(|f| *f),)*
                })
            })
        }

        /// The driver's functions. They are safe to *name*, not to call: a rule passes pointers to live
        /// places of the right type, or what the driver must refuse, and has a process of its own to lose.
        pub(crate) mod cu {
            #![allow(non_snake_case, clippy::too_many_arguments)]
            use super::*;
            $(
                #[allow(dead_code)] // not every function has a rule
                pub(crate) fn $symbol($($arg: $ty),*) -> CUresult {
                    let Some(f) = table().$symbol else {
                        crate::rule::skip(concat!("the driver has no ", stringify!($symbol)))
                    };
                    // SAFETY: see the module.
                    unsafe { f($($arg),*) }
                }
            )*
        }
    };
}
driver_functions!(functions);
