//! Free lists: blocks freed lately, by exact length, last in, first out, not yet coalesced.
//! A job that frees and requests the same sizes over and over is served from here, and touches no block
//! but its own. Touches host memory only.
//!
//! A list belongs to one domain, so the reuse rule holds for it as for that domain's bins. Whoever looks
//! for holes elsewhere, or moves granules, flushes the free lists first. A list gets room when it is searched in
//! vain and loses it to what lies on it when it is cleared, so lengths that do not come again pile up nothing.

use crate::block::{Block, DEVICE, Id, NIL, Slab, State};
use crate::config::{
    FREE_LIST_BLOCKS, FREE_LIST_DEPTH, FREE_LIST_LONGEST, FREE_LIST_UNITS, PROVEN_DEPTH, PROVEN_UNITS,
};
use crate::core::{Core, LARGE, Want};
use crate::fault::injected;
use crate::{Allocation, Fault};

/// Blocks of one length.
#[derive(Clone, Copy, Default)]
struct FreeList {
    top: Id,
    /// How many more it takes.
    room: u32,
}

/// All free lists of one domain and arena.
pub(crate) struct FreeLists {
    by_len: Box<[FreeList]>,
    /// Lengths whose list may hold something, one bit each.
    used: Box<[u64]>,
    /// Units that a list may hold, and the bounds of its blocks.
    depth: (u32, (u32, u32)),
    /// Units in all free lists together.
    pub(crate) units: u64,
    /// Blocks in all free lists together.
    pub(crate) count: usize,
}

impl FreeLists {
    /// Free lists for blocks up to `longest` units; with 0 there are none.
    pub(crate) fn new(longest: u32) -> Self {
        let lens = if longest == 0 { 0 } else { longest.min(FREE_LIST_LONGEST) as usize + 1 };
        let by_len = vec![FreeList::default(); lens].into_boxed_slice();
        let depth = (FREE_LIST_UNITS, FREE_LIST_DEPTH);
        Self { by_len, used: vec![0; lens.div_ceil(64)].into_boxed_slice(), depth, units: 0, count: 0 }
    }

    /// The same for what everybody may reuse.
    pub(crate) fn proven(longest: u32) -> Self {
        Self { depth: (PROVEN_UNITS, PROVEN_DEPTH), ..Self::new(longest) }
    }

    /// Was a block of this length requested in vain lately, and is there room for one?
    pub(crate) fn wants(&self, len: u32) -> bool {
        self.by_len.get(len as usize).is_some_and(|list| list.room > 0)
    }

    /// Put a block in; `false` if there is no room for it.
    #[inline(always)]
    pub(crate) fn put(&mut self, block: &mut Block, id: Id, domain: u16, stamp: u64) -> bool {
        let Some(list) = self.by_len.get_mut(block.len as usize) else { return false };
        if list.room == 0 || self.count >= FREE_LIST_BLOCKS {
            return false;
        }
        (block.state, block.domain, block.stamp, block.after) = (State::Listed, domain, stamp, list.top);
        (list.top, list.room) = (id, list.room - 1);
        if let Some(bits) = self.used.get_mut(block.len as usize / 64) {
            *bits |= 1 << (block.len % 64);
        }
        self.units += u64::from(block.len);
        self.count += 1;
        true
    }

    /// Take the block of exactly `len` units that was put in last.
    #[inline(always)]
    pub(crate) fn take(&mut self, slab: &Slab, len: u32) -> Option<Id> {
        let list = self.by_len.get_mut(len as usize)?;
        let id = list.top;
        if id == NIL {
            let (units, (least, most)) = self.depth;
            let depth = (units / len.max(1)).clamp(least, most);
            list.room = (list.room + 1).min(depth);
            return None;
        }
        (list.top, list.room) = (slab.get(id).after, list.room + 1);
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
                let Some(list) = self.by_len.get_mut(len as usize).filter(|list| list.top != NIL) else {
                    *bits &= !(1 << bit);
                    continue;
                };
                // Its room is not returned: nobody requested this length.
                let id = list.top;
                list.top = slab.get(id).after;
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
                if let Some(list) = self.by_len.get_mut(len) {
                    let top = std::mem::replace(&mut list.top, NIL);
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
        self.by_len.iter().flat_map(move |list| {
            std::iter::successors(Some(list.top), |id| Some(slab.get(*id).after)).take_while(|id| *id != NIL)
        })
    }
}

impl Core {
    /// Serve a request with the block of its length that was freed last.
    #[inline(always)]
    pub(crate) fn hit_free_list(&mut self, domain: u16, want: &Want) -> Option<Allocation> {
        let id = self.order.domain_at(domain).free_lists[want.arena()].take(&self.blocks, want.units)?;
        Some(self.revive(id, want))
    }

    /// Serve a request from the front of a longer block of a free list; the rest goes to the bins.
    #[cold]
    pub(crate) fn hit_longer(&mut self, domain: u16, want: &Want) -> Option<Allocation> {
        let id = self.order.domain_at(domain).free_lists[want.arena()].take_longer(&self.blocks, want.units)?;
        let rest = self.blocks.split(id, want.units);
        let Block { start, len, stamp, .. } = *self.blocks.get(rest);
        self.arenas[want.arena()].touch(start, start + len, stamp);
        self.put_free(rest, domain, stamp);
        Some(self.revive(id, want))
    }

    /// Coalesce what the free lists of a handle size hold and put it into the bins.
    pub(crate) fn flush_free_lists(&mut self, handle_class: usize) {
        for domain in 0..self.order.domains.len() as u16 {
            for arena in 0..self.arenas.len() {
                let free_lists = &mut self.order.domain_at(domain).free_lists[arena];
                if free_lists.count == 0 || self.arenas[arena].handle_class != handle_class {
                    continue;
                }
                let all = free_lists.clear(&self.blocks);
                // What comes into the bins now was not there when they were swept for proven blocks.
                self.order.domain_at(domain).swept = 0;
                for id in all {
                    let Block { start, len, stamp, .. } = *self.blocks.get(id);
                    self.arenas[arena].set_live(start, NIL);
                    if !injected(Fault::FreeListStampForgotten) {
                        self.arenas[arena].touch(start, start + len, stamp);
                    }
                    self.put_free(id, domain, stamp);
                }
            }
        }
    }

    /// Bytes that no device work can touch any more go to the free lists of everybody, or to the bins.
    #[inline]
    pub(crate) fn put_proven(&mut self, id: Id) {
        let block = self.blocks.at(id);
        let (arena, start) = (usize::from(block.arena).min(LARGE), block.start);
        // A piece of a block may share its page with the next block; the index has one entry per page.
        let listable = block.len >= self.arenas[arena].page_units();
        if listable && self.order.domain_at(DEVICE).free_lists[arena].put(block, id, DEVICE, 0) {
            self.arenas[arena].set_live(start, id);
        } else {
            if self.arenas[arena].starts_in_page(start) == id {
                self.arenas[arena].set_live(start, NIL);
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
        let (mut slab, mut free_lists) = (Slab::new(), FreeLists::new(100));
        (0..1000).for_each(|_| assert_eq!(free_lists.take(&slab, 7), None));
        let ids: Vec<Id> = (0..1000).map(|_| slab.add(Block { len: 7, ..Block::default() })).collect();
        assert!(!free_lists.put(&mut Block { len: 8, ..Block::default() }, 1, 1, 5), "never requested");
        let laid = ids.iter().filter(|id| free_lists.put(slab.at(**id), **id, 1, 5)).count();
        assert!(laid > 1 && laid <= FREE_LIST_DEPTH.1 as usize, "{laid}");
        assert_eq!((free_lists.count, free_lists.units), (laid, laid as u64 * 7));
        assert_eq!(free_lists.take(&slab, 7), ids.get(laid - 1).copied());
        assert_eq!(
            (free_lists.take(&slab, 8), free_lists.take(&slab, 101), free_lists.take(&slab, u32::MAX)),
            (None, None, None)
        );
        assert_eq!(free_lists.clear(&slab).len(), laid - 1);
        assert_eq!((free_lists.count, free_lists.units, free_lists.iter(&slab).count()), (0, 0, 0));
        assert!(free_lists.put(slab.at(1), 1, 1, 5), "room that was not used stays");
        assert!(!free_lists.put(slab.at(2), 2, 1, 5), "what was cleared was not requested");
    }

    #[test]
    fn the_shortest_of_the_longer_is_taken() {
        let (mut slab, mut free_lists) = (Slab::new(), FreeLists::new(200));
        for len in [5, 63, 64, 130, 200] {
            assert_eq!(free_lists.take(&slab, len), None);
            let id = slab.add(Block { len, ..Block::default() });
            assert!(free_lists.put(slab.at(id), id, 1, 5));
        }
        let mut next = |len| free_lists.take_longer(&slab, len).map(|id| slab.get(id).len);
        assert_eq!((next(63), next(63), next(4), next(4)), (Some(64), Some(130), Some(5), Some(63)));
        assert_eq!((next(200), next(u32::MAX), next(0), next(0)), (None, None, Some(200), None));
        assert_eq!((free_lists.units, free_lists.count), (0, 0));
    }

    #[test]
    fn no_free_lists_take_nothing() {
        let (mut slab, mut free_lists) = (Slab::new(), FreeLists::new(0));
        let id = slab.add(Block { len: 1, ..Block::default() });
        assert!(!free_lists.put(slab.at(id), id, 1, 5));
        assert_eq!(slab.get(id).state, State::Unused);
    }
}
