//! Limits as they are written: WEIR_CAP, WEIR_ON_CAP and WEIR_GROUP. Pure functions from strings.
//!
//! `WEIR_CAP` is a list, separated by commas: `AMOUNT` for every device not named, `INDEX=AMOUNT` or
//! `GPU-UUID=AMOUNT` for one.
//!
//! - An **index** is the physical one, in the order `nvidia-smi` shows (PCI bus order). CUDA_VISIBLE_DEVICES renumbers
//!   what the job sees; it never shifts a cap.
//! - A **UUID** may be shortened to its beginning as long as only one device begins so. `MIG-UUID` names a MIG device; index
//!   and UUID of the GPU that it is part of name it too.
//! - A share is one of the device's physical memory. A cap larger than the device means the whole device; [`CapSetting::above`] lists where.
//! - A cap of 0, more than 100 %, a device named twice, two amounts without a device, and a device that the machine
//!   does not have are errors: a typing mistake must not silently remove a cap.

use std::time::Duration;

use crate::size::{Amount, BadValue, parse_amount, parse_duration};

const CAP_HELP: &str = "8GiB, 80%, or a list like 8GiB,1=50%,GPU-<uuid>=4GiB";

/// Which device an entry of WEIR_CAP names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The physical index, as `nvidia-smi` shows it.
    Index(u32),
    /// The beginning of a UUID: lower-case hex digits without dashes.
    Uuid(String),
}

/// WEIR_CAP, read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CapSetting {
    /// For devices that are not named.
    pub default: Option<Amount>,
    /// For one device each.
    pub named: Vec<(Selector, Amount)>,
    /// Caps of files that this one cannot raise: on each device the lowest of all holds.
    pub ceilings: Vec<CapSetting>,
}

/// A device of the machine, as far as caps are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The UUID that the driver reports.
    pub uuid: [u8; 16],
    /// The physical index, if it is known (NVML is there).
    pub index: Option<u32>,
    /// Physical bytes.
    pub physical: u64,
    /// The UUID of the device that this one is an instance of (MIG); the index is that one's, too.
    pub parent: Option<[u8; 16]>,
}

/// A UUID as `nvidia-smi` writes it.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    prefixed_uuid("GPU-", uuid)
}

/// The same with another prefix: `MIG-` for a part of a GPU.
pub fn prefixed_uuid(prefix: &str, uuid: [u8; 16]) -> String {
    let hex = hex_of(uuid);
    format!("{prefix}{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn hex_of(uuid: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(uuid))
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Uuid(start) => write!(f, "GPU-{start}"),
        }
    }
}

impl Selector {
    /// Reads what stands before the `=`.
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let text = text.trim();
        let upper = text.to_ascii_uppercase();
        if let Some(rest) = upper.strip_prefix("GPU-").or_else(|| upper.strip_prefix("MIG-")) {
            let digits: String = rest.chars().filter(|c| *c != '-').collect::<String>().to_ascii_lowercase();
            if digits.is_empty() || digits.len() > 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(BadValue::new(text, "not a UUID or the beginning of one", "GPU- and up to 32 hex digits"));
            }
            return Ok(Self::Uuid(digits));
        }
        if text.len() <= 4
            && text.bytes().all(|b| b.is_ascii_digit())
            && let Ok(index) = text.parse()
        {
            return Ok(Self::Index(index));
        }
        Err(BadValue::new(text, "not a device", "an index like 0 or a UUID like GPU-5f1c…"))
    }

    /// Whether it names this device.
    pub fn matches(&self, device: &DeviceFacts) -> bool {
        match self {
            Self::Index(index) => device.index == Some(*index),
            Self::Uuid(start) => [Some(device.uuid), device.parent]
                .into_iter()
                .flatten()
                .any(|uuid| hex_of(uuid).starts_with(start.as_str())),
        }
    }

    /// The one device this names.
    pub fn find<'d>(&self, devices: &'d [DeviceFacts]) -> Result<&'d DeviceFacts, BadValue> {
        let shown = self.to_string();
        let mut found = devices.iter().filter(|d| self.matches(d));
        match (found.next(), found.next()) {
            (Some(device), None) => Ok(device),
            (Some(_), Some(_)) => {
                Err(BadValue::new(&shown, "ambiguous: more than one device matches", "more digits of the UUID"))
            }
            (None, _) => {
                let problem = if matches!(self, Self::Index(_)) && devices.iter().any(|d| d.index.is_none()) {
                    "device indices are not known without NVML"
                } else {
                    "no such device"
                };
                let known: Vec<_> = devices
                    .iter()
                    .map(|d| d.index.map_or_else(|| uuid_text(d.uuid), |i| format!("{i} ({})", uuid_text(d.uuid))))
                    .collect();
                Err(BadValue::new(&shown, problem, format!("one of {}", known.join(", "))))
            }
        }
    }
}

impl CapSetting {
    /// Reads WEIR_CAP.
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let bad = |problem: String| BadValue::new(text, problem, CAP_HELP);
        let inside = |entry: &str, e: &BadValue| {
            bad(format!("in \"{}\": {}", BadValue::new(entry.trim(), "", "").value, e.problem))
        };
        let mut setting = Self::default();
        if text.trim().is_empty() {
            return Err(bad("empty".into()));
        }
        for entry in text.split(',') {
            let (selector, amount) = match entry.split_once('=') {
                None => (None, entry),
                Some((selector, amount)) => (Some(Selector::parse(selector).map_err(|e| inside(entry, &e))?), amount),
            };
            let amount = parse_amount(amount).map_err(|e| inside(entry, &e))?;
            if matches!(amount, Amount::Bytes(0) | Amount::Share(0)) {
                return Err(bad("a cap of 0 leaves the job no memory; unset WEIR_CAP for no cap".into()));
            }
            match selector {
                None if setting.default.is_some() => {
                    return Err(bad("two sizes without a device".into()));
                }
                None => setting.default = Some(amount),
                Some(selector) if setting.named.iter().any(|(s, _)| *s == selector) => {
                    return Err(bad(format!("device named twice, the second time in \"{}\"", entry.trim())));
                }
                Some(selector) => setting.named.push((selector, amount)),
            }
        }
        Ok(setting)
    }

    /// The cap in bytes for each device of the machine, in their order; `None` is no cap.
    ///
    /// `devices` are all devices of the machine, visible to the job or not: a cap for a hidden device is no mistake.
    pub fn resolve(&self, devices: &[DeviceFacts]) -> Result<Vec<Option<u64>>, BadValue> {
        let mut caps = self.resolve_own(devices)?;
        for ceiling in &self.ceilings {
            for (cap, most) in caps.iter_mut().zip(ceiling.resolve(devices)?) {
                *cap = cap.iter().chain(&most).min().copied();
            }
        }
        Ok(caps)
    }

    /// Whether it names devices one by one.
    pub fn names_devices(&self) -> bool {
        !self.named.is_empty() || self.ceilings.iter().any(Self::names_devices)
    }

    fn resolve_own(&self, devices: &[DeviceFacts]) -> Result<Vec<Option<u64>>, BadValue> {
        let mut caps: Vec<_> = devices.iter().map(|d| self.default.map(|a| a.of(d.physical).min(d.physical))).collect();
        let mut taken = vec![false; devices.len()];
        for (selector, amount) in &self.named {
            let device = selector.find(devices)?;
            let Some(at) = devices.iter().position(|d| d.uuid == device.uuid) else {
                continue;
            };
            if std::mem::replace(&mut taken[at], true) {
                return Err(BadValue::new(&uuid_text(device.uuid), "device named twice", CAP_HELP));
            }
            caps[at] = Some(amount.of(device.physical).min(device.physical));
        }
        Ok(caps)
    }
}

impl CapSetting {
    /// The devices that a cap is larger than: UUID and physical bytes.
    pub fn above(&self, devices: &[DeviceFacts]) -> Vec<([u8; 16], u64)> {
        let own = |device: &DeviceFacts| self.named.iter().find(|(selector, _)| selector.matches(device)).map(|n| n.1);
        let larger = |device: &&DeviceFacts| {
            own(device).or(self.default).is_some_and(|amount| amount.of(device.physical) > device.physical)
        };
        if !self.ceilings.is_empty() {
            return Vec::new();
        }
        devices.iter().filter(larger).map(|device| (device.uuid, device.physical)).collect()
    }

    /// The entries that name none of these devices, as they are written.
    pub fn unseen(&self, devices: &[DeviceFacts]) -> Vec<String> {
        let named = self.named.iter().filter(|(selector, _)| !devices.iter().any(|device| selector.matches(device)));
        named.map(|(selector, _)| selector.to_string()).collect()
    }
}

/// What happens to a request that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnCap {
    /// It fails with the driver's own out-of-memory code.
    #[default]
    Fail,
    /// It waits for its turn, at most so long.
    Wait(Duration),
    /// It gets host memory behind the same pointer.
    Spill,
}

impl OnCap {
    /// Reads WEIR_ON_CAP.
    pub fn parse(text: &str) -> Result<Self, BadValue> {
        let help = "fail, wait:<duration> (like wait:30s) or spill";
        match text.trim().to_ascii_lowercase().as_str() {
            "fail" => Ok(Self::Fail),
            "spill" => Ok(Self::Spill),
            "wait" => Err(BadValue::new(text, "no duration", help)),
            other => match other.strip_prefix("wait:") {
                Some(duration) => {
                    parse_duration(duration).map(Self::Wait).map_err(|e| BadValue::new(text, e.problem, help))
                }
                None => Err(BadValue::new(text, "unknown value", help)),
            },
        }
    }
}

/// Reads WEIR_GROUP: 1 to 64 letters, digits, `_`, `-` or `.`, beginning with a letter or digit.
pub fn parse_group(text: &str) -> Result<String, BadValue> {
    let bad = |problem: &str| {
        Err(BadValue::new(text, problem, "1 to 64 letters, digits, '_', '-' or '.', the first a letter or a digit"))
    };
    if text.is_empty() {
        return bad("empty");
    }
    if text.len() > 64 {
        return bad("more than 64 characters");
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b)) {
        return bad("invalid character");
    }
    if !text.as_bytes()[0].is_ascii_alphanumeric() {
        return bad("must start with a letter or a digit");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn machine() -> Vec<DeviceFacts> {
        let mut first = [0xA1; 16];
        first[0] = 0x5f;
        let mut second = [0xA1; 16];
        second[0] = 0x5e;
        vec![
            DeviceFacts { uuid: first, index: Some(0), physical: 24 * GIB, parent: None },
            DeviceFacts { uuid: second, index: Some(1), physical: 80 * GIB, parent: None },
        ]
    }

    fn caps(text: &str) -> Result<Vec<Option<u64>>, BadValue> {
        CapSetting::parse(text)?.resolve(&machine())
    }

    #[test]
    fn caps_that_are_right() {
        assert_eq!(caps("8GiB"), Ok(vec![Some(8 * GIB), Some(8 * GIB)]));
        assert_eq!(caps("50%"), Ok(vec![Some(12 * GIB), Some(40 * GIB)]));
        assert_eq!(caps("0=8GiB,1=50%"), Ok(vec![Some(8 * GIB), Some(40 * GIB)]));
        assert_eq!(caps("1=50%"), Ok(vec![None, Some(40 * GIB)]));
        assert_eq!(caps("4GiB, 1 = 50%"), Ok(vec![Some(4 * GIB), Some(40 * GIB)]));
        assert_eq!(caps("gpu-5F=1GiB"), Ok(vec![Some(GIB), None]));
        assert_eq!(caps(&format!("{}=1GiB", uuid_text(machine()[1].uuid))), Ok(vec![None, Some(GIB)]));
        assert_eq!(caps("30GiB"), Ok(vec![Some(24 * GIB), Some(30 * GIB)]), "a cap is clipped to the device");
    }

    #[test]
    fn caps_that_are_wrong_say_what() {
        for (text, part) in [
            ("", "empty"),
            ("8GiB,", "empty"),
            ("0", "cap of 0"),
            ("0%", "cap of 0"),
            ("101%", "more than 100%"),
            ("8GiB,9GiB", "two sizes"),
            ("0=1GiB,0=2GiB", "twice"),
            ("0=1GiB,GPU-5f=2GiB", "twice"),
            ("7=1GiB", "no such device"),
            ("GPU-00=1GiB", "no such device"),
            ("GPU-5=1GiB", "more than one"),
            ("GPU-=1GiB", "not a UUID"),
            ("GPU-xyz=1GiB", "not a UUID"),
            ("abc=1GiB", "not a device"),
            ("=1GiB", "not a device"),
            ("99999=1GiB", "not a device"),
            ("0=-1GiB", "negative"),
        ] {
            let error = caps(text).unwrap_err();
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_cap_above_the_device_and_a_device_unseen_are_known() {
        let devices = machine();
        let above = |text: &str| CapSetting::parse(text).unwrap().above(&devices).len();
        assert_eq!((above("30GiB"), above("100GiB"), above("100GiB,1=50%"), above("100%")), (1, 2, 1, 0));
        let unseen = |text: &str, seen: &[DeviceFacts]| CapSetting::parse(text).unwrap().unseen(seen).join(" ");
        assert_eq!(unseen("1GiB,0=2GiB,GPU-5e=3GiB", &devices), "");
        assert_eq!(unseen("1GiB,0=2GiB,GPU-5e=3GiB", &devices[..1]), "GPU-5e");
        assert_eq!(unseen("7=2GiB", &devices), "7");
    }

    #[test]
    fn the_lowest_of_a_cap_and_its_ceilings_holds_on_each_device() {
        let under = |own: &str, ceilings: &[&str]| {
            let ceilings = ceilings.iter().map(|text| CapSetting::parse(text).unwrap()).collect();
            CapSetting { ceilings, ..CapSetting::parse(own).unwrap() }.resolve(&machine())
        };
        assert_eq!(under("8GiB", &["4GiB"]), Ok(vec![Some(4 * GIB); 2]));
        assert_eq!(under("2GiB", &["4GiB"]), Ok(vec![Some(2 * GIB); 2]));
        assert_eq!(under("0=2GiB", &["50%"]), Ok(vec![Some(2 * GIB), Some(40 * GIB)]), "what it does not name, too");
        assert_eq!(under("50%", &["GPU-5e=10GiB", "1=9GiB"]), Ok(vec![Some(12 * GIB), Some(9 * GIB)]));
        assert!(under("1GiB", &["7=1GiB"]).is_err());
    }

    #[test]
    fn a_part_of_a_gpu_is_found_by_its_own_uuid_and_by_its_gpu() {
        let (first, second) = (machine()[0], machine()[1]);
        let part = DeviceFacts { uuid: [0xab; 16], parent: Some(second.uuid), physical: 10 * GIB, ..second };
        let parent = hex_of(second.uuid);
        for name in ["MIG-abababab", "1", &format!("GPU-{parent}")] {
            let cap = CapSetting::parse(&format!("{name}=4GiB")).unwrap();
            assert_eq!(cap.resolve(&[first, part]).unwrap(), [None, Some(4 * GIB)], "{name}");
        }
        assert!(CapSetting::parse("1=4GiB,MIG-ab=2GiB").unwrap().resolve(&[first, part]).is_err(), "named twice");
        assert!(CapSetting::parse("MIG-cd=4GiB").unwrap().resolve(&[first, part]).is_err());
    }

    #[test]
    fn an_index_is_refused_when_physical_indices_are_unknown() {
        let devices: Vec<_> = machine().into_iter().map(|d| DeviceFacts { index: None, ..d }).collect();
        let error = CapSetting::parse("0=1GiB").unwrap().resolve(&devices).unwrap_err();
        assert!(error.to_string().contains("NVML"), "{error}");
        assert!(error.to_string().contains("GPU-5f"), "{error}");
    }

    #[test]
    fn policies_and_groups() {
        assert_eq!(OnCap::parse("fail"), Ok(OnCap::Fail));
        assert_eq!(OnCap::parse("Wait:30s"), Ok(OnCap::Wait(Duration::from_secs(30))));
        assert_eq!(OnCap::parse("spill"), Ok(OnCap::Spill));
        for bad in ["", "wait", "wait:", "wait:0s", "wait:30", "retry", "fail,spill"] {
            assert!(OnCap::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_group("team-a.1"), Ok("team-a.1".into()));
        for bad in ["", ".", "..", "a/b", "-x", "a b", "ä", &"x".repeat(65), "a\0b"] {
            assert!(parse_group(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", near in "[0-9GPU=,%.KMiB-]{0,40}") {
            for t in [text.as_str(), near.as_str()] {
                let _ = (caps(t), OnCap::parse(t), parse_group(t));
            }
        }
        #[test]
        fn a_resolved_cap_is_never_more_than_the_device(n in 1u64..1 << 20, unit in "(GiB|TB|K|%)") {
            if let Ok(caps) = caps(&format!("{n}{unit}")) {
                for (cap, device) in caps.iter().zip(machine()) {
                    prop_assert!(cap.unwrap() <= device.physical);
                }
            }
        }
    }
}
