//! Kubernetes' quantities, as far as resources of devices use them: whole numbers, with a suffix or an exponent. Pure.

use serde_json::Value;

/// What one of these letters multiplies by.
const SUFFIXES: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// Reads `3000`, `"3000"`, `"3k"`, `"2Gi"` or `"3e3"`.
pub(crate) fn integer(value: &Value) -> Result<u64, String> {
    const BAD: &str = "expected a whole number like 3000 or 3k";
    let text = match value {
        Value::Number(number) => return number.as_u64().ok_or_else(|| BAD.into()),
        Value::String(text) => text.trim(),
        _ => return Err(BAD.into()),
    };
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let number = digits.parse::<u64>().map_err(|_| BAD)?;
    let factor = match rest {
        "" => Some(1),
        _ => {
            if let Some((_, factor)) = SUFFIXES.iter().find(|(suffix, _)| *suffix == rest) {
                Some(*factor)
            } else {
                let exponent = rest.strip_prefix(['e', 'E']).and_then(|power| power.parse::<u32>().ok()).ok_or(BAD)?;
                10_u64.checked_pow(exponent)
            }
        }
    };
    factor.and_then(|factor| number.checked_mul(factor)).ok_or_else(|| "too large".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whole_numbers_are_read_and_nothing_else() {
        for (value, number) in [
            (json!(3000), 3000),
            (json!("3000"), 3000),
            (json!("3k"), 3000),
            (json!("3e3"), 3000),
            (json!("2Gi"), 2 << 30),
            (json!("0"), 0),
        ] {
            assert_eq!(integer(&value), Ok(number), "{value}");
        }
        for bad in [
            json!(null),
            json!(-1),
            json!(1.5),
            json!("1.5"),
            json!(""),
            json!("k"),
            json!("3e"),
            json!("3e99"),
            json!("20E"),
            json!("3 k"),
            json!("100m"),
            json!([3]),
        ] {
            assert!(integer(&bad).is_err(), "{bad}");
        }
    }
}
