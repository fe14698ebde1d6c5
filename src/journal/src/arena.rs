//! Interning: strings, operations, Python lines and native stacks are stored once and known by small numbers.
//! Append-only and lock-free; works only on the words it is given.
//!
//! An item is a header word (CRC32C, kind, length) and its words. Items start at even words; an id is that place
//! divided by two. A hash index of (hash, id) words finds an item again. Two threads that store the same item at the
//! same moment may store it twice; only one of them gets into the index.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{UNIT_WORDS, crc_words};

/// What an item is. Numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Item {
    /// UTF-8 text (not checked); the length is in bytes.
    Text = 1,
    /// An operation: ids of name, region and shape, and a data type.
    Op = 2,
    /// A Python line: ids of file and function, and a line number.
    Line = 3,
    /// Python lines, innermost first: their ids.
    Python = 4,
    /// A native stack, innermost first: addresses.
    Stack = 5,
    /// What the library chose: ids of subject and text.
    Note = 6,
    /// A node of a graph: ids of its name and of the Python lines that made it.
    Node = 7,
}

/// Longest item in words; longer ones are cut.
pub(crate) const LONGEST: usize = 512;
/// Longest text in words; longer ones are cut.
pub(crate) const LONGEST_TEXT: usize = 128;
const LONGEST_PROBE: usize = 64;

/// Kind and length, as they stand in the upper half of the header word.
fn meta(kind: Item, length: usize) -> u64 {
    (kind as u64) << 56 | (length as u64 & 0xff_ffff) << 32
}

/// The header word of an item.
pub(crate) fn header(kind: Item, length: usize, words: &[u64]) -> u64 {
    let meta = meta(kind, length);
    meta | u64::from(crc32c::crc32c_append(crc_words(words), &(meta >> 32).to_le_bytes()))
}

/// Kind and length (bytes for text, else words) that a header word claims.
pub(crate) fn claims(header: u64) -> (u8, usize) {
    ((header >> 56) as u8, (header >> 32 & 0xff_ffff) as usize)
}

/// An arena and its index, on words of the mapping. The first unit holds the end of the used part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arena {
    data: &'static [AtomicU64],
    index: &'static [AtomicU64],
}

impl Arena {
    pub(crate) fn new(data: &'static [AtomicU64], index: &'static [AtomicU64]) -> Self {
        Self { data, index }
    }

    /// The id of this item, stored now if it was not there; 0 when there is no room.
    pub(crate) fn intern(&self, kind: Item, length: usize, words: &[u64]) -> u32 {
        let words = words.get(..LONGEST).unwrap_or(words);
        let meta = meta(kind, length);
        let hash = hash_of(meta, words);
        let mask = self.index.len().wrapping_sub(1);
        let mut stored = 0;
        for step in 0..LONGEST_PROBE {
            let Some(slot) = self.index.get((hash as usize).wrapping_add(step) & mask) else {
                return 0;
            };
            let mut seen = slot.load(Ordering::Acquire);
            if seen == 0 {
                if stored == 0 {
                    stored = self.store(header(kind, length, words), words);
                }
                if stored == 0 {
                    return 0;
                }
                let entry = hash & 0xffff_ffff_0000_0000 | u64::from(stored);
                match slot.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return stored,
                    Err(other) => seen = other,
                }
            }
            if (seen ^ hash) >> 32 == 0 && self.holds(seen as u32, meta, words) {
                return seen as u32;
            }
        }
        0
    }

    fn store(&self, head: u64, words: &[u64]) -> u32 {
        let units = (1 + words.len()).div_ceil(UNIT_WORDS) as u64;
        let Some(end) = self.data.first() else {
            return 0;
        };
        // Nothing is claimed when it does not fit, so the end never runs away.
        let room = (self.data.len() / UNIT_WORDS) as u64;
        let claim = |used: u64| Some(used.max(1) + units).filter(|after| *after <= room);
        let Ok(before) = end.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim) else {
            return 0;
        };
        let unit = before.max(1);
        let start = unit as usize * UNIT_WORDS;
        let Some(place) = self.data.get(start..start + 1 + words.len()) else {
            return 0;
        };
        for (word, value) in place.iter().skip(1).zip(words) {
            word.store(*value, Ordering::Relaxed);
        }
        if let Some(first) = place.first() {
            first.store(head, Ordering::Release);
        }
        unit as u32
    }

    fn holds(&self, id: u32, meta: u64, words: &[u64]) -> bool {
        let start = id as usize * UNIT_WORDS;
        let Some(place) = self.data.get(start..start + 1 + words.len()) else {
            return false;
        };
        place.first().is_some_and(|word| word.load(Ordering::Acquire) >> 32 == meta >> 32)
            && place.iter().skip(1).zip(words).all(|(word, value)| word.load(Ordering::Relaxed) == *value)
    }

    /// Whether less than two thirds of it are used.
    pub(crate) fn has_room(&self) -> bool {
        let units = (self.data.len() / UNIT_WORDS) as u64;
        self.data.first().is_some_and(|used| used.load(Ordering::Relaxed) < units * 2 / 3)
    }

    /// Reads an item back: its length and words.
    pub(crate) fn get(&self, kind: Item, id: u32) -> Option<(usize, Vec<u64>)> {
        let start = id as usize * UNIT_WORDS;
        let head = self.data.get(start)?.load(Ordering::Acquire);
        let (found, length) = claims(head);
        let count = if kind == Item::Text { length.div_ceil(8) } else { length };
        let place = self.data.get(start + 1..start + 1 + count)?;
        let words: Vec<u64> = place.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        (id != 0 && found == kind as u8 && header(kind, length, &words) == head).then_some((length, words))
    }
}

/// A text as words, zero-filled at the end, and its length in bytes; cut to what an item holds.
pub(crate) fn text_words(text: &[u8], words: &mut [u64; LONGEST_TEXT]) -> usize {
    let text = text.get(..LONGEST_TEXT * 8).unwrap_or(text);
    for (word, chunk) in words.iter_mut().zip(text.chunks(8)) {
        let mut bytes = [0; 8];
        for (place, byte) in bytes.iter_mut().zip(chunk) {
            *place = *byte;
        }
        *word = u64::from_le_bytes(bytes);
    }
    text.len()
}

fn hash_of(meta: u64, words: &[u64]) -> u64 {
    let mut hash = meta.wrapping_add(0x517C_C1B7_2722_0A95);
    for word in words {
        hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 29;
    }
    // A multiplication moves nothing downwards, and the place is the lowest bits: without this, texts of eight bytes that differ
    // in the last ones only would all have the same.
    hash = (hash ^ hash >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // A hash of zero in the upper half is fine: ids are never zero, so no index word is.
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(units: usize) -> Arena {
        let words =
            |count: usize| -> &'static [AtomicU64] { (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak() };
        Arena::new(words(units * UNIT_WORDS), words(units.next_power_of_two()))
    }

    #[test]
    fn texts_that_differ_in_their_last_bytes_are_all_kept() {
        let arena = arena(8192);
        for number in 0..2000 {
            // Of eight bytes and of sixteen.
            for name in [format!("{number:08}"), format!("epoch of {number:07}")] {
                let mut words = [0; LONGEST_TEXT];
                let length = text_words(name.as_bytes(), &mut words);
                assert_ne!(arena.intern(Item::Text, length, &words[..length.div_ceil(8)]), 0, "{name}");
            }
        }
    }

    #[test]
    fn equal_items_have_one_id() {
        let arena = arena(1000);
        let a = arena.intern(Item::Stack, 3, &[1, 2, 3]);
        let b = arena.intern(Item::Stack, 3, &[1, 2, 4]);
        let c = arena.intern(Item::Python, 3, &[1, 2, 3]);
        assert!(a != 0 && a != b && a != c && b != c);
        assert_eq!(arena.intern(Item::Stack, 3, &[1, 2, 3]), a);
        assert_eq!(arena.get(Item::Stack, b), Some((3, vec![1, 2, 4])));
        assert_eq!(arena.get(Item::Python, b), None);
        assert_eq!(arena.get(Item::Stack, b + 1), None);
        assert_eq!(arena.get(Item::Stack, u32::MAX), None);
    }

    #[test]
    fn a_full_arena_answers_zero_and_keeps_what_it_has() {
        let arena = arena(10);
        let first = arena.intern(Item::Stack, 3, &[1, 2, 3]);
        assert!((0..100).any(|n| arena.intern(Item::Stack, 3, &[n, 0, 0]) == 0));
        assert_eq!(arena.get(Item::Stack, first), Some((3, vec![1, 2, 3])));
    }

    #[test]
    fn threads_agree_on_ids() {
        let arena = arena(100_000);
        let ids = || (0..2000_u64).map(|n| arena.intern(Item::Stack, 2, &[n, n * n])).collect::<Vec<_>>();
        let (a, b) = std::thread::scope(|scope| {
            let other = scope.spawn(ids);
            (ids(), other.join().unwrap())
        });
        assert_eq!(a, b);
    }

    #[test]
    fn text_is_kept_to_the_byte() {
        let arena = arena(1000);
        for text in ["", "a", "12345678", "123456789", "gradient_tape/sequential_1/dense_1/MatMul"] {
            let mut words = [0; LONGEST_TEXT];
            let length = text_words(text.as_bytes(), &mut words);
            let id = arena.intern(Item::Text, length, &words[..length.div_ceil(8)]);
            let (length, words) = arena.get(Item::Text, id).unwrap();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
            assert_eq!(bytes, text.as_bytes());
        }
    }
}
