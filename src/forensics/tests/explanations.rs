//! What tensors are, and what a device is full of, on journals written for the purpose: each rule once where it holds, and
//! where it is easy to get wrong once where it does not. All go through files, the real reader and the whole report.

mod faults;
mod scratch;

use scratch::Scratch;
use weir_forensics::Run;
use weir_forensics::explain::{Explanation, Of};
use weir_forensics::remedies::{Act, Check};
use weir_forensics::report::{At, Options, Report};
use weir_forensics::roles::Role;
use weir_forensics::synthetic::{End, GIB, Job, MIB};
use weir_forensics::verdict::Cause;
use weir_journal::{Attribution, Class, Op, Situation};

const TRAIN: &str = "/home/me/train.py";
const TAPE: &str = "/v/site-packages/tensorflow/python/eager/backprop.py";
const LAYER: &str = "/v/site-packages/keras/src/layers/layer.py";
const ADAM: &str = "/v/site-packages/keras/src/optimizers/adam.py";

fn report_on(name: &str, story: impl FnOnce(&mut Job)) -> Report {
    let scratch = Scratch::new(name);
    let mut job = Job::new(&scratch.0, 1 << 14).unwrap();
    story(&mut job);
    let run = Run::open(&job.end(End::Failure).unwrap()).unwrap();
    Report::of(&run, &Options::default(), |_, _| {}).unwrap()
}

fn device(free: u64) -> Situation {
    Situation { device_total: 40 * GIB, device_free: free, ..Situation::default() }
}

/// An operation on a line of the program.
fn op(job: &Job, name: &str, shape: &str, line: u32) -> Attribution {
    called(job, name, shape, &[(TRAIN, "<module>", line)])
}

/// An operation of float32 with its callers, innermost first.
fn called(job: &Job, name: &str, shape: &str, lines: &[(&str, &str, u32)]) -> Attribution {
    job.by_op(&Op { name, region: "output", shape, dtype: 1 }, lines)
}

/// A derivative that `tape.gradient` computes on a line.
fn derived(job: &Job, name: &str, shape: &str, line: u32) -> Attribution {
    called(job, name, shape, &[(TAPE, "GradientTape.gradient", 1066), (TRAIN, "<module>", line)])
}

/// A weight of a Keras layer that is made on a line.
fn weight(job: &Job, name: &str, shape: &str, line: u32) -> Attribution {
    called(job, name, shape, &[(LAYER, "Layer.add_weight", 9), (TRAIN, "<module>", line)])
}

fn role_at(report: &Report, line: u32, operation: &str) -> Role {
    let own = |holder: &&weir_forensics::holders::Holder| {
        holder.python.ends_with(&format!(":{line}")) && holder.op == operation
    };
    report.holders.iter().find(own).unwrap_or_else(|| panic!("no {operation} at {line}: {:#?}", report.holders)).role
}

#[track_caller]
fn explained(report: &Report) -> &Explanation {
    let found = report.findings.iter().find_map(|finding| finding.explanation.as_ref());
    found.unwrap_or_else(|| panic!("nothing is explained: {:#?}", report.findings))
}

#[track_caller]
fn first(report: &Report) -> &Act {
    &report.remedies.first().unwrap_or_else(|| panic!("no remedy: {:#?}", report.findings)).act
}

#[test]
fn a_random_variable_is_one_though_its_last_operation_adds() {
    const RANDOM: &str = "/v/site-packages/tensorflow/python/ops/random_ops.py";
    let report = report_on("random", |job| {
        job.alloc(called(job, "AddV2", "", &[(RANDOM, "random_normal", 96), (TRAIN, "<module>", 3)]), 20 * GIB);
        let made = job.alloc(op(job, "MatMul", "[32,3000]", 7), MIB);
        job.alloc(derived(job, "MatMul", "[3000,3000]", 9), 19 * GIB);
        job.free(made);
        job.refused(derived(job, "MatMul", "[3000,3000]", 9), 19 * GIB, &device(GIB));
    });
    assert_eq!(role_at(&report, 3, "AddV2"), Role::Activations, "derivatives of another size");
    let report = report_on("random-variable", |job| {
        job.alloc(called(job, "AddV2", "", &[(RANDOM, "random_normal", 96), (TRAIN, "<module>", 3)]), 20 * GIB);
        let made = job.alloc(op(job, "MatMul", "[32,3000]", 7), MIB);
        job.free(made);
        job.refused(derived(job, "MatMul", "[3000,3000]", 9), 20 * GIB, &device(20 * GIB));
    });
    assert_eq!(role_at(&report, 3, "AddV2"), Role::Parameters, "the refused derivative has its size");
    let report = report_on("random-derived", |job| {
        job.alloc(called(job, "AddV2", "", &[(RANDOM, "random_normal", 96), (TRAIN, "<module>", 3)]), 15 * GIB);
        let made = job.alloc(op(job, "MatMul", "[32,3000]", 7), MIB);
        job.alloc(derived(job, "MatMul", "[3000,3000]", 9), 15 * GIB);
        job.free(made);
        job.refused(op(job, "Mul", "", 10), 15 * GIB, &device(10 * GIB));
    });
    assert_eq!(role_at(&report, 3, "AddV2"), Role::Parameters);
}

#[test]
fn a_product_of_random_numbers_is_a_variable_and_zeros_beside_it_are_kept_for_it() {
    let report = report_on("scaled", |job| {
        for _ in 0..2 {
            let made = job.alloc(op(job, "RandomStandardNormal", "[4096,4096]", 3), 8 * GIB);
            job.alloc(op(job, "Mul", "", 3), 8 * GIB);
            job.free(made);
        }
        job.alloc(op(job, "Fill", "[4096,4096]", 4), 16 * GIB);
        job.alloc(op(job, "Fill", "[4096]", 5), MIB);
        job.alloc(op(job, "MatMul", "[64,4096]", 7), GIB);
        job.refused(op(job, "Relu", "[64,4096]", 8), 16 * GIB, &device(7 * GIB));
    });
    assert_eq!(role_at(&report, 3, "Mul"), Role::Parameters, "of the shape of the numbers that it was made of");
    assert_eq!(role_at(&report, 4, "Fill"), Role::Parameters, "of another size than what was there before");
    let report = report_on("scaled-with-slots", |job| {
        for _ in 0..2 {
            let made = job.alloc(op(job, "RandomStandardNormal", "[4096,4096]", 3), 8 * GIB);
            job.alloc(op(job, "Mul", "", 3), 8 * GIB);
            job.free(made);
        }
        for _ in 0..2 {
            job.alloc(op(job, "Fill", "[4096,4096]", 4), 8 * GIB);
        }
        job.alloc(op(job, "MatMul", "[64,4096]", 7), GIB);
        job.refused(derived(job, "MatMul", "[4096,4096]", 9), 8 * GIB, &device(7 * GIB));
    });
    assert_eq!(role_at(&report, 3, "Mul"), Role::Parameters);
    assert_eq!(role_at(&report, 4, "Fill"), Role::Optimizer);
    // Rows of a set of data that is sliced are no weights, whatever they were made of.
    let report = report_on("scaled-data", |job| {
        let made = job.alloc(op(job, "RandomUniform", "[6400,784]", 3), 8 * GIB);
        job.alloc(op(job, "Mul", "", 3), 8 * GIB);
        job.free(made);
        let slice = job.alloc(op(job, "StridedSlice", "[64,784]", 6), GIB);
        job.alloc(op(job, "MatMul", "[64,4096]", 7), GIB);
        job.refused(op(job, "Relu", "[64,4096]", 8), 36 * GIB, &device(30 * GIB));
        job.free(slice);
    });
    assert_eq!(role_at(&report, 3, "Mul"), Role::Inputs);
}

#[test]
fn without_a_model_there_is_no_forward_pass_and_no_batch() {
    let report = report_on("metric", |job| {
        job.alloc(op(job, "_EagerConst", "[131072]", 16), MIB);
        job.refused(op(job, "Tile", "[1000,131072]", 16), 46 * GIB, &device(39 * GIB));
    });
    let text = &explained(&report).text;
    assert!(text.starts_with("results of operations with 1 000 rows, 46.00 GiB"), "{text}");
    let remedy = report.remedies.first().unwrap();
    assert!(remedy.text.starts_with("fewer rows at once: rows / 8 (125 instead of 1 000)"), "{remedy:?}");
    let report = report_on("model", |job| {
        job.alloc(weight(job, "AddV2", "[784,4096]", 3), GIB);
        job.refused(op(job, "MatMul", "[1000,4096]", 16), 50 * GIB, &device(39 * GIB));
    });
    let text = &explained(&report).text;
    assert!(text.starts_with("results of the forward pass"), "{text}");
}

#[test]
fn a_long_request_to_a_model_that_is_not_trained_is_an_outlier() {
    let report = report_on("requests", |job| {
        job.alloc(weight(job, "AddV2", "[256,256]", 3), GIB);
        for _ in 0..4 {
            job.step();
            let made = job.alloc(op(job, "answer/Einsum", "[8,400,400]", 19), 5 * MIB);
            job.free(made);
        }
        job.step();
        job.refused(op(job, "answer/Einsum", "[8,6000,6000]", 19), 44 * GIB, &device(39 * GIB));
    });
    let text = &explained(&report).text;
    assert_eq!(text, "the longest batch: 6 000 where the batches before had at most 400");
    assert_eq!(first(&report), &Act::Outlier);
    let report = report_on("many-requests", |job| {
        job.alloc(weight(job, "AddV2", "[256,256]", 3), GIB);
        for _ in 0..4 {
            job.step();
            let made = job.alloc(op(job, "answer/Relu", "[16,64,64]", 19), 5 * MIB);
            job.free(made);
        }
        job.step();
        job.refused(op(job, "answer/Relu", "[600,64,64]", 19), 44 * GIB, &device(39 * GIB));
    });
    let remedy = report.remedies.first().unwrap();
    assert!(remedy.text.starts_with("a smaller batch: batch / "), "nothing is evaluated: {remedy:?}");
}

/// Turns of an eager loop of one example each, recorded by one tape: frames that the program brings itself, and results.
fn episode(job: &mut Job, shape: &str) {
    job.alloc(weight(job, "AddV2", "[5184,512]", 3), GIB / 4);
    for _ in 0..600 {
        job.alloc(op(job, "_EagerConst", "[1,84,84,4]", 27), 25 * MIB);
        job.alloc(op(job, "MatMul", shape, 27), MIB);
        job.alloc(op(job, "Relu", "", 27), 30 * MIB);
    }
    for _ in 0..10 {
        job.alloc(derived(job, "MatMul", "[5184,512]", 33), GIB / 4);
    }
    job.refused(derived(job, "MatMul", "[5184,512]", 33), 6 * GIB, &device(4544 * MIB));
}

#[test]
fn turns_of_a_loop_in_one_tape_are_no_batches_that_wait() {
    let report = report_on("episode", |job| episode(job, "[1,512]"));
    let found = explained(&report);
    assert_eq!((found.of, found.times), (Of::TurnsOfALoop, 600), "{found:?}");
    assert!(found.text.starts_with("what 600 turns of a loop compute (train.py:27)"), "{found:?}");
    assert_eq!(first(&report), &Act::FewerTurns(8), "{:?}", report.remedies);
    assert!(report.remedies[0].text.contains("75 instead of 600"), "{:?}", report.remedies);
    assert!(!report.remedies.iter().any(|remedy| matches!(remedy.act, Act::SmallerBatch(_) | Act::Prefetch)));
    // With a batch, that is made smaller; what the program brings itself waits for no turn all the same.
    let report = report_on("episode-of-batches", |job| episode(job, "[64,512]"));
    assert_eq!(explained(&report).of, Of::Activations, "{:?}", explained(&report));
}

#[test]
fn a_transposed_convolution_by_itself_begins_no_turn() {
    const LAYER: &str = "/v/site-packages/keras/src/layers/conv_transpose.py";
    let report = report_on("transposed", |job| {
        job.alloc(weight(job, "AddV2", "[5,5,64,64]", 3), GIB);
        for _ in 0..4 {
            let lines = [(LAYER, "call", 9), (TRAIN, "<module>", 7)];
            job.alloc(called(job, "Conv2DBackpropInput", "[64,28,28,64]", &lines), 4 * GIB);
            job.alloc(op(job, "LeakyRelu", "", 7), 4 * GIB);
        }
        job.refused(op(job, "LeakyRelu", "", 8), 8 * GIB, &device(7 * GIB));
    });
    assert_eq!(role_at(&report, 7, "Conv2DBackpropInput"), Role::Activations);
    assert_eq!(role_at(&report, 7, "LeakyRelu"), Role::Activations, "kept over turns that there were not");
    assert_eq!(explained(&report).of, Of::Activations);
}

/// Weights, and steps of an eager loop: a batch, a result, its derivative and that of the weights.
fn eager(job: &mut Job, steps: u64) {
    job.alloc(op(job, "Fill", "[2048,8192]", 3), 4 * GIB);
    for _ in 0..steps {
        let made = [
            job.alloc(op(job, "Fill", "[8,2048]", 6), 64 * MIB),
            job.alloc(op(job, "MatMul", "[8,8192]", 7), GIB),
            job.alloc(derived(job, "MatMul", "[8,8192]", 7), GIB),
            job.alloc(derived(job, "MatMul", "[2048,8192]", 7), 4 * GIB),
        ];
        job.wait(0.1);
        for address in made {
            job.free(address);
        }
    }
}

#[test]
fn an_eager_loop_has_the_roles_of_a_graph() {
    let report = report_on("eager", |job| {
        eager(job, 2);
        job.alloc(op(job, "Fill", "[8,2048]", 6), 64 * MIB);
        job.alloc(op(job, "MatMul", "[8,8192]", 7), GIB);
        job.alloc(derived(job, "MatMul", "[2048,8192]", 7), 4 * GIB);
        job.refused(op(job, "Mul", "", 8), 36 * GIB, &device(30 * GIB));
    });
    assert_eq!(role_at(&report, 3, "Fill"), Role::Parameters, "made once, and derivatives have its shape");
    assert_eq!(role_at(&report, 6, "Fill"), Role::Activations, "a batch");
    let at_tape: Vec<Role> =
        report.holders.iter().filter(|holder| holder.python.ends_with(":7")).map(|h| h.role).collect();
    assert!(at_tape.contains(&Role::Gradients) && at_tape.contains(&Role::Activations), "{at_tape:?}");
}

#[test]
fn a_result_that_was_requested_as_temporary_is_no_workspace() {
    let report = report_on("temp", |job| {
        let temp = |shape, dtype| Op { name: "model/einsum/Einsum", region: "temp", shape, dtype };
        job.alloc(job.by_op(&temp("[8,16,1024]", 1), &[(TRAIN, "call", 5)]), 20 * GIB);
        job.alloc(job.by_op(&temp("[1048576]", 4), &[(TRAIN, "call", 6)]), 2 * GIB);
        // cuDNN tries algorithms with memory of no type and no region.
        job.alloc(
            job.by_op(&Op { name: "model/conv/Conv2D", region: "", shape: "", dtype: 0 }, &[(TRAIN, "call", 7)]),
            GIB,
        );
        job.refused(op(job, "model/x/Relu", "[8,2]", 9), 20 * GIB, &device(17 * GIB));
    });
    assert_eq!(role_at(&report, 5, "model/einsum/Einsum"), Role::Activations);
    assert_eq!(role_at(&report, 6, "model/einsum/Einsum"), Role::Workspaces);
    assert_eq!(role_at(&report, 7, "model/conv/Conv2D"), Role::Workspaces);
}

#[test]
fn copies_beside_weights_are_neither_weights_nor_an_optimizers() {
    let report = report_on("copies", |job| {
        job.alloc(op(job, "Fill", "[2048,8192]", 3), 14 * GIB);
        job.alloc(op(job, "ZerosLike", "", 4), 14 * GIB);
        for _ in 0..4 {
            job.step();
            let made = job.alloc(op(job, "gradient_tape/MatMul", "[2048,8192]", 9), 11 * GIB);
            job.free(made);
        }
        job.refused(op(job, "gradient_tape/MatMul", "[2048,8192]", 9), 14 * GIB, &device(12 * GIB));
    });
    assert_eq!(role_at(&report, 3, "Fill"), Role::Parameters);
    assert_eq!(role_at(&report, 4, "ZerosLike"), Role::Optimizer);
    assert_eq!(explained(&report).of, Of::Parameters, "{:?}", explained(&report));
    assert_eq!(first(&report), &Act::SmallerModel, "no optimizer keeps it: {:?}", report.remedies);
}

#[test]
fn weights_of_a_replica_are_weights_though_their_operation_is_a_copy() {
    let report = report_on("replica", |job| {
        job.alloc(weight(job, "Identity", "", 3), 20 * GIB);
        job.refused(weight(job, "Identity", "", 3), 24 * GIB, &device(20 * GIB));
    });
    assert_eq!(role_at(&report, 3, "Identity"), Role::Parameters);
}

/// A Keras model with slots of an optimizer, of which another one is refused.
fn slots(job: &mut Job, weights: u64, slots: u64) {
    job.alloc(weight(job, "AddV2", "[4096,4096]", 3), weights);
    let lines = [(ADAM, "Adam.build", 7), (TRAIN, "<module>", 9)];
    job.alloc(called(job, "adam/kernel_momentum/Initializer/zeros", "[4096,4096]", &lines), slots);
    job.step();
    job.alloc(op(job, "gradient_tape/model/dense/MatMul_1", "[4096,4096]", 9), weights);
    let update = called(
        job,
        "adam/AssignAddVariableOp",
        "[4096,4096]",
        &[(ADAM, "Adam.update_step", 12), (TRAIN, "<module>", 9)],
    );
    let free = 40 * GIB - 2 * weights - slots;
    job.refused(update, weights, &device(free));
}

#[test]
fn an_optimizers_state_is_what_the_device_is_full_of() {
    let report = report_on("slots", |job| slots(job, 11 * GIB, 11 * GIB));
    let found = explained(&report);
    assert_eq!((found.of, found.bytes), (Of::OptimizerState, 11 * GIB), "{found:?}");
    assert!(found.text.contains("11.00 GiB beside 11.00 GiB of weights"), "{found:?}");
    assert_eq!(first(&report), &Act::Optimizer);
    // Without its state and its updates, weights, gradients and one update are still too much.
    let report = report_on("slots-in-vain", |job| slots(job, 17 * GIB, 5 * GIB));
    assert!(report.useless.contains(&"another optimizer".to_owned()), "{:?}", report.remedies);
}

#[test]
fn one_long_batch_among_short_ones() {
    let story = |last: &'static str| {
        move |job: &mut Job| {
            eager(job, 1);
            for _ in 0..5 {
                let made = job.alloc(op(job, "BatchMatMulV2", "[8,200,200]", 20), 100 * MIB);
                let derivative = job.alloc(derived(job, "BatchMatMulV2", "[8,200,200]", 21), 100 * MIB);
                job.wait(0.1);
                job.free(made);
                job.free(derivative);
            }
            job.alloc(op(job, "BatchMatMulV2", last, 20), 20 * GIB);
            job.refused(op(job, "Softmax", last, 22), 20 * GIB, &device(16 * GIB));
        }
    };
    let report = report_on("long", story("[8,3000,3000]"));
    let found = explained(&report);
    assert_eq!(found.of, Of::LongBatch, "{found:?}");
    assert!(found.text.contains("3 000 where the batches before had at most 200"), "{found:?}");
    assert_eq!(first(&report), &Act::Outlier);
    assert_eq!(
        explained(&report_on("as-long", story("[8,210,200]"))).of,
        Of::Activations,
        "a little longer is no outlier"
    );
}

#[test]
fn an_evaluation_with_a_larger_batch_than_training() {
    let report = report_on("evaluation", |job| {
        job.alloc(weight(job, "AddV2", "[3,3,64]", 3), GIB);
        for _ in 0..4 {
            job.step();
            let made = job.alloc(op(job, "model/conv/Relu", "[32,64,64]", 10), GIB);
            let derivative = job.alloc(op(job, "gradient_tape/model/conv/ReluGrad", "[32,64,64]", 10), GIB);
            job.free(made);
            job.free(derivative);
        }
        job.step();
        job.refused(op(job, "model/conv/Relu", "[1024,64,64]", 12), 39 * GIB, &device(38 * GIB));
    });
    let found = explained(&report);
    assert!(found.of == Of::LargeBatch && found.evaluating && found.times == 32, "{found:?}");
    assert!(
        found.text.contains("this batch has 1 024 examples at once, those before had 32: an evaluation"),
        "{found:?}"
    );
    assert_eq!(first(&report), &Act::EvalBatch(8), "four times 39 GiB beside the weights: {:?}", report.remedies);
}

#[test]
fn batches_that_wait_on_the_device_are_no_growth() {
    let report = report_on("prefetched", |job| {
        job.alloc(weight(job, "AddV2", "[3,3,64]", 3), GIB);
        let batch =
            job.by_op(&Op { name: "SameWorkerRecvDone", region: "dynamic", shape: "[32,224,224,3]", dtype: 1 }, &[]);
        for _ in 0..30 {
            job.step();
            job.alloc(batch, GIB);
            let made = job.alloc(op(job, "model/conv/Relu", "[32,64,64]", 10), 7 * GIB);
            job.wait(0.1);
            job.free(made);
        }
        job.step();
        job.refused(op(job, "model/conv/Relu", "[32,64,64]", 10), 10 * GIB, &device(9 * GIB));
    });
    assert_eq!(report.verdict().unwrap().cause, Cause::DeviceFull, "{:?}", report.findings);
    let found = explained(&report);
    assert_eq!((found.of, found.bytes), (Of::PrefetchedBatches, 30 * GIB), "{found:?}");
    assert_eq!(first(&report), &Act::Prefetch);
    // Each step began with more than the one before: what serves this one does not serve the next.
    let sizes = report.remedies.iter().filter(|remedy| matches!(remedy.act, Act::Device(_)));
    assert!(
        sizes.clone().count() > 0 && sizes.clone().all(|remedy| remedy.check == Check::Estimated),
        "{:?}",
        report.remedies
    );
}

#[test]
fn data_as_one_tensor_and_its_type() {
    let data = |dtype| Op { name: "_EagerConst", region: "dynamic", shape: "", dtype };
    let report = report_on("data", |job| {
        job.refused(job.by_op(&data(2), &[(TRAIN, "<module>", 4)]), 44 * GIB, &device(40 * GIB));
    });
    assert!(
        explained(&report).of == Of::Data && explained(&report).text.contains("in float64"),
        "{:?}",
        explained(&report)
    );
    assert_eq!(first(&report), &Act::DataOnHost);
    assert!(report.remedies.iter().any(|remedy| remedy.act == Act::Float32), "half of it fits: {:?}", report.remedies);
    let report = report_on("data-float", |job| {
        job.refused(job.by_op(&data(1), &[(TRAIN, "<module>", 4)]), 44 * GIB, &device(40 * GIB));
    });
    assert!(!report.remedies.iter().any(|remedy| remedy.act == Act::Float32), "{:?}", report.remedies);
}

#[test]
fn a_model_that_is_built_at_two_places_is_there_twice() {
    let story = |second: u32| {
        move |job: &mut Job| {
            let build = |job: &Job, line| {
                let lines = [(LAYER, "Layer.add_weight", 9), (TRAIN, "build", 3), (TRAIN, "<module>", line)];
                called(job, "AddV2", "[4096,4096]", &lines)
            };
            job.alloc(build(job, 20), 18 * GIB);
            job.alloc(build(job, second), 18 * GIB);
            job.refused(build(job, second), 18 * GIB, &device(4 * GIB));
        }
    };
    let report = report_on("twice", story(22));
    let found = explained(&report);
    assert_eq!(found.of, Of::SecondModel, "{found:?}");
    assert!(
        found.text.contains("called from train.py:22 and from train.py:20")
            || found.text.contains("called from train.py:20 and from train.py:22"),
        "{found:?}"
    );
    assert_eq!(first(&report), &Act::FreeModels);
    assert_eq!(explained(&report_on("once", story(20))).of, Of::Parameters, "two layers of one model");
}

#[test]
fn models_of_earlier_rounds_are_kept() {
    let report = report_on("rounds", |job| {
        for _ in 0..3 {
            job.alloc(weight(job, "AddV2", "[4096,4096]", 3), 12 * GIB);
            for _ in 0..3 {
                job.step();
                let made = job.alloc(op(job, "gradient_tape/model/dense/MatMul", "[4096,4096]", 9), MIB);
                job.free(made);
            }
        }
        job.refused(weight(job, "AddV2", "[4096,4096]", 3), 12 * GIB, &device(4 * GIB));
    });
    assert_eq!(explained(&report).of, Of::EarlierModels, "{:?}", report.findings);
    assert_eq!(first(&report), &Act::FreeModels);
}

#[test]
fn shapes_that_do_not_match_make_a_large_result() {
    let story = |elements: u64| {
        move |job: &mut Job| {
            job.alloc(weight(job, "AddV2", "[64,64]", 3), 26 * GIB);
            job.alloc(op(job, "Fill", "[65536]", 4), elements * 4);
            job.alloc(op(job, "MatMul", "[65536,1]", 5), 65_536 * 4);
            job.refused(op(job, "Sub", "", 5), 16 * GIB, &device(13 * GIB));
        }
    };
    let report = report_on("broadcast", story(65_536));
    assert_eq!(explained(&report).of, Of::Broadcast, "{:?}", explained(&report));
    assert_eq!(first(&report), &Act::Shape);
    assert_ne!(explained(&report_on("no-broadcast", story(4096))).of, Of::Broadcast, "the product is another");
}

#[test]
fn pairs_jacobians_and_layers() {
    let story = |shape: &'static str| {
        move |job: &mut Job| {
            job.alloc(weight(job, "AddV2", shape, 3), 26 * GIB);
            job.refused(op(job, "MatMul", "[65536,65536]", 7), 16 * GIB, &device(14 * GIB));
        }
    };
    let report = report_on("pairs", story("[64,64]"));
    assert_eq!((explained(&report).of, first(&report)), (Of::Pairs, &Act::Pairs));
    let report = report_on("dense", story("[64,65536]"));
    assert_ne!(explained(&report).of, Of::Pairs, "a layer as wide as the batch");
    let report = report_on("jacobian", |job| {
        let by =
            called(job, "MatMul", "[1024,262144]", &[(TAPE, "GradientTape.jacobian", 1200), (TRAIN, "<module>", 7)]);
        job.refused(by, 50 * GIB, &device(40 * GIB));
    });
    assert_eq!((explained(&report).of, first(&report)), (Of::Jacobian, &Act::InParts(16)));
    let report = report_on("layer", |job| {
        drop(job.refused(weight(job, "AddV2", "[262144,65536]", 3), 64 * GIB, &device(40 * GIB)));
    });
    assert_eq!((explained(&report).of, first(&report)), (Of::LargeLayer, &Act::SmallerLayer));
}

#[test]
fn a_loop_inside_one_step_is_no_growth() {
    let story = |brings: bool| {
        move |job: &mut Job| {
            for _ in 0..120 {
                let input = brings.then(|| job.alloc(op(job, "Fill", "[512,512]", 15), MIB));
                let passing = job.alloc(op(job, "MatMul", "[512,512]", 17), MIB);
                job.alloc(op(job, "Tanh", "", 17), 300 * MIB);
                job.wait(0.1);
                job.free(passing);
                if let Some(address) = input {
                    job.free(address);
                }
            }
            job.refused(op(job, "Tanh", "", 17), 8 * GIB, &device(4 * GIB));
        }
    };
    assert_eq!(report_on("one-step", story(false)).verdict().unwrap().cause, Cause::DeviceFull);
    assert_eq!(
        report_on("many-steps", story(true)).verdict().unwrap().cause,
        Cause::Growth,
        "each turn brings an input"
    );
}

#[test]
fn what_came_before_a_loop_is_no_input_of_it() {
    let report = report_on("before", |job| {
        for _ in 0..120 {
            let made = job.alloc(op(job, "_EagerConst", "[]", 3), 512);
            job.free(made);
        }
        for _ in 0..120 {
            let passing = job.alloc(op(job, "MatMul", "[512,512]", 17), MIB);
            job.alloc(op(job, "Tanh", "", 17), 300 * MIB);
            job.wait(0.1);
            job.free(passing);
        }
        job.refused(op(job, "Tanh", "", 17), 8 * GIB, &device(4 * GIB));
    });
    assert_eq!(report.verdict().unwrap().cause, Cause::DeviceFull, "{:?}", report.findings);
}

/// Models side by side that are trained in turn; as many have slots as there were turns. `each` is how many slots a weight gets.
fn side_by_side(job: &mut Job, models: u64, each: u64) {
    for _ in 0..models {
        job.alloc(weight(job, "AddV2", "[4096,4096]", 3), 12 * GIB / models);
    }
    for _ in 0..models {
        let made = job.alloc(op(job, "MatMul", "[64,4096]", 7), MIB);
        let derived = job.alloc(derived(job, "MatMul", "[4096,4096]", 8), MIB);
        for _ in 0..each {
            job.alloc(called(job, "Fill", "", &[(ADAM, "Adam.build", 9), (TRAIN, "<module>", 9)]), 12 * GIB / models);
        }
        job.wait(0.1);
        job.free(made);
        job.free(derived);
    }
    job.refused(
        called(job, "AddV2", "", &[(ADAM, "Adam.update_step", 9), (TRAIN, "<module>", 9)]),
        8 * GIB,
        &device(2 * GIB),
    );
}

#[test]
fn models_side_by_side_get_their_slots_one_after_another_and_do_not_grow() {
    let report = report_on("side-by-side", |job| side_by_side(job, 60, 2));
    assert_eq!(report.verdict().unwrap().cause, Cause::DeviceFull, "{:?}", report.findings);
    assert_eq!(explained(&report).of, Of::OptimizerState);
    let report = report_on("too-many-slots", |job| {
        job.alloc(weight(job, "AddV2", "[4096,4096]", 3), 200 * MIB);
        for _ in 0..60 {
            let made = job.alloc(op(job, "MatMul", "[64,4096]", 7), MIB);
            let derived = job.alloc(derived(job, "MatMul", "[4096,4096]", 8), MIB);
            job.alloc(called(job, "Fill", "", &[(ADAM, "Adam.build", 9), (TRAIN, "<module>", 9)]), 600 * MIB);
            job.wait(0.1);
            job.free(made);
            job.free(derived);
        }
        job.refused(op(job, "MatMul", "[64,4096]", 7), 8 * GIB, &device(2 * GIB));
    });
    assert_eq!(report.verdict().unwrap().cause, Cause::Growth, "more than any optimizer keeps for one model");
}

#[test]
fn kept_models_are_growth_though_their_slots_are_more_than_they() {
    let report = report_on("rounds-of-adam", |job| {
        for round in 0..4 {
            job.alloc(weight(job, "AddV2", "[4096,4096]", 3), 3 * GIB);
            for slot in 0..2 {
                let name = format!("adam_{round}/momentum{slot}/Initializer/zeros");
                job.alloc(op(job, &name, "[4096,4096]", 9), 3 * GIB);
            }
            for _ in 0..3 {
                job.step();
                let made = job.alloc(op(job, "gradient_tape/model/dense/MatMul", "[4096,4096]", 9), MIB);
                job.free(made);
            }
        }
        job.refused(op(job, "adam_4/momentum/Initializer/zeros", "[4096,4096]", 9), 8 * GIB, &device(4 * GIB));
    });
    assert_eq!(report.verdict().unwrap().cause, Cause::Growth, "{:?}", report.findings);
    assert_eq!(first(&report), &Act::FreeModels, "{:?}", report.remedies);
}

#[test]
fn data_of_many_batches_is_input_and_a_variable_is_not() {
    let report = report_on("data", |job| {
        job.alloc(op(job, "Fill", "[8192,256]", 3), 8 * GIB);
        job.alloc(op(job, "Fill", "[8192,100]", 4), 4 * GIB);
        job.alloc(op(job, "IteratorGetNext", "[64,256]", 9), GIB);
        job.alloc(op(job, "model/MatMul", "[64,4096]", 9), 16 * GIB);
        job.refused(op(job, "model/MatMul", "[64,4096]", 9), 16 * GIB, &device(11 * GIB));
    });
    assert_eq!(role_at(&report, 3, "Fill"), Role::Inputs, "rows like those of the batch");
    assert_eq!(role_at(&report, 4, "Fill"), Role::Parameters, "other rows");
}

#[test]
fn a_wait_at_the_end_does_not_hide_growth() {
    let report = report_on("wait", |job| {
        let region = job.alloc_as(Class::Device, 0, Attribution::default(), 39 * GIB);
        for n in 0..120 {
            let passing = op(job, "Fill", "[512,512]", 15);
            job.tensor(passing, MIB, MIB, region + 38 * GIB);
            job.tensor(op(job, "Square", "", 17), 300 * MIB, 300 * MIB, region + n * 300 * MIB);
            job.wait(0.01);
            job.free_as(Class::Tensor, region + 38 * GIB);
        }
        job.wait(10.0);
        job.refused_as(Class::Tensor, op(job, "Square", "", 17), 5 * GIB, &device(GIB));
    });
    assert_eq!(report.verdict().unwrap().cause, Cause::Growth, "{:?}", report.findings);
}

#[test]
fn what_an_allocator_records_of_its_own_does_not_hide_growth() {
    let report = report_on("mapped", |job| {
        // TensorFlow's region takes its handles one by one, which are most of the events.
        for _ in 0..600 {
            job.alloc_as(Class::Handle, 0, Attribution::default(), 64 * MIB);
        }
        let region = job.alloc_as(Class::Device, 0, Attribution::default(), 39 * GIB);
        for n in 0..30 {
            job.tensor(op(job, "Fill", "[512,512]", 15), MIB, MIB, region + 38 * GIB);
            job.tensor(op(job, "Square", "", 17), 1200 * MIB, 1200 * MIB, region + n * 1200 * MIB);
            job.wait(0.01);
            job.free_as(Class::Tensor, region + 38 * GIB);
        }
        job.refused_as(Class::Tensor, op(job, "Square", "", 17), 5 * GIB, &device(GIB));
    });
    assert_eq!(report.verdict().unwrap().cause, Cause::Growth, "{:?}", report.findings);
}

#[test]
fn a_tensor_that_gets_longer_grows_in_whatever_chunk_it_is() {
    let report = report_on("longer", |job| {
        let region = job.alloc_as(Class::Device, 0, Attribution::default(), 39 * GIB);
        for n in 1..=60 {
            let bytes = n * 500 * MIB;
            job.tensor(op(job, "ConcatV2", "", 17), bytes, bytes.next_multiple_of(15 * GIB), region + n % 2 * 20 * GIB);
            if n > 1 {
                job.free_as(Class::Tensor, region + (n + 1) % 2 * 20 * GIB);
            }
            job.wait(0.01);
        }
        job.refused_as(Class::Tensor, op(job, "ConcatV2", "", 17), 31 * GIB, &device(GIB));
    });
    assert!(!report.growth.is_empty(), "{:?}", report.findings);
}

#[test]
fn a_spike_on_a_slow_leak_is_the_cause_and_the_leak_is_reported() {
    let report = report_on("spike", |job| {
        for _ in 0..150 {
            job.step();
            job.alloc(op(job, "model/kept", "[8,64]", 12), 100 * MIB);
            let made = job.alloc(op(job, "model/passing", "[8,64]", 11), 100 * MIB);
            job.wait(0.1);
            job.free(made);
        }
        job.refused(op(job, "summary/MatMul", "[65536,65536]", 16), 26 * GIB, &device(25 * GIB));
    });
    let causes: Vec<Cause> = report.findings.iter().map(|finding| finding.cause).collect();
    assert_eq!(causes, [Cause::DeviceFull, Cause::Growth], "{:?}", report.findings);
    assert_eq!(first(&report), &Act::Pairs);
}

#[test]
fn a_step_and_a_time_are_moments_too() {
    let scratch = Scratch::new("moments");
    let mut job = Job::new(&scratch.0, 1 << 12).unwrap();
    for _ in 0..10 {
        job.step();
        job.alloc(op(&job, "model/kept", "[8,64]", 12), GIB);
        job.wait(1.0);
    }
    let run = Run::open(&job.end(End::Exit).unwrap()).unwrap();
    let at = |at| Report::of(&run, &Options { at, ..Options::default() }, |_, _| {});
    let held = |report: Report| report.holders.iter().map(|holder| holder.bytes).sum::<u64>();
    let third = at(At::Step(3)).unwrap();
    assert_eq!((third.step, third.at), (3, At::Step(3)));
    let time = third.realtime_ns;
    assert_eq!((held(third), held(at(At::Time(time)).unwrap())), (3 * GIB, 3 * GIB));
    assert!(at(At::Step(99)).unwrap_err().to_string().contains("has no step 99; the log has steps 1 to 10"));
    assert!(at(At::Time(0)).unwrap_err().to_string().contains("no event before this time"));
}

#[test]
fn a_device_that_is_nearly_full_is_not_in_pieces() {
    let story = |free: u64| {
        move |job: &mut Job| {
            job.alloc(weight(job, "AddV2", "[64,64]", 3), GIB);
            for layer in 0..4 {
                job.alloc(op(job, &format!("model/conv{layer}/Relu"), "[32,64,64]", 10), (39 * GIB - free) / 4);
            }
            let now = Situation { pool_free: free, pool_largest: 16 * MIB, pool_holes: 99, ..device(0) };
            job.refused(op(job, "model/conv9/Relu", "[32,64,64]", 10), GIB, &now);
        }
    };
    let report = report_on("nearly", story(2 * GIB));
    assert_eq!(report.verdict().unwrap().cause, Cause::DeviceFull, "{:?}", report.findings);
    assert!(matches!(first(&report), Act::SmallerBatch(_)), "{:?}", report.remedies);
    let report = report_on("pieces", story(8 * GIB));
    assert_eq!(report.verdict().unwrap().cause, Cause::Fragmentation, "{:?}", report.findings);
    assert!(report.remedies.iter().any(|remedy| matches!(remedy.act, Act::SmallerBatch(_))), "{:?}", report.remedies);
}

#[test]
fn one_pass_through_a_deep_network_is_no_growth() {
    let report = report_on("deep", |job| {
        for layer in 0..40 {
            job.alloc(op(job, &format!("Conv2D_{layer}"), &format!("[8,{},64]", 200 + layer), 9), 900 * MIB);
            let passing = job.alloc(op(job, &format!("Pad_{layer}"), "[8,64,64]", 9), MIB);
            job.wait(0.1);
            job.free(passing);
        }
        job.refused(op(job, "Conv2D_40", "[8,240,64]", 9), 8 * GIB, &device(4 * GIB));
    });
    assert_eq!(report.verdict().unwrap().cause, Cause::DeviceFull, "{:?}", report.findings);
}

#[test]
fn models_of_three_rounds_are_growth() {
    let story = |rounds: u64| {
        move |job: &mut Job| {
            for _ in 0..rounds {
                job.alloc(weight(job, "AddV2", "[4096,4096]", 3), 36 * GIB / rounds);
                for _ in 0..3 {
                    job.step();
                    let made = job.alloc(op(job, "gradient_tape/model/dense/MatMul", "[4096,4096]", 9), MIB);
                    job.free(made);
                }
            }
            job.refused(weight(job, "AddV2", "[4096,4096]", 3), 12 * GIB, &device(4 * GIB));
        }
    };
    let report = report_on("three-rounds", story(3));
    assert_eq!(report.verdict().unwrap().cause, Cause::Growth, "{:?}", report.findings);
    assert_eq!(first(&report), &Act::FreeModels);
    assert_eq!(report_on("two-rounds", story(2)).verdict().unwrap().cause, Cause::DeviceFull, "two are not yet a row");
}

#[test]
fn a_step_that_never_made_the_request_says_nothing_of_its_rest() {
    let report = report_on("other-step", |job| {
        job.alloc(weight(job, "AddV2", "[64,64]", 3), GIB);
        for _ in 0..5 {
            job.step();
            let made = job.alloc(op(job, "model/conv/Relu", "[32,64,64]", 10), GIB);
            job.free(made);
        }
        job.step();
        job.alloc(op(job, "model/conv/Relu", "[32,64,64]", 10), GIB);
        job.refused(op(job, "model/other/Relu", "[32,64,64]", 11), 39 * GIB, &device(38 * GIB));
    });
    assert!(report.remedies.iter().all(|remedy| remedy.check == Check::Estimated), "{:?}", report.remedies);
}

#[test]
fn what_an_optimizer_computes_is_not_what_it_keeps() {
    let report = report_on("updates", |job| {
        slots(job, 8 * GIB, 8 * GIB);
        let update = called(job, "sgd/mul_2", "", &[(ADAM, "SGD.update_step", 12), (TRAIN, "<module>", 11)]);
        job.alloc(update, 8 * GIB);
        job.refused(update, 12 * GIB, &device(4 * GIB));
    });
    assert_eq!(role_at(&report, 11, "sgd/mul_2"), Role::Workspaces);
    let state = report.roles.iter().find(|share| share.role == Role::Optimizer).map(|share| share.bytes);
    assert_eq!(state, Some(8 * GIB));
}

#[test]
fn all_of_the_data_at_once_has_no_batch() {
    let report = report_on("all-data", |job| {
        let data =
            job.by_op(&Op { name: "_EagerConst", region: "dynamic", shape: "", dtype: 1 }, &[(TRAIN, "<module>", 4)]);
        job.alloc(data, 4 * GIB);
        job.refused(op(job, "Conv2D", "[1500,64,64]", 7), 39 * GIB, &device(36 * GIB));
    });
    assert_eq!((explained(&report).of, first(&report)), (Of::Data, &Act::DataOnHost), "{:?}", report.findings);
}

#[test]
fn what_is_computed_of_each_example_is_data_however_large_it_gets() {
    let story = |data: &'static str, result: &'static str| {
        move |job: &mut Job| {
            let data = job.by_op(
                &Op { name: "_EagerConst", region: "dynamic", shape: data, dtype: 1 },
                &[(TRAIN, "<module>", 4)],
            );
            job.alloc(data, GIB);
            job.refused(op(job, "ResizeBilinear", result, 7), 49 * GIB, &device(39 * GIB));
        }
    };
    let report = report_on("resized", story("[1500,32,32,3]", "[1500,224,224,3]"));
    assert_eq!((explained(&report).of, first(&report)), (Of::Data, &Act::DataOnHost), "{:?}", report.findings);
    let report = report_on("other-rows", story("[1500,64]", "[3000,100000]"));
    assert_eq!(explained(&report).of, Of::Activations, "other rows than those that were brought");
}

#[test]
fn one_example_cannot_be_divided_but_made_smaller() {
    let story = |batch: u64, weights: u64| {
        move |job: &mut Job| {
            let (shape, each) = (format!("[{batch},512,512,64]"), (40 - weights) * GIB / 10);
            job.alloc(weight(job, "AddV2", "[3,3,64,64]", 3), weights * GIB);
            for layer in 0..9 {
                job.alloc(op(job, &format!("model/conv{layer}/Relu"), &shape, 10), each);
            }
            job.refused(op(job, "model/conv9/Relu", &shape, 10), each, &device(each - MIB));
        }
    };
    assert_eq!(first(&report_on("one-example", story(1, 1))), &Act::SmallerInput(3));
    assert_eq!(first(&report_on("many-examples", story(64, 1))), &Act::SmallerBatch(8));
    let report = report_on("two-examples", story(2, 10));
    assert!(report.useless.contains(&"a smaller batch".to_owned()), "{:?}", report.useless);
    assert_eq!(first(&report), &Act::SmallerInput(3));
}

#[test]
fn pairs_of_a_batch_shrink_with_it() {
    let story = |trains: bool| {
        move |job: &mut Job| {
            job.alloc(weight(job, "AddV2", "[512,256]", 3), GIB);
            job.alloc(op(job, "IteratorGetNext", "[6144,512]", 5), 2 * GIB);
            if trains {
                let made = job.alloc(derived(job, "MatMul_1", "[512,256]", 9), GIB);
                job.free(made);
            }
            job.alloc(op(job, "matmul", "[6144,256]", 6), 10 * GIB);
            job.refused(op(job, "MatMul", "[6144,6144]", 7), 30 * GIB, &device(27 * GIB));
        }
    };
    assert!(matches!(first(&report_on("contrastive", story(true))), Act::SmallerBatch(_)));
    assert_eq!(first(&report_on("distances", story(false))), &Act::Pairs);
}

#[test]
fn who_calls_the_line_that_grows_is_named_too() {
    let report = report_on("callers", |job| {
        let lines = [(TRAIN, "denoise", 23), (LAYER, "Layer.__call__", 9), (TRAIN, "<module>", 30)];
        for _ in 0..60 {
            job.step();
            job.alloc(called(job, "mul", "[64,128]", &lines), 600 * MIB);
            job.wait(0.1);
        }
        job.refused(called(job, "mul", "[64,128]", &lines), 8 * GIB, &device(4 * GIB));
    });
    assert_eq!(first(&report), &Act::StopGrowth("train.py:23, called at train.py:30".into()));
}

#[test]
fn a_penalty_on_a_table_needs_a_derivative_of_every_row() {
    const VARIABLES: &str = "/v/site-packages/tensorflow/python/ops/resource_variable_ops.py";
    let story = |reads: bool| {
        move |job: &mut Job| {
            job.alloc(op(job, "Fill", "[400000,64]", 3), 14 * GIB);
            if reads {
                let lines = [(VARIABLES, "ResourceVariable.sparse_read", 9), (TRAIN, "<module>", 6)];
                job.alloc(called(job, "ResourceGather", "[4096,64]", &lines), GIB);
            }
            job.alloc(op(job, "Mul", "[4096,64]", 7), GIB);
            job.alloc(op(job, "ReadVariableOp", "[400000,64]", 8), 14 * GIB);
            job.refused(derived(job, "Mul", "[400000,64]", 9), 14 * GIB, &device(10 * GIB));
        }
    };
    let report = report_on("penalty", story(true));
    assert_eq!(role_at(&report, 3, "Fill"), Role::Parameters, "the batch has 4 096 rows, this has more");
    assert_eq!(role_at(&report, 6, "ResourceGather"), Role::Activations, "rows come with the batch");
    assert_eq!(role_at(&report, 8, "ReadVariableOp"), Role::Parameters, "a weight, however long");
    assert_eq!((explained(&report).of, first(&report)), (Of::WholeTable, &Act::RowsOnly));
    let report = report_on("no-table", story(false));
    assert_eq!(explained(&report).of, Of::Parameters, "every row is used anyway");
}

#[test]
fn a_matrix_of_all_pairs_is_no_data_that_comes_in_batches() {
    let story = |shape: &'static str| {
        move |job: &mut Job| {
            job.alloc(op(job, "Fill", "[65536,64]", 3), GIB);
            job.refused(op(job, "_EagerConst", shape, 7), 39 * GIB, &device(39 * GIB));
        }
    };
    let report = report_on("matrix", story("[65536,65536]"));
    assert_eq!((explained(&report).of, first(&report)), (Of::Matrix, &Act::FewerRows(4)));
    assert_eq!(explained(&report_on("examples", story("[65536,32768]"))).of, Of::Data);
}

#[test]
fn sums_that_are_made_like_weights_are_none() {
    let story = |derivatives: usize| {
        move |job: &mut Job| {
            job.alloc(op(job, "Fill", "[2048,4096]", 3), 7 * GIB);
            job.alloc(op(job, "Fill", "[2048,4096]", 4), 7 * GIB);
            for _ in 0..4 {
                job.step();
                let mut made = vec![job.alloc(op(job, "step/MatMul", "[16,4096]", 7), GIB)];
                for _ in 0..derivatives {
                    made.push(job.alloc(derived(job, "gradient_tape/MatMul", "[2048,4096]", 8), 7 * GIB));
                }
                for address in made {
                    job.free(address);
                }
            }
            job.step();
            let library = Op { name: "step/Conv2D", region: "library", shape: "", dtype: 0 };
            job.alloc(job.by_op(&library, &[(TRAIN, "call", 5)]), 12 * GIB);
            job.alloc(op(job, "zeros", "[2048,4096]", 9), 7 * GIB);
            job.refused(op(job, "concat", "", 10), 17 * GIB, &device(16 * GIB));
        }
    };
    let report = report_on("sums", story(1));
    assert_eq!(role_at(&report, 3, "Fill"), Role::Parameters);
    assert_eq!(role_at(&report, 4, "Fill"), Role::Optimizer, "one derivative, two of the shape: one is its sum");
    assert_eq!(role_at(&report, 9, "zeros"), Role::Optimizer, "new zeros for the sum");
    // No rule holds for what there is most of, and a device is nothing to begin with.
    assert_eq!(explained(&report).of, Of::Parameters);
    assert_eq!(first(&report), &Act::SmallerModel);
    let report = report_on("two-layers", story(2));
    assert_eq!(role_at(&report, 4, "Fill"), Role::Parameters, "each has its derivative");
}

#[test]
fn slots_that_an_optimizer_will_make_are_counted() {
    let story = |optimizer: &'static str| {
        move |job: &mut Job| {
            job.alloc(weight(job, "AddV2", "[4096,4096]", 3), 9 * GIB);
            let lines = [(optimizer, "Adam.__init__", 9), (TRAIN, "<module>", 4)];
            job.alloc(called(job, "_EagerConst", "[]", &lines), 512);
            for line in 6..9 {
                job.alloc(op(job, "Relu", "[64,4096]", line), 7 * GIB);
            }
            job.refused(op(job, "Relu", "[64,4096]", 9), 11 * GIB, &device(10 * GIB));
        }
    };
    let report = report_on("adam-to-come", story(ADAM));
    assert_eq!(explained(&report).of, Of::Activations);
    assert_eq!(first(&report), &Act::SmallerBatch(64), "36 GiB come with the weights: {:?}", report.remedies);
    let report = report_on("sgd-to-come", story("/v/site-packages/keras/src/optimizers/sgd.py"));
    assert_eq!(first(&report), &Act::SmallerBatch(8), "18 GiB come with the weights: {:?}", report.remedies);
}

#[test]
fn what_runs_beside_graphs_that_train_is_an_evaluation() {
    let story = |refused: &'static str, steps: u64| {
        move |job: &mut Job| {
            job.alloc(weight(job, "AddV2", "[128,128]", 3), GIB);
            for _ in 0..steps {
                job.step();
                let made = [
                    job.alloc(op(job, "concat_1", "[512,128]", 6), GIB),
                    job.alloc(op(job, "model/dense/MatMul", "[512,128]", 7), GIB),
                    job.alloc(op(job, "gradient_tape/model/dense/MatMul", "[128,128]", 8), GIB),
                ];
                for address in made {
                    job.free(address);
                }
            }
            job.alloc(op(job, "MatMul", "[40000,128]", 12), 20 * GIB);
            job.refused(op(job, refused, "[40000,128]", 12), 20 * GIB, &device(18 * GIB));
        }
    };
    assert!(matches!(first(&report_on("drawing", story("BiasAdd", 4))), Act::EvalBatch(_)));
    for (name, refused, steps) in
        [("training", "model/dense/BiasAdd", 4), ("scopeless", "concat_1", 4), ("early", "BiasAdd", 1)]
    {
        let report = report_on(name, story(refused, steps));
        assert!(!matches!(first(&report), Act::EvalBatch(_)), "{name} may be a step: {:?}", report.remedies);
    }
}

#[test]
fn derivatives_that_another_tape_records_are_results() {
    let attacked = |kept: bool| {
        move |job: &mut Job| {
            job.alloc(op(job, "Conv2D", "[256,32,32,32]", 8), 2 * GIB);
            for _ in 0..8 {
                let steps = [("Conv2DBackpropInput", GIB), ("ReluGrad", 2 * GIB)];
                let made = steps.map(|(name, bytes)| job.alloc(derived(job, name, "[256,32,32,32]", 9), bytes));
                for address in made.into_iter().filter(|_| !kept) {
                    job.free(address);
                }
            }
            job.alloc(derived(job, "Conv2DBackpropFilter", "[3,3,32,32]", 9), MIB);
            job.refused(op(job, "Conv2D", "[256,32,32,32]", 8), 16 * GIB, &device(GIB));
        }
    };
    let report = report_on("recorded", attacked(true));
    assert_eq!(role_at(&report, 9, "ReluGrad"), Role::Activations);
    assert_eq!(role_at(&report, 9, "Conv2DBackpropFilter"), Role::Gradients, "of a weight");
    let report = report_on("gone", attacked(false));
    assert!(report.holders.iter().all(|holder| holder.op != "ReluGrad"));
}

#[test]
fn a_few_examples_are_a_batch_and_no_set_of_data() {
    let story = |data: &'static str, result: &'static str| {
        move |job: &mut Job| {
            let data = job.by_op(
                &Op { name: "_EagerConst", region: "dynamic", shape: data, dtype: 1 },
                &[(TRAIN, "<module>", 4)],
            );
            job.alloc(data, 4 * GIB);
            job.refused(op(job, "ExtractImagePatches", result, 7), 45 * GIB, &device(36 * GIB));
        }
    };
    let report = report_on("few", story("[8,1024,1024,3]", "[8,125,125,3072]"));
    assert_eq!(
        (explained(&report).of, first(&report)),
        (Of::Activations, &Act::SmallerBatch(8)),
        "{:?}",
        report.findings
    );
    let report = report_on("many", story("[800,1024,1024,3]", "[800,125,125,3072]"));
    assert_eq!(explained(&report).of, Of::Data);
}

#[test]
fn what_is_made_once_is_a_variable_after_several_steps() {
    let story = |steps: u64| {
        move |job: &mut Job| {
            job.alloc(op(job, "Sin", "[64,8192]", 3), 10 * GIB);
            for _ in 0..steps {
                job.step();
                let made = job.alloc(op(job, "model/MatMul", "[64,4096]", 6), 8 * GIB);
                job.free(made);
            }
            job.refused(op(job, "model/MatMul", "[64,4096]", 6), 31 * GIB, &device(30 * GIB));
        }
    };
    assert_eq!(role_at(&report_on("positions", story(3)), 3, "Sin"), Role::Parameters);
    assert_eq!(role_at(&report_on("one-step", story(1)), 3, "Sin"), Role::Activations, "it may be of this step");
}

#[test]
fn a_variable_with_a_row_for_each_example_is_known_by_its_new_values() {
    let story = |assigned: &'static str| {
        move |job: &mut Job| {
            job.alloc(op(job, "Fill", "[64,8192]", 3), 10 * GIB);
            let made = job.alloc(op(job, "MatMul", "[64,4096]", 6), 8 * GIB);
            let value = job.alloc(op(job, "AssignAddVariableOp", assigned, 7), GIB);
            job.free(made);
            job.free(value);
            job.refused(op(job, "MatMul", "[64,4096]", 6), 31 * GIB, &device(30 * GIB));
        }
    };
    assert_eq!(role_at(&report_on("state", story("[64,8192]")), 3, "Fill"), Role::Parameters);
    assert_eq!(role_at(&report_on("batch", story("[64,1024]")), 3, "Fill"), Role::Activations, "another's value");
}

#[test]
fn results_are_too_much_where_weights_with_their_gradients_are_a_little_more() {
    let story = |weights: u64, results: u64| {
        move |job: &mut Job| {
            job.alloc(weight(job, "AddV2", "[4096,4096]", 3), weights);
            job.step();
            job.alloc(op(job, "model/dense/Relu", "[64,4096]", 6), results);
            job.alloc(op(job, "gradient_tape/model/dense/MatMul_1", "[4096,4096]", 8), weights);
            job.refused(op(job, "model/dense/Relu", "[64,4096]", 6), 4 * GIB, &device(3 * GIB));
        }
    };
    let report = report_on("results", story(9 * GIB, 13 * GIB));
    assert_eq!(explained(&report).of, Of::Activations, "{:?}", report.roles);
    let report = report_on("weights", story(14 * GIB, 4 * GIB));
    assert_eq!(explained(&report).of, Of::Parameters, "{:?}", report.roles);
}

#[test]
fn every_rule_is_needed() {
    let unnoticed = faults::unnoticed("every_rule_is_needed", |rule| rule.contains("::"));
    assert!(unnoticed.is_empty(), "no test notices that these are switched off: {unnoticed:?}");
}
