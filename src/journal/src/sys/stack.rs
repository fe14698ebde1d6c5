//! The calling thread's native stack, as addresses. Three ways: unwinding tables with a cache (exact, fast when warm),
//! frame pointers (fastest, ends where code has none), and the `backtrace` crate (slow, works everywhere).
//! Reads only memory between the stack pointer and the end of the thread's own stack.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, UnwindRegsNative, Unwinder,
    UnwinderNative,
};

use crate::sys::{clock, modules};

thread_local! {
    // The stack's bounds; constant and without a destructor. (0, 1): they could not be found.
    static BOUNDS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Lowest and highest address of the calling thread's stack. The first call of a thread allocates.
fn bounds() -> (u64, u64) {
    BOUNDS.with(|cached| {
        if cached.get().1 == 0 {
            cached.set(read_bounds().unwrap_or((0, 1)));
        }
        cached.get()
    })
}

fn read_bounds() -> Option<(u64, u64)> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut start, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are filled by pthread_getattr_np before they are read, and destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (found == 0).then_some((start as u64, start as u64 + size as u64))
    }
}

/// Program counter, stack pointer and frame pointer of the function this is inlined into.
#[inline(always)]
#[allow(clippy::inline_always)]
fn registers() -> (u64, u64, u64) {
    let (pc, sp, fp): (u64, u64, u64);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: only copies registers.
    unsafe {
        std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) pc, out(reg) sp, out(reg) fp, options(nomem, nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: only copies registers.
    unsafe {
        std::arch::asm!("adr {}, .", "mov {}, sp", "mov {}, x29", out(reg) pc, out(reg) sp, out(reg) fp, options(nomem, nostack));
    }
    (pc, sp, fp)
}

/// A word of the stack, if it lies between the two addresses.
#[inline]
fn read(address: u64, low: u64, high: u64) -> Option<u64> {
    if address < low || address > high.saturating_sub(8) || !address.is_multiple_of(8) {
        return None;
    }
    // SAFETY: the address is aligned and between the stack pointer and the end of this thread's stack, all of which is
    // mapped and readable.
    Some(unsafe { (address as *const u64).read_volatile() })
}

/// Follows frame pointers. Returns how many addresses were found; code without frame pointers ends the walk.
#[inline(never)]
pub(crate) fn by_frame_pointers(to: &mut [u64]) -> usize {
    let (_, sp, mut frame) = registers();
    let (low, high) = bounds();
    if sp < low || sp >= high {
        return 0;
    }
    let (mut count, mut floor) = (0, sp);
    for place in to {
        let (Some(next), Some(back)) = (read(frame, floor, high), read(frame + 8, floor, high)) else {
            break;
        };
        if back < 4096 {
            break;
        }
        *place = back;
        count += 1;
        if next <= frame {
            break;
        }
        floor = frame;
        frame = next;
    }
    count
}

/// The `backtrace` crate. Allocates and takes the loader's lock.
#[inline(never)]
pub(crate) fn by_backtrace(to: &mut [u64]) -> usize {
    let mut count = 0;
    // SAFETY: walking the stack touches no shared state of the crate; its lock serves symbols, which are not resolved here.
    unsafe {
        backtrace::trace_unsynchronized(|frame| match to.get_mut(count) {
            // The outermost frame may have no caller, which shows as address 0.
            Some(place) if !frame.ip().is_null() => {
                *place = frame.ip() as u64;
                count += 1;
                true
            }
            _ => false,
        });
    }
    count
}

type Tables = UnwinderNative<&'static [u8], MustNotAllocateDuringUnwind>;
type Cache = CacheNative<MustNotAllocateDuringUnwind>;

/// The generation of modules that was looked at last.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Which generation of modules the latest stacks point into; 0 before the first.
pub(crate) fn generation_seen() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// A cache that one thread uses at a time.
struct CacheCell {
    busy: AtomicBool,
    cache: UnsafeCell<Cache>,
}

// SAFETY: the cache is touched only by the thread that has set `busy`.
unsafe impl Sync for CacheCell {}
// SAFETY: the cache holds rules and addresses, nothing that is bound to a thread.
unsafe impl Send for CacheCell {}

/// The loaded modules' unwinding tables at one moment.
struct Snapshot {
    generation: u64,
    tables: Tables,
}

/// Unwinds by tables, with caches shared by all threads.
pub(crate) struct TableUnwinder {
    known: AtomicPtr<Snapshot>,
    refreshing: AtomicBool,
    caches: Box<[CacheCell]>,
}

const CACHES: usize = 16;

impl TableUnwinder {
    /// Reads the list of modules. Allocates.
    pub(crate) fn new() -> Self {
        let cell = |_| CacheCell { busy: AtomicBool::new(false), cache: UnsafeCell::new(Cache::new_in()) };
        let unwinder = Self {
            known: AtomicPtr::new(std::ptr::null_mut()),
            refreshing: AtomicBool::new(false),
            caches: (0..CACHES).map(cell).collect(),
        };
        unwinder.refresh(modules::generation());
        unwinder
    }

    /// Reads the list of modules again. The old list stays, for threads that still use it: modules come and go rarely.
    fn refresh(&self, generation: u64) {
        if self.refreshing.swap(true, Ordering::Acquire) {
            return;
        }
        let mut tables = Tables::new();
        for module in modules::loaded() {
            if let Some(sections) = sections_of(&module) {
                let range = module.start..module.start.saturating_add(module.size);
                tables.add_module(Module::new(module.path.clone(), range, module.bias, sections));
            }
        }
        GENERATION.store(generation, Ordering::Relaxed);
        let fresh = Box::into_raw(Box::new(Snapshot { generation, tables }));
        self.known.store(fresh, Ordering::Release);
        self.refreshing.store(false, Ordering::Release);
    }

    /// The stack of the caller, innermost first. Does not allocate, unless modules were loaded since the last time or
    /// the thread is new here.
    #[inline(never)]
    pub(crate) fn capture(&self, to: &mut [u64]) -> usize {
        let (pc, sp, fp) = registers();
        let (low, high) = bounds();
        // On a signal stack or a coroutine nothing is known about what may be read.
        if sp < low || sp >= high {
            return 0;
        }
        // Modules whose code is on this stack cannot be unloaded meanwhile, so their tables stay readable while they
        // are used; tables of others are not looked at. That holds only for a list that is up to date now.
        let generation = modules::generation();
        let mut known = self.known();
        if known.is_none_or(|known| known.generation != generation) {
            self.refresh(generation);
            known = self.known();
        }
        let Some(known) = known.filter(|known| known.generation == generation) else {
            return 0;
        };
        let Some(cell) = self.take_cache() else {
            return 0;
        };
        // SAFETY: `busy` was set by this thread, so nobody else touches the cache until it is cleared below.
        let cache = unsafe { &mut *cell.cache.get() };
        #[cfg(target_arch = "x86_64")]
        let start = UnwindRegsNative::new(pc, sp, fp);
        #[cfg(target_arch = "aarch64")]
        let start = UnwindRegsNative::new(read(fp + 8, sp, high).unwrap_or(0), sp, fp);
        let mut stack = |address: u64| read(address, sp, high).ok_or(());
        let mut frames = known.tables.iter_frames(pc, start, cache, &mut stack);
        let mut count = 0;
        // The first frame is this function.
        let _ = frames.next();
        for place in to {
            let Ok(Some(frame)) = frames.next() else {
                break;
            };
            *place = frame.address();
            count += 1;
        }
        cell.busy.store(false, Ordering::Release);
        count
    }

    fn known(&self) -> Option<&Snapshot> {
        // SAFETY: the pointer is null or a box that is never freed.
        unsafe { self.known.load(Ordering::Acquire).as_ref() }
    }

    fn take_cache(&self) -> Option<&CacheCell> {
        let start = clock::thread_ordinal() as usize;
        (0..CACHES)
            .filter_map(|step| self.caches.get((start + step) % CACHES))
            .find(|cell| cell.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok())
    }
}

/// The unwinding tables of a module, as they lie in memory.
fn sections_of(module: &modules::Module) -> Option<ExplicitModuleSectionInfo<&'static [u8]>> {
    let (hdr, hdr_size) = module.eh_frame_hdr;
    let (segment, segment_size) = module.eh_segment;
    if hdr_size < 8 || segment_size == 0 {
        return None;
    }
    // SAFETY: the loader keeps this readable segment mapped while the module is loaded, and `capture` looks only at
    // tables of modules that are.
    let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(segment as *const u8, segment_size as usize) };
    let at = (hdr - segment) as usize;
    // The usual encoding of the pointer to .eh_frame: four bytes, signed, relative to itself.
    const RELATIVE_SIGNED_4: u8 = 0x1b;
    if *bytes.get(at + 1)? != RELATIVE_SIGNED_4 {
        return None;
    }
    let distance = i32::from_le_bytes(*bytes.get(at + 4..)?.first_chunk()?);
    let frame = (hdr + 4).checked_add_signed(i64::from(distance))?;
    let frame_at = usize::try_from(frame.checked_sub(segment)?).ok()?;
    let frame_bytes = bytes.get(frame_at..)?;
    let file = |address: u64, size: u64| {
        let start = address.wrapping_sub(module.bias);
        start..start.wrapping_add(size)
    };
    Some(ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: Some(file(module.text.0, module.text.1)),
        eh_frame_svma: Some(file(frame, frame_bytes.len() as u64)),
        eh_frame: Some(frame_bytes),
        eh_frame_hdr_svma: Some(file(hdr, hdr_size)),
        eh_frame_hdr: Some(bytes.get(at..at + usize::try_from(hdr_size).ok()?)?),
        ..ExplicitModuleSectionInfo::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls itself, then `f`: a stack of known depth.
    #[inline(never)]
    fn deep(depth: usize, f: &mut dyn FnMut()) {
        if depth == 0 {
            f();
        } else {
            deep(depth - 1, f);
        }
        std::hint::black_box(depth);
    }

    #[test]
    fn tables_and_backtrace_see_the_same_callers() {
        let unwinder = TableUnwinder::new();
        let mut pairs = Vec::new();
        deep(20, &mut || {
            let (mut a, mut b) = ([0; 64], [0; 64]);
            let (m, n) = (unwinder.capture(&mut a), by_backtrace(&mut b));
            pairs.push((a[..m].to_vec(), b[..n].to_vec()));
        });
        let (tables, backtrace) = &pairs[0];
        assert!(tables.len() > 22, "only {} frames", tables.len());
        // The innermost frames differ (they are the two capturing calls); from the recursion on they are the same.
        let common = tables.iter().rev().zip(backtrace.iter().rev()).take_while(|(a, b)| a == b).count();
        assert!(common > 21, "{common} frames in common:\n{tables:x?}\n{backtrace:x?}");
    }

    #[test]
    fn frame_pointers_never_leave_the_stack() {
        std::thread::spawn(|| {
            let mut to = [0; 64];
            let count = by_frame_pointers(&mut to);
            assert!(to[..count].iter().all(|address| *address >= 4096));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn words_outside_the_bounds_are_not_read() {
        let (low, high) = bounds();
        let here = std::ptr::from_ref(&low) as u64;
        assert!(low < here && here < high);
        assert_eq!(read(8, low, high), None);
        assert_eq!(read(high, low, high), None);
        assert_eq!(read(high - 4, low, high), None);
        assert_eq!(read(u64::MAX - 7, low, high), None);
        assert!(read(here & !7, low, high).is_some());
    }
}
