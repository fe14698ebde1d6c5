//! The Python lines that made the nodes of a graph.
//!
//! Operations of a graph run on threads of TensorFlow's own, where there is no Python. But each node was made by Python
//! once, through `TF_FinishOperation`; the lines of that moment are kept under the node's name. A name that is made again
//! (another trace, another graph) takes the newer lines.

use crate::frameworks::cache::{Cache, mix, mix_text};
use core::sync::atomic::{AtomicU32, Ordering};

static NODES: Cache<8192> = Cache::new();
/// Rises with each node: what was looked up before may have another answer now.
static MADE: AtomicU32 = AtomicU32::new(0);

/// The hash of a name.
#[inline]
pub(crate) fn hash(name: &[u8]) -> u64 {
    mix_text(0, name)
}

/// Keeps the lines (the journal's id) that made a node.
pub(crate) fn remember(name: &[u8], python: u32) {
    NODES.put(hash(name), python);
    MADE.fetch_add(1, Ordering::Relaxed);
}

/// How many nodes have been made.
#[inline(always)]
pub(crate) fn made() -> u32 {
    MADE.load(Ordering::Relaxed)
}

/// Forgets the ids of a journal that is no more.
pub(crate) fn forget() {
    NODES.clear();
    NAMES.clear();
}

/// From an operation's name and the number of nodes made to lines; a value of [`NOTHING`] says that there are none.
static NAMES: Cache<1024> = Cache::new();
const NOTHING: u32 = 1 << 21;

/// The lines for the operation of this name, whose hash is `hash`; 0 when they are not known.
#[inline]
pub(crate) fn lines_of(name: &[u8], hash: u64) -> u32 {
    let made = made();
    if made == 0 {
        return 0;
    }
    let hash = mix(hash, made.into());
    let found = NAMES.get(hash).unwrap_or_else(|| {
        let found = match weir_journal::node_of(name, |name| NODES.get(self::hash(name)).unwrap_or(0)) {
            0 => NOTHING,
            lines => lines,
        };
        NAMES.put(hash, found);
        found
    });
    if found == NOTHING { 0 } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(name: &str) -> u32 {
        lines_of(name.as_bytes(), hash(name.as_bytes()))
    }

    #[test]
    fn an_operation_finds_the_lines_of_its_node() {
        for (name, wanted) in [
            ("m_1/dense_1/MatMul", 7),
            ("gradient_tape/m_1/dense_1/MatMul/MatMul_1", 8),
            ("gradient_tape/m_1/lonely/Sum", 9),
            ("m_1/conv/convolution", 10),
            ("adam/mul_3", 11),
            ("m_1/lstm_1/CudnnRNNV3", 13),
            ("gradient_tape/m_1/lstm_1/CudnnRNNBackpropV3", 14),
        ] {
            remember(name.as_bytes(), wanted);
        }
        for (name, wanted) in [
            ("m_1/dense_1/MatMul", 7),
            ("StatefulPartitionedCall/m_1/dense_1/MatMul", 7),
            ("StatefulPartitionedCall/StatefulPartitionedCall/m_1/dense_1/MatMul", 7),
            ("StatefulPartitionedCall/gradient_tape/m_1/dense_1/MatMul/MatMul", 7),
            ("gradient_tape/m_1/lonely/Sum", 9),
            ("swap_in_StatefulPartitionedCall/m_1/dense_1/MatMul_1", 7),
            ("swap_out_gradient_tape/m_1/lonely/Sum_0", 9),
            ("StatefulPartitionedCall/m_1/conv/convolution-0-TransposeNHWCToNCHW-LayoutOptimizer", 10),
            ("ArithmeticOptimizer/FoldMultiply_adam/mul_3", 0),
            ("adam/mul_3/ReadVariableOp", 11),
            ("StatefulPartitionedCall/gradient_tape/m_1/lstm_1/CudnnRNNBackpropV3", 13),
            ("StatefulPartitionedCall/m_1/lstm_1/CudnnRNNV3", 13),
            ("IteratorGetNext/_3", 0),
            ("somewhere/else", 0),
            ("", 0),
        ] {
            assert_eq!(lines(name), wanted, "{name}");
            assert_eq!(lines(name), wanted, "{name} again");
        }
        remember(b"somewhere/else", 12);
        assert_eq!(lines("somewhere/else"), 12);
        assert_eq!(made(), 8);
    }
}
