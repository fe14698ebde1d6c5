//! What one call has taken of a device, by the driver's figure for this process before and after it.
//!
//! Every call of this process that may take or give device memory is a [`Change`] while it lasts. A [`Watch`] measures
//! nothing if there was another one. What the driver itself lets go of meanwhile, out of its stores or because a stream
//! has come to a free, is allowed for, so that the result is never too little.

use super::{CapDevice, Caps, machine, measured};
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

/// A look at figures that no call of this process changes meanwhile.
pub(super) struct NoChange {
    began: u64,
}

impl NoChange {
    /// It begins. `None`: a call is under way.
    pub(super) fn begin() -> Option<Self> {
        let began = BEGAN.load(SeqCst);
        (UNDER_WAY.load(SeqCst) == 0).then_some(Self { began })
    }

    /// Whether no call has begun since.
    pub(super) fn lasts(&self) -> bool {
        BEGAN.load(SeqCst) == self.began
    }
}

/// A change of the caller's own, and what there was before it.
pub(crate) struct Watch {
    _own: Change,
    alone: bool,
    began: u64,
    /// What was held.
    held: Option<Held>,
}

/// What is held of a device at a moment.
#[derive(Clone, Copy)]
struct Held {
    bytes: u64,
    /// Of that the driver in its stores.
    kept: u64,
    /// The bytes are those of all processes: the driver has no figure for this one.
    all: bool,
}

/// No call grows by more than this, where all that is known is what all processes hold.
const MOST: i64 = 256 << 20;

impl Watch {
    /// Begins a change; `look`: it shall be measured.
    pub(crate) fn begin(caps: &Caps, device: &CapDevice, look: bool) -> Self {
        if look {
            caps.release_passed_frees();
        }
        let own = Change::begin();
        let began = BEGAN.load(SeqCst);
        let alone = UNDER_WAY.load(SeqCst) == 1;
        let held = if look { Self::held(caps, device) } else { None };
        Self { _own: own, alone, began, held }
    }

    fn held(caps: &Caps, device: &CapDevice) -> Option<Held> {
        let kept = measured::kept(caps, device);
        if let Some(bytes) = machine::own_bytes(device.uuid) {
            return Some(Held { bytes, kept, all: false });
        }
        Some(Held { bytes: machine::used_here(device.ordinal)?, kept, all: true })
    }

    /// The most by which the call has let grow what this process holds, negative if it has shrunk; `None` if that
    /// is unknown, because of others or because the driver has no figure for this process.
    pub(crate) fn grown(&self, caps: &Caps, device: &CapDevice) -> Option<i64> {
        let held = self.held?;
        let now = Self::held(caps, device).filter(|now| now.all == held.all)?;
        let alone = self.alone && BEGAN.load(SeqCst) == self.began;
        let left = held.kept.saturating_sub(now.kept).saturating_add(caps.release_passed_frees());
        // A stream may have come to a free and not to the fence behind it.
        let left = left.saturating_add(caps.linear.leaving_on(device.ordinal));
        let mut grown = i64::try_from(now.bytes).ok()? - i64::try_from(held.bytes).ok()?;
        if held.all {
            grown = grown.clamp(0, MOST);
        }
        alone.then(|| grown.saturating_add_unsigned(left))
    }
}
