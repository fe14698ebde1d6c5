//! The one place where weir waits for work of the device's. It polls, has a bound, and holds nothing between two looks.
//!
//! At its beginning a mark is set behind everything that is queued in each context concerned, and then the marks are
//! queried: what is queued later keeps nobody waiting, and no stream is made to wait for another one. cuCtxRecordEvent sets
//! such a mark in one call. A driver older than 12.5 has no such function: there every known stream gets an event of its
//! own, the legacy stream is queried whether it is idle (an event in it would hold up all blocking streams), and a context
//! with streams that belong to threads can't be marked at all: only the job's own waits prove anything about it.

use super::guards::ContextGuard;
use super::reach::reaches;
use super::real::{self, done, refused};
use super::{capture, contexts, observer, stream, work};
use core::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use weir_cuda::{CUcontext, CUevent, CUevent_flags, CUresult};
use weir_pool::BackingError;
use weir_pool::ranks::{self, Mutex, Rank};

/// How long a request waits for the device before it is refused: as long as TensorFlow's own allocator has patience
/// with a request that it can't serve.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Waits of one thread that follow each other so soon are for one request.
const SAME_REQUEST: Duration = Duration::from_secs(1);
const A_MOMENT: Duration = Duration::from_millis(20);
/// How long a wait tries to set its marks beside captures. A thread that captures may itself be the one that waits.
const BESIDE_CAPTURES: Duration = Duration::from_millis(20);
/// How long a call that ends something waits for a short use of it by weir.
const FOR_USES: Duration = Duration::from_secs(10);
/// Looks without a pause between them, and the longest pause.
const EAGER: u32 = 32;
const LONGEST: Duration = Duration::from_millis(1);

pub(crate) const CAPTURING: BackingError =
    BackingError::Driver(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.0 as i32);

thread_local! {
    /// When this thread has last waited in vain.
    static IN_VAIN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Whose work is waited for.
#[derive(Clone, Copy)]
pub(crate) enum Whose {
    /// Every context's that may touch memory of this device.
    Reaching(i32),
    /// This context's.
    Context(u64),
}

impl Whose {
    fn is(self, context: &contexts::Living) -> bool {
        match self {
            Self::Reaching(memory) => reaches(context.ordinal, memory),
            Self::Context(ctx) => context.ctx == ctx,
        }
    }

    fn ordinal(self) -> i32 {
        match self {
            Self::Reaching(ordinal) => ordinal,
            Self::Context(ctx) => contexts::find(ctx).map_or(0, contexts::Slot::ordinal),
        }
    }
}

/// Ever longer pauses until a moment.
pub(crate) struct Pauses {
    until: Instant,
    looks: u32,
    pause: Duration,
}

impl Pauses {
    pub(crate) fn within(patience: Duration) -> Self {
        Self { until: Instant::now() + patience, looks: 0, pause: Duration::from_micros(10) }
    }

    /// Pauses. False: it is too late for another look.
    pub(crate) fn pause(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        self.looks += 1;
        if self.looks < EAGER {
            std::thread::yield_now();
        } else {
            std::thread::sleep(self.pause);
            self.pause = (self.pause * 3 / 2).min(LONGEST);
        }
        true
    }
}

/// For [`weir_pool::shared::Uses::bar`]: pauses until short uses of weir's are over. When they are not in time the call
/// goes on beside them.
pub(crate) fn for_uses(of: &'static str) -> impl FnMut() -> bool {
    ranks::waiting(of);
    let mut pauses = None;
    move || pauses.get_or_insert_with(|| Pauses::within(FOR_USES)).pause()
}

/// Something that shows when the work before it has ended.
enum Mark {
    /// An event of weir's own.
    Event(u64),
    /// A stream that is idle.
    Idle(u64),
}

/// A mark and the context that it belongs to, by its handle and its unique number.
struct Marked {
    ctx: u64,
    serial: u64,
    mark: Mark,
}

/// Events that could not be destroyed, because their context was perhaps about to go; and those of streams that were
/// destroyed before their work had ended.
static LEFT: Mutex<Vec<Marked>> = Mutex::new(Rank::Marks, Vec::new());
static ORPHANS: Mutex<Vec<Marked>> = Mutex::new(Rank::Marks, Vec::new());

/// Whether the driver has cuCtxRecordEvent.
fn marks_contexts() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let mut version = 0;
        // SAFETY: the place is a live local.
        done(unsafe { real::cuDriverGetVersion(&raw mut version) }).is_ok() && version >= 12050
    })
}

/// Waits until all work that is queued now has ended. An error: it is not known to have, and nothing is proven.
pub(crate) fn for_work(whose: Whose, patience: Duration) -> Result<(), BackingError> {
    ranks::waiting("the device");
    if contexts::some_unseen() {
        return Err(BackingError::Busy);
    }
    // A request waits in several places; what has not ended in all that time is given only a moment more.
    let vain = IN_VAIN.get().is_some_and(|at| at.elapsed() < SAME_REQUEST);
    let waited = look_until(whose, if vain { A_MOMENT } else { patience });
    if waited == Err(BackingError::Busy) && !vain {
        IN_VAIN.set(Some(Instant::now()));
    }
    waited
}

/// The same for whoever has stopped the device and so keeps others waiting, but not for long.
pub(crate) fn look_until(whose: Whose, patience: Duration) -> Result<(), BackingError> {
    let began = Instant::now();
    let mut pauses = Pauses::within(patience);
    let mut marks = set(whose, patience, &mut pauses)?;
    let ended = loop {
        match poll(&mut marks) {
            Ok(true) => break Ok(()),
            Ok(false) if pauses.pause() => {}
            Ok(false) => break Err(BackingError::Busy),
            Err(error) => break Err(error),
        }
    };
    give_up(marks);
    if ended.is_ok() {
        observer::notify(|observer| (observer.waited)(whose.ordinal(), began.elapsed()));
    }
    ended
}

/// Sets a mark in every context concerned, all of them in one look.
fn set(whose: Whose, patience: Duration, pauses: &mut Pauses) -> Result<Vec<Marked>, BackingError> {
    let captures = Instant::now() + BESIDE_CAPTURES.min(patience);
    // The driver is queried for its version once, and not in a use.
    marks_contexts();
    loop {
        match capture::no_capture() {
            None if Instant::now() >= captures => return Err(CAPTURING),
            None => {}
            Some(_no_capture) => {
                if let Some(_alive) = contexts::alive() {
                    return mark_all(whose);
                }
            }
        }
        if !pauses.pause() {
            return Err(BackingError::Busy);
        }
    }
}

fn mark_all(whose: Whose) -> Result<Vec<Marked>, BackingError> {
    let mut marks = Vec::new();
    let result = contexts::all().filter(|context| whose.is(context)).try_for_each(|context| {
        let Some(slot) = contexts::find(context.ctx) else { return Ok(()) };
        mark(context.ctx, slot.serial(), &mut marks)
    });
    if let Err(error) = result {
        give_up(marks);
        return Err(error);
    }
    Ok(marks)
}

/// Sets marks in a context that stays meanwhile, beside no capture.
fn mark(ctx: u64, serial: u64, marks: &mut Vec<Marked>) -> Result<(), BackingError> {
    let within = ContextGuard::enter(ctx).map_err(refused)?;
    if marks_contexts() {
        // SAFETY: a context that is in the table of living ones; the event was made in it.
        let event = record(|event| unsafe { real::cuCtxRecordEvent(ctx as CUcontext, event) })?;
        marks.push(Marked { ctx, serial, mark: Mark::Event(event) });
        return Ok(());
    }
    drop(within);
    if work::threads_have_streams() {
        return Err(BackingError::Busy);
    }
    let orphans = core::mem::take(&mut *ORPHANS.lock());
    let (own, others): (Vec<_>, Vec<_>) = orphans.into_iter().partition(|orphan| orphan.serial == serial);
    ORPHANS.lock().extend(others);
    marks.extend(own);
    for id in stream::created_in(&[ctx]) {
        let mark = mark_stream(id).ok_or(BackingError::Busy)??;
        marks.push(Marked { ctx, serial, mark });
    }
    marks.push(Marked { ctx, serial, mark: Mark::Idle(stream::legacy_of(ctx)) });
    Ok(())
}

fn mark_stream(id: u64) -> Option<Result<Mark, BackingError>> {
    stream::with(id, |ctx, handle| {
        let _within = ContextGuard::enter(ctx).map_err(refused)?;
        // SAFETY: the stream is alive while `with` holds it.
        record(|event| unsafe { real::cuEventRecord(event, handle) }).map(Mark::Event)
    })
}

/// Makes an event in the current context and records it.
pub(crate) fn record(by: impl FnOnce(CUevent) -> CUresult) -> Result<u64, BackingError> {
    let mut event: CUevent = core::ptr::null_mut();
    let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
    // SAFETY: the place is a live local, and there is a current context.
    done(unsafe { real::cuEventCreate(&raw mut event, flags) }).map_err(refused)?;
    done(by(event)).map(|()| event as u64).map_err(|code| {
        // SAFETY: made above, and nobody else knows it.
        unsafe { real::cuEventDestroy_v2(event) };
        refused(code)
    })
}

/// A stream is about to be destroyed, and its work may go on. Where contexts can't be marked, an event shows when it ends.
pub(crate) fn stream_goes(handle: u64) {
    if marks_contexts() || work::threads_have_streams() {
        return;
    }
    let Some(_no_capture) = capture::no_capture() else { return work::streams_are_unknown() };
    let Some(_alive) = contexts::alive() else { return work::streams_are_unknown() };
    let marked = stream::with(handle, |ctx, _| contexts::find(ctx).map(|slot| (ctx, slot.serial()))).flatten();
    let Some((ctx, serial)) = marked else { return };
    match mark_stream(handle) {
        Some(Ok(mark)) => ORPHANS.lock().push(Marked { ctx, serial, mark }),
        _ => work::streams_are_unknown(),
    }
}

/// Whether the context is there (`Ok(true)`), is gone, and its work with it (`Ok(false)`), or may be either.
fn there(marked: &Marked) -> Option<bool> {
    match contexts::find(marked.ctx) {
        Some(slot) => Some(slot.serial() == marked.serial),
        None => contexts::certain().then_some(false),
    }
}

/// Takes the marks off the list behind which all work has ended. Returns whether that is all of them.
fn poll(marks: &mut Vec<Marked>) -> Result<bool, BackingError> {
    // Events may be queried beside captures, streams may not.
    let no_capture = capture::no_capture();
    let Some(_alive) = contexts::alive() else { return Ok(false) };
    let mut problem = None;
    marks.retain(|marked| {
        let reached = match there(marked) {
            None => return true,
            Some(false) => return false,
            Some(true) => reached(marked, no_capture.is_some()),
        };
        match reached {
            CUresult::CUDA_SUCCESS => {
                destroy(marked);
                false
            }
            CUresult::CUDA_ERROR_NOT_READY => true,
            code => {
                problem = Some(refused(code));
                true
            }
        }
    });
    problem.map_or(Ok(marks.is_empty()), Err)
}

fn reached(marked: &Marked, no_capture: bool) -> CUresult {
    match marked.mark {
        Mark::Event(event) => match ContextGuard::enter(marked.ctx) {
            // SAFETY: an event of weir's own, in a context that stays meanwhile.
            Ok(_within) => unsafe { real::cuEventQuery(event as CUevent) },
            Err(code) => code,
        },
        Mark::Idle(id) => {
            if !no_capture {
                return CUresult::CUDA_ERROR_NOT_READY;
            }
            let queried = stream::with(id, |ctx, handle| match ContextGuard::enter(ctx) {
                // SAFETY: the stream is alive while `with` holds it.
                Ok(_within) => unsafe { real::cuStreamQuery(handle) },
                Err(code) => code,
            });
            queried.unwrap_or(CUresult::CUDA_ERROR_NOT_READY)
        }
    }
}

fn destroy(marked: &Marked) {
    if let (Mark::Event(event), Ok(_within)) = (&marked.mark, ContextGuard::enter(marked.ctx)) {
        // SAFETY: an event of weir's own, in a context that stays meanwhile, and nobody else knows it.
        unsafe { real::cuEventDestroy_v2(*event as CUevent) };
    }
}

/// The marks are needed no more, nor are those that were left over before.
fn give_up(marks: Vec<Marked>) {
    let mut marks = marks;
    marks.append(&mut LEFT.lock());
    if marks.is_empty() {
        return;
    }
    if let Some(_alive) = contexts::alive() {
        marks.retain(|marked| match there(marked) {
            None => true,
            Some(false) => false,
            Some(true) => {
                destroy(marked);
                false
            }
        });
    }
    LEFT.lock().append(&mut marks);
}
