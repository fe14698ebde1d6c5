//! What a context takes for itself, and what goes with it when it ends.

use super::{Caps, lock, machine, on};
use crate::recorder;
use std::collections::HashMap;
use weir_cuda::CUresult;
use weir_ledger::Category;

/// Bytes that contexts took by themselves: context to device and bytes.
#[derive(Default)]
pub(crate) struct Contexts {
    own: HashMap<u64, (i32, u64)>,
    /// What nobody asked for by a call that tells its size (code and its variables): device to bytes.
    rest: HashMap<i32, u64>,
}

/// A call that makes a context on a device: what it takes is measured by the driver's figure for this process, where
/// there is one, and charged as a fact. `made` tells the context.
pub(crate) fn making(ordinal: i32, call: impl FnOnce() -> CUresult, made: impl FnOnce() -> u64) -> CUresult {
    let Some((caps, at)) = on().and_then(|caps| Some((caps, caps.at(ordinal)?))) else { return call() };
    let before = machine::own_bytes(at.0.uuid);
    let result = call();
    if result == CUresult::CUDA_SUCCESS {
        let grown = before.zip(machine::own_bytes(at.0.uuid)).map_or(0, |(before, now)| now.saturating_sub(before));
        if grown > 0 {
            caps.fact(at, Category::Context, grown);
            let ctx = made();
            recorder::passed::overhead(ctx, ordinal, grown);
            let had = lock(&caps.contexts).own.insert(ctx, (ordinal, grown));
            if let Some((ordinal, bytes)) = had {
                caps.release(ordinal, Category::Context, bytes);
            }
        }
    }
    result
}

/// Charges what the driver holds for this process on the current device beyond all that is accounted for: loaded code
/// and its variables. It is there already, so the cap is not asked.
pub(crate) fn reconcile() {
    let Some((caps, at)) = on().and_then(|caps| Some((caps, caps.here()?))) else { return };
    let accounted = || {
        let own = caps.ledger.view(at.1)?.own;
        let spilled = own.by_category.get(Category::Spilled as usize).copied().unwrap_or(0);
        Some(own.by_category.iter().sum::<u64>() - spilled + own.pending)
    };
    let mut contexts = lock(&caps.contexts);
    // Every byte is reserved before it is taken and released after it is gone: of two looks, before and after, one
    // covers what other threads do meanwhile.
    let before = accounted();
    let Some(held) = machine::own_bytes(at.0.uuid) else { return };
    let Some(known) = before.zip(accounted()).map(|(before, after)| before.max(after)) else { return };
    let charged = contexts.rest.entry(at.0.ordinal).or_insert(0);
    let now = held.saturating_sub(known.saturating_sub(*charged));
    let was = std::mem::replace(charged, now);
    drop(contexts);
    if now > was {
        caps.fact(at, Category::Context, now - was);
    } else {
        caps.release(at.0.ordinal, Category::Context, was - now);
    }
}

/// A context is gone, and all its memory with it.
pub(crate) fn gone(ctx: u64) {
    let Some(caps) = on() else { return };
    caps.context_gone(ctx);
}

impl Caps {
    fn context_gone(&self, ctx: u64) {
        for (addr, block) in self.linear.take_all_of(ctx) {
            self.freed(addr, &block);
        }
        lock(&self.arrays).context_gone(self, ctx);
        let own = lock(&self.contexts).own.remove(&ctx);
        if let Some((ordinal, bytes)) = own {
            self.release(ordinal, Category::Context, bytes);
        }
        // Its code went with it; what other contexts have loaded is found again at their next load.
        let rest: Vec<(i32, u64)> = lock(&self.contexts).rest.drain().collect();
        for (ordinal, bytes) in rest {
            self.release(ordinal, Category::Context, bytes);
        }
    }
}
