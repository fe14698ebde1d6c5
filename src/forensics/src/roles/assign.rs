//! Roles from what tensors are: their shapes and sizes, when they were made and whether they are still there. Names alone
//! call every result of an operation an activation; a variable that a program makes itself is one too, by its name.

use std::collections::{HashMap, HashSet};

use weir_journal::Class;
use weir_journal::reader::Line;

use super::{COPY, Role, Ruling, by_name, dimensions, is_assignment};
use crate::fault;
use crate::names::function;
use crate::survey::{BUCKETS, Owner, Piece, Survey};

/// Operations that make a tensor from nothing: variables, and batches of made-up data.
const MAKERS: [&str; 9] =
    ["Fill", "ZerosLike", "OnesLike", "Random", "TruncatedNormal", "_EagerConst", "Eye", "Range", "Multinomial"];
/// Operations that copy a tensor, or make one of the same shape.
const COPIES: [&str; 8] = [
    "zeroslike",
    "oneslike",
    "identity",
    "readvariableop",
    "deepcopy",
    "copy",
    "assignaddvariableop",
    "mirroredvariable",
];
/// The rule for a value that an operation got of a variable for itself: it goes with the step, unlike a copy that is kept.
const READ: &str = "a variable's value, read for this step";
/// The rule for derivatives that are results to another tape.
const RECORDED: &str = "a derivative that is kept, as another is computed of it";
/// Derivatives of one operation that are kept at once, from which on a tape records them.
const FEWEST_RECORDED: u64 = 4;
/// Turns after which what was made once and is still there is kept.
const KEPT: u32 = 2;

/// Whether an operation makes a tensor from nothing.
pub(crate) fn is_maker(op: &str) -> bool {
    let kind = op.rsplit('/').next().unwrap_or(op);
    MAKERS.iter().any(|maker| kind.starts_with(maker) || kind.starts_with("Stateless"))
}

/// Whether a node of a graph makes zeros or ones: its name is that of the function, not of the operation.
fn is_blank(op: &str) -> bool {
    let kind = op.rsplit('/').next().unwrap_or(op);
    (kind.starts_with("zeros") || kind.starts_with("ones")) && !op.contains("Initializer")
}

/// The same of a piece: by its operation, or because it is computed where random numbers are.
fn is_made(piece: &Piece) -> bool {
    let files = ["/random_ops.py", "/stateless_random_ops.py", "/init_ops.py", "/init_ops_v2.py"];
    let random = |line: &Line| files.iter().any(|file| line.file.ends_with(file));
    is_maker(&piece.op.name) || is_blank(&piece.op.name) || piece.python.lines.iter().any(random)
}

/// The shape of what was made from nothing on the same line, in the same size, for what does not report its own.
fn shape_of_maker<'a>(makers: &'a HashMap<(Place, u64), Vec<u64>>, piece: &Piece) -> Option<&'a Vec<u64>> {
    if !piece.op.shape.is_empty() || fault::is_off("roles::makers") {
        return None;
    }
    makers.get(&(place(piece)?, piece.size))
}

/// Whether an operation only reads a variable: its result is a copy of a weight, whatever its first side is.
fn is_read(op: &str) -> bool {
    op.rsplit('/').next().unwrap_or(op).starts_with("ReadVariableOp")
}

fn is_copy(op: &str) -> bool {
    let kind = op.rsplit('/').next().unwrap_or(op).to_ascii_lowercase().replace('_', "");
    COPIES.iter().any(|copy| kind.starts_with(copy))
}

/// What is known of all tensors of one device.
struct Tensors {
    /// The first side of most results: the batch.
    batch: Option<u64>,
    /// Shapes, else sizes, of derivatives that have no batch in them: those of variables.
    derived: HashSet<Key>,
    /// Shapes, else sizes, of new values of variables.
    assigned: HashSet<Key>,
    /// Shapes of one example, of what is brought in batch by batch.
    examples: HashSet<Vec<u64>>,
    /// Shapes of what was made from nothing, by the user's line and the size.
    makers: HashMap<(Place, u64), Vec<u64>>,
    /// Number of the first event of a result, a derivative or an update: what was made before was there from the start.
    computed: u64,
}

/// A line of the user's.
type Place = (String, u32);

fn place(piece: &Piece) -> Option<Place> {
    piece.python.line().map(|line| (line.file.clone(), line.line))
}

/// Shapes of random numbers and zeros, by the user's line and the size: `0.02 * tf.random.normal(shape)` is of that shape, though a
/// product by itself does not report it. Constants are data more often than weights.
fn makers(survey: &Survey, device: u8) -> HashMap<(Place, u64), Vec<u64>> {
    let owners = survey.owners.iter().filter(|owner| owner.device == device);
    let constant = |piece: &&Piece| ["_EagerConst", "Range"].iter().any(|kind| piece.op.name.ends_with(kind));
    let made = owners.flat_map(|owner| &owner.pieces).filter(|piece| is_maker(&piece.op.name) && !constant(piece));
    made.filter_map(|piece| Some(((place(piece)?, piece.size), piece.dimensions()?))).collect()
}

/// A shape, where it is known, else a size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Shape(Vec<u64>),
    Size(u64),
}

fn keys(piece: &Piece) -> impl Iterator<Item = Key> {
    let shape = piece.dimensions().filter(|sides| !sides.is_empty());
    shape.map(Key::Shape).into_iter().chain([Key::Size(piece.size)])
}

fn has(set: &HashSet<Key>, piece: &Piece) -> bool {
    match piece.dimensions().filter(|sides| !sides.is_empty()) {
        Some(sides) => set.contains(&Key::Shape(sides)),
        None => set.contains(&Key::Size(piece.size)),
    }
}

/// Pieces of a role on a device.
fn pieces(survey: &Survey, device: u8, role: Role) -> impl Iterator<Item = &Piece> {
    let owners = survey.owners.iter().filter(move |owner| owner.device == device && owner.ruling.0 == role);
    owners.flat_map(|owner| &owner.pieces)
}

/// The first side of most bytes of results and of their derivatives, as far as they have one: the examples in a batch.
pub(crate) fn batch_size(survey: &Survey, device: u8) -> Option<u64> {
    let mut by_side: HashMap<u64, u64> = HashMap::new();
    let first =
        |sides: Option<Vec<u64>>| sides.filter(|sides| sides.len() > 1).and_then(|sides| sides.first().copied());
    let result = |piece: &&Piece| !is_made(piece) && !is_read(&piece.op.name);
    for piece in pieces(survey, device, Role::Activations).filter(result) {
        if let Some(side) = first(piece.dimensions()) {
            *by_side.entry(side).or_default() += piece.size.saturating_mul(piece.made.max(piece.live));
        }
    }
    if let Some((who, bytes)) = &survey.refused
        && by_name(who, Class::Block, device).0 == Role::Activations
        && let Some(side) = first(dimensions(&who.op.shape))
    {
        *by_side.entry(side).or_default() += bytes;
    }
    // Derivatives of weights have other sides than results.
    for piece in pieces(survey, device, Role::Gradients) {
        if let Some(sum) = first(piece.dimensions()).and_then(|side| by_side.get_mut(&side)) {
            *sum += piece.size.saturating_mul(piece.made.max(piece.live));
        }
    }
    let side = by_side.into_iter().max_by_key(|(side, bytes)| (*bytes, *side)).map(|(side, _)| side)?;
    // Layers fold other sides into the first one: the batch is what comes in.
    let brought = pieces(survey, device, Role::Inputs).filter_map(|piece| first(piece.dimensions()));
    Some(brought.filter(|brought| *brought > 1 && side % brought == 0).max().unwrap_or(side))
}

impl Tensors {
    fn of(survey: &Survey, device: u8) -> Self {
        let batch = batch_size(survey, device);
        let without_batch = |piece: &&Piece| piece.dimensions().is_none_or(|sides| sides.first().copied() != batch);
        let mut derived: HashSet<Key> =
            pieces(survey, device, Role::Gradients).filter(without_batch).flat_map(keys).collect();
        let owners = survey.owners.iter().filter(|owner| owner.device == device);
        let assigned = owners.flat_map(|owner| &owner.pieces).filter(|piece| is_assignment(&piece.op));
        let assigned = assigned.flat_map(keys).collect();
        let slice = |piece: &&Piece| {
            let kind = piece.op.name.rsplit('/').next().unwrap_or_default();
            kind.starts_with("StridedSlice") || kind.starts_with("Slice")
        };
        let slices = pieces(survey, device, Role::Activations).filter(slice);
        let brought = pieces(survey, device, Role::Inputs).chain(slices).filter_map(Piece::dimensions);
        let examples = brought.filter(|sides| sides.len() > 1 && Some(sides[0]) == batch);
        let examples = examples.map(|sides| sides[1..].to_vec()).collect();
        // The refused request is one of them, and may be the first.
        let refused = survey.refused.iter().filter(|(who, _)| by_name(who, Class::Block, device).0 == Role::Gradients);
        let refused = refused.filter(|_| !fault::is_off("roles::refused_derivative"));
        for (who, bytes) in refused {
            let sides = dimensions(&who.op.shape).filter(|sides| !sides.is_empty());
            if sides.as_ref().is_none_or(|sides| sides.first().copied() != batch) {
                derived.extend(sides.map(Key::Shape).into_iter().chain([Key::Size(*bytes)]));
            }
        }
        let makers = makers(survey, device);
        let made = |piece: &Piece| is_made(piece) || shape_of_maker(&makers, piece).is_some();
        let results = pieces(survey, device, Role::Activations).filter(|piece| !made(piece));
        let computed = results.chain(pieces(survey, device, Role::Gradients)).map(|piece| piece.first).min();
        Self { batch, derived, assigned, examples, makers, computed: computed.unwrap_or(u64::MAX) }
    }

    /// Whether what names call a result is a variable.
    fn is_variable(&self, survey: &Survey, piece: &Piece) -> Option<&'static str> {
        if piece.live == 0 || piece.freed > 0 {
            return None;
        }
        let turns = survey.steps.turns;
        if is_read(&piece.op.name) && piece.live == 1 && piece.last_turn >= turns && !fault::is_off("roles::read") {
            return Some(READ);
        }
        let kept = piece.first_turn == piece.last_turn && piece.last_turn + KEPT <= turns;
        if kept && piece.made <= piece.live && !fault::is_off("roles::kept") {
            return Some("made once and kept over several steps");
        }
        let made = is_made(piece) || shape_of_maker(&self.makers, piece).is_some();
        let sides = self.shape(piece);
        let side = sides.as_ref().and_then(|sides| sides.first().copied());
        // The first results come after the variables: what was made before them, without a batch in it, is there to stay.
        let early = piece.last < self.computed && made;
        if early && has(&self.assigned, piece) && !fault::is_off("roles::assigned") {
            return Some("a variable of this shape gets new values");
        }
        if side.is_some() && side == self.batch {
            return None;
        }
        if made && has(&self.derived, piece) && !fault::is_off("roles::derived") {
            return Some("derivatives of this shape are computed");
        }
        let enough = sides.is_some_and(|sides| sides.len() > 1) && self.batch.is_some();
        (early && enough && !self.is_data(piece) && !fault::is_off("roles::early"))
            .then_some("made before the first result, without a batch in its shape")
    }

    /// Whether these are several batches of what is brought in batch by batch, made before the first result.
    fn is_data(&self, piece: &Piece) -> bool {
        let whole = |first: u64| self.batch.is_some_and(|batch| first > batch && first.is_multiple_of(batch));
        let like = |sides: &[u64]| {
            sides.split_first().is_some_and(|(first, rest)| whole(*first) && self.examples.contains(rest))
        };
        let there = !fault::is_off("roles::data")
            && piece.live > 0
            && piece.freed == 0
            && piece.last < self.computed
            && (is_made(piece) || shape_of_maker(&self.makers, piece).is_some());
        there
            && !has(&self.derived, piece)
            && !has(&self.assigned, piece)
            && self.shape(piece).is_some_and(|sides| like(&sides))
    }

    /// The shape, where it is known or known of what made it.
    fn shape(&self, piece: &Piece) -> Option<Vec<u64>> {
        let own = piece.dimensions().filter(|sides| !sides.is_empty());
        own.or_else(|| shape_of_maker(&self.makers, piece).cloned())
    }
}

/// Gives every owner its role.
pub(crate) fn assign(survey: &mut Survey) {
    let mut devices: Vec<u8> = survey.owners.iter().map(|owner| owner.device).collect();
    devices.sort_unstable();
    devices.dedup();
    for device in devices {
        let tensors = Tensors::of(survey, device);
        let changed: Vec<(usize, Ruling)> = survey
            .owners
            .iter()
            .enumerate()
            .filter(|(_, owner)| owner.device == device && owner.ruling.0 == Role::Activations)
            .filter_map(|(place, owner)| Some((place, variable(survey, &tensors, owner)?)))
            .collect();
        for (place, ruling) in changed {
            survey.owners[place].ruling = ruling;
        }
        recorded(survey, device, tensors.batch);
        copies(survey, device, tensors.computed);
    }
}

/// The role of an owner whose live bytes are mostly variables.
fn variable(survey: &Survey, tensors: &Tensors, owner: &Owner) -> Option<Ruling> {
    let mut rules: Vec<(u64, &'static str)> = Vec::new();
    for piece in &owner.pieces {
        rules.extend(tensors.is_variable(survey, piece).map(|rule| (piece.bytes(), rule)));
    }
    let bytes: u64 = rules.iter().map(|(bytes, _)| bytes).sum();
    if bytes > 0 && bytes * 2 > owner.bytes {
        return rules.first().map(|(_, rule)| (Role::Parameters, *rule));
    }
    let data: u64 = owner.pieces.iter().filter(|piece| tensors.is_data(piece)).map(Piece::bytes).sum();
    if data > 0 && data * 2 > owner.bytes {
        return Some((Role::Inputs, "made before the first result, of examples like those of a batch"));
    }
    // Without pieces: what is never freed and older than many steps is kept by the model, whatever made it.
    let many = survey.steps.seen >= 4 && survey.steps.ticks > 0;
    let constant = owner.frees == 0 && owner.blocks > 0 && owner.ends[BUCKETS / 4] == owner.bytes as i64;
    (many && constant && owner.bytes > 0).then_some((Role::Parameters, "made before the steps began and never freed"))
}

/// Derivatives of results that stay, as another tape records them: of them derivatives are computed in turn, as of any result.
/// Those that nobody records go as soon as the next one is computed.
fn recorded(survey: &mut Survey, device: u8, batch: Option<u64>) {
    let Some(batch) = batch.filter(|_| !fault::is_off("roles::recorded")) else { return };
    let stays = |piece: &&Piece| {
        let in_a_turn = piece.made.div_ceil(u64::from(piece.last_turn - piece.first_turn) + 1);
        let of_batch = piece.dimensions().is_some_and(|sides| sides.len() > 1 && sides.first() == Some(&batch));
        of_batch && piece.live >= FEWEST_RECORDED && piece.live * 2 >= in_a_turn
    };
    let derived = |owner: &Owner| owner.device == device && owner.ruling.0 == Role::Gradients;
    // A program may keep one derivative for itself. A tape keeps those of several operations.
    let owners = survey.owners.iter().filter(|owner| derived(owner));
    if owners.flat_map(|owner| &owner.pieces).filter(stays).count() < 2 {
        return;
    }
    for owner in survey.owners.iter_mut().filter(|owner| derived(owner)) {
        let bytes: u64 = owner.pieces.iter().filter(stays).map(Piece::bytes).sum();
        if bytes * 2 > owner.bytes {
            owner.ruling = (Role::Activations, RECORDED);
        }
    }
}

/// What is copied from variables, or made in their shape, and kept beside them: sums of gradients, moving averages.
fn copies(survey: &mut Survey, device: u8, computed: u64) {
    let by_size: HashMap<u64, u64> = pieces(survey, device, Role::Parameters)
        .filter(|piece| piece.live > 0 && !is_copy(&piece.op.name))
        .fold(HashMap::new(), |mut sizes, piece| {
            let first = sizes.entry(piece.size).or_insert(piece.first);
            *first = (*first).min(piece.first);
            sizes
        });
    let beside = if fault::is_off("roles::beside_weights") { HashSet::new() } else { beside_weights(survey, device) };
    let beyond = if fault::is_off("roles::beyond_derivatives") {
        HashSet::new()
    } else {
        beyond_derivatives(survey, device, computed)
    };
    let in_model = |owner: &Owner| owner.who.python.lines.iter().any(|line| function(line) == "add_weight");
    for (place, owner) in survey.owners.iter_mut().enumerate() {
        let own = owner.device == device && owner.class != Class::Overhead && owner.ruling.0 == Role::Parameters;
        if !own || in_model(owner) || owner.ruling.1 == READ {
            continue;
        }
        // Zeros that a graph makes while it runs are new values for sums.
        let sums = |piece: &Piece| is_blank(&piece.op.name) && piece.first > computed;
        let copy = is_copy(&owner.who.op.name) && !fault::is_off("roles::copies");
        let copied = |piece: &&Piece| {
            (copy || sums(piece)) && by_size.get(&piece.size).is_some_and(|first| *first < piece.first)
        };
        let bytes: u64 = owner.pieces.iter().filter(copied).map(Piece::bytes).sum();
        if (bytes > 0 && bytes * 2 > owner.bytes) || beyond.contains(&place) || beside.contains(&place) {
            owner.ruling = (Role::Optimizer, COPY);
        }
    }
}

/// Owners that are mostly zeros in the shape of weights that are no zeros and were made before them.
fn beside_weights(survey: &Survey, device: u8) -> HashSet<usize> {
    let zeros = |piece: &Piece| is_blank(&piece.op.name) || piece.op.name.rsplit('/').next() == Some("Fill");
    let matrix = |piece: &&Piece| piece.live > 0 && piece.dimensions().is_none_or(|sides| sides.len() != 1);
    let weights = pieces(survey, device, Role::Parameters).filter(|piece| piece.live > 0 && !zeros(piece));
    let first = weights.filter(matrix).fold(HashMap::new(), |mut sizes: HashMap<u64, u64>, piece| {
        sizes.entry(piece.size).and_modify(|first| *first = piece.first.min(*first)).or_insert(piece.first);
        sizes
    });
    let beside = |piece: &&Piece| {
        zeros(piece) && matrix(piece) && first.get(&piece.size).is_some_and(|first| *first < piece.first)
    };
    let owners = survey.owners.iter().enumerate();
    let owners = owners.filter(|(_, owner)| owner.device == device && owner.ruling.0 == Role::Parameters);
    let mostly = |owner: &Owner| owner.pieces.iter().filter(beside).map(Piece::bytes).sum::<u64>() * 2 > owner.bytes;
    owners.filter(|(_, owner)| mostly(owner)).map(|(place, _)| place).collect()
}

/// Owners of zeros in the shape of weights, made before the first result, where more is made of these shapes than derivatives
/// are computed of them in a turn: the later ones are sums beside weights.
fn beyond_derivatives(survey: &Survey, device: u8, computed: u64) -> HashSet<usize> {
    let mut derived: HashMap<Vec<u64>, u64> = HashMap::new();
    for piece in pieces(survey, device, Role::Gradients).filter(|piece| piece.first_turn < survey.steps.turns) {
        let turns = u64::from(piece.last_turn - piece.first_turn) + 1;
        if let Some(sides) = piece.dimensions().filter(|sides| sides.len() > 1) {
            *derived.entry(sides).or_default() += piece.made.div_ceil(turns);
        }
    }
    let zeros = |piece: &Piece| is_blank(&piece.op.name) || piece.op.name.rsplit('/').next() == Some("Fill");
    let mut rows: Vec<(u64, usize, Vec<u64>, u64)> = Vec::new();
    for (place, owner) in survey.owners.iter().enumerate() {
        let weights = owner.device == device && owner.ruling.0 == Role::Parameters;
        for piece in owner.pieces.iter().filter(|piece| weights && piece.live > 0 && piece.last < computed) {
            if let Some(sides) = piece.dimensions().filter(|sides| zeros(piece) && derived.contains_key(sides)) {
                rows.push((piece.first, place, sides, piece.live));
            }
        }
    }
    rows.sort_unstable();
    // A line counts where each shape of it is beyond: half a layer is no sum.
    let (mut beyond, mut within) = (HashSet::new(), HashSet::new());
    for (_, place, sides, live) in rows {
        let left = derived.entry(sides).or_default();
        if *left >= live {
            within.insert(place)
        } else {
            beyond.insert(place)
        };
        *left = left.saturating_sub(live);
    }
    beyond.retain(|place| !within.contains(place));
    beyond
}
