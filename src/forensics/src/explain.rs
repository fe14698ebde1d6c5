//! What a device is full of, against what it should be: one batch larger than the others, optimizer state, data that
//! stays, weights that are there twice, activations and the layer that has most of them. Pure: a survey in, words out.

mod compare;
mod kept;

use std::collections::{BTreeMap, HashSet};

use weir_journal::Class;

use crate::fault;
use crate::holders;
use crate::names::{Who, base_name, function};
use crate::roles::{self, Role};
use crate::survey::{Owner, Piece, Survey};
use crate::verdict::Facts;
use crate::words::{count, size};

/// What a device is full of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// What an optimizer keeps for every weight.
    OptimizerState,
    /// A batch with a side far longer than in the batches before it.
    LongBatch,
    /// A batch of far more examples than those before it.
    LargeBatch,
    /// Batches that wait on the device for their turn.
    PrefetchedBatches,
    /// What a loop computes while one tape is open.
    TurnsOfALoop,
    /// A set of data as one tensor.
    Data,
    /// Models of earlier rounds.
    EarlierModels,
    /// The same weights, made at two places of the program.
    SecondModel,
    /// A result that is as large as two inputs multiplied.
    Broadcast,
    /// A result for every pair of rows.
    Pairs,
    /// One number for every pair of rows, brought as data.
    Matrix,
    /// Derivatives of many results at once.
    Jacobian,
    /// A derivative of a whole table, of which a step reads few rows.
    WholeTable,
    /// One weight.
    LargeLayer,
    /// Weights and their gradients.
    Parameters,
    /// Results of the forward pass.
    Activations,
}

/// An explanation: what a device is full of, how much of it, and the same in words.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Explanation {
    /// What.
    pub of: Of,
    /// Bytes of it, the refused request included where it is one.
    pub bytes: u64,
    /// In words.
    pub text: String,
    /// The line that makes it, `train.py:118`; empty is unknown.
    pub place: String,
    /// In how many parts a batch would be like those before it, or how many turns a loop has; 1 where neither is meant.
    pub times: u64,
    /// Whether it happens outside of training: evaluation, prediction.
    pub evaluating: bool,
}

impl Explanation {
    fn new(of: Of, bytes: u64, text: String) -> Self {
        Self { of, bytes, text, place: String::new(), times: 1, evaluating: false }
    }

    fn at(self, place: String) -> Self {
        Self { place, ..self }
    }
}

/// The refused request, as far as it is known.
#[derive(Clone, Debug)]
pub(crate) struct Refused<'a> {
    pub(crate) who: &'a Who,
    pub(crate) bytes: u64,
    pub(crate) role: Role,
}

impl Refused<'_> {
    fn dimensions(&self) -> Option<Vec<u64>> {
        roles::dimensions(&self.who.op.shape).filter(|sides| !sides.is_empty())
    }

    /// The operation's kind: `MatMul` of `model/dense/MatMul_1`.
    fn kind(&self) -> &str {
        kind_of(self.who.op_name())
    }

    fn calls(&self, functions: &[&str]) -> bool {
        self.who.python.lines.iter().any(|line| functions.contains(&function(line)))
    }
}

fn kind_of(op: &str) -> &str {
    let last = op.rsplit('/').next().unwrap_or(op);
    last.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches('_')
}

/// What the rules look at.
pub(crate) struct Scene<'a> {
    pub(crate) survey: &'a Survey,
    pub(crate) device: u8,
    pub(crate) facts: &'a Facts,
    pub(crate) refused: Option<Refused<'a>>,
    pub(crate) batch: Option<u64>,
    /// Who holds memory of the device.
    owners: Vec<&'a Owner>,
    /// Sizes of weights that are live.
    weights: HashSet<u64>,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(survey: &'a Survey, device: u8, facts: &'a Facts, who: Option<&'a Who>) -> Self {
        let class = facts.class.unwrap_or(Class::Block);
        let refused = who.filter(|_| facts.refused).map(|who| {
            let role = roles::by_name(who, class, device).0;
            Refused { who, bytes: facts.requested, role }
        });
        let batch = roles::batch_size(survey, device);
        let owners = holders::counted(survey, device).map(|(_, owner)| owner).filter(|owner| owner.bytes > 0).collect();
        let mut scene = Self { survey, device, facts, refused, batch, owners, weights: HashSet::new() };
        scene.weights = scene.live(Role::Parameters).map(|(_, piece)| piece.size).collect();
        scene
    }

    fn owners(&self) -> impl Iterator<Item = &'a Owner> {
        self.owners.iter().copied()
    }

    /// Pieces of one role that are live.
    fn live(&self, role: Role) -> impl Iterator<Item = (&'a Owner, &'a Piece)> {
        let owners = self.owners().filter(move |owner| owner.ruling.0 == role);
        owners
            .flat_map(|owner| owner.pieces.iter().map(move |piece| (owner, piece)))
            .filter(|(_, piece)| piece.live > 0)
    }

    pub(crate) fn bytes_of(&self, role: Role) -> u64 {
        self.owners().filter(|owner| owner.ruling.0 == role).map(Owner::used).sum()
    }

    /// The same with the refused request, if it is of that role.
    fn wanted(&self, role: Role) -> u64 {
        let refused = self.refused.as_ref().filter(|refused| refused.role == role).map_or(0, |refused| refused.bytes);
        self.bytes_of(role) + refused
    }

    /// What the optimizer keeps for every weight.
    pub(crate) fn slots(&self) -> u64 {
        kept::slots(self)
    }

    /// What is live and requested without what the optimizer keeps and computes.
    pub(crate) fn without_optimizer(&self) -> u64 {
        let all = self.facts.live + self.facts.requested;
        all.saturating_sub(self.wanted(Role::Optimizer))
    }

    /// The largest weight.
    pub(crate) fn largest_weight(&self) -> u64 {
        self.live(Role::Parameters).map(|(_, piece)| piece.size).max().unwrap_or(0)
    }

    /// Whether a side of a shape is the batch; where no shape is known, whether no weight has the size.
    fn has_batch(&self, shape: Option<Vec<u64>>, size: u64) -> bool {
        match (shape.filter(|sides| !sides.is_empty()), self.batch) {
            (Some(sides), Some(batch)) => sides.first().is_some_and(|first| first % batch == 0) || sides.len() == 1,
            _ => !self.weights.contains(&size),
        }
    }

    /// Bytes that shrink with the batch: results, their derivatives, batches of data. The refused request included.
    pub(crate) fn of_batch(&self) -> u64 {
        // What has a weight's size and no known shape is computed of the weight: an update, a norm.
        let result = |shape: Option<Vec<u64>>, size: u64| shape.is_some() || self.has_batch(None, size);
        let shrinks = |role: Role, piece: &Piece| match role {
            Role::Activations => result(piece.dimensions(), piece.size),
            Role::Inputs => piece.freed > 0 || piece.live >= 4,
            Role::Gradients => self.has_batch(piece.dimensions(), piece.size),
            _ => false,
        };
        let roles = [Role::Activations, Role::Inputs, Role::Gradients];
        let live: u64 = roles
            .iter()
            .flat_map(|role| self.live(*role).filter(|(_, piece)| shrinks(*role, piece)))
            .map(|(_, piece)| piece.bytes())
            .sum();
        let refused = self.refused.as_ref().filter(|refused| match refused.role {
            Role::Activations => result(refused.dimensions(), refused.bytes),
            Role::Inputs => true,
            Role::Gradients => self.has_batch(refused.dimensions(), refused.bytes),
            _ => false,
        });
        live + refused.map_or(0, |refused| refused.bytes)
    }

    /// Whether derivatives were ever computed: without, a job uses a model or computes something else.
    pub(crate) fn trains(&self) -> bool {
        let derived = |owner: &Owner| owner.device == self.device && owner.ruling.0 == Role::Gradients;
        self.survey.owners.iter().any(derived)
    }

    /// Whether there is a model as far as one can see: derivatives, or weights. Counts of a metric are variables, too, in a row.
    pub(crate) fn has_model(&self) -> bool {
        let in_a_row = |piece: &Piece| piece.dimensions().is_some_and(|sides| sides.len() < 2);
        self.trains() || self.live(Role::Parameters).any(|(_, piece)| !in_a_row(piece))
    }

    /// Whether any operation of a backward pass ran in this turn, also one that only makes constants.
    fn has_backward(&self) -> bool {
        let turn = self.survey.steps.turns;
        let derived = |owner: &&Owner| owner.device == self.device && owner.ruling.0 == Role::Gradients;
        let mut pieces = self.survey.owners.iter().filter(derived).flat_map(|owner| &owner.pieces);
        pieces.any(|piece| piece.last_turn == turn)
    }

    /// Whether derivatives were computed in this turn.
    fn has_derived(&self) -> bool {
        let turn = self.survey.steps.turns;
        let derived = |owner: &&Owner| owner.device == self.device && owner.ruling.0 == Role::Gradients;
        let mut pieces = self.survey.owners.iter().filter(derived).flat_map(|owner| &owner.pieces);
        let refused =
            self.refused.as_ref().is_some_and(|refused| matches!(refused.role, Role::Gradients | Role::Optimizer));
        let heavy = |op: &str| {
            let kind = kind_of(op);
            let known = ["MatMul", "Backprop", "Grad", "Einsum", "Conv"].iter().any(|part| kind.contains(part));
            known && !op.contains("LayoutOptimizer")
        };
        refused || pieces.any(|piece| piece.last_turn == turn && piece.size >= 1 << 16 && heavy(&piece.op.name))
    }

    /// Whether an operation is refused that none of several steps ran, in a job whose derivatives are all in graphs: it uses the
    /// model without training it.
    pub(crate) fn outside_of_training(&self) -> bool {
        let Some(refused) = &self.refused else { return false };
        let pieces = || self.survey.owners.iter().filter(|owner| owner.device == self.device);
        let derived = pieces().filter(|owner| owner.ruling.0 == Role::Gradients).flat_map(|owner| &owner.pieces);
        let mut derived = derived.peekable();
        let turn = self.survey.steps.turns;
        // A graph's own operations need not be in a scope; they then ran in the steps before, under the same name.
        let again = |piece: &Piece| piece.first_turn < turn && piece.op.name == refused.who.op.name;
        let known = pieces().flat_map(|owner| &owner.pieces).any(again);
        let by_itself = !refused.who.op.name.contains('/') && !known;
        by_itself
            && self.survey.steps.seen >= FEWEST_STEPS
            && derived.peek().is_some()
            && derived.all(|piece| piece.op.name.contains('/'))
    }

    /// Whether several results of similar size are kept for derivatives.
    pub(crate) fn keeps_blocks(&self) -> bool {
        let sizes: Vec<u64> =
            self.live(Role::Activations).flat_map(|(_, piece)| vec![piece.size; piece.live.min(64) as usize]).collect();
        let (all, most) = (sizes.iter().sum::<u64>(), sizes.iter().max().copied().unwrap_or(0));
        let derived = |owner: &Owner| owner.device == self.device && owner.ruling.0 == Role::Gradients;
        self.survey.owners.iter().any(derived)
            && most * 8 <= all
            && self.refused.as_ref().is_none_or(|refused| refused.bytes * 8 <= all)
    }

    /// Whether the refused request has a row for each example of a batch, in a job that has a model: derivatives, or several
    /// weights of which they will be computed.
    pub(crate) fn pairs_of_batch(&self) -> bool {
        let derived = |owner: &Owner| owner.device == self.device && owner.ruling.0 == Role::Gradients;
        let sides = self.refused.as_ref().and_then(Refused::dimensions);
        let rows = sides.and_then(|sides| sides.first().copied()).or_else(|| compare::rows_of_pairs(self));
        let model = self.live(Role::Parameters).filter(|(_, piece)| kept::makes_weights(piece)).count() > 1;
        rows.is_some() && rows == self.batch && (model || self.survey.owners.iter().any(derived))
    }

    /// Sides that one example has in most bytes of results, without the batch and the channels: 1 of sequences, 2 of pictures,
    /// 3 of volumes.
    pub(crate) fn sides_of_examples(&self) -> Option<u32> {
        let results = self.owners().filter(|owner| owner.ruling.0 == Role::Activations).flat_map(|owner| &owner.pieces);
        let rank = |sides: Option<Vec<u64>>| sides.map(|sides| sides.len()).filter(|rank| (3..=5).contains(rank));
        let results =
            results.filter_map(|piece| Some((rank(piece.dimensions())?, piece.size.saturating_mul(piece.made.max(1)))));
        let refused = self.refused.as_ref().and_then(|refused| Some((rank(refused.dimensions())?, refused.bytes)));
        let mut by_rank: BTreeMap<usize, u64> = BTreeMap::new();
        for (rank, bytes) in results.chain(refused) {
            let sum = by_rank.entry(rank).or_default();
            *sum = sum.saturating_add(bytes);
        }
        by_rank.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(rank, _)| rank as u32 - 2)
    }

    /// Bytes of gradients of weights that are not there yet.
    pub(crate) fn gradients_to_come(&self) -> u64 {
        // While they are applied, all are there.
        let applies = |refused: &Refused<'_>| {
            let ruling = roles::by_name(refused.who, Class::Block, self.device);
            refused.role == Role::Optimizer || roles::is_assignment(&refused.who.op) || ruling.1 == roles::UPDATE
        };
        if self.refused.as_ref().is_some_and(applies) {
            return 0;
        }
        let of_weights =
            self.live(Role::Gradients).filter(|(_, piece)| !self.has_batch(piece.dimensions(), piece.size));
        self.bytes_of(Role::Parameters).saturating_sub(of_weights.map(|(_, piece)| piece.bytes()).sum())
    }

    /// Bytes that the optimizer will keep for the weights and has not requested yet.
    pub(crate) fn slots_to_come(&self) -> u64 {
        let begun = self.slots() * 16 > self.bytes_of(Role::Parameters);
        if begun { 0 } else { self.bytes_of(Role::Parameters) * kept::slots_of_optimizer(self) }
    }

    /// Bytes of results of a type, the refused request included.
    pub(crate) fn results_of_type(&self, dtype: u32) -> u64 {
        let refused =
            self.refused.as_ref().filter(|refused| refused.who.op.dtype == dtype && refused.role == Role::Activations);
        let live = self.live(Role::Activations).filter(|(_, piece)| piece.op.dtype == dtype);
        live.map(|(_, piece)| piece.bytes()).sum::<u64>() + refused.map_or(0, |refused| refused.bytes)
    }

    fn all(&self) -> u64 {
        (self.facts.live + self.facts.requested).max(1)
    }

    fn is_large(&self) -> bool {
        self.facts.requested * 4 >= self.facts.limit()
    }
}

/// Steps after which an operation that was not seen is none of theirs.
const FEWEST_STEPS: u64 = 3;
/// Rounds from which on models that are kept are growth.
const ROUNDS: u64 = 3;

/// Whether weights of the same shapes were made in one round after another, and none was freed.
pub(crate) fn keeps_models(scene: &Scene<'_>) -> bool {
    kept::rounds(scene) >= ROUNDS && !fault::is_off("kept::models")
}

type Rule = fn(&Scene<'_>) -> Option<Explanation>;

/// What there may be too much of; the first that holds explains.
pub(crate) const RULES: [(&str, Rule); 15] = named![
    compare::broadcast,
    compare::jacobian,
    compare::larger_than_before,
    compare::pairs,
    compare::matrix,
    compare::whole_table,
    kept::large_layer,
    kept::turns_of_a_loop,
    kept::data,
    kept::prefetched,
    kept::second_model,
    kept::earlier_models,
    kept::optimizer_state,
    self::activations,
    self::largest,
];

/// What the device, the cap or TensorFlow's limit is full of; none where nothing is known to be more than its share.
pub(crate) fn explain(scene: &Scene<'_>) -> Option<Explanation> {
    RULES.iter().filter(|(name, _)| !fault::is_off(name)).find_map(|(_, rule)| rule(scene))
}

/// Where no other rule holds, what there is most of: a quarter of all or more.
fn largest(scene: &Scene<'_>) -> Option<Explanation> {
    let (results, weights) = (results_of(scene), kept::weights_of(scene));
    if results.max(weights) * 4 < scene.all() {
        None
    } else if results >= weights {
        forward(scene)
    } else {
        kept::model(scene)
    }
}

/// Results and what is derived of them, the refused request included.
fn results_of(scene: &Scene<'_>) -> u64 {
    scene.bytes_of(Role::Activations) + batch_gradients(scene) + refused_result(scene)
}

/// Results of the forward pass, where they are two fifths of all.
fn activations(scene: &Scene<'_>) -> Option<Explanation> {
    let bytes = results_of(scene);
    let most = bytes * 5 >= scene.all() * 2 && bytes >= scene.wanted(Role::Parameters);
    most.then(|| forward(scene)).flatten()
}

/// Results of the forward pass, with the layer that has most of them.
fn forward(scene: &Scene<'_>) -> Option<Explanation> {
    let bytes = results_of(scene);
    let mut layers: BTreeMap<String, u64> = BTreeMap::new();
    let results = scene.owners().filter(|owner| matches!(owner.ruling.0, Role::Activations | Role::Gradients));
    let refused = scene.refused.iter().map(|refused| (layer(refused.who), refused.bytes));
    for (name, bytes) in results.map(|owner| (layer(&owner.who), owner.bytes)).chain(refused) {
        *layers.entry(name).or_default() += bytes;
    }
    let (name, most) = layers.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    let text = format!(
        "{}, {}{}; most of it {name}: {}",
        whose_results(scene),
        size(bytes),
        with_refused("with", refused_result(scene)),
        size(most)
    );
    Some(Explanation::new(Of::Activations, bytes, text))
}

/// What results are of. Without a model there is no forward pass, and what comes first in a shape need not be a batch.
fn whose_results(scene: &Scene<'_>) -> String {
    let rows = scene.batch.filter(|batch| *batch > 1).map(count);
    if scene.has_model() || fault::is_off("explain::without_model") {
        let batch = rows.map(|batch| format!(" for a batch of {batch}"));
        return format!("results of the forward pass and what is derived from them{}", batch.unwrap_or_default());
    }
    format!("results of operations{}", rows.map(|rows| format!(" with {rows} rows")).unwrap_or_default())
}

/// Derivatives of results: as large as these, and gone with them.
fn batch_gradients(scene: &Scene<'_>) -> u64 {
    let of_batch = |piece: &Piece| piece.dimensions().is_some_and(|sides| sides.first().copied() == scene.batch);
    scene.live(Role::Gradients).filter(|(_, piece)| of_batch(piece)).map(|(_, piece)| piece.bytes()).sum()
}

/// Bytes of the refused request, if it is a result or a derivative of one.
fn refused_result(scene: &Scene<'_>) -> u64 {
    let of_batch =
        |refused: &Refused<'_>| refused.dimensions().is_some_and(|sides| sides.first().copied() == scene.batch);
    let result = |refused: &&Refused<'_>| match refused.role {
        Role::Activations => true,
        Role::Gradients => of_batch(refused),
        _ => false,
    };
    scene.refused.as_ref().filter(result).map_or(0, |refused| refused.bytes)
}

/// What a sum says of the refused request that is in it.
fn with_refused(word: &str, bytes: u64) -> String {
    if bytes > 0 { format!(" {word} the {} requested", size(bytes)) } else { String::new() }
}

/// The layer of a graph's operation with its line, else the line alone.
fn layer(who: &Who) -> String {
    let op = who.op_name();
    let op = op.strip_prefix("gradient_tape/").unwrap_or(op);
    let inside = op.rsplit_once('/').map_or("", |(layer, _)| layer);
    match (inside, who.place()) {
        ("", place) if place.is_empty() => format!("by {op}"),
        ("", place) => format!("at {place}"),
        (layer, place) if place.is_empty() => format!("in {layer}"),
        (layer, place) => format!("in {layer} ({place})"),
    }
}

/// `train.py:118` of the user's line nearest to a tensor.
fn place(piece: &Piece) -> String {
    piece.python.line().map(|line| format!("{}:{}", base_name(&line.file), line.line)).unwrap_or_default()
}
