//! Drivers that lack what came after them: the virtual GPU with the version of an older driver, and without the symbols that
//! the public headers date later. Newer callers and weir itself must do without.

use crate::Place;
use std::collections::HashMap;
use std::path::PathBuf;
use weir_cuda::FUNCTIONS;
use weir_tests::harness::{MIB, Scratch, Suite, stage};

/// Branches of drivers, and the version of CUDA that each of them says it has.
const DRIVERS: [(&str, i32); 4] = [("470", 11_040), ("535", 12_020), ("560", 12_060), ("580", 13_000)];

/// Jobs and their environments.
const JOBS: [(&str, &str); 6] = [
    ("pool.py serves", ""),
    ("pool.py serves", "VGPU_VMM=off"),
    ("others.py mesh", "VGPU_MEM=64MiB"),
    ("others.py sync_memops", "VGPU_SYNC_MEMOPS=off"),
    ("others.py copies", "VGPU_DEVICES=2 VGPU_P2P=off VGPU_COPY=executing"),
    ("drivers.py spills", "WEIR_CAP=64MiB WEIR_ON_CAP=spill"),
];

/// The virtual GPU's folder as a driver of this version has it, and a symbol that it lacks.
fn older(scratch: &Scratch, version: i32) -> (PathBuf, &'static str) {
    let folder = scratch.folder("driver");
    for file in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        std::fs::copy(stage().vgpu().join(file), folder.join(file)).expect("a copy");
    }
    let library = folder.join("libcuda.so.1");
    let mut bytes = std::fs::read(&library).expect("the library");
    let late: Vec<&str> = FUNCTIONS.iter().filter(|of| of.version > version).map(|of| of.symbol).collect();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut at = 0;
    for word in bytes.split(|byte| *byte == 0) {
        if let Some(name) = late.iter().find(|name| name.as_bytes() == word) {
            // The names that the loader reads come first in the file.
            places.entry(name).or_insert(at);
        }
        at += word.len() + 1;
    }
    assert_eq!(places.len(), late.len(), "the library has not all names of the public list");
    for at in places.into_values() {
        // A name that is not the one that its hash stands for is never found.
        bytes[at] = b'-';
    }
    std::fs::write(&library, bytes).expect("the library");
    (folder, late.last().expect("a later function"))
}

pub(crate) fn drivers(suite: &mut Suite) {
    for (branch, version) in DRIVERS {
        suite.add(
            format!("drivers: {branch}, without what came after CUDA {}.{}", version / 1000, version % 1000 / 10),
            move || {
                let scratch = Scratch::new();
                let (folder, lacking) = older(&scratch, version);
                let variables = format!("VGPU_DRIVER={}.{}", version / 1000, version % 1000 / 10);
                let run = |words: &str, environment: &str| {
                    let job = Place::new().job(words, environment);
                    job.env("LD_LIBRARY_PATH", &folder).set(&variables).run().quiet()
                };
                let _ = run(&format!("drivers.py lacks {lacking}"), "");
                let _ = run(&format!("pool.py capped {}", 96 * MIB), "WEIR_CAP=96MiB");
                for (words, environment) in JOBS {
                    let _ = run(words, environment);
                }
            },
        );
    }
}
