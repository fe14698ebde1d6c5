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

fn report_on(name: &str, act: impl FnOnce(&mut Job)) -> Report {
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
        Act::SmallerBatch(parts) => format!(" / {parts}"),
        Act::InParts(parts) => format!("in {parts} parts"),
        Act::Cap(bytes) => format!("WEIR_CAP={}MiB", bytes / MIB),
        Act::MemoryLimit(mib) => format!("memory_limit={mib}"),
        Act::Environment(variables) => (*variables).to_owned(),
        _ => String::new(),
    };
    assert!(found.text.contains(&said), "{said:?} is not in {:?}", found.text);
    found.text.clone()
}

/// No remedy has these words, and it is shown that the thing of this name would not help.
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

fn shaped(job: &Job, name: &str, shape: &str) -> Attribution {
    let op = job.journal.op(&weir_journal::Op { name, region: "output", shape, dtype: 1 });
    let lines = [job.journal.line("/home/me/train.py", "train_step", 20)];
    Attribution { op, python: job.journal.python(&lines), ..Attribution::default() }
}

/// Weights, activations in one long step, and a refused activation.
fn large_model(job: &mut Job, parameters: u64, activations: u64, requested: u64) {
    weights(job, parameters);
    job.step();
    for layer in 0..64 {
        job.alloc(job.who(&format!("model/conv{layer}/Conv2D"), 20), activations / 64);
    }
    let free = (40 * GIB).saturating_sub(parameters + activations);
    job.refused(job.who("model/conv64/Conv2D", 20), requested, &device(free));
}

#[test]
fn a_batch_leaves_room_for_the_rest_of_the_step() {
    let report = report_on("batch", |job| large_model(job, 10 * GIB, 28 * GIB, 4 * GIB));
    // 10 GiB of weights, as much for gradients, and 28 and 4 four times, for a step whose rest nobody has seen.
    let text = helps(&report, "batch / 8");
    assert!(text.contains("about 36.00 GiB of 40.00 GiB are then needed"), "{text}");
    let json = serde_json::to_value(&report.remedies[0]).unwrap();
    assert_eq!((&json["kind"], &json["value"]), (&"smaller_batch".into(), &8.into()), "{json}");
}

#[test]
fn a_batch_of_known_size_is_divided_down_to_one() {
    let report = report_on("known-batch", |job| {
        weights(job, GIB);
        for layer in 0..8 {
            job.alloc(shaped(job, &format!("model/conv{layer}/Conv2D"), "[4,512,512,64]"), 4 * GIB);
        }
        job.refused(shaped(job, "model/conv8/Conv2D", "[4,512,512,64]"), 8 * GIB, &device(7 * GIB));
    });
    // Four times 40 GiB in 4 parts: more than four examples cannot be divided by.
    let text = helps(&report, "batch / 4");
    assert!(text.contains("(1 instead of 4)"), "{text}");
}

#[test]
fn no_batch_fits_beside_the_weights() {
    let report = report_on("no-batch", |job| large_model(job, 39 * GIB + 900 * MIB, 64 * MIB, 20 * GIB));
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
    // Weights are of 2 GiB each: gradients of that size are theirs.
    let report = report_on("weight-gradients", story(2 * GIB));
    assert!(!report.remedies.iter().any(|remedy| remedy.text.contains("batch /")), "{:?}", report.remedies);
    helps(&report, "a smaller model");
    let report = report_on("gradients", story(2 * GIB + 64 * MIB));
    helps(&report, "batch / ");
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
    let text = helps(&report_on("doubles", doubles(20 * GIB)), "float64");
    assert!(text.contains("20.00 GiB are float64") && text.contains("at most 32.00 GiB are live"), "{text}");
    // 12 GiB are requested and 10 free: half of 3 is not enough.
    useless(&report_on("few-doubles", doubles(3 * GIB)), "float64", "float32 instead of float64");
}

#[test]
fn an_operation_without_a_type_has_that_of_its_line() {
    let report = report_on("untyped", |job| {
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
fn mixed_precision_counts_casts_and_the_rest_of_the_step() {
    let report = report_on("half", |job| {
        weights(job, GIB);
        job.step();
        // Derivatives are computed already: the rest of the step is the smaller part.
        job.alloc(shaped(job, "gradient_tape/model/conv/Conv2DBackpropInput", "[64,1024]"), GIB);
        for layer in 0..32 {
            job.alloc(shaped(job, &format!("model/conv{layer}/Conv2D"), "[64,1024]"), GIB);
        }
        job.refused(shaped(job, "model/conv32/Conv2D", "[64,1024]"), 7 * GIB, &device(6 * GIB));
    });
    // Two thirds of 40 GiB and half as much again do not fit beside the weights and their copies.
    useless(&report, "mixed precision", "mixed precision");
    // 24 of weights, and their copies.
    useless(
        &report_on("half-copies", |job| large_model(job, 10 * GIB, 28 * GIB, 4 * GIB)),
        "mixed precision",
        "mixed precision",
    );
}

#[test]
fn data_that_stays_on_the_device_can_stay_on_the_host() {
    let story = |data: u64, requested: u64| {
        move |job: &mut Job| {
            let input = job.by("_EagerConst", "output", &[("/home/me/train.py", "load", 12)]);
            job.alloc(input, data);
            weights(job, 30 * GIB - data);
            for _ in 0..50 {
                job.step();
                let made = job.alloc(job.who("model/conv/Conv2D", 20), MIB);
                job.free(made);
            }
            job.refused(job.who("model/conv/Conv2D", 20), requested, &device(10 * GIB));
        }
    };
    let text = helps(&report_on("data", story(20 * GIB, 12 * GIB)), "leave the data at train.py:12 in host memory");
    assert!(text.contains("20.00 GiB less"), "{text}");
    let report = report_on("little-data", story(4 * GIB, 15 * GIB));
    assert!(!report.remedies.iter().any(|remedy| remedy.text.contains("leave the data")), "{:?}", report.remedies);
}

#[test]
fn one_request_that_is_too_large_is_advised_by_what_it_is() {
    let report = report_on("whole-data", |job| {
        weights(job, 8 * GIB);
        job.refused(job.by("_EagerConst", "output", &[]), 100 * GIB, &device(32 * GIB));
    });
    assert!(helps(&report, "leave the data in host memory").contains("100.00 GiB less"));
    let report = report_on("large-result", |job| {
        job.alloc(job.who("a", 3), GIB);
        job.refused(job.who("model/dense/MatMul", 12), 50 * GIB, &device(39 * GIB));
    });
    // Six times what is known of the step; of a batch nothing is known.
    helps(&report, "fewer rows at once: rows / 16");
    let report = report_on("large-beside-weights", |job| {
        weights(job, 39 * GIB);
        job.refused(job.who("model/dense/MatMul", 12), 100 * GIB, &device(GIB));
    });
    useless(&report, "batch /", "a smaller batch");
    let report = report_on("large-weight", |job| {
        let by =
            job.by("StatelessRandomUniformV2", "output", &[("/v/site-packages/keras/layer.py", "Layer.add_weight", 9)]);
        job.refused(by, 50 * GIB, &device(40 * GIB));
    });
    helps(&report, "make the layer");
}

#[test]
fn what_xla_compiled_needs_a_smaller_batch_and_not_in_parts() {
    let report = report_on("compiled", |job| {
        weights(job, GIB);
        let fit = job.by("StatefulPartitionedCall", "xla", &[("/home/me/train.py", "main", 22)]);
        job.refused(fit, 50 * GIB, &device(39 * GIB));
    });
    assert!(report.request.as_ref().is_some_and(|request| request.compiled && request.python.ends_with("train.py:22")));
    helps(&report, "batch / 2");
    assert!(!report.remedies.iter().any(|remedy| remedy.text.contains("request less")), "{:?}", report.remedies);
    let look = Look { width: 80, height: 30, colour: false, offset: 0, now: 0, holders: None, details: false };
    assert!(
        screen(&report, &look).contains("Note      XLA requests memory once for all operations"),
        "{}",
        screen(&report, &look)
    );
}

#[test]
fn others_that_are_stopped_leave_room() {
    let report = report_on("others", |job| {
        weights(job, 12 * GIB);
        job.refused(job.who("model/conv/Conv2D", 20), 4 * GIB, &device(2 * GIB));
    });
    assert!(helps(&report, "stop the other processes").contains("frees 26.00 GiB"));
    // By bytes it fits exactly; the pool needs a piece of its own for the small block.
    let report = report_on("others-all", |job| {
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
    let report = report_on("cap", story(32 * GIB));
    // 9 GiB serve the request, twice as much what may follow it.
    assert!(
        helps(&report, "raise the cap by at least 1.00 GiB").contains("WEIR_CAP=18432MiB"),
        "{:?}",
        report.remedies
    );
    useless(&report_on("cap-device", story(GIB)), "raise the cap", "a higher cap");
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
    let report = report_on("cap-beside", story(MIB, 296 * MIB));
    assert!(helps(&report, "raise the cap").contains("WEIR_CAP=624MiB"), "{:?}", report.remedies);
    let report = report_on("limit-beside", story(MIB, 16 * MIB));
    assert!(helps(&report, "take less").contains("memory_limit=292"), "{:?}", report.remedies);
    // Once the tensors needed all but 4 MiB.
    useless(&report_on("limit-full", story(296 * MIB, 16 * MIB)), "take less", "a lower limit of TensorFlow's");
}

#[test]
fn a_larger_device_is_found_by_search() {
    let report = report_on("larger", |job| large_model(job, 10 * GIB, 28 * GIB, 4 * GIB));
    assert!(helps(&report, "a device with at least 42.00 GiB").contains("may need more"));
}
