//! A cap holds: by every entry point that takes device memory, over processes, kills, waits, forks and changes.
//!
//! Jobs of this folder run on the virtual GPU under libweir.so; what counts is what the virtual GPU itself says is
//! taken. `WEIR_TEST_OPERATIONS` is how many operations random programs do (1 000 000), `WEIR_TEST_KILLS` the length of
//! each kill storm (150; of all storms of random programs together 2000).

mod abi;
mod groups;
mod peers;
mod random;
mod settings;
mod sources;
mod spill;
mod termination;

use std::path::PathBuf;
use std::process::ExitCode;
use weir_tests::harness::{Job, MIB, PATIENCE, Scratch, Suite, cc, stage};

/// The cap of a job that says nothing else.
pub(crate) const CAP: u64 = 128 * MIB;
pub(crate) const PAGE: u64 = 2 * MIB;
pub(crate) const MODES: [&str; 3] = ["on", "off", "novmm"];

/// The folders of one trial.
pub(crate) struct Place(pub(crate) Scratch);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(Scratch::new());
        place.0.folder("dir");
        place
    }

    pub(crate) fn ledger(&self, name: &str) -> PathBuf {
        self.0.at("dir/ledger").join(name)
    }

    /// The environment of a job under the cap.
    pub(crate) fn arrange(&self, job: Job) -> Job {
        job.on_vgpu()
            .under(stage().weir())
            .env("HOME", self.0.at("home"))
            .env("WEIR_DIR", self.0.at("dir"))
            .set("VGPU_MEM=1GiB VGPU_BACKING=none WEIR_RING=16K WEIR_OOM_TEXT=off")
            .set(format!("WEIR_CAP={CAP}"))
    }

    /// A job of this folder: `FILE NAME ARGUMENT...`, and what it has otherwise than others in its environment.
    pub(crate) fn job(&self, words: impl std::fmt::Display, environment: impl std::fmt::Display) -> Job {
        let words = words.to_string();
        let (file, arguments) = words.split_once(' ').expect("a file and a job");
        self.arrange(Job::python(&format!("caps/{file}"))).words(arguments).set(environment)
    }

    /// The command, outside the job.
    pub(crate) fn weir(&self, words: &str) -> Job {
        Job::new(stage().command()).env("HOME", self.0.at("home")).env("WEIR_DIR", self.0.at("dir")).words(words)
    }
}

/// A trial for a job that must end well and without a word on standard error.
pub(crate) fn holds(
    suite: &mut Suite,
    title: impl Into<String>,
    words: impl Into<String>,
    environment: impl Into<String>,
) {
    let (words, environment) = (words.into(), environment.into());
    suite.add(title, move || {
        let _ = Place::new().job(words, environment).run().quiet();
    });
}

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.threads(4);
    abi(&mut suite);
    entry_points(&mut suite);
    queries(&mut suite);
    devices(&mut suite);
    manners(&mut suite);
    exact(&mut suite);
    locks(&mut suite);
    settings::settings(&mut suite);
    settings::unkept(&mut suite);
    sources::sources(&mut suite);
    peers::peers(&mut suite);
    termination::termination(&mut suite);
    groups::waits(&mut suite);
    groups::changes(&mut suite);
    groups::groups(&mut suite);
    groups::storm(&mut suite);
    spill::spill(&mut suite);
    random::programs(&mut suite);
    suite.run()
}

/// No function of the ABI list that can take device memory is forgotten.
fn abi(suite: &mut Suite) {
    suite.add("abi: every function that can take device memory has its place", || {
        let list = std::fs::read_to_string(stage().root.join("src/cuda/src/functions.rs")).expect("the ABI list");
        let (mut known, mut places) = (abi::takers(abi::rows(&list)), abi::placed());
        known.sort_unstable();
        known.dedup();
        places.sort_unstable();
        assert_eq!(places, known, "left: the tables of abi.rs, right: the ABI list");
    });
    suite.add("abi: a function of a newer header would be noticed", || {
        let new = [
            ("cuMemAllocSomehow", "x: u64"),
            ("cuFoo", "dptr: *mut CUdeviceptr_v2"),
            ("cuFoo_ptsz", "h: *mut CUmemGenericAllocationHandle_v1"),
        ];
        assert_eq!(abi::takers(new), new.map(|(symbol, _)| symbol));
    });
    holds(suite, "abi: functions of CUDA 2 pass no cap and tell the same", format!("jobs.py narrow {CAP}"), "");
}

/// One function until refused: never above the cap, the exact code, nearly all of it usable, nothing lost.
fn entry_points(suite: &mut Suite) {
    // The second is no multiple of the 32 MiB by which the driver's mempools grow, whatever is set aside.
    for (mode, cap) in [("on", CAP), ("off", 118 * MIB), ("novmm", CAP)] {
        for name in abi::TAKEN {
            for sizes in ["large", "odd", "small"] {
                suite.add(format!("entry points: {name}, {sizes} sizes, WEIR_POOL={mode}"), move || {
                    let made = if name.contains("FromPool") && sizes == "odd" { "made" } else { "" };
                    let words = format!("entry_points.py {name} {cap} {sizes} {made}");
                    let done = Place::new().job(words, format!("WEIR_CAP={cap} WEIR_POOL={mode}")).run().quiet();
                    let reported = done.json();
                    let number = |name: &str| reported[name].as_u64().unwrap_or(u64::MAX);
                    let uses = reported["uses"].as_object().expect("uses");
                    let rest = uses.iter().filter(|(k, _)| !["pool", "device"].contains(&k.as_str()));
                    let left: u64 = rest.map(|(_, bytes)| bytes.as_u64().expect("bytes")).sum();
                    // The driver's own mempools grow by 32 MiB at a time: their last step may not fit.
                    let steps = if reported["uses"]["device"].as_u64() == Some(0) { 10 } else { 34 };
                    let best = reported["best"].as_array().expect("best").iter().filter_map(serde_json::Value::as_u64);
                    assert!(number("peak") <= cap && number("code") == 2, "{done}");
                    assert!(best.min().is_some_and(|least| least >= cap - steps * MIB), "{done}");
                    assert!(
                        left == 0 && number("pending") == 0 && reported["free"].as_u64() >= Some(cap - 2 * PAGE),
                        "{done}"
                    );
                });
            }
        }
    }
    for mode in ["on", "off"] {
        for how in ["capture", "nodes"] {
            let title = format!("graphs: memory by {how} obeys the cap, WEIR_POOL={mode}");
            holds(suite, title, format!("jobs.py graph {CAP} {how}"), format!("WEIR_POOL={mode}"));
        }
    }
}

fn queries(suite: &mut Suite) {
    for (mode, room) in [("on", 16), ("off", 0), ("novmm", 64)] {
        let truth = format!("jobs.py one_truth {CAP} {}", room * MIB);
        holds(
            suite,
            format!("queries: every one tells one truth, WEIR_POOL={mode}"),
            truth,
            format!("WEIR_POOL={mode}"),
        );
    }
    for mode in MODES {
        let title = format!("queries: the exact code over the cap, WEIR_POOL={mode}");
        holds(suite, title, "jobs.py exact_code", format!("WEIR_POOL={mode}"));
    }
    let environment = format!("WEIR_CAP=0={CAP} VGPU_DEVICES=2");
    holds(suite, "queries: a device without a cap is as large as it is", "jobs.py sees 1 0", environment);
    suite.add("queries: no cap, no account, no file; a cap, one file", || {
        let place = Place::new();
        let (untouched, nobody) = (place.0.at("untouched"), place.0.at("nobody"));
        let job = |words: String, environment: &str| {
            place.job(words, environment).env("WEIR_DIR", &untouched).env("HOME", &nobody).run().quiet()
        };
        let _ = job("jobs.py uncapped".to_owned(), "WEIR_CAP= WEIR_JOURNAL=off");
        assert!(!untouched.exists() && !nobody.exists(), "a file without a cap");
        let _ = job(format!("jobs.py gets_all {CAP}"), "");
        let files = weir_tests::harness::files_below(&untouched.join("ledger"));
        assert_eq!(files.iter().filter(|f| f.extension().is_some_and(|e| e == "ledger")).count(), 1, "{files:?}");
    });
}

fn devices(suite: &mut Suite) {
    let both = format!("WEIR_CAP=0={},1={CAP} VGPU_DEVICES=2", CAP / 2);
    let mut device = |title: &str, words: String, environment: String| {
        holds(suite, format!("devices: {title}"), format!("jobs.py {words}"), environment);
    };
    let hidden = format!("WEIR_CAP=0={CAP} CUDA_VISIBLE_DEVICES=1 VGPU_DEVICES=2");
    device(
        "CUDA_VISIBLE_DEVICES=1 hits the cap of device 1",
        format!("sees 0 {CAP}"),
        format!("{both} CUDA_VISIBLE_DEVICES=1"),
    );
    device(
        "CUDA_VISIBLE_DEVICES=1,0 shifts no cap",
        format!("sees 1 {}", CAP / 2),
        format!("{both} CUDA_VISIBLE_DEVICES=1,0"),
    );
    device("a cap for a hidden device is no mistake", "sees 0 0".to_owned(), hidden);
    device("a share is one of the device", format!("sees 0 {}", 1 << 29), "WEIR_CAP=50% VGPU_DEVICES=2".to_owned());
    device("cuMemCreate is charged by its location", format!("by_location {} {CAP}", CAP / 2), both.clone());
    let context = "VGPU_CONTEXT=32MiB".to_owned();
    device("what a context takes is measured and shown apart", format!("overhead {CAP} {}", 32 * MIB), context);
    device("variables of loaded code are charged", format!("code {CAP}"), String::new());
    for mode in MODES {
        let title = format!("what goes with a context is free again, WEIR_POOL={mode}");
        device(&title, format!("contexts_end {CAP}"), format!("WEIR_POOL={mode}"));
    }
    let refusals = ["cuMemAllocManaged", "cuMemCreate", "cuArrayCreate"].map(|name| format!("{name}:1-20")).join(",");
    let environment = format!("VGPU_FAIL={refusals} WEIR_POOL=off");
    device("what the driver refuses is given back", format!("driver_refuses {CAP}"), environment);
}

fn manners(suite: &mut Suite) {
    let mut manner = |title: &str, words: String, environment: String| {
        holds(suite, format!("manners: {title}"), format!("jobs.py {words}"), environment);
    };
    manner("cuInit under a cap has no side effects", "no_side_effects".to_owned(), String::new());
    manner("no word on stdout or stderr at the cap", format!("quiet {CAP}"), String::new());
    let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels.ptx");
    for mode in ["on", "off"] {
        let pool = format!("WEIR_POOL={mode}");
        manner(&format!("unknown pointers are the driver's, {pool}"), "unknown_pointers".to_owned(), pool.clone());
        let memory = format!("{pool} VGPU_BACKING=memory");
        manner(&format!("stream-ordered requests wait for nothing, {pool}"), format!("asynchronous {kernels}"), memory);
        manner(&format!("tiny requests end, {pool}"), "tiny".to_owned(), pool.clone());
        let large = format!("{pool} WEIR_CAP=900MiB");
        manner(&format!("no cost grows with live blocks, {pool}"), "cost 8000".to_owned(), large);
    }
    suite.add("manners: WEIR_WARN: one line for each crossing", || {
        let done = Place::new().job(format!("jobs.py warn {CAP}"), "WEIR_WARN=75% WEIR_POOL=off").run().well();
        let lines: Vec<&str> = done.err.lines().collect();
        assert!(lines.len() == 2 && lines.iter().all(|l| l.contains("WEIR_WARN=75%")), "{done}");
    });
}

/// A charge comes off when the driver has let go of the memory, and not before.
fn exact(suite: &mut Suite) {
    let mut exact = |title: &str, words: &str, environment: &str| {
        let (name, arguments) = words.split_once(' ').unwrap_or((words, ""));
        holds(
            suite,
            format!("exact: {title}, {environment}"),
            format!("exact.py {name} {CAP} {arguments}"),
            environment,
        );
    };
    for mode in ["WEIR_POOL=off", "WEIR_POOL=novmm"] {
        exact("cuMemAlloc memory freed in stream order", "freed_in_order", mode);
    }
    for mode in ["WEIR_POOL=on", "WEIR_POOL=off"] {
        exact("the same beside another thread's capture", "freed_beside_capture", mode);
        exact("graphs launched and freed in several streams", "queued_graphs", mode);
        exact("small arrays beside other threads", "small_arrays", mode);
        exact("tiny requests at the cap", "tiny_at_the_cap", mode);
        for (handles, kind) in [(0, "plain"), (1, "shareable")] {
            let memory = format!("{mode} VGPU_BACKING=memory");
            let words = format!("destroyed_mempools {handles}");
            exact(&format!("a {kind} mempool destroyed under queued work"), &words, &memory);
            exact(
                &format!("the current {kind} mempool destroyed"),
                &format!("current_mempool_destroyed {handles}"),
                &memory,
            );
        }
    }
    for mode in ["WEIR_POOL=on", "WEIR_POOL=off", "WEIR_POOL=novmm"] {
        exact("cuCtxDetach", "detached", mode);
        exact("memory freed in another context", "freed_in_another_context", mode);
        exact("ends of the primary context", "primary_ends", mode);
        let devices = format!("{mode} VGPU_DEVICES=2");
        exact("memory that another device's work may touch", "reached_by_another", &devices);
        let devices = format!("{devices} VGPU_BACKING=memory");
        for (kind, ordered) in [("plain", 0), ("stream-ordered", 1)] {
            let words = format!("freed_elsewhere {ordered}");
            exact(&format!("{kind} memory freed in a stream of another device"), &words, &devices);
        }
    }
    for mode in ["WEIR_POOL=on", "WEIR_POOL=off"] {
        for sharer in ["code", "third", "array"] {
            let title = format!("a chunk that code of two contexts shares ({sharer})");
            exact(&title, &format!("shared_code {sharer}"), mode);
        }
    }
    exact("a handle imported where it was exported", "own_export", "");
    exact("handles of several threads", "threads_of_handles", "");
    exact("code of several contexts", "code_of_contexts", "");
    exact("code loaded while queued frees happen", "code_beside_frees", "WEIR_POOL=off");
    for (kind, mode) in ["blocks", "arrays"].into_iter().flat_map(|kind| MODES.map(|mode| (kind, mode))) {
        suite.add(format!("exact: {kind} of contexts that end beside each other, WEIR_POOL={mode}"), move || {
            let place = Place::new();
            let program = place.0.at("ends");
            let vgpu = format!("-L{}", stage().vgpu().display());
            cc(&program, [stage().file("caps/ends.c").as_os_str(), vgpu.as_ref(), "-l:libcuda.so.1".as_ref()]);
            let job = place.arrange(Job::new(&program)).words(format!("{kind} {CAP}"));
            let _ = job.set(format!("WEIR_POOL={mode}")).run().quiet();
        });
    }
    suite.add("exact: addresses of ended contexts are handed on", || {
        let place = Place::new();
        let done = place.job(format!("exact.py handed_on {CAP}"), "WEIR_POOL=off WEIR_RING=1M").run().well();
        let reported = done.json();
        let report = place.weir("report --json --at end").arg(reported["file"].as_str().expect("a journal")).run();
        let parts = &report.json()["driver"]["parts"];
        let live = parts.as_array().into_iter().flatten().find(|part| part[0] == "live");
        assert!(live.is_some_and(|part| part[1] == reported["live"]), "the journal says {live:?}\n{done}");
    });
}

/// No lock is held at a driver call: such a call may wait for the device, and nobody else stands then.
fn locks(suite: &mut Suite) {
    for (name, waits) in [
        ("handles", "cuMemRelease=work,cuMemUnmap=work"),
        ("mempools", "cuMemPoolTrimTo=work"),
        ("destroyed", "cuMemPoolDestroy=work"),
        ("arrays", "cuArrayDestroy=work"),
    ] {
        let title = format!("locks: requests go on while a call waits for the device: {name}");
        holds(suite, title, format!("beside.py {name}"), format!("WEIR_POOL=off WEIR_CAP=512MiB VGPU_COST={waits}"));
    }
    // The build that checks ends a job that has a lock in hand at a driver call.
    for (words, mode) in [
        ("threads_of_handles", "on"),
        ("small_arrays", "on"),
        ("small_arrays", "off"),
        ("queued_graphs", "off"),
        ("destroyed_mempools 1", "off"),
        ("code_of_contexts", "off"),
        ("code_beside_frees", "off"),
        ("primary_ends", "off"),
        ("freed_in_order", "novmm"),
    ] {
        suite.add(format!("locks: none is held at a driver call: {words}, WEIR_POOL={mode}"), move || {
            let (name, rest) = words.split_once(' ').unwrap_or((words, ""));
            let place = Place::new();
            let job =
                place.job(format!("exact.py {name} {CAP} {rest}"), format!("WEIR_POOL={mode} VGPU_BACKING=memory"));
            let _ = job.under(stage().weir_with_faults()).run().quiet();
        });
    }
    suite.add("locks: WEIR_FAULT=call is noticed", || {
        let place = Place::new();
        let job = place.job(format!("exact.py threads_of_handles {CAP}"), "WEIR_FAULT=call");
        let done = job.under(stage().weir_with_faults()).run();
        assert!(done.code != 0 && done.says("holds a lock calls") && done.says("holding Handles"), "{done}");
    });
}

/// The time that a test gives a job before it takes it for hung, in seconds.
pub(crate) fn patience() -> u64 {
    PATIENCE.as_secs()
}
