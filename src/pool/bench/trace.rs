//! Traces of allocations: reading them, and finding out how long one iteration of the recorded job is.
//! Reads the files it is given, nothing else.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// One line of a trace: `bytes` is positive for an allocation, negative for a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Number of the block, dense from 0; an id that comes again gets a new number.
    pub(crate) block: u32,
    /// Bytes allocated (positive) or freed (negative).
    pub(crate) bytes: i64,
}

/// A trace, checked and renumbered.
#[derive(Debug)]
pub(crate) struct Trace {
    /// File name without directories and endings.
    pub(crate) name: String,
    pub(crate) events: Vec<Event>,
    /// Most bytes live at the same time.
    pub(crate) peak: u64,
    /// Number of different blocks.
    pub(crate) blocks: u32,
    /// Frees of ids that were not live; left out.
    pub(crate) unknown_frees: u64,
    /// Events of one iteration, if the job repeats itself, and whether with the same sizes.
    pub(crate) period: Option<(usize, bool)>,
}

impl Trace {
    /// Read a trace, plain or gzipped.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut text = String::new();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            flate2::read::MultiGzDecoder::new(&bytes[..])
                .read_to_string(&mut text)
                .map_err(|error| format!("{}: not a whole gzip file: {error}", path.display()))?;
        } else {
            text = String::from_utf8(bytes).map_err(|_| format!("{}: neither text nor gzip", path.display()))?;
        }
        let name = path.file_name().map_or_else(|| "trace".into(), |name| name.to_string_lossy().into_owned());
        let name = name.trim_end_matches(".gz").trim_end_matches(".txt").to_owned();
        Self::parse(name, &text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Parse lines of `id bytes`; empty lines and lines that begin with `#` are skipped.
    pub(crate) fn parse(name: String, text: &str) -> Result<Self, String> {
        let mut live: HashMap<&str, (u32, u64)> = HashMap::new();
        let (mut events, mut blocks, mut unknown_frees, mut held, mut peak) = (Vec::new(), 0u32, 0, 0u64, 0);
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || format!("line {}: {line:?} is not `id bytes` with bytes other than 0", number + 1);
            let (id, bytes) = line.split_once(char::is_whitespace).ok_or_else(wrong)?;
            let bytes: i64 = bytes.split_whitespace().next().unwrap_or("").parse().map_err(|_| wrong())?;
            if bytes == 0 || bytes == i64::MIN {
                return Err(wrong());
            }
            let old = live.remove(id);
            if let Some((block, size)) = old {
                // A free; or an id used anew, whose old block nobody can free any more.
                events.push(Event { block, bytes: -(size as i64) });
                held -= size;
            } else if bytes < 0 {
                unknown_frees += 1;
            }
            if bytes > 0 {
                live.insert(id, (blocks, bytes as u64));
                events.push(Event { block: blocks, bytes });
                blocks += 1;
                held = held.checked_add(bytes as u64).ok_or("more than 2^64 bytes live")?;
                peak = peak.max(held);
            }
        }
        if blocks == 0 {
            return Err("no allocation in the trace".into());
        }
        let period = period(&events);
        Ok(Self { name, events, peak, blocks, unknown_frees, period })
    }

    /// Does an iteration end before event `at`? Jobs that don't repeat themselves are cut every 4096 events.
    pub(crate) fn boundary(&self, at: usize) -> bool {
        let length = self.period.map_or(4096, |(length, _)| length);
        // Counted from the end: the recorded set-up at the beginning is not an iteration.
        at > 0 && (self.events.len() - at).is_multiple_of(length)
    }
}

/// The shortest distance at which the second half of the trace repeats itself: first with sizes, else in
/// the pattern of allocations and frees alone.
fn period(events: &[Event]) -> Option<(usize, bool)> {
    let (count, half) = (events.len(), events.len() / 2);
    let step = (half / 499).max(1);
    let share = |distance: usize, same: &dyn Fn(i64, i64) -> bool| {
        let probes = (half.max(distance)..count).step_by(step);
        let total = probes.clone().count().max(1);
        probes.filter(|at| same(events[*at].bytes, events[at - distance].bytes)).count() as f64 / total as f64
    };
    let lengths = 64..(half + 1).min(50_000);
    let exact = lengths.clone().find(|length| share(*length, &|one, other| one == other) > 0.95);
    let alike = || lengths.clone().find(|length| share(*length, &|one, other| (one > 0) == (other > 0)) > 0.99);
    exact.map(|length| (length, true)).or_else(|| alike().map(|length| (length, false)))
}
