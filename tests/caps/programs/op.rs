//! What a program consists of: operations as data, their text form, and the generator.
//!
//! An operation names slots, never addresses. What it means is decided when it runs: one that would not be legal at that
//! moment is skipped. So every part of a program is a legal program, which is what shrinking needs.

use std::fmt;
use weir_tests::rng::Rng;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $word:literal $family:ident $weight:literal),* $(,)?) => {
        /// What an operation does.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum What { $($(#[$doc])* $name),* }

        /// Word, family and weight of every operation.
        const ALL: &[(What, &str, Family, u32)] = &[$((What::$name, $word, Family::$family, $weight)),*];
    };
}

/// Families of operations: a program leaves some of them out, so that the others meet more often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// In every program.
    Always,
    Plain,
    Managed,
    Ordered,
    Mempools,
    Handles,
    Arrays,
    Graphs,
    Contexts,
    Code,
    Captures,
    Peer,
}

/// The families that a program may leave out.
pub(crate) const FAMILIES: &[(Family, &str)] = &[
    (Family::Plain, "plain"),
    (Family::Managed, "managed"),
    (Family::Ordered, "ordered"),
    (Family::Mempools, "mempools"),
    (Family::Handles, "handles"),
    (Family::Arrays, "arrays"),
    (Family::Graphs, "graphs"),
    (Family::Contexts, "contexts"),
    (Family::Code, "code"),
    (Family::Captures, "captures"),
    (Family::Peer, "peer"),
];

operations! {
    Alloc = "alloc" Plain 30,
    AllocPitch = "alloc-pitch" Plain 6,
    AllocManaged = "alloc-managed" Managed 8,
    /// Makes managed memory resident on the device, or on the host.
    Prefetch = "prefetch" Managed 10,
    AllocAsync = "alloc-async" Ordered 24,
    AllocFromPool = "alloc-from-pool" Mempools 20,
    /// Frees synchronously, whatever the slot holds.
    Free = "free" Always 22,
    /// Frees in stream order what may be freed so, with the stream's work before it.
    FreeAsync = "free-async" Always 34,
    /// Keeps a stream busy: what is freed behind is pending.
    Spin = "spin" Always 12,
    Fill = "fill" Always 8,
    /// Moves the work on a block to another stream, ordered by an event.
    Move = "move" Always 4,
    CtxSynchronize = "ctx-synchronize" Always 2,
    StreamSynchronize = "stream-synchronize" Always 3,
    StreamQuery = "stream-query" Always 3,
    GetInfo = "get-info" Always 6,
    PoolCreate = "pool-create" Mempools 8,
    PoolDestroy = "pool-destroy" Mempools 6,
    PoolTrim = "pool-trim" Mempools 4,
    PoolThreshold = "pool-threshold" Mempools 3,
    PoolCurrent = "pool-current" Mempools 3,
    Create = "create" Handles 24,
    /// Reserves, maps and grants.
    Map = "map" Handles 12,
    Unmap = "unmap" Handles 10,
    Release = "release" Handles 14,
    /// Another reference by the address of a mapping.
    Retain = "retain" Handles 5,
    /// Exports, and imports in this process.
    Import = "import" Handles 8,
    Array = "array" Arrays 16,
    SmallArray = "small-array" Arrays 24,
    Array3D = "array-3d" Arrays 6,
    Mipmap = "mipmap" Arrays 6,
    GraphNodes = "graph-nodes" Graphs 8,
    GraphCapture = "graph-capture" Graphs 8,
    GraphUpload = "graph-upload" Graphs 4,
    GraphLaunch = "graph-launch" Graphs 24,
    GraphFree = "graph-free" Graphs 10,
    GraphDestroy = "graph-destroy" Graphs 8,
    GraphTrim = "graph-trim" Graphs 3,
    CtxCreate = "ctx-create" Contexts 5,
    CtxUse = "ctx-use" Contexts 10,
    CtxAttach = "ctx-attach" Contexts 3,
    CtxDetach = "ctx-detach" Contexts 5,
    CtxDestroy = "ctx-destroy" Contexts 4,
    PrimaryReset = "primary-reset" Contexts 1,
    PrimaryRelease = "primary-release" Contexts 1,
    ModuleLoad = "module-load" Code 5,
    ModuleUnload = "module-unload" Code 4,
    /// Another thread begins a thread-local capture and keeps it open.
    CaptureHold = "capture-hold" Captures 3,
    CaptureEnd = "capture-end" Captures 3,
    /// Another process imports a handle and maps it.
    PeerImport = "peer-import" Peer 5,
    /// Another process opens the IPC handle of a plain block.
    PeerOpen = "peer-open" Peer 5,
    PeerDrop = "peer-drop" Peer 3,
}

impl What {
    /// Its name in the text of a program.
    pub(crate) fn word(self) -> &'static str {
        ALL.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Op {
    /// The thread that does it.
    pub(crate) thread: u8,
    pub(crate) what: What,
    pub(crate) slot: u8,
    /// A second slot, or a choice between variants.
    pub(crate) other: u8,
    pub(crate) stream: u8,
    pub(crate) bytes: u64,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, what, slot, other, stream, bytes } = self;
        write!(f, "{thread} {} {slot} {other} {stream} {bytes}", what.word())
    }
}

impl Op {
    /// Reads what `Display` writes.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let thread = words.next()?.parse().ok()?;
        let word = words.next()?;
        let what = ALL.iter().find(|row| row.1 == word)?.0;
        let mut number = || words.next()?.parse::<u64>().ok();
        let (slot, other, stream, bytes) = (number()?, number()?, number()?, number()?);
        Some(Self { thread, what, slot: slot as u8, other: other as u8, stream: stream as u8, bytes })
    }
}

/// A program: what its threads do, in this order where there is only one.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
}

impl Program {
    pub(crate) fn threads(&self) -> u8 {
        self.ops.iter().map(|op| op.thread).max().unwrap_or(0) + 1
    }

    pub(crate) fn text(&self) -> String {
        self.ops.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    /// Reads what [`Program::text`] gives.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        Some(Self { ops: lines.map(Op::parse).collect::<Option<_>>()? })
    }
}

/// Slots of blocks in a thread.
pub(crate) const SLOTS: u64 = 24;
/// Slots of mempools, graphs and contexts.
pub(crate) const FEW: u64 = 3;

/// The generator of a program. The first numbers of seeds that follow each other are alike: they are left out.
pub(crate) fn generator(seed: u64) -> Rng {
    let mut rng = Rng::new(seed);
    for _ in 0..4 {
        rng.next();
    }
    rng
}

/// Bytes as jobs request them, and as a cap dislikes them.
fn bytes(rng: &mut Rng, cap: u64, large: bool) -> u64 {
    const MIB: u64 = 1 << 20;
    let most = if large { cap / 3 } else { cap / 10 };
    match rng.below(20) {
        0..3 => 1 + rng.below(4096),
        3..6 => 1 + rng.below(256 << 10),
        6..9 => 1 + rng.below(2 * MIB),
        9..11 => MIB + rng.below(2) * 2,
        11..19 => (1 + rng.below(most / MIB)) * MIB + [0, 0, 512, 12_345][rng.below(4) as usize],
        _ => cap / 4 + rng.below(cap * 3 / 4),
    }
}

/// What programs may do.
#[derive(Default)]
pub(crate) struct Shape {
    /// The families to choose from; without any, each program chooses by itself.
    pub(crate) families: Vec<Family>,
    /// Operations to leave out, by their words.
    pub(crate) without: Vec<String>,
}

/// A random program of `length` operations.
pub(crate) fn generate(seed: u64, length: usize, cap: u64, shape: &Shape) -> Program {
    let mut rng = generator(seed);
    let threads = if rng.below(4) == 0 { 2 + rng.below(2) as u8 } else { 1 };
    let large = rng.below(2) == 0;
    let wanted: Vec<Family> = FAMILIES.iter().map(|row| row.0).filter(|_| rng.below(5) < 2).collect();
    let takes = |family: Family| {
        let only = &shape.families;
        family == Family::Always || if only.is_empty() { wanted.contains(&family) } else { only.contains(&family) }
    };
    let left_out = |what: What| shape.without.iter().any(|word| word == what.word());
    let mut choice: Vec<(What, u32)> =
        ALL.iter().filter(|row| takes(row.2) && !left_out(row.0)).map(|row| (row.0, row.3)).collect();
    // Nothing that takes memory: at least the plainest.
    if !choice.iter().any(|(what, _)| matches!(what, What::Alloc | What::AllocAsync | What::Create | What::Array)) {
        choice.push((What::Alloc, 40));
    }
    let sum: u32 = choice.iter().map(|row| row.1).sum();
    let mut ops = Vec::with_capacity(length);
    for _ in 0..length {
        let mut at = rng.below(u64::from(sum)) as u32;
        let picked = choice.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        let what = picked.map_or(What::GetInfo, |row| row.0);
        ops.push(Op {
            thread: rng.below(u64::from(threads)) as u8,
            what,
            slot: rng.below(SLOTS) as u8,
            other: rng.below(256) as u8,
            stream: rng.below(4) as u8,
            bytes: bytes(&mut rng, cap, large),
        });
    }
    Program { ops }
}
