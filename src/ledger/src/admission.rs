//! The admission protocol: who may take how much, exactly, with members that may die or halt at any instruction.
//!
//! It is lock-free. A change of what a member holds goes through three steps:
//!
//! 1. **announce**: the member writes the new amount and the change's number into its own row;
//! 2. **decide**: one compare-and-swap on the device's sum adds the difference and names row and number; it happens
//!    or it does not, and the cap is checked against exactly the sum that is replaced;
//! 3. **note**: the new amount is copied into the row's `held`.
//!
//! Whoever comes next and finds a sum that names a change not yet noted, notes it first. So a member that dies or is
//! halted between 2 and 3 leaves nothing behind: `held` of all rows adds up to the sum before every decision. What a
//! dead member held is released in its name by the same three steps. Numbers make every step harmless when it is
//! done twice or too late.
//!
//! A changed cap turns the fence in the sum, so a decision prepared under the old cap fails and is taken anew.
//!
//! This file touches only the words of the table.

use crate::fault::{Fault, injected};
use crate::table::Table;
use crate::word::{Amount, MAX_UNITS, Sum, Word};

/// Why a change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The sum would pass the cap; so much is free now, in units.
    Full {
        /// Units under the cap.
        free: u64,
    },
    /// The amount is beyond what a ledger can count.
    Absurd,
}

/// What a change led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The sum of all members after it, in units.
    pub sum: u64,
    /// The cap it was checked against, in units; 0 is none.
    pub cap: u64,
}

/// Makes the change that the sum names last visible in its row, if that has not happened yet.
#[inline]
fn note_last<W: Word>(table: Table<'_, W>, device: usize, sum: Sum) {
    if injected(Fault::NoHelp) || sum.slot >= table.members() {
        return;
    }
    let cell = table.cell(sum.slot, device);
    let held = Amount::unpack(cell.held.load());
    if sum.is_change(held.number) {
        return;
    }
    let announced = Amount::unpack(cell.announced.load());
    let next = held.next(announced.units);
    if next.number == announced.number && sum.is_change(next.number) {
        cell.held.replace(held.pack(), next.pack());
    }
}

/// What a row holds on a device, in units.
pub fn held<W: Word>(table: Table<'_, W>, slot: usize, device: usize) -> u64 {
    note_last(table, device, Sum::unpack(table.device(device).sum.load()));
    Amount::unpack(table.cell(slot, device).held.load()).units
}

/// Takes `units` more for the row. Only the row's owner may call it, one thread at a time.
pub fn take<W: Word>(
    table: Table<'_, W>,
    slot: usize,
    device: usize,
    units: u64,
    check_cap: bool,
) -> Result<Admitted, Refused> {
    let shared = table.device(device);
    let cell = table.cell(slot, device);
    loop {
        let word = shared.sum.load();
        let sum = Sum::unpack(word);
        note_last(table, device, sum);
        let in_force = Amount::unpack(shared.cap.load());
        if sum.fence != in_force.number & 0xF && !injected(Fault::NoCapFence) {
            turn_fence(table, device); // whoever changed the cap has not come to it
            continue;
        }
        let cap = in_force.units;
        if units > MAX_UNITS {
            return Err(Refused::Absurd);
        }
        let new_sum = sum.units + units;
        if new_sum > MAX_UNITS {
            // More than any device has: the sum is damaged, and an audit will say so.
            return Err(Refused::Full { free: 0 });
        }
        if check_cap && cap != 0 && new_sum > cap {
            return Err(Refused::Full { free: cap.saturating_sub(sum.units) });
        }
        let held = Amount::unpack(cell.held.load());
        let new = held.next((held.units + units).min(MAX_UNITS));
        if decide(table, slot, device, word, new, new_sum) {
            raise(shared.peak, new_sum);
            raise(cell.peak, new.units);
            return Ok(Admitted { sum: new_sum, cap });
        }
    }
}

/// Releases `units` of the row, at most what it holds; returns how many these were, and the sum after it.
pub fn release<W: Word>(table: Table<'_, W>, slot: usize, device: usize, units: u64) -> (u64, u64) {
    let shared = table.device(device);
    let cell = table.cell(slot, device);
    loop {
        let word = shared.sum.load();
        let sum = Sum::unpack(word);
        note_last(table, device, sum);
        let held = Amount::unpack(cell.held.load());
        let units = units.min(held.units);
        let new_sum = sum.units.saturating_sub(units);
        if units == 0 {
            return (0, new_sum);
        }
        if decide(table, slot, device, word, held.next(held.units - units), new_sum) {
            return (units, new_sum);
        }
    }
}

/// Announces, decides and notes a change of the caller's own row against the sum `word`.
#[inline]
fn decide<W: Word>(table: Table<'_, W>, slot: usize, device: usize, word: u64, new: Amount, new_sum: u64) -> bool {
    let shared = table.device(device);
    let cell = table.cell(slot, device);
    cell.announced.store(new.pack());
    let next = Sum { units: new_sum, fence: Sum::unpack(word).fence, slot, seq: new.number }.pack();
    if injected(Fault::SplitAdmission) {
        std::thread::yield_now();
        shared.sum.store(next);
    } else if !shared.sum.replace(word, next) {
        return false;
    }
    // Another member may have noted it already: then this does nothing.
    let before = cell.held.load();
    if Amount::unpack(before).next(new.units) == new {
        cell.held.replace(before, new.pack());
    }
    true
}

/// Releases all that a dead member held on a device. `dead` is called after the row was read: a member that is dead
/// then cannot have changed it since, and a new owner of the row first does this very thing itself.
///
/// Returns how many units came free by this call.
pub fn reclaim<W: Word>(table: Table<'_, W>, slot: usize, device: usize, dead: impl Fn() -> bool) -> u64 {
    let shared = table.device(device);
    let cell = table.cell(slot, device);
    let (held_word, held, empty) = loop {
        note_last(table, device, Sum::unpack(shared.sum.load()));
        let held_word = cell.held.load();
        let announced = cell.announced.load();
        let held = Amount::unpack(held_word);
        if held.units == 0 || !dead() {
            return 0;
        }
        // Its last change may have been decided after the row was read and before it died: then that one counts.
        if !injected(Fault::NoSecondLook) {
            note_last(table, device, Sum::unpack(shared.sum.load()));
            if cell.held.load() != held_word {
                continue;
            }
        }
        let empty = held.next(0);
        if announced == empty.pack() || cell.announced.replace(announced, empty.pack()) {
            break (held_word, held, empty);
        }
        // Another member reclaims it as well, or the row has a new owner: look again.
    };
    loop {
        let word = shared.sum.load();
        let sum = Sum::unpack(word);
        note_last(table, device, sum);
        if cell.held.load() != held_word {
            return 0; // another has done it
        }
        let next = Sum { units: sum.units.saturating_sub(held.units), fence: sum.fence, slot, seq: empty.number };
        if shared.sum.replace(word, next.pack()) {
            cell.held.replace(held_word, empty.pack());
            return held.units;
        }
    }
}

/// Brings the cap in force up to date with what the members were given and what was ordered since.
///
/// The cap is the latest ordered one, else the smallest that any member was given, else none. `counts` says whether
/// a row has an owner. `publish` is for those who have just written into their row: it makes a concurrent refresh,
/// which may have read the rows before, fail and look again. Gives the cap in units (0: none) and whether it changed.
pub fn refresh_cap<W: Word>(
    table: Table<'_, W>,
    device: usize,
    publish: bool,
    counts: impl Fn(usize) -> bool,
) -> (u64, bool) {
    let shared = table.device(device);
    loop {
        let word = shared.cap.load();
        let old = Amount::unpack(word);
        let mut smallest = 0;
        let mut ordered = Amount { units: 0, number: 0 };
        for slot in (0..table.members()).filter(|s| counts(*s)) {
            let cell = table.cell(slot, device);
            let declared = cell.declared.load().min(MAX_UNITS);
            if declared != 0 && (smallest == 0 || declared < smallest) {
                smallest = declared;
            }
            let order = Amount::unpack(cell.ordered.load());
            if order.units != 0 && (ordered.units == 0 || order.number > ordered.number) {
                ordered = order;
            }
        }
        let cap = if ordered.units == 0 { smallest } else { ordered.units };
        if old.units == cap && !publish {
            return (cap, false);
        }
        if shared.cap.replace(word, old.next(cap).pack()) {
            turn_fence(table, device);
            return (cap, old.units != cap);
        }
    }
}

/// Makes every decision fail that was prepared under an earlier version of the cap.
fn turn_fence<W: Word>(table: Table<'_, W>, device: usize) {
    if injected(Fault::NoCapFence) {
        return;
    }
    let shared = table.device(device);
    loop {
        let word = shared.sum.load();
        let sum = Sum::unpack(word);
        let version = Amount::unpack(shared.cap.load()).number & 0xF;
        if sum.fence == version || shared.sum.replace(word, Sum { fence: version, ..sum }.pack()) {
            return;
        }
    }
}

/// Compares the sum with the rows and corrects it if they differ, which only a damaged file can bring about.
///
/// Exact: when the sum's word is the same before and after the rows were read, no change was decided in between.
pub fn audit<W: Word>(table: Table<'_, W>, device: usize) -> bool {
    let shared = table.device(device);
    for _ in 0..8 {
        let word = shared.sum.load();
        let sum = Sum::unpack(word);
        note_last(table, device, sum);
        let rows: u64 =
            (0..table.members()).map(|slot| Amount::unpack(table.cell(slot, device).held.load()).units).sum();
        if shared.sum.load() != word {
            continue;
        }
        if rows == sum.units {
            return true;
        }
        if shared.sum.replace(word, Sum { units: rows, ..sum }.pack()) {
            shared.repairs.add(1);
            return false;
        }
    }
    true
}

/// Raises a high-water mark.
#[inline]
fn raise<W: Word>(mark: &W, value: u64) {
    loop {
        let seen = mark.load();
        if seen >= value || mark.replace(seen, value) {
            return;
        }
    }
}
