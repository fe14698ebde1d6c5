//! Rules of the default streams: the legacy one, which waits for every blocking stream and is waited for,
//! and the one that every thread has for itself.

use crate::prelude::*;
use std::sync::Barrier;

fn blocking() -> CUstream {
    stream_with(0)
}

fn set_word(ptr: CUdeviceptr, value: u32, stream: CUstream) {
    ok(cuMemsetD32Async(ptr, value, 1024, stream));
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "legacy.waits_for_blocking",
        "cuStreamCreate",
        "Work of the legacy stream waits for earlier work of blocking streams.",
        || {
            context();
            let stream = blocking();
            let ptr = alloc(4096);
            put(ptr, &[0; 4096]);
            let gate = Gate::close(stream);
            set_word(ptr, 1, stream);
            set_word(ptr, 2, LEGACY);
            refused(cuStreamQuery(LEGACY), NOT_READY);
            gate.open();
            sync(LEGACY);
            assert!(all_words(ptr, 1024, 2));
        },
    ),
    rule(
        "legacy.is_waited_for",
        "cuStreamCreate",
        "Work of blocking streams waits for earlier work of the legacy stream.",
        || {
            context();
            let stream = blocking();
            let ptr = alloc(4096);
            put(ptr, &[0; 4096]);
            let gate = Gate::close(LEGACY);
            set_word(ptr, 1, LEGACY);
            set_word(ptr, 2, stream);
            refused(cuStreamQuery(stream), NOT_READY);
            gate.open();
            sync(stream);
            assert!(all_words(ptr, 1024, 2));
        },
    ),
    rule(
        "legacy.between_blocking",
        "cuLaunchKernel",
        "A kernel of the legacy stream separates the work of two blocking streams.",
        || {
            context();
            let (before, after) = (blocking(), blocking());
            let k = Kernels::load();
            let ptrs = [alloc(4096), alloc(4096), alloc(4096)];
            let gate = Gate::close(before);
            k.fill(before, ptrs[0], 1024, 1);
            k.copy(DEFAULT, ptrs[1], ptrs[0], 1024);
            k.copy(after, ptrs[2], ptrs[1], 1024);
            gate.open();
            sync(after);
            assert!(all_words(ptrs[2], 1024, 1));
        },
    ),
    rule("legacy.copy_waits", "cuMemcpyDtoH", "A synchronous copy waits for earlier work of blocking streams.", || {
        context();
        let stream = blocking();
        let k = Kernels::load();
        let ptr = alloc(4096);
        put(ptr, &[0; 4096]);
        k.spin(stream, 50);
        k.fill(stream, ptr, 1024, 6);
        assert_eq!(get_word(ptr), 6, "copied before the kernel ran");
    }),
    rule("legacy.zero_is_legacy", "cuStreamQuery", "Stream 0 of the legacy variants is the legacy stream.", || {
        context();
        let gate = Gate::close(LEGACY);
        refused(cuStreamQuery(DEFAULT), NOT_READY);
        gate.open();
        sync(DEFAULT);
    }),
    rule(
        "legacy.leaves_non_blocking",
        "cuStreamCreate",
        "A non-blocking stream neither waits for the legacy stream nor holds it up.",
        || {
            context();
            let stream = stream();
            let ptr = alloc(4096);
            let gate = Gate::close(LEGACY);
            set_word(ptr, 4, stream);
            sync(stream);
            refused(cuStreamQuery(LEGACY), NOT_READY);
            gate.open();
            sync(LEGACY);
            let gate = Gate::close(stream);
            set_word(ptr, 5, LEGACY);
            sync(LEGACY);
            refused(cuStreamQuery(stream), NOT_READY);
            gate.open();
            sync(stream);
            assert!(all_words(ptr, 1024, 5));
        },
    ),
    rule(
        "legacy.event_covers_blocking",
        "cuEventRecord",
        "An event recorded in the legacy stream covers earlier work of blocking streams.",
        || {
            context();
            let stream = blocking();
            let event = event();
            let gate = Gate::close(stream);
            ok(cuEventRecord(event, LEGACY));
            refused(cuEventQuery(event), NOT_READY);
            gate.open();
            ok(cuEventSynchronize(event));
        },
    ),
    rule(
        "per_thread.waits_for_legacy",
        "cuStreamQuery",
        "A thread's default stream synchronises with the legacy stream.",
        || {
            context();
            let ptr = alloc(4096);
            put(ptr, &[0; 4096]);
            let gate = Gate::close(LEGACY);
            set_word(ptr, 1, PER_THREAD);
            refused(cuStreamQuery(PER_THREAD), NOT_READY);
            set_word(ptr, 2, LEGACY);
            gate.open();
            sync(LEGACY);
            assert!(all_words(ptr, 1024, 2));
        },
    ),
    rule(
        "per_thread.independent_threads",
        "cuStreamSynchronize",
        "The default streams of two threads do not wait for each other.",
        || {
            let ctx = Sent(context());
            let ptr = alloc(4096);
            let closed = Barrier::new(2);
            let done = Barrier::new(2);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    ok(cuCtxSetCurrent(ctx.get()));
                    let gate = Gate::close(PER_THREAD);
                    closed.wait();
                    done.wait();
                    let code = cuStreamQuery(PER_THREAD);
                    gate.open();
                    sync(PER_THREAD);
                    refused(code, NOT_READY);
                });
                closed.wait();
                let codes = [cuMemsetD32Async(ptr, 8, 1024, PER_THREAD), cuStreamSynchronize(PER_THREAD)];
                done.wait();
                if let Err(panic) = other.join() {
                    std::panic::resume_unwind(panic);
                }
                codes.into_iter().for_each(ok);
            });
            assert!(all_words(ptr, 1024, 8));
        },
    )
    .alone(),
    rule(
        "per_thread.variant_means_own",
        "cuMemsetD32Async",
        "Stream 0 of the per-thread variants is the thread's own stream.",
        || {
            context();
            let ptr = alloc(4096);
            put(ptr, &[0; 4096]);
            let gate = Gate::close(PER_THREAD);
            ok(cuMemsetD32Async_ptsz(ptr, 7, 1024, DEFAULT));
            refused(cuStreamQuery_ptsz(DEFAULT), NOT_READY);
            gate.open();
            sync(PER_THREAD);
            assert!(all_words(ptr, 1024, 7));
        },
    ),
    rule(
        "per_thread.synchronous_variant",
        "cuMemcpyDtoH",
        "Synchronous copies of the per-thread variants follow the thread's own stream.",
        || {
            context();
            let k = Kernels::load();
            let ptr = alloc(4096);
            put(ptr, &[0; 4096]);
            k.spin(PER_THREAD, 30);
            k.fill(PER_THREAD, ptr, 1024, 3);
            let mut word = [0u8; 4];
            ok(cuMemcpyDtoH_v2_ptds(word.as_mut_ptr().cast(), ptr, 4));
            assert_eq!(word, [3, 0, 0, 0], "copied before the kernel ran");
        },
    ),
];
