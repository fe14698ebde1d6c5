//! Where a request goes when no single hole serves it: promotion of proven frees, other streams'
//! ordered frees, runs of adjacent free blocks and voids, and granules that can be moved.
//! Touches host memory only.

use crate::backing::Handle;
use crate::block::{Block, DEVICE, Id, NIL, State};
use crate::config::{RUN_LIMIT, SCAN_LIMITS};
use crate::core::{Core, LARGE, LOST, Want};
use crate::fault::injected;
use crate::mempools::{Mempool, Reuse};
use crate::{Allocation, Fault};
use std::collections::HashSet;

/// A place for a request within a run of adjacent usable blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// The block of the run that holds `start`.
    pub(crate) first: Id,
    pub(crate) start: u32,
    /// Granules without memory.
    pub(crate) missing: u32,
    run: u32,
}

/// Granules next to each other that can be unmapped, and the free block they are in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loose {
    arena: usize,
    hole: Id,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// Granules claimed for unmapping.
#[derive(Clone, Debug)]
pub(crate) struct Donor {
    pub(crate) arena: usize,
    pub(crate) block: Id,
    pub(crate) first: u32,
    pub(crate) count: u32,
    domain: u16,
    stamp: u64,
}

impl Core {
    pub(crate) fn reuse(&self, want: &Want) -> Reuse {
        self.mempools.get(Mempool(want.mempool)).map_or(Reuse::default(), |owner| owner.reuse)
    }

    /// Move what other streams are known to be through with to everybody's bins.
    pub(crate) fn promote(&mut self, except: u16) -> bool {
        let mut moved = false;
        for index in 1..self.order.domains.len() as u16 {
            let domain = self.order.domain_at(index);
            if index == except || domain.swept == domain.done || domain.is_empty() {
                continue;
            }
            domain.swept = domain.done;
            let done = domain.done;
            for arena in 0..self.arenas.len() {
                let safe: Vec<Id> = self.order.domain(index).bins[arena]
                    .iter(&self.blocks)
                    .filter(|id| self.blocks.get(*id).stamp <= done)
                    .collect();
                for id in safe {
                    self.order.domain_at(index).bins[arena].remove(&mut self.blocks, id);
                    self.put_free(id, DEVICE, 0);
                    moved = true;
                }
            }
        }
        moved
    }

    /// A hole of another stream whose free an event has ordered before the requester.
    pub(crate) fn ordered_hole(&mut self, want: &Want) -> Option<Allocation> {
        if want.domain == DEVICE || !self.reuse(want).follow_events {
            return None;
        }
        let found = (1..self.order.domains.len() as u16).filter(|index| *index != want.domain).find_map(|index| {
            self.order.domain(index).bins[want.arena()].find(&self.blocks, want.units, RUN_LIMIT, |id| {
                self.order.follows(want.domain, index, self.blocks.get(id).stamp)
            })
        });
        let allocation = self.take_hole(found?, want);
        self.counters.ordered_reuses += 1;
        Some(allocation)
    }

    /// A hole of another stream that would serve if the requester waited for it.
    pub(crate) fn waitable_hole(&self, want: &Want) -> Option<(Id, u16)> {
        (1..self.order.domains.len() as u16)
            .filter(|index| {
                let domain = self.order.domain(*index);
                *index != want.domain && domain.stream.is_some() && !domain.capturing
            })
            .find_map(|index| {
                let hole =
                    self.order.domain(index).bins[want.arena()].find(&self.blocks, want.units, RUN_LIMIT, |_| true);
                Some((hole?, index))
            })
    }

    /// May the requester use these bytes without waiting? With what stamp do they become its own?
    fn usable(&self, block: &Block, want: &Want, follow: bool) -> Option<u64> {
        match block.state {
            State::Void => Some(0),
            State::Free if block.domain == want.domain && block.domain != DEVICE => Some(block.stamp),
            State::Free if block.domain == DEVICE || block.stamp <= self.order.domain(block.domain).done => Some(0),
            State::Free if follow && self.order.follows(want.domain, block.domain, block.stamp) => Some(self.order.now),
            _ => None,
        }
    }

    /// The run of adjacent usable blocks that lacks the fewest handles: best fit among equals.
    pub(crate) fn search(&self, want: &Want) -> Option<Fit> {
        let arena = &self.arenas[want.arena()];
        let limit = SCAN_LIMITS[want.arena()];
        let follow = want.domain != DEVICE && self.reuse(want).follow_events;
        let usable = |id: Id| id != NIL && self.usable(self.blocks.get(id), want, follow).is_some();
        let voids =
            std::iter::successors(Some(arena.voids), |id| Some(self.blocks.get(*id).after)).take_while(|id| *id != NIL);
        let holes = (0..self.order.domains.len() as u16)
            .flat_map(|index| self.order.domain(index).bins[want.arena()].iter(&self.blocks).take(limit));
        let mut seen = HashSet::new();
        let mut best: Option<Fit> = None;
        for seed in voids.take(limit).chain(holes) {
            if !usable(seed) {
                continue;
            }
            let mut first = seed;
            for _ in 0..RUN_LIMIT {
                let prev = self.blocks.get(first).prev;
                if !usable(prev) {
                    break;
                }
                first = prev;
            }
            if !seen.insert(first) {
                continue;
            }
            let mut run = [(NIL, 0, 0, false); RUN_LIMIT];
            let (mut count, mut id) = (0, first);
            for slot in &mut run {
                if !usable(id) {
                    break;
                }
                let block = self.blocks.get(id);
                *slot = (id, block.start, block.end(), block.state == State::Void);
                count += 1;
                id = block.next;
            }
            if let Some(place) = self.weigh(want, run.get(..count).unwrap_or_default())
                && best
                    .is_none_or(|best| (place.missing, place.run, place.start) < (best.missing, best.run, best.start))
            {
                best = Some(place);
            }
        }
        best
    }

    /// The best place within one run: at either end of each of its blocks.
    fn weigh(&self, want: &Want, run: &[(Id, u32, u32, bool)]) -> Option<Fit> {
        let (begin, end) = (run.first()?.1, run.last()?.2);
        if end - begin < want.units {
            return None;
        }
        let shift = self.arenas[want.arena()].granule_shift;
        let missing = |start: u32| {
            let stop = start + want.units;
            let voids = run.iter().filter(|(_, from, to, void)| *void && *from < stop && *to > start);
            voids.map(|(_, from, to, _)| ((stop.min(*to) - 1) >> shift) + 1 - (start.max(*from) >> shift)).sum::<u32>()
        };
        let starts = run.iter().flat_map(|(_, from, to, _)| [Some(*from), to.checked_sub(want.units)]);
        let best = starts
            .flatten()
            .filter(|start| *start >= begin && end - *start >= want.units)
            .map(|start| (missing(start), start))
            .min()?;
        let first = run.iter().find(|(_, from, to, _)| (*from..*to).contains(&best.1))?.0;
        Some(Fit { first, start: best.1, missing: best.0, run: end - begin })
    }

    /// Claim `start..end`, which begins in `first`: one busy block. Its stamp is the age of its mapped bytes.
    pub(crate) fn claim(&mut self, first: Id, start: u32, end: u32, want: &Want) -> Id {
        let follow = want.domain != DEVICE && self.reuse(want).follow_events;
        let (mut id, mut busy) = (first, NIL);
        while id != NIL {
            let block = *self.blocks.get(id);
            if block.start >= end || !matches!(block.state, State::Free | State::Void) {
                break;
            }
            let mut stamp = self.usable(&block, want, follow).unwrap_or(self.order.now);
            let foreign = block.state == State::Free && block.domain != want.domain && stamp > 0;
            if foreign {
                // The requester's stream may have been seen idle at this very time, before it was made to follow.
                stamp = self.order.tick();
            }
            let piece = self.cut_out(id, start, end);
            if foreign {
                // From now on these bytes are judged by the requester's progress alone.
                let piece = *self.blocks.get(piece);
                self.arenas[want.arena()].touch(piece.start, piece.end(), stamp);
            }
            let taken = self.blocks.at(piece);
            (taken.state, taken.stamp) = (State::Busy, stamp);
            let next = taken.next;
            if busy == NIL {
                busy = piece;
            } else {
                self.blocks.join(busy, piece);
            }
            id = next;
        }
        busy
    }

    /// Take the part of a free or void block within `start..end` out of its list; the rest stays in it.
    pub(crate) fn cut_out(&mut self, id: Id, start: u32, end: u32) -> Id {
        let block = *self.blocks.get(id);
        let arena = usize::from(block.arena).min(LARGE);
        if block.state == State::Void {
            self.arenas[arena].drop_void(&mut self.blocks, id);
        } else {
            self.order.domain_at(block.domain).bins[arena].remove(&mut self.blocks, id);
        }
        let mut middle = id;
        if start > block.start {
            middle = self.blocks.split(id, start - block.start);
            self.put_in_list(id);
        }
        if end < block.end() {
            let len = end - self.blocks.get(middle).start;
            let rest = self.blocks.split(middle, len);
            self.put_in_list(rest);
        }
        middle
    }

    fn put_in_list(&mut self, id: Id) {
        let block = *self.blocks.get(id);
        let arena = usize::from(block.arena).min(LARGE);
        if block.state == State::Void {
            self.arenas[arena].push_void(&mut self.blocks, id);
        } else {
            self.order.domain_at(block.domain).bins[arena].insert(&mut self.blocks, id);
        }
    }

    /// Dissolve a busy block by what is mapped now: free, void or lost; `live` units from `start` are handed out.
    pub(crate) fn unclaim(&mut self, busy: Id, want: &Want, live: Option<u32>) -> Option<Allocation> {
        let Block { start, len, stamp, .. } = *self.blocks.get(busy);
        let end = start + len;
        let (mut id, mut at, mut allocation) = (busy, start, None);
        while at < end {
            let arena = &self.arenas[want.arena()];
            let kind = |unit: u32| match arena.granule(unit >> arena.granule_shift).handle {
                0 => State::Void,
                LOST => State::Lost,
                _ => State::Free,
            };
            let inside = |unit: u32| live.is_some_and(|first| unit >= first && unit - first < want.units);
            let (state, is_live) = (kind(at), inside(at));
            let mut to = at;
            while to < end && inside(to) == is_live && (is_live || kind(to) == state) {
                let granule_end = ((to >> arena.granule_shift) + 1) << arena.granule_shift;
                let mut next = granule_end.min(end);
                if let Some(first) = live {
                    for border in [first, first + want.units] {
                        if border > to && border < next {
                            next = border;
                        }
                    }
                }
                to = next;
            }
            let rest = if to < end { self.blocks.split(id, to - at) } else { NIL };
            self.blocks.at(id).stamp = stamp;
            if is_live {
                allocation = Some(self.make_live(id, want));
            } else {
                match state {
                    State::Void => self.put_void(id),
                    State::Lost => self.blocks.at(id).state = State::Lost,
                    _ => self.put_free(id, want.domain, stamp),
                }
            }
            (id, at) = (rest, to);
        }
        allocation
    }

    /// Granules of a handle size that could be unmapped now, from the end of the address space on: so that blocks gather
    /// at its beginning, and what was freed lately, which is likely to be requested again, stays whole more often.
    pub(crate) fn loose(&self, handle_class: usize) -> Vec<Loose> {
        let mut found = Vec::new();
        for (index, arena) in self.arenas.iter().enumerate().filter(|(_, arena)| arena.handle_class == handle_class) {
            for (domain, known) in self.order.domains.iter().enumerate() {
                let done = if domain == usize::from(DEVICE) { u64::MAX } else { known.done };
                let big = known.bins[index].iter(&self.blocks).take_while(|id| {
                    // Bins come largest first; after half a granule no later one can hold a whole granule.
                    self.blocks.get(*id).len > arena.granule_units() / 2
                });
                for hole in big {
                    let block = self.blocks.get(hole);
                    let mut last: Option<Loose> = None;
                    for first in arena.inside(block.start, block.end()) {
                        let granule = arena.granule(first);
                        let safe = granule.stamp <= done || injected(Fault::RemapWithoutProof);
                        let pinned = granule.pins > 0 && !injected(Fault::PinIgnored);
                        if !safe || pinned || granule.mesh != 0 {
                            continue;
                        }
                        match &mut last {
                            Some(run) if run.first + run.count == first => run.count += 1,
                            _ => {
                                found.extend(last);
                                last = Some(Loose { arena: index, hole, first, count: 1 });
                            }
                        }
                    }
                    found.extend(last);
                }
            }
        }
        found.sort_by_key(|run| std::cmp::Reverse((run.arena, run.first)));
        found
    }

    /// The same, but only granules whose handles are `wanted`.
    pub(crate) fn loose_of(&self, handle_class: usize, wanted: impl Fn(Handle) -> bool) -> Vec<Loose> {
        let all = self.loose(handle_class);
        let each =
            all.iter().flat_map(|run| (0..run.count).map(|at| Loose { first: run.first + at, count: 1, ..*run }));
        each.filter(|one| wanted(self.arenas[one.arena].granule(one.first).handle)).collect()
    }

    /// Claim `need` granules for unmapping, out of `loose`.
    pub(crate) fn claim_donors(&mut self, loose: &[Loose], need: usize) -> Vec<Donor> {
        let mut picked = Vec::new();
        let mut left = need as u32;
        for run in loose {
            if left == 0 {
                break;
            }
            let count = run.count.min(left);
            left -= count;
            picked.push(Loose { first: run.first + run.count - count, count, ..*run });
        }
        // Left to right within a hole: what remains to the right keeps being the hole to cut from.
        picked.sort_by_key(|run| (run.arena, run.first));
        let mut donors: Vec<Donor> = Vec::new();
        let (mut hole, mut rest) = (NIL, NIL);
        for run in picked {
            let shift = self.arenas[run.arena].granule_shift;
            let (start, end) = (run.first << shift, (run.first + run.count) << shift);
            if run.hole != hole {
                (hole, rest) = (run.hole, run.hole);
            }
            let Block { domain, stamp, .. } = *self.blocks.get(rest);
            let block = self.cut_out(rest, start, end);
            self.blocks.at(block).state = State::Busy;
            rest = self.blocks.get(block).next;
            match donors.last_mut() {
                Some(last)
                    if (last.arena, last.domain) == (run.arena, domain) && last.first + last.count == run.first =>
                {
                    self.blocks.join(last.block, block);
                    last.count += run.count;
                }
                _ => donors.push(Donor { arena: run.arena, block, first: run.first, count: run.count, domain, stamp }),
            }
        }
        donors
    }

    /// The donor was unmapped (or was not): address space again (or a hole again).
    pub(crate) fn release_donor(&mut self, donor: &Donor, unmapped: bool) {
        if unmapped {
            for index in donor.first..donor.first + donor.count {
                if let Some(granule) = self.arenas[donor.arena].granule_at(index) {
                    (granule.handle, granule.stamp) = (0, 0);
                }
            }
            self.put_void(donor.block);
        } else {
            self.put_free(donor.block, donor.domain, donor.stamp);
        }
    }
}
