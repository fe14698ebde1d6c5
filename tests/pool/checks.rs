//! `pool-checks NAME`: single properties of the pool in a job, each in a process of its own that
//! the suite `pool` starts with the environment it needs. Ends with an error if the property does not hold.

mod api;
mod behind;
mod soak_peer;
mod waiting;

use api::{Api, Kernels, OK, context_on, ok};
use soak_peer::Peer;
use std::ptr::null_mut;
use std::time::Duration;
use weir_cuda::*;

pub(crate) const MIB: usize = 1 << 20;

pub(crate) fn alloc(api: &Api, bytes: usize) -> u64 {
    let mut ptr = 0;
    // SAFETY: the place is a live local.
    ok(unsafe { (api.cuMemAlloc_v2)(&raw mut ptr, bytes) });
    ptr
}

pub(crate) fn alloc_async(api: &Api, bytes: usize, stream: CUstream) -> u64 {
    let mut ptr = 0;
    // SAFETY: the place is a live local.
    ok(unsafe { (api.cuMemAllocAsync)(&raw mut ptr, bytes, stream) });
    ptr
}

pub(crate) fn stream(api: &Api) -> CUstream {
    let mut stream = null_mut();
    // SAFETY: the place is a live local.
    ok(unsafe { (api.cuStreamCreate)(&raw mut stream, 1) });
    stream
}

fn event(api: &Api) -> CUevent {
    let mut event = null_mut();
    // SAFETY: the place is a live local.
    ok(unsafe { (api.cuEventCreate)(&raw mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0) });
    event
}

pub(crate) fn words(api: &Api, ptr: u64, count: usize) -> Vec<u32> {
    let mut words = vec![0u32; count];
    // SAFETY: as many bytes as there is room for.
    ok(unsafe { (api.cuMemcpyDtoH_v2)(words.as_mut_ptr().cast(), ptr, count * 4) });
    words
}

pub(crate) fn free_bytes(api: &Api) -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both places are live locals.
    ok(unsafe { (api.cuMemGetInfo_v2)(&raw mut free, &raw mut total) });
    free
}

/// A raw pointer that a thread of this test may use.
#[derive(Clone, Copy)]
pub(crate) struct Sent<T>(pub(crate) T);
// SAFETY: handles of the driver, which any thread may use.
unsafe impl<T> Send for Sent<T> {}

/// An event is recorded anew while another thread's wait for it is under way (`VGPU_COST` makes waits
/// long): what the wait is for is not what it was when the wait began.
fn stale_event(api: &'static Api) {
    let ctx = Sent(context_on(api, 0));
    let kernels = Kernels::load(api);
    let (busy, idle, late) = (stream(api), Sent(stream(api)), Sent(stream(api)));
    let shared = Sent(event(api));
    let bytes = free_bytes(api) / 10 * 6;
    let first = alloc_async(api, bytes, busy);
    kernels.spin(busy, 800_000_000);
    kernels.fill(busy, first, 1024, 1);
    // SAFETY: our own block, event and stream.
    unsafe {
        ok((api.cuMemFreeAsync)(first, busy));
        ok((api.cuEventRecord)(shared.0, busy));
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (ctx, late, shared) = (ctx, late, shared);
            // SAFETY: our own context, stream and event.
            unsafe {
                ok((api.cuCtxSetCurrent)(ctx.0));
                ok((api.cuStreamWaitEvent)(late.0, shared.0, 0));
            }
        });
        scope.spawn(move || {
            let (ctx, idle, shared) = (ctx, idle, shared);
            std::thread::sleep(Duration::from_millis(100));
            // SAFETY: as above.
            unsafe {
                ok((api.cuCtxSetCurrent)(ctx.0));
                ok((api.cuEventRecord)(shared.0, idle.0));
            }
        });
    });
    let second = alloc_async(api, bytes, late.0);
    kernels.fill(late.0, second, 1024, 2);
    // SAFETY: takes nothing.
    ok(unsafe { (api.cuCtxSynchronize)() });
    assert!(words(api, second, 1024).iter().all(|word| *word == 2), "work of the first block came after the second's");
}

/// Mempools keep their identity: counters, thresholds, trimming.
fn mempools(api: &'static Api) {
    type A = CUmemPool_attribute;
    context_on(api, 0);
    let stream = stream(api);
    let properties = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, 0),
        ..CUmemPoolProps::default()
    };
    let (mut own, mut default) = (null_mut(), null_mut());
    // SAFETY: all places are live locals.
    unsafe {
        ok((api.cuMemPoolCreate)(&raw mut own, &raw const properties));
        ok((api.cuDeviceGetDefaultMemPool)(&raw mut default, 0));
    }
    let reported = |pool: CUmemoryPool, attribute| {
        let mut value = 0u64;
        // SAFETY: these attributes are 64-bit numbers.
        ok(unsafe { (api.cuMemPoolGetAttribute)(pool, attribute, (&raw mut value).cast()) });
        value
    };
    let (used, high) = (A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT, A::CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    let reserved = A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    let mut threshold = 64u64 << 20;
    let mut ptr = 0;
    // SAFETY: all places are live locals.
    unsafe {
        let place = (&raw mut threshold).cast();
        ok((api.cuMemPoolSetAttribute)(own, A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, place));
        ok((api.cuMemAllocFromPoolAsync)(&raw mut ptr, 10 * MIB, own, stream));
    }
    assert_eq!((reported(own, used), reported(default, used)), (10 << 20, 0), "used, of its own pool alone");
    let beside = alloc_async(api, MIB, stream);
    let plain = alloc(api, 5 * MIB);
    assert_eq!((reported(own, used), reported(default, used)), (10 << 20, 1 << 20), "plain memory is in no pool");
    let mut handle = 0u64;
    // SAFETY: our own blocks; the attribute is a pointer.
    unsafe {
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
        ok((api.cuPointerGetAttribute)((&raw mut handle).cast(), attribute, ptr));
        assert_eq!(handle, own as u64);
        ok((api.cuMemFreeAsync)(ptr, stream));
        ok((api.cuMemFreeAsync)(beside, stream));
        ok((api.cuMemFree_v2)(plain));
        ok((api.cuStreamSynchronize)(stream));
    }
    assert_eq!((reported(own, used), reported(own, high)), (0, 10 << 20));
    assert!(reported(own, reserved) >= 10 << 20, "the threshold keeps it");
    assert_eq!(reported(default, reserved), 0, "no threshold keeps nothing");
    // SAFETY: our own pool.
    unsafe {
        ok((api.cuMemPoolTrimTo)(own, 0));
        assert_eq!(reported(own, reserved), 0, "trimmed");
        // 0 is the only value that a high mark takes.
        let (held, mut nothing) = (reported(own, A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0u64);
        ok((api.cuMemPoolSetAttribute)(own, high, (&raw mut nothing).cast()));
        assert_eq!(reported(own, high), 0, "reset");
        assert_eq!(reported(own, A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), held, "the other mark stays");
        assert!(held >= 10 << 20, "{held} bytes were held");
        ok((api.cuMemPoolDestroy)(own));
    }
}

/// Blocks within one handle and over several reach another process, and end with their free.
fn ipc(api: &'static Api) {
    context_on(api, 0);
    let kernels = Kernels::load(api);
    let stream = stream(api);
    let mut peer = Peer::start();
    for bytes in [4096, 300_000, 2 * MIB, 21 * MIB + 512] {
        let padding = alloc(api, 70_000);
        let ptr = alloc(api, bytes);
        let number = peer.open(api, ptr);
        for pattern in [7, 8] {
            kernels.fill(stream, ptr, bytes as u64 / 4, pattern);
            // SAFETY: our own stream.
            ok(unsafe { (api.cuStreamSynchronize)(stream) });
            peer.check(number, bytes as u64 / 4, pattern);
        }
        peer.close(number);
        // SAFETY: our own blocks.
        unsafe {
            ok((api.cuMemFree_v2)(ptr));
            ok((api.cuMemFree_v2)(padding));
        }
    }
}

/// A device without virtual memory management is served too, and a context's memory goes with it.
fn plain_device(api: &'static Api) {
    context_on(api, 0);
    let kernels = Kernels::load(api);
    let stream = stream(api);
    let before = free_bytes(api);
    for round in 0..3 {
        let blocks: Vec<(u64, usize)> =
            (1..200).map(|i| (i * 1777) % 400_000 + 16).map(|b| (alloc(api, b), b)).collect();
        for (at, (ptr, bytes)) in blocks.iter().enumerate() {
            kernels.fill(stream, *ptr, *bytes as u64 / 4, (at + round) as u32);
        }
        // SAFETY: takes nothing.
        ok(unsafe { (api.cuCtxSynchronize)() });
        for (at, (ptr, bytes)) in blocks.iter().enumerate() {
            assert!(words(api, *ptr, bytes / 4).iter().all(|word| *word == (at + round) as u32));
            // SAFETY: our own block.
            ok(unsafe { (api.cuMemFree_v2)(*ptr) });
        }
    }
    assert_eq!(free_bytes(api), before, "what the pool keeps is free");
    let mut ctx = null_mut();
    // SAFETY: the place is a live local.
    ok(unsafe { (api.cuCtxCreate_v2)(&raw mut ctx, 0, 0) });
    let lost = alloc(api, 3 * MIB);
    // SAFETY: our own context.
    unsafe {
        ok((api.cuCtxDestroy_v2)(ctx));
        assert_ne!((api.cuMemFree_v2)(lost), OK, "it went with its context");
    }
    assert_eq!(free_bytes(api), before, "its memory came back");
    alloc(api, MIB);
}

/// Two devices: memory apart, access where it was enabled, also to what is allocated later.
fn two_devices(api: &'static Api) {
    let other = context_on(api, 1);
    let there = alloc(api, 3 * MIB);
    let before = free_bytes(api);
    let mine = context_on(api, 0);
    let kernels = Kernels::load(api);
    let here = alloc(api, 5 * MIB);
    // SAFETY: a context of ours.
    ok(unsafe { (api.cuCtxEnablePeerAccess)(other, 0) });
    // SAFETY: as above.
    ok(unsafe { (api.cuCtxSetCurrent)(other) });
    assert_eq!(free_bytes(api), before, "memory of one device is not missing on the other");
    let later = alloc(api, 40 * MIB);
    // SAFETY: as above.
    ok(unsafe { (api.cuCtxSetCurrent)(mine) });
    let stream = stream(api);
    for ptr in [here, there, later, later + 39 * MIB as u64] {
        kernels.fill(stream, ptr, 1024, 9);
    }
    // A free of the other device's memory waits for this device's work on it.
    kernels.spin(stream, 50_000_000);
    kernels.fill(stream, there, 1024, 3);
    // SAFETY: our own blocks and contexts.
    unsafe {
        ok((api.cuMemFree_v2)(there));
        ok((api.cuCtxSetCurrent)(other));
        let again = alloc(api, 3 * MIB);
        ok((api.cuMemsetD32Async)(again, 4, 1024, null_mut()));
        ok((api.cuCtxSynchronize)());
        ok((api.cuCtxSetCurrent)(mine));
        ok((api.cuCtxSynchronize)());
        ok((api.cuCtxSetCurrent)(other));
        assert!(words(api, again, 1024).iter().all(|word| *word == 4), "reused while the other device wrote to it");
        assert!(words(api, later, 1024).iter().all(|word| *word == 9));
    }
}

/// Access that is disabled again is gone: a kernel that touches the other device's memory all the same is a violation.
fn peer_disabled(api: &'static Api) {
    let other = context_on(api, 1);
    let there = alloc(api, 3 * MIB);
    context_on(api, 0);
    let kernels = Kernels::load(api);
    let stream = stream(api);
    // SAFETY: a context of ours.
    ok(unsafe { (api.cuCtxEnablePeerAccess)(other, 0) });
    kernels.fill(stream, there, 1024, 9);
    // SAFETY: takes nothing; a context of ours.
    unsafe {
        ok((api.cuCtxSynchronize)());
        ok((api.cuCtxDisablePeerAccess)(other));
    }
    println!("disabled");
    kernels.fill(stream, there, 1024, 8);
    // SAFETY: takes nothing.
    ok(unsafe { (api.cuCtxSynchronize)() });
}

/// `cuMemFree` of a block of the pool's under a capture in the global mode is refused, and the block lives on.
fn free_under_capture(api: &'static Api) {
    context_on(api, 0);
    let stream = stream(api);
    let ptr = alloc(api, MIB);
    let mut graph = null_mut();
    // SAFETY: our own stream and block; the place is a live local.
    unsafe {
        ok((api.cuStreamBeginCapture_v2)(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL));
        assert_eq!((api.cuMemFree_v2)(ptr), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        let ended = (api.cuStreamEndCapture)(stream, &raw mut graph);
        assert_eq!(ended, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        ok((api.cuMemsetD32Async)(ptr, 4, 1024, stream));
        ok((api.cuCtxSynchronize)());
        ok((api.cuMemFree_v2)(ptr));
        // In the relaxed mode it is allowed.
        let ptr = alloc(api, MIB);
        ok((api.cuStreamBeginCapture_v2)(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED));
        ok((api.cuMemFree_v2)(ptr));
        ok((api.cuStreamEndCapture)(stream, &raw mut graph));
        ok((api.cuGraphDestroy)(graph));
    }
}

/// Memory that the pool keeps is given back when somebody else needs it.
fn gives_way(api: &'static Api) {
    context_on(api, 0);
    let bytes = free_bytes(api) / 10 * 8;
    let ptr = alloc(api, bytes);
    let mut managed = 0;
    // SAFETY: our own block; the place is a live local.
    unsafe {
        ok((api.cuMemFree_v2)(ptr));
        let properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, 0),
            ..CUmemAllocationProp::default()
        };
        let size = (bytes / 2).next_multiple_of(2 * MIB);
        ok((api.cuMemCreate)(&raw mut managed, size, &raw const properties, 0));
        ok((api.cuMemRelease)(managed));
    }
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    if name == "--importer" {
        return soak_peer::importer();
    }
    let api = Api::load();
    let check: fn(&'static Api) = match name.as_str() {
        "stale-event" => stale_event,
        "mempools" => mempools,
        "ipc" => ipc,
        "plain-device" => plain_device,
        "two-devices" => two_devices,
        "gives-way" => gives_way,
        "peer-disabled" => peer_disabled,
        "free-under-capture" => free_under_capture,
        "mesh" => behind::mesh,
        "stream-waits" => behind::stream_waits,
        "survivors" => behind::survivors,
        "free-list-of-another" => behind::free_list_of_another,
        "free-list-in-granule" => behind::free_list_in_granule,
        "released-context" => behind::released_context,
        "coming-and-going" => behind::coming_and_going,
        "at-the-cap" => waiting::at_the_cap,
        "peers-beside-captures" => waiting::peers_beside_captures,
        "kernel-waits-for-host" => waiting::kernel_waits_for_host,
        "kernels-wait-for-each-other" => waiting::kernels_wait_for_each_other,
        "never-idle" => waiting::never_idle,
        "stops-beside-host-functions" => waiting::stops_beside_host_functions,
        other => panic!("no check is called '{other}'"),
    };
    check(api);
    api::check_pools();
}
