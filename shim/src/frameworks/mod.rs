//! What the frameworks in the job know: Python's lines and TensorFlow's operations, read from their own memory.

pub(crate) mod cache;
pub(crate) mod memory;
pub(crate) mod python;
pub(crate) mod tensorflow;
