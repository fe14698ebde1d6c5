//! The verdict on journals written for the purpose, each of a job that runs out of memory in its own way; in several of
//! them two causes compete. All go through files, the real reader and the whole report.

mod faults;
mod scratch;

use scratch::Scratch;
use weir_forensics::explain::Of;
use weir_forensics::remedies::Check;
use weir_forensics::report::{Options, Report};
use weir_forensics::roles::Role;
use weir_forensics::synthetic::{End, GIB, Job, MIB};
use weir_forensics::text::{Look, screen};
use weir_forensics::verdict::Cause;
use weir_forensics::views::Part;
use weir_forensics::{Fate, Run};
use weir_journal::layout::HOST_DEVICE;
use weir_journal::{Attribution, Class, Failure, STREAM_UNKNOWN, Situation};

fn job(scratch: &Scratch) -> Job {
    Job::new(&scratch.0, 1 << 14).unwrap()
}

fn report(job: Job, end: End) -> Report {
    let run = Run::open(&job.end(end).unwrap()).unwrap();
    let report = Report::of(&run, &Options::default(), |_, _| {}).unwrap();
    let (offset, now, holders) = (0, 0, None);
    let text = screen(&report, &Look { width: 80, height: 30, colour: false, offset, now, holders, details: false });
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    assert!(text.lines().count() <= 30, "{} lines:\n{text}", text.lines().count());
    let parts: u64 = report.driver.parts.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(parts, report.driver.total, "the parts add up to the device\n{text}");
    let listed: u64 = report.holders.iter().map(|holder| holder.bytes).sum();
    let by_role: u64 = report.roles.iter().map(|share| share.bytes).sum();
    assert!(!report.evidence.exact || listed + report.rest == by_role, "holders and roles add up\n{text}");
    report
}

fn causes(report: &Report) -> Vec<Cause> {
    report.findings.iter().map(|finding| finding.cause).collect()
}

/// A model, its optimizer's state, and `steps` steps that leave nothing behind.
fn train(job: &mut Job, steps: u64, model: u64, mut each: impl FnMut(&mut Job, u64)) {
    let weights = job.by("StatelessRandomUniformV2", "output", &[("/v/site-packages/keras/layer.py", "add_weight", 9)]);
    for _ in 0..8 {
        job.alloc(weights, model / 8);
    }
    let forward = job.who("model/conv/Conv2D", 20);
    let backward = job.who("gradient_tape/model/conv/Conv2DBackpropInput", 22);
    for _ in 0..steps {
        let step = job.step();
        job.host(2 * GIB, 64 * MIB);
        let made: Vec<u64> = (0..4).map(|_| job.alloc(forward, 64 * MIB)).collect();
        job.wait(0.05);
        let derived = job.alloc(backward, 128 * MIB);
        each(job, step);
        for address in made.into_iter().chain([derived]) {
            job.free(address);
        }
        job.wait(0.05);
    }
}

fn device(free: u64) -> Situation {
    Situation { device_total: 40 * GIB, device_free: free, ..Situation::default() }
}

fn capped(cap: u64, charged: u64, free: u64) -> Situation {
    Situation { cap, charged, ..device(free) }
}

#[test]
fn a_cap_that_is_reached_with_room_on_the_device() {
    let scratch = Scratch::new("cap");
    let mut job = job(&scratch);
    job.journal.set_cap(0, 8 * GIB);
    train(&mut job, 20, 7 * GIB, |_, _| {});
    let by = job.who("model/dense/MatMul", 30);
    job.refused(by, 2 * GIB, &capped(8 * GIB, 7 * GIB + 256 * MIB, 32 * GIB));
    let report = report(job, End::Exit);
    assert_eq!(causes(&report), [Cause::Cap]);
    assert!(report.findings[0].evidence.contains("the device had room"));
    assert!(report.remedies[0].text.contains("raise the cap"), "{:?}", report.remedies);
}

#[test]
fn fragmentation_of_the_pool() {
    let scratch = Scratch::new("fragments");
    let mut job = job(&scratch);
    train(&mut job, 20, 4 * GIB, |_, _| {});
    let now = Situation { pool_free: 6 * GIB, pool_largest: GIB, pool_holes: 212, ..device(100 * MIB) };
    let by = job.who("model/dense/MatMul", 30);
    job.refused(by, 2 * GIB, &now);
    let report = report(job, End::Exit);
    assert_eq!(report.verdict().unwrap().cause, Cause::Fragmentation);
    assert!(report.findings[0].evidence.contains("largest free range 1.00 GiB"));
    assert!(report.remedies[0].text.contains("handle=2MiB"), "the pool served it already: {:?}", report.remedies);
}

#[test]
fn growth_is_the_cause_though_the_cap_decides_when() {
    let scratch = Scratch::new("growth-cap");
    let mut job = job(&scratch);
    job.journal.set_cap(0, 8 * GIB);
    let mut kept = Vec::new();
    train(&mut job, 200, GIB, |job, _| {
        kept.push(job.alloc(job.who("model/head/Softmax", 131), 22 * MIB));
    });
    job.refused(job.who("model/conv/Conv2D", 20), GIB, &capped(8 * GIB, 7 * GIB + 900 * MIB, 30 * GIB));
    for address in kept {
        job.free(address);
    }
    let report = report(job, End::Killed);
    assert_eq!(causes(&report)[..2], [Cause::Growth, Cause::Cap]);
    assert!(report.growth[0].text.contains("train.py:131"), "{:?}", report.growth);
    assert!((report.growth[0].slope / (22.0 * MIB as f64) - 1.0).abs() < 0.05, "{:?}", report.growth);
    assert!(report.holders[0].grows && report.holders[0].blocks == 200, "{:?}", report.holders[0]);
    // 200 × 22 MiB kept, of which a step keeps one.
    let cure = &report.remedies[0];
    assert!(cure.text.contains("train.py:131") && cure.check == Check::Estimated, "{cure:?}");
    assert!(cure.text.contains("at most 2.03 GiB are live"), "{cure:?}");
    assert!(!report.remedies.iter().any(|remedy| remedy.text.contains("raise the cap")), "{:?}", report.remedies);
    assert_eq!((report.step, report.state), (200, Fate::Killed));
    // Slope, bytes so far, steps and the step at which the cap is full are one computation, from what else is live.
    let growth = &report.growth[0];
    assert_eq!((growth.grown.div_ceil(MIB), growth.over.round() as u64), (200 * 22, 200), "{growth:?}");
    assert!(growth.text.ends_with("grows by 22.0 MiB a step, 4.30 GiB in 200 steps"), "{}", growth.text);
    assert_eq!(growth.full_at, Some(200.0), "the cap was full at the step at which the job was refused");
    assert!(cure.text.contains("8.00 GiB are full at about step 200"), "{cure:?}");
}

#[test]
fn the_line_that_grows_most_is_named_though_its_growth_has_many_names() {
    let scratch = Scratch::new("growth-lines");
    let mut job = job(&scratch);
    job.journal.set_cap(0, 8 * GIB);
    train(&mut job, 200, GIB, |job, _| {
        job.alloc(job.who("one", 50), 16 * MIB);
        for op in ["first", "second", "third"] {
            job.alloc(job.who(op, 90), 8 * MIB);
        }
    });
    job.refused(job.who("model/conv/Conv2D", 20), GIB, &capped(8 * GIB, 8 * GIB, 30 * GIB));
    let report = report(job, End::Killed);
    assert!(report.findings[0].evidence.contains("train.py:90 grows by 24.0 MiB a step"), "{:?}", report.findings);
    assert_eq!(report.growth.len(), 2, "{:?}", report.growth);
}

#[test]
fn a_growing_job_is_advised_no_cap_and_no_device() {
    let scratch = Scratch::new("growth-no-cap");
    let mut job = job(&scratch);
    job.journal.set_cap(0, 8 * GIB);
    // It grows by 2 % of the cap, which is not what it died of.
    train(&mut job, 100, GIB, |job, _| {
        job.alloc(job.who("history", 131), 2 * MIB);
    });
    job.refused(job.who("model/conv/Conv2D", 20), 7 * GIB, &capped(8 * GIB, GIB + 200 * MIB, 30 * GIB));
    let report = report(job, End::Killed);
    assert!(causes(&report).contains(&Cause::Growth) && causes(&report)[0] != Cause::Growth, "{:?}", report.findings);
    let sizes =
        |text: &str| text.contains("raise the cap") || text.contains("a device") || text.contains("memory_limit");
    assert!(!report.remedies.iter().any(|remedy| sizes(&remedy.text)), "{:?}", report.remedies);
}

#[test]
fn a_little_growth_does_not_hide_fragmentation() {
    let scratch = Scratch::new("growth-fragments");
    let mut job = job(&scratch);
    train(&mut job, 200, 33 * GIB, |job, _| {
        job.alloc(job.who("metrics/Mean", 140), 2 * MIB);
    });
    let now = Situation { pool_free: 6 * GIB, pool_largest: GIB, ..device(0) };
    job.refused(job.who("model/conv/Conv2D", 20), 3 * GIB, &now);
    let report = report(job, End::Exit);
    assert_eq!(causes(&report)[..2], [Cause::Fragmentation, Cause::Growth]);
}

#[test]
fn growth_of_most_of_the_device_beats_fragmentation() {
    let scratch = Scratch::new("growth-most");
    let mut job = job(&scratch);
    train(&mut job, 200, 2 * GIB, |job, _| {
        job.alloc(job.who("concat", 77), 160 * MIB);
    });
    let now = Situation { pool_free: 5 * GIB, pool_largest: GIB / 2, ..device(0) };
    job.refused(job.who("model/conv/Conv2D", 20), GIB, &now);
    let report = report(job, End::Exit);
    assert_eq!(causes(&report)[..2], [Cause::Growth, Cause::Fragmentation]);
}

#[test]
fn one_request_larger_than_the_device() {
    let scratch = Scratch::new("large");
    let mut job = job(&scratch);
    let by = job.by("_EagerConst", "output", &[("/home/me/train.py", "load", 12)]);
    job.refused(by, 64 * GIB, &device(39 * GIB));
    let report = report(job, End::Exit);
    assert_eq!(report.verdict().unwrap().cause, Cause::RequestTooLarge);
    assert_eq!(report.request.as_ref().unwrap().python, "/home/me/train.py:12");
}

#[test]
fn one_request_of_most_of_the_cap_beats_the_cap() {
    let scratch = Scratch::new("large-cap");
    let mut job = job(&scratch);
    job.journal.set_cap(0, 8 * GIB);
    job.alloc(job.who("a", 3), GIB);
    job.refused(job.who("_EagerConst", 12), 7 * GIB + GIB / 2, &capped(8 * GIB, GIB, 38 * GIB));
    assert_eq!(causes(&report(job, End::Exit)), [Cause::RequestTooLarge, Cause::Cap]);
}

#[test]
fn another_process_holds_what_is_missing() {
    let scratch = Scratch::new("other-process");
    let mut job = job(&scratch);
    train(&mut job, 20, 12 * GIB, |_, _| {});
    job.refused(job.who("model/conv/Conv2D", 20), 4 * GIB, &device(2 * GIB));
    let report = report(job, End::Exit);
    assert_eq!(causes(&report)[..2], [Cause::OtherProcess, Cause::DeviceFull]);
    assert_eq!(report.driver.of(Part::Others), 26 * GIB);
}

#[test]
fn chunks_that_the_driver_takes_for_a_job_are_no_other_process() {
    let scratch = Scratch::new("chunks");
    let mut job = job(&scratch);
    // Alone on the device, without the pool: each request takes a chunk of 2 MiB.
    for _ in 0..2048 {
        job.alloc_as(Class::Device, 0, Attribution::default(), 1_200_000);
    }
    let full = Situation { device_total: 4 * GIB, device_free: 0, ..Situation::default() };
    job.refused_as(Class::Device, Attribution::default(), 1_200_000, &full);
    let report = report(job, End::Exit);
    assert!(!causes(&report).contains(&Cause::OtherProcess), "{:?}", report.findings);
    assert_eq!(report.driver.of(Part::Others), 0);
}

#[test]
fn the_others_of_a_group_hold_its_cap() {
    let scratch = Scratch::new("group");
    let mut job = job(&scratch);
    job.alloc(job.who("a", 3), GIB);
    let now = Situation { charged_by_others: 6 * GIB, ..capped(8 * GIB, 7 * GIB, 33 * GIB) };
    job.refused(job.who("b", 4), 2 * GIB, &now);
    assert_eq!(causes(&report(job, End::Exit)), [Cause::OtherProcess, Cause::Cap]);
}

#[test]
fn a_cap_stands_before_another_process() {
    let scratch = Scratch::new("cap-other-process");
    let mut job = job(&scratch);
    train(&mut job, 20, 7 * GIB, |_, _| {});
    // The device is full too, but this job would have been refused on an empty one.
    job.refused(job.who("b", 4), 2 * GIB, &capped(8 * GIB, 7 * GIB, GIB));
    let report = report(job, End::Exit);
    assert!(!causes(&report).contains(&Cause::OtherProcess), "{:?}", report.findings);
    assert!(causes(&report).contains(&Cause::Cap));
}

#[test]
fn pinned_host_memory_is_refused() {
    let scratch = Scratch::new("pinned");
    let mut job = job(&scratch);
    for step in 0..50 {
        job.step();
        job.host(GIB + step * 200 * MIB, step * 100 * MIB);
        job.wait(0.1);
    }
    job.refused_as(
        Class::Pinned,
        Attribution::default(),
        4 * GIB,
        &Situation { resident: 11 * GIB, ..device(39 * GIB) },
    );
    assert_eq!(report(job, End::Exit).verdict().unwrap().cause, Cause::HostMemory);
}

#[test]
fn a_process_that_is_killed_with_the_hosts_memory_full() {
    let scratch = Scratch::new("host");
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total: u64 = memory.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10;
    let mut job = job(&scratch);
    for step in 1..=60 {
        job.step();
        job.host(total / 64 * step, 0);
        job.wait(0.5);
    }
    let report = report(job, End::Killed);
    assert_eq!(causes(&report), [Cause::HostMemory]);
    assert!(report.host.slope.is_some());
}

/// A job whose host memory grows by 100 MiB a step, while one line requests `each` of it from TensorFlow and keeps so many.
fn fills_the_host(name: &str, each: u64, kept: usize) -> Report {
    let scratch = Scratch::new(name);
    let mut job = job(&scratch);
    let mut live = Vec::new();
    for step in 1..=60 {
        job.step();
        job.host(GIB + step * 100 * MIB, 0);
        let by = job.who("Identity", 33);
        live.push(job.alloc_as(Class::HostTensor, HOST_DEVICE, by, each));
        let by = job.who("Fill", 9);
        let small = job.alloc_as(Class::HostTensor, HOST_DEVICE, by, 10 * MIB);
        job.free_as(Class::HostTensor, small);
        if live.len() > kept {
            job.free_as(Class::HostTensor, live.remove(0));
        }
        job.wait(0.5);
    }
    report(job, End::Exit)
}

#[test]
fn who_fills_the_host_is_named() {
    // What is kept is blamed as held; of what other code copied, TensorFlow has seen the passage only.
    for (name, kept, does) in [("host-held", 60, "holds"), ("host-brought", 1, "brought")] {
        let report = fills_the_host(name, 100 * MIB, kept);
        let verdict = report.verdict().unwrap();
        assert_eq!(verdict.cause, Cause::HostMemory);
        assert!(verdict.evidence.contains(&format!("train.py:33 {does} 5.86 GiB")), "{}", verdict.evidence);
        assert!(report.remedies[0].text.contains("train.py:33"), "{:?}", report.remedies);
        let first = &report.host.holders[0];
        assert_eq!((first.place(), first.brought, first.allocations), ("train.py:33", 6000 * MIB, 60));
        assert_eq!((first.bytes, first.blocks), (kept as u64 * 100 * MIB, kept as u64));
    }
    // Much more, or much less, than what is there now explains nothing.
    for (name, each) in [("host-passing", GIB), ("host-little", 20 * MIB)] {
        let report = fills_the_host(name, each, 1);
        let verdict = report.verdict().unwrap();
        assert_eq!(verdict.cause, Cause::HostMemory);
        assert!(!verdict.evidence.contains("train.py"), "{}", verdict.evidence);
    }
}

#[test]
fn tensorflow_holds_what_a_library_lacks() {
    let scratch = Scratch::new("reserved-idle");
    let mut job = job(&scratch);
    let region = job.alloc_as(Class::Device, 0, Attribution::default(), 37 * GIB);
    for n in 0..40 {
        let by = job.who("model/conv/Conv2D", 20);
        job.alloc_at(Class::Tensor, 0, by, 100 * MIB, region + n * 100 * MIB);
    }
    // The same operation on the same line calls a library that takes memory for itself.
    let library = job.by("model/conv/Conv2D", "library", &[("/home/me/train.py", "train_step", 20)]);
    job.alloc_as(Class::Device, 0, library, 8 * MIB);
    job.refused_as(Class::Device, Attribution::default(), 512 * MIB, &device(200 * MIB));
    let report = report(job, End::Exit);
    assert_eq!(report.verdict().unwrap().cause, Cause::ReservedIdle);
    let view = report.tensors.unwrap();
    assert!(view.own_allocator && view.used == 4000 * MIB && view.reserved == view.used + view.idle);
    assert_eq!((view.reserved, view.beside), (37 * GIB, 8 * MIB));
    assert_eq!(report.driver.of(Part::Live), view.reserved + view.beside, "the views add up");
    assert_eq!(report.holders[0].bytes, 4000 * MIB, "the holders are tensors");
    assert_eq!((report.holders[1].bytes, report.holders[1].role), (8 * MIB, Role::Workspaces));
}

#[test]
fn tensorflows_own_regions_are_in_pieces() {
    let scratch = Scratch::new("bfc-fragments");
    let mut job = job(&scratch);
    let region = job.alloc_as(Class::Device, 0, Attribution::default(), 37 * GIB);
    for n in 0..36 {
        let by = job.who("model/conv/Conv2D", 20);
        job.alloc_at(Class::Tensor, 0, by, 512 * MIB, region + n * GIB);
    }
    job.refused_as(Class::Tensor, job.who("model/big/MatMul", 44), 2 * GIB, &device(200 * MIB));
    let report = report(job, End::Exit);
    assert_eq!(report.verdict().unwrap().cause, Cause::Fragmentation);
    assert!(!causes(&report).contains(&Cause::ReservedIdle));
}

#[test]
fn models_that_are_kept_grow_under_new_names_and_in_stairs() {
    // Every fold trains ten steps and leaves its optimizer's state behind; how many folds, and whether it does.
    let folds = |name: &str, folds: u64, kept: bool| {
        let scratch = Scratch::new(name);
        let mut job = job(&scratch);
        train(&mut job, 5, 2 * GIB, |_, _| {});
        for fold in 0..folds {
            let slots: Vec<u64> =
                (0..8).map(|slot| job.alloc(job.who(&format!("adam_{fold}/momentum_{slot}"), 12), 256 * MIB)).collect();
            for _ in 0..10 {
                job.step();
                let made = job.alloc(job.who("model/conv/Conv2D", 20), 64 * MIB);
                job.wait(0.1);
                job.free(made);
            }
            if !kept {
                for address in slots {
                    job.free(address);
                }
            }
        }
        job.refused(job.who("model/conv/Conv2D", 20), 8 * GIB, &device(GIB));
        report(job, End::Failure)
    };
    let kept = folds("folds", 16, true);
    assert_eq!(kept.verdict().unwrap().cause, Cause::Growth);
    assert!(kept.findings[0].evidence.starts_with("train.py:12 grows by "), "{:?}", kept.findings);
    assert!(kept.remedies[0].text.contains("look at train.py:12"), "{:?}", kept.remedies);
    assert!(kept.holders.iter().filter(|holder| holder.python.ends_with(":12")).all(|holder| holder.grows));
    let freed = folds("folds-freed", 16, false);
    assert!(!causes(&freed).contains(&Cause::Growth), "{:?}", freed.findings);
    // A line through three jumps fits well, but they may be all that there will ever be.
    for few in [1, 3] {
        assert!(!causes(&folds("few-folds", few, true)).contains(&Cause::Growth), "{few} jumps are no growth");
    }
}

#[test]
fn what_a_library_lacks_inside_an_operation_is_held_by_tensorflow_too() {
    let scratch = Scratch::new("reserved-idle-library");
    let mut job = job(&scratch);
    let region = job.alloc_as(Class::Device, 0, Attribution::default(), 39 * GIB);
    let by = job.who("model/conv/Conv2D", 20);
    job.alloc_at(Class::Tensor, 0, by, 100 * MIB, region);
    let library = job.by("model/conv/Conv2D", "library", &[("/home/me/train.py", "train_step", 20)]);
    job.refused_as(Class::Device, library, 512 * MIB, &device(200 * MIB));
    let report = report(job, End::Failure);
    assert_eq!(report.verdict().unwrap().cause, Cause::ReservedIdle);
}

/// A job whose allocator has a limit of its own on a device that is nearly empty: eight tensors of 64 MiB in one region
/// whose chunks are larger by `slack`.
fn limited(scratch: &Scratch, slack: u64) -> Job {
    let mut job = job(scratch);
    let region = job.alloc_as(Class::Device, 0, Attribution::default(), GIB);
    let by = job.who("model/conv/Conv2D", 20);
    for n in 0..8 {
        job.tensor(by, 64 * MIB, 64 * MIB + slack, region + n * (64 * MIB + slack));
    }
    job
}

#[test]
fn tensorflows_limit_is_reached_while_the_device_has_room() {
    let scratch = Scratch::new("own-limit");
    let mut job = limited(&scratch, 0);
    job.refused_as(Class::Tensor, job.who("model/big/MatMul", 44), 2 * GIB, &device(38 * GIB));
    let report = report(job, End::Failure);
    assert_eq!(causes(&report), [Cause::TensorflowLimit]);
    assert!(report.findings[0].evidence.contains("the device has 38.00 GiB free"), "{:?}", report.findings);
    // The device has far more than 512 MiB and 2 GiB: all of it but a sixteenth.
    let cure = &report.remedies[0];
    let limit: u64 = cure.text.split("memory_limit=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    assert!(cure.check == Check::Estimated && limit == (39 * 1024) / 16 * 15, "{cure:?}");
    assert!(
        report.remedies.iter().any(|remedy| remedy.text.contains("WEIR_TF_ALLOCATOR=pool")),
        "{:?}",
        report.remedies
    );
}

#[test]
fn a_limit_of_tensorflows_is_not_to_blame_where_the_device_or_the_cap_is_full() {
    for (name, now) in [("own-full", device(GIB)), ("own-cap", capped(2 * GIB, GIB + 8 * MIB, 38 * GIB))] {
        let scratch = Scratch::new(name);
        let mut job = limited(&scratch, 0);
        job.refused_as(Class::Tensor, job.who("model/big/MatMul", 44), 2 * GIB, &now);
        let report = report(job, End::Failure);
        assert!(!causes(&report).contains(&Cause::TensorflowLimit), "{name}: {:?}", report.findings);
    }
}

#[test]
fn chunks_that_tensorflow_does_not_split() {
    let scratch = Scratch::new("unsplit");
    let mut job = limited(&scratch, 60 * MIB);
    job.refused_as(Class::Tensor, job.who("model/big/MatMul", 44), 300 * MIB, &device(38 * GIB));
    let report = report(job, End::Failure);
    // The device has room, so the limit decides; the chunks stand behind it.
    assert_eq!(causes(&report)[..2], [Cause::TensorflowLimit, Cause::ReservedIdle]);
    assert!(report.findings[1].evidence.contains("480.0 MiB of 992.0 MiB"), "{:?}", report.findings);
    let view = report.tensors.unwrap();
    assert_eq!((view.used, view.slack, view.idle), (8 * 124 * MIB, 8 * 60 * MIB, 32 * MIB));
    let scratch = Scratch::new("split");
    let mut job = limited(&scratch, 60 * MIB);
    job.refused_as(Class::Tensor, job.who("model/big/MatMul", 44), 600 * MIB, &device(38 * GIB));
    assert_eq!(causes(&self::report(job, End::Failure)), [Cause::TensorflowLimit], "less than was requested");
}

#[test]
fn a_job_that_fails_after_it_tried_in_vain() {
    let tried = |name: &str, end: End, later: u64| {
        let scratch = Scratch::new(name);
        let mut job = limited(&scratch, 0);
        let by = job.who("model/conv/Conv2D", 21);
        job.tried(Class::Tensor, job.who("model/other/Conv2D", 9), 700 * MIB);
        job.tried(Class::Tensor, by, 900 * MIB);
        job.tried(Class::Tensor, by, 800 * MIB);
        for _ in 0..later {
            let block = job.alloc(by, MIB);
            job.free(block);
        }
        report(job, end)
    };
    let failed = tried("tried", End::Failure, 10);
    let request = failed.request.as_ref().unwrap();
    assert_eq!((request.bytes, request.times, request.op.as_str()), (800 * MIB, 2, "model/conv/Conv2D"));
    assert!(request.python.ends_with("train.py:21") && request.only_tried && failed.is_oom());
    assert_eq!((failed.oom, failed.tried, failed.exit_status), (0, 3, Some(1)));
    assert_eq!(causes(&failed), [Cause::TensorflowLimit]);
    // One that ended well, was killed, or went on for long did without.
    for (name, end, later) in [("well", End::Exit, 10), ("killed", End::Killed, 10), ("on", End::Failure, 2000)] {
        let report = tried(name, end, later);
        assert!(report.request.is_none() && report.findings.is_empty() && !report.is_oom(), "{name}");
        assert_eq!(report.tried, 3);
    }
}

#[test]
fn a_try_under_a_cap_is_judged_by_what_the_events_record() {
    let scratch = Scratch::new("tried-cap");
    let mut job = job(&scratch);
    job.journal.set_cap(0, 8 * GIB);
    train(&mut job, 20, 7 * GIB, |_, _| {});
    job.tried(Class::Block, job.who("model/conv/Conv2D", 30), 2 * GIB);
    let report = report(job, End::Failure);
    assert_eq!(causes(&report), [Cause::Cap]);
    assert_eq!(report.findings[0].evidence, "7.00 GiB of 8.00 GiB are taken and 2.00 GiB requested");
    // 9 GiB, as far as the search for it goes; no step before made such a request, so twice as much.
    assert!(
        report.remedies[0].text.contains("raise the cap by at least 1.01 GiB; WEIR_CAP=18440MiB"),
        "{:?}",
        report.remedies
    );
}

#[test]
fn freed_memory_that_the_device_may_still_touch() {
    let scratch = Scratch::new("deferred");
    let mut job = job(&scratch);
    train(&mut job, 20, 4 * GIB, |_, _| {});
    let now =
        Situation { pool_free: GIB, pool_largest: GIB, pool_deferred: 3 * GIB, ..capped(9 * GIB, 8 * GIB, 30 * GIB) };
    job.refused(job.who("b", 4), 2 * GIB, &now);
    assert_eq!(causes(&report(job, End::Exit))[..2], [Cause::FreedTooLate, Cause::Cap]);
}

#[test]
fn a_model_that_is_too_large_for_the_device() {
    let scratch = Scratch::new("device-full");
    let mut job = job(&scratch);
    let weights = job.by("Fill", "output", &[("/v/site-packages/keras/layer.py", "add_weight", 9)]);
    job.alloc(weights, 10 * GIB);
    job.step();
    // One long first step: it builds up and is no growth.
    for layer in 0..280 {
        job.alloc(job.who(&format!("model/conv{layer}/Conv2D"), 20), 100 * MIB);
        job.wait(0.01);
    }
    job.refused(job.who("model/conv280/Conv2D", 20), 3 * GIB, &device(2 * GIB));
    let report = report(job, End::Exit);
    assert_eq!(causes(&report), [Cause::DeviceFull]);
    assert_eq!(report.roles[0].role, Role::Activations);
    assert_eq!(report.roles[1].role, Role::Parameters);
    // 10 GiB of weights, as much for their gradients, and three times 30 GiB for a step whose rest nobody has seen.
    assert!(report.remedies[0].text.contains("batch / 8"), "{:?}", report.remedies);
    let explanation = report.findings[0].explanation.as_ref().unwrap();
    assert_eq!(explanation.of, Of::Activations, "{explanation:?}");
}

#[test]
fn building_up_without_steps_is_no_growth() {
    let scratch = Scratch::new("build");
    let mut job = job(&scratch);
    for _ in 0..300 {
        let by = job.who("Conv2D", 20);
        job.alloc(by, 100 * MIB);
        job.wait(0.1);
    }
    job.refused(job.who("Conv2D", 20), 12 * GIB, &device(10 * GIB));
    assert_eq!(causes(&report(job, End::Exit)), [Cause::DeviceFull]);
}

#[test]
fn each_device_is_reported_by_its_own_failure() {
    let scratch = Scratch::new("devices");
    let mut job = job(&scratch);
    job.journal.set_device(1, *b"weir-synthetic-1", 40 * GIB, "Made-up GPU");
    job.journal.set_device(2, *b"weir-synthetic-2", 40 * GIB, "Made-up GPU");
    let by = job.who("Conv2D", 20);
    job.refused(by, 50 * GIB, &device(40 * GIB));
    for _ in 0..30 {
        job.alloc_as(Class::Block, 1, by, GIB);
    }
    let failure =
        Failure { device: 1, class: Class::Block, stream: STREAM_UNKNOWN, requested: 12 * GIB, result: 2, by };
    job.journal.out_of_memory(&failure, &device(10 * GIB));
    let path = job.end(End::Exit).unwrap();
    let of = |device| {
        let options = Options { device, ..Options::default() };
        Report::of(&Run::open(&path).unwrap(), &options, |_, _| {}).unwrap()
    };
    let reported = |report: Report| {
        let causes = causes(&report);
        (report.device, report.request.map(|request| request.bytes), causes)
    };
    assert_eq!(reported(of(None)), (1, Some(12 * GIB), vec![Cause::DeviceFull]));
    assert_eq!(reported(of(Some(1))), (1, Some(12 * GIB), vec![Cause::DeviceFull]));
    assert_eq!(reported(of(Some(0))).2[0], Cause::RequestTooLarge);
    assert_eq!(reported(of(Some(2))), (2, None, vec![]));
}

#[test]
fn what_was_held_at_the_moment_is_reported_though_all_was_freed_later() {
    let scratch = Scratch::new("later");
    let mut job = job(&scratch);
    let held: Vec<u64> = (0..30).map(|_| job.alloc(job.who("model/conv/Conv2D", 20), GIB)).collect();
    job.refused(job.who("model/dense/MatMul", 21), 12 * GIB, &device(10 * GIB));
    for address in held {
        job.free(address);
    }
    let report = report(job, End::Exit);
    assert_eq!((report.holders[0].bytes, report.holders[0].blocks), (30 * GIB, 30));
    assert_eq!(report.driver.of(Part::Live), 30 * GIB);
    assert!(report.evidence.exact);
}

#[test]
fn holders_come_from_the_dump_when_the_moment_is_overwritten() {
    let scratch = Scratch::new("overwritten");
    let mut job = Job::new(&scratch.0, 256).unwrap();
    let held = job.alloc(job.who("model/conv/Conv2D", 20), 30 * GIB);
    job.refused(job.who("model/dense/MatMul", 21), 12 * GIB, &device(10 * GIB));
    job.free(held);
    for _ in 0..500 {
        let address = job.alloc(job.who("x", 1), MIB);
        job.free(address);
    }
    let report = report(job, End::Exit);
    assert!(!report.evidence.exact && report.evidence.overwritten > 0);
    assert_eq!((report.holders[0].bytes, report.holders[0].place()), (30 * GIB, "train.py:20"));
}

#[test]
fn probing_is_one_failure_of_the_least_size() {
    let scratch = Scratch::new("probing");
    let mut job = job(&scratch);
    let by = job.who("model/conv/Conv2D", 20);
    let mut requested = 8 * GIB;
    for _ in 0..10 {
        job.refused_as(Class::Device, by, requested, &device(100 * MIB));
        requested = requested / 10 * 9;
    }
    let report = report(job, End::Exit);
    let wanted = report.request.as_ref().unwrap();
    assert_eq!(wanted.times, 10);
    assert!(wanted.bytes < 4 * GIB, "{wanted:?}");
}

#[test]
fn a_job_that_ended_well_has_no_verdict() {
    let scratch = Scratch::new("well");
    let mut job = job(&scratch);
    train(&mut job, 50, GIB, |_, _| {});
    let report = report(job, End::Exit);
    assert!(report.findings.is_empty() && report.remedies.is_empty() && !report.is_oom());
    assert_eq!(report.state, Fate::Ended);
    // 1 GiB of weights, four results and one derivative.
    assert_eq!(report.peak, GIB + 4 * 64 * MIB + 128 * MIB);
}

#[test]
fn a_living_job_that_grows_has_a_forecast() {
    let scratch = Scratch::new("alive");
    let mut job = job(&scratch);
    train(&mut job, 100, GIB, |job, _| {
        job.alloc(job.who("history", 131), 100 * MIB);
    });
    let report = report(job, End::Alive);
    assert_eq!((report.state, causes(&report)), (Fate::Alive, vec![Cause::Growth]));
    // 40 GiB, less 1 GiB of weights and 100 times 100 MiB, by 100 MiB a step.
    let full = report.growth[0].full_at.unwrap();
    assert!((full - 399.0).abs() < 6.0, "{full}");
}

#[test]
fn what_is_spilled_is_no_part_of_the_device() {
    let scratch = Scratch::new("spilled");
    let mut job = job(&scratch);
    job.journal.set_cap(0, 8 * GIB);
    job.alloc_as(Class::Handle, 0, Attribution::default(), 8 * GIB);
    job.alloc_as(Class::Handle, HOST_DEVICE, Attribution::default(), 4 * GIB);
    for _ in 0..12 {
        job.alloc(job.who("model/conv/Conv2D", 20), GIB);
    }
    job.refused(job.who("model/dense/MatMul", 21), GIB, &capped(8 * GIB, 8 * GIB, 32 * GIB));
    let report = report(job, End::Exit);
    assert_eq!((report.driver.spilled, report.driver.of(Part::Live)), (4 * GIB, 8 * GIB));
    assert_eq!((report.driver.of(Part::Others), report.driver.of(Part::Free)), (0, 32 * GIB));
    assert_eq!(report.holders[0].bytes, 12 * GIB, "the holder has all of it");
}

#[test]
fn float64_by_accident_is_noticed() {
    let scratch = Scratch::new("double");
    let mut job = job(&scratch);
    let op = job.journal.op(&weir_journal::Op { name: "Cast", region: "output", shape: "", dtype: 2 });
    job.alloc(Attribution { op, ..Attribution::default() }, 20 * GIB);
    job.refused(job.who("model/dense/MatMul", 21), 22 * GIB, &device(20 * GIB));
    let report = report(job, End::Exit);
    assert!(report.remedies.iter().any(|remedy| remedy.text.contains("float64")), "{:?}", report.remedies);
}

#[test]
fn a_device_with_less_than_a_handle_left_is_full_and_nothing_else() {
    let scratch = Scratch::new("nearly-full");
    let mut job = job(&scratch);
    train(&mut job, 3, 30 * GIB, |_, _| {});
    // 6 MiB are requested and 9 free: two MiB more than the request, and no whole handle of 8.
    job.refused(job.who("model/conv/Conv2D", 20), 6 * MIB, &device(9 * MIB));
    let report = report(job, End::Killed);
    assert_eq!(causes(&report), [Cause::DeviceFull], "{:?}", report.findings);
}

#[test]
fn what_is_kept_for_tiny_requests_is_no_fragmentation() {
    let scratch = Scratch::new("tiny-reserve");
    let mut job = job(&scratch);
    train(&mut job, 3, 30 * GIB, |_, _| {});
    let now = Situation { pool_free: 7 * MIB, pool_largest: MIB, pool_holes: 7, ..device(MIB) };
    job.refused(job.who("model/conv/Conv2D", 20), 6 * MIB, &now);
    let report = report(job, End::Killed);
    assert!(!causes(&report).contains(&Cause::Fragmentation), "{:?}", report.findings);
    assert_ne!(causes(&report)[0], Cause::Unknown, "{:?}", report.findings);
}

/// A hundred thousand steps with a ring that has the last five thousand of them: each has a temporary block, every tenth
/// calls `tenth`.
fn long_run(job: &mut Job, mut tenth: impl FnMut(&mut Job, u64)) {
    let weights = job.by("StatelessRandomUniformV2", "output", &[("/v/site-packages/keras/layer.py", "add_weight", 9)]);
    job.alloc(weights, 4 * GIB);
    let forward = job.who("model/conv/Conv2D", 20);
    for _ in 0..100_000 {
        let step = job.step();
        let made = job.alloc(forward, 64 * MIB);
        job.wait(6.0);
        if step.is_multiple_of(10) {
            tenth(job, step / 10);
        }
        job.free(made);
    }
}

#[test]
fn a_leak_that_took_a_week_is_growth_though_the_ring_has_the_last_hours() {
    let scratch = Scratch::new("week");
    let mut job = job(&scratch);
    job.journal.set_cap(0, 8 * GIB);
    let mut kept = Vec::new();
    long_run(&mut job, |job, _| kept.push(job.alloc(job.who("metrics/Mean", 131), 128 << 10)));
    job.refused(job.who("model/conv/Conv2D", 20), 3 * GIB, &capped(8 * GIB, 6 * GIB, 30 * GIB));
    // The interpreter gives all back when it ends: the moment counts, not the end.
    for address in kept {
        job.free(address);
    }
    let report = report(job, End::Failure);
    assert!(report.evidence.overwritten > 200_000, "{:?}", report.evidence);
    assert!(causes(&report).contains(&Cause::Growth), "{:?}", report.findings);
    let growth = &report.growth[0];
    assert!(growth.text.contains("train.py:131 grows by"), "{growth:?}");
    // Ten thousand blocks of 128 KiB in a hundred thousand steps.
    assert!((growth.slope / 13107.2 - 1.0).abs() < 0.05, "{growth:?}");
    assert!((growth.grown as f64 / (1250 * MIB) as f64 - 1.0).abs() < 0.05, "{growth:?}");
    assert!((growth.over / 1e5 - 1.0).abs() < 0.05 && growth.unit == "step", "{growth:?}");
}

#[test]
fn what_is_replaced_at_random_for_a_week_is_no_growth() {
    let scratch = Scratch::new("replaced");
    let mut job = job(&scratch);
    job.journal.set_cap(0, 8 * GIB);
    let (mut buffer, mut random) = (Vec::new(), 1_u64);
    long_run(&mut job, |job, _| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let new = job.alloc(job.who("replay/Copy", 131), 256 << 10);
        if buffer.len() < 1500 {
            buffer.push(new);
        } else {
            let place = (random >> 33) as usize % buffer.len();
            job.free(std::mem::replace(&mut buffer[place], new));
        }
    });
    job.refused(job.who("model/conv/Conv2D", 20), 3 * GIB, &capped(8 * GIB, 6 * GIB, 30 * GIB));
    let report = report(job, End::Killed);
    assert!(report.evidence.overwritten > 200_000 && !causes(&report).contains(&Cause::Growth), "{:?}", report.growth);
}

#[test]
fn every_rule_is_needed() {
    let unnoticed = faults::unnoticed("every_rule_is_needed", |rule| !rule.contains("::"));
    assert!(unnoticed.is_empty(), "no test notices that these are switched off: {unnoticed:?}");
}
