//! When spilled memory comes back, and when a request waits for the device before it is spilled: plain numbers, counted in
//! the job's own waits and requests, never in time. Touches nothing.
//!
//! What comes back must have a good chance to stay, since each copy stops the device:
//!
//! - a look is due after [`GAP`] waits of the job in a row in which nothing was spilled;
//! - the gap doubles when something was spilled soon after something had come back, and when a look moved nothing; it
//!   halves when what came back was followed by no spill;
//! - each wait earns [`PER_WAIT`] bytes of copying, and the cap's worth of it can be saved up.
//!
//! So what is copied back is at most the cap and [`PER_WAIT`] for each wait, whatever the job does.

/// Waits without a spill before a look, at first and at least.
const GAP: u64 = 4;
/// The same at most.
const LONGEST_GAP: u64 = 256;
/// Bytes of copying that a wait of the job earns.
const PER_WAIT: u64 = 1 << 20;
/// Bytes that come back at one look at most: the pause is bounded.
pub(super) const AT_ONCE: u64 = 64 << 20;
/// This part of the cap stays free when something comes back.
pub(super) const MARGIN: u64 = 32;
/// Waiting for the device is worth it where it may free this part of the cap.
pub(super) const WORTH: u64 = 8;
/// Requests in a row that are spilled without waiting for the device at most.
const LONGEST_SKIP: u32 = 64;

/// What a look led to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing is on the host that could come back, or the job has used the room since the last look.
    Later,
    /// There is no room, or the device was at work.
    InVain,
    /// So many bytes were copied.
    Copied(u64),
}

/// The coming back of one device's spilled memory.
pub(super) struct Returns {
    gap: u64,
    due: u64,
    credit: u64,
    /// The wait up to which credit was given.
    paid: u64,
    /// Something came back, and nothing was spilled since.
    on_trial: bool,
    /// Requests that are still to be spilled without waiting for the device.
    skip: u32,
    skipped: u32,
}

impl Returns {
    pub(super) const fn new() -> Self {
        Self { gap: GAP, due: 0, credit: u64::MAX, paid: 0, on_trial: false, skip: 0, skipped: 0 }
    }

    /// The wait at which the next look is due.
    pub(super) fn due(&self) -> u64 {
        self.due
    }

    /// A request was spilled; `now` is the number of the job's last wait.
    pub(super) fn spilled(&mut self, now: u64) {
        if core::mem::take(&mut self.on_trial) {
            self.widen();
        }
        self.due = now.saturating_add(self.gap);
    }

    /// How many bytes may come back at this wait, under a cap of so many; `None`: it is not time to look.
    pub(super) fn look(&mut self, now: u64, cap: u64) -> Option<u64> {
        if now < self.due {
            return None;
        }
        if core::mem::take(&mut self.on_trial) {
            self.gap = (self.gap / 2).max(GAP);
        }
        let earned = now.saturating_sub(self.paid).saturating_mul(PER_WAIT);
        self.credit = self.credit.saturating_add(earned).min(cap);
        self.paid = now;
        // Nobody else looks meanwhile.
        self.due = now.saturating_add(self.gap);
        Some(self.credit.min(AT_ONCE))
    }

    /// What the look at wait `now` led to.
    pub(super) fn looked(&mut self, now: u64, outcome: Outcome) {
        match outcome {
            Outcome::Later => {}
            Outcome::InVain => self.widen(),
            Outcome::Copied(bytes) => {
                self.credit = self.credit.saturating_sub(bytes);
                self.on_trial = true;
            }
        }
        self.due = now.saturating_add(self.gap);
    }

    fn widen(&mut self) {
        self.gap = (self.gap * 2).min(LONGEST_GAP);
    }

    /// Whether a request is to wait for the device before it is spilled: not while the last ones did so in vain, unless it
    /// is `worth` it.
    pub(super) fn waits_first(&mut self, worth: bool) -> bool {
        self.skip = self.skip.saturating_sub(1);
        worth || self.skip == 0
    }

    /// It has waited: did that find device memory for it?
    pub(super) fn waited(&mut self, found: bool) {
        self.skipped = if found { 0 } else { (self.skipped * 2).clamp(1, LONGEST_SKIP) };
        self.skip = self.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: u64 = 512 << 20;

    /// A job that waits `waits` times, with a spill before each wait for which `spills` says so; every look could bring
    /// back all it may. Returns the bytes copied and the number of looks.
    fn run(waits: u64, spills: impl Fn(u64) -> bool) -> (u64, u64) {
        let (mut returns, mut copied, mut looks) = (Returns::new(), 0, 0);
        for now in 1..=waits {
            if spills(now) {
                returns.spilled(now - 1);
            }
            if let Some(bytes) = returns.look(now, CAP) {
                copied += bytes;
                looks += 1;
                returns.looked(now, if bytes == 0 { Outcome::InVain } else { Outcome::Copied(bytes) });
            }
        }
        (copied, looks)
    }

    #[test]
    fn copies_are_bounded_by_waits_whatever_is_spilled() {
        for period in [1, 2, 3, 5, 8, 9, 16, 40, 300, 1000, u64::MAX] {
            let (copied, looks) = run(10_000, |now| now % period == 0);
            assert!(copied <= CAP + 10_000 * PER_WAIT, "{period}: {copied}");
            assert!(looks <= 10_000 / GAP, "{period}: {looks}");
        }
        assert_eq!(run(10_000, |_| true), (0, 0), "a job that spills between its waits fetches nothing");
        let (_, looks) = run(100_000, |now| now % 5 == 0);
        assert!(looks <= 2, "looked {looks} times, each time too early");
    }

    #[test]
    fn what_stays_comes_back_soon() {
        let mut returns = Returns::new();
        returns.spilled(10);
        assert_eq!(returns.look(10 + GAP - 1, CAP), None);
        assert_eq!(returns.look(10 + GAP, CAP), Some(AT_ONCE));
        returns.looked(10 + GAP, Outcome::Copied(AT_ONCE));
        assert_eq!(returns.look(10 + 2 * GAP, CAP), Some(AT_ONCE), "the cap's worth is there from the beginning");
    }

    #[test]
    fn vain_looks_become_rare() {
        let mut returns = Returns::new();
        let looks = (1..=10_000).filter(|now| {
            let due = returns.look(*now, CAP).is_some();
            if due {
                returns.looked(*now, Outcome::InVain);
            }
            due
        });
        assert!(looks.count() < 50);
    }

    #[test]
    fn vain_waits_for_the_device_become_rare() {
        let mut returns = Returns::new();
        let mut waits = |found: bool| {
            (0..1000)
                .filter(|_| {
                    let waits = returns.waits_first(false);
                    if waits {
                        returns.waited(found);
                    }
                    waits
                })
                .count()
        };
        assert!(waits(false) < 30);
        assert!(waits(true) > 900, "those that find something are kept");
    }
}
