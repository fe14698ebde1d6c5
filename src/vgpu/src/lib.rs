//! A virtual GPU: `libcuda.so.1` on host memory, strict where the real driver is strict.
//!
//! Only what NVIDIA documents in public headers and manuals is implemented. `exports` makes one C
//! function of each row of the ABI table; `api` holds the bodies, by topic; the other modules are
//! what the bodies work on. `docs/internals/virtual-gpu.md` describes it for its users.
// C functions are public by their symbol, wherever they stand. Bodies have the argument types of the
// headers.
// Nothing calls the exports in a test program.
#![cfg_attr(test, allow(dead_code))]
#![allow(unreachable_pub, clippy::upper_case_acronyms, clippy::not_unsafe_ptr_arg_deref)]

mod api;
mod array;
mod attributes;
mod call;
mod config;
mod device;
mod engine;
mod error;
mod exports;
mod graph;
mod heap;
mod kernel;
mod memory;
mod names;
mod nic;
mod observe;
mod pool;
mod ranges;
mod shadow;
mod shared;
mod space;
mod sparse;
mod state;
mod store;
mod stubs;
mod unrequested;
mod violation;
mod vmm;
