//! What to do about it. Each remedy says how it was checked: by replaying the recorded requests through the real pool,
//! by the numbers of the moment, or not at all.

use std::cell::OnceCell;
use std::collections::HashMap;

use weir_journal::{Attribution, Class};

use crate::Run;
use crate::holders::Share;
use crate::leaks::Leak;
use crate::replay::{Policy, Requests, Settings, fits, replay, smallest_cap};
use crate::roles::Role;
use crate::survey::{Owner, Survey};
use crate::verdict::{Cause, Facts, Finding};
use crate::words::{count, duration, size};

/// How a remedy was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The recorded requests were replayed, and it helps.
    Replayed,
    /// The numbers of the moment say that it helps.
    Counted,
    /// It was not checked.
    Unchecked,
}

impl Check {
    /// In brackets behind the remedy.
    pub fn word(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Counted => "by the numbers",
            Self::Unchecked => "not checked",
        }
    }
}

/// A remedy.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Remedy {
    /// What to do, and what it brings.
    pub text: String,
    /// How that was checked.
    pub check: Check,
}

/// What remedies are looked for with.
#[derive(Debug)]
pub struct Bench<'run> {
    /// The run.
    pub run: &'run Run,
    /// Its survey.
    pub survey: &'run Survey,
    /// The device.
    pub device: u8,
    /// The recorded requests, read when the first remedy wants them; none where they are not to be replayed.
    requests: OnceCell<Option<Requests>>,
}

impl<'run> Bench<'run> {
    /// A bench; without `replay`, nothing is replayed.
    pub fn new(run: &'run Run, survey: &'run Survey, device: u8, replay: bool) -> Self {
        let requests = if replay { OnceCell::new() } else { OnceCell::from(None) };
        Self { run, survey, device, requests }
    }

    fn requests(&self) -> Option<&Requests> {
        let load = || {
            let found = Requests::from_journal(&self.run.name(), self.run.reader(), Some(self.device)).ok();
            found.filter(|requests| !requests.is_empty())
        };
        self.requests.get_or_init(load).as_ref()
    }
}

/// Remedies at most: what does not fit on a screen is not read.
const MOST: usize = 4;

/// Remedies for what was found, most promising first.
pub fn remedies(
    bench: &Bench<'_>,
    findings: &[Finding],
    facts: &Facts,
    leaks: &[Leak],
    shares: &[Share],
    doubles: u64,
    neighbours: &[String],
) -> Vec<Remedy> {
    let mut all: Vec<Remedy> = Vec::new();
    for found in findings {
        match found.cause {
            Cause::Leak => all.extend(leaks.iter().take(2).map(|leak| stop_growth(bench, leak, facts))),
            Cause::Fragmentation if facts.pool_free > 0 => all.extend(finer(bench, facts)),
            Cause::Fragmentation | Cause::Hoarding => all.push(pool(bench, facts)),
            // What grows fills any cap.
            Cause::Cap if findings.first().is_some_and(|first| first.cause == Cause::Leak) => {}
            Cause::Cap => all.extend(raise_cap(bench, facts)),
            Cause::Neighbour => all.push(stop_others(facts, neighbours)),
            Cause::RequestTooLarge => all.push(split(facts)),
            Cause::Deferred => {
                all.push(unchecked("wait for the device before the large request, or set WEIR_ON_CAP=wait:30s".into()));
            }
            Cause::HostMemory => {
                let place = facts.host_by.as_ref().map(|(place, _)| format!("look at {place}: "));
                let advice = "keep less in host memory: smaller shuffle and prefetch buffers, results reduced before they \
                              are copied";
                all.push(unchecked(format!("{}{advice}", place.unwrap_or_default())));
            }
            Cause::Demand => all.extend(need_less(bench, facts, shares)),
            Cause::Unknown => {}
        }
    }
    if doubles > 0 && facts.live > 0 && doubles * 10 >= facts.live {
        let text = format!("{} are float64: as float32 they take {} less", size(doubles), size(doubles / 2));
        all.push(Remedy { text, check: Check::Counted });
    }
    let mut kept: Vec<Remedy> = Vec::new();
    for remedy in all {
        if !kept.iter().any(|other| other.text == remedy.text) {
            kept.push(remedy);
        }
    }
    kept.truncate(MOST);
    kept
}

fn unchecked(text: String) -> Remedy {
    Remedy { text, check: Check::Unchecked }
}

/// In words: where it grows and how fast.
pub fn growing(survey: &Survey, leak: &Leak) -> String {
    let Some(owner) = survey.owners.get(leak.owner) else { return String::new() };
    let place = match (owner.who.place(), owner.who.op_name()) {
        (place, "") if place.is_empty() => "memory of no known operation".into(),
        (place, op) if place.is_empty() => op.to_owned(),
        (place, _) => place,
    };
    let unit = if leak.by_step { "step" } else { "second" };
    format!("{place} grows by {} a {unit}, {} so far", size(leak.trend.slope as u64), size(leak.grown))
}

fn stop_growth(bench: &Bench<'_>, leak: &Leak, facts: &Facts) -> Remedy {
    let (owner, limit) = (bench.survey.owners.get(leak.owner), facts.limit());
    let place = owner.map(|owner| owner.who.place()).filter(|place| !place.is_empty());
    let place = place.or_else(|| owner.map(|owner| owner.who.op_name().to_owned())).unwrap_or_default();
    let unit = if leak.by_step { "step" } else { "second" };
    let held = owner.map_or(0, |owner| owner.blocks);
    // Alone, from nothing to the limit: how long the same job would last once more.
    let again = limit as f64 / leak.trend.slope.max(1.0);
    let again = if leak.by_step { format!("{} steps", count(again as u64)) } else { duration(again) };
    let slope = size(leak.trend.slope as u64);
    let kept = format!("look at {place}: +{slope} a {unit}, {} blocks kept", count(held));
    let kept = format!("{kept}, {} are full after about {again}", size(limit));
    match owner.filter(|_| leak.by_step).and_then(|owner| peak_without(bench, owner, facts)) {
        Some(peak) => Remedy {
            text: format!("{kept}; given back each step, at most {} are live and every request fits", size(peak)),
            check: Check::Replayed,
        },
        None => Remedy { text: kept, check: Check::Counted },
    }
}

/// Most bytes live if the job had kept nothing of an owner's beyond a step; none if that would not have been enough.
fn peak_without(bench: &Bench<'_>, owner: &Owner, facts: &Facts) -> Option<u64> {
    bench.requests()?;
    let mut known = HashMap::new();
    let same = |by: Attribution| {
        let who = bench.run.who(by);
        who.op_name() == owner.who.op_name() && who.line() == owner.who.line()
    };
    let released = |by: Attribution| *known.entry((by.op, by.python)).or_insert_with(|| same(by));
    let cured = Requests::if_released(&bench.run.name(), bench.run.reader(), Some(bench.device), released).ok()?;
    let room = facts.limit().saturating_sub(facts.others.max(beside(facts)));
    let outcome = replay(&cured, &Settings::new(Policy::Weir, room), &mut |_, _| {});
    outcome.fits.then_some(outcome.peak_live)
}

fn pool(bench: &Bench<'_>, facts: &Facts) -> Remedy {
    let limit = facts.limit().saturating_sub(facts.others);
    let text = "let weir's pool serve every tensor: WEIR_POOL=on WEIR_TF_ALLOCATOR=pool";
    let Some(requests) = bench.requests() else { return unchecked(text.into()) };
    if fits(requests, &Settings::new(Policy::Weir, limit)) {
        return Remedy { text: format!("{text}; every request then fits"), check: Check::Replayed };
    }
    match smallest_cap(requests, &Settings::new(Policy::Weir, limit), &mut |_, _| {}) {
        Some((cap, _)) => Remedy {
            text: format!(
                "with weir's pool every request fits into {}, {} more than there is",
                size(cap),
                size(cap.saturating_sub(limit))
            ),
            check: Check::Replayed,
        },
        None => unchecked(text.into()),
    }
}

/// What the cap pays for beside blocks: contexts, code, others of the group.
fn beside(facts: &Facts) -> u64 {
    facts.charged.saturating_sub(facts.live + facts.pool_free + facts.pool_deferred)
}

/// For weir's own pool: smaller physical handles, of which more become wholly free and can be moved. None where a
/// replay says that they do not help.
fn finer(bench: &Bench<'_>, facts: &Facts) -> Option<Remedy> {
    let text = "smaller pieces of device memory: WEIR_POOL=handle=2MiB";
    if bench.run.setting("pool").is_some_and(|setting| setting.contains("handle=")) {
        return None;
    }
    let mut settings = Settings::new(Policy::Weir, facts.limit().saturating_sub(facts.others.max(beside(facts))));
    // A replay in which the pool as it was does not run out proves nothing about another.
    let requests = bench.requests().filter(|requests| !fits(requests, &settings));
    let Some(requests) = requests else { return Some(unchecked(text.into())) };
    settings.pool.large_handle = 2 << 20;
    let helps = fits(requests, &settings);
    helps.then(|| Remedy { text: format!("{text}; every request then fits"), check: Check::Replayed })
}

fn raise_cap(bench: &Bench<'_>, facts: &Facts) -> Option<Remedy> {
    let replayed = bench
        .requests()
        .and_then(|requests| smallest_cap(requests, &Settings::new(Policy::Weir, facts.limit()), &mut |_, _| {}))
        .map(|(cap, _)| (cap + beside(facts), Check::Replayed));
    // The pool served the job and ran out: a replay that goes better is not believed.
    let served = bench.survey.of_class(bench.device, Class::Block) > 0;
    let replayed = replayed.filter(|(need, _)| *need > facts.cap || !served);
    let (need, check) = replayed.unwrap_or((facts.charged + facts.asked, Check::Counted));
    let mib = need.div_ceil(1 << 20);
    if facts.total > 0 && need > facts.total {
        return None;
    }
    if need <= facts.cap {
        let text = format!("weir's pool fits every recorded request into the cap of {}", size(facts.cap));
        return Some(Remedy { text, check });
    }
    let more = size(need - facts.cap);
    Some(Remedy { text: format!("raise the cap by {more}: WEIR_CAP={mib}MiB; the request then fits"), check })
}

fn stop_others(facts: &Facts, neighbours: &[String]) -> Remedy {
    let who = if neighbours.is_empty() { "the other processes".into() } else { neighbours.join(", ") };
    let bytes = facts.others.max(facts.charged_by_others);
    Remedy { text: format!("stop {who}: frees {}, the request then fits", size(bytes)), check: Check::Counted }
}

fn split(facts: &Facts) -> Remedy {
    let room = facts.limit().saturating_sub(facts.live + facts.others);
    Remedy {
        text: format!("ask for less at once (a smaller batch, in parts): {} would fit", size(room)),
        check: Check::Counted,
    }
}

fn need_less(bench: &Bench<'_>, facts: &Facts, shares: &[Share]) -> Vec<Remedy> {
    let mut all = Vec::new();
    let of = |role| shares.iter().find(|share| share.role == role).map_or(0, |share| share.bytes);
    let batch = of(Role::Activations) + of(Role::Gradients) + of(Role::Inputs);
    if batch * 4 >= facts.live && batch > 0 {
        all.push(unchecked(format!(
            "half the batch: activations, gradients and inputs are {} of {}",
            size(batch),
            size(facts.live)
        )));
    }
    let enough = bench
        .requests()
        .and_then(|requests| smallest_cap(requests, &Settings::new(Policy::Weir, facts.limit()), &mut |_, _| {}));
    if let Some((cap, _)) = enough {
        all.push(Remedy {
            text: format!("a device, or a share of one, with {} would do", size(cap)),
            check: Check::Replayed,
        });
    }
    all
}
