//! How a call arrives: the table of what is intercepted, the exports made from it, the symbol lookup of the dynamic
//! linker, and what every exported function passes first.

#[macro_use]
mod table;

mod arch;
#[cfg(test)]
mod coverage;
pub(crate) mod entry;
pub(crate) mod export;
mod gate;
mod lookup;
pub(crate) mod presence;
mod status;
