//! Numbers in words, alike in every output: sizes, durations, times of day.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

pub use weir_settings::size::{human as size, human_down as size_down, human_up as size_up};

/// Units in which sums are printed: bytes as a power of two, digits behind the point.
const UNITS: [(&str, u32, usize); 5] = [("TiB", 40, 3), ("GiB", 30, 2), ("MiB", 20, 1), ("KiB", 10, 0), ("B", 0, 0)];

/// Parts that are more than a limit, the limit, and by how much they are more, printed so that all of it adds up by the printed
/// digits.
pub fn beyond(parts: &[u64], limit: u64) -> (Vec<String>, String, String) {
    let most = parts.iter().copied().chain([limit]).max().unwrap_or(0);
    let mut units = UNITS.iter().filter(|(_, shift, _)| most >> shift > 0 || *shift == 0);
    let in_unit = |bytes: u64, shift: u32, digits: usize| {
        (bytes as f64 / (1_u64 << shift) as f64 * 10_f64.powi(digits as i32)).round() as u64
    };
    let excess = |shift: u32, digits: usize| {
        let sum: u64 = parts.iter().map(|bytes| in_unit(*bytes, shift, digits)).sum();
        sum.saturating_sub(in_unit(limit, shift, digits))
    };
    let (unit, shift, digits) =
        units.find(|(_, shift, digits)| excess(*shift, *digits) > 0).unwrap_or(&UNITS[UNITS.len() - 1]);
    let text = |bytes: u64| format!("{:.digits$} {unit}", bytes as f64 / (1_u64 << shift) as f64);
    let more = format!("{:.digits$} {unit}", excess(*shift, *digits) as f64 / 10_f64.powi(*digits as i32));
    (parts.iter().map(|bytes| text(*bytes)).collect(), text(limit), more)
}

/// Parts that make a whole, in the whole's unit, printed so that they make it by their printed digits too.
pub fn adding_up(parts: &[u64]) -> Vec<String> {
    let whole: u64 = parts.iter().sum();
    let (unit, shift, digits) = UNITS.iter().find(|(_, shift, _)| whole >> shift > 0).unwrap_or(&UNITS[4]);
    let digits = if *shift >= 30 { digits + 1 } else { *digits };
    let scale = 10_u128.pow(digits as u32);
    // The last digits go to those that are cut off most.
    let scaled =
        |bytes: u64| ((u128::from(bytes) * scale) >> shift, (u128::from(bytes) * scale) & ((1_u128 << shift) - 1));
    let mut shown: Vec<u128> = parts.iter().map(|bytes| scaled(*bytes).0).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(scaled(parts[*place]).1));
    let missing = scaled(whole).0.saturating_sub(shown.iter().sum());
    for place in order.into_iter().take(missing as usize) {
        shown[place] += 1;
    }
    shown.into_iter().map(|digit| format!("{:.digits$} {unit}", digit as f64 / scale as f64)).collect()
}

/// A difference of bytes with its sign: `+4.00 GiB`.
pub fn change(bytes: i64) -> String {
    match bytes {
        0 => "0".into(),
        1.. => format!("+{}", size(bytes.unsigned_abs())),
        _ => format!("-{}", size(bytes.unsigned_abs())),
    }
}

/// A count with thin groups: `4 118`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A duration for people: `0.4 s`, `12 s`, `3 min`, `5.2 h`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "for ever".into(),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 48.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.0} days", s / 86400.0),
    }
}

/// The date and time of nanoseconds since 1970, in UTC moved by `offset` seconds.
pub fn calendar(realtime_ns: u64, offset: i64) -> DateTime {
    let moment = Timestamp::from_nanosecond(realtime_ns.into()).unwrap_or_default();
    let offset = i32::try_from(offset).ok().and_then(|seconds| Offset::from_seconds(seconds).ok());
    offset.unwrap_or(Offset::UTC).to_datetime(moment)
}

/// So many of a thing.
pub fn several(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_a_sign() {
        assert_eq!(
            (change(-(22 << 20)), change(1 << 30), change(0)),
            ("-22.0 MiB".into(), "+1.00 GiB".into(), "0".into())
        );
    }

    #[test]
    fn what_exceeds_a_limit_exceeds_it_by_its_printed_digits() {
        // 0.63 GiB and 0.12 GiB are 0.75 GiB: two digits hide what is missing.
        let (parts, limit, more) = beyond(&[641 << 20, 128 << 20], 768 << 20);
        assert_eq!((parts, limit), (vec!["641.0 MiB".into(), "128.0 MiB".into()], "768.0 MiB".to_owned()));
        assert_eq!(more, "1.0 MiB");
        let (parts, limit, more) = beyond(&[30 << 30, 12 << 30], 40 << 30);
        assert_eq!((parts, limit), (vec!["30.00 GiB".into(), "12.00 GiB".into()], "40.00 GiB".to_owned()));
        assert_eq!(more, "2.00 GiB");
        // Of what is printed as 0.79 and 0.50, 0.29 are beyond 1.00.
        let (_, _, more) = beyond(&[804 << 20, 517 << 20], 1 << 30);
        assert_eq!(more, "0.29 GiB");
        let (parts, ..) = beyond(&[(1 << 30) + 1, 1 << 30], 2 << 30);
        assert_eq!(parts[0], "1073741825 B");
    }

    #[test]
    fn parts_make_the_whole_by_their_printed_digits() {
        let third = (8 << 30) / 3;
        let texts = adding_up(&[third, third, (8 << 30) - 2 * third]);
        let sum: f64 = texts.iter().map(|text| text.split(' ').next().unwrap().parse::<f64>().unwrap()).sum();
        assert!((sum - 8.0).abs() < 1e-9 && texts.iter().all(|text| text.ends_with(" GiB")), "{texts:?}");
        assert_eq!(adding_up(&[600 << 20, 100 << 20]), ["600.0 MiB", "100.0 MiB"]);
        assert_eq!(adding_up(&[0]), ["0 B"]);
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(7), "7");
        assert_eq!(count(4118), "4 118");
        assert_eq!(count(1_000_000), "1 000 000");
    }

    #[test]
    fn the_calendar_knows_leap_years() {
        let at = |realtime_ns, offset| calendar(realtime_ns, offset).to_string();
        assert_eq!(at(0, 0), "1970-01-01T00:00:00");
        assert_eq!(at(1_709_164_800_000_000_000, 0), "2024-02-29T00:00:00");
        assert_eq!(at(1_709_164_800_000_000_000, -1), "2024-02-28T23:59:59");
        assert_eq!(at(u64::MAX, i64::MAX), "2554-07-21T23:34:33.709551615", "nonsense in a file is no panic");
    }
}
