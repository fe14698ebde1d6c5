//! What grows: owners whose memory rises from step to step, how fast, and when the limit is reached.

use std::collections::{HashMap, HashSet};

use weir_journal::Class;
use weir_journal::text::plain;

use crate::names::{base_name, is_users};
use crate::roles::{self, Role};
use crate::survey::{BUCKETS, Owner, Piece, Survey};
use crate::trend::{Sample, Trend};
use crate::words::{several, size};

/// Samples below which growth cannot be distinguished from building up.
const FEWEST_SAMPLES: usize = 6;
/// Growth below this share of the limit is not worth a word.
const LEAST_SHARE: f64 = 0.005;
/// Without steps, a job that has freed a smaller share of its allocations than this is still building up.
const LEAST_FREED: f64 = 0.3;

/// Callers of a line that are named.
const MOST_CALLERS: usize = 2;

/// Slots for each weight up to which an optimizer is still building up: two of Adam's, and a moving average.
const MOST_SLOTS: u64 = 3;

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
    /// Whether the line is by steps; else by allocations of the job.
    pub by_step: bool,
    /// How often the line ran, by what its largest owner makes most often and keeps.
    pub runs: u64,
    /// Whether it comes in stairs, with many samples on each: something larger than a step makes it grow.
    pub in_stairs: bool,
}

impl Growth {
    /// `step`, or `run` of the line in a job without steps.
    pub fn unit(&self) -> &'static str {
        if self.by_step { "step" } else { "run" }
    }

    /// Steps or runs that it took to grow so far.
    pub fn over(&self) -> f64 {
        if self.by_step { self.grown as f64 / self.trend.slope } else { self.runs as f64 }
    }

    /// Bytes a step, or a run.
    pub fn slope(&self) -> f64 {
        if self.by_step { self.trend.slope } else { self.grown as f64 / (self.runs as f64).max(1.0) }
    }

    /// In words: where it grows, how fast, and by how much so far.
    pub fn text(&self, survey: &Survey) -> String {
        let slope = size(self.slope() as u64);
        let over = several(self.over().round() as u64, self.unit());
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

impl Growth {
    /// The user's lines that call the one of [`Growth::place`], innermost first: a function's result is kept by its caller.
    pub fn callers(&self, survey: &Survey) -> Vec<String> {
        let Some(owner) = self.owners.first().and_then(|place| survey.owners.get(*place)) else { return Vec::new() };
        let python = &owner.who.python;
        let users = python.lines.iter().skip(python.users.map_or(usize::MAX, |own| own + 1));
        let users = users.filter(|line| is_users(&line.file)).take(MOST_CALLERS);
        users.map(|line| plain(&format!("{}:{}", base_name(&line.file), line.line)).into_owned()).collect()
    }
}

/// When memory is full if everything grows on and the rest stays: the step, or the run of the line that grows fastest.
pub fn full_at(survey: &Survey, growths: &[Growth], room: u64) -> Option<f64> {
    let first = growths.first()?;
    let speed: f64 = growths.iter().map(|growth| growth.trend.slope).sum();
    if speed <= 0.0 {
        return None;
    }
    if first.by_step {
        return Some(survey.steps.last as f64 + room as f64 / speed);
    }
    // All grow in the same time, and this one has its share of it.
    let share = room as f64 * first.trend.slope / speed;
    Some(first.runs as f64 + share / first.slope().max(1.0))
}

/// What grows on a device, fastest first. `limit` is what the job may have.
pub fn growths(survey: &Survey, device: u8, limit: u64) -> Vec<Growth> {
    let by_step = survey.steps.seen > 0;
    // Where TensorFlow's own allocator is in charge, tensors grow and regions only follow.
    let tensors = survey.of_class(device, Class::Tensor) > 0;
    let counts = |class: Class| if tensors { class == Class::Tensor } else { crate::is_held(class) };
    let own = || survey.owners.iter().filter(|owner| owner.device == device && counts(owner.class));
    let (made, freed) = own().fold((0, 0), |(made, freed), owner| (made + owner.allocs, freed + owner.frees));
    if !by_step && (freed as f64) < LEAST_FREED * made as f64 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut lines: HashMap<String, (Vec<usize>, Vec<usize>)> = HashMap::new();
    for (place, owner) in survey.owners.iter().enumerate() {
        if owner.device != device || owner.bytes == 0 || !counts(owner.class) {
            continue;
        }
        // Batches that are prefetched fill a buffer, and no line requests them.
        if owner.ruling.0 == Role::Inputs && owner.who.line().is_none() {
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
    found.retain(|growth| by_step || goes_on(survey, growth));
    found.sort_by(|a, b| b.trend.slope.total_cmp(&a.trend.slope));
    let of = |growth: &Growth, role: Role| {
        let largest = growth.owners.first().and_then(|place| survey.owners.get(*place));
        largest.is_some_and(|owner| owner.ruling.0 == role)
    };
    // Several models side by side get their slots one after another, and no more than these: that has an end.
    let bytes = |role: Role| -> u64 { own().filter(|owner| owner.ruling.0 == role).map(|owner| owner.bytes).sum() };
    let bounded = bytes(Role::Optimizer) <= bytes(Role::Parameters).saturating_mul(MOST_SLOTS);
    if bounded && !found.iter().any(|growth| of(growth, Role::Parameters)) {
        let copies = |growth: &Growth| {
            let owners = growth.owners.iter().filter_map(|place| survey.owners.get(*place));
            owners.into_iter().any(|owner| owner.ruling.1 == roles::COPY)
        };
        found.retain(|growth| !of(growth, Role::Optimizer) || copies(growth));
    }
    // Slots come with the weights that they are for: who keeps the model keeps both.
    if let Some(fastest) = found.first().filter(|growth| of(growth, Role::Optimizer)).map(|growth| growth.trend.slope)
        && let Some(place) =
            found.iter().position(|growth| of(growth, Role::Parameters) && growth.trend.slope * 6.0 >= fastest)
    {
        found[..=place].rotate_right(1);
    }
    found
}

/// Turns in which what grows must have been made, in a job that computes derivatives.
const FEWEST_TURNS: usize = 6;

/// Whether what rises in a job without steps does so from turn to turn, and not within the first of them.
fn goes_on(survey: &Survey, growth: &Growth) -> bool {
    let owners: Vec<&Owner> = growth.owners.iter().filter_map(|place| survey.owners.get(*place)).collect();
    // Names of a graph's operations are paths; these jobs have steps where TensorFlow reports them. What is freed now and
    // then was replaced, in a turn before; intermediate results are few beside what is kept.
    let goes = |owner: &&Owner| owner.who.op_name().contains('/') || owner.frees * 4 >= owner.allocs;
    if owners.first().is_some_and(goes) {
        return true;
    }
    if survey.steps.turns == 0 {
        // A loop inside one step keeps all that it computes for the backward pass, and brings no new input.
        return brought(survey, &owners) * 2 >= owners.iter().map(|owner| owner.blocks).sum();
    }
    let pieces = || owners.iter().flat_map(|owner| &owner.pieces).filter(|piece| piece.live > 0);
    let turns: HashSet<u32> = pieces().flat_map(|piece| [piece.first_turn, piece.last_turn]).collect();
    let often = pieces().any(|piece| piece.live as usize >= FEWEST_TURNS && piece.last_turn > piece.first_turn + 4);
    turns.len() >= FEWEST_TURNS || often
}

/// How often a line ran: it may allocate several blocks each time, of different sizes or shapes.
fn runs_of(owner: &Owner) -> u64 {
    let kept = owner.pieces.iter().filter(|piece| piece.live > 0).map(|piece| piece.made.max(piece.live)).max();
    kept.unwrap_or_else(|| owner.allocs.max(owner.blocks))
}

/// How often an input came while these grew: what came before is no part of the loop.
fn brought(survey: &Survey, growing: &[&Owner]) -> u64 {
    let pieces = || growing.iter().flat_map(|owner| &owner.pieces);
    let (first, last) =
        pieces().fold((u64::MAX, 0), |(first, last), piece| (first.min(piece.first), last.max(piece.last)));
    let middle = first.min(last) + last.saturating_sub(first) / 2;
    let device = growing.first().map(|owner| owner.device);
    let all = survey.owners.iter().filter(|owner| Some(owner.device) == device).flat_map(|owner| &owner.pieces);
    let from_host = |piece: &&Piece| piece.op.region == "dynamic" || roles::is_input(&piece.op.name);
    let inputs = all.filter(|piece| piece.last >= middle && (from_host(piece) || roles::is_maker(&piece.op.name)));
    inputs.map(|piece| piece.made).max().unwrap_or(0)
}

/// The line through samples that rise all the time, by a share of the limit that is worth a word.
pub(crate) fn steady(samples: &[Sample], limit: u64) -> Option<Trend> {
    let (first, last) = (samples.first()?.bytes, samples.last()?.bytes);
    let trend = Trend::through(samples).filter(Trend::grows)?;
    let enough = samples.len() >= FEWEST_SAMPLES && last - first >= LEAST_SHARE * limit as f64;
    let ends: Vec<f64> =
        (0..=PARTS).filter_map(|part| samples.get((samples.len() - 1) * part / PARTS)).map(|s| s.bytes).collect();
    let steady = ends.windows(2).all(|pair| pair[1] > pair[0]);
    (enough && steady).then_some(trend)
}

/// Whether owners grow, together.
fn grows(survey: &Survey, mut owners: Vec<usize>, limit: u64, by_step: bool) -> Option<Growth> {
    let of = |place: &usize| survey.owners.get(*place);
    let mut floor = [0; BUCKETS];
    for owner in owners.iter().filter_map(of) {
        floor.iter_mut().zip(owner.floor).for_each(|(sum, bytes)| *sum += bytes);
    }
    let samples = survey.samples_at_work(&floor);
    let trend = steady(&samples, limit)?;
    let rises = samples.windows(2).filter(|pair| pair[1].bytes > pair[0].bytes).count();
    owners.sort_by_key(|place| std::cmp::Reverse(of(place).map_or(0, |owner| owner.bytes)));
    // What the line says was there when the run began did not grow; the rest of what is there now did. By a clock, what was
    // there is known.
    let began = if by_step { survey.marks.first().map_or(0.0, |mark| mark.step as f64) } else { 0.0 };
    let by_line = (trend.now - trend.slope * (trend.last - began)).max(0.0);
    let before = if by_step { by_line } else { floor[0] as f64 };
    let held: u64 = owners.iter().filter_map(of).map(|owner| owner.bytes).sum();
    // A floor is the least of its bucket: by as much as two buckets bring, what is there may be above it. What is more
    // than that is temporary.
    let bucket = trend.slope * (trend.last - began) / BUCKETS as f64;
    let grown = (held as f64 - before).clamp(trend.now - before, trend.now - before + 2.0 * bucket);
    let runs = owners.first().and_then(of).map_or(0, runs_of);
    Some(Growth { owners, trend, grown: grown as u64, by_step, runs, in_stairs: rises * 3 < samples.len() })
}
