//! The admission protocol and the queue under a model checker: every interleaving of two members, in two scenarios with up
//! to six preemptions a run; and a member that dies or halts for ever before each of its shared accesses in turn, beside
//! another and then a newcomer in its row, with up to three (without these bounds the runs do not come to an end).
//!
//! The checker runs the very code that runs on the mapped file. Every guard is also removed once, on purpose, and the
//! checker must then find the fault: a check that cannot fail would prove nothing.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{
    AtomicU64 as Plain,
    Ordering::{Relaxed, SeqCst},
};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64 as Checked};
use loom::thread;
use weir_ledger::admission::{self, Refused};
use weir_ledger::fault::{Fault, inject};
use weir_ledger::queue;
use weir_ledger::table::{Table, words_for};
use weir_ledger::word::{Amount, Sum, Word};

/// A word the checker watches, or a plain one where the protocol does not depend on it (marks, categories, header).
///
/// Every access to a watched one also touches a second word, with no order at all. The checker takes a load and a store of
/// one word for dependent only if nothing of the storing thread lies between them, and would leave out runs; with that
/// word every two accesses are.
enum ModelWord {
    Watched(Checked, Checked),
    Plain(Plain),
}

struct Dead;

thread_local! {
    /// The thread that is to die and how many accesses it still has.
    static KILLED: Cell<Option<(thread::ThreadId, u32)>> = const { Cell::new(None) };
}

fn maybe_die() {
    if let Some((id, left)) = KILLED.get()
        && thread::current().id() == id
    {
        if left == 0 {
            resume_unwind(Box::new(Dead));
        }
        KILLED.set(Some((id, left - 1)));
    }
}

impl Word for ModelWord {
    fn load(&self) -> u64 {
        match self {
            Self::Watched(w, touched) => {
                maybe_die();
                touched.fetch_add(1, Relaxed);
                w.load(SeqCst)
            }
            Self::Plain(w) => w.load(SeqCst),
        }
    }
    fn store(&self, value: u64) {
        match self {
            Self::Watched(w, touched) => {
                maybe_die();
                touched.fetch_add(1, Relaxed);
                w.store(value, SeqCst);
            }
            Self::Plain(w) => w.store(value, SeqCst),
        }
    }
    fn replace(&self, old: u64, new: u64) -> bool {
        match self {
            Self::Watched(w, touched) => {
                maybe_die();
                touched.fetch_add(1, Relaxed);
                w.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
            }
            Self::Plain(w) => w.compare_exchange(old, new, SeqCst, SeqCst).is_ok(),
        }
    }
    fn add(&self, by: u64) -> u64 {
        match self {
            Self::Watched(w, touched) => {
                maybe_die();
                touched.fetch_add(1, Relaxed);
                w.fetch_add(by, SeqCst)
            }
            Self::Plain(w) => w.fetch_add(by, SeqCst),
        }
    }
}

const MEMBERS: usize = 2;

struct World {
    words: Vec<ModelWord>,
}

impl World {
    /// A ledger with two owned rows and a cap. The words of the protocol are watched: sum and cap of the device, and
    /// held, announced, declared and ticket of each row.
    fn new(cap: u64, watch_tickets: bool) -> Arc<Self> {
        let device = 16;
        let row = |slot: usize| 16 + 16 * 16 + slot * (8 + 16 * 16) + 8;
        let watched = |i: usize| {
            i == device + 4
                || i == device + 5
                || (0..MEMBERS)
                    .any(|s| i == row(s) || i == row(s) + 1 || i == row(s) + 2 || (watch_tickets && i == row(s) + 4))
        };
        let words = (0..words_for(MEMBERS))
            .map(|i| {
                if watched(i) {
                    ModelWord::Watched(Checked::new(0), Checked::new(0))
                } else {
                    ModelWord::Plain(Plain::new(0))
                }
            })
            .collect();
        let world = Arc::new(Self { words });
        for slot in 0..MEMBERS {
            world.table().owner(slot).pid.store(1 + slot as u64);
        }
        world.table().cell(1, 0).declared.store(cap);
        admission::refresh_cap(world.table(), 0, true, |_| true);
        world
    }

    fn table(&self) -> Table<'_, ModelWord> {
        Table::new(&self.words, MEMBERS).expect("enough words")
    }

    fn sum(&self) -> u64 {
        Sum::unpack(self.table().device(0).sum.load()).units
    }

    fn held(&self, slot: usize) -> u64 {
        admission::held(self.table(), slot, 0)
    }

    /// At rest the sum is that of the rows and within the cap.
    fn check(&self) {
        let rows = self.held(0) + self.held(1);
        assert_eq!(self.sum(), rows, "the sum is not that of the rows");
        let cap = Amount::unpack(self.table().device(0).cap.load()).units;
        assert!(rows <= cap, "{rows} held under a cap of {cap}");
    }
}

/// Goes through all interleavings that differ in their effect, with at most so many preemptions.
fn explore(preemptions: Option<usize>, scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 5000;
    let runs = std::sync::Arc::new(Plain::new(0));
    let count = runs.clone();
    builder.check(move || {
        count.fetch_add(1, SeqCst);
        scenario();
    });
    println!("{} interleavings", runs.load(SeqCst));
}

/// Runs `body` as a member that stops for ever before its `steps`-th shared access.
fn doomed(steps: u32, body: impl FnOnce()) -> bool {
    KILLED.set(Some((thread::current().id(), steps)));
    let ended = catch_unwind(AssertUnwindSafe(body));
    KILLED.set(None);
    match ended {
        Ok(()) => false,
        Err(reason) if reason.is::<Dead>() => true,
        Err(reason) => resume_unwind(reason),
    }
}

/// Two request 5 of 8: exactly one gets it, whatever the interleaving; neither both nor none.
fn one_of_two_wins() {
    explore(None, || {
        let world = World::new(8, false);
        let other = {
            let world = world.clone();
            thread::spawn(move || admission::take(world.table(), 1, 0, 5, true).is_ok())
        };
        let mine = admission::take(world.table(), 0, 0, 5, true);
        let theirs = other.join().unwrap();
        assert!(mine.is_ok() != theirs, "one of two must win: {mine:?} {theirs}");
        world.check();
    });
}

/// Both take and give back, twice: nothing is lost and nothing is left.
fn taking_and_giving_back() {
    explore(Some(6), || {
        let world = World::new(8, false);
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                if admission::take(world.table(), 1, 0, 6, true).is_ok() {
                    admission::release(world.table(), 1, 0, 4);
                }
            })
        };
        if admission::take(world.table(), 0, 0, 3, true).is_ok() {
            admission::release(world.table(), 0, 0, 1);
        }
        other.join().unwrap();
        world.check();
        admission::release(world.table(), 0, 0, 99);
        admission::release(world.table(), 1, 0, 99);
        assert_eq!(world.sum(), 0);
    });
}

/// One member dies before its n-th access, for every n; another works on meanwhile (so a halted one blocks nobody),
/// reclaims it, and a new owner takes the row at the same time. At the end the whole cap is there again.
fn death_at_every_step() {
    for steps in 0.. {
        let died = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = died.clone();
        explore(Some(3), move || {
            let world = World::new(8, false);
            let dead = Arc::new(AtomicBool::new(false));
            let member = {
                let (world, dead, seen) = (world.clone(), dead.clone(), seen.clone());
                thread::spawn(move || {
                    let died = doomed(steps, || {
                        if admission::take(world.table(), 1, 0, 4, true).is_ok() {
                            admission::release(world.table(), 1, 0, 3);
                        }
                    });
                    if died {
                        seen.store(true, SeqCst);
                        dead.store(true, SeqCst);
                    }
                })
            };
            // Works beside the member, whether it lives, halts or is dead.
            let got = admission::take(world.table(), 0, 0, 3, true);
            assert!(got.is_ok(), "3 and 4 fit under 8");
            admission::reclaim(world.table(), 1, 0, || dead.load(SeqCst));
            member.join().unwrap();
            if dead.load(SeqCst) {
                // A new owner has the row's lock and takes it while another member still reclaims.
                let newcomer = {
                    let world = world.clone();
                    thread::spawn(move || {
                        admission::reclaim(world.table(), 1, 0, || true);
                        admission::take(world.table(), 1, 0, 5, true)
                    })
                };
                let called = Cell::new(false);
                // This death certificate was made out before the newcomer came; it may be late, not wrong: the row is
                // read before, so it can only hit what the dead one held.
                let before = admission::held(world.table(), 1, 0);
                if before != 0 {
                    admission::reclaim(world.table(), 1, 0, || {
                        called.set(true);
                        !is_moved_in(&world)
                    });
                }
                let theirs = newcomer.join().unwrap();
                assert!(theirs.is_ok(), "the whole share of the dead is free: {theirs:?}");
                assert_eq!(world.held(1), 5, "the newcomer keeps what it took");
                world.check();
                admission::release(world.table(), 1, 0, 99);
            }
            world.check();
            admission::release(world.table(), 0, 0, 99);
            admission::release(world.table(), 1, 0, 99);
            assert_eq!(world.sum(), 0, "bytes were left behind");
            admission::take(world.table(), 0, 0, 8, true).expect("the whole cap is there again");
        });
        if !died.load(SeqCst) {
            assert!(steps > 10, "the member was never reached");
            return;
        }
    }
}

/// Stands for the kernel's answer: the row is locked by a living newcomer once it has taken something.
fn is_moved_in(world: &World) -> bool {
    Amount::unpack(world.table().cell(1, 0).held.load()).units == 5
}

/// The cap is lowered while a request is under way: once the order has returned nothing is admitted under the old cap.
fn lowering_overtakes_requests() {
    explore(None, || {
        let world = World::new(8, false);
        let taker = {
            let world = world.clone();
            thread::spawn(move || admission::take(world.table(), 1, 0, 7, true))
        };
        world.table().cell(0, 0).declared.store(4);
        admission::refresh_cap(world.table(), 0, true, |_| true);
        let when_ordered = world.sum();
        let taken = taker.join().unwrap();
        assert_eq!(world.sum(), when_ordered, "admitted under a cap that was no longer in force");
        assert_eq!(taken.is_ok(), when_ordered == 7);
        if let Err(refused) = taken {
            assert_eq!(refused, Refused::Full { free: 4 });
        }
    });
}

/// Two refresh the cap at once, one of them after it declared a smaller one: the smaller one is in force at the end.
fn a_declared_cap_is_not_lost() {
    explore(Some(6), || {
        let world = World::new(8, false);
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                admission::refresh_cap(world.table(), 0, false, |_| true);
            })
        };
        world.table().cell(0, 0).declared.store(8);
        world.table().cell(1, 0).declared.store(0);
        admission::refresh_cap(world.table(), 0, true, |_| true);
        world.table().cell(0, 0).declared.store(5);
        let (cap, _) = admission::refresh_cap(world.table(), 0, true, |_| true);
        assert_eq!(cap, 5);
        other.join().unwrap();
        assert_eq!(Amount::unpack(world.table().device(0).cap.load()).units, 5);
    });
}

/// Both stand in line, then memory comes free for one of them: the smaller ticket gets it.
fn tickets_are_granted_in_order() {
    explore(None, || {
        let world = World::new(8, true);
        admission::take(world.table(), 0, 0, 4, true).unwrap();
        let first = queue::enqueue(world.table(), 0, 0, 6, 1);
        let second = queue::enqueue(world.table(), 1, 0, 6, 1);
        assert!(first < second);
        admission::release(world.table(), 0, 0, 4);
        let try_once = |world: &World, slot, ticket| {
            queue::is_first(world.table(), slot, 0, ticket, 1)
                && admission::take(world.table(), slot, 0, 6, true).is_ok()
        };
        let late = {
            let world = world.clone();
            thread::spawn(move || try_once(&world, 1, second))
        };
        let early = try_once(&world, 0, first);
        assert!(early, "the first in line was passed over");
        assert!(!late.join().unwrap());
        queue::dequeue(world.table(), 0, 0);
        admission::release(world.table(), 0, 0, 6);
        assert!(try_once(&world, 1, second), "the second is next");
    });
}

#[test]
fn exactly_one_of_two_wins() {
    one_of_two_wins();
}

#[test]
fn nothing_is_lost_and_nothing_is_left() {
    taking_and_giving_back();
}

#[test]
fn a_member_may_die_at_every_step() {
    death_at_every_step();
}

#[test]
fn a_lowered_cap_overtakes_requests() {
    lowering_overtakes_requests();
}

#[test]
fn a_smaller_cap_is_not_lost() {
    a_declared_cap_is_not_lost();
}

#[test]
fn the_smaller_ticket_is_granted_first() {
    tickets_are_granted_in_order();
}

/// Removes a guard and expects the checker to find the fault.
fn must_be_found(fault: Fault, scenario: fn()) {
    inject(Some(fault));
    let found = catch_unwind(scenario).is_err();
    inject(None);
    assert!(found, "{fault:?} was not noticed");
}

#[test]
fn every_removed_guard_is_noticed() {
    must_be_found(Fault::SplitAdmission, one_of_two_wins);
    must_be_found(Fault::NoHelp, death_at_every_step);
    must_be_found(Fault::NoSecondLook, death_at_every_step);
    must_be_found(Fault::NoCapFence, lowering_overtakes_requests);
    must_be_found(Fault::NoTicketOrder, tickets_are_granted_in_order);
}
