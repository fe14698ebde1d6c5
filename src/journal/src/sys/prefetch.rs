//! Memory that is about to be used, brought into the cache beforehand.

/// The line at `place` is going to be written. Never faults and has no effect but on time.
#[inline(always)]
pub(crate) fn for_writing<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it may name any address.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) std::ptr::from_ref(place), options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
