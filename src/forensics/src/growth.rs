//! What grows: owners whose memory rises from step to step, how fast, and when the limit is reached.

use std::collections::HashMap;

use weir_journal::{Class, Kind};

use crate::survey::{BUCKETS, Survey};
use crate::trend::Trend;

/// Samples below which growth is not told from building up.
const FEWEST_SAMPLES: usize = 6;
/// Growth below this share of the limit is not worth a word.
const LEAST_SHARE: f64 = 0.005;
/// Without steps, a job that has freed a smaller share of its allocations than this is still building up.
const LEAST_FREED: f64 = 0.3;

/// Parts of the run in each of which what grows must rise: one jump and then nothing is no growth, however well a line
/// fits it.
const PARTS: usize = 5;

/// Owners that grow: one, or several on one line that grow only together, as new names for the same thing do.
#[derive(Clone, Debug)]
pub struct Growth {
    /// Their places among the survey's owners, the largest first.
    pub owners: Vec<usize>,
    /// The line through them.
    pub trend: Trend,
    /// Bytes that came since the first sample.
    pub grown: u64,
    /// Whether the line is by steps; else by seconds.
    pub by_step: bool,
    /// Whether it comes in stairs, with many samples on each: something larger than a step makes it grow.
    pub in_stairs: bool,
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
    let grows = |owners: Vec<usize>, floor: &[i64; BUCKETS]| {
        let samples = survey.samples(floor);
        let (first, last) = (samples.first()?.bytes, samples.last()?.bytes);
        let trend = Trend::through(&samples).filter(Trend::grows)?;
        let enough = samples.len() >= FEWEST_SAMPLES && last - first >= LEAST_SHARE * limit as f64;
        let ends: Vec<f64> =
            (0..=PARTS).filter_map(|part| samples.get((samples.len() - 1) * part / PARTS)).map(|s| s.bytes).collect();
        let steady = ends.windows(2).all(|pair| pair[1] > pair[0]);
        let rises = samples.windows(2).filter(|pair| pair[1].bytes > pair[0].bytes).count();
        let in_stairs = rises * 3 < samples.len();
        (enough && steady).then_some(Growth { owners, trend, grown: (last - first) as u64, by_step, in_stairs })
    };
    let mut found = Vec::new();
    let mut lines: HashMap<String, Vec<usize>> = HashMap::new();
    for (place, owner) in survey.owners.iter().enumerate() {
        if owner.device != device || owner.bytes == 0 || !counts(owner.class) {
            continue;
        }
        match (grows(vec![place], &owner.floor), owner.who.line()) {
            (Some(growth), _) => found.push(growth),
            (None, Some(line)) => lines.entry(format!("{}:{}", line.file, line.line)).or_default().push(place),
            (None, None) => {}
        }
    }
    for mut owners in lines.into_values().filter(|owners| owners.len() > 1) {
        let of = |place: &usize| survey.owners.get(*place);
        let mut floor = [0; BUCKETS];
        for owner in owners.iter().filter_map(of) {
            floor.iter_mut().zip(owner.floor).for_each(|(sum, bytes)| *sum += bytes);
        }
        owners.sort_by_key(|place| std::cmp::Reverse(of(place).map_or(0, |owner| owner.bytes)));
        found.extend(grows(owners, &floor));
    }
    found.sort_by(|a, b| b.trend.slope.total_cmp(&a.trend.slope));
    found
}
