//! What to do about it. Every remedy is tried on the recorded requests, through the real pool on a simulated device or
//! a model of the allocator that served the job; one that does not help is not advised. Where the log lacks what a trial
//! needs, the remedy says what is lacking.

mod bench;
mod cures;
mod host;
mod less;
mod measured;

pub use bench::Bench;
pub(crate) use measured::place;
pub use measured::{Grew, Measured, Reached};

use crate::growth::Growth;
use crate::replay::Outcome;
use crate::verdict::{Cause, Facts, Finding};
use crate::words::size_up;

/// How a remedy was shown to help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The job was run again with it on the virtual GPU, and ended well.
    Run,
    /// Whole steps of the recorded requests were replayed with it, and all were granted.
    Replayed,
    /// Neither: from what it is estimated is said in words.
    Estimated,
}

/// What a remedy changes, for programs that read the report: its kind, and the value that it advises.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Act {
    /// This line of the program keeps less.
    StopGrowth(String),
    /// The batch in so many parts.
    SmallerBatch(u64),
    /// float32 instead of float64.
    Float32,
    /// float16 for activations.
    MixedPrecision,
    /// Data stays in host memory.
    DataOnHost,
    /// The refused request in so many parts.
    InParts(u64),
    /// Pairs of rows in parts, or none of them.
    Pairs,
    /// A penalty on the rows of a table that a step reads, and not on all.
    RowsOnly,
    /// Fewer rows of a matrix that has all pairs of them, by so much.
    FewerRows(u64),
    /// The batch of an evaluation in so many parts.
    EvalBatch(u64),
    /// A tape over a loop with its turns divided by so much.
    FewerTurns(u64),
    /// Sides of each example, or its length, divided by so much.
    SmallerInput(u64),
    /// No batch far longer than the others.
    Outlier,
    /// Inputs of one operation in the same shape.
    Shape,
    /// Fewer batches that wait on the device.
    Prefetch,
    /// An optimizer that keeps less for every weight.
    Optimizer,
    /// No model beside the one that is used.
    FreeModels,
    /// One layer with fewer weights.
    SmallerLayer,
    /// A model with fewer weights.
    SmallerModel,
    /// Results computed again in the backward pass.
    Checkpoint,
    /// A model that XLA does not compile.
    WithoutXla,
    /// A device with so many bytes.
    Device(u64),
    /// A cap of so many bytes.
    Cap(u64),
    /// A limit of TensorFlow's allocator, in MiB as TensorFlow takes it.
    MemoryLimit(u64),
    /// Variables for the job, NAME=VALUE with spaces between.
    Environment(&'static str),
    /// No other process on the device.
    StopOthers,
    /// Less pinned host memory.
    PinLess,
    /// Less in host memory.
    KeepLessOnHost,
}

/// A remedy.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Remedy {
    /// What it changes.
    #[serde(flatten)]
    pub act: Act,
    /// What to do, and what it brings.
    pub text: String,
    /// How that was shown.
    pub check: Check,
    /// The same in words: what was run or replayed, or from what it is estimated.
    pub how: String,
}

/// What came of looking for remedies.
#[derive(Clone, Debug, Default)]
pub struct Advice {
    /// Most promising first.
    pub remedies: Vec<Remedy>,
    /// What one would think of, and what was replayed and does not help.
    pub useless: Vec<String>,
}

/// How a remedy did.
#[derive(Clone, Debug)]
enum Tried {
    Helps(Outcome),
    Fails,
    /// What the log lacks.
    Impossible(String),
}

/// Remedies at most: what does not fit on a screen is not read.
const MOST: usize = 4;

impl Advice {
    fn is_full(&self) -> bool {
        self.remedies.len() >= MOST
    }

    /// Takes a remedy if it helps, with what it brings; else notes what it is called.
    fn take(
        &mut self,
        bench: &Bench<'_>,
        act: Act,
        name: &str,
        text: String,
        tried: Tried,
        brings: impl Fn(&Outcome) -> String,
    ) {
        let (text, check, how) = match tried {
            Tried::Helps(outcome) => {
                let brings = brings(&outcome);
                let text = if brings.is_empty() { text } else { format!("{text}{brings}") };
                let (check, how) = bench.shown();
                (text, check, how)
            }
            Tried::Impossible(lacking) => (text, Check::Estimated, format!("estimated, not replayed: {lacking}")),
            Tried::Fails => {
                let name = name.to_owned();
                if !name.is_empty() && !self.useless.contains(&name) {
                    self.useless.push(name);
                }
                return;
            }
        };
        self.add(Remedy { act, text, check, how });
    }

    fn add(&mut self, remedy: Remedy) {
        if !self.is_full() && !self.remedies.iter().any(|other| other.text == remedy.text) {
            self.remedies.push(remedy);
        }
    }
}

/// What a remedy brings, in most cases.
fn fits(outcome: &Outcome) -> String {
    format!("; at most {} are live and every request fits", size_up(outcome.peak_live))
}

/// Remedies by what the limit is full of. Only the first cause of its kind has an explanation.
fn need_less(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts, found: &Finding) {
    match &found.explanation {
        None if matches!(found.cause, Cause::Growth | Cause::Fragmentation) => {}
        Some(explanation) => less::by_explanation(advice, bench, facts, explanation),
        None if found.cause == Cause::RequestTooLarge => less::in_parts(advice, bench),
        None => cures::unexplained(advice, bench, found.cause == Cause::DeviceFull),
    }
}

/// Remedies for what was found.
pub fn remedies(
    bench: &Bench<'_>,
    findings: &[Finding],
    facts: &Facts,
    growths: &[Growth],
    other_processes: &[String],
) -> Advice {
    let mut advice = Advice::default();
    // What grows fills any device, any cap and any allocator, only later.
    let grows = findings.iter().any(|found| found.cause == Cause::Growth);
    let by_growth = findings.first().is_some_and(|first| first.cause == Cause::Growth);
    let by_reserving = findings.first().is_some_and(|first| first.cause == Cause::ReservedIdle);
    for found in findings {
        if advice.is_full() {
            break;
        }
        // What is requested of the host is no matter of the device.
        if facts.refused && facts.is_pinned() && found.cause != Cause::HostMemory {
            continue;
        }
        if by_growth && !matches!(found.cause, Cause::Growth | Cause::HostMemory | Cause::RequestTooLarge) {
            continue;
        }
        match found.cause {
            Cause::Growth => {
                cures::stop_growth(&mut advice, bench, growths, facts);
                need_less(&mut advice, bench, facts, found);
            }
            Cause::Fragmentation => {
                if facts.pool_free >= facts.requested {
                    cures::smaller_handles(&mut advice, bench);
                } else {
                    cures::serve_by_pool(&mut advice, bench);
                }
                need_less(&mut advice, bench, facts, found);
            }
            Cause::ReservedIdle => {
                cures::serve_by_pool(&mut advice, bench);
                cures::grow_on_demand(&mut advice, bench);
                cures::lower_own_limit(&mut advice, bench, facts);
            }
            Cause::TensorflowLimit => {
                // A limit far below what there is is the cause; one that leaves a little for others is not.
                let ample = cures::own_limit(facts).is_some_and(|(most, least)| most >= least.saturating_mul(2));
                if !grows && ample {
                    cures::raise_own_limit(&mut advice, bench, facts);
                }
                need_less(&mut advice, bench, facts, found);
                if !grows && !ample {
                    cures::raise_own_limit(&mut advice, bench, facts);
                }
                cures::serve_by_pool(&mut advice, bench);
            }
            Cause::Cap | Cause::DeviceFull if by_reserving => {}
            Cause::Cap => {
                if !grows {
                    cures::raise_cap(&mut advice, bench, facts);
                }
                need_less(&mut advice, bench, facts, found);
            }
            Cause::OtherProcess => {
                cures::stop_others(&mut advice, bench, facts, other_processes);
                need_less(&mut advice, bench, facts, found);
            }
            Cause::RequestTooLarge => need_less(&mut advice, bench, facts, found),
            Cause::FreedTooLate => cures::wait(&mut advice, bench),
            Cause::HostMemory => host::keep_less(&mut advice, bench, facts),
            Cause::DeviceFull => {
                need_less(&mut advice, bench, facts, found);
                if !grows {
                    cures::larger_device(&mut advice, bench, facts);
                }
            }
            Cause::Unknown => {}
        }
    }
    advice
}
