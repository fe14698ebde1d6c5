//! Kernels of TensorFlow's that are known by name, in code that cannot be read.
//!
//! Where a model leaves lengths open, TensorFlow computes with shapes on the device, reads the result back and makes
//! tensors of that size, and asserts that shapes agree: without these kernels such a model ends with an error. Their
//! parameters are known from the sources of TensorFlow and Eigen.

use super::generated::{Element, Operation};
use super::ptx::Parameter;
use std::ffi::CStr;

/// `GatherOpKernel(params, indices, out, gather_dim_size, indices_size, slice_size, out_size)` along the first axis, of
/// `gather_functor_gpu.cu.h`.
pub(super) const GATHER: &[u8] = b"_ZN10tensorflow14GatherOpKernelINS_13AlignedVectorIiLi1EEEiLb1EEEvPKT_PKT0_PS3_llll";
/// `EigenMetaKernel(evaluator, size)` for a tensor that becomes one number: the evaluator begins with the tensor's
/// address, a dimension and a device, and then has the number.
pub(super) const CONSTANT: &[u8] =
    b"_ZN5Eigen8internal15EigenMetaKernelINS_15TensorEvaluatorIKNS_14TensorAssignOpINS_9TensorMapINS_6TensorIiLi1ELi1EiEELi16ENS_11MakePointerEEEKNS_20TensorCwiseNullaryOpINS0_18scalar_constant_opIiEEKS8_EEEENS_9GpuDeviceEEEiEEvT_T0_";
/// `DynamicStitchKernel(slice_size, output_size, input_indices, input_ptrs, output)`, of `dynamic_stitch_op_gpu.cu.cc`. The
/// third and the fourth are a number of elements, up to eight of them in place, and the address of more.
pub(super) const STITCH: &[u8] =
    b"_ZN10tensorflow12_GLOBAL__N_119DynamicStitchKernelIiEEviiNS_20GpuDeviceArrayStructIiLi8EEENS2_IPKT_Li8EEEPS4_";
/// `EigenMetaKernel(evaluator, size)` for `a = a + b` of 64-bit integers, which counts steps: the evaluator has the result
/// (address, dimension, device), a device and a functor, and both operands like the result.
pub(super) const COUNT: &[u8] =
    b"_ZN5Eigen8internal15EigenMetaKernelINS_15TensorEvaluatorIKNS_14TensorAssignOpINS_9TensorMapINS_6TensorIlLi1ELi1ElEELi16ENS_11MakePointerEEEKNS_19TensorCwiseBinaryOpINS0_13scalar_sum_opIKlSB_EEKS8_KNS4_INS5_ISB_Li1ELi1ElEELi16ES7_EEEEEENS_9GpuDeviceEEElEEvT_T0_";
pub(super) const OF_COUNT: [u32; 2] = [88, 8];

/// How elements become one, of `reduction_gpu_kernels.cu.h`. Up to 4096 are one block's; more, up to 262 144, are divided
/// among up to 32 blocks, and what these have found is a segment for the second kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reduction {
    /// `BlockReduceKernel(in, out, num_elems, op, initVal)`: a result for each block.
    Blocks,
    /// `CleanupSegments(partial_sums, out, num_rows, num_cols, segment_size, op, initVal)`.
    Segment,
}

/// Threads of a block of the first.
pub(super) const THREADS: u64 = 256;

#[cfg(test)]
pub(super) const PRODUCT: &[u8] =
    b"_ZN10tensorflow7functor17BlockReduceKernelIPiS2_Li256ENS0_4ProdIiEEEEvT_T0_iT2_NSt15iterator_traitsIS5_E10value_typeE";

/// A reduction by its name: what it computes, of what, in which way, and its parameters; the operation is an empty class.
pub(super) fn reduction(name: &[u8]) -> Option<(Operation, Element, Reduction, Vec<u32>)> {
    let rest = std::str::from_utf8(name).ok()?.strip_prefix("_ZN10tensorflow7functor")?;
    let ways = [
        ("17BlockReduceKernelIP", "S2_Li256ENS0_", Reduction::Blocks, &[8, 8, 4, 1][..]),
        ("15CleanupSegmentsIP", "S2_NS0_", Reduction::Segment, &[8, 8, 4, 4, 4, 1][..]),
    ];
    let (rest, middle, way, parameters) = ways
        .into_iter()
        .find_map(|(start, middle, way, sizes)| Some((rest.strip_prefix(start)?, middle, way, sizes)))?;
    let element = match rest.chars().next()? {
        'b' => Element::Bool,
        'i' => Element::Int32,
        'l' => Element::Int64,
        _ => return None,
    };
    let operation = match rest.get(1..)?.strip_prefix(middle)? {
        op if op.starts_with("2OrE") => Operation::Or,
        op if op.starts_with("3AndE") => Operation::And,
        op if op.starts_with("3SumI") => Operation::Add,
        op if op.starts_with("4ProdI") => Operation::Mul,
        op if op.starts_with("15MaxPropagateNaNE") => Operation::Max,
        op if op.starts_with("15MinPropagateNaNE") => Operation::Min,
        _ => return None,
    };
    Some((operation, element, way, [parameters, &[element.bytes() as u32]].concat()))
}

pub(super) const OF_CONSTANT: [u32; 2] = [28, 4];
pub(super) const OF_STITCH: [u32; 5] = [4, 4, 48, 80, 8];
/// Elements that lie in the parameters themselves.
pub(super) const IN_PLACE: usize = 8;
pub(super) const OF_GATHER: [u32; 7] = [8; 7];

/// The parameters of a kernel in code that cannot be read, where its source shows them.
pub(super) fn parameters(name: &CStr) -> Option<Vec<Parameter>> {
    let reduction = reduction(name.to_bytes()).map(|(.., sizes)| sizes);
    let sizes: &[u32] = match name.to_bytes() {
        GATHER => &OF_GATHER,
        CONSTANT => &OF_CONSTANT,
        STITCH => &OF_STITCH,
        COUNT => &OF_COUNT,
        _ => reduction.as_ref()?,
    };
    let mut end = 0;
    let place = |size: &u32| {
        let offset = u32::next_multiple_of(end, 1 << size.trailing_zeros().min(3));
        end = offset + size;
        Parameter { offset, size: *size }
    };
    Some(sizes.iter().map(place).collect())
}
