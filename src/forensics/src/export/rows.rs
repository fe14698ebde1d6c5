//! Events as rows of one table, for CSV, JSON lines and Parquet: numbers and texts, one row an event.
//!
//! First come rows of kind `live`: what was live before the oldest event. Then the events in order; a row of kind
//! `lost` stands for `count` events that are missing. So the bytes allocated in `live` and `alloc` rows less those in `free`
//! rows are what is live at the end, by class and device.

use weir_journal::reader::{Error, Slot};
use weir_journal::{Class, Event, Kind, LiveEntry, STREAM_UNKNOWN};

use super::names::{Names, class_text};
use super::timeline::Timeline;

/// Columns of numbers. -1 is unknown, where 0 could be meant.
pub const NUMBERS: [&str; 15] = [
    "event",
    "time_ns",
    "device",
    "stream",
    "address",
    "requested",
    "allocated",
    "live_after",
    "result",
    "latency_ns",
    "age_ns",
    "thread",
    "dtype",
    "flags",
    "count",
];
/// Columns of texts.
pub const TEXTS: [&str; 8] = ["kind", "class", "op", "region", "shape", "python", "native", "stack"];

/// One row: numbers, and the numbers of texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) numbers: [i64; NUMBERS.len()],
    pub(crate) texts: [u32; TEXTS.len()],
}

/// Visits every row in order. `stacks` fills the column of whole stacks.
pub(crate) fn for_each_row<'reader, E: From<Error>>(
    timeline: &Timeline<'reader>,
    names: &mut Names<'reader>,
    stacks: bool,
    mut visit: impl FnMut(&Row, &Names<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut rows = Rows::new(timeline, names, stacks);
    for entry in timeline.opening()? {
        let row = rows.opening(&entry)?;
        visit(&row, rows.names)?;
    }
    for slot in timeline.events() {
        let row = match slot? {
            Slot::Event(event) => rows.event(&event)?,
            Slot::Lost(loss) => {
                let mut row = rows.event(&Event { seq: loss.first, ..Event::new(Kind::Exit, Class::Other, 63) })?;
                row.numbers = [-1; NUMBERS.len()];
                (row.numbers[0], row.numbers[14]) = (loss.first as i64, loss.count as i64);
                (row.numbers[5], row.numbers[6]) = (0, 0);
                row.texts = [rows.lost, 0, 0, 0, 0, 0, 0, 0];
                row
            }
        };
        visit(&row, rows.names)?;
    }
    Ok(())
}

struct Rows<'a, 'reader> {
    timeline: &'a Timeline<'reader>,
    names: &'a mut Names<'reader>,
    stacks: bool,
    kinds: Vec<u32>,
    classes: Vec<u32>,
    live: u32,
    lost: u32,
}

impl<'a, 'reader> Rows<'a, 'reader> {
    fn new(timeline: &'a Timeline<'reader>, names: &'a mut Names<'reader>, stacks: bool) -> Self {
        let kinds = Kind::ALL.iter().map(|kind| names.text(&kind_text(*kind))).collect();
        let classes = (0..16).map(|number| names.text(&class_text(Class::from_number(number)))).collect();
        let (live, lost) = (names.text("live"), names.text("lost"));
        Self { timeline, names, stacks, kinds, classes, live, lost }
    }

    fn opening(&mut self, entry: &LiveEntry) -> Result<Row, Error> {
        let mut row = self.event(&weir_journal::reader::rebuilt_alloc(entry))?;
        row.texts[0] = self.live;
        // The number of the event is not known for what is known only from its free.
        row.numbers[0] = if entry.birth == weir_journal::reader::BIRTH_UNKNOWN { -1 } else { entry.birth as i64 };
        Ok(row)
    }

    fn event(&mut self, event: &Event) -> Result<Row, Error> {
        let header = self.timeline.reader().header();
        let texts = self.names.texts(event.by, event.class, self.stacks)?;
        let nanos = |ticks: u64| i64::try_from(header.elapsed_ns(0, ticks)).unwrap_or(i64::MAX);
        Ok(Row {
            numbers: [
                event.seq as i64,
                header.realtime_ns(event.time) as i64,
                i64::from(event.device),
                if event.stream == STREAM_UNKNOWN { -1 } else { i64::from(event.stream) },
                event.address as i64,
                event.requested as i64,
                event.allocated as i64,
                event.live_after as i64,
                i64::from(event.result),
                nanos(event.latency),
                event.age().map_or(-1, nanos),
                i64::from(event.thread),
                i64::from(texts.dtype),
                i64::from(event.flags),
                1,
            ],
            texts: [
                self.kinds[event.kind as usize - 1],
                self.classes[event.class as usize & 15],
                texts.op,
                texts.region,
                texts.shape,
                texts.python,
                texts.native,
                texts.stack,
            ],
        })
    }
}

/// The name of a kind, as in the journal's documents.
pub(crate) fn kind_text(kind: Kind) -> String {
    serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}
