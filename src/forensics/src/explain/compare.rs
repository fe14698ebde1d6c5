//! Explanations by comparison: of the refused request with its inputs, and with what the same operation requested before.

use super::{Explanation, Of, Refused, Scene, place};
use crate::names::Who;
use crate::roles::Role;
use crate::survey::{Owner, Piece};
use crate::words::{count, size};

/// Operations that work on one element at a time: their result is as large as their larger input, unless shapes differ.
const BY_ELEMENT: [&str; 18] = [
    "Sub",
    "sub",
    "AddV2",
    "add",
    "Mul",
    "mul",
    "RealDiv",
    "truediv",
    "SquaredDifference",
    "Maximum",
    "Minimum",
    "Equal",
    "NotEqual",
    "Less",
    "Greater",
    "LessEqual",
    "GreaterEqual",
    "Pow",
];
/// Fewest elements of an input that a broadcast multiplies, and rows of which all pairs are computed.
const FEWEST: u64 = 256;
/// How many times longer a side is than before, to be called far longer.
const FAR: u64 = 2;
/// Inputs that are looked at.
const MOST: usize = 64;
/// Functions that use a model without training it.
const EVALUATING: [&str; 9] = [
    "evaluate",
    "predict",
    "test_step",
    "predict_step",
    "test_on_batch",
    "predict_on_batch",
    "test_function",
    "predict_function",
    "validate",
];

fn elements(bytes: u64, dtype: u32) -> u64 {
    // TensorFlow's numbers of types that are not of four bytes.
    match dtype {
        2 | 9 | 8 => bytes / 8,
        14 | 19 | 5 | 17 => bytes / 2,
        4 | 6 | 10 => bytes,
        18 => bytes / 16,
        _ => bytes / 4,
    }
}

/// Whether an operation combines elements of two inputs.
pub(super) fn combines(refused: &Refused<'_>) -> bool {
    let kind = refused.kind();
    BY_ELEMENT.contains(&kind) || ["MatMul", "matmul", "Einsum"].iter().any(|product| kind.contains(product))
}

/// `[N]` with `[N, 1]` gives `[N, N]`.
pub(super) fn broadcast(scene: &Scene<'_>) -> Option<Explanation> {
    let refused = scene.refused.as_ref().filter(|refused| BY_ELEMENT.contains(&refused.kind()) && scene.is_large())?;
    let wanted = elements(refused.bytes, refused.who.op.dtype);
    let mut inputs: Vec<&Piece> = [Role::Activations, Role::Inputs, Role::Gradients, Role::Parameters, Role::Other]
        .into_iter()
        .flat_map(|role| scene.live(role))
        .map(|(_, piece)| piece)
        .collect();
    inputs.sort_by_key(|piece| std::cmp::Reverse(piece.size));
    inputs.truncate(MOST);
    let length = |piece: &Piece| elements(piece.size, piece.op.dtype);
    // A result as large as an input has that input's shape.
    if inputs.iter().any(|piece| length(piece) == wanted) {
        return None;
    }
    // (N) against (N, 1): the mistake. The same tensor against itself, or rows of several elements, is meant.
    let two = |a: &Piece, b: &Piece| {
        let column = |piece: &Piece| piece.dimensions().is_some_and(|sides| sides.len() == 2 && sides.contains(&1));
        let row = |piece: &Piece| piece.dimensions().is_none_or(|sides| sides.len() == 1);
        !std::ptr::eq(a, b) && ((column(a) && row(b)) || (column(b) && row(a)))
    };
    let product = |a: &Piece, b: &Piece| {
        length(a) >= FEWEST && length(b) >= FEWEST && length(a).checked_mul(length(b)) == Some(wanted) && two(a, b)
    };
    let (first, second) = inputs.iter().find_map(|a| inputs.iter().find(|b| product(a, b)).map(|b| (a, b)))?;
    let text = format!(
        "{} of inputs with {} and {} elements has {}: their shapes differ, and each element of one meets each of the other",
        refused.kind(),
        count(length(first)),
        count(length(second)),
        count(wanted)
    );
    Some(Explanation::new(Of::Broadcast, refused.bytes, text).at(refused.who.place()))
}

/// Derivatives of each result with respect to each weight.
pub(super) fn jacobian(scene: &Scene<'_>) -> Option<Explanation> {
    let refused = scene.refused.as_ref().filter(|_| scene.is_large())?;
    let many = refused.calls(&["jacobian", "batch_jacobian"]) || refused.who.op.name.contains("/pfor/");
    let text = format!("a Jacobian: {} for the derivatives of all results at once", size(refused.bytes));
    many.then(|| Explanation::new(Of::Jacobian, refused.bytes, text).at(refused.who.place()))
}

/// All pairs of rows.
pub(super) fn pairs(scene: &Scene<'_>) -> Option<Explanation> {
    let refused = scene.refused.as_ref().filter(|refused| scene.is_large() && refused.role == Role::Activations)?;
    let explained = |rows: u64| {
        let text = format!("a result for every pair of {} rows: {}", count(rows), size(refused.bytes));
        Explanation::new(Of::Pairs, refused.bytes, text).at(refused.who.place())
    };
    let Some(sides) = refused.dimensions() else { return rows_of_pairs(scene).map(explained) };
    let [rows, columns] = sides[..] else { return None };
    let weight = scene
        .live(Role::Parameters)
        .any(|(_, piece)| piece.dimensions().is_some_and(|other| other.ends_with(&[columns])));
    if rows != columns || rows < FEWEST * 4 || weight {
        return None;
    }
    Some(explained(rows))
}

/// Rows of which every one meets every other, where the result does not report its shape: it is as many times an input of
/// several elements a row as that has rows.
pub(super) fn rows_of_pairs(scene: &Scene<'_>) -> Option<u64> {
    let refused = scene.refused.as_ref()?;
    let wanted = elements(refused.bytes, refused.who.op.dtype);
    let inputs = scene.live(Role::Activations).chain(scene.live(Role::Inputs)).chain(scene.live(Role::Parameters));
    let rows = inputs.filter_map(|(_, piece)| {
        let rows = piece.dimensions().filter(|sides| sides.len() > 1)?.first().copied()?;
        let all = elements(piece.size, piece.op.dtype).checked_mul(rows);
        (rows >= FEWEST && all == Some(wanted)).then_some(rows)
    });
    rows.max()
}

/// The same as data that is brought here: which nodes of a graph are joined, how far points are from each other.
pub(super) fn matrix(scene: &Scene<'_>) -> Option<Explanation> {
    let refused = scene.refused.as_ref().filter(|refused| scene.is_large() && refused.role == Role::Inputs)?;
    let [rows, columns] = <[u64; 2]>::try_from(refused.dimensions()?).ok()?;
    let text =
        format!("one number for every pair of {} rows, brought here as data: {}", count(rows), size(refused.bytes));
    (rows == columns && rows >= FEWEST * 4)
        .then(|| Explanation::new(Of::Matrix, refused.bytes, text).at(refused.who.place()))
}

/// The derivative of every row of a table, in a job that reads some of its rows. What is computed of the rows alone stays sparse.
pub(super) fn whole_table(scene: &Scene<'_>) -> Option<Explanation> {
    let refused = scene.refused.as_ref().filter(|refused| scene.is_large() && refused.role == Role::Gradients)?;
    let table = scene.live(Role::Parameters).map(|(_, piece)| piece).find(|piece| {
        let sides = refused.dimensions().is_none_or(|sides| piece.dimensions().is_none_or(|table| table == sides));
        piece.size == refused.bytes && sides && piece.bytes() * 4 >= scene.all()
    })?;
    let rows = table.dimensions()?.first().copied()?;
    let reads = |piece: &Piece| {
        let few = piece.dimensions().and_then(|sides| sides.first().copied()).is_none_or(|read| read < rows);
        piece.op.name.contains("ResourceGather") && few
    };
    let read = scene.survey.owners.iter().flat_map(|owner| &owner.pieces).any(reads);
    let text = format!(
        "the derivative of all {} rows of a table, of which a step reads some: a penalty or a norm uses every row",
        count(rows)
    );
    // Rows that are read are added up to a derivative by these.
    let sums = ["Segment", "Scatter", "Sparse"].iter().any(|part| refused.kind().contains(part));
    (read && !sums).then(|| Explanation::new(Of::WholeTable, refused.bytes, text).at(refused.who.place()))
}

/// A batch far larger than those before it: more examples, or one far longer.
pub(super) fn larger_than_before(scene: &Scene<'_>) -> Option<Explanation> {
    let mut found = Vec::new();
    // The refused one first, then what is live: an operation may not report its shape.
    if let Some(refused) = &scene.refused
        && let Some(sides) = refused.dimensions()
    {
        found.extend(compared(scene, refused.who, &sides));
    }
    let turn = scene.survey.steps.turns;
    let mut live: Vec<_> = scene.live(Role::Activations).filter(|(_, piece)| piece.last_turn == turn).collect();
    live.sort_by_key(|(_, piece)| std::cmp::Reverse(piece.bytes()));
    for (owner, piece) in live.into_iter().take(8) {
        if let Some(sides) = piece.dimensions() {
            let who = Who { op: piece.op.clone(), python: piece.python.clone(), ..Who::clone(&owner.who) };
            found.extend(compared(scene, &who, &sides));
        }
    }
    let (side, before, now) = found.into_iter().next()?;
    let bytes = scene.wanted(Role::Activations);
    if bytes * 3 < scene.all() {
        return None;
    }
    let line = scene.refused.as_ref().map(|refused| refused.who.place()).unwrap_or_default();
    let evaluating = scene.refused.as_ref().is_some_and(|refused| refused.calls(&EVALUATING))
        || without_derivatives(scene, &line, side);
    // In a job that computes no derivatives at all, nothing is training.
    let evaluation =
        evaluating && (scene.trains() || scene.refused.as_ref().is_some_and(|refused| refused.calls(&EVALUATING)));
    let (of, text) = if side == 0 {
        let what = if evaluation { ": an evaluation, as no derivatives are computed of it" } else { "" };
        let text = format!("this batch has {} examples at once, those before had {}{what}", count(now), count(before));
        (Of::LargeBatch, text)
    } else {
        let what = if evaluation { ", in an evaluation" } else { "" };
        let text =
            format!("the longest batch{what}: {} where the batches before had at most {}", count(now), count(before));
        (Of::LongBatch, text)
    };
    Some(Explanation { times: now.div_ceil(before.max(1)), evaluating, ..Explanation::new(of, bytes, text).at(line) })
}

/// Whether this turn computes no derivatives, as far as that can be known while it runs. In a graph, derivatives have the
/// line of what they are derived from, and the backward pass has constants from the start.
fn without_derivatives(scene: &Scene<'_>, line: &str, side: usize) -> bool {
    let graph = scene.refused.as_ref().is_some_and(|refused| refused.who.op.name.contains('/'));
    (side == 0 && !scene.has_derived()) || (graph && (!scene.has_backward() || !trains(scene, line)))
}

/// Whether derivatives are computed of what a line calls; where none are at all, nobody knows.
fn trains(scene: &Scene<'_>, line: &str) -> bool {
    let derived = |owner: &&Owner| owner.device == scene.device && owner.ruling.0 == Role::Gradients;
    let mut lines = scene.survey.owners.iter().filter(derived).flat_map(|owner| &owner.pieces).map(place).peekable();
    lines.peek().is_none() || lines.any(|other| other == line)
}

/// Which side is far longer than it was for the same operation on the same line, how long it was at most, and is now.
fn compared(scene: &Scene<'_>, who: &Who, now: &[u64]) -> Option<(usize, u64, u64)> {
    let (op, line, turn) = (who.op_name(), who.place(), scene.survey.steps.turns);
    let owners = scene.survey.owners.iter().filter(|owner| owner.device == scene.device && owner.who.op_name() == op);
    let pieces = owners.flat_map(|owner| &owner.pieces);
    // In a graph the name says which operation it is; of one that runs by itself, the line.
    let named = op.contains('/');
    let same = |piece: &&Piece| named || place(piece) == line;
    let alike = |piece: &Piece| piece.dimensions().filter(|sides| sides.len() == now.len() && sides != now);
    let earlier = |piece: &&Piece| piece.last_turn < turn && piece.freed > 0 && piece.op.region == who.op.region;
    let before: Vec<Vec<u64>> = pieces.filter(same).filter(earlier).filter_map(alike).collect();
    let longest = |side: usize| before.iter().filter_map(|sides| sides.get(side).copied()).max();
    let far = |side: &usize| longest(*side).is_some_and(|longest| now[*side] >= longest.saturating_mul(FAR));
    let side = (0..now.len()).find(far)?;
    Some((side, longest(side)?, now[side]))
}

#[cfg(test)]
mod tests {
    use super::super::kind_of;
    use super::*;
    use crate::roles;

    #[test]
    fn kinds_of_operations_and_shapes_are_read() {
        assert_eq!((kind_of("model/dense/MatMul_12"), kind_of("Sub"), kind_of("a/sub_1")), ("MatMul", "Sub", "sub"));
        assert_eq!(roles::dimensions("[8,3000,64]"), Some(vec![8, 3000, 64]));
        assert_eq!(
            (roles::dimensions("[]"), roles::dimensions(""), roles::dimensions("[?]")),
            (Some(vec![]), None, None)
        );
        assert_eq!(
            (elements(1024, 1), elements(1024, 2), elements(1024, 4), elements(1024, 19)),
            (256, 128, 1024, 512)
        );
    }
}
