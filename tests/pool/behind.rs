//! Properties that show only while the device is far behind the program: a long kernel holds a stream,
//! and work that is queued behind it must find its memory as it was. None depends on luck: the kernel
//! lasts far longer than the calls that are made meanwhile.

use crate::api::{Api, Kernels, OK, OUT_OF_MEMORY, context_on, ok};
use crate::soak_peer::Peer;
use crate::{MIB, alloc, alloc_async, free_bytes, stream, words};

/// How long the device is behind, in nanoseconds.
const LONG: u64 = 2_000_000_000;

fn synchronise(api: &Api) {
    // SAFETY: takes nothing.
    ok(unsafe { (api.cuCtxSynchronize)() });
}

/// Sparse granules share memory: not while a late kernel still has to write into them, never where their
/// blocks lie in the same place, never what another process has opened. `VGPU_MEM` is small, so that
/// nothing but a mesh makes room.
pub(crate) fn mesh(api: &'static Api) {
    const BLOCK: usize = 128 << 10;
    const WORDS: usize = BLOCK / 4;
    context_on(api, 0);
    let kernels = Kernels::load(api);
    let stream = stream(api);
    let mut blocks = Vec::new();
    loop {
        let mut ptr = 0;
        // SAFETY: the place is a live local.
        match unsafe { (api.cuMemAlloc_v2)(&raw mut ptr, BLOCK) } {
            OK => blocks.push(ptr),
            code => break assert_eq!(code, OUT_OF_MEMORY),
        }
    }
    // One block of each granule stays: where its neighbour's stays too, but no other granule's.
    let stays = |ptr: &u64| (ptr / BLOCK as u64) % 16 == (ptr / (32 * BLOCK as u64)) % 16;
    let (kept, freed): (Vec<u64>, Vec<u64>) = blocks.into_iter().partition(stays);
    assert!(kept.len() >= 16, "{} granules", kept.len());
    for ptr in freed {
        // SAFETY: our own block.
        ok(unsafe { (api.cuMemFree_v2)(ptr) });
    }
    synchronise(api);
    let mut peer = Peer::start();
    let opened: Vec<(usize, usize)> = [3, 5, 7].map(|at| (at, peer.open(api, kept[at]))).into();
    let bytes = free_bytes(api) / 10 * 6;
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

/// What one stream has freed and not finished is not another's, be its size the very one that is asked for.
pub(crate) fn shelf_of_another(api: &'static Api) {
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
pub(crate) fn shelf_in_granule(api: &'static Api) {
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
