//! libweir.so in unusual processes, beside other preloads, with faults inside, and against the conformance suite.
//!
//! Processes run bare and under the library, and everything that is seen of them from outside is compared. As a
//! pass-through (`WEIR_POOL=off`) the library must change no rule's outcome, word for word.

mod beside;
mod everyday;
mod faults;
mod fixtures;
mod library;
mod process;

use std::collections::BTreeSet;
use std::process::{Command, ExitCode};
use weir_tests::harness::{Scratch, Suite, bare, stage};
use weir_tests::rule::Rule;
use weir_tests::{rules, runner};

fn main() -> ExitCode {
    let mut suite = Suite::new();
    fixtures::trials(&mut suite);
    beside::trials(&mut suite);
    faults::trials(&mut suite);
    everyday::trials(&mut suite);
    library::trials(&mut suite);
    let families: BTreeSet<&str> = rules::all().iter().map(family).collect();
    for driver in ["12.8", "13.4", "11.8"] {
        for wanted in &families {
            let wanted = *wanted;
            suite.add(format!("conformance, driver {driver}: {wanted}"), move || {
                let driver = format!("VGPU_DRIVER={driver}");
                assert_eq!(outcomes(wanted, &[&driver], true), outcomes(wanted, &[&driver], false), "left: under weir");
            });
        }
    }
    // The comparison can fail at all.
    suite.add("conformance: weir that lets cuInit fail makes a difference", || {
        let broken = outcomes("memory", &["WEIR_CAP=not-a-size"], true);
        assert_ne!(broken, outcomes("memory", &[], false), "the suite does not run through weir");
    });
    suite.run()
}

fn family(rule: &Rule) -> &'static str {
    rule.id.split('.').next().unwrap_or(rule.id)
}

/// How each rule of a family comes out.
fn outcomes(wanted: &str, environment: &[&str], under: bool) -> Vec<String> {
    let scratch = Scratch::new();
    let chosen: Vec<Rule> = rules::all().into_iter().filter(|rule| family(rule) == wanted).collect();
    let start = || {
        let mut command = Command::new(stage().program("conformance"));
        bare(&mut command);
        command.env("LD_LIBRARY_PATH", stage().vgpu());
        if under {
            // Every rule is a process with a journal of its own: small ones, in a place of their own.
            command.env("LD_PRELOAD", stage().weir()).env("WEIR_DIR", scratch.path());
            command.envs([("WEIR_POOL", "off"), ("WEIR_RING", "64,512"), ("WEIR_OOM_TEXT", "off")]);
        }
        command.envs(environment.iter().filter_map(|assignment| assignment.split_once('=')));
        command
    };
    let verdicts = runner::run(&start, &chosen, 1);
    assert!(!chosen.is_empty() && verdicts.len() == chosen.len(), "every rule has a verdict");
    verdicts.iter().map(|v| format!("{}: {:?}", v.rule.id, v.outcome)).collect()
}
