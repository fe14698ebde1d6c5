//! The rest of a step that ended at a refused request: what the job would have requested after it, as in a whole step
//! before. Pure.

use std::collections::{HashMap, VecDeque};

use super::requests::{Requests, Step, What};

/// Whole steps among which the one is looked for that is most like the step that ended.
const STEPS: usize = 8;
/// Steps that must begin alike for a job to be called steady.
const STEADY: usize = 3;

/// An allocation of the step that ended.
struct Made {
    block: u32,
    live: bool,
}

/// What a block of the whole step is in the step that ended.
enum Link {
    /// An allocation that was made before the refusal.
    Made(usize),
    /// One that comes after it.
    Added(u32),
}

impl Requests {
    /// Adds the rest of the last step, as in a whole step before it; leaves all as it is where no step is like it.
    pub(super) fn add_rest(&mut self) {
        let ends: Vec<usize> = (0..self.steps.len()).filter(|place| self.at(*place).what == What::Step).collect();
        let Some(begin) = ends.last().map(|end| end + 1) else { return };
        let (mut made, mut by_pair, mut by_block) =
            (Vec::<Made>::new(), HashMap::<u32, VecDeque<usize>>::new(), HashMap::<u32, usize>::new());
        for step in (begin..self.steps.len()).map(|place| self.at(place)) {
            match step.what {
                What::Free => {
                    if let Some(made) = by_block.remove(&step.block).and_then(|place| made.get_mut(place)) {
                        made.live = false;
                    }
                }
                what if what.takes() || what == What::Refused => {
                    by_pair.entry(step.pair).or_default().push_back(made.len());
                    by_block.insert(step.block, made.len());
                    made.push(Made { block: step.block, live: true });
                }
                _ => {}
            }
        }
        let mut last = (begin..self.steps.len()).map(|place| self.at(place));
        let refused = last.rfind(|step| step.what == What::Refused).map(|step| step.pair);
        let like = |from: usize, to: usize| {
            let mut left: HashMap<u32, usize> = by_pair.iter().map(|(pair, made)| (*pair, made.len())).collect();
            let takes = (from..to).map(|place| self.at(place)).filter(|step| step.what.takes());
            // A step that never made the refused request is of another kind: an evaluation, another batch.
            if !takes.clone().any(|step| Some(step.pair) == refused) {
                return (0, from, to);
            }
            let found = takes.filter(|step| left.get_mut(&step.pair).is_some_and(take_one)).count();
            (found, from, to)
        };
        let steps = ends.windows(2).rev().take(STEPS).map(|pair| like(pair[0] + 1, pair[1]));
        // Of equal ones the last.
        let best = steps.reduce(|best, other| if other.0 > best.0 { other } else { best });
        // Nine tenths of what the step had got are in the other one too.
        let Some((_, from, to)) = best.filter(|(found, ..)| *found > 0 && *found * 10 >= (made.len() - 1) * 9) else {
            return;
        };
        let whole: Vec<Step> = (from..to).map(|place| self.at(place)).collect();
        let mut links: HashMap<u32, Link> = HashMap::new();
        for step in whole {
            match step.what {
                What::Free => match links.remove(&step.block) {
                    Some(Link::Made(place)) => {
                        if let Some(made) = made.get_mut(place).filter(|made| made.live) {
                            made.live = false;
                            self.free(step.stream, made.block);
                        }
                    }
                    Some(Link::Added(block)) => self.free(step.stream, block),
                    // Of an older step: whether this one has freed its like is not known.
                    None => {}
                },
                what if what.takes() => {
                    let again = by_pair.get_mut(&step.pair).and_then(VecDeque::pop_front).map(Link::Made);
                    let link = again.or_else(|| {
                        let requester = self.pairs.get(step.pair as usize).map_or(0, |(_, requester)| *requester);
                        self.request(what, step.stream, step.bytes, requester).map(Link::Added)
                    });
                    if let Some(link) = link {
                        links.insert(step.block, link);
                    }
                }
                What::Sync => self.note(What::Sync),
                _ => {}
            }
        }
        self.note(What::Step);
        self.whole = true;
        self.steady = self.is_steady(&ends);
    }
}

impl Requests {
    /// Whether the last whole steps each began with as much as the one before: what builds up goes on to do so.
    fn is_steady(&self, ends: &[usize]) -> bool {
        let (mut held, mut live, mut began) = (vec![0; self.blocks()], 0_u64, Vec::new());
        let last = ends.last().copied().unwrap_or(0);
        for step in self.opening.values().map(|word| self.unpack(*word)).chain((0..=last).map(|place| self.at(place))) {
            match step.what {
                What::Free => live -= held.get_mut(step.block as usize).map_or(0, std::mem::take),
                What::Step => began.push(live),
                what if what.takes() => {
                    live += step.bytes;
                    if let Some(place) = held.get_mut(step.block as usize) {
                        *place = step.bytes;
                    }
                }
                _ => {}
            }
        }
        // The one that ended is what all this is about.
        let last: Vec<u64> = began.into_iter().rev().skip(1).take(STEADY).collect();
        let (most, least) = (last.iter().max().copied().unwrap_or(0), last.iter().min().copied().unwrap_or(0));
        last.len() >= STEADY && most - least <= most / 100
    }
}

fn take_one(left: &mut usize) -> bool {
    let any = *left > 0;
    *left -= usize::from(any);
    any
}
