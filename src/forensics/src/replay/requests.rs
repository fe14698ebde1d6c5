//! What a job requested, in order and packed: from a trace file, or (`intake.rs`) from a journal. Reads files.
//!
//! A step takes eight bytes, and at most [`MOST_STEPS`] are kept; the outcome of older ones is kept as what was live
//! when the rest begins. So memory is bounded however long the recording is.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use weir_journal::reader::{Source, open_file};
use weir_journal::{Attribution, Class};

/// Steps kept at most: 384 MB.
pub const MOST_STEPS: usize = 48 << 20;
const SIZES: usize = 1 << 22;
const BLOCKS: usize = 1 << 23;
/// Lines of a trace at most, blocks of it that are live at most, and bytes of a line at most.
const MOST_LINES: u64 = 1 << 24;
const MOST_LIVE: usize = 1 << 21;
const LONGEST_LINE: u64 = 256;
/// How far a packed trace may expand. Traces of loops come to fifty times; a file made to fill memory, to a thousand.
const MOST_EXPANSION: u64 = 256;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Requests a block from the allocator.
    Request,
    /// Requests a block from the driver, beside TensorFlow's own allocator.
    Beside,
    /// Takes device memory past the allocator.
    Hold,
    /// Gives a block, or what was held, back.
    Free,
    /// The job waits for the device.
    Sync,
    /// A training step ends, and waits for the device.
    Step,
    /// The request that the job did not get: it must fit, and nothing is known of it afterwards.
    Refused,
    /// Nothing any more.
    Nothing,
}

const WHATS: [What; 8] =
    [What::Request, What::Beside, What::Hold, What::Free, What::Sync, What::Step, What::Refused, What::Nothing];

impl What {
    /// Whether a block comes to be.
    pub(crate) fn takes(self) -> bool {
        matches!(self, Self::Request | Self::Beside | Self::Hold)
    }
}

/// Who requested what sort of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Requester {
    /// The sort.
    pub class: Class,
    /// Operation, Python lines; the native stack only where there is nothing better.
    pub by: Attribution,
}

/// One step. Numbers of blocks are used again, so they stay below the most blocks ever live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) what: What,
    pub(crate) stream: u16,
    pub(crate) block: u32,
    pub(crate) bytes: u64,
    /// Number of the pair of size and requester.
    pub(crate) pair: u32,
}

/// The requests of a job on one device.
#[derive(Debug, Default)]
pub struct Requests {
    /// Where they come from.
    pub name: String,
    /// Which device.
    pub device: u8,
    /// Memory of that device; 0 is unknown.
    pub device_bytes: u64,
    /// The cap that was in force at the end; 0 is none.
    pub cap: u64,
    /// Allocations, those before the first event included.
    pub allocations: u64,
    /// Most bytes requested and live at the same time, the request that the job died of included.
    pub peak_live: u64,
    /// Events that the recording lacks.
    pub lost: u64,
    /// The request that the job did not get, and died of.
    pub refused: Option<u64>,
    /// The requester.
    pub refused_by: Option<u32>,
    /// Whether that one went beside TensorFlow's own allocator.
    pub refused_beside: bool,
    /// Its number; none where it is freed at once, because nobody knows for how long it would stay.
    pub(super) refused_block: Option<u32>,
    /// Whether whole steps are there: what follows the refused request is known from an earlier step.
    pub whole: bool,
    /// Whether these steps began with as much as the ones before them: a size that serves one serves the next.
    pub steady: bool,
    /// Older events that are known only by what they left behind.
    pub left_out: u64,
    /// Regions that TensorFlow's own allocator cut up.
    pub regions: usize,
    /// The requesters; empty where they are not needed.
    pub requesters: Vec<Requester>,
    pub(super) steps: VecDeque<u64>,
    pub(super) opening: BTreeMap<u32, u64>,
    /// Sizes, each with the number of its requester.
    pub(super) pairs: Vec<(u64, u32)>,
    pair_index: HashMap<(u64, u32), u32>,
    vacant: Vec<u32>,
    numbers: u32,
    pub(super) dropped: u64,
}

impl Requests {
    /// None yet.
    pub(super) fn none(name: &str, device: u8) -> Self {
        Self { name: name.to_owned(), device, ..Self::default() }
    }

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.opening.len() + self.steps.len()
    }

    /// Whether there is nothing to replay.
    pub fn is_empty(&self) -> bool {
        self.allocations == 0
    }

    /// Steps that were too old to be kept one by one.
    pub fn folded(&self) -> u64 {
        self.dropped
    }

    /// Bytes that are live when the last step is done, by requester.
    pub fn left(&self) -> Vec<u64> {
        let mut held = vec![(0, 0); self.blocks()];
        for step in self.steps().take_while(|step| step.what != What::Refused || self.refused_block.is_none()) {
            if let Some(place) = held.get_mut(step.block as usize) {
                match step.what {
                    What::Free => *place = (0, 0),
                    what if what.takes() => *place = self.pairs.get(step.pair as usize).copied().unwrap_or_default(),
                    _ => {}
                }
            }
        }
        let mut left = vec![0; self.requesters.len()];
        for (bytes, requester) in held {
            if let Some(sum) = left.get_mut(requester as usize) {
                *sum = u64::saturating_add(*sum, bytes);
            }
        }
        left
    }

    /// Sizes of the blocks that some requesters requested.
    pub fn sizes_of(&self, wanted: impl Fn(usize) -> bool) -> HashSet<u64> {
        self.pairs.iter().filter(|(_, requester)| wanted(*requester as usize)).map(|(bytes, _)| *bytes).collect()
    }

    /// Blocks live at the same time, at most.
    pub(crate) fn blocks(&self) -> usize {
        self.numbers as usize
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.opening.values().chain(&self.steps).map(|word| self.unpack(*word))
    }

    /// A step by its place behind those that were folded.
    pub(super) fn at(&self, place: usize) -> Step {
        self.unpack(self.steps.get(place).copied().unwrap_or(What::Nothing as u64))
    }

    pub(super) fn unpack(&self, word: u64) -> Step {
        let pair = (word >> 42) as u32;
        Step {
            what: WHATS.get((word & 7) as usize).copied().unwrap_or(What::Nothing),
            stream: (word >> 3) as u16,
            block: (word >> 19) as u32 & (BLOCKS as u32 - 1),
            bytes: self.pairs.get(pair as usize).map_or(0, |(bytes, _)| *bytes),
            pair,
        }
    }

    fn pair(&mut self, bytes: u64, requester: u32) -> u32 {
        // Beyond four million different sizes, a size is exact to one part in 1024.
        let coarse = || bytes.next_multiple_of(1 << (64 - bytes.leading_zeros()).saturating_sub(10).min(47));
        let bytes = if self.pairs.len() < SIZES - (1 << 17) { bytes } else { coarse() };
        let next = self.pairs.len() as u32;
        let index = *self.pair_index.entry((bytes, requester)).or_insert(next);
        if index == next {
            self.pairs.push((bytes, requester));
        }
        index
    }

    fn pack(&mut self, what: What, stream: u16, block: u32, bytes: u64, requester: u32) -> u64 {
        let pair = self.pair(bytes, requester);
        what as u64 | u64::from(stream) << 3 | u64::from(block) << 19 | u64::from(pair) << 42
    }

    pub(super) fn push(&mut self, what: What, stream: u16, block: u32, bytes: u64, requester: u32) -> u64 {
        let word = self.pack(what, stream, block, bytes, requester);
        if self.steps.len() >= MOST_STEPS {
            self.fold();
        }
        self.steps.push_back(word);
        self.dropped + self.steps.len() as u64 - 1
    }

    /// A step without a block.
    pub(super) fn note(&mut self, what: What) {
        self.push(what, 0, 0, 0, 0);
    }

    /// The oldest step becomes part of what was live at the beginning.
    fn fold(&mut self) {
        let Some(word) = self.steps.pop_front() else { return };
        self.dropped += 1;
        let step = self.unpack(word);
        match step.what {
            what if what.takes() => drop(self.opening.insert(step.block, word)),
            What::Free => drop(self.opening.remove(&step.block)),
            _ => {}
        }
    }

    pub(super) fn new_number(&mut self) -> Option<u32> {
        if self.numbers as usize >= BLOCKS {
            self.lost += 1;
            return None;
        }
        self.numbers += 1;
        Some(self.numbers - 1)
    }

    pub(super) fn request(&mut self, what: What, stream: u16, bytes: u64, requester: u32) -> Option<u32> {
        let block = self.vacant.pop().or_else(|| self.new_number())?;
        self.push(what, stream, block, bytes, requester);
        self.allocations += 1;
        Some(block)
    }

    pub(super) fn free(&mut self, stream: u16, block: u32) {
        self.push(What::Free, stream, block, 0, 0);
        self.vacant.push(block);
    }

    /// A block that is known only from its free: it was live from the beginning.
    pub(super) fn free_early(&mut self, what: What, stream: u16, bytes: u64, requester: u32) {
        // A number of its own: one that was used before would make it overlap with another block.
        let Some(block) = self.new_number() else { return };
        let word = self.pack(what, stream, block, bytes, requester);
        self.opening.insert(block, word);
        self.allocations += 1;
        self.free(stream, block);
    }

    /// All steps are there.
    pub(super) fn finish(mut self) -> Self {
        self.peak_live = peak(self.steps(), self.blocks(), self.refused_block.is_some());
        (self.pair_index, self.vacant) = (HashMap::new(), Vec::new());
        self
    }

    /// Reads a trace: lines of `id bytes` for an allocation and `id -bytes` for a free, plain or gzipped.
    pub fn from_trace(path: &Path) -> Result<Self, String> {
        let wrong = |problem: String| format!("{}: {problem}", path.display());
        let read = || -> io::Result<(bool, u64, std::fs::File)> {
            let file = open_file(path)?;
            let mut magic = [0; 2];
            let packed = Source::read_at(&file, &mut magic, 0)? == 2 && magic == [0x1f, 0x8b];
            Ok((packed, file.metadata()?.len(), file))
        };
        let (packed, size, file) = read().map_err(|error| wrong(error.to_string()))?;
        // A file that grows while it is read ends where it ended when it was opened.
        let file = BufReader::new(file.take(size));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if packed {
            let most = size.saturating_mul(MOST_EXPANSION).saturating_add(1 << 26);
            let text = Limited { from: flate2::bufread::MultiGzDecoder::new(file), left: most };
            return Self::read(&name, BufReader::new(text)).map_err(wrong);
        }
        Self::read(&name, file).map_err(wrong)
    }

    /// Reads the text of a trace. Empty lines and lines that begin with `#` are skipped.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        Self::read(name, text.as_bytes())
    }

    /// Reads a trace line by line, so that memory is bounded by the requests that are kept, not by the text.
    fn read(name: &str, mut text: impl BufRead) -> Result<Self, String> {
        // The stream of all requests, as TensorFlow's asynchronous allocator has one.
        const STREAM: u16 = 1;
        let mut requests = Self::none(name, 0);
        let mut live: HashMap<Box<str>, u32> = HashMap::new();
        let mut line = Vec::new();
        for number in 0.. {
            line.clear();
            let taken = (&mut text).take(LONGEST_LINE).read_until(b'\n', &mut line);
            if taken.map_err(|error| format!("line {}: {error}", number + 1))? == 0 {
                break;
            }
            if number >= MOST_LINES {
                return Err(format!("has more than {MOST_LINES} lines"));
            }
            let line = std::str::from_utf8(&line).map_err(|_| format!("line {}: is not text", number + 1))?;
            if line.len() as u64 == LONGEST_LINE && !line.ends_with('\n') {
                return Err(format!("line {}: is longer than {LONGEST_LINE} bytes", number + 1));
            }
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || format!("line {}: {line:?} is not `id bytes` with bytes other than 0", number + 1);
            let (id, bytes) = line.split_once(char::is_whitespace).ok_or_else(wrong)?;
            let bytes: i64 = bytes.split_whitespace().next().unwrap_or("").parse().map_err(|_| wrong())?;
            if bytes == 0 || bytes.unsigned_abs() >= 1 << 48 {
                return Err(wrong());
            }
            match live.remove(id) {
                // A free; or an id used anew, whose old block nobody can free any more.
                Some(block) => requests.free(STREAM, block),
                None if bytes < 0 => requests.lost += 1,
                None => {}
            }
            if bytes > 0
                && let Some(block) = requests.request(What::Request, STREAM, bytes.unsigned_abs(), 0)
            {
                if live.len() >= MOST_LIVE {
                    return Err(format!("line {}: more than {MOST_LIVE} blocks are live", number + 1));
                }
                live.insert(id.into(), block);
            }
            // The job fetches its loss now and then; between, nothing that was freed is known to be idle.
            if number % 4096 == 4095 {
                requests.note(What::Sync);
            }
        }
        if requests.is_empty() { Err("no allocation in the trace".into()) } else { Ok(requests.finish()) }
    }
}

/// A reader that fails, instead of ending, when too much has come from it.
struct Limited<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| io::Error::other("expands too far"))?;
        Ok(count)
    }
}

/// Most bytes live at the same time, the request that was refused included.
pub(super) fn peak(steps: impl Iterator<Item = Step>, blocks: usize, refused_stays: bool) -> u64 {
    let (mut held, mut live, mut peak) = (vec![0; blocks], 0_u64, 0);
    for step in steps {
        match step.what {
            What::Free => {
                live = live.saturating_sub(held.get_mut(step.block as usize).map_or(0, std::mem::take));
            }
            What::Refused if !refused_stays => peak = peak.max(live.saturating_add(step.bytes)),
            what if what.takes() || what == What::Refused => {
                live = live.saturating_add(step.bytes);
                if let Some(place) = held.get_mut(step.block as usize) {
                    *place = step.bytes;
                }
            }
            _ => {}
        }
        peak = peak.max(live);
    }
    peak
}
