//! libweir.so: the library that is loaded into a job.
//!
//! It intercepts CUDA calls at every entry point: link-time symbols,
//! `dlsym`, `dlvsym` and `cuGetProcAddress`. It is inert until the first CUDA call, and whatever goes
//! wrong in it, the call goes through to the real driver. docs/internals/interposition.md
//! describes how a call arrives, docs/internals/architecture.md how it goes on.
//!
//! Everything that is intercepted is in `interpose/table.rs`; everything that depends on the processor is in
//! `interpose/arch.rs`. Nothing here may panic, start a thread, keep a thread-local with a destructor, or
//! allocate on the way of a passed-through call.

// Passing a call through is a handful of instructions; they belong into each exported function.
#![allow(clippy::inline_always)]
// A test binary exports nothing, and tests may panic.
#![cfg_attr(test, allow(dead_code, clippy::panic, clippy::indexing_slicing))]

mod alloc;
mod attribute;
mod cap;
mod driver;
mod frameworks;
mod hooks;
mod interpose;
mod process;
mod record;
