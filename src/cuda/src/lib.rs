//! The public CUDA driver ABI as data: types, result codes, and the one list of functions that the
//! shim's hooks, the virtual GPU's exports and the coverage tests are all made from.
//!
//! [`types`] and the list are made from the public headers by `scripts/abi`; the test
//! `tests/layout.rs` compiles a C file against those headers to prove every size, offset and value.
//! Nothing here calls anything. docs/internals/architecture.md shows what is made from the list.

#[macro_use]
mod functions;
mod location;
pub mod nvml;
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks
)]
pub mod types;

pub use functions::COUNT;
pub use types::*;

/// C argument types, under the names that the rows of [`driver_functions!`] use.
pub use core::ffi::{c_char, c_float, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

/// A frame of the EGL interop functions: passed by value in memory, never looked into.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct CUeglFrame_v1 {
    opaque: [u64; 8],
}

/// Which default stream a function means by its stream argument 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The legacy default stream, which synchronises with every blocking stream.
    Legacy,
    /// `_ptsz`: an asynchronous function whose stream 0 is the calling thread's own.
    Ptsz,
    /// `_ptds`: a synchronous function that runs on the calling thread's own stream.
    Ptds,
}

/// One exported driver function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The exported symbol, such as `cuMemAlloc_v2`.
    pub symbol: &'static str,
    /// The name without version and variant, which `cuGetProcAddress` takes.
    pub name: &'static str,
    /// The CUDA version that brought it, as `cuDriverGetVersion` writes versions.
    pub version: i32,
    /// Which default stream it means.
    pub variant: Variant,
    /// The symbol of the legacy variant: itself, or what `_ptsz`/`_ptds` is added to.
    pub base: &'static str,
    /// Names of the arguments.
    pub arguments: &'static [&'static str],
}

macro_rules! variant {
    (legacy) => {
        Variant::Legacy
    };
    (ptsz) => {
        Variant::Ptsz
    };
    (ptds) => {
        Variant::Ptds
    };
}

macro_rules! list {
    ($($symbol:ident of $base:ident = $name:literal $version:literal $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        /// Every public driver function, ordered by name and version.
        pub static FUNCTIONS: [Function; COUNT] = [$(Function {
            symbol: stringify!($symbol),
            name: $name,
            version: $version,
            variant: variant!($variant),
            base: stringify!($base),
            arguments: &[$(stringify!($arg)),*],
        }),*];
    };
}
driver_functions!(list);

/// What `cuGetProcAddress` would hand out for `name` at CUDA `version`: the newest row that is not
/// newer, of the wanted variant where the function has one, else the legacy one.
pub fn resolve(name: &str, version: i32, per_thread: bool) -> Option<&'static Function> {
    let rows = || {
        let start = FUNCTIONS.partition_point(|f| f.name < name);
        FUNCTIONS[start..].iter().take_while(move |f| f.name == name)
    };
    let newest = |per_thread: bool| {
        rows()
            .filter(|f| f.version <= version && (f.variant != Variant::Legacy) == per_thread)
            .max_by_key(|f| f.version)
    };
    let legacy = newest(false);
    if per_thread { newest(true).or(legacy) } else { legacy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_by_name_and_has_no_symbol_twice() {
        assert!(FUNCTIONS.is_sorted_by_key(|f| (f.name, f.version)));
        let symbols: std::collections::HashSet<_> = FUNCTIONS.iter().map(|f| f.symbol).collect();
        assert_eq!(symbols.len(), COUNT);
    }

    #[test]
    fn old_callers_get_old_versions() {
        let symbol = |n, v, p| resolve(n, v, p).map(|f| f.symbol);
        assert_eq!(symbol("cuMemAlloc", 2000, false), Some("cuMemAlloc"));
        assert_eq!(symbol("cuMemAlloc", 12090, false), Some("cuMemAlloc_v2"));
        assert_eq!(symbol("cuMemcpyHtoD", 12000, true), Some("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(symbol("cuMemAllocAsync", 11020, true), Some("cuMemAllocAsync_ptsz"));
        assert_eq!(symbol("cuMemAllocAsync", 11010, true), None);
        assert_eq!(symbol("cuInit", 12000, true), Some("cuInit"));
        assert_eq!(symbol("cuNoSuchThing", 12000, false), None);
    }
}
