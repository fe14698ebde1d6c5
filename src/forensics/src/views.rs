//! Two views of one device that add up: the driver's (what the device's bytes are taken by) and TensorFlow's (what its
//! allocator reserved against what its tensors use).

use weir_journal::layout::HOST_DEVICE;
use weir_journal::{Class, Situation};

use crate::roles::{self, Region};
use crate::survey::{Owner, Survey};

/// What a part of a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Memory that the job has requested and not freed.
    Live,
    /// Free inside the job's own pool: the next request can have it.
    PoolFree,
    /// Freed by the job, still waiting for device work to end.
    Deferred,
    /// This job's, but none of its allocations: its contexts, loaded code, mappings of its own.
    Overhead,
    /// Memory of other processes, and of the driver where the two could not be distinguished.
    Others,
    /// Free.
    Free,
}

impl Part {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Live => "live in this job",
            Self::PoolFree => "pool free",
            Self::Deferred => "freed, not reusable yet",
            Self::Overhead => "contexts of this job",
            Self::Others => "other processes",
            Self::Free => "driver free",
        }
    }

    /// The letter of the bar.
    pub fn mark(self) -> char {
        match self {
            Self::Live => '█',
            Self::PoolFree => '░',
            Self::Deferred => '▒',
            Self::Overhead => '▓',
            Self::Others => '▞',
            Self::Free => '·',
        }
    }
}

/// The bytes of a device, in parts that add up to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DriverView {
    /// The whole; 0 is unknown.
    pub total: u64,
    /// The parts; their sum is the whole.
    pub parts: Vec<(Part, u64)>,
    /// Whether the driver was queried for how much is free: else others' memory counts as free.
    pub measured: bool,
    /// Memory of the job that lies on the host because the cap was reached; no part of the device.
    pub spilled: u64,
}

impl DriverView {
    /// What this job has of the device.
    pub fn ours(&self) -> u64 {
        [Part::Live, Part::PoolFree, Part::Deferred, Part::Overhead].map(|part| self.of(part)).iter().sum()
    }

    /// The bytes of a part.
    pub fn of(&self, part: Part) -> u64 {
        self.parts.iter().find(|(name, _)| *name == part).map_or(0, |(_, bytes)| *bytes)
    }
}

/// The driver takes memory for straight requests in chunks of this size.
const CHUNK: u64 = 2 << 20;

/// What the driver sees, at the survey's moment.
pub fn driver_view(survey: &Survey, device: u8, total: u64, situation: &Situation) -> DriverView {
    let of = |class| survey.of_class(device, class);
    let handles = of(Class::Handle);
    // The pool's handles on the host are there for blocks that did not fit under the cap.
    let spilled = survey.of_class(HOST_DEVICE, Class::Handle).min(of(Class::Block));
    let blocks = of(Class::Block) - spilled;
    let straight = of(Class::Device) + of(Class::Managed) + of(Class::Array) + of(Class::Other);
    let total = if situation.device_total > 0 { situation.device_total } else { total };
    let measured = situation.device_total > 0;
    // Blocks lie inside the pool's handles; without a word of handles, blocks are all that is known.
    let backed = handles.max(blocks);
    let inside = backed - blocks;
    // The pool's own word counts as far as there is memory for it to speak of.
    let known = situation.pool_free > 0 || situation.pool_deferred > 0;
    let unheld = if handles == 0 { u64::MAX } else { inside };
    let pool_free = if known {
        situation.pool_free.min(unheld)
    } else if blocks > 0 {
        inside
    } else {
        0
    };
    let deferred = situation.pool_deferred.min(unheld - pool_free);
    // Handles that the job made itself are its live memory.
    let own_handles = if handles == 0 { 0 } else { inside - pool_free - deferred };
    let (own_live, mapped) = if blocks == 0 { (own_handles, 0) } else { (0, own_handles) };
    let live = blocks + straight + own_live;
    let charged = situation.charged.saturating_sub(situation.charged_by_others);
    let known = live + pool_free + deferred + mapped;
    let overhead = mapped + of(Class::Overhead).max(charged.saturating_sub(known));
    let ours = known - mapped + overhead;
    let used = if measured { total.saturating_sub(situation.device_free) } else { ours };
    // The driver serves straight requests in chunks: up to one chunk a request may be its rounding, and nobody else's.
    let direct = [Class::Device, Class::Managed, Class::Array, Class::Other];
    let requests = survey.owners.iter().filter(|owner| owner.device == device && direct.contains(&owner.class));
    let rounding = requests.map(|owner| owner.blocks.saturating_mul(CHUNK)).fold(0, u64::saturating_add);
    let rounding = rounding.saturating_sub(overhead - mapped).min(used.saturating_sub(ours));
    let (overhead, ours) = (overhead + rounding, ours + rounding);
    // What we count and the driver does not see yet, or no more, is taken from what is called free.
    let others = used.saturating_sub(ours);
    let free = total.saturating_sub(ours + others);
    let mut parts = vec![
        (Part::Live, live),
        (Part::PoolFree, pool_free),
        (Part::Deferred, deferred),
        (Part::Overhead, overhead),
        (Part::Others, others),
        (Part::Free, free),
    ];
    let sum: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    parts.retain(|(part, bytes)| *bytes > 0 || matches!(part, Part::Live | Part::Free));
    DriverView { total: total.max(sum), parts, measured, spilled }
}

/// What TensorFlow reserved against what its tensors use. What it reserved and what is beside it are the memory that the
/// driver's view calls live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct TensorView {
    /// Regions that TensorFlow's allocator took from the driver, or all tensors where every one comes to weir's pool.
    pub reserved: u64,
    /// Chunks of tensors inside.
    pub used: u64,
    /// Of these, bytes beyond the tensors' own: TensorFlow's allocator does not split every chunk.
    pub slack: u64,
    /// Reserved and unused.
    pub idle: u64,
    /// Tensors.
    pub tensors: u64,
    /// Live memory of the job that is not TensorFlow's: of libraries such as cuBLAS, and of other code.
    pub beside: u64,
    /// Whether TensorFlow's own allocator is in charge.
    pub own_allocator: bool,
}

/// What TensorFlow sees, at the survey's moment; `None` where no operation requested anything. `live` is what the driver's
/// view calls so.
pub fn tensor_view(survey: &Survey, device: u8, live: u64) -> Option<TensorView> {
    let of = |counts: &dyn Fn(&Owner) -> bool| {
        let owners = survey.owners.iter().filter(|owner| owner.device == device && counts(owner));
        owners.fold((0, 0, 0), |sum, owner| (sum.0 + owner.bytes, sum.1 + owner.blocks, sum.2 + owner.slack))
    };
    let memory = |owner: &Owner| matches!(owner.class, Class::Device | Class::Managed | Class::Block);
    let by_operation = |owner: &Owner| !owner.who.op.name.is_empty() && roles::region(&owner.who) != Region::Library;
    let region = |owner: &Owner| memory(owner) && by_operation(owner);
    // Where no region has an operation's name, those that nothing is known of are TensorFlow's.
    let nameless = |owner: &Owner| memory(owner) && owner.who.is_nameless();
    let tensor = |owner: &Owner| owner.class == Class::Tensor;
    let in_pool = |owner: &Owner| owner.class == Class::Block && by_operation(owner);
    let (used, tensors, slack) = of(&tensor);
    if used > 0 {
        let reserved = Some(of(&region).0).filter(|bytes| *bytes > 0).unwrap_or_else(|| of(&nameless).0).max(used);
        let beside = live.saturating_sub(reserved);
        return Some(TensorView { reserved, used, slack, idle: reserved - used, tensors, beside, own_allocator: true });
    }
    let (used, tensors, slack) = of(&in_pool);
    let beside = live.saturating_sub(used);
    (used > 0).then_some(TensorView { reserved: used, used, slack, idle: 0, tensors, beside, own_allocator: false })
}
