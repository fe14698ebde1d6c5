//! Lists that are mostly empty, and how long they are.

use crate::{Arc, AtomicUsize, Guarded, beside, holds};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use weir_pool::shared::{Atomic, Counted, Counts, Lock};

struct Captures(Vec<(u64, bool)>);

impl Counts<2> for Captures {
    fn counts(&self) -> [usize; 2] {
        [self.0.len(), self.0.iter().filter(|(_, strict)| *strict).count()]
    }
}

type List = Counted<Guarded<Captures>, AtomicUsize, 2>;

fn list() -> Arc<List> {
    Arc::new(Counted::new(Guarded::new(Captures(Vec::new())), [AtomicUsize::new(0), AtomicUsize::new(0)]))
}

#[test]
fn figures_are_those_of_the_list() {
    assert!(holds(|| {
        let list = list();
        let theirs = list.clone();
        beside(
            move || {
                theirs.with(|list: &mut Captures| list.0.push((1, false)));
                assert!(theirs.any(), "its own is not counted");
                theirs.with(|list: &mut Captures| list.0.retain(|(id, _)| *id != 1));
            },
            || {
                list.with(|list: &mut Captures| list.0.push((2, true)));
                assert!(list.any() && list.has(1), "its own is not counted");
            },
        );
        assert_eq!(list.with(|list: &mut Captures| list.0.len()), 1);
        assert!(list.any() && list.has(1));
    }));
}

#[test]
fn who_is_notified_of_something_sees_that_there_is_something() {
    assert!(holds(|| {
        let shared = Arc::new((list(), AtomicUsize::new(0)));
        let theirs = shared.clone();
        beside(
            move || {
                theirs.0.with(|list: &mut Captures| list.0.push((1, true)));
                theirs.1.store(1, Release);
            },
            || {
                if shared.1.load(Acquire) == 1 {
                    assert!(shared.0.any() && shared.0.has(1));
                }
            },
        );
    }));
}

#[test]
fn who_is_notified_without_care_is_caught() {
    assert!(!holds(|| {
        let shared = Arc::new((list(), AtomicUsize::new(0)));
        let theirs = shared.clone();
        beside(
            move || {
                theirs.0.with(|list: &mut Captures| list.0.push((1, true)));
                theirs.1.store(1, Relaxed);
            },
            || {
                if shared.1.load(Relaxed) == 1 {
                    assert!(shared.0.any(), "it is not seen");
                }
            },
        );
    }));
}

#[test]
fn figures_that_are_stored_outside_the_lock_are_caught() {
    assert!(!holds(|| {
        let shared = Arc::new((Guarded::new(Captures(Vec::new())), AtomicUsize::new(0)));
        let theirs = shared.clone();
        let push = |to: &(Guarded<Captures>, AtomicUsize), id| {
            let count = to.0.with(|list| {
                list.0.push((id, false));
                list.0.len()
            });
            to.1.store(count, Release);
        };
        beside(move || push(&theirs, 1), || push(&shared, 2));
        assert_eq!(shared.1.load(Acquire), 2, "another count than the list has");
    }));
}
