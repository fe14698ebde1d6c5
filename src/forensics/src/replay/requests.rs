//! What a job asked for, in order and packed: from a journal, a recording or a trace file. Reads files.
//!
//! A step takes eight bytes, and at most [`MOST_STEPS`] are kept; the outcome of older ones is kept as what was live
//! when the rest begins. So memory is bounded however long the recording is.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::Read;
use std::path::Path;

use weir_journal::reader::{Error, Reader, Slot};
use weir_journal::{Attribution, Class, Event, FLAG_INTERNAL, FLAG_UNKNOWN_ADDRESS, Kind, LiveEntry};

use crate::export::holdings::regions;
use crate::export::timeline::Timeline;

/// Steps kept at most: 384 MB.
pub const MOST_STEPS: usize = 48 << 20;
/// Allocations after a failed request from which on the job counts as having got over it.
const SURVIVED: u64 = 1000;
const SIZES: usize = 1 << 22;
const BLOCKS: usize = 1 << 23;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Asks the allocator for a block.
    Ask,
    /// Takes device memory past the allocator.
    Hold,
    /// Gives a block, or what was held, back.
    Free,
    /// The job waits for the device.
    Sync,
    /// The request that the job did not get: it must fit, and nothing is known of it afterwards.
    Demand,
    /// Nothing any more.
    Nothing,
}

const WHATS: [What; 6] = [What::Ask, What::Hold, What::Free, What::Sync, What::Demand, What::Nothing];

/// One step. Numbers of blocks are used again, so they stay below the most blocks ever live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) what: What,
    pub(crate) stream: u16,
    pub(crate) block: u32,
    pub(crate) bytes: u64,
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
    /// Most bytes asked for and live at the same time, the request that the job died of included.
    pub peak_live: u64,
    /// Events that the recording lacks.
    pub lost: u64,
    /// The request that the job did not get, and died of.
    pub demand: Option<u64>,
    steps: VecDeque<u64>,
    opening: BTreeMap<u32, u64>,
    sizes: Vec<u64>,
    size_index: HashMap<u64, u32>,
    vacant: Vec<u32>,
    numbers: u32,
    dropped: u64,
}

impl Requests {
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

    /// Blocks live at the same time, at most.
    pub(crate) fn blocks(&self) -> usize {
        self.numbers as usize
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.opening.values().chain(&self.steps).map(|word| self.unpack(*word))
    }

    fn unpack(&self, word: u64) -> Step {
        Step {
            what: WHATS.get((word & 7) as usize).copied().unwrap_or(What::Nothing),
            stream: (word >> 3) as u16,
            block: (word >> 19) as u32 & (BLOCKS as u32 - 1),
            bytes: self.sizes.get((word >> 42) as usize).copied().unwrap_or(0),
        }
    }

    fn size(&mut self, bytes: u64) -> u32 {
        // Beyond four million different sizes, a size is told to one part in 1024.
        let coarse = || bytes.next_multiple_of(1 << (64 - bytes.leading_zeros()).saturating_sub(10).min(47));
        let bytes = if self.sizes.len() < SIZES - (1 << 17) { bytes } else { coarse() };
        let next = self.sizes.len() as u32;
        let index = *self.size_index.entry(bytes).or_insert(next);
        if index == next {
            self.sizes.push(bytes);
        }
        index
    }

    fn pack(&mut self, what: What, stream: u16, block: u32, bytes: u64) -> u64 {
        let size = self.size(bytes);
        what as u64 | u64::from(stream) << 3 | u64::from(block) << 19 | u64::from(size) << 42
    }

    fn push(&mut self, what: What, stream: u16, block: u32, bytes: u64) -> u64 {
        let word = self.pack(what, stream, block, bytes);
        if self.steps.len() >= MOST_STEPS {
            self.fold();
        }
        self.steps.push_back(word);
        self.dropped + self.steps.len() as u64 - 1
    }

    /// The oldest step becomes part of what was live at the beginning.
    fn fold(&mut self) {
        let Some(word) = self.steps.pop_front() else { return };
        self.dropped += 1;
        let step = self.unpack(word);
        match step.what {
            What::Ask | What::Hold => drop(self.opening.insert(step.block, word)),
            What::Free => drop(self.opening.remove(&step.block)),
            _ => {}
        }
    }

    fn new_number(&mut self) -> Option<u32> {
        if self.numbers as usize >= BLOCKS {
            self.lost += 1;
            return None;
        }
        self.numbers += 1;
        Some(self.numbers - 1)
    }

    fn ask(&mut self, what: What, stream: u16, bytes: u64) -> Option<u32> {
        let block = self.vacant.pop().or_else(|| self.new_number())?;
        self.push(what, stream, block, bytes);
        self.allocations += 1;
        Some(block)
    }

    fn free(&mut self, stream: u16, block: u32) {
        self.push(What::Free, stream, block, 0);
        self.vacant.push(block);
    }

    /// A block that is known only from its free: it was live from the beginning.
    fn free_early(&mut self, what: What, stream: u16, bytes: u64) {
        // A number of its own: one that was used before would make it overlap with another block.
        let Some(block) = self.new_number() else { return };
        let word = self.pack(what, stream, block, bytes);
        self.opening.insert(block, word);
        self.allocations += 1;
        self.free(stream, block);
    }

    /// Follows the steps once, for the peak.
    fn finish(mut self) -> Self {
        let mut held = vec![0; self.blocks()];
        let (mut live, mut peak) = (0_u64, 0);
        for step in self.steps() {
            let place = held.get_mut(step.block as usize);
            match step.what {
                What::Ask | What::Hold => {
                    live += step.bytes;
                    if let Some(place) = place {
                        *place = step.bytes;
                    }
                }
                What::Free => live -= place.map_or(0, std::mem::take),
                What::Demand => peak = peak.max(live + step.bytes),
                What::Sync | What::Nothing => {}
            }
            peak = peak.max(live);
        }
        self.peak_live = peak;
        (self.size_index, self.vacant) = (HashMap::new(), Vec::new());
        self
    }

    /// Reads what a job asked for on one device; without one, on the device that the job used most.
    pub fn from_journal(name: &str, reader: &Reader, device: Option<u8>) -> Result<Self, Error> {
        Self::if_released(name, reader, device, |_| false)
    }

    /// The same, as if the job had given back at the end of each step what those asked for whom `released` picks.
    pub fn if_released(
        name: &str,
        reader: &Reader,
        device: Option<u8>,
        released: impl FnMut(Attribution) -> bool,
    ) -> Result<Self, Error> {
        let devices = reader.devices()?;
        let most = devices.iter().max_by_key(|device| device.usage.iter().map(|(_, _, peak)| peak).max());
        let number = device.or(most.map(|device| device.number)).unwrap_or(0);
        let mut requests = Self { name: name.to_owned(), device: number, ..Self::default() };
        let found = devices.iter().find(|device| device.number == number);
        if let Some(device) = found {
            (requests.device_bytes, requests.cap) = (device.total, device.cap);
        }
        let has = |wanted: Class| {
            found.is_some_and(|device| device.usage.iter().any(|(class, _, peak)| *class == wanted && *peak > 0))
        };
        let timeline = Timeline::of(reader)?;
        let regions = if has(Class::Tensor) { regions(&timeline, number)? } else { HashSet::new() };
        let pooled = has(Class::Block);
        let (live, gone) = (HashMap::new(), HashSet::new());
        Intake { requests, regions, pooled, live, failed: None, released, leaving: Vec::new(), gone }.read(&timeline)
    }

    /// Reads a trace: lines of `id bytes` for an allocation and `id -bytes` for a free, plain or gzipped.
    pub fn from_trace(path: &Path) -> Result<Self, String> {
        let wrong = |problem: String| format!("{}: {problem}", path.display());
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let mut text = String::new();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut gzip = flate2::read::MultiGzDecoder::new(&bytes[..]);
            gzip.read_to_string(&mut text).map_err(|error| wrong(format!("not a whole gzip file: {error}")))?;
        } else {
            text = String::from_utf8(bytes).map_err(|_| wrong("neither text nor gzip".into()))?;
        }
        Self::parse(&path.file_name().unwrap_or_default().to_string_lossy(), &text).map_err(wrong)
    }

    /// Reads the text of a trace. Empty lines and lines that begin with `#` are skipped.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        // The stream of all requests, as TensorFlow's asynchronous allocator has one.
        const STREAM: u16 = 1;
        let mut requests = Self { name: name.to_owned(), ..Self::default() };
        let mut live: HashMap<&str, u32> = HashMap::new();
        for (number, line) in text.lines().map(str::trim).enumerate() {
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
                && let Some(block) = requests.ask(What::Ask, STREAM, bytes.unsigned_abs())
            {
                live.insert(id, block);
            }
            // The job fetches its loss now and then; between, nothing that was freed is known to be idle.
            if number % 4096 == 4095 {
                requests.push(What::Sync, 0, 0, 0);
            }
        }
        if requests.is_empty() { Err("no allocation in the trace".into()) } else { Ok(requests.finish()) }
    }
}

/// What to do with an allocation of this class.
fn role(class: Class, internal: bool, region: bool) -> Option<What> {
    match class {
        Class::Block | Class::Device if !region && !internal => Some(What::Ask),
        Class::Tensor => Some(What::Ask),
        Class::Handle | Class::Overhead | Class::Managed | Class::Array | Class::Imported | Class::Other
            if !internal =>
        {
            Some(What::Hold)
        }
        _ => None,
    }
}

/// Turns events into steps.
struct Intake<Released> {
    requests: Requests,
    regions: HashSet<u64>,
    /// Whether weir's pool served the job: then a handle of unknown origin is the pool's.
    pooled: bool,
    live: HashMap<(Class, u64), u32>,
    /// Step of the last failed request, its size, and the allocations since.
    failed: Option<(u64, u64, u64)>,
    released: Released,
    /// What is given back when the next step begins.
    leaving: Vec<(Class, u64, u16)>,
    /// What was given back so: the free that the job made does not count.
    gone: HashSet<(Class, u64)>,
}

impl<Released: FnMut(Attribution) -> bool> Intake<Released> {
    fn read(mut self, timeline: &Timeline<'_>) -> Result<Requests, Error> {
        let first = timeline.reader().range().0;
        for entry in timeline.live().iter().filter(|entry| entry.birth < first) {
            self.opened(entry);
        }
        for slot in timeline.events() {
            match slot? {
                Slot::Event(event) if event.device == self.requests.device => self.event(&event),
                // A step fetches its loss, and so waits for the device.
                Slot::Event(event) if event.kind == Kind::Step => self.step(),
                Slot::Event(_) => {}
                Slot::Lost(loss) => self.requests.lost += loss.count,
            }
        }
        self.requests.demand = self.failed.map(|(_, bytes, _)| bytes);
        Ok(self.requests.finish())
    }

    fn opened(&mut self, entry: &LiveEntry) {
        let internal = self.pooled && entry.class == Class::Handle;
        if entry.device == self.requests.device
            && let Some(what) = role(entry.class, internal, self.regions.contains(&entry.address))
        {
            let bytes = if entry.asked == 0 { entry.given } else { entry.asked };
            self.take(what, entry.class, entry.address, entry.stream, bytes, entry.by);
        }
    }

    fn step(&mut self) {
        self.requests.push(What::Sync, 0, 0, 0);
        for (class, address, stream) in self.leaving.drain(..) {
            if let Some(block) = self.live.remove(&(class, address)) {
                self.requests.free(stream, block);
                self.gone.insert((class, address));
            }
        }
    }

    fn take(&mut self, what: What, class: Class, address: u64, stream: u16, bytes: u64, by: Attribution) {
        if let Some(block) = self.live.remove(&(class, address)) {
            // Its free is missing.
            self.requests.free(stream, block);
        }
        if let Some(block) = self.requests.ask(what, stream, bytes) {
            self.live.insert((class, address), block);
        }
        self.gone.remove(&(class, address));
        if (self.released)(by) {
            self.leaving.push((class, address, stream));
        }
    }

    fn event(&mut self, event: &Event) {
        let bytes = if event.asked == 0 { event.given } else { event.asked };
        let internal = event.flags & FLAG_INTERNAL != 0;
        let what = role(event.class, internal, self.regions.contains(&event.address));
        match event.kind {
            Kind::Alloc => {
                let Some(what) = what else { return };
                self.take(what, event.class, event.address, event.stream, bytes, event.by);
                if let Some((_, asked, since)) = &mut self.failed {
                    *since += 1;
                    if bytes >= *asked || *since > SURVIVED {
                        self.survived();
                    }
                }
            }
            Kind::Free if event.flags & FLAG_UNKNOWN_ADDRESS == 0 => {
                match (self.live.remove(&(event.class, event.address)), what) {
                    (Some(block), _) => self.requests.free(event.stream, block),
                    (None, _) if self.gone.remove(&(event.class, event.address)) => {}
                    // A free does not say whose it was.
                    (None, Some(_)) if self.pooled && event.class == Class::Handle => {}
                    (None, Some(what)) => self.requests.free_early(what, event.stream, bytes),
                    (None, None) => {}
                }
            }
            Kind::Failed | Kind::Refused | Kind::Oom if what.is_some() && bytes > 0 => {
                self.survived();
                let step = self.requests.push(What::Demand, event.stream, 0, bytes);
                self.failed = Some((step, bytes, 0));
            }
            Kind::Step => self.step(),
            Kind::Sync => drop(self.requests.push(What::Sync, 0, 0, 0)),
            _ => {}
        }
    }

    /// The job went on after a failed request: it could do without.
    fn survived(&mut self) {
        let Some((step, _, _)) = self.failed.take() else { return };
        let place = step.checked_sub(self.requests.dropped).map(|place| place as usize);
        if let Some(word) = place.and_then(|place| self.requests.steps.get_mut(place)) {
            *word = *word & !7 | What::Nothing as u64;
        }
    }
}
