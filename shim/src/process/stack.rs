//! Room on the stack: work of weir's that may go deep runs on a stack of weir's own where the thread's is nearly used up.
//!
//! A thread, or a coroutine, may have no more than 16 KiB in all, enough for a call into the driver and too little for a new
//! pool, a journal or a report as well. What a thread's stack is, is found out once a thread, and never on the way of a request that the pool
//! answers by itself.

use super::calls::Uncancelled;
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What work of weir's, the driver below it included, is taken to need.
const ROOM: usize = 64 << 10;
/// A stack of weir's own.
const SIZE: usize = 512 << 10;
const GUARD: usize = 4096;

thread_local! {
    /// From which address on, and for how many bytes, there is room: the upper part of the thread's own stack; nothing while it
    /// is not known. Constant, no destructor.
    static ROOMY: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Runs `work` where there is room for it.
#[inline]
pub(crate) fn roomy<R>(work: impl FnOnce() -> R) -> R {
    if has_room() { work() } else { elsewhere(work) }
}

/// Whether there is room for such work here.
#[inline]
pub(crate) fn has_room() -> bool {
    let here = 0_u8;
    let here = &raw const here as usize;
    lies(here, ROOMY.try_with(Cell::get).unwrap_or(EVERYWHERE)) || look(here)
}

/// What is taken for roomy where nothing is known.
const EVERYWHERE: (usize, usize) = (0, usize::MAX);
/// A stack that is too small as a whole.
const NOWHERE: (usize, usize) = (1, 0);

#[inline]
fn lies(here: usize, (floor, bytes): (usize, usize)) -> bool {
    here.wrapping_sub(floor) < bytes
}

/// Queries what the thread's stack is, if that is not known. Outside of it is another: a coroutine's or a signal's, of which
/// nobody knows how large it is.
#[cold]
fn look(here: usize) -> bool {
    let roomy = ROOMY.try_with(|roomy| {
        if roomy.get() == (0, 0) {
            roomy.set(upper_part().unwrap_or(EVERYWHERE));
        }
        roomy.get()
    });
    lies(here, roomy.unwrap_or(EVERYWHERE))
}

/// The part of the calling thread's stack that has enough below it.
fn upper_part() -> Option<(usize, usize)> {
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut start, mut size) = (core::ptr::null_mut(), 0);
    // SAFETY: the attributes are filled by pthread_getattr_np before they are read, and destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        let part = |bytes| (start as usize + ROOM, bytes);
        (found == 0).then(|| size.checked_sub(ROOM).filter(|bytes| *bytes > 0).map_or(NOWHERE, part))
    }
}

/// Runs `work` on a stack of weir's own; where there can be none, here.
#[cold]
#[inline(never)]
fn elsewhere<F: FnOnce() -> R, R>(work: F) -> R {
    let Some(stack) = take() else { return work() };
    // Nothing may unwind past the change of stacks.
    let uncancelled = Uncancelled::enter();
    let mut job = Job { work: Some(work), result: None };
    let before = ROOMY.try_with(|roomy| roomy.replace((stack + GUARD + ROOM, SIZE - ROOM)));
    // SAFETY: the stack is ours alone until it is released; the function catches every panic and comes back; the job
    // outlives the call.
    unsafe { call_on(stack + GUARD + SIZE, run::<F, R>, (&raw mut job).cast()) };
    if let Ok(before) = before {
        let _ = ROOMY.try_with(|roomy| roomy.set(before));
    }
    free_stack(stack);
    drop(uncancelled);
    match (job.result, job.work) {
        (Some(Ok(result)), _) => result,
        (Some(Err(panic)), _) => resume_unwind(panic),
        // It cannot have been left undone.
        (None, Some(work)) => work(),
        (None, None) => std::process::abort(),
    }
}

struct Job<F, R> {
    work: Option<F>,
    result: Option<std::thread::Result<R>>,
}

unsafe extern "C" fn run<F: FnOnce() -> R, R>(job: *mut c_void) {
    // SAFETY: `elsewhere` hands its own job over, and waits.
    let job = unsafe { &mut *job.cast::<Job<F, R>>() };
    if let Some(work) = job.work.take() {
        job.result = Some(catch_unwind(AssertUnwindSafe(work)));
    }
}

/// Calls `function` with `argument` on the stack that ends at `top`.
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: usize, function: unsafe extern "C" fn(*mut c_void), argument: *mut c_void) {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret"
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        "ret"
    );
}

/// Stacks that nobody uses.
static SPARE: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

fn take() -> Option<usize> {
    if let Some(stack) = SPARE.iter().map(|place| place.swap(0, Ordering::Acquire)).find(|stack| *stack != 0) {
        return Some(stack);
    }
    let (flags, all) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK, GUARD + SIZE);
    // SAFETY: a new mapping at an address of the kernel's choice, whose lowest page is then taken away.
    unsafe {
        let stack = libc::mmap(core::ptr::null_mut(), all, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if stack == libc::MAP_FAILED {
            return None;
        }
        libc::mprotect(stack, GUARD, libc::PROT_NONE);
        Some(stack as usize)
    }
}

fn free_stack(stack: usize) {
    let kept = SPARE.iter().any(|place| place.compare_exchange(0, stack, Ordering::Release, Ordering::Relaxed).is_ok());
    if !kept {
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(stack as *mut c_void, GUARD + SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deep(left: usize) -> usize {
        let here = [left as u8; 1024];
        if left == 0 { 0 } else { deep(left - 1) + usize::from(core::hint::black_box(here)[0] == left as u8) }
    }

    #[test]
    fn work_finds_room_on_the_smallest_stack_and_its_panic_comes_back() {
        let small = std::thread::Builder::new().stack_size(20 << 10);
        let thread = small.spawn(|| {
            let inside = roomy(|| roomy(|| deep(100)));
            let panic = catch_unwind(|| roomy(|| std::panic::panic_any(7_u8)));
            (inside, panic.err().and_then(|payload| payload.downcast_ref::<u8>().copied()))
        });
        assert_eq!(thread.ok().and_then(|thread| thread.join().ok()), Some((100, Some(7))));
        assert_eq!(roomy(|| deep(10)), 10);
    }
}
