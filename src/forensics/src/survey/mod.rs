//! One pass over all events of a run: who held how much, when, up to a moment. Memory is bounded however long the run:
//! a fixed number of buckets of time for a limited number of owners.
//!
//! The pass adds up changes; what was live before the oldest event follows from what is live at the end. So a journal
//! that has overwritten its beginning gives the same numbers as one that has not.

mod pass;
mod said;

use std::sync::Arc;

use weir_journal::reader::{OpName, Slot};
use weir_journal::{Class, Event};

use crate::names::{Chain, Who};
use crate::roles::{self, Ruling};
use crate::trend::Sample;
use crate::{Error, Run, is_held};
use pass::Pass;
pub use said::{Place, Said};

/// Buckets of events between the oldest one and the moment.
pub const BUCKETS: usize = 64;
/// Memory of one class on one device that one operation on one line requested.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Device.
    pub device: u8,
    /// What sort of memory.
    pub class: Class,
    /// The requester.
    pub who: Arc<Who>,
    /// Bytes at the moment.
    pub bytes: u64,
    /// Of these, bytes beyond what was requested.
    pub slack: u64,
    /// Allocations at the moment.
    pub blocks: u64,
    /// Allocations seen.
    pub allocs: u64,
    /// Frees seen.
    pub frees: u64,
    /// Bytes of all allocations seen.
    pub churned: u64,
    /// Bytes at the end of each bucket.
    pub ends: [i64; BUCKETS],
    /// The least bytes in each bucket: what stays when everything temporary has gone.
    pub floor: [i64; BUCKETS],
    /// What it is for, and the rule that gave it.
    pub ruling: Ruling,
    /// Its allocations by operation, caller and size; not all of them where there are very many.
    pub pieces: Vec<Piece>,
    now: i64,
    count: i64,
    bucket: usize,
}

/// Allocations of one owner that are alike: of one operation with one shape, from one chain of callers, of one size.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The operation, with shape and type.
    pub op: Arc<OpName>,
    /// Who called it.
    pub python: Arc<Chain>,
    /// Bytes of one.
    pub size: u64,
    /// Live at the moment.
    pub live: u64,
    /// Allocations seen.
    pub made: u64,
    /// Frees seen.
    pub freed: u64,
    /// Number of the event of the first one.
    pub first: u64,
    /// Number of the event of the last one.
    pub last: u64,
    /// Turn of the training loop in which the first was made.
    pub first_turn: u32,
    /// Turn in which the last was made.
    pub last_turn: u32,
}

impl Piece {
    /// Bytes live at the moment.
    pub fn bytes(&self) -> u64 {
        self.size.saturating_mul(self.live)
    }

    /// The dimensions of the tensor; none where they are not known.
    pub fn dimensions(&self) -> Option<Vec<u64>> {
        roles::dimensions(&self.op.shape)
    }
}

impl Owner {
    fn new(device: u8, class: Class, who: Arc<Who>, ruling: Ruling) -> Self {
        Self {
            device,
            class,
            who,
            ruling,
            pieces: Vec::new(),
            bytes: 0,
            slack: 0,
            blocks: 0,
            allocs: 0,
            frees: 0,
            churned: 0,
            ends: [0; BUCKETS],
            floor: [0; BUCKETS],
            now: 0,
            count: 0,
            bucket: 0,
        }
    }

    /// Bytes at the moment, of tensors without what their chunks have beyond them.
    pub fn used(&self) -> u64 {
        if self.class == Class::Tensor { self.bytes.saturating_sub(self.slack) } else { self.bytes }
    }

    /// Carries the present value over buckets in which nothing happened.
    fn move_to(&mut self, bucket: usize) {
        while self.bucket < bucket {
            self.ends[self.bucket] = self.now;
            self.bucket += 1;
            self.floor[self.bucket] = self.now;
        }
    }

    fn change(&mut self, bucket: usize, bytes: i64) {
        self.move_to(bucket);
        self.now += bytes;
        self.count += bytes.signum();
        self.floor[bucket] = self.floor[bucket].min(self.now);
    }
}

/// Where a bucket ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    /// Seconds since the journal was begun.
    pub seconds: f64,
    /// The training step.
    pub step: u64,
    /// Resident host memory, the latest sample.
    pub resident: u64,
    /// Pinned host memory, the latest sample.
    pub pinned: u64,
    /// Allocations of device memory so far.
    pub made: u64,
}

/// Events that are missing, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Losses {
    /// Written in part.
    pub torn: u64,
    /// Claimed and not written.
    pub unwritten: u64,
    /// Overwritten, among those that should be there.
    pub lapped: u64,
    /// Cut off the file.
    pub cut: u64,
}

/// Training steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// Seen.
    pub seen: u64,
    /// Number of the last one.
    pub last: u64,
    /// Ticks that the middle one of the steps took.
    pub ticks: u64,
    /// Turns of the training loop: steps, and in a job without steps, passes that began after derivatives were computed.
    pub turns: u32,
}

/// Held bytes of one device over time.
#[derive(Clone, Debug)]
pub struct Course {
    /// Device.
    pub device: u8,
    /// The most in each bucket.
    pub most: [i64; BUCKETS],
    /// The least in each bucket.
    pub floor: [i64; BUCKETS],
    /// The most of all, up to the moment.
    pub peak: u64,
    /// When, in ticks.
    pub peak_time: u64,
    /// Number of the event that made it so; none where nothing rose.
    pub peak_event: Option<u64>,
    now: i64,
    high: (i64, u64, u64),
    bucket: usize,
}

/// What one pass over the events found.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Owners with memory at the moment or before it.
    pub owners: Vec<Owner>,
    /// Devices.
    pub courses: Vec<Course>,
    /// Ends of the buckets.
    pub marks: Vec<Mark>,
    /// Steps.
    pub steps: Steps,
    /// Marks that the job set, the last ones.
    pub said: Vec<Said>,
    /// Its regions, in the order in which they first began.
    pub places: Vec<Place>,
    /// Missing events.
    pub losses: Losses,
    /// Events read.
    pub events: u64,
    /// How often each kind was seen, by its number.
    pub kinds: [u64; 64],
    /// The moment: number of the event after which everything is reported.
    pub at: u64,
    /// Time of the moment, in ticks.
    pub time: u64,
    /// The event at the moment, for example the OOM itself, if it is there.
    pub event: Option<Event>,
    /// Who made the refused request at the moment, and its bytes; none where none was refused then.
    pub refused: Option<(Arc<Who>, u64)>,
}

impl Survey {
    /// Reads all events of a run and returns the state after event `at`, or at the end. `progress` receives, now and then,
    /// how many of how many events were read.
    pub fn of(run: &Run, at: Option<u64>, mut progress: impl FnMut(u64, u64)) -> Result<Self, Error> {
        let (first, end) = run.reader().range();
        let at = at.filter(|at| (first..end).contains(at)).unwrap_or(end.saturating_sub(1));
        let mut pass = Pass::new(run, first, at);
        for slot in run.events() {
            match slot.map_err(|error| run.broken(&error))? {
                Slot::Event(event) => pass.event(&event),
                Slot::Lost(loss) => pass.lost(loss.why, loss.count),
            }
            if pass.survey.events.is_multiple_of(1 << 18) {
                progress(pass.survey.events, end - first);
            }
        }
        let state = run.state()?;
        for event in state.rebuilt.values() {
            pass.event(event);
        }
        pass.finish(&state.live);
        Ok(pass.survey)
    }

    /// Bytes held on a device at the moment.
    pub fn held(&self, device: u8) -> u64 {
        self.owners.iter().filter(|o| o.device == device && is_held(o.class)).map(|owner| owner.bytes).sum()
    }

    /// Allocations held on a device at the moment.
    pub fn held_blocks(&self, device: u8) -> u64 {
        self.owners.iter().filter(|o| o.device == device && is_held(o.class)).map(|owner| owner.blocks).sum()
    }

    /// Bytes of one class on a device at the moment.
    pub fn of_class(&self, device: u8, class: Class) -> u64 {
        self.owners.iter().filter(|o| o.device == device && o.class == class).map(|owner| owner.bytes).sum()
    }

    /// The course of a device.
    pub fn course(&self, device: u8) -> Option<&Course> {
        self.courses.iter().find(|course| course.device == device)
    }

    /// A row of values over the run as samples by step where there are steps, else by seconds. The first quarter, when
    /// a job builds what it keeps, is left out.
    pub fn samples(&self, values: &[i64; BUCKETS]) -> Vec<Sample> {
        let by_step = self.steps.seen > 0;
        let mut samples: Vec<Sample> = Vec::new();
        for (mark, bytes) in self.marks.iter().zip(values).skip(BUCKETS / 4) {
            let at = if by_step { mark.step as f64 } else { mark.seconds };
            match samples.last_mut() {
                // Several buckets in one step: what is left at its end counts.
                Some(last) if last.at >= at => last.bytes = *bytes as f64,
                _ => samples.push(Sample { at, bytes: *bytes as f64 }),
            }
        }
        samples
    }

    /// The same for a job without steps, over its allocations: each turn of a loop makes as many. Seconds would tell how fast
    /// kernels were loaded, how busy the machine was and how long an allocator waited for memory. The first quarter of them is
    /// left out: by events it may be over before the job begins, as an allocator that maps its memory records that too.
    pub fn samples_at_work(&self, values: &[i64; BUCKETS]) -> Vec<Sample> {
        if self.steps.seen > 0 {
            return self.samples(values);
        }
        let mut samples: Vec<Sample> = Vec::new();
        let built = self.marks.last().map_or(0, |mark| mark.made) / 4;
        for (mark, bytes) in self.marks.iter().zip(values).filter(|(mark, _)| mark.made >= built) {
            let at = mark.made as f64;
            match samples.last_mut() {
                Some(last) if last.at >= at => last.bytes = *bytes as f64,
                _ => samples.push(Sample { at, bytes: *bytes as f64 }),
            }
        }
        samples
    }

    /// How much a row of values changed in the last `seconds` before the moment.
    pub fn recent(&self, values: &[i64; BUCKETS], seconds: f64) -> i64 {
        let end = self.marks.last().map_or(0.0, |mark| mark.seconds);
        let before = self.marks.iter().rposition(|mark| mark.seconds < end - seconds);
        let last = values.last().copied().unwrap_or(0);
        last - before.and_then(|place| values.get(place)).copied().unwrap_or(0)
    }
}
