//! The conformance suite on the virtual GPU: a trial for each rule, in a process of its own, and one for each injected
//! fault of the virtual GPU, which some rule must notice.

use std::path::Path;
use std::process::{Command, ExitCode};
use weir_tests::harness::{Suite, bare, stage};
use weir_tests::rule::Rule;
use weir_tests::rules;
use weir_tests::runner::{self, Outcome, Verdict};

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for rule in rules::all() {
        suite.add(rule.id, move || {
            for verdict in shown(&stage().vgpu(), &[rule], None) {
                // A rule may be about what only other devices can do; it says so.
                let held = matches!(verdict.outcome, Outcome::Passed | Outcome::Skipped(_));
                assert!(held, "{}: {}\n{:?}", rule.function, rule.says, verdict.outcome);
            }
        });
    }
    suite.add("profiles: every rule holds or does not apply, and the page says how many", || {
        let mut command = Command::new(stage().program("conformance"));
        bare(&mut command);
        let out = command.arg("--profiles").env("LD_LIBRARY_PATH", stage().vgpu()).output().expect("the suite starts");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let table = String::from_utf8(out.stdout).expect("a table");
        let page = std::fs::read_to_string(stage().root.join("docs/internals/virtual-gpu.md")).expect("the page");
        assert!(page.contains(&table), "docs/internals/virtual-gpu.md should have this table:\n{table}");
    });
    suite.add("faults: none, and every rule holds", || {
        let failed = failures(&shown(&stage().vgpu_with_faults(), &rules::all(), None));
        assert!(failed.is_empty(), "{failed:#?}");
    });
    for (name, what) in faults() {
        suite.add(format!("faults: {name}"), move || {
            let verdicts = shown(&stage().vgpu_with_faults(), &rules::all(), Some(name));
            assert!(!failures(&verdicts).is_empty(), "no rule noticed: {what}");
        });
    }
    suite.run()
}

/// Shows rules on a virtual GPU, with one of its faults.
fn shown(vgpu: &Path, rules: &[Rule], fault: Option<&str>) -> Vec<Verdict> {
    let start = || {
        let mut command = Command::new(stage().program("conformance"));
        bare(&mut command);
        command.env("LD_LIBRARY_PATH", vgpu).envs(fault.map(|name| ("VGPU_FAULT", name)));
        command
    };
    let verdicts = runner::run(&start, rules, 1);
    assert_eq!(verdicts.len(), rules.len(), "every rule has a verdict");
    verdicts
}

fn failures(verdicts: &[Verdict]) -> Vec<String> {
    let failed = verdicts.iter().filter(|v| matches!(v.outcome, Outcome::Failed(_)));
    failed.map(|v| format!("{}: {:?}", v.rule.id, v.outcome)).collect()
}

/// The injected faults: name and meaning.
fn faults() -> Vec<(&'static str, &'static str)> {
    let lines = include_str!("../faults.txt").lines().filter(|l| !l.starts_with('#'));
    lines.filter_map(|l| l.split_once(' ')).map(|(name, what)| (name, what.trim())).collect()
}
