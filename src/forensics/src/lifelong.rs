//! Growth over a run that is longer than its ring: what is still there says when it came, and the journal's history says how
//! much there was in between.
//!
//! A leak is what stays. So the bytes that are live at the moment, added up by the time at which each was allocated, are the
//! course of the leak, from the beginning on. What replaces its parts now and then has such a course too: it counts only if
//! all that was held rose as much.

use std::collections::HashMap;

use weir_journal::reader::{Moment, Slot};
use weir_journal::{Attribution, Class, Kind, long_from_short};

use crate::growth::{self, Growth};
use crate::survey::{BUCKETS, Survey};
use crate::trend::Sample;
use crate::{Error, Run, is_held};

/// The part of the run in which a job builds what it keeps: it is left out.
const BUILDING: usize = BUCKETS / 4;
/// All that was held must have risen by this share of what a line kept.
const LEAST_RISE: f64 = 0.5;

/// Something that is live at the moment.
struct Survivor {
    by: Attribution,
    class: Class,
    bytes: u64,
    born: u64,
}

/// What grows on a device over the whole run, fastest first. Empty where the ring has all events: then they say more.
pub fn growths(run: &Run, survey: &Survey, device: u8, limit: u64) -> Result<Vec<Growth>, Error> {
    let lapped = run.reader().range().0 > 0 && !run.reader().is_recording();
    let history = if lapped { run.reader().history().map_err(|error| run.broken(&error))? } else { Vec::new() };
    let history: Vec<Moment> = history.into_iter().filter(|moment| moment.time <= survey.time).collect();
    let (Some(first), Some(last)) = (history.first(), history.last()) else { return Ok(Vec::new()) };
    if usize::from(device) >= first.held.len() || last.time <= first.time {
        return Ok(Vec::new());
    }
    let by_step = last.step > 0;
    let span = survey.time - first.time;
    let ends: Vec<u64> = (1..=BUCKETS as u64)
        .map(|bucket| first.time + (u128::from(span) * u128::from(bucket) / BUCKETS as u128) as u64)
        .collect();
    let at: Vec<f64> = ends.iter().map(|end| position(&history, *end, by_step)).collect();
    let rise = rise(&history, &ends, usize::from(device));
    let mut lines: HashMap<String, Vec<Survivor>> = HashMap::new();
    for survivor in survivors(run, survey, device)? {
        if let Some(line) = run.who(survivor.by).line() {
            lines.entry(format!("{}:{}", line.file, line.line)).or_default().push(survivor);
        }
    }
    let mut found: Vec<Growth> = lines
        .into_iter()
        .filter_map(|(line, survivors)| grows(survey, device, limit, (&ends, &at, rise, by_step), &line, &survivors))
        .collect();
    found.sort_by(|a, b| b.trend.slope.total_cmp(&a.trend.slope));
    Ok(found)
}

/// The moment at which most was held on a device, bytes and time; none where the ring has all events.
pub fn highest(run: &Run, device: u8) -> Result<Option<(u64, u64)>, Error> {
    if run.reader().range().0 == 0 || run.reader().is_recording() {
        return Ok(None);
    }
    let history = run.reader().history().map_err(|error| run.broken(&error))?;
    let held = history.iter().filter_map(|moment| Some((*moment.held.get(usize::from(device))?, moment.time)));
    Ok(held.max_by_key(|(bytes, _)| *bytes))
}

/// The step at a time, or the number of the event.
fn position(history: &[Moment], time: u64, by_step: bool) -> f64 {
    let of = |moment: &Moment| if by_step { moment.step as f64 } else { moment.event as f64 };
    let after = history.partition_point(|moment| moment.time <= time);
    let Some(before) = after.checked_sub(1).and_then(|place| history.get(place)) else { return 0.0 };
    let Some(next) = history.get(after).filter(|next| next.time > before.time) else { return of(before) };
    let share = (time - before.time) as f64 / (next.time - before.time) as f64;
    of(before) + share * (of(next) - of(before))
}

/// By how much the least that was held rose, from the first part of the run after it was built to the last.
fn rise(history: &[Moment], ends: &[u64], device: usize) -> f64 {
    let least = |from: Option<&u64>, to: Option<&u64>| {
        let inside = history
            .iter()
            .filter(|moment| from.is_none_or(|from| moment.time > *from) && to.is_some_and(|to| moment.time <= *to));
        inside.filter_map(|moment| moment.held.get(device)).min().copied()
    };
    let built = least(ends.get(BUILDING - 1), ends.get(2 * BUILDING - 1));
    let now = least(ends.get(BUCKETS - BUILDING - 1), ends.last());
    match (built, now) {
        (Some(built), Some(now)) => now as f64 - built as f64,
        _ => 0.0,
    }
}

/// What is live at the moment: what is live at the end, and what was freed in between.
fn survivors(run: &Run, survey: &Survey, device: u8) -> Result<Vec<Survivor>, Error> {
    let tensors = survey.of_class(device, Class::Tensor) > 0;
    let counts = |class: Class| if tensors { class == Class::Tensor } else { is_held(class) };
    let mut found: Vec<Survivor> = run
        .live()?
        .iter()
        .filter(|entry| entry.device == device && counts(entry.class) && entry.time <= survey.time)
        .map(|entry| Survivor { by: entry.by, class: entry.class, bytes: entry.allocated, born: entry.time })
        .collect();
    for slot in run.events() {
        let Slot::Event(event) = slot.map_err(|error| run.broken(&error))? else { continue };
        let born = event.time.saturating_sub(long_from_short(event.aux));
        if event.seq > survey.at
            && event.kind == Kind::Free
            && event.device == device
            && counts(event.class)
            && born <= survey.time
        {
            found.push(Survivor { by: event.by, class: event.class, bytes: event.allocated, born });
        }
    }
    Ok(found)
}

/// Whether a line grows, by what is left of it.
fn grows(
    survey: &Survey,
    device: u8,
    limit: u64,
    (ends, at, rise, by_step): (&[u64], &[f64], f64, bool),
    line: &str,
    survivors: &[Survivor],
) -> Option<Growth> {
    let mut course = [0_u64; BUCKETS];
    let mut came = 0;
    for survivor in survivors {
        let bucket = ends.partition_point(|end| *end < survivor.born).min(BUCKETS - 1);
        course.iter_mut().skip(bucket).for_each(|bytes| *bytes += survivor.bytes);
        came += u64::from(bucket > 0);
    }
    let samples: Vec<Sample> =
        at.iter().zip(course).skip(BUILDING).map(|(at, bytes)| Sample { at: *at, bytes: bytes as f64 }).collect();
    let trend = growth::steady(&samples, limit)?;
    let (built, held) = (*course.get(BUILDING)?, *course.last()?);
    if rise < LEAST_RISE * held.saturating_sub(built) as f64 {
        return None;
    }
    let classes: Vec<Class> = survivors.iter().map(|survivor| survivor.class).collect();
    let same = |who: &crate::names::Who| who.line().is_some_and(|own| format!("{}:{}", own.file, own.line) == line);
    let mut owners: Vec<usize> = survey
        .owners
        .iter()
        .enumerate()
        .filter(|(_, owner)| {
            owner.device == device && owner.bytes > 0 && classes.contains(&owner.class) && same(&owner.who)
        })
        .map(|(place, _)| place)
        .collect();
    owners.sort_by_key(|place| std::cmp::Reverse(survey.owners.get(*place).map_or(0, |owner| owner.bytes)));
    let grown = held.saturating_sub(course[0]);
    (!owners.is_empty()).then_some(Growth { owners, trend, grown, by_step, runs: came, in_stairs: false })
}
