//! Remedies for host memory: the pinned part is in the log block by block, the rest as a sum. Tried on host bytes.

use super::bench::Bench;
use super::{Act, Advice, Check, Remedy, Tried};
use crate::replay::{Change, Outcome, Requests, View, WhatIf};
use crate::survey::BUCKETS;
use crate::trend::Trend;
use crate::verdict::Facts;
use crate::words::size;

/// Parts of a pinned request that are tried.
const PARTS: [u64; 6] = [2, 4, 8, 16, 32, 64];

pub(super) fn keep_less(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts) {
    if facts.refused && facts.is_pinned() {
        pin_less(advice, bench);
    } else {
        stop_growth(advice, bench, facts);
    }
}

/// A host that pinned so much once can do it again: what stays below fits.
fn pin_less(advice: &mut Advice, bench: &Bench<'_>) {
    let requests = match bench.requests(View::Pinned) {
        Ok(requests) if requests.allocations > 0 => requests,
        Ok(_) => return lacking(advice, bench, "the log has no pinned memory that was granted".into()),
        Err(why) => return lacking(advice, bench, why),
    };
    let granted = WhatIf { parts: Some(0), ..WhatIf::default() }.peak(&requests);
    let tried = |what_if: &WhatIf| {
        let peak_live = what_if.peak(&requests);
        if peak_live <= granted { Tried::Helps(Outcome { peak_live, ..Outcome::default() }) } else { Tried::Fails }
    };
    let brings = |outcome: &Outcome| {
        format!("; at most {} are pinned, and the host granted {}", size(outcome.peak_live), size(granted))
    };
    let mut whole = Tried::Fails;
    let mut fewest = 2;
    for parts in PARTS {
        fewest = parts;
        whole = tried(&WhatIf { parts: Some(parts), ..WhatIf::default() });
        if matches!(whole, Tried::Helps(_)) {
            break;
        }
    }
    let text = format!("pin the request in {fewest} parts, one after the other (smaller prefetch buffers)");
    advice.take(bench, Act::PinLess, "the request in 64 parts", text, whole, brings);
    if let Some((requester, bytes)) = largest(&requests) {
        let who = requests.requesters.get(requester).map(|requester| bench.run.who(requester.by)).unwrap_or_default();
        let place = [who.place(), who.op_name().to_owned()].into_iter().find(|name| !name.is_empty());
        let place = place.unwrap_or_else(|| "a place that is not known".into());
        let without =
            WhatIf::of(&requests, |number, _, _| if number == requester { Change::Without } else { Change::None });
        let text = format!("give back first what {place} pinned, {}", size(bytes));
        advice.take(bench, Act::PinLess, &format!("giving back what {place} pinned"), text, tried(&without), brings);
    }
}

/// The requester that holds most at the moment.
fn largest(requests: &Requests) -> Option<(usize, u64)> {
    let left = requests.left();
    left.iter().copied().enumerate().max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0)
}

fn lacking(advice: &mut Advice, bench: &Bench<'_>, why: String) {
    let text = "pin less host memory: smaller prefetch buffers, parts of a batch";
    advice.take(bench, Act::PinLess, "", text.into(), Tried::Impossible(why), |_| String::new());
}

/// The samples of resident memory once more, without what the line through them adds.
fn stop_growth(advice: &mut Advice, bench: &Bench<'_>, facts: &Facts) {
    let marks = &bench.survey.marks;
    let resident: Option<[i64; BUCKETS]> =
        marks.iter().map(|mark| mark.resident as i64).collect::<Vec<_>>().try_into().ok();
    let samples = resident.map(|resident| bench.survey.samples(&resident)).unwrap_or_default();
    let trend = Trend::through(&samples).filter(Trend::grows).zip(samples.first());
    let place = facts.host_by.as_ref().map_or_else(String::new, |(place, _)| format!("look at {place}: "));
    let text = format!("{place}keep less in host memory: results as numbers, smaller shuffle and prefetch buffers");
    let Some((trend, first)) = trend else {
        let why = "the log has host memory as a sum only, and it did not grow steadily";
        return advice.take(bench, Act::KeepLessOnHost, "", text, Tried::Impossible(why.into()), |_| String::new());
    };
    let without = samples.iter().map(|sample| sample.bytes - trend.slope * (sample.at - first.at)).fold(0.0, f64::max);
    // What grew is all that was too much, if the rest leaves the host its memory.
    if facts.host_total > 0 && without as u64 >= facts.host_total / 10 * 7 {
        advice.useless.push("less growth of host memory".into());
        return;
    }
    let unit = if bench.survey.steps.seen > 0 { "step" } else { "second" };
    let text =
        format!("{text}; without +{} a {unit} at most {} are resident", size(trend.slope as u64), size(without as u64));
    let (act, how) = (Act::KeepLessOnHost, "estimated from the samples of host memory".into());
    advice.add(Remedy { act, text, check: Check::Estimated, how });
}
