//! One at a time, for as long as it takes: a growth of a pool, the making of one. Whoever waits for its turn holds
//! nothing, waits only for so long, and then does without. A turn that is given back goes to somebody who waits, if anybody
//! does: a thread that takes one turn after the other would be there first each time.

use super::Lock;
use std::time::Duration;

/// Who has the turn, and who waits for it.
#[derive(Debug)]
pub struct Turns {
    held: bool,
    waiting: usize,
    /// The next turn is for one of those who wait.
    kept: bool,
}

impl Turns {
    /// A turn that nobody has.
    pub const fn free() -> Self {
        Self { held: false, waiting: 0, kept: false }
    }
}

/// Takes the turn that `turns` guards. False: it was not free in time.
pub fn take_turn(turns: &impl Lock<Turns>, patience: Duration) -> bool {
    // Who only tries takes nothing from those who wait but a moment.
    let tries = patience.is_zero();
    let mut waits = false;
    let taken = turns.when_within(patience, |turns| {
        if turns.held || (turns.kept && !waits && !tries) {
            turns.waiting += usize::from(!tries && !std::mem::replace(&mut waits, true));
            return None;
        }
        turns.held = true;
        Some(())
    });
    if waits {
        turns.with(|turns| {
            turns.waiting = turns.waiting.saturating_sub(1);
            // Whoever was kept a turn has it now, or has given up; the others get the next one.
            turns.kept = false;
        });
    }
    taken.is_some()
}

/// Gives the turn back: whoever waits takes it.
pub fn give_turn(turns: &impl Lock<Turns>) {
    turns.with(|turns| (turns.held, turns.kept) = (false, turns.waiting > 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::Rank;
    use crate::shared::Guarded;

    const LONG: Duration = Duration::from_secs(60);

    fn waiting(turns: &Guarded<Turns>) -> usize {
        turns.with(|turns| turns.waiting)
    }

    #[test]
    fn who_waits_is_next() {
        let turns = Guarded::new(Rank::TurnFlag, Turns::free());
        let order = std::sync::Mutex::new(Vec::new());
        assert!(take_turn(&turns, LONG));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(take_turn(&turns, LONG));
                order.lock().expect("nobody panics").push("who waited");
                give_turn(&turns);
            });
            while waiting(&turns) == 0 {
                std::thread::yield_now();
            }
            give_turn(&turns);
            // However fast it comes again.
            assert!(take_turn(&turns, LONG));
            order.lock().expect("nobody panics").push("who had it");
            give_turn(&turns);
        });
        assert_eq!(*order.lock().expect("nobody panics"), ["who waited", "who had it"]);
    }

    #[test]
    fn who_gives_up_keeps_nobody_out() {
        let turns = Guarded::new(Rank::TurnFlag, Turns::free());
        assert!(take_turn(&turns, LONG));
        assert!(!take_turn(&turns, Duration::ZERO) && !take_turn(&turns, Duration::from_millis(1)));
        assert_eq!(waiting(&turns), 0);
        give_turn(&turns);
        assert!(take_turn(&turns, LONG));
        // A turn is kept for somebody who waits, and gives up.
        turns.with(|turns| turns.waiting = 1);
        give_turn(&turns);
        assert!(take_turn(&turns, Duration::ZERO), "a try waits for nobody");
        turns.with(|turns| turns.waiting = 0);
        give_turn(&turns);
        assert!(take_turn(&turns, LONG));
    }
}
