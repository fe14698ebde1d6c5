//! A stream that was seen idle and is then made to follow another takes over that stream's free bytes: they are not
//! proven by what was seen before. Touches nothing real.

mod strict;

use strict::{Strict, Work};
use weir_pool::{Budget, Call, Config, Effort, Pool, Request};

const HANDLE: u64 = 128 << 10;
const EVENT: u64 = 1 << 60;

#[test]
fn bytes_of_a_followed_stream_are_not_proven_by_an_older_look() {
    let capacity = 4 * HANDLE;
    let device = Strict::new(capacity);
    let sizes =
        Config { small_handle: 64 << 10, large_handle: HANDLE, small_limit: 32 << 10, ..Config::new(16 * capacity) };
    let pool = Pool::new(Config { tiny_limit: 2 << 10, mesh: false, ..sizes }, &device).expect("address space");
    let request = |bytes, stream| Request { bytes, stream: Some(stream), context: 1, ..Request::default() };
    pool.context_created(1);
    // The pool knows both streams.
    for call in [Call::EventRecord { event: 6, stream: 1 }, Call::EventWait { event: 6, stream: 2, context: 1 }] {
        let proof = pool.began(call);
        pool.ended(proof, true);
    }
    // The first stream uses all memory and frees it; its work has not run.
    let block = pool.allocate(&device, &request(capacity, 1), &Budget::default()).expect("the whole device");
    device.push(1, Work::Fill { addr: block.addr, bytes: block.allocated, tag: block.buffer });
    pool.free_async(block.addr, 1, 1, ()).expect("a live block");
    // The second stream, which has nothing to do, is seen idle.
    let idle = pool.began(Call::StreamSync(2));
    pool.ended(idle, true);
    // Then it is made to follow the first one.
    let recorded = pool.began(Call::EventRecord { event: 7, stream: 1 });
    device.push(1, Work::Signal(EVENT));
    pool.ended(recorded, true);
    let waits = pool.began(Call::EventWait { event: 7, stream: 2, context: 1 });
    device.push(2, Work::Wait(EVENT));
    pool.ended(waits, true);
    // A request that is too large claims the first stream's bytes in vain: they are the second one's now.
    let budget = Budget { effort: Effort::WithoutWait, ..Budget::default() };
    assert!(pool.allocate(&device, &request(capacity + HANDLE, 2), &budget).is_err());
    assert_eq!(pool.trim_to(&device, 0), 0, "the first stream's work is still queued");
    assert_eq!(device.lock().violations, Vec::<String>::new());
    assert_eq!(pool.check(), Ok(()));
}
