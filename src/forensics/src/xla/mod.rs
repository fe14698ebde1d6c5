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

use weir_journal::reader::{OpName, open_file};
use weir_journal::{Attribution, Class, XLA_MODULE, node_of, xla_folder};

use crate::Run;
use crate::names::{Who, base_name};
use crate::roles::{self, Role};
use crate::survey::Survey;
use inside::{Piece, Sort};
use module::Module;

/// Files that are read at most, the largest of them, and all together.
const MOST_FILES: usize = 512;
const LARGEST_FILE: u64 = 512 << 20;
const MOST_BYTES: u64 = 2 << 30;
/// Sizes that are looked for at most.
const MOST_WANTED: usize = 64;
/// Arenas in a report at most.
const MOST_ARENAS: usize = 3;
/// Parts of an arena at most.
const MOST_PARTS: usize = 50;
/// What an allocator may add to a request.
const ROUNDING: u64 = 4096;

/// An arena of compiled code, and what is in it when most of it is live.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Arena {
    /// XLA's name of the module.
    pub module: String,
    /// Bytes requested.
    pub bytes: u64,
    /// Whether it was live at the moment, or refused; else it was so before.
    pub live: bool,
    /// Bytes live at its peak; the rest lies between buffers.
    pub peak: u64,
    /// Whether the peak is XLA's own; else it is a lower bound, of buffers that do not overlap.
    pub exact: bool,
    /// Whether no other module has an arena of this size.
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
    /// Bytes of all.
    pub bytes: u64,
    /// How many.
    pub buffers: u64,
}

impl Arena {
    /// `one_step_on_data` of `a_inference_one_step_on_data_9052__.84`.
    pub fn function(&self) -> &str {
        let name = self.module.trim_start_matches("a_inference_").trim_start_matches("__inference_");
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let name = name.rsplit_once('.').filter(|(_, end)| number(end)).map_or(name, |(start, _)| start);
        let name = name.trim_end_matches('_');
        name.rsplit_once('_').filter(|(start, end)| number(end) && !start.is_empty()).map_or(name, |(start, _)| start)
    }
}

impl Buffers {
    /// `conv2_block3/Conv2D activations (model.py:21)`.
    pub fn words(&self) -> String {
        let op = if self.op.is_empty() { "unknown" } else { crate::names::short_op(&self.op) };
        let place = base_name(&self.python);
        let place = if place.is_empty() { String::new() } else { format!(" ({place})") };
        format!("{op} {}{place}", self.role.word())
    }
}

/// The arenas of a moment: that of the refused request (`refused`: its bytes), what is live, else the largest that there were.
pub fn arenas(run: &Run, survey: &Survey, device: u8, refused: Option<u64>) -> Vec<Arena> {
    let owners = survey.owners.iter().filter(|owner| owner.device == device && roles::is_compiled(&owner.who));
    let mut wanted: Vec<(bool, u64)> =
        owners.flat_map(|owner| &owner.pieces).map(|piece| (piece.live > 0, piece.size)).collect();
    wanted.sort_unstable_by(|one, other| other.cmp(one));
    let mut wanted: Vec<(bool, u64)> = refused.map(|bytes| (true, bytes)).into_iter().chain(wanted).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    // Small ones are scalars that a step gives back: no arena of theirs is worth a word.
    wanted.retain(|(_, bytes)| *bytes >= ROUNDING);
    let mut seen = HashSet::new();
    wanted.retain(|(_, bytes)| seen.insert(*bytes));
    wanted.truncate(MOST_WANTED);
    let mut arenas = of_sizes(run, &wanted);
    arenas.truncate(MOST_ARENAS);
    arenas
}

/// What XLA left of a run, for exports: the arenas of its requests, and the modules themselves.
#[derive(Debug)]
pub struct Compiled {
    arenas: Vec<Arena>,
    folder: PathBuf,
}

impl Compiled {
    /// Of a run; nothing where XLA left nothing.
    pub fn of(run: &Run) -> Result<Option<Self>, crate::Error> {
        let folder = xla_folder(run.path());
        if !folder.is_dir() {
            return Ok(None);
        }
        let survey = Survey::of(run, None, |_, _| {})?;
        let owners = survey.owners.iter().filter(|owner| roles::is_compiled(&owner.who));
        let sizes: HashSet<u64> = owners.flat_map(|owner| &owner.pieces).map(|piece| piece.size).collect();
        let mut wanted: Vec<(bool, u64)> =
            sizes.into_iter().filter(|bytes| *bytes >= ROUNDING).map(|bytes| (false, bytes)).collect();
        wanted.sort_unstable_by(|one, other| other.cmp(one));
        wanted.truncate(MOST_WANTED);
        Ok(Some(Self { arenas: of_sizes(run, &wanted), folder }))
    }

    /// The arena that was requested with so many bytes, where only one can be meant.
    pub fn arena(&self, requested: u64) -> Option<&Arena> {
        let near = |arena: &&Arena| arena.bytes <= requested && requested - arena.bytes < ROUNDING;
        self.arenas.iter().filter(near).max_by_key(|arena| arena.bytes).filter(|arena| arena.certain)
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

/// The arenas of these sizes, each with whether it is live, in their order.
fn of_sizes(run: &Run, wanted: &[(bool, u64)]) -> Vec<Arena> {
    let nodes: HashMap<String, u32> = run.reader().nodes().unwrap_or_default().into_iter().collect();
    let lines = |op: &str| {
        let python = node_of(op.as_bytes(), |name| {
            core::str::from_utf8(name).ok().and_then(|name| nodes.get(name)).copied().unwrap_or(0)
        });
        (python != 0).then(|| run.who(Attribution { stack: 0, op: 0, python }))
    };
    let mut found: Vec<Option<Arena>> = vec![None; wanted.len()];
    each_file(&xla_folder(run.path()), |file| {
        let Ok(module) = Module::of(file) else { return };
        for allocation in module.allocations.iter().filter(|allocation| allocation.is_arena()) {
            for ((live, bytes), found) in wanted.iter().zip(&mut found) {
                if allocation.bytes > *bytes || bytes - allocation.bytes >= ROUNDING {
                    continue;
                }
                match found {
                    // What is nearer in size is it; of two that are as near, nobody knows.
                    Some(other) if other.bytes >= allocation.bytes => other.certain = false,
                    _ => {
                        let certain = found.is_none();
                        *found = Some(Arena { live: *live, certain, ..describe(&module, allocation, &lines) });
                    }
                }
            }
        }
    });
    let mut arenas: Vec<Arena> = Vec::new();
    for arena in found.into_iter().flatten() {
        let known = arenas.iter().any(|other| other.module == arena.module && other.bytes == arena.bytes);
        arenas.extend(Some(arena).filter(|_| !known));
    }
    arenas
}

/// The arena of one file, as if its memory had been requested: for tests and for looking at a folder alone.
pub fn arena_of(file: &[u8]) -> Option<Arena> {
    let module = Module::of(file).ok()?;
    let largest = module.allocations.iter().filter(|allocation| allocation.is_arena()).max_by_key(|it| it.bytes)?;
    Some(describe(&module, largest, &|_| None))
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

type Lines<'own> = &'own dyn Fn(&str) -> Option<std::sync::Arc<Who>>;

fn describe(module: &Module<'_>, arena: &module::Allocation, lines: Lines<'_>) -> Arena {
    let (pieces, exact) = inside::at_peak(module, arena);
    let mut parts: HashMap<(String, String, Role), Buffers> = HashMap::new();
    for piece in pieces {
        let part = part(piece, lines);
        let key = (part.op.clone(), part.shape.clone(), part.role);
        parts
            .entry(key)
            .and_modify(|same| {
                same.bytes = same.bytes.saturating_add(part.bytes);
                same.buffers += part.buffers;
            })
            .or_insert(part);
    }
    let mut parts: Vec<Buffers> = parts.into_values().collect();
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
    Arena {
        module: module.name.to_owned(),
        bytes: arena.bytes,
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
    }
}

fn part(piece: Piece, lines: Lines<'_>) -> Buffers {
    let python = lines(&piece.op);
    let line = python.as_ref().and_then(|who| who.line());
    let role = match piece.sort {
        Sort::Scratch => Role::Workspaces,
        Sort::Variable => Role::Parameters,
        Sort::Input => Role::Inputs,
        Sort::Result if piece.op.is_empty() => Role::Other,
        // What a loop keeps of each of its turns until its gradient runs has the gradient's name.
        Sort::Result if piece.op.ends_with("/accumulator") => Role::Activations,
        Sort::Result => {
            let op = OpName { name: piece.op.clone(), region: "output".into(), shape: String::new(), dtype: 0 };
            let chain = python.as_ref().map(|who| who.python.clone()).unwrap_or_default();
            roles::by_name(&Who { op: op.into(), python: chain, stack: 0 }, Class::Block, 0).0
        }
    };
    Buffers {
        python: line.map(|line| format!("{}:{}", line.file, line.line)).unwrap_or_default(),
        function: line.map(|line| line.function.clone()).unwrap_or_default(),
        op: piece.op,
        role,
        shape: piece.shape,
        bytes: piece.bytes,
        buffers: 1,
    }
}

#[cfg(test)]
mod tests;
