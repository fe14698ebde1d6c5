//! The pool in a job, under `LD_PRELOAD` on the strict virtual GPU: random programs, single properties, faults at every
//! step of the driver, and injected faults of the pool, each of which must be seen within 100 000 operations.
//!
//! `WEIR_TEST_OPERATIONS` is how many operations all random programs do together (10 000 000).

use std::path::PathBuf;
use std::process::ExitCode;
use weir_tests::harness::{Done, Job, Scratch, Suite, size, stage};

/// Which library a job runs under.
#[derive(Clone, Copy)]
enum Library {
    Plain,
    /// With checks built in: at the end it says whether its pools are consistent. A fault may be switched on.
    Checked,
}
use Library::{Checked, Plain};

impl Library {
    fn file(self) -> PathBuf {
        match self {
            Plain => stage().weir(),
            Checked => stage().weir_with_faults(),
        }
    }
}

/// Runs one of the two programs of this folder.
fn job(library: Library, environment: &str, program: &str, arguments: &str) -> Done {
    let scratch = Scratch::new();
    Job::new(stage().program(program))
        .on_vgpu()
        .under(library.file())
        .env("VGPU_SHARED", scratch.at("shared"))
        .env("WEIR_DIR", scratch.at("journals"))
        .set("VGPU_MEM=256MiB WEIR_OOM_TEXT=off RUST_BACKTRACE=0")
        .set(environment)
        .words(arguments)
        .within_seconds(1800)
        .run()
}

fn main() -> ExitCode {
    let mut suite = Suite::new();
    random_programs(&mut suite);
    properties(&mut suite);
    driver_faults(&mut suite);
    injected_faults(&mut suite);
    suite.run()
}

/// Most of the operations with two threads, the rest in the other shapes.
fn random_programs(suite: &mut Suite) {
    for (name, twentieths, environment, arguments) in [
        ("two threads", 12, "", "--threads 2 --peer"),
        ("one thread", 4, "", "--threads 1 --streams 6 --seed 2"),
        ("resets of the context", 2, "", "--threads 3 --resets --seed 3"),
        ("memory short, streams behind", 1, "VGPU_MEM=64MiB", "--focus waits --seed 4"),
        ("shared events", 1, "", "--focus events --threads 3 --seed 5"),
    ] {
        suite.add(format!("random programs: {name}"), move || {
            let operations = size("OPERATIONS", 10_000_000) / 20 * twentieths;
            let _ = job(Plain, environment, "pool-soak", &format!("{operations} {arguments}")).well();
        });
    }
    for switch in ["noremap", "nomesh", "nolazy", "cache", "handle=2MiB", "handle=32MiB"] {
        suite.add(format!("random programs: WEIR_POOL={switch}"), move || {
            let operations = (size("OPERATIONS", 10_000_000) / 200).min(20_000);
            let _ = job(Plain, &format!("WEIR_POOL={switch}"), "pool-soak", &format!("{operations} --seed 6")).well();
        });
    }
}

/// A trial for one check of the program `pool-checks`, which must end well.
fn property(suite: &mut Suite, name: &str, library: Library, environment: impl Into<String>, check: &'static str) {
    let environment = environment.into();
    suite.add(format!("properties: {name}"), move || {
        let _ = job(library, &environment, "pool-checks", check).well();
    });
}

fn properties(suite: &mut Suite) {
    for check in ["mempools", "ipc", "gives-way", "free-under-capture", "released-context", "coming-and-going"] {
        property(suite, check, Plain, "", check);
    }
    for check in ["mesh", "free-list-of-another", "free-list-in-granule"] {
        property(suite, check, Plain, "VGPU_MEM=64MiB", check);
        property(suite, &format!("{check}, with checks built in"), Checked, "VGPU_MEM=64MiB", check);
    }
    property(suite, "stream-waits", Plain, "VGPU_MEM=1GiB", "stream-waits");
    property(suite, "stream-waits, with checks built in", Checked, "VGPU_MEM=1GiB", "stream-waits");
    for (name, library) in [("survivors", Plain), ("survivors, with checks built in", Checked)] {
        property(suite, name, library, "WEIR_CAP=192MiB", "survivors");
    }
    for how in ["WEIR_POOL=novmm", "WEIR_POOL=off WEIR_CAP=2GiB"] {
        let check = "coming-and-going";
        property(suite, &format!("{check}, {how}"), Plain, format!("VGPU_MEM=4GiB {how}"), check);
    }
    // Nothing of weir's waits for ever, with a driver that can mark a whole context and with one that can't.
    for driver in ["12.8", "12.4"] {
        for (check, environment) in
            [("at-the-cap", "WEIR_CAP=64MiB"), ("peers-beside-captures", "VGPU_DEVICES=2"), ("never-idle", "")]
        {
            let environment = format!("VGPU_DRIVER={driver} {environment}");
            property(suite, &format!("{check}, driver {driver}"), Checked, environment, check);
        }
    }
    for (check, library, environment) in [
        ("stops-beside-host-functions", Checked, "VGPU_MEM=64MiB VGPU_COST=cuMemcpy=100ms"),
        ("kernel-waits-for-host", Plain, ""),
        ("kernels-wait-for-each-other", Plain, "VGPU_DEVICES=2"),
        ("stale-event", Plain, "VGPU_COST=cuStreamWaitEvent=300ms"),
        ("plain-device", Plain, "VGPU_VMM=off"),
        ("two-devices", Plain, "VGPU_DEVICES=2"),
    ] {
        property(suite, check, library, environment, check);
    }
    property(suite, "plain segments by WEIR_POOL=novmm", Plain, "WEIR_POOL=novmm", "plain-device");
    property(suite, "ipc, of blocks in plain segments", Plain, "VGPU_VMM=off", "ipc");
    for fault in ["inversion", "hold", "call"] {
        suite.add(format!("properties: WEIR_FAULT={fault} is noticed"), move || {
            let done = job(Checked, &format!("WEIR_FAULT={fault}"), "pool-checks", "never-idle");
            let said = ["lock order", "holds something", "holds a lock calls"].iter().any(|text| done.says(text));
            assert!(done.code != 0 && said, "{done}");
        });
    }
    suite.add("properties: peer-disabled", || {
        let done = job(Plain, "VGPU_DEVICES=2", "pool-checks", "peer-disabled");
        assert!(done.says("disabled") && done.says("violation"), "{done}");
    });
}

fn driver_faults(suite: &mut Suite) {
    let mut soak = |rule: String, environment: &str, arguments: &'static str| {
        let environment = format!("VGPU_FAIL={rule} {environment}");
        let order = if arguments.contains("--plain") { "" } else { ", in stream order" };
        suite.add(format!("driver faults: VGPU_FAIL={rule}{order}"), move || {
            let _ = job(Checked, &environment, "pool-soak", arguments).well();
        });
    };
    for call in ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemAddressReserve", "cuMemRelease"] {
        for rule in ["1", "2", "3-5", "10%", "1=CUDA_ERROR_UNKNOWN", "5%=CUDA_ERROR_UNKNOWN"] {
            soak(format!("{call}:{rule}"), "", "10000 --plain --seed 7");
        }
        soak(format!("{call}:10%"), "", "10000 --seed 8");
    }
    // The program itself makes its events first; all later ones are the pool's own fences.
    soak("cuEventCreate:11-".to_owned(), "VGPU_MEM=64MiB", "20000 --focus waits");
}

/// A trial for a fault of the pool: with one of three seeds the program must end badly.
fn caught(
    suite: &mut Suite,
    fault: &'static str,
    environment: &'static str,
    program: &'static str,
    arguments: &'static str,
) {
    suite.add(format!("injected faults: {fault}"), move || {
        let noticed = (1..=3).any(|seed| {
            let environment = format!("WEIR_FAULT=pool:{fault} {environment}");
            job(Checked, &environment, program, &format!("{arguments} --seed {seed}")).code != 0
        });
        assert!(noticed, "{fault} was not noticed");
    });
}

fn injected_faults(suite: &mut Suite) {
    for (name, environment, arguments) in [
        ("none", "WEIR_FAULT=pool:None", "100000 --peer"),
        ("none, failing maps", "VGPU_FAIL=cuMemMap:2%", "100000 --nothing-lost"),
    ] {
        suite.add(format!("injected faults: {name}"), move || {
            let _ = job(Checked, environment, "pool-soak", arguments).well();
        });
    }
    // Each of these breaks random programs of any seed and timing within a fraction of the operations...
    for fault in [
        "EpochsIgnored",
        "EventsIgnored",
        "DestroyedStreamForgotten",
        "RemapWithoutProof",
        "OlderStampKept",
        "SplitOffByOne",
    ] {
        caught(suite, fault, "", "pool-soak", "100000");
    }
    caught(suite, "EpochTakenAtTheEnd", "", "pool-soak", "100000 --focus epochs --threads 3");
    caught(suite, "WaitNotInserted", "VGPU_MEM=64MiB", "pool-soak", "100000 --focus waits");
    caught(suite, "MapFailureIgnored", "VGPU_FAIL=cuMemMap:2%", "pool-soak", "100000 --nothing-lost");
    // ...and these need a moment that random programs may miss: a kernel that lasts makes it last.
    for fault in ["MeshWithCollision", "MeshWithoutQuiesce", "PinIgnored"] {
        caught(suite, fault, "VGPU_MEM=64MiB", "pool-checks", "mesh");
    }
    caught(suite, "FreeListsShared", "VGPU_MEM=64MiB", "pool-checks", "free-list-of-another");
    caught(suite, "FreeListStampForgotten", "VGPU_MEM=64MiB", "pool-checks", "free-list-in-granule");
    caught(suite, "StaleEventTrusted", "VGPU_COST=cuStreamWaitEvent=300ms", "pool-checks", "stale-event");
}
