//! The live table: every allocation that is live now, complete at every instruction of the writer. Lock-free; works
//! only on the words of its section.
//!
//! Half of the table is a hash table, for what is known by its address alone; the other half is for blocks of pools, whose
//! places follow from the numbers that the pools give them (`numbered.rs`).
//!
//! Buckets of seven entries behind one control line. The control line has the seven keys and a count of the entries
//! that wanted this bucket, or passed it, and lie further on; a search stops at a bucket that nobody passed. So there
//! are no tombstones: a removal leaves nothing behind, and the table does not rot.
//!
//! The reader uses only the entries (their first word is stored last, with a CRC), never the control lines.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::{Attribution, Class, bits};
use crate::fault::{Fault, injected};
use crate::layout::{BUCKET_ENTRIES, BUCKET_WORDS, LARGEST_BLOCK, RECORD_WORDS};
use crate::sys::crc::crc_record;
use crate::sys::prefetch;

/// Nothing there.
pub(crate) const STATE_EMPTY: u64 = 0;
/// A live allocation.
pub(crate) const STATE_LIVE: u64 = 1;
/// A live allocation that somebody is giving back.
pub(crate) const STATE_FREEING: u64 = 2;
/// In the entry's last word: the free has begun; see [`begun`].
pub(crate) const FREE_BEGUN: u64 = 1 << 63;

const KEY_EMPTY: u64 = 0;
const KEY_CLAIMED: u64 = 1;

/// One live allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LiveEntry {
    /// Address or handle.
    pub address: u64,
    /// Bytes allocated.
    pub allocated: u64,
    /// Bytes requested.
    pub requested: u64,
    /// What sort of memory.
    pub class: Class,
    /// Which device.
    pub device: u8,
    /// Which stream.
    pub stream: u16,
    /// Number of the event that made it.
    pub birth: u64,
    /// When, in ticks.
    pub time: u64,
    /// By which thread; 0 is unknown.
    pub thread: u32,
    /// By whom.
    pub by: Attribution,
}

impl LiveEntry {
    /// The entry's words in a state, with the CRC.
    #[inline(always)]
    pub(crate) fn pack(&self, state: u64) -> [u64; RECORD_WORDS] {
        let mut words = [
            bits(self.thread.into(), 24) << 8,
            self.address,
            bits(self.allocated, 48) | bits(self.class as u64, 4) << 48 | bits(self.device.into(), 6) << 52,
            bits(self.requested, 48) | u64::from(self.stream) << 48,
            self.birth,
            self.time,
            self.by.pack(),
            0,
        ];
        words[0] |= u64::from(crc_record(&words)) << 32 | state;
        words
    }

    /// The entry and its state, if its CRC is right. The last word is not covered.
    pub(crate) fn unpack(words: &[u64; RECORD_WORDS]) -> Option<(Self, u64)> {
        let mut covered = *words;
        covered[0] = words[0] & 0xffff_ff00;
        covered[7] = 0;
        if u64::from(crc_record(&covered)) != words[0] >> 32 && !injected(Fault::EntryCrc) {
            return None;
        }
        let entry = Self::unpack_unchecked(words);
        (entry.allocated <= LARGEST_BLOCK).then_some((entry, words[0] & 0xff))
    }

    /// The entry, unchecked: for the process that wrote it.
    #[inline(always)]
    pub(crate) fn unpack_unchecked(words: &[u64; RECORD_WORDS]) -> Self {
        Self {
            address: words[1],
            allocated: bits(words[2], 48),
            requested: bits(words[3], 48),
            class: Class::from_number(bits(words[2] >> 48, 4) as u8),
            device: bits(words[2] >> 52, 6) as u8,
            stream: (words[3] >> 48) as u16,
            birth: words[4],
            time: words[5],
            thread: bits(words[0] >> 8, 24) as u32,
            by: Attribution::unpack(words[6]),
        }
    }
}

/// Where an entry lies: bucket and place in it. Stays valid until the entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryRef {
    bucket: usize,
    slot: usize,
}

/// The table, on words of the mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveTable {
    buckets: &'static [[AtomicU64; BUCKET_WORDS]],
    numbered: &'static [[AtomicU64; BUCKET_WORDS]],
}

/// Buckets looked at before the table counts as full. At three quarters full, a chain of this length does not happen.
const LONGEST_CHAIN: usize = 512;

/// The last word of an allocation whose free has begun: by whom, and of which allocation, so that no other free of the
/// same place is taken for it.
pub(crate) fn begun(thread: u32, birth: u64) -> u64 {
    FREE_BEGUN | bits(birth, 38) << 24 | bits(thread.into(), 24)
}

fn key_of(address: u64, class: Class) -> u64 {
    bits(address, 58) | (class as u64) << 60
}

impl LiveTable {
    pub(crate) fn new(words: &'static [AtomicU64]) -> Self {
        let all: &[[AtomicU64; BUCKET_WORDS]] = words.as_chunks().0;
        let (buckets, numbered) = all.split_at(all.len() / 2);
        Self { buckets, numbered }
    }

    /// The buckets for blocks with numbers.
    #[inline]
    pub(crate) fn numbered(&self) -> &'static [[AtomicU64; BUCKET_WORDS]] {
        self.numbered
    }

    fn home(&self, key: u64) -> usize {
        let hash = (key ^ key >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 20) as usize & (self.buckets.len().wrapping_sub(1))
    }

    fn bucket(&self, home: usize, step: usize) -> Option<(usize, &'static [AtomicU64; BUCKET_WORDS])> {
        let index = home.wrapping_add(step) & (self.buckets.len().wrapping_sub(1));
        Some((index, self.buckets.get(index)?))
    }

    fn entry(&self, place: EntryRef) -> Option<&'static [AtomicU64; RECORD_WORDS]> {
        self.buckets.get(place.bucket)?.as_chunks().0.get(place.slot + 1)
    }

    /// An entry is about to be put in or taken out: its bucket is brought into the cache. Most are the first of theirs.
    #[inline]
    pub(crate) fn change_comes(&self, address: u64, class: Class) {
        let lines =
            self.bucket(self.home(key_of(address, class)), 0).map(|(_, bucket)| bucket.as_chunks::<RECORD_WORDS>().0);
        for line in lines.into_iter().flat_map(|lines| lines.iter().take(2)) {
            prefetch::for_writing(line);
        }
    }

    /// Puts an entry into the table; `None` when the table is full. From the store of the entry's first word on, the
    /// allocation counts as live.
    pub(crate) fn insert(&self, entry: &LiveEntry) -> Option<EntryRef> {
        let key = key_of(entry.address, entry.class);
        let home = self.home(key);
        for step in 0..LONGEST_CHAIN.min(self.buckets.len()) {
            let (index, bucket) = self.bucket(home, step)?;
            for slot in 0..BUCKET_ENTRIES {
                let control = bucket.get(slot + 1)?;
                if control.load(Ordering::Relaxed) != KEY_EMPTY
                    || control.compare_exchange(KEY_EMPTY, KEY_CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_err()
                {
                    continue;
                }
                for passed in 0..step {
                    self.bucket(home, passed)?.1.first()?.fetch_add(1, Ordering::Relaxed);
                }
                let place = EntryRef { bucket: index, slot };
                let words = self.entry(place)?;
                let packed = entry.pack(STATE_LIVE);
                for (word, value) in words.iter().zip(packed).skip(1) {
                    word.store(value, Ordering::Relaxed);
                }
                words[0].store(packed[0], Ordering::Release);
                control.store(key, Ordering::Release);
                return Some(place);
            }
        }
        None
    }

    /// Finds a live allocation and marks it as being freed, so that nobody else can do the same.
    pub(crate) fn begin_free(&self, address: u64, class: Class, thread: u32) -> Option<(EntryRef, LiveEntry)> {
        let (place, entry) = self.take(address, class)?;
        if !injected(Fault::Freeing)
            && let Some(words) = self.entry(place)
        {
            words[7].store(begun(thread, entry.birth), Ordering::Release);
        }
        Some((place, entry))
    }

    /// The first entry of an allocation for which `claim`, which gets its words, returns something.
    #[inline(always)]
    fn find<T>(
        &self,
        address: u64,
        class: Class,
        claim: impl Fn(&[AtomicU64; RECORD_WORDS]) -> Option<T>,
    ) -> Option<(EntryRef, LiveEntry, T)> {
        let key = key_of(address, class);
        let home = self.home(key);
        for step in 0..LONGEST_CHAIN.min(self.buckets.len()) {
            let (index, bucket) = self.bucket(home, step)?;
            for slot in 0..BUCKET_ENTRIES {
                if bucket.get(slot + 1)?.load(Ordering::Acquire) != key {
                    continue;
                }
                let place = EntryRef { bucket: index, slot };
                let words = self.entry(place)?;
                if let Some(found) = claim(words) {
                    let snapshot = std::array::from_fn(|word| words[word].load(Ordering::Relaxed));
                    return Some((place, LiveEntry::unpack_unchecked(&snapshot), found));
                }
            }
            if bucket.first()?.load(Ordering::Relaxed) == 0 {
                return None;
            }
        }
        None
    }

    /// Finds a live allocation and marks it as being freed, without saying who does it.
    #[inline]
    pub(crate) fn take(&self, address: u64, class: Class) -> Option<(EntryRef, LiveEntry)> {
        let mark = |words: &[AtomicU64; RECORD_WORDS]| {
            let first = words[0].load(Ordering::Acquire);
            if first & 0xff != STATE_LIVE || words[1].load(Ordering::Relaxed) != address {
                return None;
            }
            let freeing = if injected(Fault::Freeing) { first } else { first & !0xff | STATE_FREEING };
            words[0].compare_exchange(first, freeing, Ordering::AcqRel, Ordering::Relaxed).ok()
        };
        self.find(address, class, mark).map(|(place, entry, _)| (place, entry))
    }

    /// Finds an allocation whose free has begun and is not recorded, by an address that was just handed out again: so it
    /// has happened. Returns the last word, too.
    pub(crate) fn freed_before(&self, address: u64, class: Class) -> Option<(EntryRef, LiveEntry, u64)> {
        self.find(address, class, |words| {
            let last = words[7].load(Ordering::Acquire);
            let begun = last & FREE_BEGUN != 0 && words[0].load(Ordering::Acquire) & 0xff == STATE_FREEING;
            (begun && words[1].load(Ordering::Relaxed) == address).then_some(last)
        })
    }

    /// Whether a free that has begun is not written down yet.
    pub(crate) fn is_begun(&self, place: EntryRef, begun: u64) -> bool {
        injected(Fault::Freeing) || self.entry(place).is_some_and(|words| words[7].load(Ordering::Acquire) == begun)
    }

    /// The free that had begun is done and is event number `seq`: from this store on, the allocation counts as gone. Not
    /// if another thread, which got the address, was faster.
    pub(crate) fn end_free(&self, place: EntryRef, begun: u64, seq: u64) -> bool {
        if injected(Fault::Freeing) {
            self.commit_free(place, seq);
            return true;
        }
        self.entry(place)
            .is_some_and(|words| words[7].compare_exchange(begun, seq + 1, Ordering::AcqRel, Ordering::Acquire).is_ok())
    }

    /// The same of a free that nobody else can know of.
    pub(crate) fn commit_free(&self, place: EntryRef, seq: u64) {
        if let Some(words) = self.entry(place) {
            words[7].store(seq + 1, Ordering::Release);
        }
    }

    /// The free failed: the allocation is live again.
    pub(crate) fn cancel_free(&self, place: EntryRef) {
        if let Some(words) = self.entry(place) {
            words[7].store(0, Ordering::Relaxed);
            let first = words[0].load(Ordering::Relaxed);
            words[0].store(first & !0xff | STATE_LIVE, Ordering::Release);
        }
    }

    /// Empties a place after its free was committed.
    pub(crate) fn remove(&self, place: EntryRef) {
        let (Some(words), Some(bucket)) = (self.entry(place), self.buckets.get(place.bucket)) else {
            return;
        };
        let Some(control) = bucket.get(place.slot + 1) else {
            return;
        };
        let home = self.home(control.load(Ordering::Relaxed));
        words[0].store(STATE_EMPTY, Ordering::Release);
        control.store(KEY_EMPTY, Ordering::Release);
        let mut step = 0;
        while let Some((index, passed)) = self.bucket(home, step) {
            if index == place.bucket || step >= LONGEST_CHAIN {
                break;
            }
            if let Some(count) = passed.first() {
                count.fetch_sub(1, Ordering::Relaxed);
            }
            step += 1;
        }
    }

    /// Calls `visit` for every live entry; what changes meanwhile may be seen before or after.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&LiveEntry)) {
        for bucket in self.buckets.iter().chain(self.numbered) {
            for words in bucket.as_chunks::<RECORD_WORDS>().0.iter().skip(1) {
                let snapshot: [u64; RECORD_WORDS] = std::array::from_fn(|word| words[word].load(Ordering::Acquire));
                if snapshot[0] & 0xff == STATE_EMPTY {
                    continue;
                }
                if let Some((entry, state)) = LiveEntry::unpack(&snapshot)
                    && (state == STATE_LIVE || snapshot[7] & FREE_BEGUN != 0)
                {
                    visit(&entry);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn table(buckets: usize) -> LiveTable {
        let words: Vec<AtomicU64> = (0..2 * buckets * BUCKET_WORDS).map(|_| AtomicU64::new(0)).collect();
        LiveTable::new(words.leak())
    }

    fn entry(address: u64, birth: u64) -> LiveEntry {
        LiveEntry {
            address,
            allocated: 512,
            requested: 500,
            class: Class::Block,
            device: 3,
            stream: 7,
            birth,
            time: 99,
            thread: 1234,
            by: Attribution { stack: 1, op: 2, python: 3 },
        }
    }

    #[test]
    fn an_entry_comes_back_as_it_went() {
        let entry = entry(0xffff_ffff_ffff_f000, 5);
        assert_eq!(LiveEntry::unpack(&entry.pack(STATE_LIVE)), Some((entry, STATE_LIVE)));
        let mut words = entry.pack(STATE_LIVE);
        words[4] ^= 1;
        assert_eq!(LiveEntry::unpack(&words), None);
    }

    #[test]
    fn churn_leaves_no_trace() {
        let table = table(16);
        for round in 0..100_000_u64 {
            table.insert(&entry(round << 8, round)).unwrap();
            if round >= 80 {
                let (place, _) = table.begin_free((round - 80) << 8, Class::Block, 1).unwrap();
                table.remove(place);
            }
        }
        for round in 100_000 - 80..100_000 {
            let (place, _) = table.begin_free(round << 8, Class::Block, 1).unwrap();
            table.remove(place);
        }
        for bucket in table.buckets {
            assert!(bucket[..8].iter().all(|word| word.load(Ordering::Relaxed) == 0), "a removal left something");
        }
    }

    #[test]
    fn a_full_table_says_so() {
        let table = table(2);
        let kept = (0..20).filter(|n| table.insert(&entry(n << 12, *n)).is_some()).count();
        assert_eq!(kept, 14);
    }

    #[test]
    fn one_pointer_is_freed_once() {
        let table = table(4);
        table.insert(&entry(4096, 1)).unwrap();
        let (place, _) = table.begin_free(4096, Class::Block, 1).unwrap();
        assert!(table.begin_free(4096, Class::Block, 2).is_none());
        // The address may come back from the driver before the first free is written down.
        table.insert(&entry(4096, 2)).unwrap();
        assert_eq!(table.begin_free(4096, Class::Block, 2).unwrap().1.birth, 2);
        table.cancel_free(place);
        assert_eq!(table.begin_free(4096, Class::Block, 1).unwrap().1.birth, 1);
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in proptest::collection::vec((any::<bool>(), 0..40_u64), 1..400)) {
            let table = table(8);
            let mut truth = BTreeMap::new();
            for (seq, (insert, name)) in steps.into_iter().enumerate() {
                let address = name << 9;
                if insert && !truth.contains_key(&address) {
                    table.insert(&entry(address, seq as u64)).unwrap();
                    truth.insert(address, seq as u64);
                } else if !insert {
                    let found = table.begin_free(address, Class::Block, 1);
                    prop_assert_eq!(found.map(|(_, entry)| entry.birth), truth.remove(&address));
                    if let Some((place, _)) = found {
                        table.commit_free(place, seq as u64);
                        table.remove(place);
                    }
                }
                let mut seen = BTreeMap::new();
                table.for_each(|entry| { seen.insert(entry.address, entry.birth); });
                prop_assert_eq!(&seen, &truth);
            }
        }
    }
}
