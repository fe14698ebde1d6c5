//! What the environment asks for: every variable that begins with WEIR_, checked once.
//!
//! A value that cannot be honoured is one line on standard error that names the variable, and the
//! job then runs without weir's effect; with `WEIR_STRICT=1` its cuInit fails instead. That holds for
//! a misspelt variable, too: a cap that is silently not there would be worse than a failure.

use crate::caps::terms::Terms;
use crate::recorder::settings::Settings;
use crate::served::switches::{GRAMMAR, Switches};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use weir_ledger::Place;
use weir_ledger::settings::OnCap;

/// Where a setting's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A variable of the environment.
    Environment,
    /// Nothing set it.
    Default,
}

/// A setting with its value in effect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The variable.
    pub(crate) name: &'static str,
    /// The value in effect.
    pub(crate) value: String,
    /// Where it comes from.
    pub(crate) origin: Origin,
}

/// What a job is to have.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Fail at cuInit rather than run without effect.
    pub(crate) strict: bool,
    /// What the pool is to do.
    pub(crate) pool: Switches,
    /// What the job may take.
    pub(crate) caps: Terms,
    /// What is written down.
    pub(crate) journal: Settings,
    /// Leave TensorFlow's own allocator in charge.
    pub(crate) keep_tensorflow: bool,
    /// Where journals and notes go: `WEIR_DIR`, or the user's state directory.
    pub(crate) dir: Option<PathBuf>,
    /// Every known setting, for `weir doctor`.
    pub(crate) settings: Vec<Setting>,
    /// What cannot be honoured, one line each.
    pub(crate) problems: Vec<String>,
}

/// What a variable may say.
enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// An absolute path.
    Path,
    /// The switches of the pool.
    Pool,
    /// A term of the cap, read by this function.
    Cap(fn(&mut Terms, &str) -> Result<(), String>),
    /// A setting of the journal, read by this function.
    Journal(fn(&mut Settings, &str) -> Result<(), String>),
    /// Anything; only a build with faults or mutations reads it.
    #[cfg(any(feature = "faults", feature = "pool-mutations"))]
    Any,
}

struct Known {
    name: &'static str,
    default: &'static str,
    values: Values,
}

/// Every variable of the library.
static KNOWN: &[Known] = &[
    Known { name: "WEIR_STRICT", default: "0", values: Values::Words(&["0", "1"]) },
    Known { name: "WEIR_DIR", default: "", values: Values::Path },
    Known { name: "WEIR_POOL", default: "on", values: Values::Pool },
    Known { name: "WEIR_CAP", default: "", values: Values::Cap(Terms::read_cap) },
    Known { name: "WEIR_GROUP", default: "", values: Values::Cap(Terms::read_group) },
    Known { name: "WEIR_ON_CAP", default: "fail", values: Values::Cap(Terms::read_on_cap) },
    Known { name: "WEIR_SPILL", default: "", values: Values::Cap(Terms::read_spill) },
    Known { name: "WEIR_WARN", default: "", values: Values::Cap(Terms::read_warn) },
    Known { name: "WEIR_JOURNAL", default: "on", values: Values::Journal(Settings::read_journal) },
    Known { name: "WEIR_KEEP", default: "20,4GiB", values: Values::Journal(Settings::read_keep) },
    Known { name: "WEIR_RING", default: "1M,150000", values: Values::Journal(Settings::read_ring) },
    Known { name: "WEIR_STACKS", default: "sampled", values: Values::Journal(Settings::read_stacks) },
    Known { name: "WEIR_OOM_TEXT", default: "on", values: Values::Journal(Settings::read_oom_text) },
    Known { name: "WEIR_TF_ALLOCATOR", default: "pool", values: Values::Words(&["pool", "keep"]) },
    #[cfg(feature = "pool-mutations")]
    Known { name: "WEIR_POOL_MUTATION", default: "", values: Values::Any },
    #[cfg(feature = "faults")]
    Known { name: "WEIR_FAULT", default: "", values: Values::Any },
];

/// Variables of the project's tools that mean nothing to the library.
const NOT_OURS: [&str; 1] = ["WEIR_CACHE"];

impl Config {
    /// Reads the process's environment.
    pub(crate) fn from_environment() -> Self {
        Self::read(std::env::vars_os())
    }

    /// Reads an environment given as pairs. An empty value is as good as none.
    fn read(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let (mut given, mut state, mut home, mut runtime) = (Vec::new(), None, None, None);
        for (name, value) in variables.filter(|(_, value)| !value.is_empty()) {
            match name.as_bytes() {
                b"XDG_STATE_HOME" => state = Some(PathBuf::from(value)),
                b"XDG_RUNTIME_DIR" => runtime = value.into_string().ok(),
                b"HOME" => home = Some(PathBuf::from(value).join(".local/state")),
                n if n.starts_with(b"WEIR_") => given.push((name, value)),
                _ => {}
            }
        }
        let mut config =
            Self { dir: state.filter(|d| d.is_absolute()).or(home).map(|d| d.join("weir")), ..Self::default() };
        for known in KNOWN {
            let value = given.iter().find(|(name, _)| name == known.name);
            config.take(known, value.map(|(_, value)| value.as_os_str()));
        }
        let own = given.iter().find(|(name, _)| name == "WEIR_DIR").and_then(|(_, value)| value.to_str());
        if config.caps.any() {
            config.caps.place = Place::from_variables(own, runtime.as_deref());
        }
        if config.caps.on_cap == OnCap::Spill && !config.pool.on {
            config.refuse("WEIR_ON_CAP", OsStr::new("spill"), "needs the pool, and WEIR_POOL=off");
        }
        for (name, value) in &given {
            let name = name.to_string_lossy();
            if !KNOWN.iter().any(|k| k.name == name) && !NOT_OURS.contains(&&*name) {
                config.refuse(&name, value, "there is no such variable");
            }
        }
        config
    }

    fn take(&mut self, known: &Known, given: Option<&OsStr>) {
        if let Some(value) = given {
            let text = value.to_string_lossy();
            match known.values {
                Values::Words(words) if !words.contains(&&*text) => {
                    self.refuse(known.name, value, &format!("must be {}", words.join(" or ")));
                }
                Values::Path if !value.as_bytes().starts_with(b"/") => {
                    self.refuse(known.name, value, "must be an absolute path");
                }
                Values::Pool => match Switches::parse(&text) {
                    Some(switches) => self.pool = switches,
                    None => self.refuse(known.name, value, GRAMMAR),
                },
                Values::Cap(read) => {
                    if let Err(why) = read(&mut self.caps, &text) {
                        self.refuse(known.name, value, &why);
                    }
                }
                Values::Journal(read) => {
                    if let Err(why) = read(&mut self.journal, &text) {
                        self.refuse(known.name, value, &why);
                    }
                }
                _ => match known.name {
                    "WEIR_STRICT" => self.strict = text == "1",
                    "WEIR_TF_ALLOCATOR" => self.keep_tensorflow = text == "keep",
                    "WEIR_DIR" => self.dir = Some(PathBuf::from(value)),
                    _ => {}
                },
            }
        }
        let default = if known.name == "WEIR_DIR" {
            self.dir.as_deref().map(|d| d.display().to_string())
        } else {
            Some(known.default.to_owned())
        };
        self.settings.push(Setting {
            name: known.name,
            value: given.map_or(default.unwrap_or_default(), |v| v.to_string_lossy().into_owned()),
            origin: if given.is_some() { Origin::Environment } else { Origin::Default },
        });
    }

    /// Every setting in effect, one `NAME=value` a line: what the journal keeps.
    pub(crate) fn text(&self) -> String {
        self.settings.iter().map(|s| format!("{}={}", s.name, s.value)).collect::<Vec<_>>().join("\n")
    }

    fn refuse(&mut self, name: &str, value: &OsStr, why: &str) {
        // One line, however long and strange the value is.
        let shown: String = value.to_string_lossy().chars().take(60).flat_map(char::escape_debug).collect();
        self.problems.push(format!("{name}={shown}: {why}; the job runs without weir's effect"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Config {
        Config::read(pairs.iter().map(|(n, v)| (n.into(), v.into())))
    }

    #[test]
    fn an_empty_environment_asks_for_nothing() {
        let config = read(&[("PATH", "/bin"), ("WEIR_CAP", ""), ("WEIR_CACHE", "/c")]);
        assert!(config.problems.is_empty());
        assert!(!config.strict && config.dir.is_none());
        assert!(config.settings.iter().all(|s| s.origin == Origin::Default));
    }

    #[test]
    fn the_directory_follows_the_variable_then_the_user() {
        let dir = |pairs: &[_]| read(pairs).dir.map(|d| d.display().to_string());
        let home = ("HOME", "/h");
        assert_eq!(dir(&[home]).as_deref(), Some("/h/.local/state/weir"));
        let state = ("XDG_STATE_HOME", "/s");
        assert_eq!(dir(&[home, state]).as_deref(), Some("/s/weir"));
        let own = ("WEIR_DIR", "/w");
        assert_eq!(dir(&[own, home, state]).as_deref(), Some("/w"));
    }

    #[test]
    fn bad_values_and_misspelt_names_are_named_in_one_line() {
        for (name, value, why) in [
            ("WEIR_STRICT", "yes", "must be 0 or 1"),
            ("WEIR_DIR", "here", "absolute path"),
            ("WEIR_POOL", "yes", "must be on, off"),
            ("WEIR_CPA", "8GiB", "no such variable"),
            ("WEIR_CAP", "8XiB", "the unit \"XiB\" is not known; expected 8GiB"),
            ("WEIR_CAP", "0", "a cap of 0"),
            ("WEIR_GROUP", "a/b", "a character that"),
            ("WEIR_ON_CAP", "wait", "how long"),
            ("WEIR_WARN", "200%", "more than 100%"),
            ("WEIR_TF_ALLOCATOR", "bfc", "must be pool or keep"),
            ("WEIR_SPILL", "lots", "expected"),
            ("WEIR_STRICT", "1\n2", "must be 0 or 1"),
            ("WEIR_JOURNAL", "yes", "must be on or off"),
            ("WEIR_KEEP", "many", "not a number of journals"),
            ("WEIR_RING", "63", "must be events"),
            ("WEIR_STACKS", "some", "must be off, sampled or all"),
            ("WEIR_OOM_TEXT", "1", "must be on or off"),
        ] {
            let problems = read(&[(name, value)]).problems.join("\n");
            assert!(problems.contains(name) && problems.contains(why), "{problems}");
            assert!(!problems.contains('\n'), "{problems}");
        }
        assert!(read(&[("WEIR_STRICT", "1"), ("WEIR_CAP", "1")]).strict);
        let spill = ("WEIR_ON_CAP", "spill");
        assert!(read(&[spill, ("WEIR_SPILL", "50%")]).problems.is_empty());
        assert!(read(&[spill, ("WEIR_POOL", "off")]).problems.join("\n").contains("needs the pool"));
    }
}
