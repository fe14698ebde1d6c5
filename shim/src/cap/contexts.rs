//! What a context takes for itself, and what goes with it when it ends.

use super::watch::{Change, NoChange, Watch};
use super::{CapDevice, Caps, PAGE, lock, machine, measured, on};
use crate::driver::guards::{ContextGuard, current};
use std::collections::HashMap;
use weir_cuda::CUresult;
use weir_ledger::{Category, DeviceId};
use weir_pool::ranks::Locked;

/// Bytes that contexts took by themselves.
#[derive(Default)]
pub(crate) struct Contexts {
    /// At their making: context to device and bytes.
    own: HashMap<u64, (i32, u64)>,
    /// What nobody requested by a call with a size (code and its variables), on each device. Code of several contexts
    /// may share chunks, so it is charged to the device and not to the context that a chunk was taken for.
    code: HashMap<i32, u64>,
    /// What each context has loaded.
    loads: HashMap<u64, Loads>,
    /// Loaded modules: the context that each was loaded in (it can be unloaded in others), and how far it reaches.
    modules: HashMap<usize, (u64, u64)>,
    /// Devices whose code may be charged with more than it takes.
    overcharged: Vec<i32>,
    /// How often the charge of code has changed, or the code: what was read of the driver before counts no more.
    changes: u64,
}

/// What a context has loaded.
struct Loads {
    ordinal: i32,
    /// The most bytes of chunks that its code lies in: what was taken for it, and for each module what was there before and
    /// may be shared.
    reach: u64,
}

/// How often figures are read again because code was loaded or unloaded meanwhile.
const RETRIES: u32 = 16;
/// The most chunks that one module is taken to share with what was there before.
const SHARED: u64 = 2 * PAGE;

impl Contexts {
    fn code_on(&self, ordinal: i32) -> u64 {
        self.code.get(&ordinal).copied().unwrap_or(0)
    }

    /// What code takes on a device is to be looked at again.
    fn mark_overcharged(&mut self, ordinal: i32) {
        self.changes += 1;
        if !self.overcharged.contains(&ordinal) {
            self.overcharged.push(ordinal);
        }
    }

    /// So many bytes of code are charged.
    fn charge_code(&mut self, ordinal: i32, bytes: u64) {
        self.changes += 1;
        *self.code.entry(ordinal).or_insert(0) += bytes;
    }

    /// So many bytes of code are gone; returns how many come off.
    fn release_code(&mut self, ordinal: i32, bytes: u64) -> u64 {
        let Some(known) = self.code.get_mut(&ordinal) else { return 0 };
        let gone = bytes.min(*known);
        *known -= gone;
        self.changes += u64::from(gone > 0);
        gone
    }

    /// Code that reaches so far is loaded in a context.
    fn loaded(&mut self, ctx: u64, ordinal: i32, reach: u64) {
        let loads = self.loads.entry(ctx).or_insert(Loads { ordinal, reach: 0 });
        loads.reach = loads.reach.saturating_add(reach);
    }

    /// A module is unloaded that was in the table with this.
    fn unloaded(&mut self, (ctx, reach): (u64, u64)) {
        if let Some(loads) = self.loads.get_mut(&ctx) {
            loads.reach = loads.reach.saturating_sub(reach);
        }
    }

    /// No code is charged that reaches nowhere: returns how many bytes come off. Small arrays may lie in chunks that were taken
    /// for code, and are `lacking` so much of the most that they take.
    fn bounded(&mut self, ordinal: i32, lacking: u64) -> u64 {
        let loads = self.loads.values().filter(|loads| loads.ordinal == ordinal);
        let most = loads.fold(lacking, |sum, loads| sum.saturating_add(loads.reach));
        self.release_code(ordinal, self.code_on(ordinal).saturating_sub(most))
    }
}

/// A context takes no more than this, whatever else a device's figures show at the moment.
const LARGEST: u64 = 1 << 30;
/// What a context is taken for where nothing but the device's total and free memory is known, at most: others may use it.
const ASSUMED: u64 = 512 << 20;

/// What a context that was just made has taken, by what was known `before` it: by this process's figure, by the device's
/// where NVML does not know this process, and where there is no NVML by what is in use and not charged.
fn taken(at: (&CapDevice, DeviceId), caps: &Caps, ctx: u64, before: (Option<u64>, Option<u64>)) -> u64 {
    let uuid = at.0.uuid;
    let now = machine::own_bytes(uuid);
    let own = before.0.zip(now).map_or(0, |(before, now)| now.saturating_sub(before));
    // NVML knows this process, or the call has returned a context that was measured when it was made: a primary one is
    // retained many times. What has changed on the device meanwhile is of others.
    if own > 0 || now.is_some_and(|bytes| bytes > 0) || lock(&caps.contexts).own.contains_key(&ctx) {
        return own;
    }
    if let Some((before, now)) = before.1.zip(machine::all_bytes(uuid)) {
        let grown = now.saturating_sub(before).min(LARGEST);
        if grown > 0 {
            machine::deny();
        }
        return grown;
    }
    let Ok(_within) = ContextGuard::enter(ctx) else { return 0 };
    let used = machine::used_here(at.0.ordinal).unwrap_or(0);
    let charged = accounted(caps, at.1).map_or(0, |(charged, pending)| charged + pending);
    // The driver takes chunks; what is left over is page tables.
    used.saturating_sub(charged).min(ASSUMED) / PAGE * PAGE
}

/// A call that makes a context on a device: what it takes is measured and charged as a fact. `made` returns the context;
/// `charged` gets the context and the bytes.
pub(crate) fn making(
    ordinal: i32,
    call: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> u64,
    charged: impl FnOnce(u64, u64),
) -> CUresult {
    let Some((caps, at)) = on().and_then(|caps| Some((caps, caps.at(ordinal)?))) else { return call() };
    let _change = Change::begin();
    let before = (machine::own_bytes(at.0.uuid), machine::all_bytes(at.0.uuid));
    let result = call();
    if result == CUresult::CUDA_SUCCESS {
        let ctx = made();
        let grown = taken(at, caps, ctx, before);
        if grown > 0 {
            caps.fact(at, Category::Context, grown);
            charged(ctx, grown);
            let had = lock(&caps.contexts).own.insert(ctx, (ordinal, grown));
            if let Some((ordinal, bytes)) = had {
                caps.release(ordinal, Category::Context, bytes);
            }
        } else {
            // It counts as measured, with nothing.
            lock(&caps.contexts).own.entry(ctx).or_insert((ordinal, 0));
        }
    }
    result
}

/// A call that loads or unloads code, while it lasts.
pub(crate) struct Loading {
    ordinal: i32,
    ctx: u64,
    watch: Watch,
    /// What the table has of the module that is unloaded.
    module: Option<(u64, u64)>,
}

/// A call that loads or unloads code, or makes its variables, begins in the current context. `first` is the function's first
/// argument.
pub(crate) fn loading(name: &str, first: usize) -> Option<Loading> {
    let caps = on()?;
    let (device, _) = caps.here()?;
    let watch = Watch::begin(caps, device, true);
    // Before the call: then the driver may give the handle to another one.
    let module = if unloads(name) { lock(&caps.contexts).modules.remove(&first) } else { None };
    Some(Loading { ordinal: device.ordinal, ctx: current(), watch, module })
}

fn unloads(name: &str) -> bool {
    name == "cuModuleUnload"
}

impl Loading {
    /// It is over: what it took is charged to its device, what it gave comes off. Code is there already, so the cap does
    /// not matter. `first` is the function's first argument.
    pub(crate) fn over(self, name: &str, first: usize, result: CUresult) {
        let Some((caps, at)) = on().and_then(|caps| Some((caps, caps.at(self.ordinal)?))) else { return };
        if let Some(module) = self.module.filter(|_| result != CUresult::CUDA_SUCCESS) {
            lock(&caps.contexts).modules.insert(first, module);
        }
        let known = match self.watch.grown(caps, at.0) {
            Some(grown) => Some((lock(&caps.contexts), grown)),
            None => beyond_accounted(caps, at),
        };
        let Some((mut contexts, grown)) = known else {
            lock(&caps.contexts).mark_overcharged(self.ordinal);
            return;
        };
        contexts.mark_overcharged(self.ordinal);
        let charged = contexts.code_on(self.ordinal);
        let (fresh, gone) = (u64::try_from(grown).unwrap_or(0), grown.min(0).unsigned_abs());
        let mut more = fresh;
        if result == CUresult::CUDA_SUCCESS && unloads(name) {
            self.module.into_iter().for_each(|module| contexts.unloaded(module));
        } else if result == CUresult::CUDA_SUCCESS && name.starts_with("cuModuleLoad") {
            // Chunks of blocks and arrays are charged once more: the code may be the last in them.
            let small = caps.linear.small_chunks() + lock(&caps.arrays).small(self.ordinal);
            more = more.saturating_add(small.min(SHARED));
            let reach = fresh.saturating_add(small.saturating_add(charged).min(SHARED));
            contexts.loaded(self.ctx, self.ordinal, reach);
            // SAFETY: after success the caller's place for the module holds it.
            contexts.modules.insert(unsafe { *(first as *const usize) }, (self.ctx, reach));
        } else {
            contexts.loaded(self.ctx, self.ordinal, fresh);
        }
        contexts.charge_code(self.ordinal, more);
        let lacking = lock(&caps.arrays).lacking(self.ordinal);
        let gone = contexts.release_code(self.ordinal, gone) + contexts.bounded(self.ordinal, lacking);
        // Under the lock: what is charged for code and what the account has of it change together.
        let crossing = if more > gone { caps.ledger.charge(at.1, Category::Context, more - gone) } else { None };
        caps.release(self.ordinal, Category::Context, gone.saturating_sub(more));
        drop(contexts);
        caps.warn(at.0, crossing);
    }
}

/// Where others took or gave memory while code was loaded: all that this process holds and that nobody accounts for is
/// code. Every byte is reserved before it is taken and released after it is gone: of two looks, one covers what others do.
/// Returns by how much that is more than code is charged with, and returns with the lock, so that it stays true.
fn beyond_accounted<'a>(caps: &'a Caps, at: (&CapDevice, DeviceId)) -> Option<(Locked<'a, Contexts>, i64)> {
    let accounted = || accounted(caps, at.1).map(|(charged, pending)| charged + pending);
    for retry in 0..=RETRIES {
        let changes = lock(&caps.contexts).changes;
        let before = accounted();
        let held = machine::own_bytes(at.0.uuid)?;
        let known = before.zip(accounted()).map(|(before, after)| before.max(after))?;
        let contexts = lock(&caps.contexts);
        if contexts.changes == changes || retry == RETRIES {
            let charged = contexts.code_on(at.0.ordinal);
            let rest = held.saturating_sub(known.saturating_sub(charged));
            let grown = i64::try_from(rest.saturating_sub(charged)).ok()?;
            return Some((contexts, grown));
        }
    }
    None
}

/// Bytes of a device that are charged to this process, and those that are reserved.
fn accounted(caps: &Caps, account: DeviceId) -> Option<(u64, u64)> {
    let own = caps.ledger.view(account)?.own;
    let spilled = own.by_category.get(Category::Spilled as usize).copied().unwrap_or(0);
    Some((own.by_category.iter().sum::<u64>() - spilled, own.pending))
}

/// Takes off what code is charged with and does not take; returns how many bytes came free.
///
/// Variables of code share chunks with small arrays and small blocks. A chunk that is taken for code stays taken when
/// the code is unloaded before what shares it, so its charge stays too, and nobody sees the chunk go. A free that a stream
/// comes to while code is loaded makes the load look larger than it is. Both are found here, when nothing is under way and
/// everything that shares no chunk with code is charged with exactly what it takes: then code takes at most what is left of
/// the driver's figure for this process.
pub(super) fn look_again(caps: &Caps, at: (&CapDevice, DeviceId)) -> u64 {
    let ordinal = at.0.ordinal;
    let (beyond, charged, changes) = {
        let mut contexts = lock(&caps.contexts);
        if contexts.code_on(ordinal) == 0 || !contexts.overcharged.contains(&ordinal) {
            return 0;
        }
        let lacking = lock(&caps.arrays).lacking(ordinal);
        let beyond = contexts.bounded(ordinal, lacking);
        caps.release(ordinal, Category::Context, beyond);
        (beyond, contexts.code_on(ordinal), contexts.changes)
    };
    let look = || {
        let no_change = NoChange::begin()?;
        if caps.linear.any_leaving() {
            return None;
        }
        let known = || accounted(caps, at.1).filter(|(_, pending)| *pending == 0);
        let before = known()?;
        // What may lie in the same chunks as code, and managed memory, which may be on the host.
        let shared = caps.linear.small_chunks() + lock(&caps.arrays).small(ordinal) + managed(caps, at.1);
        let held = measured::while_exact(caps, at.0, || machine::own_bytes(at.0.uuid))??;
        let others = before.0.saturating_sub(charged).saturating_sub(shared);
        (known()? == before && no_change.lasts()).then(|| (held.saturating_sub(others), shared))
    };
    let Some((most, shared)) = look() else { return beyond };
    let mut contexts = lock(&caps.contexts);
    if contexts.changes != changes {
        // Code was loaded or unloaded meanwhile: the figures are from before.
        return beyond;
    }
    if shared == 0 {
        contexts.overcharged.retain(|other| *other != ordinal);
    }
    let _change = Change::begin();
    let gone = contexts.release_code(ordinal, charged.saturating_sub(most));
    caps.release(ordinal, Category::Context, gone);
    beyond + gone
}

/// Bytes of managed memory that are charged to this process.
fn managed(caps: &Caps, account: DeviceId) -> u64 {
    let own = caps.ledger.view(account).map(|view| view.own);
    own.and_then(|own| own.by_category.get(Category::Managed as usize).copied()).unwrap_or(0)
}

/// A context is about to end, by a call that waits for its work.
pub(crate) struct Ending {
    ctx: u64,
    _change: Option<Change>,
    code: Option<EndingCode>,
}

/// The code of a context that is about to end.
struct EndingCode {
    ordinal: i32,
    watch: Watch,
    /// What was charged to this process.
    charged: u64,
}

/// A context may be about to end: its events are left alone from now on, and those who query one are waited for.
pub(crate) fn leaving(ctx: u64) {
    if let Some(caps) = on() {
        caps.linear.fences.context_leaves(ctx);
    }
}

/// It does not end.
pub(crate) fn stays(ctx: u64) {
    if let Some(caps) = on() {
        caps.linear.fences.context_left(ctx, false);
    }
}

/// A context is about to end, after [`leaving`].
pub(crate) fn ending(ctx: u64) -> Option<Ending> {
    let caps = on()?;
    let code = ending_code(caps, ctx);
    Some(Ending { ctx, _change: code.is_none().then(Change::begin), code })
}

fn ending_code(caps: &Caps, ctx: u64) -> Option<EndingCode> {
    let ordinal = {
        let contexts = lock(&caps.contexts);
        contexts.loads.get(&ctx).map(|loads| loads.ordinal).filter(|ordinal| contexts.code_on(*ordinal) > 0)?
    };
    let (device, account) = caps.at(ordinal)?;
    let watch = Watch::begin(caps, device, true);
    Some(EndingCode { ordinal, watch, charged: accounted(caps, account)?.0 })
}

impl EndingCode {
    /// What this process holds less, but for queued frees whose charge has come off, and what is charged to it now.
    fn shrunk(&self, caps: &Caps) -> Option<(u64, u64)> {
        let (device, account) = caps.at(self.ordinal)?;
        let before = accounted(caps, account)?.0;
        let shrunk = u64::try_from(self.watch.grown(caps, device)?.checked_neg()?).ok()?;
        let released = before.saturating_sub(accounted(caps, account)?.0);
        Some((shrunk, self.charged.saturating_sub(released)))
    }
}

impl Ending {
    /// It stays.
    pub(crate) fn stays(self) {
        stays(self.ctx);
    }

    /// It is gone, and all its memory with it.
    pub(crate) fn gone(self) {
        if let Some(caps) = on() {
            caps.context_gone(&self);
        }
    }
}

impl Caps {
    fn context_gone(&self, ending: &Ending) {
        let ctx = ending.ctx;
        self.linear.fences.context_left(ctx, true);
        let code = ending.code.as_ref();
        let shrunk = code.and_then(|code| code.shrunk(self));
        self.release_passed_frees();
        for (addr, block) in self.linear.take_all_of(ctx) {
            self.freed(addr, &block);
        }
        let unsure = lock(&self.arrays).context_gone(self, ctx);
        let own = lock(&self.contexts).own.remove(&ctx);
        if let Some((ordinal, bytes)) = own {
            self.release(ordinal, Category::Context, bytes);
        }
        // What came free beyond all that has come off the account by now was code's.
        let came_free = code.zip(shrunk).and_then(|(code, (shrunk, charged))| {
            let others = charged.saturating_sub(accounted(self, self.at(code.ordinal)?.1)?.0);
            Some(shrunk.saturating_sub(others).saturating_sub(unsure))
        });
        let mut contexts = lock(&self.contexts);
        contexts.modules.retain(|_, (of, _)| *of != ctx);
        let mut gone = Vec::new();
        if let Some(Loads { ordinal, .. }) = contexts.loads.remove(&ctx) {
            contexts.mark_overcharged(ordinal);
            gone.push((ordinal, contexts.release_code(ordinal, came_free.unwrap_or(0))));
        }
        for ordinal in contexts.code.keys().copied().collect::<Vec<_>>() {
            let lacking = lock(&self.arrays).lacking(ordinal);
            gone.push((ordinal, contexts.bounded(ordinal, lacking)));
        }
        for (ordinal, bytes) in gone {
            self.release(ordinal, Category::Context, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code of two contexts on device 0, and of one on device 1; each reaches as far as it was charged.
    fn loaded() -> Contexts {
        let mut contexts = Contexts::default();
        for (ctx, ordinal, module, bytes) in [(1, 0, 11, 3 * PAGE), (2, 0, 22, 2 * PAGE), (3, 1, 33, PAGE)] {
            contexts.loaded(ctx, ordinal, bytes);
            contexts.modules.insert(module, (ctx, bytes));
            *contexts.code.entry(ordinal).or_insert(0) += bytes;
        }
        contexts
    }

    fn unload(contexts: &mut Contexts, module: usize) {
        contexts.modules.remove(&module).into_iter().for_each(|module| contexts.unloaded(module));
    }

    #[test]
    fn nothing_comes_off_while_all_code_is_loaded() {
        let mut contexts = loaded();
        assert_eq!((contexts.bounded(0, 0), contexts.bounded(1, 0), contexts.bounded(2, 0)), (0, 0, 0));
        assert_eq!((contexts.code_on(0), contexts.code_on(1), contexts.code_on(2)), (5 * PAGE, PAGE, 0));
    }

    #[test]
    fn unloaded_code_comes_off_its_own_device() {
        let mut contexts = loaded();
        // Another module of the same context.
        contexts.loaded(1, 0, 3 * PAGE);
        *contexts.code.entry(0).or_insert(0) += 3 * PAGE;
        unload(&mut contexts, 11);
        assert_eq!((contexts.bounded(1, 0), contexts.bounded(0, 0)), (0, 3 * PAGE));
        assert_eq!((contexts.code_on(0), contexts.code_on(1)), (5 * PAGE, PAGE));
        unload(&mut contexts, 11);
        assert_eq!(contexts.bounded(0, 0), 0, "a module is unloaded once");
    }

    #[test]
    fn a_module_comes_off_the_context_that_loaded_it() {
        let mut contexts = loaded();
        unload(&mut contexts, 22);
        contexts.loads.remove(&1);
        assert_eq!(contexts.bounded(0, 0), 5 * PAGE, "nothing is loaded on the device");
        let mut contexts = loaded();
        unload(&mut contexts, 22);
        contexts.loads.remove(&2);
        assert_eq!(contexts.bounded(0, 0), 2 * PAGE, "the other context keeps what it has loaded");
    }

    #[test]
    fn code_that_may_lie_in_shared_chunks_stays_charged() {
        let mut contexts = loaded();
        // The second module of context 2 fits into chunks that are there: nothing is charged for it.
        contexts.loaded(2, 0, SHARED);
        contexts.modules.insert(44, (2, SHARED));
        unload(&mut contexts, 11);
        assert_eq!(contexts.bounded(0, 0), 3 * PAGE - SHARED, "it may be the last in chunks of the first");
        unload(&mut contexts, 44);
        assert_eq!(contexts.bounded(0, 0), SHARED);
    }

    #[test]
    fn small_arrays_keep_the_chunks_of_code() {
        let mut contexts = loaded();
        contexts.loads.clear();
        assert_eq!(contexts.bounded(0, 2 * PAGE), 3 * PAGE);
        assert_eq!(contexts.code_on(0), 2 * PAGE);
        assert_eq!(contexts.bounded(0, 0), 2 * PAGE, "they are gone");
    }

    #[test]
    fn no_more_comes_off_than_is_charged() {
        let mut contexts = loaded();
        assert_eq!((contexts.release_code(0, PAGE), contexts.release_code(0, 9 * PAGE)), (PAGE, 4 * PAGE));
        assert_eq!((contexts.release_code(0, PAGE), contexts.release_code(7, PAGE)), (0, 0));
        assert_eq!(contexts.code_on(1), PAGE, "the other device's code stays");
    }

    #[test]
    fn a_device_is_looked_at_again_once() {
        let mut contexts = Contexts::default();
        contexts.mark_overcharged(1);
        contexts.mark_overcharged(1);
        contexts.mark_overcharged(0);
        assert_eq!(contexts.overcharged, [1, 0]);
    }
}
