//! Making a journal: the file, its header, and what to do when there can be no file. Runs once, at the first CUDA
//! call; the only part of the writer that allocates and makes system calls.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::job::{self, Job};
use crate::layout::{Geometry, HEADER_BYTES, MAGIC, SECTIONS, Section, VERSION_MAJOR, VERSION_MINOR, crc_words, word};
use crate::sys::clock::Clock;
use crate::sys::files::{self, SafeDir};
use crate::sys::map::Mapping;
use crate::sys::place;
use crate::writer::{Backing, Journal};

/// Bytes after the header, which are the ring's first, that are got ready for writing when a journal is made: 4 096 events.
/// The other pages come with the first store to each, which costs once and only what is used. Having them all at once
/// costs 25 ms and, on a machine that must find 94 MiB of fresh memory for it, six times that.
const READY_BYTES: u64 = 256 << 10;

/// What a new journal shall be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory for journals; `None` is memory only.
    pub dir: Option<PathBuf>,
    /// Sizes.
    pub geometry: Geometry,
    /// The configuration in force, as text, for the reader.
    pub config: String,
}

impl Options {
    /// A journal of the usual size in this directory.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        Self { dir: Some(dir.into()), geometry: Geometry::default(), config: String::new() }
    }

    /// The same with these sizes.
    #[must_use]
    pub fn sized(mut self, geometry: Geometry) -> Self {
        self.geometry = geometry;
        self
    }
}

/// Where this user's journals are inside a directory that several users share.
pub fn folders_in(dir: &Path) -> Vec<PathBuf> {
    let own = |path: &PathBuf| path.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == files::user());
    files::sub_folders(files::user()).map(|name| dir.join(name)).filter(own).collect()
}

/// The identity of a process: a later one with the same id has another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Process id in its own namespace.
    pub pid: u32,
    /// Parent's process id.
    pub parent: u32,
    /// User id.
    pub user: u32,
    /// Start in clock ticks since boot.
    pub start: u64,
    /// Boot id.
    pub boot: [u8; 16],
    /// Inode of the pid namespace.
    pub namespace: u64,
}

impl Identity {
    /// This process.
    pub fn own() -> Self {
        let stat = stat_of(std::process::id()).unwrap_or_default();
        let (parent, start) = stat_fields(&stat).unwrap_or_default();
        Self {
            pid: std::process::id(),
            parent,
            user: files::user(),
            start,
            boot: boot_id(),
            namespace: pid_namespace(),
        }
    }
}

/// What /proc says of a process, by its first thread, which began with it: an emulator (QEMU) makes up /proc/PID/stat where a
/// process reads its own.
pub(crate) fn stat_of(pid: u32) -> io::Result<String> {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat"))
}

/// Parent and start time from the text of /proc/PID/stat. The command name may hold spaces and parentheses.
pub(crate) fn stat_fields(stat: &str) -> Option<(u32, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

/// The kernel's name for this boot; zero when unknown.
pub(crate) fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    u128::from_str_radix(&hex, 16).unwrap_or(0).to_be_bytes()
}

/// The namespace in which process ids of this process are valid; zero when unknown.
pub(crate) fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino())
}

impl Journal {
    /// Makes a journal. When there can be no file (full or read-only disk, unsafe directory), it is kept in memory and
    /// [`Journal::fallback_reason`] has the reason; an error means that there is not even memory.
    pub fn create(options: &Options) -> io::Result<Self> {
        let (sections, bytes) = options.geometry.sections();
        let (mapping, backing) = match create_file(options.dir.as_ref(), bytes) {
            Ok((mapping, backing)) => {
                mapping.make_ready(HEADER_BYTES + READY_BYTES, sections[Section::Live as usize].0);
                (mapping, backing)
            }
            Err(error) => (Mapping::anonymous(bytes)?, Backing::memory(error.to_string())),
        };
        let clock = Clock::best();
        fill_header(mapping.words(), &sections, bytes, clock);
        let journal = Self::on(mapping, &sections, clock, backing);
        journal.set_config(&options.config);
        let job = Job::own().packed();
        store_checked(named(mapping.words(), &sections, Section::Job), &job, job::ROOM);
        // From here on the file is a journal.
        if let Some(magic) = mapping.words().get(word::MAGIC) {
            magic.store(MAGIC, Ordering::Release);
        }
        Ok(journal)
    }
}

fn create_file(dir: Option<&PathBuf>, bytes: u64) -> io::Result<(Mapping, Backing)> {
    let Some(wanted) = dir else {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no directory for journals"));
    };
    let cannot = |error: &io::Error| format!("{} cannot be written to ({error})", wanted.display());
    let unfit = match SafeDir::open(wanted) {
        Err(error) if is_closed(&error) => cannot(&error),
        Err(error) => return Err(error),
        Ok(dir) => match place::remote(dir.handle()) {
            Some(kind) => format!("{} is on a remote file system ({kind})", wanted.display()),
            None => match create_named(&dir) {
                Err(error) if is_closed(&error) => cannot(&error),
                Err(error) => return Err(error),
                Ok((name, file)) if !place::slow(&file) => return fill(dir, name, file, bytes),
                Ok((name, _)) => {
                    let _ = dir.remove(&name);
                    format!("{} is on a slow file system", wanted.display())
                }
            },
        },
    };
    for dir in place::instead(wanted) {
        if let Ok((name, file)) = create_named(&dir)
            && let Ok((mapping, mut backing)) = fill(dir, name, file, bytes)
        {
            backing.moved = Some(unfit);
            return Ok((mapping, backing));
        }
    }
    Err(io::Error::other(format!("{unfit}, and there is no room for it in memory")))
}

/// Whether nothing can be made there, as in a home that is read-only or another user's. A folder that is not safe is refused in
/// other words, and a full disk has another reason.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EROFS | libc::EACCES | libc::EPERM))
}

/// Gives a new file its size and maps it.
fn fill(dir: SafeDir, name: String, file: File, bytes: u64) -> io::Result<(Mapping, Backing)> {
    match files::preallocate(&file, bytes).and_then(|()| Mapping::of_file(&file, bytes)) {
        Ok(mapping) => {
            // The lock shows that this journal has a living writer; the kernel drops it at death.
            files::try_lock(&file);
            Ok((mapping, Backing::file(dir, name, file)))
        }
        Err(error) => {
            let _ = dir.remove(&name);
            Err(error)
        }
    }
}

fn create_named(dir: &SafeDir) -> io::Result<(String, File)> {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let pid = std::process::id();
    let mut last = None;
    for turn in 0..100 {
        let name = if turn == 0 { format!("{seconds}-{pid}.weir") } else { format!("{seconds}-{pid}-{turn}.weir") };
        match dir.create(&name) {
            Ok(file) => return Ok((name, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no free file name")))
}

fn fill_header(words: &[AtomicU64], sections: &[(u64, u64); SECTIONS.len()], bytes: u64, clock: Clock) {
    let set = |index: usize, value: u64| {
        if let Some(place) = words.get(index) {
            place.store(value, Ordering::Relaxed);
        }
    };
    let own = Identity::own();
    set(word::VERSION, u64::from(VERSION_MAJOR) | u64::from(VERSION_MINOR) << 32);
    set(word::HEADER_BYTES, HEADER_BYTES);
    set(word::FILE_BYTES, bytes);
    set(word::PID_UID, u64::from(own.pid) | u64::from(own.user) << 32);
    set(word::PROCESS_START, own.start);
    store_bytes(words, word::BOOT_ID, &own.boot);
    set(word::PID_NAMESPACE, own.namespace);
    set(word::CLOCK, clock as u64);
    set(word::TICK_HZ, clock.measure_hz());
    let anchor = clock.anchor();
    set(word::ANCHOR, anchor.ticks);
    set(word::ANCHOR + 1, anchor.monotonic);
    set(word::ANCHOR + 2, anchor.realtime);
    set(word::PARENT, u64::from(own.parent));
    for (number, (offset, size)) in sections.iter().enumerate() {
        set(word::SECTIONS + 2 * number, *offset);
        set(word::SECTIONS + 2 * number + 1, *size);
    }
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    store_text(words, word::COMMAND, command.strip_suffix(b"\0").unwrap_or(&command), word::COMMAND_BYTES);
    let exe = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    store_text(words, word::EXE, exe.as_os_str().as_encoded_bytes(), word::EXE_BYTES);
    let fixed: Vec<u64> =
        words.iter().take(word::STATIC_CRC).skip(1).map(|word| word.load(Ordering::Relaxed)).collect();
    set(word::STATIC_CRC, u64::from(crc_words(&fixed)));
}

/// Stores bytes as little-endian words from `start` on.
pub(crate) fn store_bytes(words: &[AtomicU64], start: usize, bytes: &[u8]) {
    for (place, chunk) in words.iter().skip(start).zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        place.store(u64::from_le_bytes(word), Ordering::Relaxed);
    }
}

/// Stores a length and a text of at most `room` bytes from `start` on.
pub(crate) fn store_text(words: &[AtomicU64], start: usize, text: &[u8], room: usize) {
    let text = text.get(..room).unwrap_or(text);
    store_bytes(words, start + 1, text);
    if let Some(length) = words.get(start) {
        length.store(text.len() as u64, Ordering::Release);
    }
}

/// Stores a text of at most `room` bytes, its length, and a checksum of what was kept.
pub(crate) fn store_checked(words: &[AtomicU64], text: &[u8], room: usize) {
    store_text(words, 1, text, room);
    if let Some(crc) = words.first() {
        crc.store(u64::from(crc32c::crc32c(text.get(..room).unwrap_or(text))), Ordering::Release);
    }
}

/// The words of one section.
pub(crate) fn section(words: &'static [AtomicU64], place: (u64, u64)) -> &'static [AtomicU64] {
    let start = place.0 as usize / 8;
    words.get(start..start + place.1 as usize / 8).unwrap_or_default()
}

/// The words of a section by name.
pub(crate) fn named(
    words: &'static [AtomicU64],
    table: &[(u64, u64); SECTIONS.len()],
    which: Section,
) -> &'static [AtomicU64] {
    table.get(which as usize).map_or(Default::default(), |place| section(words, *place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_past_odd_command_names() {
        let stat = "7 (a) b (c)) S 3 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 1";
        assert_eq!(stat_fields(stat), Some((3, 4711)));
        assert_eq!(stat_fields("7 (x"), None);
        assert_eq!(stat_fields("7 (x) S 3"), None);
    }

    #[test]
    fn this_process_has_an_identity() {
        let own = Identity::own();
        assert!(own.start > 0 && own.boot != [0; 16] && own.namespace > 0 && own.parent > 0);
        assert_eq!(own, Identity::own());
    }
}
