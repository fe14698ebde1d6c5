//! A profile for XProf, TensorBoard's profiler: every allocation and free as the events of which it makes its memory profile,
//! and XLA's modules, of which its memory viewer shows the buffers. Protocol Buffers, written by hand.
//!
//! All events belong to one step: XProf lists by name only what the step of the peak allocated, and calls the rest unused.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use weir_journal::reader::{Header, Slot};
use weir_journal::text::plain;
use weir_journal::{Attribution, Class, Event, Kind};

use super::holdings::regions;
use super::names::{Names, class_text};
use super::proto::Message;
use super::{Export, Failure};
use crate::is_held;
use crate::names::base_name;
use crate::xla::{Arena, Compiled};

/// What XProf calls the planes that it looks for, and the events on the first.
const HOST: &str = "/host:CPU";
const METADATA: &str = "/host:metadata";
const ALLOCATION: u64 = 1;
const DEALLOCATION: u64 = 2;
const EVENTS: [(u64, &str); 2] = [(ALLOCATION, "MemoryAllocation"), (DEALLOCATION, "MemoryDeallocation")];

/// What is said of an event; its number is its place, from 1.
const STATS: [&str; 12] = [
    "allocator_name",
    "bytes_reserved",
    "bytes_allocated",
    "bytes_available",
    "peak_bytes_in_use",
    "requested_bytes",
    "allocation_bytes",
    "addr",
    "data_type",
    "tf_op",
    "region_type",
    "shape",
];
/// The step of an event, and of a module what XLA wrote.
const GROUP: u64 = STATS.len() as u64 + 1;
const MODULE: u64 = 1;
/// Where the numbers of texts begin.
const TEXTS: u64 = 64;
/// Bytes of modules at most, as many as are kept of a run.
const MOST_MODULES: usize = 256 << 20;

pub(super) fn write(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let newest = if export.newest == 0 { u64::MAX } else { export.newest };
    let from = export.timeline.reader().range().1.saturating_sub(newest);
    export.left_out = from.saturating_sub(export.timeline.reader().range().0);
    let devices = export.timeline.reader().devices()?;
    let opening = export.timeline.live_before(from)?;
    let Export { timeline, names, progress, compiled, .. } = export;
    let header = timeline.reader().header();
    let mut file = File::new(header, names, *compiled);
    for device in &devices {
        let regions = regions(timeline, opening.clone(), from, device.number)?;
        file.devices.insert(device.number, Plane { total: device.total, live: 0, peak: 0, regions });
    }
    for entry in &opening {
        file.event(&weir_journal::reader::rebuilt_alloc(entry))?;
    }
    for (done, slot) in timeline.events_from(from).enumerate() {
        progress(done as u64, timeline.length());
        if let Slot::Event(event) = slot? {
            file.event(&event)?;
        }
    }
    file.write(to)?;
    if let Some(compiled) = compiled {
        let plane = modules(compiled);
        to.write_all(Message::new().begin(1, plane.bytes().len()).bytes())?;
        to.write_all(plane.bytes())?;
    }
    Ok(to.write_all(Message::new().text(4, &plain(&header.command.join(" "))).bytes())?)
}

/// XLA's modules, where the memory viewer looks for them.
fn modules(compiled: &Compiled) -> Message {
    let (mut plane, mut number, mut left) = (Message::new(), 0, MOST_MODULES);
    plane.text(2, METADATA);
    compiled.each_module(|name, bytes| {
        if bytes.len() > left {
            return;
        }
        left -= bytes.len();
        number += 1;
        let (mut stat, mut module) = (Message::new(), Message::new());
        stat.number(1, MODULE).blob(6, bytes);
        module.number(1, number).text(2, &plain(name)).message(5, &stat);
        plane.message(4, Message::new().number(1, number).message(2, &module));
    });
    plane.message(5, &named(MODULE, "Hlo Proto"));
    plane
}

/// An entry of a table of names.
fn named(number: u64, name: &str) -> Message {
    let mut entry = Message::new();
    entry.number(1, number).message(2, Message::new().number(1, number).text(2, name));
    entry
}

/// A device as it is at the moment.
struct Plane {
    total: u64,
    live: u64,
    peak: u64,
    /// Addresses of what TensorFlow's own allocator cuts up: its tensors are shown instead.
    regions: HashSet<u64>,
}

/// What an event is about.
struct What<'text> {
    address: u64,
    requested: u64,
    allocated: u64,
    dtype: u32,
    op: &'text str,
    region: &'text str,
    shape: &'text str,
}

struct File<'a, 'reader> {
    names: &'a mut Names<'reader>,
    compiled: Option<&'a Compiled>,
    devices: HashMap<u8, Plane>,
    /// Arenas whose parts are shown, by device and address.
    open: HashMap<(u8, u64), &'a Arena>,
    header: &'reader Header,
    /// What a text is called: the shown name of each requester.
    shown: HashMap<(Attribution, Class), u32>,
    used: HashSet<u64>,
    line: Message,
    /// When the newest event was, in picoseconds.
    last: u64,
}

impl<'a, 'reader> File<'a, 'reader> {
    fn new(header: &'reader Header, names: &'a mut Names<'reader>, compiled: Option<&'a Compiled>) -> Self {
        let mut line = Message::new();
        line.number(1, 1).text(2, "weir").number(3, header.started.realtime);
        Self {
            names,
            compiled,
            devices: HashMap::new(),
            open: HashMap::new(),
            header,
            shown: HashMap::new(),
            used: HashSet::new(),
            line,
            last: 0,
        }
    }

    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        let Some(device) = self.devices.get(&event.device) else { return Ok(()) };
        let shows = event.class == Class::Tensor || (is_held(event.class) && !device.regions.contains(&event.address));
        if !shows || !matches!(event.kind, Kind::Alloc | Kind::Free) {
            return Ok(());
        }
        let texts = self.names.texts(event.by, event.class, false)?;
        let (region, shape) = (self.names.text_of(texts.region), self.names.text_of(texts.shape));
        let key = (event.device, event.address);
        let arena = match event.kind {
            Kind::Alloc => {
                let op = self.names.text_of(texts.op);
                self.compiled.and_then(|compiled| compiled.arena(event.requested, &region, &op))
            }
            _ => self.open.remove(&key),
        };
        let mut rest = What {
            address: event.address,
            requested: event.requested,
            allocated: event.allocated,
            dtype: texts.dtype,
            op: "",
            region: &region,
            shape: &shape,
        };
        if let Some(arena) = arena {
            if event.kind == Kind::Alloc {
                self.open.insert(key, arena);
            }
            for part in &arena.parts {
                // Its place in the arena is not known here: they lie one behind the other.
                let bytes = part.bytes.min(rest.allocated);
                let name = called(&part.op, &part.python);
                let what = What {
                    requested: bytes,
                    allocated: bytes,
                    op: &name,
                    region: part.role.word(),
                    shape: &part.shape,
                    ..rest
                };
                self.put(event, &what);
                rest.address = rest.address.saturating_add(bytes);
                rest.allocated -= bytes;
                rest.requested = rest.requested.saturating_sub(bytes);
            }
            if rest.allocated == 0 {
                return Ok(());
            }
        }
        let number = if let Some(number) = self.shown.get(&(event.by, event.class)) {
            *number
        } else {
            let name = called(&self.names.text_of(texts.op), &self.names.place(event.by)?);
            let name = if name.is_empty() { format!("[{}]", class_text(event.class)) } else { name };
            let number = self.names.text(&name);
            self.shown.insert((event.by, event.class), number);
            number
        };
        let op = self.names.text_of(number);
        self.put(event, &What { op: &op, ..rest });
        Ok(())
    }

    /// Appends an event. No two are at the same time: XProf sorts them by it.
    fn put(&mut self, event: &Event, what: &What<'_>) {
        let Some(device) = self.devices.get_mut(&event.device) else { return };
        let allocates = event.kind == Kind::Alloc;
        device.live = if allocates {
            device.live.saturating_add(what.allocated)
        } else {
            device.live.saturating_sub(what.allocated)
        };
        device.peak = device.peak.max(device.live);
        let since = self.header.realtime_ns(event.time).saturating_sub(self.header.started.realtime);
        self.last = since.saturating_mul(1000).max(self.last.saturating_add(1));
        let numbers = [
            0,
            device.live,
            device.total.saturating_sub(device.live),
            device.peak,
            what.requested,
            what.allocated,
            what.address,
            u64::from(what.dtype),
        ];
        let mut made = Message::new();
        made.number(1, if allocates { ALLOCATION } else { DEALLOCATION }).number(2, self.last);
        let mut stat = |number: u64, field: u32, value: u64| {
            made.message(4, Message::new().number(1, number).always(field, value));
        };
        stat(1, 7, self.text(&format!("GPU:{}", event.device)));
        for (number, value) in (2..).zip(numbers) {
            stat(number, 4, value);
        }
        for (number, text) in (10..).zip([what.op, what.region, what.shape]) {
            stat(number, 7, self.text(text));
        }
        stat(GROUP, 4, 0);
        self.line.message(4, &made);
    }

    /// The number by which a stat refers to a text.
    fn text(&mut self, text: &str) -> u64 {
        let number = TEXTS + u64::from(self.names.text(text));
        self.used.insert(number);
        number
    }

    /// The plane of the host. Its events are most of the file, and are not copied once more.
    fn write(self, to: &mut dyn Write) -> Result<(), Failure> {
        let (mut head, mut plane) = (Message::new(), Message::new());
        head.text(2, HOST).begin(3, self.line.bytes().len());
        for (number, name) in EVENTS {
            plane.message(4, &named(number, name));
        }
        for (number, name) in (1..).zip(STATS) {
            plane.message(5, &named(number, name));
        }
        plane.message(5, &named(GROUP, "group_id"));
        let mut used: Vec<u64> = self.used.into_iter().collect();
        used.sort_unstable();
        for number in used {
            plane.message(5, &named(number, &self.names.text_of((number - TEXTS) as u32)));
        }
        let parts = [head.bytes(), self.line.bytes(), plane.bytes()];
        to.write_all(Message::new().begin(1, parts.iter().map(|part| part.len()).sum()).bytes())?;
        for part in parts {
            to.write_all(part)?;
        }
        Ok(())
    }
}

/// `conv/Conv2D at model.py:21`.
fn called(op: &str, python: &str) -> String {
    match (op, base_name(python)) {
        (op, "") => op.to_owned(),
        ("", place) => place.to_owned(),
        (op, place) => format!("{op} at {place}"),
    }
}
