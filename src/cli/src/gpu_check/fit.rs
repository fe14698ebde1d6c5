//! The cost of driver calls as sums that `VGPU_COST` takes, by least squares through measured medians. Pure.

use std::fmt::Write;

/// What a cost depends on: each call, MiB, mappings, and each mapping for each device beyond the first.
pub(super) const TERMS: usize = 4;
const UNITS: [&str; TERMS] = ["", "/MiB", "/mapping", "/peer"];

/// A measured median.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) mib: f64,
    pub(super) mappings: f64,
    pub(super) devices: f64,
    pub(super) nanoseconds: f64,
}

impl Point {
    fn terms(&self) -> [f64; TERMS] {
        [1.0, self.mib, self.mappings, self.mappings * (self.devices - 1.0)]
    }
}

/// The sum that comes closest to the points, each error in proportion to its point: no term is negative, and only the
/// first `terms` of the [`UNITS`] occur. All sets of terms are tried: they are few.
pub(super) fn fit(points: &[Point], terms: usize) -> [f64; TERMS] {
    let points: Vec<&Point> = points.iter().filter(|point| point.nanoseconds > 0.0).collect();
    let mut best = ([0.0; TERMS], f64::INFINITY);
    for set in 1_usize..1 << terms.min(TERMS) {
        let chosen: Vec<usize> = (0..TERMS).filter(|term| set >> term & 1 == 1).collect();
        let Some(found) = solve(&points, &chosen) else { continue };
        if found.iter().any(|cost| *cost < 0.0) {
            continue;
        }
        let mut sum = [0.0; TERMS];
        for (term, cost) in chosen.iter().zip(found) {
            sum[*term] = cost;
        }
        let error = points.iter().map(|point| (cost(&sum, point) / point.nanoseconds - 1.0).powi(2)).sum::<f64>();
        // A term more must be worth it.
        if error < best.1 * 0.999 {
            best = (sum, error);
        }
    }
    best.0
}

fn cost(sum: &[f64; TERMS], point: &Point) -> f64 {
    sum.iter().zip(point.terms()).map(|(cost, term)| cost * term).sum()
}

/// Normal equations for the chosen terms, by elimination; `None`: the points do not tell them apart.
fn solve(points: &[&Point], chosen: &[usize]) -> Option<Vec<f64>> {
    let n = chosen.len();
    let mut rows = vec![vec![0.0; n + 1]; n];
    for point in points {
        let terms = point.terms();
        let weighted: Vec<f64> = chosen.iter().map(|term| terms[*term] / point.nanoseconds).collect();
        for (row, left) in rows.iter_mut().zip(&weighted) {
            for (cell, right) in row.iter_mut().zip(weighted.iter().chain([&1.0])) {
                *cell += left * right;
            }
        }
    }
    for at in 0..n {
        let pivot = (at..n).max_by(|a, b| rows[*a][at].abs().total_cmp(&rows[*b][at].abs()))?;
        let largest = rows[pivot][at].abs();
        let scale = rows[pivot].iter().fold(0.0_f64, |most, cell| most.max(cell.abs()));
        if largest <= scale * 1e-9 || largest == 0.0 {
            return None;
        }
        rows.swap(at, pivot);
        let row = rows[at].clone();
        for other in (0..n).filter(|other| *other != at) {
            let times = rows[other][at] / row[at];
            rows[other].iter_mut().zip(&row).for_each(|(cell, own)| *cell -= times * own);
        }
    }
    Some(rows.iter().enumerate().map(|(at, row)| row[n] / row[at]).collect())
}

/// A row of `VGPU_COST`.
pub(super) fn row(call: &str, sum: &[f64; TERMS]) -> Option<String> {
    let mut text = String::new();
    for (cost, unit) in sum.iter().zip(UNITS) {
        let nanoseconds = cost.round() as u64;
        if nanoseconds > 0 {
            let plus = if text.is_empty() { "" } else { "+" };
            let _ = write!(text, "{plus}{nanoseconds}ns{unit}");
        }
    }
    (!text.is_empty()).then(|| format!("{call}={text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of a cost that is known, each off by a few per cent this way and that.
    fn points(sum: [f64; TERMS], off: f64) -> Vec<Point> {
        let mut points = Vec::new();
        for mappings in [1.0, 4.0, 16.0, 64.0] {
            for size in [2.0, 8.0, 32.0, 128.0] {
                for devices in [1.0, 2.0] {
                    let mut point = Point { mib: size * mappings, mappings, devices, nanoseconds: 0.0 };
                    let sign = if points.len() % 3 == 0 { off } else { -off / 2.0 };
                    point.nanoseconds = cost(&sum, &point) * (1.0 + sign);
                    points.push(point);
                }
            }
        }
        points
    }

    #[test]
    fn a_known_sum_comes_back() {
        for sum in [[10_000.0, 0.0, 26_000.0, 8_000.0], [20_000.0, 2_000.0, 0.0, 0.0], [0.0, 0.0, 500.0, 0.0]] {
            for off in [0.0, 0.03] {
                let found = fit(&points(sum, off), TERMS);
                for (found, right) in found.iter().zip(sum) {
                    assert!(
                        (found - right).abs() <= right * 0.1 + 300.0 * off,
                        "{found} for {right} of {sum:?}, off {off}"
                    );
                }
            }
        }
    }

    #[test]
    fn terms_that_nothing_tells_apart_are_left_out() {
        let one: Vec<Point> = points([5_000.0, 0.0, 0.0, 0.0], 0.0).into_iter().take(1).collect();
        assert_eq!(row("cuMemMap", &fit(&one, TERMS)).as_deref(), Some("cuMemMap=5000ns"));
        assert_eq!(row("cuMemMap", &fit(&[], TERMS)), None);
        assert_eq!(
            row("cuMemSetAccess", &[1.0, 0.0, 2.4, 3.0]).as_deref(),
            Some("cuMemSetAccess=1ns+2ns/mapping+3ns/peer")
        );
    }
}
