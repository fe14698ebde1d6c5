//! Requests as they would have been: smaller, not made, or freed earlier. Pure.

use std::collections::VecDeque;

use super::requests::{Requester, Requests, Step, What, peak};

/// What would be different about some of a job's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// Each is this part of its size: 2 is half of it.
    Part(u64),
    /// They are not made.
    Without,
    /// They do not pile up, see [`WhatIf::keep`], and none is larger than this.
    Kept(u64),
}

/// A job that acts differently; by default, the job as it was.
#[derive(Clone, Debug, Default)]
pub struct WhatIf {
    /// By the number of the pair of size and requester: bytes, and whether they do not pile up. Empty: all is as it was.
    pub(crate) pairs: Vec<(u64, bool)>,
    /// Of what does not pile up, so much stays at most, the newest; none: it is freed when its step ends.
    pub keep: Option<u64>,
    /// The refused request is made in so many parts, one after the other; in none: it is not made.
    pub parts: Option<u64>,
    /// The job waits for the device before the refused request.
    pub waits: bool,
    /// The job ends at the refused request, as it did.
    pub ends: bool,
}

impl WhatIf {
    /// Decides for each size and its requester what would be different.
    pub fn of(requests: &Requests, change: impl Fn(usize, &Requester, u64) -> Change) -> Self {
        let altered = |(bytes, requester): &(u64, u32)| {
            let number = *requester as usize;
            match requests.requesters.get(number).map_or(Change::None, |requester| change(number, requester, *bytes)) {
                Change::None => (*bytes, false),
                Change::Part(part) => (bytes.div_ceil(part.max(1)), false),
                Change::Without => (0, false),
                Change::Kept(most) => ((*bytes).min(most), true),
            }
        };
        Self { pairs: requests.pairs.iter().map(altered).collect(), ..Self::default() }
    }

    /// Most bytes live at the same time, the request that was refused included.
    pub fn peak(&self, requests: &Requests) -> u64 {
        peak(self.steps(requests), requests.blocks(), requests.refused_block.is_some())
    }

    pub(super) fn steps<'a>(&'a self, requests: &'a Requests) -> impl Iterator<Item = Step> + 'a {
        let blocks = requests.blocks();
        Steps {
            what_if: self,
            from: requests.steps(),
            ready: VecDeque::new(),
            gone: vec![false; blocks],
            kept: vec![None; blocks],
            order: VecDeque::new(),
            live: 0,
            number: 0,
            refused_stays: requests.refused_block.is_some(),
            over: false,
        }
    }
}

/// A block that shall not pile up.
#[derive(Clone, Copy)]
struct Kept {
    bytes: u64,
    stream: u16,
    /// Numbers of blocks are used again; this distinguishes one use from another.
    number: u64,
}

struct Steps<'a, From> {
    what_if: &'a WhatIf,
    from: From,
    ready: VecDeque<Step>,
    /// Blocks that were never requested or were freed earlier: the free that the job made does not count.
    gone: Vec<bool>,
    kept: Vec<Option<Kept>>,
    order: VecDeque<(u32, u64)>,
    live: u64,
    number: u64,
    refused_stays: bool,
    over: bool,
}

impl<From: Iterator<Item = Step>> Steps<'_, From> {
    fn take(&mut self, step: Step) {
        let place = step.block as usize;
        let (bytes, kept) = self.what_if.pairs.get(step.pair as usize).copied().unwrap_or((step.bytes, false));
        self.gone[place] = bytes == 0;
        if bytes == 0 {
            return;
        }
        if kept {
            if let Some(most) = self.what_if.keep {
                self.give_back(most.saturating_sub(bytes));
            }
            self.number += 1;
            self.live += bytes;
            self.kept[place] = Some(Kept { bytes, stream: step.stream, number: self.number });
            self.order.push_back((step.block, self.number));
        }
        self.ready.push_back(Step { bytes, ..step });
    }

    /// Gives back the oldest until no more than `most` bytes are left.
    fn give_back(&mut self, most: u64) {
        while self.live > most
            && let Some((block, number)) = self.order.pop_front()
        {
            let place = block as usize;
            if let Some(kept) = self.kept[place].filter(|kept| kept.number == number) {
                self.kept[place] = None;
                self.gone[place] = true;
                self.live -= kept.bytes;
                self.ready.push_back(Step { what: What::Free, stream: kept.stream, block, bytes: 0, pair: 0 });
            }
        }
    }

    fn free(&mut self, step: Step) {
        let place = step.block as usize;
        if std::mem::take(&mut self.gone[place]) {
            return;
        }
        self.live -= self.kept[place].take().map_or(0, |kept| kept.bytes);
        self.ready.push_back(step);
    }
}

impl<From: Iterator<Item = Step>> Iterator for Steps<'_, From> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            if self.over {
                return None;
            }
            let step = self.from.next()?;
            match step.what {
                What::Free => self.free(step),
                What::Step => {
                    self.ready.push_back(step);
                    if self.what_if.keep.is_none() {
                        self.give_back(0);
                    }
                }
                What::Refused => {
                    let bytes = self.what_if.pairs.get(step.pair as usize).map_or(step.bytes, |(bytes, _)| *bytes);
                    let bytes = match self.what_if.parts {
                        Some(0) => 0,
                        Some(parts) => bytes.div_ceil(parts),
                        None => bytes,
                    };
                    if self.what_if.waits {
                        self.ready.push_back(Step { what: What::Sync, stream: 0, block: 0, bytes: 0, pair: 0 });
                    }
                    if bytes > 0 {
                        self.ready.push_back(Step { bytes, ..step });
                    } else if self.refused_stays {
                        self.gone[step.block as usize] = true;
                    }
                    self.over = self.what_if.ends;
                }
                what if what.takes() => self.take(step),
                _ => return Some(step),
            }
        }
    }
}
