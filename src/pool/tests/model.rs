//! What threads share without a lock, under a model checker: every interleaving of two threads. Each rule is
//! also broken once, on purpose, and the checker must find the fault.
//!
//! In a job every access is sequentially consistent. The checker knows less of that order than the machine
//! keeps, so it is given each access as a read-modify-write, which never sees an old value.

use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_pool::shared::{Word, enter, forget, learn, leave};

struct Watched(AtomicU64);

impl Word for Watched {
    fn load(&self) -> u64 {
        self.0.fetch_add(0, SeqCst)
    }
    fn add(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, SeqCst)
    }
    fn sub(&self, amount: u64) -> u64 {
        self.0.fetch_sub(amount, SeqCst)
    }
}

fn word(value: u64) -> Arc<Watched> {
    Arc::new(Watched(AtomicU64::new(value)))
}

fn holds(scenario: impl Fn() + Sync + Send + 'static) -> bool {
    catch_unwind(AssertUnwindSafe(|| loom::model(scenario))).is_ok()
}

/// One thread queues work while another stops the device and moves bytes once nobody is inside.
fn nothing_runs_in_a_stopped_device(come_in: fn(&Watched, &Watched) -> bool) {
    let (inside, stopped, moving) = (word(0), word(0), word(0));
    let worker = {
        let (inside, stopped, moving) = (inside.clone(), stopped.clone(), moving.clone());
        thread::spawn(move || {
            if come_in(&inside, &stopped) {
                assert_eq!(moving.load(), 0, "work is queued while bytes move");
                leave(&*inside);
            }
        })
    };
    stopped.add(1);
    if inside.load() == 0 {
        moving.add(1);
        moving.sub(1);
    }
    stopped.sub(1);
    worker.join().expect("no thread panics");
    assert_eq!(inside.load(), 0, "somebody is still counted");
}

#[test]
fn the_gate_lets_nobody_in_while_bytes_move() {
    assert!(holds(|| nothing_runs_in_a_stopped_device(enter)));
}

#[test]
fn a_gate_that_looks_before_it_counts_is_caught() {
    let looks_first = |inside: &Watched, stopped: &Watched| {
        let open = stopped.load() == 0;
        if open {
            inside.add(1);
        }
        open
    };
    assert!(!holds(move || nothing_runs_in_a_stopped_device(looks_first)));
}

type Known = Arc<Mutex<Option<u64>>>;

/// One thread learns about a stream while another destroys it: once it is destroyed, nobody remembers it.
fn nobody_remembers_what_is_gone(
    learn: fn(&Watched, &Known) -> Option<(u64, u64)>,
    forget: fn(&Watched, &Known) -> Option<u64>,
) {
    let (generation, known): (_, Known) = (word(1), Arc::new(Mutex::new(Some(7))));
    let learner = {
        let (generation, known) = (generation.clone(), known.clone());
        thread::spawn(move || learn(&generation, &known))
    };
    assert_eq!(forget(&generation, &known), Some(7));
    if let Some((as_of, _)) = learner.join().expect("no thread panics") {
        assert_ne!(as_of, generation.load(), "a stream that is gone is remembered");
    }
}

fn look(known: &Known) -> Option<u64> {
    *known.lock().expect("no thread panics")
}

fn remove(known: &Known) -> Option<u64> {
    known.lock().expect("no thread panics").take()
}

#[test]
fn a_stream_that_is_gone_is_remembered_by_nobody() {
    assert!(holds(|| nobody_remembers_what_is_gone(
        |generation, known| learn(generation, || look(known)),
        |generation, known| forget(generation, || remove(known)),
    )));
}

#[test]
fn a_generation_that_is_read_too_late_is_caught() {
    assert!(!holds(|| nobody_remembers_what_is_gone(
        |generation, known| look(known).map(|found| (generation.load(), found)),
        |generation, known| forget(generation, || remove(known)),
    )));
}

#[test]
fn a_generation_that_ends_too_early_is_caught() {
    assert!(!holds(|| nobody_remembers_what_is_gone(
        |generation, known| learn(generation, || look(known)),
        |generation, known| {
            generation.add(1);
            remove(known)
        },
    )));
}
