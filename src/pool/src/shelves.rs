//! Shelves: blocks freed lately, by exact length, last in, first out, not yet joined with their neighbours.
//! A job that frees and asks for the same sizes over and over is served from here, and touches no block
//! but its own. Touches host memory only.
//!
//! A shelf belongs to one domain, so the reuse rule holds for it as for that domain's bins. Whoever looks
//! for holes elsewhere, or moves granules, clears the shelves first.

use crate::block::{Block, Id, NIL, Slab, State};
use crate::config::{SHELF_BLOCKS, SHELF_DEPTH, SHELF_UNITS, SHELVES_LIMIT};

/// Blocks of one length.
#[derive(Clone, Copy)]
struct Shelf {
    top: Id,
    /// How many more it takes.
    room: u32,
}

/// All shelves of one domain and zone.
pub(crate) struct Shelves {
    by_len: Box<[Shelf]>,
    /// Units on all shelves together.
    pub(crate) units: u64,
    /// Blocks on all shelves together.
    pub(crate) count: usize,
}

impl Shelves {
    /// Shelves for blocks up to `longest` units; with 0 there are none.
    pub(crate) fn new(longest: u32) -> Self {
        let lens = if longest == 0 { 0..0 } else { 0..longest.min(SHELVES_LIMIT) + 1 };
        let room = |len: u32| (SHELF_UNITS / len.max(1)).clamp(SHELF_DEPTH.0, SHELF_DEPTH.1);
        Self { by_len: lens.map(|len| Shelf { top: NIL, room: room(len) }).collect(), units: 0, count: 0 }
    }

    /// Lay a block down; `false` if there is no room for it.
    #[inline]
    pub(crate) fn put(&mut self, block: &mut Block, id: Id, domain: u16, stamp: u64) -> bool {
        let Some(shelf) = self.by_len.get_mut(block.len as usize) else { return false };
        if shelf.room == 0 || self.count >= SHELF_BLOCKS {
            return false;
        }
        (block.state, block.domain, block.stamp, block.after) = (State::Shelved, domain, stamp, shelf.top);
        (shelf.top, shelf.room) = (id, shelf.room - 1);
        self.units += u64::from(block.len);
        self.count += 1;
        true
    }

    /// Take the block of exactly `len` units that was laid down last.
    #[inline]
    pub(crate) fn take(&mut self, slab: &Slab, len: u32) -> Option<Id> {
        let shelf = self.by_len.get_mut(len as usize)?;
        let id = shelf.top;
        if id == NIL {
            return None;
        }
        (shelf.top, shelf.room) = (slab.get(id).after, shelf.room + 1);
        self.units = self.units.saturating_sub(u64::from(len));
        self.count = self.count.saturating_sub(1);
        Some(id)
    }

    /// Take everything.
    pub(crate) fn clear(&mut self, slab: &Slab) -> Vec<Id> {
        let mut all = Vec::with_capacity(self.count);
        for len in 0..self.by_len.len() as u32 {
            if self.count == 0 {
                break;
            }
            while let Some(id) = self.take(slab, len) {
                all.push(id);
            }
        }
        all
    }

    /// Every block.
    pub(crate) fn iter<'a>(&'a self, slab: &'a Slab) -> impl Iterator<Item = Id> + 'a {
        self.by_len.iter().flat_map(move |shelf| {
            std::iter::successors(Some(shelf.top), |id| Some(slab.get(*id).after)).take_while(|id| *id != NIL)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_in_is_the_first_out_and_depth_is_bounded() {
        let (mut slab, mut shelves) = (Slab::new(), Shelves::new(100));
        let ids: Vec<Id> = (0..1000).map(|_| slab.add(Block { len: 7, ..Block::default() })).collect();
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
        assert!(shelves.put(slab.at(1), 1, 1, 5), "a cleared shelf has room again");
    }

    #[test]
    fn no_shelves_take_nothing() {
        let (mut slab, mut shelves) = (Slab::new(), Shelves::new(0));
        let id = slab.add(Block { len: 1, ..Block::default() });
        assert!(!shelves.put(slab.at(id), id, 1, 5));
        assert_eq!(slab.get(id).state, State::Unused);
    }
}
