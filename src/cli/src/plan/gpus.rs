//! GPUs by name: their memory as CUDA shows it, which is less than what their makers publish, and their compute capability.

use std::fmt::Write;

use serde::Serialize;
use weir_settings::profile;
use weir_settings::size::{human, parse_size};

/// A GPU by its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Gpu {
    /// Its name; empty for a mere size.
    pub(crate) name: String,
    /// Its memory, as a program sees it.
    pub(crate) bytes: u64,
    /// Its compute capability, if its name tells.
    pub(crate) compute: Option<(u8, u8)>,
}

/// A kind of memory.
#[derive(Clone, Copy)]
enum Memory {
    /// What CUDA shows is 63/64 of the published size: where it was reported, between 63.0 and 63.5.
    Whole,
    /// ECC in the same chips, on as delivered: it takes 1/16 more.
    Ecc,
}

type Row = (u64, Memory, (u8, u8), &'static [&'static str]);

/// Published memory in GiB with its kind, compute capability, names; smallest first.
#[rustfmt::skip]
const KNOWN: &[Row] = &[
    (8, Memory::Whole, (8, 6), &["RTX-3070"]),
    (8, Memory::Whole, (8, 9), &["RTX-4060"]),
    (10, Memory::Whole, (8, 6), &["RTX-3080"]),
    (11, Memory::Whole, (7, 5), &["RTX-2080Ti"]),
    (12, Memory::Whole, (8, 6), &["RTX-3060"]),
    (12, Memory::Whole, (8, 9), &["RTX-4070"]),
    (16, Memory::Ecc, (7, 5), &["T4"]),
    (16, Memory::Ecc, (8, 6), &["A2"]),
    (16, Memory::Whole, (6, 0), &["P100-16GB"]),
    (16, Memory::Whole, (7, 0), &["V100-16GB"]),
    (16, Memory::Whole, (8, 6), &["RTX-A4000"]),
    (16, Memory::Whole, (8, 9), &["RTX-4080"]),
    (16, Memory::Whole, (12, 0), &["RTX-5080"]),
    (20, Memory::Whole, (8, 9), &["RTX-4000-Ada"]),
    (24, Memory::Ecc, (8, 6), &["A10"]),
    (24, Memory::Ecc, (8, 9), &["L4"]),
    (24, Memory::Whole, (8, 0), &["A30"]),
    (24, Memory::Whole, (8, 6), &["RTX-A5000", "RTX-3090"]),
    (24, Memory::Whole, (8, 9), &["RTX-4090"]),
    (32, Memory::Whole, (7, 0), &["V100-32GB"]),
    (32, Memory::Whole, (12, 0), &["RTX-5090"]),
    (40, Memory::Whole, (8, 0), &["A100-40GB"]),
    (48, Memory::Ecc, (8, 9), &["L40S", "L40"]),
    (48, Memory::Ecc, (8, 6), &["A40"]),
    (48, Memory::Whole, (8, 6), &["RTX-A6000"]),
    (48, Memory::Whole, (8, 9), &["RTX-6000-Ada"]),
    (80, Memory::Whole, (8, 0), &["A100-80GB"]),
    (80, Memory::Whole, (9, 0), &["H100-80GB"]),
    (96, Memory::Whole, (12, 0), &["RTX-PRO-6000"]),
    (96, Memory::Whole, (9, 0), &["GH200-96GB"]),
    (141, Memory::Whole, (9, 0), &["H200-141GB"]),
];

/// Names with a profile of the virtual GPU, whose size was reported.
const REPORTED: [(&str, &str); 5] =
    [("A100-40GB", "a100"), ("V100-16GB", "v100"), ("T4", "t4"), ("RTX-4090", "rtx4090"), ("RTX-3090", "no-p2p")];

impl Gpu {
    /// A GPU of which nothing but its size is known.
    pub(crate) fn sized(bytes: u64) -> Self {
        Self { name: String::new(), bytes, compute: None }
    }

    /// What stock TensorFlow leaves free of it, by TensorFlow's source: so much by compute capability. What of a mere size
    /// is not known is taken for the largest share of the machines around: 8.
    pub(super) fn kept_by_tensorflow(&self) -> u64 {
        let mib = match self.compute.map_or(8, |(major, _)| major) {
            0..=6 => 500,
            7 => 1050,
            8 => 1536,
            _ => 1800,
        };
        mib << 20
    }
}

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
            _ => Ok(Gpu::sized(bytes)),
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
    let known = all();
    let least = known.iter().map(|gpu| gpu.bytes).filter(|bytes| *bytes >= need).min()?;
    let same: Vec<_> = known.iter().filter(|gpu| gpu.bytes == least).collect();
    let names: Vec<_> = same.iter().map(|gpu| gpu.name.as_str()).collect();
    Some(Gpu { name: names.join(", "), bytes: least, compute: same.first().and_then(|gpu| gpu.compute) })
}

/// All that are known by name.
pub(super) fn all() -> Vec<Gpu> {
    let reported = |name: &str| {
        let (_, machine) = REPORTED.iter().find(|(known, _)| *known == name)?;
        parse_size(profile::find(machine)?.get("VGPU_MEM")?).ok()
    };
    let shown = |gib: u64, memory: Memory| match memory {
        Memory::Whole => (gib << 30) / 64 * 63,
        Memory::Ecc => (gib << 30) / 64 * 63 / 16 * 15,
    };
    let of = |(gib, memory, compute, names): &(u64, Memory, (u8, u8), &[&str])| -> Vec<Gpu> {
        let bytes = |name: &str| reported(name).unwrap_or(shown(*gib, *memory));
        let one = |name: &&str| Gpu { name: (*name).to_owned(), bytes: bytes(name), compute: Some(*compute) };
        names.iter().map(one).collect()
    };
    KNOWN.iter().flat_map(of).collect()
}

/// All names, a line for each: memory as CUDA shows it, compute capability.
pub(super) fn listed() -> String {
    all().iter().fold(String::new(), |mut text, gpu| {
        let (major, minor) = gpu.compute.unwrap_or_default();
        let _ = writeln!(text, "{:>11}  {major}.{minor:<3} {}", human(gpu.bytes), gpu.name);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes() {
        let mib = |text: &str| parse(text).map(|gpu| gpu.bytes >> 20);
        assert_eq!(mib("24GiB"), Ok(24 << 10));
        assert_eq!(mib("A100-40GB"), Ok(40448), "as the profile has it");
        assert_eq!(mib("nvidia a100 80gb"), Ok(80 * 1008));
        assert_eq!(mib("Tesla T4"), Ok(15104));
        assert_eq!(mib("L4"), Ok(24 * 945), "ECC takes a part");
        // The exact name wins over longer ones.
        assert_eq!(parse("L40").unwrap().name, "L40");
        assert!(parse("A100").unwrap_err().contains("A100-40GB, A100-80GB"));
        for bad in ["", "K9", "0", "1KiB", "999999TiB", "24 parsecs", "-1GiB"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    /// Published reports: what CUDA showed of a GPU, in MiB. None of these has a profile.
    #[test]
    fn sizes_are_those_that_others_saw() {
        let (name, seen) = ("V100-32GB", 32_481);
        let shown = parse(name).unwrap().bytes >> 20;
        assert!(shown.abs_diff(seen) * 100 <= seen, "{name}: {shown} MiB, and {seen} were seen");
    }

    /// What TensorFlow printed as the memory that it takes, in MiB (tensorflow#59732; a log of tf_cnn_benchmarks by Lambda): what
    /// the answer for stock TensorFlow leaves for tensors besides the context that is assumed.
    #[test]
    fn stock_tensorflow_has_the_room_that_others_saw() {
        for (name, printed) in [("A100-40GB", 38_251), ("RTX-3070", 6_173)] {
            let gpu = parse(name).unwrap();
            let room = ((gpu.bytes - gpu.kept_by_tensorflow()) >> 20) - 512;
            assert!(room.abs_diff(printed) * 100 <= 3 * printed, "{name}: {room} MiB, and {printed} were printed");
        }
    }

    #[test]
    fn tensorflow_keeps_a_part_by_compute_capability() {
        let kept = |name: &str| parse(name).unwrap().kept_by_tensorflow() >> 20;
        assert_eq!(
            ["P100-16GB", "V100-16GB", "A100-40GB", "H100-80GB", "24GiB"].map(kept),
            [500, 1050, 1536, 1800, 1536]
        );
    }

    #[test]
    fn the_smallest_that_would_do() {
        assert_eq!(smallest(1).unwrap().bytes >> 20, 8064);
        assert!(smallest(8 << 30).unwrap().name.contains("RTX-3080"), "8 GiB are not 8 GiB");
        assert_eq!(smallest(u64::MAX), None);
        assert!(KNOWN.is_sorted_by_key(|(gib, ..)| *gib));
        for (name, machine) in REPORTED {
            let shown = profile::find(machine).and_then(|profile| parse_size(profile.get("VGPU_MEM")?).ok());
            assert_eq!(Some(parse(name).unwrap().bytes), shown);
        }
    }
}
