//! Remedies for device memory: each is a job that acts differently, another allocator or more room, tried on the bench.

use super::bench::{Bench, Known, Scene};
use super::{Act, Advice, Tried, fits};
use crate::growth::{self, Growth};
use crate::replay::{Change, Outcome, Policy, Settings, WhatIf, smallest_cap_to};
use crate::roles::{self, Role};
use crate::survey::{BUCKETS, Owner};
use crate::verdict::Facts;
use crate::words::{count, duration, several, size, size_up};

/// TensorFlow's numbers of data types.
const FLOAT: u32 = 1;
const DOUBLE: u32 = 2;
/// Parts of a batch, or of one request, that are tried.
const PARTS: [u64; 6] = [2, 4, 8, 16, 32, 64];
/// Requests up to which a cap is looked for to one part in 1024; beyond, in 64.
const FEW: usize = 1 << 16;

/// Tries on the scene, or says what is lacking.
fn on(bench: &Bench<'_>, trial: impl FnOnce(&Scene) -> Tried) -> Tried {
    bench.scene().map_or_else(Tried::Impossible, trial)
}

/// Nothing grows at one place any more: it keeps nothing beyond a step, or no more than it had when the job was built up.
pub(super) fn stop_growth(advice: &mut Advice, bench: &Bench<'_>, growths: &[Growth], facts: &Facts) {
    for growth in growths.iter().take(2) {
        let group = std::slice::from_ref(growth);
        let held: u64 = owners_of(bench, group).map(|owner| owner.blocks).sum();
        let place = growth.place(bench.survey);
        let full = growth::full_at(bench.survey, growths, facts.room()).filter(|_| facts.limit() > 0).map(|at| {
            let at = if growth.by_step {
                format!("at about step {}", count(at as u64))
            } else {
                format!("after {}", duration(at))
            };
            format!("; {} are full {at}", size(facts.limit()))
        });
        let text = format!(
            "look at {place}: it keeps {} more each {}, {} now{}",
            size(growth.trend.slope as u64),
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
        let name = format!("stopping the growth at {place}");
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
        let grows = |known: &Known| {
            known.owner.is_some_and(|place| growths.iter().any(|growth| growth.owners.contains(&place)))
        };
        // One tensor that gets longer and longer grows too: no larger than it was when the job was built up.
        let most = |known: &Known| {
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

/// TensorFlow takes less, so that the others have what they ask for.
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

/// TensorFlow may take more: as little more as serves every request.
pub(super) fn raise_own_limit(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts) {
    let mut need = facts.tf_reserved + facts.requested;
    let tried = on(bench, |scene| {
        let with = |limit| scene.try_less(&WhatIf::default(), &Settings { region: Some(limit), ..scene.job.clone() });
        let step = (scene.job.cap / 256).max(2 << 20);
        // What others take beside TensorFlow is not known before it is tried.
        let (mut short, mut enough) = (facts.tf_reserved, scene.job.cap);
        let mut best = with(enough);
        while matches!(best, Tried::Fails) && enough > scene.job.cap / 2 && enough > short {
            enough -= scene.job.cap / 16;
            best = with(enough);
        }
        while matches!(best, Tried::Helps(_)) && enough - short > step {
            let middle = short + (enough - short) / 2;
            match with(middle) {
                tried @ Tried::Helps(_) => (best, enough) = (tried, middle),
                _ => short = middle,
            }
        }
        need = enough;
        best
    });
    let (more, mib) = (size_up(need.saturating_sub(facts.tf_reserved)), need.div_ceil(1 << 20));
    let text = format!("let TensorFlow take {more} more at least: memory_limit={mib}, or a larger fraction");
    advice.take(bench, Act::MemoryLimit(mib), "a higher limit of TensorFlow's", text, tried, |_| {
        "; every request then fits".into()
    });
}

pub(super) fn raise_cap(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts) {
    let mut need = facts.charged + facts.requested;
    let tried = on(bench, |scene| {
        let tried = with_enough(scene, &mut need);
        need += if matches!(tried, Tried::Helps(_)) { facts.cap.saturating_sub(scene.job.cap) } else { 0 };
        tried
    });
    // On a device that has not got it, a higher cap is no help.
    let there = facts.total == 0 || need <= facts.total.saturating_sub(facts.others);
    let tried = if there { tried } else { Tried::Fails };
    let (more, mib) = (size_up(need.saturating_sub(facts.cap)), need.div_ceil(1 << 20));
    let whole = bench.scene().is_ok_and(Scene::is_whole);
    let text = if whole {
        format!("raise the cap by {more} or more: WEIR_CAP={mib}MiB; this step then fits")
    } else {
        format!(
            "raise the cap by at least {more}: WEIR_CAP={mib}MiB serves this request, and what follows it may need more"
        )
    };
    advice.take(bench, Act::Cap(mib << 20), "a higher cap", text, tried, |_| String::new());
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
        let text = if scene.is_whole() {
            format!("a device with {} or more: this step then fits", size_up(need))
        } else {
            format!(
                "a device with at least {}: it serves this request, and what follows it may need more",
                size_up(need)
            )
        };
        advice.take(bench, Act::Device(need), "", text, tried, |_| String::new());
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

/// The one request in parts.
pub(super) fn in_parts(advice: &mut Advice, bench: &Bench<'_>) {
    // What XLA compiled asks once for a whole step: nobody can ask for it in parts, but for parts of the batch.
    if bench.scene().is_ok_and(|scene| scene.refused_requester().is_some_and(|known| known.compiled)) {
        return need_less(advice, bench, true);
    }
    let mut data = false;
    let mut parts = 2;
    let tried = on(bench, |scene| {
        data = scene.refused_requester().is_some_and(|known| known.data);
        try_parts(&mut parts, |parts| scene.try_less(&WhatIf { parts: Some(parts), ..WhatIf::default() }, &scene.job))
    });
    let (act, text) = if data {
        let text = format!("leave the data in host memory and bring it in parts (tf.data): in {parts} or more");
        (Act::DataOnHost, text)
    } else {
        (Act::InParts(parts), format!("ask for less at once: in {parts} parts, one after the other"))
    };
    advice.take(bench, act, "the request in 64 parts", text, tried, fits);
}

/// The fewest parts that help.
fn try_parts(parts: &mut u64, trial: impl Fn(u64) -> Tried) -> Tried {
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

/// Other types, smaller batches, data that stays on the host. `lacking`: also say what cannot be tried.
pub(super) fn need_less(advice: &mut Advice, bench: &Bench<'_>, lacking: bool) {
    let scene = match bench.scene() {
        // The regions that TensorFlow takes do not follow what it needs.
        Ok(scene) if !scene.has_tensors() => return,
        Ok(scene) if scene.known.iter().any(|known| known.named) => scene,
        Ok(_) if lacking => {
            let why = "no operation is known, so nothing tells what grows with the batch";
            return advice.take(
                bench,
                Act::SmallerBatch(2),
                "",
                "a smaller batch".into(),
                Tried::Impossible(why.into()),
                fits,
            );
        }
        Err(why) if lacking => {
            return advice.take(
                bench,
                Act::SmallerBatch(2),
                "",
                "a smaller batch".into(),
                Tried::Impossible(why),
                fits,
            );
        }
        _ => return,
    };
    if scene.unproven().is_some() && !lacking {
        return;
    }
    float32(advice, bench, scene);
    smaller_batch(advice, bench, scene);
    data_on_host(advice, bench, scene);
    half_precision(advice, bench, scene);
}

fn float32(advice: &mut Advice, bench: &Bench<'_>, scene: &Scene) {
    let double = |known: &Known| known.dtype == DOUBLE;
    let bytes = scene.held(double);
    if bytes == 0 || bytes * 10 < scene.live() || advice.is_full() {
        return;
    }
    let change = scene.changed(|known, _| if double(known) { Change::Part(2) } else { Change::None });
    let text = format!("{} are float64: as float32 they take {} less", size(bytes), size(bytes / 2));
    advice.take(bench, Act::Float32, "float32 instead of float64", text, scene.try_less(&change, &scene.job), fits);
}

fn smaller_batch(advice: &mut Advice, bench: &Bench<'_>, scene: &Scene) {
    let asked = scene.refused_requester().is_some_and(|known| scene.is_batch(known, 0));
    let held = scene.held(|known| scene.is_batch(known, 0));
    if advice.is_full() || (!asked && (held == 0 || held * 4 < scene.live())) {
        return;
    }
    let mut parts = 2;
    let tried = try_parts(&mut parts, |parts| {
        let scaled =
            |known: &Known, bytes| if scene.is_batch(known, bytes) { Change::Part(parts) } else { Change::None };
        scene.try_less(&scene.changed(scaled), &scene.job)
    });
    let text =
        format!("batch / {parts}, if activations, their gradients and inputs shrink with it and workspaces stay");
    advice.take(bench, Act::SmallerBatch(parts), "a smaller batch", text, tried, fits);
}

fn data_on_host(advice: &mut Advice, bench: &Bench<'_>, scene: &Scene) {
    let data = |known: &Known| known.data;
    let bytes = scene.held(data);
    if bytes == 0 || bytes * 8 < scene.live() || advice.is_full() {
        return;
    }
    let change = scene.changed(|known, _| if data(known) { Change::Without } else { Change::None });
    let text = format!("leave the data in host memory and bring it batch by batch (tf.data): {} less", size(bytes));
    advice.take(bench, Act::DataOnHost, "the data in host memory", text, scene.try_less(&change, &scene.job), fits);
}

fn half_precision(advice: &mut Advice, bench: &Bench<'_>, scene: &Scene) {
    let halved =
        |known: &Known, bytes| known.dtype == FLOAT && known.role != Role::Inputs && scene.is_batch(known, bytes);
    let bytes = scene.held(|known| halved(known, 0));
    if bytes == 0 || bytes * 8 < scene.live() || advice.is_full() {
        return;
    }
    let change = scene.changed(|known, bytes| if halved(known, bytes) { Change::Part(2) } else { Change::None });
    // Each weight has a copy of half its size while it is used.
    let copies = scene.held(|known| known.dtype == FLOAT && known.role == Role::Parameters) / 2;
    let settings = Settings { cap: scene.job.cap.saturating_sub(copies), ..scene.job.clone() };
    let text = format!("mixed precision (mixed_float16): {} of activations and their gradients halved", size(bytes));
    advice.take(bench, Act::MixedPrecision, "mixed precision", text, scene.try_less(&change, &settings), fits);
}

impl Scene {
    fn changed(&self, change: impl Fn(&Known, u64) -> Change) -> WhatIf {
        WhatIf::of(&self.requests, |requester, _, bytes| {
            self.known.get(requester).map_or(Change::None, |known| change(known, bytes))
        })
    }

    /// What is known of who requested the refused request.
    fn refused_requester(&self) -> Option<&Known> {
        self.requests.refused_by.and_then(|requester| self.known.get(requester as usize))
    }

    /// Whether memory of this size grows with the batch. A gradient of a parameter's size is that of the parameter.
    fn is_batch(&self, known: &Known, bytes: u64) -> bool {
        match known.role {
            Role::Activations | Role::Inputs => !known.data,
            Role::Gradients => !self.of_parameters.contains(&bytes),
            _ => false,
        }
    }
}
