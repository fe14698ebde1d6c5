//! Rules of streams: order within one, independence between them, what runs on the host.

use crate::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn priority_range() -> (i32, i32) {
    let (mut least, mut greatest) = (0, 0);
    ok(cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest));
    (least, greatest)
}

fn priority_of(wanted: i32) -> i32 {
    let mut stream = null_mut();
    ok(cuStreamCreateWithPriority(&raw mut stream, NON_BLOCKING, wanted));
    let mut got = 77;
    ok(cuStreamGetPriority(stream, &raw mut got));
    ok(cuStreamDestroy_v2(stream));
    got
}

/// What a host function or callback found when it called the driver.
#[derive(Default)]
struct Found {
    calls: AtomicU32,
    status: AtomicU32,
    inner: AtomicU32,
}

unsafe extern "C" fn callback(_stream: CUstream, status: CUresult, found: *mut c_void) {
    // SAFETY: the rules below pass a leaked `Found`.
    let found = unsafe { &*found.cast::<Found>() };
    found.status.store(status.0, Ordering::SeqCst);
    let mut ptr = 0;
    found.inner.store(cuMemAlloc_v2(&raw mut ptr, 4096).0, Ordering::SeqCst);
    found.calls.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn host_function(found: *mut c_void) {
    // SAFETY: as above; the status is of no interest.
    unsafe { callback(null_mut(), CUresult::CUDA_SUCCESS, found) };
}

fn leaked() -> (&'static Found, *mut c_void) {
    let found: &'static Found = Box::leak(Box::default());
    (found, std::ptr::from_ref(found).cast_mut().cast())
}

pub(super) const RULES: &[Rule] = &[
    rule("stream.flags_unknown", "cuStreamCreate", "Unknown flags are an invalid value.", || {
        context();
        let mut stream = null_mut();
        refused(cuStreamCreate(&raw mut stream, 0x40), INVALID_VALUE);
    }),
    rule("stream.needs_result", "cuStreamCreate", "A NULL place for the stream is an invalid value.", || {
        context();
        refused(cuStreamCreate(null_mut(), 0), INVALID_VALUE);
    }),
    rule("stream.flags_reported", "cuStreamGetFlags", "A stream reports the flags it was created with.", || {
        context();
        for wanted in [0, NON_BLOCKING] {
            let stream = stream_with(wanted);
            let mut flags = 77;
            ok(cuStreamGetFlags(stream, &raw mut flags));
            assert_eq!(flags, wanted);
            ok(cuStreamDestroy_v2(stream));
        }
    }),
    rule(
        "stream.priority_range",
        "cuCtxGetStreamPriorityRange",
        "Lower numbers are higher priorities, and the least is zero.",
        || {
            context();
            let (least, greatest) = priority_range();
            assert!(least == 0 && greatest <= least, "{least} to {greatest}");
        },
    ),
    rule("stream.priority_kept", "cuStreamCreateWithPriority", "A priority within the range is kept.", || {
        context();
        let (least, greatest) = priority_range();
        for wanted in greatest..=least {
            assert_eq!(priority_of(wanted), wanted);
        }
    }),
    rule(
        "stream.priority_clamped",
        "cuStreamCreateWithPriority",
        "A priority outside the range is clamped into it.",
        || {
            context();
            let (least, greatest) = priority_range();
            assert_eq!(priority_of(100), least);
            assert_eq!(priority_of(-100), greatest);
        },
    ),
    rule(
        "stream.context_reported",
        "cuStreamGetCtx",
        "A stream reports its context; special streams report the current one.",
        || {
            let ctx = context();
            let stream = stream();
            for s in [stream, DEFAULT, LEGACY, PER_THREAD] {
                let mut got = null_mut();
                ok(cuStreamGetCtx(s, &raw mut got));
                assert_eq!(got, ctx);
            }
            ok(cuCtxSetCurrent(null_mut()));
            let mut got = null_mut();
            refused(cuStreamGetCtx(DEFAULT, &raw mut got), INVALID_CONTEXT);
            ok(cuStreamGetCtx(stream, &raw mut got));
            assert_eq!(got, ctx);
        },
    ),
    rule("stream.ids_unique", "cuStreamGetId", "Every stream has an id of its own, for good.", || {
        context();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..20 {
            let stream = stream();
            let mut id = 0;
            ok(cuStreamGetId(stream, &raw mut id));
            assert!(seen.insert(id), "id {id} was given before");
            ok(cuStreamDestroy_v2(stream));
        }
    }),
    rule(
        "stream.special_ids",
        "cuStreamGetId",
        "Stream 0 is the legacy stream in the legacy variant, and the thread's own is another.",
        || {
            context();
            let id = |s| {
                let mut id = 0;
                ok(cuStreamGetId(s, &raw mut id));
                id
            };
            assert_eq!(id(DEFAULT), id(LEGACY));
            assert_ne!(id(PER_THREAD), id(LEGACY));
        },
    ),
    rule("stream.busy", "cuStreamQuery", "A stream with work to do is not ready.", || {
        context();
        let stream = stream();
        ok(cuStreamQuery(stream));
        let gate = Gate::close(stream);
        refused(cuStreamQuery(stream), NOT_READY);
        gate.open();
        sync(stream);
        ok(cuStreamQuery(stream));
    }),
    rule("stream.in_order", "cuLaunchKernel", "Work of a stream runs in the order it was given.", || {
        context();
        let stream = stream();
        let k = Kernels::load();
        let (one, other) = (alloc(4096), alloc(4096));
        let gate = Gate::close(stream);
        for round in 0..8 {
            k.fill(stream, one, 1024, round);
            k.copy(stream, other, one, 1024);
        }
        k.fill(stream, one, 1024, 100);
        gate.open();
        sync(stream);
        assert!(all_words(one, 1024, 100));
        assert!(all_words(other, 1024, 7));
    }),
    rule("stream.in_order_mixed", "cuMemcpyDtoDAsync", "Copies, fills and kernels of a stream keep one order.", || {
        context();
        let stream = stream();
        let k = Kernels::load();
        let ptrs: Vec<_> = (0..5).map(|_| alloc(4096)).collect();
        let gate = Gate::close(stream);
        ok(cuMemsetD32Async(ptrs[0], 5, 1024, stream));
        ok(cuMemcpyDtoDAsync_v2(ptrs[1], ptrs[0], 4096, stream));
        ok(cuMemsetD32Async(ptrs[0], 6, 1024, stream));
        k.copy(stream, ptrs[2], ptrs[1], 1024);
        k.fill(stream, ptrs[1], 1024, 7);
        ok(cuMemcpyDtoDAsync_v2(ptrs[3], ptrs[2], 4096, stream));
        gate.open();
        sync(stream);
        assert!(all_words(ptrs[3], 1024, 5));
        assert!(all_words(ptrs[1], 1024, 7));
        assert!(all_words(ptrs[0], 1024, 6));
    }),
    rule(
        "stream.independent",
        "cuStreamCreate",
        "A stream that does not synchronise with others runs while another waits.",
        || {
            context();
            let (blocked, running) = (stream(), stream());
            let ptr = alloc(4096);
            let gate = Gate::close(blocked);
            ok(cuMemsetD32Async(ptr, 3, 1024, running));
            sync(running);
            refused(cuStreamQuery(blocked), NOT_READY);
            gate.open();
            sync(blocked);
            assert!(all_words(ptr, 1024, 3));
        },
    ),
    rule(
        "stream.destroyed_with_work",
        "cuStreamDestroy",
        "Destroying a busy stream returns at once, and its work is still done.",
        || {
            context();
            let stream = stream();
            let ptr = alloc(4096);
            put(ptr, &[0; 4096]);
            let gate = Gate::close(stream);
            ok(cuMemsetD32Async(ptr, 9, 1024, stream));
            let start = Instant::now();
            ok(cuStreamDestroy_v2(stream));
            assert!(start.elapsed() < GATE_LIMIT / 2, "waited for the work");
            gate.open();
            ok(cuCtxSynchronize());
            assert!(all_words(ptr, 1024, 9));
        },
    ),
    rule("stream.destroyed", "cuStreamQuery", "A destroyed stream is an invalid handle.", || {
        context();
        let stream = stream();
        ok(cuStreamDestroy_v2(stream));
        refused_by_any(cuStreamQuery(stream), &[INVALID_HANDLE, CONTEXT_IS_DESTROYED]);
        refused_by_any(cuStreamDestroy_v2(stream), &[INVALID_HANDLE, CONTEXT_IS_DESTROYED]);
    })
    .virtual_only(),
    rule("stream.destroy_special", "cuStreamDestroy", "The default streams cannot be destroyed.", || {
        context();
        must_fail(cuStreamDestroy_v2(DEFAULT));
        must_fail(cuStreamDestroy_v2(LEGACY));
    })
    .virtual_only(),
    rule(
        "stream.host_function_in_order",
        "cuLaunchHostFunc",
        "A host function runs after the work before it and before the work after it.",
        || {
            context();
            let stream = stream();
            let k = Kernels::load();
            let ptr = alloc(4096);
            let gate = Gate::close(stream);
            let counter = count_up_later(stream);
            k.fill(stream, ptr, 1024, 1);
            assert_eq!(counter.load(Ordering::SeqCst), 0, "ran before its turn");
            gate.open();
            sync(stream);
            assert_eq!(counter.load(Ordering::SeqCst), 1);
        },
    ),
    rule(
        "stream.host_function_sees_results",
        "cuLaunchHostFunc",
        "A host function sees what the work before it wrote to host memory.",
        || {
            unsafe extern "C" fn read(place: *mut c_void) {
                // SAFETY: two words of page-locked memory; the first is written by earlier work only.
                unsafe {
                    let words = place.cast::<u32>();
                    *words.add(1) = *words;
                }
            }
            context();
            let stream = stream();
            let host: *mut u32 = pinned_as(8);
            // SAFETY: no work uses the memory yet.
            unsafe { host.write_bytes(0, 2) };
            let k = Kernels::load();
            k.spin(stream, 10);
            k.fill(stream, host as CUdeviceptr, 1, 77);
            ok(cuLaunchHostFunc(stream, Some(read), host.cast()));
            sync(stream);
            // SAFETY: the stream is idle.
            assert_eq!(unsafe { *host.add(1) }, 77);
        },
    ),
    rule("stream.host_function_null", "cuLaunchHostFunc", "No function is an invalid value.", || {
        context();
        refused(cuLaunchHostFunc(stream(), None, null_mut()), INVALID_VALUE);
    }),
    rule(
        "stream.host_function_calls",
        "cuLaunchHostFunc",
        "A host function that calls the driver is refused as not permitted.",
        || {
            context();
            let stream = stream();
            let (found, argument) = leaked();
            ok(cuLaunchHostFunc(stream, Some(host_function), argument));
            sync(stream);
            assert_eq!(found.inner.load(Ordering::SeqCst), NOT_PERMITTED.0);
        },
    )
    .virtual_only(),
    rule(
        "stream.callback_once",
        "cuStreamAddCallback",
        "A callback runs once, after the work before it, and learns that all went well.",
        || {
            context();
            let stream = stream();
            let (found, argument) = leaked();
            let gate = Gate::close(stream);
            ok(cuStreamAddCallback(stream, Some(callback), argument, 0));
            assert_eq!(found.calls.load(Ordering::SeqCst), 0, "ran before its turn");
            gate.open();
            sync(stream);
            assert_eq!(found.calls.load(Ordering::SeqCst), 1);
            assert_eq!(found.status.load(Ordering::SeqCst), 0);
        },
    ),
    rule(
        "stream.callback_calls",
        "cuStreamAddCallback",
        "A callback that calls the driver is refused as not permitted.",
        || {
            context();
            let stream = stream();
            let (found, argument) = leaked();
            ok(cuStreamAddCallback(stream, Some(callback), argument, 0));
            sync(stream);
            assert_eq!(found.inner.load(Ordering::SeqCst), NOT_PERMITTED.0);
        },
    ),
    rule("stream.callback_flags", "cuStreamAddCallback", "Flags must be zero.", || {
        context();
        let (_, argument) = leaked();
        must_fail(cuStreamAddCallback(stream(), Some(callback), argument, 1));
    }),
    rule("stream.wait_value", "cuStreamWaitValue32", "A stream waits until a word in memory has the value.", || {
        context();
        let (waiting, writing) = (stream(), stream());
        let word = alloc(4);
        put(word, &0u32.to_le_bytes());
        ok(cuStreamWaitValue32_v2(waiting, word, 5, CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ.0));
        let counter = count_up_later(waiting);
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(counter.load(Ordering::SeqCst), 0, "went on before the value was there");
        ok(cuStreamWriteValue32_v2(writing, word, 5, 0));
        sync(writing);
        sync(waiting);
        assert_eq!(counter.load(Ordering::SeqCst), 1);
    }),
    rule(
        "stream.wait_value_geq",
        "cuStreamWaitValue32",
        "By default a stream waits for a value that is at least as large.",
        || {
            context();
            let stream = stream();
            let word = alloc(4);
            put(word, &9u32.to_le_bytes());
            ok(cuStreamWaitValue32_v2(stream, word, 5, 0));
            sync(stream);
        },
    ),
    rule("stream.write_value", "cuStreamWriteValue32", "Writing a value takes its place in the stream.", || {
        context();
        let stream = stream();
        let word = alloc(8);
        put(word, &[0; 8]);
        let gate = Gate::close(stream);
        ok(cuStreamWriteValue32_v2(stream, word, 1, 0));
        ok(cuStreamWriteValue32_v2(stream, word, 2, 0));
        ok(cuStreamWriteValue32_v2(stream, word + 4, 3, 0));
        gate.open();
        sync(stream);
        assert_eq!(get(word, 8), [2, 0, 0, 0, 3, 0, 0, 0]);
    }),
    rule("stream.batch", "cuStreamBatchMemOp", "Memory operations given in one batch are done in their order.", || {
        context();
        let stream = stream();
        let word = alloc(4);
        put(word, &[0; 4]);
        let write = |value| {
            let mut operation = CUstreamBatchMemOpParams::default();
            operation.writeValue.operation = CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32;
            operation.writeValue.address = word;
            operation.writeValue.__bindgen_anon_1.value = value;
            operation
        };
        let mut batch = [write(4), write(8)];
        ok(cuStreamBatchMemOp_v2(stream, 2, batch.as_mut_ptr(), 0));
        sync(stream);
        assert_eq!(get_word(word), 8);
        refused(cuStreamBatchMemOp_v2(stream, 2, batch.as_mut_ptr(), 7), INVALID_VALUE);
    }),
    rule("stream.of_another_context", "cuLaunchKernel", "A stream of another context is an invalid handle.", || {
        context();
        let k = Kernels::load();
        let created = created_context();
        let foreign = stream();
        let mut popped = null_mut();
        ok(cuCtxPopCurrent_v2(&raw mut popped));
        let mut time = 1u64;
        let mut arguments: [*mut c_void; 1] = [(&raw mut time).cast()];
        refused_by_any(
            cuLaunchKernel(k.spin, 1, 1, 1, 1, 1, 1, 0, foreign, arguments.as_mut_ptr(), null_mut()),
            &[INVALID_HANDLE, INVALID_CONTEXT],
        );
        ok(cuCtxDestroy_v2(created));
    }),
];
