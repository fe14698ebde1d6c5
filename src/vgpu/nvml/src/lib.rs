//! The virtual GPU's libnvidia-ml.so.1: reports the devices of the libcuda.so.1 in the same
//! folder, their memory, and the processes that hold it.
//!
//! Its only state is how often it was initialised. It invents nothing that it does not know:
//! temperatures, power, clocks and the rest are NOT_SUPPORTED.

#![allow(non_snake_case)]

mod device;
mod driver;
mod functions;
mod mig;
mod session;
mod system;
