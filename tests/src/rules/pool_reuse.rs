//! Rules of stream-ordered reuse: freed memory is handed out again only where the order allows it.

use super::pool::{alloc_from, free_in, keeping_pool, needs_pools, reported, set};
use crate::prelude::*;
use CUmemPool_attribute as A;

/// A pool of which every kind of reuse across streams is switched off.
fn strict_pool() -> CUmemoryPool {
    let pool = keeping_pool();
    for reuse in [
        A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    ] {
        ok(set(pool, reuse, 0));
    }
    pool
}

/// Makes the later work of a stream come after the earlier work of another.
fn follow(later: CUstream, earlier: CUstream) {
    let event = event();
    ok(cuEventRecord(event, earlier));
    ok(cuStreamWaitEvent(later, event, 0));
}

const SIZE: usize = 4 * MIB;
const WORDS: u64 = (SIZE / 4) as u64;

pub(super) const RULES: &[Rule] = &[
    rule(
        "reuse.same_stream",
        "cuMemAllocFromPoolAsync",
        "Memory freed in a stream serves the next allocation of that stream: the pool does not grow.",
        || {
            needs_pools();
            let (pool, stream) = (keeping_pool(), stream());
            free_in(alloc_from(pool, SIZE, stream), stream);
            let reserved = reported(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
            for _ in 0..20 {
                free_in(alloc_from(pool, SIZE, stream), stream);
            }
            assert_eq!(reported(pool, A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
            sync(stream);
        },
    ),
    rule(
        "reuse.same_stream_in_order",
        "cuMemFreeAsync",
        "Memory reused in one stream is touched by old and new owner in their order.",
        || {
            needs_pools();
            let (pool, stream) = (keeping_pool(), stream());
            let k = Kernels::load();
            let copy = alloc(SIZE);
            let gate = Gate::close(stream);
            let old = alloc_from(pool, SIZE, stream);
            k.fill(stream, old, WORDS, 1);
            k.copy(stream, copy, old, WORDS);
            free_in(old, stream);
            let new = alloc_from(pool, SIZE, stream);
            k.fill(stream, new, WORDS, 2);
            gate.open();
            sync(stream);
            assert!(all_words(copy, SIZE / 4, 1));
            assert!(all_words(new, SIZE / 4, 2));
        },
    ),
    rule(
        "reuse.pending_free_elsewhere",
        "cuMemFreeAsync",
        "Memory whose free has not been reached is not handed to another stream.",
        || {
            needs_pools();
            let (pool, one, other) = (strict_pool(), stream(), stream());
            let old = alloc_from(pool, SIZE, one);
            sync(one);
            let gate = Gate::close(one);
            free_in(old, one);
            let new = alloc_from(pool, SIZE, other);
            assert!(new >= old + SIZE as u64 || new + SIZE as u64 <= old, "handed out while the free is pending");
            gate.open();
            sync(one);
        },
    ),
    rule(
        "reuse.no_race_between_streams",
        "cuMemFreeAsync",
        "The last work before a free and the first of a new owner in another stream never meet.",
        || {
            needs_pools();
            let (pool, one, other) = (keeping_pool(), stream(), stream());
            let k = Kernels::load();
            let copy = alloc(SIZE);
            let old = alloc_from(pool, SIZE, one);
            k.spin(one, 30);
            k.fill(one, old, WORDS, 1);
            k.copy(one, copy, old, WORDS);
            free_in(old, one);
            let new = alloc_from(pool, SIZE, other);
            k.fill(other, new, WORDS, 2);
            sync(other);
            sync(one);
            assert!(all_words(copy, SIZE / 4, 1), "the old owner read the new owner's bytes");
            assert!(all_words(new, SIZE / 4, 2), "the old owner wrote into the new owner's bytes");
        },
    ),
    rule(
        "reuse.living_never",
        "cuMemAllocFromPoolAsync",
        "Living allocations never share memory, in whatever streams they were made.",
        || {
            needs_pools();
            let pool = keeping_pool();
            let streams = [stream(), stream(), stream()];
            let mut living: Vec<(CUdeviceptr, u32)> = Vec::new();
            let k = Kernels::load();
            for i in 0..60u32 {
                let s = streams[(i % 3) as usize];
                let ptr = alloc_from(pool, 64 * 1024, s);
                k.fill(s, ptr, 16 * 1024, i);
                living.push((ptr, i));
                if i % 4 == 3 {
                    let (freed, _) = living.remove(0);
                    ok(cuCtxSynchronize());
                    free_in(freed, s);
                }
            }
            ok(cuCtxSynchronize());
            for (ptr, i) in living {
                assert!(all_words(ptr, 16 * 1024, i), "allocation {i} was overwritten");
            }
        },
    ),
    rule(
        "reuse.after_event",
        "cuMemAllocFromPoolAsync",
        "A stream that waits for the free by an event may reuse the memory, in order.",
        || {
            needs_pools();
            let (pool, one, other, event) = (keeping_pool(), stream(), stream(), event());
            let k = Kernels::load();
            let copy = alloc(SIZE);
            let old = alloc_from(pool, SIZE, one);
            k.spin(one, 20);
            k.fill(one, old, WORDS, 1);
            k.copy(one, copy, old, WORDS);
            free_in(old, one);
            ok(cuEventRecord(event, one));
            ok(cuStreamWaitEvent(other, event, 0));
            let new = alloc_from(pool, SIZE, other);
            k.fill(other, new, WORDS, 2);
            sync(other);
            assert!(all_words(copy, SIZE / 4, 1));
            assert!(all_words(new, SIZE / 4, 2));
        },
    ),
    rule(
        "reuse.under_pressure",
        "cuMemAllocAsync",
        "Memory freed in one stream serves another when nothing else is left.",
        || {
            needs_pools();
            let (pool, one, other) = (keeping_pool(), stream(), stream());
            let most = memory_info().0 / 10 * 6;
            needs_memory(most * 2);
            let old = alloc_from(pool, most, one);
            free_in(old, one);
            sync(one);
            let new = alloc_from(pool, most, other);
            free_in(new, other);
            sync(other);
            ok(cuMemPoolTrimTo(pool, 0));
        },
    )
    .alone(),
    rule(
        "reuse.freed_in_another_stream",
        "cuMemFreeAsync",
        "Memory may be freed in another stream than it was allocated in.",
        || {
            needs_pools();
            let (pool, one, other) = (keeping_pool(), stream(), stream());
            let ptr = alloc_from(pool, SIZE, one);
            sync(one);
            free_in(ptr, other);
            sync(other);
            assert_eq!(reported(pool, A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
        },
    ),
    rule(
        "reuse.waits_for_all_before_the_free",
        "cuMemAllocFromPoolAsync",
        "Memory reused across streams comes after all work that its free came after, and may be freed again.",
        || {
            needs_pools();
            let (pool, user, one, other) = (keeping_pool(), stream(), stream(), stream());
            let (k, seen) = (Kernels::load(), alloc(SIZE));
            // As large as the pool grows, so that nothing but the freed memory is left in it.
            let old = alloc_from(pool, 8 * SIZE, one);
            sync(one);
            let gate = Gate::close(user);
            k.fill(user, old, WORDS, 1);
            k.copy(user, seen, old, WORDS);
            follow(one, user);
            free_in(old, one);
            let new = alloc_from(pool, 8 * SIZE, other);
            k.fill(other, new, WORDS, 2);
            free_in(new, other);
            gate.open();
            ok(cuCtxSynchronize());
            assert!(all_words(seen, SIZE / 4, 1), "the old owner read the new owner's bytes");
        },
    ),
    rule(
        "reuse.freed_after_the_legacy_stream",
        "cuMemFreeAsync",
        "The legacy and the blocking streams come after what the other has waited for: a free there is in order.",
        || {
            needs_pools();
            let (pool, user, blocking) = (keeping_pool(), stream(), stream_with(0));
            let k = Kernels::load();
            for (waiting, freeing) in [(blocking, LEGACY), (LEGACY, blocking)] {
                let ptr = alloc_from(pool, SIZE, user);
                let gate = Gate::close(user);
                k.fill(user, ptr, WORDS, 1);
                follow(waiting, user);
                free_in(ptr, freeing);
                gate.open();
                ok(cuCtxSynchronize());
            }
        },
    ),
];
