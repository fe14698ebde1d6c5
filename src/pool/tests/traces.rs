//! The recorded traces fit into what was promised, and the reader of traces bears with bad files.
//! Reads the trace files that come with the crate.

#![allow(dead_code)]

#[path = "../bench/replay.rs"]
mod replay;
#[path = "../bench/trace.rs"]
mod trace;

use std::path::PathBuf;
use trace::Trace;

fn read(name: &str) -> Trace {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("traces").join(format!("{name}.txt.gz"));
    Trace::read(&path).expect("comes with the crate")
}

/// Trace, and the capacity it must fit into, as a multiple of its peak, with 2 and 8 MiB handles.
const PROMISES: [(&str, f64, f64); 6] = [
    ("gpt2m_fixed", 1.005, 1.012),
    ("gpt2m_varlen", 1.005, 1.012),
    ("gpt2s_smallbatch", 1.02, 1.03),
    ("llama1b_ckpt", 1.005, 1.012),
    ("raw_small_phase", 1.45, 1.45),
    ("resnet50_fixed", 1.005, 1.012),
];

#[test]
fn traces_fit_into_what_was_promised() {
    for (name, two, eight) in PROMISES {
        let trace = read(name);
        for (mib, ratio) in [(2, two), (8, eight)] {
            let capacity = (trace.peak as f64 * ratio) as u64;
            assert!(replay::replay(&trace, mib << 20, capacity, false).is_some(), "{name} at {ratio} with {mib} MiB");
        }
    }
}

/// What TensorFlow requests below 64 KiB: 1000 steps of a recurrent model, 500 of a transformer, 10 of ResNet50.
#[test]
fn small_requests_of_tensorflow_waste_next_to_nothing() {
    for name in ["tiny_recurrent", "tiny_transformer", "tiny_resnet50"] {
        let trace = read(name);
        let capacity = (trace.peak as f64 * 1.05) as u64 + (2 << 20);
        for mib in [2, 8] {
            let outcome = replay::replay(&trace, mib << 20, capacity, false);
            assert!(outcome.is_some(), "{name}, peak {}, does not fit into {capacity} with {mib} MiB", trace.peak);
        }
        // With room: they take no more than that all the same.
        let outcome = replay::replay(&trace, 2 << 20, 1 << 30, false).expect("there is room");
        let held = outcome.stats.mapped_bytes;
        assert!(held <= capacity, "{name}, peak {}, holds {held} where there is room", trace.peak);
    }
}

#[test]
fn fixed_shapes_need_no_driver_after_the_second_iteration() {
    for name in ["gpt2m_fixed", "resnet50_fixed"] {
        let trace = read(name);
        assert!(trace.period.is_some_and(|(_, exact)| exact), "{name} repeats itself");
        for mib in [2, 8] {
            let capacity = (trace.peak as f64 * 1.03) as u64;
            let outcome = replay::replay(&trace, mib << 20, capacity, false).expect("fits");
            let calls: Vec<u64> = outcome.iterations.iter().map(|stats| stats.calls.memory()).collect();
            // The first entry is the end of the set-up, the next two are the first two iterations.
            assert_eq!(calls.get(2), calls.last(), "{name} with {mib} MiB: {calls:?}");
        }
    }
}

#[test]
fn synchronous_frees_fit_too() {
    let trace = read("resnet50_fixed");
    let outcome = replay::replay(&trace, 2 << 20, (trace.peak as f64 * 1.01) as u64, true).expect("fits");
    assert!(outcome.stats.self_syncs > 0, "nothing is reusable before a synchronisation");
}

#[test]
fn odd_traces_are_read_or_refused_clearly() {
    let parse = |text: &str| Trace::parse("t".into(), text);
    assert!(parse("").unwrap_err().contains("no allocation"));
    assert!(parse("7 -100\n").unwrap_err().contains("no allocation"));
    assert!(parse("1 2\nrubbish\n").unwrap_err().contains("line 2"));
    assert!(parse("1 0\n").unwrap_err().contains("line 1"));
    assert!(parse("1 99999999999999999999\n").is_err());
    let reused = parse("# x\na 100\na 50\na -50\na -50\n").expect("an id may come again");
    assert_eq!((reused.peak, reused.blocks, reused.unknown_frees, reused.events.len()), (100, 2, 1, 4));
    let huge = parse("1 9000000000000000000\n2 5\n").expect("huge, but a number");
    assert!(replay::replay(&huge, 2 << 20, 1 << 40, false).is_none());
}
