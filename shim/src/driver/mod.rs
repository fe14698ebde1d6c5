//! The real driver, and what is known of its contexts, streams, events and captures.

pub(crate) mod backing;
pub(crate) mod capture;
pub(crate) mod contexts;
pub(crate) mod graph_memory;
pub(crate) mod guards;
pub(crate) mod library;
pub(crate) mod memops;
pub(crate) mod observer;
pub(crate) mod reach;
pub(crate) mod real;
pub(crate) mod stream;
pub(crate) mod wait;
pub(crate) mod work;

/// Devices that fit into one word as bits.
pub(crate) const DEVICES: usize = 64;
