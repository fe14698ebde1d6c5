//! Shelves: blocks freed lately, by exact length, last in, first out, not yet joined with their neighbours.
//! A job that frees and asks for the same sizes over and over is served from here, and touches no block
//! but its own. Touches host memory only.
//!
//! A shelf belongs to one domain, so the reuse rule holds for it as for that domain's bins. Whoever looks
//! for holes elsewhere, or moves granules, clears the shelves first. A shelf gets room when it is asked in
//! vain and loses it to what lies on it when it is cleared, so lengths that do not come again pile up nothing.

use crate::block::{Block, DEVICE, Id, NIL, Slab, State};
use crate::config::{SHELF_BLOCKS, SHELF_DEPTH, SHELF_UNITS, SHELVES_LIMIT};
use crate::core::{Core, LARGE, Want};
use crate::fault::injected;
use crate::{Allocation, Fault};

/// Blocks of one length.
#[derive(Clone, Copy, Default)]
struct Shelf {
    top: Id,
    /// How many more it takes.
    room: u32,
}

/// All shelves of one domain and zone.
pub(crate) struct Shelves {
    by_len: Box<[Shelf]>,
    /// Lengths whose shelf may hold something, one bit each.
    used: Box<[u64]>,
    /// Units on all shelves together.
    pub(crate) units: u64,
    /// Blocks on all shelves together.
    pub(crate) count: usize,
}

impl Shelves {
    /// Shelves for blocks up to `longest` units; with 0 there are none.
    pub(crate) fn new(longest: u32) -> Self {
        let lens = if longest == 0 { 0 } else { longest.min(SHELVES_LIMIT) as usize + 1 };
        let by_len = vec![Shelf::default(); lens].into_boxed_slice();
        Self { by_len, used: vec![0; lens.div_ceil(64)].into_boxed_slice(), units: 0, count: 0 }
    }

    /// Lay a block down; `false` if there is no room for it.
    #[inline(always)]
    pub(crate) fn put(&mut self, block: &mut Block, id: Id, domain: u16, stamp: u64) -> bool {
        let Some(shelf) = self.by_len.get_mut(block.len as usize) else { return false };
        if shelf.room == 0 || self.count >= SHELF_BLOCKS {
            return false;
        }
        (block.state, block.domain, block.stamp, block.after) = (State::Shelved, domain, stamp, shelf.top);
        (shelf.top, shelf.room) = (id, shelf.room - 1);
        if let Some(bits) = self.used.get_mut(block.len as usize / 64) {
            *bits |= 1 << (block.len % 64);
        }
        self.units += u64::from(block.len);
        self.count += 1;
        true
    }

    /// Take the block of exactly `len` units that was laid down last.
    #[inline(always)]
    pub(crate) fn take(&mut self, slab: &Slab, len: u32) -> Option<Id> {
        let shelf = self.by_len.get_mut(len as usize)?;
        let id = shelf.top;
        if id == NIL {
            let depth = (SHELF_UNITS / len.max(1)).clamp(SHELF_DEPTH.0, SHELF_DEPTH.1);
            shelf.room = (shelf.room + 1).min(depth);
            return None;
        }
        (shelf.top, shelf.room) = (slab.get(id).after, shelf.room + 1);
        self.units = self.units.saturating_sub(u64::from(len));
        self.count = self.count.saturating_sub(1);
        Some(id)
    }

    /// Take a block of more than `len` units: the shortest there is.
    pub(crate) fn take_longer(&mut self, slab: &Slab, len: u32) -> Option<Id> {
        let from = len.saturating_add(1);
        let (first, mut mask) = (from as usize / 64, u64::MAX << (from % 64));
        for (word, bits) in self.used.iter_mut().enumerate().skip(first) {
            while *bits & mask != 0 {
                let bit = (*bits & mask).trailing_zeros();
                let len = word as u32 * 64 + bit;
                let Some(shelf) = self.by_len.get_mut(len as usize).filter(|shelf| shelf.top != NIL) else {
                    *bits &= !(1 << bit);
                    continue;
                };
                // Its room is not given back: nobody asked for this length.
                let id = shelf.top;
                shelf.top = slab.get(id).after;
                self.units = self.units.saturating_sub(u64::from(len));
                self.count = self.count.saturating_sub(1);
                return Some(id);
            }
            mask = u64::MAX;
        }
        None
    }

    /// Take everything.
    pub(crate) fn clear(&mut self, slab: &Slab) -> Vec<Id> {
        let mut all = Vec::with_capacity(self.count);
        for (word, bits) in self.used.iter_mut().enumerate() {
            while *bits != 0 {
                let len = word * 64 + bits.trailing_zeros() as usize;
                *bits &= *bits - 1;
                if let Some(shelf) = self.by_len.get_mut(len) {
                    let top = std::mem::replace(&mut shelf.top, NIL);
                    all.extend(
                        std::iter::successors(Some(top), |id| Some(slab.get(*id).after)).take_while(|id| *id != NIL),
                    );
                }
            }
        }
        (self.units, self.count) = (0, 0);
        all
    }

    /// Every block.
    pub(crate) fn iter<'a>(&'a self, slab: &'a Slab) -> impl Iterator<Item = Id> + 'a {
        self.by_len.iter().flat_map(move |shelf| {
            std::iter::successors(Some(shelf.top), |id| Some(slab.get(*id).after)).take_while(|id| *id != NIL)
        })
    }
}

impl Core {
    /// Serve a request with the block of its length that was shelved last.
    #[inline(always)]
    pub(crate) fn hit_shelf(&mut self, domain: u16, want: &Want) -> Option<Allocation> {
        let id = self.order.domain_at(domain).shelves[want.zone()].take(&self.blocks, want.units)?;
        Some(self.revive(id, want))
    }

    /// Serve a request from the front of a longer block that is shelved; the rest goes to the bins.
    #[cold]
    pub(crate) fn hit_longer(&mut self, domain: u16, want: &Want) -> Option<Allocation> {
        let id = self.order.domain_at(domain).shelves[want.zone()].take_longer(&self.blocks, want.units)?;
        let rest = self.blocks.split(id, want.units);
        let Block { start, len, stamp, .. } = *self.blocks.get(rest);
        self.zones[want.zone()].touch(start, start + len, stamp);
        self.put_free(rest, domain, stamp);
        Some(self.revive(id, want))
    }

    /// Join what is shelved in the zones of a handle size with its neighbours and put it into the bins.
    pub(crate) fn clear_shelves(&mut self, size_class: usize) {
        for domain in 0..self.order.domains.len() as u16 {
            for zone in 0..self.zones.len() {
                let shelves = &mut self.order.domain_at(domain).shelves[zone];
                if shelves.count == 0 || self.zones[zone].size_class != size_class {
                    continue;
                }
                let all = shelves.clear(&self.blocks);
                // What comes into the bins now was not there when they were swept for proven blocks.
                self.order.domain_at(domain).swept = 0;
                for id in all {
                    let Block { start, len, stamp, .. } = *self.blocks.get(id);
                    self.zones[zone].set_live(start, NIL);
                    if !injected(Fault::ShelfStampForgotten) {
                        self.zones[zone].touch(start, start + len, stamp);
                    }
                    self.put_free(id, domain, stamp);
                }
            }
        }
    }

    /// Bytes that no device work can touch any more go to the shelves of everybody, or to the bins.
    #[inline]
    pub(crate) fn put_proven(&mut self, id: Id) {
        let block = self.blocks.at(id);
        let (zone, start) = (usize::from(block.zone).min(LARGE), block.start);
        // A piece of a block may share its page with the next block; the index has one entry per page.
        let shelvable = self.zones[zone].meshed == 0 && block.len >= self.zones[zone].page_units();
        if shelvable && self.order.domain_at(DEVICE).shelves[zone].put(block, id, DEVICE, 0) {
            self.zones[zone].set_live(start, id);
        } else {
            if self.zones[zone].starts_in_page(start) == id {
                self.zones[zone].set_live(start, NIL);
            }
            self.put_free(id, DEVICE, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_in_is_the_first_out_and_depth_is_bounded() {
        let (mut slab, mut shelves) = (Slab::new(), Shelves::new(100));
        (0..1000).for_each(|_| assert_eq!(shelves.take(&slab, 7), None));
        let ids: Vec<Id> = (0..1000).map(|_| slab.add(Block { len: 7, ..Block::default() })).collect();
        assert!(!shelves.put(&mut Block { len: 8, ..Block::default() }, 1, 1, 5), "never asked for");
        let laid = ids.iter().filter(|id| shelves.put(slab.at(**id), **id, 1, 5)).count();
        assert!(laid > 1 && laid <= SHELF_DEPTH.1 as usize, "{laid}");
        assert_eq!((shelves.count, shelves.units), (laid, laid as u64 * 7));
        assert_eq!(shelves.take(&slab, 7), ids.get(laid - 1).copied());
        assert_eq!(
            (shelves.take(&slab, 8), shelves.take(&slab, 101), shelves.take(&slab, u32::MAX)),
            (None, None, None)
        );
        assert_eq!(shelves.clear(&slab).len(), laid - 1);
        assert_eq!((shelves.count, shelves.units, shelves.iter(&slab).count()), (0, 0, 0));
        assert!(shelves.put(slab.at(1), 1, 1, 5), "room that was not used stays");
        assert!(!shelves.put(slab.at(2), 2, 1, 5), "what was cleared was not asked for");
    }

    #[test]
    fn the_shortest_of_the_longer_is_taken() {
        let (mut slab, mut shelves) = (Slab::new(), Shelves::new(200));
        for len in [5, 63, 64, 130, 200] {
            assert_eq!(shelves.take(&slab, len), None);
            let id = slab.add(Block { len, ..Block::default() });
            assert!(shelves.put(slab.at(id), id, 1, 5));
        }
        let mut next = |len| shelves.take_longer(&slab, len).map(|id| slab.get(id).len);
        assert_eq!((next(63), next(63), next(4), next(4)), (Some(64), Some(130), Some(5), Some(63)));
        assert_eq!((next(200), next(u32::MAX), next(0), next(0)), (None, None, Some(200), None));
        assert_eq!((shelves.units, shelves.count), (0, 0));
    }

    #[test]
    fn no_shelves_take_nothing() {
        let (mut slab, mut shelves) = (Slab::new(), Shelves::new(0));
        let id = slab.add(Block { len: 1, ..Block::default() });
        assert!(!shelves.put(slab.at(id), id, 1, 5));
        assert_eq!(slab.get(id).state, State::Unused);
    }
}
