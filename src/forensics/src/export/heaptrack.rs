//! Heaptrack's data file, format 2: text, every number in hexadecimal, gzipped. Its GUI and `heaptrack_print` read it.
//!
//! Lines define texts (`s`), instruction pointers (`i`), traces (`t`, each with its parent) and pairs of size and trace
//! (`a`) before they are used; `+` and `-` are an allocation and a free of such a pair. Only memory that counts once is
//! written, so what is leaked in the end is what was live.

use std::collections::HashMap;
use std::io::Write;
use std::rc::Rc;

use flate2::Compression;
use flate2::write::GzEncoder;
use weir_journal::reader::{Slot, rebuilt_alloc};
use weir_journal::text::plain;
use weir_journal::{Attribution, Class, Kind};

use super::names::{Frame, Names};
use super::{Divided, Export, Failure};
use crate::is_held;

pub(super) fn write(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let header = export.timeline.reader().header();
    let mut file = Track {
        to: GzEncoder::new(to, Compression::default()),
        texts: HashMap::new(),
        pointers: HashMap::new(),
        traces: HashMap::new(),
        by: HashMap::new(),
        pairs: HashMap::new(),
    };
    let mut divided = Divided::default();
    let compiled = export.compiled;
    writeln!(file.to, "v 10100 2")?;
    writeln!(file.to, "X {}", plain(&header.command.join(" ")))?;
    writeln!(file.to, "I 1000 {:x}", header.resident / 4096)?;
    let mut stamp = 0;
    for entry in export.timeline.opening()?.iter().filter(|entry| is_held(entry.class)) {
        for (part, bytes) in divided.parts(compiled, &mut export.names, &rebuilt_alloc(entry))? {
            file.allocation('+', bytes, (entry.by, entry.class, part), &mut export.names)?;
        }
    }
    for (done, slot) in export.timeline.events().enumerate() {
        (export.progress)(done as u64, export.timeline.length());
        let Slot::Event(event) = slot? else { continue };
        if !is_held(event.class) {
            continue;
        }
        let sign = match event.kind {
            Kind::Alloc => '+',
            // Frees of unknown addresses have no size.
            Kind::Free if event.allocated > 0 => '-',
            _ => continue,
        };
        let nanos = header.elapsed_ns(header.started.ticks, event.time).max(0);
        let millis = u64::try_from(nanos / 1_000_000).unwrap_or(u64::MAX);
        if millis > stamp {
            stamp = millis;
            writeln!(file.to, "c {stamp:x}")?;
        }
        for (part, bytes) in divided.parts(compiled, &mut export.names, &event)? {
            file.allocation(sign, bytes, (event.by, event.class, part), &mut export.names)?;
        }
    }
    writeln!(file.to, "c {:x}", stamp.saturating_add(1))?;
    file.to.finish()?;
    Ok(())
}

/// Who requested, and which part of an arena it is.
type Key = (Attribution, Class, Option<u32>);

/// The file as far as it is written. Numbers of texts, pointers and traces begin with 1, those of pairs with 0.
struct Track<W: Write> {
    to: GzEncoder<W>,
    texts: HashMap<Rc<str>, u64>,
    pointers: HashMap<u32, u64>,
    traces: HashMap<(u64, u64), u64>,
    by: HashMap<Key, u64>,
    pairs: HashMap<(u64, u64), u64>,
}

impl<W: Write> Track<W> {
    fn allocation(&mut self, sign: char, bytes: u64, key: Key, names: &mut Names<'_>) -> Result<(), Failure> {
        let trace = self.trace(key, names)?;
        let next = self.pairs.len() as u64;
        let pair = *self.pairs.entry((bytes, trace)).or_insert(next);
        if pair == next {
            writeln!(self.to, "a {bytes:x} {trace:x}")?;
        }
        Ok(writeln!(self.to, "{sign} {pair:x}")?)
    }

    fn trace(&mut self, key: Key, names: &mut Names<'_>) -> Result<u64, Failure> {
        if let Some(trace) = self.by.get(&key) {
            return Ok(*trace);
        }
        let (mut parent, (by, class, part)) = (0, key);
        for number in names.stack(by, class)?.iter().rev().chain(&part) {
            let pointer = self.pointer(*number, &names.frame(*number))?;
            let next = self.traces.len() as u64 + 1;
            let trace = *self.traces.entry((pointer, parent)).or_insert(next);
            if trace == next {
                writeln!(self.to, "t {pointer:x} {parent:x}")?;
            }
            parent = trace;
        }
        self.by.insert(key, parent);
        Ok(parent)
    }

    fn pointer(&mut self, number: u32, frame: &Frame) -> Result<u64, Failure> {
        if let Some(pointer) = self.pointers.get(&number) {
            return Ok(*pointer);
        }
        let module = self.text(&frame.module)?;
        let (name, file) = (self.text(&frame.name)?, self.text(&frame.file)?);
        // Heaptrack wants different addresses for different places; frames that have none get one of their own.
        let address = if frame.offset == 0 { 1 + u64::from(number) } else { frame.offset };
        writeln!(self.to, "i {address:x} {module:x} {name:x} {file:x} {:x}", frame.line)?;
        let next = self.pointers.len() as u64 + 1;
        self.pointers.insert(number, next);
        Ok(next)
    }

    fn text(&mut self, text: &str) -> Result<u64, Failure> {
        if text.is_empty() {
            return Ok(0);
        }
        if let Some(number) = self.texts.get(text) {
            return Ok(*number);
        }
        writeln!(self.to, "s {text}")?;
        let next = self.texts.len() as u64 + 1;
        self.texts.insert(text.into(), next);
        Ok(next)
    }
}
