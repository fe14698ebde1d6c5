//! Switches that take single guards away, so that the tests can prove that they would notice. They exist only with the
//! `fault-injection` feature; without it every question is answered "no" at compile time.

/// A guard that can be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fault {
    /// The reader's check of a record's CRC.
    RecordCrc = 1,
    /// The in-flight slot written before the driver is called.
    Pending = 2,
    /// The reader's check of section bounds against the file.
    Bounds = 4,
    /// The reader's check of a live entry's CRC.
    EntryCrc = 8,
    /// The mark on a live entry before the driver frees it.
    Freeing = 16,
    /// The reader's limit on what a compressed frame may expand to.
    FrameLimit = 32,
}

#[cfg(feature = "fault-injection")]
static OFF: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Whether this guard was taken away.
#[cfg(feature = "fault-injection")]
#[inline]
pub fn injected(fault: Fault) -> bool {
    OFF.load(std::sync::atomic::Ordering::Relaxed) & fault as u32 != 0
}

/// Whether this guard was taken away: never, without the feature.
#[cfg(not(feature = "fault-injection"))]
#[inline]
pub const fn injected(_: Fault) -> bool {
    false
}

/// Takes these guards away (a sum of [`Fault`] numbers) for the whole process.
#[cfg(feature = "fault-injection")]
pub fn inject(faults: u32) {
    OFF.store(faults, std::sync::atomic::Ordering::Relaxed);
}
