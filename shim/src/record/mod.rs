//! The journal of this process: what hooks, pool and caps call when something happens to memory.
//!
//! Made at the first context or allocation in a process whose driver is initialised, never before; never freed. A
//! forked child begins without one and gets its own in the same way. Recording is lock-free and makes no system call,
//! except beside a call into the driver. What an event means is written in docs/reference/journal-format.md.
//!
//! | file | for |
//! |---|---|
//! | `blocks.rs` | what the pool hands out and takes back |
//! | `passed.rs` | what the driver serves itself, and what goes with a context |
//! | `handles.rs` | the job's own physical handles, and imported ones |
//! | `graphs.rs` | what the driver keeps for graphs |
//! | `physical.rs` | what lies behind the pool: handles, mappings, address space |
//! | `streams.rs` | numbers for streams |
//! | `oom.rs` | requests that found no memory |
//! | `leave.rs` | a process that ends by `_exit` |

pub(crate) mod blocks;
pub(crate) mod graphs;
pub(crate) mod handles;
mod leave;
pub(crate) mod oom;
pub(crate) mod passed;
pub(crate) mod physical;
pub(crate) mod streams;

use crate::attribute::{self, What};
use crate::driver::real::{self, done};
use crate::driver::{DEVICES, backing};
use crate::process::{choices, job, surroundings};
use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weir_cuda::CUuuid;
#[cfg(feature = "fault-injection")]
use weir_journal::fault::Fault;
use weir_journal::layout::HOST_DEVICE;
use weir_journal::{Class, Event, FLAG_INTERNAL, Intent, Journal, Kind, Options, STREAM_UNKNOWN, Ticket, clear_up};
use weir_pool::ranks::{self, Mutex, Rank};
use weir_pool::shared;

/// How long a thread waits for another one that makes the journal; then its call is not recorded.
const MAKING_TAKES: Duration = Duration::from_secs(10);
/// Bytes for the names of all nodes of graphs.
const NODE_NAMES: u64 = 8 << 20;
/// Host memory is sampled at most this often.
pub(crate) const SAMPLE_MS: u64 = 100;

/// The journal, and what must be known beside it.
pub(crate) struct Recorder {
    /// The journal itself.
    pub(crate) journal: Journal,
    streams: streams::Streams,
    passed: Mutex<passed::Passed>,
    handles: Mutex<handles::Handles>,
    graphs: Mutex<graphs::Graphs>,
    physical: Mutex<physical::Mappings>,
    syncs: AtomicU64,
    oom_text: bool,
    termination: Option<PathBuf>,
}

static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(core::ptr::null_mut());
/// Whether a journal may still be made: [`UNBORN`], or [`NEVER`] again.
static STATE: AtomicU8 = AtomicU8::new(UNBORN);
const UNBORN: u8 = 0;
const NEVER: u8 = 1;
/// The process that is making its journal, 0 for none: a child's parent may have died over it.
static MAKER: AtomicU32 = AtomicU32::new(0);

/// The cap of each device, 0 for none.
static CAPS: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

thread_local! {
    /// This thread is making the journal. Constant and without a destructor.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

/// The journal, made now if it is time; `None` where nothing is recorded.
#[inline]
pub(crate) fn on() -> Option<&'static Recorder> {
    open().or_else(first)
}

/// The journal if there is one.
#[inline]
pub(crate) fn open() -> Option<&'static Recorder> {
    // SAFETY: a non-null pointer comes from `make`, which leaks what it points to.
    unsafe { RECORDER.load(Ordering::Acquire).as_ref() }
}

/// The job has loaded code.
pub(crate) fn code_loaded() {
    if let Some(recorder) = open() {
        attribute::code_loaded(&recorder.journal);
    }
}

/// Makes the journal. Threads that come meanwhile wait: an allocation that is not recorded would be missing for ever.
#[cold]
fn first() -> Option<&'static Recorder> {
    let settings = &job::active()?.config.journal;
    if STATE.load(Ordering::Acquire) == NEVER || !settings.on || MAKING.try_with(Cell::get).unwrap_or(true) {
        return None;
    }
    let mut devices = 0;
    // SAFETY: the place is a live local.
    done(unsafe { real::cuDeviceGetCount(&raw mut devices) }).ok()?;
    let _kept = surroundings::Errno::keep();
    let own = std::process::id();
    ranks::waiting("the making of the journal");
    let until = Instant::now() + MAKING_TAKES;
    while !shared::claim(&MAKER, own) {
        if Instant::now() > until {
            return None;
        }
        std::thread::sleep(core::time::Duration::from_micros(100));
    }
    if open().is_none() && STATE.load(Ordering::Acquire) == UNBORN {
        MAKING.set(true);
        let made = crate::process::guard::run("the journal", || make(devices)).flatten();
        if made.is_none() {
            STATE.store(NEVER, Ordering::Release);
        }
        MAKING.set(false);
    }
    shared::give_up(&MAKER);
    open()
}

fn make(devices: i32) -> Option<()> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    let config = &job::active()?.config;
    let settings = &config.journal;
    let mut wanted = Options { dir: config.dir.clone(), geometry: settings.geometry, config: config.text() };
    if let Some(dir) = &wanted.dir {
        // What cannot be cleared up stays; the journal is made all the same.
        let _ = clear_up(dir, settings.keep);
    }
    wanted.geometry.events = wanted.geometry.ring_slots();
    if attribute::keeps_nodes() {
        // The names of all nodes of graphs come in addition.
        wanted.geometry.names += NODE_NAMES;
    }
    #[cfg(feature = "fault-injection")]
    for (name, fault) in [("pending", Fault::Pending), ("freeing", Fault::Freeing)] {
        if crate::process::fault::is_set(name) {
            weir_journal::fault::inject(fault as u32);
        }
    }
    let journal = Journal::create(&wanted).ok()?;
    if let Some(reason) = journal.fallback_reason() {
        surroundings::say(&format!("no journal can be kept on disk: {reason}"));
    }
    if let (Some(why), Some(path)) = (journal.moved(), journal.path()) {
        let folder = path.parent().unwrap_or(&path);
        surroundings::say(&format!("the journal is kept in {}: {why}", folder.display()));
        choices::keep("journal", format!("{}: {why}", folder.display()));
        let _ = clear_up(folder, settings.keep);
    }
    for ordinal in 0..devices {
        describe(&journal, ordinal);
    }
    if backing::is_there() {
        journal.leave_out(backing::resident);
    }
    attribute::begin(&journal, settings.stacks);
    journal.refresh_modules();
    choices::all().for_each(|choice| journal.note(choice.subject, &choice.text));
    let recorder = Box::new(Recorder {
        journal,
        streams: streams::Streams::new(),
        passed: Mutex::new(Rank::Passed, passed::Passed::default()),
        handles: Mutex::new(Rank::RecordedHandles, handles::Handles::default()),
        graphs: Mutex::new(Rank::RecordedGraphs, graphs::Graphs::default()),
        physical: Mutex::new(Rank::RecordedMappings, physical::Mappings::default()),
        syncs: AtomicU64::new(0),
        oom_text: settings.oom_text,
        termination: settings.termination.clone(),
    });
    if !WATCHED.swap(true, Ordering::AcqRel) {
        // SAFETY: both functions stay as long as the process; the first makes only calls which are allowed in a forked
        // child.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
            on_exit(exits, core::ptr::null_mut());
        }
    }
    // SAFETY: as in `open`.
    if let Some(ended) = shared::show(&RECORDER, &STATE, Box::into_raw(recorder)).and_then(|it| unsafe { it.as_ref() })
    {
        ended.journal.turned_off(1, job::off().unwrap_or_default());
    }
    Some(())
}

/// Writes down what a device is and what its cap is.
fn describe(journal: &Journal, ordinal: i32) {
    let mut uuid = CUuuid { bytes: [0; 16] };
    let mut name = [0 as c_char; 64];
    let mut total = 0;
    // SAFETY: every place is a live local of the length given.
    unsafe {
        if done(real::cuDeviceGetUuid_v2(&raw mut uuid, ordinal)).is_err() {
            real::cuDeviceGetUuid(&raw mut uuid, ordinal);
        }
        real::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, ordinal);
        real::cuDeviceTotalMem_v2(&raw mut total, ordinal);
    }
    let name: Vec<u8> = name.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    journal.set_device(device(ordinal), uuid.bytes.map(|b| b as u8), total as u64, &String::from_utf8_lossy(&name));
    if let Some(cap) = CAPS.get(ordinal as usize).map(|cap| cap.load(Ordering::Acquire)).filter(|cap| *cap != 0) {
        journal.set_cap(device(ordinal), cap);
    }
}

/// A device's number in the journal.
#[inline]
pub(crate) fn device(ordinal: i32) -> u8 {
    u8::try_from(ordinal).ok().filter(|ordinal| *ordinal < HOST_DEVICE).unwrap_or(HOST_DEVICE)
}

/// In a forked child: the parent's journal records it, then left alone. The cached thread id still is the parent's.
extern "C" fn in_child() {
    let parents = RECORDER.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: as in `open`.
    if let Some(recorder) = unsafe { parents.as_ref() } {
        recorder.journal.forked(std::process::id());
        recorder.journal.detach_in_child();
    }
}

/// The library turned itself off: the last thing that is recorded.
pub(crate) fn turned_off(reason: &str) {
    let last = shared::end(&RECORDER, &STATE);
    // SAFETY: as in `open`; it is never freed, so who still holds it does no harm.
    if let Some(recorder) = last.and_then(|last| unsafe { last.as_ref() }) {
        recorder.journal.turned_off(1, reason);
    }
}

/// At the end of the process, by a return from main or exit(3).
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
#[cfg_attr(not(test), used)]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    if let Some(recorder) = open() {
        crate::process::guard::run("the end", || {
            recorder.journal.refresh_modules();
            recorder.journal.exiting(u8::try_from(STATUS.load(Ordering::Relaxed)).ok());
        });
    }
}

/// The status that the process exits with; out of a byte's range until it is known.
static STATUS: AtomicU32 = AtomicU32::new(u32::MAX);

unsafe extern "C" {
    /// glibc's: as atexit(3), but the function gets the status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn exits(status: c_int, _: *mut c_void) {
    STATUS.store(u32::from(status as u8), Ordering::Relaxed);
}

impl Recorder {
    /// A call into the driver begins: in flight until its outcome is recorded.
    fn begin(&self, kind: Kind, class: Class, device: u8, stream: u16, requested: u64, address: u64) -> Ticket<'_> {
        self.journal.sample_host(SAMPLE_MS);
        let by = attribute::here(&self.journal, What::DriverCall);
        self.journal.begin(Intent { kind, class, device, stream, requested, address, by })
    }

    fn synchronised(&self, device: u8, latency: u64, flags: u8) {
        self.journal.record(Event {
            address: self.syncs.fetch_add(1, Ordering::Relaxed) + 1,
            time: self.journal.now(),
            latency,
            flags,
            ..Event::new(Kind::Sync, Class::Other, device)
        });
    }

    /// The number of a stream, by the identity that the pool knows it by; `None` is no stream.
    #[inline]
    fn stream(&self, id: Option<u64>) -> u16 {
        match id {
            None => STREAM_UNKNOWN,
            Some(id) if id >> 63 != 0 => streams::PER_THREAD,
            Some(id) if id & 1 != 0 => streams::LEGACY,
            Some(id) => self.streams.number(id),
        }
    }

    /// The number of a stream, by the handle that the job uses.
    pub(crate) fn stream_of(&self, handle: u64, per_thread: bool) -> u16 {
        match handle {
            0 if per_thread => streams::PER_THREAD,
            0 | 1 => streams::LEGACY,
            2 => streams::PER_THREAD,
            handle => self.streams.number(handle),
        }
    }
}

/// A stream came to life.
pub(crate) fn stream_created(handle: u64, ordinal: Option<i32>) {
    if let Some(recorder) = on() {
        let stream = recorder.streams.add(handle);
        let device = ordinal.map_or(HOST_DEVICE, device);
        recorder.journal.record(Event {
            address: handle,
            stream,
            ..Event::new(Kind::StreamCreate, Class::Other, device)
        });
    }
}

/// A stream is about to go; returns the number that it had. Before the driver can give its handle to a new one.
pub(crate) fn stream_leaves(handle: u64) -> u16 {
    open().map_or(STREAM_UNKNOWN, |recorder| recorder.streams.remove(handle))
}

/// It is `gone`, or stays.
pub(crate) fn stream_left(handle: u64, stream: u16, gone: bool) {
    let Some(recorder) = open() else { return };
    if !gone && stream != STREAM_UNKNOWN {
        recorder.streams.add(handle);
    }
    if gone {
        recorder.journal.record(Event {
            address: handle,
            stream,
            ..Event::new(Kind::StreamDestroy, Class::Other, HOST_DEVICE)
        });
    }
}

/// A wait for all work of a device, while it lasts.
pub(crate) struct Sync(Option<(&'static Recorder, u64, u8)>);

/// The job begins to wait for all work of a device.
pub(crate) fn synchronising(ordinal: i32) -> Sync {
    Sync(open().map(|recorder| (recorder, recorder.journal.now(), device(ordinal))))
}

/// Weir itself has waited for work that reaches a device's memory, for so long.
pub(crate) fn waited(ordinal: i32, took: Duration) {
    if let Some(recorder) = open() {
        recorder.synchronised(device(ordinal), took.as_nanos() as u64, FLAG_INTERNAL);
    }
}

impl Sync {
    /// It is over, and a new epoch has begun: what was freed before is free to be used again.
    pub(crate) fn ended(self) {
        let Some((recorder, since, device)) = self.0 else { return };
        recorder.synchronised(device, recorder.journal.now().saturating_sub(since), 0);
    }
}

/// A request waits for room under the cap while `wait` lasts; `granted`: whether it got it.
pub(crate) fn waiting<R>(ordinal: i32, bytes: u64, wait: impl FnOnce() -> R, granted: impl FnOnce(&R) -> bool) -> R {
    ranks::waiting("room under the cap");
    let Some(recorder) = open() else { return wait() };
    let ticket = recorder.begin(Kind::Wait, Class::Other, device(ordinal), STREAM_UNKNOWN, bytes, 0);
    let answer = wait();
    ticket.ended(Kind::Wait, if granted(&answer) { bytes } else { 0 }, 0);
    answer
}

/// Records what weir has chosen so far; what is there already is not recorded again.
pub(crate) fn choices() {
    if let Some(recorder) = open() {
        choices::all().for_each(|choice| recorder.journal.note(choice.subject, &choice.text));
    }
}

/// weir has chosen.
pub(crate) fn chose(subject: &'static str, text: String) {
    choices::keep(subject, text);
    choices();
}

/// What weir reports of its journal, for `weir doctor` and for tests.
pub(crate) fn status() -> Option<serde_json::Value> {
    let journal = &open()?.journal;
    Some(serde_json::json!({"file": journal.path(), "problem": journal.fallback_reason()}))
}

/// The job sets a mark, or begins or ends a region. Before its first context there is no journal: then nothing is kept.
pub(crate) fn said(kind: Kind, name: &str) -> bool {
    open().map(|recorder| recorder.journal.said(kind, name)).is_some()
}

/// The cap of a device is known, or another than before.
pub(crate) fn cap_changed(ordinal: i32, cap: Option<u64>) {
    // The journal may be made later.
    if let Some(known) = CAPS.get(ordinal as usize) {
        known.store(cap.unwrap_or(0), Ordering::Release);
    }
    if let Some(recorder) = open() {
        recorder.journal.set_cap(device(ordinal), cap.unwrap_or(0));
    }
}

/// The job's use crossed its soft mark.
pub(crate) fn soft_mark(ordinal: i32, mark: u64, used: u64) {
    if let Some(recorder) = open() {
        recorder.journal.crossed_soft_mark(device(ordinal), mark, used);
    }
}
