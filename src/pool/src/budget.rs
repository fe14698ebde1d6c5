//! What one request may cost: how far the pool goes to serve it, and what the backing may charge for it. Touches nothing.

use std::cell::Cell;

/// How far the pool goes for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// As far as it can: the device is waited for, and stopped for a mesh.
    #[default]
    Full,
    /// The device is waited for, but not stopped: for a request that was refused before and waits.
    WithoutMesh,
    /// The device is not waited for.
    WithoutWait,
}

/// What one request may cost. The pool passes it to every call of the backing that takes memory for the request.
#[derive(Debug, Default)]
pub struct Budget {
    /// How far the pool goes.
    pub effort: Effort,
    /// The cap's reserve for tiny requests is open to it.
    pub tiny: bool,
    /// No more memory may be charged.
    pub closed: bool,
    /// Bytes that are charged already, for whatever the request takes first.
    pub credit: Cell<u64>,
}

impl Budget {
    /// Pays with credit, if there is enough.
    pub fn spend(&self, bytes: u64) -> bool {
        let rest = self.credit.get().checked_sub(bytes);
        rest.map(|rest| self.credit.set(rest)).is_some()
    }

    /// What was paid with credit was not taken after all.
    pub fn refund(&self, bytes: u64) {
        self.credit.set(self.credit.get().saturating_add(bytes));
    }
}
