//! One pass over all events of a run: who held how much, when, up to a moment. Memory is bounded however long the run:
//! a fixed number of buckets of time for a limited number of owners.
//!
//! The pass adds up changes; what was live before the oldest event follows from what is live at the end. So a journal
//! that has overwritten its beginning gives the same numbers as one that has not.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use weir_journal::layout::HOST_DEVICE;
use weir_journal::reader::{Slot, Why};
use weir_journal::{Attribution, Class, Event, FLAG_NOT_IN_TABLE, FLAG_UNKNOWN_ADDRESS, Kind, LiveEntry};

use crate::growth::Sample;
use crate::names::Who;
use crate::roles::{self, Region};
use crate::{Error, Run, is_held};

/// Buckets of events between the oldest one and the moment.
pub const BUCKETS: usize = 64;
/// Owners kept apart; what is beyond goes to one owner without a name for each class.
const MOST_OWNERS: usize = 16_384;
/// Steps whose duration is remembered.
const MOST_STEPS: usize = 4096;

/// Memory of one class on one device that one operation on one line asked for.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Device.
    pub device: u8,
    /// What sort of memory.
    pub class: Class,
    /// Who asked.
    pub who: Arc<Who>,
    /// Bytes at the moment.
    pub bytes: u64,
    /// Of these, bytes beyond what was asked for.
    pub slack: u64,
    /// Allocations at the moment.
    pub blocks: u64,
    /// Allocations seen.
    pub allocs: u64,
    /// Frees seen.
    pub frees: u64,
    /// Bytes of all allocations seen.
    pub churned: u64,
    /// Ticks that freed memory had lived, added up.
    pub lived: u128,
    /// Bytes at the end of each bucket.
    pub ends: [i64; BUCKETS],
    /// The least bytes in each bucket: what stays when everything temporary has gone.
    pub floor: [i64; BUCKETS],
    now: i64,
    count: i64,
    bucket: usize,
}

impl Owner {
    fn new(device: u8, class: Class, who: Arc<Who>) -> Self {
        Self {
            device,
            class,
            who,
            bytes: 0,
            slack: 0,
            blocks: 0,
            allocs: 0,
            frees: 0,
            churned: 0,
            lived: 0,
            ends: [0; BUCKETS],
            floor: [0; BUCKETS],
            now: 0,
            count: 0,
            bucket: 0,
        }
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

    /// Whether this owner's memory usually outlives a step of so many ticks.
    pub fn mean_life(&self) -> Option<u64> {
        (self.frees > 0).then(|| (self.lived / u128::from(self.frees)) as u64)
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
    now: i64,
    high: (i64, u64),
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
    /// Missing events.
    pub losses: Losses,
    /// Events read.
    pub events: u64,
    /// How often each kind was seen, by its number.
    pub kinds: [u64; 64],
    /// The moment: number of the event after which everything is told.
    pub at: u64,
    /// Time of the moment, in ticks.
    pub time: u64,
    /// The event at the moment, for example the OOM itself, if it is there.
    pub event: Option<Event>,
    /// Owners that found no place of their own.
    pub crowded: u64,
}

/// A hash for ids and addresses; nobody gains from making them collide.
#[derive(Clone, Copy, Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }
    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

type Raw = (u8, Class, u32, u32, u32);

struct Pass<'run> {
    run: &'run Run,
    survey: Survey,
    by_raw: HashMap<Raw, u32, BuildHasherDefault<Mix>>,
    by_name: HashMap<(u8, Class, String, String, u32, Region), u32>,
    last: Option<(Raw, u32)>,
    first: u64,
    bucket: usize,
    step_since: u64,
    step_ticks: Vec<u64>,
    mark: Mark,
}

impl Survey {
    /// Reads all events of a run and tells the state after event `at`, or at the end. `progress` is told, now and then,
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

    /// How much a row of values changed in the last `seconds` before the moment.
    pub fn recent(&self, values: &[i64; BUCKETS], seconds: f64) -> i64 {
        let end = self.marks.last().map_or(0.0, |mark| mark.seconds);
        let before = self.marks.iter().rposition(|mark| mark.seconds < end - seconds);
        let last = values.last().copied().unwrap_or(0);
        last - before.and_then(|place| values.get(place)).copied().unwrap_or(0)
    }
}

impl<'run> Pass<'run> {
    fn new(run: &'run Run, first: u64, at: u64) -> Self {
        let survey = Survey {
            owners: Vec::new(),
            courses: Vec::new(),
            marks: Vec::with_capacity(BUCKETS),
            steps: Steps::default(),
            losses: Losses::default(),
            events: 0,
            kinds: [0; 64],
            at,
            time: run.header().started.ticks,
            event: None,
            crowded: 0,
        };
        Self {
            run,
            survey,
            by_raw: HashMap::default(),
            by_name: HashMap::new(),
            last: None,
            first,
            bucket: 0,
            step_since: 0,
            step_ticks: Vec::new(),
            mark: Mark::default(),
        }
    }

    fn lost(&mut self, why: Why, count: u64) {
        let losses = &mut self.survey.losses;
        *match why {
            Why::Torn => &mut losses.torn,
            Why::Unwritten => &mut losses.unwritten,
            Why::Lapped => &mut losses.lapped,
            Why::Cut => &mut losses.cut,
        } += count;
    }

    fn event(&mut self, event: &Event) {
        let survey = &mut self.survey;
        survey.events += 1;
        survey.kinds[event.kind as usize & 63] += 1;
        if event.seq > survey.at {
            return self.after(event);
        }
        let bucket = ((event.seq - self.first) * BUCKETS as u64 / (survey.at + 1 - self.first)) as usize;
        if bucket > self.bucket {
            self.mark.seconds = self.run.seconds(survey.time);
            self.bucket = bucket.min(BUCKETS - 1);
            while survey.marks.len() < self.bucket {
                survey.marks.push(self.mark);
            }
        }
        survey.time = survey.time.max(event.time);
        if event.seq == survey.at {
            survey.event = Some(*event);
        }
        match event.kind {
            Kind::Alloc if event.flags & FLAG_NOT_IN_TABLE == 0 => self.change(event, 1),
            Kind::Free if event.flags & FLAG_UNKNOWN_ADDRESS == 0 => self.change(event, -1),
            Kind::Step => self.step(event),
            Kind::HostSample => {
                (self.mark.resident, self.mark.pinned) = (event.given, event.asked);
            }
            _ => {}
        }
    }

    fn step(&mut self, event: &Event) {
        let survey = &mut self.survey;
        survey.steps.seen += 1;
        survey.steps.last = event.address;
        self.mark.step = event.address;
        if self.step_since > 0 && event.time > self.step_since {
            let place = survey.steps.seen as usize % MOST_STEPS;
            match self.step_ticks.get_mut(place) {
                Some(old) => *old = event.time - self.step_since,
                None => self.step_ticks.push(event.time - self.step_since),
            }
        }
        self.step_since = event.time;
    }

    fn change(&mut self, event: &Event, sign: i64) {
        let index = self.owner(event.device, event.class, event.by);
        let bytes = event.given as i64 * sign;
        let bucket = self.bucket;
        if let Some(owner) = self.survey.owners.get_mut(index as usize) {
            owner.change(bucket, bytes);
            if sign > 0 {
                owner.allocs += 1;
                owner.churned += event.given;
            } else {
                owner.frees += 1;
                owner.lived += u128::from(event.age().unwrap_or(0));
            }
        }
        if is_held(event.class) {
            let course = course_of(&mut self.survey.courses, event.device);
            course.move_to(bucket);
            course.now += bytes;
            course.most[bucket] = course.most[bucket].max(course.now);
            course.floor[bucket] = course.floor[bucket].min(course.now);
            if course.now > course.high.0 {
                course.high = (course.now, event.time);
            }
        }
    }

    /// What happened after the moment is taken away from the end again.
    fn after(&mut self, event: &Event) {
        let sign = match event.kind {
            Kind::Alloc if event.flags & FLAG_NOT_IN_TABLE == 0 => -1,
            Kind::Free if event.flags & FLAG_UNKNOWN_ADDRESS == 0 => 1,
            _ => return,
        };
        let index = self.owner(event.device, event.class, event.by);
        if let Some(owner) = self.survey.owners.get_mut(index as usize) {
            owner.bytes = owner.bytes.wrapping_add_signed(event.given as i64 * sign);
            owner.slack = owner.slack.wrapping_add_signed(slack(event.given, event.asked) as i64 * sign);
            owner.blocks = owner.blocks.wrapping_add_signed(sign);
        }
    }

    fn owner(&mut self, device: u8, class: Class, by: Attribution) -> u32 {
        // A native stack tells owners apart only where there is nothing better.
        let stack = if by.op == 0 && by.python == 0 { by.stack } else { 0 };
        let raw = (device, class, by.op, by.python, stack);
        if let Some((last, index)) = self.last
            && last == raw
        {
            return index;
        }
        let index = match self.by_raw.get(&raw) {
            Some(index) => *index,
            None => self.new_owner(raw, Attribution { stack, ..by }),
        };
        self.last = Some((raw, index));
        index
    }

    fn new_owner(&mut self, raw: Raw, by: Attribution) -> u32 {
        let (device, class, ..) = raw;
        let crowded = self.survey.owners.len() >= MOST_OWNERS;
        let who = if crowded { Arc::default() } else { self.run.who(by) };
        let line = who.line().map(|line| format!("{}:{}", line.file, line.line)).unwrap_or_default();
        let region = roles::region(&who);
        let name = (device, class, who.op_name().to_owned(), line, if crowded { 0 } else { raw.4 }, region);
        self.survey.crowded += u64::from(crowded);
        let owners = &mut self.survey.owners;
        let index = *self.by_name.entry(name).or_insert_with(|| {
            owners.push(Owner::new(device, class, who));
            owners.len() as u32 - 1
        });
        if self.by_raw.len() < 1 << 20 {
            self.by_raw.insert(raw, index);
        }
        index
    }

    /// Turns changes into amounts, with the help of what is live at the end.
    fn finish(&mut self, live: &[LiveEntry]) {
        for entry in live {
            let index = self.owner(entry.device, entry.class, entry.by);
            if let Some(owner) = self.survey.owners.get_mut(index as usize) {
                owner.bytes = owner.bytes.wrapping_add(entry.given);
                owner.slack = owner.slack.wrapping_add(slack(entry.given, entry.asked));
                owner.blocks = owner.blocks.wrapping_add(1);
            }
        }
        self.mark.seconds = self.run.seconds(self.survey.time);
        let survey = &mut self.survey;
        survey.marks.resize(BUCKETS, self.mark);
        self.step_ticks.sort_unstable();
        survey.steps.ticks = self.step_ticks.get(self.step_ticks.len() / 2).copied().unwrap_or(0);
        let mut started: HashMap<u8, i64> = HashMap::new();
        for owner in &mut survey.owners {
            owner.move_to(BUCKETS - 1);
            owner.ends[BUCKETS - 1] = owner.now;
            // Events that are missing can make the sum wrong; what is below nothing is nothing.
            owner.bytes = (owner.bytes as i64).max(0) as u64;
            owner.slack = (owner.slack as i64).max(0) as u64;
            owner.blocks = (owner.blocks as i64).max(0) as u64;
            let before = owner.bytes as i64 - owner.now;
            for value in owner.ends.iter_mut().chain(&mut owner.floor) {
                *value = (*value + before).max(0);
            }
            if is_held(owner.class) {
                *started.entry(owner.device).or_default() += before;
            }
        }
        for device in started.keys() {
            course_of(&mut survey.courses, *device);
        }
        for course in &mut survey.courses {
            course.move_to(BUCKETS - 1);
            let before = started.get(&course.device).copied().unwrap_or(0);
            for value in course.most.iter_mut().chain(&mut course.floor) {
                *value = (*value + before).max(0);
            }
            course.peak = (course.high.0 + before).max(0) as u64;
            course.peak_time = if course.high.1 == 0 { survey.time } else { course.high.1 };
        }
        survey.courses.retain(|course| course.device != HOST_DEVICE);
        survey.courses.sort_by_key(|course| course.device);
    }
}

/// Bytes given beyond what was asked for; of memory that nobody asked a size of, none.
fn slack(given: u64, asked: u64) -> u64 {
    if asked == 0 { 0 } else { given.saturating_sub(asked) }
}

impl Course {
    fn move_to(&mut self, bucket: usize) {
        while self.bucket < bucket {
            self.bucket += 1;
            self.most[self.bucket] = self.now;
            self.floor[self.bucket] = self.now;
        }
    }
}

fn course_of(courses: &mut Vec<Course>, device: u8) -> &mut Course {
    let place = courses.iter().position(|course| course.device == device).unwrap_or_else(|| {
        courses.push(Course {
            device,
            most: [0; BUCKETS],
            floor: [0; BUCKETS],
            peak: 0,
            peak_time: 0,
            now: 0,
            high: (0, 0),
            bucket: 0,
        });
        courses.len() - 1
    });
    &mut courses[place]
}
