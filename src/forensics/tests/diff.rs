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
    let same = row(&found.end.by_role, "variables");
    assert_eq!((same.before, same.after), (same.after, same.before));
    assert_eq!(row(&found.end.by_role, "context and code").after.bytes, 8 * MIB);
    assert_eq!(row(&found.peak.by_op, "dense/MatMul").bytes(), 0);
    assert_eq!(found.allocations, (205, found.allocations.1));
}
