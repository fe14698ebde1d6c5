//! Spilled memory: what host memory a job may take in place of device memory, and what it has taken. Checked before every
//! handle of host memory; nothing of it counts against the cap.

use super::admit::urgency;
use super::host::Host;
use super::{PAGE, on};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use weir_ledger::{Category, Urgency};
use weir_pool::shared::take_within;
use weir_settings::limit::OnCap;
use weir_settings::size::Amount;

/// Bytes of host memory that this process has taken for all its devices.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// The most that it may take.
static LIMIT: OnceLock<u64> = OnceLock::new();

/// Whether a request that does not fit shall get host memory. Below one chunk nothing at all fits under a cap: tiny
/// requests get host memory then whatever is set, because TensorFlow repeats them for ever.
#[inline]
pub(crate) fn wanted(ordinal: i32, bytes: u64) -> bool {
    let spills = on().is_some_and(|caps| caps.terms.on_cap == OnCap::Spill);
    let nothing_fits = || {
        let view = super::at(ordinal).and_then(|(caps, (_, account))| caps.ledger.view(account));
        view.is_some_and(|view| (1..PAGE).contains(&view.total()))
    };
    spills || (urgency(bytes) == Urgency::Tiny && nothing_fits())
}

/// The most host memory that this process may take: WEIR_SPILL, else half of what was available at first.
pub(crate) fn limit() -> u64 {
    *LIMIT.get_or_init(|| {
        let setting = on().and_then(|caps| caps.terms.spill);
        Host::now().map_or(0, |host| limit_of(setting, host))
    })
}

fn limit_of(setting: Option<Amount>, host: Host) -> u64 {
    setting.map_or(host.available / 2, |amount| amount.of(host.total)).min(host.total)
}

/// Reserves host memory. False: the limit is reached, or the host needs it itself.
pub(crate) fn reserve(ordinal: i32, bytes: u64) -> bool {
    if !take_within(&TAKEN, bytes, limit()) {
        return false;
    }
    if Host::now().is_none_or(|host| host.available < bytes.saturating_add(host.reserve())) {
        TAKEN.fetch_sub(bytes, Ordering::AcqRel);
        return false;
    }
    if let Some((caps, (_, account))) = super::at(ordinal) {
        caps.ledger.charge(account, Category::Spilled, bytes);
    }
    true
}

/// Host memory went back, or was not allocated after all.
pub(crate) fn released(ordinal: i32, bytes: u64) {
    TAKEN.fetch_sub(bytes, Ordering::AcqRel);
    if let Some((caps, (_, account))) = super::at(ordinal) {
        caps.ledger.release(account, Category::Spilled, bytes);
    }
}

/// What a device has under its cap, and what of it is free.
pub(crate) fn room(ordinal: i32) -> (u64, u64) {
    super::at(ordinal)
        .and_then(|(caps, (_, account))| caps.ledger.view(account))
        .map_or((0, 0), |view| (view.total(), view.total().saturating_sub(view.used)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_settings::size::parse_amount;

    #[test]
    fn the_limit_never_passes_the_host() {
        let host = Host { total: 1000, available: 600 };
        let limit = |text: &str| parse_amount(text).ok().map(|amount| limit_of(Some(amount), host));
        assert_eq!(limit_of(None, host), 300, "half of what is available");
        assert_eq!(limit("20%"), Some(200));
        assert_eq!(limit("4TiB"), Some(1000));
        assert_eq!(limit("0"), Some(0));
    }
}
