//! What grows: owners whose memory rises from step to step, how fast, and when the limit is reached.

use std::collections::HashMap;

use weir_journal::{Class, Kind};

use crate::survey::{BUCKETS, Survey};
use crate::trend::Trend;
use crate::words::{duration, several, size};

/// Samples below which growth is not told from building up.
const FEWEST_SAMPLES: usize = 6;
/// Growth below this share of the limit is not worth a word.
const LEAST_SHARE: f64 = 0.005;
/// Without steps, a job that has freed a smaller share of its allocations than this is still building up.
const LEAST_FREED: f64 = 0.3;

/// Parts of the run in each of which what grows must rise: one jump and then nothing is no growth, however well a line
/// fits it.
const PARTS: usize = 5;

/// What grows at one place: all owners of one line that grow, alone or only together as new names for the same thing do.
///
/// Slope, bytes so far and the step at which a limit is reached are one computation: a straight line through the floor
/// of these owners, followed back to where it began and forward to the limit.
#[derive(Clone, Debug)]
pub struct Growth {
    /// Their places among the survey's owners, the largest first.
    pub owners: Vec<usize>,
    /// The line through them.
    pub trend: Trend,
    /// Bytes that came since the run began.
    pub grown: u64,
    /// Whether the line is by steps; else by seconds.
    pub by_step: bool,
    /// Whether it comes in stairs, with many samples on each: something larger than a step makes it grow.
    pub in_stairs: bool,
}

impl Growth {
    /// `step` or `second`.
    pub fn unit(&self) -> &'static str {
        if self.by_step { "step" } else { "second" }
    }

    /// Steps or seconds that it took to grow so far.
    pub fn over(&self) -> f64 {
        self.grown as f64 / self.trend.slope
    }

    /// In words: where it grows, how fast, and by how much so far.
    pub fn text(&self, survey: &Survey) -> String {
        let slope = size(self.trend.slope as u64);
        let over = if self.by_step { several(self.over().round() as u64, "step") } else { duration(self.over()) };
        format!("{} grows by {slope} a {}, {} in {over}", self.place(survey), self.unit(), size(self.grown))
    }

    /// The line, else the operation.
    pub fn place(&self, survey: &Survey) -> String {
        let Some(owner) = self.owners.first().and_then(|place| survey.owners.get(*place)) else { return String::new() };
        match (owner.who.place(), owner.who.op_name()) {
            (place, "") if place.is_empty() => "memory of no known operation".into(),
            (place, op) if place.is_empty() => op.to_owned(),
            (place, _) => place,
        }
    }
}

/// When memory is full if everything grows on and the rest stays: the step, or the second of the run.
pub fn full_at(survey: &Survey, growths: &[Growth], room: u64) -> Option<f64> {
    let speed: f64 = growths.iter().map(|growth| growth.trend.slope).sum();
    let by_step = growths.first()?.by_step;
    let now = if by_step { survey.steps.last as f64 } else { survey.marks.last().map_or(0.0, |mark| mark.seconds) };
    (speed > 0.0).then(|| now + room as f64 / speed)
}

/// What grows on a device, fastest first. `limit` is what the job may have.
pub fn growths(survey: &Survey, device: u8, limit: u64) -> Vec<Growth> {
    let by_step = survey.steps.seen > 0;
    let count = |kind: Kind| survey.kinds[kind as usize] as f64;
    if !by_step && count(Kind::Free) < LEAST_FREED * count(Kind::Alloc) {
        return Vec::new();
    }
    // Where TensorFlow's own allocator is in charge, tensors grow and regions only follow.
    let tensors = survey.of_class(device, Class::Tensor) > 0;
    let counts = |class: Class| if tensors { class == Class::Tensor } else { crate::is_held(class) };
    let mut found = Vec::new();
    let mut lines: HashMap<String, (Vec<usize>, Vec<usize>)> = HashMap::new();
    for (place, owner) in survey.owners.iter().enumerate() {
        if owner.device != device || owner.bytes == 0 || !counts(owner.class) {
            continue;
        }
        let alone = grows(survey, vec![place], limit, by_step);
        match owner.who.line() {
            Some(line) => {
                let (growing, others) = lines.entry(format!("{}:{}", line.file, line.line)).or_default();
                if alone.is_some() { growing } else { others }.push(place);
            }
            None => found.extend(alone),
        }
    }
    for (growing, others) in lines.into_values() {
        let owners = if growing.is_empty() && others.len() > 1 { others } else { growing };
        found.extend(grows(survey, owners, limit, by_step));
    }
    found.sort_by(|a, b| b.trend.slope.total_cmp(&a.trend.slope));
    found
}

/// Whether owners grow, together.
fn grows(survey: &Survey, mut owners: Vec<usize>, limit: u64, by_step: bool) -> Option<Growth> {
    let of = |place: &usize| survey.owners.get(*place);
    let mut floor = [0; BUCKETS];
    for owner in owners.iter().filter_map(of) {
        floor.iter_mut().zip(owner.floor).for_each(|(sum, bytes)| *sum += bytes);
    }
    let samples = survey.samples(&floor);
    let (first, last) = (samples.first()?.bytes, samples.last()?.bytes);
    let trend = Trend::through(&samples).filter(Trend::grows)?;
    let enough = samples.len() >= FEWEST_SAMPLES && last - first >= LEAST_SHARE * limit as f64;
    let ends: Vec<f64> =
        (0..=PARTS).filter_map(|part| samples.get((samples.len() - 1) * part / PARTS)).map(|s| s.bytes).collect();
    let steady = ends.windows(2).all(|pair| pair[1] > pair[0]);
    if !enough || !steady {
        return None;
    }
    let rises = samples.windows(2).filter(|pair| pair[1].bytes > pair[0].bytes).count();
    owners.sort_by_key(|place| std::cmp::Reverse(of(place).map_or(0, |owner| owner.bytes)));
    // What the line says was there when the run began did not grow; the rest of what is there now did.
    let began = survey.marks.first().map_or(0.0, |mark| if by_step { mark.step as f64 } else { mark.seconds });
    let before = (trend.now - trend.slope * (trend.last - began)).max(0.0);
    let held: u64 = owners.iter().filter_map(of).map(|owner| owner.bytes).sum();
    // A floor is the least of its bucket: by as much as two buckets bring, what is there may be above it. What is more
    // than that is temporary.
    let bucket = trend.slope * (trend.last - began) / BUCKETS as f64;
    let grown = (held as f64 - before).clamp(trend.now - before, trend.now - before + 2.0 * bucket);
    Some(Growth { owners, trend, grown: grown as u64, by_step, in_stairs: rises * 3 < samples.len() })
}
