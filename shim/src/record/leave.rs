//! `_exit` and `_Exit`: a worker that leaves so has ended, and was not killed. No handler of exit(3) runs then, so the
//! library exports both, notes the status in the journal and goes on to the next library that defines them.
//!
//! Both may be called in a signal handler and by a child that shares its parent's memory: only stores are made, and only
//! by the process whose journal it is.

use super::open;
use crate::process::linker;
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The next `_exit`, 0 where there is none. Looked up when the library is loaded: later it may be too late for a lookup.
static NEXT: AtomicUsize = AtomicUsize::new(0);

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    NEXT.store(linker::lookup(libc::RTLD_NEXT, c"_exit"), Ordering::Release);
}

#[cfg_attr(not(test), unsafe(export_name = "_exit"))]
extern "C" fn leave(status: c_int) -> ! {
    if let Some(recorder) = open() {
        recorder.journal.leaving(status as u8);
    }
    let next = NEXT.load(Ordering::Acquire);
    if next != 0 {
        // SAFETY: the address is that of a function `_exit`.
        unsafe { core::mem::transmute::<usize, extern "C" fn(c_int)>(next)(status) }
    }
    loop {
        // SAFETY: ends the process, as libc's own does.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// The name in the standard of C.
#[cfg_attr(not(test), unsafe(export_name = "_Exit"))]
extern "C" fn leave_as_in_c(status: c_int) -> ! {
    leave(status)
}
