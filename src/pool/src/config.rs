//! Sizes, thresholds and switches of the pool, all in one place. Touches nothing.

use weir_settings::pool::Switches;

/// Every block starts at, and is a multiple of, this many bytes.
///
/// The driver promises 256; its own allocators hand out 512, and some kernels lean on that.
pub const UNIT: u64 = 1 << UNIT_SHIFT;
pub(crate) const UNIT_SHIFT: u32 = 9;

/// How many holes of a domain a miss looks at before it takes the best place seen so far, in the
/// arenas of tiny, small and large blocks. Where blocks are small, a granule more serves many of them.
pub(crate) const SCAN_LIMITS: [usize; 3] = [64, 128, 2048];

/// How many neighbours of one run of free blocks are weighed as places for a request.
pub(crate) const RUN_LIMIT: usize = 64;

/// Blocks in the free list of one length: as many as make up `FREE_LIST_UNITS`, but within `FREE_LIST_DEPTH`.
pub(crate) const FREE_LIST_UNITS: u32 = 2048;
pub(crate) const FREE_LIST_DEPTH: (u32, u32) = (8, 64);

/// The same of everybody's: what many synchronous frees gave back is proven at one time.
pub(crate) const PROVEN_UNITS: u32 = 8192;
pub(crate) const PROVEN_DEPTH: (u32, u32) = (8, 2048);

/// Blocks in all free lists of one arena and domain: flushing them takes well below a millisecond.
pub(crate) const FREE_LIST_BLOCKS: usize = 4096;

/// No block longer than this many units goes into a free list.
pub(crate) const FREE_LIST_LONGEST: u32 = 2048;

/// A request that needs new memory first looks whether the device is idle, if so many times as much was freed
/// synchronously and waits for proof, or as many granules, or so many units where that is less.
pub(crate) const LOOK_BLOCKS: u64 = 16;
pub(crate) const LOOK_GRANULES: u64 = 2;
pub(crate) const LOOK_UNITS: u64 = (64 << 20) / UNIT;

/// Unmapped granules between two plain segments, so that they never coalesce.
pub(crate) const WALL_GRANULES: u32 = 1;

/// When streams get caches with locks of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Never.
    Never,
    /// When threads have met at the pool's lock: before, they would cost more than they save.
    Contended,
    /// From the first free on, and for good: for tests.
    Always,
}

/// What one pool is allowed to do, and in which sizes it takes memory.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own for diagnosis")]
pub struct Config {
    /// Physical size of the device; address space is reserved as a multiple of it.
    pub device_bytes: u64,
    /// Bytes of one physical handle behind blocks up to `small_limit`. A power of two.
    pub small_handle: u64,
    /// Bytes of one physical handle behind larger blocks. A power of two.
    pub large_handle: u64,
    /// Blocks below this size live apart, because granules full of them never mesh. A power of two.
    pub tiny_limit: u64,
    /// Blocks up to this size live in the small arena. A power of two.
    pub small_limit: u64,
    /// New handles are created freely up to `peak of allocated bytes × (1 + slack)`; above, remapping comes first.
    pub slack: f64,
    /// Move wholly free granules to where they are needed.
    pub remap: bool,
    /// Let two sparse granules share one handle as the last step before giving up.
    pub mesh: bool,
    /// Make `cuMemFree` lazy. Off: every such free synchronises the device before its bytes are reused.
    pub lazy: bool,
    /// The device has virtual memory management. Off: plain segments, no remapping, no meshing.
    pub vmm: bool,
    /// Bytes of the smallest plain segment.
    pub segment: u64,
    /// When streams get caches.
    pub caching: Caching,
}

impl Config {
    /// The defaults for a device of `device_bytes` bytes.
    pub fn new(device_bytes: u64) -> Self {
        Self {
            device_bytes,
            small_handle: 2 << 20,
            large_handle: Self::large_handle_for(device_bytes),
            tiny_limit: 64 << 10,
            small_limit: 1 << 20,
            slack: 0.03,
            remap: true,
            mesh: true,
            lazy: true,
            vmm: true,
            segment: 32 << 20,
            caching: Caching::Contended,
        }
    }

    /// The configuration of WEIR_POOL, for a device of `device_bytes` of which the job may take `budget`.
    pub fn switched(switches: &Switches, device_bytes: u64, budget: u64) -> Self {
        let mut config = Self::new(device_bytes);
        (config.remap, config.mesh, config.lazy) = (switches.remap, switches.mesh, switches.lazy);
        config.vmm = !switches.plain;
        // In a job, events are numbered by one counter: threads that no longer wait for the pool's lock meet there, which
        // costs more.
        config.caching = if switches.cache { Caching::Contended } else { Caching::Never };
        config.large_handle = switches.large_handle.unwrap_or(Self::large_handle_for(budget));
        config.small_handle = switches.small_handle.unwrap_or(config.small_handle);
        // Large handles are no smaller than small ones: the one that is set counts.
        if switches.large_handle.is_some() && switches.small_handle.is_none() {
            config.small_handle = config.small_handle.min(config.large_handle);
        }
        config
    }

    /// The size of handles behind large blocks where `bytes` may be taken at all. Driver calls cost by the number of
    /// handles, so they are large where there is much memory; a hole smaller than a handle cannot be moved, so they are
    /// small where each of them counts.
    pub fn large_handle_for(bytes: u64) -> u64 {
        match bytes >> 30 {
            0..4 => 2 << 20,
            4..16 => 4 << 20,
            16..32 => 8 << 20,
            32..64 => 16 << 20,
            _ => 32 << 20,
        }
    }

    /// The same with every size forced into what the pool can work with.
    ///
    /// Sizes are powers of two, at least one unit, in the order tiny ≤ small ≤ handles.
    pub(crate) fn sound(mut self) -> Self {
        let pow2 = |bytes: u64| bytes.clamp(UNIT, 1 << 32).next_power_of_two();
        self.tiny_limit = pow2(self.tiny_limit).max(2 * UNIT);
        self.small_limit = pow2(self.small_limit).max(2 * self.tiny_limit);
        self.small_handle = pow2(self.small_handle).max(self.small_limit);
        self.large_handle = pow2(self.large_handle).max(self.small_handle);
        self.segment = pow2(self.segment).max(self.large_handle);
        if !self.slack.is_finite() || self.slack < 0.0 {
            self.slack = 0.0;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_reach_the_pool() {
        let config =
            |text: &str, budget| Config::switched(&Switches::parse(text).unwrap_or_default(), 40 << 30, budget);
        let some = config("noremap,nomesh,nolazy,cache,novmm,handle=32MiB", 8 << 30);
        assert!(
            !some.remap
                && !some.mesh
                && !some.lazy
                && !some.vmm
                && some.caching == Caching::Contended
                && some.large_handle == 32 << 20
        );
        let large = |text: &str, budget| config(text, budget).large_handle;
        assert_eq!(
            (large("on", 40 << 30), large("on", 1 << 30), large("handle=32MiB", 1 << 30)),
            (16 << 20, 2 << 20, 32 << 20)
        );
        // A device is no more than 4096 handles, whatever its size, up to the largest that are built.
        for gib in [1, 4, 8, 16, 24, 40, 80, 128] {
            assert!((gib << 30) / Config::large_handle_for(gib << 30) <= 4096, "{gib} GiB");
        }
    }
}
