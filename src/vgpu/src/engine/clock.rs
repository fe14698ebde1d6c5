//! What comes before what: points in streams, and clocks that gather them.

/// A point in a stream: everything up to this number.
pub(crate) type Point = (u64, u64);

/// What is known to come before: the newest number of each stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Vec<Point>);

impl Clock {
    pub(crate) fn at(&self, stream: u64) -> u64 {
        self.0.iter().find(|(s, _)| *s == stream).map_or(0, |(_, n)| *n)
    }

    pub(crate) fn add(&mut self, (stream, number): Point) {
        match self.0.iter_mut().find(|(s, _)| *s == stream) {
            Some((_, n)) => *n = number.max(*n),
            None => self.0.push((stream, number)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.0.retain(|&(stream, _)| keep(stream));
    }

    pub(crate) fn points(self) -> Vec<Point> {
        self.0
    }

    pub(crate) fn join(&mut self, other: &Clock) {
        for &point in &other.0 {
            self.add(point);
        }
    }
}
