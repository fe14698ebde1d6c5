//! Slurm loads a plugin only if it names the release of Slurm that it was built for. That is WEIR_SLURM_VERSION, else the
//! release whose header is installed (libslurm-dev), else the one that the tests run.

use std::env;
use std::fs;

const HEADER: &str = "/usr/include/slurm/slurm_version.h";
/// Debian 12's.
const TESTED: &str = "22.05.8";

fn main() {
    println!("cargo:rerun-if-env-changed=WEIR_SLURM_VERSION");
    println!("cargo:rerun-if-changed={HEADER}");
    let named = env::var("WEIR_SLURM_VERSION").ok();
    let number = match &named {
        Some(text) => number(text),
        None => fs::read_to_string(HEADER).ok().and_then(|text| of_header(&text)).or_else(|| number(TESTED)),
    };
    if let Some(number) = number {
        println!("cargo:rustc-env=WEIR_SLURM_NUMBER={number}");
    } else {
        println!("cargo:warning=WEIR_SLURM_VERSION: expected a release of Slurm like {TESTED}");
        std::process::exit(1);
    }
}

/// One byte for each part of `22.05.8`.
fn number(text: &str) -> Option<u32> {
    let parts: Vec<u8> = text.trim().split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [major, minor, rest @ ..] = &parts[..] else { return None };
    (rest.len() <= 1).then(|| u32::from_be_bytes([0, *major, *minor, rest.first().copied().unwrap_or(0)]))
}

/// `#define SLURM_VERSION_NUMBER 0x160508`.
fn of_header(text: &str) -> Option<u32> {
    let value = text.lines().find_map(|line| line.strip_prefix("#define SLURM_VERSION_NUMBER"))?;
    u32::from_str_radix(value.trim().strip_prefix("0x")?, 16).ok()
}
