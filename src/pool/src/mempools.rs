//! Mempools: counters and attributes that the job can read and set. Touches host memory only.

use crate::config::UNIT_SHIFT;

/// A mempool of the job as the pool knows it. The default one of the device is `Mempool::default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Mempool(pub(crate) u16);

/// The three reuse attributes of a mempool; all on by default, as with the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// Reuse another stream's free if an event orders the two.
    pub follow_events: bool,
    /// Reuse another stream's free if its work is seen to have finished.
    pub opportunistic: bool,
    /// Make the allocating stream wait for another stream's free.
    pub internal_waits: bool,
}

impl Default for Reuse {
    fn default() -> Self {
        Self { follow_events: true, opportunistic: true, internal_waits: true }
    }
}

/// Bytes of a mempool, now and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MempoolBytes {
    /// Handed out.
    pub used: u64,
    /// Most ever handed out since the last reset.
    pub used_high: u64,
    /// Held for this mempool: what is handed out and what its threshold lets it keep.
    pub reserved: u64,
    /// Most ever held since the last reset.
    pub reserved_high: u64,
}

pub(crate) struct MempoolState {
    pub(crate) alive: bool,
    pub(crate) reuse: Reuse,
    pub(crate) threshold: u64,
    pub(crate) bytes: MempoolBytes,
    chunk: u64,
}

impl MempoolState {
    fn new(chunk: u64) -> Self {
        Self { alive: true, reuse: Reuse::default(), threshold: 0, bytes: MempoolBytes::default(), chunk }
    }

    fn rounded(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.chunk).unwrap_or(bytes)
    }

    /// Give back what is held beyond `keep`.
    pub(crate) fn shrink(&mut self, keep: u64) {
        self.bytes.reserved = self.bytes.reserved.min(keep).max(self.rounded(self.bytes.used));
    }
}

/// All mempools of a device.
pub(crate) struct Mempools {
    list: Vec<MempoolState>,
    chunk: u64,
}

impl Mempools {
    pub(crate) fn new(chunk: u64) -> Self {
        Self { list: vec![MempoolState::new(chunk.max(1))], chunk: chunk.max(1) }
    }

    pub(crate) fn create(&mut self) -> Option<Mempool> {
        let fresh = MempoolState::new(self.chunk);
        if let Some(at) = self.list.iter().position(|owner| !owner.alive && owner.bytes.used == 0) {
            if let Some(slot) = self.list.get_mut(at) {
                *slot = fresh;
            }
            return Some(Mempool(at as u16));
        }
        let at = u16::try_from(self.list.len()).ok()?;
        self.list.push(fresh);
        Some(Mempool(at))
    }

    /// Let a mempool of another pool's numbering be known here under the same number.
    pub(crate) fn mirror(&mut self, mempool: Mempool, reuse: Reuse) {
        let at = usize::from(mempool.0);
        while self.list.len() <= at {
            self.list.push(MempoolState { alive: false, ..MempoolState::new(self.chunk) });
        }
        if let Some(owner) = self.list.get_mut(at) {
            (owner.alive, owner.reuse) = (true, reuse);
        }
    }

    #[inline]
    pub(crate) fn get(&self, mempool: Mempool) -> Option<&MempoolState> {
        self.list.get(usize::from(mempool.0))
    }

    #[inline]
    pub(crate) fn at(&mut self, mempool: Mempool) -> Option<&mut MempoolState> {
        self.list.get_mut(usize::from(mempool.0))
    }

    #[inline]
    pub(crate) fn allocated(&mut self, mempool: u16, units: u32) {
        if let Some(owner) = self.at(Mempool(mempool)) {
            let bytes = &mut owner.bytes;
            bytes.used += u64::from(units) << UNIT_SHIFT;
            if bytes.used > bytes.used_high {
                bytes.used_high = bytes.used;
                if bytes.used > bytes.reserved {
                    owner.grow();
                }
            } else if bytes.used > bytes.reserved {
                owner.grow();
            }
        }
    }

    #[inline]
    pub(crate) fn freed(&mut self, mempool: u16, units: u32) {
        if let Some(owner) = self.at(Mempool(mempool)) {
            owner.bytes.used = owner.bytes.used.saturating_sub(u64::from(units) << UNIT_SHIFT);
        }
    }

    /// A synchronisation is when a mempool releases what is above its threshold.
    pub(crate) fn synchronised(&mut self) {
        for owner in &mut self.list {
            let keep = owner.threshold;
            owner.shrink(keep);
        }
    }
}

impl MempoolState {
    #[cold]
    fn grow(&mut self) {
        self.bytes.reserved = self.rounded(self.bytes.used);
        self.bytes.reserved_high = self.bytes.reserved_high.max(self.bytes.reserved);
    }
}
