//! Which allocator serves TensorFlow's tensors, and how long a request for one waits.

use crate::Place;
use std::path::PathBuf;
use std::sync::LazyLock;
use weir_tests::harness::{Scratch, Suite, cc, stage};

/// What stands in for TensorFlow.
static LIBRARY: LazyLock<(Scratch, PathBuf)> = LazyLock::new(|| {
    let scratch = Scratch::new();
    let file = scratch.at("libtensorflow_framework.so.2");
    let source = stage().file("machines/tensorflow.c");
    let soname = "-Wl,-soname,libtensorflow_framework.so.2".into();
    cc(&file, ["-shared".into(), "-fPIC".into(), soname, source.into_os_string()]);
    (scratch, file)
});

fn words(name: &str) -> String {
    format!("tensors.py {name} {}", LIBRARY.1.display())
}

const POOL: &str = "weir's pool: ";
const OWN: &str = "TensorFlow's own allocator: ";

pub(crate) fn tensors(suite: &mut Suite) {
    for (title, environment, variable, choice, why) in [
        ("memory pools everywhere", "VGPU_DEVICES=2", true, POOL, "every visible device has memory pools"),
        ("no memory pools", "VGPU_POOLS=off", false, OWN, "device 0 has no memory pools"),
        (
            "no virtual memory management and no memory pools",
            "VGPU_PROFILE=vgpu-guest",
            false,
            OWN,
            "device 0 has no memory pools",
        ),
        ("unified memory", "TF_FORCE_UNIFIED_MEMORY=1", false, OWN, "TF_FORCE_UNIFIED_MEMORY is set"),
        ("unified memory switched off", "TF_FORCE_UNIFIED_MEMORY=false", true, POOL, "every visible device"),
        ("keep", "WEIR_TF_ALLOCATOR=keep", false, OWN, "WEIR_TF_ALLOCATOR=keep"),
        (
            "pool, though there are no memory pools",
            "WEIR_TF_ALLOCATOR=pool VGPU_POOLS=off",
            true,
            POOL,
            "WEIR_TF_ALLOCATOR=pool",
        ),
    ] {
        suite.add(format!("tensors: {title}"), move || {
            let place = Place::new();
            let done = place.job(&words("choice"), environment).run().quiet();
            let reported = done.json();
            assert_eq!(reported["variable"] == "cuda_malloc_async", variable, "{done}");
            let choices: Vec<_> = reported["choices"].as_array().into_iter().flatten().collect();
            let text = choices.iter().find(|said| said["subject"] == "tensors").map(|said| said["choice"].to_string());
            let said = text.is_some_and(|text| text.contains(choice) && text.contains(why));
            assert!(said, "expected {choice}{why}\n{done}");
            let report = place.weir("report --json").run().well().json();
            let noted = report["choices"].to_string();
            assert!(noted.contains(choice) && noted.contains(why), "the journal has {noted}");
        });
    }
    suite.add("tensors: what the job has set stays", || {
        let place = Place::new();
        let done = place.job(&words("choice"), "TF_GPU_ALLOCATOR=cuda_malloc VGPU_POOLS=off").run().quiet();
        let reported = done.json();
        assert!(reported["variable"] == "cuda_malloc" && done.out.contains("as the job chose"), "{done}");
    });
    suite.add("tensors: nothing is set in a process without TensorFlow", || {
        let done = Place::new().job("tensors.py plain", "").run().quiet();
        let reported = done.json();
        assert!(reported["variable"].is_null() && reported["choices"].as_array().is_some_and(Vec::is_empty), "{done}");
        assert!(reported["tensors"].to_string().contains(POOL), "{done}");
    });
    suite.add("tensors: weir run -v says what was chosen, in one line", || {
        let place = Place::new();
        let script = stage().file("machines/tensors.py");
        let run = |options: &str| {
            let job =
                place.weir(&format!("run {options} -- python3 {} choice {}", script.display(), LIBRARY.1.display()));
            job.on_vgpu().set("VGPU_POOLS=off VGPU_MEM=1GiB WEIR_RING=16K").run().well()
        };
        let lines = |err: &str| err.lines().filter(|line| line.contains("tensors: ")).count();
        let (reported, silent) = (run("-v"), run(""));
        assert!(lines(&reported.err) == 1 && reported.err.contains("device 0 has no memory pools"), "{reported}");
        assert!(lines(&silent.err) == 0, "{silent}");
    });
    for (title, environment) in [("at the cap", "WEIR_CAP=128MiB"), ("on a full device", "VGPU_MEM=256MiB")] {
        suite.add(format!("tensors: a request waits for another thread's free, {title}"), move || {
            let _ = Place::new().job(&words("waits"), environment).run().quiet();
        });
        suite.add(format!("tensors: a request that BFC would not try again fails at once, {title}"), move || {
            let _ = Place::new().job(&words("at_once"), environment).run().quiet();
        });
    }
}
