//! Blocks of pools in the live table. A pool numbers its live blocks from small to large, and a number is a place: nothing
//! is searched and nothing is claimed, so that recording a block costs little more than writing it down. Works only on the
//! words of the mapping.
//!
//! A block's place belongs to whoever holds the block: its taker writes it before the job knows the address, and its free
//! is written under the pool's lock, before anybody can get the number again. So plain stores are enough.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::event::{Class, Event, FLAG_POOL_HIT, Kind, short_from_long};
use crate::fault::{Fault, injected};
use crate::flight::Intent;
use crate::layout::{BUCKET_ENTRIES, BUCKET_WORDS, RECORD_WORDS};
use crate::live::{LiveEntry, STATE_EMPTY, STATE_FREEING, STATE_LIVE};
use crate::sys::clock;
use crate::sys::prefetch;
use crate::writer::{Answer, Granted, Journal};

/// Buckets of the table that a pool gets at a time.
const CHUNK: usize = 64;
/// Chunks that a pool can have: numbers up to 458 752.
const CHUNKS: usize = 1024;
/// There are no chunks left.
const NONE_LEFT: u32 = u32::MAX;

/// Where the numbers of one pool's blocks lie in the live table. The pool's owner keeps it.
#[derive(Debug)]
pub struct Numbering {
    /// The chunks, each plus one; 0: not needed so far.
    chunks: [AtomicU32; CHUNKS],
}

impl Default for Numbering {
    fn default() -> Self {
        Self { chunks: [const { AtomicU32::new(0) }; CHUNKS] }
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
    /// The place of a number; `None`: the table has no chunk left for it.
    #[inline]
    fn place_of(&self, numbering: &Numbering, number: usize) -> Option<&'static [AtomicU64; RECORD_WORDS]> {
        let (bucket, slot) = (number / BUCKET_ENTRIES, number % BUCKET_ENTRIES);
        let chunk = numbering.chunks.get(bucket / CHUNK)?;
        let first = match chunk.load(Ordering::Acquire) {
            0 => self.chunk(chunk)?,
            NONE_LEFT => return None,
            first => first,
        };
        let bucket = (first as usize - 1) * CHUNK + bucket % CHUNK;
        self.live.numbered().get(bucket)?.as_chunks().0.get(slot + 1)
    }

    /// Gives a pool a chunk of the table. Waits for nobody: who comes while another is here goes without one.
    #[cold]
    fn chunk(&self, place: &AtomicU32) -> Option<u32> {
        let mut taken = self.chunks.try_lock().ok()?;
        let mut chunk = place.load(Ordering::Acquire);
        if chunk == 0 {
            let left = (*taken as usize) < self.live.numbered().len() / CHUNK;
            *taken += u32::from(left);
            chunk = if left { *taken } else { NONE_LEFT };
            place.store(chunk, Ordering::Release);
        }
        (chunk != NONE_LEFT).then_some(chunk)
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
        let live_after = self.add_live(intent.device, Class::Block, granted.allocated);
        let (address, allocated) = (granted.address, granted.allocated);
        let Intent { device, stream, requested, by, .. } = *intent;
        let class = Class::Block;
        let entry =
            LiveEntry { address, allocated, requested, class, device, stream, birth: seq, time: now, thread, by };
        store(place, &entry.pack(STATE_LIVE));
        self.write(&Event {
            seq,
            time: now,
            stream,
            address,
            requested,
            allocated,
            live_after,
            latency,
            thread,
            by,
            flags,
            ..Event::new(Kind::Alloc, class, device)
        });
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
        // Written out: a loop over atomics is not unrolled.
        let word = |at: usize| place[at].load(Ordering::Relaxed);
        let block = LiveEntry::unpack_unchecked(&[first, address, word(2), word(3), 0, word(5), word(6), 0]);
        if !injected(Fault::Freeing) {
            place[0].store(first & !0xff | STATE_FREEING, Ordering::Release);
        }
        let seq = self.claim();
        // From this store on the block counts as gone.
        place[7].store(seq + 1, Ordering::Release);
        let live_after = self.sub_live(block.device, Class::Block, block.allocated);
        self.write(&Event {
            seq,
            time: now,
            stream,
            address,
            requested: block.requested,
            allocated: block.allocated,
            live_after,
            thread,
            by: block.by,
            aux: short_from_long(now.saturating_sub(block.time)),
            ..Event::new(Kind::Free, Class::Block, block.device)
        });
        place[0].store(STATE_EMPTY, Ordering::Release);
        true
    }
}

const _: () = assert!(BUCKET_WORDS == (BUCKET_ENTRIES + 1) * RECORD_WORDS);
