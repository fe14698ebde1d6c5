//! Time, as cheaply as the machine allows: the time-stamp counter where it is invariant, the generic timer on
//! aarch64, else the monotonic clock. Also the calling thread's id, looked up once.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Which clock counts a journal's ticks. Numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Clock {
    /// The x86-64 time-stamp counter.
    Tsc = 1,
    /// The aarch64 virtual counter.
    Cntvct = 2,
    /// CLOCK_MONOTONIC in nanoseconds.
    Monotonic = 3,
}

/// One moment on three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// Ticks.
    pub ticks: u64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic: u64,
    /// CLOCK_REALTIME, ns since 1970.
    pub realtime: u64,
}

impl Clock {
    /// The best clock of this machine.
    pub fn best() -> Self {
        #[cfg(feature = "synthetic")]
        if AHEAD.get() != 0 {
            return Self::Monotonic;
        }
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::__cpuid;
            // Leaf 0x8000_0007, EDX bit 8: the counter runs at one rate in every power state.
            if __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0 {
                return Self::Tsc;
            }
        }
        #[cfg(target_arch = "aarch64")]
        return Self::Cntvct;
        #[cfg(not(target_arch = "aarch64"))]
        Self::Monotonic
    }

    /// Now, in ticks.
    #[inline]
    pub fn now(self) -> u64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: reading the counter has no effect on memory and is allowed in user mode on Linux.
            Self::Tsc => unsafe { std::arch::x86_64::_rdtsc() },
            #[cfg(target_arch = "aarch64")]
            Self::Cntvct => {
                let ticks: u64;
                // SAFETY: reading the virtual counter has no side effect and Linux allows it in user mode.
                unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
                ticks
            }
            _ => clock_ns(libc::CLOCK_MONOTONIC),
        }
    }

    /// The three clocks at one moment: the closest of a few tries.
    pub fn anchor(self) -> Anchor {
        let mut best = (u64::MAX, Anchor::default());
        for _ in 0..5 {
            let before = self.now();
            let monotonic = clock_ns(libc::CLOCK_MONOTONIC);
            let realtime = clock_ns(libc::CLOCK_REALTIME);
            let width = self.now().saturating_sub(before);
            if width < best.0 {
                best = (width, Anchor { ticks: before + width / 2, monotonic, realtime });
            }
        }
        best.1
    }

    /// Ticks per second, from a busy wait of a quarter of a millisecond: good to about one part in a thousand, until
    /// a later anchor is written.
    pub fn measure_hz(self) -> u64 {
        if self == Self::Monotonic {
            return 1_000_000_000;
        }
        let first = self.anchor();
        let mut last = self.anchor();
        while last.monotonic.saturating_sub(first.monotonic) < 250_000 {
            last = self.anchor();
        }
        let ns = u128::from(last.monotonic.saturating_sub(first.monotonic).max(1));
        (u128::from(last.ticks.saturating_sub(first.ticks)) * 1_000_000_000 / ns) as u64
    }
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer; the clocks used here always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let ns = (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64);
    #[cfg(feature = "synthetic")]
    let ns = ns.wrapping_add(AHEAD.get()).wrapping_add(if clock == libc::CLOCK_MONOTONIC { UP.get() } else { 0 });
    ns
}

#[cfg(feature = "synthetic")]
thread_local! {
    static AHEAD: Cell<u64> = const { Cell::new(0) };
    static UP: Cell<u64> = const { Cell::new(0) };
}

/// Lets this thread's machine have been up longer, by so many nanoseconds; the time of day stays.
#[cfg(feature = "synthetic")]
pub fn booted_earlier(ns: u64) {
    UP.set(UP.get().wrapping_add(ns));
}

/// Moves this thread's clock ahead. A journal that the thread makes after the first call uses the clock that is moved.
#[cfg(feature = "synthetic")]
pub fn advance(ns: u64) {
    AHEAD.set(AHEAD.get().wrapping_add(ns));
}

/// Counts forks that this process is a child of, so that a cached thread id is not used in the child.
static FORKS: AtomicU32 = AtomicU32::new(1);
static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // Constant and without a destructor: no registration, no allocation, usable at any moment of a thread's life.
    static THREAD: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    static ORDINAL: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread's id.
#[inline]
pub(crate) fn thread_id() -> u32 {
    let forks = FORKS.load(Ordering::Relaxed);
    THREAD.with(|cached| match cached.get() {
        (id, seen) if seen == forks => id,
        _ => {
            // By number: glibc has a function for it only since 2.30.
            // SAFETY: gettid takes nothing and cannot fail.
            let id = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
            cached.set((id, forks));
            id
        }
    })
}

/// A small number of the calling thread, to spread threads over tables.
#[inline]
pub(crate) fn thread_ordinal() -> u32 {
    ORDINAL.with(|cached| {
        if cached.get() == 0 {
            cached.set(THREADS.fetch_add(1, Ordering::Relaxed) as u32 | 1 << 31);
        }
        cached.get() & !(1 << 31)
    })
}

/// To be called in the child after a fork: forgets cached thread ids.
pub(crate) fn forget_threads() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_rate_agree_with_the_monotonic_clock() {
        let clock = Clock::best();
        // A busy machine may take the processor away between the two clocks; a wrong rate is wrong every time.
        let mut seen = Vec::new();
        let agree = (0..20).any(|_| {
            let hz = clock.measure_hz();
            let first = clock.anchor();
            std::thread::sleep(std::time::Duration::from_millis(30));
            let last = clock.anchor();
            let by_ticks = u128::from(last.ticks - first.ticks) * 1_000_000_000 / u128::from(hz);
            let by_clock = u128::from(last.monotonic - first.monotonic);
            seen.push((by_ticks, by_clock));
            by_ticks.abs_diff(by_clock) < by_clock / 50
        });
        assert!(agree, "nanoseconds by ticks and by the clock: {seen:?}");
    }

    #[test]
    fn a_thread_knows_its_id() {
        let here = thread_id();
        assert_eq!(here, thread_id());
        assert_ne!(here, std::thread::spawn(thread_id).join().unwrap());
        assert_ne!(thread_ordinal(), std::thread::spawn(thread_ordinal).join().unwrap());
    }
}
