//! What a context takes for itself, and what goes with it when it ends.

use super::watch::{Change, Still, Watch};
use super::{Caps, Device, PAGE, lock, machine, measured, on};
use crate::driver::guards::current;
use crate::record;
use std::collections::HashMap;
use weir_cuda::CUresult;
use weir_ledger::{Category, DeviceId};

/// Bytes that contexts took by themselves.
#[derive(Default)]
pub(crate) struct Contexts {
    /// At their making: context to device and bytes.
    own: HashMap<u64, (i32, u64)>,
    /// What nobody asked for by a call that tells its size (code and its variables): context to device and bytes.
    code: HashMap<u64, (i32, u64)>,
    /// Loaded modules.
    modules: HashMap<usize, Module>,
    /// Devices whose code may be charged with more than it takes.
    loose: Vec<i32>,
}

/// A loaded module.
struct Module {
    /// The context that it was loaded in: it can be unloaded in others.
    ctx: u64,
    /// By how much what this process holds has grown.
    grown: u64,
    /// Portions that it may share with small things that were there before it. They are charged for it too: it may be the
    /// last one in them.
    shared: u64,
}

/// The most portions that one module is taken to share with others.
const SHARED: u64 = 2 * PAGE;

impl Contexts {
    fn code_on(&self, ordinal: i32) -> u64 {
        self.code.values().filter(|(on, _)| *on == ordinal).map(|(_, bytes)| bytes).sum()
    }

    /// What code takes on a device is to be looked at again.
    fn loosen(&mut self, ordinal: i32) {
        if !self.loose.contains(&ordinal) {
            self.loose.push(ordinal);
        }
    }

    /// So many bytes of code are gone: the context's own first, since a library may have been loaded into others too.
    fn code_gone(&mut self, ctx: u64, ordinal: i32, bytes: u64) -> u64 {
        let mut left = bytes;
        let mut take = |known: &mut u64| {
            let part = left.min(*known);
            (*known, left) = (*known - part, left - part);
        };
        if let Some((_, known)) = self.code.get_mut(&ctx) {
            take(known);
        }
        self.code.values_mut().filter(|(on, _)| *on == ordinal).for_each(|(_, known)| take(known));
        bytes - left
    }
}

/// A call that makes a context on a device: what it takes is measured by the driver's figure for this process, where
/// there is one, and charged as a fact. `made` tells the context.
pub(crate) fn making(ordinal: i32, call: impl FnOnce() -> CUresult, made: impl FnOnce() -> u64) -> CUresult {
    let Some((caps, at)) = on().and_then(|caps| Some((caps, caps.at(ordinal)?))) else { return call() };
    let _change = Change::begin();
    let before = machine::own_bytes(at.0.uuid);
    let result = call();
    if result == CUresult::CUDA_SUCCESS {
        let grown = before.zip(machine::own_bytes(at.0.uuid)).map_or(0, |(before, now)| now.saturating_sub(before));
        if grown > 0 {
            caps.fact(at, Category::Context, grown);
            let ctx = made();
            record::passed::overhead(ctx, ordinal, grown);
            let had = lock(&caps.contexts).own.insert(ctx, (ordinal, grown));
            if let Some((ordinal, bytes)) = had {
                caps.release(ordinal, Category::Context, bytes);
            }
        }
    }
    result
}

/// A call that loads or unloads code, while it lasts.
pub(crate) struct Loading {
    ordinal: i32,
    ctx: u64,
    watch: Watch,
}

/// A call that loads or unloads code, or makes its variables, begins in the current context.
pub(crate) fn loading() -> Option<Loading> {
    let caps = on()?;
    let (device, _) = caps.here()?;
    Some(Loading { ordinal: device.ordinal, ctx: current(), watch: Watch::begin(caps, device, true) })
}

impl Loading {
    /// It is over: what it took is charged to its context, what it gave comes off. Code is there already, so the cap is
    /// not asked. `first` is the function's first argument.
    pub(crate) fn over(self, name: &str, first: usize, result: CUresult) {
        let Some((caps, at)) = on().and_then(|caps| Some((caps, caps.at(self.ordinal)?))) else { return };
        let grown = self.watch.grown(caps, at.0);
        let accounted = || accounted(caps, at.1).map(|(charged, pending)| charged + pending);
        let mut contexts = lock(&caps.contexts);
        contexts.loosen(self.ordinal);
        let mut ctx = self.ctx;
        let mut grown = grown;
        if result == CUresult::CUDA_SUCCESS && name.starts_with("cuModuleLoad") {
            let small = caps.linear.small_portions() + lock(&caps.arrays).small(self.ordinal);
            let shared = if grown.is_some() { small.min(SHARED) } else { 0 };
            let module = Module { ctx, grown: grown.map_or(0, |grown| u64::try_from(grown).unwrap_or(0)), shared };
            grown = grown.map(|grown| grown.saturating_add_unsigned(shared));
            // SAFETY: after success the caller's place for the module holds it.
            contexts.modules.insert(unsafe { *(first as *const usize) }, module);
        } else if result == CUresult::CUDA_SUCCESS
            && name == "cuModuleUnload"
            && let Some(module) = contexts.modules.remove(&first)
        {
            ctx = module.ctx;
            // What it shared is charged to those that it shared it with, or has gone with it.
            let most = -i64::try_from(module.grown + module.shared).unwrap_or(i64::MAX);
            grown = grown.map(|grown| match module.shared {
                0 => grown,
                shared => grown.saturating_sub_unsigned(shared).max(most),
            });
        }
        let before = accounted();
        let Some(held) = machine::own_bytes(at.0.uuid) else { return };
        let Some(known) = before.zip(accounted()).map(|(before, after)| before.max(after)) else { return };
        let charged = contexts.code_on(self.ordinal);
        // Where others took or gave memory meanwhile: all that is held and that nobody accounts for is code. Every byte is
        // reserved before it is taken and released after it is gone: of two looks, one covers what others do.
        let rest = held.saturating_sub(known.saturating_sub(charged));
        let now = grown.map_or(rest, |grown| charged.saturating_add_signed(grown));
        if now > charged {
            contexts.code.entry(ctx).or_insert((self.ordinal, 0)).1 += now - charged;
            drop(contexts);
            caps.fact(at, Category::Context, now - charged);
        } else {
            let gone = contexts.code_gone(ctx, self.ordinal, charged - now);
            drop(contexts);
            caps.release(self.ordinal, Category::Context, gone);
        }
    }
}

/// Bytes of a device that are charged to this process, and those that are reserved.
fn accounted(caps: &Caps, account: DeviceId) -> Option<(u64, u64)> {
    let own = caps.ledger.view(account)?.own;
    let spilled = own.by_category.get(Category::Spilled as usize).copied().unwrap_or(0);
    Some((own.by_category.iter().sum::<u64>() - spilled, own.pending))
}

/// Takes off what code is charged with and does not take; tells how many bytes came free.
///
/// Variables of code share portions with small arrays and small blocks. A portion that is taken for code stays taken when
/// the code is unloaded before what shares it, so its charge stays too, and nobody sees the portion go. It is found here,
/// once nothing is left that may share one, nothing is under way, and everything else is charged with exactly what it takes:
/// then code takes what is left of the driver's figure for this process. There is one such look after a load or unload.
pub(super) fn look_again(caps: &Caps, at: (&Device, DeviceId)) -> u64 {
    let ordinal = at.0.ordinal;
    let mut contexts = lock(&caps.contexts);
    let charged = contexts.code_on(ordinal);
    if charged == 0 || !contexts.loose.contains(&ordinal) {
        return 0;
    }
    let look = || {
        let still = Still::begin()?;
        let linear = &caps.linear;
        if linear.any_leaving() || linear.shares() || linear.moves() || !lock(&caps.arrays).none() {
            return None;
        }
        let known = || accounted(caps, at.1).filter(|(_, pending)| *pending == 0);
        let before = known()?;
        let held = measured::while_exact(caps, at.0, || machine::own_bytes(at.0.uuid))??;
        (known()? == before && still.lasts()).then(|| held.saturating_sub(before.0.saturating_sub(charged)))
    };
    let Some(now) = look() else { return 0 };
    contexts.loose.retain(|loose| *loose != ordinal);
    // Whose it was is known only if nobody has any, or if one context alone can have some: with another one's charge taken
    // off, the end of a context would give back what is not its own.
    let mut with_code =
        contexts.code.iter().filter(|(_, (on, bytes))| *on == ordinal && *bytes > 0).map(|(ctx, _)| *ctx);
    let (first, others) = (with_code.next(), with_code.next().is_some());
    let Some(ctx) = first.filter(|_| now == 0 || !others) else { return 0 };
    let gone = contexts.code_gone(ctx, ordinal, charged.saturating_sub(now));
    // What they take is charged, wherever it lies.
    let Contexts { code, modules, .. } = &mut *contexts;
    let here = |module: &&mut Module| code.get(&module.ctx).is_some_and(|(on, _)| *on == ordinal);
    modules.values_mut().filter(here).for_each(|module| module.shared = 0);
    let _change = Change::begin();
    drop(contexts);
    caps.release(ordinal, Category::Context, gone);
    gone
}

/// A context is about to end, by a call that waits for its work.
pub(crate) struct Ending {
    ctx: u64,
    _change: Change,
}

/// A context is about to end.
pub(crate) fn ending(ctx: u64) -> Option<Ending> {
    let caps = on()?;
    caps.linear.fences.context_leaves(ctx);
    Some(Ending { ctx, _change: Change::begin() })
}

impl Ending {
    /// It stays.
    pub(crate) fn stays(self) {
        if let Some(caps) = on() {
            caps.linear.fences.context_left(self.ctx, false);
        }
    }

    /// It is gone, and all its memory with it.
    pub(crate) fn gone(self) {
        if let Some(caps) = on() {
            caps.context_gone(self.ctx);
        }
    }
}

impl Caps {
    fn context_gone(&self, ctx: u64) {
        self.linear.fences.context_left(ctx, true);
        self.settle_all_frees();
        for (addr, block) in self.linear.take_all_of(ctx) {
            self.freed(addr, &block);
        }
        lock(&self.arrays).context_gone(self, ctx);
        let mut contexts = lock(&self.contexts);
        let code = contexts.code.remove(&ctx);
        if let Some((ordinal, _)) = code {
            contexts.loosen(ordinal);
        }
        let gone = [contexts.own.remove(&ctx), code];
        contexts.modules.retain(|_, module| module.ctx != ctx);
        drop(contexts);
        for (ordinal, bytes) in gone.into_iter().flatten() {
            self.release(ordinal, Category::Context, bytes);
        }
    }
}
