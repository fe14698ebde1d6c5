//! What the environment and settings files configure, read once by weir-settings, in the shape that each part of the library wants.
//!
//! A bad setting costs only itself: one line, and its default holds. A bad *limit* is not replaced by anything: cuInit
//! fails, unless `WEIR_STRICT=0`.

use super::journal::Settings;
use super::limits::Terms;
use super::{elf, environment, surroundings};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weir_ledger::LedgerDir;
use weir_settings::file::SettingsFile;
use weir_settings::pool::Switches;
use weir_settings::scheduler;
use weir_settings::tensorflow::{TfAllocator, Xla};
use weir_settings::{Kind, Problem, Reading, Setting, Shown};

/// What a job is to have.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Fail at cuInit rather than run without a limit.
    pub(crate) strict: bool,
    /// What the pool is to do.
    pub(crate) pool: Switches,
    /// What the job may take.
    pub(crate) caps: Terms,
    /// What is written down.
    pub(crate) journal: Settings,
    /// Which allocator serves TensorFlow's tensors.
    pub(crate) tf_allocator: TfAllocator,
    /// Whether XLA is to leave what it knows of its arenas.
    pub(crate) xla: Xla,
    /// Where journals and notes go: `WEIR_DIR`, or the user's state directory.
    pub(crate) dir: Option<PathBuf>,
    /// Where `weir run` looks for the processes of its job.
    pub(crate) runs: Vec<PathBuf>,
    /// Every setting with its value in effect.
    pub(crate) shown: Vec<Shown>,
    /// What is wrong, each to be said in one line.
    pub(crate) problems: Vec<Problem>,
    text: String,
}

/// Variables that only a build for tests reads.
const TESTS: &[&str] = &[
    #[cfg(feature = "fault-injection")]
    "WEIR_FAULT",
];

impl Config {
    /// Reads the environment with which the process was started, and the settings files.
    pub(crate) fn from_environment() -> Self {
        let _kept = surroundings::Errno::keep();
        let files = SettingsFile::find(folder().as_deref());
        match environment::variables() {
            Ok(variables) => Self::read(variables.into_iter(), &files),
            Err(why) => {
                let lost = Problem {
                    variable: "WEIR_CAP".into(),
                    value: String::new(),
                    why: why.into(),
                    kind: Some(Kind::Limit),
                    file: None,
                };
                let mut config = Self::read(std::iter::empty(), &files);
                config.problems.push(lost);
                config
            }
        }
    }

    /// Where the settings could not be read at all: a limit that was to hold is lost.
    pub(crate) fn unread(why: &str) -> Self {
        let limits = environment::variables().unwrap_or_default().into_iter();
        let is_limit = |name: &OsString| {
            let of_weir = name.to_str().and_then(Setting::of).is_some_and(|setting| setting.kind == Kind::Limit);
            of_weir || scheduler::is_one(name)
        };
        let limits = limits.filter(|(name, value)| is_limit(name) && !value.is_empty());
        let problem = |(name, value): (OsString, OsString)| Problem {
            variable: name.to_string_lossy().into_owned(),
            value: value.to_string_lossy().chars().take(60).flat_map(char::escape_debug).collect(),
            why: why.to_owned(),
            kind: Some(Kind::Limit),
            file: None,
        };
        Self { strict: true, problems: limits.map(problem).collect(), ..Self::default() }
    }

    /// Reads an environment given as pairs, and files.
    fn read(variables: impl Iterator<Item = (OsString, OsString)>, files: &[SettingsFile]) -> Self {
        let reading = Reading::with(variables, files, TESTS);
        let text = reading.text();
        let Reading { settings, shown, problems, own_dir, runtime_dir } = reading;
        let mut caps = Terms::new(&settings);
        if caps.any() {
            caps.place = LedgerDir::from_variables(own_dir.as_deref(), runtime_dir.as_deref());
        }
        Self {
            strict: settings.strict,
            caps,
            journal: Settings::new(&settings),
            tf_allocator: settings.tf_allocator,
            xla: settings.xla,
            pool: settings.pool,
            dir: settings.dir,
            runs: settings.runs,
            shown,
            problems,
            text,
        }
    }

    /// Every setting in effect, one `NAME=value` a line: what the journal keeps.
    pub(crate) fn text(&self) -> String {
        self.text.clone()
    }

    /// What is wrong, one line each.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.problems.iter().map(|problem| problem.line(self.strict))
    }

    /// The limits that the job was to have and has not.
    pub(crate) fn lost(&self) -> Option<String> {
        let lost: Vec<_> = self.problems.iter().filter(|problem| problem.is_limit()).map(Problem::text).collect();
        (!lost.is_empty()).then(|| lost.join("; "))
    }
}

/// The folder that this library lies in. LD_PRELOAD may name it by a link, as a system's folder of libraries has one. A relative
/// LD_PRELOAD names no folder that still holds when the program has changed its directory: then the kernel knows.
fn folder() -> Option<PathBuf> {
    let address = folder as *const () as usize;
    let (_, object) = elf::object_at(address)?;
    let named = Path::new(OsStr::from_bytes(object.path().to_bytes()));
    if named.is_absolute() {
        let real = std::fs::canonicalize(named).ok();
        return real.as_deref().unwrap_or(named).parent().map(Path::to_owned);
    }
    let maps = std::fs::read("/proc/self/maps").ok()?;
    maps.split(|byte| *byte == b'\n').find_map(|line| mapped(line, address)?.parent().map(Path::to_owned))
}

/// The file of a line of /proc/self/maps, if the address lies there.
fn mapped(line: &[u8], address: usize) -> Option<&Path> {
    let dash = line.iter().position(|byte| *byte == b'-')?;
    let blank = line.iter().position(|byte| *byte == b' ')?;
    let number = |digits: &[u8]| usize::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok();
    let (from, to) = (number(line.get(..dash)?)?, number(line.get(dash + 1..blank)?)?);
    let path = line.iter().position(|byte| *byte == b'/').filter(|_| (from..to).contains(&address))?;
    Some(Path::new(OsStr::from_bytes(line.get(path..)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_settings::SETTINGS;

    fn read(pairs: &[(&str, &str)]) -> Config {
        Config::read(pairs.iter().map(|(n, v)| (n.into(), v.into())), &[])
    }

    #[test]
    fn a_bad_value_of_any_setting_leaves_all_others_alone() {
        for setting in SETTINGS {
            let other = if setting.variable == "WEIR_CAP" { ("WEIR_ON_CAP", "spill") } else { ("WEIR_CAP", "1GiB") };
            let config = read(&[other, (setting.variable, "\u{1}")]);
            assert_eq!(config.lines().count(), 1, "{}", setting.variable);
            assert_eq!(config.lost().is_some(), setting.kind == Kind::Limit, "{}", setting.variable);
            assert!(config.strict, "{}", setting.variable);
            assert_eq!(config.caps.any(), setting.variable != "WEIR_CAP", "{}", setting.variable);
        }
    }

    #[test]
    fn an_unknown_variable_turns_nothing_off() {
        let config = read(&[("WEIR_CPA", "1"), ("WEIR_METRICS_SERVICE_HOST", "10.0.0.1"), ("WEIR_CAP", "1GiB")]);
        assert!(config.lost().is_none() && config.caps.any());
        let lines: Vec<_> = config.lines().collect();
        assert!(lines.len() == 1 && lines.iter().all(|line| line.contains("did you mean WEIR_CAP?")), "{lines:?}");
        assert!(!read(&[("WEIR_STRICT", "0"), ("WEIR_CAP", "5x")]).strict);
    }

    #[test]
    fn what_the_journal_keeps_reads_back() {
        let given = [("WEIR_POOL", "noremap,handle=4MiB"), ("WEIR_CAP", "1=50%"), ("WEIR_STACKS", "x")];
        let config = read(&given);
        let kept = weir_settings::Settings::from_text(&config.text());
        assert!(kept.pool == config.pool && !kept.pool.remap && kept.cap.is_some(), "{}", config.text());
    }

    #[test]
    fn the_kernel_knows_where_a_library_lies() {
        let line = b"7f10-7f20 r-xp 00000000 08:01 42   /opt/my weir/libweir.so";
        assert_eq!(mapped(line, 0x7f10), Some(Path::new("/opt/my weir/libweir.so")));
        assert_eq!(
            (mapped(line, 0x7f20), mapped(b"7f10-7f20 rw-p 0 0:0 0", 0x7f11), mapped(b"", 0)),
            (None, None, None)
        );
    }

    #[test]
    fn the_shown_default_of_the_ring_is_the_real_one() {
        let (shown, real) =
            (Settings::new(&weir_settings::Settings::default()).geometry, weir_journal::Geometry::default());
        assert_eq!(shown, real);
    }
}
