//! How many blocks of a kernel a multiprocessor holds: plain arithmetic on the limits that the
//! device's attributes say. Pure.

use crate::attributes::device_attribute;
use crate::config;
use std::sync::OnceLock;
use weir_cuda::CUdevice_attribute;

/// Registers are allocated to a warp in units of this.
const REGISTER_UNIT: u32 = 256;
/// Shared memory is allocated to a block in units of this.
const SHARED_UNIT: u32 = 128;
/// Blocks in a cluster that every device with clusters can run, and those that some can.
const PORTABLE_CLUSTER: u32 = 8;
const LARGEST_CLUSTER: u32 = 16;

/// What a device can hold. All virtual devices are alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) threads_per_block: u32,
    pub(crate) shared_per_block: u32,
    pub(crate) shared_per_block_optin: u32,
    pub(crate) clusters: bool,
    pub(crate) multiprocessors: u32,
    warp: u32,
    threads: u32,
    blocks: u32,
    registers: u32,
    shared: u32,
    reserved_shared: u32,
}

impl Limits {
    /// The configured device's.
    pub(crate) fn get() -> &'static Self {
        static LIMITS: OnceLock<Limits> = OnceLock::new();
        LIMITS.get_or_init(|| {
            type A = CUdevice_attribute;
            let of = |attribute| device_attribute(config::get(), 0, attribute).unwrap_or(0).max(0) as u32;
            Self {
                grid: [
                    of(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                    of(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                    of(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
                ],
                block: [
                    of(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                    of(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                    of(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
                ],
                threads_per_block: of(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
                shared_per_block: of(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
                shared_per_block_optin: of(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
                clusters: of(A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0,
                multiprocessors: of(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                warp: of(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE).max(1),
                threads: of(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
                blocks: of(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
                registers: of(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
                shared: of(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
                reserved_shared: of(A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
            }
        })
    }

    /// Threads that all multiprocessors hold at a time.
    pub(crate) fn all_threads(&self) -> u64 {
        u64::from(self.threads) * u64::from(self.multiprocessors)
    }

    /// Blocks in the largest cluster of a kernel.
    pub(crate) fn cluster(&self, beyond_portable: bool) -> u32 {
        match (self.clusters, beyond_portable) {
            (false, _) => 1,
            (true, false) => PORTABLE_CLUSTER,
            (true, true) => LARGEST_CLUSTER,
        }
    }

    /// Blocks of a kernel that one multiprocessor holds at a time.
    pub(crate) fn blocks(&self, needs: &Needs, threads: u32, dynamic: u32) -> u32 {
        if threads == 0 || threads > needs.max_threads || dynamic > needs.dynamic_limit {
            return 0;
        }
        let warps = threads.div_ceil(self.warp);
        let by_threads = self.threads / (warps * self.warp);
        let per_warp = (needs.registers * self.warp).next_multiple_of(REGISTER_UNIT);
        let by_registers = (self.registers / per_warp) / warps;
        let shared = u64::from(needs.shared) + u64::from(dynamic) + u64::from(self.reserved_shared);
        let by_shared = match shared.next_multiple_of(u64::from(SHARED_UNIT)) {
            0 => u32::MAX,
            each => (u64::from(self.shared) / each) as u32,
        };
        self.blocks.min(by_threads).min(by_registers).min(by_shared)
    }

    /// The block size that keeps most threads running, the larger one of equals, and the blocks per
    /// multiprocessor that it takes. `dynamic` returns the shared memory of a block size.
    pub(crate) fn best(&self, needs: &Needs, most: u32, dynamic: impl Fn(u32) -> u32) -> (u32, u32) {
        let most = if most == 0 { needs.max_threads } else { most.min(needs.max_threads) };
        let mut best = (0, 0);
        let mut threads = most;
        while threads > 0 {
            let blocks = self.blocks(needs, threads, dynamic(threads));
            if blocks * threads > best.0 * best.1 {
                best = (threads, blocks);
            }
            threads = (threads - 1) / self.warp * self.warp;
        }
        best
    }

    /// The most dynamic shared memory with which so many blocks fit; none where they never do.
    pub(crate) fn dynamic_for(&self, needs: &Needs, blocks: u32, threads: u32) -> Option<u32> {
        if blocks == 0 || blocks > self.blocks(needs, threads, 0) {
            return None;
        }
        let each = self.shared / blocks / SHARED_UNIT * SHARED_UNIT;
        let most = each.checked_sub(self.reserved_shared + needs.shared)?;
        Some(most.min(needs.dynamic_limit))
    }
}

/// What a block of a kernel takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Registers of a thread.
    pub(crate) registers: u32,
    /// Static shared memory.
    pub(crate) shared: u32,
    /// Dynamic shared memory that it may request.
    pub(crate) dynamic_limit: u32,
    pub(crate) max_threads: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        grid: [i32::MAX as u32, 65535, 65535],
        block: [1024, 1024, 64],
        threads_per_block: 1024,
        shared_per_block: 48 << 10,
        shared_per_block_optin: 163 << 10,
        clusters: true,
        multiprocessors: 108,
        warp: 32,
        threads: 2048,
        blocks: 32,
        registers: 65536,
        shared: 164 << 10,
        reserved_shared: 1 << 10,
    };

    fn needs(registers: u32, shared: u32) -> Needs {
        Needs { registers, shared, dynamic_limit: LIMITS.shared_per_block - shared, max_threads: 1024 }
    }

    #[test]
    fn the_scarcest_resource_decides() {
        let blocks = |n, threads, dynamic| LIMITS.blocks(&n, threads, dynamic);
        assert_eq!(blocks(needs(32, 0), 1024, 0), 2, "threads");
        assert_eq!(blocks(needs(32, 0), 96, 0), 21, "threads, in whole warps");
        assert_eq!(blocks(needs(32, 0), 65, 0), 21, "a started warp counts whole");
        assert_eq!(blocks(needs(32, 0), 32, 0), 32, "blocks");
        assert_eq!(blocks(needs(64, 0), 1024, 0), 1, "registers");
        assert_eq!(blocks(needs(33, 0), 256, 0), 6, "registers, in units");
        assert_eq!(blocks(needs(32, 0), 64, 40 << 10), 4, "shared memory with the reserved part");
        assert_eq!(blocks(needs(32, 40 << 10), 64, 0), 4, "static shared memory counts too");
    }

    #[test]
    fn what_cannot_be_launched_holds_nothing() {
        assert_eq!(LIMITS.blocks(&needs(32, 0), 0, 0), 0);
        assert_eq!(LIMITS.blocks(&needs(32, 0), 1025, 0), 0);
        assert_eq!(LIMITS.blocks(&needs(32, 0), 32, (48 << 10) + 1), 0);
        assert_eq!(LIMITS.blocks(&Needs { max_threads: 64, ..needs(32, 0) }, 65, 0), 0);
    }

    #[test]
    fn the_best_block_is_the_largest_of_the_busiest() {
        assert_eq!(LIMITS.best(&needs(32, 0), 0, |_| 0), (1024, 2));
        assert_eq!(LIMITS.best(&needs(32, 0), 300, |_| 0), (256, 8), "8 x 256 threads beat 6 x 300");
        assert_eq!(LIMITS.best(&Needs { max_threads: 128, ..needs(32, 0) }, 0, |_| 0), (128, 16));
        assert_eq!(LIMITS.best(&needs(32, 0), 0, |threads| threads * 64), (512, 4), "four times 33 KiB fit");
        assert_eq!(LIMITS.best(&needs(32, 0), 0, |_| u32::MAX), (0, 0));
    }

    #[test]
    fn shared_memory_left_for_a_number_of_blocks() {
        let left = |blocks, threads| LIMITS.dynamic_for(&needs(32, 0), blocks, threads);
        assert_eq!(left(2, 1024), Some(48 << 10), "the kernel's own limit");
        assert_eq!(left(8, 256), Some((164 << 10) / 8 - (1 << 10)));
        assert_eq!(left(9, 256), None);
        assert_eq!(left(0, 256), None);
        for blocks in 1..=8 {
            let dynamic = left(blocks, 256).expect("fits");
            assert!(LIMITS.blocks(&needs(32, 0), 256, dynamic) >= blocks, "{blocks}");
        }
    }
}
