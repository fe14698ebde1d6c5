//! The inside of XLA's arenas: what compiled code requests once for a whole step, by operation, Python line, role and
//! shape. XLA leaves its buffers in a folder beside the journal (`WEIR_XLA`); the journal has the request and the lines.
//! Reads those files, of which it believes nothing; writes none.
//!
//! | file | for |
//! |---|---|
//! | `wire.rs` | fields of a message |
//! | `module.rs` | one compiled module as XLA wrote it |
//! | `inside.rs` | the buffers of an arena at its peak, and the operation of each |

mod inside;
mod module;
mod wire;

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_journal::reader::{OpName, Reader, open_file};
use weir_journal::{Attribution, Class, XLA_MODULE, node_of, xla_folder};

use crate::Run;
use crate::names::{Names, Who, base_name};
use crate::roles::{self, Role, XLA};
use crate::survey::{Owner, Survey};
use crate::words::{count, several, size};
use inside::{Patience, Piece, Sort};
use module::{Allocation, Module};

/// Files that are read at most, the largest of them, and all together.
const MOST_FILES: usize = 512;
const LARGEST_FILE: u64 = 512 << 20;
const MOST_BYTES: u64 = 2 << 30;
/// Sizes that are looked for at most.
const MOST_WANTED: usize = 64;
/// The same where most of them are arrays of JAX's.
const MOST_NAMELESS: usize = 1024;
/// Sizes that a module gets and gives back, at most.
const MOST_OTHERS: usize = 1 << 16;
/// Arenas in a report at most.
const MOST_ARENAS: usize = 3;
/// Parts of an arena at most.
const MOST_PARTS: usize = 50;
/// What an allocator may add to a request.
const ROUNDING: u64 = 4096;
/// The same where that is all that shows whose a request is: what the pool rounds up to.
const ALIGNMENT: u64 = 512;
/// Of a module whose request was not recorded, an arena below this is not worth a word.
const LEAST_UNSEEN: u64 = 1 << 20;

/// An arena of compiled code, and what is in it when most of it is live.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the JSON")]
pub struct Arena {
    /// XLA's name of the module.
    pub module: String,
    /// Bytes requested.
    pub bytes: u64,
    /// Whether its request was recorded. JAX's own allocator serves requests without calling the driver: then this is a
    /// module that was compiled, and nothing is known of when it ran.
    pub requested: bool,
    /// Whether it was live at the moment, or refused; else it was so before.
    pub live: bool,
    /// Bytes live at its peak; the rest lies between buffers.
    pub peak: u64,
    /// Whether the peak is XLA's own; else it is a lower bound, of buffers that do not overlap.
    pub exact: bool,
    /// Whether nothing else that could be meant has this size.
    pub certain: bool,
    /// Bytes of all that the module uses: arena, parameters, results, constants.
    pub total: u64,
    /// Bytes of the peak whose operation is known.
    pub named: u64,
    /// Bytes of the peak whose Python line is known.
    pub lined: u64,
    /// What is live at the peak, the largest first; at most 50.
    pub parts: Vec<Buffers>,
    /// Bytes of the parts that are not listed.
    pub rest: u64,
    /// Bytes of the peak by role, largest first.
    pub roles: Vec<(Role, u64)>,
    /// What XLA computes once more instead of keeping it, so that the step needs less.
    pub recomputed: Recomputed,
    /// With half the batch, where shapes show it.
    pub half_batch: Option<HalfBatch>,
}

/// Results that XLA computes a second time (its rematerialization), where they are needed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Recomputed {
    /// How many.
    pub results: u64,
    /// Bytes of all: not all of them would be live at the peak.
    pub bytes: u64,
}

/// An arena for half the batch: an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HalfBatch {
    /// Examples in half a batch.
    pub batch: u64,
    /// The arena's bytes then, if what does not come with the batch stays as it is.
    pub bytes: u64,
}

/// Buffers of one operation, role and shape.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Buffers {
    /// Operation; empty is unknown.
    pub op: String,
    /// `file:line` of the user, or empty.
    pub python: String,
    /// The function that line is in.
    pub function: String,
    /// What it is for.
    pub role: Role,
    /// Type and shape of one, as XLA lays it out: `f32[8,64,64,32]`.
    pub shape: String,
    /// XLA's name of the instruction that makes the largest: `loop_add_fusion.3`, `cudnn-conv.7`.
    pub instruction: String,
    /// Bytes of all.
    pub bytes: u64,
    /// How many.
    pub buffers: u64,
}

impl Arena {
    /// `one_step_on_data` of `a_inference_one_step_on_data_9052__.84`.
    pub fn function(&self) -> &str {
        let name = self.module.trim_start_matches("a_inference_").trim_start_matches("__inference_");
        let name = name.strip_prefix("jit_").unwrap_or(name);
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let name = name.rsplit_once('.').filter(|(_, end)| number(end)).map_or(name, |(start, _)| start);
        let name = name.trim_end_matches('_');
        name.rsplit_once('_').filter(|(start, end)| number(end) && !start.is_empty()).map_or(name, |(start, _)| start)
    }
}

impl Arena {
    /// Bytes that do not come with the batch; 0 where shapes do not show it.
    pub(crate) fn fixed(&self) -> u64 {
        self.half_batch.map_or(0, |half| half.bytes.saturating_mul(2).saturating_sub(self.bytes))
    }

    /// What to add where it was not live, or may be another.
    pub(crate) fn doubts(&self) -> String {
        let live = match (self.requested, self.live) {
            (false, _) => ", served above the driver, so that its request is not recorded",
            (true, false) => ", not live at this moment",
            (true, true) => "",
        };
        format!("{live}{}", if self.certain { "" } else { ", or something else of this size" })
    }

    /// What it would be with half the batch, and what XLA does to need less.
    pub(crate) fn estimates(&self) -> Vec<String> {
        let half = self.half_batch.map(|half| {
            format!("about {} with half the batch ({}; estimated from shapes)", size(half.bytes), count(half.batch))
        });
        let again = Some(self.recomputed).filter(|again| again.results > 0).map(|again| {
            format!(
                "XLA computes {} of {} once more instead of keeping them",
                several(again.results, "result"),
                size(again.bytes)
            )
        });
        half.into_iter().chain(again).collect()
    }
}

impl Buffers {
    /// `model.py:21 in call`, or empty.
    pub fn place(&self) -> String {
        let place = base_name(&self.python);
        match self.function.as_str() {
            "" | "<module>" => place.to_owned(),
            function => format!("{place} in {function}"),
        }
    }

    /// `conv2_block3/Conv2D activations (model.py:21)`.
    pub fn words(&self) -> String {
        let op = if self.op.is_empty() { "unknown" } else { crate::names::short_op(&self.op) };
        let place = base_name(&self.python);
        let place = if place.is_empty() { String::new() } else { format!(" ({place})") };
        format!("{op} {}{place}", self.role.word())
    }
}

/// A size that was requested.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    bytes: u64,
    live: bool,
    /// Whether it is known that XLA requested it for a whole step; else it may be any array of JAX's.
    known: bool,
}

impl Wanted {
    fn is(&self, arena: u64) -> bool {
        arena <= self.bytes && self.bytes - arena < if self.known { ROUNDING } else { ALIGNMENT }
    }
}

/// The requests that may be arenas, the live and large ones first. Where the run knows who requested what (TensorFlow's does,
/// JAX's does not), only those of compiled code.
fn wants(survey: &Survey, device: Option<u8>, refused: Option<u64>) -> Vec<Wanted> {
    let here = || survey.owners.iter().filter(|owner| device.is_none_or(|device| owner.device == device));
    let known = survey.owners.iter().any(|owner| roles::is_compiled(&owner.who));
    let named = |owner: &&Owner| {
        if known {
            return roles::is_compiled(&owner.who);
        }
        owner.who.op.name.is_empty() && matches!(owner.class, Class::Block | Class::Device)
    };
    let pieces = here().filter(named).flat_map(|owner| &owner.pieces);
    let mut wanted: Vec<Wanted> =
        pieces.map(|piece| Wanted { bytes: piece.size, live: piece.live > 0, known }).collect();
    wanted.sort_unstable_by_key(|wanted| std::cmp::Reverse((wanted.live, wanted.bytes)));
    let refused = refused.map(|bytes| Wanted { bytes, live: true, known });
    let mut seen = HashSet::new();
    // Small ones are scalars that a step gives back: no arena of theirs is worth a word.
    let all = refused.into_iter().chain(wanted).filter(|wanted| wanted.bytes >= ROUNDING && seen.insert(wanted.bytes));
    all.take(if known { MOST_WANTED } else { MOST_NAMELESS }).collect()
}

/// The arenas of a moment: that of the refused request (`refused`: its bytes), what is live, else the largest that there were.
pub fn arenas(run: &Run, survey: &Survey, device: u8, refused: Option<u64>) -> Vec<Arena> {
    let folder = xla_folder(run.path());
    if !folder.is_dir() {
        return Vec::new();
    }
    let wanted = wants(survey, Some(device), refused);
    let mut arenas = of_sizes(&folder, run.reader(), &|by| run.who(by), &wanted, true);
    arenas.truncate(MOST_ARENAS);
    arenas
}

/// What XLA left of a run, for exports: the arenas of its requests, and the modules themselves.
#[derive(Debug)]
pub struct Compiled {
    arenas: Vec<Arena>,
    folder: PathBuf,
    /// Whether requests of XLA's say that they are.
    known: bool,
}

impl Compiled {
    /// Of a run; nothing where XLA left nothing.
    pub fn of(run: &Run) -> Result<Option<Self>, crate::Error> {
        let folder = xla_folder(run.path());
        if !folder.is_dir() {
            return Ok(None);
        }
        let survey = Survey::of(run, None, |_, _| {})?;
        let wanted = wants(&survey, None, None);
        let known = wanted.first().is_none_or(|wanted| wanted.known);
        let arenas = of_sizes(&folder, run.reader(), &|by| run.who(by), &wanted, false);
        Ok(Some(Self { arenas, folder, known }))
    }

    /// The arena that was requested with so many bytes, where only one can be meant. `region` and `op` are of the request.
    pub fn arena(&self, requested: u64, region: &str, op: &str) -> Option<&Arena> {
        if (region != XLA) == self.known || (!self.known && !op.is_empty()) {
            return None;
        }
        let wanted = Wanted { bytes: requested, live: false, known: self.known };
        let near = self.arenas.iter().filter(|arena| wanted.is(arena.bytes));
        near.max_by_key(|arena| arena.bytes).filter(|arena| arena.certain)
    }

    /// Hands over every module that can be read, with its name and as XLA wrote it, the newest first.
    pub(crate) fn each_module(&self, mut take: impl FnMut(&str, &[u8])) {
        each_file(&self.folder, |file| {
            if let Ok(module) = Module::of(file).as_ref()
                && !module.name.is_empty()
            {
                take(module.name, file);
            }
        });
    }
}

/// What is inside of the arenas that are live in a run that is watched: each is looked up once, or again when XLA has compiled
/// more.
#[derive(Debug, Default)]
pub struct Live {
    arenas: HashMap<u64, Option<Arena>>,
    names: Names,
    changed: Option<std::time::SystemTime>,
}

impl Live {
    /// Looks up requests of these sizes, which XLA made for whole steps.
    pub fn look(&mut self, reader: &Reader, journal: &Path, sizes: impl Iterator<Item = u64>) {
        let folder = xla_folder(journal);
        let changed = folder.symlink_metadata().and_then(|meta| meta.modified()).ok();
        if changed != self.changed {
            self.arenas.retain(|_, arena| arena.is_some());
            self.changed = changed;
        }
        let mut wanted: Vec<u64> =
            sizes.filter(|bytes| *bytes >= ROUNDING && !self.arenas.contains_key(bytes)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() || changed.is_none() {
            return;
        }
        let wanted: Vec<Wanted> =
            wanted.into_iter().rev().take(MOST_WANTED).map(|bytes| Wanted { bytes, live: true, known: true }).collect();
        let names = &self.names;
        let found = of_sizes(&folder, reader, &|by| names.who(reader, by), &wanted, false);
        if self.arenas.len() > MOST_NAMELESS {
            self.arenas.clear();
        }
        for wanted in wanted {
            let arena = found.iter().filter(|arena| arena.certain && wanted.is(arena.bytes)).max_by_key(|it| it.bytes);
            self.arenas.insert(wanted.bytes, arena.cloned());
        }
    }

    /// The arena of a request of this size, if it was looked up and only one can be meant.
    pub fn arena(&self, requested: u64) -> Option<&Arena> {
        self.arenas.get(&requested)?.as_ref()
    }
}

/// The arenas of these sizes, in their order. With `unseen` and where there are none, the largest that were compiled.
fn of_sizes(
    folder: &Path,
    reader: &Reader,
    who: &dyn Fn(Attribution) -> Arc<Who>,
    wanted: &[Wanted],
    unseen: bool,
) -> Vec<Arena> {
    let nodes: HashMap<String, u32> = reader.nodes().unwrap_or_default().into_iter().collect();
    let lines = |op: &str| {
        let python = node_of(op.as_bytes(), |name| {
            core::str::from_utf8(name).ok().and_then(|name| nodes.get(name)).copied().unwrap_or(0)
        });
        (python != 0).then(|| who(Attribution { stack: 0, op: 0, python }))
    };
    let patience = Patience::new();
    let mut found: Vec<Option<Arena>> = vec![None; wanted.len()];
    let mut largest: Vec<Arena> = Vec::new();
    // Sizes of what modules get and give back: in JAX, requests like any other.
    let mut others: HashSet<u64> = HashSet::new();
    let unseen = unseen && wanted.iter().all(|wanted| !wanted.known);
    each_file(folder, |file| {
        let Ok(module) = Module::of(file) else { return };
        others.extend(module.allocations.iter().filter(|it| !it.is_arena()).map(|it| it.bytes).take(MOST_OTHERS));
        let arenas = || module.allocations.iter().filter(|allocation| allocation.is_arena());
        for (wanted, found) in wanted.iter().zip(&mut found) {
            let Some(best) = arenas().filter(|it| wanted.is(it.bytes)).max_by_key(|it| it.bytes) else { continue };
            match found {
                // What is nearer in size is it; of two that are as near, nobody knows.
                Some(other) if other.bytes > best.bytes => {}
                Some(other) if other.bytes == best.bytes => other.certain = false,
                _ => {
                    let arena = describe(&module, best, &lines, &patience);
                    *found = Some(Arena { live: wanted.live, ..arena });
                }
            }
        }
        let best = arenas().max_by_key(|it| it.bytes).filter(|it| unseen && it.bytes >= LEAST_UNSEEN);
        if let Some(best) =
            best.filter(|best| largest.len() < MOST_ARENAS || largest.iter().any(|it| it.bytes < best.bytes))
        {
            largest.push(Arena { requested: false, ..describe(&module, best, &lines, &patience) });
            largest.sort_by_key(|arena| std::cmp::Reverse(arena.bytes));
            largest.truncate(MOST_ARENAS);
        }
    });
    let mut arenas: Vec<Arena> = Vec::new();
    for (mut arena, wanted) in found.into_iter().zip(wanted).filter_map(|(found, wanted)| Some((found?, wanted))) {
        arena.certain &= wanted.known || !others.iter().any(|other| wanted.is(*other));
        let same = arenas.iter().any(|other| other.module == arena.module && other.bytes == arena.bytes);
        arenas.extend(Some(arena).filter(|_| !same));
    }
    if arenas.is_empty() { largest } else { arenas }
}

/// The arena of one file, as if its memory had been requested: for tests and for looking at a folder alone.
pub fn arena_of(file: &[u8]) -> Option<Arena> {
    let module = Module::of(file).ok()?;
    let largest = module.allocations.iter().filter(|allocation| allocation.is_arena()).max_by_key(|it| it.bytes)?;
    Some(describe(&module, largest, &|_| None, &Patience::new()))
}

/// Hands over what XLA wrote into a folder, one file at a time, newest modules first. What cannot be read is left out.
fn each_file(folder: &Path, mut read: impl FnMut(&[u8])) {
    // A link in the place of the folder, or of a file, leads to what is not this run's.
    let is_folder = folder.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let listed = if is_folder { std::fs::read_dir(folder).ok() } else { None };
    let mut paths: Vec<_> = listed
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(XLA_MODULE)))
        .collect();
    paths.sort_unstable_by(|one, other| other.cmp(one));
    let mut left = MOST_BYTES;
    for path in paths.into_iter().take(MOST_FILES) {
        let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
        let Some(file) = is_file.then(|| open_file(&path).ok()).flatten() else { continue };
        let most = left.min(LARGEST_FILE);
        if file.metadata().map_or(u64::MAX, |meta| meta.len()) > most {
            continue;
        }
        let mut bytes = Vec::new();
        if file.take(most + 1).read_to_end(&mut bytes).is_ok() && bytes.len() as u64 <= most {
            left -= bytes.len() as u64;
            read(&bytes);
        }
    }
}

type Lines<'own> = &'own dyn Fn(&str) -> Option<Arc<Who>>;

fn describe(module: &Module<'_>, arena: &Allocation, lines: Lines<'_>, patience: &Patience) -> Arena {
    let (pieces, exact) = inside::at_peak(module, arena, patience);
    let half_batch = inside::batch(module, &pieces).map(|(batch, bytes)| {
        let half = batch / 2;
        let less = u128::from(bytes) * u128::from(batch - half) / u128::from(batch);
        HalfBatch { batch: half, bytes: arena.bytes.saturating_sub(less as u64) }
    });
    let mut parts: HashMap<(String, String, Role), (u64, Buffers)> = HashMap::new();
    for piece in &pieces {
        let part = part(piece, lines);
        let key = (part.op.clone(), part.shape.clone(), part.role);
        parts
            .entry(key)
            .and_modify(|(largest, same)| {
                same.bytes = same.bytes.saturating_add(part.bytes);
                same.buffers += part.buffers;
                if part.bytes > *largest {
                    *largest = part.bytes;
                    same.instruction.clone_from(&part.instruction);
                }
            })
            .or_insert((part.bytes, part));
    }
    let mut parts: Vec<Buffers> = parts.into_values().map(|(_, part)| part).collect();
    parts.sort_unstable_by(|one, other| {
        (other.bytes, &one.op, &one.shape, one.role).cmp(&(one.bytes, &other.op, &other.shape, other.role))
    });
    let sum = |which: &dyn Fn(&Buffers) -> bool| {
        parts.iter().filter(|part| which(part)).fold(0_u64, |sum, part| sum.saturating_add(part.bytes))
    };
    let mut by_role: Vec<(Role, u64)> = Role::ALL
        .map(|role| (role, sum(&|part| part.role == role)))
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
    by_role.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let peak = sum(&|_| true);
    let (named, lined) = (sum(&|part| !part.op.is_empty()), sum(&|part| !part.python.is_empty()));
    let rest = parts.iter().skip(MOST_PARTS).fold(0_u64, |rest, part| rest.saturating_add(part.bytes));
    parts.truncate(MOST_PARTS);
    let (bytes, results) = inside::recomputed(module, arena);
    Arena {
        module: module.name.to_owned(),
        bytes: arena.bytes,
        requested: true,
        live: false,
        peak,
        exact,
        certain: true,
        total: module.total(),
        named,
        lined,
        parts,
        rest,
        roles: by_role,
        recomputed: Recomputed { results, bytes },
        half_batch,
    }
}

fn part(piece: &Piece<'_>, lines: Lines<'_>) -> Buffers {
    let python = lines(piece.op);
    let line = python.as_ref().and_then(|who| who.line());
    let of_jax = ["jit(", "pmap(", "pjit("].iter().any(|call| piece.op.starts_with(call));
    let role = match piece.sort {
        Sort::Scratch => Role::Workspaces,
        Sort::Variable => Role::Parameters,
        Sort::Input => Role::Inputs,
        Sort::Result if piece.op.is_empty() => Role::Other,
        // What a loop keeps of each of its turns until its gradient runs has the gradient's name.
        Sort::Result if piece.op.ends_with("/accumulator") => Role::Activations,
        // Derivatives are what JAX transposes; what it computes on the way to them is a Jacobian times a vector.
        Sort::Result if of_jax && piece.op.contains("transpose(") => Role::Gradients,
        Sort::Result if of_jax => Role::Activations,
        Sort::Result => {
            let op = OpName { name: piece.op.into(), region: "output".into(), shape: String::new(), dtype: 0 };
            let chain = python.as_ref().map(|who| who.python.clone()).unwrap_or_default();
            roles::by_name(&Who { op: op.into(), python: chain, stack: 0 }, Class::Block, 0).0
        }
    };
    let (file, number, function) = match (line, piece.source) {
        (Some(line), _) => (line.file.as_str(), i64::from(line.line), line.function.as_str()),
        (None, Some(source)) => (source.file, source.line, source.function),
        (None, None) => ("", 0, ""),
    };
    Buffers {
        python: if file.is_empty() { String::new() } else { format!("{file}:{number}") },
        function: function.to_owned(),
        op: piece.op.to_owned(),
        role,
        shape: piece.shape.words(),
        instruction: piece.instruction.to_owned(),
        bytes: piece.bytes,
        buffers: 1,
    }
}

#[cfg(test)]
mod tests;
