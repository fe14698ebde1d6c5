//! Sizes, shares, counts and durations: the one parser for every variable and option, and the one way to print bytes.
//!
//! Pure functions on strings. The grammar of a size:
//!
//! | written | means |
//! |---|---|
//! | `8KiB` `8MiB` `8GiB` `8TiB` | powers of 1024 |
//! | `8Ki` `8Mi` `8Gi` `8Ti` | the same, as in Kubernetes |
//! | `8K` `8M` `8G` `8T` | the same, as in `docker --memory` and Slurm |
//! | `8KB` `8MB` `8GB` `8TB` | powers of 1000 |
//! | `1073741824`, `4096B` | bytes, a whole number. Without a unit at least 1 MiB (or 0): `8` is an error, not 8 bytes |
//! | `80%`, `12.5%` | a share of something, where one is allowed |
//!
//! Fractions are exact decimal and rounded down to a whole byte (`1.5GiB`, `.5G`). Upper or lower case does not matter;
//! one space may stand before the unit. Nothing else is accepted: no sign, no exponent, no separator.

use std::fmt;
use std::time::Duration;

/// A value that could not be read: what was given, what is wrong with it and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue {
    /// The text as given.
    pub value: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub expected: String,
}

impl BadValue {
    /// Puts the three together.
    pub fn new(value: &str, problem: impl Into<String>, expected: impl Into<String>) -> Self {
        // A hostile or accidental megabyte of text must not end up in a message.
        let mut short: String = value.chars().take(80).flat_map(char::escape_debug).collect();
        if value.chars().nth(80).is_some() {
            short.push('…');
        }
        Self { value: short, problem: problem.into(), expected: expected.into() }
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\": {}; expected {}", self.value, self.problem, self.expected)
    }
}

impl std::error::Error for BadValue {}

const SIZE_HELP: &str = "a size like 8GiB, 1.5GB or 512M";
const SHARE_HELP: &str = "a size like 8GiB or a percentage like 80%";

/// A size, or a share of some whole that is known later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many millionths of the whole.
    Share(u32),
}

impl Amount {
    /// The bytes this is of `whole`.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(millionths) => (u128::from(whole) * u128::from(millionths) / 1_000_000) as u64,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => Human(*bytes).fmt(f),
            Self::Share(millionths) => {
                let (whole, part) = (millionths / 10_000, millionths % 10_000);
                if part == 0 {
                    write!(f, "{whole}%")
                } else {
                    write!(f, "{whole}.{}%", format!("{part:04}").trim_end_matches('0'))
                }
            }
        }
    }
}

/// Bytes for people, everywhere the same text for the same bytes: `0`, `700 B`, `4.0 KiB`, `22.0 MiB`, `1.50 GiB`,
/// `8.00 TiB`. Below a thousand of each unit, so that it is never wider than ten characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The unit, how many bytes it has, and its digits behind the point.
        const UNITS: [(&str, u32, usize); 4] = [("KiB", 10, 1), ("MiB", 20, 1), ("GiB", 30, 2), ("TiB", 40, 2)];
        let text = match self.0 {
            0 => "0".to_owned(),
            bytes @ 1..1024 => format!("{bytes} B"),
            bytes => {
                let value = |shift: u32| bytes as f64 / (1_u64 << shift) as f64;
                let rounds_below = |(_, shift, digits): &&(&str, u32, usize)| {
                    value(*shift) < if *digits == 1 { 999.95 } else { 999.995 }
                };
                let (unit, shift, digits) = UNITS.iter().find(rounds_below).unwrap_or(&UNITS[3]);
                format!("{:.digits$} {unit}", value(*shift))
            }
        };
        f.pad(&text)
    }
}

/// Bytes for people, rounded up: of what is needed, so that what is printed is enough.
pub fn human_up(bytes: u64) -> String {
    rounded(bytes, f64::ceil)
}

/// Bytes for people, rounded down: of what is free, so that what is printed is there.
pub fn human_down(bytes: u64) -> String {
    rounded(bytes, f64::floor)
}

fn rounded(bytes: u64, round: impl Fn(f64) -> f64) -> String {
    // To the last digit of the unit in which the same bytes are printed.
    let text = human(bytes);
    let Some((number, unit)) = text.split_once(' ').filter(|(_, unit)| *unit != "B") else { return text };
    let digits = number.len() - number.find('.').map_or(number.len(), |point| point + 1);
    let scale = 10_f64.powi(digits as i32);
    let whole = unit_of(unit).unwrap_or(1) as f64;
    format!("{:.digits$} {unit}", round(bytes as f64 / whole * scale) / scale)
}

/// Bytes for people as a text of its own; see [`Human`].
pub fn human(bytes: u64) -> String {
    Human(bytes).to_string()
}

/// A decimal number without sign or exponent: digits before and after the point.
struct Decimal {
    digits: u128,
    scale: u32,
}

/// Splits off the number at the front.
fn decimal(text: &str) -> Result<(Decimal, &str), &'static str> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if text.starts_with('-') {
        return Err("must not be negative");
    }
    if number.is_empty() {
        return Err("must start with a number");
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err("more than one decimal point");
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err("no digits");
    }
    if whole.trim_start_matches('0').len() > 20 || fraction.len() > 12 {
        return Err("too many digits");
    }
    let mut digits = 0_u128;
    for digit in whole.bytes().chain(fraction.bytes()) {
        digits = digits * 10 + u128::from(digit - b'0');
    }
    Ok((Decimal { digits, scale: fraction.len() as u32 }, rest))
}

impl Decimal {
    /// The number times `factor`, rounded down.
    fn times(&self, factor: u128) -> Option<u128> {
        Some(self.digits.checked_mul(factor)? / 10_u128.pow(self.scale))
    }
}

fn unit_of(name: &str) -> Option<u128> {
    let name = name.to_ascii_lowercase();
    Some(match name.as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kib" => 1 << 10,
        "m" | "mi" | "mib" => 1 << 20,
        "g" | "gi" | "gib" => 1 << 30,
        "t" | "ti" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

/// A number without a unit is taken as bytes from here on; below, the unit was forgotten.
const LEAST_WITHOUT_UNIT: u128 = 1 << 20;

/// Reads a size in bytes. A small number without a unit is an error with a hint: nobody means 8 bytes.
pub fn parse_size(text: &str) -> Result<u64, BadValue> {
    read_size(text, false)
}

/// Reads a size where small numbers of bytes make sense, as a granularity: `4096` is 4 KiB.
pub fn parse_bytes(text: &str) -> Result<u64, BadValue> {
    read_size(text, true)
}

fn read_size(text: &str, small: bool) -> Result<u64, BadValue> {
    let bad = |problem: String| BadValue::new(text, problem, SIZE_HELP);
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(bad("empty".into()));
    }
    let (number, rest) = decimal(trimmed).map_err(|p| bad(p.into()))?;
    let name = rest.strip_prefix(' ').unwrap_or(rest);
    if name.starts_with('%') {
        return Err(bad("a percentage is not possible here".into()));
    }
    let Some(unit) = unit_of(name) else {
        return Err(bad(format!("unknown unit \"{}\"", BadValue::new(name, "", "").value)));
    };
    if unit == 1 && number.scale != 0 {
        return Err(bad(format!("no unit; did you mean {trimmed}GiB?")));
    }
    if name.is_empty() && !small && (1..LEAST_WITHOUT_UNIT).contains(&number.digits) {
        let unit = if number.digits <= 512 { "GiB" } else { "MiB" };
        return Err(bad(format!("no unit; did you mean {trimmed}{unit}?")));
    }
    number.times(unit).and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(|| bad("more than 16 EiB".into()))
}

/// Reads a number of things: digits, and K or M for 1024 and 1024 * 1024.
pub fn parse_count(text: &str) -> Result<u64, BadValue> {
    let bad = |problem: &str| BadValue::new(text, problem, "a number like 86000, 64K or 1M");
    let trimmed = text.trim();
    let digits = trimmed.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match &trimmed[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return Err(bad("the unit must be K or M")),
    };
    let number = digits.parse::<u64>().map_err(|_| bad("not a number"))?;
    number.checked_mul(factor).ok_or_else(|| bad("too large"))
}

/// Reads a share in percent, from 0 to 100, as millionths.
pub fn parse_share(text: &str) -> Result<u32, BadValue> {
    let bad = |problem: &str| BadValue::new(text, problem, "a percentage from 0% to 100%");
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(bad("empty"));
    }
    let (number, rest) = decimal(trimmed).map_err(&bad)?;
    if rest.strip_prefix(' ').unwrap_or(rest) != "%" {
        return Err(bad("must end with %"));
    }
    match number.times(10_000) {
        Some(millionths @ 0..=1_000_000) if number.digits <= 100 * 10_u128.pow(number.scale) => Ok(millionths as u32),
        _ => Err(bad("more than 100%")),
    }
}

/// Reads a size or a share.
pub fn parse_amount(text: &str) -> Result<Amount, BadValue> {
    let help = |bad: BadValue| BadValue { expected: SHARE_HELP.into(), ..bad };
    if text.trim_end().ends_with('%') {
        parse_share(text).map(Amount::Share).map_err(help)
    } else {
        parse_size(text).map(Amount::Bytes).map_err(help).map_err(|bad| share_meant(text, bad))
    }
}

/// `0.8` is what TensorFlow calls a fraction: the hint is the share.
fn share_meant(text: &str, bad: BadValue) -> BadValue {
    match decimal(text.trim()) {
        Ok((number, "")) if number.scale > 0 && number.digits <= 10_u128.pow(number.scale) => {
            let millionths = number.times(1_000_000).unwrap_or(0) as u32;
            BadValue { problem: format!("no unit; did you mean {}?", Amount::Share(millionths)), ..bad }
        }
        _ => bad,
    }
}

/// Reads a duration to wait for: above 0 and up to 30 days.
pub fn parse_duration(text: &str) -> Result<Duration, BadValue> {
    match parse_time(text)? {
        Duration::ZERO => Err(BadValue::new(text, "must be more than 0", "a duration like 500ms, 30s, 5m or 1h")),
        time => Ok(time),
    }
}

/// Reads a time: `97us`, `500ms`, `30s`, `1.5m`, `2h`; up to 30 days.
pub fn parse_time(text: &str) -> Result<Duration, BadValue> {
    let bad = |problem: &str| BadValue::new(text, problem, "a duration like 500ms, 30s, 5m or 1h");
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(bad("empty"));
    }
    let (number, rest) = decimal(trimmed).map_err(&bad)?;
    let unit = match rest.to_ascii_lowercase().as_str() {
        "ns" => 1_u128,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" => return Err(bad("no unit")),
        _ => return Err(bad("unknown unit")),
    };
    match number.times(unit) {
        Some(nanos) if nanos <= 30 * 24 * 3_600_000_000_000 => Ok(Duration::from_nanos(nanos as u64)),
        _ => Err(bad("more than 30 days")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_that_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("1B", 1),
            ("4096B", 4096),
            ("1048576", 1 << 20),
            ("8Gi", 8 << 30),
            ("512mi", 512 << 20),
            ("8GiB", 8 << 30),
            ("8gib", 8 << 30),
            (" 8 GiB ", 8 << 30),
            ("1.5GiB", 3 << 29),
            (".5G", 1 << 29),
            ("8GB", 8_000_000_000),
            ("512M", 512 << 20),
            ("2TiB", 2 << 40),
            ("1.5TB", 1_500_000_000_000),
            ("0.1KiB", 102),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_that_are_none_are_named() {
        for (text, part) in [
            ("", "empty"),
            ("   ", "empty"),
            ("-1GiB", "negative"),
            ("nan", "number"),
            ("inf", "number"),
            ("GiB", "number"),
            ("1.2.3G", "more than one decimal point"),
            (".", "no digits"),
            ("1.5", "did you mean 1.5GiB?"),
            ("8", "did you mean 8GiB?"),
            ("24", "did you mean 24GiB?"),
            ("4096", "did you mean 4096MiB?"),
            ("1048575", "did you mean 1048575MiB?"),
            ("8XiB", "unit"),
            ("8  GiB", "unit"),
            ("1e9", "unit"),
            ("8,5GiB", "unit"),
            ("80%", "percentage"),
            ("18446744073709551616", "more than"),
            ("16777216TiB", "more than"),
            ("999999999999999999999999999", "digits"),
            ("+8GiB", "number"),
            ("٨GiB", "number"),
        ] {
            let error = parse_size(text).unwrap_err();
            assert!(error.problem.contains(part), "{text}: {error}");
            assert!(error.to_string().contains("8GiB"), "{error}");
        }
    }

    #[test]
    fn shares_and_durations() {
        assert_eq!(parse_amount("80%"), Ok(Amount::Share(800_000)));
        assert_eq!(parse_amount("12.5 %"), Ok(Amount::Share(125_000)));
        assert_eq!(parse_amount("100%"), Ok(Amount::Share(1_000_000)));
        assert!(parse_amount("100.0000001%").unwrap_err().problem.contains("more than 100"));
        assert!(parse_amount("0.8").unwrap_err().problem.contains("did you mean 80%?"));
        assert!(parse_amount(".125").unwrap_err().problem.contains("did you mean 12.5%?"));
        assert!(parse_amount("1.5").unwrap_err().problem.contains("did you mean 1.5GiB?"));
        assert_eq!((parse_bytes("4096"), parse_bytes("8GiB")), (Ok(4096), Ok(8 << 30)));
        assert_eq!(
            (parse_count("86000"), parse_count("64K"), parse_count("1M")),
            (Ok(86_000), Ok(65_536), Ok(1 << 20))
        );
        for bad in ["", "K", "1MM", "1G", "1k", "-1", "1.5M", "99999999999999999999", "99999999999999999M"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        assert!(parse_amount("-5%").unwrap_err().problem.contains("negative"));
        assert_eq!(Amount::Share(125_000).of(80 << 30), 10 << 30);
        assert_eq!(Amount::Share(1_000_000).of(u64::MAX), u64::MAX);
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!((parse_time("0us"), parse_time("0.5us")), (Ok(Duration::ZERO), Ok(Duration::from_nanos(500))));
        for bad in ["", "30", "0s", "s", "-1s", "1d", "99999999h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0"),
            (700, "700 B"),
            (1024, "1.0 KiB"),
            (4096, "4.0 KiB"),
            (999 << 10, "999.0 KiB"),
            (1000 << 10, "1.0 MiB"),
            (22 << 20, "22.0 MiB"),
            (192 << 20, "192.0 MiB"),
            (512 << 20, "512.0 MiB"),
            ((999 << 20) + 999_999, "0.98 GiB"),
            (1 << 30, "1.00 GiB"),
            (3 << 29, "1.50 GiB"),
            (8 << 40, "8.00 TiB"),
            (u64::MAX, "16777216.00 TiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
        assert_eq!((human_up(700 << 20), human_down(700 << 20)), ("700.0 MiB".into(), "700.0 MiB".into()));
        assert_eq!((human_up((1 << 30) + 1), human_down((2 << 30) - 1)), ("1.01 GiB".into(), "1.99 GiB".into()));
        assert_eq!((human_up(700), human_down(0)), ("700 B".into(), "0".into()));
        assert_eq!(format!("{:>9}|", Human(1 << 30)), " 1.00 GiB|");
        assert_eq!(Amount::Share(125_000).to_string(), "12.5%");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = (parse_size(&text), parse_share(&text), parse_amount(&text), parse_duration(&text), parse_count(&text));
        }
        #[test]
        fn near_sizes_never_panic(text in "[-+]?[0-9]{0,30}[.]?[0-9]{0,20} ?[kKmMgGtTpPiIbB%]{0,4}") {
            let _ = (parse_amount(&text), parse_duration(&text));
        }
        #[test]
        fn whole_units_are_exact(n in 0u64..1 << 24, unit in 0usize..4) {
            let (name, factor) = [("KiB", 1u64 << 10), ("M", 1 << 20), ("gib", 1 << 30), ("TB", 1_000_000_000_000)][unit];
            if let Some(want) = n.checked_mul(factor) {
                prop_assert_eq!(parse_size(&format!("{n}{name}")), Ok(want));
            }
        }
        #[test]
        fn what_is_shown_reads_back_and_fits(bytes in 0u64..1 << 49) {
            let shown = human(bytes);
            let back = parse_size(&shown).unwrap_or(u64::MAX);
            prop_assert!(back.abs_diff(bytes) <= bytes / 20, "{} {}", shown, back);
            prop_assert!(shown.len() <= 10, "{}", shown);
        }
        #[test]
        fn a_share_never_exceeds_its_whole(whole: u64, millionths in 0u32..=1_000_000) {
            prop_assert!(Amount::Share(millionths).of(whole) <= whole);
        }
    }
}
