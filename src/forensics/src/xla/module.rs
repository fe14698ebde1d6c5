//! One compiled module as XLA wrote it: an `HloProto` with instructions, buffers, allocations and the order in which buffers
//! were live when XLA laid them out. Only what names memory is read; the file's bytes are borrowed.

use std::collections::HashMap;

use super::wire::{Broken, Value, fields};

/// A compiled module.
#[derive(Debug, Default)]
pub(super) struct Module<'file> {
    pub(super) name: &'file str,
    pub(super) instructions: HashMap<i64, Instruction<'file>>,
    /// The last instruction of each computation.
    pub(super) roots: HashMap<i64, i64>,
    /// The computation that an instruction is in.
    pub(super) homes: HashMap<i64, i64>,
    pub(super) buffers: HashMap<i64, Buffer>,
    pub(super) allocations: Vec<Allocation>,
    pub(super) traces: Vec<Vec<Event>>,
    /// The computation that is the step itself.
    pub(super) entry: i64,
    frames: Frames<'file>,
}

/// An instruction.
#[derive(Debug, Default)]
pub(super) struct Instruction<'file> {
    /// XLA's own name of it.
    pub(super) name: &'file str,
    pub(super) opcode: &'file str,
    /// The name of the framework's operation; empty is unknown.
    pub(super) op: &'file str,
    place: Place<'file>,
    shape: &'file [u8],
    /// The parts of a shape that is a tuple.
    parts: Vec<&'file [u8]>,
    pub(super) parameter: i64,
    /// Which part of a tuple it takes out.
    pub(super) part: i64,
    pub(super) operands: Vec<i64>,
    pub(super) called: Vec<i64>,
}

/// Where the framework says that an instruction comes from: a line, or one of the module's table of frames.
#[derive(Clone, Copy, Debug, Default)]
struct Place<'file> {
    file: &'file str,
    line: i64,
    frame: i64,
}

/// The module's table of frames; everything in it is numbered from 1.
#[derive(Debug, Default)]
struct Frames<'file> {
    files: Vec<&'file str>,
    functions: Vec<&'file str>,
    /// File, function and line.
    places: Vec<(i64, i64, i64)>,
    /// A place, and the frame that called.
    calls: Vec<(i64, i64)>,
}

/// A line of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source<'file> {
    pub(super) file: &'file str,
    pub(super) function: &'file str,
    pub(super) line: i64,
}

/// A value that needs memory.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) bytes: u64,
    pub(super) instruction: i64,
    /// Which part of the instruction's result, where that is a tuple.
    pub(super) index: Vec<i64>,
}

/// Memory that XLA requests, or that it is given.
#[derive(Debug, Default)]
pub(super) struct Allocation {
    pub(super) bytes: u64,
    thread_local: bool,
    constant: bool,
    pub(super) parameter: Option<i64>,
    pub(super) live_out: bool,
    /// Buffers and their offsets.
    pub(super) assigned: Vec<(i64, u64)>,
}

impl Allocation {
    /// Whether it is the arena of what is computed on the way: neither given, nor constant, nor a result. That it holds
    /// tuples says nothing: in 2.15 their tables lie in it too.
    pub(super) fn is_arena(&self) -> bool {
        !(self.thread_local || self.constant || self.live_out || self.parameter.is_some())
    }
}

/// A buffer begins or ceases to be live.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event {
    pub(super) kind: u64,
    pub(super) buffer: i64,
    /// The buffer whose memory it takes.
    pub(super) shares: i64,
}

impl Event {
    pub(super) const ALLOC: u64 = 0;
    pub(super) const FREE: u64 = 1;
    pub(super) const SHARE: u64 = 2;
}

impl<'file> Module<'file> {
    /// Reads a file's content.
    pub(super) fn of(file: &'file [u8]) -> Result<Self, Broken> {
        let mut module = Self::default();
        for field in fields(file) {
            match field? {
                (1, value) => module.hlo(value.bytes()?)?,
                (3, value) => module.assignment(value.bytes()?)?,
                _ => {}
            }
        }
        Ok(module)
    }

    /// `HloModuleProto`.
    fn hlo(&mut self, message: &'file [u8]) -> Result<(), Broken> {
        for field in fields(message) {
            match field? {
                (1, value) => self.name = value.text()?,
                (3, value) => self.computation(value.bytes()?)?,
                (6, value) => self.entry = value.id()?,
                (17, value) => self.frames = Frames::of(value.bytes()?)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The lines of an instruction, innermost first, as the framework wrote them: at most 64.
    pub(super) fn sources(&self, instruction: &Instruction<'file>) -> impl Iterator<Item = Source<'file>> {
        let Place { file, line, frame } = instruction.place;
        let own = (!file.is_empty()).then_some(Source { file, function: "", line });
        let mut next = frame;
        let called = core::iter::from_fn(move || {
            let (source, parent) = self.frames.get(next)?;
            next = parent;
            Some(source)
        });
        own.into_iter().chain(called.take(64))
    }

    /// `HloComputationProto`.
    fn computation(&mut self, message: &'file [u8]) -> Result<(), Broken> {
        let (mut id, mut root, mut inside) = (0, 0, Vec::new());
        for field in fields(message) {
            match field? {
                (2, value) => {
                    let (id, instruction) = instruction(value.bytes()?)?;
                    self.instructions.insert(id, instruction);
                    inside.push(id);
                }
                (5, value) => id = value.id()?,
                (6, value) => root = value.id()?,
                _ => {}
            }
        }
        self.roots.insert(id, root);
        self.homes.extend(inside.into_iter().map(|instruction| (instruction, id)));
        Ok(())
    }

    /// `BufferAssignmentProto`.
    fn assignment(&mut self, message: &'file [u8]) -> Result<(), Broken> {
        for field in fields(message) {
            match field? {
                (1, value) => {
                    let (id, buffer) = buffer(value.bytes()?)?;
                    self.buffers.insert(id, buffer);
                }
                (3, value) => self.allocations.push(allocation(value.bytes()?)?),
                (4, value) => self.traces.push(trace(value.bytes()?)?),
                _ => {}
            }
        }
        Ok(())
    }

    /// Bytes of all allocations: XLA's own memory-usage report calls them "total bytes used".
    pub(super) fn total(&self) -> u64 {
        self.allocations.iter().fold(0, |sum, allocation| sum.saturating_add(allocation.bytes))
    }
}

/// An element of a table that is numbered from 1.
fn numbered<T: Copy>(table: &[T], number: i64) -> Option<T> {
    usize::try_from(number).ok().and_then(|number| table.get(number.checked_sub(1)?)).copied()
}

impl<'file> Frames<'file> {
    /// `StackFrameIndexProto`.
    fn of(message: &'file [u8]) -> Result<Self, Broken> {
        let mut frames = Self::default();
        for field in fields(message) {
            match field? {
                (1, value) => frames.files.push(value.text()?),
                (2, value) => frames.functions.push(value.text()?),
                (3, value) => {
                    let [file, function, line] = first_three(value.bytes()?)?;
                    frames.places.push((file, function, line));
                }
                (4, value) => {
                    let [place, parent, _] = first_three(value.bytes()?)?;
                    frames.calls.push((place, parent));
                }
                _ => {}
            }
        }
        Ok(frames)
    }

    /// A frame's line, and the frame that called.
    fn get(&self, number: i64) -> Option<(Source<'file>, i64)> {
        let (place, parent) = numbered(&self.calls, number)?;
        let (file, function, line) = numbered(&self.places, place)?;
        let function = numbered(&self.functions, function).unwrap_or_default();
        Some((Source { file: numbered(&self.files, file)?, function, line }, parent))
    }
}

/// The numbers of a message's first three fields.
fn first_three(message: &[u8]) -> Result<[i64; 3], Broken> {
    let mut found = [0; 3];
    for field in fields(message) {
        let (number, value) = field?;
        let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        if let Some(place) = place.and_then(|place| found.get_mut(place)) {
            *place = value.id()?;
        }
    }
    Ok(found)
}

/// `HloInstructionProto`.
fn instruction(message: &[u8]) -> Result<(i64, Instruction<'_>), Broken> {
    let (mut id, mut instruction) = (0, Instruction::default());
    for field in fields(message) {
        match field? {
            (1, value) => instruction.name = value.text()?,
            (2, value) => instruction.opcode = value.text()?,
            (3, value) => {
                instruction.shape = value.bytes()?;
                instruction.parts = parts(instruction.shape)?;
            }
            (7, value) => {
                // `OpMetadata`: 1 is the operation's type, 2 its name; TensorFlow's lines are its own, JAX's are the program's.
                for field in fields(value.bytes()?) {
                    match field? {
                        (2, value) => instruction.op = value.text()?,
                        (3, value) => instruction.place.file = value.text()?,
                        (4, value) => instruction.place.line = value.id()?,
                        (15, value) => instruction.place.frame = value.id()?,
                        _ => {}
                    }
                }
            }
            (9, value) => instruction.parameter = value.id()?,
            (13, value) => instruction.part = value.id()?,
            (35, value) => id = value.id()?,
            (36, value) => value.numbers(&mut instruction.operands)?,
            (38, value) => value.numbers(&mut instruction.called)?,
            _ => {}
        }
    }
    Ok((id, instruction))
}

/// `LogicalBufferProto`.
fn buffer(message: &[u8]) -> Result<(i64, Buffer), Broken> {
    let (mut id, mut buffer) = (0, Buffer::default());
    for field in fields(message) {
        match field? {
            (1, value) => id = value.id()?,
            (2, value) => buffer.bytes = value.number()?,
            (3, value) => {
                for field in fields(value.bytes()?) {
                    match field? {
                        (3, value) => value.numbers(&mut buffer.index)?,
                        (4, value) => buffer.instruction = value.id()?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok((id, buffer))
}

/// `BufferAllocationProto`.
fn allocation(message: &[u8]) -> Result<Allocation, Broken> {
    let (mut allocation, mut parameter, mut is_parameter) = (Allocation::default(), 0, false);
    let yes = |value: Value<'_>| value.number().map(|number| number != 0);
    for field in fields(message) {
        match field? {
            (2, value) => allocation.bytes = value.number()?,
            (3, value) => allocation.thread_local = yes(value)?,
            (5, value) => is_parameter = yes(value)?,
            (6, value) => parameter = value.id()?,
            (7, value) => allocation.live_out = yes(value)?,
            (9, value) => {
                let (mut buffer, mut offset) = (0, 0);
                for field in fields(value.bytes()?) {
                    match field? {
                        (1, value) => buffer = value.id()?,
                        (2, value) => offset = value.number()?,
                        _ => {}
                    }
                }
                allocation.assigned.push((buffer, offset));
            }
            (12, value) => allocation.constant = yes(value)?,
            _ => {}
        }
    }
    allocation.parameter = is_parameter.then_some(parameter);
    Ok(allocation)
}

/// `HeapSimulatorTrace`.
fn trace(message: &[u8]) -> Result<Vec<Event>, Broken> {
    let mut events = Vec::new();
    for field in fields(message) {
        if let (1, value) = field? {
            let mut event = Event::default();
            for field in fields(value.bytes()?) {
                match field? {
                    (1, value) => event.kind = value.number()?,
                    (2, value) => event.buffer = value.id()?,
                    (5, value) => event.shares = value.id()?,
                    _ => {}
                }
            }
            events.push(event);
        }
    }
    Ok(events)
}

/// Parts of a tuple that lies in a tuple, at most; and bytes of a shape that is none.
const MOST_INNER: usize = 1024;
const LONGEST_SHAPE: usize = 1024;
/// Names of XLA's element types by their numbers, as XLA writes them; an empty one is none that memory is made of.
const TYPES: [&str; 17] =
    ["", "pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "", "", "c64", "bf16"];

impl Instruction<'_> {
    /// The shape of a part of its result: `f32[8,64,64]`. Empty where it is not known.
    pub(super) fn shape(&self, index: &[i64]) -> Shape {
        let part = match index.split_first() {
            Some((first, rest)) => usize::try_from(*first).ok().and_then(|first| self.parts.get(first)).zip(Some(rest)),
            None => Some((&self.shape, index)),
        };
        part.and_then(|(part, index)| inner(part, index).ok()).unwrap_or_default()
    }
}

/// A type and its sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    kind: &'static str,
    pub(super) sides: Vec<i64>,
}

impl Shape {
    /// `f32[8,64,64]`, or empty.
    pub(super) fn words(&self) -> String {
        let sides: Vec<String> = self.sides.iter().map(i64::to_string).collect();
        if self.kind.is_empty() { String::new() } else { format!("{}[{}]", self.kind, sides.join(",")) }
    }

    /// Whether it is a row of bytes: scratch memory of a library.
    pub(super) fn is_bytes(&self) -> bool {
        matches!(self.kind, "u8" | "s8") && self.sides.len() == 1
    }
}

/// The parts of a tuple: field 4 of `ShapeProto`.
fn parts(shape: &[u8]) -> Result<Vec<&[u8]>, Broken> {
    let mut parts = Vec::new();
    for field in fields(shape) {
        if let (4, value) = field? {
            parts.push(value.bytes()?);
        }
    }
    Ok(parts)
}

/// `ShapeProto`: 2 is the type, 3 the sides, 4 the parts of a tuple.
fn inner(shape: &[u8], index: &[i64]) -> Result<Shape, Broken> {
    // Tuples lie in each other a few deep and have few parts there; a damaged file may say anything.
    if index.len() > 8 || (index.is_empty() && shape.len() > LONGEST_SHAPE) {
        return Err(Broken);
    }
    if let Some((first, rest)) = index.split_first() {
        let first = usize::try_from(*first).ok().filter(|first| *first < MOST_INNER).ok_or(Broken)?;
        let mut parts = fields(shape).take(2 * MOST_INNER).filter_map(Result::ok).filter(|(field, _)| *field == 4);
        return inner(parts.nth(first).ok_or(Broken)?.1.bytes()?, rest);
    }
    let (mut kind, mut sides) = (0, Vec::new());
    for field in fields(shape) {
        match field? {
            (2, value) => kind = value.number()?,
            (3, value) => value.numbers(&mut sides)?,
            (4, _) => return Err(Broken),
            _ => {}
        }
        // No tensor has more sides; a damaged file may.
        if sides.len() > 32 {
            return Err(Broken);
        }
    }
    let kind = usize::try_from(kind).ok().and_then(|kind| TYPES.get(kind)).copied().filter(|name| !name.is_empty());
    Ok(Shape { kind: kind.ok_or(Broken)?, sides })
}
