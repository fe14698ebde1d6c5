//! Blocks of pools in the live table. A pool numbers its live blocks from small to large, and a number is a place: nothing
//! is searched and nothing is claimed, so that recording a block costs little more than writing it down. Works only on the
//! words of the mapping.
//!
//! A block's place belongs to whoever holds the block: its taker writes it before the job knows the address, and its free
//! is written under the pool's lock, before anybody can get the number again. So plain stores are enough.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::event::{Class, FLAG_POOL_HIT, Kind, bits, short_from_long};
use crate::fault::{Fault, injected};
use crate::flight::Intent;
use crate::layout::{BUCKET_ENTRIES, BUCKET_WORDS, RECORD_WORDS};
use crate::live::{STATE_EMPTY, STATE_FREEING, STATE_LIVE};
use crate::sys::clock;
use crate::sys::crc::crc_record;
use crate::sys::prefetch;
use crate::writer::{Answer, Granted, Journal};

/// Buckets of the table that a pool gets at a time.
const PORTION: usize = 64;
/// Portions that a pool can have: numbers up to 458 752.
const PORTIONS: usize = 1024;
/// There are no portions left.
const NONE_LEFT: u32 = u32::MAX;

/// Where the numbers of one pool's blocks lie in the live table. The pool's owner keeps it.
#[derive(Debug)]
pub struct Numbering {
    /// The portions, each plus one; 0: not needed so far.
    portions: [AtomicU32; PORTIONS],
}

impl Default for Numbering {
    fn default() -> Self {
        Self { portions: [const { AtomicU32::new(0) }; PORTIONS] }
    }
}

/// Stores a record: what makes it valid comes last.
#[inline]
pub(crate) fn store(place: &[AtomicU64; RECORD_WORDS], words: &[u64; RECORD_WORDS]) {
    // Written out: a loop over atomics is not unrolled.
    place[1].store(words[1], Ordering::Relaxed);
    place[2].store(words[2], Ordering::Relaxed);
    place[3].store(words[3], Ordering::Relaxed);
    place[4].store(words[4], Ordering::Relaxed);
    place[5].store(words[5], Ordering::Relaxed);
    place[6].store(words[6], Ordering::Relaxed);
    place[7].store(words[7], Ordering::Relaxed);
    place[0].store(words[0], Ordering::Release);
}

impl Journal {
    /// The place of a number; `None`: the table has no portion left for it.
    #[inline]
    fn place_of(&self, numbering: &Numbering, number: usize) -> Option<&'static [AtomicU64; RECORD_WORDS]> {
        let (bucket, slot) = (number / BUCKET_ENTRIES, number % BUCKET_ENTRIES);
        let portion = numbering.portions.get(bucket / PORTION)?;
        let first = match portion.load(Ordering::Acquire) {
            0 => self.portion(portion)?,
            NONE_LEFT => return None,
            first => first,
        };
        let bucket = (first as usize - 1) * PORTION + bucket % PORTION;
        self.live.numbered().get(bucket)?.as_chunks().0.get(slot + 1)
    }

    /// Gives a pool a portion of the table. Waits for nobody: who comes while another is here goes without one.
    #[cold]
    fn portion(&self, place: &AtomicU32) -> Option<u32> {
        let mut given = self.portions.try_lock().ok()?;
        let mut portion = place.load(Ordering::Acquire);
        if portion == 0 {
            let left = (*given as usize) < self.live.numbered().len() / PORTION;
            *given += u32::from(left);
            portion = if left { *given } else { NONE_LEFT };
            place.store(portion, Ordering::Release);
        }
        (portion != NONE_LEFT).then_some(portion)
    }

    /// A pool has handed out the block `number` without a driver call: recorded in one go. Returns the event's number.
    #[inline]
    pub fn block_taken(&self, numbering: &Numbering, number: usize, intent: &Intent, granted: Granted) -> u64 {
        let hit =
            Answer { now: self.now(), latency: 0, thread: clock::thread_id(), flight: None, flags: FLAG_POOL_HIT };
        self.block_granted((numbering, number), intent, granted, &hit)
    }

    /// A block was handed out, with a driver call or without one.
    #[inline(always)]
    pub(crate) fn block_granted(
        &self,
        (numbering, number): (&Numbering, usize),
        intent: &Intent,
        granted: Granted,
        answer: &Answer,
    ) -> u64 {
        let Some(place) = self.place_of(numbering, number) else { return self.granted(intent, granted, answer) };
        let Answer { now, latency, thread, flight, flags } = *answer;
        let seq = self.claim();
        if let Some(flight) = flight {
            self.flights.becomes(flight, seq);
        }
        let live_after = self.add_live(intent.device, Class::Block, granted.given);
        let (by, thread) = (intent.by.pack(), bits(thread.into(), 24));
        let (given, asked) = (bits(granted.given, 48), bits(intent.asked, 48));
        let (class, device) = (Class::Block as u64, bits(intent.device.into(), 6));
        let stream = u64::from(intent.stream) << 48;
        let sort = class << 48 | device << 52;
        let mut entry = [thread << 8, granted.address, given | sort, asked | stream, seq, now, by, 0];
        entry[0] |= u64::from(crc_record(&entry)) << 32 | STATE_LIVE;
        store(place, &entry);
        let sort = (Kind::Alloc as u64) << 48 | class << 54 | device << 58;
        let rest = thread | u64::from(short_from_long(latency)) << 24 | u64::from(flags) << 56;
        self.put(seq, [seq, now, granted.address, given | sort, asked, bits(live_after, 48) | stream, by, rest]);
        seq
    }

    /// The block `number` is about to be freed: its entry is brought into the cache, while the pool looks for its own.
    #[inline(always)]
    pub fn block_going(&self, numbering: &Numbering, number: usize) {
        if let Some(place) = self.place_of(numbering, number) {
            prefetch::for_writing(place);
        }
        self.event_comes();
    }

    /// The calling thread, as the journal knows it.
    #[inline]
    pub fn thread(&self) -> u32 {
        clock::thread_id()
    }

    /// A pool takes the block `number` back: recorded in one go. To be called under the pool's lock, by `thread` (see
    /// [`Journal::thread`]). False and no event: the table does not know the block.
    #[inline]
    pub fn block_freed(&self, numbering: &Numbering, number: usize, address: u64, stream: u16, thread: u32) -> bool {
        let Some(place) = self.place_of(numbering, number) else {
            return self.free(address, Class::Block, stream).is_some();
        };
        let first = place[0].load(Ordering::Relaxed);
        if first & 0xff != STATE_LIVE || place[1].load(Ordering::Relaxed) != address {
            return self.free(address, Class::Block, stream).is_some();
        }
        let now = self.now();
        let (sizes, asked) = (place[2].load(Ordering::Relaxed), place[3].load(Ordering::Relaxed));
        let (born, by) = (place[5].load(Ordering::Relaxed), place[6].load(Ordering::Relaxed));
        let (given, device) = (bits(sizes, 48), bits(sizes >> 52, 6));
        if !injected(Fault::Freeing) {
            place[0].store(first & !0xff | STATE_FREEING, Ordering::Release);
        }
        let seq = self.claim();
        // From this store on the block counts as gone.
        place[7].store(seq + 1, Ordering::Release);
        let live_after = self.sub_live(device as u8, Class::Block, given);
        let sort = (Kind::Free as u64) << 48 | (Class::Block as u64) << 54 | device << 58;
        let age = u64::from(short_from_long(now.saturating_sub(born))) << 40;
        let after = bits(live_after, 48) | u64::from(stream) << 48;
        let rest = bits(thread.into(), 24) | age;
        self.put(seq, [seq, now, address, given | sort, bits(asked, 48), after, by, rest]);
        place[0].store(STATE_EMPTY, Ordering::Release);
        true
    }

    /// Writes a record whose words are all there but for the CRC.
    #[inline]
    fn put(&self, seq: u64, mut words: [u64; RECORD_WORDS]) {
        if let Some(slot) = self.ring.get(seq as usize & self.ring.len().wrapping_sub(1)) {
            words[0] = u64::from(crc_record(&words)) | seq << 32;
            store(slot, &words);
        }
    }
}

const _: () = assert!(BUCKET_WORDS == (BUCKET_ENTRIES + 1) * RECORD_WORDS);
