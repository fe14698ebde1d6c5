//! The header as the reader sees it: checked before anything else is used.

use std::path::PathBuf;

use crate::create::Identity;
use crate::fault::{Fault, injected};
use crate::layout::{
    BUCKET_WORDS, Geometry, HEADER_BYTES, HEADER_WORDS, LARGEST_SUM, MAGIC, RECORD_BYTES, SECTIONS, Section,
    VERSION_MAJOR, crc_words, word,
};
use crate::reader::Error;
use crate::reader::source::{Source, read_words};
use crate::sys::clock::Anchor;

/// Numbers that the writer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Events so far.
    pub events: u64,
    /// Events overwritten by later ones.
    pub lapped: u64,
    /// Allocations that are not in the live table because it was full.
    pub live_overflow: u64,
    /// Calls that were not noted as in flight because there were too many.
    pub flight_overflow: u64,
    /// Names or stacks that found no room.
    pub arena_overflow: u64,
    /// Frees of unknown addresses.
    pub unknown_frees: u64,
    /// Out-of-memory failures.
    pub oom_seen: u64,
    /// Requests that the job could do without and that got nothing.
    pub tried: u64,
    /// Out-of-memory dumps.
    pub oom_dumps: u64,
}

/// The content of a header.
#[derive(Clone, Debug)]
pub struct Header {
    /// Minor version of the format.
    pub minor: u32,
    /// Whose journal it is.
    pub identity: Identity,
    /// Command line.
    pub command: Vec<String>,
    /// Executable.
    pub exe: PathBuf,
    /// Clock number.
    pub clock: u64,
    /// Ticks per second, as measured at the start.
    pub tick_hz: u64,
    /// First clock anchor.
    pub started: Anchor,
    /// Latest whole clock anchor.
    pub later: Option<Anchor>,
    /// Counters.
    pub counters: Counters,
    /// Whether the process exited in order.
    pub clean_exit: bool,
    /// With which status, if that is known.
    pub exit_status: Option<u8>,
    /// Why the library turned itself off.
    pub turned_off: Option<(u64, String)>,
    /// Resident bytes at the last sample.
    pub resident: u64,
    /// Whether the file is shorter than it should be.
    pub truncated: bool,
    sections: [Range; SECTIONS.len()],
}

/// No section starts further on: sums of offsets and sizes stay far from overflowing.
const LARGEST_OFFSET: u64 = 1 << 48;

/// A section: where it starts, its size by the header, and how much of it the file really has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Size that the header claims.
    pub claimed: u64,
    /// Size that is there.
    pub present: u64,
}

fn text_at(words: &[u64], start: usize, room: usize) -> Vec<u8> {
    let length = words.get(start).map_or(0, |length| usize::try_from(*length).unwrap_or(usize::MAX)).min(room);
    words.iter().skip(start + 1).take(length.div_ceil(8)).flat_map(|word| word.to_le_bytes()).take(length).collect()
}

impl Header {
    /// Reads and checks a header.
    pub fn read(source: &dyn Source) -> Result<Self, Error> {
        let size = source.size()?;
        let words = read_words(source, 0, HEADER_WORDS)?;
        let at = |index: usize| words.get(index).copied().unwrap_or(0);
        if words.is_empty() || (at(word::MAGIC) != MAGIC && at(word::MAGIC) != 0) {
            return Err(Error::NotAJournal);
        }
        if at(word::MAGIC) == 0 {
            return Err(
                if at(word::HEADER_BYTES) == HEADER_BYTES || size == 0 || words.iter().all(|word| *word == 0) {
                    Error::Unfinished
                } else {
                    Error::NotAJournal
                },
            );
        }
        let (major, minor) = (at(word::VERSION) as u32, (at(word::VERSION) >> 32) as u32);
        if major != VERSION_MAJOR {
            return Err(Error::ForeignVersion { major, minor });
        }
        if words.len() < HEADER_WORDS {
            return Err(Error::TooShort { size });
        }
        let fixed = words.get(1..word::STATIC_CRC).unwrap_or_default();
        if u64::from(crc_words(fixed)) != at(word::STATIC_CRC) || at(word::HEADER_BYTES) != HEADER_BYTES {
            return Err(Error::DamagedHeader);
        }
        let mut sections = [Range::default(); SECTIONS.len()];
        for (section, pair) in sections.iter_mut().zip(fixed.get(word::SECTIONS - 1..).unwrap_or_default().chunks(2)) {
            let [offset, claimed] = *pair else { break };
            let present = if injected(Fault::Bounds) { claimed } else { claimed.min(size.saturating_sub(offset)) };
            *section = Range { offset, claimed, present };
        }
        let mut header = Self {
            minor,
            identity: Identity {
                pid: at(word::PID_UID) as u32,
                parent: at(word::PARENT) as u32,
                user: (at(word::PID_UID) >> 32) as u32,
                start: at(word::PROCESS_START),
                boot: (u128::from(at(word::BOOT_ID)) | u128::from(at(word::BOOT_ID + 1)) << 64).to_le_bytes(),
                namespace: at(word::PID_NAMESPACE),
            },
            command: text_at(&words, word::COMMAND, word::COMMAND_BYTES)
                .split(|byte| *byte == 0)
                .map(|part| String::from_utf8_lossy(part).into_owned())
                .collect(),
            exe: PathBuf::from(String::from_utf8_lossy(&text_at(&words, word::EXE, word::EXE_BYTES)).into_owned()),
            clock: at(word::CLOCK),
            tick_hz: at(word::TICK_HZ),
            started: anchor_at(&words, word::ANCHOR),
            later: None,
            counters: Counters::default(),
            clean_exit: false,
            exit_status: None,
            turned_off: None,
            resident: 0,
            truncated: size < at(word::FILE_BYTES),
            sections,
        };
        header.check_shapes()?;
        header.update(&words);
        Ok(header)
    }

    /// Sections that no writer would make are refused: positions inside them would be meaningless.
    fn check_shapes(&self) -> Result<(), Error> {
        let largest =
            Geometry { events: u64::MAX, live: u64::MAX, flights: u64::MAX, names: u64::MAX, stacks: u64::MAX };
        let (limits, _) = largest.sections();
        for ((which, range), (_, limit)) in SECTIONS.iter().zip(&self.sections).zip(limits) {
            let unit = match which {
                Section::Ring | Section::Flight => RECORD_BYTES,
                Section::Live => BUCKET_WORDS as u64 * 8,
                _ => 8,
            };
            // Files of an earlier version have none.
            if matches!(which, Section::Job | Section::History) && range.claimed == 0 {
                continue;
            }
            let count = range.claimed / unit;
            let power = !matches!(which, Section::Ring | Section::Live) || count.is_power_of_two();
            if (range.claimed > limit
                || range.claimed % unit != 0
                || !power
                || range.offset < HEADER_BYTES
                || range.offset > LARGEST_OFFSET)
                && !injected(Fault::Bounds)
            {
                return Err(Error::BadSection { section: *which, offset: range.offset, size: range.claimed });
            }
        }
        Ok(())
    }

    /// Takes over what changes while the writer lives.
    pub(crate) fn update(&mut self, words: &[u64]) {
        let at = |index: usize| words.get(index).copied().unwrap_or(0);
        let count = |index: usize| at(index).min(LARGEST_SUM);
        let events = at(word::HEAD);
        // A number that no process reaches is damage; there are then no events to be read.
        let events = if events < 1 << 56 { events } else { 0 };
        self.counters = Counters {
            events,
            lapped: events.saturating_sub(self.ring_slots()),
            live_overflow: count(word::LIVE_OVERFLOW),
            flight_overflow: count(word::FLIGHT_OVERFLOW),
            arena_overflow: count(word::ARENA_OVERFLOW),
            unknown_frees: count(word::UNKNOWN_FREES),
            tried: count(word::TRIED),
            oom_seen: count(word::OOM_SEEN),
            oom_dumps: count(word::OOM_DUMPS),
        };
        self.clean_exit = at(word::CLEAN_EXIT) == 1;
        let status = at(word::EXIT_STATUS);
        self.exit_status = (self.clean_exit && status >> 8 == 1).then_some(status as u8);
        self.turned_off = (at(word::OFF_CODE) != 0).then(|| {
            let text = text_at(words, word::OFF_TEXT, word::OFF_TEXT_BYTES);
            (at(word::OFF_CODE), String::from_utf8_lossy(&text).into_owned())
        });
        self.resident = count(word::HOST_SAMPLE + 1);
        self.later = [word::LATER_ANCHORS, word::LATER_ANCHORS + 4]
            .into_iter()
            .filter(|start| {
                let fixed = words.get(*start..start + 3).unwrap_or_default();
                at(*start) != 0 && u64::from(crc_words(fixed)) == at(start + 3)
            })
            .map(|start| anchor_at(words, start))
            .max_by_key(|anchor| anchor.ticks);
    }

    /// Whether the job ran out of memory, or failed and had tried for memory in vain.
    pub fn ran_out(&self) -> bool {
        let failed = self.exit_status.is_some_and(|status| status != 0);
        self.counters.oom_seen > 0 || (failed && self.counters.tried > 0)
    }

    /// Where a section is.
    pub fn section(&self, which: Section) -> Range {
        self.sections.get(which as usize).copied().unwrap_or_default()
    }

    /// Ring size in events.
    pub fn ring_slots(&self) -> u64 {
        self.section(Section::Ring).claimed / RECORD_BYTES
    }

    /// Nanoseconds since 1970 for a time in ticks.
    pub fn realtime_ns(&self, ticks: u64) -> u64 {
        let from = self.started;
        let elapsed = self.elapsed_ns(from.ticks, ticks);
        u64::try_from(i128::from(from.realtime).saturating_add(elapsed).max(0)).unwrap_or(u64::MAX)
    }

    /// Nanoseconds from one time in ticks to another, by the anchors where they are far enough apart.
    pub fn elapsed_ns(&self, from: u64, to: u64) -> i128 {
        let ticks = i128::from(to) - i128::from(from);
        if let Some(later) = self.later {
            let (span, time) = (
                i128::from(later.ticks) - i128::from(self.started.ticks),
                i128::from(later.monotonic) - i128::from(self.started.monotonic),
            );
            // Ten milliseconds: then the anchors beat the first measurement.
            if span > 0 && time > 10_000_000 {
                return ticks.saturating_mul(time) / span;
            }
        }
        ticks.saturating_mul(1_000_000_000) / i128::from(self.tick_hz.max(1))
    }
}

fn anchor_at(words: &[u64], start: usize) -> Anchor {
    let at = |index: usize| words.get(index).copied().unwrap_or(0);
    Anchor { ticks: at(start), monotonic: at(start + 1), realtime: at(start + 2) }
}
