//! Properties that show only while the device is far behind the program: a long kernel holds a stream,
//! and work that is queued behind it must find its memory as it was. None depends on luck: the kernel
//! lasts far longer than the calls that are made meanwhile.

use crate::api::{Api, Kernels, OK, OUT_OF_MEMORY, context_on, ok};
use crate::soak_peer::Peer;
use crate::{MIB, alloc, alloc_async, free_bytes, stream, words};
use std::ptr::null_mut;
use weir_cuda::{CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPoolProps};

/// How long the device is behind, in nanoseconds.
const LONG: u64 = 2_000_000_000;

fn synchronise(api: &Api) {
    // SAFETY: takes nothing.
    ok(unsafe { (api.cuCtxSynchronize)() });
}

const BLOCK: usize = 128 << 10;
const WORDS: usize = BLOCK / 4;

/// Takes all memory in small blocks and frees most of them: one block of each granule stays, where its neighbour's stays
/// too, but no other granule's. Nothing but a mesh makes room for a large block now.
pub(crate) fn sparse(api: &'static Api) -> Vec<u64> {
    let mut blocks = Vec::new();
    loop {
        let mut ptr = 0;
        // SAFETY: the place is a live local.
        match unsafe { (api.cuMemAlloc_v2)(&raw mut ptr, BLOCK) } {
            OK => blocks.push(ptr),
            code => break assert_eq!(code, OUT_OF_MEMORY),
        }
    }
    let stays = |ptr: &u64| (ptr / BLOCK as u64) % 16 == (ptr / (32 * BLOCK as u64)) % 16;
    let (kept, freed): (Vec<u64>, Vec<u64>) = blocks.into_iter().partition(stays);
    assert!(kept.len() >= 16, "{} granules", kept.len());
    for ptr in freed {
        // SAFETY: our own block.
        ok(unsafe { (api.cuMemFree_v2)(ptr) });
    }
    synchronise(api);
    kept
}

/// Sparse granules share memory: not while a late kernel still has to write into them, never where their
/// blocks lie in the same place, never what another process has opened. `VGPU_MEM` is small, so that
/// nothing but a mesh makes room.
pub(crate) fn mesh(api: &'static Api) {
    context_on(api, 0);
    let kernels = Kernels::load(api);
    let stream = stream(api);
    let bytes = free_bytes(api) / 10 * 6;
    let kept = sparse(api);
    let mut peer = Peer::start();
    let opened: Vec<(usize, usize)> = [3, 5, 7].map(|at| (at, peer.open(api, kept[at]))).into();
    // First far longer than the library waits for an idle device, so that it has to give up; then idle.
    for (round, nanoseconds) in [(1, LONG), (2, 0)] {
        let pattern = |at: usize, late: u32| round << 20 | (at as u32) << 1 | late;
        for (at, ptr) in kept.iter().enumerate() {
            kernels.fill(stream, *ptr, WORDS as u64, pattern(at, 0));
        }
        synchronise(api);
        kernels.spin(stream, nanoseconds);
        for (at, ptr) in kept.iter().enumerate() {
            kernels.fill(stream, *ptr, WORDS as u64, pattern(at, 1));
        }
        let mut large = 0;
        // SAFETY: the place is a live local.
        let result = unsafe { (api.cuMemAlloc_v2)(&raw mut large, bytes) };
        assert!(matches!(result, OK | OUT_OF_MEMORY), "{result:?}");
        synchronise(api);
        for (at, ptr) in kept.iter().enumerate() {
            let broken = words(api, *ptr, WORDS).iter().filter(|word| **word != pattern(at, 1)).count();
            assert_eq!(broken, 0, "words with a broken pattern, round {round}");
        }
        assert!(round == 1 || result == OK, "an idle device was not meshed");
        if result == OK {
            // SAFETY: our own block.
            ok(unsafe { (api.cuMemFree_v2)(large) });
        }
    }
    for (at, number) in opened {
        kernels.fill(stream, kept[at], WORDS as u64, at as u32);
        synchronise(api);
        peer.check(number, WORDS as u64, at as u32);
    }
}

/// A few blocks of 1 KiB are left of as many as there is room for. What cuMemGetInfo tells as free can be had in one
/// piece, though it is little; then the granules of these blocks share, and nearly all of the memory serves large ones.
pub(crate) fn survivors(api: &'static Api) {
    const BLOCK: usize = 1 << 10;
    const LARGE: usize = 8 * MIB;
    context_on(api, 0);
    let kernels = Kernels::load(api);
    let stream = stream(api);
    let room = free_bytes(api);
    let (mut kept, mut count) = (Vec::new(), 0_usize);
    let mut freed = Vec::new();
    loop {
        let mut ptr = 0;
        // SAFETY: the place is a live local.
        match unsafe { (api.cuMemAllocAsync)(&raw mut ptr, BLOCK, stream) } {
            OK => {}
            code => break assert_eq!(code, OUT_OF_MEMORY),
        }
        // As good as random: one of 320.
        let random = (count as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        if random.is_multiple_of(320) {
            kept.push(ptr);
        } else {
            freed.push(ptr);
        }
        count += 1;
    }
    assert!(kept.len() > 400 && count * BLOCK > room / 10 * 9, "{} of {count} blocks", kept.len());
    let pattern = |at: usize| 0x5EED_0000 | at as u32;
    let intact = |kept: &[u64]| {
        synchronise(api);
        let broken = |(at, ptr): &(usize, &u64)| words(api, **ptr, BLOCK / 4).iter().any(|word| *word != pattern(*at));
        assert_eq!(kept.iter().enumerate().filter(broken).count(), 0, "blocks with a broken pattern");
    };
    for (at, ptr) in kept.iter().enumerate() {
        kernels.fill(stream, *ptr, BLOCK as u64 / 4, pattern(at));
    }
    for ptr in freed {
        // SAFETY: our own block.
        ok(unsafe { (api.cuMemFreeAsync)(ptr, stream) });
    }
    synchronise(api);
    let free = free_bytes(api);
    assert!(free < room / 4, "{} MiB are reported as free, which only small requests could get", free / MIB);
    if free > 0 {
        let all = alloc_async(api, free, stream);
        // SAFETY: our own block.
        ok(unsafe { (api.cuMemFreeAsync)(all, stream) });
    }
    let mut large = Vec::new();
    loop {
        let mut ptr = 0;
        // SAFETY: the place is a live local.
        match unsafe { (api.cuMemAllocAsync)(&raw mut ptr, LARGE, stream) } {
            OK => large.push(ptr),
            code => break assert_eq!(code, OUT_OF_MEMORY),
        }
    }
    for ptr in &large {
        kernels.fill(stream, *ptr, LARGE as u64 / 4, 7);
    }
    intact(&kept);
    assert!(large.len() * LARGE > room / 10 * 8, "{} blocks of 8 MiB beside {} of 1 KiB", large.len(), kept.len());
    // Granules that share come apart again.
    for ptr in large.into_iter().chain(kept) {
        // SAFETY: our own block.
        ok(unsafe { (api.cuMemFreeAsync)(ptr, stream) });
    }
    synchronise(api);
    let whole = alloc_async(api, room / 10 * 9, stream);
    // SAFETY: our own block.
    ok(unsafe { (api.cuMemFreeAsync)(whole, stream) });
    synchronise(api);
    assert!(free_bytes(api) > room / 10 * 9, "{} of {room} bytes came back", free_bytes(api));
}

/// What one stream has freed and not finished is not another's, be its size the very one that is requested.
pub(crate) fn free_list_of_another(api: &'static Api) {
    context_on(api, 0);
    let kernels = Kernels::load(api);
    let (busy, other) = (stream(api), stream(api));
    for bytes in [4096, 100_000, MIB] {
        let first = alloc_async(api, bytes, busy);
        kernels.spin(busy, LONG / 4);
        kernels.fill(busy, first, bytes as u64 / 4, 1);
        // SAFETY: our own block.
        ok(unsafe { (api.cuMemFreeAsync)(first, busy) });
        let second = alloc_async(api, bytes, other);
        kernels.fill(other, second, bytes as u64 / 4, 2);
        synchronise(api);
        assert!(words(api, second, bytes / 4).iter().all(|word| *word == 2), "a pattern is broken: {bytes} bytes");
        // SAFETY: our own block.
        ok(unsafe { (api.cuMemFreeAsync)(second, other) });
    }
}

/// Granules whose blocks were all freed in stream order lie free, but not for others while work on them
/// is queued. `VGPU_MEM` is small, so that a large request needs them.
pub(crate) fn free_list_in_granule(api: &'static Api) {
    context_on(api, 0);
    let kernels = Kernels::load(api);
    let busy = stream(api);
    let blocks: Vec<u64> = (0..8).map(|_| alloc_async(api, MIB, busy)).collect();
    kernels.spin(busy, LONG);
    for ptr in blocks {
        kernels.fill(busy, ptr, MIB as u64 / 4, 1);
        // SAFETY: our own block.
        ok(unsafe { (api.cuMemFreeAsync)(ptr, busy) });
    }
    let large = alloc(api, free_bytes(api) / (8 * MIB) * (8 * MIB));
    kernels.fill(busy, large, 1024, 2);
    synchronise(api);
    assert!(words(api, large, 1024).iter().all(|word| *word == 2), "a pattern is broken");
}

/// A context that is released and lives on, because others hold it, is as far behind as before: what it has freed is not
/// for another context that is up to date.
pub(crate) fn released_context(api: &'static Api) {
    const WORDS: usize = MIB / 4;
    let first = context_on(api, 0);
    let (behind, late) = (Kernels::load(api), stream(api));
    let (mut second, mut again) = (null_mut(), null_mut());
    // SAFETY: the places are live locals; the primary context is retained once more than it is released.
    unsafe {
        ok((api.cuCtxCreate_v2)(&raw mut second, 0, 0));
        ok((api.cuDevicePrimaryCtxRetain)(&raw mut again, 0));
        ok((api.cuCtxSetCurrent)(first));
    }
    let freed = alloc(api, MIB);
    behind.spin(late, LONG / 2);
    behind.fill(late, freed, WORDS as u64, 1);
    // SAFETY: our own block; the first context stays retained.
    unsafe {
        ok((api.cuMemFree_v2)(freed));
        ok((api.cuDevicePrimaryCtxRelease_v2)(0));
        ok((api.cuCtxSetCurrent)(second));
    }
    synchronise(api);
    let taken: Vec<u64> = (0..8).map(|_| alloc(api, MIB)).collect();
    let (ahead, prompt) = (Kernels::load(api), stream(api));
    for ptr in &taken {
        ahead.fill(prompt, *ptr, WORDS as u64, 2);
    }
    synchronise(api);
    // SAFETY: both are alive.
    ok(unsafe { (api.cuCtxSetCurrent)(first) });
    synchronise(api);
    for ptr in taken {
        let broken = words(api, ptr, WORDS).iter().filter(|word| **word != 2).count();
        assert_eq!(broken, 0, "words with a broken pattern");
    }
}

/// Contexts, streams and mempools come and go in several threads, and the driver gives handles again: every block keeps its
/// content, nothing waits for ever.
pub(crate) fn coming_and_going(api: &'static Api) {
    const WORDS: usize = 4096;
    const ROUNDS: u32 = 5000;
    context_on(api, 0);
    let check = |ptr: u64, pattern: u32| {
        assert!(words(api, ptr, WORDS).iter().all(|word| *word == pattern), "a pattern is broken");
    };
    let own_context = move |pattern: u32| {
        let mut ctx = null_mut();
        // SAFETY: the places are live locals; everything is this thread's own.
        unsafe {
            ok((api.cuCtxCreate_v2)(&raw mut ctx, 0, 0));
            let (ptr, stream) = (alloc(api, WORDS * 4), stream(api));
            ok((api.cuMemsetD32Async)(ptr, pattern, WORDS, stream));
            synchronise(api);
            check(ptr, pattern);
            ok((api.cuCtxDestroy_v2)(ctx));
        }
    };
    let held_context = move |pattern: u32| {
        context_on(api, 0);
        let stream = stream(api);
        let ptr = alloc_async(api, WORDS * 4, stream);
        // SAFETY: all of it is this thread's own; somebody else retains the context too.
        unsafe {
            ok((api.cuMemsetD32Async)(ptr, pattern, WORDS, stream));
            ok((api.cuStreamSynchronize)(stream));
            ok((api.cuDevicePrimaryCtxRelease_v2)(0));
            check(ptr, pattern);
            ok((api.cuMemFreeAsync)(ptr, stream));
            ok((api.cuStreamDestroy_v2)(stream));
        }
    };
    let own_mempool = move |pattern: u32| {
        context_on(api, 0);
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: CUmemLocation::of(CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, 0),
            ..CUmemPoolProps::default()
        };
        let (mut mempool, mut ptr, stream) = (null_mut(), 0, stream(api));
        // SAFETY: the places are live locals; all of it is this thread's own.
        unsafe {
            ok((api.cuMemPoolCreate)(&raw mut mempool, &raw const properties));
            ok((api.cuMemAllocFromPoolAsync)(&raw mut ptr, WORDS * 4, mempool, stream));
            ok((api.cuMemsetD32Async)(ptr, pattern, WORDS, stream));
            ok((api.cuStreamSynchronize)(stream));
            check(ptr, pattern);
            ok((api.cuMemFreeAsync)(ptr, stream));
            ok((api.cuStreamDestroy_v2)(stream));
            ok((api.cuMemPoolDestroy)(mempool));
            ok((api.cuDevicePrimaryCtxRelease_v2)(0));
        }
    };
    let works: [&(dyn Fn(u32) + Sync); 3] = [&own_context, &held_context, &own_mempool];
    std::thread::scope(|scope| {
        for (number, work) in works.into_iter().cycle().take(6).enumerate() {
            scope.spawn(move || (0..ROUNDS).for_each(|round| work((number as u32) << 24 | round)));
        }
    });
}

/// What the device holds, by the driver's own count.
fn physical_bytes() -> u64 {
    // SAFETY: the library is loaded already.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }.expect("libcuda.so.1");
    // SAFETY: the virtual GPU's own function, of this type.
    let count: libloading::Symbol<'_, unsafe extern "C" fn(i32) -> u64> =
        unsafe { library.get(b"vgpu_physical_bytes") }.expect("the virtual GPU has it");
    // SAFETY: device 0 exists.
    unsafe { count(0) }
}

/// A job that frees by cuMemFree and waits for its streams alone takes no more and more memory; while a kernel is late,
/// nothing of what it may touch comes back.
pub(crate) fn stream_waits(api: &'static Api) {
    context_on(api, 0);
    let kernels = Kernels::load(api);
    let stream = stream(api);
    let pairs = |count: u32| {
        for round in 0..count {
            let ptr = alloc(api, 64 << 10);
            kernels.fill(stream, ptr, 16 << 8, round);
            // SAFETY: our own stream.
            ok(unsafe { (api.cuStreamSynchronize)(stream) });
            assert_eq!(words(api, ptr, 2), [round, round]);
            // SAFETY: our own block.
            ok(unsafe { (api.cuMemFree_v2)(ptr) });
        }
    };
    let before = physical_bytes();
    pairs(1000);
    let taken = physical_bytes() - before;
    assert!(taken <= 8 << 20, "{} MiB for one block of 64 KiB at a time", taken >> 20);
    // Now a kernel on another stream is late, and it was launched while each of the next blocks was live.
    let late = crate::stream(api);
    let blocks: Vec<u64> = (0..256).map(|_| alloc(api, 64 << 10)).collect();
    kernels.spin(late, LONG);
    for (at, ptr) in blocks.iter().enumerate() {
        kernels.fill(late, *ptr, 16 << 8, at as u32);
        // SAFETY: our own block, which the driver would wait for.
        ok(unsafe { (api.cuMemFree_v2)(*ptr) });
    }
    let again: Vec<u64> = (0..256).map(|_| alloc(api, 64 << 10)).collect();
    let reused = again.iter().filter(|ptr| blocks.contains(ptr)).count();
    assert_eq!(reused, 0, "blocks came back that a late kernel writes to");
    synchronise(api);
}
