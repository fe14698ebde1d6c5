//! Nothing that weir adds waits for ever: programs in which a wait of weir's would be for something that only the
//! waiting thread, or one behind it, can bring about. Each ends by itself; a watchdog ends one that does not.

use crate::api::{Api, Kernels, OK, OUT_OF_MEMORY, context_on, ok};
use crate::{MIB, Sent, alloc, alloc_async, free_bytes, stream};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_cuda::*;

/// Longer than anything here takes on any machine: who takes longer waits for ever.
const FOR_EVER: Duration = Duration::from_secs(120);
/// How long threads work beside each other.
const BESIDE: Duration = Duration::from_secs(3);
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

/// Rounds that all threads have made: stands still when one of them waits for ever and all others are done.
static ROUNDS: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

/// Ends the process if nothing moves any more.
fn watch() {
    std::thread::spawn(|| {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = ROUNDS.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > FOR_EVER {
                eprintln!("nothing has moved for {FOR_EVER:?}: a wait for ever");
                std::process::abort();
            }
        }
    });
}

/// Makes rounds until it is over.
fn rounds(api: &'static Api, ctx: Sent<CUcontext>, mut round: impl FnMut(u64)) {
    // SAFETY: a context of ours.
    ok(unsafe { (api.cuCtxSetCurrent)(ctx.0) });
    let mut number = 0;
    while !OVER.load(Ordering::Relaxed) {
        round(number);
        number += 1;
        ROUNDS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Begins and ends captures; `ctx` is current.
fn captures(api: &'static Api, ctx: Sent<CUcontext>) {
    // SAFETY: a context of ours.
    ok(unsafe { (api.cuCtxSetCurrent)(ctx.0) });
    let stream = stream(api);
    rounds(api, ctx, |_| {
        let mut graph = null_mut();
        // SAFETY: our own stream; the place is a live local.
        unsafe {
            ok((api.cuStreamBeginCapture_v2)(stream, RELAXED));
            let ended = (api.cuStreamEndCapture)(stream, &raw mut graph);
            assert_eq!(ended, OK, "a call of weir's became part of a capture");
            ok((api.cuGraphDestroy)(graph));
        }
    });
}

/// Grows, frees and grows again in two streams, most of it at the cap.
fn grows(api: &'static Api, ctx: Sent<CUcontext>, kernels: Kernels, seed: u64) {
    // SAFETY: a context of ours.
    ok(unsafe { (api.cuCtxSetCurrent)(ctx.0) });
    let streams = [stream(api), stream(api)];
    let mut kept = Vec::new();
    rounds(api, ctx, |number| {
        let stream = streams[number as usize % 2];
        let bytes = (1 + (number * 7 + seed) % 11) as usize * MIB;
        let mut ptr = 0;
        // SAFETY: the place is a live local; our own stream.
        let result = unsafe { (api.cuMemAllocAsync)(&raw mut ptr, bytes, stream) };
        assert!(matches!(result, OK | OUT_OF_MEMORY), "{result:?}");
        if result == OK {
            kernels.fill(stream, ptr, 1024, number as u32);
            kept.push((ptr, stream));
        }
        if result != OK || kept.len() > 6 {
            // Each in the order of its own stream, where its last work is.
            for (at, (ptr, stream)) in kept.drain(..).enumerate() {
                // SAFETY: our own blocks and streams.
                ok(unsafe { if at % 2 == 0 { (api.cuMemFree_v2)(ptr) } else { (api.cuMemFreeAsync)(ptr, stream) } });
            }
        }
    });
    for (ptr, _) in kept {
        // SAFETY: our own block.
        ok(unsafe { (api.cuMemFree_v2)(ptr) });
    }
}

/// At the cap one thread makes requests that weir passes through, others grow the pool, and one begins captures.
pub(crate) fn at_the_cap(api: &'static Api) {
    let ctx = Sent(context_on(api, 0));
    let kernels = Kernels::load(api);
    watch();
    std::thread::scope(|scope| {
        scope.spawn(move || captures(api, ctx));
        for seed in 0..2 {
            scope.spawn(move || grows(api, ctx, kernels, seed));
        }
        scope.spawn(move || {
            rounds(api, ctx, |number| {
                let mut ptr = 0;
                // SAFETY: the place is a live local.
                let result = unsafe { (api.cuMemAllocManaged)(&raw mut ptr, (1 + number as usize % 24) * MIB, 1) };
                assert!(matches!(result, OK | OUT_OF_MEMORY), "{result:?}");
                if result == OK {
                    // SAFETY: our own block.
                    ok(unsafe { (api.cuMemFree_v2)(ptr) });
                }
            });
        });
        std::thread::sleep(BESIDE);
        OVER.store(true, Ordering::Relaxed);
    });
}

/// Access between devices is enabled and disabled while the memory's pool grows and captures begin.
pub(crate) fn peers_beside_captures(api: &'static Api) {
    let other = Sent(context_on(api, 1));
    let there = Kernels::load(api);
    alloc(api, MIB);
    let mine = Sent(context_on(api, 0));
    watch();
    std::thread::scope(|scope| {
        scope.spawn(move || captures(api, mine));
        scope.spawn(move || captures(api, other));
        scope.spawn(move || grows(api, other, there, 1));
        scope.spawn(move || {
            rounds(api, mine, |_| {
                // The whole value, which may be sent; not only the pointer in it.
                let Sent(peer) = { other };
                // SAFETY: a context of ours.
                unsafe {
                    ok((api.cuCtxEnablePeerAccess)(peer, 0));
                    ok((api.cuCtxDisablePeerAccess)(peer));
                }
            });
        });
        std::thread::sleep(BESIDE);
        OVER.store(true, Ordering::Relaxed);
    });
}

/// What a stream waits for.
static LET_GO: AtomicBool = AtomicBool::new(false);

extern "C" fn until_let_go(_: *mut c_void) {
    while !LET_GO.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A stream of the current context does not go on before this thread lets it.
fn hold(api: &Api) {
    LET_GO.store(false, Ordering::Release);
    // SAFETY: the function takes nothing, and our own stream.
    ok(unsafe { (api.cuLaunchHostFunc)(stream(api), Some(until_let_go), null_mut()) });
}

/// Takes all memory, frees it, and requests it in another shape: only a wait for the device makes that possible. Says
/// whether it was.
fn needs_a_wait(api: &Api) -> bool {
    let room = free_bytes(api);
    let first = alloc(api, room / 10 * 8);
    // SAFETY: our own block.
    ok(unsafe { (api.cuMemFree_v2)(first) });
    let mut second = 0;
    // SAFETY: the place is a live local.
    let result = unsafe { (api.cuMemAlloc_v2)(&raw mut second, room / 10 * 7) };
    assert!(matches!(result, OK | OUT_OF_MEMORY), "{result:?}");
    ROUNDS.fetch_add(1, Ordering::Relaxed);
    if result == OK {
        // SAFETY: our own block.
        ok(unsafe { (api.cuMemFree_v2)(second) });
    }
    result == OK
}

/// A kernel that waits for the host, whose thread is in a call that waits for the device.
pub(crate) fn kernel_waits_for_host(api: &'static Api) {
    context_on(api, 0);
    watch();
    hold(api);
    assert!(!needs_a_wait(api), "memory was reused that queued work may touch");
    LET_GO.store(true, Ordering::Release);
    // SAFETY: takes nothing.
    ok(unsafe { (api.cuCtxSynchronize)() });
    assert!(needs_a_wait(api), "nothing is queued any more");
}

/// The same from another device, whose work may touch the memory: as in a collective, in which kernels of two devices
/// wait for each other and one of them is not launched yet.
pub(crate) fn kernels_wait_for_each_other(api: &'static Api) {
    let other = context_on(api, 1);
    let mine = context_on(api, 0);
    watch();
    // SAFETY: contexts of ours.
    unsafe {
        ok((api.cuCtxSetCurrent)(other));
        ok((api.cuCtxEnablePeerAccess)(mine, 0));
        alloc(api, MIB);
        hold(api);
        ok((api.cuCtxSetCurrent)(mine));
    }
    assert!(!needs_a_wait(api), "memory was reused that queued work may touch");
    LET_GO.store(true, Ordering::Release);
    // SAFETY: contexts of ours.
    unsafe {
        ok((api.cuCtxSetCurrent)(other));
        ok((api.cuCtxSynchronize)());
        ok((api.cuCtxSetCurrent)(mine));
    }
    assert!(needs_a_wait(api), "nothing is queued any more");
}

/// A stream that is never idle, because there is always more to do, does not keep a wait from seeing that what came
/// before it has ended; and a stream that is destroyed with work in it is waited for.
pub(crate) fn never_idle(api: &'static Api) {
    let ctx = Sent(context_on(api, 0));
    let kernels = Kernels::load(api);
    watch();
    let block = alloc_async(api, MIB, null_mut());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // SAFETY: a context of ours.
            ok(unsafe { (api.cuCtxSetCurrent)(ctx.0) });
            let (busy, mut events) = (stream(api), std::collections::VecDeque::new());
            rounds(api, ctx, |_| {
                kernels.spin(busy, 2_000_000);
                kernels.fill(busy, block, 64, 1);
                let mut event = null_mut();
                // SAFETY: the place is a live local; our own stream and events. Two rounds are always queued.
                unsafe {
                    ok((api.cuEventCreate)(&raw mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0));
                    ok((api.cuEventRecord)(event, busy));
                    events.push_back(event);
                    if events.len() > 2 {
                        ok((api.cuEventSynchronize)(events[0]));
                        ok((api.cuEventDestroy_v2)(events[0]));
                        events.pop_front();
                    }
                }
            });
        });
        for round in 0..3 {
            let gone = stream(api);
            kernels.spin(gone, 30_000_000);
            // SAFETY: our own stream.
            ok(unsafe { (api.cuStreamDestroy_v2)(gone) });
            assert!(needs_a_wait(api), "round {round}: a wait did not end although all earlier work had");
            // SAFETY: takes nothing.
            ok(unsafe { (api.cuCtxSynchronize)() });
        }
        OVER.store(true, Ordering::Relaxed);
    });
}

/// The pool stops the device to move bytes (slowly: `VGPU_COST=cuMemcpy=…`) while another thread makes a stream wait for
/// a host function that ends only after that thread's next launch. The stop must not come to wait for the thread that
/// waits for the stop.
pub(crate) fn stops_beside_host_functions(api: &'static Api) {
    let ctx = Sent(context_on(api, 0));
    let kernels = Kernels::load(api);
    watch();
    let target = alloc(api, 4096);
    let bytes = free_bytes(api) / 10 * 6;
    let kept = crate::behind::sparse(api);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // SAFETY: a context of ours.
            ok(unsafe { (api.cuCtxSetCurrent)(ctx.0) });
            let mine = stream(api);
            rounds(api, ctx, |round| {
                hold(api);
                kernels.fill(mine, target, 64, round as u32);
                LET_GO.store(true, Ordering::Release);
                // SAFETY: takes nothing.
                ok(unsafe { (api.cuCtxSynchronize)() });
                std::thread::sleep(Duration::from_millis(20));
            });
        });
        for round in 0.. {
            let mut large = 0;
            // SAFETY: the place is a live local.
            let result = unsafe { (api.cuMemAlloc_v2)(&raw mut large, bytes) };
            assert!(matches!(result, OK | OUT_OF_MEMORY), "{result:?}");
            ROUNDS.fetch_add(1, Ordering::Relaxed);
            if result == OK {
                break;
            }
            assert!(round < 500, "the device was never stopped and meshed");
        }
        OVER.store(true, Ordering::Relaxed);
    });
    drop(kept);
}
