//! `pool`: capacities on traces and speed, side by side with models of other allocators.
//! One JSON line per measurement on standard output. Reads trace files, touches nothing else.
//!
//!     pool [--trace FILE…] [--speed] [--brief] [--tails] [--capacity] [--peers]
//!
//! Without arguments everything is measured on the traces that come with the crate.

mod peers;
mod replay;
mod speed;
mod tails;
mod trace;

use std::path::PathBuf;
use trace::Trace;
use weir_pool::sim::COSTS;

fn main() -> std::process::ExitCode {
    let mut files = Vec::new();
    let mut parts = Vec::new();
    let mut brief = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--bench" => {}
            "--speed" => parts.push("speed"),
            "--tails" => parts.push("tails"),
            "--brief" => brief = true,
            "--trace" | "--capacity" => parts.push("capacity"),
            "--peers" => parts.push("peers"),
            option if option.starts_with('-') => {
                eprintln!("pool: {option} is not one of --trace FILE, --speed, --brief, --tails, --capacity, --peers");
                return std::process::ExitCode::from(2);
            }
            file => files.push(located(file)),
        }
    }
    let all = parts.is_empty();
    let wants = |part: &str| all || parts.contains(&part);
    if files.is_empty() && (wants("capacity") || wants("peers")) {
        files = shipped();
    }
    let mut failed = false;
    for file in &files {
        match Trace::read(file) {
            Ok(trace) => {
                if wants("capacity") {
                    for mib in [2, 8] {
                        failed |= !capacity(&trace, mib);
                    }
                }
                if wants("peers") {
                    compare(&trace);
                }
            }
            Err(error) => {
                eprintln!("pool: {error}");
                failed = true;
            }
        }
    }
    if wants("speed") {
        speed::all(brief);
    }
    if wants("tails") {
        tails::all();
    }
    std::process::ExitCode::from(u8::from(failed))
}

/// A file as the caller's shell sees it: cargo runs benches in the folder of the crate.
fn located(file: &str) -> PathBuf {
    let shell = std::env::var_os("PWD").map(|folder| PathBuf::from(folder).join(file));
    shell.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(file))
}

/// The traces that come with the crate.
fn shipped() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("traces");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Smallest capacity of the models of other allocators.
fn compare(trace: &Trace) {
    let makers: [fn(u64) -> Box<dyn peers::Peer>; 4] = [
        |capacity| Box::new(peers::Bfc::new(capacity)),
        |capacity| Box::new(peers::Torch::new(capacity)),
        |capacity| Box::new(peers::Rmm::new(capacity)),
        |capacity| Box::new(peers::Offsets::new(capacity)),
    ];
    for make in makers {
        let fits = |capacity: u64| {
            let mut peer = make(capacity);
            let mut addresses = vec![0; trace.blocks as usize];
            trace.events.iter().all(|event| {
                let address = &mut addresses[event.block as usize];
                if event.bytes > 0 {
                    peer.allocate(event.bytes as u64).map(|addr| *address = addr).is_some()
                } else {
                    peer.free(*address);
                    true
                }
            })
        };
        if let Some(least) = replay::smallest(trace.peak, fits) {
            println!(
                "{{\"bench\":\"peer_capacity\",\"trace\":\"{}\",\"allocator\":\"{}\",\"peak_live_bytes\":{},\"min_capacity_bytes\":{least},\"ratio\":{:.4}}}",
                trace.name,
                make(1 << 20).name(),
                trace.peak,
                least as f64 / trace.peak as f64
            );
        }
    }
}

/// Smallest capacity, and what happens with 3 % more than the peak.
fn capacity(trace: &Trace, mib: u64) -> bool {
    let handle = mib << 20;
    let Some(least) = replay::smallest(trace.peak, |capacity| replay::replay(trace, handle, capacity, false).is_some())
    else {
        eprintln!("pool: {} does not fit into any capacity tried", trace.name);
        return false;
    };
    let Some(tight) = replay::replay(trace, handle, least, false) else { return false };
    let roomy = replay::replay(trace, handle, (trace.peak as f64 * 1.03) as u64, false);
    let allocations = trace.events.iter().filter(|event| event.bytes > 0).count() as f64;
    let frees = trace.events.len() as f64 - allocations;
    let passthrough = allocations * COSTS.alloc + frees * COSTS.free;
    let per_iteration = |outcome: &replay::Outcome, of: &dyn Fn(&weir_pool::Stats) -> u64| -> Vec<u64> {
        outcome.iterations.windows(2).map(|pair| of(&pair[1]) - of(&pair[0])).collect()
    };
    let (mut remaps, mut calls, mut micros, mut syncs) = (Vec::new(), Vec::new(), 0.0, 0);
    if let Some(roomy) = &roomy {
        remaps = per_iteration(roomy, &|stats| stats.remaps);
        calls = per_iteration(roomy, &|stats| stats.calls.memory());
        micros = roomy.micros;
        syncs = roomy.stats.self_syncs;
    }
    println!(
        "{{\"bench\":\"capacity\",\"trace\":\"{}\",\"handle_mib\":{mib},\"peak_live_bytes\":{},\"min_capacity_bytes\":{least},\
         \"ratio\":{:.4},\"remaps\":{},\"driver_calls\":{},\"self_syncs\":{},\"meshes\":{},\"period\":{},\"fixed_shape\":{},\
         \"at_3_percent\":{{\"fits\":{},\"remaps_per_iteration\":{remaps:?},\"memory_calls_per_iteration\":{calls:?},\
         \"self_syncs\":{syncs},\"driver_us\":{micros:.0},\"passthrough_us\":{passthrough:.0}}},\"unknown_frees\":{}}}",
        trace.name,
        trace.peak,
        least as f64 / trace.peak as f64,
        tight.stats.remaps,
        tight.stats.calls.total(),
        tight.stats.self_syncs,
        tight.stats.meshes,
        trace.period.map_or(0, |(length, _)| length),
        trace.period.is_some_and(|(_, exact)| exact),
        roomy.is_some(),
        trace.unknown_frees,
    );
    true
}
