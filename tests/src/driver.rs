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

/// Whether this is the virtual GPU, which has an export of its own.
pub(crate) fn is_virtual() -> bool {
    exports("vgpu_physical_bytes")
}

/// Bytes that the virtual GPU holds for this process on `device`.
pub(crate) fn vgpu_physical_bytes(device: i32) -> u64 {
    // SAFETY: the virtual GPU documents this signature.
    let f = unsafe { library().get::<unsafe extern "C" fn(i32) -> u64>(b"vgpu_physical_bytes") };
    let f = f.expect("only the virtual GPU is queried");
    // SAFETY: it takes any number.
    unsafe { f(device) }
}

/// The most that it ever held.
pub(crate) fn vgpu_physical_peak(device: i32) -> u64 {
    // SAFETY: the virtual GPU documents this signature.
    let f = unsafe { library().get::<unsafe extern "C" fn(i32) -> u64>(b"vgpu_physical_peak") };
    let f = f.expect("only the virtual GPU is queried");
    // SAFETY: it takes any number.
    unsafe { f(device) }
}

/// Where the machine that the virtual GPU plays is not as it should be.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Limits {
    /// How NVML reports processes: see [`NVML_MODES`].
    pub(crate) nvml: i32,
    pub(crate) p2p: i32,
    /// The device is an instance of a larger one.
    pub(crate) mig: i32,
    unused: i32,
    pub(crate) parent: [u8; 16],
    /// Reservations together stay below this; 0 without a limit.
    pub(crate) address_space: u64,
}

/// What is wrong with NVML's processes, by number.
pub(crate) const NVML_MODES: [&str; 5] = [
    "",
    "NVML reports process ids of another namespace",
    "NVML reports no bytes of processes",
    "NVML reports no processes",
    "there is no NVML",
];

/// What is known of the machine beyond what the driver reports: of a real one nothing.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    if is_virtual() {
        // SAFETY: the virtual GPU documents this signature and fills the struct.
        unsafe {
            let f = library().get::<unsafe extern "C" fn(i32, *mut Limits) -> i32>(b"vgpu_limits");
            f.expect("only the virtual GPU is queried")(0, &raw mut limits);
        }
    }
    limits
}

/// A function of the virtual GPU's own.
fn own<T: Copy>(name: &[u8]) -> T {
    // SAFETY: callers name the type that the virtual GPU documents for the function.
    let f = unsafe { library().get::<T>(name) };
    *f.expect("only the virtual GPU is queried")
}

/// Pins the pages behind device addresses for a third party.
pub(crate) fn nic_register(addr: u64, bytes: u64) -> Result<u64, CUresult> {
    let mut key = 0;
    // SAFETY: the place lives through the call.
    let code = unsafe {
        own::<unsafe extern "C" fn(u64, u64, *mut u64) -> i32>(b"vgpu_nic_register")(addr, bytes, &raw mut key)
    };
    if code == 0 { Ok(key) } else { Err(cudaError_enum(code as u32)) }
}

pub(crate) fn nic_deregister(key: u64) {
    // SAFETY: it takes any number.
    assert_eq!(unsafe { own::<unsafe extern "C" fn(u64) -> i32>(b"vgpu_nic_deregister")(key) }, 0);
}

/// Bytes of pinned pages that no longer lie where they were pinned.
pub(crate) fn nic_stale(key: u64) -> i64 {
    // SAFETY: it takes any number.
    unsafe { own::<unsafe extern "C" fn(u64) -> i64>(b"vgpu_nic_stale")(key) }
}

pub(crate) fn nic_write(key: u64, offset: u64, bytes: &[u8]) {
    type Write = unsafe extern "C" fn(u64, u64, *const c_void, u64) -> i32;
    // SAFETY: the bytes live through the call.
    let code = unsafe { own::<Write>(b"vgpu_nic_write")(key, offset, bytes.as_ptr().cast(), bytes.len() as u64) };
    assert_eq!(code, 0);
}

pub(crate) fn nic_read(key: u64, offset: u64, bytes: usize) -> Vec<u8> {
    type Read = unsafe extern "C" fn(u64, u64, *mut c_void, u64) -> i32;
    let mut out = vec![0; bytes];
    // SAFETY: there is room for so many bytes.
    let code = unsafe { own::<Read>(b"vgpu_nic_read")(key, offset, out.as_mut_ptr().cast(), bytes as u64) };
    assert_eq!(code, 0);
    out
}

/// Calls of this process that met a function which the virtual GPU does not implement.
pub(crate) fn vgpu_unsupported_count() -> u64 {
    // SAFETY: the virtual GPU documents this signature.
    let f = unsafe { library().get::<unsafe extern "C" fn() -> u64>(b"vgpu_unsupported_count") };
    let f = f.expect("only the virtual GPU is queried");
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
