//! What WEIR_CAP, WEIR_GROUP, WEIR_ON_CAP, WEIR_SPILL and WEIR_WARN set, and where the ledger is. Nothing is touched here.

use weir_ledger::LedgerDir;
use weir_settings::Settings;
use weir_settings::limit::{CapSetting, OnCap};
use weir_settings::size::Amount;

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
    pub(crate) place: LedgerDir,
}

impl Default for Terms {
    fn default() -> Self {
        Self::new(&Settings::default())
    }
}

impl Terms {
    /// The terms in the settings, without a place.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            cap: settings.cap.clone(),
            group: settings.group.clone(),
            on_cap: settings.on_cap,
            spill: settings.spill,
            warn: settings.warn,
            place: LedgerDir::at("/nonexistent"),
        }
    }

    /// Whether there is anything to keep account of.
    pub(crate) fn any(&self) -> bool {
        self.cap.is_some() || self.group.is_some()
    }
}
