//! Host memory for weir's own tables, and a reserve for when there is no more of it.
//!
//! A failed allocation ends a Rust program. In a job with little address space left (RLIMIT_AS) weir must not do that: what
//! malloc refuses comes from a reserve that is mapped at the first CUDA call and touched only then. From that moment
//! memory is [`short`]: requests for device memory go straight to the driver, or are refused where they would have to be
//! charged, until there is memory again. Weir also stops growing while a little is left, for the driver and the job.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::alloc::System;

/// The reserve, where there is room for so much; else a part of it.
const RESERVE: usize = 64 << 20;
/// What weir leaves to others.
const HEADROOM: usize = 8 << 20;
/// Allocations from this size on are looked at: smaller ones cannot use the rest up unseen.
const LARGE: usize = 64 << 10;

struct Weir;

#[cfg_attr(not(test), global_allocator)]
#[cfg_attr(test, allow(dead_code))]
static WEIR: Weir = Weir;

static SHORT: AtomicBool = AtomicBool::new(false);
/// Where the reserve begins and how large it is; 0 before it is mapped.
static BASE: AtomicUsize = AtomicUsize::new(0);
static ROOM: AtomicUsize = AtomicUsize::new(0);
/// Bytes handed out from its beginning, and allocations that live there.
static USED: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);

fn map(bytes: usize) -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at)
}

/// Maps the reserve, once.
pub(crate) fn begin() {
    if BASE.load(Ordering::Relaxed) != 0 {
        return;
    }
    let sizes = [RESERVE, RESERVE / 4, RESERVE / 16, RESERVE / 64];
    let Some((at, size)) = sizes.into_iter().find_map(|size| Some((map(size)?, size))) else { return };
    ROOM.store(size, Ordering::Relaxed);
    if BASE.compare_exchange(0, at as usize, Ordering::Release, Ordering::Relaxed).is_err() {
        // SAFETY: our own mapping, which nobody has seen.
        unsafe { libc::munmap(at, size) };
    }
}

/// Whether there is no host memory to keep account of anything new.
#[inline]
pub(crate) fn short() -> bool {
    SHORT.load(Ordering::Relaxed) && still_short()
}

#[cold]
fn still_short() -> bool {
    let short = !has_headroom()
        || LIVE.load(Ordering::Relaxed) != 0 && USED.load(Ordering::Relaxed) > ROOM.load(Ordering::Relaxed) / 2;
    SHORT.store(short, Ordering::Relaxed);
    short
}

fn has_headroom() -> bool {
    let Some(at) = map(2 * HEADROOM) else { return false };
    // SAFETY: our own mapping, made above.
    unsafe { libc::munmap(at, 2 * HEADROOM) };
    true
}

/// Tells that a large allocation came near the end of memory.
fn look(bytes: usize) {
    if bytes < LARGE || SHORT.load(Ordering::Relaxed) {
        return;
    }
    match map(HEADROOM) {
        // SAFETY: our own mapping, made above.
        Some(at) => unsafe { _ = libc::munmap(at, HEADROOM) },
        None => SHORT.store(true, Ordering::Relaxed),
    }
}

#[inline]
fn is_ours(at: *mut u8) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    base != 0 && (at as usize).wrapping_sub(base) < ROOM.load(Ordering::Relaxed)
}

#[cold]
fn from_reserve(layout: Layout) -> *mut u8 {
    SHORT.store(true, Ordering::Relaxed);
    let base = BASE.load(Ordering::Acquire);
    if base == 0 {
        return core::ptr::null_mut();
    }
    // Counted first: who gives back the last one takes all of it back only if nobody has come meanwhile.
    LIVE.fetch_add(1, Ordering::AcqRel);
    let start = |used: usize| used.next_multiple_of(layout.align().max(16));
    let room = ROOM.load(Ordering::Relaxed);
    let end = |used: usize| start(used).checked_add(layout.size()).filter(|end| *end <= room);
    let Ok(used) = USED.fetch_update(Ordering::AcqRel, Ordering::Acquire, end) else {
        LIVE.fetch_sub(1, Ordering::AcqRel);
        return core::ptr::null_mut();
    };
    (base + start(used)) as *mut u8
}

#[cold]
fn to_reserve(at: *mut u8, size: usize) {
    let start = at as usize - BASE.load(Ordering::Relaxed);
    let _ = USED.compare_exchange(start + size, start, Ordering::AcqRel, Ordering::Relaxed);
    let seen = USED.load(Ordering::Acquire);
    if LIVE.fetch_sub(1, Ordering::AcqRel) == 1 {
        let _ = USED.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

// SAFETY: memory is malloc's, or a part of the reserve that nobody else has: parts do not overlap, since each begins behind
// all that live, and are aligned as asked.
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
        if is_ours(at) {
            return to_reserve(at, layout.size());
        }
        // SAFETY: it came from there.
        unsafe { System.dealloc(at, layout) };
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_ours(at) {
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
