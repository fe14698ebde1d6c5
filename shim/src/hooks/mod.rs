//! What weir does in an intercepted function, in one file a topic of the table.

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod graph_memory;
pub(crate) mod host;
pub(crate) mod memory;
pub(crate) mod nvml;
pub(crate) mod owner;
pub(crate) mod pool;
pub(crate) mod query;
pub(crate) mod share;
pub(crate) mod stream;
mod tensorflow;
pub(crate) mod vmm;
