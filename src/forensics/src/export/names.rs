//! The requester, as frames and short texts: TensorFlow operation, Python lines and native functions in one stack. Each is
//! resolved once and has a number. Names are harmless: what would steer the tool that shows them is hidden, and memory for
//! them is bounded. Reads a journal and the modules' files.

use std::collections::HashMap;
use std::rc::Rc;

use weir_journal::reader::{Error, Line, OpName, Reader};
use weir_journal::text::plain;
use weir_journal::{Attribution, Class};

use crate::names::{base_name, is_users};
use crate::symbols::{NativeFrame, Symbols};
use crate::xla::Buffers;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A TensorFlow operation; the name is the operation's.
    Op,
    /// A Python line.
    Python,
    /// A native function.
    Native,
    /// Nothing is known but the sort of memory.
    Class,
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub(crate) origin: Origin,
    pub(crate) name: String,
    /// Source file; empty when unknown.
    pub(crate) file: String,
    pub(crate) line: u32,
    /// Path of the module of a native frame.
    pub(crate) module: String,
    /// Address in that module's file.
    pub(crate) offset: u64,
}

/// Texts of one attribution, by their numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Texts {
    pub(crate) op: u32,
    pub(crate) region: u32,
    pub(crate) shape: u32,
    pub(crate) dtype: u32,
    pub(crate) python: u32,
    pub(crate) native: u32,
    pub(crate) stack: u32,
}

/// Frames of libraries that only pass a request on are no answer to "which function made the request".
const PASSING_ON: [&str; 4] = ["libweir", "libcuda.so", "libcudart", "libc.so"];

/// Bytes of frames, stacks and texts that are kept at most. A real job has a few megabytes of them; a file can be made to
/// have each of its names in millions of stacks.
pub(crate) const MOST_KEPT: usize = 64 << 20;
/// Letters of one name at most.
const LONGEST_NAME: usize = 1024;
/// What stands for names for which there is no room.
pub(crate) const CROWDED: &str = "[too many names]";

/// See the file's first comment.
#[derive(Debug)]
pub(crate) struct Names<'reader> {
    reader: &'reader Reader,
    pub(crate) symbols: Symbols,
    frames: Vec<Rc<Frame>>,
    frame_index: HashMap<Rc<Frame>, u32>,
    stacks: HashMap<(Attribution, Class), Rc<[u32]>>,
    texts: Vec<Rc<str>>,
    text_index: HashMap<Rc<str>, u32>,
    known: HashMap<(Attribution, Class), Texts>,
    /// Bytes that may still be kept.
    room: usize,
}

impl<'reader> Names<'reader> {
    pub(crate) fn new(reader: &'reader Reader) -> Result<Self, Error> {
        let mut names = Self {
            reader,
            symbols: Symbols::new(reader.modules()?),
            frames: Vec::new(),
            frame_index: HashMap::new(),
            stacks: HashMap::new(),
            texts: Vec::new(),
            text_index: HashMap::new(),
            known: HashMap::new(),
            room: MOST_KEPT,
        };
        names.text("");
        Ok(names)
    }

    /// The number of a text; 0 is the empty one.
    pub(crate) fn text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.text_index.get(text) {
            return *number;
        }
        let text = if self.keeps(text.len() + 128) { text } else { CROWDED };
        if let Some(number) = self.text_index.get(text) {
            return *number;
        }
        let (text, number): (Rc<str>, u32) = (text.into(), self.texts.len() as u32);
        self.texts.push(Rc::clone(&text));
        self.text_index.insert(text, number);
        number
    }

    pub(crate) fn text_of(&self, number: u32) -> Rc<str> {
        self.texts.get(number as usize).map_or_else(|| "".into(), Rc::clone)
    }

    pub(crate) fn frame(&self, number: u32) -> Rc<Frame> {
        Rc::clone(&self.frames[number as usize])
    }

    /// Whether there is room for so many bytes; they are taken off it.
    fn keeps(&mut self, bytes: usize) -> bool {
        let left = self.room.checked_sub(bytes);
        self.room = left.unwrap_or(self.room);
        left.is_some()
    }

    fn frame_number(&mut self, frame: Frame) -> u32 {
        if let Some(number) = self.frame_index.get(&frame) {
            return *number;
        }
        let bytes = frame.name.len() + frame.file.len() + frame.module.len() + 256;
        let frame = if self.keeps(bytes) { frame } else { without(Origin::Class, CROWDED.into()) };
        if let Some(number) = self.frame_index.get(&frame) {
            return *number;
        }
        let (frame, number) = (Rc::new(frame), self.frames.len() as u32);
        self.frames.push(Rc::clone(&frame));
        self.frame_index.insert(frame, number);
        number
    }

    /// The whole stack of an allocation, innermost first: operation, native frames, Python lines. Never empty.
    pub(crate) fn stack(&mut self, by: Attribution, class: Class) -> Result<Rc<[u32]>, Error> {
        if let Some(stack) = self.stacks.get(&(by, class)) {
            return Ok(Rc::clone(stack));
        }
        let mut frames = Vec::new();
        if let Some(op) = self.reader.op(by.op)?.filter(|op| !op.name.is_empty()) {
            frames.push(without(Origin::Op, harmless(&op_text(&op))));
        }
        let python = self.reader.python(by.python)?;
        let native = self.native(by.stack)?;
        // Where there are Python lines, they stand for the interpreter's own frames and what is further out.
        let depth =
            if python.is_empty() { native.len() } else { native.iter().take_while(|f| !is_interpreter(f)).count() };
        frames.extend(native.into_iter().take(depth).map(|frame| Frame {
            origin: Origin::Native,
            name: harmless(&frame.name()),
            file: harmless(&frame.file),
            line: frame.line,
            module: harmless(&frame.module),
            offset: frame.offset,
        }));
        frames.extend(python.into_iter().map(|line| Frame {
            file: harmless(&line.file),
            line: line.line,
            ..without(Origin::Python, harmless(&line.function))
        }));
        if frames.is_empty() {
            frames.push(without(Origin::Class, format!("[{}]", class_text(class))));
        }
        let stack: Rc<[u32]> = frames.into_iter().map(|frame| self.frame_number(frame)).collect();
        if self.keeps(stack.len() * 4 + 128) {
            self.stacks.insert((by, class), Rc::clone(&stack));
        }
        Ok(stack)
    }

    fn native(&self, stack: u32) -> Result<Vec<NativeFrame>, Error> {
        let addresses = self.reader.stack(stack)?;
        Ok(addresses.into_iter().flat_map(|address| self.symbols.resolve(address).to_vec()).collect())
    }

    /// The texts of an attribution; the whole stack only if it is wanted.
    pub(crate) fn texts(&mut self, by: Attribution, class: Class, stacks: bool) -> Result<Texts, Error> {
        if let Some(texts) = self.known.get(&(by, class)) {
            return Ok(*texts);
        }
        let op = self.reader.op(by.op)?.unwrap_or_default();
        let python = self.reader.python(by.python)?.first().map(line_text).unwrap_or_default();
        let native = self.native(by.stack)?;
        let requester = native.iter().find(|frame| !PASSING_ON.iter().any(|name| frame.module.contains(name)));
        let requester = requester.or(native.first()).map(NativeFrame::name).unwrap_or_default();
        let stack = if stacks { self.folded(by, class)? } else { String::new() };
        let texts = Texts {
            op: self.text(&harmless(&op.name)),
            region: self.text(&harmless(&op.region)),
            shape: self.text(&harmless(&op.shape)),
            dtype: op.dtype,
            python: self.text(&harmless(&python)),
            native: self.text(&harmless(&requester)),
            stack: self.text(&stack),
        };
        if self.keeps(128) {
            self.known.insert((by, class), texts);
        }
        Ok(texts)
    }

    /// `train.py:21`: the user's own line, else the innermost one, or nothing.
    pub(crate) fn place(&self, by: Attribution) -> Result<String, Error> {
        let lines = self.reader.python(by.python)?;
        let line = lines.iter().find(|line| is_users(&line.file)).or(lines.first());
        Ok(line.map(|line| harmless(&format!("{}:{}", base_name(&line.file), line.line))).unwrap_or_default())
    }

    /// What lies inside of an arena, as the innermost frame of a stack.
    pub(crate) fn part(&mut self, part: &Buffers) -> u32 {
        let (file, line) = part.python.rsplit_once(':').unwrap_or_default();
        let name = if part.op.is_empty() { "unknown" } else { &part.op };
        let name = harmless(&format!("{name} {} ({})", part.shape, part.role.word()));
        self.frame_number(Frame { file: harmless(file), line: line.parse().unwrap_or(0), ..without(Origin::Op, name) })
    }

    /// The stack as one line, outermost first, as flame graphs want it.
    pub(crate) fn folded(&mut self, by: Attribution, class: Class) -> Result<String, Error> {
        let stack = self.stack(by, class)?;
        let frames: Vec<String> = stack.iter().rev().map(|number| folded_frame(&self.frame(*number))).collect();
        Ok(frames.join(";"))
    }
}

/// A name that is shown as it is, of bounded length: its end says more than its beginning.
fn harmless(name: &str) -> String {
    if name.len() > LONGEST_NAME { crate::names::tail(name, LONGEST_NAME) } else { plain(name).into_owned() }
}

/// A frame without a place.
fn without(origin: Origin, name: String) -> Frame {
    Frame { origin, name, file: String::new(), line: 0, module: String::new(), offset: 0 }
}

fn op_text(op: &OpName) -> String {
    if op.region.is_empty() { op.name.clone() } else { format!("{} ({})", op.name, op.region) }
}

/// A frame as flame graphs want it.
pub(crate) fn folded_frame(frame: &Frame) -> String {
    let text = match frame.origin {
        Origin::Python => format!("{} ({}:{})", frame.name, frame.file, frame.line),
        _ => frame.name.clone(),
    };
    text.replace(';', ":")
}

/// A Python line in short.
pub(crate) fn line_text(line: &Line) -> String {
    format!("{}:{} {}", line.file, line.line, line.function)
}

/// The name of a class, as in the journal's documents.
pub(crate) fn class_text(class: Class) -> String {
    serde_json::to_value(class).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

fn is_interpreter(frame: &NativeFrame) -> bool {
    let module = frame.module.rsplit('/').next().unwrap_or_default();
    module.starts_with("python") || module.starts_with("libpython") || frame.function.starts_with("_PyEval_")
}
