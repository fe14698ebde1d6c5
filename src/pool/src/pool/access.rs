//! Which other devices reach the pool's memory. Touches the driver only through the `Backing`.

use super::Pool;
use crate::backing::{Backing, BackingError, PeerAccess};
use std::time::Duration;

impl Pool {
    /// Another device may reach this memory from now on: what is mapped and what will be. Waits for its turn, but no
    /// longer than `patience`.
    pub fn grant(&self, backing: &impl Backing, grant: PeerAccess, patience: Duration) -> Result<(), BackingError> {
        let _turn = self.turn_within(patience).ok_or(BackingError::Busy)?;
        let mut core = self.lock();
        core.grants.retain(|known| known.device != grant.device);
        core.grants.push(grant);
        let (runs, grants) = (core.mapped_runs(), core.grants.clone());
        drop(core);
        for (addr, bytes) in runs {
            let result = backing.set_access(addr, bytes, &grants);
            self.lock().counters.calls.set_access += 1;
            result?;
        }
        Ok(())
    }

    /// Another device may no longer reach this memory: what will be mapped, and where `idle`, which means that no
    /// work of that device is under way, what is mapped too.
    pub fn revoke(&self, backing: &impl Backing, device: i32, idle: bool) -> Result<(), BackingError> {
        let turn = self.turn();
        let mut core = self.lock();
        core.grants.retain(|known| known.device != device);
        if turn.is_none() {
            return Err(BackingError::Busy);
        }
        let runs = if idle { core.mapped_runs() } else { Vec::new() };
        drop(core);
        for (addr, bytes) in runs {
            let result = backing.end_access(addr, bytes, device);
            self.lock().counters.calls.set_access += 1;
            result?;
        }
        Ok(())
    }
}
