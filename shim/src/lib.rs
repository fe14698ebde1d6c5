//! libweir.so: what is loaded into a job.
//!
//! It stands between a process and the CUDA driver on every road that leads there: link-time symbols,
//! `dlsym`, `dlvsym` and `cuGetProcAddress`. It is inert until the first CUDA call, and whatever goes
//! wrong in it, the call goes through to the real driver. How a call flows is told in
//! docs/internals/interposition.md.
//!
//! Everything that is intercepted is in `table.rs`; everything that depends on the processor is in
//! `arch.rs`. Nothing here may panic, start a thread, keep a thread-local with a destructor, or
//! allocate on the way of a passed-through call.

// Passing a call through is a handful of instructions; they belong into each exported function.
#![allow(clippy::inline_always)]
// A test binary exports nothing, and tests may panic.
#![cfg_attr(test, allow(dead_code, clippy::panic, clippy::indexing_slicing))]

#[macro_use]
mod table;

mod arch;
mod attribution;
mod calls;
mod caps;
mod config;
#[cfg(test)]
mod coverage;
mod elf;
mod entry;
mod environment;
mod export;
#[cfg(feature = "fault-injection")]
mod fault;
mod gate;
mod guard;
mod hooks;
mod job;
mod library;
mod linker;
mod lookup;
mod note;
mod presence;
mod recorder;
mod reserve;
mod served;
mod stack;
mod status;
mod surroundings;
mod tensorflow;
