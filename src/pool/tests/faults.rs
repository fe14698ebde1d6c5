//! Every driver call of a long story fails once, one after the other: the pool stays consistent, the job
//! gets the right error, and the story goes on. Touches nothing real.

mod strict;

use strict::{FAULT, Strict, Work};
use weir_pool::{AllocError, Budget, Call, Config, Pool, Request};

fn config(capacity: u64, vmm: bool) -> Config {
    Config {
        small_handle: 64 << 10,
        large_handle: 128 << 10,
        tiny_limit: 2 << 10,
        small_limit: 32 << 10,
        segment: 256 << 10,
        vmm,
        ..Config::new(capacity * 4)
    }
}

/// Fill the device with small blocks, free three of four, request large ones: creates, remaps, converts,
/// synchronises, meshes. Then give everything back. Returns the number of driver calls.
fn story(vmm: bool, fail_at: Option<u64>, in_a_row: u64) -> (u64, weir_pool::Stats) {
    let capacity = 1 << 20;
    let device = Strict::new(capacity);
    device.lock().near_capacity = capacity / 2;
    let pool = Pool::new(config(capacity, vmm), &device).expect("no fault yet");
    {
        let mut inner = device.lock();
        (inner.fail_in, inner.fail_count, inner.calls) = (fail_at, in_a_row, 0);
    }
    let mut live = Vec::new();
    let mut rng = strict::Rng::new(5);
    let request = |bytes: u64, stream: Option<u64>, live: &mut Vec<(u64, u64, u64)>| {
        let request = Request { bytes, stream, context: 1, ..Request::default() };
        match pool.allocate(&device, &request, &Budget::default()) {
            Ok(block) => {
                device.push(1, Work::Fill { addr: block.addr, bytes: block.allocated, tag: block.buffer });
                live.push((block.addr, block.allocated, block.buffer));
            }
            Err(AllocError::OverCap | AllocError::OutOfMemory | AllocError::Driver(FAULT)) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(pool.check(), Ok(()), "after {bytes} bytes with fault {fail_at:?}");
    };
    for _ in 0..70 {
        request(4096 + rng.below(20_000), Some(1), &mut live);
    }
    for _ in 0..4 {
        request(100 + rng.below(900), Some(2), &mut live);
    }
    for nth in (0..live.len()).rev() {
        if nth % 4 != 0 {
            let (addr, bytes, tag) = live.swap_remove(nth);
            device.push(1, Work::Check { addr, bytes, tag });
            let freed = if nth % 3 == 0 { pool.free(&device, addr, ()) } else { pool.free_async(addr, 1, 1, ()) };
            assert!(freed.is_ok());
        }
    }
    for _ in 0..6 {
        request(90_000 + rng.below(80_000), Some(2), &mut live);
    }
    // Once the device is idle, live blocks get better memory.
    device.drain();
    let _ = pool.migrate(&device, 4 * (128 << 10));
    assert_eq!(pool.check(), Ok(()), "after migrating with fault {fail_at:?}");
    for (addr, bytes, tag) in live {
        device.push(1, Work::Check { addr, bytes, tag });
        assert!(pool.free(&device, addr, ()).is_ok());
    }
    pool.trim_to(&device, 0);
    for context in [1, 1] {
        let proof = pool.began(Call::ContextSync(context));
        device.drain();
        pool.ended(proof, true);
        // A request that needs a growth lets granules that shared a handle part.
        if let Ok(block) =
            pool.allocate(&device, &Request { bytes: 600_000, context: 1, ..Request::default() }, &Budget::default())
        {
            let _ = pool.free(&device, block.addr, ());
        }
    }
    let proof = pool.began(Call::ContextSync(1));
    pool.ended(proof, true);
    for stream in [1, 2] {
        pool.stream_destroyed(&device, stream);
    }
    let proof = pool.began(Call::ContextSync(1));
    pool.ended(proof, true);
    assert_eq!(pool.check(), Ok(()), "with fault {fail_at:?}");
    let calls = device.lock().calls;
    device.lock().fail_in = None;
    pool.trim_to(&device, 0);
    let stats = pool.stats();
    assert_eq!(device.violations(), Vec::<String>::new(), "with fault {fail_at:?}");
    if in_a_row == 1 {
        assert_eq!(device.lock().used, 0, "with fault {fail_at:?}: {stats:?}");
    } else {
        // An undo that fails too may cost free memory, but no live byte, and it is accounted for.
        assert_eq!(device.lock().used, stats.lost_bytes, "with faults from {fail_at:?}: {stats:?}");
    }
    (calls, stats)
}

#[test]
fn any_single_fault_is_survived() {
    let (calls, stats) = story(true, None, 1);
    let done = [stats.meshes, stats.trims, stats.self_syncs, stats.migrated];
    assert!(done.iter().all(|count| *count > 0), "the story is too short: {stats:?}");
    for fail_at in 0..calls {
        story(true, Some(fail_at), 1);
    }
}

#[test]
fn any_few_faults_in_a_row_lose_no_live_byte() {
    let (calls, _) = story(true, None, 1);
    for in_a_row in 2..8 {
        for fail_at in 0..calls {
            story(true, Some(fail_at), in_a_row);
        }
    }
}

#[test]
fn plain_segments_survive_any_single_fault() {
    let (calls, stats) = story(false, None, 1);
    assert!(calls > 4 && stats.trims > 0, "the story is too short: {stats:?}");
    for fail_at in 0..calls {
        story(false, Some(fail_at), 1);
    }
}
