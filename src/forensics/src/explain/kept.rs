//! Explanations by what is kept: weights, optimizer state, data, models of earlier rounds.

use std::collections::{BTreeMap, HashMap};

use super::{Explanation, Of, Scene, compare, place};
use crate::fault;
use crate::names::function;
use crate::roles::{self, Role};
use crate::survey::Piece;
use crate::words::{count, several, size};

/// Models that a search has at a time.
const THREE: u64 = 3;
/// Examples from which on what comes before any step is called a set of data.
const FEWEST_ROWS: u64 = 64;
/// Batches that wait on the device, from which on they are called prefetched.
const BATCHES: u64 = 4;

pub(super) fn makes_weights(piece: &Piece) -> bool {
    let functions = ["add_weight", "add_variable", "_initialize_with_initializer", "_deferred_initialize"];
    piece.python.lines.iter().any(|line| functions.contains(&function(line)))
}

/// One weight that is most of what there may be.
pub(super) fn large_layer(scene: &Scene<'_>) -> Option<Explanation> {
    let refused = scene.refused.as_ref().filter(|refused| refused.role == Role::Parameters)?;
    if refused.bytes * 2 < scene.facts.limit() {
        return None;
    }
    let shape = refused.dimensions().map(|_| format!(" {}", refused.who.op.shape)).unwrap_or_default();
    let text = format!("one weight{shape} of {}", size(refused.bytes));
    Some(Explanation::new(Of::LargeLayer, refused.bytes, text).at(refused.who.place()))
}

/// A set of data as one tensor: refused, or live from the start.
pub(super) fn data(scene: &Scene<'_>) -> Option<Explanation> {
    let unsure = |dtype: u32| match dtype {
        2 => " in float64: as float32 it is half as large",
        0 => " (numpy makes float64 by default: float32 is half as large)",
        _ => "",
    };
    if let Some(refused) = &scene.refused
        && refused.bytes * 2 >= scene.facts.limit()
        && (refused.role == Role::Inputs
            || (refused.role == Role::Activations && roles::is_maker(&refused.who.op.name)))
    {
        let text = format!(
            "one tensor of {}, made or brought here as a whole{}",
            size(refused.bytes),
            unsure(refused.who.op.dtype)
        );
        return Some(Explanation::new(Of::Data, refused.bytes, text).at(refused.who.place()));
    }
    // Before any weight, derivative or step there is no batch: what came is all of the data, and what is computed is of all.
    let steps = scene.survey.steps;
    let begun = steps.seen > 0 || steps.turns > 0;
    let model = scene.bytes_of(Role::Parameters) + scene.bytes_of(Role::Gradients);
    // A few examples are a batch as programs choose one.
    let few = |piece: &&Piece| piece.dimensions().is_some_and(|sides| sides.len() > 1 && sides[0] < FEWEST_ROWS);
    let brought = scene.live(Role::Inputs).map(|(_, piece)| piece).max_by_key(|piece| piece.bytes());
    let brought = brought.filter(|piece| !few(piece));
    // However large a result is that is computed of each example: pictures that are resized, words as one-hot vectors. What
    // combines two inputs may be a batch of one with all of the other.
    let of_each = |piece: &Piece| {
        let rows = |sides: Option<Vec<u64>>| sides.and_then(|sides| sides.first().copied()).filter(|rows| *rows > 1);
        let refused = scene.refused.as_ref().filter(|refused| !compare::combines(refused));
        let result = refused.and_then(|refused| rows(refused.dimensions()));
        result.is_some() && rows(piece.dimensions()) == result
    };
    let whole = |piece: &&Piece| piece.bytes() * 16 >= scene.all() || of_each(piece);
    if let Some(brought) = brought.filter(|_| !begun && model == 0).filter(whole) {
        let text =
            format!("all of the data at once, {} on the device, and what is computed of it", size(brought.bytes()));
        return Some(Explanation::new(Of::Data, scene.all(), text).at(place(brought)));
    }
    let stays = |piece: &Piece| piece.freed == 0 && piece.live < BATCHES;
    let kept: Vec<&Piece> = scene.live(Role::Inputs).map(|(_, piece)| piece).filter(|piece| stays(piece)).collect();
    let bytes: u64 = kept.iter().map(|piece| piece.bytes()).sum();
    let largest = kept.iter().max_by_key(|piece| piece.bytes())?;
    if bytes * 4 < scene.all() {
        return None;
    }
    let text = format!("data that stays on the device, {}{}", size(bytes), unsure(largest.op.dtype));
    Some(Explanation::new(Of::Data, bytes, text).at(place(largest)))
}

/// Many batches of one size that wait on the device.
pub(super) fn prefetched(scene: &Scene<'_>) -> Option<Explanation> {
    let (_, piece) = scene.live(Role::Inputs).max_by_key(|(_, piece)| piece.bytes())?;
    // What the program's own line brings in is no iterator's: it is kept by the program, or by a tape.
    let own = piece.op.name.contains("EagerConst") && !fault::is_off("kept::of_an_iterator");
    if own || piece.live < BATCHES || piece.bytes() * 4 < scene.all() {
        return None;
    }
    let text = format!(
        "{} of {} each wait on the device for their turn: {}",
        several(piece.live, "batch").replace("batchs", "batches"),
        size(piece.size),
        size(piece.bytes())
    );
    Some(Explanation::new(Of::PrefetchedBatches, piece.bytes(), text).at(place(piece)))
}

/// Turns of a loop from which on a tape that is open for all of them is told.
const TURNS: u64 = 16;

/// What a loop computes of one example after the other while one tape is open: all of it is kept until derivatives are computed.
pub(super) fn turns_of_a_loop(scene: &Scene<'_>) -> Option<Explanation> {
    // Where there is a batch, a smaller one is the smaller change.
    if scene.batch.is_some_and(|batch| batch > 1) {
        return None;
    }
    // A graph's loops keep lists, under one name.
    let by_itself = |piece: &&Piece| !piece.op.name.contains('/') && piece.live >= TURNS;
    let results = scene.live(Role::Activations).map(|(_, piece)| piece).filter(by_itself);
    let (most, turns) = results.map(|piece| (piece, piece.live)).max_by_key(|(piece, _)| piece.bytes())?;
    let each =
        |piece: &Piece| piece.live >= turns / 4 && !piece.op.name.contains('/') && piece.first_turn == piece.last_turn;
    let roles = [Role::Activations, Role::Inputs, Role::Gradients];
    let kept = roles.into_iter().flat_map(|role| scene.live(role)).filter(|(_, piece)| each(piece));
    let bytes: u64 = kept.map(|(_, piece)| piece.bytes()).sum();
    if !scene.trains() || !each(most) || bytes * 5 < scene.all() * 2 {
        return None;
    }
    let text = format!(
        "what {} turns of a loop compute ({}), kept for one backward pass: {}",
        count(turns),
        place(most),
        size(bytes)
    );
    Some(Explanation { times: turns, ..Explanation::new(Of::TurnsOfALoop, bytes, text).at(place(most)) })
}

/// The callers of a piece, all of the user's lines.
fn callers(piece: &Piece) -> Vec<(String, u32)> {
    let own = piece.python.lines.iter().filter(|line| crate::names::is_users(&line.file));
    own.map(|line| (line.file.clone(), line.line)).collect()
}

/// The callers of weights, and their bytes.
type Model<'a> = (&'a Vec<(String, u32)>, u64);

/// The same weights from the same line, which was called from two places.
pub(super) fn second_model(scene: &Scene<'_>) -> Option<Explanation> {
    let weights: Vec<&Piece> =
        scene.live(Role::Parameters).map(|(_, piece)| piece).filter(|piece| makes_weights(piece)).collect();
    let mut models: BTreeMap<Vec<(String, u32)>, u64> = BTreeMap::new();
    for piece in &weights {
        *models.entry(callers(piece)).or_default() += piece.bytes();
    }
    let mut lines: HashMap<Option<&(String, u32)>, u32> = HashMap::new();
    for callers in models.keys() {
        *lines.entry(callers.first()).or_default() += 1;
    }
    let (mut first, mut second): (Option<Model<'_>>, Option<Model<'_>>) = (None, None);
    for (callers, bytes) in &models {
        // Another caller of the same line.
        let twin = lines.get(&callers.first()).is_some_and(|callers| *callers > 1);
        if callers.len() > 1 && twin {
            let larger = first.is_none_or(|(_, most)| *bytes > most);
            if larger {
                (second, first) = (first, Some((callers, *bytes)));
            } else if second.is_none_or(|(_, most)| *bytes > most) {
                second = Some((callers, *bytes));
            }
        }
    }
    let ((callers, one), (others, other)) = (first?, second?);
    if callers.first() != others.first() || (one + other) * 2 < scene.all() || other * 3 < one {
        return None;
    }
    let line = |(file, line): &(String, u32)| format!("{}:{line}", crate::names::base_name(file));
    let (made, here, there) = (line(callers.first()?), line(callers.get(1)?), line(others.get(1)?));
    let text =
        format!("the weights of {made} twice, {} together: called from {here} and from {there}", size(one + other));
    Some(Explanation::new(Of::SecondModel, one + other, text).at(made))
}

/// Rounds of training in each of which one line made weights of the same shape; fewer than two: none. A model may have several
/// weights of one shape: the rarest of its large ones counts.
pub(super) fn rounds(scene: &Scene<'_>) -> u64 {
    let again = |piece: &&Piece| piece.freed == 0 && piece.last_turn > piece.first_turn + 1;
    let again: Vec<&Piece> = scene.live(Role::Parameters).map(|(_, piece)| piece).filter(again).collect();
    let most = again.iter().map(|piece| piece.bytes()).max().unwrap_or(0);
    again.iter().filter(|piece| piece.bytes() * 16 >= most).map(|piece| piece.live).min().unwrap_or(0)
}

/// Weights that one line made in several turns, all still there.
pub(super) fn earlier_models(scene: &Scene<'_>) -> Option<Explanation> {
    let mut by_line: BTreeMap<String, (u64, u32, u32, u64)> = BTreeMap::new();
    for (_, piece) in scene.live(Role::Parameters).filter(|(_, piece)| piece.freed == 0) {
        let (bytes, first, last, blocks) = by_line.entry(place(piece)).or_insert((0, u32::MAX, 0, 0));
        *bytes += piece.bytes();
        (*first, *last) = ((*first).min(piece.first_turn), (*last).max(piece.last_turn));
        *blocks += piece.live;
    }
    let bytes: u64 = by_line.values().map(|(bytes, ..)| bytes).sum();
    let (line, (_, first, last, blocks)) = by_line.into_iter().max_by_key(|(_, (bytes, ..))| *bytes)?;
    // What an optimizer keeps for them stays with them. The best one, the last one and the next one are not kept.
    let state = if rounds(scene) > THREE { slots(scene) } else { 0 };
    if last <= first + 1 || (bytes + state) * 2 < scene.all() || line.is_empty() || blocks < 2 {
        return None;
    }
    let beside = if state > 0 { format!(" and {} of optimizer state", size(state)) } else { String::new() };
    let text = format!(
        "{} of {line} from models of several rounds, {} of weights{beside} in all",
        several(blocks, "weight"),
        size(bytes)
    );
    Some(Explanation::new(Of::EarlierModels, bytes + state, text).at(line))
}

/// Bytes that an optimizer keeps, without what it computes while it applies gradients.
pub(super) fn slots(scene: &Scene<'_>) -> u64 {
    let kept = |piece: &Piece| {
        let op = piece.op.name.as_str();
        op.contains("Initializer") || roles::is_assignment(&piece.op) || !op.contains('/')
    };
    let own = scene.live(Role::Optimizer).filter(|(owner, _)| owner.ruling.1 != roles::COPY);
    own.filter(|(_, piece)| kept(piece)).map(|(_, piece)| piece.bytes()).sum()
}

/// Optimizers by the file that they are in, and how often they keep something of a weight's size.
const OPTIMIZERS: [(&str, u64); 10] = [
    ("adam", 2),
    ("adamw", 2),
    ("nadam", 2),
    ("adamax", 2),
    ("lamb", 2),
    ("adadelta", 2),
    ("ftrl", 2),
    ("rmsprop", 1),
    ("adagrad", 1),
    ("lion", 1),
];

/// What the optimizer that the program has made will keep for each weight, by the file that it is in; 0 if none is known.
pub(super) fn slots_of_optimizer(scene: &Scene<'_>) -> u64 {
    let slots = |file: &str| {
        let (folder, name) = file.rsplit_once('/')?;
        let known = OPTIMIZERS.iter().find(|(optimizer, _)| name.strip_suffix(".py") == Some(*optimizer));
        folder.ends_with("/optimizers").then_some(known?.1)
    };
    let pieces = scene.survey.owners.iter().flat_map(|owner| &owner.pieces);
    pieces.flat_map(|piece| &piece.python.lines).filter_map(|line| slots(&line.file)).max().unwrap_or(0)
}

/// What an optimizer keeps for every weight.
pub(super) fn optimizer_state(scene: &Scene<'_>) -> Option<Explanation> {
    let (slots, weights) = (slots(scene), scene.bytes_of(Role::Parameters));
    let model = weights + scene.bytes_of(Role::Gradients) + scene.wanted(Role::Optimizer);
    if slots * 8 < scene.all() || slots * 2 < weights || model * 2 < scene.all() {
        return None;
    }
    let devices = replicas(scene).map(|devices| format!(", on each of {devices} GPUs")).unwrap_or_default();
    let text = format!(
        "what the optimizer keeps for every weight, {} beside {} of weights{devices}; more comes while it first applies gradients",
        size(slots),
        size(weights)
    );
    Some(Explanation::new(Of::OptimizerState, slots, text))
}

/// GPUs that hold the same weights.
fn replicas(scene: &Scene<'_>) -> Option<u64> {
    let own = scene.bytes_of(Role::Parameters);
    let of = |device: u8| -> u64 {
        let owners =
            scene.survey.owners.iter().filter(|owner| owner.device == device && owner.ruling.0 == Role::Parameters);
        owners.map(|owner| owner.bytes).sum()
    };
    let same =
        scene.survey.courses.iter().filter(|course| own > 0 && of(course.device).abs_diff(own) * 20 < own).count();
    (same > 1).then_some(same as u64)
}

/// Bytes of weights, of their gradients and of what else is of their size, the refused request included.
pub(super) fn weights_of(scene: &Scene<'_>) -> u64 {
    scene.wanted(Role::Parameters) + scene.wanted(Role::Gradients) + scene.wanted(Role::Optimizer)
}

/// Weights, their gradients and what else is of their size, with the largest weight.
pub(super) fn model(scene: &Scene<'_>) -> Option<Explanation> {
    let (weights, gradients, state) =
        (scene.bytes_of(Role::Parameters), scene.bytes_of(Role::Gradients), scene.bytes_of(Role::Optimizer));
    let mut parts = vec![format!("{} of weights", size(weights))];
    parts.extend((gradients > 0).then(|| format!("{} of their gradients", size(gradients))));
    parts.extend((state > 0).then(|| format!("{} of copies beside them", size(state))));
    let live = weights + gradients + state;
    let refused = super::with_refused("and", weights_of(scene) - live);
    let (_, largest) = scene.live(Role::Parameters).max_by_key(|(_, piece)| piece.size)?;
    let shape = if largest.op.shape.is_empty() { String::new() } else { format!(" {}", largest.op.shape) };
    let devices = replicas(scene).map(|devices| format!(", on each of {} GPUs", count(devices))).unwrap_or_default();
    let text = format!("{}{refused}{devices}; the largest weight{shape} has {}", parts.join(", "), size(largest.size));
    Some(Explanation::new(Of::Parameters, weights_of(scene), text).at(place(largest)))
}
