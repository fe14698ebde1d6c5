//! The real driver, and what is known of its contexts, streams, events and captures.

pub(crate) mod capture;
pub(crate) mod contexts;
pub(crate) mod graph_memory;
pub(crate) mod guards;
pub(crate) mod library;
pub(crate) mod observer;
pub(crate) mod reach;
pub(crate) mod real;
pub(crate) mod stream;
pub(crate) mod wait;
pub(crate) mod work;

/// Devices that can be told apart in one word.
pub(crate) const DEVICES: usize = 64;
