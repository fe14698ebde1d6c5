//! Streams, events and the work in them. Work is queued and runs later, in an order that the seed
//! decides among all orders that stream order, events and the legacy default stream allow. It runs
//! when somebody waits for it, a little at each query, and by itself after a while, on the device's
//! own thread. Host functions run one after the other on a thread of their own: one that waits for the
//! job keeps nothing waiting but its stream and other host functions.

use crate::config;
use crate::error::*;
use crate::kernel::Launch;
use crate::state::{CHANGED, Driver, Map, State, driver, thread};
use crate::store::{on_device, view};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};
use weir_cuda::{CUresult, CUstream};

/// More queued work than this makes the submitting thread run some of it.
const QUEUE_LIMIT: usize = 4096;
/// A clock that names more streams than this is rid of those that are gone.
const CLOCK_LIMIT: usize = 64;
/// Work that nobody waits for starts after about this long.
const LAZINESS: Duration = Duration::from_micros(700);
/// Whoever waits looks again after this long: time alone ends some work.
const MOMENT: Duration = Duration::from_millis(1);
/// How long a thread sleeps that has nothing to do.
const IDLE: Duration = Duration::from_secs(3600);

/// Told whenever host functions are queued and work completes or arrives.
static HOST_WORK: Condvar = Condvar::new();

/// Where rows of a copy begin and how far apart they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plane {
    pub(crate) base: u64,
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
}

/// A box of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent3 {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

impl Extent3 {
    pub(crate) fn line(width: u64) -> Self {
        Self { width, height: 1, depth: 1 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.width * self.height * self.depth
    }
}

/// What a copy reads.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Memory at the time the copy runs.
    Memory(Plane),
    /// Pageable host memory, staged when the call was made.
    Staged(Arc<Vec<u8>>),
}

/// A host function of the job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostCall {
    /// `cuLaunchHostFunc`.
    Function(unsafe extern "C" fn(*mut c_void)),
    /// `cuStreamAddCallback`, with the stream that it is told.
    Callback(unsafe extern "C" fn(CUstream, CUresult, *mut c_void), u64),
}

/// One thing that a device does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Only takes its place.
    Nothing,
    Copy {
        source: Source,
        target: Plane,
        extent: Extent3,
    },
    Set {
        target: Plane,
        extent: Extent3,
        value: u32,
        unit: u8,
    },
    Kernel(Arc<Launch>),
    Host {
        call: HostCall,
        data: usize,
    },
    Record {
        event: u64,
    },
    /// A stream-ordered allocation begins to live.
    Allocated {
        block: u64,
    },
    /// A stream-ordered allocation ends.
    Freed {
        block: u64,
    },
    /// Linear memory that was freed in stream order goes.
    FreedLinear {
        device: usize,
        addr: u64,
    },
    /// Memory of a graph begins or ends to live.
    GraphMemory {
        addr: u64,
        live: bool,
    },
    WriteValue {
        addr: u64,
        value: u64,
        wide: bool,
    },
    WaitValue {
        addr: u64,
        value: u64,
        wide: bool,
        flags: u32,
    },
}

/// Memory that work reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) write: bool,
    /// The allocation that was meant when the work was submitted.
    pub(crate) id: u64,
}

/// What work may touch.
#[derive(Clone, Debug)]
pub(crate) enum Touches {
    Known(Vec<Touch>),
    /// A kernel whose arguments cannot be seen: anything that its context reaches.
    Opaque,
}

impl Touches {
    pub(crate) const NONE: Self = Self::Known(Vec::new());

    fn meets(&self, addr: u64, len: u64) -> bool {
        match self {
            Self::Opaque => true,
            Self::Known(list) => list.iter().any(|t| t.addr < addr + len && addr < t.addr + t.len),
        }
    }
}

/// A point in a stream: everything up to this number.
pub(crate) type Point = (u64, u64);

/// What is known to come before: the newest number of each stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Vec<Point>);

impl Clock {
    pub(crate) fn at(&self, stream: u64) -> u64 {
        self.0.iter().find(|(s, _)| *s == stream).map_or(0, |(_, n)| *n)
    }

    pub(crate) fn add(&mut self, (stream, number): Point) {
        match self.0.iter_mut().find(|(s, _)| *s == stream) {
            Some((_, n)) => *n = number.max(*n),
            None => self.0.push((stream, number)),
        }
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.0.retain(|&(stream, _)| keep(stream));
    }

    pub(crate) fn points(self) -> Vec<Point> {
        self.0
    }

    pub(crate) fn join(&mut self, other: &Clock) {
        for &point in &other.0 {
            self.add(point);
        }
    }
}

/// Queued work.
pub(crate) struct Work {
    number: u64,
    op: Op,
    touches: Touches,
    after: Vec<Point>,
    label: &'static str,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) ctx: u64,
    pub(crate) device: usize,
    /// Does not wait for the legacy default stream.
    pub(crate) independent: bool,
    pub(crate) priority: i32,
    pub(crate) id: u64,
    queue: VecDeque<Work>,
    /// Number of the newest work submitted.
    pub(crate) submitted: u64,
    /// Number of the newest work done; work of a stream is done in order.
    pub(crate) done: u64,
    /// What its next work comes after.
    pub(crate) clock: Clock,
    /// Waits to be attached to the next work.
    pending_after: Vec<Point>,
    running: bool,
    /// The capture that it takes part in.
    pub(crate) capture: Option<u64>,
    destroyed: bool,
}

/// An event.
#[derive(Clone, Default)]
pub(crate) struct Event {
    pub(crate) ctx: u64,
    pub(crate) flags: u32,
    pub(crate) recorded: Option<Point>,
    pub(crate) clock: Clock,
    pub(crate) time: Option<Instant>,
    /// The capture in which it was last recorded, with the nodes it stands for.
    pub(crate) captured: Option<(u64, Vec<u64>)>,
}

/// Spreads a seed over all bits, so that neighbouring seeds choose differently from the start.
fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// All streams and events.
pub(crate) struct Engine {
    pub(crate) streams: Map<Stream>,
    pub(crate) events: Map<Event>,
    /// What the host has seen completed.
    pub(crate) host: Clock,
    queued: usize,
    /// Host functions among them.
    queued_host: usize,
    random: u64,
    thread_started: bool,
    waiters: usize,
    next_stream_id: u64,
}

impl Engine {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            streams: Map::default(),
            events: Map::default(),
            host: Clock::default(),
            queued: 0,
            queued_host: 0,
            random: scramble(seed) | 1,
            thread_started: false,
            waiters: 0,
            next_stream_id: 1,
        }
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    pub(crate) fn add_stream(&mut self, handle: u64, ctx: u64, device: usize, independent: bool, priority: i32) {
        let id = self.next_stream_id;
        self.next_stream_id += 1;
        let stream = Stream {
            ctx,
            device,
            independent,
            priority,
            id,
            queue: VecDeque::new(),
            submitted: 0,
            done: 0,
            clock: Clock::default(),
            pending_after: Vec::new(),
            running: false,
            capture: None,
            destroyed: false,
        };
        self.streams.insert(handle, stream);
    }

    /// The context of a stream that is not destroyed.
    pub(crate) fn context_of(&self, stream: u64) -> Option<u64> {
        self.streams.get(&stream).filter(|s| !s.destroyed).map(|s| s.ctx)
    }

    /// The stream disappears once its work is done.
    pub(crate) fn destroy_stream(&mut self, stream: u64) {
        if let Some(s) = self.streams.get_mut(&stream) {
            s.destroyed = true;
        }
        self.bury(stream);
    }

    fn bury(&mut self, stream: u64) {
        if self.streams.get(&stream).is_some_and(|s| s.destroyed && s.queue.is_empty() && !s.running) {
            self.streams.remove(&stream);
            self.forget_gone();
        }
    }

    /// A stream that is gone has done all its work: clocks need not speak of it any more.
    fn forget_gone(&mut self) {
        let Self { streams, host, .. } = self;
        host.retain(|stream| streams.contains_key(&stream));
    }

    /// Forgets the streams and events of a context whose work is done.
    pub(crate) fn drop_context(&mut self, ctx: u64) {
        self.streams.retain(|_, s| s.ctx != ctx);
        self.events.retain(|_, e| e.ctx != ctx);
        self.forget_gone();
    }

    pub(crate) fn reached(&self, (stream, number): Point) -> bool {
        self.streams.get(&stream).is_none_or(|s| s.done >= number)
    }

    pub(crate) fn idle(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_none_or(|s| {
            s.queue.is_empty() && !s.running && s.pending_after.iter().all(|&point| self.reached(point))
        })
    }

    /// The points after which everything submitted so far to the streams that `of` picks is done. Streams
    /// that have already come there count too: whoever waits then knows that they have. What a stream was made to
    /// wait for is work of its own, also where nothing follows it yet.
    pub(crate) fn tails(&self, of: impl Fn(u64, &Stream) -> bool) -> Vec<Point> {
        let picked = self.streams.iter().filter(|(h, s)| of(**h, s));
        picked
            .flat_map(|(&h, s)| {
                let own = (s.submitted > 0).then_some((h, s.submitted));
                own.into_iter().chain(s.pending_after.iter().copied())
            })
            .collect()
    }

    /// The host has seen these points completed.
    pub(crate) fn seen(&mut self, points: &[Point]) {
        for &point in points {
            self.host.add(point);
        }
    }

    /// The label of queued work that may touch a range, unless it comes before `ordered`.
    pub(crate) fn pending(&self, addr: u64, len: u64, device: Option<usize>, ordered: &Clock) -> Option<String> {
        if self.queued == 0 {
            return None;
        }
        self.streams.iter().find_map(|(&handle, stream)| {
            if device.is_some_and(|d| d != stream.device) {
                return None;
            }
            let before = ordered.at(handle);
            let work = stream.queue.iter().find(|w| w.number > before && w.touches.meets(addr, len))?;
            let how = if matches!(work.touches, Touches::Opaque) { "may touch" } else { "touches" };
            Some(format!("{} in stream {handle:#x} {how} it", work.label))
        })
    }

    /// As [`Self::pending`], for work whose touches are known exactly, whatever its device and order.
    pub(crate) fn pending_known(&self, addr: u64, len: u64) -> Option<String> {
        self.find_known(&Clock::default(), |t| t.addr < addr + len && addr < t.addr + t.len)
    }

    /// Queued work on one allocation, unless it comes before `ordered`. Its address may have been
    /// another allocation's, whose work is still queued and is not meant.
    pub(crate) fn pending_users(&self, id: u64, ordered: &Clock) -> Option<String> {
        self.find_known(ordered, |t| t.id == id)
    }

    fn find_known(&self, ordered: &Clock, meant: impl Fn(&Touch) -> bool) -> Option<String> {
        if self.queued == 0 {
            return None;
        }
        self.streams.iter().find_map(|(&handle, stream)| {
            let before = ordered.at(handle);
            let hit = |w: &&Work| matches!(&w.touches, Touches::Known(list) if list.iter().any(&meant));
            let work = stream.queue.iter().filter(|w| w.number > before).find(hit)?;
            Some(format!("{} in stream {handle:#x}", work.label))
        })
    }

    /// Takes the next work that may run now, by the seed's choice: of the device, or of the host.
    fn choose(&mut self, of_host: bool, peek: impl Fn(&Work) -> bool) -> Option<(u64, Work)> {
        let ready = |engine: &Self, work: &Work| {
            of_host == matches!(work.op, Op::Host { .. }) && work.after.iter().all(|&p| engine.reached(p)) && peek(work)
        };
        let loose = config::fault("ignore_stream_order");
        let mut candidates: Vec<(u64, usize)> = Vec::new();
        for (&handle, stream) in &self.streams {
            if stream.running {
                continue;
            }
            let depth = if loose { stream.queue.len() } else { stream.queue.len().min(1) };
            for at in 0..depth {
                if ready(self, &stream.queue[at]) {
                    candidates.push((handle, at));
                }
            }
        }
        if candidates.is_empty() {
            return None;
        }
        // A map's order is no seed's choice.
        candidates.sort_unstable();
        let pick = (self.random() % candidates.len() as u64) as usize;
        let (handle, at) = candidates[pick];
        let work = self.streams.get_mut(&handle)?.queue.remove(at)?;
        self.queued -= 1;
        self.queued_host -= usize::from(of_host);
        Some((handle, work))
    }

    fn finish(&mut self, stream: u64) {
        if let Some(s) = self.streams.get_mut(&stream) {
            s.done += 1;
            s.running = false;
        }
        self.bury(stream);
    }

    /// Wakes whoever waits for work to complete or arrive.
    fn notify(&self) {
        CHANGED.notify_all();
        if self.queued_host > 0 {
            HOST_WORK.notify_all();
        }
    }

    /// Whether queued work exists at all.
    pub(crate) fn busy(&self) -> bool {
        self.queued > 0 || self.streams.values().any(|s| s.running)
    }
}

impl State {
    /// Puts work into a stream, or into the graph that the stream captures.
    pub(crate) fn submit(&mut self, stream: u64, label: &'static str, op: Op, touches: Touches) -> R<u64> {
        if self.engine.streams.get(&stream).is_some_and(|s| s.capture.is_some()) {
            self.capture_op(stream, label, op, touches)?;
            return Ok(0);
        }
        self.refuse_implicit_capture(stream)?;
        self.enqueue(stream, label, op, touches)
    }

    /// Puts work into a stream that does not capture.
    pub(crate) fn enqueue(&mut self, stream: u64, label: &'static str, op: Op, touches: Touches) -> R<u64> {
        let (ctx, independent) = {
            let s = self.engine.streams.get(&stream).ok_or(INVALID_HANDLE)?;
            (s.ctx, s.independent)
        };
        let legacy = self.contexts.get(&ctx).map_or(0, |c| c.legacy);
        let mut after: Vec<Point> = Vec::new();
        let mut clock = Clock::default();
        if !independent && !config::fault("ignore_legacy_stream") {
            for (&handle, other) in &self.engine.streams {
                let related = other.ctx == ctx && handle != stream && !other.independent;
                if related && (stream == legacy || handle == legacy) && other.submitted > 0 {
                    clock.add((handle, other.submitted));
                    clock.join(&other.clock);
                    if other.submitted > other.done {
                        after.push((handle, other.submitted));
                    }
                }
            }
        }
        clock.join(&self.engine.host);
        let s = self.engine.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?;
        after.append(&mut s.pending_after);
        s.submitted += 1;
        let number = s.submitted;
        s.clock.join(&clock);
        s.clock.add((stream, number));
        if s.clock.len() > CLOCK_LIMIT {
            let mut clock = std::mem::take(&mut s.clock);
            clock.retain(|stream| self.engine.streams.contains_key(&stream));
            if let Some(s) = self.engine.streams.get_mut(&stream) {
                s.clock = clock;
            }
        }
        let s = self.engine.streams.get(&stream).ok_or(INVALID_HANDLE)?;
        if let (Touches::Known(list), ctx) = (&touches, ctx) {
            let clock = s.clock.clone();
            for touch in list {
                self.require_ordered(ctx, touch, &clock, label)?;
            }
        }
        let s = self.engine.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?;
        let of_host = matches!(op, Op::Host { .. });
        s.queue.push_back(Work { number, op, touches, after, label });
        self.engine.queued += 1;
        self.engine.queued_host += usize::from(of_host);
        if self.engine.queued == 1 || of_host {
            // The threads may sleep: now there is something for them.
            self.engine.notify();
        }
        self.start_thread();
        if self.engine.queued > QUEUE_LIMIT {
            for _ in 0..64 {
                self.step();
            }
        }
        Ok(number)
    }

    /// Everything that the next work of a stream comes after, as the job can know it.
    pub(crate) fn order_of(&self, stream: u64) -> Clock {
        let Some(s) = self.engine.streams.get(&stream) else { return Clock::default() };
        let mut clock = s.clock.clone();
        clock.join(&self.engine.host);
        clock.add((stream, u64::MAX));
        // The legacy stream comes after every blocking stream of its context, and they after it.
        if let Some(legacy) = self.contexts.get(&s.ctx).map(|c| c.legacy).filter(|_| !s.independent) {
            let related = self.engine.streams.iter().filter(|(_, o)| o.ctx == s.ctx && !o.independent);
            for (&handle, other) in related.filter(|(h, _)| stream == legacy || **h == legacy) {
                clock.add((handle, other.submitted));
                clock.join(&other.clock);
            }
        }
        clock
    }

    /// Makes a stream's next work wait for a point, by the driver's own decision: the job cannot
    /// rely on it, so that its clock says nothing of it.
    pub(crate) fn wait_silently(&mut self, stream: u64, point: Point) {
        if let Some(s) = self.engine.streams.get_mut(&stream)
            && point.0 != stream
        {
            s.pending_after.push(point);
        }
    }

    /// Makes a stream's next work wait for a point.
    pub(crate) fn wait_for(&mut self, stream: u64, point: Point, clock: &Clock) {
        if config::fault("ignore_events") {
            return;
        }
        if let Some(s) = self.engine.streams.get_mut(&stream) {
            s.clock.join(clock);
            s.clock.add(point);
            if point.0 != stream {
                s.pending_after.push(point);
            }
        }
    }

    /// Makes all work of streams that a context has not made yet wait for a point.
    pub(crate) fn gate_context(&mut self, ctx: u64, point: Point, clock: &Clock) {
        let Self { engine, contexts, .. } = self;
        if let Some(context) = contexts.get_mut(&ctx) {
            context.gate.join(clock);
            context.gate.add(point);
            context.gate.retain(|stream| engine.streams.contains_key(&stream));
        }
    }

    /// A new stream of a context, behind what the context waits for.
    pub(crate) fn new_stream(&mut self, ctx: u64, device: usize, independent: bool, priority: i32) -> u64 {
        let handle = self.fresh();
        self.engine.add_stream(handle, ctx, device, independent, priority);
        let gate = self.contexts.get(&ctx).map(|c| c.gate.clone()).unwrap_or_default();
        for point in gate.points() {
            self.wait_for(handle, point, &Clock::default());
        }
        handle
    }

    /// Runs one piece of queued work, if any may run on this thread.
    pub(crate) fn step(&mut self) -> bool {
        let Some((stream, work)) = self.engine.choose(false, is_ready) else { return false };
        self.perform(stream, &work);
        self.engine.finish(stream);
        if matches!(work.op, Op::Freed { .. }) {
            self.finish_destroyed_pools();
        }
        true
    }

    /// Runs a little work, as time passes between two queries.
    pub(crate) fn advance(&mut self) {
        let steps = self.engine.random() % 5;
        for _ in 0..steps {
            if !self.step() {
                break;
            }
        }
        if self.engine.busy() {
            self.engine.notify();
        }
    }

    fn perform(&mut self, stream: u64, work: &Work) {
        let Some(ctx) = self.engine.streams.get(&stream).map(|s| s.ctx) else { return };
        if self.contexts.get(&ctx).is_some_and(|c| c.sticky.is_some()) {
            return;
        }
        if let Touches::Known(list) = &work.touches {
            for touch in list {
                if let Err(why) = self.still(touch) {
                    if config::fault("unmap_pending") || config::fault("free_async_pending") {
                        return;
                    }
                    let what =
                        format!("{} in stream {stream:#x} touches {:#x}+{}: {why}", work.label, touch.addr, touch.len);
                    let _ = self.violation(ctx, &what);
                    return;
                }
                if touch.write {
                    self.written(touch.addr);
                }
            }
        }
        match &work.op {
            Op::Nothing | Op::Host { .. } | Op::WaitValue { .. } => {}
            Op::Copy { source, target, extent } => copy(source, *target, *extent),
            Op::Set { target, extent, value, unit } => set(*target, *extent, *value, *unit),
            Op::Kernel(launch) => self.run_kernel(ctx, launch, &work.touches),
            Op::Record { event } => {
                if let Some(e) = self.engine.events.get_mut(event) {
                    e.time = Some(Instant::now());
                }
            }
            Op::Allocated { block } => self.block_allocated(*block),
            Op::Freed { block } => self.block_freed(*block),
            Op::FreedLinear { device, addr } => self.give_linear(*device, *addr),
            Op::GraphMemory { addr, live } => self.graph_memory_ran(ctx, *addr, *live),
            Op::WriteValue { addr, value, wide } => {
                if has_content() {
                    // SAFETY: `still` has just found the address live, and the value's alignment was
                    // checked when it was submitted.
                    unsafe {
                        if *wide {
                            (view(*addr) as *mut u64).write_volatile(*value);
                        } else {
                            (view(*addr) as *mut u32).write_volatile(*value as u32);
                        }
                    }
                }
            }
        }
    }

    fn start_thread(&mut self) {
        if self.engine.thread_started {
            return;
        }
        self.engine.thread_started = true;
        for body in [device_thread, host_thread] {
            let started = std::thread::Builder::new().name("vgpu".into()).spawn(body);
            self.engine.thread_started &= started.is_ok();
        }
    }
}

fn has_content() -> bool {
    matches!(config::get().backing, config::Backing::Content)
}

/// Whether a wait for a value in memory, or a kernel that takes its time, is over; everything else is
/// always ready.
fn is_ready(work: &Work) -> bool {
    if let Op::Kernel(launch) = &work.op {
        return launch.over(&work.touches);
    }
    let Op::WaitValue { addr, value, wide, flags } = &work.op else { return true };
    if !has_content() {
        return true;
    }
    // SAFETY: the address was live when the wait was submitted, and freeing it with work pending on
    // it is a violation that is reported before the memory goes.
    let now = unsafe {
        let at = view(*addr);
        if *wide { (at as *const u64).read_volatile() } else { u64::from((at as *const u32).read_volatile()) }
    };
    match flags & 7 {
        0 if *wide => now.wrapping_sub(*value) as i64 >= 0,
        0 => (now as u32).wrapping_sub(*value as u32) as i32 >= 0,
        1 => now == *value,
        2 => now & value != 0,
        _ => !(now | value) != 0 && (*wide || !(now | value) as u32 != 0),
    }
}

fn copy(source: &Source, target: Plane, extent: Extent3) {
    let direct = |plane: Plane| has_content() || !on_device(plane.base);
    let mut staged = 0usize;
    for z in 0..extent.depth {
        for y in 0..extent.height {
            let to = view(target.base + z * target.slice + y * target.pitch);
            if !direct(target) {
                continue;
            }
            let len = extent.width as usize;
            // SAFETY: both ranges were found live by `still` a moment ago, under the lock that every
            // free takes; host memory is the job's own promise, as with a real driver.
            unsafe {
                match source {
                    Source::Memory(plane) if direct(*plane) => {
                        let from = view(plane.base + z * plane.slice + y * plane.pitch);
                        std::ptr::copy(from as *const u8, to as *mut u8, len);
                    }
                    Source::Memory(_) => std::ptr::write_bytes(to as *mut u8, 0, len),
                    Source::Staged(bytes) => {
                        std::ptr::copy_nonoverlapping(bytes[staged..staged + len].as_ptr(), to as *mut u8, len);
                        staged += len;
                    }
                }
            }
        }
    }
}

fn set(target: Plane, extent: Extent3, value: u32, unit: u8) {
    if !has_content() && on_device(target.base) {
        return;
    }
    for z in 0..extent.depth {
        for y in 0..extent.height {
            let row = view(target.base + z * target.slice + y * target.pitch);
            // SAFETY: as in `copy`; the alignment of wider units was checked at submission.
            unsafe {
                match unit {
                    1 => std::ptr::write_bytes(row as *mut u8, value as u8, extent.width as usize),
                    2 => std::slice::from_raw_parts_mut(row as *mut u16, extent.width as usize / 2).fill(value as u16),
                    _ => std::slice::from_raw_parts_mut(row as *mut u32, extent.width as usize / 4).fill(value),
                }
            }
        }
    }
}

/// Waits until `over` holds: runs work on this thread, and leaves host functions to the device's.
pub(crate) fn wait_until(mut state: Driver, over: impl Fn(&State) -> bool) -> Driver {
    state.engine.waiters += 1;
    while !over(&state) {
        if !state.step() {
            state.engine.notify();
            state = state.wait(&CHANGED, MOMENT);
        }
    }
    state.engine.waiters -= 1;
    state.engine.notify();
    state
}

/// Waits for the points, and remembers that the host has seen them.
pub(crate) fn wait_points(state: Driver, points: &[Point]) -> Driver {
    let mut state = wait_until(state, |s| points.iter().all(|&p| s.engine.reached(p)));
    state.engine.seen(points);
    state
}

/// Signals belong to the job's threads.
fn block_signals() {
    // SAFETY: blocks signals for this thread only.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// The device's own thread: runs what nobody waits for.
fn device_thread() {
    block_signals();
    let Ok(mut state) = driver() else { return };
    loop {
        if !state.engine.busy() {
            state = state.wait(&CHANGED, IDLE);
            continue;
        }
        if state.engine.waiters == 0 {
            let lazy = state.engine.random() % 8;
            drop(state);
            std::thread::sleep(LAZINESS * lazy as u32 / 4);
            match driver() {
                Ok(again) => state = again,
                Err(_) => return,
            }
        }
        let burst = 1 + state.engine.random() % 64;
        let mut ran = false;
        for _ in 0..burst {
            if !state.step() {
                break;
            }
            ran = true;
        }
        state.engine.notify();
        if !ran {
            state = state.wait(&CHANGED, MOMENT);
        }
    }
}

/// Runs the host functions, outside the lock.
fn host_thread() {
    block_signals();
    let Ok(mut state) = driver() else { return };
    loop {
        let Some((stream, work)) = state.engine.choose(true, is_ready) else {
            let idle = state.engine.queued_host == 0;
            state = state.wait(&HOST_WORK, if idle { IDLE } else { MOMENT });
            continue;
        };
        if let Op::Host { call, data } = work.op {
            let result = host_result(&state, stream);
            if let Some(s) = state.engine.streams.get_mut(&stream) {
                s.running = true;
            }
            drop(state);
            call_host(call, data, result);
            match driver() {
                Ok(again) => state = again,
                Err(_) => return,
            }
        }
        state.engine.finish(stream);
        state.engine.notify();
    }
}

fn host_result(state: &State, stream: u64) -> CUresult {
    let ctx = state.engine.streams.get(&stream).map_or(0, |s| s.ctx);
    state.contexts.get(&ctx).and_then(|c| c.sticky).unwrap_or(CUresult::CUDA_SUCCESS)
}

fn call_host(call: HostCall, data: usize, result: CUresult) {
    thread::set_in_host_function(true);
    let data = data as *mut c_void;
    // SAFETY: the job gave the function and its argument for exactly this call.
    unsafe {
        match call {
            HostCall::Function(function) if result == CUresult::CUDA_SUCCESS => function(data),
            HostCall::Function(_) => {}
            HostCall::Callback(function, stream) => function(stream as CUstream, result, data),
        }
    }
    thread::set_in_host_function(false);
}
