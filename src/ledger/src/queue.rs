//! The queue of those who wait for memory: tickets that die with their owner.
//!
//! A member that waits draws a number and writes it into its row; the smallest number of a living, attentive member is
//! next. Nobody hands the queue on: everyone looks for itself. A member shows by a beat that it still looks; one that
//! is stopped or starved stops beating and is passed by until it beats again, so it can delay the others by
//! [`ATTENTION_MS`] and no more. It keeps its number.
//!
//! Order: the smallest number is granted first even if a later, smaller request would fit: otherwise large requests
//! starve. Requests that cannot wait are answered at once from what is free and pass the queue by: refusing them while
//! memory is free would break a job that the cap does not concern. Two requests that come within the same few
//! instructions may be granted either way. Each process stands in the queue once for each device; its threads line up
//! behind each other inside.
//!
//! It touches only the words of the table.

use crate::fault::{Fault, injected};
use crate::table::Table;
use crate::word::Word;

/// How long a member may be silent before others pass it by.
pub const ATTENTION_MS: u64 = 500;

/// Draws a number for the row.
pub fn enqueue<W: Word>(table: Table<'_, W>, slot: usize, device: usize, units: u64, now_ms: u64) -> u64 {
    let cell = table.cell(slot, device);
    cell.want.store(units);
    cell.beat.store(now_ms);
    let ticket = table.device(device).tickets.add(1).wrapping_add(1).max(1);
    cell.ticket.store(ticket);
    ticket
}

/// Steps out of the line.
pub fn dequeue<W: Word>(table: Table<'_, W>, slot: usize, device: usize) {
    table.cell(slot, device).ticket.store(0);
}

/// Whether nobody attentive has a smaller number than `ticket`.
pub fn is_first<W: Word>(table: Table<'_, W>, slot: usize, device: usize, ticket: u64, now_ms: u64) -> bool {
    if injected(Fault::NoTicketOrder) {
        return true;
    }
    (0..table.members()).filter(|s| *s != slot && table.is_owned(*s)).all(|other| {
        let cell = table.cell(other, device);
        let theirs = cell.ticket.load();
        theirs == 0 || theirs > ticket || now_ms.abs_diff(cell.beat.load()) > ATTENTION_MS
    })
}

/// Whether anybody attentive waits.
pub fn is_empty<W: Word>(table: Table<'_, W>, slot: usize, device: usize, now_ms: u64) -> bool {
    table.device(device).hint.load() == 0 || is_first(table, slot, device, u64::MAX, now_ms)
}
