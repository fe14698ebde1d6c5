//! Events.

use super::ipc_event::{self, Page};
use super::{need, put};
use crate::engine::{Clock, Event, Op, Touches, wait_points};
use crate::error::*;
use crate::state::{State, driver};
use weir_cuda::*;

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
const EXTERNAL: c_uint = 1;

impl State {
    fn event(&self, event: CUevent) -> R<u64> {
        let handle = event as u64;
        let known = self.engine.events.get(&handle).ok_or(INVALID_HANDLE)?;
        self.usable(known.ctx)?;
        Ok(handle)
    }

    /// An event now covers a stream up to this number.
    fn recorded(&mut self, event: u64, stream: u64, number: u64) {
        let clock = self.engine.streams.get(&stream).map(|st| st.clock.clone()).unwrap_or_default();
        if let Some(e) = self.engine.events.get_mut(&event) {
            e.recorded = Some((stream, number));
            e.clock = clock;
            e.time = None;
            e.captured = None;
        }
    }

    /// The stream, unknown to the job, in which a context's own events are recorded.
    fn marks_of(&mut self, ctx: u64) -> R<u64> {
        let context = self.contexts.get(&ctx).ok_or(INVALID_CONTEXT)?;
        let (known, device) = (context.marks, context.device);
        if known != 0 {
            return Ok(known);
        }
        let stream = self.fresh();
        self.engine.add_stream(stream, ctx, device, true, 0);
        if let Some(context) = self.contexts.get_mut(&ctx) {
            context.marks = stream;
        }
        Ok(stream)
    }
}

pub(crate) unsafe fn cuEventCreate(ph_event: *mut CUevent, flags: c_uint) -> R {
    need(ph_event)?;
    let mut s = driver()?;
    let ctx = s.current()?;
    let interprocess_with_timing = flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0;
    if flags & !7 != 0 || interprocess_with_timing {
        return Err(INVALID_VALUE);
    }
    let page = if flags & INTERPROCESS != 0 { Some(Page::new()?) } else { None };
    let handle = s.fresh();
    s.engine.events.insert(handle, Event { ctx, flags, page, ..Default::default() });
    // SAFETY: checked above.
    unsafe { put(ph_event, handle as CUevent) };
    Ok(())
}

pub(crate) unsafe fn cuEventDestroy_v2(h_event: CUevent) -> R {
    let mut s = driver()?;
    let handle = s.event(h_event)?;
    if let Some(page) = s.engine.events.remove(&handle).and_then(|e| e.page) {
        page.close();
    }
    Ok(())
}

pub(crate) unsafe fn cuEventDestroy(h_event: CUevent) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuEventDestroy_v2(h_event) }
}

pub(crate) unsafe fn cuEventRecordWithFlags(h_event: CUevent, h_stream: CUstream, flags: c_uint) -> R {
    let mut s = driver()?;
    let event = s.event(h_event)?;
    if flags & !EXTERNAL != 0 {
        return Err(INVALID_VALUE);
    }
    let stream = s.stream(h_stream)?;
    // Event and stream must be of one context.
    if s.engine.context_of(stream) != s.engine.events.get(&event).map(|e| e.ctx) {
        return Err(INVALID_HANDLE);
    }
    if flags & EXTERNAL != 0 {
        // Only in a capture, where it is a node instead of a mark.
        s.active_capture(stream)?.ok_or(INVALID_VALUE)?;
        return s.submit(stream, "cuEventRecord", Op::Record { event }, Touches::NONE).map(|_| ());
    }
    if s.capture_record(stream, event)? {
        return Ok(());
    }
    let number = s.submit(stream, "cuEventRecord", Op::Record { event }, Touches::NONE)?;
    s.recorded(event, stream, number);
    if let Some(page) = s.engine.events.get(&event).and_then(|e| e.page) {
        s.record_for_all(page, stream)?;
    }
    Ok(())
}

pub(crate) unsafe fn cuEventRecord(h_event: CUevent, h_stream: CUstream) -> R {
    // SAFETY: passed on as promised.
    unsafe { cuEventRecordWithFlags(h_event, h_stream, 0) }
}

pub(crate) unsafe fn cuEventQuery(h_event: CUevent) -> R {
    let mut s = driver()?;
    let event = s.event(h_event)?;
    if s.event_is_captured(event) {
        return Err(CAPTURED_EVENT);
    }
    s.refuse_unsafe_call()?;
    if let Some(page) = s.engine.events.get(&event).and_then(|e| e.page)
        && !page.complete()
    {
        s.advance();
        if !page.complete() {
            return Err(NOT_READY);
        }
    }
    // An event that was never recorded is complete.
    let Some(point) = s.engine.events.get(&event).and_then(|e| e.recorded) else { return Ok(()) };
    if !s.engine.reached(point) {
        s.advance();
    }
    if !s.engine.reached(point) {
        return Err(NOT_READY);
    }
    saw(&mut s, event);
    s.usable(s.engine.events.get(&event).map_or(0, |e| e.ctx)).map(|_| ())
}

/// The host knows that everything before an event is done.
fn saw(s: &mut State, event: u64) {
    if let Some(e) = s.engine.events.get(&event).cloned() {
        s.engine.host.join(&e.clock);
        s.engine.seen(e.recorded.as_slice());
    }
}

pub(crate) unsafe fn cuEventSynchronize(h_event: CUevent) -> R {
    let mut s = driver()?;
    let event = s.event(h_event)?;
    if s.event_is_captured(event) {
        return Err(CAPTURED_EVENT);
    }
    s.refuse_unsafe_call()?;
    let known = s.engine.events.get(&event).cloned().unwrap_or_default();
    if let Some(page) = known.page {
        s = ipc_event::synchronize(s, page);
    }
    let Some(point) = known.recorded else { return Ok(()) };
    let mut s = wait_points(s, &[point]);
    s.engine.host.join(&known.clock);
    s.pools_synchronized();
    s.usable(known.ctx).map(|_| ())
}

fn elapsed(p_milliseconds: *mut c_float, h_start: CUevent, h_end: CUevent) -> R {
    need(p_milliseconds)?;
    let mut s = driver()?;
    let (start, end) = (s.event(h_start)?, s.event(h_end)?);
    let mut times = Vec::new();
    for event in [start, end] {
        let e = s.engine.events.get(&event).cloned().unwrap_or_default();
        if e.flags & DISABLE_TIMING != 0 || e.captured.is_some() {
            return Err(INVALID_HANDLE);
        }
        let point = e.recorded.ok_or(INVALID_HANDLE)?;
        if !s.engine.reached(point) {
            s.advance();
        }
        let time = s.engine.events.get(&event).and_then(|e| e.time);
        times.push(if s.engine.reached(point) { time } else { None });
    }
    let (Some(Some(a)), Some(Some(b))) = (times.first(), times.get(1)) else { return Err(NOT_READY) };
    let nanoseconds = if b >= a { (*b - *a).as_nanos() as f64 } else { -((*a - *b).as_nanos() as f64) };
    // The resolution of the clock: two events in one stream are never at the same time.
    let milliseconds = (nanoseconds / 1e6) as f32;
    let milliseconds = if milliseconds.abs() < 0.0005 { 0.0005 } else { milliseconds };
    // SAFETY: checked above.
    unsafe { put(p_milliseconds, milliseconds) };
    Ok(())
}

pub(crate) unsafe fn cuEventElapsedTime(p_milliseconds: *mut c_float, h_start: CUevent, h_end: CUevent) -> R {
    elapsed(p_milliseconds, h_start, h_end)
}

pub(crate) unsafe fn cuEventElapsedTime_v2(p_milliseconds: *mut c_float, h_start: CUevent, h_end: CUevent) -> R {
    elapsed(p_milliseconds, h_start, h_end)
}

pub(crate) unsafe fn cuStreamWaitEvent(h_stream: CUstream, h_event: CUevent, flags: c_uint) -> R {
    let mut s = driver()?;
    let stream = s.stream(h_stream)?;
    let event = s.event(h_event)?;
    if flags & !EXTERNAL != 0 {
        return Err(INVALID_VALUE);
    }
    if flags & EXTERNAL != 0 {
        return s.capture_external_wait(stream, event);
    }
    if s.capture_wait(stream, event)? {
        return Ok(());
    }
    let known = s.engine.events.get(&event).cloned().unwrap_or_default();
    if let Some(page) = known.page {
        s.wait_for_all(page, stream)?;
    }
    if let Some(point) = known.recorded {
        s.wait_for(stream, point, &known.clock);
        s.submit(stream, "cuStreamWaitEvent", Op::Nothing, Touches::NONE)?;
    }
    Ok(())
}

/// Covers whatever the streams of a context have been given so far.
pub(crate) unsafe fn cuCtxRecordEvent(h_ctx: CUcontext, h_event: CUevent) -> R {
    let mut s = driver()?;
    let ctx = s.known(h_ctx)?;
    let event = s.event(h_event)?;
    if s.engine.events.get(&event).is_none_or(|e| e.ctx != ctx) {
        return Err(INVALID_HANDLE);
    }
    s.refuse_captures_in(ctx)?;
    let marks = s.marks_of(ctx)?;
    let of_context = s.engine.streams.iter().filter(|(h, st)| st.ctx == ctx && **h != marks);
    let clocks: Vec<_> = of_context.map(|(_, st)| st.clock.clone()).collect();
    for point in s.engine.tails(|h, st| st.ctx == ctx && h != marks) {
        s.wait_for(marks, point, &Clock::default());
    }
    if let Some(st) = s.engine.streams.get_mut(&marks) {
        for clock in &clocks {
            st.clock.join(clock);
        }
    }
    let number = s.enqueue(marks, "cuCtxRecordEvent", Op::Record { event }, Touches::NONE)?;
    s.recorded(event, marks, number);
    Ok(())
}

/// Whatever the streams of a context are given from now on waits, also that of streams made later.
pub(crate) unsafe fn cuCtxWaitEvent(h_ctx: CUcontext, h_event: CUevent) -> R {
    let mut s = driver()?;
    let ctx = s.known(h_ctx)?;
    let event = s.event(h_event)?;
    s.refuse_captured_event(event)?;
    s.refuse_captures_in(ctx)?;
    let known = s.engine.events.get(&event).cloned().unwrap_or_default();
    let Some(point) = known.recorded else { return Ok(()) };
    let streams: Vec<u64> = s.engine.streams.iter().filter(|(_, st)| st.ctx == ctx).map(|(&h, _)| h).collect();
    for stream in streams {
        s.wait_for(stream, point, &known.clock);
    }
    s.gate_context(ctx, point, &known.clock);
    Ok(())
}
