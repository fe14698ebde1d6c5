//! What is made, found or ended once.

use crate::{Arc, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Guarded, Thing, beside, holds, holds_within, thread};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use weir_pool::shared::{Atomic, claim, end, follow, give_up, keep_first, ready, show, take_within};

/// Two threads each make one; both then use the one that is kept, and one of them has its own back.
fn made_twice(keep: fn(&AtomicUsize, usize) -> Result<(), usize>) -> impl Fn() {
    move || {
        let shared = Arc::new((AtomicUsize::new(0), [Thing::unmade(), Thing::unmade()], AtomicU64::new(0)));
        let start = move |shared: &(AtomicUsize, [Thing; 2], AtomicU64), mine: usize| {
            shared.1[mine - 1].make(mine as u64);
            if keep(&shared.0, mine).is_ok() {
                assert_eq!(shared.2.swap(1, SeqCst), 0, "two are kept");
            }
            let kept = shared.0.load(Acquire);
            assert_eq!(shared.1[kept - 1].read(), kept as u64);
        };
        let theirs = shared.clone();
        beside(move || start(&theirs, 1), || start(&shared, 2));
    }
}

#[test]
fn the_first_is_kept() {
    assert!(holds(made_twice(keep_first)));
}

#[test]
fn a_look_before_a_store_is_caught() {
    assert!(!holds(made_twice(|place, mine| {
        if place.load(Acquire) != 0 {
            return Err(mine);
        }
        place.store(mine, Release);
        Ok(())
    })));
}

/// Two threads fill the same table; who passes by `go` finds all of it.
fn filled(go: fn(&[AtomicUsize; 3]) -> bool) -> impl Fn() {
    move || {
        let table = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)]);
        let call = move |table: &[AtomicUsize; 3]| {
            let [one, two, done] = table;
            if !go(table) {
                ready(done, 1, || {
                    one.store(11, Release);
                    two.store(12, Release);
                });
            }
            assert_eq!((one.load(Acquire), two.load(Acquire)), (11, 12), "a function is not known yet");
        };
        let theirs = table.clone();
        beside(move || call(&theirs), || call(&table));
    }
}

#[test]
fn who_passes_finds_every_function() {
    assert!(holds_within(4, filled(|table| table[2].load(Acquire) != 0)));
}

#[test]
fn who_looks_only_for_its_own_function_is_caught() {
    assert!(!holds(filled(|table| table[0].load(Acquire) != 0)));
}

/// One thread makes a journal while another turns the library off.
fn ended_while_it_is_made(
    show: fn(&AtomicUsize, &AtomicU8, usize) -> Option<usize>,
    end: fn(&AtomicUsize, &AtomicU8) -> Option<usize>,
) -> impl Fn() {
    move || {
        let shared = Arc::new((AtomicUsize::new(0), AtomicU8::new(0), Thing::unmade(), AtomicU64::new(0)));
        let report = |shared: &(AtomicUsize, AtomicU8, Thing, AtomicU64), got: Option<usize>| {
            if got.is_some() {
                assert_eq!(shared.2.read(), 5);
                assert_eq!(shared.3.swap(1, SeqCst), 0, "it is reported twice");
            }
        };
        let theirs = shared.clone();
        beside(
            move || {
                if theirs.1.load(Acquire) == 0 {
                    theirs.2.make(5);
                    report(&theirs, show(&theirs.0, &theirs.1, 1));
                }
            },
            || report(&shared, end(&shared.0, &shared.1)),
        );
        assert_eq!(shared.0.load(Acquire), 0, "it goes on after its end");
    }
}

#[test]
fn nothing_goes_on_after_its_end() {
    assert!(holds(ended_while_it_is_made(show, end)));
}

#[test]
fn a_maker_that_does_not_look_again_is_caught() {
    assert!(!holds(ended_while_it_is_made(
        |place, _, it| {
            place.store(it, Release);
            None
        },
        end
    )));
}

#[test]
fn an_end_that_looks_before_it_says_so_is_caught() {
    assert!(!holds(ended_while_it_is_made(show, |place, ended| {
        let found = Some(place.swap(0, SeqCst)).filter(|found| *found != 0);
        ended.store(1, SeqCst);
        found
    })));
}

/// A forked child, whose parent was making its own: two threads of it want to.
fn made_by_one(claim: fn(&AtomicU32, u32) -> bool, give_up: fn(&AtomicU32)) -> impl Fn() {
    move || {
        let shared = Arc::new((AtomicU32::new(7), Thing::unmade()));
        let make = move |shared: &(AtomicU32, Thing)| {
            while !claim(&shared.0, 9) {
                thread::yield_now();
            }
            let made = shared.1.read();
            shared.1.make(made + 1);
            give_up(&shared.0);
        };
        let theirs = shared.clone();
        beside(move || make(&theirs), || make(&shared));
        assert_eq!(shared.1.read(), 2);
        assert!(claim(&shared.0, 9));
    }
}

#[test]
fn one_thread_makes_it_and_a_dead_parent_stops_nobody() {
    assert!(holds(made_by_one(claim, give_up)));
}

#[test]
fn a_claim_in_two_steps_is_caught() {
    assert!(!holds(made_by_one(
        |maker, own| {
            let free = maker.load(Acquire) != own;
            if free {
                maker.store(own, Release);
            }
            free
        },
        give_up
    )));
}

#[test]
fn a_claim_that_is_given_up_carelessly_is_caught() {
    assert!(!holds(made_by_one(claim, |maker| maker.store(0, Relaxed))));
}

struct Mempool {
    /// What the job has set on the real one.
    real: AtomicU64,
    name: AtomicU64,
    /// What the pool has for each name.
    followed: [AtomicU64; 3],
    entered: Guarded<u64>,
    names: AtomicU64,
}

/// A thread allocates for the first time while another changes a setting, or does the same: there is one name, and the
/// pool follows the setting. The settings are read without the lock.
fn settings_are_followed(retries: u32, changed: bool) -> impl Fn() {
    move || {
        let word = || AtomicU64::new(0);
        let followed = [word(), word(), word()];
        let mempool =
            Arc::new(Mempool { real: word(), name: word(), followed, entered: Guarded::new(0), names: word() });
        let known = |of: &Mempool| Some(of.name.load(Acquire)).filter(|name| *name != 0);
        let first = move |of: &Mempool| {
            let name = |setting: u64| {
                if known(of).is_none() {
                    let fresh = weir_pool::shared::Word::add(&of.names, 1) + 1;
                    of.followed[fresh as usize].store(setting, Release);
                    of.name.store(fresh, Release);
                }
            };
            follow(&of.entered, retries, || of.real.load(SeqCst), name);
        };
        let theirs = mempool.clone();
        let change = move || {
            theirs.real.store(1, SeqCst);
            let enter = |setting: u64| {
                if let Some(name) = known(&theirs) {
                    theirs.followed[name as usize].store(setting, Release);
                }
            };
            follow(&theirs.entered, retries, || theirs.real.load(SeqCst), enter);
        };
        let another = mempool.clone();
        let other: Box<dyn FnOnce()> = if changed { Box::new(change) } else { Box::new(move || first(&another)) };
        beside(other, || first(&mempool));
        let name = known(&mempool).expect("it was made");
        assert_eq!(mempool.names.load(SeqCst), 1, "it has two names");
        let followed = mempool.followed[name as usize].load(Acquire);
        assert_eq!(followed, u64::from(changed), "the pool follows an old setting");
    }
}

#[test]
fn a_setting_that_changes_at_first_use_is_followed() {
    assert!(holds(settings_are_followed(3, true)));
    assert!(holds(settings_are_followed(3, false)));
}

#[test]
fn a_setting_that_is_entered_late_is_caught() {
    assert!(!holds(settings_are_followed(0, true)));
}

fn two_take(take: fn(&AtomicU64, u64, u64) -> bool) -> impl Fn() {
    move || {
        let taken = Arc::new(AtomicU64::new(0));
        let theirs = taken.clone();
        beside(move || _ = take(&theirs, 2, 3), || _ = take(&taken, 2, 3));
        assert_eq!(taken.load(SeqCst), 2, "more than the limit, or too little");
    }
}

#[test]
fn nobody_takes_more_than_the_limit() {
    assert!(holds(two_take(take_within)));
}

#[test]
fn a_look_at_the_limit_before_taking_is_caught() {
    assert!(!holds(two_take(|taken, more, limit| {
        let fits = taken.load(Acquire) + more <= limit;
        if fits {
            weir_pool::shared::Word::add(taken, more);
        }
        fits
    })));
}
