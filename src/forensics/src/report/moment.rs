//! Which event a moment is: the last one of a step, or the last one before a time of day. Reads a run.

use weir_journal::Kind;
use weir_journal::reader::Slot;

use super::At;
use crate::words::count;
use crate::{Error, Run};

/// The number of the moment's last event; none for moments that are found otherwise.
pub(super) fn event(run: &Run, at: At) -> Result<Option<u64>, Error> {
    match at {
        At::Step(step) => last_of_step(run, step).map(Some),
        At::Time(realtime_ns) => last_before(run, realtime_ns).map(Some),
        At::Oom | At::Peak | At::End => Ok(None),
    }
}

fn last_of_step(run: &Run, wanted: u64) -> Result<u64, Error> {
    let (mut last, mut steps): (Option<u64>, Option<(u64, u64)>) = (None, None);
    for slot in run.events() {
        let Slot::Event(event) = slot.map_err(|error| run.broken(&error))? else { continue };
        if event.kind == Kind::Step {
            let step = event.address;
            steps = Some(steps.map_or((step, step), |(first, _)| (first, step)));
            if step > wanted {
                break;
            }
        }
        last = Some(event.seq);
    }
    let known = steps.filter(|(first, last)| (*first..=(*last).max(*first)).contains(&wanted));
    known.and(last).ok_or_else(|| {
        let there =
            steps.map_or("no steps".into(), |(first, last)| format!("steps {} to {}", count(first), count(last)));
        Error::at(run.path(), format!("has no step {}; the log has {there}", count(wanted)))
    })
}

fn last_before(run: &Run, realtime_ns: u64) -> Result<u64, Error> {
    let mut last = None;
    for slot in run.events() {
        let Slot::Event(event) = slot.map_err(|error| run.broken(&error))? else { continue };
        if run.realtime_ns(event.time) > realtime_ns {
            break;
        }
        last = Some(event.seq);
    }
    last.ok_or_else(|| {
        Error::at(run.path(), "has no event before this time; it began later, or older events are overwritten")
    })
}
