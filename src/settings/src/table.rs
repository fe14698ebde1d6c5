//! The table of settings: one row each. To add a setting, add its row: the field of [`Settings`] and the reader are in it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::limit::{CapSetting, OnCap, parse_group};
use crate::pool::{self, Switches};
use crate::record::{Keep, Ring, Stacks};
use crate::size::{Amount, BadValue, parse_amount};
use crate::tensorflow::{TfAllocator, Xla};

/// What a setting is for, which decides what a bad value costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the job may take. A bad one makes cuInit fail, unless WEIR_STRICT=0.
    Limit,
    /// What is recorded, and where. A bad one is replaced by its default.
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
    /// `weir run` handles it in its own way, which this describes.
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
            _ if self.variable == "WEIR_DIR" => "the default applies; with a group, the same as a bad `WEIR_GROUP`",
            Kind::Limit => "cuInit fails; with `WEIR_STRICT=0` the job runs without it",
            Kind::Recording | Kind::Diagnosis => "the default applies",
        }
    }
}

/// Every setting once: the field in [`Settings`], the variable, the row about it, and how its value is read.
macro_rules! settings {
    ($($field:ident: $type:ty = $variable:literal { $($key:ident: $value:expr,)* } read $read:expr;)*) => {
        /// Every setting in effect.
        #[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings { $(#[doc = $variable] pub $field: $type,)* }

        impl Settings {
            /// Before any row was read.
            pub(crate) fn bare() -> Self {
                Self { $($field: Default::default(),)* }
            }
        }

        /// Every setting, in the order in which one needs them.
        pub static SETTINGS: &[Setting] = &[$(Setting {
            variable: $variable,
            $($key: $value,)*
            read: |settings, value| {
                let read: fn(&OsStr) -> Result<$type, BadValue> = $read;
                settings.$field = read(value)?;
                Ok(())
            },
        }),*];
    };
}

settings! {
    cap: Option<CapSetting> = "WEIR_CAP" {
        flag: Flag::Takes("cap"),
        value_name: "SIZE",
        values: "8GiB, 80%, 0=8GiB,1=50%, GPU-UUID=8GiB",
        default: "",
        default_note: "no cap",
        kind: Kind::Limit,
        help: "The cap on each device, shared by all processes of a group",
    } read |value| CapSetting::parse(text(value)?).map(Some);

    group: Option<String> = "WEIR_GROUP" {
        flag: Flag::Takes("group"),
        value_name: "NAME",
        values: "1 to 64 letters, digits, '_', '-' or '.'",
        default: "",
        default_note: "none; `weir run` makes one for each job with a cap",
        kind: Kind::Limit,
        help: "Share one cap with all processes of this name",
    } read |value| parse_group(text(value)?).map(Some);

    on_cap: OnCap = "WEIR_ON_CAP" {
        flag: Flag::Takes("on-cap"),
        value_name: "WHAT",
        values: "fail, wait:30s or spill",
        default: "fail",
        default_note: "",
        kind: Kind::Limit,
        help: "What happens to a request that would exceed the cap",
    } read |value| OnCap::parse(text(value)?);

    spill: Option<Amount> = "WEIR_SPILL" {
        flag: Flag::Takes("spill"),
        value_name: "SIZE",
        values: "16GiB, 25% of the host's memory, or 0",
        default: "",
        default_note: "half of the host memory that is available at the first spill",
        kind: Kind::Limit,
        help: "The most host memory that a process may spill to with --on-cap spill",
    } read |value| parse_amount(text(value)?).map(Some);

    strict: bool = "WEIR_STRICT" {
        flag: Flag::Own("--strict, --no-strict"),
        value_name: "0|1",
        values: "0 or 1",
        default: "1",
        default_note: "",
        kind: Kind::Diagnosis,
        help: "Whether cuInit fails where a limit cannot be enforced; with 0 the job runs without that limit",
    } read |value| word(text(value)?, &[("0", false), ("1", true)]);

    warn: Option<Amount> = "WEIR_WARN" {
        flag: Flag::Takes("warn"),
        value_name: "SIZE",
        values: "90% or a size",
        default: "",
        default_note: "no warning",
        kind: Kind::Diagnosis,
        help: "Print one line when this much of the cap is used",
    } read |value| parse_amount(text(value)?).map(Some);

    pool: Switches = "WEIR_POOL" {
        flag: Flag::Takes("pool"),
        value_name: "SWITCHES",
        values: pool::GRAMMAR,
        default: "on",
        default_note: "",
        kind: Kind::Diagnosis,
        help: "The memory pool and its switches for diagnosis",
    } read |value| Switches::parse(text(value)?);

    tf_allocator: TfAllocator = "WEIR_TF_ALLOCATOR" {
        flag: Flag::Takes("tf-allocator"),
        value_name: "ALLOCATOR",
        values: "auto, pool for weir's pool, or keep for TensorFlow's own allocator",
        default: "auto",
        default_note: "",
        kind: Kind::Diagnosis,
        help: "Which allocator serves TensorFlow's tensors",
    } read |value| word(text(value)?, TfAllocator::WORDS);

    journal: bool = "WEIR_JOURNAL" {
        flag: Flag::Takes("journal"),
        value_name: "on|off",
        values: "on or off",
        default: "on",
        default_note: "",
        kind: Kind::Recording,
        help: "Whether the job is recorded",
    } read |value| word(text(value)?, ON_OR_OFF);

    dir: Option<PathBuf> = "WEIR_DIR" {
        flag: Flag::Own("-o, --dir DIR"),
        value_name: "DIR",
        values: "an absolute path",
        default: "",
        default_note: "$XDG_STATE_HOME/weir, else ~/.local/state/weir, else /tmp/weir-UID",
        kind: Kind::Recording,
        help: "The directory of the journals and of the groups' ledgers",
    } read |value| absolute(value.as_bytes(), "a path like /var/lib/weir").map(Some);

    ring: Ring = "WEIR_RING" {
        flag: Flag::Takes("ring"),
        value_name: "COUNT",
        values: "events, or events,allocations: 1M, 64K,8K",
        default: "1M,86000",
        default_note: "",
        kind: Kind::Recording,
        help: "How many events and live allocations a journal holds",
    } read |value| Ring::parse(text(value)?);

    keep: Keep = "WEIR_KEEP" {
        flag: Flag::Takes("keep"),
        value_name: "COUNT|SIZE",
        values: "20, 4GiB, 20,4GiB or all",
        default: "20,4GiB",
        default_note: "",
        kind: Kind::Recording,
        help: "How many journals of ended jobs are kept, and as many of jobs that ran out of memory",
    } read |value| Keep::parse(text(value)?);

    stacks: Stacks = "WEIR_STACKS" {
        flag: Flag::Takes("stacks"),
        value_name: "WHEN",
        values: "off, sampled or all",
        default: "sampled",
        default_note: "",
        kind: Kind::Recording,
        help: "Which allocations get a native stack trace",
    } read |value| Stacks::parse(text(value)?);

    xla: Xla = "WEIR_XLA" {
        flag: Flag::Takes("xla"),
        value_name: "auto|on|off",
        values: "auto for TensorFlow, on for JAX too, or off",
        default: "auto",
        default_note: "",
        kind: Kind::Recording,
        help: "Whether XLA dumps beside the journal which buffers lie in the arenas of compiled code",
    } read |value| word(text(value)?, Xla::WORDS);

    oom_text: bool = "WEIR_OOM_TEXT" {
        flag: Flag::Takes("oom-text"),
        value_name: "on|off",
        values: "on or off",
        default: "on",
        default_note: "",
        kind: Kind::Recording,
        help: "Whether the library prints a summary on standard error when the job runs out of memory",
    } read |value| word(text(value)?, ON_OR_OFF);

    termination: Option<PathBuf> = "WEIR_TERMINATION_LOG" {
        flag: Flag::Takes("termination-log"),
        value_name: "FILE",
        values: "an absolute path, or off",
        default: "/dev/termination-log",
        default_note: "",
        kind: Kind::Recording,
        help: "The file that gets the reason when a container runs out of GPU memory, if it is there",
    } read |value| match value.as_bytes() {
        b"off" => Ok(None),
        path => absolute(path, "a path like /dev/termination-log, or off").map(Some),
    };

    runs: Vec<PathBuf> = "WEIR_RUN" {
        flag: Flag::None,
        value_name: "FOLDERS",
        values: "absolute paths, separated by ':'",
        default: "",
        default_note: "set by `weir run`",
        kind: Kind::Recording,
        help: "Where the processes of a job under `weir run` report their cap",
    } read |value| value.as_bytes().split(|byte| *byte == b':').map(|path| absolute(path, "what `weir run` sets")).collect();
}

const ON_OR_OFF: &[(&str, bool)] = &[("on", true), ("off", false)];

/// A value as text. Spaces around it do not matter.
fn text(value: &OsStr) -> Result<&str, BadValue> {
    let text = value.to_str().ok_or_else(|| BadValue::new(&value.to_string_lossy(), "not UTF-8", "plain text"))?;
    Ok(text.trim())
}

/// A path from the root on, in any encoding.
fn absolute(path: &[u8], expected: &str) -> Result<PathBuf, BadValue> {
    if path.starts_with(b"/") {
        return Ok(PathBuf::from(OsStr::from_bytes(path)));
    }
    Err(BadValue::new(&String::from_utf8_lossy(path), "not an absolute path", expected))
}

/// One of a few words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, BadValue> {
    words.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        let (last, others) = names.split_last().unwrap_or((&"", &[]));
        BadValue::new(text, "unknown value", format!("{} or {last}", others.join(", ")))
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
