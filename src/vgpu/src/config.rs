//! The switches of the virtual GPU: every VGPU_ variable, read once from the environment. A bad value
//! is one line on stderr and makes cuInit fail; it is never silently replaced by a default.

mod rules;

use core::fmt;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

pub(crate) use rules::{CostTable, FailRule, When};
use weir_settings::size::{parse_bytes, parse_size};

const GIB: u64 = 1 << 30;

/// More devices than any machine has; the shared file has room for this many.
pub(crate) const MAX_DEVICES: u32 = 64;

/// Every variable that is read, so that a misspelt one can be told apart.
const VARIABLES: &[&str] = &[
    "VGPU_DEVICES",
    "VGPU_MEM",
    "VGPU_COMPUTE",
    "VGPU_DRIVER",
    "VGPU_GRANULARITY",
    "VGPU_VMM",
    "VGPU_BACKING",
    "VGPU_SEED",
    "VGPU_STRICT",
    "VGPU_SHARED",
    "VGPU_CONTEXT",
    "VGPU_FAIL",
    "VGPU_COST",
    "VGPU_TRACE",
    "VGPU_NAME",
    "VGPU_FAULT",
];

/// Whether device memory holds what is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Real host memory stands behind every byte.
    Content,
    /// Nothing does: only addresses and sizes are kept, so that a device may be larger than the host.
    None,
}

/// What the environment asked for.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// VGPU_DEVICES: how many devices there are, whoever may see them.
    pub(crate) devices: u32,
    /// VGPU_MEM: one size for all devices, or one for each; see [`Config::memory_of`].
    pub(crate) memory: Vec<u64>,
    /// VGPU_COMPUTE: compute capability, major and minor.
    pub(crate) compute: (i32, i32),
    /// VGPU_DRIVER, as cuDriverGetVersion writes it: 12.8 is 12080.
    pub(crate) driver_version: i32,
    /// VGPU_GRANULARITY of physical memory, a power of two.
    pub(crate) granularity: u64,
    /// VGPU_VMM: whether devices support virtual memory management.
    pub(crate) vmm: bool,
    /// VGPU_BACKING.
    pub(crate) backing: Backing,
    /// VGPU_SEED of the order and the delays of queued work and of failure rates.
    pub(crate) seed: u64,
    /// VGPU_STRICT: whether a violation aborts the process.
    pub(crate) strict: bool,
    /// VGPU_SHARED: the file through which processes share the devices.
    pub(crate) shared: Option<PathBuf>,
    /// VGPU_CONTEXT: device memory that a context takes by itself.
    pub(crate) context_bytes: u64,
    /// VGPU_FAIL: calls that fail on demand.
    pub(crate) fail: Vec<FailRule>,
    /// VGPU_COST: time that calls burn.
    pub(crate) cost: Option<CostTable>,
    /// VGPU_TRACE: where each call is logged.
    pub(crate) trace: Option<PathBuf>,
    /// VGPU_NAME of the devices.
    pub(crate) name: String,
    /// VGPU_FAULT: rules that a test build breaks on purpose; see [`fault`].
    #[cfg_attr(not(feature = "fault-injection"), allow(dead_code))]
    pub(crate) faults: BTreeSet<String>,
    /// What was wrong in the environment: cuInit must fail.
    pub(crate) error: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 1,
            memory: vec![8 * GIB],
            compute: (8, 0),
            driver_version: 12080,
            granularity: 2 << 20,
            vmm: true,
            backing: Backing::Content,
            seed: 0,
            strict: true,
            shared: None,
            context_bytes: 0,
            fail: Vec::new(),
            cost: None,
            trace: None,
            name: "Virtual GPU".to_owned(),
            faults: BTreeSet::new(),
            error: None,
        }
    }
}

/// The configuration of this process, read from the environment at the first call.
pub(crate) fn get() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let config = Config::read(|variable| std::env::var_os(variable));
        if let Some(error) = &config.error {
            eprintln!("vgpu: {error}");
        }
        for (variable, _) in std::env::vars_os() {
            if let Some(unknown) = variable.to_str().filter(|v| is_unknown(v)) {
                eprintln!("vgpu: {unknown} is not a variable of the virtual GPU and has no effect");
            }
        }
        config
    })
}

fn is_unknown(variable: &str) -> bool {
    variable.starts_with("VGPU_") && !VARIABLES.contains(&variable)
}

/// Whether the environment asks to break the rule of this name. Only a build with the feature
/// `fault-injection`, which no product build has, ever says yes.
#[cfg(feature = "fault-injection")]
pub(crate) fn fault(name: &str) -> bool {
    let faults = &get().faults;
    !faults.is_empty() && faults.contains(name)
}

/// Never: this build breaks no rule.
#[cfg(not(feature = "fault-injection"))]
pub(crate) const fn fault(_name: &str) -> bool {
    false
}

impl Config {
    /// Whether memory of host nodes can be created and mapped: drivers before 12.2 cannot.
    pub(crate) fn maps_host_memory(&self) -> bool {
        self.driver_version >= 12020
    }

    /// Bytes of memory on a device.
    pub(crate) fn memory_of(&self, ordinal: u32) -> u64 {
        let own = self.memory.get(ordinal as usize);
        own.or(self.memory.first()).copied().unwrap_or(0)
    }

    /// Reads every variable through `lookup`. The first bad value ends up in `error`, the others keep
    /// being read, so that what was right still holds.
    pub(crate) fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut config = Self::default();
        let mut env = Environment { lookup, error: None };
        let devices =
            env.parsed("VGPU_DEVICES", "a number from 0 to 64", |v| v.parse().ok().filter(|n| *n <= MAX_DEVICES));
        let wanted = "sizes such as 8GiB, or one for each device such as 8GiB,16GiB";
        if let Some(memory) = env.parsed("VGPU_MEM", wanted, sizes) {
            if memory.len() == 1 || devices.is_none_or(|d| d as usize == memory.len()) {
                config.memory = memory;
            } else {
                env.refuse("VGPU_MEM", "as many sizes as VGPU_DEVICES says, or one");
            }
        }
        config.devices = devices.unwrap_or(config.memory.len() as u32);
        let wanted = "a compute capability from 3.0 to 19.9, such as 8.0";
        env.set(&mut config.compute, "VGPU_COMPUTE", wanted, |v| {
            dotted(v).filter(|(major, _)| (3..20).contains(major))
        });
        let wanted = "a CUDA version from 8.0 to 99.9, such as 12.8";
        env.set(&mut config.driver_version, "VGPU_DRIVER", wanted, |v| {
            let (major, minor) = dotted(v)?;
            (8..100).contains(&major).then_some(major * 1000 + minor * 10)
        });
        let wanted = "a power of two from 4KiB to 1GiB";
        env.set(&mut config.granularity, "VGPU_GRANULARITY", wanted, |v| {
            size(v).filter(|g| g.is_power_of_two() && (4096..=GIB).contains(g))
        });
        env.set(&mut config.vmm, "VGPU_VMM", "on or off", switch);
        env.set(&mut config.backing, "VGPU_BACKING", "memory or none", |v| match v {
            "memory" => Some(Backing::Content),
            "none" => Some(Backing::None),
            _ => None,
        });
        env.set(&mut config.seed, "VGPU_SEED", "a number below 2^64", |v| match v.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => v.parse().ok(),
        });
        env.set(&mut config.strict, "VGPU_STRICT", "on or off", switch);
        env.set(&mut config.context_bytes, "VGPU_CONTEXT", "a size such as 256MiB", size);
        env.set(&mut config.name, "VGPU_NAME", "1 to 95 bytes without control characters", |v| {
            let fits = v.len() < 96 && !v.chars().any(char::is_control);
            fits.then(|| v.to_owned())
        });
        env.set(&mut config.faults, "VGPU_FAULT", "names of rules", |v| {
            Some(v.split(',').map(|n| n.trim().to_owned()).collect())
        });
        config.shared = env.path("VGPU_SHARED");
        config.trace = env.path("VGPU_TRACE");
        if let Some(value) = env.text("VGPU_FAIL") {
            match rules::fail_rules(&value) {
                Ok(rules) => config.fail = rules,
                Err(wanted) => env.refuse("VGPU_FAIL", &wanted),
            }
        }
        if let Some(value) = env.text("VGPU_COST") {
            match CostTable::parse(&value) {
                Ok(table) => config.cost = Some(table),
                Err(wanted) => env.refuse("VGPU_COST", &wanted),
            }
        }
        config.error = env.error;
        config
    }
}

/// The environment while it is read, with the first thing that was wrong in it.
struct Environment<L> {
    lookup: L,
    error: Option<String>,
}

impl<L: Fn(&str) -> Option<OsString>> Environment<L> {
    /// A variable that is set and not empty: an empty one counts as unset.
    fn raw(&self, variable: &str) -> Option<OsString> {
        (self.lookup)(variable).filter(|value| !value.is_empty())
    }

    fn text(&mut self, variable: &str) -> Option<String> {
        let text = self.raw(variable)?.into_string().ok();
        if text.is_none() {
            self.refuse(variable, "UTF-8");
        }
        text
    }

    fn parsed<T>(
        &mut self,
        variable: &str,
        wanted: impl fmt::Display,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.text(variable)?;
        let parsed = parse(value.trim());
        if parsed.is_none() {
            self.refuse(variable, wanted);
        }
        parsed
    }

    fn set<T>(&mut self, target: &mut T, variable: &str, wanted: &str, parse: impl FnOnce(&str) -> Option<T>) {
        if let Some(value) = self.parsed(variable, wanted, parse) {
            *target = value;
        }
    }

    /// An absolute path: the process may change its folder before the file is opened again.
    fn path(&mut self, variable: &str) -> Option<PathBuf> {
        let path = std::path::absolute(self.raw(variable)?).ok();
        if path.is_none() {
            self.refuse(variable, "the path of a file");
        }
        path
    }

    fn refuse(&mut self, variable: &str, wanted: impl fmt::Display) {
        let value = self.raw(variable).unwrap_or_default();
        let value = value.to_string_lossy();
        self.error.get_or_insert_with(|| format!("{variable}={value} is not valid: it should be {wanted}"));
    }
}

/// A size where small numbers of bytes make sense: `4096` is 4 KiB.
pub(crate) fn size(text: &str) -> Option<u64> {
    parse_bytes(text).ok()
}

/// Sizes of devices: none may be empty or too large for an address space.
fn sizes(text: &str) -> Option<Vec<u64>> {
    let sizes: Vec<u64> =
        text.split(',').map(|t| parse_size(t).ok().filter(|s| (1..=1 << 45).contains(s))).collect::<Option<_>>()?;
    (sizes.len() <= MAX_DEVICES as usize).then_some(sizes)
}

/// `MAJOR.MINOR` with a minor of one digit.
fn dotted(text: &str) -> Option<(i32, i32)> {
    let (major, minor) = text.split_once('.')?;
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if !digits(major) || !digits(minor) || minor.len() != 1 {
        return None;
    }
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "1" | "yes" | "true" => Some(true),
        "off" | "0" | "no" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
