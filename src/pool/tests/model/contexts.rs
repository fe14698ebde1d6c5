//! Contexts come and go while pools come, and each pool knows those whose work may reach its memory.

use crate::{Arc, AtomicU64, AtomicUsize, Guarded, LONG, beside, holds, holds_within, thread};
use loom::sync::Mutex;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use weir_pool::shared::{Atomic, Coming, List, Roster, Seat, Seated, Uses};

struct Slot(Seat<AtomicU64>);

impl Seated for Slot {
    type Word = AtomicU64;
    fn seat(&self) -> &Seat<AtomicU64> {
        &self.0
    }
}

fn slot() -> Slot {
    Slot(Seat::new(AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)))
}

struct Job<const N: usize> {
    contexts: Roster<Guarded<Coming>, Slot, AtomicUsize, N>,
    pools: List<AtomicUsize, AtomicUsize, 1>,
    /// The contexts that the one pool knows.
    knows: Mutex<Vec<u64>>,
    /// Whether contexts of the device 1 reach the pool's memory.
    reach: AtomicU64,
}

fn job<const N: usize>() -> Arc<Job<N>> {
    Arc::new(Job {
        contexts: Roster::new(Guarded::new(Coming::new()), std::array::from_fn(|_| slot()), AtomicUsize::new(0)),
        pools: List::new([AtomicUsize::new(0)], AtomicUsize::new(0)),
        knows: Mutex::new(Vec::new()),
        reach: AtomicU64::new(0),
    })
}

impl<const N: usize> Job<N> {
    fn knowing(&self) -> Vec<u64> {
        self.knows.lock().expect("no thread panics").clone()
    }
    fn has_pool(&self) -> bool {
        self.pools.iter::<usize>().count() > 0
    }
    fn notify(&self, key: u64) {
        // Each once: a pool takes what it is notified of for something that has no work yet.
        self.knows.lock().expect("no thread panics").push(key);
    }
    fn reached(&self, device: u64) -> bool {
        device == 0 || self.reach.load(Acquire) != 0
    }
    /// A context is seen.
    fn context(&self, key: u64, device: u64, me: u64) -> bool {
        let notify = || {
            if self.has_pool() && self.reached(device) {
                self.notify(key);
            }
        };
        self.contexts.find(key).is_some()
            || matches!(self.contexts.add(key, device, me, LONG, |_| (), notify), Ok(Some(_)))
    }
    /// The pool is made.
    fn pool(&self) {
        self.contexts.announce(|known| {
            known.iter().filter(|(_, device)| self.reached(*device)).for_each(|(key, _)| self.notify(*key));
            assert!(self.pools.add(1_usize));
        });
    }
    /// The device 1 gets access.
    fn may_reach(&self) {
        if self.reach.load(Acquire) == 0 {
            self.contexts.announce(|known| {
                if self.reach.load(Acquire) != 0 {
                    return;
                }
                if self.has_pool() {
                    for (key, _) in known {
                        self.notify(*key);
                    }
                }
                self.reach.store(1, Release);
            });
        }
    }
    /// A context goes; `ended` does what the driver does.
    fn destroy(&self, key: u64, me: u64, ended: impl FnOnce() -> bool) {
        self.contexts.await_end(key, me, LONG);
        let Some(Some(_)) = self.contexts.leave(key, me) else { return };
        if ended() {
            self.contexts.ended(key);
            if self.has_pool() {
                self.knows.lock().expect("no thread panics").retain(|known| *known != key);
            }
            self.contexts.left(key);
        } else {
            self.contexts.stay(key);
        }
    }
}

/// A context, a pool and access come at the same moment, in whatever way.
fn all_know_each_other(pool: fn(&Job<1>), reach: fn(&Job<1>), device: u64) -> impl Fn() {
    move || {
        let job = job::<1>();
        let (one, two) = (job.clone(), job.clone());
        let one = thread::spawn(move || assert!(one.context(40, device, 1)));
        let two = (device == 1).then(|| thread::spawn(move || reach(&two)));
        pool(&job);
        one.join().expect("no thread panics");
        if let Some(two) = two {
            two.join().expect("no thread panics");
        }
        assert_eq!(job.knowing(), [40], "a pool does not know a context");
    }
}

#[test]
fn a_pool_knows_every_context_that_reaches_it() {
    assert!(holds(all_know_each_other(Job::pool, Job::may_reach, 0)));
}

#[test]
fn a_pool_knows_every_context_of_a_device_that_gets_access() {
    assert!(holds_within(3, all_know_each_other(Job::pool, Job::may_reach, 1)));
}

#[test]
fn a_pool_that_reads_who_is_there_before_it_comes_is_caught() {
    let early = |job: &Job<1>| {
        let known: Vec<_> = job.contexts.all().collect();
        for (key, _) in known {
            job.notify(key);
        }
        job.contexts.announce(|_| assert!(job.pools.add(1_usize)));
    };
    assert!(!holds(all_know_each_other(early, Job::may_reach, 0)));
}

#[test]
fn access_that_is_given_beside_the_lock_is_caught() {
    let early = |job: &Job<1>| {
        job.reach.store(1, Release);
        if job.has_pool() {
            job.contexts.all().for_each(|(key, _)| job.notify(key));
        }
    };
    assert!(!holds(all_know_each_other(Job::pool, early, 1)));
}

/// A thread that finds a context works in it: the pool was notified before.
fn known_before_it_is_seen(come: fn(&Job<1>)) -> impl Fn() {
    move || {
        let job = job::<1>();
        job.pool();
        let theirs = job.clone();
        beside(
            move || come(&theirs),
            || {
                if job.contexts.find(40).is_some() {
                    assert_eq!(job.knowing(), [40], "it is seen before it is known");
                }
            },
        );
    }
}

#[test]
fn a_context_is_known_before_it_is_seen() {
    assert!(holds(known_before_it_is_seen(|job| assert!(job.context(40, 0, 1)))));
}

#[test]
fn a_context_that_is_announced_afterwards_is_caught() {
    assert!(!holds(known_before_it_is_seen(|job| {
        assert!(matches!(job.contexts.add(40, 0, 1, LONG, |_| (), || ()), Ok(Some(_))));
        job.notify(40);
    })));
}

#[test]
fn access_that_is_seen_before_the_pool_knows_is_caught() {
    let given = |late: bool| {
        move || {
            let job = job::<1>();
            assert!(job.context(40, 1, 1));
            job.pool();
            let theirs = job.clone();
            let give = move || {
                if late {
                    theirs.may_reach();
                } else {
                    theirs.reach.store(1, Release);
                    theirs.notify(40);
                }
            };
            beside(give, || {
                job.may_reach_unless_seen();
                assert_eq!(job.knowing(), [40], "work of a context that is not known reaches the pool");
            });
        }
    };
    assert!(holds(given(true)));
    assert!(!holds(given(false)));
}

impl Job<1> {
    fn may_reach_unless_seen(&self) {
        if self.reach.load(Acquire) == 0 {
            self.may_reach();
        }
    }
}

/// The driver gives the handle of a context that was just destroyed to a new one, in another thread.
fn a_new_one_of_the_same_handle(waits: bool) -> impl Fn() {
    move || {
        let job = job::<2>();
        job.pool();
        assert!(job.context(40, 0, 1));
        let free = Arc::new(AtomicU64::new(0));
        let (theirs, freed) = (job.clone(), free.clone());
        let destroy = move || {
            theirs.destroy(40, 1, || {
                freed.store(1, Release);
                true
            });
        };
        beside(destroy, || {
            if free.load(Acquire) == 1 {
                if waits {
                    assert!(job.context(40, 0, 2));
                } else {
                    job.notify(40);
                }
                assert_eq!(job.knowing(), [40], "it went with the one before");
                free.store(2, Relaxed);
            }
        });
        let created = free.load(Relaxed) == 2;
        assert_eq!(job.knowing().len(), usize::from(created), "it went with the one before");
    }
}

#[test]
fn a_context_is_not_taken_for_the_one_before_of_the_same_handle() {
    assert!(holds(a_new_one_of_the_same_handle(true)));
}

#[test]
fn a_context_that_does_not_wait_for_the_end_of_the_one_before_is_caught() {
    assert!(!holds(a_new_one_of_the_same_handle(false)));
}

/// A context that was about to go stays, while a pool comes and another thread comes to use it and one comes in anew.
#[test]
fn a_context_that_stays_is_as_it_was_and_known_to_a_pool_that_came_meanwhile() {
    assert!(holds(|| {
        let job = job::<2>();
        assert!(job.context(40, 0, 1));
        let before = job.contexts.find(40).map(|slot| slot.0.serial());
        let theirs = job.clone();
        beside(
            move || theirs.destroy(40, 1, || false),
            || {
                assert!(job.context(48, 1, 2), "its seat is taken");
                job.pool();
            },
        );
        assert_eq!(job.contexts.find(40).map(|slot| (slot.0.serial(), slot.0.value())), before.map(|at| (at, 0)));
        assert_eq!(job.knowing(), [40]);
    }));
}

#[test]
fn a_context_that_ends_is_known_to_no_pool_that_comes_meanwhile() {
    assert!(holds(|| {
        let job = job::<1>();
        assert!(job.context(40, 0, 1));
        let theirs = job.clone();
        beside(move || theirs.destroy(40, 1, || true), || job.pool());
        assert!(job.knowing().is_empty() && job.contexts.find(40).is_none(), "a pool knows one that is gone");
    }));
}

#[test]
fn an_end_that_is_announced_before_it_is_certain_to_newcomers_is_caught() {
    assert!(!holds(|| {
        let job = job::<1>();
        assert!(job.context(40, 0, 1));
        let theirs = job.clone();
        let destroy = move || {
            assert_eq!(theirs.contexts.leave(40, 1), Some(Some(0)));
            if theirs.has_pool() {
                theirs.knows.lock().expect("no thread panics").retain(|known| *known != 40);
            }
            theirs.contexts.left(40);
        };
        beside(destroy, || job.pool());
        assert!(job.knowing().is_empty(), "a pool knows one that is gone");
    }));
}

/// All work is waited for while a context is about to go, and then stays: it is among those whose work that is.
fn work_of_one_that_stays_is_waited_for(certain: fn(&Job<1>) -> bool) -> impl Fn() {
    move || {
        let shared = Arc::new((job::<1>(), Uses::new(AtomicU64::new(0), AtomicU64::new(0))));
        assert!(shared.0.context(40, 0, 1));
        let theirs = shared.clone();
        let release = move || {
            let (job, alive) = &*theirs;
            let pause = || {
                thread::yield_now();
                true
            };
            alive.bar(pause, || assert_eq!(job.contexts.leave(40, 1), Some(Some(0))));
            job.contexts.stay(40);
        };
        beside(release, || {
            let (job, alive) = &*shared;
            // Tried once: who does not get in tries again later, which is the same from the beginning.
            if alive.enter() {
                if certain(job) {
                    let there: Vec<u64> = job.contexts.all().map(|(key, _)| key).collect();
                    assert_eq!(there, [40], "its work is not waited for");
                }
                alive.leave();
            }
        });
    }
}

#[test]
fn a_wait_for_all_work_misses_none_that_stays() {
    assert!(holds(work_of_one_that_stays_is_waited_for(|job| job.contexts.certain(2))));
}

#[test]
fn a_wait_that_does_not_check_again_is_caught() {
    assert!(!holds(work_of_one_that_stays_is_waited_for(|_| true)));
}

/// A word that one thread only writes and the other only reads: the checker needs no help with it.
struct Bare(loom::sync::atomic::AtomicU64);

impl Atomic<u64> for Bare {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.swap(value, order)
    }
    fn exchange(&self, from: u64, to: u64) -> Result<u64, u64> {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Acquire)
    }
}

/// A seat is left and taken by another, and then by one of the first one's handle, while somebody looks at it.
fn owner_and_value_belong_together(look: fn(&Seat<Bare>) -> Option<(u64, u64)>) -> impl Fn() {
    move || {
        let word = || Bare(loom::sync::atomic::AtomicU64::new(0));
        let seat = Arc::new(Seat::new(word(), word(), word()));
        seat.take(40, 1, 1);
        let theirs = seat.clone();
        let change = move || {
            for (key, serial) in [(48, 2), (40, 3)] {
                theirs.leave();
                theirs.take(key, serial, serial);
            }
        };
        beside(change, || {
            if let Some(seen) = look(&seat) {
                assert!([(40, 1), (48, 2), (40, 3)].contains(&seen), "the value of another: {seen:?}");
            }
        });
        assert_eq!(look(&seat), Some((40, 3)));
    }
}

#[test]
fn a_seat_returns_owner_and_value_that_belong_together() {
    assert!(holds(owner_and_value_belong_together(Seat::seen)));
}

#[test]
fn a_seat_that_is_read_word_by_word_is_caught() {
    assert!(!holds(owner_and_value_belong_together(|seat| {
        let read = (seat.key(), seat.value());
        (read.0 != 0).then_some(read)
    })));
}

#[test]
fn a_seat_whose_serial_does_not_count_is_caught() {
    assert!(!holds(owner_and_value_belong_together(|seat| {
        let read = (seat.key(), seat.value());
        (read.0 != 0 && seat.key() == read.0).then_some(read)
    })));
}
