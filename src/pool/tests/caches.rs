//! Streams with caches, one rule at a time: what a pair needs, what recalls them, and what they may not serve.
//! Touches nothing real.

use weir_pool::sim::SimulatedDevice;
use weir_pool::{AllocError, Budget, Caching, Call, Config, FreeError, Pool, Request};

const MIB: u64 = 1 << 20;

struct Job {
    device: SimulatedDevice,
    pool: Pool,
}

impl Job {
    fn new(capacity: u64) -> Self {
        let device = SimulatedDevice::new(capacity);
        let config = Config { caching: Caching::Always, large_handle: 2 * MIB, ..Config::new(capacity) };
        let pool = Pool::new(config, &device).expect("the simulated device reserves anything");
        pool.context_created(1);
        Self { device, pool }
    }

    fn take(&self, stream: u64, bytes: u64) -> Result<u64, AllocError> {
        let request = Request { bytes, stream: Some(stream), context: 1, ..Request::default() };
        self.pool.allocate(&self.device, &request, &Budget::default()).map(|block| block.addr)
    }

    fn give(&self, stream: u64, addr: u64) -> Result<(), FreeError> {
        self.pool.free_async(addr, stream, 1, ()).map(|_| ())
    }

    /// A block of this stream that its cache knows, handed out.
    fn cached(&self, stream: u64, bytes: u64) -> u64 {
        let first = self.take(stream, bytes).expect("there is room");
        assert_eq!(self.give(stream, first), Ok(()));
        assert_eq!(self.take(stream, bytes), Ok(first), "it is the block that was freed last");
        first
    }
}

#[test]
fn a_pair_of_one_stream_is_served_by_its_cache() {
    let job = Job::new(64 * MIB);
    let block = job.cached(1, 4096);
    for bytes in [4096, 3900, 4000] {
        assert_eq!(job.give(1, block), Ok(()));
        assert_eq!(job.take(1, bytes), Ok(block));
        assert_eq!(job.pool.lookup(block).map(|info| info.bytes), Some(bytes));
    }
    let stats = job.pool.stats();
    // A look recalls it, and the free after that fills it again.
    assert_eq!((stats.cache_hits, stats.allocations, stats.live_blocks, stats.live_bytes), (4, 5, 1, 4000));
    assert_eq!(job.pool.check(), Ok(()));
}

#[test]
fn what_a_cache_holds_is_nobody_elses() {
    let job = Job::new(64 * MIB);
    let block = job.cached(1, 4096);
    assert_eq!(job.give(1, block), Ok(()));
    assert_ne!(job.take(2, 4096), Ok(block), "another stream got it without a wait");
    assert_eq!(job.give(1, block), Err(FreeError::Unknown), "it was freed twice");
    assert_eq!(job.pool.free(&job.device, block, ()).err(), Some(FreeError::Unknown), "and synchronously");
    assert_eq!(job.pool.lookup(block), None);
    assert_eq!(job.pool.check(), Ok(()));
}

#[test]
fn a_block_that_a_cache_knows_is_freed_by_whoever_may() {
    let job = Job::new(64 * MIB);
    for free in [
        |job: &Job, block| job.give(2, block),
        |job: &Job, block| job.pool.free(&job.device, block, ()).map(|_| ()),
        |job: &Job, block| job.pool.free_async(block, 1, 2, ()).map(|_| ()),
    ] {
        let block = job.cached(1, 4096);
        assert_eq!(free(&job, block), Ok(()));
        assert_eq!(job.pool.lookup(block), None);
        assert_eq!((job.pool.stats().live_blocks, job.pool.check()), (0, Ok(())));
    }
}

#[test]
fn a_request_at_the_cap_gets_what_caches_hold() {
    let job = Job::new(8 * MIB);
    let blocks: Vec<u64> = (0..448).map(|_| job.take(1, 16 << 10).expect("7 MiB of 8")).collect();
    // The second time they come from the cache, as far as it goes.
    for _ in 0..2 {
        for block in &blocks {
            assert_eq!(job.give(1, *block), Ok(()));
        }
        for _ in &blocks {
            assert!(job.take(1, 16 << 10).is_ok());
        }
    }
    for block in &blocks {
        assert_eq!(job.give(1, *block), Ok(()));
    }
    assert!(job.take(2, 8 * MIB).is_ok(), "memory that nobody holds was refused: {:?}", job.pool.stats());
    assert!(job.pool.stats().cache_hits > 0);
}

#[test]
fn a_synchronisation_proves_what_was_freed_into_a_cache_before_it() {
    let job = Job::new(64 * MIB);
    let block = job.cached(1, 4096);
    assert_eq!(job.give(1, block), Ok(()));
    let proof = job.pool.began(Call::ContextSync(1));
    job.pool.ended(proof, true);
    // Proven: it goes back to the driver without any wait.
    let stats = job.pool.stats();
    assert_eq!(job.pool.trim_to(&job.device, 0), stats.mapped_bytes);
    assert_eq!(job.pool.stats().self_syncs, 0);
}

#[test]
fn a_pinned_block_and_one_of_a_dead_mempool_stay_out() {
    let job = Job::new(64 * MIB);
    let block = job.cached(1, 4096);
    assert_eq!(job.pool.pin(block), Ok(()));
    assert_eq!(job.give(1, block), Ok(()));
    assert_ne!(job.take(1, 4096), Ok(block), "exported memory was handed out");
    let mempool = job.pool.mempool_created().expect("there is room for one");
    let request = Request { bytes: 8192, stream: Some(3), context: 1, mempool };
    let block = job.pool.allocate(&job.device, &request, &Budget::default()).expect("there is room").addr;
    job.pool.mempool_destroyed(mempool);
    assert_eq!(job.give(3, block), Ok(()));
    assert_eq!(job.pool.allocate(&job.device, &request, &Budget::default()), Err(AllocError::Invalid));
    assert_eq!(job.pool.unpin(job.pool.live().first().map_or(0, |live| live.addr)), Err(FreeError::Unknown));
    assert_eq!(job.pool.check(), Ok(()));
}

#[test]
fn streams_and_contexts_that_end_leave_nothing_in_caches() {
    let job = Job::new(64 * MIB);
    let block = job.cached(1, 4096);
    assert_eq!(job.give(1, block), Ok(()));
    job.pool.stream_destroyed(&job.device, 1);
    // The handle comes again: it is another stream.
    assert_ne!(job.take(1, 4096), Ok(block), "its work may still be queued");
    let block = job.cached(5, 4096);
    let gone = job.pool.context_destroyed(&job.device, 1, |_| ());
    assert!(gone.iter().any(|info| info.addr == block));
    assert_eq!((job.pool.stats().live_blocks, job.pool.check()), (0, Ok(())));
}

#[test]
fn more_blocks_than_a_cache_knows_are_the_pools() {
    let job = Job::new(256 * MIB);
    for round in 0..3 {
        let blocks: Vec<u64> = (0..4000).map(|at| job.take(1, 512 * (1 + at % 90)).expect("there is room")).collect();
        let mut sorted = blocks.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 4000, "a block was handed out twice in round {round}");
        // From both ends: every chain of its table is cut somewhere.
        let (first, second) = blocks.split_at(2000);
        for block in first.iter().rev().chain(second) {
            assert_eq!(job.give(1, *block), Ok(()));
        }
    }
    assert_eq!((job.pool.stats().live_blocks, job.pool.check()), (0, Ok(())));
}
