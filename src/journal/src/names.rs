//! Attribution as the shim records it: texts, operations, Python lines, native stacks and the modules they point into.
//! Interning does not allocate and takes no lock; reading the list of modules does both and is for rare moments.

use std::sync::atomic::Ordering;

use crate::arena::{Item, LONGEST_TEXT, text_words};
use crate::event::{Attribution, Class, Event, Kind};
use crate::layout::{HOST_DEVICE, RECORD_WORDS, word};
use crate::sys::crc::crc_record;
use crate::sys::modules;
use crate::writer::Journal;

/// What TensorFlow reports about the operation that requests memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op<'text> {
    /// Name of the operation.
    pub name: &'text str,
    /// Region, for example `output` or `temp`.
    pub region: &'text str,
    /// Shape as text.
    pub shape: &'text str,
    /// TensorFlow's number of the data type.
    pub dtype: u32,
}

/// Most addresses kept of a native stack.
pub const STACK_DEPTH: usize = 64;
/// Most Python lines kept.
pub const PYTHON_DEPTH: usize = 16;

/// Whether a file is the user's own: not of an installed package, not of Python itself, not made by TensorFlow.
pub fn is_users(file: &str) -> bool {
    let generated = file.starts_with("<frozen") || file.contains("__autograph_generated_file");
    let packaged = file.contains("/site-packages/") || file.contains("/dist-packages/");
    // Python's own: …/lib/python3.11/threading.py.
    let library = file.split("/lib/python").skip(1).any(|rest| {
        let version = rest.split('/').next().unwrap_or_default();
        !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b't')
    });
    !file.is_empty() && !generated && !packaged && !library
}

impl Journal {
    fn known(&self, id: u32) -> u32 {
        if id == 0 {
            self.count(word::ARENA_OVERFLOW);
        }
        id
    }

    /// The id of a text; empty text is 0.
    pub fn text(&self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let mut words = [0; LONGEST_TEXT];
        let length = text_words(text.as_bytes(), &mut words);
        let used = words.get(..length.div_ceil(8)).unwrap_or_default();
        self.known(self.names.intern(Item::Text, length, used))
    }

    /// The id of an operation; 0 when there is nothing to record or no room.
    pub fn op(&self, op: &Op<'_>) -> u32 {
        if *op == Op::default() {
            return 0;
        }
        let name = self.text(op.name);
        let (region, shape) = (self.text(op.region), self.text(op.shape));
        let words = [u64::from(name) | u64::from(region) << 32, u64::from(shape) | u64::from(op.dtype) << 32];
        self.known(self.names.intern(Item::Op, 2, &words))
    }

    /// The id of a Python line.
    pub fn line(&self, file: &str, function: &str, line: u32) -> u32 {
        let (file, function) = (self.text(file), self.text(function));
        let words = [u64::from(file) | u64::from(function) << 32, u64::from(line)];
        self.known(self.names.intern(Item::Line, 2, &words))
    }

    /// The id of a sequence of Python lines, innermost first.
    pub fn python(&self, lines: &[u32]) -> u32 {
        let mut words = [0; PYTHON_DEPTH];
        for (word, line) in words.iter_mut().zip(lines) {
            *word = u64::from(*line);
        }
        let used = words.get(..lines.len().min(PYTHON_DEPTH)).unwrap_or_default();
        if used.is_empty() { 0 } else { self.known(self.names.intern(Item::Python, used.len(), used)) }
    }

    /// The id of a native stack: return addresses, innermost first.
    pub fn stack(&self, addresses: &[u64]) -> u32 {
        let used = addresses.get(..STACK_DEPTH).unwrap_or(addresses);
        if used.is_empty() { 0 } else { self.known(self.stacks.intern(Item::Stack, used.len(), used)) }
    }

    /// Notes what the library chose, and why. The same note is kept once.
    pub fn note(&self, subject: &str, text: &str) {
        let words = [u64::from(self.text(subject)) | u64::from(self.text(text)) << 32];
        self.known(self.names.intern(Item::Note, 1, &words));
    }

    /// Keeps which Python lines made a node of a graph, as long as that leaves room for other names.
    pub fn node(&self, name: &str, python: u32) {
        if self.names.has_room() {
            let words = [u64::from(self.text(name)) | u64::from(python) << 32];
            self.known(self.names.intern(Item::Node, 1, &words));
        }
    }

    /// The job says something of itself: a mark, the begin or the end of a region. Names are kept as long as that leaves room
    /// for others; without its name the event is recorded all the same.
    pub fn said(&self, kind: Kind, name: &str) {
        let op = if self.names.has_room() { self.op(&Op { name, ..Op::default() }) } else { 0 };
        let by = Attribution { op, ..Attribution::default() };
        self.record(Event { by, ..Event::new(kind, Class::Other, HOST_DEVICE) });
    }

    /// A text by its id. Allocates.
    pub fn text_of(&self, id: u32) -> Option<String> {
        let (length, words) = self.names.get(Item::Text, id)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The name of an operation by its id. Allocates.
    pub fn op_name(&self, id: u32) -> Option<String> {
        let (_, words) = self.names.get(Item::Op, id)?;
        self.text_of(*words.first()? as u32)
    }

    /// The user's line of a sequence of Python lines: the innermost one in a file of the user's own, else the
    /// innermost of all, as `file:line in function`. Allocates.
    pub fn python_line(&self, id: u32) -> Option<String> {
        let (_, lines) = self.names.get(Item::Python, id)?;
        let mut innermost = None;
        for line in lines {
            let (_, words) = self.names.get(Item::Line, line as u32)?;
            let (place, line) = (*words.first()?, *words.get(1)?);
            let file = self.text_of(place as u32)?;
            let users = is_users(&file);
            if users || innermost.is_none() {
                let function = self.text_of((place >> 32) as u32).unwrap_or_default();
                innermost = Some(format!("{file}:{line} in {function}"));
            }
            if users {
                break;
            }
        }
        innermost
    }

    /// Notes modules that were loaded since the last time. Allocates and takes the loader's lock: call it when a
    /// journal is made, after a new stack was seen, and at an OOM; never inside a loader call. Returns how many were new.
    pub fn refresh_modules(&self) -> usize {
        if self.busy.swap(true, Ordering::Acquire) {
            return 0;
        }
        let mut added = 0;
        for module in modules::loaded() {
            added += usize::from(self.add_module(&module));
        }
        self.busy.store(false, Ordering::Release);
        added
    }

    /// Puts a module into the table, unless it is there; whether it was not.
    fn add_module(&self, module: &modules::Module) -> bool {
        let path = u64::from(self.text(&module.path));
        let mut packed = [0; RECORD_WORDS];
        packed[1] = module.bias;
        packed[2] = module.start;
        packed[3] = path | (module.size.div_ceil(4096) << 32);
        for (word, chunk) in packed.iter_mut().skip(4).zip(module.build_id.chunks(8)).take(3) {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            *word = u64::from_le_bytes(bytes);
        }
        let known = module.build_id.len().min(24) as u64;
        packed[0] = u64::from(crc_record(&packed)) << 32 | known << 8 | 1;
        for slot in self.modules {
            let first = slot[0].load(Ordering::Acquire);
            if first == packed[0] && slot[1].load(Ordering::Relaxed) == packed[1] {
                return false;
            }
            if first == 0 {
                for (place, value) in slot.iter().zip(packed).skip(1) {
                    place.store(value, Ordering::Relaxed);
                }
                slot[0].store(packed[0], Ordering::Release);
                return true;
            }
        }
        false
    }

    /// A module that no process has, for journals of synthetic jobs.
    #[cfg(feature = "synthetic")]
    pub fn made_up_module(&self, path: &str, start: u64, size: u64) {
        let (path, build_id, none) = (path.into(), Vec::new(), (0, 0));
        let (text, eh_frame_hdr, eh_segment) = (none, none, none);
        self.add_module(&modules::Module { path, bias: start, start, size, build_id, text, eh_frame_hdr, eh_segment });
    }
}
