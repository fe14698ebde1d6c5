//! The failure that a report is about: a request that was refused, as the library wrote it down at that moment, or the last
//! of what TensorFlow tried for in vain, in a job that failed soon after.

use weir_journal::layout::HOST_DEVICE;
use weir_journal::reader::Slot;
use weir_journal::{Event, Kind, OomReport};

use crate::names::short_op;
use crate::report::{Options, Request};
use crate::{Error, Run, holders, roles};

/// Events at the end of a run among which one looks for what it tried in vain.
const LAST_EVENTS: u64 = 1 << 16;
/// Allocations after such a try from which on the job counts as having got over it.
const SURVIVED: u64 = 1000;

/// See the file's first comment.
pub(crate) enum Failure<'run> {
    /// A request was refused.
    Refused(&'run OomReport),
    /// TensorFlow could have done without, and tried so often for the same operation.
    Tried(Event, u64),
}

impl<'run> Failure<'run> {
    /// The failure that is requested; none where nothing failed.
    pub(crate) fn of(run: &'run Run, options: &Options) -> Result<Option<Self>, Error> {
        let dumps = run.ooms();
        if let Some(number) = options.oom {
            let dump = number.checked_sub(1).and_then(|place| dumps.get(place));
            let there = dumps.len();
            let missing = || Error::at(run.path(), format!("has no out-of-memory dump {number}; it has {there}"));
            return dump.map(|dump| Some(Self::Refused(dump))).ok_or_else(missing);
        }
        // Of a device that was requested, its own last one; what a host could not pin belongs to all.
        let meant =
            |dump: &&OomReport| options.device.is_none_or(|device| dump.device == device || dump.device == HOST_DEVICE);
        match dumps.iter().rev().find(meant) {
            Some(dump) => Ok(Some(Self::Refused(dump))),
            None => last_try(run, options.device),
        }
    }

    /// What the library wrote down at the moment.
    pub(crate) fn dump(&self) -> Option<&'run OomReport> {
        match self {
            Self::Refused(dump) => Some(dump),
            Self::Tried(..) => None,
        }
    }

    /// The number of the event that records it.
    pub(crate) fn event(&self) -> u64 {
        match self {
            Self::Refused(dump) => dump.event,
            Self::Tried(event, _) => event.seq,
        }
    }

    /// The device, or the host.
    pub(crate) fn device(&self) -> u8 {
        match self {
            Self::Refused(dump) => dump.device,
            Self::Tried(event, _) => event.device,
        }
    }

    /// The request; `event` is the one that records it, if it is still there.
    pub(crate) fn request(&self, run: &Run, event: Option<Event>) -> Request {
        let event = if let Self::Tried(event, _) = self { Some(*event) } else { event };
        let who = event.map(|event| run.who(event.by));
        let line = who.as_ref().and_then(|who| who.line());
        let nameless = who.as_ref().filter(|who| who.is_nameless());
        let modules = || run.reader().modules().unwrap_or_default();
        let request = Request {
            bytes: 0,
            class: weir_journal::Class::Other,
            op: who.as_ref().map(|who| who.op_name().to_owned()).unwrap_or_default(),
            python: line.map(|line| format!("{}:{}", line.file, line.line)).unwrap_or_default(),
            function: line.map(|line| line.function.clone()).unwrap_or_default(),
            library: nameless.map(|who| holders::library(run, who, &modules())).unwrap_or_default(),
            times: 1,
            only_tried: false,
            compiled: who.as_ref().is_some_and(|who| roles::is_compiled(who)),
        };
        match self {
            Self::Tried(event, times) => {
                Request { bytes: event.requested, class: event.class, times: *times, only_tried: true, ..request }
            }
            Self::Refused(dump) => {
                let causes = run.reader().causes().unwrap_or_default();
                let cause = event.and_then(|event| causes.get(usize::from(event.aux))).copied();
                // An allocator that probes requests less each time: the last is what it could not do without.
                let probing =
                    cause.filter(|cause| cause.times > 1 && cause.latest > 0 && cause.latest < dump.requested);
                // Without its event only the dump shows where it was.
                let place = dump.python.split_once(" in ").unwrap_or((&dump.python, ""));
                let place = line.is_none().then(|| (place.0.to_owned(), place.1.to_owned()));
                let (python, function) = place.unwrap_or((request.python, request.function));
                Request {
                    bytes: probing.map_or(dump.requested, |cause| cause.latest),
                    class: dump.class,
                    op: short_op(&dump.op).to_owned(),
                    python,
                    function,
                    times: cause.map_or(1, |cause| cause.times),
                    ..request
                }
            }
        }
    }
}

/// The last tensor that TensorFlow could do without and did not get, and how often the same operation tried, in a job that
/// ended with a failure soon after: all ways of a convolution may have needed such memory.
fn last_try<'run>(run: &Run, device: Option<u8>) -> Result<Option<Failure<'run>>, Error> {
    if run.exit_status().is_none_or(|status| status == 0) {
        return Ok(None);
    }
    let (mut last, mut since): (Option<(Event, u64)>, u64) = (None, 0);
    let first = run.reader().range().1.saturating_sub(LAST_EVENTS);
    for slot in run.reader().events_from(first) {
        let Slot::Event(event) = slot.map_err(|error| run.broken(&error))? else { continue };
        match event.kind {
            Kind::Attempt if device.is_none_or(|device| device == event.device) => {
                let same = |other: &Event| (other.by.op, other.by.python) == (event.by.op, event.by.python);
                let times = last.filter(|(other, _)| same(other)).map_or(0, |(_, times)| times);
                (last, since) = (Some((event, times + 1)), 0);
            }
            Kind::Alloc => since += 1,
            _ => {}
        }
    }
    Ok(last.filter(|_| since < SURVIVED).map(|(event, times)| Failure::Tried(event, times)))
}
