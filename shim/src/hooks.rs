//! What weir does in an intercepted function, in one file a topic of the table.

pub(crate) mod context;
pub(crate) mod proc_address;
