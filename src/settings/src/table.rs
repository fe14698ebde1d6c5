//! The table of settings: one row each. To add a setting, add its row and its field in [`crate::read::Settings`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::limit::{CapSetting, OnCap, parse_group};
use crate::pool::{self, Switches};
use crate::read::Settings;
use crate::record::{Keep, Ring, Stacks};
use crate::size::{BadValue, parse_amount};

/// What a setting is for, which decides what a bad value costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the job may take. A bad one makes cuInit fail, unless WEIR_STRICT=0.
    Limit,
    /// What is written down, and where. A bad one is replaced by its default.
    Recording,
    /// How weir serves and warns. A bad one is replaced by its default.
    Diagnosis,
}

impl Kind {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Recording => "recording",
            Self::Diagnosis => "diagnosis",
        }
    }
}

/// How `weir run` takes a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `--NAME VALUE`.
    Takes(&'static str),
    /// `weir run` has its own way with it, told here.
    Own(&'static str),
    /// None: `weir run` sets it by itself.
    None,
}

/// One setting.
pub struct Setting {
    /// The variable.
    pub variable: &'static str,
    /// The flag of `weir run`.
    pub flag: Flag,
    /// What stands for the value in help texts.
    pub value_name: &'static str,
    /// What may be written.
    pub values: &'static str,
    /// The value where nothing is set, as it would be written; empty is none.
    pub default: &'static str,
    /// What the default means where it cannot be written.
    pub default_note: &'static str,
    /// What it is for.
    pub kind: Kind,
    /// What it does, in one sentence without an end.
    pub help: &'static str,
    pub(crate) read: fn(&mut Settings, &OsStr) -> Result<(), BadValue>,
}

impl Setting {
    /// The row of a variable.
    pub fn of(variable: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.variable == variable)
    }

    /// Whether a value can be honoured, as far as that can be known without a device.
    pub fn check(&self, value: &OsStr) -> Result<(), BadValue> {
        (self.read)(&mut Settings::bare(), value)
    }

    /// What a bad value does, in words.
    pub fn bad_value(&self) -> &'static str {
        match self.kind {
            _ if self.variable == "WEIR_DIR" => "the default holds; with a group, as a bad `WEIR_GROUP`",
            Kind::Limit => "cuInit fails; with `WEIR_STRICT=0` the job runs without it",
            Kind::Recording | Kind::Diagnosis => "the default holds",
        }
    }
}

/// A row whose value is text.
macro_rules! text {
    ($read:expr) => {
        |settings, value| {
            let read: fn(&mut Settings, &str) -> Result<(), BadValue> = $read;
            read(settings, &value.to_string_lossy())
        }
    };
}

/// Every setting, in the order in which one needs them.
pub static SETTINGS: &[Setting] = &[
    Setting {
        variable: "WEIR_CAP",
        flag: Flag::Takes("cap"),
        value_name: "SIZE",
        values: "8GiB, 80%, 0=8GiB,1=50%, GPU-UUID=8GiB",
        default: "",
        default_note: "no cap",
        kind: Kind::Limit,
        help: "The cap of each device, for the process or for all of its group together",
        read: text!(|settings, text| CapSetting::parse(text).map(|cap| settings.cap = Some(cap))),
    },
    Setting {
        variable: "WEIR_GROUP",
        flag: Flag::Takes("group"),
        value_name: "NAME",
        values: "1 to 64 letters, digits, '_', '-' or '.'",
        default: "",
        default_note: "none; `weir run` makes one for each job with a cap",
        kind: Kind::Limit,
        help: "Share one cap with all processes of this name",
        read: text!(|settings, text| parse_group(text).map(|group| settings.group = Some(group))),
    },
    Setting {
        variable: "WEIR_ON_CAP",
        flag: Flag::Takes("on-cap"),
        value_name: "WHAT",
        values: "fail, wait:30s or spill",
        default: "fail",
        default_note: "",
        kind: Kind::Limit,
        help: "What happens to a request that does not fit under the cap",
        read: text!(|settings, text| OnCap::parse(text).map(|on_cap| settings.on_cap = on_cap)),
    },
    Setting {
        variable: "WEIR_SPILL",
        flag: Flag::Takes("spill"),
        value_name: "SIZE",
        values: "16GiB, 25% of the host's memory, or 0",
        default: "",
        default_note: "half of the host memory that is available at the first spill",
        kind: Kind::Limit,
        help: "The most host memory that a process takes by --on-cap spill",
        read: text!(|settings, text| parse_amount(text).map(|amount| settings.spill = Some(amount))),
    },
    Setting {
        variable: "WEIR_STRICT",
        flag: Flag::Own("--strict, --no-strict"),
        value_name: "0|1",
        values: "0 or 1",
        default: "1",
        default_note: "",
        kind: Kind::Diagnosis,
        help: "Whether cuInit fails where a limit cannot be kept; with 0 the job runs without that limit",
        read: text!(|settings, text| {
            settings.strict = word(text, &[("0", false), ("1", true)])?;
            Ok(())
        }),
    },
    Setting {
        variable: "WEIR_WARN",
        flag: Flag::Takes("warn"),
        value_name: "SIZE",
        values: "90% or a size",
        default: "",
        default_note: "no warning",
        kind: Kind::Diagnosis,
        help: "Print one line when so much of the cap is used",
        read: text!(|settings, text| parse_amount(text).map(|amount| settings.warn = Some(amount))),
    },
    Setting {
        variable: "WEIR_POOL",
        flag: Flag::Takes("pool"),
        value_name: "SWITCHES",
        values: pool::GRAMMAR,
        default: "on",
        default_note: "",
        kind: Kind::Diagnosis,
        help: "The pool that serves device memory",
        read: text!(|settings, text| Switches::parse(text).map(|pool| settings.pool = pool)),
    },
    Setting {
        variable: "WEIR_TF_ALLOCATOR",
        flag: Flag::Takes("tf-allocator"),
        value_name: "WHO",
        values: "pool, or keep for TensorFlow's own allocator",
        default: "pool",
        default_note: "",
        kind: Kind::Diagnosis,
        help: "Who serves TensorFlow's tensors",
        read: text!(|settings, text| {
            settings.keep_tensorflow = word(text, &[("pool", false), ("keep", true)])?;
            Ok(())
        }),
    },
    Setting {
        variable: "WEIR_JOURNAL",
        flag: Flag::Takes("journal"),
        value_name: "on|off",
        values: "on or off",
        default: "on",
        default_note: "",
        kind: Kind::Recording,
        help: "Whether the job is recorded",
        read: text!(|settings, text| {
            settings.journal = word(text, &[("on", true), ("off", false)])?;
            Ok(())
        }),
    },
    Setting {
        variable: "WEIR_DIR",
        flag: Flag::Own("-o, --dir DIR"),
        value_name: "DIR",
        values: "an absolute path",
        default: "",
        default_note: "$XDG_STATE_HOME/weir, else ~/.local/state/weir",
        kind: Kind::Recording,
        help: "Where journals go, and the ledgers of groups",
        read: |settings, value| {
            if !value.as_bytes().starts_with(b"/") {
                let text = value.to_string_lossy();
                return Err(BadValue::new(&text, "it is not an absolute path", "a path like /var/lib/weir"));
            }
            settings.dir = Some(PathBuf::from(value));
            Ok(())
        },
    },
    Setting {
        variable: "WEIR_RING",
        flag: Flag::Takes("ring"),
        value_name: "COUNT",
        values: "events, or events,allocations: 1M, 64K,8K",
        default: "1M,86000",
        default_note: "",
        kind: Kind::Recording,
        help: "How much a journal holds",
        read: text!(|settings, text| Ring::parse(text).map(|ring| settings.ring = ring)),
    },
    Setting {
        variable: "WEIR_KEEP",
        flag: Flag::Takes("keep"),
        value_name: "HOW-MANY",
        values: "20, 4GiB, 20,4GiB or all",
        default: "20,4GiB",
        default_note: "",
        kind: Kind::Recording,
        help: "How many journals of ended jobs are kept",
        read: text!(|settings, text| Keep::parse(text).map(|keep| settings.keep = keep)),
    },
    Setting {
        variable: "WEIR_STACKS",
        flag: Flag::Takes("stacks"),
        value_name: "WHEN",
        values: "off, sampled or all",
        default: "sampled",
        default_note: "",
        kind: Kind::Recording,
        help: "When native stacks are taken",
        read: text!(|settings, text| Stacks::parse(text).map(|stacks| settings.stacks = stacks)),
    },
    Setting {
        variable: "WEIR_OOM_TEXT",
        flag: Flag::Takes("oom-text"),
        value_name: "on|off",
        values: "on or off",
        default: "on",
        default_note: "",
        kind: Kind::Recording,
        help: "Whether the job prints a summary on standard error when it runs out of memory",
        read: text!(|settings, text| {
            settings.oom_text = word(text, &[("on", true), ("off", false)])?;
            Ok(())
        }),
    },
    Setting {
        variable: "WEIR_RUN",
        flag: Flag::None,
        value_name: "FOLDERS",
        values: "absolute paths, separated by ':'",
        default: "",
        default_note: "set by `weir run`",
        kind: Kind::Recording,
        help: "Where the processes of a job under `weir run` leave a record of the cap that they have",
        read: text!(|settings, text| {
            if !text.split(':').all(|path| path.starts_with('/')) {
                return Err(BadValue::new(text, "it is not an absolute path", "what `weir run` sets"));
            }
            settings.runs = text.split(':').map(PathBuf::from).collect();
            Ok(())
        }),
    },
];

/// One of a few words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, BadValue> {
    words.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        BadValue::new(text, "it is not known", names.join(" or "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_hold_together() {
        for (place, setting) in SETTINGS.iter().enumerate() {
            assert!(setting.variable.starts_with("WEIR_"), "{}", setting.variable);
            assert!(
                SETTINGS[..place].iter().all(|other| other.variable != setting.variable && other.help != setting.help)
            );
            assert!(setting.default.is_empty() != setting.default_note.is_empty(), "{}", setting.variable);
            if !setting.default.is_empty() {
                assert_eq!(setting.check(OsStr::new(setting.default)), Ok(()), "{}", setting.variable);
            }
            assert!(setting.check(OsStr::new("\u{1}")).is_err(), "{} takes anything", setting.variable);
            assert!(!setting.help.ends_with('.') && !setting.values.is_empty());
        }
    }
}
