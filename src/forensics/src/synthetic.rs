//! Journals of made-up jobs, written through the real writer: for tests, and for looking at reports without a job.
//! Time passes only when the job says so. The file records a process that is gone, unless it is left alive.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use weir_journal::layout::{HOST_DEVICE, Section, crc_words, word};
use weir_journal::{
    Attribution, Class, Event, Failure, Geometry, Granted, Intent, Journal, Kind, Op, Options, Outcome, STREAM_UNKNOWN,
    Situation, advance,
};

/// One gibibyte.
pub const GIB: u64 = 1 << 30;
/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// How a made-up job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order.
    Exit,
    /// In order, with a status that means a failure.
    Failure,
    /// By a signal, without a word.
    Killed,
    /// Not at all: the journal is this process's own.
    Alive,
    /// Not in order, and the journal says that it is this process's, which lives.
    Of {
        /// The process.
        pid: u32,
        /// Whether it had this number, and began at the same time, in an earlier boot of the machine.
        rebooted: bool,
    },
}

/// A job that writes a journal.
#[derive(Debug)]
pub struct Job {
    /// The writer, for what has no method here.
    pub journal: Journal,
    path: PathBuf,
    next: u64,
    step: u64,
    command: Vec<String>,
}

impl Job {
    /// A job with one 40 GiB device, a journal in `dir` with room for this many events.
    pub fn new(dir: &Path, events: u64) -> std::io::Result<Self> {
        Self::set(dir, events, &[])
    }

    /// The same with settings other than the defaults: a job's variables and their values.
    pub fn set(dir: &Path, events: u64, settings: &[(&str, &str)]) -> std::io::Result<Self> {
        let geometry = Geometry { events, live: 60_000.min(events.max(512)), ..Geometry::default() };
        Self::made(dir, geometry, settings)
    }

    /// The same with a journal of this size.
    pub fn sized(dir: &Path, geometry: Geometry) -> std::io::Result<Self> {
        Self::made(dir, geometry, &[])
    }

    fn made(dir: &Path, geometry: Geometry, settings: &[(&str, &str)]) -> std::io::Result<Self> {
        advance(1);
        let allocated = settings.iter().map(|(name, value)| (name.into(), value.into()));
        let config = weir_settings::Reading::of(allocated, &[]).text();
        let options = Options { config, ..Options::in_dir(dir).sized(geometry) };
        let journal = Journal::create(&options)?;
        let path = journal
            .path()
            .ok_or_else(|| std::io::Error::other(journal.fallback_reason().unwrap_or("no file").to_owned()))?;
        journal.set_device(0, *b"weir-synthetic-0", 40 * GIB, "Made-up GPU");
        let command = ["python3", "/home/me/train.py"].map(str::to_owned).to_vec();
        Ok(Self { journal, path, next: 0x7f00_0000_0000, step: 0, command })
    }

    /// Another command line than `python3 /home/me/train.py`.
    #[must_use]
    pub fn called(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// The requester: an operation and a line of `/home/me/train.py` (0 is none).
    pub fn who(&self, op: &str, line: u32) -> Attribution {
        self.by(op, "output", &[("/home/me/train.py", "train_step", line)])
    }

    /// The requester, in full. Lines are innermost first; those with number 0 are left out.
    pub fn by(&self, op: &str, region: &str, lines: &[(&str, &str, u32)]) -> Attribution {
        let region = if op.is_empty() { "" } else { region };
        self.by_op(&Op { name: op, region, shape: "", dtype: u32::from(!op.is_empty()) }, lines)
    }

    /// The same with an operation of any shape and type.
    pub fn by_op(&self, op: &Op<'_>, lines: &[(&str, &str, u32)]) -> Attribution {
        let known = lines.iter().filter(|(_, _, line)| *line > 0);
        let lines: Vec<u32> = known.map(|(file, function, line)| self.journal.line(file, function, *line)).collect();
        Attribution { stack: 0, op: self.journal.op(op), python: self.journal.python(&lines) }
    }

    /// A block of the pool on device 0; its address.
    pub fn alloc(&mut self, by: Attribution, bytes: u64) -> u64 {
        self.alloc_as(Class::Block, 0, by, bytes)
    }

    /// Memory of any class; its address.
    pub fn alloc_as(&mut self, class: Class, device: u8, by: Attribution, bytes: u64) -> u64 {
        let address = self.next;
        let allocated = bytes.next_multiple_of(512);
        self.next += allocated;
        self.alloc_at(class, device, by, bytes, address);
        address
    }

    /// Memory at an address of the caller's choice.
    pub fn alloc_at(&mut self, class: Class, device: u8, by: Attribution, bytes: u64, address: u64) {
        let allocated = bytes.next_multiple_of(512);
        let intent = Intent { kind: Kind::Alloc, class, device, stream: 0, requested: bytes, address: 0, by };
        self.journal.pool_hit(&intent, Granted { address, allocated });
    }

    /// A tensor gets a chunk of TensorFlow's own allocator.
    pub fn tensor(&mut self, by: Attribution, requested: u64, allocated: u64, address: u64) {
        let (kind, class, stream) = (Kind::Alloc, Class::Tensor, STREAM_UNKNOWN);
        let intent = Intent { kind, class, device: 0, stream, requested, address, by };
        self.journal.pool_hit(&intent, Granted { address, allocated });
    }

    /// A block of the pool comes back.
    pub fn free(&mut self, address: u64) {
        self.free_as(Class::Block, address);
    }

    /// Memory of any class comes back.
    pub fn free_as(&mut self, class: Class, address: u64) {
        self.journal.free(address, class, 0);
    }

    /// The next training step begins; its number.
    pub fn step(&mut self) -> u64 {
        self.step += 1;
        self.journal.step(self.step);
        self.step
    }

    /// Time passes.
    pub fn wait(&mut self, seconds: f64) {
        advance((seconds * 1e9) as u64);
    }

    /// The process has this much memory resident and this much pinned.
    pub fn host(&mut self, resident: u64, pinned: u64) {
        let sample = Event::new(Kind::HostSample, Class::Other, HOST_DEVICE);
        self.journal.record(Event { allocated: resident, requested: pinned, ..sample });
    }

    /// A request is refused for want of memory.
    pub fn refused(&mut self, by: Attribution, requested: u64, situation: &Situation) -> Outcome {
        self.refused_as(Class::Block, by, requested, situation)
    }

    /// A request of some class is refused for want of memory.
    pub fn refused_as(&mut self, class: Class, by: Attribution, requested: u64, situation: &Situation) -> Outcome {
        let failure = Failure { device: 0, class, stream: STREAM_UNKNOWN, requested, result: 2, by };
        self.journal.out_of_memory(&failure, situation)
    }

    /// A request that TensorFlow can do without gets nothing: of its own allocator a tensor, of the pool a block.
    pub fn tried(&mut self, class: Class, by: Attribution, requested: u64) {
        let (device, stream) = (0, STREAM_UNKNOWN);
        self.journal.tried_in_vain(&Failure { device, class, stream, requested, result: 2, by });
    }

    /// The job ends; the journal's path.
    pub fn end(self, end: End) -> std::io::Result<PathBuf> {
        self.journal.refresh_anchor();
        if matches!(end, End::Exit | End::Failure) {
            self.journal.exiting(Some(u8::from(end == End::Failure)));
        }
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        rename_process(&file, &self.command, end)?;
        if end != End::Alive {
            // The child's side of a fork: gives the lock and the mapping up, and leaves the file as it is.
            self.journal.detach_in_child();
        }
        Ok(self.path)
    }
}

/// Puts another command and the process that the end records into a journal's header.
fn rename_process(file: &File, command: &[String], end: End) -> std::io::Result<()> {
    let begun = if let End::Of { pid, .. } = end { start_of(pid)? } else { 0 };
    edit_header(file, |words| {
        match end {
            End::Exit | End::Failure | End::Killed => words[word::PROCESS_START] += 1,
            End::Alive => {}
            End::Of { pid, rebooted } => {
                words[word::PID_UID] = words[word::PID_UID] >> 32 << 32 | u64::from(pid);
                words[word::PROCESS_START] = begun;
                words[word::BOOT_ID] ^= u64::from(rebooted);
            }
        }
        // A job that never was cannot be run again.
        words[word::SECTIONS + 2 * Section::Job as usize + 1] = 0;
        let mut text = command.join("\0").into_bytes();
        text.truncate(word::COMMAND_BYTES);
        words[word::COMMAND] = text.len() as u64;
        for (place, chunk) in words[word::COMMAND + 1..].iter_mut().zip(text.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *place = u64::from_le_bytes(padded);
        }
    })
}

/// Makes any journal one of an earlier boot of the machine.
pub fn reboot(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    edit_header(&file, |words| words[word::BOOT_ID] ^= 1)
}

/// Changes what does not change in a header, and its checksum with it.
pub(crate) fn edit_header(file: &File, edit: impl FnOnce(&mut [u64])) -> std::io::Result<()> {
    let mut bytes = vec![0; word::STATIC_CRC * 8 + 8];
    file.read_exact_at(&mut bytes, 0)?;
    let mut words: Vec<u64> = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect();
    edit(&mut words);
    words[word::STATIC_CRC] = crc_words(&words[1..word::STATIC_CRC]).into();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all_at(&bytes, 0)
}

/// When a process began, in clock ticks since the machine was booted.
fn start_of(pid: u32) -> std::io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Behind the command's name, which may hold anything, the state is the third field and the start the 22nd.
    let field = stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().nth(19));
    field.and_then(|text| text.parse().ok()).ok_or_else(|| std::io::Error::other("a stat file without a start"))
}
