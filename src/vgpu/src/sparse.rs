//! A very long array of numbers of which little is ever used: address space is taken, memory only
//! for the pages that are written. Gives the heap constant-time tables indexed by address.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// A fixed-length array of zeroes that costs memory only where it is written.
pub(crate) struct Sparse<T: Copy> {
    base: NonNull<u8>,
    len: usize,
    item: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone and is only reached through it.
unsafe impl<T: Copy + Send> Send for Sparse<T> {}

impl<T: Copy> Sparse<T> {
    /// `len` items, all zero. `T` must be a plain number, for which zero bytes are a value.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?.max(1);
        // SAFETY: a fresh anonymous mapping; nothing else knows its address.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return None;
        }
        Some(Self { base: NonNull::new(base.cast())?, len, item: PhantomData })
    }

    pub(crate) fn get(&self, index: usize) -> T {
        assert!(index < self.len);
        // SAFETY: in bounds, and every byte pattern of a number is valid.
        unsafe { self.base.cast::<T>().add(index).read() }
    }

    pub(crate) fn set(&mut self, index: usize, value: T) {
        assert!(index < self.len);
        // SAFETY: in bounds of a mapping that only this value reaches.
        unsafe { self.base.cast::<T>().add(index).write(value) }
    }
}

impl<T: Copy> Drop for Sparse<T> {
    fn drop(&mut self) {
        let bytes = (self.len * size_of::<T>()).max(1);
        // SAFETY: exactly the mapping that `new` made.
        unsafe { libc::munmap(self.base.as_ptr().cast(), bytes) };
    }
}

/// A set of small numbers that finds the greatest member not above a given one in constant time.
pub(crate) struct BitSet {
    levels: Vec<Sparse<u64>>,
}

impl BitSet {
    pub(crate) fn new(len: usize) -> Option<Self> {
        let mut levels = Vec::new();
        let mut words = len.div_ceil(64);
        loop {
            levels.push(Sparse::new(words)?);
            if words <= 1 {
                return Some(Self { levels });
            }
            words = words.div_ceil(64);
        }
    }

    pub(crate) fn insert(&mut self, index: usize) {
        let mut i = index;
        for level in &mut self.levels {
            let word = level.get(i / 64);
            level.set(i / 64, word | 1 << (i % 64));
            if word != 0 {
                return;
            }
            i /= 64;
        }
    }

    pub(crate) fn remove(&mut self, index: usize) {
        let mut i = index;
        for level in &mut self.levels {
            let word = level.get(i / 64) & !(1 << (i % 64));
            level.set(i / 64, word);
            if word != 0 {
                return;
            }
            i /= 64;
        }
    }

    /// The greatest member that is at most `index`.
    pub(crate) fn at_or_below(&self, index: usize) -> Option<usize> {
        let mut i = index;
        let mut inclusive = true;
        for (depth, level) in self.levels.iter().enumerate() {
            let bit = i % 64;
            let mask = match (inclusive, bit) {
                (true, 63) => u64::MAX,
                (true, b) => (1 << (b + 1)) - 1,
                (false, b) => (1 << b) - 1,
            };
            let word = level.get(i / 64) & mask;
            if word != 0 {
                let mut found = i / 64 * 64 + 63 - word.leading_zeros() as usize;
                for below in self.levels[..depth].iter().rev() {
                    found = found * 64 + 63 - below.get(found).leading_zeros() as usize;
                }
                return Some(found);
            }
            i /= 64;
            inclusive = false;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predecessor_agrees_with_a_sorted_set() {
        let mut bits = BitSet::new(100_000).unwrap();
        let mut truth = std::collections::BTreeSet::new();
        let mut x = 1u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let i = (x >> 33) as usize % 100_000;
            if x & 1 == 0 {
                bits.insert(i);
                truth.insert(i);
            } else {
                bits.remove(i);
                truth.remove(&i);
            }
            let q = (x >> 20) as usize % 100_000;
            assert_eq!(bits.at_or_below(q), truth.range(..=q).next_back().copied());
        }
    }
}
