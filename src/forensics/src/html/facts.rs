//! The words of the page: whose journal it is, the devices, the verdict, and the names of everybody who held memory.
//! All of it becomes one JSON text; the page puts it on the screen as text, never as markup.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use weir_journal::reader::Error;
use weir_journal::{Attribution, Class, Kind};

use super::lifetimes::{HolderKey, Lifetimes};
use super::verdict::Verdict;
use crate::names::{Who, is_users};
use crate::report::Report;
use crate::roles::{self, Region, Role};
use crate::survey::Survey;
use crate::symbols::Symbols;
use crate::{Fate, Run, is_held};

/// Holders listed one by one; further ones share the last place.
const MOST_HOLDERS: usize = 1 << 16;
/// Stretches of the address space that are drawn on their own.
const MOST_SEGMENTS: usize = 64;

/// A frame of a stack: its text and what it is.
const FRAME_PYTHON: u32 = 0;
const FRAME_OP: u32 = 1;
const FRAME_NATIVE: u32 = 2;
/// Python of an installed package or of the standard library.
const FRAME_LIBRARY: u32 = 3;

/// Texts by number; each is kept once.
#[derive(Debug, Default)]
struct Texts {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// In which of the page's views a holder's bytes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
enum HolderKind {
    /// Blocks of the pool.
    Pool,
    /// Device memory straight from the driver.
    Device,
    /// Physical memory that the pool, or the job, took from the driver.
    Physical,
    /// Physical memory where it is mapped.
    Mapped,
    /// Tensors inside a region of TensorFlow's own allocator.
    Tensor,
    /// Anything else: host memory, address space.
    Aside,
}

impl HolderKind {
    fn of(class: Option<Class>) -> Self {
        match class {
            None => Self::Mapped,
            Some(Class::Block) => Self::Pool,
            Some(Class::Handle) => Self::Physical,
            Some(Class::Tensor) => Self::Tensor,
            Some(class) if is_held(class) => Self::Device,
            Some(_) => Self::Aside,
        }
    }
}

/// Somebody who holds memory of one class on one device. Numbers are places among the texts and stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub(super) struct HolderRow {
    class: u32,
    device: u8,
    op: u32,
    line: u32,
    /// Data type and shape.
    tensor: u32,
    role: u32,
    stack: u32,
    kind: HolderKind,
}

/// Device, class, operation, Python line, what the memory is to the operation, and the role by name alone: one operation
/// of one line may have results, derivatives and workspaces.
type RoleKey = (u8, Class, String, String, Region, Role);

fn role_key(device: u8, class: Class, who: &Who) -> RoleKey {
    let role = roles::by_name(who, class, device).0;
    (device, class, who.op_name().to_owned(), who.place(), roles::region(who), role)
}

/// Everybody who held memory.
pub(super) struct Holders<'run> {
    run: &'run Run,
    /// The role of every owner that the survey distinguishes.
    roles: HashMap<RoleKey, &'static str>,
    texts: Texts,
    known: Vec<HolderRow>,
    numbers: HashMap<HolderKey, u32>,
    same: HashMap<HolderRow, u32>,
    stacks: Vec<Vec<u32>>,
    stack_numbers: HashMap<Vec<u32>, u32>,
    /// Lines as they are shown, and the files that they are in.
    places: BTreeMap<String, String>,
    symbols: Symbols,
}

/// Data type and shape as TensorFlow writes them, as far as they are known: `float32 [32,20,33]`.
fn tensor(who: &Who) -> String {
    let (dtype, shape) = (dtype_name(who.op.dtype), who.op.shape.as_str());
    if dtype.is_empty() || shape.is_empty() { format!("{dtype}{shape}") } else { format!("{dtype} {shape}") }
}

/// A data type by TensorFlow's number of it (types.proto); empty for what no tensor on a device has.
fn dtype_name(number: u32) -> &'static str {
    match number {
        1 => "float32",
        2 => "float64",
        3 => "int32",
        4 => "uint8",
        5 => "int16",
        6 => "int8",
        8 => "complex64",
        9 => "int64",
        10 => "bool",
        14 => "bfloat16",
        17 => "uint16",
        18 => "complex128",
        19 => "float16",
        22 => "uint32",
        23 => "uint64",
        24 => "float8_e5m2",
        25 => "float8_e4m3fn",
        _ => "",
    }
}

fn class_name(class: Option<Class>) -> &'static str {
    match class {
        None => "mapped memory",
        Some(Class::Block) => "pool block",
        Some(Class::Device) => "device memory",
        Some(Class::Managed) => "managed memory",
        Some(Class::Array) => "array",
        Some(Class::Handle) => "physical handle",
        Some(Class::Pinned) => "pinned host memory",
        Some(Class::Registered) => "registered host memory",
        Some(Class::Imported) => "imported memory",
        Some(Class::Tensor) => "TensorFlow tensor",
        Some(Class::HostTensor) => "TensorFlow tensor in host memory",
        Some(Class::Overhead) => "context and modules",
        Some(Class::Reservation) => "address reservation",
        Some(Class::Other) => "other",
    }
}

impl<'run> Holders<'run> {
    pub(super) fn new(run: &'run Run, survey: &Survey) -> Result<Self, Error> {
        let named = survey.owners.iter().map(|owner| {
            let (role, _) = roles::of(owner, &survey.steps);
            (role_key(owner.device, owner.class, &owner.who), role.word())
        });
        Ok(Self {
            run,
            roles: named.collect(),
            texts: Texts::default(),
            known: Vec::new(),
            numbers: HashMap::new(),
            same: HashMap::new(),
            stacks: Vec::new(),
            stack_numbers: HashMap::new(),
            places: BTreeMap::new(),
            symbols: Symbols::new(run.reader().modules()?),
        })
    }

    /// The holder's number.
    pub(super) fn number(&mut self, owner: HolderKey) -> Result<u32, Error> {
        if let Some(number) = self.numbers.get(&owner) {
            return Ok(*number);
        }
        let holder = self.describe(owner)?;
        let next = self.known.len() as u32;
        let number = match self.same.get(&holder) {
            Some(number) => *number,
            None if self.known.len() < MOST_HOLDERS => {
                self.known.push(holder);
                self.same.insert(holder, next);
                next
            }
            None => next - 1,
        };
        self.numbers.insert(owner, number);
        Ok(number)
    }

    fn describe(&mut self, owner: HolderKey) -> Result<HolderRow, Error> {
        let who = self.run.who(owner.by);
        let op = who.op_name();
        if let Some(line) = who.line().filter(|line| line.file.starts_with('/')) {
            self.places.entry(who.place()).or_insert_with(|| format!("{}:{}", line.file, line.line));
        }
        let mut frames = Vec::new();
        for line in who.python.lines.iter().rev() {
            let text = format!("{} {}:{}", line.function, line.file, line.line);
            let kind = if is_users(&line.file) { FRAME_PYTHON } else { FRAME_LIBRARY };
            frames.push(self.texts.number(&text) << 2 | kind);
        }
        if who.is_nameless() {
            self.native_frames(owner.by, &mut frames)?;
        }
        if !op.is_empty() {
            frames.push(self.texts.number(op) << 2 | FRAME_OP);
        }
        let role = owner.class.map_or("other", |class| {
            let known = self.roles.get(&role_key(owner.device, class, &who)).copied();
            known.unwrap_or_else(|| roles::by_name(&who, class, owner.device).0.word())
        });
        let class = class_name(owner.class);
        if frames.is_empty() {
            frames.push(self.texts.number(class) << 2 | FRAME_NATIVE);
        }
        let next = self.stacks.len() as u32;
        let stack = *self.stack_numbers.entry(frames.clone()).or_insert(next);
        if stack == next {
            self.stacks.push(frames);
        }
        Ok(HolderRow {
            class: self.texts.number(class),
            device: owner.device,
            op: self.texts.number(op),
            line: self.texts.number(&who.place()),
            tensor: self.texts.number(&tensor(&who)),
            role: self.texts.number(role),
            stack,
            kind: HolderKind::of(owner.class),
        })
    }

    fn native_frames(&mut self, by: Attribution, frames: &mut Vec<u32>) -> Result<(), Error> {
        if by.stack == 0 {
            return Ok(());
        }
        for address in self.run.reader().stack(by.stack)?.iter().rev() {
            for frame in self.symbols.resolve(*address).iter().rev() {
                frames.push(self.texts.number(&frame.name()) << 2 | FRAME_NATIVE);
            }
        }
        Ok(())
    }
}

/// A device.
#[derive(Debug, Serialize)]
struct DeviceFacts {
    number: u8,
    name: String,
    total: u64,
    cap: u64,
    /// Stretches of its address space in which blocks ever were: start and size.
    segments: Vec<(u64, u64)>,
}

/// A mark on the time axis.
#[derive(Debug, Serialize)]
struct MarkFacts {
    entry: usize,
    kind: Kind,
    device: u8,
    allocated: u64,
    requested: u64,
    number: u64,
    holder: Option<u32>,
    /// What the job called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<u32>,
}

/// Everything that the page says in words.
#[derive(Serialize)]
pub(super) struct Facts<C> {
    command: Vec<String>,
    pid: u32,
    started_ms: u64,
    state: Fate,
    turned_off: Option<String>,
    counters: weir_journal::reader::Counters,
    missed: u64,
    older: u64,
    before: usize,
    /// Whether all that was ever mapped is known.
    mapped_known: bool,
    devices: Vec<DeviceFacts>,
    marks: Vec<MarkFacts>,
    pub(super) verdict: Verdict,
    /// The verdict's device, and its failure's place among the entries: where the page opens.
    device: u8,
    moment: Option<usize>,
    /// Rows of the table of holders at first.
    rows: usize,
    texts: Vec<String>,
    holders: Vec<HolderRow>,
    stacks: Vec<Vec<u32>>,
    /// `train.py:7` to `/home/me/train.py:7`, for links into an editor.
    places: BTreeMap<String, String>,
    columns: C,
}

impl<C: Serialize> Facts<C> {
    /// Puts the facts together; `columns` describes the packed numbers.
    pub(super) fn of(
        run: &Run,
        report: &Report,
        rows: usize,
        lifetimes: &Lifetimes,
        mut holders: Holders<'_>,
        columns: C,
    ) -> Result<Self, Error> {
        let header = run.header();
        let mut devices = Vec::new();
        for device in run.all_devices() {
            devices.push(DeviceFacts {
                number: device.number,
                name: device.name.clone(),
                total: device.total,
                cap: device.cap,
                segments: segments(lifetimes, device.number),
            });
        }
        let mut marks = Vec::new();
        for mark in &lifetimes.marks {
            let event = &mark.event;
            let is_request = matches!(event.kind, Kind::Oom | Kind::Failed | Kind::Refused | Kind::Attempt);
            let owner = HolderKey { class: Some(event.class), device: event.device, by: event.by };
            let is_said = matches!(event.kind, Kind::Mark | Kind::RegionBegin | Kind::RegionEnd);
            let holder = if is_request { Some(holders.number(owner)?) } else { None };
            marks.push(MarkFacts {
                entry: mark.entry,
                kind: event.kind,
                device: event.device,
                allocated: event.allocated,
                requested: event.requested,
                number: event.address & ((1 << 53) - 1),
                holder,
                name: is_said.then(|| run.who(event.by).op.name.clone()),
                thread: is_said.then_some(event.thread),
            });
        }
        let failure = lifetimes.marks.iter().find(|mark| Some(mark.event.seq) == report.event);
        Ok(Self {
            command: header.command.clone(),
            pid: header.identity.pid,
            started_ms: header.started.realtime / 1_000_000,
            state: run.fate(),
            turned_off: header.turned_off.as_ref().map(|(_, reason)| reason.clone()),
            counters: header.counters,
            missed: lifetimes.missed,
            older: lifetimes.older,
            before: lifetimes.before,
            mapped_known: header.counters.lapped == 0 && lifetimes.older == 0,
            devices,
            marks,
            verdict: Verdict::of(run, report),
            device: report.device,
            moment: failure.map(|mark| mark.entry),
            rows,
            texts: holders.texts.texts,
            holders: holders.known,
            stacks: holders.stacks,
            places: holders.places,
            columns,
        })
    }
}

/// Where blocks of a device ever were. Neighbours are joined, over wider and wider gaps until few are left.
fn segments(lifetimes: &Lifetimes, device: u8) -> Vec<(u64, u64)> {
    let placed = |class: Option<Class>| {
        class.is_none_or(|class| {
            matches!(class, Class::Tensor | Class::Imported) || (is_held(class) && class != Class::Overhead)
        })
    };
    let mut ranges: Vec<(u64, u64)> = lifetimes
        .blocks
        .iter()
        .filter(|block| block.owner.device == device && block.allocated > 0 && placed(block.owner.class))
        .map(|block| (block.address, block.address.saturating_add(block.allocated)))
        .collect();
    ranges.sort_unstable();
    let mut gap = 1 << 21;
    loop {
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (start, end) in &ranges {
            match joined.last_mut() {
                Some(last) if *start <= last.1.saturating_add(gap) => last.1 = last.1.max(*end),
                _ => joined.push((*start, *end)),
            }
        }
        if joined.len() <= MOST_SEGMENTS || gap >= 1 << 50 {
            return joined.iter().map(|(start, end)| (*start, end - start)).collect();
        }
        ranges = joined;
        gap *= 4;
    }
}
