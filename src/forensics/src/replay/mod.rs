//! "Would it have fit?": the requests of a recorded job, once more, through the pool that weir puts into jobs, or
//! through models of the allocators that jobs bring along, on a simulated device with any cap. Touches nothing real.
//!
//! The pool is the real one ([`weir_pool::Pool`]); the device is simulated ([`weir_pool::sim::SimulatedDevice`]): work finishes
//! only when somebody synchronises, the most pessimistic device there is. What the job does is taken as recorded: a
//! job that would act differently with more memory is not foreseen.

mod bfc;
mod intake;
mod requests;
mod rest;
mod torch;
mod weir;
mod what_if;

use std::fmt;
use std::str::FromStr;

pub use intake::{Excerpt, View};
pub use requests::{MOST_STEPS, Requester, Requests};
use requests::{Step, What};
pub use what_if::{Change, WhatIf};

/// Which allocator gets the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// weir's pool.
    Weir,
    /// TensorFlow's best-fit-with-coalescing allocator, which takes all it may have at the start.
    Bfc,
    /// The same with `allow_growth`.
    BfcGrowth,
    /// PyTorch's caching allocator.
    Torch,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::Weir, Self::Bfc, Self::BfcGrowth, Self::Torch];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::Bfc => "bfc",
            Self::BfcGrowth => "bfc-growth",
            Self::Torch => "torch",
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| format!("{text:?} is not one of weir, bfc, bfc-growth, torch"))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The allocator.
    pub policy: Policy,
    /// Device memory that may be held at most.
    pub cap: u64,
    /// For TensorFlow's allocator: the most that its regions may be. Without growth it takes that at once, and all of it
    /// counts as held. None: as much as it may have, of which without growth what it ever touches counts.
    pub region: Option<u64>,
    /// For weir's pool: its own settings; sizes of handles, remapping, meshing.
    pub pool: weir_pool::Config,
}

impl Settings {
    /// The defaults of a policy under this cap.
    pub fn new(policy: Policy, cap: u64) -> Self {
        Self { policy, cap, region: None, pool: weir_pool::Config::new(cap) }
    }

    fn with_cap(&self, cap: u64) -> Self {
        Self { cap, ..self.clone() }
    }
}

/// The request that did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Refusal {
    /// How many allocations had been granted before it.
    pub after: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// Bytes that were live then.
    pub live: u64,
    /// Bytes of the device that were held then.
    pub held: u64,
    /// Whether it is the one that the recorded job did not get either.
    pub recorded: bool,
}

/// How a replay went.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Whether every request was granted.
    pub fits: bool,
    /// The first one that was not; the replay ends there.
    pub refusal: Option<Refusal>,
    /// Requests granted.
    pub allocations: u64,
    /// Most bytes live at the same time.
    pub peak_live: u64,
    /// Most bytes of the device held at the same time.
    pub peak_held: u64,
    /// Share of `peak_held` beyond `peak_live`.
    pub fragmentation: f64,
    /// Calls into the driver.
    pub driver_calls: u64,
    /// What these would take, by a table of published costs of one card; for comparison only.
    pub driver_micros: f64,
    /// Granules moved to where they were needed (weir).
    pub remaps: u64,
    /// Granules freed by sharing (weir).
    pub meshes: u64,
    /// Synchronisations that the allocator made by itself.
    pub self_syncs: u64,
}

/// Calls into the driver that a model makes.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    allocations: u64,
    frees: u64,
    syncs: u64,
}

/// An allocator on a device with a cap.
trait Allocator {
    /// Serves a request under this number; `false` if it does not fit.
    fn request(&mut self, block: u32, bytes: u64, stream: u16) -> bool;
    /// Whether what the job requests from the driver goes past it.
    fn is_passed_by(&self) -> bool {
        false
    }
    /// Takes the block with this number back.
    fn free(&mut self, block: u32, stream: u16);
    /// The job waited for the device.
    fn sync(&mut self) {}
    /// Takes memory past the allocator.
    fn hold(&mut self, bytes: u64) -> bool;
    /// Gives such memory back.
    fn unhold(&mut self, bytes: u64);
    /// Device memory held now.
    fn held(&self) -> u64;
    /// Adds its own figures.
    fn sum_up(&self, outcome: &mut Outcome);
}

/// Receives now and then how many steps are done, and of how many; they may come several times.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Replays requests.
pub fn replay(requests: &Requests, settings: &Settings, progress: Progress<'_>) -> Outcome {
    serve(requests, requests.steps(), settings, progress)
}

/// Replays requests as they would have been.
pub fn replay_if(requests: &Requests, what_if: &WhatIf, settings: &Settings) -> Outcome {
    serve(requests, what_if.steps(requests), settings, &mut |_, _| {})
}

fn serve(
    requests: &Requests,
    steps: impl Iterator<Item = Step>,
    settings: &Settings,
    progress: Progress<'_>,
) -> Outcome {
    let (cap, blocks) = (settings.cap, requests.blocks());
    match settings.policy {
        Policy::Weir => weir::Pooled::new(settings, blocks)
            .map_or_else(|_| Outcome::default(), |allocator| follow(allocator, requests, steps, progress)),
        Policy::Bfc => follow(bfc::Bfc::new(cap, false, settings.region, blocks), requests, steps, progress),
        Policy::BfcGrowth => follow(bfc::Bfc::new(cap, true, settings.region, blocks), requests, steps, progress),
        Policy::Torch => follow(torch::Torch::new(cap, blocks), requests, steps, progress),
    }
}

/// Whether every request is granted.
pub fn fits(requests: &Requests, settings: &Settings) -> bool {
    replay(requests, settings, &mut |_, _| {}).fits
}

fn follow(
    mut allocator: impl Allocator,
    requests: &Requests,
    steps: impl Iterator<Item = Step>,
    progress: Progress<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let (mut live, mut sizes) = (0_u64, vec![(0_u64, false); requests.blocks()]);
    let total = requests.len() as u64;
    for (done, step) in steps.enumerate() {
        if done % 65536 == 0 {
            progress(done as u64, total);
        }
        let place = sizes.get_mut(step.block as usize);
        let granted = match step.what {
            What::Refused if requests.refused_block.is_none() => {
                // A number beyond all others: it is freed at once, for nobody knows for how long it would stay.
                let number = requests.blocks() as u32;
                let passed = requests.refused_beside && allocator.is_passed_by();
                let granted = if passed {
                    allocator.hold(step.bytes)
                } else {
                    allocator.request(number, step.bytes, step.stream)
                };
                if granted {
                    outcome.peak_live = outcome.peak_live.max(live + step.bytes);
                    outcome.peak_held = outcome.peak_held.max(allocator.held());
                    if passed {
                        allocator.unhold(step.bytes);
                    } else {
                        allocator.free(number, step.stream);
                    }
                }
                granted
            }
            What::Request | What::Beside | What::Hold | What::Refused => {
                let beside = step.what == What::Beside || (step.what == What::Refused && requests.refused_beside);
                let passed = beside && allocator.is_passed_by();
                let held = passed || step.what == What::Hold;
                let granted = if held {
                    allocator.hold(step.bytes)
                } else {
                    allocator.request(step.block, step.bytes, step.stream)
                };
                if granted {
                    live += step.bytes;
                    outcome.allocations += 1;
                    if let Some(place) = place {
                        *place = (step.bytes, held);
                    }
                }
                granted
            }
            What::Free => {
                let (bytes, held) = place.map_or((0, false), std::mem::take);
                live -= bytes;
                if held {
                    allocator.unhold(bytes);
                } else {
                    allocator.free(step.block, step.stream);
                }
                true
            }
            What::Sync | What::Step => {
                allocator.sync();
                true
            }
            What::Nothing => true,
        };
        outcome.peak_live = outcome.peak_live.max(live);
        outcome.peak_held = outcome.peak_held.max(allocator.held());
        if !granted {
            outcome.refusal = Some(Refusal {
                after: outcome.allocations,
                bytes: step.bytes,
                live,
                held: allocator.held(),
                recorded: step.what == What::Refused,
            });
            break;
        }
    }
    progress(total, total);
    outcome.fits = outcome.refusal.is_none();
    if outcome.peak_held > 0 {
        outcome.fragmentation = outcome.peak_held.saturating_sub(outcome.peak_live) as f64 / outcome.peak_held as f64;
    }
    allocator.sum_up(&mut outcome);
    outcome
}

/// Steps in which a cap is looked for.
pub const CAP_STEP: u64 = 2 << 20;

/// The smallest cap under which every request is granted, and how it goes there; `None` if none will do.
///
/// To one part in 1024, or to 2 MiB. More memory can, rarely, make a job fail that fits into less; a cap that this
/// finds was tried.
pub fn smallest_cap(requests: &Requests, settings: &Settings, progress: Progress<'_>) -> Option<(u64, Outcome)> {
    smallest_cap_to(1024, requests, settings, progress)
}

/// The same to one part in `parts`: less to try.
pub fn smallest_cap_to(
    parts: u64,
    requests: &Requests,
    settings: &Settings,
    progress: Progress<'_>,
) -> Option<(u64, Outcome)> {
    let step = (requests.peak_live / parts.max(1)).next_multiple_of(CAP_STEP).max(CAP_STEP);
    let mut try_cap = |cap: u64| {
        let outcome = replay(requests, &settings.with_cap(cap), &mut *progress);
        outcome.fits.then_some((cap, outcome))
    };
    // Below the peak nothing fits; with all the memory that could be wanted, the allocator shows what it likes to hold.
    let floor = requests.peak_live.next_multiple_of(CAP_STEP).saturating_sub(step);
    let (_, roomy) = try_cap(requests.peak_live.saturating_mul(4).max(1 << 30))?;
    let mut best = None;
    let mut high = roomy.peak_held.next_multiple_of(CAP_STEP).max(floor + step);
    while best.is_none() && high < requests.peak_live.saturating_mul(8).max(1 << 36) {
        best = try_cap(high);
        high += if best.is_none() { (high / 16).next_multiple_of(CAP_STEP) } else { 0 };
    }
    let mut best = best?;
    let mut low = floor;
    while best.0 - low > step {
        let middle = low + ((best.0 - low) / 2).next_multiple_of(CAP_STEP);
        if middle >= best.0 {
            break;
        }
        match try_cap(middle) {
            Some(fitting) => best = fitting,
            None => low = middle,
        }
    }
    Some(best)
}
