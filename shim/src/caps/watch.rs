//! Whether a figure of the driver's that is read twice tells what happened in between, or what others did as well.
//!
//! Every call of this process that may take or give device memory is a [`Change`] while it lasts. A [`Watch`] is sure
//! if there was no other one, no queued free that may happen at any moment, and the driver's own stores stayed as large.

use super::{Caps, Device, measured};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

static BEGAN: AtomicU64 = AtomicU64::new(0);
static UNDER_WAY: AtomicU64 = AtomicU64::new(0);

/// A call that may take or give device memory, while it lasts.
pub(crate) struct Change(());

impl Change {
    /// It begins.
    pub(crate) fn begin() -> Self {
        UNDER_WAY.fetch_add(1, SeqCst);
        BEGAN.fetch_add(1, SeqCst);
        Self(())
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, SeqCst);
    }
}

/// What was there when a figure was read first, in a change of the caller's own.
pub(crate) struct Watch {
    _own: Change,
    sure: bool,
    began: u64,
    kept: u64,
}

impl Watch {
    /// Begins a change and watches it.
    pub(crate) fn begin(caps: &Caps, device: &Device) -> Self {
        let own = Change::begin();
        let began = BEGAN.load(SeqCst);
        let sure = UNDER_WAY.load(SeqCst) == 1 && !caps.linear.any_leaving();
        Self { _own: own, sure, began, kept: measured::kept(caps, device) }
    }

    /// Whether nothing else has changed what this process holds on the device.
    pub(crate) fn sure(&self, caps: &Caps, device: &Device) -> bool {
        self.sure && BEGAN.load(SeqCst) == self.began && measured::kept(caps, device) == self.kept
    }
}
