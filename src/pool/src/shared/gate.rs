//! The gate before the device: calls that queue work come in and leave; whoever moves bytes closes it and waits.

use super::{Lock, Word};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// A call that queues work comes in: it is counted in `inside`, unless the device is `stopped`.
///
/// Counted first and looked second: who stops looks at the counters after having announced it, and one of the two
/// sees the other.
#[inline]
pub fn enter(inside: &impl Word, stopped: &impl Word) -> bool {
    inside.add(1);
    if stopped.load(SeqCst) == 0 {
        return true;
    }
    inside.sub(1);
    false
}

/// The call is over.
#[inline]
pub fn leave(inside: &impl Word) {
    inside.sub(1);
}

/// A call that found the gate closed: it waits until it is open and comes in. False: it was not in time.
///
/// It is counted in `waiting` until it is in: stops that follow one another would keep it out for ever otherwise.
pub fn enter_late(
    inside: &impl Word,
    stopped: &impl Word,
    waiting: &impl Word,
    turn: &impl Lock<()>,
    patience: Duration,
) -> bool {
    waiting.add(1);
    let came_in = loop {
        if turn.when_within(patience, |()| (stopped.load(SeqCst) == 0).then_some(())).is_none() {
            break false;
        }
        if enter(inside, stopped) {
            break true;
        }
    };
    waiting.sub(1);
    came_in
}

/// Close the gate. False: somebody else has closed it, or a call that it kept out before is still waiting.
pub fn stop(stopped: &impl Word, waiting: &impl Word) -> bool {
    waiting.load(SeqCst) == 0 && stopped.swap(1, SeqCst) == 0
}

/// Whether nobody is inside, once the gate is closed.
pub fn nobody(inside: &impl Word) -> bool {
    inside.load(SeqCst) == 0
}

/// Open the gate. Under the lock: nobody falls asleep between having seen it closed and the bell.
pub fn go_on(turn: &impl Lock<()>, stopped: &impl Word) {
    turn.with(|()| stopped.store(0, SeqCst));
}
