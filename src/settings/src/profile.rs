//! Profiles of the virtual GPU: a real machine as a set of the virtual GPU's own switches. One row a profile; what the
//! virtual GPU, `weir plan` and the tests know of a machine is here. Pure data.
//!
//! A row sets switches and nothing else, so that each of its limits can be had alone, and a variable in the environment
//! overrides the row. Which of the values are documented and which are assumptions: docs/internals/virtual-gpu.md.

/// A machine as the virtual GPU plays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What `VGPU_PROFILE` calls it.
    pub name: &'static str,
    /// The machine, in one line.
    pub machine: &'static str,
    /// `VGPU_` variables and their values.
    pub switches: &'static [(&'static str, &'static str)],
}

impl Profile {
    /// What the profile sets a variable to.
    pub fn get(&self, variable: &str) -> Option<&'static str> {
        self.switches.iter().find(|(name, _)| *name == variable).map(|(_, value)| *value)
    }
}

/// A profile as a file has it: a line `VGPU_NAME=value` for each switch; blank lines and those that begin with `#` count for
/// nothing. The error names the line.
pub fn read(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut switches: Vec<(&str, &str)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| format!("line {number}: {why}; expected VARIABLE=VALUE such as VGPU_MEM=8GiB");
        let (variable, value) = line.split_once('=').ok_or_else(|| wrong("no '='"))?;
        if !variable.starts_with("VGPU_") || variable == "VGPU_PROFILE" {
            return Err(wrong(&format!("{variable} is no switch of a profile")));
        }
        if switches.iter().any(|(known, _)| *known == variable) {
            return Err(wrong(&format!("{variable} a second time")));
        }
        switches.push((variable, value));
    }
    Ok(switches)
}

/// The profile of this name.
pub fn find(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

/// What holds of every driver that others report on, whatever the machine: memory that nobody requested, and mapped memory
/// that neither takes SYNC_MEMOPS nor is copied by a device without access. The parameters are what differs.
macro_rules! profile {
    ($name:literal, $machine:literal, $($switch:literal = $value:literal),* $(,)?) => {
        Profile {
            name: $name,
            machine: $machine,
            switches: &[
                $(($switch, $value),)*
                ("VGPU_COPY", "executing"),
                ("VGPU_SYNC_MEMOPS", "off"),
                ("VGPU_MODULE", "4MiB"),
                ("VGPU_LOCAL", "on"),
                ("VGPU_PAGE_TABLES", "4KiB"),
            ],
        }
    };
}

/// Every profile.
#[rustfmt::skip]
pub const PROFILES: &[Profile] = &[
    profile!("a100", "A100-SXM4-40GB, driver 535",
        "VGPU_NAME" = "NVIDIA A100-SXM4-40GB", "VGPU_MEM" = "40448MiB", "VGPU_COMPUTE" = "8.0", "VGPU_DRIVER" = "12.2",
        "VGPU_CONTEXT" = "192MiB"),
    profile!("h100", "H100-SXM5-80GB, driver 580",
        "VGPU_NAME" = "NVIDIA H100 80GB HBM3", "VGPU_MEM" = "81008MiB", "VGPU_COMPUTE" = "9.0", "VGPU_DRIVER" = "13.0",
        "VGPU_CONTEXT" = "256MiB"),
    profile!("v100", "V100-SXM2-16GB, driver 470",
        "VGPU_NAME" = "Tesla V100-SXM2-16GB", "VGPU_MEM" = "16158MiB", "VGPU_COMPUTE" = "7.0", "VGPU_DRIVER" = "11.4",
        "VGPU_CONTEXT" = "144MiB"),
    profile!("t4", "T4 with ECC, driver 535",
        "VGPU_NAME" = "Tesla T4", "VGPU_MEM" = "15104MiB", "VGPU_COMPUTE" = "7.5", "VGPU_DRIVER" = "12.2",
        "VGPU_CONTEXT" = "64MiB", "VGPU_P2P" = "off"),
    profile!("rtx4090", "GeForce RTX 4090, driver 560",
        "VGPU_NAME" = "NVIDIA GeForce RTX 4090", "VGPU_MEM" = "24207MiB", "VGPU_COMPUTE" = "8.9", "VGPU_DRIVER" = "12.6",
        "VGPU_SMS" = "128", "VGPU_CONTEXT" = "192MiB", "VGPU_P2P" = "off", "VGPU_RDMA" = "off"),
    profile!("gtx1080", "GeForce GTX 1080, driver 535",
        "VGPU_NAME" = "NVIDIA GeForce GTX 1080", "VGPU_MEM" = "8120MiB", "VGPU_COMPUTE" = "6.1", "VGPU_DRIVER" = "12.2",
        "VGPU_CONTEXT" = "64MiB", "VGPU_P2P" = "off", "VGPU_RDMA" = "off"),
    profile!("wsl2", "RTX A4000 under WSL2, driver 560",
        "VGPU_NAME" = "NVIDIA RTX A4000", "VGPU_MEM" = "16375MiB", "VGPU_COMPUTE" = "8.6", "VGPU_DRIVER" = "12.6",
        "VGPU_SMS" = "48", "VGPU_CONTEXT" = "128MiB", "VGPU_P2P" = "off", "VGPU_RDMA" = "refused", "VGPU_VA" = "32GiB",
        "VGPU_MANAGED" = "basic", "VGPU_NVML" = "no-processes"),
    profile!("vgpu-guest", "a slice of an L4 in a virtual machine, driver 580",
        "VGPU_NAME" = "NVIDIA L4-8C", "VGPU_MEM" = "8GiB", "VGPU_COMPUTE" = "8.9", "VGPU_DRIVER" = "13.0",
        "VGPU_SMS" = "58", "VGPU_CONTEXT" = "128MiB", "VGPU_P2P" = "off", "VGPU_RDMA" = "off", "VGPU_POOLS" = "off",
        "VGPU_VMM" = "off", "VGPU_MANAGED" = "none"),
    profile!("mig-1g.10gb", "an instance 1g.10gb of an A100-SXM4-80GB, driver 535",
        "VGPU_NAME" = "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "VGPU_MEM" = "9728MiB", "VGPU_COMPUTE" = "8.0",
        "VGPU_DRIVER" = "12.2", "VGPU_SMS" = "14", "VGPU_CONTEXT" = "64MiB", "VGPU_P2P" = "off", "VGPU_MIG" = "on"),
    profile!("container", "an A100-SXM4-40GB in a container with a pid namespace, driver 535",
        "VGPU_NAME" = "NVIDIA A100-SXM4-40GB", "VGPU_MEM" = "40448MiB", "VGPU_COMPUTE" = "8.0", "VGPU_DRIVER" = "12.2",
        "VGPU_CONTEXT" = "192MiB", "VGPU_NVML" = "foreign-pids"),
    profile!("no-p2p", "two GeForce RTX 3090 without NVLink, driver 560",
        "VGPU_DEVICES" = "2", "VGPU_NAME" = "NVIDIA GeForce RTX 3090", "VGPU_MEM" = "24248MiB", "VGPU_COMPUTE" = "8.6",
        "VGPU_DRIVER" = "12.6", "VGPU_SMS" = "82", "VGPU_CONTEXT" = "192MiB", "VGPU_P2P" = "off", "VGPU_RDMA" = "off",
        "VGPU_NVML" = "zero-bytes"),
    profile!("jetson", "Jetson AGX Orin 32GB, JetPack 5",
        "VGPU_NAME" = "Orin", "VGPU_MEM" = "30588MiB", "VGPU_COMPUTE" = "8.7", "VGPU_DRIVER" = "11.4",
        "VGPU_SMS" = "14", "VGPU_CONTEXT" = "64MiB", "VGPU_P2P" = "off", "VGPU_RDMA" = "off", "VGPU_VA" = "32GiB",
        "VGPU_INTEGRATED" = "on", "VGPU_MANAGED" = "basic", "VGPU_NVML" = "absent"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_sets_each_variable_once() {
        for profile in PROFILES {
            assert_eq!(PROFILES.iter().filter(|p| p.name == profile.name).count(), 1);
            for (variable, _) in profile.switches {
                assert!(variable.starts_with("VGPU_") && *variable != "VGPU_PROFILE", "{variable}");
                assert_eq!(profile.switches.iter().filter(|(v, _)| v == variable).count(), 1, "{variable}");
            }
            for needed in ["VGPU_NAME", "VGPU_MEM", "VGPU_COMPUTE", "VGPU_DRIVER", "VGPU_CONTEXT"] {
                assert!(profile.get(needed).is_some(), "{}: {needed}", profile.name);
            }
        }
        assert!(find("a100").is_some_and(|p| p.get("VGPU_COMPUTE") == Some("8.0")));
        assert!(find("A100").is_none());
    }

    #[test]
    fn a_file_has_a_line_for_each_switch() {
        let text = "# a machine\nVGPU_MEM=8GiB\n\n VGPU_COST=cuMemAlloc=97us \n";
        assert_eq!(read(text), Ok(vec![("VGPU_MEM", "8GiB"), ("VGPU_COST", "cuMemAlloc=97us")]));
        for (bad, words) in [
            ("VGPU_MEM", "line 1: no '='"),
            ("\nPATH=x", "line 2: PATH is no switch"),
            ("VGPU_PROFILE=a100", "VGPU_PROFILE is no switch"),
            ("VGPU_MEM=1GiB\nVGPU_MEM=2GiB", "line 2: VGPU_MEM a second time"),
        ] {
            assert!(read(bad).is_err_and(|error| error.contains(words)), "{bad}");
        }
    }
}
