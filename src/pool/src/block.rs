//! Blocks: contiguous pieces of an arena, kept in an index slab and linked in address order.
//! Touches host memory only.

/// Index of a block in the slab. `NIL` is none.
pub(crate) type Id = u32;
/// No block. Slot 0 of the slab is never handed out, so every index is readable.
pub(crate) const NIL: Id = 0;

/// Domain 0: bytes that no device work can touch any more.
pub(crate) const DEVICE: u16 = 0;

/// What a block's bytes are at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum State {
    /// Slab slot not in use.
    #[default]
    Unused,
    /// Handed out.
    Live,
    /// Mapped and reusable under the rule of its domain; in that domain's bins.
    Free,
    /// The same, but in the free list of its length in that domain, and not coalesced.
    Listed,
    /// In the cache of a stream, which alone knows whether it is handed out or free.
    Cached,
    /// Freed by a synchronous free; waits in a queue for proof that the device is through with it.
    Deferred,
    /// Address space without memory.
    Void,
    /// Claimed by the growth in progress.
    Busy,
    /// Free, but in a granule that shares its handle: unusable until the sharing ends.
    Dead,
    /// Freed while exported: untouchable until unpinned.
    Limbo,
    /// A driver call failed half-way and its undo failed too: never used again.
    Lost,
    /// Keeps two plain segments apart.
    Wall,
}

/// One block; a cache line, and never parts of two.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Block {
    /// First unit, in the arena's own numbering.
    pub(crate) start: u32,
    /// Length in units.
    pub(crate) len: u32,
    /// Neighbours in address order.
    pub(crate) prev: Id,
    pub(crate) next: Id,
    /// Links of the one list a block can be in: a bin, a free list, the voids, the deferred queue.
    pub(crate) before: Id,
    pub(crate) after: Id,
    /// Unique for ever.
    pub(crate) buffer: u64,
    /// When the bytes were freed (the newest, where several blocks were joined).
    pub(crate) stamp: u64,
    pub(crate) context: u32,
    pub(crate) mempool: u16,
    pub(crate) domain: u16,
    /// Bytes allocated beyond those requested.
    pub(crate) slack: u16,
    pub(crate) state: State,
    pub(crate) arena: u8,
    pub(crate) pins: u16,
    /// The job's own word about a live block.
    pub(crate) tag: u16,
}

impl Block {
    /// One past the last unit.
    pub(crate) fn end(&self) -> u32 {
        self.start.saturating_add(self.len)
    }
}

/// All blocks of a pool. An index that was never handed out reads as an unused block.
pub(crate) struct Slab {
    blocks: Vec<Block>,
    unused: Vec<Id>,
}

impl Slab {
    pub(crate) fn new() -> Self {
        // Address space only: pages are touched as blocks come into being, and no hit reallocates
        // before this many blocks exist at the same time.
        let mut blocks = Vec::with_capacity(1 << 18);
        blocks.push(Block::default());
        Self { blocks, unused: Vec::with_capacity(1 << 18) }
    }

    #[inline]
    pub(crate) fn get(&self, id: Id) -> &Block {
        let at = if (id as usize) < self.blocks.len() { id as usize } else { 0 };
        &self.blocks[at]
    }

    #[inline]
    pub(crate) fn at(&mut self, id: Id) -> &mut Block {
        let at = if (id as usize) < self.blocks.len() { id as usize } else { 0 };
        &mut self.blocks[at]
    }

    #[inline]
    pub(crate) fn add(&mut self, block: Block) -> Id {
        if let Some(id) = self.unused.pop() {
            *self.at(id) = block;
            return id;
        }
        self.blocks.push(block);
        (self.blocks.len() - 1) as Id
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: Id) {
        if id != NIL {
            self.at(id).state = State::Unused;
            self.unused.push(id);
        }
    }

    /// Number of slots ever used; ids run from 1 to below this.
    pub(crate) fn len(&self) -> Id {
        self.blocks.len() as Id
    }

    /// Cut `id` after `len` units; the rest becomes a new block with the same properties, which is returned.
    #[inline]
    pub(crate) fn split(&mut self, id: Id, len: u32) -> Id {
        let left = *self.get(id);
        debug_assert!(len > 0 && len < left.len, "split outside the block");
        let cut = len.min(left.len);
        let skew = u32::from(crate::fault::injected(crate::Fault::SplitOffByOne) && cut > 1);
        let right = self.add(Block {
            start: left.start + cut - skew,
            len: left.len - cut + skew,
            prev: id,
            before: NIL,
            after: NIL,
            ..left
        });
        let block = self.at(id);
        block.len = cut;
        block.next = right;
        if left.next != NIL {
            self.at(left.next).prev = right;
        }
        right
    }

    /// A new block right before `id` in address order, otherwise like it.
    #[inline]
    pub(crate) fn put_before(&mut self, id: Id, start: u32, len: u32) -> Id {
        let like = *self.get(id);
        let new = self.add(Block { start, len, next: id, before: NIL, after: NIL, ..like });
        self.at(id).prev = new;
        if like.prev != NIL {
            self.at(like.prev).next = new;
        }
        new
    }

    /// A new block right behind `id` in address order, otherwise like it.
    #[inline]
    pub(crate) fn put_after(&mut self, id: Id, start: u32, len: u32) -> Id {
        let like = *self.get(id);
        let new = self.add(Block { start, len, prev: id, before: NIL, after: NIL, ..like });
        self.at(id).next = new;
        if like.next != NIL {
            self.at(like.next).prev = new;
        }
        new
    }

    /// `id` has taken over the bytes of its left neighbour `left`, which ends.
    #[inline]
    pub(crate) fn absorb(&mut self, id: Id, left: Id) {
        let gone = *self.get(left);
        let block = self.at(id);
        block.prev = gone.prev;
        block.stamp = block.stamp.max(gone.stamp);
        if gone.prev != NIL {
            self.at(gone.prev).next = id;
        }
        self.remove(left);
    }

    /// Join `right` into its left neighbour `left`.
    #[inline]
    pub(crate) fn join(&mut self, left: Id, right: Id) {
        let gone = *self.get(right);
        let block = self.at(left);
        block.len = gone.end().saturating_sub(block.start);
        block.next = gone.next;
        block.stamp = block.stamp.max(gone.stamp);
        if gone.next != NIL {
            self.at(gone.next).prev = left;
        }
        self.remove(right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_a_cache_line() {
        assert_eq!((size_of::<Block>(), align_of::<Block>()), (64, 64));
    }

    #[test]
    fn split_and_join_are_inverse() {
        let mut slab = Slab::new();
        let id = slab.add(Block { start: 10, len: 20, ..Block::default() });
        let right = slab.split(id, 5);
        assert_eq!((slab.get(id).end(), slab.get(right).start, slab.get(right).len), (15, 15, 15));
        slab.join(id, right);
        assert_eq!((slab.get(id).len, slab.get(id).next), (20, NIL));
    }

    #[test]
    fn a_foreign_index_reads_as_nothing() {
        let mut slab = Slab::new();
        assert_eq!(slab.get(77).state, State::Unused);
        assert_eq!(slab.at(77).state, State::Unused);
    }
}
