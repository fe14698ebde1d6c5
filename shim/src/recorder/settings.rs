//! What WEIR_JOURNAL, WEIR_KEEP, WEIR_RING, WEIR_STACKS and WEIR_OOM_TEXT ask for. Nothing is touched here.

use crate::attribution::Stacks;
use weir_journal::{Geometry, Keep};

/// What a job's journal shall be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Whether there is one.
    pub(crate) on: bool,
    /// How many journals of dead processes stay.
    pub(crate) keep: Keep,
    /// Its sizes.
    pub(crate) geometry: Geometry,
    /// When native stacks are taken.
    pub(crate) stacks: Stacks,
    /// Whether a shortage is told on standard error.
    pub(crate) oom_text: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            on: true,
            keep: Keep::default(),
            geometry: Geometry::default(),
            stacks: Stacks::default(),
            oom_text: true,
        }
    }
}

/// Rings below this many events are for short runs, and so are the tables beside them.
const SMALL_RING: u64 = 1 << 16;

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be on or off".into()),
    }
}

/// A number of events or allocations: digits, and K or M for 1024 and 1024 * 1024.
fn amount(text: &str, least: u64, most: u64) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'M']);
    let factor = match text.get(digits.len()..)? {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    let number = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    (least..=most).contains(&number).then_some(number)
}

impl Settings {
    /// Reads WEIR_JOURNAL.
    pub(crate) fn read_journal(&mut self, text: &str) -> Result<(), String> {
        self.on = switch(text)?;
        Ok(())
    }

    /// Reads WEIR_KEEP.
    pub(crate) fn read_keep(&mut self, text: &str) -> Result<(), String> {
        self.keep = Keep::parse(text)?;
        Ok(())
    }

    /// Reads WEIR_RING: events, and after a comma live allocations.
    pub(crate) fn read_ring(&mut self, text: &str) -> Result<(), String> {
        let (events, live) = text.split_once(',').map_or((text, None), |(events, live)| (events, Some(live)));
        let bad = || "must be events (64 to 256M), or events and live allocations: 1M,86000".to_owned();
        let mut geometry = Geometry { events: amount(events, 64, 1 << 28).ok_or_else(bad)?, ..Geometry::default() };
        if geometry.events < SMALL_RING {
            geometry = Geometry { live: 8 << 10, names: 512 << 10, stacks: 1 << 20, ..geometry };
        }
        if let Some(live) = live {
            geometry.live = amount(live, 64, 1 << 26).ok_or_else(bad)?;
        }
        self.geometry = geometry;
        Ok(())
    }

    /// Reads WEIR_STACKS.
    pub(crate) fn read_stacks(&mut self, text: &str) -> Result<(), String> {
        self.stacks = match text {
            "off" => Stacks::Off,
            "sampled" => Stacks::Sampled,
            "all" => Stacks::All,
            _ => return Err("must be off, sampled or all".into()),
        };
        Ok(())
    }

    /// Reads WEIR_OOM_TEXT.
    pub(crate) fn read_oom_text(&mut self, text: &str) -> Result<(), String> {
        self.oom_text = switch(text)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_has_a_grammar() {
        let ring = |text: &str| {
            let mut settings = Settings::default();
            settings.read_ring(text).map(|()| (settings.geometry.events, settings.geometry.live))
        };
        assert_eq!(ring("64,512"), Ok((64, 512)));
        assert_eq!(ring("4M"), Ok((4 << 20, Geometry::default().live)));
        assert_eq!(ring("16K"), Ok((16 << 10, 8 << 10)));
        for bad in ["", "63", "x", "1M,", "1M,63", "512M", "1MM", "K", "1,2,3", "-1", "1k"] {
            assert!(ring(bad).is_err(), "{bad:?}");
        }
    }
}
