//! Memory that the driver serves itself: in flight before the driver is called, live once it has answered. Beside the
//! journal it is remembered which context each belongs to, because a context's end frees everything that it owns.

use super::{Recorder, device, on, oom, open};
use crate::driver::guards::{current, current_device};
use crate::process::guard::Call;
use std::collections::HashMap;
use weir_cuda::CUresult;
use weir_journal::layout::HOST_DEVICE;
use weir_journal::{Class, Event, FreeTicket, Granted, Kind, STREAM_UNKNOWN, Situation};
use weir_pool::ranks::Locked;

/// Who owns what, and the contexts that live.
#[derive(Default)]
pub(crate) struct Passed {
    /// Address and class to the owning context, 0 for none.
    owner: HashMap<(u64, Class), u64>,
    /// How often each imported block is open.
    imports: HashMap<u64, u32>,
    /// Contexts with their devices; true: the device's primary one.
    contexts: Vec<(u64, i32, bool)>,
}

/// What is requested.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// What sort of memory.
    pub(crate) class: Class,
    /// How much.
    pub(crate) requested: u64,
    /// In which stream, by the journal's number.
    pub(crate) stream: u16,
    /// On which device; `None`: on that of the current context.
    pub(crate) ordinal: Option<i32>,
    /// Whether it goes with the current context.
    pub(crate) owned: bool,
}

impl Wanted {
    /// Memory of the current context's device, in no stream.
    pub(crate) fn here(class: Class, requested: u64) -> Self {
        Self { class, requested, stream: STREAM_UNKNOWN, ordinal: None, owned: true }
    }
}

fn is_host(class: Class) -> bool {
    matches!(class, Class::Pinned | Class::Registered)
}

impl Recorder {
    pub(super) fn passed(&self) -> Locked<'_, Passed> {
        self.passed.lock()
    }
}

/// An allocation by `run`, which calls the driver through `call` if nothing forbids it. `made` returns what came of it, `situation`
/// what is known where there was no memory.
pub(crate) fn allocate<F: Copy>(
    call: &Call<F, CUresult>,
    wanted: Wanted,
    run: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> Granted,
    situation: impl FnOnce(i32) -> Situation,
) -> CUresult {
    let Some(recorder) = on() else { return run() };
    let Wanted { class, requested, stream, ordinal, owned } = wanted;
    let ordinal = ordinal.or_else(current_device).unwrap_or(-1);
    let place = if is_host(class) { HOST_DEVICE } else { device(ordinal) };
    let ticket = recorder.begin(Kind::Alloc, class, place, stream, requested, 0);
    let result = run();
    if result == CUresult::CUDA_SUCCESS {
        let granted = made();
        let ctx = if owned { current() } else { 0 };
        recorder.passed().owner.insert((granted.address, class), ctx);
        ticket.granted(granted);
        return result;
    }
    let driver = call.result() == Some(result);
    ticket.ended(if driver { Kind::Failed } else { Kind::Refused }, 0, result.0 as u16);
    if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        oom::report(recorder, ordinal, class, stream, requested, situation);
    }
    result
}

/// A free by `run` of memory that is of one of these classes.
pub(crate) fn free(addr: u64, classes: &[Class], stream: u16, run: impl FnOnce() -> CUresult) -> CUresult {
    let Some(recorder) = open() else { return run() };
    let known = {
        let passed = recorder.passed();
        classes.iter().copied().find(|class| passed.owner.contains_key(&(addr, *class)))
    };
    // An array without memory of its own was never written down.
    let unknown = classes.first().copied().filter(|class| *class != Class::Array);
    let Some(class) = known.or(unknown) else { return run() };
    recorder.journal.sample_host(super::SAMPLE_MS);
    let ticket = recorder.journal.begin_free(addr, class);
    // Off the list before the driver frees it: another thread may get the same address at once.
    let owner = recorder.passed().owner.remove(&(addr, class));
    let result = run();
    if result == CUresult::CUDA_SUCCESS {
        if addr != 0 || owner.is_some() {
            ticket.freed(stream);
        }
        return result;
    }
    if let Some(owner) = owner {
        recorder.passed().owner.insert((addr, class), owner);
    }
    ticket.failed(result.0 as u16);
    result
}

/// Memory is gone by another entry point.
pub(crate) fn forget(addr: u64, class: Class) {
    if let Some(recorder) = open() {
        recorder.passed().owner.remove(&(addr, class));
    }
}

/// Memory of another process is opened here by `run`; a block that is open already is counted once.
pub(crate) fn import<F: Copy>(
    call: &Call<F, CUresult>,
    run: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> Granted,
) -> CUresult {
    let Some(recorder) = on() else { return run() };
    let device = current_device().map_or(HOST_DEVICE, device);
    let mut ticket = recorder.begin(Kind::Alloc, Class::Imported, device, STREAM_UNKNOWN, 0, 0);
    let result = run();
    if result != CUresult::CUDA_SUCCESS {
        let kind = if call.result() == Some(result) { Kind::Failed } else { Kind::Refused };
        ticket.ended(kind, 0, result.0 as u16);
        return result;
    }
    let (granted, ctx) = (made(), current());
    let mut passed = recorder.passed();
    let users = passed.imports.entry(granted.address).or_insert(0);
    *users += 1;
    if *users == 1 {
        passed.owner.insert((granted.address, Class::Imported), ctx);
        drop(passed);
        ticket.set_requested(granted.allocated);
        ticket.granted(granted);
    }
    result
}

/// Memory of another process is closed by `run`.
pub(crate) fn close(addr: u64, run: impl FnOnce() -> CUresult) -> CUresult {
    let Some(recorder) = open() else { return run() };
    if recorder.passed().imports.get(&addr).is_none_or(|users| *users == 1) {
        let result = free(addr, &[Class::Imported], STREAM_UNKNOWN, run);
        if result == CUresult::CUDA_SUCCESS {
            recorder.passed().imports.remove(&addr);
        }
        return result;
    }
    let result = run();
    if result == CUresult::CUDA_SUCCESS
        && let Some(users) = recorder.passed().imports.get_mut(&addr)
    {
        *users = users.saturating_sub(1);
    }
    result
}

/// What a context takes for itself.
pub(crate) fn overhead(ctx: u64, ordinal: i32, bytes: u64) {
    let Some(recorder) = on() else { return };
    let ticket = recorder.begin(Kind::Alloc, Class::Overhead, device(ordinal), STREAM_UNKNOWN, bytes, ctx);
    recorder.passed().owner.insert((ctx, Class::Overhead), ctx);
    ticket.granted(Granted { address: ctx, allocated: bytes });
}

/// A context is there; `primary`: it is its device's primary one.
pub(crate) fn context_made(ctx: u64, ordinal: i32, primary: bool) {
    let Some(recorder) = on() else { return };
    let mut passed = recorder.passed();
    if passed.contexts.iter().any(|(known, ..)| *known == ctx) {
        return;
    }
    passed.contexts.push((ctx, ordinal, primary));
    drop(passed);
    let event = Event::new(Kind::ContextCreate, Class::Other, device(ordinal));
    recorder.journal.record(Event { address: ctx, ..event });
}

/// A device's primary context, if the journal has seen it.
pub(crate) fn primary_of(ordinal: i32) -> Option<u64> {
    let passed = open()?.passed();
    passed.contexts.iter().find(|(_, of, primary)| *of == ordinal && *primary).map(|(ctx, ..)| *ctx)
}

/// Whether the journal has seen a context.
pub(crate) fn knows(ctx: u64) -> bool {
    open().is_some_and(|recorder| recorder.passed().contexts.iter().any(|(known, ..)| *known == ctx))
}

/// A context that is about to end: the frees of what it owns have begun.
pub(crate) struct Leaving {
    recorder: &'static Recorder,
    ctx: u64,
    frees: Vec<(u64, Class, FreeTicket<'static>)>,
}

/// A context is about to end. The frees of what it owns begin before the driver is called: once it has ended, another thread
/// may get the same addresses at once.
pub(crate) fn context_leaves(ctx: u64) -> Option<Leaving> {
    let recorder = open()?;
    let mut passed = recorder.passed();
    let owned: Vec<(u64, Class)> = passed.owner.iter().filter(|(_, of)| **of == ctx).map(|(what, _)| *what).collect();
    for what in &owned {
        passed.owner.remove(what);
    }
    drop(passed);
    let begin = |(addr, class)| (addr, class, recorder.journal.begin_free(addr, class));
    Some(Leaving { recorder, ctx, frees: owned.into_iter().map(begin).collect() })
}

impl Leaving {
    /// The context stays, and all that it owns.
    pub(crate) fn stays(self) {
        let mut passed = self.recorder.passed();
        for (addr, class, ticket) in self.frees {
            passed.owner.insert((addr, class), self.ctx);
            drop(ticket);
        }
    }

    /// It is gone with them.
    pub(crate) fn gone(self) {
        for (_, _, ticket) in self.frees {
            if ticket.entry().is_some() {
                ticket.freed(STREAM_UNKNOWN);
            }
        }
    }
}

/// A context is gone, and what it owned with it.
pub(crate) fn context_gone(ctx: u64) {
    let Some(recorder) = open() else { return };
    let mut passed = recorder.passed();
    let place = passed.contexts.iter().position(|(known, ..)| *known == ctx);
    let ordinal = place.map_or(-1, |at| passed.contexts.swap_remove(at).1);
    let owned: Vec<(u64, Class)> = passed.owner.iter().filter(|(_, of)| **of == ctx).map(|(what, _)| *what).collect();
    for what in &owned {
        passed.owner.remove(what);
    }
    drop(passed);
    for (addr, class) in owned {
        recorder.journal.free(addr, class, STREAM_UNKNOWN);
    }
    let event = Event::new(Kind::ContextDestroy, Class::Other, device(ordinal));
    recorder.journal.record(Event { address: ctx, ..event });
}
