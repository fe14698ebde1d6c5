//! Streams, events and the work in them. Work is queued and runs later, in an order that the seed
//! decides among all orders that stream order, events and the legacy default stream allow. It runs
//! when somebody waits for it, a little at each query, and by itself after a while, on the device's
//! own thread. Host functions run one after the other on a thread of their own: one that waits for the
//! job keeps nothing waiting but its stream and other host functions.

mod clock;
mod op;
mod run;
mod submit;
mod threads;

pub(crate) use clock::{Clock, Point};
pub(crate) use op::{Extent3, HostCall, Op, Plane, Source, Touch, Touches};
#[cfg(test)]
pub(crate) use threads::wait_until;
pub(crate) use threads::{wait_for_work, wait_points};

use crate::config;
use crate::state::{CHANGED, Map};
use std::collections::VecDeque;
use std::sync::Condvar;
use std::time::Instant;

/// More queued work than this makes the submitting thread run some of it.
const QUEUE_LIMIT: usize = 4096;
/// A clock that names more streams than this is rid of those that are gone.
const CLOCK_LIMIT: usize = 64;
/// Notified whenever host functions are queued and work completes or arrives.
static HOST_WORK: Condvar = Condvar::new();

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
    /// What processes share of it.
    pub(crate) page: Option<crate::api::ipc_event::Page>,
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
