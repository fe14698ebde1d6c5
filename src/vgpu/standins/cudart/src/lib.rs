//! The virtual GPU's libcudart.so.12: the CUDA runtime interface of the public headers, on the public
//! driver interface. It keeps what a runtime keeps (each thread's device and last error, the code that
//! programs register) and calls the driver for everything else.
//!
//! What it does not implement answers `cudaErrorNotSupported`.

#![allow(non_snake_case, clippy::too_many_arguments)]

#[macro_use]
mod error;

mod code;
mod context;
mod copy;
mod device;
mod event;
mod graph;
mod launch;
mod memory;
mod properties;
mod stream;
mod unsupported;
