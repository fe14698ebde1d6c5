//! Work comes in, a stop keeps it out.

use crate::{Arc, AtomicU64, Guarded, LONG, beside, holds};
use std::sync::atomic::Ordering::SeqCst;
use weir_pool::shared::{Atomic, Lock, Word, enter, enter_late, go_on, leave, nobody, stop};

struct Gate {
    inside: AtomicU64,
    stopped: AtomicU64,
    waiting: AtomicU64,
    moving: AtomicU64,
    turn: Guarded<()>,
}

fn gate() -> Arc<Gate> {
    let word = || AtomicU64::new(0);
    Arc::new(Gate { inside: word(), stopped: word(), waiting: word(), moving: word(), turn: Guarded::new(()) })
}

/// One thread queues work, waiting for its turn, while another stops the device and moves bytes once nobody is inside.
fn nothing_runs_in_a_stopped_device(
    come_in: fn(&AtomicU64, &AtomicU64) -> bool,
    open: fn(&Guarded<()>, &AtomicU64),
) -> impl Fn() {
    move || {
        let gate = gate();
        let theirs = gate.clone();
        let work = move || {
            let gate = theirs;
            while !come_in(&gate.inside, &gate.stopped) {
                gate.turn.when_within(LONG, |()| (gate.stopped.load(SeqCst) == 0).then_some(()));
            }
            assert_eq!(gate.moving.load(SeqCst), 0, "work is queued while bytes move");
            leave(&gate.inside);
        };
        beside(work, || {
            assert!(stop(&gate.stopped, &gate.waiting) && !stop(&gate.stopped, &gate.waiting));
            if nobody(&gate.inside) {
                gate.moving.add(1);
                gate.moving.sub(1);
            }
            open(&gate.turn, &gate.stopped);
        });
        assert!(nobody(&gate.inside), "somebody is still counted");
    }
}

#[test]
fn the_gate_lets_nobody_in_while_bytes_move_and_everybody_afterwards() {
    assert!(holds(nothing_runs_in_a_stopped_device(enter, go_on)));
}

#[test]
fn a_gate_that_looks_before_it_counts_is_caught() {
    let looks_first = |inside: &AtomicU64, stopped: &AtomicU64| {
        let open = stopped.load(SeqCst) == 0;
        if open {
            inside.add(1);
        }
        open
    };
    assert!(!holds(nothing_runs_in_a_stopped_device(looks_first, go_on)));
}

#[test]
fn a_gate_that_opens_outside_its_lock_is_caught() {
    let outside = |turn: &Guarded<()>, stopped: &AtomicU64| {
        turn.with(|()| ());
        stopped.store(0, SeqCst);
    };
    assert!(!holds(nothing_runs_in_a_stopped_device(enter, outside)));
}

/// One thread queues work while another stops the device twice: a call that the first stop kept out comes in before the
/// second.
fn a_call_that_waited_comes_first(close: fn(&AtomicU64, &AtomicU64) -> bool) -> impl Fn() {
    move || {
        let gate = gate();
        let theirs = gate.clone();
        let work = move || {
            let Gate { inside, stopped, waiting, turn, .. } = &*theirs;
            assert!(enter(inside, stopped) || enter_late(inside, stopped, waiting, turn, LONG));
            leave(inside);
        };
        beside(work, || {
            assert!(close(&gate.stopped, &gate.waiting));
            let kept_out = gate.waiting.load(SeqCst) > 0;
            go_on(&gate.turn, &gate.stopped);
            if close(&gate.stopped, &gate.waiting) {
                assert!(!kept_out || gate.waiting.load(SeqCst) == 0, "a call is kept out by one stop after the other");
                go_on(&gate.turn, &gate.stopped);
            }
        });
        assert!(nobody(&gate.inside) && nobody(&gate.waiting), "somebody is still counted");
    }
}

#[test]
fn a_call_that_a_stop_kept_out_comes_in_before_the_next_stop() {
    assert!(holds(a_call_that_waited_comes_first(stop)));
}

#[test]
fn a_stop_that_overtakes_who_waits_is_caught() {
    assert!(!holds(a_call_that_waited_comes_first(|stopped, _| stopped.swap(1, SeqCst) == 0)));
}

/// A capture is known before the call that began it leaves, so a stop that finds nobody inside knows of it.
fn a_stop_knows_of_captures(counted: bool) -> impl Fn() {
    move || {
        let gate = gate();
        let (theirs, captures) = (gate.clone(), Arc::new((AtomicU64::new(0), AtomicU64::new(0))));
        let (began, known) = (captures.clone(), captures);
        let begin = move || {
            if counted && !enter(&theirs.inside, &theirs.stopped) {
                return;
            }
            began.0.store(1, std::sync::atomic::Ordering::Relaxed);
            began.1.store(1, std::sync::atomic::Ordering::Release);
            if counted {
                leave(&theirs.inside);
            }
        };
        beside(begin, || {
            stop(&gate.stopped, &gate.waiting);
            if nobody(&gate.inside) && known.1.load(std::sync::atomic::Ordering::Acquire) == 0 {
                assert_eq!(known.0.load(SeqCst), 0, "a stream that is captured is queried");
            }
        });
    }
}

#[test]
fn a_stop_queries_no_stream_that_is_captured() {
    assert!(holds(a_stop_knows_of_captures(true)));
}

#[test]
fn a_capture_that_begins_uncounted_is_caught() {
    assert!(!holds(a_stop_knows_of_captures(false)));
}
