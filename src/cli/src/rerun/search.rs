//! The smallest size that is enough, by as few runs as can be: a guess first, then steps away from it, then halves.
//! Pure: the caller runs.

/// Sizes are tried in these steps.
const STEP: u64 = 2 << 20;
/// Two sizes so close are close enough: three parts in a hundred.
const CLOSE: f64 = 0.03;

/// A search.
#[derive(Debug)]
pub(super) struct Search {
    guess: u64,
    /// Sizes that were enough, the smallest last, with how often each was run.
    enough: Vec<(u64, u32)>,
    /// The largest that was not.
    short: Option<u64>,
    /// How far the next step goes.
    stride: f64,
    /// Whether both sides come from a step away from the guess.
    tried: [bool; 2],
}

fn rounded(size: f64) -> u64 {
    (size as u64).next_multiple_of(STEP)
}

impl Search {
    /// A search that begins with a guess. `enough` and `short` are known already.
    pub(super) fn new(guess: u64, enough: Option<u64>, short: Option<u64>) -> Self {
        let enough = enough.map(|size| (size, 2)).into_iter().collect();
        // A guess that is known to be short is a little short.
        let above = short.filter(|short| guess <= *short).map_or(guess, |short| (short as f64 * (1.0 + CLOSE)) as u64);
        Self { guess: above.next_multiple_of(STEP), enough, short, stride: CLOSE, tried: [false; 2] }
    }

    /// The smallest size that was enough, and the largest that was not.
    pub(super) fn found(&self) -> (Option<u64>, Option<u64>) {
        (self.enough.last().map(|(size, _)| *size), self.short)
    }

    /// The next size to run; `None` when there is nothing left to find out. What was enough once is run twice: a job does
    /// not do the same in every run.
    pub(super) fn next(&self) -> Option<u64> {
        let (enough, short) = self.found();
        let inside = |size: u64| enough.is_none_or(|enough| size < enough) && short.is_none_or(|short| size > short);
        if self.tried == [false; 2] && inside(self.guess) {
            return Some(self.guess);
        }
        // Far from the truth, steps away from the guess take longer than halves.
        let far = self.stride > 0.25;
        match (enough, short) {
            (Some(enough), Some(short)) if enough - short <= rounded(enough as f64 * CLOSE).max(STEP) => {
                self.enough.last().filter(|(_, times)| *times < 2).map(|(size, _)| *size)
            }
            (Some(enough), Some(short)) if far => Some(half(short, enough)),
            (Some(enough), short) if self.tried == [true, false] => {
                let lower = rounded(enough as f64 * (1.0 - self.stride));
                match short {
                    Some(short) if lower <= short => Some(half(short, enough)),
                    _ => Some(lower).filter(|lower| *lower < enough && *lower > STEP),
                }
            }
            (enough, Some(short)) if self.tried == [false, true] => {
                let higher = rounded(short as f64 * (1.0 + self.stride));
                match enough {
                    Some(enough) if higher >= enough => Some(half(short, enough)),
                    _ => Some(higher),
                }
            }
            (Some(enough), Some(short)) => Some(half(short, enough)),
            (Some(enough), None) => Some(rounded(enough as f64 * (1.0 - CLOSE))),
            (None, Some(short)) => Some(rounded(short as f64 * (1.0 + CLOSE))),
            (None, None) => Some(self.guess),
        }
    }

    /// What came of running a size.
    pub(super) fn note(&mut self, size: u64, was_enough: bool) {
        if self.tried != [false; 2] {
            self.stride = (self.stride * 2.0).min(0.5);
        }
        self.tried[usize::from(!was_enough)] = true;
        if was_enough {
            match self.enough.last_mut() {
                Some((known, times)) if *known == size => *times += 1,
                _ => self.enough.push((size, 1)),
            }
        } else {
            // Whatever was enough below this was so by chance.
            self.enough.retain(|(known, _)| *known > size);
            self.short = Some(self.short.map_or(size, |short| short.max(size)));
        }
    }
}

/// The middle; by its logarithm where one is a multiple of the other.
fn half(short: u64, enough: u64) -> u64 {
    let middle =
        if enough / 2 > short { (short as f64 * enough as f64).sqrt() as u64 } else { short + (enough - short) / 2 };
    middle.next_multiple_of(STEP).min(enough - STEP.min(enough - short - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Runs until the end; how often, and what was found.
    fn run(mut search: Search, enough: impl Fn(u64) -> bool) -> (usize, Option<u64>, Option<u64>) {
        for runs in 0..40 {
            let Some(size) = search.next() else {
                let (found, short) = search.found();
                return (runs, found, short);
            };
            search.note(size, enough(size));
        }
        panic!("no end: {search:?}");
    }

    #[test]
    fn the_truth_is_between_what_was_run() {
        for truth in [64, 100, 700, 1021, 1024, 1500, 4000].map(|mib| mib * MIB) {
            for guess in [50, 100, 690, 1000, 1024, 2000, 5000].map(|mib| mib * MIB) {
                let (runs, found, short) = run(Search::new(guess, Some(8192 * MIB), None), |size| size >= truth);
                let (found, short) = (found.unwrap(), short.unwrap());
                assert!(short < truth && found >= truth, "{truth} {guess}: {short} {found}");
                assert!(found - short <= (found as f64 * 0.04) as u64 + 2 * STEP, "{truth} {guess}: {short} {found}");
                assert!(runs <= 16, "{runs} runs for {truth} from {guess}");
            }
        }
    }

    #[test]
    fn a_good_guess_takes_three_runs() {
        let (runs, found, short) =
            run(Search::new(1000 * MIB, Some(4096 * MIB), Some(512 * MIB)), |size| size >= 990 * MIB);
        assert_eq!((runs, found, short), (3, Some(1000 * MIB), Some(970 * MIB)));
    }

    #[test]
    fn what_is_known_is_not_run() {
        let (runs, found, short) = run(Search::new(1000 * MIB, None, Some(980 * MIB)), |size| size >= 990 * MIB);
        assert_eq!((runs, found, short), (2, Some(1000 * MIB), Some(980 * MIB)));
    }

    #[test]
    fn a_guess_that_is_known_to_be_short_is_a_little_short() {
        let search = Search::new(740 * MIB, Some(3000 * MIB), Some(750 * MIB));
        let (runs, found, short) = run(search, |size| size >= 752 * MIB);
        assert_eq!((runs, found, short), (2, Some(774 * MIB), Some(750 * MIB)));
    }

    #[test]
    fn a_size_that_was_enough_by_chance_is_not_believed() {
        let mut search = Search::new(1000 * MIB, Some(4096 * MIB), Some(980 * MIB));
        search.note(1000 * MIB, true);
        assert_eq!(search.next(), Some(1000 * MIB), "once more");
        search.note(1000 * MIB, false);
        assert_eq!(search.found(), (Some(4096 * MIB), Some(1000 * MIB)));
        assert!(search.next().is_some_and(|size| size > 1000 * MIB));
    }
}
