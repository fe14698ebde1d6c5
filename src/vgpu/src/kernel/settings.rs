//! Attributes of functions and kernels: what code and device report, and what the job may set.

use super::occupancy::Limits;
use super::ptx::Entry;
use crate::config;
use crate::error::*;
use weir_cuda::CUfunction_attribute;

type A = CUfunction_attribute;

/// How many function attributes there are.
const ATTRIBUTES: usize = 18;

/// Values that the job set, by attribute.
#[derive(Clone, Copy, Default)]
pub(super) struct Settings([Option<i32>; ATTRIBUTES]);

impl Settings {
    pub(super) fn get(&self, attribute: A) -> Option<i32> {
        self.0.get(attribute.0 as usize).copied().flatten()
    }

    pub(super) fn set(&mut self, entry: &Entry, attribute: A, value: i32) -> R {
        let fits = match attribute {
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let all = u32::try_from(value).ok().and_then(|v| v.checked_add(entry.shared_bytes));
                all.is_some_and(|all| all <= Limits::get().shared_per_block_optin)
            }
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => (-1..=100).contains(&value),
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
            | A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT
            | A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => value >= 0,
            A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => matches!(value, 0 | 1),
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE | A::CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE => {
                (0..=2).contains(&value)
            }
            // The others can only be read.
            _ => false,
        };
        match self.0.get_mut(attribute.0 as usize) {
            Some(place) if fits => *place = Some(value),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
}

pub(super) fn max_threads(entry: &Entry) -> u32 {
    let most = Limits::get().threads_per_block;
    entry.max_threads.map_or(most, |threads| threads.clamp(1, most))
}

pub(super) fn registers(entry: &Entry) -> u32 {
    // What code takes cannot be known without compiling it: a usual number.
    entry.max_registers.map_or(32, |most| most.clamp(1, 32))
}

/// An attribute's value, where `set` is what the job set.
pub(super) fn value(entry: &Entry, version: u32, attribute: A, set: Option<i32>) -> R<i32> {
    let (major, minor) = config::get().compute;
    let binary = major * 10 + minor;
    Ok(match attribute {
        A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => max_threads(entry) as i32,
        A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => entry.shared_bytes as i32,
        A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => entry.local_bytes as i32,
        A::CU_FUNC_ATTRIBUTE_NUM_REGS => registers(entry) as i32,
        A::CU_FUNC_ATTRIBUTE_PTX_VERSION if version > 0 => version as i32,
        A::CU_FUNC_ATTRIBUTE_PTX_VERSION | A::CU_FUNC_ATTRIBUTE_BINARY_VERSION => binary,
        A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            set.unwrap_or_else(|| Limits::get().shared_per_block.saturating_sub(entry.shared_bytes) as i32)
        }
        A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => set.unwrap_or(-1),
        known if (known.0 as usize) < ATTRIBUTES => set.unwrap_or(0),
        _ => return Err(INVALID_VALUE),
    })
}
