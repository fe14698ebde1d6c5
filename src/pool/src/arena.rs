//! An arena: one stretch of address space for one range of block sizes, its granules and the index of
//! its live blocks. Touches host memory only.

use crate::backing::Handle;
use crate::block::{Block, Id, NIL, Slab, State};
use crate::config::{UNIT_SHIFT, WALL_GRANULES};
use crate::core::LOST;
use crate::index::Index;

/// One granule: as much address space as one handle fills.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Granule {
    /// The handle mapped here; 0 is none.
    pub(crate) handle: Handle,
    /// When bytes of this granule were freed last.
    pub(crate) stamp: u64,
    /// The group of granules that share this handle; 0 is none.
    pub(crate) mesh: u32,
    /// Exported blocks that touch this granule.
    pub(crate) pins: u32,
}

/// A plain allocation of the driver, and where its units are in the arena's numbering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) addr: u64,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// See the file's first comment.
pub(crate) struct Arena {
    /// Address of unit 0; unused with plain segments.
    pub(crate) base: u64,
    /// Units of address space.
    pub(crate) units: u32,
    /// log2 of the units of a granule.
    pub(crate) granule_shift: u32,
    /// Granules known so far; grows with the highest one mapped.
    granules: Vec<Granule>,
    /// Live blocks, those in free lists and most deferred ones, by the page they start in. A page is as small as the smallest block, so no
    /// two of them start in the same one.
    pages: Index,
    page_shift: u32,
    /// First void block.
    pub(crate) voids: Id,
    /// Granules that share a handle.
    pub(crate) meshed: u32,
    /// Plain segments, sorted by address; empty with virtual memory management.
    pub(crate) segments: Vec<Segment>,
    /// How many blocks of a bin are compared for the best fit.
    pub(crate) scan: usize,
    /// Handle size class: 0 small, 1 large.
    pub(crate) handle_class: usize,
}

impl Arena {
    pub(crate) fn new(base: u64, bytes: u64, handle: u64, smallest: u64, scan: usize, handle_class: usize) -> Self {
        let units = (bytes >> UNIT_SHIFT).min(u64::from(u32::MAX >> 1)) as u32;
        let granule_shift = (handle >> UNIT_SHIFT).max(1).trailing_zeros();
        Self {
            base,
            units: units >> granule_shift << granule_shift,
            granule_shift,
            granules: Vec::new(),
            pages: Index::default(),
            page_shift: (smallest >> UNIT_SHIFT).max(1).trailing_zeros(),
            voids: NIL,
            meshed: 0,
            segments: Vec::new(),
            scan,
            handle_class,
        }
    }

    pub(crate) fn granule_units(&self) -> u32 {
        1 << self.granule_shift
    }

    pub(crate) fn granule_bytes(&self) -> u64 {
        1 << (self.granule_shift + UNIT_SHIFT)
    }

    #[inline]
    pub(crate) fn granule(&self, index: u32) -> Granule {
        self.granules.get(index as usize).copied().unwrap_or_default()
    }

    /// The granule for writing. Granules in use were announced with `prepare`.
    #[inline]
    pub(crate) fn granule_at(&mut self, index: u32) -> Option<&mut Granule> {
        self.granules.get_mut(index as usize)
    }

    /// Granules known so far.
    pub(crate) fn granule_count(&self) -> u32 {
        self.granules.len() as u32
    }

    /// Granules that `start..end` touches.
    #[inline]
    pub(crate) fn touched(&self, start: u32, end: u32) -> std::ops::Range<u32> {
        (start >> self.granule_shift)..(end.saturating_sub(1) >> self.granule_shift) + 1
    }

    /// Granules that lie wholly within `start..end`.
    pub(crate) fn inside(&self, start: u32, end: u32) -> std::ops::Range<u32> {
        let first = (u64::from(start) + u64::from(self.granule_units()) - 1) >> self.granule_shift;
        first as u32..(end >> self.granule_shift).max(first as u32)
    }

    /// The bytes were freed at `stamp`.
    #[inline]
    pub(crate) fn touch(&mut self, start: u32, end: u32, stamp: u64) {
        for index in self.touched(start, end) {
            if let Some(granule) = self.granules.get_mut(index as usize) {
                granule.stamp = granule.stamp.max(stamp);
            }
        }
    }

    /// Make room in the tables for units below `end`, so that later use needs no memory.
    pub(crate) fn prepare(&mut self, end: u32) {
        let granules = (end.saturating_sub(1) >> self.granule_shift) as usize + 1;
        if self.granules.len() < granules {
            self.granules.resize(granules, Granule::default());
        }
        self.pages.prepare((end.saturating_sub(1) >> self.page_shift) + 1);
    }

    /// The block that starts at `start` is indexed; `NIL`: no longer.
    #[inline]
    pub(crate) fn set_live(&mut self, start: u32, id: Id) {
        let page = start >> self.page_shift;
        if id == NIL { self.pages.clear(page) } else { self.pages.set(page, id) }
    }

    /// Units of a page of the index: no two blocks of at least this length start in the same one.
    #[inline]
    pub(crate) fn page_units(&self) -> u32 {
        1 << self.page_shift
    }

    /// The block that the index knows to start in the page of `unit`.
    pub(crate) fn starts_in_page(&self, unit: u32) -> Id {
        self.pages.get(unit >> self.page_shift)
    }

    /// The live block that starts exactly at `unit`.
    #[inline]
    pub(crate) fn live_at(&self, slab: &Slab, unit: u32) -> Option<Id> {
        let id = self.pages.get(unit >> self.page_shift);
        let block = slab.get(id);
        (block.state == State::Live && block.start == unit).then_some(id)
    }

    /// The live block that covers `unit`.
    pub(crate) fn live_over(&self, slab: &Slab, unit: u32) -> Option<Id> {
        let page = unit >> self.page_shift;
        let mut id = self.pages.last_upto(page);
        if slab.get(id).start > unit {
            // It starts in the same page, but behind the unit.
            id = page.checked_sub(1).map_or(NIL, |page| self.pages.last_upto(page));
        }
        let block = slab.get(id);
        (block.state == State::Live && (block.start..block.end()).contains(&unit)).then_some(id)
    }

    /// A live block that starts in `start..end`, if any.
    pub(crate) fn live_within(&self, slab: &Slab, start: u32, end: u32) -> Option<Id> {
        self.pages
            .within(start >> self.page_shift, (end.saturating_sub(1) >> self.page_shift) + 1)
            .find(|id| slab.get(*id).state == State::Live && (start..end).contains(&slab.get(*id).start))
    }

    /// How many blocks start in the pages of `start..end`, those included that are free but still indexed.
    pub(crate) fn starts_within(&self, start: u32, end: u32) -> u32 {
        self.pages.count_within(start >> self.page_shift, (end.saturating_sub(1) >> self.page_shift) + 1)
    }

    /// An indexed block near `unit`: the last one before it, else the first one behind it.
    pub(crate) fn near(&self, unit: u32) -> Id {
        let page = unit >> self.page_shift;
        let before = self.pages.last_upto(page);
        if before == NIL { self.pages.within(page, u32::MAX).next().unwrap_or(NIL) } else { before }
    }

    /// Units of a granule.
    pub(crate) fn bounds(&self, granule: u32) -> (u32, u32) {
        (granule << self.granule_shift, (granule + 1) << self.granule_shift)
    }

    /// Does a granule that `start..end` touches share its handle?
    #[inline]
    pub(crate) fn shared(&self, start: u32, end: u32) -> bool {
        self.meshed != 0 && self.touched(start, end).any(|index| self.granule(index).mesh != 0)
    }

    /// Is there memory behind a granule, of its own and nobody else's, without a live byte? Whether the device is through
    /// with it is another question.
    pub(crate) fn idle(&self, slab: &Slab, index: u32) -> bool {
        let Granule { handle, mesh, pins, .. } = self.granule(index);
        let (start, end) = self.bounds(index);
        !matches!(handle, 0 | LOST)
            && mesh == 0
            && pins == 0
            && self.live_over(slab, start).is_none()
            && self.live_within(slab, start, end).is_none()
    }

    #[inline]
    pub(crate) fn addr_of(&self, unit: u32) -> u64 {
        if self.segments.is_empty() {
            return self.base + (u64::from(unit) << UNIT_SHIFT);
        }
        self.segments
            .iter()
            .find(|segment| unit >= segment.start && unit - segment.start < segment.len)
            .map_or(0, |segment| segment.addr + (u64::from(unit - segment.start) << UNIT_SHIFT))
    }

    /// The unit that holds `addr`.
    #[inline]
    pub(crate) fn unit_of(&self, addr: u64) -> Option<u32> {
        if self.segments.is_empty() {
            let unit = addr.checked_sub(self.base)? >> UNIT_SHIFT;
            return (self.base != 0 && unit < u64::from(self.units)).then_some(unit as u32);
        }
        let after = self.segments.partition_point(|segment| segment.addr <= addr);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        let unit = (addr - segment.addr) >> UNIT_SHIFT;
        (unit < u64::from(segment.len)).then_some(segment.start + unit as u32)
    }

    /// The plain segment whose units are exactly `start..end`.
    pub(crate) fn segment_exactly(&self, start: u32, end: u32) -> Option<Segment> {
        self.segments.iter().find(|segment| segment.start == start && segment.start + segment.len == end).copied()
    }

    pub(crate) fn add_segment(&mut self, segment: Segment) {
        let at = self.segments.partition_point(|other| other.addr < segment.addr);
        self.segments.insert(at, segment);
    }

    pub(crate) fn remove_segment(&mut self, addr: u64) {
        self.segments.retain(|segment| segment.addr != addr);
    }

    /// Units a plain segment of `len` units takes in the arena's numbering, wall included.
    pub(crate) fn walled(&self, len: u32) -> u32 {
        len.saturating_add(WALL_GRANULES << self.granule_shift)
    }

    /// Put a block into the list of voids.
    pub(crate) fn push_void(&mut self, slab: &mut Slab, id: Id) {
        let head = self.voids;
        let block = slab.at(id);
        (block.before, block.after, block.state) = (NIL, head, State::Void);
        if head != NIL {
            slab.at(head).before = id;
        }
        self.voids = id;
    }

    pub(crate) fn drop_void(&mut self, slab: &mut Slab, id: Id) {
        let Block { before, after, .. } = *slab.get(id);
        if after != NIL {
            slab.at(after).before = before;
        }
        if before == NIL {
            self.voids = after;
        } else {
            slab.at(before).after = after;
        }
    }
}
