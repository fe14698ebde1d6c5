//! What grows: owners whose memory rises from step to step, how fast, and when the limit is reached.

use weir_journal::{Class, Kind};

use crate::growth::Trend;
use crate::survey::Survey;

/// Samples below which growth is not told from building up.
const FEWEST_SAMPLES: usize = 6;
/// Growth below this share of the limit is not worth a word.
const LEAST_SHARE: f64 = 0.005;
/// Without steps, a job that has freed a smaller share of its allocations than this is still building up.
const LEAST_FREED: f64 = 0.3;

/// An owner that grows.
#[derive(Clone, Copy, Debug)]
pub struct Leak {
    /// Its place among the survey's owners.
    pub owner: usize,
    /// The line through it.
    pub trend: Trend,
    /// Bytes that came since the first sample.
    pub grown: u64,
    /// Whether the line is by steps; else by seconds.
    pub by_step: bool,
}

/// Owners on a device that grow, fastest first. `limit` is what the job may have.
pub fn leaks(survey: &Survey, device: u8, limit: u64) -> Vec<Leak> {
    let by_step = survey.steps.seen > 0;
    let count = |kind: Kind| survey.kinds[kind as usize] as f64;
    if !by_step && count(Kind::Free) < LEAST_FREED * count(Kind::Alloc) {
        return Vec::new();
    }
    // Where TensorFlow's own allocator is in charge, tensors grow and regions only follow.
    let tensors = survey.of_class(device, Class::Tensor) > 0;
    let counts = |class: Class| if tensors { class == Class::Tensor } else { crate::is_held(class) };
    let mut found: Vec<Leak> = survey
        .owners
        .iter()
        .enumerate()
        .filter(|(_, owner)| owner.device == device && owner.bytes > 0 && counts(owner.class))
        .filter_map(|(place, owner)| {
            let samples = survey.samples(&owner.floor);
            let (first, last) = (samples.first()?.bytes, samples.last()?.bytes);
            let trend = Trend::through(&samples).filter(Trend::grows)?;
            let enough = samples.len() >= FEWEST_SAMPLES && last - first >= LEAST_SHARE * limit as f64;
            // One jump and then nothing is no growth, however well a line fits it.
            let rises = samples.windows(2).filter(|pair| pair[1].bytes > pair[0].bytes).count();
            let steady = rises * 3 >= samples.len();
            (enough && steady).then_some(Leak { owner: place, trend, grown: (last - first) as u64, by_step })
        })
        .collect();
    found.sort_by(|a, b| b.trend.slope.total_cmp(&a.trend.slope));
    found
}
