//! Rules of capturing the work of streams into graphs.

use crate::prelude::*;
use CUstreamCaptureMode as Mode;
use CUstreamCaptureStatus as Status;
use std::sync::atomic::Ordering;

const GLOBAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: Mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;

pub(super) fn begin(stream: CUstream, mode: Mode) {
    ok(cuStreamBeginCapture_v2(stream, mode));
}

pub(super) fn end(stream: CUstream) -> CUgraph {
    let mut graph = null_mut();
    ok(cuStreamEndCapture(stream, &raw mut graph));
    assert!(!graph.is_null());
    graph
}

fn end_refused(stream: CUstream, with: CUresult) {
    let mut graph = 1 as CUgraph;
    refused(cuStreamEndCapture(stream, &raw mut graph), with);
    assert!(graph.is_null(), "an invalid capture must give no graph");
}

fn status(stream: CUstream) -> Status {
    let mut status = CUstreamCaptureStatus_enum(77);
    ok(cuStreamIsCapturing(stream, &raw mut status));
    status
}

pub(super) fn nodes(graph: CUgraph) -> usize {
    let mut count = 0;
    ok(cuGraphGetNodes(graph, null_mut(), &raw mut count));
    count
}

fn exchange(mode: Mode) -> Mode {
    let mut mode = mode;
    ok(cuThreadExchangeStreamCaptureMode(&raw mut mode));
    mode
}

/// An unsafe call under a capture must be refused, make it invalid and leave the stream usable after.
fn invalidates(call: fn(CUstream) -> CUresult) {
    context();
    let stream = stream();
    let ptr = alloc(4096);
    begin(stream, GLOBAL);
    ok(cuMemsetD32Async(ptr, 1, 1024, stream));
    refused(call(stream), STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    refused(cuMemsetD32Async(ptr, 2, 1024, stream), STREAM_CAPTURE_INVALIDATED);
    end_refused(stream, STREAM_CAPTURE_INVALIDATED);
    assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_NONE);
    ok(cuMemsetD32Async(ptr, 3, 1024, stream));
    sync(stream);
    assert!(all_words(ptr, 1024, 3));
}

fn alloc_code() -> CUresult {
    let mut ptr = 0;
    cuMemAlloc_v2(&raw mut ptr, 4096)
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "capture.joined_stream_destroyed",
        "cuStreamDestroy",
        "A stream that was joined back into a capture may be destroyed while the capture goes on.",
        || {
            context();
            let (origin, fork, ptr) = (stream(), stream(), alloc(4096));
            let (forked, joined) = (event(), event());
            begin(origin, GLOBAL);
            ok(cuEventRecord(forked, origin));
            ok(cuStreamWaitEvent(fork, forked, 0));
            ok(cuMemsetD32Async(ptr, 1, 1024, fork));
            ok(cuEventRecord(joined, fork));
            ok(cuStreamWaitEvent(origin, joined, 0));
            ok(cuStreamDestroy_v2(fork));
            ok(cuMemsetD32Async(ptr, 2, 1024, origin));
            assert_eq!(nodes(end(origin)), 2);
        },
    ),
    rule("capture.records_instead_of_running", "cuStreamBeginCapture", "Captured work does not run; it becomes a graph that can be launched.", || {
        context();
        let stream = stream();
        let ptr = alloc(4096);
        put(ptr, &[0; 4096]);
        begin(stream, GLOBAL);
        ok(cuMemsetD32Async(ptr, 5, 1024, stream));
        let graph = end(stream);
        sync(stream);
        assert!(all_words(ptr, 1024, 0), "ran under capture");
        assert_eq!(nodes(graph), 1);
        let mut exec = null_mut();
        ok(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        ok(cuGraphLaunch(exec, stream));
        sync(stream);
        assert!(all_words(ptr, 1024, 5));
    }),
    rule("capture.status", "cuStreamIsCapturing", "A stream reports whether it is capturing.", || {
        context();
        let stream = stream();
        assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_NONE);
        begin(stream, GLOBAL);
        assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        end(stream);
        assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_NONE);
    }),
    rule("capture.empty", "cuStreamEndCapture", "A capture of nothing is an empty graph.", || {
        context();
        let stream = stream();
        begin(stream, GLOBAL);
        assert_eq!(nodes(end(stream)), 0);
    }),
    rule("capture.not_on_legacy", "cuStreamBeginCapture", "The legacy stream cannot be captured.", || {
        context();
        refused_by_any(cuStreamBeginCapture_v2(LEGACY, GLOBAL), &[STREAM_CAPTURE_UNSUPPORTED, INVALID_VALUE]);
        refused_by_any(cuStreamBeginCapture_v2(DEFAULT, GLOBAL), &[STREAM_CAPTURE_UNSUPPORTED, INVALID_VALUE]);
    }),
    rule("capture.begun_once", "cuStreamBeginCapture", "A capturing stream cannot begin another capture.", || {
        context();
        let stream = stream();
        begin(stream, GLOBAL);
        must_fail(cuStreamBeginCapture_v2(stream, GLOBAL));
        let mut graph = null_mut();
        // Whether the refused call has made the capture invalid is not documented.
        let _ = cuStreamEndCapture(stream, &raw mut graph);
        assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_NONE);
    }),
    rule("capture.mode_unknown", "cuStreamBeginCapture", "A mode that does not exist is an invalid value.", || {
        context();
        let stream = stream();
        refused(cuStreamBeginCapture_v2(stream, CUstreamCaptureMode_enum(9)), INVALID_VALUE);
        assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_NONE);
    }),
    rule("capture.end_without_begin", "cuStreamEndCapture", "A capture that was not begun cannot be ended.", || {
        context();
        let mut graph = null_mut();
        must_fail(cuStreamEndCapture(stream(), &raw mut graph));
    }),
    rule("capture.synchronize_refused", "cuStreamSynchronize", "Synchronising a capturing stream is refused and makes the capture invalid.", || {
        invalidates(cuStreamSynchronize);
    }),
    rule("capture.query_refused", "cuStreamQuery", "Querying a capturing stream is refused and makes the capture invalid.", || {
        invalidates(cuStreamQuery);
    }),
    rule("capture.context_synchronize_refused", "cuCtxSynchronize", "Synchronising the context of a capturing stream is refused and makes the capture invalid.", || {
        invalidates(|_| cuCtxSynchronize());
    }),
    rule("capture.alloc_refused", "cuMemAlloc", "Allocating under a global capture is refused and makes the capture invalid.", || {
        invalidates(|_| alloc_code());
    }),
    rule("capture.free_refused", "cuMemFree", "Freeing under a global capture is refused and makes the capture invalid.", || {
        context();
        let stream = stream();
        let ptr = alloc(4096);
        begin(stream, GLOBAL);
        refused(cuMemFree_v2(ptr), STREAM_CAPTURE_UNSUPPORTED);
        end_refused(stream, STREAM_CAPTURE_INVALIDATED);
        free(ptr);
    }),
    rule("capture.copy_refused", "cuMemcpyHtoD", "A synchronous copy under a global capture is refused and makes the capture invalid.", || {
        context();
        let stream = stream();
        let ptr = alloc(4096);
        begin(stream, GLOBAL);
        let bytes = [1u8; 16];
        refused_by_any(
            cuMemcpyHtoD_v2(ptr, bytes.as_ptr().cast(), 16),
            &[STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_IMPLICIT],
        );
        end_refused(stream, STREAM_CAPTURE_INVALIDATED);
        free(ptr);
    }),
    rule("capture.callback_refused", "cuStreamAddCallback", "Callbacks cannot be captured.", || {
        unsafe extern "C" fn nothing(_: CUstream, _: CUresult, _: *mut c_void) {}
        context();
        let stream = stream();
        begin(stream, GLOBAL);
        must_fail(cuStreamAddCallback(stream, Some(nothing), null_mut(), 0));
        let mut graph = null_mut();
        // The stream must leave the capture, with or without a graph.
        let _ = cuStreamEndCapture(stream, &raw mut graph);
        assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_NONE);
    }),
    rule("capture.host_function_captured", "cuLaunchHostFunc", "Host functions are captured and run at launch.", || {
        context();
        let stream = stream();
        begin(stream, GLOBAL);
        let counter = count_up_later(stream);
        let graph = end(stream);
        assert_eq!(counter.load(Ordering::SeqCst), 0, "ran under capture");
        let mut exec = null_mut();
        ok(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        for _ in 0..3 {
            ok(cuGraphLaunch(exec, stream));
        }
        sync(stream);
        assert_eq!(counter.load(Ordering::SeqCst), 3);
    }),
    rule("capture.relaxed_allows", "cuStreamBeginCapture", "A relaxed capture leaves unsafe calls alone.", || {
        context();
        let stream = stream();
        begin(stream, RELAXED);
        let ptr = alloc(4096);
        free(ptr);
        assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        end(stream);
    })
    .alone(),
    rule("capture.global_binds_other_threads", "cuThreadExchangeStreamCaptureMode", "A global capture forbids unsafe calls to every thread.", || {
        let ctx = Sent(context());
        let stream = stream();
        begin(stream, GLOBAL);
        in_thread(|| {
            ok(cuCtxSetCurrent(ctx.get()));
            refused(alloc_code(), STREAM_CAPTURE_UNSUPPORTED);
        });
        end_refused(stream, STREAM_CAPTURE_INVALIDATED);
    })
    .alone(),
    rule("capture.thread_local_binds_its_thread", "cuThreadExchangeStreamCaptureMode", "A thread-local capture forbids unsafe calls to its own thread only.", || {
        let ctx = Sent(context());
        let stream = stream();
        begin(stream, THREAD_LOCAL);
        in_thread(|| {
            ok(cuCtxSetCurrent(ctx.get()));
            free(alloc(4096));
        });
        assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        refused(alloc_code(), STREAM_CAPTURE_UNSUPPORTED);
        end_refused(stream, STREAM_CAPTURE_INVALIDATED);
    })
    .alone(),
    rule("capture.mode_exchanged", "cuThreadExchangeStreamCaptureMode", "A thread starts in global mode, and each exchange gives the mode before.", || {
        init();
        assert_eq!(exchange(RELAXED), GLOBAL);
        assert_eq!(exchange(THREAD_LOCAL), RELAXED);
        assert_eq!(exchange(GLOBAL), THREAD_LOCAL);
    }),
    rule("capture.mode_per_thread", "cuThreadExchangeStreamCaptureMode", "Every thread has a mode of its own.", || {
        init();
        exchange(RELAXED);
        in_thread(|| assert_eq!(exchange(GLOBAL), GLOBAL));
        assert_eq!(exchange(GLOBAL), RELAXED);
    }),
    rule("capture.mode_exchange_unknown", "cuThreadExchangeStreamCaptureMode", "A mode that does not exist is an invalid value.", || {
        init();
        let mut bad = CUstreamCaptureMode_enum(9);
        refused(cuThreadExchangeStreamCaptureMode(&raw mut bad), INVALID_VALUE);
        refused(cuThreadExchangeStreamCaptureMode(null_mut()), INVALID_VALUE);
    }),
    rule("capture.relaxed_thread_may", "cuThreadExchangeStreamCaptureMode", "A thread in relaxed mode may make unsafe calls under its own global capture.", || {
        context();
        let stream = stream();
        begin(stream, GLOBAL);
        let before = exchange(RELAXED);
        free(alloc(4096));
        exchange(before);
        assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        end(stream);
    })
    .alone(),
    rule("capture.ended_by_its_thread", "cuStreamEndCapture", "A capture that is not relaxed is ended by the thread that began it.", || {
        let ctx = Sent(context());
        let stream = Sent(stream());
        begin(stream.get(), THREAD_LOCAL);
        in_thread(|| {
            ok(cuCtxSetCurrent(ctx.get()));
            let mut graph = null_mut();
            refused(cuStreamEndCapture(stream.get(), &raw mut graph), STREAM_CAPTURE_WRONG_THREAD);
        });
        begin_again_works(stream.get());
    })
    .alone(),
    rule("capture.relaxed_ended_by_any", "cuStreamEndCapture", "A relaxed capture may be ended by any thread.", || {
        let ctx = Sent(context());
        let stream = Sent(stream());
        begin(stream.get(), RELAXED);
        in_thread(|| {
            ok(cuCtxSetCurrent(ctx.get()));
            end(stream.get());
        });
    })
    .alone(),
    rule("capture.fork_and_join", "cuStreamWaitEvent", "A stream that waits for a captured event joins the capture.", || {
        context();
        let (one, other, fork, join) = (stream(), stream(), event(), event());
        let (a, b) = (alloc(4096), alloc(4096));
        begin(one, GLOBAL);
        ok(cuMemsetD32Async(a, 1, 1024, one));
        ok(cuEventRecord(fork, one));
        ok(cuStreamWaitEvent(other, fork, 0));
        assert_eq!(status(other), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        ok(cuMemcpyDtoDAsync_v2(b, a, 4096, other));
        ok(cuEventRecord(join, other));
        ok(cuStreamWaitEvent(one, join, 0));
        ok(cuMemsetD32Async(a, 2, 1024, one));
        let graph = end(one);
        assert_eq!(status(other), Status::CU_STREAM_CAPTURE_STATUS_NONE);
        assert_eq!(nodes(graph), 3);
        let mut exec = null_mut();
        ok(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        ok(cuGraphLaunch(exec, one));
        sync(one);
        assert!(all_words(b, 1024, 1) && all_words(a, 1024, 2));
    }),
    rule("capture.unjoined", "cuStreamEndCapture", "A capture with a stream that did not come back is refused as unjoined.", || {
        context();
        let (one, other, fork) = (stream(), stream(), event());
        let ptr = alloc(4096);
        begin(one, GLOBAL);
        ok(cuEventRecord(fork, one));
        ok(cuStreamWaitEvent(other, fork, 0));
        ok(cuMemsetD32Async(ptr, 1, 1024, other));
        end_refused(one, STREAM_CAPTURE_UNJOINED);
    }),
    rule("capture.ended_where_begun", "cuStreamEndCapture", "A capture is ended on the stream where it was begun.", || {
        context();
        let (one, other, fork) = (stream(), stream(), event());
        begin(one, GLOBAL);
        ok(cuEventRecord(fork, one));
        ok(cuStreamWaitEvent(other, fork, 0));
        let mut graph = null_mut();
        refused(cuStreamEndCapture(other, &raw mut graph), STREAM_CAPTURE_UNMATCHED);
        let _ = cuStreamEndCapture(one, &raw mut graph);
    })
    .alone(),
    rule("capture.merged", "cuStreamWaitEvent", "Two captures cannot be merged.", || {
        context();
        let (one, other, event) = (stream(), stream(), event());
        begin(one, GLOBAL);
        begin(other, GLOBAL);
        ok(cuEventRecord(event, one));
        refused(cuStreamWaitEvent(other, event, 0), STREAM_CAPTURE_MERGE);
    })
    .alone(),
    rule("capture.outside_event", "cuStreamWaitEvent", "A captured stream cannot wait for work outside the capture.", || {
        context();
        let (inside, outside, event) = (stream(), stream(), event());
        ok(cuEventRecord(event, outside));
        begin(inside, GLOBAL);
        refused(cuStreamWaitEvent(inside, event, 0), STREAM_CAPTURE_ISOLATION);
        end_refused(inside, STREAM_CAPTURE_INVALIDATED);
    }),
    rule("capture.captured_event", "cuEventQuery", "An event last recorded in a capture cannot be queried or waited for by the host.", || {
        context();
        let (stream, event) = (stream(), event());
        begin(stream, RELAXED);
        ok(cuEventRecord(event, stream));
        end(stream);
        refused(cuEventQuery(event), CAPTURED_EVENT);
        refused(cuEventSynchronize(event), CAPTURED_EVENT);
    })
    .alone(),
    rule("capture.legacy_unusable", "cuStreamIsCapturing", "While a blocking stream captures, the legacy stream is refused as an implicit dependency; the query does no harm.", || {
        context();
        let stream = stream_with(0);
        begin(stream, RELAXED);
        let mut reported = CUstreamCaptureStatus_enum(0);
        refused(cuStreamIsCapturing(LEGACY, &raw mut reported), STREAM_CAPTURE_IMPLICIT);
        assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        end(stream);
    })
    .alone(),
    rule("capture.legacy_work_implicit", "cuMemsetD32Async", "Work for the legacy stream while a blocking stream captures is refused as implicit.", || {
        context();
        let ptr = alloc(4096);
        let stream = stream_with(0);
        begin(stream, RELAXED);
        refused(cuMemsetD32Async(ptr, 1, 1024, LEGACY), STREAM_CAPTURE_IMPLICIT);
    })
    .alone(),
    rule("capture.others_run", "cuStreamBeginCapture", "Streams that take no part run as ever.", || {
        context();
        let (capturing, running) = (stream(), stream());
        let ptr = alloc(4096);
        begin(capturing, RELAXED);
        ok(cuMemsetD32Async(ptr, 4, 1024, running));
        sync(running);
        end(capturing);
        assert!(all_words(ptr, 1024, 4));
    })
    .alone(),
    rule("capture.info", "cuStreamGetCaptureInfo", "A capture reports its id, its graph and what the next work will depend on.", || {
        context();
        let stream = stream();
        let ptr = alloc(4096);
        let mut ids = Vec::new();
        for _ in 0..2 {
            begin(stream, GLOBAL);
            ok(cuMemsetD32Async(ptr, 1, 1024, stream));
            let (mut status, mut id, mut graph) = (CUstreamCaptureStatus_enum(0), 0, null_mut());
            let (mut dependencies, mut count) = (null(), 0);
            ok(cuStreamGetCaptureInfo_v2(
                stream, &raw mut status, &raw mut id, &raw mut graph, &raw mut dependencies, &raw mut count,
            ));
            assert_eq!(status, Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
            assert!(!graph.is_null() && count == 1 && !dependencies.is_null());
            ids.push(id);
            end(stream);
        }
        assert_ne!(ids[0], ids[1], "ids are unique in a process");
    }),
    rule("capture.info_when_idle", "cuStreamGetCaptureInfo", "A stream that does not capture says so.", || {
        context();
        let mut status = CUstreamCaptureStatus_enum(77);
        ok(cuStreamGetCaptureInfo_v2(stream(), &raw mut status, null_mut(), null_mut(), null_mut(), null_mut()));
        assert_eq!(status, Status::CU_STREAM_CAPTURE_STATUS_NONE);
    }),
];

/// After a refusal that does not end the capture, the stream still comes free.
fn begin_again_works(stream: CUstream) {
    let mut graph = null_mut();
    // The refused end may or may not have made it invalid.
    let _ = cuStreamEndCapture(stream, &raw mut graph);
    assert_eq!(status(stream), Status::CU_STREAM_CAPTURE_STATUS_NONE);
    begin(stream, GLOBAL);
    end(stream);
}
