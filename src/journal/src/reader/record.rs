//! Recordings: a journal drained, while it is written, into a growing compressed file that keeps every event.
//!
//! A file header, then frames. A frame holds either events in a row, or one page of the journal outside the ring
//! (header, live table, arenas, …); a later page replaces an earlier one. A recording that was cut off is good up to
//! its last whole frame.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Decompress, FlushDecompress, Status};

use crate::fault::{Fault, injected};
use crate::layout::{HEADER_BYTES, RECORD_BYTES, SECTIONS, Section, crc_words};
use crate::reader::events::BATCH;
use crate::reader::follow::{Follower, runs};
use crate::reader::source::{Source, words_of};
use crate::reader::{Error, Reader, Slot};

const MAGIC: &[u8; 8] = b"WEIRREC\n";
const VERSION: u32 = 1;
const FILE_HEADER: u64 = 16;
const FRAME_HEADER: u64 = 32;
const EVENTS: u64 = 1;
const PAGE: u64 = 2;
/// Bytes of a page frame.
pub const PAGE_BYTES: u64 = 64 << 10;
/// Frames in a recording at most; four thousand million events.
const MOST_FRAMES: usize = 1 << 20;
const LARGEST_FRAME: u64 = BATCH * RECORD_BYTES;

/// Where a frame is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameRef {
    /// First event's number, or the page's offset.
    pub(crate) first: u64,
    /// Events, or bytes.
    pub(crate) count: u64,
    at: u64,
    packed: u32,
    raw: u32,
    crc: u32,
}

/// A recording, for reading. As a [`Source`] it looks like the journal it was made from, with an empty ring.
#[derive(Debug)]
pub struct Recording {
    file: Box<dyn Source>,
    events: Vec<FrameRef>,
    pages: BTreeMap<u64, FrameRef>,
    size: u64,
    last: Mutex<Last>,
}

/// The frame that was read last, for neighbouring reads, and what unpacks the next one.
#[derive(Debug)]
struct Last {
    at: u64,
    bytes: Arc<Vec<u8>>,
    unpacker: Decompress,
}

/// Whether the bytes start like a recording.
pub(crate) fn is_recording(source: &dyn Source) -> bool {
    let mut magic = [0; 8];
    matches!(source.read_at(&mut magic, 0), Ok(8)) && magic == *MAGIC
}

impl Recording {
    pub(crate) fn open(file: Box<dyn Source>) -> Result<Self, Error> {
        let end = file.size()?;
        let mut start = [0; FILE_HEADER as usize];
        if file.read_at(&mut start, 0)? < start.len() {
            return Err(Error::BadRecording("its header is cut off"));
        }
        let version = words_of(&start).nth(1).unwrap_or(0) as u32;
        if version != VERSION {
            return Err(Error::ForeignVersion { major: version, minor: 0 });
        }
        let mut events: Vec<FrameRef> = Vec::new();
        let mut pages = BTreeMap::new();
        let mut at = FILE_HEADER;
        while at + FRAME_HEADER <= end && events.len() + pages.len() < MOST_FRAMES {
            let mut bytes = [0; FRAME_HEADER as usize];
            if file.read_at(&mut bytes, at)? < bytes.len() {
                break;
            }
            let mut words = [0; 4];
            words.iter_mut().zip(words_of(&bytes)).for_each(|(to, from)| *to = from);
            let [kind, first, packed, crcs] = words;
            let (raw, kind, packed, count) = (kind >> 32, kind & 0xff, packed & 0xffff_ffff, packed >> 32);
            // From a damaged header on there is no way to find the next frame.
            if u64::from(crc_words(words.get(..3).unwrap_or_default())) != crcs & 0xffff_ffff
                || at + FRAME_HEADER + packed > end
                || (raw > LARGEST_FRAME && !injected(Fault::FrameLimit))
            {
                break;
            }
            let frame = FrameRef {
                first,
                count,
                at: at + FRAME_HEADER,
                packed: packed as u32,
                raw: raw as u32,
                crc: (crcs >> 32) as u32,
            };
            let after = events.last().map_or(0, |last| last.first + last.count);
            match kind {
                EVENTS if count * RECORD_BYTES == raw && count > 0 && first >= after && first < 1 << 56 => {
                    events.push(frame);
                }
                PAGE if first % PAGE_BYTES == 0 && raw <= PAGE_BYTES && first < 1 << 48 => {
                    pages.insert(first, frame);
                }
                _ => {}
            }
            at += FRAME_HEADER + packed;
        }
        let size = pages.values().map(|page| page.first + u64::from(page.raw)).max().unwrap_or(0);
        let last = Last { at: 0, bytes: Arc::default(), unpacker: Decompress::new(false) };
        Ok(Self { file, events, pages, size, last: Mutex::new(last) })
    }

    pub(crate) fn event_frames(&self) -> &[FrameRef] {
        &self.events
    }

    /// The content of a frame; a damaged one is empty.
    pub(crate) fn bytes_of(&self, frame: &FrameRef) -> Result<Arc<Vec<u8>>, Error> {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.at == frame.at {
            return Ok(Arc::clone(&last.bytes));
        }
        let mut packed = vec![0; frame.packed as usize];
        let done = self.file.read_at(&mut packed, frame.at)?;
        let whole = done == packed.len() && crc32c::crc32c(&packed) == frame.crc;
        let bytes = if whole { unpack(&mut last.unpacker, &packed, frame.raw as usize) } else { None };
        (last.at, last.bytes) = (frame.at, Arc::new(bytes.unwrap_or_default()));
        Ok(Arc::clone(&last.bytes))
    }
}

/// What was packed, if it is as long as promised.
fn unpack(unpacker: &mut Decompress, packed: &[u8], raw: usize) -> Option<Vec<u8>> {
    unpacker.reset(false);
    let mut bytes = Vec::with_capacity(raw + 1);
    loop {
        let status =
            unpacker.decompress_vec(packed.get(unpacker.total_in() as usize..)?, &mut bytes, FlushDecompress::Finish);
        match status {
            Ok(Status::StreamEnd) => return (bytes.len() == raw).then_some(bytes),
            // A frame that expands further than promised is damaged.
            Ok(_) if injected(Fault::FrameLimit) && bytes.len() == bytes.capacity() => {
                bytes.reserve(bytes.len().max(4096));
            }
            _ => return None,
        }
    }
}

impl Source for Arc<Recording> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = self.size.min(offset.saturating_add(buffer.len() as u64));
        let mut at = offset;
        while at < end {
            let start = at - at % PAGE_BYTES;
            let stop = (start + PAGE_BYTES).min(end);
            let to = buffer.get_mut((at - offset) as usize..(stop - offset) as usize).unwrap_or_default();
            to.fill(0);
            if let Some(frame) = self.pages.get(&start) {
                let bytes = self.bytes_of(frame).map_err(|error| io::Error::other(error.to_string()))?;
                let from = bytes.get((at - start) as usize..).unwrap_or_default();
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
            at = stop;
        }
        Ok(end.saturating_sub(offset) as usize)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}

/// Drains a journal into a recording.
#[derive(Debug)]
pub struct Recorder {
    follower: Follower,
    to: File,
    pending: Vec<Slot>,
    pages: BTreeMap<u64, u32>,
    lost: u64,
    events: u64,
}

impl Recorder {
    /// Starts draining from the oldest event still there.
    pub fn new(journal: Reader, mut to: File) -> io::Result<Self> {
        to.write_all(MAGIC)?;
        to.write_all(&u64::from(VERSION).to_le_bytes())?;
        let mut recorder = Self {
            follower: Follower::new(journal, false),
            to,
            pending: Vec::new(),
            pages: BTreeMap::new(),
            lost: 0,
            events: 0,
        };
        recorder.write_pages()?;
        Ok(recorder)
    }

    /// Takes over what is new. `last_look`: the writer is dead. Returns the number of new events.
    pub fn poll(&mut self, last_look: bool) -> Result<u64, Error> {
        let before = self.events;
        loop {
            let slots = self.follower.poll(BATCH as usize, last_look)?;
            if slots.is_empty() {
                break;
            }
            for slot in &slots {
                match slot {
                    Slot::Event(_) => self.events += 1,
                    Slot::Lost(loss) => self.lost += loss.count,
                }
            }
            self.pending.extend(slots);
            if self.pending.len() >= BATCH as usize {
                self.write_events()?;
            }
        }
        Ok(self.events - before)
    }

    /// Writes what was taken over, and the state of everything else. Call it now and then, and at the end.
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        self.write_events()?;
        self.write_pages()?;
        Ok(self.to.flush()?)
    }

    /// Events that the recording has, and events that were missed.
    pub fn totals(&self) -> (u64, u64) {
        (self.events, self.lost)
    }

    fn write_events(&mut self) -> io::Result<()> {
        for (first, bytes) in runs(&self.pending) {
            self.write_frame(EVENTS, first, bytes.len() as u64 / RECORD_BYTES, &bytes)?;
        }
        self.pending.clear();
        Ok(())
    }

    fn write_pages(&mut self) -> io::Result<()> {
        let reader = self.follower.reader();
        let size = reader.source.size()?;
        // What the file has outside of these is nobody's, however long it is.
        let kept =
            SECTIONS.iter().filter(|which| **which != Section::Ring).map(|which| reader.header().section(*which));
        let mut parts: Vec<_> = kept.map(|part| (part.offset, part.offset.saturating_add(part.claimed))).collect();
        parts.push((0, HEADER_BYTES));
        parts.sort_unstable();
        let mut changed = Vec::new();
        let mut at = 0;
        for (begin, end) in parts {
            at = at.max(begin - begin % PAGE_BYTES);
            while at < end.min(size) {
                let (start, stop) = (at, (at + PAGE_BYTES).min(size));
                at += PAGE_BYTES;
                let mut bytes = vec![0; (stop - start) as usize];
                let done = self.follower.reader().source.read_at(&mut bytes, start)?;
                bytes.truncate(done);
                let crc = crc32c::crc32c(&bytes);
                if self.pages.get(&start) != Some(&crc) {
                    self.pages.insert(start, crc);
                    changed.push((start, bytes));
                    if changed.len() >= 64 {
                        self.write_changed(&mut changed)?;
                    }
                }
            }
        }
        self.write_changed(&mut changed)
    }

    fn write_changed(&mut self, changed: &mut Vec<(u64, Vec<u8>)>) -> io::Result<()> {
        for (start, bytes) in changed.drain(..) {
            self.write_frame(PAGE, start, bytes.len() as u64, &bytes)?;
        }
        Ok(())
    }

    fn write_frame(&mut self, kind: u64, first: u64, count: u64, bytes: &[u8]) -> io::Result<()> {
        let mut packer = DeflateEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
        packer.write_all(bytes)?;
        let packed = packer.finish()?;
        let words = [kind | (bytes.len() as u64) << 32, first, packed.len() as u64 | count << 32];
        let crcs = u64::from(crc_words(&words)) | u64::from(crc32c::crc32c(&packed)) << 32;
        let mut frame: Vec<u8> = words.into_iter().chain([crcs]).flat_map(u64::to_le_bytes).collect();
        frame.extend(packed);
        // One write, so that a follower of the recording sees whole frames.
        self.to.write_all(&frame)
    }
}
