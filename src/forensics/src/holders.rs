//! Who holds the memory: the largest owners at a moment, with their role, their recent change and their course.

use weir_journal::Class;
use weir_journal::reader::ModuleEntry;

use crate::growth::Growth;
use crate::names::{Who, base_name};
use crate::roles::{self, Region, Role};
use crate::survey::{BUCKETS, Owner, Survey};
use crate::{Run, is_held};

/// Points of a holder's course.
pub const POINTS: usize = 8;
/// Seconds that count as recent.
pub const RECENT: f64 = 60.0;

/// One holder.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Holder {
    /// Operation, without TensorFlow's wrappers; empty is unknown.
    pub op: String,
    /// `file:line` of the user, with the whole path; empty is unknown.
    pub python: String,
    /// The function that line is in.
    pub function: String,
    /// Where nothing else is known: the native library that made the request.
    pub library: String,
    /// What sort of memory.
    pub class: Class,
    /// What it is for.
    pub role: Role,
    /// The rule that applied.
    pub rule: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub blocks: u64,
    /// Change in the last minute before the moment.
    pub recent: i64,
    /// Bytes at eight moments, evenly spread over the events.
    pub course: [u64; POINTS],
    /// Whether it grows from step to step.
    pub grows: bool,
    /// TensorFlow's number of the data type, 0 is unknown.
    pub dtype: u32,
}

impl Holder {
    /// What to call it: the operation, else the library, else the class.
    pub fn label(&self) -> String {
        if !self.op.is_empty() {
            let scratch = self.role == Role::Workspaces;
            return if scratch { format!("{} ({})", self.op, self.role.word()) } else { self.op.clone() };
        }
        if !self.library.is_empty() {
            return format!("{} ({})", self.library, self.role.word());
        }
        let word = match self.class {
            Class::Block | Class::Device => "(no operation known)",
            Class::Managed => "(managed memory)",
            Class::Array => "(arrays)",
            Class::Overhead => "(contexts and code)",
            Class::Tensor => "(tensors)",
            _ => "(other)",
        };
        word.into()
    }

    /// `train.py:118`.
    pub fn place(&self) -> &str {
        base_name(&self.python)
    }
}

/// Bytes of one role.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Share {
    /// The role.
    pub role: Role,
    /// Its bytes.
    pub bytes: u64,
    /// Its allocations.
    pub blocks: u64,
}

/// The owners that count among the holders of a device, with their places: where TensorFlow's own allocator is in charge its
/// tensors do, and the regions that they lie in do not.
pub(crate) fn counted(survey: &Survey, device: u8) -> impl Iterator<Item = (usize, &Owner)> {
    let tensors = survey.of_class(device, Class::Tensor) > 0;
    survey.owners.iter().enumerate().filter(move |(_, owner)| owner.device == device && counts(owner, tensors))
}

fn counts(owner: &Owner, tensors: bool) -> bool {
    match owner.class {
        Class::Tensor => true,
        Class::Device | Class::Managed | Class::Block if tensors => {
            let nameless = owner.who.op.name.is_empty() && !holds_regions(owner);
            nameless || roles::region(&owner.who) == Region::Library
        }
        class => is_held(class),
    }
}

/// A region of TensorFlow's allocator: large, and requested by no operation of a library.
fn holds_regions(owner: &Owner) -> bool {
    owner.blocks > 0 && owner.bytes / owner.blocks >= 2 << 20
}

/// The holders of a device, largest first, and the rest in one number.
pub fn holders(run: &Run, survey: &Survey, device: u8, growths: &[Growth], most: usize) -> (Vec<Holder>, u64) {
    let modules = run.reader().modules().unwrap_or_default();
    let mut owners: Vec<(usize, &Owner)> = counted(survey, device).filter(|(_, owner)| owner.bytes > 0).collect();
    owners.sort_by_key(|(place, owner)| (std::cmp::Reverse(owner.bytes), *place));
    let rest = owners.iter().skip(most).map(|(_, owner)| owner.bytes).sum();
    let shown = owners.into_iter().take(most).map(|(place, owner)| {
        let (role, rule) = roles::of(owner, &survey.steps);
        let line = owner.who.line();
        Holder {
            op: owner.who.op_name().to_owned(),
            python: line.map(|line| format!("{}:{}", line.file, line.line)).unwrap_or_default(),
            function: line.map(|line| line.function.clone()).unwrap_or_default(),
            library: if owner.who.is_nameless() { library(run, &owner.who, &modules) } else { String::new() },
            class: owner.class,
            role,
            rule,
            bytes: owner.bytes,
            blocks: owner.blocks,
            recent: survey.recent(&owner.ends, RECENT),
            course: course(&owner.ends),
            grows: growths.iter().any(|growth| growth.owners.contains(&place)),
            dtype: owner.who.op.dtype,
        }
    });
    (shown.collect(), rest)
}

/// Memory by role, largest first.
pub fn shares(survey: &Survey, device: u8) -> Vec<Share> {
    let mut shares = Role::ALL.map(|role| Share { role, bytes: 0, blocks: 0 });
    for (_, owner) in counted(survey, device) {
        let (role, _) = roles::of(owner, &survey.steps);
        // What TensorFlow's chunks have beyond their tensors is for nothing.
        let used = owner.used();
        for (role, bytes, blocks) in [(role, used, owner.blocks), (Role::Other, owner.bytes - used, 0)] {
            if let Some(share) = shares.iter_mut().find(|share| share.role == role) {
                share.bytes += bytes;
                share.blocks += blocks;
            }
        }
    }
    let mut shares: Vec<Share> = shares.into_iter().filter(|share| share.bytes > 0).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}

fn course(ends: &[i64; BUCKETS]) -> [u64; POINTS] {
    std::array::from_fn(|point| ends[(point + 1) * BUCKETS / POINTS - 1].max(0) as u64)
}

/// The native library that made the request: the innermost one that is neither weir nor the driver nor the C library.
pub fn library(run: &Run, who: &Who, modules: &[ModuleEntry]) -> String {
    const BETWEEN: [&str; 6] = ["libweir.so", "libcuda.so", "libcudart.so", "libc.so", "libpthread", "libstdc++"];
    let frames = run.reader().stack(who.stack).unwrap_or_default();
    let homes = frames.iter().filter_map(|frame| {
        let module = modules.iter().find(|module| (module.start..module.start + module.size).contains(frame))?;
        Some(base_name(&module.path))
    });
    let mut homes = homes.filter(|name| !BETWEEN.iter().any(|other| name.starts_with(other)));
    homes.next().unwrap_or_default().to_owned()
}
