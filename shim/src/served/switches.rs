//! What `WEIR_POOL` says: `on`, `off`, or a list of switches for diagnosis.

use weir_pool::Config;

/// The switches in effect.
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Switches {
    /// Whether requests are served from the pool at all.
    pub(crate) on: bool,
    /// Serve from plain segments even where the device could map.
    pub(crate) plain: bool,
    steal: bool,
    mesh: bool,
    lazy: bool,
    small_handle: Option<u64>,
    large_handle: Option<u64>,
}

impl Default for Switches {
    fn default() -> Self {
        Self { on: true, plain: false, steal: true, mesh: true, lazy: true, small_handle: None, large_handle: None }
    }
}

/// What may be said, for the message about a bad value.
pub(crate) const GRAMMAR: &str =
    "must be on, off, or a list of nosteal, nomesh, nolazy, novmm, handle=SIZE, small=SIZE (2MiB to 1GiB)";

impl Switches {
    /// Reads the variable's value; `None` if it can't be understood.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut switches = Self::default();
        if text == "off" {
            switches.on = false;
            return Some(switches);
        }
        for word in text.split(',').filter(|_| text != "on") {
            match word {
                "nosteal" => switches.steal = false,
                "nomesh" => switches.mesh = false,
                "nolazy" => switches.lazy = false,
                "novmm" => switches.plain = true,
                _ => match word.split_once('=')? {
                    ("handle", size) => switches.large_handle = Some(handle_size(size)?),
                    ("small", size) => switches.small_handle = Some(handle_size(size)?),
                    _ => return None,
                },
            }
        }
        Some(switches)
    }

    /// The pool's configuration for a device of `device_bytes`, of which the job may take `budget`.
    pub(crate) fn config(&self, device_bytes: u64, budget: u64) -> Config {
        let mut config = Config::new(device_bytes);
        (config.steal, config.mesh, config.lazy) = (self.steal, self.mesh, self.lazy);
        config.large_handle = self.large_handle.unwrap_or(Config::large_handle_for(budget));
        config.small_handle = self.small_handle.unwrap_or(config.small_handle);
        // The pool wants large handles no smaller than small ones: the one that was said counts.
        if self.large_handle.is_some() && self.small_handle.is_none() {
            config.small_handle = config.small_handle.min(config.large_handle);
        }
        config
    }
}

/// A handle's size: a power of two from 2 MiB to 1 GiB.
fn handle_size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let factor = match unit {
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(factor)?;
    (bytes.is_power_of_two() && (2 << 20..=1 << 30).contains(&bytes)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_told_apart() {
        assert!(Switches::parse("on").is_some_and(|s| s == Switches::default()));
        assert!(Switches::parse("off").is_some_and(|s| !s.on));
        let some = Switches::parse("nosteal,nomesh,nolazy,handle=32MiB").map(|s| s.config(8 << 30, 8 << 30));
        assert!(some.is_some_and(|c| !c.steal && !c.mesh && !c.lazy && c.large_handle == 32 << 20));
        let config = |text: &str, budget| Switches::parse(text).map(|s| s.config(40 << 30, budget).large_handle);
        assert_eq!((config("on", 40 << 30), config("on", 1 << 30)), (Some(8 << 20), Some(2 << 20)));
        assert_eq!(config("handle=32MiB", 1 << 30), Some(32 << 20));
        assert!(Switches::parse("novmm").is_some_and(|s| s.plain && s.on));
        for bad in [
            "",
            "On",
            "yes",
            "nosteal,",
            "handle=3MiB",
            "handle=1MiB",
            "handle=2GiB",
            "handle=8",
            "handle",
            "off,nomesh",
        ] {
            assert_eq!(Switches::parse(bad), None, "{bad:?}");
        }
    }
}
