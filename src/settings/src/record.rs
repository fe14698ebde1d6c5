//! What is recorded, as it is written: WEIR_KEEP, WEIR_RING and WEIR_STACKS. Plain data.

use crate::size::{BadValue, parse_count, parse_size};

/// Which journals of ended processes are kept. Both limits hold; the newest journals stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Journals at most.
    pub count: Option<u64>,
    /// Bytes on disk at most.
    pub bytes: Option<u64>,
}

impl Default for Keep {
    fn default() -> Self {
        Self { count: Some(20), bytes: Some(4 << 30) }
    }
}

impl Keep {
    /// Reads `20`, `4GiB`, `20,4GiB` or `all`. A number alone counts journals, a number with a unit is bytes.
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let help = "a number of journals (20), a size (4GiB), both (20,4GiB) or all";
        let mut keep = Self { count: None, bytes: None };
        if text.trim() == "all" {
            return Ok(keep);
        }
        for part in text.split(',').map(str::trim) {
            let counts = part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty();
            let (place, value) = if counts {
                (&mut keep.count, part.parse().map_err(|_| BadValue::new(text, "too large", help))?)
            } else {
                (&mut keep.bytes, parse_size(part).map_err(|bad| BadValue::new(text, bad.problem, help))?)
            };
            if place.replace(value).is_some() {
                return Err(BadValue::new(text, "the same limit twice", help));
            }
        }
        Ok(keep)
    }
}

/// How much a journal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ring {
    /// Events.
    pub events: u64,
    /// Live allocations, if they are set.
    pub live: Option<u64>,
}

impl Ring {
    /// Reads `1M` or `1M,86000`: events, and after a comma live allocations.
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let help = "events (64 to 256M), or events and live allocations (64 to 64M): 1M,86000";
        let number = |part: &str, least: u64, most: u64| {
            let number = parse_count(part).map_err(|bad| BadValue::new(text, bad.problem, help))?;
            match number {
                n if n < least => Err(BadValue::new(text, format!("{n} is too few"), help)),
                n if n > most => Err(BadValue::new(text, format!("{n} is too many"), help)),
                n => Ok(n),
            }
        };
        let (events, live) = text.split_once(',').map_or((text, None), |(events, live)| (events, Some(live)));
        let events = number(events, 64, 1 << 28)?;
        Ok(Self { events, live: live.map(|live| number(live, 64, 1 << 26)).transpose()? })
    }
}

/// When native stacks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Stacks {
    /// Never.
    Off,
    /// For driver calls, failures, and a sample of the pool's hits.
    #[default]
    Sampled,
    /// For every allocation.
    All,
}

impl Stacks {
    /// Reads the variable's value.
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        match text {
            "off" => Ok(Self::Off),
            "sampled" => Ok(Self::Sampled),
            "all" => Ok(Self::All),
            _ => Err(BadValue::new(text, "unknown value", "off, sampled or all")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept() {
        let keep = |text: &str| Keep::parse(text).map(|keep| (keep.count, keep.bytes));
        assert_eq!(keep("20"), Ok((Some(20), None)));
        assert_eq!(keep("4GB"), Ok((None, Some(4_000_000_000))));
        assert_eq!(keep("3, 1.5Gi"), Ok((Some(3), Some(3 << 29))));
        assert_eq!(keep("all"), Ok((None, None)));
        for bad in ["", "many", "1,2", "1GiB,2GiB", "20,", "-1", "99999999999999999999999"] {
            assert!(keep(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn how_much_a_journal_holds() {
        let ring = |text: &str| Ring::parse(text).map(|ring| (ring.events, ring.live));
        assert_eq!(ring("64,512"), Ok((64, Some(512))));
        assert_eq!(ring("4M"), Ok((4 << 20, None)));
        for bad in ["", "63", "x", "1M,", "1M,63", "512M", "1MM", "K", "1,2,3", "-1", "100k"] {
            assert!(ring(bad).is_err(), "{bad:?}");
        }
    }
}
