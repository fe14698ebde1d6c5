//! Device memory that a library takes for itself, as the real ones do: straight from the driver.

use weir_cuda::{CUdeviceptr, CUresult};
use weir_vgpu_client as driver;

/// Memory that is given back when its owner ends. Held by handles only, whose context is current when
/// they are destroyed.
#[derive(Default)]
pub(crate) struct Blocks(Vec<CUdeviceptr>);

impl Blocks {
    /// Takes blocks in the current context: all, or none and the driver's refusal.
    pub(crate) fn take(sizes: &[usize]) -> Result<Self, CUresult> {
        let mut taken = Self::default();
        for &size in sizes {
            let mut block = 0;
            // SAFETY: a place for the result.
            let code = unsafe { driver::cuMemAlloc_v2(&raw mut block, size) };
            if code != CUresult::CUDA_SUCCESS {
                return Err(code);
            }
            taken.0.push(block);
        }
        Ok(taken)
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for &block in &self.0 {
            // SAFETY: taken above and given back once. A context that is gone took it along.
            unsafe { driver::cuMemFree_v2(block) };
        }
    }
}
