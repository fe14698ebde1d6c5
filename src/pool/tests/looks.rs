//! Synchronous allocations and frees in turns: what is freed comes back when a look finds the device idle, so a job that
//! never waits for the device takes no more memory for it. Touches nothing real.

mod strict;

use strict::{Strict, Work};
use weir_pool::{Budget, Config, Pool, Request};

const HANDLE: u64 = 64 << 10;

fn pool(device: &Strict) -> Pool {
    let config = Config {
        small_handle: HANDLE,
        large_handle: HANDLE,
        tiny_limit: 2 << 10,
        small_limit: 32 << 10,
        ..Config::new(64 << 20)
    };
    Pool::new(config, device).expect("there is address space")
}

/// One block after the other, each with work of its own on stream 1, which `after` may end.
fn run(pool: &Pool, device: &Strict, bytes: u64, pairs: u64, after: impl Fn()) {
    for _ in 0..pairs {
        let request = Request { bytes, stream: None, context: 1, ..Request::default() };
        let block = pool.allocate(device, &request, &Budget::default()).expect("the device is large");
        device.push(1, Work::Fill { addr: block.addr, bytes: block.allocated, tag: block.buffer });
        device.push(1, Work::Check { addr: block.addr, bytes: block.allocated, tag: block.buffer });
        after();
        assert!(pool.free(device, block.addr, ()).is_ok());
    }
}

#[test]
fn a_job_that_waits_for_its_streams_alone_takes_little() {
    for bytes in [512, 1 << 10, 4 << 10, 24 << 10, 64 << 10, 200 << 10] {
        let device = Strict::new(32 << 20);
        let pool = pool(&device);
        run(&pool, &device, bytes, 20_000, || device.drain());
        let (stats, most) = (pool.stats(), 17 * bytes + 3 * HANDLE);
        assert!(stats.mapped_bytes <= most, "{bytes}: {stats:?}");
        assert_eq!(stats.self_syncs, 0, "nobody was waited for");
        assert_eq!(device.violations(), Vec::<String>::new());
        assert_eq!(pool.check(), Ok(()));
    }
}

#[test]
fn a_device_at_work_is_seldom_looked_at() {
    let device = Strict::new(32 << 20);
    let pool = pool(&device);
    run(&pool, &device, 4 << 10, 2_000, || ());
    assert!((2..=8).contains(&pool.stats().calls.fence), "{:?}", pool.stats());
    device.drain();
    run(&pool, &device, 4 << 10, 100_000, || device.drain());
    let stats = pool.stats();
    assert!(stats.mapped_bytes <= 17 << 20, "twice what waited when the device was at work: {stats:?}");
    assert_eq!((stats.self_syncs, device.violations()), (0, Vec::<String>::new()));
}
