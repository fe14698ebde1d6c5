//! An environment, read by the table: what is in effect, where it comes from, and what is wrong. Touches nothing: the
//! environment is given as pairs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::limit::OnCap;
use crate::size::BadValue;
use crate::table::{Kind, SETTINGS, Setting, Settings};

impl Settings {
    /// Whether the job may not take what it wants.
    pub fn limits(&self) -> bool {
        self.cap.is_some() || self.group.is_some()
    }

    /// The settings of a journal: what [`Reading::text`] wrote. What cannot be read is as if it were not set.
    pub fn from_text(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Reading::of(pairs.map(|(name, value)| (name.trim().into(), value.trim().into())), &[]).settings
    }
}

impl Default for Settings {
    /// What holds where nothing is set: the rows' own defaults.
    fn default() -> Self {
        let mut settings = Self::bare();
        for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
            // A test holds that every default can be read.
            let _ = (setting.read)(&mut settings, OsStr::new(setting.default));
        }
        settings
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A variable of the environment.
    Environment,
    /// Nothing set it, or nothing that could be read.
    Default,
}

/// A setting with its value in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The row.
    pub variable: &'static str,
    /// The value in effect, as it would be written; empty is none.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// What is wrong with one variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The variable, safe to print.
    pub variable: String,
    /// Its value, short and safe to print.
    pub value: String,
    /// What is wrong and what would be right.
    pub why: String,
    /// What it is for; `None` for a variable that is not known.
    pub kind: Option<Kind>,
}

impl Problem {
    /// Whether a limit is lost by it.
    pub fn is_limit(&self) -> bool {
        self.kind == Some(Kind::Limit)
    }

    /// `WEIR_CAP=8XiB: unknown unit "XiB"; expected …`.
    pub fn text(&self) -> String {
        if self.kind.is_none() {
            return format!("{}: {}", self.variable, self.why);
        }
        format!("{}={}: {}", self.variable, self.value, self.why)
    }

    /// One line that also has the effect on a job.
    pub fn line(&self, strict: bool) -> String {
        let default = Setting::of(&self.variable).map_or("", |setting| setting.default);
        let then = match (self.kind, strict) {
            (None, _) => return self.text(),
            (Some(Kind::Limit), true) => FAILS.to_owned(),
            (Some(Kind::Limit), false) => WITHOUT.to_owned(),
            (Some(_), _) if default.is_empty() => "ignored".to_owned(),
            (Some(_), _) => format!("using the default {default}"),
        };
        format!("{}; {then}", self.text())
    }
}

/// Reported where a limit cannot be enforced and the job must not run without it.
pub const FAILS: &str = "cuInit fails (WEIR_STRICT=0 would run the job without this limit)";
/// Reported where the job runs without it.
pub const WITHOUT: &str = "WEIR_STRICT=0: the job runs without this limit";

/// An environment, read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// What is in effect.
    pub settings: Settings,
    /// The same row by row.
    pub shown: Vec<Shown>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// WEIR_DIR itself, if it was set and could be read.
    pub own_dir: Option<PathBuf>,
    /// XDG_RUNTIME_DIR.
    pub runtime_dir: Option<PathBuf>,
}

/// Variables of the project's own scripts and examples, which mean nothing to the library.
const TOOLS: [&str; 4] = ["WEIR_CACHE", "WEIR_LIBRARY", "WEIR_SHARDS_PER_GPU", "WEIR_VGPU"];

impl Reading {
    /// Reads an environment. An empty value is as good as none. `also` are variables that a test build knows.
    pub fn of(variables: impl Iterator<Item = (OsString, OsString)>, also: &[&str]) -> Self {
        let (mut given, mut state, mut home, mut runtime_dir) = (Vec::new(), None, None, None);
        for (name, value) in variables.filter(|(_, value)| !value.is_empty()) {
            match name.as_bytes() {
                b"XDG_STATE_HOME" => state = Some(PathBuf::from(value)),
                b"XDG_RUNTIME_DIR" => runtime_dir = Some(PathBuf::from(value)),
                b"HOME" => home = Some(PathBuf::from(value).join(".local/state")),
                n if n.starts_with(b"WEIR_") => given.push((name, value)),
                _ => {}
            }
        }
        let usable = |dir: Option<PathBuf>| dir.filter(|dir| dir.is_absolute());
        let dir = usable(state).or_else(|| usable(home)).map(|dir| dir.join("weir"));
        let settings = Settings { dir, ..Settings::default() };
        let mut reading = Self { settings, shown: Vec::new(), problems: Vec::new(), own_dir: None, runtime_dir };
        for setting in SETTINGS {
            let value = given.iter().find(|(name, _)| name == setting.variable);
            reading.take(setting, value.map(|(_, value)| value.as_os_str()));
        }
        reading.weigh();
        for (name, value) in &given {
            let name = name.to_string_lossy();
            let known = Setting::of(&name).is_some() || TOOLS.contains(&&*name) || also.contains(&&*name);
            if !known && !by_kubernetes(&name) {
                reading.unknown(&name, value);
            }
        }
        reading
    }

    fn take(&mut self, setting: &'static Setting, given: Option<&OsStr>) {
        let mut origin = Origin::Default;
        let mut value = setting.default.to_owned();
        if let Some(given) = given {
            match (setting.read)(&mut self.settings, given) {
                Ok(()) => (origin, value) = (Origin::Environment, given.to_string_lossy().into_owned()),
                Err(bad) => self.refuse(setting, given, &format!("{}; expected {}", bad.problem, bad.expected)),
            }
        }
        if setting.variable == "WEIR_DIR" {
            self.own_dir = self.settings.dir.clone().filter(|_| origin == Origin::Environment);
            value = self.settings.dir.as_deref().map(|dir| dir.display().to_string()).unwrap_or_default();
        }
        self.shown.push(Shown { variable: setting.variable, value, origin });
    }

    /// What no row can know by itself.
    fn weigh(&mut self) {
        let bad = |problems: &[Problem], variable: &str| problems.iter().any(|problem| problem.variable == variable);
        if self.settings.on_cap == OnCap::Spill
            && !self.settings.pool.on
            && let Some(setting) = Setting::of("WEIR_ON_CAP")
        {
            self.settings.on_cap = OnCap::Fail;
            self.refuse(setting, OsStr::new("spill"), "needs the pool, but WEIR_POOL=off");
        }
        if bad(&self.problems, "WEIR_DIR")
            && let (Some(group), Some(setting)) = (self.settings.group.take(), Setting::of("WEIR_GROUP"))
        {
            self.refuse(setting, OsStr::new(&group), "its ledger is in WEIR_DIR, which is not usable");
        }
    }

    fn refuse(&mut self, setting: &Setting, value: &OsStr, why: &str) {
        self.problems.push(Problem {
            variable: setting.variable.to_owned(),
            value: short(&value.to_string_lossy()),
            why: why.to_owned(),
            kind: Some(setting.kind),
        });
    }

    fn unknown(&mut self, name: &str, value: &OsStr) {
        let near = SETTINGS.iter().map(|setting| (distance(name, setting.variable), setting.variable));
        let near = near.min().filter(|(distance, _)| *distance <= 2);
        let hint = near.map(|(_, variable)| format!("; did you mean {variable}?")).unwrap_or_default();
        self.problems.push(Problem {
            variable: short(name),
            value: short(&value.to_string_lossy()),
            why: format!("unknown variable, ignored{hint}"),
            kind: None,
        });
    }

    /// Every setting in effect, one `NAME=value` a line: what a journal keeps. See [`Settings::from_text`].
    pub fn text(&self) -> String {
        let line = |shown: &Shown| format!("{}={}\n", shown.variable, shown.value.replace('\n', " "));
        self.shown.iter().map(line).collect()
    }
}

/// One line, however long and strange the text is.
fn short(text: &str) -> String {
    BadValue::new(&text.chars().take(60).collect::<String>(), "", "").value
}

/// What Kubernetes sets in every container for a service that is called weir or weir-something.
fn by_kubernetes(name: &str) -> bool {
    let protocol = |text: &str| {
        let (port, rest) = text.split_once('_').unwrap_or((text, ""));
        port.bytes().all(|byte| byte.is_ascii_digit()) && ["TCP", "UDP", "SCTP"].iter().any(|p| rest.starts_with(p))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT")
        || name.match_indices("_PORT_").any(|(at, found)| protocol(&name[at + found.len()..]))
}

/// How many letters apart two names are.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (place, letter) in one.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = place + 1;
        for (at, against) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *against);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Reading {
        Reading::of(pairs.iter().map(|(n, v)| (n.into(), v.into())), &[])
    }

    #[test]
    fn an_empty_environment_asks_for_nothing() {
        let reading = read(&[("PATH", "/bin"), ("WEIR_CAP", ""), ("WEIR_CACHE", "/c")]);
        assert!(reading.problems.is_empty() && reading.settings == Settings::default());
        assert!(reading.settings.strict && reading.settings.dir.is_none() && !reading.settings.limits());
        assert!(reading.shown.iter().all(|shown| shown.origin == Origin::Default));
    }

    #[test]
    fn the_directory_follows_the_variable_then_the_user() {
        let dir = |pairs: &[_]| read(pairs).settings.dir.map(|d| d.display().to_string());
        let home = ("HOME", "/h");
        assert_eq!(dir(&[home]).as_deref(), Some("/h/.local/state/weir"));
        let state = ("XDG_STATE_HOME", "/s");
        assert_eq!(dir(&[home, state]).as_deref(), Some("/s/weir"));
        let own = ("WEIR_DIR", "/w");
        assert_eq!(dir(&[own, home, state]).as_deref(), Some("/w"));
        assert_eq!(dir(&[("WEIR_DIR", "w"), home]).as_deref(), Some("/h/.local/state/weir"));
        assert_eq!(dir(&[("XDG_STATE_HOME", "s"), ("HOME", "h")]), None, "a relative one names no place");
        assert_eq!(read(&[own, home]).own_dir, Some("/w".into()));
        assert_eq!((read(&[home]).own_dir, read(&[("WEIR_DIR", "w"), home]).own_dir), (None, None));
    }

    /// Every setting with a bad value: it costs one line and itself, and a good cap beside it stays.
    #[test]
    fn a_bad_setting_costs_only_itself() {
        let bad = [
            ("WEIR_CAP", "8XiB", "unknown unit \"XiB\"; expected 8GiB"),
            ("WEIR_CAP", "0", "a cap of 0"),
            ("WEIR_CAP", "8", "did you mean 8GiB?"),
            ("WEIR_CAP", "0.8", "did you mean 80%?"),
            ("WEIR_CAP", "5x", "unknown unit \"x\""),
            ("WEIR_GROUP", "a/b", "invalid character"),
            ("WEIR_ON_CAP", "wait", "no duration"),
            ("WEIR_SPILL", "lots", "expected"),
            ("WEIR_STRICT", "yes", "expected 0 or 1"),
            ("WEIR_STRICT", "1\n2", "expected 0 or 1"),
            ("WEIR_WARN", "200%", "more than 100%"),
            ("WEIR_POOL", "nostea", "expected on, off"),
            ("WEIR_TF_ALLOCATOR", "bfc", "expected auto, pool or keep"),
            ("WEIR_JOURNAL", "yes", "expected on or off"),
            ("WEIR_DIR", "here", "absolute path"),
            ("WEIR_RING", "100k", "K or M"),
            ("WEIR_RING", "63", "too few"),
            ("WEIR_KEEP", "many", "a number of journals"),
            ("WEIR_STACKS", "some", "expected off, sampled or all"),
            ("WEIR_OOM_TEXT", "1", "expected on or off"),
            ("WEIR_RUN", "here", "absolute path"),
        ];
        for setting in SETTINGS {
            assert!(bad.iter().any(|(name, ..)| *name == setting.variable), "{} has no bad value", setting.variable);
        }
        for (name, value, why) in bad {
            let good = [("WEIR_CAP", "1GiB"), ("WEIR_STACKS", "all")].into_iter().filter(|(other, _)| *other != name);
            let pairs: Vec<_> = good.clone().chain([(name, value)]).collect();
            let (reading, without) = (read(&pairs), read(&good.collect::<Vec<_>>()));
            assert_eq!(reading.settings, without.settings, "{name}={value} costs more than itself");
            assert_eq!(reading.problems.len(), 1, "{:?}", reading.problems);
            let problem = &reading.problems[0];
            assert_eq!(problem.is_limit(), Setting::of(name).unwrap().kind == Kind::Limit);
            for strict in [true, false] {
                let line = problem.line(strict);
                assert!(line.starts_with(name) && line.contains(why) && !line.contains('\n'), "{line}");
                assert_eq!(line.contains("cuInit fails"), strict && problem.is_limit(), "{line}");
                assert_eq!(line.contains("runs without this limit"), !strict && problem.is_limit(), "{line}");
            }
        }
    }

    #[test]
    fn what_two_settings_say_together() {
        let spill = ("WEIR_ON_CAP", "spill");
        assert!(read(&[spill, ("WEIR_SPILL", "50%")]).problems.is_empty());
        let off = read(&[spill, ("WEIR_POOL", "off")]);
        assert!(off.problems[0].is_limit() && off.problems[0].why.contains("needs the pool"), "{:?}", off.problems);
        let elsewhere = read(&[("WEIR_GROUP", "g"), ("WEIR_DIR", "here")]);
        assert!(elsewhere.problems.iter().any(|problem| problem.variable == "WEIR_GROUP" && problem.is_limit()));
    }

    #[test]
    fn an_unknown_variable_has_a_line_and_no_effect() {
        let reading = read(&[("WEIR_CPA", "8GiB"), ("WEIR_SOMETHING", "1")]);
        assert_eq!(reading.settings, Settings::default());
        let lines: Vec<_> = reading.problems.iter().map(|problem| problem.line(true)).collect();
        assert_eq!(lines[0], "WEIR_CPA: unknown variable, ignored; did you mean WEIR_CAP?");
        assert_eq!(lines[1], "WEIR_SOMETHING: unknown variable, ignored");
        assert_eq!(reading.problems.iter().filter(|problem| problem.is_limit()).count(), 0);
        let kubernetes = [
            "WEIR_METRICS_SERVICE_HOST",
            "WEIR_METRICS_SERVICE_PORT",
            "WEIR_METRICS_SERVICE_PORT_HTTP",
            "WEIR_METRICS_PORT",
            "WEIR_METRICS_PORT_9400_TCP",
            "WEIR_METRICS_PORT_9400_TCP_PROTO",
            "WEIR_METRICS_PORT_9400_TCP_ADDR",
            "WEIR_PORT_80_UDP_PORT",
            "WEIR_SERVICE_HOST",
        ];
        let pairs: Vec<_> = kubernetes.iter().map(|name| (*name, "10.0.0.1")).collect();
        assert!(read(&pairs).problems.is_empty(), "{:?}", read(&pairs).problems);
        assert!(!by_kubernetes("WEIR_CPA") && !by_kubernetes("WEIR_PORTS") && !by_kubernetes("WEIR_PORT_X_TCP"));
    }

    #[test]
    fn what_a_journal_keeps_reads_back() {
        let given = read(&[
            ("WEIR_POOL", "noremap,handle=4MiB"),
            ("WEIR_CAP", "1=50%"),
            ("WEIR_DIR", "/d"),
            ("WEIR_KEEP", "x"),
        ]);
        assert_eq!(Settings::from_text(&given.text()), given.settings);
        assert!(!Settings::from_text("WEIR_POOL=noremap\n").pool.remap);
        assert_eq!(Settings::from_text("cap = none\nrubbish\n"), Settings::default());
    }
}
