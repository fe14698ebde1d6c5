//! Host memory in place of device memory, and back: by what the virtual GPU counts and its kernels find.

use crate::{MIB, Place, holds};
use std::io::{BufRead, BufReader};
use std::path::Path;
use weir_tests::harness::{Suite, stage};

const SPILL: &str = "WEIR_ON_CAP=spill WEIR_SPILL=512MiB VGPU_BACKING=memory";
const SPILL_CAP: u64 = 64 * MIB;

/// Calls of the driver's that spilling and coming back are made of.
const STEPS: [&str; 7] =
    ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressReserve", "cuMemcpy"];

pub(crate) fn spill(suite: &mut Suite) {
    let small = format!("{SPILL} WEIR_CAP={SPILL_CAP}");
    let mut case = |title: &str, words: &str, environment: String| {
        let (name, arguments) = words.split_once(' ').unwrap_or((words, ""));
        let (_, cap) = environment.rsplit_once("WEIR_CAP=").unwrap_or(("", "134217728"));
        let cap = cap.split(' ').next().unwrap_or_default().to_owned();
        holds(suite, format!("spill: {title}"), format!("spill.py {name} {cap} {arguments}"), environment);
    };
    let limited = format!("limited {}", 64 * MIB);
    let none = "WEIR_ON_CAP=spill WEIR_SPILL=64MiB";
    case("up to the limit, never above the cap", &limited, none.to_owned());
    case("up to the limit, by small handles", &limited, format!("{none} WEIR_POOL=handle=2MiB"));
    for how in ["context", "stream"] {
        for seed in [1, 2, 3] {
            let title = format!("comes back with its content, waiting for a {how}, order {seed}");
            case(&title, &format!("comes_back {how} 2"), format!("{small} VGPU_SEED={seed}"));
        }
    }
    case("comes back by small handles", "comes_back context 2", format!("{small} WEIR_POOL=handle=2MiB"));
    for (title, name) in [
        ("nothing moves under queued work, nobody waits for it", "busy"),
        ("reported as device memory", "attributes"),
        ("what is exported stays", "exported"),
        ("stream-ordered memory and its mempool", "ordered"),
        ("a request larger than the cap", "larger"),
        ("host memory goes with its context", "context_ends"),
        ("a fork has none of it", "forks"),
    ] {
        case(title, name, small.clone());
    }
    for seed in [1, 2, 3] {
        case(&format!("four threads, order {seed}"), "threads", format!("{small} VGPU_SEED={seed}"));
    }
    // Where host memory cannot be mapped, managed memory that stays on the host.
    for how in ["VGPU_DRIVER=12.1", "WEIR_POOL=novmm", "VGPU_VMM=off"] {
        for part in ["larger", "context_ends", "attributes", "threads"] {
            case(&format!("managed, {how}: {part}"), part, format!("{small} {how}"));
        }
    }
    case("managed, VGPU_DRIVER=12.1: ordered", "ordered", format!("{small} VGPU_DRIVER=12.1"));
    // Each call of the driver's fails, once and often: nothing is lost, no cap is passed.
    for step in STEPS {
        for times in ["1", "3", "9", "12-13", "20", "10%", "25%"] {
            let fail = format!("VGPU_FAIL={step}:{times}");
            case(&fail, "faults 2", format!("{small} {fail}"));
        }
    }
    let title = "spill: with a limit of 0 a refusal is a refusal";
    holds(suite, title, "jobs.py exact_code", "WEIR_ON_CAP=spill WEIR_SPILL=0");
    let title = "spill: not where managed memory would move to the device";
    holds(suite, title, "jobs.py exact_code", "WEIR_ON_CAP=spill VGPU_DRIVER=12.1 VGPU_COMPUTE=5.2");
    counts(suite);
    faults(suite);
}

/// What spilling calls of the driver is bounded by what the job requests, also where it needs a little or much more than
/// its cap.
fn counts(suite: &mut Suite) {
    for live in [300, 480, 700] {
        suite.add(
            format!("spill: {live} MiB under a cap of 512 MiB: few copies and stops, host memory used again"),
            move || {
                let place = Place::new();
                let trace = place.0.at("trace");
                let environment = format!("{SPILL} WEIR_CAP={} WEIR_SPILL=4GiB VGPU_MEM=2GiB", 512 * MIB);
                let job =
                    place.job(format!("spill.py churn {} 2000", live * MIB), environment).env("VGPU_TRACE", &trace);
                let done = job.run().well();
                let reported = done.json();
                let number = |name: &str| reported[name].as_u64().expect("a number");
                let (copied, stops) = calls(&trace);
                assert!(
                    copied <= number("requested") / 16,
                    "{copied} bytes copied back, more than 1/16 of those requested\n{done}"
                );
                assert!(
                    number("refused") == 0 && stops <= 500,
                    "{stops} stops, more than half of the requests\n{done}"
                );
                assert!(number("on_host") <= 512 * MIB, "{done}");
            },
        );
    }
}

/// Bytes copied between device addresses and waits for a whole context, neither of which `churn` requests itself, by
/// the virtual GPU's log of calls.
fn calls(trace: &Path) -> (u64, u64) {
    let (mut copied, mut stops) = (0, 0);
    for line in BufReader::new(std::fs::File::open(trace).expect("the log")).lines() {
        let call: serde_json::Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        match call["fn"].as_str() {
            Some("cuMemcpy") => copied += call["args"]["byte_count"].as_u64().expect("a size"),
            Some("cuCtxSynchronize") => stops += 1,
            _ => {}
        }
    }
    (copied, stops)
}

/// Injected faults must be seen.
fn faults(suite: &mut Suite) {
    for (fault, name) in [
        ("None", "busy"),
        ("MigrateWithoutQuiesce", "busy"),
        ("MigrateWithoutCopy", "comes_back"),
        ("PinIgnored", "exported"),
    ] {
        suite.add(format!("spill: injected fault {fault}"), move || {
            let environment = format!("{SPILL} WEIR_CAP={SPILL_CAP} WEIR_FAULT=pool:{fault}");
            let job = Place::new().job(format!("spill.py {name} {SPILL_CAP}"), environment);
            let done = job.under(stage().weir_with_faults()).run();
            assert_eq!(done.code != 0, fault != "None", "{done}");
        });
    }
}
