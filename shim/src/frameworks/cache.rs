//! From what was seen to the id under which the journal knows it, without a lock.
//!
//! One word an entry: 42 bits of the key's hash and 22 bits of value, so an entry is never half written. A set of
//! eight is one cache line. What is evicted is found again by interning it anew.

use core::sync::atomic::{AtomicU64, Ordering};

const VALUE_BITS: u32 = 22;
const WAYS: usize = 8;

#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

/// A table of `SETS` (a power of two, at most 2^22) times eight entries.
pub(crate) struct Cache<const SETS: usize>([Set; SETS]);

impl<const SETS: usize> Cache<SETS> {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        const { assert!(SETS.is_power_of_two() && SETS <= 1 << VALUE_BITS) };
        Self([const { Set([const { AtomicU64::new(0) }; WAYS]) }; SETS])
    }

    // The low bits choose the set, the high ones are compared: no bit is used twice.
    #[inline(always)]
    fn set(&self, hash: u64) -> &[AtomicU64] {
        self.0.get(hash as usize & (SETS - 1)).map_or(&[], |set| &set.0)
    }

    /// The value kept for `hash`.
    #[inline(always)]
    pub(crate) fn get(&self, hash: u64) -> Option<u32> {
        for entry in self.set(hash) {
            let word = entry.load(Ordering::Relaxed);
            if word != 0 && (word ^ hash) >> VALUE_BITS == 0 {
                return Some(word as u32 & ((1 << VALUE_BITS) - 1));
            }
        }
        None
    }

    /// Keeps `value` (not 0, 22 bits) for `hash`.
    pub(crate) fn put(&self, hash: u64, value: u32) {
        let word = (hash >> VALUE_BITS << VALUE_BITS) | u64::from(value & ((1 << VALUE_BITS) - 1));
        let set = self.set(hash);
        let same = |entry: &&AtomicU64| {
            let now = entry.load(Ordering::Relaxed);
            now == 0 || (now ^ hash) >> VALUE_BITS == 0
        };
        // A full set loses an entry that the new value chooses: no worse than at random.
        let place = set.iter().find(same).or_else(|| set.get((value as usize ^ (hash >> 60) as usize) % WAYS));
        if let Some(entry) = place {
            entry.store(word, Ordering::Relaxed);
        }
    }

    /// Forgets everything: the ids of another journal mean nothing in this one.
    pub(crate) fn clear(&self) {
        self.0.iter().flat_map(|set| &set.0).for_each(|entry| entry.store(0, Ordering::Relaxed));
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// One more word into a hash.
#[inline(always)]
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x2545_f491_4f6c_dd1d) * u128::from(MULTIPLIER);
    (product as u64 ^ (product >> 64) as u64).rotate_left(23)
}

/// Text into a hash; its length counts, so that two texts in a row are never two other ones.
#[inline]
pub(crate) fn mix_text(hash: u64, text: &[u8]) -> u64 {
    let (words, rest) = text.as_chunks::<8>();
    let mut hash = mix(hash, text.len() as u64);
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    let last = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    mix(hash, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_replaces_evicts_and_forgets() {
        let cache: Box<Cache<2>> = Box::new(Cache::new());
        let key = |n: u64| mix(0, n);
        assert_eq!(cache.get(key(1)), None);
        cache.put(key(1), 5);
        cache.put(key(1), 6);
        assert_eq!(cache.get(key(1)), Some(6));
        (2..200).for_each(|n| cache.put(key(n), n as u32));
        let kept = (2..200).filter(|n| cache.get(key(*n)) == Some(*n as u32)).count();
        assert!((2..=16).contains(&kept), "{kept}");
        assert!((2..200).all(|n| cache.get(key(n)).is_none_or(|value| value == n as u32)));
        cache.clear();
        assert!((0..200).all(|n| cache.get(key(n)).is_none()));
    }

    #[test]
    fn hashes_tell_texts_apart() {
        let texts = ["", "a", "b", "ab", "ba", "MatMul", "MatMul_1", "a/MatMul/x", "a/MatMul/y", "\0", "\0\0"];
        for a in texts {
            for b in texts {
                let both = |x: &str, y: &str| mix_text(mix_text(0, x.as_bytes()), y.as_bytes());
                assert_eq!(both(a, b) == both(b, a), a == b, "{a:?} {b:?}");
            }
        }
        let mut seen: Vec<u64> = (0..100_000_u64).map(|n| mix(7, n) >> 20).collect();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 99_990, "{}", seen.len());
    }
}
