//! Several threads on one pool and one strict device: each fills, checks and frees its own blocks while
//! the others grow, remap, synchronise and mesh. Touches nothing real.
//!
//! Nothing in the pool is shared between threads without a lock (no unsafe code, one hint), so there is no interleaving of
//! memory operations to model; what can go wrong is the order of whole critical sections around driver calls, and that
//! is what these threads shuffle. How the caches' locks and the pool's go together has a model (tests/model/together.rs).

mod strict;

use std::sync::atomic::{AtomicU64, Ordering};
use strict::{FAULT, Rng, Strict, Work};
use weir_pool::{AllocError, Budget, Caching, Call, Config, Pool, Request};

fn config(capacity: u64, caching: Caching) -> Config {
    Config {
        small_handle: 64 << 10,
        large_handle: 128 << 10,
        tiny_limit: 2 << 10,
        small_limit: 32 << 10,
        caching,
        ..Config::new(capacity * 4)
    }
}

fn thread(pool: &Pool, device: &Strict, stream: u64, operations: u64, refused: &AtomicU64) {
    let mut rng = Rng::new(stream * 77);
    let mut live: Vec<(u64, u64, u64)> = Vec::new();
    for _ in 0..operations {
        match rng.below(20) {
            0..9 => {
                let bytes = match rng.below(4) {
                    0 => 1 + rng.below(2_000),
                    1 => 512 * (1 + rng.below(4)),
                    2 => 2_048 + rng.below(20_000),
                    _ => 40_000 + rng.below(150_000),
                };
                let request = Request { bytes, stream: Some(stream), context: 1, ..Request::default() };
                match pool.allocate(device, &request, &Budget::default()) {
                    Ok(block) => {
                        device.push(stream, Work::Fill { addr: block.addr, bytes: block.allocated, tag: block.buffer });
                        live.push((block.addr, block.allocated, block.buffer));
                    }
                    Err(AllocError::OverCap | AllocError::OutOfMemory) => {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(AllocError::Driver(FAULT)) => {}
                    Err(error) => panic!("{request:?}: {error}"),
                }
            }
            9..17 if !live.is_empty() => {
                let (addr, bytes, tag) = live.swap_remove(rng.below(live.len() as u64) as usize);
                device.push(stream, Work::Check { addr, bytes, tag });
                let freed =
                    if rng.chance(3) { pool.free(device, addr, ()) } else { pool.free_async(addr, stream, 1, ()) };
                assert_eq!(freed.map(|freed| freed.buffer), Ok(tag));
            }
            17 => {
                let proof = pool.began(Call::ContextSync(1));
                let fences = device.mark(|_| true);
                device.run_to(&fences);
                pool.ended(proof, true);
            }
            18 if rng.chance(20) => {
                let mut inner = device.lock();
                (inner.fail_in, inner.fail_count) = (Some(rng.below(5)), 1);
            }
            19 if rng.chance(40) => {
                pool.trim_to(device, rng.below(1 << 20));
            }
            _ => device.progress(&mut rng, 3),
        }
    }
    for (addr, bytes, tag) in live {
        device.push(stream, Work::Check { addr, bytes, tag });
        assert!(pool.free_async(addr, stream, 1, ()).is_ok());
    }
}

#[test]
fn threads_never_see_each_others_bytes() {
    for caching in [Caching::Never, Caching::Contended, Caching::Always] {
        threads_with(caching);
    }
}

fn threads_with(caching: Caching) {
    let capacity = 3 << 20;
    let device = Strict::new(capacity);
    let pool = Pool::new(config(capacity, caching), &device).expect("no fault yet");
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for stream in 1..=4 {
            let (pool, device, refused) = (&pool, &device, &refused);
            scope.spawn(move || thread(pool, device, stream, 6_000, refused));
        }
    });
    device.lock().fail_in = None;
    device.drain();
    assert_eq!(device.violations(), Vec::<String>::new());
    assert_eq!(pool.check(), Ok(()));
    let stats = pool.stats();
    assert_eq!((stats.live_blocks, stats.allocated_bytes), (0, 0));
    assert!(stats.remaps > 0 && stats.self_syncs > 0, "the threads never ran out: {stats:?}");
    assert!(refused.load(Ordering::Relaxed) > 0);
}
