//! Functions of TensorFlow's own that weir stands in for.
//!
//! | file | for |
//! |---|---|
//! | `bfc.rs` | tensors inside the regions of TensorFlow's own allocator |
//! | `call.rs` | the Python lines that call an operation or a function |
//! | `dump.rs` | what XLA prints beside its buffers |
//! | `retry.rs` | whether TensorFlow would have an allocation tried again |
//! | `graph.rs` | the Python lines that made a graph's nodes |
//! | `session.rs` | the Python lines that run a session |

mod bfc;
mod call;
mod dump;
mod graph;
mod retry;
mod session;
