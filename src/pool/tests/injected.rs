//! The table of faults: every injected fault must be seen by the property test within 10^5 operations.
//! Touches one process-wide switch, so it is one test in a binary of its own.

mod strict;

use strict::program::{KINDS, Program};
use weir_pool::{Fault, inject};

const LIMIT: u64 = 100_000;

/// Operations until the fault is seen, over all kinds and seeds in turn.
fn caught(fault: Fault) -> Option<(u64, String)> {
    inject(fault);
    let (mut operations, mut seed) = (0, 1);
    while operations < LIMIT {
        for kind in &KINDS {
            let mut program = Program::new(kind, seed * 7919);
            let share = 2_500.min(LIMIT - operations);
            match program.run(share) {
                Ok(()) => operations += share,
                Err((at, what)) => return Some((operations + at + 1, what)),
            }
            if operations >= LIMIT {
                break;
            }
        }
        seed += 1;
    }
    None
}

#[test]
fn every_mutation_is_caught() {
    let mut missed = Vec::new();
    println!("{:<26} {:>10}  first sign", "fault", "operations");
    for fault in Fault::ALL {
        // A fault may also break the pool so badly that a check inside the test itself fails.
        let result = std::panic::catch_unwind(|| caught(fault));
        match result {
            Ok(Some((at, what))) => {
                println!("{:<26} {at:>10}  {}", format!("{fault:?}"), what.chars().take(90).collect::<String>());
            }
            Ok(None) => {
                println!("{:<26} {:>10}", format!("{fault:?}"), "MISSED");
                missed.push(fault);
            }
            Err(_) => println!("{:<26} {:>10}  a panic", format!("{fault:?}"), "-"),
        }
    }
    assert!(caught(Fault::None).is_none(), "the pool itself fails");
    assert!(missed.is_empty(), "not caught within {LIMIT} operations: {missed:?}");
}
