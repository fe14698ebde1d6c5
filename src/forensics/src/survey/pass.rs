//! The pass itself: events in, owners and courses out.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use weir_journal::layout::HOST_DEVICE;
use weir_journal::reader::Why;
use weir_journal::{Attribution, Class, Event, FLAG_NOT_IN_TABLE, FLAG_UNKNOWN_ADDRESS, Kind, LiveEntry};

use super::said::Speech;
use super::{BUCKETS, Course, Losses, Mark, Owner, Piece, Steps, Survey};
use crate::roles::{self, Region, Role};
use crate::{Run, is_held};

/// Owners kept apart; what is beyond goes to one owner without a name for each class.
const MOST_OWNERS: usize = 16_384;
/// Pieces of owners kept apart; what is beyond counts for its owner only.
const MOST_PIECES: usize = 1 << 16;
/// Steps whose duration is remembered.
const MOST_STEPS: usize = 4096;

/// Bytes of one piece: of a tensor in a chunk of TensorFlow's own allocator the tensor's, which is what weights, gradients and
/// results of one shape have in common.
fn size_of(class: Class, requested: u64, allocated: u64) -> u64 {
    if class == Class::Tensor && requested > 0 { requested.min(allocated) } else { allocated }
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
/// What distinguishes owners: device, class, operation, line, native stack, region and role.
type Name = (u8, Class, String, String, u32, Region, Role);

/// One pass over the events of a run.
pub(super) struct Pass<'run> {
    run: &'run Run,
    pub(super) survey: Survey,
    by_raw: HashMap<Raw, u32, BuildHasherDefault<Mix>>,
    by_name: HashMap<Name, u32>,
    by_piece: HashMap<(u32, u32, u32, u64), u32, BuildHasherDefault<Mix>>,
    /// Whether derivatives were computed since the turn began.
    backward: bool,
    last: Option<(Raw, u32)>,
    first: u64,
    bucket: usize,
    step_since: u64,
    step_ticks: Vec<u64>,
    mark: Mark,
    speech: Speech,
}

impl<'run> Pass<'run> {
    pub(super) fn new(run: &'run Run, first: u64, at: u64) -> Self {
        let survey = Survey {
            owners: Vec::new(),
            courses: Vec::new(),
            marks: Vec::with_capacity(BUCKETS),
            steps: Steps::default(),
            said: Vec::new(),
            places: Vec::new(),
            losses: Losses::default(),
            events: 0,
            kinds: [0; 64],
            at,
            time: run.header().started.ticks,
            event: None,
            refused: None,
        };
        Self {
            run,
            survey,
            by_raw: HashMap::default(),
            by_name: HashMap::new(),
            by_piece: HashMap::default(),
            backward: false,
            last: None,
            first,
            bucket: 0,
            step_since: 0,
            step_ticks: Vec::new(),
            mark: Mark::default(),
            speech: Speech::default(),
        }
    }

    pub(super) fn lost(&mut self, why: Why, count: u64) {
        let losses = &mut self.survey.losses;
        *match why {
            Why::Torn => &mut losses.torn,
            Why::Unwritten => &mut losses.unwritten,
            Why::Lapped => &mut losses.lapped,
            Why::Cut => &mut losses.cut,
        } += count;
    }

    pub(super) fn event(&mut self, event: &Event) {
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
            if matches!(event.kind, Kind::Failed | Kind::Refused | Kind::Oom | Kind::Attempt) {
                survey.refused = Some((self.run.who(event.by), event.requested));
            }
        }
        match event.kind {
            Kind::Alloc if event.flags & FLAG_NOT_IN_TABLE == 0 => self.change(event, 1),
            Kind::Free if event.flags & FLAG_UNKNOWN_ADDRESS == 0 => self.change(event, -1),
            Kind::Step => self.step(event),
            Kind::Mark | Kind::RegionBegin | Kind::RegionEnd => {
                self.speech.event(event, &self.run.who(event.by).op.name, &survey.courses);
            }
            Kind::HostSample => {
                (self.mark.resident, self.mark.pinned) = (event.allocated, event.requested);
            }
            _ => {}
        }
    }

    fn step(&mut self, event: &Event) {
        let survey = &mut self.survey;
        survey.steps.seen += 1;
        survey.steps.turns += 1;
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
        let bytes = event.allocated as i64 * sign;
        let bucket = self.bucket;
        if sign > 0 {
            self.turn(index);
            self.mark.made += u64::from(event.device != HOST_DEVICE && event.class != Class::Handle);
        }
        let turn = self.survey.steps.turns;
        if let Some(piece) =
            self.piece(index, event.by, size_of(event.class, event.requested, event.allocated), event.seq)
        {
            if sign > 0 {
                (piece.last, piece.last_turn) = (event.seq, turn);
                piece.made += 1;
            } else {
                piece.freed += 1;
            }
        }
        if let Some(owner) = self.survey.owners.get_mut(index as usize) {
            owner.change(bucket, size_of(event.class, event.requested, event.allocated) as i64 * sign);
            if sign > 0 {
                owner.allocs += 1;
                owner.churned += event.allocated;
            } else {
                owner.frees += 1;
            }
        }
        if is_held(event.class) {
            let course = course_of(&mut self.survey.courses, event.device);
            course.move_to(bucket);
            course.now += bytes;
            course.most[bucket] = course.most[bucket].max(course.now);
            course.floor[bucket] = course.floor[bucket].min(course.now);
            if course.now > course.high.0 {
                course.high = (course.now, event.time, event.seq);
            }
            self.speech.held(event.device, course.now);
        }
    }

    /// A job without steps begins a new turn with what it computes after its derivatives.
    fn turn(&mut self, index: u32) {
        let survey = &mut self.survey;
        // Names of a graph's operations are paths, and their order says nothing.
        let by_itself = |owner: &&Owner| owner.device != HOST_DEVICE && !owner.who.op.name.contains('/');
        let Some(owner) = survey.owners.get(index as usize).filter(by_itself) else { return };
        match owner.ruling.0 {
            Role::Gradients => self.backward = true,
            Role::Activations if self.backward && survey.steps.seen == 0 => {
                self.backward = false;
                survey.steps.turns += 1;
            }
            _ => {}
        }
    }

    /// The piece of an owner, made when it is first seen; none where there are too many.
    fn piece(&mut self, owner: u32, by: Attribution, size: u64, seq: u64) -> Option<&mut Piece> {
        let place = match self.by_piece.get(&(owner, by.op, by.python, size)) {
            Some(place) => *place,
            None if self.by_piece.len() >= MOST_PIECES => return None,
            None => {
                let who = self.run.who(by);
                let turn = self.survey.steps.turns;
                let pieces = &mut self.survey.owners.get_mut(owner as usize)?.pieces;
                pieces.push(Piece {
                    op: Arc::clone(&who.op),
                    python: Arc::clone(&who.python),
                    size,
                    live: 0,
                    made: 0,
                    freed: 0,
                    first: seq,
                    last: seq,
                    first_turn: turn,
                    last_turn: turn,
                });
                let place = pieces.len() as u32 - 1;
                self.by_piece.insert((owner, by.op, by.python, size), place);
                place
            }
        };
        self.survey.owners.get_mut(owner as usize)?.pieces.get_mut(place as usize)
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
            owner.bytes = owner.bytes.wrapping_add_signed(event.allocated as i64 * sign);
            owner.slack = owner.slack.wrapping_add_signed(slack(event.allocated, event.requested) as i64 * sign);
            owner.blocks = owner.blocks.wrapping_add_signed(sign);
        }
        if let Some(piece) =
            self.piece(index, event.by, size_of(event.class, event.requested, event.allocated), event.seq)
        {
            piece.live = piece.live.wrapping_add_signed(sign);
        }
    }

    fn owner(&mut self, device: u8, class: Class, by: Attribution) -> u32 {
        // A native stack distinguishes owners only where there is nothing better.
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
        // One line may compute results and their derivatives with the same operation.
        let ruling = roles::by_name(&who, class, device);
        let stack = if crowded { 0 } else { raw.4 };
        let name = (device, class, who.op_name().to_owned(), line, stack, region, ruling.0);
        let owners = &mut self.survey.owners;
        let index = *self.by_name.entry(name).or_insert_with(|| {
            owners.push(Owner::new(device, class, who, ruling));
            owners.len() as u32 - 1
        });
        if self.by_raw.len() < 1 << 20 {
            self.by_raw.insert(raw, index);
        }
        index
    }

    /// Turns changes into amounts, with the help of what is live at the end.
    pub(super) fn finish(&mut self, live: &[LiveEntry]) {
        for entry in live {
            let index = self.owner(entry.device, entry.class, entry.by);
            if let Some(owner) = self.survey.owners.get_mut(index as usize) {
                owner.bytes = owner.bytes.wrapping_add(entry.allocated);
                owner.slack = owner.slack.wrapping_add(slack(entry.allocated, entry.requested));
                owner.blocks = owner.blocks.wrapping_add(1);
            }
            if let Some(piece) =
                self.piece(index, entry.by, size_of(entry.class, entry.requested, entry.allocated), entry.birth)
            {
                piece.live = piece.live.wrapping_add(1);
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
            owner.pieces.iter_mut().for_each(|piece| piece.live = (piece.live as i64).max(0) as u64);
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
        (survey.said, survey.places) = std::mem::take(&mut self.speech).finish(&survey.courses, &started);
        for course in &mut survey.courses {
            course.move_to(BUCKETS - 1);
            let before = started.get(&course.device).copied().unwrap_or(0);
            for value in course.most.iter_mut().chain(&mut course.floor) {
                *value = (*value + before).max(0);
            }
            course.peak = (course.high.0 + before).max(0) as u64;
            course.peak_event = (course.high.1 > 0).then_some(course.high.2);
            course.peak_time = if course.high.1 == 0 { survey.time } else { course.high.1 };
        }
        roles::assign(survey);
        survey.courses.retain(|course| course.device != HOST_DEVICE);
        survey.courses.sort_by_key(|course| course.device);
    }
}

/// Bytes allocated beyond what was requested; none for memory requested without a size.
fn slack(allocated: u64, requested: u64) -> u64 {
    if requested == 0 { 0 } else { allocated.saturating_sub(requested) }
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
            peak_event: None,
            high: (0, 0, 0),
            bucket: 0,
        });
        courses.len() - 1
    });
    &mut courses[place]
}
