//! Linear device memory, as `cuMemAlloc` gives it. Small blocks share 2 MiB pages, large ones take
//! whole pages; a page costs physical memory while a block lives in it. Address space is plentiful,
//! so that only physical memory can run out, as on a device with its own page tables.

use crate::config::{self, Backing};
use crate::error::{OUT_OF_MEMORY, R};
use crate::ranges::{BlockIndex, Ranges};
use crate::sparse::Sparse;
use crate::store::{self, File};

/// Physical memory is allocated in pages of this size.
pub(crate) const PAGE: u64 = 2 << 20;
/// Every address handed out is a multiple of this.
pub(crate) const ALIGN: u64 = 512;
/// Requests above this take whole pages.
const SMALL_MAX: u64 = 1 << 20;
/// Up to this size a block that was written is cleared by storing zeroes, above by the kernel.
const CLEAR_BY_HAND: u64 = 64 << 10;

/// What a block is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// `cuMemAlloc` and its like: the job knows the address.
    Linear,
    /// An array's bytes: the job never sees the address.
    Array,
    /// A piece of a stream-ordered pool.
    Segment(u64),
    /// Memory of a loaded module.
    Global,
    /// The address of an allocation node; its physical memory is accounted with the graphs.
    Graph,
}

/// A live block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Where it begins.
    pub(crate) addr: u64,
    /// Bytes requested.
    pub(crate) size: u64,
    /// Unique for ever.
    pub(crate) id: u64,
    /// The context that requested it.
    pub(crate) ctx: u64,
    /// What for.
    pub(crate) used_as: Use,
    dirty: bool,
    /// The job freed it in stream order, and the stream has not come there.
    pub(crate) leaving: bool,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub(crate) sync_memops: bool,
}

struct Zone {
    base: u64,
    unit: u64,
    ranges: Ranges,
    blocks: Vec<Block>,
}

impl Zone {
    fn new(base: u64, bytes: u64, unit: u64) -> Option<Self> {
        let ranges = Ranges::new(u32::try_from(bytes / unit).ok()?)?;
        Some(Self { base, unit, ranges, blocks: Vec::new() })
    }

    fn take(&mut self, block: Block) -> Option<(BlockIndex, u64)> {
        let units = u32::try_from(block.size.div_ceil(self.unit)).ok()?;
        let (index, start) = self.ranges.take(units)?;
        let addr = self.base + u64::from(start) * self.unit;
        let slot = index as usize;
        if self.blocks.len() <= slot {
            self.blocks.resize(slot + 1, block);
        }
        self.blocks[slot] = Block { addr, ..block };
        Some((index, addr))
    }

    fn holding(&self, addr: u64) -> Option<(BlockIndex, &Block)> {
        let unit = u32::try_from((addr - self.base) / self.unit).ok()?;
        let (index, ..) = self.ranges.holding(unit)?;
        Some((index, &self.blocks[index as usize]))
    }

    fn live(&self) -> impl Iterator<Item = &Block> {
        self.ranges.live().map(|(i, ..)| &self.blocks[i as usize])
    }
}

/// The linear memory of one device.
pub(crate) struct Heap {
    base: u64,
    end: u64,
    small: Zone,
    large: Zone,
    page_users: Sparse<u16>,
    file: Option<File>,
}

impl Heap {
    /// Address space for a device of `memory` bytes.
    pub(crate) fn new(memory: u64) -> R<Self> {
        let small = (memory * 2).next_multiple_of(PAGE).clamp(4 << 30, 1 << 40);
        let large = (memory * 4).next_multiple_of(PAGE).max(16 << 30);
        let base = store::reserve_device(small + large, PAGE, 0)?;
        let file = match config::get().backing {
            Backing::Content => {
                let file = File::new(c"vgpu-heap", small + large)?;
                file.map(base, small + large, 0)?;
                Some(file)
            }
            Backing::None => None,
        };
        let new = || {
            Some(Self {
                base,
                end: base + small + large,
                small: Zone::new(base, small, ALIGN)?,
                large: Zone::new(base + small, large, PAGE)?,
                page_users: Sparse::new((small / PAGE) as usize)?,
                file,
            })
        };
        new().ok_or(OUT_OF_MEMORY)
    }

    pub(crate) fn contains(&self, addr: u64) -> bool {
        (self.base..self.end).contains(&addr)
    }

    /// The memory file and the address of its first byte, for other processes to map.
    pub(crate) fn file(&self) -> Option<(&File, u64)> {
        self.file.as_ref().map(|f| (f, self.base))
    }

    fn pages(&self, addr: u64, size: u64) -> std::ops::Range<usize> {
        let first = (addr - self.base) / PAGE;
        let last = (addr - self.base + size).div_ceil(PAGE);
        first as usize..last as usize
    }

    /// A block of `size` bytes; `charge` is called with the physical bytes and may refuse.
    pub(crate) fn take(
        &mut self,
        size: u64,
        (ctx, id, used_as): (u64, u64, Use),
        charge: impl FnOnce(u64) -> bool,
    ) -> R<u64> {
        let block = Block { addr: 0, size, id, ctx, used_as, dirty: false, leaving: false, sync_memops: false };
        if size > SMALL_MAX {
            let (index, addr) = self.large.take(block).ok_or(OUT_OF_MEMORY)?;
            if !charge(size.next_multiple_of(PAGE)) {
                self.large.ranges.give(index);
                return Err(OUT_OF_MEMORY);
            }
            return Ok(addr);
        }
        let (index, addr) = self.small.take(block).ok_or(OUT_OF_MEMORY)?;
        let pages = self.pages(addr, size);
        let fresh = pages.clone().filter(|&p| self.page_users.get(p) == 0).count() as u64;
        if fresh > 0 && !charge(fresh * PAGE) {
            self.small.ranges.give(index);
            return Err(OUT_OF_MEMORY);
        }
        for page in pages {
            self.page_users.set(page, self.page_users.get(page) + 1);
        }
        Ok(addr)
    }

    /// Gives a block back by its first address: the physical bytes that came free.
    pub(crate) fn give(&mut self, addr: u64) -> Option<u64> {
        let small = addr < self.large.base;
        let zone = if small { &mut self.small } else { &mut self.large };
        let (index, block) = zone.holding(addr)?;
        if block.addr != addr {
            return None;
        }
        let block = *block;
        zone.ranges.give(index);
        if block.dirty {
            self.clear(&block);
        }
        if !small {
            return Some(block.size.next_multiple_of(PAGE));
        }
        let mut freed = 0;
        for page in self.pages(addr, block.size) {
            let users = self.page_users.get(page) - 1;
            self.page_users.set(page, users);
            if users == 0 {
                freed += PAGE;
            }
        }
        Some(freed)
    }

    fn clear(&self, block: &Block) {
        let Some(file) = &self.file else { return };
        if block.size <= CLEAR_BY_HAND {
            // SAFETY: the block's own bytes, in the driver's view for ever, and no longer anybody's:
            // the caller has just taken it out of the live blocks.
            unsafe { std::ptr::write_bytes(store::view(block.addr) as *mut u8, 0, block.size as usize) };
        } else {
            let unit = if block.addr < self.large.base { ALIGN } else { PAGE };
            file.clear(block.addr - self.base, block.size.next_multiple_of(unit));
        }
    }

    /// The live block around an address.
    pub(crate) fn holding(&self, addr: u64) -> Option<&Block> {
        let zone = if addr < self.large.base { &self.small } else { &self.large };
        let (_, block) = zone.holding(addr)?;
        (addr < block.addr + block.size).then_some(block)
    }

    pub(crate) fn holding_mut(&mut self, addr: u64) -> Option<&mut Block> {
        let zone = if addr < self.large.base { &mut self.small } else { &mut self.large };
        let (index, _) = zone.holding(addr)?;
        zone.blocks.get_mut(index as usize)
    }

    /// Remembers that a block was written, so that its bytes are gone when it is freed.
    pub(crate) fn written(&mut self, addr: u64) {
        if let Some(block) = self.holding_mut(addr) {
            block.dirty = true;
        }
    }

    /// Every live block.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Block> {
        self.small.live().chain(self.large.live())
    }
}
