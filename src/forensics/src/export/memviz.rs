//! A snapshot for PyTorch's memory viewer (pytorch.org/memory_viz): segments with their blocks, and the events that led
//! to them, by device.
//!
//! What was mapped when is known only as far back as the events go. So a segment here is a run of addresses that blocks were
//! seen in, in steps of 2 MiB, and none begins or ends in the course of time: what the viewer calls reserved is the
//! address space that was used, not physical memory. Memory without an address of its own (arrays, the context) is assigned one
//! beyond all others.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;

use weir_journal::reader::{Header, Slot, rebuilt_alloc};
use weir_journal::{Attribution, Class, Event, Kind, LiveEntry, STREAM_UNKNOWN};

use super::holdings::regions;
use super::names::{Names, Origin};
use super::pickle::Pickle;
use super::timeline::Timeline;
use super::{Divided, Export, Failure};
use crate::is_held;
use crate::xla::Compiled;

const STEP: u64 = 2 << 20;
/// Beyond every address of a GPU, and still exact in JavaScript's numbers.
const BEYOND: u64 = 1 << 50;

pub(super) fn write(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let newest = if export.newest == 0 { u64::MAX } else { export.newest };
    let from = export.timeline.reader().range().1.saturating_sub(newest);
    export.left_out = from.saturating_sub(export.timeline.reader().range().0);
    let numbers: Vec<u8> = export.timeline.reader().devices()?.iter().map(|device| device.number).collect();
    // The viewer finds a device's events by its number: devices in between have none.
    let count = numbers.iter().filter(|number| **number < 63).max().map_or(0, |most| usize::from(*most) + 1);
    let free = free_bytes(export)?;
    let Export { timeline, names, progress, compiled, .. } = export;
    let header = timeline.reader().header();
    let divided = Divided::default();
    let mut file =
        File { pickle: Pickle::new(to)?, header, names, compiled: *compiled, divided, stacks: HashMap::new(), free };
    let mut spaces = Vec::new();
    file.pickle.dict()?;
    file.pickle.text("device_traces")?;
    file.pickle.list()?;
    for device in 0..count as u8 {
        file.pickle.list()?;
        if numbers.contains(&device) {
            spaces.push((device, trace(timeline, &mut **progress, &mut file, device, from)?));
        }
        file.pickle.append()?;
    }
    file.pickle.text("segments")?;
    file.pickle.list()?;
    for (device, space) in &spaces {
        segments(timeline, &mut file, *device, space)?;
    }
    file.pickle.end_dict()?;
    Ok(file.pickle.stop()?)
}

/// The device's free memory at each OOM that was dumped, by event.
fn free_bytes(export: &Export<'_, '_>) -> Result<HashMap<u64, i64>, Failure> {
    let dumps = export.timeline.reader().oom_dumps()?;
    let values = dumps.iter().filter_map(|dump| serde_json::from_str::<serde_json::Value>(&dump.json).ok());
    Ok(values.filter_map(|dump| Some((dump["event"].as_u64()?, dump["situation"]["device_free"].as_i64()?))).collect())
}

struct File<'w, 'a, 'reader> {
    pickle: Pickle<'w>,
    header: &'reader Header,
    names: &'a mut Names<'reader>,
    compiled: Option<&'a Compiled>,
    divided: Divided,
    /// Where the memo has the list of frames of a stack, or of a part of an arena.
    stacks: HashMap<(Attribution, Class, Option<u32>), u32>,
    free: HashMap<u64, i64>,
}

/// The addresses that a device's blocks are seen in.
struct Space {
    regions: HashSet<u64>,
    /// Runs of addresses, none of which touch each other: where each begins and ends, in whole steps.
    runs: BTreeMap<u64, u64>,
    /// Stand-in addresses of memory that has none.
    assigned: HashMap<(Class, u64), u64>,
    vacant: HashMap<u64, Vec<u64>>,
    next: u64,
}

impl Space {
    /// Whether blocks of this sort are shown: a region stands behind its tensors.
    fn shows(&self, class: Class, address: u64) -> bool {
        class == Class::Tensor || (is_held(class) && !self.regions.contains(&address))
    }

    fn address(&mut self, kind: Kind, class: Class, address: u64, bytes: u64) -> u64 {
        if matches!(class, Class::Block | Class::Device | Class::Managed | Class::Tensor) {
            return address;
        }
        // A size has 48 bits in a journal.
        let room = bytes.next_multiple_of(STEP).max(STEP);
        if kind == Kind::Free
            && let Some(own) = self.assigned.remove(&(class, address))
        {
            self.vacant.entry(room).or_default().push(own);
            return own;
        }
        let fresh = self.vacant.get_mut(&room).and_then(Vec::pop).unwrap_or_else(|| {
            let own = self.next;
            self.next = own.saturating_add(room);
            own
        });
        self.assigned.insert((class, address), fresh);
        fresh
    }

    /// Makes a block part of a run. Costs the same for a block of any size.
    fn cover(&mut self, start: u64, bytes: u64) {
        let last = start.saturating_add(bytes.max(1) - 1) / STEP;
        let (mut first, mut end) = (start / STEP, last + 1);
        // Runs that overlap or touch become one with it; those that a long block swallows are gone afterwards.
        while let Some((&begin, &stop)) = self.runs.range(..=end).next_back().filter(|(_, stop)| **stop >= first) {
            self.runs.remove(&begin);
            (first, end) = (first.min(begin), end.max(stop));
        }
        self.runs.insert(first, end);
    }
}

fn trace(
    timeline: &Timeline<'_>,
    progress: &mut dyn FnMut(u64, u64),
    file: &mut File<'_, '_, '_>,
    device: u8,
    from: u64,
) -> Result<Space, Failure> {
    let regions = regions(timeline, timeline.opening()?, 0, device)?;
    let mut space =
        Space { regions, runs: BTreeMap::new(), assigned: HashMap::new(), vacant: HashMap::new(), next: BEYOND };
    for entry in timeline.opening()?.iter().filter(|entry| entry.device == device) {
        if space.shows(entry.class, entry.address) {
            space.address(Kind::Alloc, entry.class, entry.address, entry.allocated);
        }
    }
    for (done, slot) in timeline.events().enumerate() {
        progress(done as u64, timeline.length());
        let Slot::Event(event) = slot? else { continue };
        if event.device != device {
            continue;
        }
        match event.kind {
            Kind::Alloc | Kind::Free if event.allocated > 0 && space.shows(event.class, event.address) => {
                let address = space.address(event.kind, event.class, event.address, event.allocated);
                if event.seq < from {
                    continue;
                }
                space.cover(address, event.allocated);
                let mut at = address;
                for (part, bytes) in file.divided.parts(file.compiled, file.names, &event)? {
                    if event.kind == Kind::Alloc {
                        step(file, &event, "alloc", at, bytes, part)?;
                    } else {
                        step(file, &event, "free_requested", at, bytes, part)?;
                        step(file, &event, "free_completed", at, bytes, part)?;
                    }
                    at = at.saturating_add(bytes);
                }
            }
            Kind::Oom if event.seq >= from => step(file, &event, "oom", 0, 0, None)?,
            _ => {}
        }
    }
    for entry in timeline.live().iter().filter(|entry| entry.device == device) {
        if space.shows(entry.class, entry.address) || space.regions.contains(&entry.address) {
            let address = space.assigned.get(&(entry.class, entry.address)).copied().unwrap_or(entry.address);
            space.cover(address, entry.allocated);
        }
    }
    Ok(space)
}

fn step(
    file: &mut File<'_, '_, '_>,
    event: &Event,
    action: &str,
    address: u64,
    bytes: u64,
    part: Option<u32>,
) -> Result<(), Failure> {
    let micros = (file.header.realtime_ns(event.time) / 1000) as i64;
    file.pickle.dict()?;
    file.pickle.text("action")?;
    file.pickle.text(action)?;
    if action == "oom" {
        file.pickle.entry("device_free", file.free.get(&event.seq).copied().unwrap_or(0))?;
        file.pickle.entry("size", event.requested as i64)?;
    } else {
        file.pickle.entry("addr", address as i64)?;
        file.pickle.entry("size", bytes as i64)?;
    }
    file.pickle.entry("stream", stream(event.stream))?;
    file.pickle.entry("time_us", micros)?;
    frames(file, event.by, event.class, part)?;
    file.pickle.end_dict()?;
    Ok(file.pickle.append()?)
}

fn stream(number: u16) -> i64 {
    if number == STREAM_UNKNOWN { 0 } else { i64::from(number) }
}

fn frames(file: &mut File<'_, '_, '_>, by: Attribution, class: Class, part: Option<u32>) -> Result<(), Failure> {
    file.pickle.text("frames")?;
    if let Some(place) = file.stacks.get(&(by, class, part)) {
        return Ok(file.pickle.again(*place)?);
    }
    file.pickle.list()?;
    let stack = file.names.stack(by, class)?;
    for number in part.iter().chain(stack.iter()) {
        let frame = file.names.frame(*number);
        let source = match frame.origin {
            Origin::Op => "TensorFlow operation",
            Origin::Native if frame.file.is_empty() => &frame.module,
            _ => &frame.file,
        };
        file.pickle.dict()?;
        file.pickle.text("name")?;
        file.pickle.text(&frame.name)?;
        file.pickle.text("filename")?;
        file.pickle.text(source)?;
        file.pickle.entry("line", i64::from(frame.line))?;
        file.pickle.end_dict()?;
        file.pickle.append()?;
    }
    let place = file.pickle.remember()?;
    file.stacks.insert((by, class, part), place);
    Ok(())
}

/// Writes the segments of a device: runs of steps that touch each other.
fn segments(timeline: &Timeline<'_>, file: &mut File<'_, '_, '_>, device: u8, space: &Space) -> Result<(), Failure> {
    let shown = timeline.live().iter().filter(|e| e.device == device && space.shows(e.class, e.address));
    let blocks: BTreeMap<u64, LiveEntry> = shown
        .map(|entry| (space.assigned.get(&(entry.class, entry.address)).copied().unwrap_or(entry.address), *entry))
        .collect();
    for (first, end) in &space.runs {
        segment(file, device, (first * STEP, end.saturating_mul(STEP)), &blocks)?;
    }
    Ok(())
}

fn segment(
    file: &mut File<'_, '_, '_>,
    device: u8,
    (start, end): (u64, u64),
    blocks: &BTreeMap<u64, LiveEntry>,
) -> Result<(), Failure> {
    let inside = blocks.range(start..end);
    let sum = |of: fn(&LiveEntry) -> u64| inside.clone().fold(0, |sum: u64, (_, entry)| sum.saturating_add(of(entry)));
    let (live, requested) = (sum(|entry| entry.allocated), sum(|entry| entry.requested));
    let number = inside.clone().next().map_or(0, |(_, entry)| stream(entry.stream));
    file.pickle.dict()?;
    for (key, value) in [
        ("device", i64::from(device)),
        ("address", start as i64),
        ("total_size", (end - start) as i64),
        ("allocated_size", live as i64),
        ("active_size", live as i64),
        ("requested_size", requested as i64),
        ("stream", number),
    ] {
        file.pickle.entry(key, value)?;
    }
    file.pickle.text("segment_type")?;
    file.pickle.text("large")?;
    file.pickle.text("segment_pool_id")?;
    file.pickle.pair(0, 0)?;
    file.pickle.text("is_expandable")?;
    file.pickle.truth(true)?;
    file.pickle.text("frames")?;
    file.pickle.list()?;
    file.pickle.text("blocks")?;
    file.pickle.list()?;
    let mut at = start;
    for (address, entry) in inside {
        // What overlaps is damage, or a free that was lost; the viewer wants blocks in a row.
        if *address < at {
            continue;
        }
        gap(file, at, *address)?;
        let (mut place, last) = (*address, address.saturating_add(entry.allocated).min(end));
        let mut requested = entry.requested;
        let parts = super::inside(file.compiled, file.names, &rebuilt_alloc(entry))?;
        let parts = parts.into_iter().map(|(frame, bytes)| (Some(frame), bytes)).filter(|(_, bytes)| *bytes > 0);
        for (part, bytes) in parts.chain([(None, u64::MAX)]) {
            let bytes = bytes.min(last - place);
            if bytes == 0 && place > *address {
                break;
            }
            let of_it = if part.is_some() { bytes.min(requested) } else { requested };
            block(file, place, bytes, of_it, "active_allocated")?;
            frames(file, entry.by, entry.class, part)?;
            end_block(file)?;
            (place, requested) = (place + bytes, requested - of_it);
        }
        at = address.saturating_add(entry.allocated).min(end);
    }
    gap(file, at, end)?;
    file.pickle.end_dict()?;
    Ok(file.pickle.append()?)
}

fn gap(file: &mut File<'_, '_, '_>, from: u64, to: u64) -> Result<(), Failure> {
    if from < to {
        block(file, from, to - from, 0, "inactive")?;
        file.pickle.text("frames")?;
        file.pickle.list()?;
        end_block(file)?;
    }
    Ok(())
}

fn block(file: &mut File<'_, '_, '_>, address: u64, size: u64, requested: u64, state: &str) -> Result<(), Failure> {
    file.pickle.dict()?;
    file.pickle.entry("address", address as i64)?;
    file.pickle.entry("size", size as i64)?;
    file.pickle.entry("requested_size", requested as i64)?;
    file.pickle.text("state")?;
    Ok(file.pickle.text(state)?)
}

fn end_block(file: &mut File<'_, '_, '_>) -> Result<(), Failure> {
    file.pickle.end_dict()?;
    Ok(file.pickle.append()?)
}
