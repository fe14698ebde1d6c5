//! The calls from Python that TensorFlow is executing, and the lines of each.
//!
//! TensorFlow runs what Python calls on threads of its own where it takes more than one device or an asynchronous
//! kernel (cuDNN's recurrent networks). The Python thread waits meanwhile, so its lines are those that such a thread works for.

use super::nodes;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One call that is under way.
struct CallSlot {
    /// Hash of the operation's name; 0: the place is free.
    op: AtomicU64,
    /// The journal's id of its lines.
    lines: AtomicU32,
}

/// A thread that finds no place has its calls not kept.
static SLOTS: [CallSlot; 16] = [const { CallSlot { op: AtomicU64::new(0), lines: AtomicU32::new(0) } }; 16];

/// While it lives, a call is under way.
pub(crate) struct Call(Option<&'static CallSlot>);

impl Call {
    /// An operation of this name is called from these lines.
    #[inline]
    pub(crate) fn begin(name: &[u8], lines: u32) -> Self {
        let op = nodes::hash(name).max(1);
        let free = |place: &&CallSlot| {
            place.op.load(Ordering::Relaxed) == 0
                && place.op.compare_exchange(0, BEGINS, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let place = SLOTS.iter().find(free);
        if let Some(place) = place {
            place.lines.store(lines, Ordering::Relaxed);
            place.op.store(op, Ordering::Release);
        }
        Self(place)
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.op.store(0, Ordering::Release);
        }
    }
}

/// Of a place that is being filled.
const BEGINS: u64 = u64::MAX;

/// The lines of the calls that are under way and are accepted, if all have the same ones; else 0.
fn of(accepted: impl Fn(u64) -> bool) -> u32 {
    let mut found = 0;
    for place in &SLOTS {
        let op = place.op.load(Ordering::Acquire);
        if op == 0 || !accepted(op) {
            continue;
        }
        let lines = place.lines.load(Ordering::Relaxed);
        // Lines of another call that has begun here since are no lines of this one.
        if place.op.load(Ordering::Acquire) != op || lines == 0 || (found != 0 && found != lines) {
            return 0;
        }
        found = lines;
    }
    found
}

/// The lines that call the operation of this name, whose hash is `hash`; 0 if nobody does, or several do.
pub(crate) fn of_name(hash: u64) -> u32 {
    of(|op| op == hash.max(1))
}

/// The lines of the only call that is under way; 0 if there are several, or none.
pub(crate) fn only() -> u32 {
    of(|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_only_call_or_of_the_one_by_that_name() {
        let hash = |name: &str| nodes::hash(name.as_bytes());
        assert_eq!(only(), 0);
        let outer = Call::begin(b"__inference_step_7", 3);
        assert_eq!((only(), of_name(hash("__inference_step_7")), of_name(hash("Qr"))), (3, 3, 0));
        let inner = Call::begin(b"Qr", 4);
        assert_eq!((only(), of_name(hash("__inference_step_7")), of_name(hash("Qr"))), (0, 3, 4));
        let other = Call::begin(b"Qr", 5);
        assert_eq!(of_name(hash("Qr")), 0, "two lines call it");
        drop((inner, other));
        assert_eq!(only(), 3);
        drop(outer);
        let all: Vec<Call> = (0..20).map(|_| Call::begin(b"Many", 6)).collect();
        assert_eq!(only(), 6);
        drop(all);
        assert_eq!(only(), 0);
    }
}
