//! What a job's process uses: reserve before calling the driver, then commit or roll back; one truth for all queries.
//!
//! A process with a cap has a ledger: that of its group, or one of its own which only differs by having a single row.
//! On the way that fits there is no system call and no allocation: a short process-local lock (one for each device) and
//! the lock-free protocol of [`crate::admission`]. Only when a request does not fit are files and processes looked at.
//!
//! It touches the ledger's words and, through the `members` module, its file. After `fork` the child's copy answers
//! [`Refusal::Forked`] and touches nothing: the child joins on its own.

mod reserve;
mod terms;
mod view;
mod wait;

pub use terms::{Category, Crossing, DeviceId, DeviceTerms, Refusal, Reservation, Reserved, SET_ASIDE, TINY, Urgency};
pub use view::{News, Usage, View};

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::admission;
use crate::directory::LedgerDir;
use crate::file::{LedgerError, LedgerFile};
use crate::members::{self, Identity, Liveness};
use crate::table::{CATEGORIES, MAX_DEVICES, Table};
use crate::word::{self, MAX_UNITS, SharedWord, UNIT, Word};
use weir_settings::size::Amount;

/// What the process keeps for itself about one device.
#[derive(Default)]
struct Local {
    categories: [u64; CATEGORIES],
    pending: u64,
    aside: u64,
    aside_target: u64,
    warn: Option<Amount>,
    above_mark: bool,
    cap_seen: u64,
    trim_seen: u64,
    turns: VecDeque<u64>,
    next_turn: u64,
    /// Frees that were announced to those who wait.
    freed: u64,
    /// Waits in a row that ended without the sum or `freed` having changed.
    vain: u32,
}

/// A process's row in a ledger.
pub struct Ledger {
    file: LedgerFile,
    slot: usize,
    own: Identity,
    group: bool,
    last_thorough: AtomicU64,
    local: [Mutex<Local>; MAX_DEVICES],
}

impl Ledger {
    /// Joins the ledger that the processes of a group share.
    pub fn join_group(place: &LedgerDir, name: &str) -> Result<Self, LedgerError> {
        let (ledger_file, slot) = LedgerFile::join_group(place, name)?;
        Ok(Self::in_row(ledger_file, slot, true))
    }

    /// A ledger for this process alone, with a file through which the cap can be changed.
    pub fn for_process(place: &LedgerDir) -> Result<Self, LedgerError> {
        let own = Identity::own();
        Ok(Self::in_row(LedgerFile::of_process(place, own.start)?, 0, false))
    }

    /// A ledger for this process alone, without a file: the cap holds, but nobody can change it from outside.
    pub fn private() -> Result<Self, LedgerError> {
        let ledger_file = LedgerFile::private().map_err(|error| LedgerError::System {
            path: std::path::PathBuf::new(),
            doing: "get memory for a ledger",
            error,
        })?;
        Ok(Self::in_row(ledger_file, 0, false))
    }

    fn in_row(ledger_file: LedgerFile, slot: usize, group: bool) -> Self {
        let own = Identity::own();
        members::enter_row(&ledger_file, slot, own);
        if group {
            Liveness::new(&ledger_file, own).reclaim_dead(Some(slot));
        }
        Self {
            file: ledger_file,
            slot,
            own,
            group,
            last_thorough: AtomicU64::new(0),
            local: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Releases everything and leaves. Without it the kernel does the same when the process ends.
    pub fn leave(self) {
        if !self.file.mapping.is_here() {
            return;
        }
        members::leave_row(&self.file, self.slot);
        for device in 0..MAX_DEVICES {
            self.wake_waiters(DeviceId(device));
        }
        if !self.group {
            let _ = std::fs::remove_file(&self.file.path);
        }
    }

    /// Whether this is the process that joined, and not a fork of it.
    pub fn is_here(&self) -> bool {
        self.file.mapping.is_here()
    }

    /// The ledger's file; empty for a private one.
    pub fn path(&self) -> &std::path::Path {
        &self.file.path
    }

    /// The words, for a device with an account.
    fn table_of(&self, device: DeviceId) -> Result<Table<'_, SharedWord>, Refusal> {
        if device == DeviceId::CLOSED {
            return Err(Refusal::Closed);
        }
        self.file.table().ok_or(Refusal::Forked)
    }

    fn local(&self, device: DeviceId) -> MutexGuard<'_, Local> {
        self.local[device.0 % MAX_DEVICES].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a device: declares the cap, and sets a little aside for tiny requests if there is room.
    pub fn open_device(&self, terms: &DeviceTerms) -> Result<DeviceId, LedgerError> {
        let table = self.file.table().ok_or(LedgerError::NotFound { wanted: "the parent process".into() })?;
        let index = table.device_of(terms.uuid, terms.physical).ok_or(LedgerError::TooManyDevices)?;
        let shared = table.device(index);
        let cell = table.cell(self.slot, index);
        let mut local = self.local(DeviceId(index));
        // An order given to the group holds for newcomers too, as long as the group is not empty in between.
        let order = (0..table.members())
            .filter(|s| table.is_owned(*s))
            .map(|s| word::Amount::unpack(table.cell(s, index).ordered.load()))
            .filter(|a| a.units != 0)
            .max_by_key(|a| a.number);
        if let Some(order) = order {
            cell.ordered.store(order.pack());
        }
        cell.declared.store(terms.cap.map_or(0, |cap| (cap / UNIT).clamp(1, MAX_UNITS)));
        let (cap, _) = admission::refresh_cap(table, index, true, |s| table.is_owned(s));
        local.warn = terms.warn;
        local.cap_seen = cap;
        local.trim_seen = shared.trim.load();
        let default = if cap == 0 { 0 } else { SET_ASIDE.min(cap * UNIT / 32) };
        local.aside_target = terms.set_aside.unwrap_or(default) / UNIT;
        let missing = local.aside_target.saturating_sub(local.aside);
        if missing != 0 && admission::take(table, self.slot, index, missing, true).is_ok() {
            local.aside += missing;
        }
        Ok(DeviceId(index))
    }
}
