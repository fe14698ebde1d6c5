//! Caches of streams before the pool's lock: who needs the whole has all of it, nobody waits in a circle, and what is freed
//! in a cache after a proof began is not taken for proven.

use crate::{Arc, beside, holds, holds_within, thread};
use loom::sync::{Mutex, MutexGuard};
use weir_pool::shared::{Layers, together};

/// A block that a cache knows, and how much work was queued when it was freed.
#[derive(Clone, Copy)]
struct Block {
    live: bool,
    stamp: u64,
    work: u64,
}

#[derive(Default)]
struct Cache {
    stamp: u64,
    block: Option<Block>,
}

#[derive(Default)]
struct Core {
    now: u64,
    filled: u64,
    /// Blocks that came into caches and were not recalled: what the job of this lock is to know.
    out: u32,
    free: Vec<Block>,
}

struct Pool {
    caches: [Mutex<Cache>; 2],
    core: Mutex<Core>,
    /// Work that the job has queued.
    queued: Mutex<u64>,
}

#[derive(Clone, Copy)]
struct Locks(&'static Pool);

impl Layers for Locks {
    type Cache = MutexGuard<'static, Cache>;
    type Core = MutexGuard<'static, Core>;
    fn cache(self, at: usize) -> Self::Cache {
        self.0.caches[at].lock().expect("no thread panics")
    }
    fn core(self) -> Self::Core {
        self.0.core.lock().expect("no thread panics")
    }
    fn filled(core: &Self::Core) -> u64 {
        core.filled
    }
}

type Whole = (MutexGuard<'static, Core>, Vec<MutexGuard<'static, Cache>>);
type Way = fn(Locks) -> Whole;

impl Pool {
    fn made() -> Locks {
        let cache = || Mutex::new(Cache::default());
        let pool = Self { caches: [cache(), cache()], core: Mutex::new(Core::default()), queued: Mutex::new(0) };
        Locks(Box::leak(Box::new(pool)))
    }
}

impl Locks {
    /// A block is freed by way of the pool, into its stream's cache.
    fn fill(self, at: usize) {
        let mut cache = self.cache(at);
        let mut core = self.core();
        core.now += 1;
        cache.stamp = core.now;
        cache.block = Some(Block { live: false, stamp: core.now, work: 0 });
        core.filled |= 1 << at;
        core.out += 1;
    }

    /// The block is requested again, and used.
    fn hit(self, at: usize) -> bool {
        let found = match &mut self.cache(at).block {
            Some(block) if !block.live => {
                block.live = true;
                true
            }
            _ => false,
        };
        if found {
            *self.0.queued.lock().expect("no thread panics") += 1;
        }
        found
    }

    /// And freed again, without the pool's lock while the cache knows it.
    fn free(self, at: usize) {
        let work = *self.0.queued.lock().expect("no thread panics");
        let mut cache = self.cache(at);
        let stamp = cache.stamp;
        if let Some(block) = &mut cache.block {
            *block = Block { live: false, stamp, work };
            return;
        }
        let mut core = self.core();
        core.now += 1;
        let stamp = core.now;
        core.free.push(Block { live: false, stamp, work });
    }

    fn recall(self, way: Way) -> MutexGuard<'static, Core> {
        let (mut core, mut caches) = way(self);
        for cache in &mut caches {
            core.out -= u32::from(cache.block.is_some());
            core.free.extend(cache.block.take().filter(|block| !block.live));
        }
        core.filled = 0;
        core
    }

    /// A proof: the time is read, then everything that is queued is waited for. Returns the time, and how much that was.
    fn proof(self, dated: bool) -> (u64, u64) {
        let (mut core, mut caches) = together(self);
        let time = core.now;
        if !caches.is_empty() && dated {
            core.now += 1;
            for cache in &mut caches {
                cache.stamp = core.now;
            }
        }
        drop((core, caches));
        (time, *self.0.queued.lock().expect("no thread panics"))
    }
}

fn a_proof_covers_what_was_freed_before(dated: bool) -> bool {
    holds(move || {
        let locks = Pool::made();
        locks.fill(0);
        beside(
            move || {
                if locks.hit(0) {
                    locks.free(0);
                }
            },
            move || {
                let (time, done) = locks.proof(dated);
                let core = locks.recall(together);
                for block in core.free.iter().filter(|block| block.stamp <= time) {
                    assert!(block.work <= done, "work on it is still queued");
                }
            },
        );
    })
}

#[test]
fn what_is_freed_in_a_cache_is_proven_by_later_proofs_only() {
    assert!(a_proof_covers_what_was_freed_before(true));
    assert!(!a_proof_covers_what_was_freed_before(false));
}

fn the_whole_is_all_of_it(way: Way) -> bool {
    holds_within(3, move || {
        let locks = Pool::made();
        locks.fill(0);
        let filler = thread::spawn(move || locks.fill(1));
        let other = thread::spawn(move || drop(locks.recall(together)));
        let core = locks.recall(way);
        assert_eq!(core.out, 0, "a cache still knows a block");
        drop(core);
        filler.join().expect("no thread panics");
        other.join().expect("no thread panics");
        let core = locks.recall(together);
        assert_eq!((core.out, core.free.len()), (0, 2));
    })
}

#[test]
fn who_needs_the_whole_has_every_cache() {
    assert!(the_whole_is_all_of_it(together));
    // Only the caches that were filled at first sight.
    assert!(!the_whole_is_all_of_it(|locks| {
        let filled = locks.core().filled;
        let caches = (0..2).filter(|at| filled >> at & 1 == 1).map(|at| locks.cache(at)).collect();
        (locks.core(), caches)
    }));
    // The caches behind the core: who fills one and who needs the whole wait for each other.
    assert!(!the_whole_is_all_of_it(|locks| {
        let core = locks.core();
        let caches = (0..2).filter(|at| core.filled >> at & 1 == 1).map(|at| locks.cache(at)).collect();
        (core, caches)
    }));
}

#[test]
fn a_block_is_in_one_place() {
    assert!(holds(|| {
        let locks = Pool::made();
        locks.fill(0);
        let served = Arc::new(Mutex::new(0));
        let theirs = served.clone();
        beside(
            move || {
                if locks.hit(0) {
                    *theirs.lock().expect("no thread panics") += 1;
                }
            },
            move || {
                let mut core = locks.recall(together);
                let taken = core.free.pop().is_some();
                drop(core);
                *served.lock().expect("no thread panics") += u32::from(taken);
                assert!(*served.lock().expect("no thread panics") <= 1);
            },
        );
    }));
}
