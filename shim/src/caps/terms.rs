//! What WEIR_CAP, WEIR_GROUP, WEIR_ON_CAP, WEIR_SPILL and WEIR_WARN ask for. The grammar is the ledger's; nothing is touched here.

use weir_ledger::Place;
use weir_ledger::settings::{CapSetting, OnCap, parse_group, parse_warn};
use weir_ledger::size::{Amount, BadValue, parse_amount};

/// What a job may take.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// The cap of each device.
    pub(crate) cap: Option<CapSetting>,
    /// The group that shares it.
    pub(crate) group: Option<String>,
    /// What happens at the cap.
    pub(crate) on_cap: OnCap,
    /// The most host memory that may be taken in place of device memory.
    pub(crate) spill: Option<Amount>,
    /// The soft mark.
    pub(crate) warn: Option<Amount>,
    /// Where ledger files are.
    pub(crate) place: Place,
}

impl Default for Terms {
    fn default() -> Self {
        Self { cap: None, group: None, on_cap: OnCap::Fail, spill: None, warn: None, place: Place::at("/nonexistent") }
    }
}

/// What is wrong and what would be right; the value itself is shown by the caller.
#[allow(clippy::needless_pass_by_value, reason = "used as a function for map_err")]
fn why(bad: BadValue) -> String {
    format!("{}; expected {}", bad.problem, bad.expected)
}

impl Terms {
    /// Whether there is anything to keep account of.
    pub(crate) fn any(&self) -> bool {
        self.cap.is_some() || self.group.is_some()
    }

    /// Reads WEIR_CAP.
    pub(crate) fn read_cap(&mut self, text: &str) -> Result<(), String> {
        self.cap = Some(CapSetting::parse(text).map_err(why)?);
        Ok(())
    }

    /// Reads WEIR_GROUP.
    pub(crate) fn read_group(&mut self, text: &str) -> Result<(), String> {
        self.group = Some(parse_group(text).map_err(why)?);
        Ok(())
    }

    /// Reads WEIR_ON_CAP.
    pub(crate) fn read_on_cap(&mut self, text: &str) -> Result<(), String> {
        self.on_cap = OnCap::parse(text).map_err(why)?;
        Ok(())
    }

    /// Reads WEIR_SPILL.
    pub(crate) fn read_spill(&mut self, text: &str) -> Result<(), String> {
        self.spill = Some(parse_amount(text).map_err(why)?);
        Ok(())
    }

    /// Reads WEIR_WARN.
    pub(crate) fn read_warn(&mut self, text: &str) -> Result<(), String> {
        self.warn = Some(parse_warn(text).map_err(why)?);
        Ok(())
    }
}
