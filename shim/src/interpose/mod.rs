//! How a call arrives: the table of what is intercepted, the exports made from it, the symbol lookup of the dynamic
//! linker, and what every exported function passes first.

#[macro_use]
mod table;

mod arch;
#[cfg(test)]
mod coverage;
mod entry;
mod export;
mod gate;
mod lookup;
mod presence;
mod proc_address;
mod said;
mod status;
