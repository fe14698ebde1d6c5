//! Remedies by what a device is full of: each is a job that needs less. Where whole steps are recorded, a smaller batch is
//! replayed; else what a remedy leaves is estimated, with room for the rest of the step, which nobody has seen.

use super::bench::{Bench, RequesterFacts};
use super::cures::{DOUBLE, FLOAT, on, try_parts};
use super::{Act, Advice, Check, Remedy, Tried, fits};
use crate::explain::{Explanation, Of, Scene};
use crate::fault;
use crate::replay::Change;
use crate::roles::{self, Role};
use crate::verdict::Facts;
use crate::words::{count, size, size_up};

/// Parts of a batch at most.
const MOST_PARTS: u64 = 256;
/// By how much a side of an example is divided at most.
const MOST_FACTOR: u64 = 8;
/// What a whole step may need, as a multiple of what it needs so far; where one request is most of what is known of it; and
/// the least that it may need.
const WHOLE_STEP: f64 = 4.0;
const ONE_REQUEST: f64 = 6.0;
const LEAST: f64 = 1.5;
/// What XLA compiled requests once for a whole step.
const COMPILED: f64 = 1.0;
/// Of the room, what an estimate fills.
const FILLED: f64 = 0.92;

/// What the job needs, in parts that a remedy changes.
struct Needs {
    /// Whatever the batch is: weights, optimizer state, libraries.
    fixed: f64,
    /// What shrinks with the batch, times what the rest of the step may need.
    batch: f64,
    /// That multiple.
    times: f64,
    /// What there is.
    room: f64,
}

impl Needs {
    fn of(scene: &Scene<'_>, facts: &Facts, evaluating: bool) -> Self {
        let so_far = scene.of_batch().saturating_sub(facts.of_arena_fixed);
        let fixed = facts.live.saturating_add(facts.requested).saturating_sub(so_far);
        let compiled = scene.refused.as_ref().is_some_and(|refused| roles::is_compiled(refused.who));
        let times = match facts.requested * 2 >= facts.limit() {
            _ if fault::is_off("remedies::rest_of_the_step") => 1.0,
            _ if compiled => COMPILED,
            true => ONE_REQUEST,
            false => WHOLE_STEP,
        };
        // Every weight gets a gradient, if it has none yet.
        let gradients = if evaluating { 0 } else { scene.gradients_to_come() + scene.slots_to_come() };
        let on_device = if facts.total > 0 { facts.total.saturating_sub(facts.others) } else { u64::MAX };
        let under_cap = if facts.cap > 0 { facts.cap.saturating_sub(facts.charged_by_others) } else { u64::MAX };
        let room = on_device.min(under_cap);
        let room = if facts.by_own_limit() { facts.tf_reserved } else { room };
        Self { fixed: (fixed + gradients) as f64, batch: so_far as f64 * times, times, room: room as f64 * FILLED }
    }

    /// The fewest parts of the batch that fit, of one with so many examples.
    fn parts(&self, batch: Option<u64>) -> Option<u64> {
        let most = batch.filter(|batch| *batch > 1).unwrap_or(MOST_PARTS).min(MOST_PARTS);
        let mut parts = 2;
        while parts < most && self.fixed + self.batch / parts as f64 > self.room {
            parts *= 2;
        }
        let parts = parts.min(most);
        // A batch of one example is all that can be tried where the estimate is more than needed.
        let least = self.fixed + self.batch / self.times * LEAST.min(self.times) / parts as f64;
        (least <= self.room).then_some(parts)
    }

    fn how(&self) -> String {
        self.how_of("batch")
    }

    /// From what it is estimated, where this is what shrinks.
    fn how_of(&self, what: &str) -> String {
        if self.times <= COMPILED {
            return "estimated from the refused request, which XLA makes once for a whole step".into();
        }
        format!(
            "estimated from the requests up to the refused one: what shrinks with the {what} counts {} times, for the rest of the step",
            self.times
        )
    }
}

/// Remedies for what the device, the cap or TensorFlow's limit is full of.
pub(super) fn by_explanation(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts, found: &Explanation) {
    let refused = bench.survey.refused.as_ref().map(|(who, _)| &**who);
    let scene = Scene::new(bench.survey, bench.device, facts, refused);
    let at = if found.place.is_empty() { String::new() } else { format!(" at {}", found.place) };
    if found.of == Of::Data {
        // Twice as large as meant, and so is all that is computed of it.
        float32(advice, bench, facts, &scene);
    }
    let mut say = |act: Act, text: String| {
        let how = "estimated from what is live".into();
        advice.add(Remedy { act, text, check: Check::Estimated, how });
    };
    match found.of {
        Of::Broadcast => {
            say(Act::Shape, format!("give both inputs{at} the same shape (tf.reshape, or a squeezed last side)"));
        }
        Of::Jacobian => {
            let needs = Needs::of(&scene, facts, true);
            let parts = parts_of(facts, &needs);
            say(
                Act::InParts(parts),
                format!("compute the Jacobian{at} in {parts} parts, and reduce each before the next"),
            );
        }
        Of::Pairs => {
            let parts = parts_of(facts, &Needs::of(&scene, facts, true));
            let text = format!("compute the pairs{at} in {parts} parts of the rows, and reduce each before the next");
            let how = "estimated from what is live".into();
            let in_parts = Remedy { act: Act::Pairs, text, check: Check::Estimated, how };
            // Where derivatives are computed of all pairs of a batch, they are kept in parts, too.
            if scene.pairs_of_batch() {
                smaller_batch(advice, bench, facts, &scene, found);
                advice.add(in_parts);
            } else {
                advice.add(in_parts);
                smaller_batch(advice, bench, facts, &scene, found);
            }
        }
        Of::Matrix => {
            let needs = Needs::of(&scene, facts, true);
            let left = (needs.room - facts.live as f64).max(1.0);
            let parts = (facts.requested as f64 * ONE_REQUEST / left).sqrt().ceil() as u64;
            let parts = parts.clamp(2, MOST_PARTS).next_power_of_two();
            let text = format!(
                "fewer rows at once{at}: rows / {parts}; or a sparse matrix (tf.sparse), if most of its numbers are 0"
            );
            say(Act::FewerRows(parts), text);
        }
        Of::WholeTable => {
            let text =
                format!("compute penalties and norms{at} of the rows that the step reads, and not of the whole table");
            say(Act::RowsOnly, text);
            smaller_model(advice, found);
        }
        Of::LongBatch if found.evaluating && scene.trains() => large_batch(advice, bench, facts, &scene, found),
        Of::LongBatch => {
            say(
                Act::Outlier,
                format!("clip or resize the longest batch{at}, or put long examples into batches of their own"),
            );
            // Without derivatives nobody knows which side of a result is a batch, if any.
            if scene.trains() {
                smaller_batch(advice, bench, facts, &scene, found);
            }
        }
        Of::LargeBatch => large_batch(advice, bench, facts, &scene, found),
        Of::TurnsOfALoop => fewer_turns(advice, facts, &scene, found),
        Of::PrefetchedBatches => {
            say(Act::Prefetch, "prefetch fewer batches to the device: two are enough (prefetch(2))".into());
            smaller_batch(advice, bench, facts, &scene, found);
        }
        Of::Data => {
            let saves = if found.bytes >= facts.live + facts.requested {
                format!("all at once it takes {}, with what is computed of it", size(found.bytes))
            } else {
                format!("{} less", size(found.bytes))
            };
            let text = format!(
                "leave the data{at} in host memory (tf.device('/cpu:0'), tf.data) and bring it batch by batch: {saves}"
            );
            say(Act::DataOnHost, text);
            let double = scene
                .refused
                .as_ref()
                .is_some_and(|refused| refused.who.op.dtype == DOUBLE || refused.who.op.dtype == 0);
            if double && found.text.contains("float64") {
                let half = facts.live + facts.requested / 2;
                if half < facts.limit() {
                    say(
                        Act::Float32,
                        format!("if it is float64, as numpy makes it: float32 takes {} less", size(found.bytes / 2)),
                    );
                }
            }
        }
        Of::SecondModel | Of::EarlierModels => {
            say(
                Act::FreeModels,
                format!(
                    "keep one model: drop the others made{at} (del, keras.backend.clear_session()) and keep their scores"
                ),
            );
        }
        Of::OptimizerState => {
            optimizer(advice, facts, &scene);
            smaller_model(advice, found);
        }
        Of::LargeLayer => say(
            Act::SmallerLayer,
            format!("make the layer{at} smaller: fewer units, or fewer inputs (pooling instead of Flatten)"),
        ),
        Of::Activations => {
            float32(advice, bench, facts, &scene);
            if scene.outside_of_training() && !fault::is_off("remedies::outside_of_training") {
                return large_batch(advice, bench, facts, &scene, &Explanation { evaluating: true, ..found.clone() });
            }
            smaller_batch(advice, bench, facts, &scene, found);
            if advice.remedies.is_empty() {
                // What does not come with the batch is too much already.
                optimizer(advice, facts, &scene);
                smaller_model(advice, found);
            }
            mixed_precision(advice, bench, facts, &scene);
            checkpoint(advice, &scene, found);
        }
        Of::Parameters => {
            // Less of what comes with a batch is the smaller change, if it is enough.
            smaller_batch(advice, bench, facts, &scene, found);
            optimizer(advice, facts, &scene);
            smaller_model(advice, found);
        }
    }
}

fn parts_of(facts: &Facts, needs: &Needs) -> u64 {
    let left = (needs.room - facts.live as f64).max(1.0);
    let least = (facts.requested as f64 * ONE_REQUEST / left).ceil() as u64;
    least.clamp(2, MOST_PARTS).next_power_of_two()
}

/// A batch with far more examples than those before: no larger than these, if that is known to fit.
fn large_batch(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts, scene: &Scene<'_>, found: &Explanation) {
    if !found.evaluating {
        return smaller_batch(advice, bench, facts, scene, found);
    }
    let needs = Needs::of(scene, facts, true);
    let Some(parts) = needs.parts(None) else {
        return advice.useless.push("a smaller batch".into());
    };
    let before =
        if found.times > 1 { format!("; those before were {} times smaller", found.times) } else { String::new() };
    // A job that computes no derivatives evaluates nothing, as far as one can see.
    let place = if scene.trains() { " in the evaluation" } else { "" };
    let text = format!("a smaller batch{place}: batch / {parts}{before}");
    advice.add(Remedy { act: Act::EvalBatch(parts), text, check: Check::Estimated, how: needs.how() });
}

/// The batch in as few parts as fit.
pub(super) fn smaller_batch(
    advice: &mut Advice,
    bench: &Bench<'_>,
    facts: &Facts,
    scene: &Scene<'_>,
    found: &Explanation,
) {
    let so_far = scene.of_batch();
    if so_far * 6 < facts.live + facts.requested {
        return;
    }
    // One example cannot be divided.
    if scene.batch == Some(1) {
        smaller_input(advice, scene, &Needs::of(scene, facts, found.evaluating));
        return;
    }
    // More than the largest side that results have in common says nothing.
    let batch = scene.batch.filter(|_| found.of != Of::LargeBatch);
    if let Ok(replayed) = bench.scene()
        && replayed.is_whole()
        && replayed.has_tensors()
    {
        let mut parts = 2;
        let tried = try_parts(&mut parts, |parts| {
            let scaled = |known: &RequesterFacts, bytes| {
                if replayed.is_batch(known, bytes) { Change::Part(parts) } else { Change::None }
            };
            replayed.try_less(&replayed.changed(scaled), &replayed.job)
        });
        let text = batch_text(scene, parts, batch);
        return advice.take(bench, Act::SmallerBatch(parts), "a smaller batch", text, tried, fits);
    }
    let needs = Needs::of(scene, facts, found.evaluating);
    let Some(parts) = needs.parts(batch) else {
        advice.useless.push("a smaller batch".into());
        smaller_input(advice, scene, &needs);
        return;
    };
    let peak = (needs.fixed + needs.batch / parts as f64) as u64;
    let needed = if peak <= facts.limit() {
        format!("; about {} of {} are then needed", size_up(peak), size(facts.limit()))
    } else {
        String::new()
    };
    let text = format!("{}{needed}", batch_text(scene, parts, batch));
    advice.add(Remedy { act: Act::SmallerBatch(parts), text, check: Check::Estimated, how: needs.how() });
}

/// Fewer turns of a loop in one tape.
fn fewer_turns(advice: &mut Advice, facts: &Facts, scene: &Scene<'_>, found: &Explanation) {
    let needs = Needs::of(scene, facts, false);
    let (weights, kept) = (scene.bytes_of(Role::Parameters) as f64, found.bytes as f64);
    let fixed = facts.live.saturating_sub(found.bytes).saturating_sub(scene.bytes_of(Role::Gradients)) as f64;
    // Each turn has derivatives of all weights, which the tape keeps before it adds them up.
    let derived = |turns: f64| weights * turns;
    let left = |parts: &u64| {
        let parts = *parts as f64;
        fixed + kept * needs.times / parts + derived(found.times as f64 / parts)
    };
    let parts = (1..=8).map(|power| 1_u64 << power).find(|parts| *parts <= found.times && left(parts) <= needs.room);
    let Some(parts) = parts else { return advice.useless.push("fewer turns in one tape".into()) };
    let text = format!(
        "fewer turns of the loop at {} in one tape: {} instead of {}, and the gradients of each part applied or added up",
        found.place,
        count(found.times / parts),
        count(found.times)
    );
    advice.add(Remedy { act: Act::FewerTurns(parts), text, check: Check::Estimated, how: needs.how_of("turn") });
}

/// Smaller examples, where fewer of them are not enough or there is only one: of pictures each side, of sequences the length.
/// Whether that is enough.
fn smaller_input(advice: &mut Advice, scene: &Scene<'_>, needs: &Needs) -> bool {
    let Some(sides) = scene.sides_of_examples() else { return false };
    let left = |factor: &u64| needs.fixed + needs.batch / factor.pow(sides) as f64;
    let Some(factor) = (2..=MOST_FACTOR).find(|factor| left(factor) <= needs.room) else { return false };
    let what = match sides {
        1 => "length",
        2 => "width and height (or the length of a sequence)",
        _ => "each of their three sides",
    };
    let text = format!("smaller examples: {what} / {factor}");
    advice.add(Remedy { act: Act::SmallerInput(factor), text, check: Check::Estimated, how: needs.how() });
    true
}

fn batch_text(scene: &Scene<'_>, parts: u64, batch: Option<u64>) -> String {
    let sizes = batch
        .filter(|batch| *batch >= parts)
        .map(|batch| format!(" ({} instead of {})", count(batch / parts), count(batch)));
    let what =
        if scene.has_model() || fault::is_off("explain::without_model") { "batch" } else { "fewer rows at once: rows" };
    format!("{what} / {parts}{}", sizes.unwrap_or_default())
}

/// An optimizer that keeps less for every weight.
fn optimizer(advice: &mut Advice, facts: &Facts, scene: &Scene<'_>) {
    let come = scene.slots_to_come();
    let slots = scene.slots() + come;
    let (all, without) = (facts.live + facts.requested, scene.without_optimizer());
    if slots == 0 || slots * 20 < all {
        return;
    }
    let what = "an optimizer that keeps less for every weight: SGD keeps nothing, with momentum one copy, Adam two, a moving average one more";
    // While gradients are applied, each weight has an update beside it.
    if without + scene.largest_weight() > facts.limit() {
        return advice.useless.push("another optimizer".into());
    }
    let needs = Needs::of(scene, facts, false);
    if come > 0 && needs.fixed - come as f64 + needs.batch > needs.room {
        return advice.useless.push("another optimizer".into());
    }
    let text = match come {
        0 => format!("{what}; without it {} of {} are live", size_up(without), size(facts.limit())),
        _ => format!("{what}; this one will keep {}", size(come)),
    };
    advice.add(Remedy {
        act: Act::Optimizer,
        text,
        check: Check::Estimated,
        how: "estimated from what is live".into(),
    });
}

fn smaller_model(advice: &mut Advice, found: &Explanation) {
    let at =
        if found.place.is_empty() { String::new() } else { format!("; the largest weight is made at {}", found.place) };
    let text = format!("a smaller model: half the width of its layers is a quarter of their weights and gradients{at}");
    let how = "estimated from the width: weights grow with its square".into();
    advice.add(Remedy { act: Act::SmallerModel, text, check: Check::Estimated, how });
}

fn float32(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts, scene: &Scene<'_>) {
    let tried = on(bench, |replayed| {
        let double = |known: &RequesterFacts| known.dtype == DOUBLE;
        let change = replayed.changed(|known, _| if double(known) { Change::Part(2) } else { Change::None });
        replayed.try_less(&change, &replayed.job)
    });
    // An operation that does not report its type has that of its line.
    let bytes = bench.scene().map_or(0, |replayed| replayed.held(|known| known.dtype == DOUBLE));
    if bytes * 10 < facts.live || bytes == 0 {
        return;
    }
    let needs = Needs::of(scene, facts, false);
    let whole = bench.scene().is_ok_and(super::bench::Scene::is_whole);
    if !whole && needs.fixed + needs.batch > 2.0 * needs.room * needs.times / LEAST {
        return advice.useless.push("float32 instead of float64".into());
    }
    let text = format!("{} are float64: as float32 they take {} less", size(bytes), size(bytes / 2));
    advice.take(bench, Act::Float32, "float32 instead of float64", text, tried, fits);
}

/// float16 for results: half of them, but every weight and many results have a copy in the other type.
fn mixed_precision(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts, scene: &Scene<'_>) {
    let singles = scene.results_of_type(FLOAT);
    if singles * 2 < facts.live + facts.requested || bench.scene().is_err() {
        return;
    }
    let needs = Needs::of(scene, facts, false);
    let copies = scene.bytes_of(Role::Parameters) as f64 / 2.0;
    // Of what is cast, the original stays: two thirds of the results are left rather than a half.
    let left = needs.fixed + copies + needs.batch * 2.0 / 3.0;
    if left > needs.room {
        return advice.useless.push("mixed precision".into());
    }
    let text =
        format!("mixed precision (mixed_float16): {} of results take about a third less, casts counted", size(singles));
    advice.add(Remedy { act: Act::MixedPrecision, text, check: Check::Estimated, how: needs.how() });
}

/// Results that are computed again in the backward pass instead of kept.
fn checkpoint(advice: &mut Advice, scene: &Scene<'_>, found: &Explanation) {
    // Several blocks of similar size, of which derivatives are computed: one large result would be there all the same.
    if !scene.keeps_blocks() || found.evaluating || found.bytes * 2 < scene.facts.live {
        return;
    }
    let text =
        "compute results again in the backward pass instead of keeping them (tf.recompute_grad around each block)"
            .into();
    let how = "estimated from what is live: what is kept between blocks stays, the rest goes".into();
    advice.add(Remedy { act: Act::Checkpoint, text, check: Check::Estimated, how });
}

/// One request in parts, where nothing more is known of it.
pub(super) fn in_parts(advice: &mut Advice, bench: &Bench<'_>) {
    let mut parts = 2;
    let tried = on(bench, |scene| {
        let what_if = |parts| crate::replay::WhatIf { parts: Some(parts), ..crate::replay::WhatIf::default() };
        match try_parts(&mut parts, |parts| scene.try_less(&what_if(parts), &scene.job)) {
            // What is computed from one part is not known: twice as many leave room for as much again.
            Tried::Helps(outcome) => {
                parts *= 2;
                Tried::Helps(outcome)
            }
            tried => tried,
        }
    });
    let text = format!("request less at once: in {parts} parts, each reduced before the next");
    advice.take(bench, Act::InParts(parts), "the request in 64 parts", text, tried, |_| String::new());
}
