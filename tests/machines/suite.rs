//! weir on machines that are no ideal A100: memory pools that are missing, flags that are refused, little address space,
//! memory that modules and page tables take, devices without access to each other, third parties that pin pages.
//!
//! Each trial starts a job of this folder on the virtual GPU as such a machine has it (`VGPU_*`), under libweir.so. What
//! counts is what the virtual GPU says and refuses; the job fails by its exit code.

mod checks;
mod drivers;
mod footing;
mod odd;
mod others;
mod tensors;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;
use weir_tests::harness::{Job, Scratch, Suite, stage};

/// The folders of one trial.
struct Place(Scratch);

impl Place {
    fn new() -> Self {
        let place = Self(Scratch::new());
        place.0.folder("dir");
        place
    }

    /// A job of this folder under weir: `FILE NAME ARGUMENT...`, and what its environment has besides.
    fn job(&self, words: &str, environment: &str) -> Job {
        let (file, arguments) = words.split_once(' ').expect("a file and a job");
        Job::python(&format!("machines/{file}"))
            .on_vgpu()
            .under(stage().weir())
            .env("HOME", self.0.at("home"))
            .env("WEIR_DIR", self.0.at("dir"))
            .set("VGPU_MEM=1GiB VGPU_BACKING=memory WEIR_RING=16K WEIR_OOM_TEXT=off")
            .words(arguments)
            .set(environment)
    }

    /// The command, outside the job.
    fn weir(&self, words: &str) -> Job {
        Job::new(stage().command()).env("HOME", self.0.at("home")).env("WEIR_DIR", self.0.at("dir")).words(words)
    }
}

/// How often the virtual GPU's log has a function, by the name that all its versions share.
fn calls(trace: &Path, name: &str) -> usize {
    let lines = BufReader::new(std::fs::File::open(trace).expect("the log")).lines();
    let function = |line: std::io::Result<String>| -> serde_json::Value {
        serde_json::from_str(&line.expect("a line")).expect("JSON")
    };
    lines.map(function).filter(|call| call["fn"] == name || call["fn"] == format!("{name}_v2")).count()
}

/// A trial for a job that must end well and without a word on standard error.
fn holds(suite: &mut Suite, title: &str, words: &'static str, environment: &'static str) {
    suite.add(title, move || {
        let _ = Place::new().job(words, environment).run().quiet();
    });
}

fn main() -> ExitCode {
    let mut suite = Suite::new();
    suite.threads(4);
    access(&mut suite);
    tensors::tensors(&mut suite);
    footing::footing(&mut suite);
    others::hidden(&mut suite);
    others::third_parties(&mut suite);
    others::copies(&mut suite);
    others::contexts(&mut suite);
    others::edits(&mut suite);
    others::remote(&mut suite);
    drivers::drivers(&mut suite);
    checks::checks(&mut suite);
    odd::odd(&mut suite);
    others::parts(&mut suite);
    suite.run()
}

/// Access that the job sets on a mempool.
fn access(suite: &mut Suite) {
    let two = "VGPU_DEVICES=2";
    holds(suite, "access: set on the default mempool before its first allocation", "access.py before", two);
    holds(suite, "access: set on the default mempool after its first allocation", "access.py after", two);
    holds(suite, "access: set on a mempool of the job's before its first allocation", "access.py own", two);
}
