//! Functions of TensorFlow's own that weir stands in for.
//!
//! | file | for |
//! |---|---|
//! | `bfc.rs` | tensors inside the regions of TensorFlow's own allocator |
//! | `graph.rs` | the Python lines that made a graph's nodes |

mod bfc;
mod graph;
