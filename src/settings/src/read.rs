//! An environment and settings files, read by the table: what is in effect, where it comes from, and what is wrong.
//! Touches nothing: the environment is given as pairs, the files as they were read.
//!
//! The environment comes first, then what a scheduler set (the cap only), the file beside the library, the machine's
//! file, the default. A limit in a file that only root can change is also a ceiling: the environment cannot raise it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::file::{FileOwner, Line, SettingsFile};
use crate::limit::{CapSetting, OnCap};
use crate::scheduler;
use crate::size::{Amount, BadValue};
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A variable of the environment.
    Environment,
    /// A scheduler's variable of this name.
    Scheduler(String),
    /// A settings file.
    File(PathBuf),
    /// Nothing set it, or nothing that could be read.
    Default,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Environment => f.write_str("environment"),
            Self::Scheduler(variable) => f.write_str(variable),
            Self::File(path) => path.display().fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
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
    /// The file whose ceiling lies over it, and what it says.
    pub ceiling: Option<(PathBuf, String)>,
}

impl Shown {
    /// Where it comes from, in words.
    pub fn source(&self) -> String {
        match &self.ceiling {
            Some((path, most)) => format!("{}; at most {most} by {}", self.origin, path.display()),
            None => self.origin.to_string(),
        }
    }
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
    /// The file that it stands in; `None` for the environment.
    pub file: Option<PathBuf>,
}

impl Problem {
    /// Whether a limit is lost by it.
    pub fn is_limit(&self) -> bool {
        self.kind == Some(Kind::Limit)
    }

    /// `WEIR_CAP=8XiB: unknown unit "XiB"; expected …`.
    pub fn text(&self) -> String {
        let place = self.file.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default();
        match (self.variable.as_str(), self.kind) {
            ("", _) => format!("{place}{}", self.why),
            (variable, None) => format!("{place}{variable}: {}", self.why),
            (variable, Some(_)) => format!("{place}{variable}={}: {}", self.value, self.why),
        }
    }

    /// One line that also has the effect on a job.
    pub fn line(&self, strict: bool) -> String {
        let default = Setting::of(&self.variable).map_or("", |setting| setting.default);
        let then = match (self.kind, strict) {
            (None, _) => return self.text(),
            (Some(Kind::Limit), true) => FAILS.to_owned(),
            (Some(Kind::Limit), false) => WITHOUT.to_owned(),
            (Some(_), _) if default.is_empty() || self.file.is_some() => "ignored".to_owned(),
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

/// Variables of the project's own scripts and examples, which mean nothing to the library. The journal keeps them:
/// WEIR_POD is a label of metrics.
const TOOLS: [&str; 5] = ["WEIR_CACHE", "WEIR_LIBRARY", "WEIR_SHARDS_PER_GPU", "WEIR_VGPU", "WEIR_POD"];

/// Where journals of a user without a home are, as those of many services: each user has a folder of its own there.
const HOMELESS: &str = "/tmp";

/// A value that a source offers.
struct Offer<'f> {
    value: OsString,
    file: Option<&'f SettingsFile>,
}

impl Reading {
    /// Reads an environment. An empty value is as good as none. `also` are variables that a test build knows.
    pub fn of(variables: impl Iterator<Item = (OsString, OsString)>, also: &[&str]) -> Self {
        Self::with(variables, &[], also)
    }

    /// Reads an environment and settings files, the first of which comes first.
    pub fn with(variables: impl Iterator<Item = (OsString, OsString)>, files: &[SettingsFile], also: &[&str]) -> Self {
        let (mut given, mut state, mut home, mut runtime_dir) = (Vec::new(), None, None, None);
        let mut scheduled = Vec::new();
        for (name, value) in variables.filter(|(_, value)| !value.is_empty()) {
            match name.as_bytes() {
                b"XDG_STATE_HOME" => state = Some(PathBuf::from(value)),
                b"XDG_RUNTIME_DIR" => runtime_dir = Some(PathBuf::from(value)),
                b"HOME" => home = Some(PathBuf::from(value).join(".local/state")),
                n if n.starts_with(b"WEIR_") => given.push((name, value)),
                _ if scheduler::is_one(&name) => scheduled.push((name, value)),
                _ => {}
            }
        }
        let usable = |dir: Option<PathBuf>| dir.filter(|dir| dir.is_absolute());
        let dir = usable(state).or_else(|| usable(home)).map_or_else(|| HOMELESS.into(), |dir| dir.join("weir"));
        let settings = Settings { dir: Some(dir), ..Settings::default() };
        let mut reading = Self { settings, shown: Vec::new(), problems: Vec::new(), own_dir: None, runtime_dir };
        let written: Vec<_> = files.iter().map(|file| (file, reading.pairs(file))).collect();
        for setting in SETTINGS {
            let value = given.iter().find(|(name, _)| name == setting.variable);
            let environment = value.map(|(_, value)| Offer { value: value.clone(), file: None });
            let from_files = written.iter().filter_map(|(file, pairs)| {
                let (_, value) = pairs.iter().find(|(name, _)| name == setting.variable)?;
                Some(Offer { value: value.clone(), file: Some(file) })
            });
            let offers: Vec<_> = environment.into_iter().chain(from_files).collect();
            reading.take(setting, &offers, &scheduled);
        }
        reading.weigh();
        for (name, value) in &given {
            let name = name.to_string_lossy();
            let known = Setting::of(&name).is_some() || TOOLS.contains(&&*name) || also.contains(&&*name);
            if !known && !by_kubernetes(&name) {
                reading.unknown(&name, value, None);
            }
        }
        reading
    }

    /// What a file sets. What is wrong with the file itself is a problem: a limit may be lost by it.
    fn pairs(&mut self, file: &SettingsFile) -> Vec<(OsString, OsString)> {
        let limit = Some(Kind::Limit);
        if let Err(why) = &file.text {
            self.wrong(file, "", "", &format!("{why}; a limit in it cannot be enforced"), limit);
        } else if file.owner != FileOwner::Root && file.path == std::path::Path::new(crate::file::MACHINE) {
            self.wrong(file, "", "", "others than root can change it: the environment may raise its limits", None);
        }
        let mut pairs: Vec<(OsString, OsString)> = Vec::new();
        for line in file.lines() {
            match line {
                Line::Other(number, text) => {
                    // A limit with a typing mistake is a bad limit.
                    let mut limits = SETTINGS.iter().filter(|setting| setting.kind == Kind::Limit);
                    let meant = limits.any(|setting| text.contains(setting.variable));
                    let then = if meant { "" } else { ", ignored" };
                    let why = format!("line {number}, \"{}\", is not NAME=VALUE{then}", short(&text));
                    self.wrong(file, "", "", &why, limit.filter(|_| meant));
                }
                Line::Pair(name, value) => match Setting::of(&name.to_string_lossy()) {
                    None => self.unknown(&name.to_string_lossy(), &value, Some(file)),
                    Some(setting) if pairs.iter().any(|(known, _)| *known == name) => {
                        let (value, why) = (value.to_string_lossy(), "is set twice in this file");
                        self.wrong(file, setting.variable, &value, why, Some(setting.kind));
                    }
                    Some(setting) if file.owner == FileOwner::Other && setting.kind != Kind::Limit => {
                        let why = "others than this user can change the file; only limits are taken from it";
                        self.wrong(file, setting.variable, &value.to_string_lossy(), why, Some(setting.kind));
                    }
                    Some(_) if value.is_empty() => {}
                    Some(_) => pairs.push((name, value)),
                },
            }
        }
        pairs
    }

    fn wrong(&mut self, file: &SettingsFile, variable: &str, value: &str, why: &str, kind: Option<Kind>) {
        self.problems.push(Problem {
            variable: variable.to_owned(),
            value: short(value),
            why: why.to_owned(),
            kind,
            file: Some(file.path.clone()),
        });
    }

    /// Takes the first offer that can be read. A limit in a file of root's is a ceiling over it.
    fn take(&mut self, setting: &'static Setting, offers: &[Offer<'_>], scheduled: &[(OsString, OsString)]) {
        let default = setting.default.to_owned();
        let mut shown = Shown { variable: setting.variable, value: default, origin: Origin::Default, ceiling: None };
        let environment = offers.first().is_some_and(|offer| offer.file.is_none());
        if setting.variable == "WEIR_CAP" && !environment {
            self.take_scheduled(scheduled, &mut shown);
        }
        let mut ceilings = Vec::new();
        for offer in offers {
            let mut tried = self.settings.clone();
            if let Err(bad) = (setting.read)(&mut tried, &offer.value) {
                let why = format!("{}; expected {}", bad.problem, bad.expected);
                self.refuse(setting, &offer.value, &why, offer.file);
                continue;
            }
            let text = offer.value.to_string_lossy().into_owned();
            if let (Kind::Limit, Some(file)) = (setting.kind, offer.file.filter(|file| file.owner == FileOwner::Root)) {
                ceilings.push((tried.clone(), file.path.clone(), text.clone()));
            }
            if shown.origin == Origin::Default {
                shown.origin = offer.file.map_or(Origin::Environment, |file| Origin::File(file.path.clone()));
                (self.settings, shown.value) = (tried, text);
            }
        }
        for (ceiling, path, text) in ceilings {
            if shown.origin != Origin::File(path.clone()) && !within(setting.variable, &mut self.settings, &ceiling) {
                self.note(setting.variable, format!("{} cannot replace {text} of {}", shown.value, path.display()));
                let _ = (setting.read)(&mut self.settings, OsStr::new(&text));
                (shown.origin, shown.value) = (Origin::File(path.clone()), text.clone());
            }
            shown.ceiling = Some((path, text));
        }
        let by_root = |shown: &&Shown| shown.ceiling.is_some();
        match setting.variable {
            "WEIR_STRICT" if !self.settings.strict && self.shown.iter().any(|shown| by_root(&shown)) => {
                let allowed = offers.iter().any(|offer| offer.file.is_some_and(|file| file.owner == FileOwner::Root));
                if !allowed {
                    self.note(setting.variable, "0 has no effect: a file of root's sets a limit".to_owned());
                    self.settings.strict = true;
                    (shown.value, shown.origin) = (setting.default.to_owned(), Origin::Default);
                }
            }
            "WEIR_DIR" => {
                self.own_dir = self.settings.dir.clone().filter(|_| shown.origin != Origin::Default);
                if self.shown.iter().filter(by_root).any(|shown| shown.variable == "WEIR_GROUP") {
                    // The ledger of root's group does not move with the environment of a member.
                    let roots =
                        offers.iter().find(|offer| offer.file.is_some_and(|file| file.owner == FileOwner::Root));
                    self.own_dir = roots.map(|offer| PathBuf::from(&offer.value)).filter(|dir| dir.is_absolute());
                    self.runtime_dir = None;
                }
                shown.value = self.settings.dir.as_deref().map(|dir| dir.display().to_string()).unwrap_or_default();
            }
            _ => {}
        }
        self.shown.push(shown);
    }

    fn take_scheduled(&mut self, scheduled: &[(OsString, OsString)], shown: &mut Shown) {
        let (cap, bad) = scheduler::cap(scheduled);
        for (variable, value, bad) in bad {
            let why = format!("{}; expected {}", bad.problem, bad.expected);
            self.problems.push(Problem { variable, value: short(&value), why, kind: Some(Kind::Limit), file: None });
        }
        if let Some((cap, variable, value)) = cap {
            self.settings.cap = Some(cap);
            (shown.origin, shown.value) = (Origin::Scheduler(variable), value);
        }
    }

    /// Something worth a line that costs nothing.
    fn note(&mut self, variable: &str, why: String) {
        let (variable, value) = (variable.to_owned(), String::new());
        self.problems.push(Problem { variable, value, why, kind: None, file: None });
    }

    /// What no row can know by itself.
    fn weigh(&mut self) {
        let bad = |problems: &[Problem], variable: &str| problems.iter().any(|problem| problem.variable == variable);
        if self.settings.on_cap == OnCap::Spill
            && !self.settings.pool.on
            && let Some(setting) = Setting::of("WEIR_ON_CAP")
        {
            self.settings.on_cap = OnCap::Fail;
            self.refuse(setting, OsStr::new("spill"), "needs the pool, but WEIR_POOL=off", None);
        }
        if bad(&self.problems, "WEIR_DIR")
            && let (Some(group), Some(setting)) = (self.settings.group.take(), Setting::of("WEIR_GROUP"))
        {
            self.refuse(setting, OsStr::new(&group), "its ledger is in WEIR_DIR, which is not usable", None);
        }
    }

    fn refuse(&mut self, setting: &Setting, value: &OsStr, why: &str, file: Option<&SettingsFile>) {
        self.problems.push(Problem {
            variable: setting.variable.to_owned(),
            value: short(&value.to_string_lossy()),
            why: why.to_owned(),
            kind: Some(setting.kind),
            file: file.map(|file| file.path.clone()),
        });
    }

    fn unknown(&mut self, name: &str, value: &OsStr, file: Option<&SettingsFile>) {
        let near = SETTINGS.iter().map(|setting| (distance(name, setting.variable), setting.variable));
        let near = near.min().filter(|(distance, _)| *distance <= 2);
        let hint = near.map(|(_, variable)| format!("; did you mean {variable}?")).unwrap_or_default();
        self.problems.push(Problem {
            variable: short(name),
            value: short(&value.to_string_lossy()),
            why: format!("unknown variable, ignored{hint}"),
            kind: None,
            file: file.map(|file| file.path.clone()),
        });
    }

    /// Every setting in effect, one `NAME=value` a line: what a journal keeps. See [`Settings::from_text`].
    pub fn text(&self) -> String {
        let line = |shown: &Shown| format!("{}={}\n", shown.variable, shown.value.replace('\n', " "));
        self.shown.iter().map(line).collect()
    }
}

/// Whether a limit, as it was taken, is none that root's file must replace. A cap that cannot be compared before the
/// devices are known gets the file's over it.
fn within(variable: &str, own: &mut Settings, ceiling: &Settings) -> bool {
    match variable {
        "WEIR_CAP" => match (&mut own.cap, &ceiling.cap) {
            (Some(cap), Some(most)) => within_cap(cap, most),
            _ => false,
        },
        "WEIR_SPILL" => at_most(own.spill, ceiling.spill) == Some(true),
        "WEIR_ON_CAP" => own.on_cap == OnCap::Fail || own.on_cap == ceiling.on_cap,
        "WEIR_GROUP" => own.group == ceiling.group,
        _ => true,
    }
}

fn within_cap(cap: &mut CapSetting, most: &CapSetting) -> bool {
    if !cap.names_devices()
        && !most.names_devices()
        && cap.ceilings.is_empty()
        && let Some(within) = at_most(cap.default, most.default)
    {
        return within;
    }
    cap.ceilings.push(most.clone());
    true
}

/// Whether one amount is at most the other, where that is certain without the whole.
fn at_most(one: Option<Amount>, other: Option<Amount>) -> Option<bool> {
    match (one?, other?) {
        (Amount::Bytes(one), Amount::Bytes(other)) => Some(one <= other),
        (Amount::Share(one), Amount::Share(other)) => Some(one <= other),
        _ => None,
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
        read_with(pairs, &[])
    }

    fn read_with(pairs: &[(&str, &str)], files: &[SettingsFile]) -> Reading {
        Reading::with(pairs.iter().map(|(n, v)| (n.into(), v.into())), files, &[])
    }

    fn file(path: &str, owner: FileOwner, text: &str) -> SettingsFile {
        SettingsFile { path: path.into(), owner, text: Ok(text.as_bytes().to_vec()) }
    }

    /// The value in effect and where it comes from.
    fn of(reading: &Reading, variable: &str) -> String {
        let shown = reading.shown.iter().find(|shown| shown.variable == variable).unwrap();
        format!("{} from {}", shown.value, shown.source())
    }

    fn lines(reading: &Reading) -> Vec<String> {
        reading.problems.iter().map(|problem| problem.line(reading.settings.strict)).collect()
    }

    #[test]
    fn the_nearest_source_counts() {
        let beside = file("/l/weir.conf", FileOwner::User, "WEIR_CAP=2GiB\nWEIR_STACKS=all");
        let machine = file("/etc/weir/weir.conf", FileOwner::Root, "WEIR_DIR=/d\nWEIR_STACKS=off\nWEIR_RING=64K");
        let files = [beside, machine];
        let all = read_with(&[("WEIR_CAP", "1GiB"), ("CUDA_DEVICE_MEMORY_LIMIT", "3g")], &files);
        assert!(all.problems.is_empty(), "{:?}", all.problems);
        assert_eq!(of(&all, "WEIR_CAP"), "1GiB from environment");
        assert_eq!(of(&all, "WEIR_STACKS"), "all from /l/weir.conf");
        assert_eq!(of(&all, "WEIR_RING"), "64K from /etc/weir/weir.conf");
        assert_eq!((of(&all, "WEIR_DIR"), all.own_dir), ("/d from /etc/weir/weir.conf".into(), Some("/d".into())));
        let scheduled = read_with(&[("CUDA_DEVICE_MEMORY_LIMIT", "3g")], &files);
        assert_eq!(of(&scheduled, "WEIR_CAP"), "3221225472B from CUDA_DEVICE_MEMORY_LIMIT");
        assert_eq!(of(&read_with(&[], &files), "WEIR_CAP"), "2GiB from /l/weir.conf");
        assert_eq!(of(&read_with(&[("WEIR_CAP", "")], &files), "WEIR_CAP"), "2GiB from /l/weir.conf");
        assert_eq!(Settings::from_text(&scheduled.text()).cap, scheduled.settings.cap, "a journal keeps it");
    }

    /// What only root can change lies over everything else; the environment may lower it.
    #[test]
    fn the_environment_cannot_raise_a_limit_of_roots() {
        let roots = |text: &str| [file("/etc/weir/weir.conf", FileOwner::Root, text)];
        let cap = |pairs: &[_], text: &str| {
            let reading = read_with(pairs, &roots(text));
            (of(&reading, "WEIR_CAP"), lines(&reading).len())
        };
        let at_most = "; at most 8GiB by /etc/weir/weir.conf";
        assert_eq!(cap(&[("WEIR_CAP", "4GiB")], "WEIR_CAP=8GiB"), (format!("4GiB from environment{at_most}"), 0));
        assert_eq!(
            cap(&[("WEIR_CAP", "9GiB")], "WEIR_CAP=8GiB"),
            (format!("8GiB from /etc/weir/weir.conf{at_most}"), 1)
        );
        let (shown, _) = cap(&[("GPU_MEMORY_LIMIT", "9663676416")], "WEIR_CAP=8GiB");
        assert_eq!(shown, format!("8GiB from /etc/weir/weir.conf{at_most}"));
        assert_eq!(cap(&[("WEIR_CAP", "60%")], "WEIR_CAP=50%").1, 1);
        // A bad value does not remove the ceiling, nor does WEIR_STRICT=0.
        let bad = read_with(&[("WEIR_CAP", "8XiB"), ("WEIR_STRICT", "0")], &roots("WEIR_CAP=8GiB"));
        assert_eq!(bad.settings.cap, CapSetting::parse("8GiB").ok());
        assert!(bad.settings.strict && bad.problems.iter().any(Problem::is_limit), "{:?}", bad.problems);
        let allowed = read_with(&[("WEIR_STRICT", "0")], &roots("WEIR_CAP=8GiB\nWEIR_STRICT=0"));
        assert!(!allowed.settings.strict && allowed.problems.is_empty());
        // What cannot be compared before the devices are known is kept for then.
        let mixed = read_with(&[("WEIR_CAP", "0=4GiB")], &roots("WEIR_CAP=50%")).settings.cap.unwrap();
        assert_eq!((mixed.named.len(), mixed.ceilings.len()), (1, 1));

        let terms = "WEIR_GROUP=team\nWEIR_ON_CAP=wait:5s\nWEIR_SPILL=1GiB";
        let all = [("WEIR_GROUP", "mine"), ("WEIR_ON_CAP", "spill"), ("WEIR_SPILL", "9GiB"), ("WEIR_DIR", "/mine")];
        let reading = read_with(&[all.as_slice(), &[("XDG_RUNTIME_DIR", "/run")]].concat(), &roots(terms));
        let settings = &reading.settings;
        assert_eq!(settings.group.as_deref(), Some("team"));
        assert_eq!(settings.on_cap, OnCap::Wait(std::time::Duration::from_secs(5)));
        assert_eq!(settings.spill, Some(Amount::Bytes(1 << 30)));
        assert_eq!((reading.own_dir.as_deref(), reading.runtime_dir.as_deref()), (None, None), "the ledger stays");
        assert_eq!(settings.dir, Some("/mine".into()), "journals may go anywhere");
        let lines = lines(&reading);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[0], "WEIR_GROUP: mine cannot replace team of /etc/weir/weir.conf");
        let lower = read_with(&[("WEIR_ON_CAP", "fail"), ("WEIR_SPILL", "5MiB")], &roots(terms));
        assert!(lower.problems.is_empty() && lower.settings.spill == Some(Amount::Bytes(5 << 20)));
        // Nobody else's file is a ceiling.
        for owner in [FileOwner::User, FileOwner::Other] {
            let files = [file("/l/weir.conf", owner, "WEIR_CAP=8GiB\nWEIR_GROUP=team")];
            let reading = read_with(&[("WEIR_CAP", "9GiB"), ("WEIR_GROUP", "mine"), ("WEIR_STRICT", "0")], &files);
            assert!(reading.problems.is_empty() && !reading.settings.strict);
            assert_eq!(
                (of(&reading, "WEIR_CAP"), of(&reading, "WEIR_GROUP")),
                ("9GiB from environment".into(), "mine from environment".into())
            );
        }
    }

    #[test]
    fn an_odd_file_loses_no_limit_silently() {
        let first = |file: SettingsFile| {
            let reading = read_with(&[], &[file]);
            (lines(&reading).join("|"), reading.problems.iter().any(Problem::is_limit), reading.settings.limits())
        };
        let unread =
            SettingsFile { path: "/l/weir.conf".into(), owner: FileOwner::Other, text: Err("is a FIFO".into()) };
        let (line, limit, _) = first(unread);
        assert!(
            limit && line.starts_with("/l/weir.conf: is a FIFO; a limit in it") && line.contains("cuInit fails"),
            "{line}"
        );
        for (text, part, limit, in_force) in [
            ("WEIR_CAP 8GiB", "line 1, \"WEIR_CAP 8GiB\", is not NAME=VALUE; cuInit fails", true, false),
            ("hello", "line 1, \"hello\", is not NAME=VALUE, ignored", false, false),
            ("WEIR_CAP=8XiB", "/l/weir.conf: WEIR_CAP=8XiB: in \"8XiB\": unknown unit", true, false),
            ("WEIR_CAP=1GiB\nWEIR_CAP=8GiB", "is set twice", true, true),
            ("WEIR_CPA=8GiB\nWEIR_CAP=1GiB", "did you mean WEIR_CAP?", false, true),
            ("WEIR_RING=100k\nWEIR_CAP=1GiB", "WEIR_RING=100k: ", false, true),
            ("\u{0}\u{1}WEIR_CAP\nWEIR_CAP=1GiB", "is not NAME=VALUE; cuInit fails", true, true),
            ("CUDA_DEVICE_MEMORY_LIMIT=1g", "unknown variable", false, false),
            ("WEIR_CAP=", "", false, false),
            ("# WEIR_CAP=1GiB\n", "", false, false),
        ] {
            let (line, is_limit, limits) = first(file("/l/weir.conf", FileOwner::Root, text));
            assert!(line.contains(part) && line.is_empty() == part.is_empty(), "{text}: {line}");
            assert_eq!((is_limit, limits), (limit, in_force), "{text}: {line}");
        }
        // A stranger's file may only take away.
        let (line, limit, limits) = first(file("/l/weir.conf", FileOwner::Other, "WEIR_DIR=/theirs\nWEIR_CAP=1GiB"));
        assert!(line.contains("WEIR_DIR=/theirs: others than this user") && !limit && limits, "{line}");
        let (line, limit, limits) = first(file("/etc/weir/weir.conf", FileOwner::User, "WEIR_CAP=1GiB"));
        assert!(line.contains("may raise its limits") && !limit && limits, "{line}");
    }

    /// What an environment gives that has nothing.
    fn homeless() -> Settings {
        Settings { dir: Some(HOMELESS.into()), ..Settings::default() }
    }

    #[test]
    fn an_empty_environment_asks_for_nothing() {
        let reading = read(&[("PATH", "/bin"), ("WEIR_CAP", ""), ("WEIR_CACHE", "/c")]);
        assert!(reading.problems.is_empty() && reading.settings == homeless());
        assert!(reading.settings.strict && !reading.settings.limits());
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
        let relative = dir(&[("XDG_STATE_HOME", "s"), ("HOME", "h")]);
        assert_eq!(relative.as_deref(), Some("/tmp"), "a relative one names no place");
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
            ("WEIR_XLA", "sizes", "expected auto, on or off"),
            ("WEIR_OOM_TEXT", "1", "expected on or off"),
            ("WEIR_TERMINATION_LOG", "on", "not an absolute path"),
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
        assert_eq!(reading.settings, homeless());
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
        assert_eq!(Settings::from_text("cap = none\nrubbish\n"), homeless());
    }
}
