//! A straight line through the peaks of a sweep, how far the peaks are from it, and the largest value below a limit.

use serde::Serialize;

/// `bytes = base + each * value`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Line {
    /// Bytes at 0.
    pub(super) base: f64,
    /// Bytes for each.
    pub(super) each: f64,
    /// Standard error of a peak, in bytes; none where two points leave no room for one.
    pub(super) error: Option<f64>,
    /// The largest value that was measured.
    pub(super) measured_to: f64,
    /// How many values, their mean, and how far they are spread around it: the further off, the less a line shows.
    #[serde(skip)]
    spread: (f64, f64, f64),
}

/// Bounds are no further from the line's own answer than this many times.
const WIDEST: u64 = 4;

/// The largest value that fits, and where it is with an error of twice the standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Largest {
    /// By the line.
    pub(super) value: u64,
    /// Surely, as far as the line holds.
    pub(super) at_least: u64,
    /// Perhaps.
    pub(super) at_most: u64,
    /// Whether it lies beyond twice the largest value that was measured.
    pub(super) far: bool,
}

impl Line {
    /// The line of least squares; none for fewer than two different values.
    pub(super) fn through(points: &[(f64, f64)]) -> Option<Self> {
        let n = points.len() as f64;
        let (mean_x, mean_y) =
            (points.iter().map(|(x, _)| x).sum::<f64>() / n, points.iter().map(|(_, y)| y).sum::<f64>() / n);
        let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        if points.len() < 2 || spread <= 0.0 {
            return None;
        }
        let each = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
        let base = mean_y - each * mean_x;
        let rest: f64 = points.iter().map(|(x, y)| (y - base - each * x).powi(2)).sum();
        let error = (points.len() > 2).then(|| (rest / (n - 2.0)).sqrt());
        let measured_to = points.iter().map(|(x, _)| *x).fold(0.0, f64::max);
        Some(Self { base, each, error, measured_to, spread: (n, mean_x, spread) })
    }

    /// Twice the standard error of a peak that is foretold for a value.
    fn margin(&self, value: f64) -> f64 {
        let (n, mean, spread) = self.spread;
        2.0 * self.error.unwrap_or(0.0) * (1.0 + 1.0 / n + (value - mean).powi(2) / spread).sqrt()
    }

    /// The largest whole value whose peak is within `limit`; none when the peak does not grow, or none fits.
    pub(super) fn largest(&self, limit: f64) -> Option<Largest> {
        let at = |limit: f64| ((limit - self.base) / self.each).floor();
        if self.each <= 0.0 || !at(limit).is_finite() || at(limit) < 1.0 {
            return None;
        }
        let value = at(limit) as u64;
        let peak = |value: u64, sign: f64| self.base + self.each * value as f64 + sign * self.margin(value as f64);
        Some(Largest {
            value,
            at_least: last(0, value, |value| peak(value, 1.0) <= limit),
            at_most: last(value, value.saturating_mul(WIDEST), |value| peak(value, -1.0) <= limit),
            far: at(limit) > 2.0 * self.measured_to,
        })
    }
}

/// The last value between `low` and `high` for which something holds that holds up to some value; `low` if for none.
fn last(mut low: u64, mut high: u64, holds: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = high - (high - low) / 2;
        if holds(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

impl Largest {
    /// Values to confirm, best first: by the line, its lower bound, and a tenth below.
    pub(super) fn candidates(&self) -> Vec<u64> {
        let tenth = self.at_least - self.at_least / 10;
        let mut values = vec![self.value, self.at_least, tenth];
        values.dedup();
        values.retain(|value| *value > 0);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_line_has_no_error() {
        let line = Line::through(&[(16.0, 1160.0), (32.0, 1320.0), (64.0, 1640.0)]).unwrap();
        assert!((line.base - 1000.0).abs() < 1e-6 && (line.each - 10.0).abs() < 1e-9, "{line:?}");
        assert!(line.error.unwrap() < 1e-6);
        let largest = line.largest(2005.0).unwrap();
        assert_eq!((largest.value, largest.at_least, largest.at_most, largest.far), (100, 100, 100, false));
        assert!(line.largest(9000.0).unwrap().far);
    }

    #[test]
    fn noise_widens_the_bounds() {
        let line = Line::through(&[(10.0, 1090.0), (20.0, 1230.0), (30.0, 1280.0), (40.0, 1410.0)]).unwrap();
        let largest = line.largest(2000.0).unwrap();
        assert!(largest.at_least < largest.value && largest.value < largest.at_most, "{largest:?}");
        let tried = largest.candidates();
        assert!(tried.is_sorted_by(|a, b| a > b) && tried[0] == largest.value, "{tried:?}");
    }

    #[test]
    fn bounds_widen_with_the_distance() {
        let line = Line::through(&[(10.0, 1090.0), (20.0, 1230.0), (30.0, 1280.0), (40.0, 1410.0)]).unwrap();
        let width = |limit: f64| line.largest(limit).map(|largest| largest.at_most - largest.at_least).unwrap();
        assert!(width(1400.0) >= 8 && width(3000.0) > 2 * width(1400.0), "{} {}", width(1400.0), width(3000.0));
        let (_, mean, spread) = line.spread;
        assert!((mean - 25.0).abs() < 1e-9 && (spread - 500.0).abs() < 1e-9);
        assert!((line.margin(mean) - 2.0 * line.error.unwrap() * 1.25_f64.sqrt()).abs() < 1e-6);
        assert_eq!((last(3, 9, |value| value <= 7), last(3, 9, |_| false), last(3, 9, |_| true)), (7, 3, 9));
    }

    #[test]
    fn no_line_and_no_largest() {
        assert_eq!(Line::through(&[(1.0, 5.0)]), None);
        assert_eq!(Line::through(&[(1.0, 5.0), (1.0, 6.0)]), None);
        let two = Line::through(&[(1.0, 5.0), (2.0, 6.0)]).unwrap();
        assert_eq!(two.error, None);
        let flat = Line::through(&[(1.0, 5.0), (2.0, 5.0)]).unwrap();
        assert_eq!(flat.largest(100.0), None);
        assert_eq!(two.largest(3.0), None);
    }
}
