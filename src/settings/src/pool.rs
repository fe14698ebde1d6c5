//! The value of `WEIR_POOL`: `on`, `off`, or a list of switches for diagnosis. Plain data.

use crate::size::{BadValue, parse_size};

/// What may be written.
pub const GRAMMAR: &str =
    "on, off, or a list of noremap, nomesh, nolazy, cache, novmm, handle=SIZE, small=SIZE (2MiB to 1GiB)";

/// The switches in effect.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own for diagnosis")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switches {
    /// Whether requests are served from the pool at all.
    pub on: bool,
    /// Serve from plain segments even where the device could map.
    pub plain: bool,
    /// Free granules are moved to where they are needed.
    pub remap: bool,
    /// Two sparse granules may share one handle.
    pub mesh: bool,
    /// `cuMemFree` does not synchronise.
    pub lazy: bool,
    /// Streams get caches when threads meet at the pool's lock.
    pub cache: bool,
    /// Bytes of a handle behind small blocks, if it is set.
    pub small_handle: Option<u64>,
    /// Bytes of a handle behind large blocks, if it is set.
    pub large_handle: Option<u64>,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            on: true,
            plain: false,
            remap: true,
            mesh: true,
            lazy: true,
            cache: false,
            small_handle: None,
            large_handle: None,
        }
    }
}

impl Switches {
    /// Reads the variable's value.
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let mut switches = Self::default();
        match text.trim() {
            "on" => return Ok(switches),
            "off" => {
                switches.on = false;
                return Ok(switches);
            }
            _ => {}
        }
        for word in text.trim().split(',') {
            match (word, word.split_once('=')) {
                // "nosteal" is what it was called before.
                ("noremap" | "nosteal", _) => switches.remap = false,
                ("nomesh", _) => switches.mesh = false,
                ("nolazy", _) => switches.lazy = false,
                ("cache", _) => switches.cache = true,
                ("novmm", _) => switches.plain = true,
                (_, Some(("handle", size))) => switches.large_handle = Some(handle_size(text, word, size)?),
                (_, Some(("small", size))) => switches.small_handle = Some(handle_size(text, word, size)?),
                _ => return Err(BadValue::new(text, format!("unknown switch \"{}\"", shown(word)), GRAMMAR)),
            }
        }
        Ok(switches)
    }
}

fn shown(word: &str) -> String {
    BadValue::new(word, "", "").value
}

/// A handle's size: a power of two from 2 MiB to 1 GiB.
fn handle_size(text: &str, word: &str, size: &str) -> Result<u64, BadValue> {
    let bytes = parse_size(size).map_err(|bad| BadValue::new(text, bad.problem, GRAMMAR))?;
    if bytes.is_power_of_two() && (2 << 20..=1 << 30).contains(&bytes) {
        return Ok(bytes);
    }
    let problem = format!("\"{}\" is not a power of two from 2MiB to 1GiB", shown(word));
    Err(BadValue::new(text, problem, GRAMMAR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_differ() {
        assert_eq!(Switches::parse("on"), Ok(Switches::default()));
        assert!(!Switches::parse("off").unwrap().on);
        let some = Switches::parse("noremap,nomesh,nolazy,cache,handle=32MiB,small=4M").unwrap();
        assert!(some.on && !some.remap && !some.mesh && !some.lazy && some.cache && !some.plain);
        assert_eq!(Switches::parse("nosteal"), Switches::parse("noremap"), "journals and scripts hold the old word");
        assert_eq!((some.large_handle, some.small_handle), (Some(32 << 20), Some(4 << 20)));
        assert!(Switches::parse("novmm").unwrap().plain);
        for bad in [
            "",
            "On",
            "yes",
            "nostea",
            "noremap,",
            "handle=3MiB",
            "handle=1MiB",
            "handle=2GiB",
            "handle=8",
            "handle",
            "off,nomesh",
        ] {
            assert!(Switches::parse(bad).is_err(), "{bad:?}");
        }
    }
}
