//! Host memory for weir's own tables, and a reserve for when there is no more of it.
//!
//! A failed allocation ends a Rust program. In a job with little address space left (RLIMIT_AS) weir must not do that: what
//! malloc refuses comes from a reserve that is mapped at the first CUDA call and touched only then. From that moment
//! memory is [`short`]: requests for device memory go straight to the driver, or are refused where they would have to be
//! charged, until there is memory again. Weir also stops growing while a little is left, for the driver and the job.
//!
//! A table doubles when it is full. So when a large one was allocated, a region twice its size is mapped beside the first
//! region: its next growth finds room whatever the job has done meanwhile. Where that cannot be mapped memory is short at
//! once, and no request lets the table grow.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::alloc::System;

/// The first region, where there is room for so much; else a part of it.
const RESERVE: usize = 64 << 20;
/// What weir leaves to others.
const HEADROOM: usize = 8 << 20;
/// Allocations from this size on are looked at: smaller ones cannot use the rest up unseen.
const LARGE: usize = 64 << 10;
/// A table from this size on has a region for its next growth.
const HUGE: usize = RESERVE / 4;

struct Weir;

#[cfg_attr(not(test), global_allocator)]
#[cfg_attr(test, allow(dead_code))]
static WEIR: Weir = Weir;

static SHORT: AtomicBool = AtomicBool::new(false);
/// The size of the largest table so far.
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static REGIONS: [Region; 24] = [const { Region::new() }; 24];

/// A part of the reserve. Allocations are handed out one behind the other.
struct Region {
    /// Where it begins and how large it is; 0 before it is mapped.
    base: AtomicUsize,
    room: AtomicUsize,
    /// Bytes handed out from its beginning, and allocations that live there.
    used: AtomicUsize,
    live: AtomicUsize,
}

/// Where a region begins that is about to be mapped, or is unmapped: no allocation is there.
const NOWHERE: usize = 1;
/// What is used of a region that is unmapped.
const CLOSED: usize = usize::MAX;

fn map(bytes: usize) -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at)
}

impl Region {
    const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            room: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
        }
    }

    /// Maps it in one of these sizes. `None`: another thread is at it, or has done it.
    fn open(&self, sizes: impl IntoIterator<Item = usize>) -> Option<bool> {
        self.base.compare_exchange(0, NOWHERE, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let found = sizes.into_iter().find_map(|size| Some((map(size)?, size)));
        let (base, room) = found.map_or((0, 0), |(at, size)| (at as usize, size));
        self.room.store(room, Ordering::Relaxed);
        self.base.store(base, Ordering::Release);
        Some(base != 0)
    }

    /// Unmaps it, if nothing is used of it.
    fn close(&self) {
        let base = self.base.load(Ordering::Acquire);
        if base > NOWHERE && self.used.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.base.store(NOWHERE, Ordering::Release);
            // SAFETY: our own mapping, of which nothing is handed out from now on.
            unsafe { libc::munmap(base as *mut c_void, self.room.swap(0, Ordering::AcqRel)) };
        }
    }

    /// Bytes that could be handed out.
    fn free(&self) -> usize {
        self.room.load(Ordering::Relaxed).saturating_sub(self.used.load(Ordering::Relaxed))
    }

    #[inline]
    fn has(&self, at: *mut u8) -> bool {
        (at as usize).wrapping_sub(self.base.load(Ordering::Relaxed)) < self.room.load(Ordering::Relaxed)
    }

    fn take(&self, layout: Layout) -> Option<*mut u8> {
        let base = self.base.load(Ordering::Acquire);
        if base <= NOWHERE {
            return None;
        }
        // Counted first: who gives back the last one takes all of it back only if nobody has come meanwhile.
        self.live.fetch_add(1, Ordering::AcqRel);
        let start = |used: usize| used.checked_next_multiple_of(layout.align().max(16));
        let room = self.room.load(Ordering::Relaxed);
        let end = |used: usize| start(used)?.checked_add(layout.size()).filter(|end| *end <= room);
        let Ok(used) = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, end) else {
            self.live.fetch_sub(1, Ordering::AcqRel);
            return None;
        };
        Some((base + start(used)?) as *mut u8)
    }

    fn give(&self, at: *mut u8, size: usize) {
        let start = at as usize - self.base.load(Ordering::Relaxed);
        let _ = self.used.compare_exchange(start + size, start, Ordering::AcqRel, Ordering::Relaxed);
        let seen = self.used.load(Ordering::Acquire);
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = self.used.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Maps the reserve, once.
pub(crate) fn begin() {
    let [first, ..] = &REGIONS;
    let _ = first.open([RESERVE, RESERVE / 4, RESERVE / 16, RESERVE / 64]);
}

/// Sees to it that the largest table can grow once more. False: there is no room for that.
fn prepare() -> bool {
    let largest = LARGEST.load(Ordering::Relaxed);
    // Twice its size, and what its alignment may take.
    let next = 2 * largest + LARGE;
    if largest < HUGE || REGIONS.iter().any(|region| region.free() >= next) {
        return true;
    }
    let [first, others @ ..] = &REGIONS;
    if first.base.load(Ordering::Relaxed) == 0 {
        // Before the first CUDA call there is no job to protect.
        return true;
    }
    // Smaller ones make way.
    others.iter().for_each(Region::close);
    let fresh = others.iter().find(|region| region.base.load(Ordering::Relaxed) == 0);
    fresh.is_some_and(|region| region.open([next]).unwrap_or(true))
}

/// Whether there is no host memory to keep account of anything new.
#[inline]
pub(crate) fn short() -> bool {
    SHORT.load(Ordering::Relaxed) && still_short()
}

#[cold]
fn still_short() -> bool {
    let crowded = |region: &Region| {
        region.live.load(Ordering::Relaxed) != 0
            && region.used.load(Ordering::Relaxed) > region.room.load(Ordering::Relaxed) / 2
    };
    let short = !has_headroom() || REGIONS.first().is_some_and(crowded) || !prepare();
    SHORT.store(short, Ordering::Relaxed);
    short
}

fn has_headroom() -> bool {
    let Some(at) = map(2 * HEADROOM) else { return false };
    // SAFETY: our own mapping, made above.
    unsafe { libc::munmap(at, 2 * HEADROOM) };
    true
}

/// Notes a large allocation: did it come near the end of memory, and can it grow?
fn look(bytes: usize) {
    if bytes < LARGE {
        return;
    }
    LARGEST.fetch_max(bytes, Ordering::Relaxed);
    if SHORT.load(Ordering::Relaxed) {
        return;
    }
    match map(HEADROOM) {
        // SAFETY: our own mapping, made above.
        Some(at) => unsafe { _ = libc::munmap(at, HEADROOM) },
        None => SHORT.store(true, Ordering::Relaxed),
    }
    if bytes >= HUGE && !prepare() {
        SHORT.store(true, Ordering::Relaxed);
    }
}

/// The region that an allocation is in.
#[inline]
fn region_of(at: *mut u8) -> Option<&'static Region> {
    REGIONS.iter().take_while(|region| region.base.load(Ordering::Relaxed) != 0).find(|region| region.has(at))
}

#[cold]
fn from_reserve(layout: Layout) -> *mut u8 {
    SHORT.store(true, Ordering::Relaxed);
    LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
    REGIONS.iter().find_map(|region| region.take(layout)).unwrap_or(core::ptr::null_mut())
}

// SAFETY: memory is malloc's, or a part of the reserve that nobody else has: parts do not overlap, since each begins behind
// all that live, and are aligned as requested.
unsafe impl GlobalAlloc for Weir {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's own terms.
        let at = unsafe { System.alloc(layout) };
        if at.is_null() {
            return from_reserve(layout);
        }
        look(layout.size());
        at
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's own terms.
        let at = unsafe { System.alloc_zeroed(layout) };
        if at.is_null() {
            let at = from_reserve(layout);
            if !at.is_null() {
                // SAFETY: so much was handed out above.
                unsafe { at.write_bytes(0, layout.size()) };
            }
            return at;
        }
        look(layout.size());
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if let Some(region) = region_of(at) {
            return region.give(at, layout.size());
        }
        // SAFETY: it came from there.
        unsafe { System.dealloc(at, layout) };
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if region_of(at).is_none() {
            // SAFETY: it came from there.
            let moved = unsafe { System.realloc(at, layout, size) };
            if !moved.is_null() {
                look(size);
                return moved;
            }
        }
        // SAFETY: the caller's own terms: the alignment is a valid one and the size does not overflow.
        unsafe {
            let fresh = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !fresh.is_null() {
                core::ptr::copy_nonoverlapping(at, fresh, size.min(layout.size()));
                self.dealloc(at, layout);
            }
            fresh
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_hands_out_parts_and_takes_them_back() {
        let region = Region::new();
        let layout = Layout::from_size_align(1 << 20, 64).unwrap_or(Layout::new::<u64>());
        assert!(region.take(layout).is_none(), "not mapped");
        assert_eq!((region.open([usize::MAX / 2, 4 << 20]), region.open([1 << 20])), (Some(true), None));
        let (one, two) = (region.take(layout), region.take(layout));
        let (Some(one), Some(two)) = (one, two) else { return assert_eq!((one, two), (None, None)) };
        assert!(region.has(one) && region.has(two) && one != two && region.free() == 2 << 20);
        region.close();
        assert!(region.has(one), "it is in use");
        region.give(one, layout.size());
        region.give(two, layout.size());
        assert_eq!(region.free(), 4 << 20, "all of it is free again");
        region.close();
        assert!(!region.has(one) && region.take(layout).is_none() && region.open([1 << 20]).is_none());
    }
}
