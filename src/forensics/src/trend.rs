//! Growth of a quantity over time: a straight line through samples, how well it explains them, and
//! when it reaches a limit.

/// One observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When, in any unit: seconds, or steps.
    pub at: f64,
    /// How many bytes.
    pub bytes: f64,
}

/// A straight line through samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Bytes a unit of time.
    pub slope: f64,
    /// Bytes at the last sample, by the line.
    pub now: f64,
    /// The last sample's time.
    pub last: f64,
    /// Share of the samples' variation that the line explains, 0 to 1.
    pub fit: f64,
}

impl Trend {
    /// The line of least squares; none for fewer than three samples or samples of one instant.
    pub fn through(samples: &[Sample]) -> Option<Self> {
        let usable = |s: &&Sample| s.at.is_finite() && s.bytes.is_finite();
        let samples: Vec<&Sample> = samples.iter().filter(usable).collect();
        let last = samples.iter().map(|s| s.at).fold(f64::NEG_INFINITY, f64::max);
        if samples.len() < 3 {
            return None;
        }
        let n = samples.len() as f64;
        let mean_at = samples.iter().map(|s| s.at).sum::<f64>() / n;
        let mean_bytes = samples.iter().map(|s| s.bytes).sum::<f64>() / n;
        let (mut spread, mut together, mut variation) = (0.0, 0.0, 0.0);
        for s in &samples {
            let (x, y) = (s.at - mean_at, s.bytes - mean_bytes);
            spread += x * x;
            together += x * y;
            variation += y * y;
        }
        if spread <= 0.0 {
            return None;
        }
        let slope = together / spread;
        let fit = if variation > 0.0 { together * together / (spread * variation) } else { 1.0 };
        Some(Self { slope, now: mean_bytes + slope * (last - mean_at), last, fit })
    }

    /// Whether this is growth and not noise: upwards, and the line explains most of what happens.
    pub fn grows(&self) -> bool {
        self.slope > 0.0 && self.fit >= 0.8
    }

    /// Time from the last sample until `limit` is reached; none if it never is.
    pub fn until(&self, limit: f64) -> Option<f64> {
        let left = limit - self.now;
        if left <= 0.0 {
            return Some(0.0);
        }
        (self.slope > 0.0).then(|| left / self.slope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: impl Fn(f64) -> f64) -> Vec<Sample> {
        (0..50).map(|i| Sample { at: f64::from(i), bytes: of(f64::from(i)) }).collect()
    }

    #[test]
    fn a_leak_is_growth_with_a_forecast() {
        let trend = Trend::through(&samples(|t| 1000.0 + 22.0 * t + 5.0 * (t * 7.0).sin())).unwrap();
        assert!(trend.grows());
        assert!((trend.slope - 22.0).abs() < 0.5, "{trend:?}");
        let left = trend.until(1000.0 + 22.0 * 149.0).unwrap();
        assert!((left - 100.0).abs() < 2.0, "{left}");
    }

    #[test]
    fn a_saw_tooth_is_no_growth() {
        let trend = Trend::through(&samples(|t| 1e9 * (t % 10.0))).unwrap();
        assert!(!trend.grows(), "{trend:?}");
    }

    #[test]
    fn what_shrinks_never_reaches_the_limit() {
        let trend = Trend::through(&samples(|t| 1000.0 - t)).unwrap();
        assert_eq!(trend.until(2000.0), None);
        assert_eq!(trend.until(10.0), Some(0.0));
    }

    #[test]
    fn too_few_samples_have_no_line() {
        assert_eq!(Trend::through(&samples(|t| t)[..2]), None);
        assert_eq!(Trend::through(&[Sample { at: 1.0, bytes: 2.0 }; 5]), None);
        assert_eq!(Trend::through(&[Sample { at: f64::NAN, bytes: 2.0 }; 5]), None);
    }
}
