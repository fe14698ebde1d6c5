//! The driver as a job finds it: by loading `libcuda.so.1`. What LD_PRELOAD puts in front of it is what is tested.

use std::sync::OnceLock;
use weir_cuda::*;

fn library() -> &'static libloading::Library {
    static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // SAFETY: loading runs the library's initialisers, as in every CUDA program.
        unsafe { libloading::Library::new("libcuda.so.1") }.expect("libcuda.so.1")
    })
}

/// One of the virtual GPU's figures of a device: `vgpu_physical_bytes`, `vgpu_physical_peak`.
pub(crate) fn figure(name: &str, device: i32) -> u64 {
    // SAFETY: the virtual GPU documents this signature.
    let found = unsafe { library().get::<unsafe extern "C" fn(i32) -> u64>(name.as_bytes()) };
    // SAFETY: it takes any number.
    unsafe { found.expect("the virtual GPU")(device) }
}

macro_rules! functions {
    ($($symbol:ident of $base:ident = $name:literal $version:literal $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Table {
            $($symbol: Option<unsafe extern "C" fn($($ty),*) -> CUresult>,)*
        }

        fn table() -> &'static Table {
            static TABLE: OnceLock<Box<Table>> = OnceLock::new();
            TABLE.get_or_init(|| Box::new(Table {
                // SAFETY: the types come from the public headers, by the same list.
                $($symbol: unsafe { library().get(stringify!($symbol).as_bytes()) }.ok().map(|f| *f),)*
            }))
        }

        /// The driver's functions. They are safe to *name*, not to call: this program passes live places and
        /// handles, and has a process of its own to lose.
        pub(crate) mod cu {
            #![allow(non_snake_case, clippy::too_many_arguments, missing_docs)]
            use super::*;
            $(
                #[allow(dead_code)] // the list is the driver's, not this program's
                pub(crate) fn $symbol($($arg: $ty),*) -> CUresult {
                    let f = table().$symbol.expect(stringify!($symbol));
                    // SAFETY: see the module.
                    unsafe { f($($arg),*) }
                }
            )*
        }
    };
}
driver_functions!(functions);
