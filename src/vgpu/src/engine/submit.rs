//! Work comes in: where it is queued, and what it comes after.

use super::{CLOCK_LIMIT, Clock, Op, Point, QUEUE_LIMIT, Touches, Work};
use crate::config;
use crate::error::*;
use crate::state::State;

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
}
