//! Rules of events: what they cover, waiting for them, the time between them.

use crate::prelude::*;

const DISABLE_TIMING: u32 = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
const INTERPROCESS: u32 = CUevent_flags::CU_EVENT_INTERPROCESS.0;

fn elapsed(start: CUevent, end: CUevent) -> Result<f32, CUresult> {
    let mut milliseconds = -1.0;
    match cuEventElapsedTime(&raw mut milliseconds, start, end) {
        CUresult::CUDA_SUCCESS => Ok(milliseconds),
        code => Err(code),
    }
}

pub(super) const RULES: &[Rule] = &[
    rule("event.flags_unknown", "cuEventCreate", "Unknown flags are an invalid value.", || {
        context();
        let mut event = null_mut();
        refused(cuEventCreate(&raw mut event, 0x40), INVALID_VALUE);
    }),
    rule("event.needs_result", "cuEventCreate", "A NULL place for the event is an invalid value.", || {
        context();
        refused(cuEventCreate(null_mut(), 0), INVALID_VALUE);
    }),
    rule(
        "event.interprocess_without_timing",
        "cuEventCreate",
        "An event between processes must be created without timing.",
        || {
            context();
            let mut event = null_mut();
            refused(cuEventCreate(&raw mut event, INTERPROCESS), INVALID_VALUE);
        },
    ),
    rule("event.not_recorded_is_complete", "cuEventQuery", "An event that was never recorded is complete.", || {
        context();
        let event = event();
        ok(cuEventQuery(event));
        ok(cuEventSynchronize(event));
    }),
    rule(
        "event.not_recorded_no_wait",
        "cuStreamWaitEvent",
        "Waiting for an event that was never recorded is no wait.",
        || {
            context();
            let stream = stream();
            ok(cuStreamWaitEvent(stream, event(), 0));
            sync(stream);
        },
    ),
    rule("event.busy", "cuEventQuery", "An event is not ready before the work it covers is done.", || {
        context();
        let (stream, event) = (stream(), event());
        let gate = Gate::close(stream);
        ok(cuEventRecord(event, stream));
        refused(cuEventQuery(event), NOT_READY);
        gate.open();
        ok(cuEventSynchronize(event));
        ok(cuEventQuery(event));
    }),
    rule("event.covers_only_earlier_work", "cuEventRecord", "Work given after the record is not covered.", || {
        context();
        let (stream, event) = (stream(), event());
        ok(cuEventRecord(event, stream));
        let gate = Gate::close(stream);
        ok(cuEventSynchronize(event));
        refused(cuStreamQuery(stream), NOT_READY);
        gate.open();
        sync(stream);
    }),
    rule("event.recorded_again", "cuEventRecord", "Recording again replaces what was covered.", || {
        context();
        let (one, other, event) = (stream(), stream(), event());
        let gate = Gate::close(one);
        ok(cuEventRecord(event, one));
        refused(cuEventQuery(event), NOT_READY);
        ok(cuEventRecord(event, other));
        ok(cuEventSynchronize(event));
        gate.open();
        sync(one);
    }),
    rule(
        "event.orders_streams",
        "cuStreamWaitEvent",
        "A stream that waits for an event runs after the work the event covers.",
        || {
            context();
            let (one, other, event) = (stream(), stream(), event());
            let k = Kernels::load();
            let (from, to) = (alloc(4096), alloc(4096));
            put(from, &[0; 4096]);
            let gate = Gate::close(one);
            k.fill(one, from, 1024, 21);
            ok(cuEventRecord(event, one));
            ok(cuStreamWaitEvent(other, event, 0));
            k.copy(other, to, from, 1024);
            refused(cuStreamQuery(other), NOT_READY);
            gate.open();
            sync(other);
            assert!(all_words(to, 1024, 21));
        },
    ),
    rule("event.orders_chain", "cuStreamWaitEvent", "Order by events is transitive over many streams.", || {
        context();
        let k = Kernels::load();
        let streams: Vec<_> = (0..5).map(|_| stream()).collect();
        let ptrs: Vec<_> = (0..6).map(|_| alloc(4096)).collect();
        put(ptrs[0], &[0; 4096]);
        let gate = Gate::close(streams[0]);
        k.spin(streams[0], 5);
        k.fill(streams[0], ptrs[0], 1024, 1);
        for i in 0..5 {
            k.copy(streams[i], ptrs[i + 1], ptrs[i], 1024);
            if i < 4 {
                let event = event_with(DISABLE_TIMING);
                ok(cuEventRecord(event, streams[i]));
                ok(cuStreamWaitEvent(streams[i + 1], event, 0));
            }
        }
        gate.open();
        sync(streams[4]);
        assert!(all_words(ptrs[5], 1024, 1));
    }),
    rule(
        "event.wait_means_record_of_then",
        "cuStreamWaitEvent",
        "A wait means the record at the time of the call, whatever is recorded later.",
        || {
            context();
            let (one, two, waiting, event) = (stream(), stream(), stream(), event());
            ok(cuEventRecord(event, one));
            ok(cuStreamWaitEvent(waiting, event, 0));
            let gate = Gate::close(two);
            ok(cuEventRecord(event, two));
            sync(waiting);
            refused(cuEventQuery(event), NOT_READY);
            gate.open();
            sync(two);
        },
    ),
    rule(
        "event.destroyed_while_pending",
        "cuEventDestroy",
        "A pending event may be destroyed: waits for it keep their meaning.",
        || {
            context();
            let (one, other, event) = (stream(), stream(), event());
            let ptr = alloc(4096);
            put(ptr, &[0; 4096]);
            let gate = Gate::close(one);
            ok(cuMemsetD32Async(ptr, 1, 1024, one));
            ok(cuEventRecord(event, one));
            ok(cuStreamWaitEvent(other, event, 0));
            ok(cuEventDestroy_v2(event));
            ok(cuMemsetD32Async(ptr, 2, 1024, other));
            gate.open();
            sync(other);
            assert!(all_words(ptr, 1024, 2));
        },
    ),
    rule("event.wait_null", "cuStreamWaitEvent", "There is no waiting for NULL.", || {
        context();
        must_fail(cuStreamWaitEvent(stream(), null_mut(), 0));
    }),
    rule("event.wait_flags", "cuStreamWaitEvent", "Unknown flags are refused.", || {
        context();
        must_fail(cuStreamWaitEvent(stream(), event(), 0x80));
    }),
    rule(
        "event.of_another_context",
        "cuEventRecord",
        "Event and stream of two contexts are an invalid handle.",
        || {
            context();
            let mine = event();
            let created = created_context();
            let foreign = stream();
            refused(cuEventRecord(mine, foreign), INVALID_HANDLE);
            ok(cuCtxDestroy_v2(created));
        },
    ),
    rule(
        "event.wait_across_contexts",
        "cuStreamWaitEvent",
        "A stream may wait for an event of another context.",
        || {
            context();
            let (one, mine) = (stream(), event());
            let gate = Gate::close(one);
            ok(cuEventRecord(mine, one));
            let created = created_context();
            let foreign = stream();
            ok(cuStreamWaitEvent(foreign, mine, 0));
            refused(cuStreamQuery(foreign), NOT_READY);
            gate.open();
            sync(foreign);
            ok(cuCtxDestroy_v2(created));
        },
    ),
    rule(
        "event.elapsed_measures",
        "cuEventElapsedTime",
        "The time between two events is at least that of the work between them.",
        || {
            context();
            let (stream, start, end) = (stream(), event(), event());
            let k = Kernels::load();
            ok(cuEventRecord(start, stream));
            k.spin(stream, 20);
            ok(cuEventRecord(end, stream));
            ok(cuEventSynchronize(end));
            let time = elapsed(start, end).unwrap_or_else(|c| panic!("{}", crate::rule::name(c)));
            assert!((19.0..5000.0).contains(&time), "{time} ms for 20 ms of work");
        },
    ),
    rule(
        "event.elapsed_not_recorded",
        "cuEventElapsedTime",
        "Without a record there is no time: an invalid handle.",
        || {
            context();
            let (stream, start, end) = (stream(), event(), event());
            assert_eq!(elapsed(start, end), Err(INVALID_HANDLE));
            ok(cuEventRecord(start, stream));
            sync(stream);
            assert_eq!(elapsed(start, end), Err(INVALID_HANDLE));
        },
    ),
    rule(
        "event.elapsed_pending",
        "cuEventElapsedTime",
        "Before both events are complete the time is not ready.",
        || {
            context();
            let (stream, start, end) = (stream(), event(), event());
            ok(cuEventRecord(start, stream));
            let gate = Gate::close(stream);
            ok(cuEventRecord(end, stream));
            assert_eq!(elapsed(start, end), Err(NOT_READY));
            gate.open();
            sync(stream);
            assert!(elapsed(start, end).is_ok_and(|t| t >= 0.0));
        },
    ),
    rule(
        "event.elapsed_without_timing",
        "cuEventElapsedTime",
        "Events without timing have no time: an invalid handle.",
        || {
            context();
            let (stream, start, end) = (stream(), event(), event_with(DISABLE_TIMING));
            ok(cuEventRecord(start, stream));
            ok(cuEventRecord(end, stream));
            sync(stream);
            assert_eq!(elapsed(start, end), Err(INVALID_HANDLE));
        },
    ),
    rule("event.recorded_with_flags", "cuEventRecordWithFlags", "Recording with default flags is recording.", || {
        context();
        let (stream, event) = (stream(), event());
        let gate = Gate::close(stream);
        ok(cuEventRecordWithFlags(event, stream, 0));
        refused(cuEventQuery(event), NOT_READY);
        gate.open();
        ok(cuEventSynchronize(event));
    }),
    rule("event.destroyed", "cuEventQuery", "A destroyed event is an invalid handle.", || {
        context();
        let event = event();
        ok(cuEventDestroy_v2(event));
        refused_by_any(cuEventQuery(event), &[INVALID_HANDLE, CONTEXT_IS_DESTROYED]);
    })
    .virtual_only(),
    rule(
        "event.waiting_is_work",
        "cuStreamWaitEvent",
        "A wait is work of its stream: until the event is there the stream, its context and an event of the context are not through.",
        || {
            let ctx = context();
            let (busy, idle, event, all) = (stream(), stream(), event(), event());
            let gate = Gate::close(busy);
            ok(cuEventRecord(event, busy));
            ok(cuStreamWaitEvent(idle, event, 0));
            refused(cuStreamQuery(idle), NOT_READY);
            ok(cuCtxRecordEvent(ctx, all));
            refused(cuEventQuery(all), NOT_READY);
            gate.open();
            sync(idle);
            ok(cuEventQuery(event));
            ok(cuStreamQuery(idle));
        },
    ),
    rule(
        "event.context_covers_every_stream",
        "cuCtxRecordEvent",
        "An event of a context covers what all its streams were given before, and nothing later.",
        || {
            let ctx = context();
            let (one, other, event) = (stream(), stream_with(0), event());
            let gate = Gate::close(one);
            ok(cuCtxRecordEvent(ctx, event));
            refused(cuEventQuery(event), NOT_READY);
            gate.open();
            ok(cuEventSynchronize(event));
            let gate = Gate::close(other);
            ok(cuEventQuery(event));
            ok(cuCtxRecordEvent(ctx, event));
            refused(cuEventQuery(event), NOT_READY);
            gate.open();
            ok(cuEventSynchronize(event));
        },
    ),
    rule(
        "event.context_of_another",
        "cuCtxRecordEvent",
        "The event and the context that records it must belong together.",
        || {
            let (ctx, event) = (context(), event());
            let other = created_context();
            refused(cuCtxRecordEvent(other, event), INVALID_HANDLE);
            refused(cuCtxRecordEvent(null_mut(), event), INVALID_CONTEXT);
            ok(cuCtxRecordEvent(ctx, event));
            ok(cuCtxDestroy_v2(other));
        },
    ),
    rule(
        "event.context_waits",
        "cuCtxWaitEvent",
        "All later work of a context waits for the event, also in streams made later; earlier work does not.",
        || {
            let ctx = context();
            let (busy, known, early, event, through) = (stream(), stream(), stream(), event(), event());
            let k = Kernels::load();
            let flags = [(); 3].map(|()| pinned_as::<u32>(4));
            // SAFETY: pinned words of our own, which no work touches yet.
            flags.iter().for_each(|flag| unsafe { flag.write(0) });
            k.start(early, flags[0]);
            ok(cuEventRecord(through, early));
            let gate = Gate::close(busy);
            ok(cuEventRecord(event, busy));
            ok(cuCtxWaitEvent(ctx, event));
            let made = stream();
            k.start(known, flags[1]);
            k.start(made, flags[2]);
            ok(cuEventSynchronize(through));
            refused(cuStreamQuery(known), NOT_READY);
            refused(cuStreamQuery(made), NOT_READY);
            gate.open();
            sync(known);
            sync(made);
            // SAFETY: as above; the work is done.
            assert!(flags.iter().all(|flag| unsafe { flag.read_volatile() } == 1));
        },
    ),
    rule(
        "event.context_waits_for_another_device",
        "cuCtxWaitEvent",
        "A context may wait for an event of another context and device.",
        || {
            let one = context_on(1);
            let (busy, event) = (stream(), event());
            let gate = Gate::close(busy);
            ok(cuEventRecord(event, busy));
            let zero = context_on(0);
            ok(cuCtxWaitEvent(zero, event));
            let waiting = stream();
            count_up_later(waiting);
            refused(cuStreamQuery(waiting), NOT_READY);
            gate.open();
            sync(waiting);
            ok(cuCtxSetCurrent(one));
            ok(cuEventQuery(event));
        },
    )
    .devices(2),
    rule(
        "event.context_breaks_captures",
        "cuCtxRecordEvent",
        "An event of a context cannot be recorded or waited for while one of its streams captures: the capture is lost.",
        || {
            let ctx = context();
            let (event, capturing) = (event(), stream());
            ok(cuEventRecord(event, DEFAULT));
            for wait in [false, true] {
                let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
                ok(cuStreamBeginCapture_v2(capturing, mode));
                let call = if wait { cuCtxWaitEvent(ctx, event) } else { cuCtxRecordEvent(ctx, event) };
                refused(call, STREAM_CAPTURE_UNSUPPORTED);
                let mut graph = null_mut();
                refused(cuStreamEndCapture(capturing, &raw mut graph), STREAM_CAPTURE_INVALIDATED);
            }
        },
    ),
];
