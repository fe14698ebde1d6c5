//! The index: which block starts in which page of an arena. Sixty-four pages share one cache line, so that a
//! free finds its block with few lines touched, however many blocks are live. Touches host memory only.

use crate::block::{Id, NIL};

const PAGES: u32 = 64;
/// Blocks of a line that are kept in the line itself.
const INLINE: usize = 14;
/// In the last slot of a line: its blocks are in a table of their own, whose number is in the first slot.
const SPILLED: Id = Id::MAX;

/// Sixty-four pages: a bit for each in which a block starts, and these blocks in order of their pages.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    starts: u64,
    ids: [Id; INLINE],
}

impl Line {
    /// How many blocks start in pages below `page`.
    #[inline]
    fn rank(&self, page: u32) -> usize {
        (self.starts & ((1 << (page % PAGES)) - 1)).count_ones() as usize
    }

    #[inline]
    fn has(&self, page: u32) -> bool {
        self.starts >> (page % PAGES) & 1 == 1
    }

    #[inline]
    fn spilled(&self) -> Option<usize> {
        (self.ids[INLINE - 1] == SPILLED).then_some(self.ids[0] as usize)
    }
}

/// See the file's first comment.
#[derive(Default)]
pub(crate) struct Index {
    lines: Vec<Line>,
    tables: Vec<[Id; PAGES as usize]>,
    unused: Vec<Id>,
}

impl Index {
    /// Make room for pages below `end`.
    pub(crate) fn prepare(&mut self, end: u32) {
        let lines = end.div_ceil(PAGES) as usize;
        if self.lines.len() < lines {
            self.lines.resize(lines, Line::default());
        }
    }

    /// The block that starts in a page.
    #[inline]
    pub(crate) fn get(&self, page: u32) -> Id {
        let Some(line) = self.lines.get((page / PAGES) as usize).filter(|line| line.has(page)) else { return NIL };
        match line.spilled() {
            None => line.ids.get(line.rank(page)).copied().unwrap_or(NIL),
            Some(table) => self.tables.get(table).map_or(NIL, |table| table[(page % PAGES) as usize]),
        }
    }

    /// A block starts in a page.
    #[inline]
    pub(crate) fn set(&mut self, page: u32, id: Id) {
        let Some(line) = self.lines.get_mut((page / PAGES) as usize) else { return };
        if let Some(table) = line.spilled() {
            line.starts |= 1 << (page % PAGES);
            if let Some(table) = self.tables.get_mut(table) {
                table[(page % PAGES) as usize] = id;
            }
            return;
        }
        let (rank, count) = (line.rank(page), line.starts.count_ones() as usize);
        if !line.has(page) {
            if count >= INLINE {
                self.spill(page / PAGES);
                return self.set(page, id);
            }
            line.ids.copy_within(rank..count, rank + 1);
            line.starts |= 1 << (page % PAGES);
        }
        if let Some(slot) = line.ids.get_mut(rank) {
            *slot = id;
        }
    }

    /// No block starts in a page any more.
    #[inline]
    pub(crate) fn clear(&mut self, page: u32) {
        let Some(line) = self.lines.get_mut((page / PAGES) as usize).filter(|line| line.has(page)) else { return };
        line.starts &= !(1 << (page % PAGES));
        if let Some(table) = line.spilled() {
            if line.starts == 0 {
                line.ids = [NIL; INLINE];
                self.unused.push(table as Id);
            }
            return;
        }
        let rank = line.rank(page);
        let count = line.starts.count_ones() as usize + 1;
        line.ids.copy_within((rank + 1).min(count)..count, rank);
        line.ids[count - 1] = NIL;
    }

    /// The last block that starts in `page` or before it.
    pub(crate) fn last_upto(&self, page: u32) -> Id {
        let mut at = page / PAGES;
        let mut mask = u64::MAX >> (PAGES - 1 - page % PAGES);
        loop {
            let starts = self.lines.get(at as usize).map_or(0, |line| line.starts & mask);
            if starts != 0 {
                return self.get(at * PAGES + starts.ilog2());
            }
            if at == 0 {
                return NIL;
            }
            (at, mask) = ((at - 1).min(self.lines.len() as u32), u64::MAX);
        }
    }

    /// The blocks that start in pages `from..to`, in their order.
    pub(crate) fn within(&self, from: u32, to: u32) -> impl Iterator<Item = Id> + '_ {
        let to = to.min((self.lines.len() as u32).saturating_mul(PAGES));
        (from / PAGES..to.div_ceil(PAGES)).flat_map(move |at| {
            let mut starts = self.starts_within(at, from, to);
            std::iter::from_fn(move || {
                let page = (starts != 0).then(|| starts.trailing_zeros())?;
                starts &= starts - 1;
                Some(self.get(at * PAGES + page))
            })
        })
    }

    /// How many blocks start in pages `from..to`.
    pub(crate) fn count_within(&self, from: u32, to: u32) -> u32 {
        let to = to.min((self.lines.len() as u32).saturating_mul(PAGES));
        (from / PAGES..to.div_ceil(PAGES)).map(|at| self.starts_within(at, from, to).count_ones()).sum()
    }

    /// The pages of a line within `from..to` in which a block starts.
    fn starts_within(&self, at: u32, from: u32, to: u32) -> u64 {
        let starts = self.lines.get(at as usize).map_or(0, |line| line.starts);
        let low = if from > at * PAGES { u64::MAX << (from % PAGES) } else { u64::MAX };
        let high = if to - at * PAGES < PAGES { (1 << (to % PAGES)) - 1 } else { u64::MAX };
        starts & low & high
    }

    /// Move the blocks of a full line to a table of their own.
    #[cold]
    fn spill(&mut self, at: u32) {
        let Some(line) = self.lines.get_mut(at as usize) else { return };
        let mut table = [NIL; PAGES as usize];
        let pages = (0..PAGES).filter(|page| line.has(*page));
        for (page, id) in pages.zip(line.ids) {
            table[page as usize] = id;
        }
        let number = self.unused.pop().unwrap_or(self.tables.len() as Id);
        match self.tables.get_mut(number as usize) {
            Some(slot) => *slot = table,
            None => self.tables.push(table),
        }
        (line.ids[0], line.ids[INLINE - 1]) = (number, SPILLED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_line_is_a_cache_line() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
    }

    #[test]
    fn it_knows_what_a_map_knows() {
        const END: u32 = 300;
        let (mut index, mut model) = (Index::default(), BTreeMap::new());
        index.prepare(END);
        let mut random = 7_u64;
        for round in 0..60_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = (random >> 33) as u32 % END;
            // Filled and emptied in turns, so that lines spill and come back.
            if (random >> 60) < if round / 5_000 % 2 == 0 { 11 } else { 4 } {
                index.set(page, round + 1);
                model.insert(page, round + 1);
            } else {
                index.clear(page);
                model.remove(&page);
            }
            let other = (random >> 12) as u32 % END;
            assert_eq!(index.get(other), model.get(&other).copied().unwrap_or(NIL), "page {other}, round {round}");
            let last = model.range(..=other).next_back().map_or(NIL, |(_, id)| *id);
            assert_eq!(index.last_upto(other), last, "up to page {other}, round {round}");
            let (from, to) = (page.min(other), page.max(other));
            let within: Vec<Id> = model.range(from..to).map(|(_, id)| *id).collect();
            assert_eq!(index.count_within(from, to) as usize, within.len(), "{from}..{to}, round {round}");
            assert_eq!(index.within(from, to).collect::<Vec<Id>>(), within, "{from}..{to}, round {round}");
        }
        assert!(index.tables.len() <= 5, "tables are used again");
    }

    #[test]
    fn pages_beyond_the_end_are_empty() {
        let mut index = Index::default();
        index.set(5, 1);
        index.clear(u32::MAX);
        assert_eq!((index.get(5), index.get(u32::MAX), index.last_upto(u32::MAX)), (NIL, NIL, NIL));
        assert_eq!((index.within(0, u32::MAX).count(), index.count_within(7, 7)), (0, 0));
        index.prepare(1);
        index.set(5, 1);
        assert_eq!((index.get(5), index.last_upto(u32::MAX), index.last_upto(4)), (1, 1, NIL));
    }
}
