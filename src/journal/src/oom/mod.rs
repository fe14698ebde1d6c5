//! Out of memory: the report that the library itself writes, into the journal, beside it as JSON, and as one screen of
//! text. Allocates and makes system calls; an OOM is rare.

mod cause;
mod report;
mod screen;
mod seen;

pub use cause::{Cause, Situation};
pub(crate) use report::slot_crc;
pub use report::{HOLDERS, OOM_SCHEMA, OomHolder, OomReport};

use std::sync::atomic::Ordering;

use crate::event::{Attribution, Class, Event, Kind};
use crate::layout::word;
use crate::writer::Journal;

/// Dumps of one process at most; later ones are only counted.
const MOST_DUMPS: u64 = 64;

/// What was requested and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Device.
    pub device: u8,
    /// What sort of memory.
    pub class: Class,
    /// Stream.
    pub stream: u16,
    /// Bytes requested.
    pub requested: u64,
    /// The result that the job gets.
    pub result: u16,
    /// Who requested it.
    pub by: Attribution,
}

/// What became of a failure.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A new cause: it was reported. The text fits one screen.
    Reported {
        /// The report.
        report: Box<OomReport>,
        /// For stderr.
        text: String,
    },
    /// A cause that was reported before: it was counted.
    Counted {
        /// How often it was seen, with this one.
        times: u64,
    },
}

impl Journal {
    /// A request failed for want of memory: records the event, and reports it unless its cause is known already.
    pub fn out_of_memory(&self, failure: &Failure, situation: &Situation) -> Outcome {
        let cause = situation.cause(failure.requested);
        let seen = self.words.get(word::OOM_SEEN).map_or(0, |count| count.fetch_add(1, Ordering::Relaxed)) + 1;
        let (number, times, fresh) = self.count_cause(failure, cause);
        let event = self.record(Event {
            requested: failure.requested,
            stream: failure.stream,
            result: failure.result,
            by: failure.by,
            aux: number,
            live_after: self.live_bytes(failure.device, failure.class),
            ..Event::new(Kind::Oom, failure.class, failure.device)
        });
        let dumps = self.words.get(word::OOM_DUMPS);
        if !fresh || dumps.is_none_or(|count| count.load(Ordering::Relaxed) >= MOST_DUMPS) {
            return Outcome::Counted { times };
        }
        let dump = dumps.map_or(0, |count| count.fetch_add(1, Ordering::Relaxed));
        self.refresh_anchor();
        self.refresh_modules();
        let report = self.report(failure, situation, cause, event, (dump + 1, seen));
        self.fill_slot(dump, &report);
        let written = self.write_json(&report);
        let text = self.text_of_report(&report, written.as_deref());
        Outcome::Reported { report: Box::new(report), text }
    }

    /// A request that the job can do without got nothing: it is counted, and the event is all that is recorded.
    pub fn tried_in_vain(&self, failure: &Failure) {
        if let Some(count) = self.words.get(word::TRIED) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.record(Event {
            requested: failure.requested,
            stream: failure.stream,
            result: failure.result,
            by: failure.by,
            live_after: self.live_bytes(failure.device, failure.class),
            ..Event::new(Kind::Attempt, failure.class, failure.device)
        });
    }
}
