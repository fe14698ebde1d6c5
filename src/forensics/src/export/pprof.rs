//! A profile for `go tool pprof` and everything that reads profile.proto: bytes and blocks in use, and allocated, by
//! stack. Gzipped Protocol Buffers, written by hand.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::rc::Rc;

use flate2::Compression;
use flate2::write::GzEncoder;
use weir_journal::reader::Slot;
use weir_journal::text::plain;
use weir_journal::{Attribution, Class, Kind};

use super::holdings::holdings;
use super::names::{Frame, Origin, class_text};
use super::proto::Message;
use super::{Export, Failure};
use crate::is_held;
use crate::symbols::hex;

/// In the order of the sample types: bytes and blocks in use, bytes and blocks allocated.
type Values = [u64; 4];

const TYPES: [(&str, &str); 4] =
    [("inuse_space", "bytes"), ("inuse_objects", "count"), ("alloc_space", "bytes"), ("alloc_objects", "count")];

pub(super) fn write(export: &mut Export<'_, '_>, to: &mut dyn Write) -> Result<(), Failure> {
    let samples = samples(export)?;
    let mut profile = Profile::new(to);
    for (name, unit) in TYPES {
        let (name, unit) = (profile.text(name), profile.text(unit));
        profile.send(1, Message::new().number(1, name).number(2, unit))?;
    }
    for (number, module) in export.names.symbols.modules().iter().enumerate() {
        let (path, build) = (profile.text(&plain(&module.path)), profile.text(&hex(&module.build_id)));
        let mut mapping = Message::new();
        mapping
            .number(1, number as u64 + 1)
            .number(2, module.start)
            .number(3, module.start.saturating_add(module.size));
        mapping.number(4, module.start.wrapping_sub(module.bias)).number(5, path).number(6, build);
        // Symbols are resolved already; nobody shall try again.
        mapping.number(7, 1).number(8, 1).number(9, 1);
        profile.send(3, &mapping)?;
    }
    let modules: HashMap<String, (u64, u64)> = export
        .names
        .symbols
        .modules()
        .iter()
        .enumerate()
        .map(|(number, module)| (module.path.clone(), (number as u64 + 1, module.bias)))
        .collect();
    for (((by, class, device), part), values) in samples {
        let stack: Vec<u32> = part.into_iter().chain(export.names.stack(by, class)?.iter().copied()).collect();
        let mut sample = Message::new();
        for number in &stack {
            let frame = export.names.frame(*number);
            profile.locate(*number, &frame, &modules)?;
        }
        sample.numbers(1, stack.iter().map(|number| u64::from(*number) + 1)).numbers(2, values);
        let (key, name) = (profile.text("class"), profile.text(&class_text(class)));
        sample.message(3, Message::new().number(1, key).number(2, name));
        let key = profile.text("device");
        sample.message(3, Message::new().number(1, key).always(3, u64::from(device)));
        profile.send(2, &sample)?;
    }
    let header = export.timeline.reader().header();
    let mut rest = Message::new();
    rest.number(9, header.started.realtime);
    let command = profile.text(&format!("weir: {}", plain(&header.command.join(" "))));
    let default = profile.text("inuse_space");
    rest.number(13, command).number(14, default);
    for text in std::mem::take(&mut profile.texts) {
        rest.text(6, &text);
    }
    profile.gzip.write_all(rest.bytes())?;
    profile.gzip.finish()?;
    Ok(())
}

/// A requester, and of what XLA requested for a whole step the frame of a part.
type Key = ((Attribution, Class, u8), Option<u32>);

fn samples(export: &mut Export<'_, '_>) -> Result<Vec<(Key, Values)>, Failure> {
    let mut samples: HashMap<Key, Values> = HashMap::new();
    for holding in holdings(export.timeline.live()) {
        let entry = &holding.entry;
        let key = (entry.by, entry.class, entry.device);
        let mut rest = holding.bytes;
        for (part, bytes) in export.inside(entry)? {
            rest = rest.saturating_sub(bytes);
            let values = samples.entry((key, Some(part))).or_default();
            values[0] = values[0].saturating_add(bytes);
        }
        // The block is one, whatever lies inside.
        let values = samples.entry((key, None)).or_default();
        values[0] = values[0].saturating_add(rest);
        values[1] += 1;
    }
    let mut allocated = |by, class, device, bytes| {
        if is_held(class) || class == Class::Tensor {
            let values: &mut Values = samples.entry(((by, class, device), None)).or_default();
            values[2] = values[2].saturating_add(bytes);
            values[3] += 1;
        }
    };
    for entry in export.timeline.opening()? {
        allocated(entry.by, entry.class, entry.device, entry.allocated);
    }
    for (done, slot) in export.timeline.events().enumerate() {
        if let Slot::Event(event) = slot?
            && event.kind == Kind::Alloc
        {
            allocated(event.by, event.class, event.device, event.allocated);
        }
        (export.progress)(done as u64, export.timeline.length());
    }
    let mut samples: Vec<_> = samples.into_iter().collect();
    samples.sort_by_key(|(((by, class, device), part), values)| {
        (std::cmp::Reverse(values[0]), by.stack, by.op, by.python, *class, *device, *part)
    });
    Ok(samples)
}

/// The profile as far as it is written.
struct Profile<'w> {
    gzip: GzEncoder<&'w mut dyn Write>,
    texts: Vec<Rc<str>>,
    index: HashMap<Rc<str>, u64>,
    functions: BTreeMap<(u64, u64), u64>,
    located: HashSet<u32>,
}

impl<'w> Profile<'w> {
    fn new(to: &'w mut dyn Write) -> Self {
        let gzip = GzEncoder::new(to, Compression::default());
        let mut profile = Self {
            gzip,
            texts: Vec::new(),
            index: HashMap::new(),
            functions: BTreeMap::new(),
            located: HashSet::new(),
        };
        profile.text("");
        profile
    }

    fn send(&mut self, field: u32, message: &Message) -> Result<(), Failure> {
        Ok(self.gzip.write_all(Message::new().message(field, message).bytes())?)
    }

    fn text(&mut self, text: &str) -> u64 {
        if let Some(number) = self.index.get(text) {
            return *number;
        }
        let (text, number): (Rc<str>, u64) = (text.into(), self.texts.len() as u64);
        self.texts.push(Rc::clone(&text));
        self.index.insert(text, number);
        number
    }

    /// Writes the location, and the function, of a frame that was not met before.
    fn locate(&mut self, number: u32, frame: &Frame, modules: &HashMap<String, (u64, u64)>) -> Result<(), Failure> {
        if !self.located.insert(number) {
            return Ok(());
        }
        let file = if frame.file.is_empty() { &frame.module } else { &frame.file };
        let key = (self.text(&frame.name), self.text(file));
        let next = self.functions.len() as u64 + 1;
        let function = *self.functions.entry(key).or_insert(next);
        if function == next {
            self.send(5, Message::new().number(1, function).number(2, key.0).number(3, key.0).number(4, key.1))?;
        }
        let mut location = Message::new();
        location.number(1, u64::from(number) + 1);
        if frame.origin == Origin::Native
            && let Some((mapping, bias)) = modules.get(&frame.module)
        {
            location.number(2, *mapping).number(3, frame.offset.wrapping_add(*bias));
        }
        location.message(4, Message::new().number(1, function).number(2, u64::from(frame.line)));
        self.send(4, &location)
    }
}
