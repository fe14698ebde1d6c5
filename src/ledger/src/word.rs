//! One shared 64-bit word, and how numbers are packed into it.
//!
//! The protocol is written against the trait [`Word`], so that the very same code runs on the mapped file in a job and
//! on a model checker's words in the tests. Every access is sequentially consistent: what the checker explores by
//! interleaving is then what the processor may do.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::fault;

/// A 64-bit cell that several processes read and write.
pub trait Word {
    /// Reads the word.
    fn load(&self) -> u64;
    /// Writes the word.
    fn store(&self, value: u64);
    /// Writes `new` if the word is still `old`; says whether it did.
    fn replace(&self, old: u64, new: u64) -> bool;
    /// Adds with wrap-around and gives the value before.
    fn add(&self, by: u64) -> u64;
}

/// A word of a mapped ledger.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct SharedWord(pub(crate) AtomicU64);

impl Word for SharedWord {
    #[inline]
    fn load(&self) -> u64 {
        fault::step();
        self.0.load(SeqCst)
    }
    #[inline]
    fn store(&self, value: u64) {
        fault::step();
        self.0.store(value, SeqCst);
    }
    #[inline]
    fn replace(&self, old: u64, new: u64) -> bool {
        fault::step();
        self.0.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
    }
    #[inline]
    fn add(&self, by: u64) -> u64 {
        fault::step();
        self.0.fetch_add(by, SeqCst)
    }
}

/// The unit of account: amounts are rounded up to it and caps down, so that rounding never passes a cap.
pub const UNIT: u64 = 512;
/// The largest amount a packed word can hold, in units: 32 TiB.
pub const MAX_UNITS: u64 = (1 << 36) - 1;
const TAG_BITS: u32 = 28;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;

/// Bytes rounded up to whole units.
#[inline]
pub fn units_up(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT)
}

/// An amount and the number of the change that made it so, in one word: 36 bits of units, 28 of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Units of [`UNIT`] bytes.
    pub units: u64,
    /// How many changes there have been, modulo 2^28.
    pub number: u64,
}

impl Amount {
    /// Unpacks a word.
    #[inline]
    pub fn unpack(word: u64) -> Self {
        Self { units: word >> TAG_BITS, number: word & TAG_MASK }
    }
    /// Packs into a word.
    #[inline]
    pub fn pack(self) -> u64 {
        (self.units.min(MAX_UNITS) << TAG_BITS) | (self.number & TAG_MASK)
    }
    /// The state after the next change.
    #[inline]
    #[must_use]
    pub fn next(self, units: u64) -> Self {
        Self { units, number: (self.number + 1) & TAG_MASK }
    }
}

const SEQ_BITS: u32 = 15;
const SLOT_BITS: u32 = 9;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// The most rows a ledger can have: what fits into the 9 bits of a [`Sum`].
pub const MAX_MEMBERS: usize = 1 << SLOT_BITS;

/// The sum over all members and who changed it last: 36 bits of units, 4 of cap fence, 9 of row, 15 of change number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Units held by all members together.
    pub units: u64,
    /// Turned on by one whenever the cap changes, so that a decision taken under the old cap fails.
    pub fence: u64,
    /// The row whose change was the last.
    pub slot: usize,
    /// The low bits of that change's number.
    pub seq: u64,
}

impl Sum {
    /// Unpacks a word.
    #[inline]
    pub fn unpack(word: u64) -> Self {
        Self {
            units: word >> TAG_BITS,
            fence: (word >> (SEQ_BITS + SLOT_BITS)) & 0xF,
            slot: ((word >> SEQ_BITS) & SLOT_MASK) as usize,
            seq: word & SEQ_MASK,
        }
    }
    /// Packs into a word.
    #[inline]
    pub fn pack(self) -> u64 {
        (self.units.min(MAX_UNITS) << TAG_BITS)
            | ((self.fence & 0xF) << (SEQ_BITS + SLOT_BITS))
            | ((self.slot as u64 & SLOT_MASK) << SEQ_BITS)
            | (self.seq & SEQ_MASK)
    }
    /// Whether `number` is the change this sum speaks of.
    #[inline]
    pub fn is_change(self, number: u64) -> bool {
        self.seq == number & SEQ_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packing_keeps_everything(units in 0..=MAX_UNITS, number in 0..=TAG_MASK, fence in 0u64..16, slot in 0..MAX_MEMBERS) {
            let amount = Amount { units, number };
            prop_assert_eq!(Amount::unpack(amount.pack()), amount);
            let sum = Sum { units, fence, slot, seq: number & SEQ_MASK };
            prop_assert_eq!(Sum::unpack(sum.pack()), sum);
        }
    }

    #[test]
    fn change_numbers_wrap_without_touching_the_amount() {
        let last = Amount { units: 7, number: TAG_MASK };
        assert_eq!(last.next(9), Amount { units: 9, number: 0 });
        assert!(Sum { units: 0, fence: 0, slot: 0, seq: 0 }.is_change(last.next(9).number));
    }
}
