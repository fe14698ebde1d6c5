//! Remedies for device memory: each is a job that acts differently, another allocator or more room, tried on the bench.

use super::bench::{Bench, RequesterFacts, Scene};
use super::{Act, Advice, Check, Remedy, Tried, fits};
use crate::growth::{self, Growth};
use crate::replay::{Change, Outcome, Policy, Settings, WhatIf, smallest_cap_to};
use crate::roles::{self, Role};
use crate::survey::{BUCKETS, Owner};
use crate::verdict::Facts;
use crate::words::{count, several, size, size_up};

/// TensorFlow's numbers of data types.
pub(super) const FLOAT: u32 = 1;
pub(super) const DOUBLE: u32 = 2;
/// Parts of a batch, or of one request, that are tried.
const PARTS: [u64; 6] = [2, 4, 8, 16, 32, 64];
/// Requests up to which a cap is looked for to one part in 1024; beyond, in 64.
const FEW: usize = 1 << 16;

/// Tries on the scene, or says what is lacking.
pub(super) fn on(bench: &Bench<'_>, trial: impl FnOnce(&Scene) -> Tried) -> Tried {
    bench.scene().map_or_else(Tried::Impossible, trial)
}

/// Nothing grows at one place any more: it keeps nothing beyond a step, or no more than it had when the job was built up.
pub(super) fn stop_growth(advice: &mut Advice, bench: &Bench<'_>, growths: &[Growth], facts: &Facts) {
    for growth in growths.iter().take(2) {
        let group = std::slice::from_ref(growth);
        let held: u64 = owners_of(bench, group).map(|owner| owner.blocks).sum();
        let place = growth.place(bench.survey);
        let full = growth::full_at(bench.survey, growths, facts.room()).filter(|_| facts.limit() > 0).map(|at| {
            let at = format!("at about {} {}", growth.unit(), count(at as u64));
            format!("; {} are full {at}", size(facts.limit()))
        });
        let (name, callers) = (format!("stopping the growth at {place}"), growth.callers(bench.survey));
        let place = callers.iter().fold(place, |place, caller| format!("{place}, called at {caller}"));
        let text = format!(
            "look at {place}: it keeps {} more each {}, {} now{}",
            size(growth.slope() as u64),
            growth.unit(),
            several(held, "block"),
            full.unwrap_or_default()
        );
        let (mut tried, mut keep) = without_growth(bench, group);
        let mut with = "With this".to_owned();
        if matches!(tried, Tried::Fails) && growths.len() > 1 {
            (tried, keep) = without_growth(bench, growths);
            with = format!("With this and the other {} that grow", count(growths.len() as u64 - 1));
        }
        let how = keep.map_or_else(|| "freed each step".into(), |keep| format!("held at {}", size(keep)));
        let brings = |outcome: &Outcome| {
            let peak = size_up(outcome.peak_live);
            format!(". {with} {how}, at most {peak} are live and every request fits")
        };
        advice.take(bench, Act::StopGrowth(place), &name, text, tried, brings);
    }
}

fn owners_of<'run>(bench: &Bench<'run>, growths: &[Growth]) -> impl Iterator<Item = &'run Owner> {
    let survey = bench.survey;
    growths.iter().flat_map(|growth| &growth.owners).filter_map(|place| survey.owners.get(*place))
}

/// How it goes if these no longer grow, and what they may keep: nothing beyond a step is none.
fn without_growth(bench: &Bench<'_>, growths: &[Growth]) -> (Tried, Option<u64>) {
    // What comes with something larger than a step, or belongs to a model, lives longer than a step too.
    let lasts = |owner: &Owner| matches!(roles::of(owner, &bench.survey.steps).0, Role::Parameters | Role::Optimizer);
    let by_step =
        growths.iter().all(|growth| growth.by_step && !growth.in_stairs) && !owners_of(bench, growths).any(lasts);
    let built: u64 = owners_of(bench, growths).map(|owner| owner.floor[BUCKETS / 4].max(0) as u64).sum();
    let keep = (!by_step).then_some(built);
    let tried = on(bench, |scene| {
        let grows = |known: &RequesterFacts| {
            known.owner.is_some_and(|place| growths.iter().any(|growth| growth.owners.contains(&place)))
        };
        // One tensor that gets longer and longer grows too: no larger than it was when the job was built up.
        let most = |known: &RequesterFacts| {
            let owner = known.owner.and_then(|place| bench.survey.owners.get(place));
            owner
                .map(|owner| owner.floor[BUCKETS / 4])
                .filter(|floor| *floor > 0)
                .map_or(u64::MAX, |floor| floor as u64)
        };
        let change = scene.changed(|known, _| if grows(known) { Change::Kept(most(known)) } else { Change::None });
        scene.try_less(&WhatIf { keep, ..change }, &scene.job)
    });
    (tried, keep)
}

/// For weir's own pool: smaller physical handles, of which more become wholly free and can be moved.
pub(super) fn smaller_handles(advice: &mut Advice, bench: &Bench<'_>) {
    if bench.run.settings().pool.large_handle.is_some() {
        return;
    }
    let tried = on(bench, |scene| {
        let mut settings = scene.job.clone();
        settings.pool.large_handle = 2 << 20;
        scene.try_less(&WhatIf::default(), &settings)
    });
    let variable = "WEIR_POOL=handle=2MiB";
    let text = format!("smaller pieces of device memory: {variable}");
    advice.take(bench, Act::Environment(variable), variable, text, tried, |_| "; every request then fits".into());
}

/// weir's pool instead of TensorFlow's allocator.
pub(super) fn serve_by_pool(advice: &mut Advice, bench: &Bench<'_>) {
    let tried = on(bench, |scene| scene.try_anew(Policy::Weir, None));
    let variables = "WEIR_POOL=on WEIR_TF_ALLOCATOR=pool";
    let text = format!("let weir's pool serve every tensor: {variables}");
    advice.take(bench, Act::Environment(variables), "weir's pool", text, tried, |_| "; every request then fits".into());
}

/// TensorFlow's allocator with growth.
pub(super) fn grow_on_demand(advice: &mut Advice, bench: &Bench<'_>) {
    let tried = on(bench, |scene| scene.try_anew(Policy::BfcGrowth, None));
    let variable = "TF_FORCE_GPU_ALLOW_GROWTH=true";
    let text = format!("let TensorFlow take what it needs: {variable}");
    advice
        .take(bench, Act::Environment(variable), "memory growth", text, tried, |_| "; every request then fits".into());
}

/// TensorFlow takes less, so that the others get what they request.
pub(super) fn lower_own_limit(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts) {
    // For a tensor, TensorFlow itself would have less.
    if facts.is_tensor() {
        return;
    }
    let (step, mut limit) = (2 << 20, facts.tf_reserved);
    let tried = on(bench, |scene| {
        for times in [1, 2, 4, 8] {
            let less = facts.requested.saturating_mul(times).next_multiple_of(step);
            limit = facts.tf_reserved.saturating_sub(less);
            match scene.try_anew(Policy::Bfc, Some(limit)) {
                Tried::Fails => {}
                tried => return tried,
            }
        }
        Tried::Fails
    });
    let mib = limit >> 20;
    let text = format!("let TensorFlow take less: memory_limit={mib}");
    advice.take(bench, Act::MemoryLimit(mib), "a lower limit of TensorFlow's", text, tried, |_| {
        "; every request then fits".into()
    });
}

/// The least that serves every request, beside what is not the job's own.
fn with_enough(scene: &Scene, need: &mut u64) -> Tried {
    if let Some(lacking) = scene.unproven() {
        return Tried::Impossible(lacking.into());
    }
    // TensorFlow's region grows with what there is.
    let settings = Settings { region: None, ..scene.job.clone() };
    let parts = if scene.requests.len() <= FEW { 1024 } else { 64 };
    match smallest_cap_to(parts, &scene.requests, &settings, &mut |_, _| {}) {
        Some((cap, outcome)) => {
            *need = cap;
            Tried::Helps(outcome)
        }
        None => Tried::Fails,
    }
}

/// The most that TensorFlow could take of device and cap, and what it needs at least.
pub(super) fn own_limit(facts: &Facts) -> Option<(u64, u64)> {
    let free = facts.free.unwrap_or_else(|| facts.total.saturating_sub(facts.live + facts.others));
    let under_cap = if facts.cap > 0 { facts.cap.saturating_sub(facts.charged) } else { u64::MAX };
    // A sixteenth stays for contexts, code and libraries.
    let most = facts.tf_reserved.saturating_add(free.min(under_cap)) / 16 * 15;
    let least = facts.tf_used + facts.requested;
    (most > facts.tf_reserved && most >= least).then_some((most, least))
}

/// TensorFlow may take all that the device and the cap have: what it needs beyond this request is not known.
pub(super) fn raise_own_limit(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts) {
    let Some((most, least)) = own_limit(facts) else {
        return advice.useless.push("a higher limit of TensorFlow's".into());
    };
    let mib = most >> 20;
    let text = format!(
        "let TensorFlow take what the device has: memory_limit={mib}, or no limit; it needs {} at least",
        size_up(least)
    );
    let how = match bench.scene() {
        Ok(_) => "estimated from the requests up to the refused one".into(),
        Err(why) => format!("estimated, not replayed: {why}"),
    };
    advice.add(Remedy { act: Act::MemoryLimit(mib), text, check: Check::Estimated, how });
}

/// A remedy that is a size: replayed where steps are alike; else a lower bound, and said to be one.
fn take_size(advice: &mut Advice, bench: &Bench<'_>, act: Act, text: String, tried: &Tried) {
    let steady = bench.scene().is_ok_and(Scene::is_steady);
    match tried {
        Tried::Helps(_) if steady => {
            let (check, how) = bench.shown();
            advice.add(Remedy { act, text, check, how });
        }
        Tried::Helps(_) => {
            let how = "estimated from the requests up to the refused one".into();
            advice.add(Remedy { act, text, check: Check::Estimated, how });
        }
        Tried::Impossible(lacking) => {
            let how = format!("estimated, not replayed: {lacking}");
            advice.add(Remedy { act, text, check: Check::Estimated, how });
        }
        Tried::Fails => {}
    }
}

pub(super) fn raise_cap(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts) {
    let mut need = facts.charged + facts.requested;
    let tried = on(bench, |scene| {
        let tried = with_enough(scene, &mut need);
        need += if matches!(tried, Tried::Helps(_)) { facts.cap.saturating_sub(scene.job.cap) } else { 0 };
        tried
    });
    // On a device that has not got it, a higher cap is no help.
    let most = if facts.total == 0 { u64::MAX } else { facts.total.saturating_sub(facts.others) };
    if need > most {
        return advice.useless.push("a higher cap".into());
    }
    let least = need;
    // The rest of a step that nobody has seen may need as much again.
    let steady = bench.scene().is_ok_and(Scene::is_steady);
    let need = if steady { need } else { need.saturating_mul(2).min(most) };
    let (more, mib) = (size_up(least.saturating_sub(facts.cap)), need.div_ceil(1 << 20));
    let text = if steady {
        format!("raise the cap by {more} or more: WEIR_CAP={mib}MiB; this step then fits")
    } else {
        format!("raise the cap by at least {more}; WEIR_CAP={mib}MiB leaves room for what follows this request")
    };
    take_size(advice, bench, Act::Cap(mib << 20), text, &tried);
}

pub(super) fn larger_device(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts) {
    // Three that cost nothing are enough, and the search takes long.
    let Ok(scene) = bench.scene() else { return };
    if advice.remedies.len() >= 3 {
        return;
    }
    let mut need = 0;
    let tried = with_enough(scene, &mut need);
    // Another device is nothing that the log could lack: a guess at it is of no use.
    if matches!(tried, Tried::Helps(_)) {
        need += facts.limit().saturating_sub(facts.others).saturating_sub(scene.job.cap);
        let text = if scene.is_steady() {
            format!("a device with {} or more: this step then fits", size_up(need))
        } else if advice.remedies.is_empty() {
            // The first remedy is one to act on: the rest of a step that nobody has seen may need as much again.
            let least = size_up(need);
            need = need.saturating_mul(2);
            format!(
                "a device with about {}: this request needs {least}, and there is room for what follows it",
                size_up(need)
            )
        } else {
            format!(
                "a device with at least {}: it serves this request, and what follows it may need more",
                size_up(need)
            )
        };
        take_size(advice, bench, Act::Device(need), text, &tried);
    }
}

pub(super) fn stop_others(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts, other_processes: &[String]) {
    let who = if other_processes.is_empty() { "the other processes".into() } else { other_processes.join(", ") };
    let bytes = facts.others.max(facts.charged_by_others);
    let tried = on(bench, |scene| {
        let cap = scene.job.cap + bytes;
        scene.try_less(&WhatIf::default(), &Settings { region: None, cap, ..scene.job.clone() })
    });
    let text = format!("stop {who}: frees {}", size(bytes));
    advice.take(bench, Act::StopOthers, "stopping the others", text, tried, |_| ", the request then fits".into());
}

/// The fewest parts that help.
pub(super) fn try_parts(parts: &mut u64, trial: impl Fn(u64) -> Tried) -> Tried {
    for fewest in PARTS {
        *parts = fewest;
        match trial(fewest) {
            Tried::Fails => {}
            tried => return tried,
        }
    }
    Tried::Fails
}

/// The job waits for the device, so that what it freed can be had again.
pub(super) fn wait(advice: &mut Advice, bench: &Bench<'_>) {
    let tried = on(bench, |scene| scene.try_less(&WhatIf { waits: true, ..WhatIf::default() }, &scene.job));
    let variable = "WEIR_ON_CAP=wait:30s";
    let text = format!("wait for the device before the large request, or set {variable}");
    advice.take(bench, Act::Environment(variable), "waiting for the device", text, tried, |_| {
        "; every request then fits".into()
    });
}

/// Where nothing says what memory is for: a smaller batch may help. `lacking`: also where that is not known.
pub(super) fn unexplained(advice: &mut Advice, bench: &Bench<'_>, lacking: bool) {
    let why = match bench.scene() {
        Ok(scene) if !scene.has_tensors() || scene.known.iter().any(|known| known.named) => return,
        Ok(_) => "no operation is known, so nothing shows what grows with the batch".into(),
        Err(why) => why,
    };
    if lacking {
        let (act, text) = (Act::SmallerBatch(2), "a smaller batch: batch / 2".into());
        advice.take(bench, act, "", text, Tried::Impossible(why), fits);
    }
}

impl Scene {
    pub(super) fn changed(&self, change: impl Fn(&RequesterFacts, u64) -> Change) -> WhatIf {
        WhatIf::of(&self.requests, |requester, _, bytes| {
            self.known.get(requester).map_or(Change::None, |known| change(known, bytes))
        })
    }

    /// Whether memory of this size grows with the batch. A gradient of a parameter's size is that of the parameter.
    pub(super) fn is_batch(&self, known: &RequesterFacts, bytes: u64) -> bool {
        match known.role {
            Role::Activations | Role::Inputs => !known.data,
            Role::Gradients => !self.of_parameters.contains(&bytes),
            _ => false,
        }
    }
}
