//! Free memory goes back to the driver. Touches the driver only through the `Backing`.

use super::Pool;
use crate::backing::{Backing, Handle};
use crate::mempools::Mempool;

impl Pool {
    /// A mempool shall keep at most `keep` bytes beyond need; free memory goes back to the driver accordingly.
    pub fn trim_mempool(&self, backing: &impl Backing, mempool: Mempool, keep: u64) -> u64 {
        let mut core = self.whole();
        let before = core.mempools.get(mempool).map_or(0, |owner| owner.bytes.reserved);
        if let Some(owner) = core.mempools.at(mempool) {
            owner.shrink(keep);
        }
        let after = core.mempools.get(mempool).map_or(0, |owner| owner.bytes.reserved);
        let target = core.counters.mapped_bytes.saturating_sub(before.saturating_sub(after));
        drop(core);
        self.trim_to(backing, target)
    }

    /// Give proven free memory back to the driver until at most `keep` bytes are held. Returns the released bytes.
    pub fn trim_to(&self, backing: &impl Backing, keep: u64) -> u64 {
        let Some(_turn) = self.turn() else { return 0 };
        let mut core = self.whole();
        let mut released = 0;
        if let Some(leaves) = core.plan_unmesh() {
            drop(core);
            core = self.unmesh(backing, &leaves);
        }
        for class in [1, 0] {
            let surplus = core.counters.mapped_bytes.saturating_sub(keep);
            let handle = if class == 0 { core.config.small_handle } else { core.config.large_handle };
            let plan = if core.config.vmm {
                Some(core.plan_trim(class, usize::try_from(surplus / handle).unwrap_or(usize::MAX)))
            } else {
                core.plan_release_segments(surplus)
            };
            let Some(plan) = plan else { continue };
            drop(core);
            let report = plan.run(backing);
            core = self.whole();
            core.finish_release(&plan, &report);
            released += report.released;
        }
        released
    }

    /// Give proven free memory back to the driver, but only handles that are `wanted`. Returns the released bytes.
    pub fn trim_handles(&self, backing: &impl Backing, wanted: impl Fn(Handle) -> bool) -> u64 {
        let Some(_turn) = self.turn() else { return 0 };
        let mut core = self.whole();
        let mut released = 0;
        for class in [1, 0].into_iter().filter(|_| core.config.vmm).collect::<Vec<usize>>() {
            let plan = core.plan_release_of(class, &wanted);
            drop(core);
            let report = plan.run(backing);
            core = self.whole();
            core.finish_release(&plan, &report);
            released += report.released;
        }
        released
    }
}
