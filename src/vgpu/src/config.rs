//! The switches of the virtual GPU: every VGPU_ variable, read once from the environment. A bad value
//! is one line on stderr and makes cuInit fail; it is never silently replaced by a default.

mod rules;

use core::fmt;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

pub(crate) use rules::{Cost, CostTable, FailRule, WORK, When};
use weir_settings::profile::{self, PROFILES};
use weir_settings::size::{parse_bytes, parse_size};

const GIB: u64 = 1 << 30;

/// More devices than any machine has; the shared file has room for this many.
pub(crate) const MAX_DEVICES: u32 = 64;

/// Every variable that is read, so that a misspelt one can be detected.
const VARIABLES: &[&str] = &[
    "VGPU_PROFILE",
    "VGPU_DEVICES",
    "VGPU_MEM",
    "VGPU_COMPUTE",
    "VGPU_DRIVER",
    "VGPU_GRANULARITY",
    "VGPU_VMM",
    "VGPU_POOLS",
    "VGPU_MANAGED",
    "VGPU_VA",
    "VGPU_RDMA",
    "VGPU_P2P",
    "VGPU_COPY",
    "VGPU_SYNC_MEMOPS",
    "VGPU_SMS",
    "VGPU_INTEGRATED",
    "VGPU_DISPLAY",
    "VGPU_MIG",
    "VGPU_NVML",
    "VGPU_MODULE",
    "VGPU_LOCAL",
    "VGPU_PAGE_TABLES",
    "VGPU_EDITS",
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

/// What a device can do with GPUDirect RDMA (VGPU_RDMA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rdma {
    On,
    Off,
    /// The attributes say yes, and access to memory that was created for it is refused.
    Refused,
}

/// What managed memory a device has (VGPU_MANAGED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManagedMemory {
    /// Host and device may use it at the same time.
    Full,
    /// They may not: the attribute for concurrent access is 0, and nothing can be prefetched.
    Basic,
    None,
}

/// How NVML reports processes, if it is there at all (VGPU_NVML).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Nvml {
    On = 0,
    /// By process ids of another namespace.
    ForeignPids = 1,
    /// Each with 0 bytes.
    ZeroBytes = 2,
    /// Querying them is not supported.
    NoProcesses = 3,
    /// No function works.
    Absent = 4,
}

/// What a change of page tables means for work that runs (VGPU_EDITS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edits {
    /// Nothing.
    Free,
    /// The call waits for all of it.
    Wait,
    /// It faults: its context is lost with ILLEGAL_ADDRESS.
    Fault,
}

/// What the environment configures.
#[allow(clippy::struct_excessive_bools)] // Each is a switch of its own.
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
    /// VGPU_POOLS: whether devices support memory pools.
    pub(crate) pools: bool,
    /// VGPU_MANAGED.
    pub(crate) managed: ManagedMemory,
    /// VGPU_VA: what all reservations of a process together must stay below.
    pub(crate) address_space: Option<u64>,
    /// VGPU_RDMA.
    pub(crate) rdma: Rdma,
    /// VGPU_P2P: whether devices can reach each other's memory.
    pub(crate) p2p: bool,
    /// VGPU_COPY=executing: a copy of mapped memory needs access from the device that executes it.
    pub(crate) copies_need_access: bool,
    /// VGPU_SYNC_MEMOPS: whether mapped memory takes the attribute of this name.
    pub(crate) sync_memops: bool,
    /// VGPU_SMS: multiprocessors, where they differ from what the compute capability says.
    pub(crate) multiprocessors: Option<i32>,
    /// VGPU_INTEGRATED: the device shares the memory of the host.
    pub(crate) integrated: bool,
    /// VGPU_DISPLAY: the device drives a display, so that kernels may run for so long only.
    pub(crate) display: bool,
    /// VGPU_MIG: the device is an instance of a larger one.
    pub(crate) mig: bool,
    /// VGPU_NVML.
    pub(crate) nvml: Nvml,
    /// VGPU_MODULE: device memory that the code of a module takes once it is loaded.
    pub(crate) module_bytes: u64,
    /// VGPU_LOCAL: whether a context takes local memory for all threads that the device can hold.
    pub(crate) local: bool,
    /// VGPU_PAGE_TABLES: device memory for each granule that is mapped, and again for each device with access.
    pub(crate) page_table_bytes: u64,
    /// VGPU_EDITS.
    pub(crate) edits: Edits,
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
            pools: true,
            managed: ManagedMemory::Full,
            address_space: None,
            rdma: Rdma::On,
            p2p: true,
            copies_need_access: false,
            sync_memops: true,
            multiprocessors: None,
            integrated: false,
            display: false,
            mig: false,
            nvml: Nvml::On,
            module_bytes: 0,
            local: false,
            page_table_bytes: 0,
            edits: Edits::Free,
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

/// Whether the environment says to break the rule of this name. Only a build with the feature
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
        let mut env = Environment { lookup, profile: Vec::new(), error: None };
        env.profile();
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
        env.set(&mut config.pools, "VGPU_POOLS", "on or off", switch);
        env.set(&mut config.managed, "VGPU_MANAGED", "full, basic or none", |v| match v {
            "full" => Some(ManagedMemory::Full),
            "basic" => Some(ManagedMemory::Basic),
            "none" => Some(ManagedMemory::None),
            _ => None,
        });
        env.set(&mut config.address_space, "VGPU_VA", "unlimited, or a size such as 32GiB", |v| match v {
            "unlimited" => Some(None),
            _ => size(v).filter(|bytes| *bytes > 0).map(Some),
        });
        env.set(&mut config.rdma, "VGPU_RDMA", "on, off or refused", |v| match v {
            "refused" => Some(Rdma::Refused),
            _ => switch(v).map(|on| if on { Rdma::On } else { Rdma::Off }),
        });
        env.set(&mut config.p2p, "VGPU_P2P", "on or off", switch);
        env.set(&mut config.copies_need_access, "VGPU_COPY", "any or executing", |v| match v {
            "any" => Some(false),
            "executing" => Some(true),
            _ => None,
        });
        env.set(&mut config.sync_memops, "VGPU_SYNC_MEMOPS", "on or off", switch);
        env.set(&mut config.multiprocessors, "VGPU_SMS", "a number from 1 to 1024", |v| {
            v.parse().ok().filter(|n| (1..=1024).contains(n)).map(Some)
        });
        env.set(&mut config.integrated, "VGPU_INTEGRATED", "on or off", switch);
        env.set(&mut config.display, "VGPU_DISPLAY", "on or off", switch);
        env.set(&mut config.mig, "VGPU_MIG", "on or off", switch);
        let wanted = "on, foreign-pids, zero-bytes, no-processes or absent";
        env.set(&mut config.nvml, "VGPU_NVML", wanted, |v| match v {
            "on" => Some(Nvml::On),
            "foreign-pids" => Some(Nvml::ForeignPids),
            "zero-bytes" => Some(Nvml::ZeroBytes),
            "no-processes" => Some(Nvml::NoProcesses),
            "absent" => Some(Nvml::Absent),
            _ => None,
        });
        env.set(&mut config.module_bytes, "VGPU_MODULE", "a size such as 4MiB", size);
        env.set(&mut config.local, "VGPU_LOCAL", "on or off", switch);
        env.set(&mut config.page_table_bytes, "VGPU_PAGE_TABLES", "a size such as 4KiB", size);
        env.set(&mut config.edits, "VGPU_EDITS", "free, wait or fault", |v| match v {
            "free" => Some(Edits::Free),
            "wait" => Some(Edits::Wait),
            "fault" => Some(Edits::Fault),
            _ => None,
        });
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
    /// What holds where a variable is not set.
    profile: Vec<(String, String)>,
    error: Option<String>,
}

impl<L: Fn(&str) -> Option<OsString>> Environment<L> {
    /// A variable that is set and not empty (an empty one counts as unset), else what the profile says.
    fn raw(&self, variable: &str) -> Option<OsString> {
        let set = (self.lookup)(variable).filter(|value| !value.is_empty());
        set.or_else(|| Some(self.profile.iter().find(|(name, _)| name == variable)?.1.clone().into()))
    }

    /// VGPU_PROFILE: the name of a profile, or the path of a file with one.
    fn profile(&mut self) {
        const VARIABLE: &str = "VGPU_PROFILE";
        let Some(value) = self.text(VARIABLE) else { return };
        let owned = |switches: &[(&str, &str)]| {
            switches.iter().map(|(variable, value)| ((*variable).to_owned(), (*value).to_owned())).collect()
        };
        if value.contains('/') {
            let read = std::fs::read_to_string(&value).map_err(|error| error.to_string());
            match read.and_then(|text| profile::read(&text).map(|switches| owned(&switches))) {
                Ok(switches) => self.profile = switches,
                Err(why) => self.refuse(VARIABLE, format!("a file with a profile ({why})")),
            }
        } else if let Some(found) = profile::find(value.trim()) {
            self.profile = owned(found.switches);
        } else {
            let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
            self.refuse(VARIABLE, format!("one of {}, or a file like ./profile", names.join(", ")));
        }
        if let Some((unknown, _)) = self.profile.iter().find(|(variable, _)| is_unknown(variable)) {
            let why = format!("a profile of known variables, and {unknown} is none");
            self.refuse(VARIABLE, why);
        }
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
