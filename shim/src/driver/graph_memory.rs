//! What the driver keeps for the graphs of a device, by its own figures.

use super::guards::RelaxedCapture;
use super::real::{self, done};
use weir_cuda::CUgraphMem_attribute;

fn figure(ordinal: i32, attribute: CUgraphMem_attribute) -> Option<u64> {
    let _relaxed = RelaxedCapture::enter();
    let mut bytes = 0_u64;
    // SAFETY: the place is a live local of the attribute's type.
    done(unsafe { real::cuDeviceGetGraphMemAttribute(ordinal, attribute, (&raw mut bytes).cast()) }).ok()?;
    Some(bytes)
}

/// What the driver keeps for the graphs of a device.
pub(crate) fn reserved(ordinal: i32) -> u64 {
    figure(ordinal, CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT).unwrap_or(0)
}

/// What of it graphs use.
pub(crate) fn used(ordinal: i32) -> u64 {
    figure(ordinal, CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT).unwrap_or(0)
}
