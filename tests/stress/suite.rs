//! All kinds of calls at once, from many threads at the cap, under `LD_PRELOAD` on two virtual GPUs: a trial a mode.
//!
//! Threads allocate by every kind of call, capture streams in every mode, make and destroy contexts, streams and
//! mempools, switch peer access on and off, run kernels on two devices that need each other and host functions that
//! wait for an allocating thread; the cap is reached all the time. Kernels check all contents, the virtual GPU counts
//! the bytes of each device, and a watchdog prints all stacks and ends the run if a thread makes no progress for 60 s.
//!
//! `WEIR_TEST_SECONDS` is the time of all modes together (60), `WEIR_TEST_SEED` the seed of all choices (another one
//! each time; a failure shows it).

use std::process::ExitCode;
use weir_tests::harness::{Job, MIB, Scratch, Suite, size, stage};

const ALL: &str = "plain,plain@1,ordered,ordered@1,passed,captures,captures@1,contexts,streams@1,mempools,peers,collective,host,copies,queries,queries@1";
const CAP: u64 = 64 * MIB;

/// A mode: its environment, the roles of its threads, and what its device must never count more than.
struct Mode(&'static str, &'static str, &'static str, Option<u64>);

const MODES: [Mode; 12] = [
    // The program itself keeps CUDA's rules.
    Mode("bare: everything without libweir.so", "VGPU_MEM=96MiB LD_PRELOAD=", ALL, None),
    Mode("passed: passed-through requests, captures", "WEIR_CAP=64MiB", "passed,ordered,captures", Some(CAP)),
    Mode("peers: captures beside peer access", "VGPU_MEM=96MiB", "captures,peers,plain,plain@1", None),
    Mode("collective: kernels that need each other", "WEIR_CAP=64MiB", "collective,plain,plain@1", Some(CAP)),
    Mode("host: a host function that waits", "WEIR_CAP=64MiB", "host,plain", Some(CAP)),
    Mode("fail: everything at the cap", "WEIR_CAP=64MiB", ALL, Some(CAP)),
    Mode("wait: WEIR_ON_CAP=wait", "WEIR_CAP=64MiB WEIR_ON_CAP=wait:100ms", ALL, Some(CAP)),
    Mode("spill: WEIR_ON_CAP=spill", "WEIR_CAP=64MiB WEIR_ON_CAP=spill", ALL, Some(CAP)),
    Mode("off: WEIR_POOL=off", "WEIR_CAP=64MiB WEIR_POOL=off", ALL, Some(CAP)),
    Mode("novmm: WEIR_POOL=novmm", "WEIR_CAP=64MiB WEIR_POOL=novmm", ALL, Some(CAP)),
    Mode("uncapped: without a cap", "VGPU_MEM=96MiB", ALL, None),
    Mode("change: while `weir cap` changes the cap", "WEIR_CAP=96MiB", ALL, Some(96 * MIB)),
];

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for Mode(name, environment, roles, cap) in MODES {
        suite.alone(name, move || {
            let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("the time");
            let seed = size("SEED", u64::from(clock.subsec_nanos()) % 9000 + 1000);
            let seconds = size("SECONDS", 60) as f64 / MODES.len() as f64;
            let scratch = Scratch::new();
            let mut job = Job::new(stage().program("stress")).on_vgpu().under(stage().weir());
            job = job.set(format!("VGPU_DEVICES=2 VGPU_MEM=256MiB VGPU_SEED={seed} WEIR_OOM_TEXT=off"));
            job = job.env("STRESS_WEIR", stage().command()).env("WEIR_DIR", scratch.at("journals")).set(environment);
            job = job.words(format!("--roles {roles} --seconds {seconds} --seed {seed}"));
            if let Some(cap) = cap {
                job = job.words(format!("--cap {cap}"));
            }
            if name.starts_with("change") {
                job = job.words(format!("--change {CAP}-{}", 96 * MIB));
            }
            let _ = job.within_seconds(seconds as u64 + 300).run().well();
        });
    }
    suite.run()
}
