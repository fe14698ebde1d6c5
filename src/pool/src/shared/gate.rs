//! The gate before the device: calls that queue work come in and leave; whoever moves bytes closes it and waits.

use super::{Lock, Word};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// A call that queues work comes in: it is counted in `inside`, unless the device is `stopped`.
///
/// Counted first and looked second: who stops looks at the counters after having said so, and one of the two
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

/// Close the gate. False: somebody else has closed it.
pub fn stop(stopped: &impl Word) -> bool {
    stopped.swap(1, SeqCst) == 0
}

/// Whether nobody is inside, asked behind a closed gate.
pub fn nobody(inside: &impl Word) -> bool {
    inside.load(SeqCst) == 0
}

/// Wait until the gate is open. False: it was not in time.
pub fn wait(turn: &impl Lock<()>, stopped: &impl Word, patience: Duration) -> bool {
    turn.when_within(patience, |()| (stopped.load(SeqCst) == 0).then_some(())).is_some()
}

/// Open the gate. Under the lock: nobody falls asleep between having seen it closed and the bell.
pub fn go_on(turn: &impl Lock<()>, stopped: &impl Word) {
    turn.with(|()| stopped.store(0, SeqCst));
}
