//! The virtual GPU's libnvidia-ml.so.1: tells of the devices that the libcuda.so.1 in the same folder
//! has, of their memory, and of the processes that hold it.
//!
//! It keeps no state but how often it was initialised. What it does not know it does not make up:
//! temperatures, power, clocks and the rest are NOT_SUPPORTED.

#![allow(non_snake_case)]

mod device;
mod driver;
mod functions;
mod session;
mod system;
