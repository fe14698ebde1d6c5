//! Bins: free blocks sorted by size in two levels of bitmaps. Finding, adding and removing cost the
//! same whatever the number of blocks. Touches host memory only.

use crate::block::{Id, NIL, Slab};

const SUB_BITS: u32 = 5;
const SUBS: usize = 1 << SUB_BITS;
const ROWS: usize = 28;

/// Free blocks of one arena and one domain.
pub(crate) struct Bins {
    rows: u32,
    subs: [u32; ROWS],
    heads: Box<[Id; ROWS * SUBS]>,
    /// Units in all bins together.
    pub(crate) units: u64,
    /// Blocks in all bins together.
    pub(crate) count: usize,
}

/// Row and column of a length. Lengths below 32 units have a bin of their own; above, a bin spans 3 %.
#[inline]
fn class(len: u32) -> (usize, usize) {
    if len < SUBS as u32 {
        return (0, len as usize);
    }
    let log = len.ilog2();
    ((log - SUB_BITS + 1) as usize, ((len >> (log - SUB_BITS)) as usize) & (SUBS - 1))
}

impl Bins {
    pub(crate) fn new() -> Self {
        Self { rows: 0, subs: [0; ROWS], heads: Box::new([NIL; ROWS * SUBS]), units: 0, count: 0 }
    }

    #[inline]
    fn head(&self, row: usize, sub: usize) -> Id {
        self.heads.get(row * SUBS + sub).copied().unwrap_or(NIL)
    }

    #[inline]
    fn set_head(&mut self, row: usize, sub: usize, id: Id) {
        if let Some(head) = self.heads.get_mut(row * SUBS + sub) {
            *head = id;
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, slab: &mut Slab, id: Id) {
        let len = slab.get(id).len;
        let (row, sub) = class(len);
        let head = self.head(row, sub);
        let block = slab.at(id);
        block.before = NIL;
        block.after = head;
        if head != NIL {
            slab.at(head).before = id;
        }
        self.set_head(row, sub, id);
        self.rows |= 1 << row;
        if let Some(bits) = self.subs.get_mut(row) {
            *bits |= 1 << sub;
        }
        self.units += u64::from(len);
        self.count += 1;
    }

    #[inline]
    pub(crate) fn remove(&mut self, slab: &mut Slab, id: Id) {
        let block = *slab.get(id);
        if block.after != NIL {
            slab.at(block.after).before = block.before;
        }
        if block.before == NIL {
            let (row, sub) = class(block.len);
            self.set_head(row, sub, block.after);
            if block.after == NIL
                && let Some(bits) = self.subs.get_mut(row)
            {
                *bits &= !(1 << sub);
                if *bits == 0 {
                    self.rows &= !(1 << row);
                }
            }
        } else {
            slab.at(block.before).after = block.after;
        }
        self.units = self.units.saturating_sub(u64::from(block.len));
        self.count = self.count.saturating_sub(1);
    }

    /// A block in the bins has grown or shrunk: it changes its place only if it changes its bin.
    #[inline]
    pub(crate) fn resized(&mut self, slab: &mut Slab, id: Id, start: u32, len: u32) {
        let old = slab.get(id).len;
        let stays = class(old) == class(len);
        if !stays {
            self.remove(slab, id);
        }
        let block = slab.at(id);
        (block.start, block.len) = (start, len);
        if stays {
            self.units = self.units + u64::from(len) - u64::from(old);
        } else {
            self.insert(slab, id);
        }
    }

    /// A block of at least `len` units that leaves little over and that `fits` accepts; `scan` bounds
    /// how many blocks of one bin are compared.
    #[inline]
    pub(crate) fn find(&self, slab: &Slab, len: u32, scan: usize, fits: impl Fn(Id) -> bool) -> Option<Id> {
        let (mut row, mut sub) = class(len);
        loop {
            let bits = self.subs.get(row).copied().unwrap_or(0) & (u32::MAX << sub);
            if bits == 0 {
                let rows = self.rows & u32::MAX.checked_shl(row as u32 + 1).unwrap_or(0);
                if rows == 0 {
                    return None;
                }
                (row, sub) = (rows.trailing_zeros() as usize, 0);
                continue;
            }
            sub = bits.trailing_zeros() as usize;
            if let Some(id) = Self::best(slab, self.head(row, sub), len, scan, &fits) {
                return Some(id);
            }
            sub += 1;
            if sub == SUBS {
                (row, sub) = (row + 1, 0);
                if row == ROWS {
                    return None;
                }
            }
        }
    }

    #[inline]
    fn best(slab: &Slab, head: Id, len: u32, scan: usize, fits: &impl Fn(Id) -> bool) -> Option<Id> {
        let (mut id, mut best, mut best_len) = (head, NIL, u32::MAX);
        for _ in 0..scan {
            if id == NIL {
                break;
            }
            let block = slab.get(id);
            if block.len >= len && block.len < best_len && fits(id) {
                (best, best_len) = (id, block.len);
                if best_len == len {
                    break;
                }
            }
            id = block.after;
        }
        (best != NIL).then_some(best)
    }

    /// The cheapest of the first `scan` blocks of at least `len` units, from the tightest bins up. Where the
    /// best so far is `enough`, no block of a wider bin can be cheaper.
    #[inline]
    pub(crate) fn cheapest<C: Ord>(
        &self,
        slab: &Slab,
        len: u32,
        scan: usize,
        cost: impl Fn(Id) -> C,
        enough: impl Fn(&C) -> bool,
    ) -> Option<Id> {
        let (mut row, mut sub) = class(len);
        let (mut best, mut seen): (Option<(C, Id)>, usize) = (None, 0);
        while seen < scan && row < ROWS {
            let bits = self.subs.get(row).copied().unwrap_or(0) & u32::MAX.checked_shl(sub as u32).unwrap_or(0);
            if bits == 0 {
                let rows = self.rows & u32::MAX.checked_shl(row as u32 + 1).unwrap_or(0);
                if rows == 0 {
                    break;
                }
                (row, sub) = (rows.trailing_zeros() as usize, 0);
                continue;
            }
            sub = bits.trailing_zeros() as usize;
            let mut id = self.head(row, sub);
            while id != NIL && seen < scan {
                seen += 1;
                if slab.get(id).len >= len {
                    let price = cost(id);
                    if best.as_ref().is_none_or(|(least, _)| price < *least) {
                        best = Some((price, id));
                    }
                }
                id = slab.get(id).after;
            }
            if best.as_ref().is_some_and(|(price, _)| enough(price)) {
                break;
            }
            sub += 1;
        }
        best.map(|(_, id)| id)
    }

    /// Every block, largest bins first.
    pub(crate) fn iter<'a>(&'a self, slab: &'a Slab) -> impl Iterator<Item = Id> + 'a {
        (0..ROWS * SUBS)
            .rev()
            .filter(|bin| self.subs.get(bin / SUBS).is_some_and(|bits| bits >> (bin % SUBS) & 1 == 1))
            .flat_map(move |bin| {
                std::iter::successors(Some(self.head(bin / SUBS, bin % SUBS)), |id| Some(slab.get(*id).after))
                    .take_while(|id| *id != NIL)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;

    #[test]
    fn classes_grow_with_length() {
        let mut last = (0, 0);
        for len in 1..200_000_u32 {
            let now = class(len);
            assert!(now >= last && now.0 < ROWS, "{len}: {last:?} {now:?}");
            last = now;
        }
        assert!(class(u32::MAX).0 < ROWS);
    }

    #[test]
    fn finds_the_tightest_of_what_is_there() {
        let (mut slab, mut bins) = (Slab::new(), Bins::new());
        let mut at = 0;
        for len in [7, 40, 41, 1000, 100_000] {
            let id = slab.add(Block { start: at, len, ..Block::default() });
            at += len;
            bins.insert(&mut slab, id);
        }
        let found = |len| bins.find(&slab, len, 8, |_| true).map(|id| slab.get(id).len);
        assert_eq!(found(1), Some(7));
        assert_eq!(found(41), Some(41));
        assert_eq!(found(42), Some(1000));
        assert_eq!(found(100_001), None);
        assert_eq!(found(u32::MAX), None);
        let all: Vec<u32> = bins.iter(&slab).map(|id| slab.get(id).len).collect();
        assert_eq!(all.len(), 5);
        assert_eq!(all[0], 100_000);
    }

    #[test]
    fn removing_empties_the_maps() {
        let (mut slab, mut bins) = (Slab::new(), Bins::new());
        let ids: Vec<Id> = (1..500).map(|len| slab.add(Block { len, ..Block::default() })).collect();
        for id in &ids {
            bins.insert(&mut slab, *id);
        }
        for id in &ids {
            bins.remove(&mut slab, *id);
        }
        assert_eq!((bins.rows, bins.units, bins.count), (0, 0, 0));
    }
}
