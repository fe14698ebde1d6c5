//! The host's own memory: how much there is and how much could be taken, by the kernel's figures for the machine and
//! for the control group that this process is in. Reads files of /proc and /sys, keeps nothing.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// What the host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// All of it.
    pub(crate) total: u64,
    /// What could be taken without swapping.
    pub(crate) available: u64,
}

impl Host {
    /// The figures of this moment; `None` if the kernel does not report them.
    pub(crate) fn now() -> Option<Self> {
        let machine = Self::of_machine(&read_to_string("/proc/meminfo").ok()?)?;
        let own = read_to_string("/proc/self/cgroup").ok().and_then(|text| group_of(&text));
        Some(own.map_or(machine, |group| machine.within(&group, Path::new("/sys/fs/cgroup"))))
    }

    /// From /proc/meminfo.
    fn of_machine(text: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
        };
        Some(Self { total: bytes("MemTotal")?, available: bytes("MemAvailable")? })
    }

    /// The same within the limits of a control group and of those around it.
    fn within(mut self, group: &Path, root: &Path) -> Self {
        for folder in group.ancestors() {
            let at = root.join(folder.strip_prefix("/").unwrap_or(folder));
            let number = |file: &str| read_to_string(at.join(file)).ok()?.trim().parse::<u64>().ok();
            let Some(limit) = number("memory.max") else { continue };
            // File pages that nobody uses are given up before the limit is felt.
            let stat = read_to_string(at.join("memory.stat")).unwrap_or_default();
            let idle = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
            let used = number("memory.current").unwrap_or(0).saturating_sub(idle.unwrap_or(0));
            self.total = self.total.min(limit);
            self.available = self.available.min(limit.saturating_sub(used));
        }
        self
    }

    /// What always stays untouched, for the host itself.
    pub(crate) fn reserve(self) -> u64 {
        (self.total / 16).max(256 << 20)
    }
}

/// The control group (second version) that /proc/self/cgroup names.
fn group_of(text: &str) -> Option<PathBuf> {
    text.lines().find_map(|line| line.strip_prefix("0::")).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_machine_is_read() {
        let text = "MemTotal:       16777216 kB\nMemFree:  5 kB\nMemAvailable:    8388608 kB\n";
        assert_eq!(Host::of_machine(text), Some(Host { total: 16 * GIB, available: 8 * GIB }));
        assert_eq!(Host::of_machine("MemTotal: many kB\n"), None);
        assert_eq!(group_of("1:name=x:/a\n0::/user.slice/job\n"), Some(PathBuf::from("/user.slice/job")));
        assert!(Host::now().is_some_and(|host| host.total >= host.available && host.available > 0));
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let root = std::env::temp_dir().join(format!("weir-host-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            let made = path.parent().map(std::fs::create_dir_all);
            assert!(made.is_some_and(|made| made.is_ok()) && std::fs::write(&path, text).is_ok());
        };
        write("outer/memory.max", "4294967296\n");
        write("outer/memory.current", "3221225472\n");
        write("outer/memory.stat", "anon 1\ninactive_file 1073741824\n");
        write("outer/inner/memory.max", "max\n");
        let machine = Host { total: 16 * GIB, available: 8 * GIB };
        let seen = machine.within(Path::new("/outer/inner"), &root);
        assert_eq!(seen, Host { total: 4 * GIB, available: 2 * GIB });
        assert_eq!(machine.within(Path::new("/elsewhere"), &root), machine);
        assert!(std::fs::remove_dir_all(&root).is_ok());
    }
}
