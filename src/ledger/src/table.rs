//! Where each word of a ledger is: header, devices, and one row for each member with a cell for each device.
//!
//! Everything is an array of 64-bit words with fixed counts. No count or offset is ever read from the file: a row
//! number found in a shared word is checked before it is used. It touches nothing but the words it is given.
//!
//! ```text
//! header   16 words    magic, version, members, devices, check
//! devices  16 x 16     key, uuid, physical bytes, SUM, CAP, wake, hint, tickets, peak, trim, repairs
//! rows     n x (8 + 16 x 16)
//!          owner, start, namespace
//!          per device: HELD, ANNOUNCED, declared cap, ordered cap, ticket, want, beat, peak, 8 categories
//! ```

use crate::word::{MAX_MEMBERS, Word};

/// Devices that one ledger can account for.
pub const MAX_DEVICES: usize = 16;
/// Rows in the ledger of a group.
pub const GROUP_MEMBERS: usize = 256;
/// Categories of use kept for each member and device, spilled bytes being the last.
pub const CATEGORIES: usize = 8;

const HEADER: usize = 16;
const DEVICE: usize = 16;
const ROW_HEAD: usize = 8;
const CELL: usize = 8 + CATEGORIES;
const ROW: usize = ROW_HEAD + MAX_DEVICES * CELL;

const MAGIC: u64 = u64::from_le_bytes(*b"weirldgr");
const VERSION: u64 = 1;

/// How many words a ledger of so many rows takes.
pub const fn words_for(members: usize) -> usize {
    HEADER + MAX_DEVICES * DEVICE + members * ROW
}

/// The words of the header of a new ledger.
pub fn header(members: usize) -> [u64; 5] {
    let fields = [MAGIC, VERSION, members as u64, MAX_DEVICES as u64];
    let check = fields.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, f| (h ^ f).wrapping_mul(0x0100_0000_01b3));
    [fields[0], fields[1], fields[2], fields[3], check]
}

/// A ledger's words with names.
pub struct Table<'a, W> {
    words: &'a [W],
    members: usize,
}

impl<W> Clone for Table<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<W> Copy for Table<'_, W> {}

/// The words of one device that all members share.
pub struct DeviceWords<'a, W> {
    /// Hash of the UUID; 0 while the entry is free.
    pub key: &'a W,
    /// First half of the UUID.
    pub uuid_high: &'a W,
    /// Second half of the UUID.
    pub uuid_low: &'a W,
    /// Physical bytes of the device.
    pub physical: &'a W,
    /// The packed [`crate::word::Sum`].
    pub sum: &'a W,
    /// The cap in force: units and version; 0 units is no cap.
    pub cap: &'a W,
    /// Counts wake-ups; those who wait sleep on it.
    pub wake: &'a W,
    /// Not 0 when somebody may sleep on `wake`.
    pub hint: &'a W,
    /// Tickets handed out.
    pub tickets: &'a W,
    /// The highest sum ever, in units.
    pub peak: &'a W,
    /// Counts requests that found no room: asks the others to trim what they keep in reserve.
    pub trim: &'a W,
    /// Counts corrections of the sum: 0 unless the file was damaged.
    pub repairs: &'a W,
}

/// The words of one member on one device.
pub struct CellWords<'a, W> {
    /// What the member holds, packed [`crate::word::Amount`].
    pub held: &'a W,
    /// What it is about to hold, with the number of that change.
    pub announced: &'a W,
    /// The cap it was given, in units; 0 is none.
    pub declared: &'a W,
    /// The cap ordered while it ran: units and stamp; 0 is none.
    pub ordered: &'a W,
    /// Its place in the queue; 0 when it does not wait.
    pub ticket: &'a W,
    /// Units it waits for.
    pub want: &'a W,
    /// When it last looked at the queue, in milliseconds of the monotonic clock.
    pub beat: &'a W,
    /// The most it ever held, in units.
    pub peak: &'a W,
    /// Bytes by category, for display.
    pub categories: &'a [W],
}

/// Who a row belongs to.
pub struct OwnerWords<'a, W> {
    /// Low half: process id, 0 while the row is free. High half: how many owners the row has had.
    pub pid: &'a W,
    /// Start time of the process in clock ticks since boot.
    pub start: &'a W,
    /// Inode of its pid namespace: a pid means nothing in another one.
    pub namespace: &'a W,
}

impl<'a, W: Word> Table<'a, W> {
    /// Names the words; `None` when there are too few of them or too many members.
    pub fn new(words: &'a [W], members: usize) -> Option<Self> {
        (members > 0 && members <= MAX_MEMBERS && words.len() >= words_for(members)).then_some(Self { words, members })
    }

    /// Rows in this ledger.
    pub fn members(self) -> usize {
        self.members
    }

    /// Whether the header is that of this format and size.
    pub fn header_is_ours(self) -> bool {
        header(self.members).iter().zip(self.words).all(|(want, word)| word.load() == *want)
    }

    /// Writes the header of a new ledger.
    pub fn write_header(self) {
        for (value, word) in header(self.members).iter().zip(self.words) {
            word.store(*value);
        }
    }

    /// The shared words of a device; numbers past the last are taken modulo the table.
    #[inline]
    pub fn device(self, device: usize) -> DeviceWords<'a, W> {
        let at = HEADER + (device % MAX_DEVICES) * DEVICE;
        let w = &self.words[at..at + DEVICE];
        DeviceWords {
            key: &w[0],
            uuid_high: &w[1],
            uuid_low: &w[2],
            physical: &w[3],
            sum: &w[4],
            cap: &w[5],
            wake: &w[6],
            hint: &w[7],
            tickets: &w[8],
            peak: &w[9],
            trim: &w[10],
            repairs: &w[11],
        }
    }

    #[inline]
    fn row(self, slot: usize) -> &'a [W] {
        let at = HEADER + MAX_DEVICES * DEVICE + (slot % self.members) * ROW;
        &self.words[at..at + ROW]
    }

    /// The owner words of a row.
    #[inline]
    pub fn owner(self, slot: usize) -> OwnerWords<'a, W> {
        let w = self.row(slot);
        OwnerWords { pid: &w[0], start: &w[1], namespace: &w[2] }
    }

    /// Whether a row has an owner, alive or not yet buried.
    #[inline]
    pub fn is_owned(self, slot: usize) -> bool {
        self.owner(slot).pid.load() as u32 != 0
    }

    /// The words of a member on a device.
    #[inline]
    pub fn cell(self, slot: usize, device: usize) -> CellWords<'a, W> {
        let at = ROW_HEAD + (device % MAX_DEVICES) * CELL;
        let w = &self.row(slot)[at..at + CELL];
        CellWords {
            held: &w[0],
            announced: &w[1],
            declared: &w[2],
            ordered: &w[3],
            ticket: &w[4],
            want: &w[5],
            beat: &w[6],
            peak: &w[7],
            categories: &w[8..],
        }
    }

    /// The entry of the device with this UUID, taken if nobody has yet; `None` when all entries are taken.
    pub fn device_of(self, uuid: [u8; 16], physical: u64) -> Option<usize> {
        let (high, low) = halves(uuid);
        let key = key_of(uuid);
        for index in 0..MAX_DEVICES {
            let entry = self.device(index);
            let seen = entry.key.load();
            if seen != key && (seen != 0 || (!entry.key.replace(0, key) && entry.key.load() != key)) {
                continue;
            }
            // Whoever has the same key writes the same values: it does not matter who lives to do it.
            entry.uuid_high.store(high);
            entry.uuid_low.store(low);
            if physical != 0 {
                entry.physical.store(physical);
            }
            return Some(index);
        }
        None
    }

    /// The UUID in an entry; `None` when it is free.
    pub fn uuid_at(self, device: usize) -> Option<[u8; 16]> {
        let entry = self.device(device);
        if entry.key.load() == 0 {
            return None;
        }
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&entry.uuid_high.load().to_be_bytes());
        uuid[8..].copy_from_slice(&entry.uuid_low.load().to_be_bytes());
        Some(uuid)
    }
}

fn halves(uuid: [u8; 16]) -> (u64, u64) {
    let whole = u128::from_be_bytes(uuid);
    ((whole >> 64) as u64, whole as u64)
}

/// A hash that is never 0. Two devices of one machine with the same 64 bits are not to be expected.
fn key_of(uuid: [u8; 16]) -> u64 {
    let (high, low) = halves(uuid);
    let mixed = (high ^ low.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ low;
    mixed.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::SharedWord;

    #[test]
    fn devices_are_found_by_uuid_and_the_table_can_fill_up() {
        let words: Vec<SharedWord> = (0..words_for(1)).map(|_| SharedWord::default()).collect();
        let table = Table::new(&words, 1).unwrap();
        for round in 0..2 {
            for n in 0..MAX_DEVICES {
                assert_eq!(table.device_of([n as u8; 16], 5), Some(n), "round {round}");
                assert_eq!(table.uuid_at(n), Some([n as u8; 16]));
            }
        }
        assert_eq!(table.device_of([99; 16], 5), None);
    }

    #[test]
    fn a_table_is_refused_when_words_are_missing() {
        let words: Vec<SharedWord> = (0..words_for(2) - 1).map(|_| SharedWord::default()).collect();
        assert!(Table::new(&words, 2).is_none());
        assert!(Table::new(&words, 0).is_none());
        assert!(Table::new(&words, 1).is_some());
    }
}
