//! Remedies on journals written for the purpose: each once where it helps, and once where it would not and is therefore
//! not advised. All go through files, the real reader and the whole report; replays go through the real pool.

mod allocators;
mod host;
mod lacking;
#[path = "../scratch/mod.rs"]
mod scratch;

use scratch::Scratch;
use weir_forensics::Run;
use weir_forensics::remedies::{Act, Check};
use weir_forensics::report::{Options, Report};
use weir_forensics::synthetic::{End, GIB, Job, MIB};
use weir_forensics::text::{Look, screen};
use weir_journal::{Attribution, Class, Situation};

const KIB: u64 = 1 << 10;

/// The report of a job on a device of 40 GiB.
fn report(name: &str, events: u64, act: impl FnOnce(&mut Job)) -> Report {
    let scratch = Scratch::new(name);
    let mut job = Job::new(&scratch.0, events).unwrap();
    act(&mut job);
    let run = Run::open(&job.end(End::Exit).unwrap()).unwrap();
    Report::of(&run, &Options::default(), |_, _| {}).unwrap()
}

fn told(name: &str, act: impl FnOnce(&mut Job)) -> Report {
    report(name, 1 << 14, act)
}

/// The remedy with these words: it was tried on the requests, on whole steps or on those that there are.
#[track_caller]
fn helps(report: &Report, words: &str) -> String {
    let found = report.remedies.iter().find(|remedy| remedy.text.contains(words));
    let found = found.unwrap_or_else(|| panic!("no {words:?} in {:#?}, {:?}", report.remedies, report.useless));
    match found.check {
        Check::Replayed => assert!(found.how.starts_with("replayed"), "{found:?}"),
        check => assert_eq!((check, found.how.starts_with("estimated from ")), (Check::Estimated, true), "{found:?}"),
    }
    // Who reads kind and value does what the text says.
    let said = match &found.act {
        Act::StopGrowth(line) => line.clone(),
        Act::SmallerBatch(parts) => format!("batch / {parts}"),
        Act::InParts(parts) => format!("in {parts} parts"),
        Act::Cap(bytes) => format!("WEIR_CAP={}MiB", bytes / MIB),
        Act::MemoryLimit(mib) => format!("memory_limit={mib}"),
        Act::Environment(variables) => (*variables).to_owned(),
        _ => String::new(),
    };
    assert!(found.text.contains(&said), "{said:?} is not in {:?}", found.text);
    found.text.clone()
}

/// No remedy has these words, and it is told that the thing of this name would not help.
#[track_caller]
fn useless(report: &Report, words: &str, name: &str) {
    let advised = report.remedies.iter().any(|remedy| remedy.text.contains(words));
    assert!(!advised, "{words:?} is advised: {:#?}", report.remedies);
    assert!(report.useless.iter().any(|other| other == name), "{name:?} is not among {:?}", report.useless);
    let text = screen(
        report,
        &Look { width: 200, height: 60, colour: false, offset: 0, now: 0, holders: None, details: true },
    );
    assert!(text.lines().any(|line| line.starts_with("Not ") && line.contains(name)), "{text}");
}

/// The remedy with these words cannot be tried, for this reason.
#[track_caller]
fn impossible(report: &Report, words: &str, why: &str) {
    let found = report.remedies.iter().find(|remedy| remedy.text.contains(words));
    let found = found.unwrap_or_else(|| panic!("no {words:?} in {:#?}", report.remedies));
    assert_eq!(found.check, Check::Estimated, "{found:?}");
    assert!(found.how.starts_with("estimated, not replayed: ") && found.how.contains(why), "{found:?}");
}

fn device(free: u64) -> Situation {
    Situation { device_total: 40 * GIB, device_free: free, ..Situation::default() }
}

fn capped(cap: u64, charged: u64, free: u64) -> Situation {
    Situation { cap, charged, ..device(free) }
}

fn weights(job: &mut Job, bytes: u64) {
    let by = job.by("StatelessRandomUniformV2", "output", &[("/v/site-packages/keras/layer.py", "add_weight", 9)]);
    for _ in 0..8 {
        job.alloc(by, bytes / 8);
    }
}

fn typed(job: &Job, name: &str, dtype: u32) -> Attribution {
    let op = job.journal.op(&weir_journal::Op { name, region: "output", shape: "", dtype });
    Attribution { op, ..Attribution::default() }
}

/// Weights, activations in one long step, and a refused activation.
fn large_model(job: &mut Job, parameters: u64, activations: u64, asked: u64) {
    weights(job, parameters);
    job.step();
    for layer in 0..64 {
        job.alloc(job.who(&format!("model/conv{layer}/Conv2D"), 20), activations / 64);
    }
    let free = (40 * GIB).saturating_sub(parameters + activations);
    job.refused(job.who("model/conv64/Conv2D", 20), asked, &device(free));
}

#[test]
fn half_a_batch_fits() {
    let report = told("batch", |job| large_model(job, 10 * GIB, 28 * GIB, 4 * GIB));
    // 10 GiB of weights, and half of 28 and of 4.
    let text = helps(&report, "batch / 2");
    assert!(text.contains("at most 26.00 GiB are live") && text.contains("workspaces stay"), "{text}");
    let json = serde_json::to_value(&report.remedies[0]).unwrap();
    assert_eq!((&json["kind"], &json["value"]), (&"smaller_batch".into(), &2.into()), "{json}");
}

#[test]
fn the_largest_part_of_a_batch_that_fits_is_advised() {
    let report = told("quarter", |job| large_model(job, 30 * GIB, 9 * GIB, 20 * GIB));
    // Half of 29 GiB is too much beside 30.
    assert!(helps(&report, "batch / 4").contains("at most 37.25 GiB are live"));
    assert!(!report.remedies.iter().any(|remedy| remedy.text.contains("batch / 2")), "{:?}", report.remedies);
}

#[test]
fn no_batch_fits_beside_the_weights() {
    let report = told("no-batch", |job| large_model(job, 39 * GIB + 900 * MIB, 64 * MIB, 20 * GIB));
    useless(&report, "batch /", "a smaller batch");
}

#[test]
fn gradients_of_weights_do_not_shrink_with_the_batch() {
    let story = |size: u64| {
        move |job: &mut Job| {
            weights(job, 16 * GIB);
            job.step();
            let backward = job.who("gradient_tape/model/conv/Conv2DBackpropFilter", 22);
            for _ in 0..11 {
                job.alloc(backward, size);
            }
            job.refused(job.who("model/conv/Conv2D", 20), 4 * GIB, &device(40 * GIB - 16 * GIB - 11 * size));
        }
    };
    // Weights are of 2 GiB each.
    let report = told("weight-gradients", story(2 * GIB));
    assert!(helps(&report, "batch / 2").contains("at most 40.00 GiB are live"), "{:?}", report.remedies);
    let report = told("gradients", story(2 * GIB + 64 * MIB));
    assert!(helps(&report, "batch / 2").contains("at most 29.35 GiB are live"), "{:?}", report.remedies);
}

#[test]
fn float32_instead_of_float64() {
    let doubles = |share: u64| {
        move |job: &mut Job| {
            job.alloc(typed(job, "Cast", 2), share);
            job.alloc(typed(job, "model/Relu", 3), 30 * GIB - share);
            job.refused(typed(job, "MatMul", 3), 12 * GIB, &device(10 * GIB));
        }
    };
    let text = helps(&told("doubles", doubles(20 * GIB)), "float64");
    assert!(text.contains("20.00 GiB are float64") && text.contains("at most 32.00 GiB are live"), "{text}");
    // 12 GiB are asked for and 10 free: half of 3 is not enough.
    useless(&told("few-doubles", doubles(3 * GIB)), "float64", "float32 instead of float64");
}

#[test]
fn an_operation_without_a_type_has_that_of_its_line() {
    let report = told("untyped", |job| {
        let lines = [job.journal.line("/home/me/train.py", "train_step", 13)];
        let python = job.journal.python(&lines);
        for (name, dtype) in [("MatMul", 2), ("AddV2", 0)] {
            job.alloc(Attribution { python, ..typed(job, name, dtype) }, 15 * GIB);
        }
        job.refused(Attribution { python, ..typed(job, "AddV2", 0) }, 12 * GIB, &device(10 * GIB));
    });
    assert!(helps(&report, "float64").contains("30.00 GiB are float64"), "{:?}", report.remedies);
}

#[test]
fn mixed_precision_halves_activations_and_copies_weights() {
    let text = helps(&told("half", |job| large_model(job, 10 * GIB, 28 * GIB, 4 * GIB)), "mixed precision");
    assert!(text.contains("28.00 GiB of activations") && text.contains("at most 26.00 GiB are live"), "{text}");
    // 24 of weights, half of 15 and of 2: 32.5, but the copies of the weights take 12 more.
    let report = told("half-copies", |job| large_model(job, 24 * GIB, 15 * GIB, 2 * GIB));
    helps(&report, "batch / 2");
    useless(&report, "mixed precision", "mixed precision");
}

#[test]
fn data_that_stays_on_the_device_can_stay_on_the_host() {
    let story = |data: u64, asked: u64| {
        move |job: &mut Job| {
            let input = job.by("_EagerConst", "output", &[("/home/me/train.py", "load", 12)]);
            job.alloc(input, data);
            weights(job, 30 * GIB - data);
            for _ in 0..50 {
                job.step();
                let made = job.alloc(job.who("model/conv/Conv2D", 20), MIB);
                job.free(made);
            }
            job.refused(job.who("model/conv/Conv2D", 20), asked, &device(10 * GIB));
        }
    };
    let text = helps(&told("data", story(20 * GIB, 12 * GIB)), "leave the data in host memory");
    assert!(text.contains("20.00 GiB less") && text.contains("at most 22.00 GiB are live"), "{text}");
    let report = told("little-data", story(4 * GIB, 15 * GIB));
    useless(&report, "leave the data", "the data in host memory");
}

#[test]
fn one_request_in_parts() {
    let text = helps(
        &told("parts", |job| {
            weights(job, 8 * GIB);
            job.refused(job.by("_EagerConst", "output", &[]), 100 * GIB, &device(32 * GIB));
        }),
        "leave the data in host memory",
    );
    assert!(text.contains("in 4 or more") && text.contains("at most 33.00 GiB are live"), "{text}");
    let text = helps(
        &told("parts-op", |job| {
            job.alloc(job.who("a", 3), GIB);
            job.refused(job.who("model/dense/MatMul", 12), 50 * GIB, &device(39 * GIB));
        }),
        "ask for less at once",
    );
    assert!(text.contains("in 2 parts"), "{text}");
    let report = told("no-parts", |job| {
        weights(job, 39 * GIB);
        job.refused(job.who("model/dense/MatMul", 12), 100 * GIB, &device(GIB));
    });
    useless(&report, "ask for less", "the request in 64 parts");
}

#[test]
fn what_xla_compiled_asks_for_a_smaller_batch_and_not_in_parts() {
    let report = told("compiled", |job| {
        weights(job, GIB);
        let fit = job.by("StatefulPartitionedCall", "xla", &[("/home/me/train.py", "main", 22)]);
        job.refused(fit, 50 * GIB, &device(39 * GIB));
    });
    assert!(report.request.as_ref().is_some_and(|asked| asked.compiled && asked.python.ends_with("train.py:22")));
    assert!(helps(&report, "batch / 2").contains("at most 26.00 GiB are live"), "{:?}", report.remedies);
    assert!(!report.remedies.iter().any(|remedy| remedy.text.contains("ask for less")), "{:?}", report.remedies);
    let look = Look { width: 80, height: 30, colour: false, offset: 0, now: 0, holders: None, details: false };
    assert!(
        screen(&report, &look).contains("Note      XLA asks once for all operations"),
        "{}",
        screen(&report, &look)
    );
}

#[test]
fn others_that_are_stopped_leave_room() {
    let report = told("others", |job| {
        weights(job, 12 * GIB);
        job.refused(job.who("model/conv/Conv2D", 20), 4 * GIB, &device(2 * GIB));
    });
    assert!(helps(&report, "stop the other processes").contains("frees 26.00 GiB"));
    // By bytes it fits exactly; the pool needs a piece of its own for the small block.
    let report = told("others-all", |job| {
        job.alloc(job.who("model/bias", 19), KIB);
        job.refused(job.who("model/conv/Conv2D", 20), 40 * GIB - KIB, &device(8 * GIB));
    });
    useless(&report, "stop the other", "stopping the others");
}

#[test]
fn a_cap_is_raised_as_far_as_the_device_goes() {
    let story = |free: u64| {
        move |job: &mut Job| {
            job.journal.set_cap(0, 8 * GIB);
            weights(job, 7 * GIB);
            job.refused(job.who("model/dense/MatMul", 30), 2 * GIB, &capped(8 * GIB, 7 * GIB, free));
        }
    };
    let report = told("cap", story(32 * GIB));
    assert!(helps(&report, "raise the cap").contains("WEIR_CAP=9216MiB"), "{:?}", report.remedies);
    useless(&told("cap-device", story(GIB)), "raise the cap", "a higher cap");
}

#[test]
fn a_cap_or_a_limit_leaves_room_for_what_libraries_take_beside_a_region() {
    let story = |earlier: u64, tensors: u64| {
        move |job: &mut Job| {
            job.journal.set_cap(0, 304 * MIB);
            let region = job.alloc_as(Class::Block, 0, job.who("_EagerConst", 3), 300 * MIB);
            job.alloc_at(Class::Tensor, 0, job.who("model/conv/Conv2D", 20), earlier, region);
            job.free_as(Class::Tensor, region);
            job.alloc_at(Class::Tensor, 0, job.who("model/conv/Conv2D", 20), tensors, region);
            let library = job.by("model/conv/Conv2D", "library", &[("/home/me/train.py", "train_step", 20)]);
            job.alloc(library, KIB);
            job.alloc(library, 128 * KIB);
            job.refused(library, 8 * MIB, &capped(304 * MIB, 304 * MIB, GIB));
        }
    };
    // The two small blocks lie in pieces of 2 MiB each.
    let report = told("cap-beside", story(MIB, 296 * MIB));
    assert!(helps(&report, "raise the cap").contains("WEIR_CAP=312MiB"), "{:?}", report.remedies);
    let report = told("limit-beside", story(MIB, 16 * MIB));
    assert!(helps(&report, "take less").contains("memory_limit=292"), "{:?}", report.remedies);
    // Once the tensors needed all but 4 MiB.
    useless(&told("limit-full", story(296 * MIB, 16 * MIB)), "take less", "a lower limit of TensorFlow's");
}

#[test]
fn a_larger_device_is_found_by_search() {
    let report = told("larger", |job| large_model(job, 10 * GIB, 28 * GIB, 4 * GIB));
    assert!(helps(&report, "a device with at least 42.00 GiB").contains("may need more"));
}
