//! Threads remember the stream that they used last.

use crate::{Arc, AtomicU64, beside, holds};
use loom::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use weir_pool::shared::{Atomic, Word, forget, generation, learn};

type KnownStream = Mutex<Option<u64>>;

struct Streams {
    generation: AtomicU64,
    /// The context of the one stream there is.
    known: KnownStream,
    /// A thread notifies another that the handle is now another stream's.
    notified: AtomicU64,
}

/// One thread learns about a stream while another destroys it and creates one of the same handle in another context:
/// who uses the new one does not take it for the old one.
fn nobody_remembers_what_is_gone(
    learn: fn(&AtomicU64, &KnownStream) -> Option<(u64, u64)>,
    forget: fn(&AtomicU64, &KnownStream) -> Option<u64>,
) -> impl Fn() {
    move || {
        let streams = Arc::new(Streams {
            generation: AtomicU64::new(1),
            known: Mutex::new(Some(7)),
            notified: AtomicU64::new(0),
        });
        let theirs = streams.clone();
        let user = move || {
            let remembered = learn(&theirs.generation, &theirs.known);
            if theirs.notified.load(Acquire) == 1
                && let Some((as_of, context)) = remembered
            {
                let trusted = generation(&theirs.generation) == as_of;
                assert!(!trusted || context == 8, "a stream that is gone is remembered");
            }
        };
        beside(user, || {
            assert_eq!(forget(&streams.generation, &streams.known), Some(7));
            *streams.known.lock().expect("no thread panics") = Some(8);
            streams.notified.store(1, Release);
        });
    }
}

fn look(known: &KnownStream) -> Option<u64> {
    *known.lock().expect("no thread panics")
}

fn remove(known: &KnownStream) -> Option<u64> {
    known.lock().expect("no thread panics").take()
}

#[test]
fn a_stream_that_is_gone_is_remembered_by_nobody() {
    assert!(holds(nobody_remembers_what_is_gone(
        |generation, known| learn(generation, || look(known)),
        |generation, known| forget(generation, || remove(known)),
    )));
}

#[test]
fn a_generation_that_is_read_too_late_is_caught() {
    assert!(!holds(nobody_remembers_what_is_gone(
        |generation, known| look(known).map(|found| (generation.load(Acquire), found)),
        |generation, known| forget(generation, || remove(known)),
    )));
}

#[test]
fn a_generation_that_ends_too_early_is_caught() {
    assert!(!holds(nobody_remembers_what_is_gone(
        |generation, known| learn(generation, || look(known)),
        |generation, known| {
            generation.add(1);
            remove(known)
        },
    )));
}

#[test]
fn a_generation_that_ends_after_the_new_one_is_known_is_caught() {
    assert!(!holds(|| {
        let shared = Arc::new((AtomicU64::new(1), AtomicU64::new(0)));
        let theirs = shared.clone();
        beside(
            move || {
                if theirs.1.load(Relaxed) == 1 {
                    assert_ne!(generation(&theirs.0), 1, "a stream that is gone is remembered");
                }
            },
            || {
                forget(&shared.0, || ());
                shared.1.store(1, Relaxed);
            },
        );
    }));
}
