//! The system calls of this library, none of which is a cancellation point.
//!
//! A thread that is cancelled unwinds from the next cancellation point of the C library: open, read, write, sleep and
//! the like. Inside weir that would end the process, since nothing may unwind through `catch_unwind`. So the names by which
//! weir and the Rust library in it call such functions lead to the plain system call here. They are hidden: nobody else
//! sees them, and the job's own calls are as ever. The cancellation waits for the job's next cancellation point. Calls into
//! the driver are protected by [`Uncancelled`]; `tests/preload` looks that no cancellation point is left among the
//! library's imports.

use core::ffi::{c_int, c_void};

/// While it lives, the calling thread is not cancelled.
pub(crate) struct Uncancelled(c_int);

unsafe extern "C-unwind" {
    /// The C library's. Where a thread can be cancelled at any instruction, it may not come back.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

const DISABLE: c_int = 1;

impl Uncancelled {
    /// From now on; two stores into the thread's own record.
    #[inline]
    pub(crate) fn enter() -> Self {
        let mut before = DISABLE;
        // SAFETY: the place is a live local.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        if self.0 != DISABLE {
            // SAFETY: puts back what `enter` found.
            unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
        }
    }
}

/// Defines a hidden function of a cancellation point's name that makes the system call.
macro_rules! plain_calls {
    ($($name:literal $own:ident ($($arg:ident: $ty:ty),*) -> $result:ty $body:block)*) => {$(
        #[cfg_attr(test, allow(dead_code))]
        unsafe extern "C" fn $own($($arg: $ty),*) -> $result {
            // SAFETY: the caller's own arguments, which mean the same to the kernel.
            (unsafe { $body }) as $result
        }
        #[cfg(all(not(test), target_arch = "x86_64"))]
        core::arch::global_asm!(
            concat!(".globl ", $name), concat!(".hidden ", $name), concat!(".type ", $name, ",@function"),
            concat!($name, ":"), "jmp {own}", own = sym $own
        );
        #[cfg(all(not(test), target_arch = "aarch64"))]
        core::arch::global_asm!(
            concat!(".globl ", $name), concat!(".hidden ", $name), concat!(".type ", $name, ",%function"),
            concat!($name, ":"), "b {own}", own = sym $own
        );
    )*};
}

// Those of them that this library calls. A name that it stops calling does no harm here; one that it begins to call is
// found by `tests/preload`.
plain_calls! {
    "open" open(path: *const c_void, flags: c_int, mode: u32) -> c_int {
        apart(libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode))
    }
    "open64" open64(path: *const c_void, flags: c_int, mode: u32) -> c_int {
        apart(libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode))
    }
    "openat" openat(dir: c_int, path: *const c_void, flags: c_int, mode: u32) -> c_int {
        apart(libc::syscall(libc::SYS_openat, dir, path, flags, mode))
    }
    "close" close(fd: c_int) -> c_int { libc::syscall(libc::SYS_close, fd) }
    "read" read(fd: c_int, to: *mut c_void, size: usize) -> isize { libc::syscall(libc::SYS_read, fd, to, size) }
    "pread" pread(fd: c_int, to: *mut c_void, size: usize, at: i64) -> isize {
        libc::syscall(libc::SYS_pread64, fd, to, size, at)
    }
    "pread64" pread64(fd: c_int, to: *mut c_void, size: usize, at: i64) -> isize {
        libc::syscall(libc::SYS_pread64, fd, to, size, at)
    }
    "pwrite" pwrite(fd: c_int, from: *const c_void, size: usize, at: i64) -> isize {
        libc::syscall(libc::SYS_pwrite64, fd, from, size, at)
    }
    "pwrite64" pwrite64(fd: c_int, from: *const c_void, size: usize, at: i64) -> isize {
        libc::syscall(libc::SYS_pwrite64, fd, from, size, at)
    }
    "write" write(fd: c_int, from: *const c_void, size: usize) -> isize {
        libc::syscall(libc::SYS_write, fd, from, size)
    }
    "writev" writev(fd: c_int, parts: *const c_void, count: c_int) -> isize {
        libc::syscall(libc::SYS_writev, fd, parts, count)
    }
    "posix_fallocate" posix_fallocate(fd: c_int, at: i64, size: i64) -> c_int { allocate(fd, at, size) }
    "clock_nanosleep" clock_nanosleep(clock: c_int, flags: c_int, time: *const c_void, left: *mut c_void) -> c_int {
        match libc::syscall(libc::SYS_clock_nanosleep, clock, flags, time, left) {
            0 => 0,
            _ => *libc::__errno_location(),
        }
    }
    "poll" poll(fds: *mut c_void, count: u64, milliseconds: c_int) -> c_int {
        let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
        let time = libc::timespec { tv_sec: i64::from(seconds), tv_nsec: i64::from(rest) * 1_000_000 };
        let time = if milliseconds < 0 { core::ptr::null() } else { &raw const time };
        libc::syscall(libc::SYS_ppoll, fds, count, time, core::ptr::null::<c_void>(), 0)
    }
    "accept4" accept4(fd: c_int, address: *mut c_void, size: *mut c_void, flags: c_int) -> c_int {
        apart(libc::syscall(libc::SYS_accept4, fd, address, size, flags))
    }
    "connect" connect(fd: c_int, address: *const c_void, size: u32) -> c_int {
        libc::syscall(libc::SYS_connect, fd, address, size)
    }
    "recvmsg" recvmsg(fd: c_int, message: *mut c_void, flags: c_int) -> isize {
        libc::syscall(libc::SYS_recvmsg, fd, message, flags)
    }
    "sendmsg" sendmsg(fd: c_int, message: *const c_void, flags: c_int) -> isize {
        libc::syscall(libc::SYS_sendmsg, fd, message, flags)
    }
    "sigtimedwait" sigtimedwait(set: *const c_void, info: *mut c_void, time: *const c_void) -> c_int {
        // The kernel's set of signals is one word.
        libc::syscall(libc::SYS_rt_sigtimedwait, set, info, time, 8)
    }
    "getrandom" getrandom(to: *mut c_void, size: usize, flags: u32) -> isize {
        libc::syscall(libc::SYS_getrandom, to, size, flags)
    }
}

/// The same open file with a number behind those of standard input, output and error. A job may have closed these: what it
/// prints would go to whatever has their numbers.
pub(crate) unsafe fn apart(fd: libc::c_long) -> libc::c_long {
    if !(0..=2).contains(&fd) {
        return fd;
    }
    // SAFETY: plain system calls on a descriptor that nobody else has; without a number for it, the open has failed.
    unsafe {
        let there = libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 3);
        libc::syscall(libc::SYS_close, fd);
        there
    }
}

/// Gives a file its size on disk; where the file system cannot, by writing a byte to each page of it, which is new.
unsafe fn allocate(fd: c_int, at: i64, size: i64) -> c_int {
    // SAFETY: plain system calls on the caller's descriptor; so below.
    if unsafe { libc::syscall(libc::SYS_fallocate, fd, 0, at, size) } == 0 {
        return 0;
    }
    // SAFETY: the location is the calling thread's own; so below.
    let error = unsafe { *libc::__errno_location() };
    if error != libc::EOPNOTSUPP {
        return error;
    }
    let end = at.saturating_add(size);
    let mut place = at;
    while place < end {
        let last = (place | 4095).min(end - 1);
        // SAFETY: as above; one byte of a local.
        if unsafe { libc::syscall(libc::SYS_pwrite64, fd, (&raw const ZERO).cast::<c_void>(), 1_usize, last) } != 1 {
            // SAFETY: as above.
            return unsafe { *libc::__errno_location() };
        }
        place = last + 1;
    }
    0
}

static ZERO: u8 = 0;
