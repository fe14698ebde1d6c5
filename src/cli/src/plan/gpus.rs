//! GPUs by name: what their makers publish as their memory. A device shows a little less of it to a program.

use std::fmt::Write;

use serde::Serialize;
use weir_settings::size::parse_size;

/// A GPU by its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Gpu {
    /// Its name; empty for a mere size.
    pub(crate) name: String,
    /// Its memory.
    pub(crate) bytes: u64,
}

/// Published memory in GiB, smallest first; those of one size stand together.
const KNOWN: [(u64, &[&str]); 13] = [
    (8, &["RTX-3070", "RTX-4060"]),
    (10, &["RTX-3080"]),
    (11, &["RTX-2080Ti"]),
    (12, &["RTX-3060", "RTX-4070"]),
    (16, &["T4", "A2", "V100-16GB", "P100-16GB", "RTX-A4000", "RTX-4080", "RTX-5080"]),
    (20, &["RTX-4000-Ada"]),
    (24, &["L4", "A10", "A30", "RTX-A5000", "RTX-3090", "RTX-4090"]),
    (32, &["V100-32GB", "RTX-5090"]),
    (40, &["A100-40GB"]),
    (48, &["L40S", "L40", "A40", "RTX-A6000", "RTX-6000-Ada"]),
    (80, &["A100-80GB", "H100-80GB"]),
    (96, &["RTX-PRO-6000", "GH200-96GB"]),
    (141, &["H200-141GB"]),
];

fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// A size, a name, or the beginning of just one name. `A100-40GB` and `nvidia a100 40gb` are the same.
pub(super) fn parse(text: &str) -> Result<Gpu, String> {
    if text.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        let bytes = parse_size(text).map_err(|error| format!("--gpu {error}"))?;
        return match bytes {
            0..0x400_0000 => Err(format!("--gpu {text}: less than 64 MiB; expected a size like 24GiB")),
            0x400_0000_0001.. => Err(format!("--gpu {text}: more than 4 TiB; expected a size like 24GiB")),
            _ => Ok(Gpu { name: String::new(), bytes }),
        };
    }
    let wanted = plain(text);
    let wanted = ["nvidia", "tesla", "geforce"]
        .iter()
        .fold(wanted.as_str(), |name, maker| name.strip_prefix(maker).unwrap_or(name));
    let known = all();
    if let Some(exact) = known.iter().find(|gpu| plain(&gpu.name) == wanted) {
        return Ok(exact.clone());
    }
    let close = known.iter().filter(|gpu| !wanted.is_empty() && plain(&gpu.name).starts_with(wanted));
    match close.collect::<Vec<_>>()[..] {
        [only] => Ok(only.clone()),
        [] => Err(format!("--gpu {text}: unknown; expected a size like 24GiB or a name from weir plan --list")),
        ref several => {
            let names: Vec<_> = several.iter().map(|gpu| gpu.name.as_str()).collect();
            Err(format!("--gpu {text}: ambiguous; expected one of {}", names.join(", ")))
        }
    }
}

/// The smallest known GPU with so much memory, and all of its size by name.
pub(super) fn smallest(need: u64) -> Option<Gpu> {
    let (gib, names) = KNOWN.iter().find(|(gib, _)| gib << 30 >= need)?;
    Some(Gpu { name: names.join(", "), bytes: gib << 30 })
}

/// All that are known by name.
pub(super) fn all() -> Vec<Gpu> {
    let of = |gib: u64, names: &[&str]| -> Vec<Gpu> {
        names.iter().map(|name| Gpu { name: (*name).to_owned(), bytes: gib << 30 }).collect()
    };
    KNOWN.iter().flat_map(|(gib, names)| of(*gib, names)).collect()
}

/// All names, a line for each size.
pub(super) fn listed() -> String {
    KNOWN.iter().fold(String::new(), |mut text, (gib, names)| {
        let _ = writeln!(text, "{gib:>4} GiB  {}", names.join(", "));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes() {
        let bytes = |text: &str| parse(text).map(|gpu| gpu.bytes >> 30);
        assert_eq!(bytes("24GiB"), Ok(24));
        assert_eq!(bytes("A100-40GB"), Ok(40));
        assert_eq!(bytes("nvidia a100 80gb"), Ok(80));
        assert_eq!(bytes("rtx4090"), Ok(24));
        assert_eq!(bytes("H200"), Ok(141));
        // The exact name wins over longer ones.
        assert_eq!(parse("L40").unwrap().name, "L40");
        assert!(parse("A100").unwrap_err().contains("A100-40GB, A100-80GB"));
        for bad in ["", "K9", "0", "1KiB", "999999TiB", "24 parsecs", "-1GiB"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_smallest_that_would_do() {
        assert_eq!(smallest(1).unwrap().bytes >> 30, 8);
        assert_eq!(smallest(8 << 30).unwrap().bytes >> 30, 8);
        assert_eq!(smallest((8 << 30) + 1).unwrap().bytes >> 30, 10);
        assert_eq!(smallest(u64::MAX), None);
        assert!(KNOWN.is_sorted_by_key(|(gib, _)| *gib));
    }
}
