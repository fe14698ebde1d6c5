//! What a job's journal shall be like, by the settings. Nothing is touched here.

use std::path::PathBuf;
use weir_journal::{Geometry, Keep};
use weir_settings::record;

/// What a job's journal shall be like.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Whether there is one.
    pub(crate) on: bool,
    /// How many journals of dead processes stay.
    pub(crate) keep: Keep,
    /// Its sizes.
    pub(crate) geometry: Geometry,
    /// When native stacks are taken.
    pub(crate) stacks: record::Stacks,
    /// Whether an out-of-memory is reported on standard error.
    pub(crate) oom_text: bool,
    /// The container's message about its end, where an out-of-memory is reported as well.
    pub(crate) termination: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(&weir_settings::Settings::default())
    }
}

/// Rings below this many events are for short runs, and so are the tables beside them.
const SMALL_RING: u64 = 1 << 16;

impl Settings {
    /// From the settings.
    pub(crate) fn new(settings: &weir_settings::Settings) -> Self {
        Self {
            on: settings.journal,
            keep: settings.keep,
            geometry: geometry(settings.ring),
            stacks: settings.stacks,
            oom_text: settings.oom_text,
            termination: settings.termination.clone(),
        }
    }
}

fn geometry(ring: record::Ring) -> Geometry {
    let mut geometry = Geometry { events: ring.events, ..Geometry::default() };
    if geometry.events < SMALL_RING {
        geometry = Geometry { live: 8 << 10, names: 512 << 10, stacks: 1 << 20, ..geometry };
    }
    geometry.live = ring.live.unwrap_or(geometry.live);
    geometry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_ring_has_small_tables() {
        let sizes = |text: &str| {
            record::Ring::parse(text).map(geometry).map(|geometry| (geometry.events, geometry.live)).unwrap_or_default()
        };
        assert_eq!(sizes("64,512"), (64, 512));
        assert_eq!(sizes("4M"), (4 << 20, Geometry::default().live));
        assert_eq!(sizes("16K"), (16 << 10, 8 << 10));
    }
}
