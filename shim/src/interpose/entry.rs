//! One entry a function of a library: its name, its topic, and weir's function where it has one.

use super::table::Topic;
use core::ffi::{CStr, c_void};

/// A function that weir knows.
pub(crate) struct Entry {
    /// The exported symbol.
    pub(crate) symbol: &'static CStr,
    /// What stands in for it, where it is intercepted.
    pub(crate) hook: Option<Hook>,
}

/// An intercepted function.
#[derive(Clone, Copy)]
pub(crate) struct Hook {
    /// Weir's function of the same signature.
    pub(crate) export: *const c_void,
    /// What it is about.
    pub(crate) topic: Topic,
}

// SAFETY: the pointer is the address of a function, which any thread may know.
unsafe impl Sync for Hook {}
// SAFETY: as above.
unsafe impl Send for Hook {}

impl Entry {
    /// The symbol as text.
    pub(crate) fn name(&self) -> &'static str {
        self.symbol.to_str().unwrap_or_default()
    }
}
