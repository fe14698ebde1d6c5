//! Migration of live blocks to better memory while the device is idle. Touches the driver only through the `Backing`.

use super::Pool;
use super::miss::Stopped;
use crate::Fault;
use crate::backing::{Backing, BackingError, Handle};
use crate::fault::injected;
use crate::migrate::{Exchange, Exchanged};
use crate::stats::DriverCalls;
use std::time::Duration;

impl Pool {
    /// If the device is idle, exchange the memory behind live blocks for better memory, at most `limit`
    /// bytes of it; [`Backing::better`] decides what is better. Pointers and contents
    /// stay, and what is exported stays where it is. Returns the bytes that were exchanged.
    pub fn migrate(&self, backing: &impl Backing, limit: u64) -> Result<u64, BackingError> {
        let core = self.lock();
        if !core.config.vmm || core.order.captures > 0 {
            return Ok(0);
        }
        let chunk = core.config.large_handle.max(core.config.small_handle);
        drop(core);
        let began = self.dated(|core| core.order.now);
        if !injected(Fault::MigrateWithoutQuiesce) && backing.quiesce_if_idle() != Ok(true) {
            return Ok(0);
        }
        let _stopped = Stopped::by(backing);
        let Some(_turn) = self.turn_within(Duration::ZERO) else { return Ok(0) };
        let mut window = self.whole().window;
        if window == 0 {
            window = backing.reserve(chunk, chunk)?;
            self.whole().window = window;
        }
        let mut core = self.whole();
        if core.order.captures > 0 {
            return Ok(0);
        }
        core.counters.calls.sync += 1;
        if !injected(Fault::MigrateWithoutQuiesce) {
            core.order.all_done(began);
            core.reclaim();
        }
        let plans = core.plan_exchanges();
        drop(core);
        self.exchange(backing, &plans, window, limit)
    }

    /// Bytes of the handles behind live blocks that could be exchanged and are `wanted`.
    pub fn migratable(&self, wanted: impl Fn(Handle) -> bool) -> u64 {
        let plans = self.whole().plan_exchanges();
        plans.iter().filter(|plan| wanted(plan.old)).map(|plan| plan.bytes).sum()
    }

    fn exchange(
        &self,
        backing: &impl Backing,
        plans: &[Exchange],
        window: u64,
        limit: u64,
    ) -> Result<u64, BackingError> {
        let (mut bytes, mut left, mut calls) = (0, limit, DriverCalls::default());
        let mut problem = None;
        for plan in plans {
            if left == 0 || problem.is_some() {
                break;
            }
            if plan.bytes > left {
                continue;
            }
            let new = match backing.better(plan.old, plan.bytes) {
                Ok(Some(new)) => new,
                Ok(None) => continue,
                Err(_) => break,
            };
            calls.create += 1;
            left -= plan.bytes;
            let exchanged = plan.run(backing, window, new, &mut calls);
            match &exchanged {
                Exchanged::Yes => bytes += plan.bytes,
                Exchanged::No => {}
                Exchanged::Stuck => left = 0,
                Exchanged::Lost(error) => problem = Some(*error),
            }
            let gone = self.whole().finish_exchange(plan, new, &exchanged);
            if let Some(handle) = gone {
                calls.release += 1;
                let released = backing.release(handle, plan.bytes).is_ok();
                self.whole().finish_exchanged(plan, handle, released);
            }
        }
        self.whole().counters.calls.add(&calls);
        problem.map_or(Ok(bytes), Err)
    }
}
