//! What lies inside an arena when most of it is live: the buffers, and which operation each is for. Pure.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::module::{Allocation, Event, Instruction, Module, Shape, Source};
use crate::names::is_users;

/// What XLA calls what a cluster is given, and what it gives back: no operations.
const ENDS: [&str; 2] = ["XLA_Args", "XLA_Retvals"];
/// Instructions that are looked at to name one buffer.
const MOST_STEPS: usize = 256;
/// Sides that may be the number of examples, at most.
const MOST_FIRSTS: usize = 64;

/// Of the files of one report, how much is looked at: a damaged file may send the search in circles of any size.
pub(super) struct Patience(Cell<u64>);

impl Patience {
    pub(super) fn new() -> Self {
        Self(Cell::new(1 << 27))
    }

    /// Whether there is so much left; it is taken off.
    pub(super) fn has(&self, steps: u64) -> bool {
        let left = self.0.get().checked_sub(steps);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }
}

/// A buffer at the arena's peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece<'file> {
    pub(super) bytes: u64,
    /// XLA's name of the instruction that makes it.
    pub(super) instruction: &'file str,
    /// The framework's operation; empty is unknown.
    pub(super) op: &'file str,
    /// The line that the framework wrote beside the operation.
    pub(super) source: Option<Source<'file>>,
    pub(super) shape: Shape,
    pub(super) sort: Sort,
}

/// What a buffer is, apart from its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// A result on the way.
    Result,
    /// Scratch memory of a library.
    Scratch,
    /// A copy of what the step gets and gives back changed: a variable.
    Variable,
    /// A copy of what the step gets.
    Input,
}

/// The buffers of an arena at its peak, and whether XLA's own order of events shows them; without it they are some that
/// do not overlap, a lower bound.
pub(super) fn at_peak<'file>(
    module: &Module<'file>,
    arena: &Allocation,
    patience: &Patience,
) -> (Vec<Piece<'file>>, bool) {
    let steps: usize = module.traces.iter().map(Vec::len).sum();
    let (live, exact) = match replayed(module, arena).filter(|_| patience.has(2 * steps as u64)) {
        Some(live) => (live, true),
        None => (apart(module, arena), false),
    };
    let naming = Naming::of(module, patience);
    (live.into_iter().filter_map(|id| naming.piece(id)).collect(), exact)
}

/// The bytes of an arena's buffers that XLA computes once more instead of keeping them, and how many results these are.
pub(super) fn recomputed(module: &Module<'_>, arena: &Allocation) -> (u64, u64) {
    let again = |id: &i64| module.instructions.get(id).is_some_and(|instruction| instruction.name.contains(".remat"));
    let buffers = arena.assigned.iter().filter_map(|(id, _)| module.buffers.get(id));
    let made: HashMap<i64, u64> =
        buffers.filter(|buffer| again(&buffer.instruction)).fold(HashMap::new(), |mut made, buffer| {
            let bytes = made.entry(buffer.instruction).or_default();
            *bytes = bytes.saturating_add(buffer.bytes);
            made
        });
    (made.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)), made.len() as u64)
}

/// The number of examples in a step, as far as shapes show it, and the bytes at the peak that come with them.
///
/// It is the first side of something that the step gets and does not give back changed, and of the most bytes that are not in
/// the shape of anything that it gets: those are copies and gradients of weights.
pub(super) fn batch(module: &Module<'_>, pieces: &[Piece<'_>]) -> Option<(u64, u64)> {
    let changed: HashSet<i64> = variables(module);
    let given = module
        .instructions
        .iter()
        .filter(|(id, instruction)| instruction.opcode == "parameter" && module.homes.get(id) == Some(&module.entry));
    let (mut firsts, mut weights) = (BTreeSet::new(), HashSet::new());
    for (_, parameter) in given {
        let mut sides = parameter.shape(&[]).sides;
        if !changed.contains(&parameter.parameter) {
            firsts.extend(sides.first().copied().filter(|first| *first > 1));
        }
        sides.sort_unstable();
        weights.insert(sides);
    }
    let free: Vec<&Piece<'_>> = pieces
        .iter()
        .filter(|piece| {
            let mut sides = piece.shape.sides.clone();
            sides.sort_unstable();
            piece.sort == Sort::Result && !sides.is_empty() && !weights.contains(&sides)
        })
        .collect();
    let sum = |which: &dyn Fn(&[i64]) -> bool| {
        let found = free.iter().filter(|piece| which(&piece.shape.sides));
        found.fold(0_u64, |sum, piece| sum.saturating_add(piece.bytes))
    };
    // Of as many bytes the larger number: it divides fewer sides by chance.
    let firsts = firsts.into_iter().take(MOST_FIRSTS);
    let best = firsts.map(|first| (sum(&|sides| sides.first() == Some(&first)), first)).max()?;
    let (with_it, batch) = Some(best).filter(|(bytes, _)| *bytes > 0)?;
    // A step that flattens its examples has a multiple of them in the first place.
    let all = sum(&|sides| sides.contains(&batch) || sides.first().is_some_and(|first| first % batch == 0));
    Some((u64::try_from(batch).ok()?, all.max(with_it)))
}

/// The parameters of the step that it gives back changed.
fn variables(module: &Module<'_>) -> HashSet<i64> {
    module.allocations.iter().filter(|allocation| allocation.live_out).filter_map(|it| it.parameter).collect()
}

/// The live buffers when most bytes are live, by the order in which XLA's compiler simulated it.
fn replayed(module: &Module<'_>, arena: &Allocation) -> Option<Vec<i64>> {
    let ours: HashSet<i64> = arena.assigned.iter().map(|(buffer, _)| *buffer).collect();
    let bytes = |id: i64| module.buffers.get(&id).map_or(0, |buffer| buffer.bytes);
    let mut best: Option<(u64, usize, usize)> = None;
    for (number, trace) in module.traces.iter().enumerate() {
        let mut simulation = Simulation::default();
        let mut live = 0_u64;
        for (place, event) in trace.iter().enumerate() {
            match simulation.step(*event) {
                Some((buffer, true)) if ours.contains(&buffer) => live = live.saturating_add(bytes(buffer)),
                Some((buffer, false)) if ours.contains(&buffer) => live = live.saturating_sub(bytes(buffer)),
                _ => {}
            }
            if live > best.map_or(0, |(most, ..)| most) {
                best = Some((live, number, place));
            }
        }
    }
    let (_, number, place) = best?;
    let mut simulation = Simulation::default();
    for event in module.traces.get(number)?.iter().take(place + 1) {
        simulation.step(*event);
    }
    let mut live: Vec<i64> = simulation.users.into_keys().filter(|buffer| ours.contains(buffer)).collect();
    live.sort_unstable();
    Some(live)
}

/// Which buffers have memory, and how many live in each one's.
#[derive(Default)]
struct Simulation {
    users: HashMap<i64, u64>,
    /// Whose memory a buffer took.
    owner: HashMap<i64, i64>,
}

impl Simulation {
    /// The buffer that gets memory (true) or gives it back (false) with this event.
    fn step(&mut self, event: Event) -> Option<(i64, bool)> {
        match event.kind {
            Event::ALLOC => self.users.insert(event.buffer, 1).is_none().then_some((event.buffer, true)),
            Event::SHARE => {
                let owner = self.owner.get(&event.shares).copied().unwrap_or(event.shares);
                let users = self.users.get_mut(&owner)?;
                *users += 1;
                self.owner.insert(event.buffer, owner);
                None
            }
            Event::FREE => {
                let owner = self.owner.remove(&event.buffer).unwrap_or(event.buffer);
                let users = self.users.get_mut(&owner)?;
                *users -= 1;
                if *users > 0 {
                    return None;
                }
                self.users.remove(&owner);
                Some((owner, false))
            }
            _ => None,
        }
    }
}

/// Without events: the largest buffers whose places do not overlap.
fn apart(module: &Module<'_>, arena: &Allocation) -> Vec<i64> {
    let mut all: Vec<(u64, u64, i64)> = arena
        .assigned
        .iter()
        .filter_map(|(id, offset)| Some((module.buffers.get(id)?.bytes, *offset, *id)))
        .filter(|(bytes, ..)| *bytes > 0)
        .collect();
    all.sort_unstable_by_key(|(bytes, offset, id)| (std::cmp::Reverse(*bytes), *offset, *id));
    let mut taken: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
    all.retain(|(bytes, offset, _)| {
        let end = offset.saturating_add(*bytes);
        let free = taken.range(..end).next_back().is_none_or(|(_, taken_end)| taken_end <= offset);
        if free {
            taken.insert(*offset, end);
        }
        free
    });
    all.into_iter().map(|(.., id)| id).collect()
}

/// Finds the operation of a buffer.
struct Naming<'module, 'file> {
    module: &'module Module<'file>,
    patience: &'module Patience,
    users: HashMap<i64, Vec<i64>>,
    /// What takes one part out of what a call or a fusion results in.
    parts: HashMap<(i64, i64), Vec<i64>>,
    /// The instruction that calls a computation.
    callers: HashMap<i64, i64>,
    /// The parameters of the step that it gives back changed.
    variables: HashSet<i64>,
}

impl<'module, 'file> Naming<'module, 'file> {
    fn of(module: &'module Module<'file>, patience: &'module Patience) -> Self {
        let mut users: HashMap<i64, Vec<i64>> = HashMap::new();
        let mut callers: HashMap<i64, i64> = HashMap::new();
        let mut parts: HashMap<(i64, i64), Vec<i64>> = HashMap::new();
        for (id, instruction) in &module.instructions {
            for called in &instruction.called {
                callers.entry(*called).and_modify(|caller| *caller = (*caller).min(*id)).or_insert(*id);
            }
            for operand in &instruction.operands {
                let of = module.instructions.get(operand).map_or("", |operand| operand.opcode);
                if instruction.opcode == "get-tuple-element" && ["call", "fusion", "custom-call"].contains(&of) {
                    parts.entry((*operand, instruction.part)).or_default().push(*id);
                } else {
                    users.entry(*operand).or_default().push(*id);
                }
            }
        }
        // What a computation results in goes on where it is called: XLA puts parts of a step into computations.
        for (called, caller) in &callers {
            let root = module.roots.get(called).and_then(|root| module.instructions.get(root));
            if let Some(root) = root.filter(|root| root.opcode == "tuple") {
                for (part, operand) in (0_i64..).zip(&root.operands) {
                    let after = parts.get(&(*caller, part)).map_or(&[][..], Vec::as_slice);
                    if !patience.has(1 + after.len() as u64) {
                        break;
                    }
                    users.entry(*operand).or_default().extend(after);
                }
            }
        }
        for users in users.values_mut().chain(parts.values_mut()) {
            users.sort_unstable();
        }
        Self { module, patience, users, parts, callers, variables: variables(module) }
    }

    fn get(&self, id: i64) -> Option<&'module Instruction<'file>> {
        self.module.instructions.get(&id)
    }

    fn piece(&self, buffer: i64) -> Option<Piece<'file>> {
        let buffer = self.module.buffers.get(&buffer)?;
        let unknown = Piece {
            bytes: buffer.bytes,
            instruction: "",
            op: "",
            source: None,
            shape: Shape::default(),
            sort: Sort::Result,
        };
        // Deep places in a tuple take longer to find.
        let found =
            self.get(buffer.instruction).filter(|_| self.patience.has(1 << (8 * buffer.index.len().clamp(1, 3) - 8)));
        let Some(instruction) = found else { return Some(unknown) };
        let shape = instruction.shape(&buffer.index);
        let sort = match self.given(buffer.instruction) {
            _ if instruction.opcode == "custom-call" && shape.is_bytes() => Sort::Scratch,
            Some(parameter) if self.variables.contains(&parameter) => Sort::Variable,
            Some(_) => Sort::Input,
            None => Sort::Result,
        };
        let namer = self.namer(buffer.instruction, &buffer.index).and_then(|id| self.get(id));
        let (op, source) = namer.map_or(("", None), |namer| (namer.op, self.source(namer)));
        Some(Piece { instruction: instruction.name, op, source, shape, sort, ..unknown })
    }

    /// The line of an instruction as the framework wrote it: the program's, else the innermost one; of TensorFlow's own
    /// lines, in which it makes all nodes, none.
    fn source(&self, instruction: &Instruction<'file>) -> Option<Source<'file>> {
        let first = self.module.sources(instruction).next()?;
        let users = self.module.sources(instruction).find(|source| is_users(source.file));
        users.or(Some(first).filter(|source| !source.file.contains("/site-packages/tensorflow/")))
    }

    /// The parameter of the step that an instruction only copies or transposes.
    fn given(&self, id: i64) -> Option<i64> {
        const COPIES: [&str; 6] = ["copy", "transpose", "bitcast", "reshape", "convert", "get-tuple-element"];
        let mut id = id;
        for _ in 0..MOST_STEPS {
            let instruction = self.get(id).filter(|_| self.patience.has(1))?;
            let inside = instruction.called.first().and_then(|called| self.module.roots.get(called));
            let inside = inside.and_then(|root| self.get(*root));
            let copies = match (instruction.opcode, inside) {
                ("parameter", _) => match self.handed(id, instruction).first() {
                    Some(handed) => {
                        id = *handed;
                        continue;
                    }
                    None => return Some(instruction.parameter),
                },
                ("fusion", Some(inside)) => {
                    COPIES.contains(&inside.opcode) && instruction.operands.len() == 1 && self.only_copies(instruction)
                }
                (opcode, _) => COPIES.contains(&opcode),
            };
            id = copies.then(|| instruction.operands.first().copied())??;
        }
        None
    }

    /// Whether nothing is computed in a fusion.
    fn only_copies(&self, fusion: &Instruction<'_>) -> bool {
        let mut id = fusion.called.first().and_then(|called| self.module.roots.get(called)).copied();
        for _ in 0..MOST_STEPS {
            let found = id.and_then(|id| self.get(id)).filter(|_| self.patience.has(1));
            let Some(instruction) = found else { return false };
            match instruction.opcode {
                "parameter" => return true,
                "copy" | "transpose" | "bitcast" | "reshape" | "convert" => id = instruction.operands.first().copied(),
                _ => return false,
            }
        }
        false
    }

    /// The instruction with the framework's operation of a part of an instruction's result: itself, what is fused into it,
    /// else the nearest that it is made from, else the nearest that uses it.
    fn namer(&self, id: i64, index: &[i64]) -> Option<i64> {
        let instruction = self.get(id)?;
        let root = instruction.called.first().and_then(|called| self.module.roots.get(called)).copied();
        let fused = root.filter(|_| instruction.opcode == "fusion").map(|root| match (self.get(root), index.first()) {
            (Some(tuple), Some(part)) if tuple.opcode == "tuple" => {
                usize::try_from(*part).ok().and_then(|part| tuple.operands.get(part)).copied().unwrap_or(root)
            }
            _ => root,
        });
        let own = fused.filter(|root| self.is_named(*root)).or(Some(id).filter(|id| self.is_named(*id)));
        own.or_else(|| fused.and_then(|root| self.nearest(root, |id| self.operands(id))))
            .or_else(|| self.nearest(id, |id| self.operands(id)))
            .or_else(|| {
                let users = |id| self.users.get(&id).map_or(&[][..], Vec::as_slice);
                let part = index.first().and_then(|part| self.parts.get(&(id, *part)));
                part.map_or(users(id), Vec::as_slice).iter().find_map(|user| self.nearest(*user, users))
            })
    }

    fn is_named(&self, id: i64) -> bool {
        self.get(id).is_some_and(|instruction| !instruction.op.is_empty() && !ENDS.contains(&instruction.op))
    }

    /// What an instruction is made from; a parameter of a computation is made from what its caller hands over.
    fn operands(&self, id: i64) -> &'module [i64] {
        self.get(id).map_or(&[], |instruction| match instruction.opcode {
            "parameter" => self.handed(id, instruction),
            _ => &instruction.operands,
        })
    }

    fn handed(&self, id: i64, parameter: &Instruction<'_>) -> &'module [i64] {
        let caller =
            self.module.homes.get(&id).and_then(|home| self.callers.get(home)).and_then(|caller| self.get(*caller));
        let place = usize::try_from(parameter.parameter).ok();
        caller.zip(place).and_then(|(caller, place)| caller.operands.get(place..=place)).unwrap_or_default()
    }

    /// The nearest instruction in one direction that has an operation.
    fn nearest<'own>(&'own self, from: i64, next: impl Fn(i64) -> &'own [i64]) -> Option<i64> {
        let (mut waiting, mut seen) = (VecDeque::from([from]), HashSet::from([from]));
        while let Some(id) = waiting.pop_front() {
            if self.is_named(id) {
                return Some(id);
            }
            if !self.patience.has(1) {
                return None;
            }
            for next in next(id).iter().take(MOST_STEPS) {
                if seen.len() < MOST_STEPS && seen.insert(*next) {
                    waiting.push_back(*next);
                }
            }
        }
        None
    }
}
