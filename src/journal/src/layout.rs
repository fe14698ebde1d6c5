//! Where everything lies in a journal file: the header words, the sections and their sizes. Pure numbers; both the
//! writer and the reader go by this file, and docs/reference/journal-format.md describes it byte by byte.

/// First eight bytes of every journal.
pub const MAGIC: u64 = u64::from_le_bytes(*b"WEIRJNL\n");
/// Changes when an older reader could misread the file.
pub const VERSION_MAJOR: u32 = 1;
/// Changes when something was added that an older reader may ignore.
pub const VERSION_MINOR: u32 = 3;
/// Size of the header; the first section starts here.
pub const HEADER_BYTES: u64 = 4096;

/// The largest allocation that is accepted: 16 TiB. A record of a larger one is damage, however right its checksum is.
pub const LARGEST_BLOCK: u64 = 1 << 44;
/// The largest number of bytes of a device, a class or a process, and the largest count, that is accepted: sums of them stay
/// far from overflowing.
pub const LARGEST_SUM: u64 = 1 << 52;
/// Header size in words.
pub const HEADER_WORDS: usize = (HEADER_BYTES / 8) as usize;
/// Size of a ring record, a live entry, an in-flight slot and a module entry, in words.
pub const RECORD_WORDS: usize = 8;
/// The same in bytes.
pub const RECORD_BYTES: u64 = 64;

/// Word offsets inside the header.
pub mod word {
    /// Magic number, written last of all when a journal is created.
    pub const MAGIC: usize = 0;
    /// Major version in the low half, minor in the high half.
    pub const VERSION: usize = 1;
    /// Header size in bytes.
    pub const HEADER_BYTES: usize = 2;
    /// File size in bytes.
    pub const FILE_BYTES: usize = 3;
    /// Process id (low half) and user id (high half).
    pub const PID_UID: usize = 4;
    /// Start time of the process in clock ticks since boot, as in /proc/PID/stat.
    pub const PROCESS_START: usize = 5;
    /// Boot id, 16 bytes.
    pub const BOOT_ID: usize = 6;
    /// Inode of the pid namespace.
    pub const PID_NAMESPACE: usize = 8;
    /// Which clock counts the ticks.
    pub const CLOCK: usize = 9;
    /// Ticks per second, measured when the journal was created.
    pub const TICK_HZ: usize = 10;
    /// First anchor: ticks, monotonic ns, realtime ns.
    pub const ANCHOR: usize = 11;
    /// Parent's process id.
    pub const PARENT: usize = 14;
    /// Section table: offset and size in bytes of each section.
    pub const SECTIONS: usize = 16;
    /// Command line: length in bytes, then the text (NUL separated).
    pub const COMMAND: usize = 48;
    /// Bytes kept of the command line.
    pub const COMMAND_BYTES: usize = 1024;
    /// Path of the executable: length in bytes, then the text.
    pub const EXE: usize = COMMAND + 1 + COMMAND_BYTES / 8;
    /// Bytes kept of the executable's path.
    pub const EXE_BYTES: usize = 512;
    /// CRC32C of all words before this one, the magic excepted.
    pub const STATIC_CRC: usize = EXE + 1 + EXE_BYTES / 8;

    /// Number of ring records claimed so far; the next event's number.
    pub const HEAD: usize = 256;
    /// Allocations that found no place in the live table.
    pub const LIVE_OVERFLOW: usize = 265;
    /// Calls that found no in-flight slot.
    pub const FLIGHT_OVERFLOW: usize = 266;
    /// Strings or stacks that found no place in their arena.
    pub const ARENA_OVERFLOW: usize = 267;
    /// Frees of addresses that the live table does not know.
    pub const UNKNOWN_FREES: usize = 268;
    /// Out-of-memory failures seen, collapsed ones included.
    pub const OOM_SEEN: usize = 269;
    /// Out-of-memory dumps written.
    pub const OOM_DUMPS: usize = 270;
    /// 256 and the exit status of a process that ended in order; 0 is unknown.
    pub const EXIT_STATUS: usize = 271;
    /// 1 after a clean exit.
    pub const CLEAN_EXIT: usize = 272;
    /// Why the library disabled itself: 0 is "it did not", else code and text.
    pub const OFF_CODE: usize = 273;
    /// Length in bytes of the reason, then the text.
    pub const OFF_TEXT: usize = 274;
    /// Bytes kept of the reason.
    pub const OFF_TEXT_BYTES: usize = 128;
    /// Two later anchors, written in turn: ticks, monotonic ns, realtime ns, CRC32C.
    pub const LATER_ANCHORS: usize = 296;
    /// Counts the later anchors, so that writers take turns.
    pub const ANCHOR_TURN: usize = 304;
    /// Requests that the job can do without and that got nothing.
    pub const TRIED: usize = 305;
    /// Last host sample: ticks, resident bytes.
    pub const HOST_SAMPLE: usize = 312;
    /// Number of the step that the job is in.
    pub const STEP: usize = 314;
}

/// The sections, in file order. Their number is their place in the section table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Section {
    /// Event records.
    Ring = 0,
    /// Live allocations.
    Live = 1,
    /// Calls that have begun and not ended.
    Flight = 2,
    /// Strings, operations, Python frames.
    Names = 3,
    /// Hash index of the names.
    NamesIndex = 4,
    /// Native stacks.
    Stacks = 5,
    /// Hash index of the stacks.
    StacksIndex = 6,
    /// Loaded modules.
    Modules = 7,
    /// Out-of-memory dumps.
    Oom = 8,
    /// Causes of out-of-memory failures and how often each was seen.
    Causes = 9,
    /// Devices and their counters.
    Devices = 10,
    /// Configuration text.
    Config = 11,
    /// What it takes to run the job again. Files of version 1.0 have none.
    Job = 12,
    /// The course of memory over the whole run. Files before version 1.2 have none.
    History = 13,
}

/// All sections in file order.
pub const SECTIONS: [Section; 14] = [
    Section::Ring,
    Section::Live,
    Section::Flight,
    Section::Names,
    Section::NamesIndex,
    Section::Stacks,
    Section::StacksIndex,
    Section::Modules,
    Section::Oom,
    Section::Causes,
    Section::Devices,
    Section::Config,
    Section::Job,
    Section::History,
];

/// Words of one bucket of the live table: a control line and seven entries.
pub const BUCKET_WORDS: usize = 64;
/// Entries in a bucket.
pub const BUCKET_ENTRIES: usize = 7;
/// Words in one unit of an arena; an id is a unit's number.
pub const UNIT_WORDS: usize = 2;
/// Bytes of one out-of-memory slot.
pub const OOM_SLOT_BYTES: usize = 8192;
/// Slots kept for the first dumps; as many again hold the last ones.
pub const OOM_KEPT: usize = 4;
/// Distinct causes remembered.
pub const CAUSES: usize = 32;
/// Words of one cause.
pub const CAUSE_WORDS: usize = 8;
/// Devices that fit: numbers 0 to 62, and 63 for host memory.
pub const DEVICES: usize = 64;
/// Words of one device entry.
pub const DEVICE_WORDS: usize = 64;
/// The device number of host memory, and of events that concern no device.
pub const HOST_DEVICE: u8 = 63;
/// Bytes of configuration text kept.
pub const CONFIG_BYTES: usize = 8192;
/// Bytes of the section that records how to run the job again.
pub const JOB_BYTES: usize = 32 << 10;
/// Words of one moment of the history.
pub const HISTORY_WORDS: usize = 16;
/// Moments on each level of the history.
pub const HISTORY_SLOTS: usize = 256;
/// Levels of the history: each covers twice the time of the one before.
pub const HISTORY_LEVELS: usize = 20;
/// Devices that the history follows, from 0 on.
pub const HISTORY_DEVICES: usize = 8;
/// Bytes of the history.
pub const HISTORY_BYTES: usize = HISTORY_LEVELS * HISTORY_SLOTS * HISTORY_WORDS * 8;

/// Events from one moment of the history to the next: 64 moments while the ring is filled once.
pub const fn moments_apart(ring_slots: u64) -> u64 {
    let apart = ring_slots / 64;
    if apart == 0 { 1 } else { apart }
}

/// Loaded modules that fit.
pub const MODULES: usize = 2048;

/// How large the sections of a new journal are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Ring size in events, rounded up to a power of two.
    pub events: u64,
    /// Live blocks of pools that surely fit, and as many other allocations; rounded up to whole buckets.
    pub live: u64,
    /// Concurrent calls, rounded up to a power of two.
    pub flights: u64,
    /// Bytes for names.
    pub names: u64,
    /// Bytes for stacks.
    pub stacks: u64,
}

impl Default for Geometry {
    fn default() -> Self {
        Self { events: 1 << 20, live: 86_000, flights: 1024, names: 4 << 20, stacks: 8 << 20 }
    }
}

impl Geometry {
    /// A few hundred KiB: for tests and for processes that hardly allocate.
    pub const fn tiny() -> Self {
        Self { events: 64, live: 512, flights: 64, names: 64 << 10, stacks: 64 << 10 }
    }

    /// Ring slots.
    pub fn ring_slots(&self) -> u64 {
        self.events.clamp(8, 1 << 28).next_power_of_two()
    }

    /// Buckets of the live table: two halves, each at most three quarters full when it holds `live` entries.
    pub fn buckets(&self) -> u64 {
        let entries = self.live.clamp(8, 1 << 26) * 4 / 3;
        2 * entries.div_ceil(BUCKET_ENTRIES as u64).next_power_of_two()
    }

    /// Offset and size in bytes of every section, and the file's size.
    pub fn sections(&self) -> ([(u64, u64); SECTIONS.len()], u64) {
        let names = self.names.clamp(4096, 16 << 20).next_multiple_of(4096);
        let stacks = self.stacks.clamp(4096, 256 << 20).next_multiple_of(4096);
        let index = |bytes: u64| (bytes / 64).next_power_of_two() * 8;
        let sizes = [
            self.ring_slots() * RECORD_BYTES,
            self.buckets() * BUCKET_WORDS as u64 * 8,
            self.flights.clamp(8, 1 << 16).next_power_of_two() * RECORD_BYTES,
            names,
            index(names),
            stacks,
            index(stacks),
            MODULES as u64 * RECORD_BYTES,
            (2 * OOM_KEPT * OOM_SLOT_BYTES) as u64,
            (CAUSES * CAUSE_WORDS * 8) as u64,
            (DEVICES * DEVICE_WORDS * 8) as u64,
            CONFIG_BYTES as u64,
            JOB_BYTES as u64,
            HISTORY_BYTES as u64,
        ];
        let mut table = [(0, 0); SECTIONS.len()];
        let mut offset = HEADER_BYTES;
        for (place, size) in table.iter_mut().zip(sizes) {
            *place = (offset, size);
            offset = (offset + size).next_multiple_of(4096);
        }
        (table, offset)
    }
}

/// CRC32C of some words, each in little-endian order.
pub fn crc_words(words: &[u64]) -> u32 {
    let mut crc = 0;
    for chunk in words.chunks(32) {
        let mut bytes = [0_u8; 256];
        for (place, word) in bytes.chunks_exact_mut(8).zip(chunk) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        crc = crc32c::crc32c_append(crc, bytes.get(..chunk.len() * 8).unwrap_or_default());
    }
    crc
}

// Header fields do not collide.
const _: () = {
    assert!(word::SECTIONS + 2 * SECTIONS.len() <= word::COMMAND);
    assert!(word::STATIC_CRC < word::HEAD);
    assert!(word::OFF_TEXT + 1 + word::OFF_TEXT_BYTES / 8 <= word::LATER_ANCHORS);
    assert!(word::HOST_SAMPLE + 2 <= word::STEP && word::STEP < HEADER_WORDS);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_follow_each_other_without_overlap() {
        for geometry in [Geometry::tiny(), Geometry::default()] {
            let (table, total) = geometry.sections();
            let mut end = HEADER_BYTES;
            for (offset, size) in table {
                assert!(offset >= end && offset % 4096 == 0 && size % 8 == 0);
                end = offset + size;
            }
            assert!(total >= end);
        }
    }

    #[test]
    fn crc_is_crc32c_over_the_bytes() {
        let words: Vec<u64> = (0..100_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(crc_words(&words), crc32c::crc32c(&bytes));
    }
}
