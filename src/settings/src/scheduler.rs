//! Limits that a scheduler sets for the container of a job, taken as the cap where WEIR_CAP is absent.
//!
//! | variable | set by | value |
//! |---|---|---|
//! | `CUDA_DEVICE_MEMORY_LIMIT_N` | HAMi, KAI, for the device of physical index N | bytes, or a number with k, m or g, powers of 1024 |
//! | `CUDA_DEVICE_MEMORY_LIMIT` | the same, for every device without one of its own | the same |
//! | `GPU_MEMORY_LIMIT` | KAI, for every device | bytes |
//!
//! 0 is no limit, as it is there. GPU_MEMORY_LIMIT is also a name that programs use for themselves: a value that is no
//! number of bytes is theirs, and no limit. A bad value of the others is a bad limit.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::limit::{CapSetting, Selector};
use crate::size::{Amount, BadValue, parse_size};

/// For every device.
pub const CUDA: &str = "CUDA_DEVICE_MEMORY_LIMIT";
/// The same by another scheduler.
pub const GPU: &str = "GPU_MEMORY_LIMIT";

/// What may be written.
const EXPECTED: &str = "bytes, or a number with k, m or g, such as 3000m";

/// Whether a variable is one of these.
pub fn is_one(name: &OsStr) -> bool {
    let index = |rest: &[u8]| rest.strip_prefix(b"_").is_some_and(|digits| digits.iter().all(u8::is_ascii_digit));
    let name = name.as_bytes();
    name == GPU.as_bytes() || name.strip_prefix(CUDA.as_bytes()).is_some_and(|rest| rest.is_empty() || index(rest))
}

/// What is wrong with a value: the variable, the value and why.
pub(crate) type Bad = (String, String, BadValue);

/// The cap that these variables are together, the variable that is shown for it, and as which WEIR_CAP it would be written.
pub(crate) fn cap(given: &[(OsString, OsString)]) -> (Option<(CapSetting, String, String)>, Vec<Bad>) {
    let mut bad = Vec::new();
    let (mut cap, mut texts, mut first) = (CapSetting::default(), Vec::new(), None);
    let mut sorted: Vec<_> = given.iter().filter(|(name, _)| is_one(name)).collect();
    // CUDA_… before GPU_…, which counts only where the other is absent.
    sorted.sort();
    for (name, value) in sorted {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let amount = match limit(&value) {
            Ok(0) => continue,
            Ok(bytes) => Amount::Bytes(bytes),
            Err(_) if name == GPU && value.trim().parse::<u64>().is_err() => continue,
            Err(problem) => {
                bad.push((name.into_owned(), value.into_owned(), problem));
                continue;
            }
        };
        let text = format!("{}B", amount.of(0));
        match name.strip_prefix(CUDA).and_then(|rest| rest.strip_prefix('_')).map(Selector::parse) {
            Some(Ok(selector)) if cap.named.iter().all(|(known, _)| *known != selector) => {
                texts.push(format!("{selector}={text}"));
                cap.named.push((selector, amount));
            }
            Some(Ok(_)) => bad.push((
                name.into_owned(),
                value.into_owned(),
                BadValue::new("", "the device has a limit already", "one limit for each device"),
            )),
            Some(Err(problem)) => bad.push((name.into_owned(), value.into_owned(), problem)),
            None if cap.default.is_none() => {
                texts.insert(0, text);
                cap.default = Some(amount);
                first = Some(name.into_owned());
            }
            None => {}
        }
    }
    let shown = first.unwrap_or_else(|| format!("{CUDA}_N"));
    (Some((cap, shown, texts.join(","))).filter(|_| !texts.is_empty()), bad)
}

/// Bytes; 0 with any unit is none.
fn limit(value: &str) -> Result<u64, BadValue> {
    parse_size(value).map_err(|problem| BadValue { expected: EXPECTED.into(), ..problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps(pairs: &[(&str, &str)]) -> (Option<String>, usize) {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let (cap, bad) = cap(&pairs);
        (cap.map(|(_, shown, text)| format!("{shown}: {text}")), bad.len())
    }

    #[test]
    fn the_units_are_those_of_the_schedulers() {
        for (value, bytes) in [
            ("3000m", 3000 << 20),
            ("3000M", 3000 << 20),
            ("1g", 1 << 30),
            ("1G", 1 << 30),
            ("1048576k", 1 << 30),
            ("1073741824", 1_u64 << 30),
        ] {
            assert_eq!(caps(&[(CUDA, value)]), (Some(format!("{CUDA}: {bytes}B")), 0), "{value}");
        }
        for none in ["0", "0m", "0g"] {
            assert_eq!(caps(&[(CUDA, none)]), (None, 0), "{none}");
        }
        for bad in ["8", "50%", "3000q", "-1", "m", "1g1g", "\u{1}"] {
            assert_eq!(caps(&[(CUDA, bad)]), (None, 1), "{bad}");
        }
    }

    #[test]
    fn which_one_counts() {
        let all =
            [(GPU, "4294967296"), ("CUDA_DEVICE_MEMORY_LIMIT_1", "2g"), (CUDA, "3g"), ("CUDA_DEVICE_SM_LIMIT", "50")];
        assert_eq!(caps(&all), (Some(format!("{CUDA}: 3221225472B,1=2147483648B")), 0));
        assert_eq!(caps(&all[..2]), (Some(format!("{GPU}: 4294967296B,1=2147483648B")), 0));
        assert_eq!(caps(&all[1..2]), (Some(format!("{CUDA}_N: 1=2147483648B")), 0));
        assert_eq!(caps(&[(CUDA, "0"), (GPU, "2g")]), (Some(format!("{GPU}: 2147483648B")), 0));
        // A program's own use of the name is no limit; a number of bytes that nobody can mean is a bad one.
        for own in ["0.8", "12GB of 24", "half"] {
            assert_eq!(caps(&[(GPU, own)]), (None, 0), "{own}");
        }
        assert_eq!(caps(&[(GPU, "8")]), (None, 1));
        assert_eq!(caps(&[("CUDA_DEVICE_MEMORY_LIMIT_0", "1g"), ("CUDA_DEVICE_MEMORY_LIMIT_00", "2g")]).1, 1);
        assert_eq!(caps(&[("CUDA_DEVICE_MEMORY_LIMIT_99999", "1g")]).1, 1);
        assert!(is_one("CUDA_DEVICE_MEMORY_LIMIT_0".as_ref()) && !is_one("CUDA_DEVICE_MEMORY_LIMITS".as_ref()));
    }
}
