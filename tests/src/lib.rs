//! The conformance suite of the CUDA driver API: single documented rules, run against whatever
//! `libcuda.so.1` the loader finds, and a benchmark of the same library.
//!
//! [`rules`] holds the rules by family, [`runner`] starts them in processes of their own and reports
//! the outcome, [`mod@bench`] measures allocation. Everything reaches the driver through the module `driver` alone.
//!
//! [`harness`], [`rng`] and [`descriptors`] are another subject: what all suites of this folder share.

pub mod bench;
pub mod descriptors;
mod driver;
mod gpu;
pub mod harness;
mod nvml;
mod prelude;
pub mod rng;
pub mod rule;
pub mod rules;
pub mod runner;
mod wire;
pub mod worker;
