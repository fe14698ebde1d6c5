//! Rules of contexts: the stack of each thread, created and primary contexts, limits.

use crate::prelude::*;
use CUlimit as L;

fn pop() -> CUcontext {
    let mut ctx = null_mut();
    ok(cuCtxPopCurrent_v2(&raw mut ctx));
    ctx
}

fn primary_state() -> (u32, bool) {
    let (mut flags, mut active) = (0, -1);
    ok(cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active));
    (flags, active == 1)
}

fn retain() -> CUcontext {
    let mut ctx = null_mut();
    ok(cuDevicePrimaryCtxRetain(&raw mut ctx, 0));
    ctx
}

pub(super) const RULES: &[Rule] = &[
    rule("context.none_at_first", "cuCtxGetCurrent", "A new thread has no current context, which is no error.", || {
        init();
        assert!(current().is_null());
    }),
    rule(
        "context.needed",
        "cuMemAlloc",
        "Without a current context memory calls are refused as an invalid context.",
        || {
            init();
            let mut ptr = 0;
            refused(cuMemAlloc_v2(&raw mut ptr, 4096), INVALID_CONTEXT);
            let mut stream = null_mut();
            refused(cuStreamCreate(&raw mut stream, 0), INVALID_CONTEXT);
            refused(cuCtxSynchronize(), INVALID_CONTEXT);
        },
    ),
    rule(
        "context.create_makes_current",
        "cuCtxCreate",
        "A created context is current to the thread that created it.",
        || {
            let ctx = created_context();
            assert_eq!(current(), ctx);
            ok(cuCtxDestroy_v2(ctx));
        },
    ),
    rule("context.create_pushes", "cuCtxCreate", "A created context lies on top of the one that was current.", || {
        let below = context();
        let ctx = created_context();
        assert_eq!(pop(), ctx);
        assert_eq!(current(), below);
        ok(cuCtxDestroy_v2(ctx));
    }),
    rule("context.create_flags_unknown", "cuCtxCreate", "Unknown flags are an invalid value.", || {
        init();
        let mut ctx = null_mut();
        refused(cuCtxCreate_v2(&raw mut ctx, 0x4000_0000, 0), INVALID_VALUE);
        assert!(current().is_null());
    }),
    rule("context.create_needs_device", "cuCtxCreate", "A device that does not exist is refused.", || {
        init();
        let mut ctx = null_mut();
        refused(cuCtxCreate_v2(&raw mut ctx, 0, 999), INVALID_DEVICE);
    }),
    rule("context.create_needs_result", "cuCtxCreate", "A NULL place for the context is an invalid value.", || {
        init();
        refused(cuCtxCreate_v2(null_mut(), 0, 0), INVALID_VALUE);
    }),
    rule(
        "context.destroy_pops",
        "cuCtxDestroy",
        "Destroying the current context pops it from the thread's stack.",
        || {
            let below = context();
            let ctx = created_context();
            ok(cuCtxDestroy_v2(ctx));
            assert_eq!(current(), below);
        },
    ),
    rule(
        "context.destroyed_elsewhere",
        "cuCtxDestroy",
        "A context destroyed by one thread stays current to another, whose calls are then refused as destroyed.",
        || {
            context();
            let ctx = Sent(created_context());
            let (ready, destroyed) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    ok(cuCtxSetCurrent(ctx.get()));
                    ready.wait();
                    destroyed.wait();
                    let mut ptr = 0;
                    refused(cuMemAlloc_v2(&raw mut ptr, 4096), CONTEXT_IS_DESTROYED);
                });
                ready.wait();
                let code = cuCtxDestroy_v2(ctx.get());
                destroyed.wait();
                if let Err(panic) = other.join() {
                    std::panic::resume_unwind(panic);
                }
                ok(code);
            });
        },
    )
    .alone(),
    rule(
        "context.destroyed_not_current_again",
        "cuCtxSetCurrent",
        "A destroyed context cannot be made current.",
        || {
            let ctx = created_context();
            ok(cuCtxDestroy_v2(ctx));
            refused_by_any(cuCtxSetCurrent(ctx), &[INVALID_CONTEXT, CONTEXT_IS_DESTROYED]);
            refused_by_any(cuCtxPushCurrent_v2(ctx), &[INVALID_CONTEXT, CONTEXT_IS_DESTROYED]);
        },
    )
    .virtual_only()
    .alone(),
    rule("context.destroy_twice", "cuCtxDestroy", "A context can be destroyed once.", || {
        let ctx = created_context();
        ok(cuCtxDestroy_v2(ctx));
        refused_by_any(cuCtxDestroy_v2(ctx), &[INVALID_CONTEXT, CONTEXT_IS_DESTROYED]);
    })
    .virtual_only()
    .alone(),
    rule("context.destroy_frees_memory", "cuCtxDestroy", "Memory of a destroyed context is free again.", || {
        let below = context();
        let ctx = created_context();
        let before = memory_info().0;
        alloc(128 * MIB);
        let during = memory_info().0;
        assert!(before - during >= 128 * MIB, "{before} then {during}");
        ok(cuCtxDestroy_v2(ctx));
        assert_eq!(current(), below);
        assert!(memory_info().0 >= before, "not all came back");
    })
    .alone(),
    rule("context.push_pop_order", "cuCtxPushCurrent", "The stack gives contexts back in reverse order.", || {
        let first = context();
        let second = created_context();
        assert_eq!(pop(), second);
        ok(cuCtxPushCurrent_v2(second));
        assert_eq!(current(), second);
        assert_eq!(pop(), second);
        assert_eq!(current(), first);
        ok(cuCtxDestroy_v2(second));
    }),
    rule("context.pop_empty", "cuCtxPopCurrent", "Popping from an empty stack is an invalid context.", || {
        init();
        let mut ctx = null_mut();
        refused(cuCtxPopCurrent_v2(&raw mut ctx), INVALID_CONTEXT);
    }),
    rule("context.push_null", "cuCtxPushCurrent", "NULL cannot be pushed.", || {
        init();
        refused_by_any(cuCtxPushCurrent_v2(null_mut()), &[INVALID_CONTEXT, INVALID_VALUE]);
    }),
    rule(
        "context.set_replaces_top",
        "cuCtxSetCurrent",
        "Setting the current context replaces the top of the stack.",
        || {
            let primary = context();
            let created = created_context();
            ok(cuCtxSetCurrent(primary));
            assert_eq!(pop(), primary);
            assert_eq!(pop(), primary, "what lay below is still there");
            assert!(current().is_null());
            ok(cuCtxDestroy_v2(created));
        },
    ),
    rule("context.set_null_pops", "cuCtxSetCurrent", "Setting NULL pops the current context.", || {
        context();
        ok(cuCtxSetCurrent(null_mut()));
        assert!(current().is_null());
    }),
    rule("context.stack_per_thread", "cuCtxGetCurrent", "Every thread has a stack of its own.", || {
        let mine = context();
        in_thread(|| {
            assert!(current().is_null());
            let other = created_context();
            assert_eq!(current(), other);
            ok(cuCtxDestroy_v2(other));
        });
        assert_eq!(current(), mine);
    }),
    rule(
        "context.shared_by_threads",
        "cuCtxSetCurrent",
        "One context may be current to several threads, which share its memory.",
        || {
            let ctx = Sent(context());
            let ptr = alloc(4096);
            put(ptr, &pattern(4096, 3));
            in_thread(|| {
                ok(cuCtxSetCurrent(ctx.get()));
                assert_eq!(get(ptr, 4096), pattern(4096, 3));
                free(ptr);
            });
        },
    ),
    rule(
        "context.device",
        "cuCtxGetDevice",
        "The current context reports its device; without one that is an invalid context.",
        || {
            init();
            let mut device = -1;
            refused(cuCtxGetDevice(&raw mut device), INVALID_CONTEXT);
            context();
            ok(cuCtxGetDevice(&raw mut device));
            assert_eq!(device, 0);
        },
    ),
    rule(
        "context.api_version",
        "cuCtxGetApiVersion",
        "A context reports the version of the API it was created with.",
        || {
            let ctx = context();
            let mut version = 0;
            ok(cuCtxGetApiVersion(ctx, &raw mut version));
            assert!(version >= 3010, "version {version}");
        },
    ),
    rule("context.id_unique", "cuCtxGetId", "Every context has an id of its own.", || {
        let below = context();
        let ctx = created_context();
        let (mut one, mut other) = (0, 0);
        ok(cuCtxGetId(below, &raw mut one));
        ok(cuCtxGetId(ctx, &raw mut other));
        assert_ne!(one, other);
        ok(cuCtxDestroy_v2(ctx));
    }),
    rule("context.flags", "cuCtxGetFlags", "A context reports the scheduling flag it was created with.", || {
        init();
        let wanted = CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC.0;
        let mut ctx = null_mut();
        ok(cuCtxCreate_v2(&raw mut ctx, wanted, 0));
        let mut flags = 0;
        ok(cuCtxGetFlags(&raw mut flags));
        assert_eq!(flags & CUctx_flags::CU_CTX_SCHED_MASK.0, wanted);
        ok(cuCtxDestroy_v2(ctx));
    }),
    rule("context.synchronize", "cuCtxSynchronize", "Synchronising waits for all work of the context.", || {
        context();
        let k = Kernels::load();
        let ptr = alloc(4096);
        let stream = stream();
        k.spin(stream, 20);
        k.fill(stream, ptr, 1024, 7);
        ok(cuCtxSynchronize());
        ok(cuStreamQuery(stream));
        assert!(all_words(ptr, 1024, 7));
        free(ptr);
    }),
    rule(
        "primary.not_pushed",
        "cuDevicePrimaryCtxRetain",
        "Retaining the primary context does not make it current.",
        || {
            init();
            retain();
            assert!(current().is_null());
            ok(cuDevicePrimaryCtxRelease_v2(0));
        },
    ),
    rule("primary.one_handle", "cuDevicePrimaryCtxRetain", "Every retain gives the same context.", || {
        init();
        assert_eq!(retain(), retain());
        ok(cuDevicePrimaryCtxRelease_v2(0));
        ok(cuDevicePrimaryCtxRelease_v2(0));
    }),
    rule("primary.retain_needs_device", "cuDevicePrimaryCtxRetain", "A device that does not exist is refused.", || {
        init();
        let mut ctx = null_mut();
        refused(cuDevicePrimaryCtxRetain(&raw mut ctx, 999), INVALID_DEVICE);
    }),
    rule(
        "primary.retain_needs_result",
        "cuDevicePrimaryCtxRetain",
        "A NULL place for the context is an invalid value.",
        || {
            init();
            refused(cuDevicePrimaryCtxRetain(null_mut(), 0), INVALID_VALUE);
        },
    ),
    rule(
        "primary.release_without_retain",
        "cuDevicePrimaryCtxRelease",
        "Releasing what was not retained is an invalid context.",
        || {
            init();
            refused(cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
        },
    )
    .alone(),
    rule(
        "primary.active_while_retained",
        "cuDevicePrimaryCtxGetState",
        "The primary context is active from the first retain to the last release.",
        || {
            init();
            assert!(!primary_state().1);
            retain();
            retain();
            assert!(primary_state().1);
            ok(cuDevicePrimaryCtxRelease_v2(0));
            assert!(primary_state().1);
            ok(cuDevicePrimaryCtxRelease_v2(0));
            assert!(!primary_state().1);
        },
    )
    .alone(),
    rule(
        "primary.usable_until_last_release",
        "cuDevicePrimaryCtxRelease",
        "Memory lives until the last release.",
        || {
            let ctx = context();
            retain();
            let ptr = alloc(4096);
            ok(cuDevicePrimaryCtxRelease_v2(0));
            put(ptr, &[5; 16]);
            assert_eq!(get(ptr, 16), [5; 16]);
            assert_eq!(current(), ctx);
        },
    )
    .alone(),
    rule(
        "primary.last_release_frees",
        "cuDevicePrimaryCtxRelease",
        "The last release frees the memory of the primary context.",
        || {
            context();
            let before = memory_info().0;
            alloc(128 * MIB);
            ok(cuDevicePrimaryCtxRelease_v2(0));
            context();
            assert!(memory_info().0 >= before, "not all came back");
        },
    )
    .alone(),
    rule(
        "primary.reset_frees",
        "cuDevicePrimaryCtxReset",
        "Resetting the primary context destroys its allocations.",
        || {
            context();
            let before = memory_info().0;
            let ptr = alloc(128 * MIB);
            ok(cuDevicePrimaryCtxReset_v2(0));
            ok(cuDevicePrimaryCtxRelease_v2(0));
            context();
            assert!(memory_info().0 >= before, "not all came back");
            must_fail(cuMemFree_v2(ptr));
        },
    )
    .alone(),
    rule(
        "primary.flags",
        "cuDevicePrimaryCtxSetFlags",
        "Flags set for the primary context are reported by its state.",
        || {
            init();
            let wanted = CUctx_flags::CU_CTX_SCHED_YIELD.0;
            ok(cuDevicePrimaryCtxSetFlags_v2(0, wanted));
            assert_eq!(primary_state().0 & CUctx_flags::CU_CTX_SCHED_MASK.0, wanted);
        },
    )
    .alone(),
    rule("primary.flags_unknown", "cuDevicePrimaryCtxSetFlags", "Unknown flags are an invalid value.", || {
        init();
        refused(cuDevicePrimaryCtxSetFlags_v2(0, 0x4000_0000), INVALID_VALUE);
    }),
    rule("limit.set_is_kept", "cuCtxSetLimit", "A limit that was set is at least that when queried.", || {
        let ctx = created_context();
        for (limit, value) in [(L::CU_LIMIT_STACK_SIZE, 4096), (L::CU_LIMIT_MALLOC_HEAP_SIZE, 16 * MIB)] {
            ok(cuCtxSetLimit(limit, value));
            let mut now = 0;
            ok(cuCtxGetLimit(&raw mut now, limit));
            assert!(now >= value, "{now}");
        }
        ok(cuCtxDestroy_v2(ctx));
    }),
    rule("limit.unknown", "cuCtxGetLimit", "A limit that does not exist is an unsupported limit.", || {
        context();
        let mut now = 0;
        refused_by_any(cuCtxGetLimit(&raw mut now, CUlimit_enum(4711)), &[UNSUPPORTED_LIMIT, INVALID_VALUE]);
    }),
    rule("limit.needs_result", "cuCtxGetLimit", "A NULL place for the limit is an invalid value.", || {
        context();
        refused(cuCtxGetLimit(null_mut(), L::CU_LIMIT_STACK_SIZE), INVALID_VALUE);
    }),
    rule("limit.needs_context", "cuCtxSetLimit", "Without a context there is no limit to set.", || {
        init();
        refused(cuCtxSetLimit(L::CU_LIMIT_STACK_SIZE, 4096), INVALID_CONTEXT);
    }),
];
