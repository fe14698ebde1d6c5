//! Two made-up runs side by side.

use std::path::{Path, PathBuf};

use weir_forensics::Run;
use weir_forensics::diff::{Change, diff};
use weir_forensics::synthetic::{End, Job, MIB};
use weir_journal::Class;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A job that keeps `kept` history blocks of a line and frees its activations; with the room for events that is given.
fn job(dir: &Path, kept: u64, events: u64) -> Run {
    let mut job = Job::new(dir, events).expect("a journal");
    let (weights, forward, history) =
        (job.who("dense/kernel/Initializer/fill", 10), job.who("dense/MatMul", 20), job.who("", 30));
    job.alloc(weights, 100 * MIB);
    for step in 0..200 {
        let activation = job.alloc(forward, 50 * MIB);
        if step < kept {
            job.alloc(history, MIB);
        }
        job.free(activation);
    }
    job.alloc_as(Class::Overhead, 0, weir_journal::Attribution::default(), 8 * MIB);
    Run::open(&job.end(End::Exit).expect("a file")).expect("a run")
}

fn row<'a>(changes: &'a [Change], name: &str) -> &'a Change {
    changes.iter().find(|change| change.name == name).unwrap_or_else(|| panic!("{name} is not in {changes:?}"))
}

#[test]
fn what_grew_comes_first() {
    let scratch = Scratch(std::env::temp_dir().join(format!("weir-diff-{}", std::process::id())));
    // The second journal has lost its beginning.
    let (before, after) = (job(&scratch.0.join("a"), 3, 4096), job(&scratch.0.join("b"), 40, 128));
    let found = diff(&before, &after, 0, &mut |_, _| {}).expect("readable");
    let line = &found.peak.by_line[0];
    assert_eq!(
        (line.name.as_str(), line.before.bytes, line.after.bytes),
        ("train.py:30 in train_step", 3 * MIB, 40 * MIB)
    );
    assert_eq!((line.before.blocks, line.after.blocks), (3, 40));
    assert_eq!(found.peak.total.0.bytes, 153 * MIB);
    assert_eq!(found.peak.total.1.bytes, 190 * MIB);
    // At the end the activations are gone, and the context is there.
    assert_eq!((found.end.total.0.bytes, found.end.total.1.bytes), (111 * MIB, 148 * MIB));
    let same = row(&found.end.by_role, "parameters");
    assert_eq!((same.before, same.after), (same.after, same.before));
    assert_eq!(row(&found.end.by_role, "overhead").after.bytes, 8 * MIB);
    assert_eq!(row(&found.peak.by_op, "dense/MatMul").bytes(), 0);
    assert_eq!(found.allocations, (205, found.allocations.1));
}

#[test]
fn roles_of_an_eager_job_are_those_of_the_report() {
    let scratch = Scratch(std::env::temp_dir().join(format!("weir-diff-{}-eager", std::process::id())));
    let eager = |name: &str, times: u64| {
        let mut job = Job::new(&scratch.0.join(name), 1024).expect("a journal");
        // Names without a scope, as TensorFlow gives them outside of functions; where they say nothing, lines do.
        let optimizer =
            [("/v/site-packages/keras/src/optimizers/adam.py", "build", 104), ("/home/me/train.py", "f", 9)];
        for (by, mib) in [
            (job.who("_EagerConst", 10), 1),
            (job.who("AssignSubVariableOp", 11), 2),
            (job.who("Relu", 12), 4),
            (job.who("ReluGrad", 13), 8),
            (job.by("Fill", "output", &optimizer), 16),
            (job.by("Conv2D", "temp", &[("/home/me/train.py", "f", 12)]), 32),
        ] {
            job.alloc(by, mib * times * MIB);
        }
        Run::open(&job.end(End::Exit).expect("a file")).expect("a run")
    };
    let found = diff(&eager("a", 1), &eager("b", 2), 0, &mut |_, _| {}).expect("readable");
    let grown: Vec<(&str, i64)> =
        found.end.by_role.iter().map(|change| (change.name.as_str(), change.bytes() / MIB as i64)).collect();
    let wanted = [
        ("workspaces", 32),
        ("optimizer state", 16),
        ("gradients", 8),
        ("activations", 4),
        ("parameters", 2),
        ("inputs", 1),
    ];
    assert_eq!(grown, wanted);
}
