//! Sizes, shares and durations as people write them, for every variable and option of the project.
//!
//! Pure functions on strings. The grammar:
//!
//! | written | means |
//! |---|---|
//! | `1073741824`, `1073741824B` | bytes, a whole number |
//! | `8KiB` `8MiB` `8GiB` `8TiB` | powers of 1024 |
//! | `8KB` `8MB` `8GB` `8TB` | powers of 1000 |
//! | `8K` `8M` `8G` `8T` | powers of 1024, as in `docker --memory` and Slurm |
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

const SIZE_HELP: &str = "a size like 8GiB, 1.5GB, 512M or a number of bytes";
const SHARE_HELP: &str = "a size like 8GiB or a share like 80%";

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

/// Bytes for people: `8 GiB`, `1.50 GiB`, `512 B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Human(pub u64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let step = (0..5).rev().find(|s| self.0 >> (10 * s) != 0).unwrap_or(0);
        let unit = 1_u64 << (10 * step);
        if self.0.is_multiple_of(unit) {
            return write!(f, "{} {}", self.0 / unit, NAMES[step]);
        }
        let hundredths = u128::from(self.0) * 100 / u128::from(unit);
        write!(f, "{}.{:02} {}", hundredths / 100, hundredths % 100, NAMES[step])
    }
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
        return Err("it is negative");
    }
    if number.is_empty() {
        return Err("it does not begin with a number");
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err("it has two points");
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err("a point alone is no number");
    }
    if whole.trim_start_matches('0').len() > 20 || fraction.len() > 12 {
        return Err("it has too many digits");
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
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

/// Reads a size in bytes.
pub fn parse_size(text: &str) -> Result<u64, BadValue> {
    let bad = |problem: String| BadValue::new(text, problem, SIZE_HELP);
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(bad("it is empty".into()));
    }
    let (number, rest) = decimal(trimmed).map_err(|p| bad(p.into()))?;
    let name = rest.strip_prefix(' ').unwrap_or(rest);
    if name.starts_with('%') {
        return Err(bad("a share has no meaning here".into()));
    }
    let Some(unit) = unit_of(name) else {
        return Err(bad(format!("the unit \"{}\" is not known", BadValue::new(name, "", "").value)));
    };
    if unit == 1 && number.scale != 0 {
        return Err(bad("a part of a byte does not exist".into()));
    }
    number.times(unit).and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(|| bad("it is larger than 16 EiB".into()))
}

/// Reads a share in percent, from 0 to 100, as millionths.
pub fn parse_share(text: &str) -> Result<u32, BadValue> {
    let bad = |problem: &str| BadValue::new(text, problem, "a share from 0% to 100%");
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(bad("it is empty"));
    }
    let (number, rest) = decimal(trimmed).map_err(&bad)?;
    if rest.strip_prefix(' ').unwrap_or(rest) != "%" {
        return Err(bad("it does not end in %"));
    }
    match number.times(10_000) {
        Some(millionths @ 0..=1_000_000) if number.digits <= 100 * 10_u128.pow(number.scale) => Ok(millionths as u32),
        _ => Err(bad("it is more than 100%")),
    }
}

/// Reads a size or a share.
pub fn parse_amount(text: &str) -> Result<Amount, BadValue> {
    let help = |bad: BadValue| BadValue { expected: SHARE_HELP.into(), ..bad };
    if text.trim_end().ends_with('%') {
        parse_share(text).map(Amount::Share).map_err(help)
    } else {
        parse_size(text).map(Amount::Bytes).map_err(help)
    }
}

/// Reads a duration: `500ms`, `30s`, `1.5m`, `2h`; above 0 and up to 30 days.
pub fn parse_duration(text: &str) -> Result<Duration, BadValue> {
    let bad = |problem: &str| BadValue::new(text, problem, "a duration like 500ms, 30s, 5m or 1h");
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(bad("it is empty"));
    }
    let (number, rest) = decimal(trimmed).map_err(&bad)?;
    let unit = match rest.to_ascii_lowercase().as_str() {
        "ms" => 1_000_u128,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        "" => return Err(bad("it has no unit")),
        _ => return Err(bad("its unit is not known")),
    };
    match number.times(unit) {
        Some(0) => Err(bad("it is no time at all")),
        Some(micros) if micros <= 30 * 24 * 3_600_000_000 => Ok(Duration::from_micros(micros as u64)),
        _ => Err(bad("it is longer than 30 days")),
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
            ("1", 1),
            ("4096B", 4096),
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
            ("1.2.3G", "two points"),
            (".", "point"),
            ("1.5", "part of a byte"),
            ("8XiB", "unit"),
            ("8  GiB", "unit"),
            ("1e9", "unit"),
            ("8,5GiB", "unit"),
            ("80%", "share"),
            ("18446744073709551616", "larger"),
            ("16777216TiB", "larger"),
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
        assert!(parse_amount("-5%").unwrap_err().problem.contains("negative"));
        assert_eq!(Amount::Share(125_000).of(80 << 30), 10 << 30);
        assert_eq!(Amount::Share(1_000_000).of(u64::MAX), u64::MAX);
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        for bad in ["", "30", "0s", "s", "-1s", "1d", "99999999h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [(0, "0 B"), (512, "512 B"), (1 << 30, "1 GiB"), (3 << 29, "1.50 GiB"), (8 << 40, "8 TiB")]
        {
            assert_eq!(Human(bytes).to_string(), text);
        }
        assert_eq!(Amount::Share(125_000).to_string(), "12.5%");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = (parse_size(&text), parse_share(&text), parse_amount(&text), parse_duration(&text));
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
        fn what_is_shown_whole_reads_back(bytes in 0u64..1 << 50) {
            let shown = Human(bytes).to_string();
            let back = parse_size(&shown).unwrap_or(0);
            if shown.contains('.') {
                prop_assert!(back <= bytes && bytes - back <= bytes / 50);
            } else {
                prop_assert_eq!(back, bytes);
            }
        }
        #[test]
        fn a_share_never_exceeds_its_whole(whole: u64, millionths in 0u32..=1_000_000) {
            prop_assert!(Amount::Share(millionths).of(whole) <= whole);
        }
    }
}
