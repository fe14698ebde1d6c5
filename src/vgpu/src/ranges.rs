//! Which part of an address range is taken: a two-level segregated fit over units, in constant time
//! whatever the number of live blocks. Knows nothing of memory, devices or owners but a tag.

use crate::sparse::{BitSet, Sparse};

const NONE: u32 = u32::MAX;
const SUB_BITS: u32 = 4;
const SUBS: usize = 1 << SUB_BITS;
const CLASSES: usize = 32;

#[derive(Clone, Copy)]
struct Node {
    start: u32,
    units: u32,
    free: bool,
    before: u32,
    after: u32,
    next_free: u32,
    prev_free: u32,
}

/// Index of a live block, stable while it lives.
pub(crate) type BlockIndex = u32;

/// A range of `units` units, from which runs are taken and returned.
pub(crate) struct Ranges {
    nodes: Vec<Node>,
    unused: Vec<u32>,
    heads: [[u32; SUBS]; CLASSES],
    tails: [[u32; SUBS]; CLASSES],
    class_bits: u32,
    sub_bits: [u32; CLASSES],
    starts: BitSet,
    node_at: Sparse<u32>,
}

fn class_of(units: u32) -> (usize, usize) {
    if units < SUBS as u32 {
        return (0, units as usize);
    }
    let log = units.ilog2();
    let sub = (units >> (log - SUB_BITS)) as usize & (SUBS - 1);
    ((log - SUB_BITS + 1) as usize, sub)
}

/// The first class all of whose members hold `units`.
fn class_for(units: u32) -> (usize, usize) {
    if units < SUBS as u32 {
        return (0, units as usize);
    }
    let log = units.ilog2();
    let rounded = units.saturating_add((1 << (log - SUB_BITS)) - 1);
    class_of(rounded)
}

impl Ranges {
    pub(crate) fn new(units: u32) -> Option<Self> {
        let mut ranges = Self {
            nodes: Vec::new(),
            unused: Vec::new(),
            heads: [[NONE; SUBS]; CLASSES],
            tails: [[NONE; SUBS]; CLASSES],
            class_bits: 0,
            sub_bits: [0; CLASSES],
            starts: BitSet::new(units as usize)?,
            node_at: Sparse::new(units as usize)?,
        };
        ranges.nodes.push(Node {
            start: 0,
            units,
            free: true,
            before: NONE,
            after: NONE,
            next_free: NONE,
            prev_free: NONE,
        });
        ranges.link(0);
        Some(ranges)
    }

    fn link(&mut self, index: u32) {
        let (class, sub) = class_of(self.nodes[index as usize].units);
        // Appended at the tail: a freed address comes back late, so that its late users are caught.
        let tail = self.tails[class][sub];
        self.nodes[index as usize].prev_free = tail;
        self.nodes[index as usize].next_free = NONE;
        if tail == NONE {
            self.heads[class][sub] = index;
        } else {
            self.nodes[tail as usize].next_free = index;
        }
        self.tails[class][sub] = index;
        self.sub_bits[class] |= 1 << sub;
        self.class_bits |= 1 << class;
    }

    fn unlink(&mut self, index: u32) {
        let node = self.nodes[index as usize];
        let (class, sub) = class_of(node.units);
        if node.prev_free == NONE {
            self.heads[class][sub] = node.next_free;
        } else {
            self.nodes[node.prev_free as usize].next_free = node.next_free;
        }
        if node.next_free == NONE {
            self.tails[class][sub] = node.prev_free;
        } else {
            self.nodes[node.next_free as usize].prev_free = node.prev_free;
        }
        if self.heads[class][sub] == NONE {
            self.sub_bits[class] &= !(1 << sub);
            if self.sub_bits[class] == 0 {
                self.class_bits &= !(1 << class);
            }
        }
    }

    fn find(&self, units: u32) -> Option<u32> {
        let (class, sub) = class_for(units);
        let same = self.sub_bits.get(class)? & (u32::MAX << sub);
        if same != 0 {
            return Some(self.heads[class][same.trailing_zeros() as usize]);
        }
        let higher = if class + 1 >= CLASSES { 0 } else { self.class_bits & (u32::MAX << (class + 1)) };
        if higher == 0 {
            return None;
        }
        let class = higher.trailing_zeros() as usize;
        let sub = self.sub_bits[class].trailing_zeros() as usize;
        Some(self.heads[class][sub])
    }

    /// Takes `units` consecutive units: the index of the block and its first unit.
    pub(crate) fn take(&mut self, units: u32) -> Option<(BlockIndex, u32)> {
        if units == 0 {
            return None;
        }
        let index = self.find(units)?;
        self.unlink(index);
        let node = self.nodes[index as usize];
        if node.units > units {
            let rest = Node {
                start: node.start + units,
                units: node.units - units,
                free: true,
                before: index,
                after: node.after,
                next_free: NONE,
                prev_free: NONE,
            };
            let rest_index = if let Some(index) = self.unused.pop() {
                self.nodes[index as usize] = rest;
                index
            } else {
                self.nodes.push(rest);
                self.nodes.len() as u32 - 1
            };
            if node.after != NONE {
                self.nodes[node.after as usize].before = rest_index;
            }
            let taken = &mut self.nodes[index as usize];
            taken.after = rest_index;
            taken.units = units;
            self.link(rest_index);
        }
        self.nodes[index as usize].free = false;
        self.starts.insert(node.start as usize);
        self.node_at.set(node.start as usize, index);
        Some((index, node.start))
    }

    /// Gives a live block back.
    pub(crate) fn give(&mut self, index: BlockIndex) {
        let mut index = index;
        let node = self.nodes[index as usize];
        debug_assert!(!node.free);
        self.starts.remove(node.start as usize);
        self.nodes[index as usize].free = true;
        if node.after != NONE && self.nodes[node.after as usize].free {
            self.absorb(index, node.after);
        }
        if node.before != NONE && self.nodes[node.before as usize].free {
            self.unlink(node.before);
            self.merge(node.before, index);
            index = node.before;
        }
        self.link(index);
    }

    fn absorb(&mut self, index: u32, after: u32) {
        self.unlink(after);
        self.merge(index, after);
    }

    fn merge(&mut self, left: u32, right: u32) {
        let gone = self.nodes[right as usize];
        let kept = &mut self.nodes[left as usize];
        kept.units += gone.units;
        kept.after = gone.after;
        if gone.after != NONE {
            self.nodes[gone.after as usize].before = left;
        }
        self.unused.push(right);
    }

    /// The live block that holds `unit`: its index, first unit and length.
    pub(crate) fn holding(&self, unit: u32) -> Option<(BlockIndex, u32, u32)> {
        let start = self.starts.at_or_below(unit as usize)?;
        let index = self.node_at.get(start);
        let node = self.nodes[index as usize];
        (unit - node.start < node.units).then_some((index, node.start, node.units))
    }

    /// Every live block: index, first unit, length.
    pub(crate) fn live(&self) -> impl Iterator<Item = (BlockIndex, u32, u32)> + '_ {
        // Node 0 begins the range for ever: it can only swallow its right neighbour.
        let mut at = Some(0usize);
        std::iter::from_fn(move || {
            let index = at?;
            let node = self.nodes[index];
            at = (node.after != NONE).then_some(node.after as usize);
            Some((index as u32, node))
        })
        .filter(|(_, n)| !n.free)
        .map(|(i, n)| (i, n.start, n.units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_churn_never_overlaps_and_coalesces_fully() {
        let total = 1 << 16;
        let mut ranges = Ranges::new(total).unwrap();
        let mut live: Vec<(u32, u32, u32)> = Vec::new();
        let mut owner = vec![NONE; total as usize];
        let mut x = 7u64;
        for step in 0..20_000u32 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if x & (1 << 40) == 0 || live.is_empty() {
                let units = 1 + (x >> 50) as u32 % 200;
                if let Some((index, start)) = ranges.take(units) {
                    for unit in start..start + units {
                        assert_eq!(std::mem::replace(&mut owner[unit as usize], step), NONE);
                    }
                    live.push((index, start, units));
                }
            } else {
                let (index, start, units) = live.swap_remove((x >> 41) as usize % live.len());
                assert_eq!(ranges.holding(start + units - 1), Some((index, start, units)));
                ranges.give(index);
                assert!(ranges.holding(start).is_none());
                owner[start as usize..(start + units) as usize].fill(NONE);
            }
            assert_eq!(ranges.live().count(), live.len());
        }
        for (index, ..) in live {
            ranges.give(index);
        }
        assert_eq!(ranges.take(total).map(|(_, start)| start), Some(0));
    }
}
