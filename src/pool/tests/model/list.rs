//! Pools and mempools in their rows: found without a lock, put there one at a time.

use crate::{Arc, AtomicUsize, Guarded, Thing, beside, holds};
use std::sync::atomic::Ordering::{Relaxed, Release};
use weir_pool::shared::{Atomic, List, Lock};

struct Row {
    list: List<AtomicUsize, AtomicUsize, 2>,
    /// What the places name, by number; 0 is nothing.
    things: [Thing; 3],
    turn: Guarded<()>,
}

fn row() -> Arc<Row> {
    let place = || AtomicUsize::new(0);
    let list = List::new([place(), place()], place());
    Arc::new(Row { list, things: [Thing::unmade(), Thing::unmade(), Thing::unmade()], turn: Guarded::new(()) })
}

impl Row {
    fn add(&self, which: usize) {
        self.things[which].make(which as u64);
        self.turn.with(|()| assert!(self.list.add(which)));
    }
    fn found(&self) -> Vec<usize> {
        let found: Vec<usize> = self.list.iter().collect();
        for which in &found {
            assert_eq!(self.things[*which].read(), *which as u64, "it is found before it is finished");
        }
        found
    }
}

#[test]
fn what_is_found_is_finished_and_nothing_is_lost() {
    assert!(holds(|| {
        let row = row();
        let (one, reader) = (row.clone(), row.clone());
        beside(
            move || one.add(1),
            || {
                row.add(2);
                reader.found();
            },
        );
        let mut found = row.found();
        found.sort_unstable();
        assert_eq!(found, [1, 2]);
    }));
}

#[test]
fn a_reader_beside_two_writers_finds_only_what_is_finished() {
    assert!(holds(|| {
        let row = row();
        let theirs = row.clone();
        beside(
            move || {
                theirs.add(1);
                assert!(theirs.list.remove(1_usize));
                theirs.add(2);
            },
            || assert!(row.found().len() < 3),
        );
        assert_eq!(row.found(), [2]);
    }));
}

#[test]
fn two_that_are_put_in_at_once_are_caught() {
    assert!(!holds(|| {
        let row = row();
        let theirs = row.clone();
        beside(move || assert!(theirs.list.add(1_usize)), || assert!(row.list.add(2_usize)));
        assert_eq!(row.list.iter::<usize>().count(), 2, "one is lost");
    }));
}

/// A writer that breaks one rule, beside a reader.
fn shown_by(show: fn(&Row)) -> impl Fn() {
    move || {
        let row = row();
        let theirs = row.clone();
        beside(move || show(&theirs), || _ = row.found());
    }
}

#[test]
fn something_that_is_shown_before_it_is_finished_is_caught() {
    assert!(!holds(shown_by(|row| {
        assert!(row.list.add(1_usize));
        row.things[1].make(1);
    })));
}

#[test]
fn a_place_that_releases_nothing_is_caught() {
    let shown = |order| {
        move || {
            let shared = Arc::new((Thing::unmade(), AtomicUsize::new(0)));
            let theirs = shared.clone();
            beside(
                move || {
                    theirs.0.make(1);
                    theirs.1.store(1, order);
                },
                || {
                    let list = List::new([&shared.1].map(Borrowed), AtomicUsize::new(1));
                    if list.iter::<usize>().count() == 1 {
                        assert_eq!(shared.0.read(), 1);
                    }
                },
            );
        }
    };
    assert!(holds(shown(Release)));
    assert!(!holds(shown(Relaxed)));
}

/// A place that lies elsewhere.
struct Borrowed<'a>(&'a AtomicUsize);

impl Atomic<usize> for Borrowed<'_> {
    fn load(&self, order: std::sync::atomic::Ordering) -> usize {
        self.0.load(order)
    }
    fn store(&self, value: usize, order: std::sync::atomic::Ordering) {
        self.0.store(value, order);
    }
    fn swap(&self, value: usize, order: std::sync::atomic::Ordering) -> usize {
        self.0.swap(value, order)
    }
    fn exchange(&self, from: usize, to: usize) -> Result<usize, usize> {
        self.0.exchange(from, to)
    }
}
