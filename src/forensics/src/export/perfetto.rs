//! A trace for ui.perfetto.dev: what is live, by device and class, as counters, and what happened (out of memory, steps,
//! caps) as instants. Protocol Buffers, written by hand; one packet an event, so a trace of any length is streamed.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use weir_journal::reader::Slot;
use weir_journal::text::plain;
use weir_journal::{Class, Event, Kind};

use super::names::class_text;
use super::proto::Message;
use super::rows::kind_text;
use super::{Export, Failure};

const SEQUENCE: u64 = 1;
const PROCESS: u64 = 1;
const INCIDENTS: u64 = 2;
/// Tracks of regions, by thread.
const REGIONS: u64 = 1 << 32;
const TYPE_SLICE_BEGIN: u64 = 1;
const TYPE_SLICE_END: u64 = 2;
const TYPE_INSTANT: u64 = 3;
const TYPE_COUNTER: u64 = 4;

/// The counter's track of a class on a device.
fn track(device: u8, class: Class) -> u64 {
    0x100 + u64::from(device) * 16 + class as u64
}

pub(super) fn write(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let header = export.timeline.reader().header();
    let mut trace = Trace { to, described: HashSet::new(), first: true };
    let mut process = Message::new();
    process.number(1, u64::from(header.identity.pid)).text(6, &plain(&header.command.join(" ")));
    trace.describe(Message::new().number(1, PROCESS).message(3, &process))?;
    trace.describe(Message::new().number(1, INCIDENTS).number(5, PROCESS).text(2, "incidents"))?;
    let mut live: HashMap<(u8, Class), u64> = HashMap::new();
    for entry in export.timeline.opening()? {
        let sum = live.entry((entry.device, entry.class)).or_default();
        *sum = u64::saturating_add(*sum, entry.allocated);
    }
    let started = header.realtime_ns(header.started.ticks);
    let mut opening: Vec<_> = live.iter().map(|(key, bytes)| (*key, *bytes)).collect();
    opening.sort_unstable();
    for ((device, class), bytes) in opening {
        trace.counter(started, device, class, bytes)?;
    }
    for (done, slot) in export.timeline.events().enumerate() {
        (export.progress)(done as u64, export.timeline.length());
        let Slot::Event(event) = slot? else { continue };
        let time = header.realtime_ns(event.time);
        match event.kind {
            Kind::Alloc | Kind::Free => {
                let bytes = live.entry((event.device, event.class)).or_default();
                *bytes = if event.kind == Kind::Alloc {
                    bytes.saturating_add(event.allocated)
                } else {
                    bytes.saturating_sub(event.allocated)
                };
                let bytes = *bytes;
                trace.counter(time, event.device, event.class, bytes)?;
            }
            Kind::Oom
            | Kind::Failed
            | Kind::Refused
            | Kind::Attempt
            | Kind::Step
            | Kind::CapChange
            | Kind::Spill
            | Kind::Unspill
            | Kind::Wait
            | Kind::SoftMark
            | Kind::TurnedOff
            | Kind::Fork
            | Kind::Exit => {
                let texts = export.names.texts(event.by, event.class, false)?;
                let (op, python) = (export.names.text_of(texts.op), export.names.text_of(texts.python));
                trace.instant(time, &event, &op, &python)?;
            }
            Kind::Mark | Kind::RegionBegin | Kind::RegionEnd => {
                let name = export.names.texts(event.by, event.class, false)?.op;
                trace.said(time, &event, &export.names.text_of(name))?;
            }
            _ => {}
        }
    }
    Ok(())
}

struct Trace<'w> {
    to: &'w mut dyn Write,
    described: HashSet<u64>,
    first: bool,
}

impl Trace<'_> {
    /// One packet; the first says that nothing came before it.
    fn packet(&mut self, message: &mut Message) -> Result<(), Failure> {
        message.number(10, SEQUENCE);
        if std::mem::take(&mut self.first) {
            message.number(13, 1);
        }
        Ok(self.to.write_all(Message::new().message(1, message).bytes())?)
    }

    fn describe(&mut self, descriptor: &Message) -> Result<(), Failure> {
        self.packet(Message::new().message(60, descriptor))
    }

    fn counter(&mut self, time: u64, device: u8, class: Class, bytes: u64) -> Result<(), Failure> {
        let uuid = track(device, class);
        if self.described.insert(uuid) {
            let name = format!("device {device} {}", class_text(class));
            // Unit 3 is bytes.
            let mut counter = Message::new();
            counter.number(3, 3);
            self.describe(Message::new().number(1, uuid).number(5, PROCESS).text(2, &name).message(8, &counter))?;
        }
        let mut event = Message::new();
        event.number(9, TYPE_COUNTER).number(11, uuid).always(30, bytes);
        self.packet(Message::new().number(8, time).message(11, &event))
    }

    /// What the job said of itself: an instant, or a slice on a track of its thread.
    fn said(&mut self, time: u64, event: &Event, name: &str) -> Result<(), Failure> {
        let (kind, uuid) = match event.kind {
            Kind::RegionBegin => (TYPE_SLICE_BEGIN, REGIONS + u64::from(event.thread)),
            Kind::RegionEnd => (TYPE_SLICE_END, REGIONS + u64::from(event.thread)),
            _ => (TYPE_INSTANT, INCIDENTS),
        };
        if uuid != INCIDENTS && self.described.insert(uuid) {
            let track = format!("regions of thread {}", event.thread);
            self.describe(Message::new().number(1, uuid).number(5, PROCESS).text(2, &track))?;
        }
        let mut body = Message::new();
        body.number(9, kind).number(11, uuid).text(23, name).text(22, "job");
        self.packet(Message::new().number(8, time).message(11, &body))
    }

    fn instant(&mut self, time: u64, event: &Event, op: &str, python: &str) -> Result<(), Failure> {
        let mut body = Message::new();
        body.number(9, TYPE_INSTANT).number(11, INCIDENTS).text(23, &kind_text(event.kind)).text(22, "weir");
        for (name, value) in [("event", event.seq), ("requested", event.requested), ("device", u64::from(event.device))]
        {
            body.message(4, Message::new().text(10, name).always(3, value));
        }
        for (name, value) in [("op", op), ("python", python)].into_iter().filter(|(_, value)| !value.is_empty()) {
            body.message(4, Message::new().text(10, name).text(6, value));
        }
        self.packet(Message::new().number(8, time).message(11, &body))
    }
}
