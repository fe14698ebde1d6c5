//! What the command needs: find the ledgers of this user, show who holds what, order another cap while jobs run.
//!
//! A visitor has no row and takes nothing. It touches the ledger's words and files, read-only but for orders.

use std::fs;

use crate::admission;
use crate::directory::LedgerDir;
use crate::file::{LedgerError, LedgerFile, group_path, home_of, process_in_name, remove_empty};
use crate::map;
use crate::members::{Identity, Liveness};
use crate::table::{CATEGORIES, GROUP_MEMBERS, MAX_DEVICES, Table};
use crate::word::{self, MAX_UNITS, SharedWord, UNIT, Word};
use weir_settings::size::Amount;

/// Whose ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The group of this name.
    Group(String),
    /// The process of this id, with a cap of its own.
    Process(u32),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Group(name) => write!(f, "group {name}"),
            Self::Process(pid) => write!(f, "process {pid}"),
        }
    }
}

/// A living member and what it holds on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Process id (in its own pid namespace).
    pub pid: u32,
    /// Bytes charged.
    pub charged: u64,
    /// The most that ever was.
    pub peak: u64,
    /// Bytes by [`crate::Category`].
    pub by_category: [u64; CATEGORIES],
    /// Bytes it waits for, if it waits.
    pub waits_for: Option<u64>,
    /// The cap it was given.
    pub declared: Option<u64>,
}

/// One device of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// The device.
    pub uuid: [u8; 16],
    /// Physical bytes.
    pub physical: u64,
    /// The cap in force.
    pub cap: Option<u64>,
    /// Whether that cap was ordered while the jobs ran.
    pub ordered: bool,
    /// Bytes charged to all.
    pub used: u64,
    /// The most that ever was.
    pub peak: u64,
    /// How often the sum had to be corrected: 0 unless the file was damaged.
    pub repairs: u64,
    /// Who holds them.
    pub holdings: Vec<Holding>,
}

/// A ledger, visited.
pub struct Visit {
    /// Whose it is.
    pub target: Target,
    ledger_file: LedgerFile,
}

/// All ledgers of this user in which somebody lives.
pub fn list(place: &LedgerDir) -> Vec<Visit> {
    let mut found = Vec::new();
    let entries = [place].into_iter().chain(place.others()).filter_map(|place| fs::read_dir(place.path()).ok());
    for entry in entries.flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let (target, members) = if let Some(pid) = process_in_name(name) {
            (Target::Process(pid), 1)
        } else if let Some(group) = name.strip_prefix("group-").and_then(|n| n.strip_suffix(".ledger")) {
            (Target::Group(group.to_owned()), GROUP_MEMBERS)
        } else {
            continue;
        };
        if let Ok(ledger_file) = LedgerFile::visit(&entry.path(), members) {
            let visit = Visit { target, ledger_file };
            if !visit.living().is_empty() {
                found.push(visit);
            }
        }
    }
    found.sort_by_key(|v| v.target.to_string());
    found
}

/// The ledger of a process or a group. A process that is in a group is found in the group's ledger.
pub fn find(place: &LedgerDir, target: &Target) -> Result<Visit, LedgerError> {
    match target {
        Target::Group(name) => {
            let ledger_file =
                LedgerFile::visit(&group_path(home_of(place, name), name), GROUP_MEMBERS).map_err(|e| match e {
                    LedgerError::NotFound { .. } => LedgerError::NotFound { wanted: target.to_string() },
                    other => other,
                })?;
            Ok(Visit { target: target.clone(), ledger_file })
        }
        Target::Process(pid) => list(place)
            .into_iter()
            .find(|v| v.target == *target || v.living().iter().any(|(_, p)| p == pid))
            .ok_or_else(|| LedgerError::NotFound { wanted: target.to_string() }),
    }
}

/// Removes the ledger of a group without a living member; true if it is gone.
pub fn remove_group(place: &LedgerDir, name: &str) -> bool {
    remove_empty(&group_path(place, name))
}

impl Visit {
    fn table(&self) -> Option<Table<'_, SharedWord>> {
        self.ledger_file.table()
    }

    /// Rows and process ids of those who live.
    fn living(&self) -> Vec<(usize, u32)> {
        let Some(table) = self.table() else {
            return Vec::new();
        };
        let liveness = Liveness::new(&self.ledger_file, Identity::own());
        (0..table.members())
            .filter(|s| table.is_owned(*s) && !liveness.is_dead(*s))
            .map(|s| (s, table.owner(s).pid.load() as u32))
            .collect()
    }

    /// The state of every device that somebody opened. What dead members held is released first.
    pub fn devices(&self) -> Vec<DeviceState> {
        let Some(table) = self.table() else {
            return Vec::new();
        };
        Liveness::new(&self.ledger_file, Identity::own()).reclaim_dead(None);
        let living = self.living();
        (0..MAX_DEVICES)
            .filter_map(|index| {
                let uuid = table.uuid_at(index)?;
                let (cap, _) = admission::refresh_cap(table, index, false, |s| table.is_owned(s));
                let shared = table.device(index);
                let some = |units: u64| (units != 0).then_some(units.min(MAX_UNITS) * UNIT);
                let holdings = living.iter().map(|(slot, pid)| {
                    let cell = table.cell(*slot, index);
                    Holding {
                        pid: *pid,
                        charged: admission::held(table, *slot, index) * UNIT,
                        peak: cell.peak.load().min(MAX_UNITS) * UNIT,
                        by_category: std::array::from_fn(|c| cell.categories.get(c).map_or(0, Word::load)),
                        waits_for: (cell.ticket.load() != 0).then(|| cell.want.load().min(MAX_UNITS) * UNIT),
                        declared: some(cell.declared.load()),
                    }
                });
                let ordered = living.iter().any(|(s, _)| table.cell(*s, index).ordered.load() != 0);
                Some(DeviceState {
                    uuid,
                    physical: shared.physical.load(),
                    cap: some(cap),
                    ordered,
                    used: word::Sum::unpack(shared.sum.load()).units * UNIT,
                    peak: shared.peak.load().min(MAX_UNITS) * UNIT,
                    repairs: shared.repairs.load(),
                    holdings: holdings.collect(),
                })
            })
            .collect()
    }

    /// Orders another cap for a device, in force when this returns. Gives it in bytes; `None` when nobody living has
    /// opened the device or the amount is no cap (0).
    pub fn order_cap(&self, uuid: [u8; 16], amount: Amount) -> Option<u64> {
        let table = self.table()?;
        let index = (0..MAX_DEVICES).find(|d| table.uuid_at(*d) == Some(uuid))?;
        let shared = table.device(index);
        let physical = shared.physical.load();
        let units = amount.of(physical).min(physical) / UNIT;
        let living = self.living();
        if units == 0 || living.is_empty() {
            return None;
        }
        let latest = (0..table.members())
            .map(|s| word::Amount::unpack(table.cell(s, index).ordered.load()).number)
            .max()
            .unwrap_or(0);
        let order = word::Amount { units, number: latest }.next(units);
        for (slot, _) in living {
            table.cell(slot, index).ordered.store(order.pack());
        }
        admission::refresh_cap(table, index, true, |s| table.is_owned(s));
        // More room wakes those who wait; less is seen by everybody at the next request.
        shared.trim.add(1);
        shared.hint.store(0);
        shared.wake.add(1);
        map::wake_all(shared.wake);
        Some(units * UNIT)
    }
}
