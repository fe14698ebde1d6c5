//! One at a time, for as long as it takes: a growth of a pool, the making of one. Whoever waits for its turn holds
//! nothing, waits only for so long, and then does without.

use super::Lock;
use std::time::Duration;

/// Takes the turn that `held` guards. False: it was not free in time.
pub fn take_turn(held: &impl Lock<bool>, patience: Duration) -> bool {
    held.when_within(patience, |held| (!std::mem::replace(held, true)).then_some(())).is_some()
}

/// Gives the turn back: whoever waits takes it.
pub fn give_turn(held: &impl Lock<bool>) {
    held.with(|held| *held = false);
}
