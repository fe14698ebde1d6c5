//! Replacing the memory behind an address whose bytes are live. Touches no state of the pool.

use crate::backing::{Backing, BackingError, Handle, PeerAccess};
use crate::stats::DriverCalls;

/// How often a step back is tried. Live bytes without a place are lost, so it is worth some tries.
const TRIES: usize = 8;

/// A range of addresses with one handle behind it.
pub(crate) struct Place<'a> {
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    pub(crate) grants: &'a [PeerAccess],
}

/// What became of a replacement.
pub(crate) enum Replaced {
    /// The new handle is mapped.
    Yes,
    /// The old handle is mapped, as before.
    No,
    /// Nothing usable is mapped: the bytes are gone.
    Lost(BackingError),
}

impl Place<'_> {
    /// Map `new` where `old` is. Both hold the live bytes.
    pub(crate) fn replace(
        &self,
        backing: &impl Backing,
        old: Handle,
        new: Handle,
        calls: &mut DriverCalls,
    ) -> Replaced {
        if self.unmap(backing, 1, calls).is_err() {
            return Replaced::No;
        }
        match self.map(backing, new, calls) {
            Ok(()) => Replaced::Yes,
            Err(error) => match (0..TRIES).find_map(|_| self.map(backing, old, calls).ok()) {
                Some(()) => Replaced::No,
                None => Replaced::Lost(error),
            },
        }
    }

    /// All or nothing, unless the driver refuses to unmap again and again.
    fn map(&self, backing: &impl Backing, handle: Handle, calls: &mut DriverCalls) -> Result<(), BackingError> {
        calls.map += 1;
        backing.map(self.addr, self.bytes, handle)?;
        calls.set_access += 1;
        let result = backing.set_access(self.addr, self.bytes, self.grants);
        if result.is_err() {
            let _ = self.unmap(backing, TRIES, calls);
        }
        result
    }

    fn unmap(&self, backing: &impl Backing, tries: usize, calls: &mut DriverCalls) -> Result<(), BackingError> {
        let mut result = Ok(());
        for _ in 0..tries {
            calls.unmap += 1;
            result = backing.unmap(self.addr, self.bytes);
            if result.is_ok() {
                break;
            }
        }
        result
    }
}
