//! What the job said of itself: the marks that it set, and what its regions did to memory. Bounded: the last marks, and so many
//! names of regions.

use std::collections::{HashMap, VecDeque};

use weir_journal::{Event, Kind};

use super::Course;

/// Marks kept, the last ones.
const MOST_MARKS: usize = 64;
/// Names of regions kept apart; others are not counted.
const MOST_REGIONS: usize = 256;
/// Regions in progress at once, of all threads.
const MOST_OPEN: usize = 256;

/// A mark that the job set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its name.
    pub name: String,
    /// Number of its event.
    pub event: u64,
    /// When, in ticks.
    pub time: u64,
}

/// A region of the job's code: all its runs up to the moment, whichever thread made them. Memory is that of the whole process
/// while it lasted.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Runs that began.
    pub runs: u64,
    /// Runs in progress at the moment.
    pub open: u64,
    /// By device: the most bytes held during a run, and how many more were held at the ends of runs than at their beginnings.
    held: HashMap<u8, (i64, i64)>,
}

impl Place {
    /// The most bytes that a device held during a run.
    pub fn peak(&self, device: u8) -> u64 {
        self.held.get(&device).map_or(0, |(most, _)| (*most).max(0) as u64)
    }

    /// How many more bytes a device held at the ends of its runs than at their beginnings, all together. What of a run that is
    /// in progress is there now.
    pub fn kept(&self, device: u8) -> i64 {
        self.held.get(&device).map_or(0, |(_, kept)| *kept)
    }
}

/// A run of a region that is in progress.
#[derive(Clone, Debug)]
struct Open {
    place: usize,
    thread: u32,
    /// Bytes that each device held when it began; 0 for those not named.
    began: Vec<(u8, i64)>,
}

/// Marks and regions as the events come.
#[derive(Clone, Debug, Default)]
pub(super) struct Speech {
    marks: VecDeque<Said>,
    places: Vec<Place>,
    open: Vec<Open>,
}

impl Speech {
    pub(super) fn event(&mut self, event: &Event, name: &str, courses: &[Course]) {
        match event.kind {
            Kind::Mark => {
                if self.marks.len() == MOST_MARKS {
                    self.marks.pop_front();
                }
                self.marks.push_back(Said { name: name.to_owned(), event: event.seq, time: event.time });
            }
            Kind::RegionBegin => self.begin(event.thread, name, courses),
            Kind::RegionEnd => self.end(event.thread, name, courses),
            _ => {}
        }
    }

    fn begin(&mut self, thread: u32, name: &str, courses: &[Course]) {
        let place = self.places.iter().position(|place| place.name == name).unwrap_or(self.places.len());
        if place >= MOST_REGIONS || self.open.len() >= MOST_OPEN {
            return;
        }
        if place == self.places.len() {
            self.places.push(Place { name: name.to_owned(), ..Place::default() });
        }
        let began: Vec<(u8, i64)> = courses.iter().map(|course| (course.device, course.now)).collect();
        if let Some(known) = self.places.get_mut(place) {
            known.runs += 1;
            known.open += 1;
            for (device, now) in &began {
                let held = known.held.entry(*device).or_insert((*now, 0));
                held.0 = held.0.max(*now);
            }
        }
        self.open.push(Open { place, thread, began });
    }

    /// The thread's innermost run of that name ends. One whose beginning is overwritten was not counted.
    fn end(&mut self, thread: u32, name: &str, courses: &[Course]) {
        let is_it =
            |open: &Open| open.thread == thread && self.places.get(open.place).is_some_and(|place| place.name == name);
        let Some(found) = self.open.iter().rposition(is_it) else { return };
        let open = self.open.remove(found);
        self.settle(&open, courses);
        if let Some(place) = self.places.get_mut(open.place) {
            place.open -= 1;
        }
    }

    fn settle(&mut self, open: &Open, courses: &[Course]) {
        let Some(place) = self.places.get_mut(open.place) else { return };
        for course in courses {
            let began = open.began.iter().find(|(device, _)| *device == course.device).map_or(0, |(_, began)| *began);
            place.held.entry(course.device).or_insert((began, 0)).1 += course.now - began;
        }
    }

    /// A device holds so much now.
    #[inline]
    pub(super) fn held(&mut self, device: u8, now: i64) {
        for open in &self.open {
            if let Some(place) = self.places.get_mut(open.place) {
                // A device that had no event before held what it held at the beginning.
                let held = place.held.entry(device).or_default();
                held.0 = held.0.max(now);
            }
        }
    }

    /// At the moment: `before` is what each device held before the oldest event.
    pub(super) fn finish(mut self, courses: &[Course], before: &HashMap<u8, i64>) -> (Vec<Said>, Vec<Place>) {
        for open in std::mem::take(&mut self.open) {
            self.settle(&open, courses);
        }
        for place in &mut self.places {
            for (device, held) in &mut place.held {
                held.0 += before.get(device).copied().unwrap_or(0);
            }
        }
        (self.marks.into(), self.places)
    }
}
