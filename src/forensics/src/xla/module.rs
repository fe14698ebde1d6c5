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
}

/// An instruction.
#[derive(Debug, Default)]
pub(super) struct Instruction<'file> {
    pub(super) opcode: &'file str,
    /// The name of the framework's operation; empty is unknown.
    pub(super) op: &'file str,
    shape: &'file [u8],
    pub(super) parameter: i64,
    /// Which part of a tuple it takes out.
    pub(super) part: i64,
    pub(super) operands: Vec<i64>,
    pub(super) called: Vec<i64>,
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
                _ => {}
            }
        }
        Ok(())
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

/// `HloInstructionProto`.
fn instruction(message: &[u8]) -> Result<(i64, Instruction<'_>), Broken> {
    let (mut id, mut instruction) = (0, Instruction::default());
    for field in fields(message) {
        match field? {
            (2, value) => instruction.opcode = value.text()?,
            (3, value) => instruction.shape = value.bytes()?,
            (7, value) => {
                // `OpMetadata`: 1 is the operation's type, 2 its name. The source line is one of TensorFlow's own.
                for field in fields(value.bytes()?) {
                    if let (2, value) = field? {
                        instruction.op = value.text()?;
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

/// Names of XLA's element types by their numbers, as XLA writes them; an empty one is none that memory is made of.
const TYPES: [&str; 17] =
    ["", "pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "", "", "c64", "bf16"];

impl Instruction<'_> {
    /// The shape of a part of its result: `f32[8,64,64]`. Empty where it is not known.
    pub(super) fn shape(&self, index: &[i64]) -> String {
        part(self.shape, index).unwrap_or_default()
    }

    /// Whether a part of its result is a row of bytes: scratch memory of a library.
    pub(super) fn is_bytes(&self, index: &[i64]) -> bool {
        let shape = self.shape(index);
        (shape.starts_with("u8[") || shape.starts_with("s8[")) && !shape.contains(',')
    }
}

/// `ShapeProto`: 2 is the type, 3 the sides, 4 the parts of a tuple.
fn part(shape: &[u8], index: &[i64]) -> Result<String, Broken> {
    // Tuples lie in each other a few deep; a damaged file may say anything.
    if index.len() > 8 {
        return Err(Broken);
    }
    if let Some((first, rest)) = index.split_first() {
        let first = usize::try_from(*first).map_err(|_| Broken)?;
        let mut parts = fields(shape).filter_map(Result::ok).filter(|(field, _)| *field == 4);
        return part(parts.nth(first).ok_or(Broken)?.1.bytes()?, rest);
    }
    let (mut kind, mut sides) = (0, Vec::new());
    for field in fields(shape) {
        match field? {
            (2, value) => kind = value.number()?,
            (3, value) => value.numbers(&mut sides)?,
            _ => {}
        }
    }
    let kind = usize::try_from(kind).ok().and_then(|kind| TYPES.get(kind)).copied().filter(|name| !name.is_empty());
    // No tensor has more sides; a damaged file may.
    if sides.len() > 32 {
        return Err(Broken);
    }
    let sides: Vec<String> = sides.iter().map(i64::to_string).collect();
    Ok(format!("{}[{}]", kind.ok_or(Broken)?, sides.join(",")))
}
