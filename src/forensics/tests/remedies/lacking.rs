//! What cannot be tried, and how much of a run is.

use super::*;

#[test]
fn what_the_log_lacks_is_said() {
    let overwritten = report("overwritten", 256, |job| {
        let held = job.alloc(job.who("model/conv/Conv2D", 20), 30 * GIB);
        job.refused(job.who("model/dense/MatMul", 21), 12 * GIB, &device(10 * GIB));
        job.free(held);
        for _ in 0..500 {
            let address = job.alloc(job.who("x", 1), MIB);
            job.free(address);
        }
    });
    impossible(&overwritten, "a smaller batch", "the log begins after the failure");
    let nameless = report_on("nameless", |job| {
        job.alloc(Attribution::default(), 30 * GIB);
        job.refused(Attribution::default(), 12 * GIB, &device(10 * GIB));
    });
    impossible(&nameless, "a smaller batch", "no operation is known");
    // The pool said that it was in pieces, and nothing in the log shows why.
    let unproven = report_on("unproven", |job| {
        weights(job, 4 * GIB);
        let now = Situation { pool_free: 5 * GIB, pool_largest: GIB, ..device(100 * MIB) };
        job.refused(job.who("model/dense/MatMul", 30), 2 * GIB, &now);
    });
    impossible(&unproven, "handle=2MiB", "a replay of the job as it was does not run out");
}

#[test]
fn nothing_is_replayed_that_must_not_be() {
    let scratch = Scratch::new("not-wanted");
    let mut job = Job::new(&scratch.0, 1 << 10).unwrap();
    large_model(&mut job, 10 * GIB, 28 * GIB, 4 * GIB);
    let run = Run::open(&job.end(End::Exit).unwrap()).unwrap();
    let options = Options { no_replay: true, ..Options::default() };
    let report = Report::of(&run, &options, |_, _| {}).unwrap();
    helps(&report, "batch / 8");
    assert!(report.remedies.iter().all(|remedy| remedy.check == Check::Estimated), "{:?}", report.remedies);
}

#[test]
fn of_a_long_run_the_last_part_is_replayed_with_what_was_left() {
    let report = report("long", 1 << 21, |job| {
        weights(job, 36 * GIB);
        let by = job.who("model/conv/Conv2D", 20);
        let held: Vec<u64> = (0..4).map(|_| job.alloc(by, 900 * MIB)).collect();
        for _ in 0..600_000 {
            let address = job.alloc(by, MIB);
            job.free(address);
        }
        assert_eq!(held.len(), 4);
        job.refused(by, 4 * GIB, &device(4 * GIB - 3600 * MIB));
    });
    // 36 GiB of weights from before the part, 3600 MiB and 4 GiB.
    let found = report.remedies.iter().find(|remedy| remedy.text.contains("a device with at least 43.5")).unwrap();
    assert_eq!(found.how, "estimated from the requests up to the refused one");
}

#[test]
fn only_the_moment_counts_not_what_came_after() {
    let report = report_on("later", |job| {
        weights(job, 10 * GIB);
        job.step();
        let by = job.who("model/conv/Conv2D", 20);
        let held: Vec<u64> = (0..28).map(|_| job.alloc(by, GIB)).collect();
        job.refused(by, 4 * GIB, &device(2 * GIB));
        for address in held {
            job.free(address);
        }
        // The job goes on, and gets more than it was refused.
        weights(job, 29 * GIB);
    });
    assert!(helps(&report, "batch / 8").contains("about 36.00 GiB of 40.00 GiB are then needed"));
}

#[test]
fn a_job_that_ran_out_with_a_little_room_left_shows_that_it_had_less() {
    let report = report_on("little-room", |job| {
        job.journal.set_cap(0, 16 * GIB);
        weights(job, 5 * GIB);
        job.step();
        for layer in 0..8 {
            job.alloc(job.who(&format!("model/conv{layer}/Conv2D"), 20), GIB);
        }
        let (pool_free, pool_largest) = (2 * GIB, 512 * MIB);
        let now = Situation { pool_free, pool_largest, ..capped(16 * GIB, 15 * GIB + 512 * MIB, 20 * GIB) };
        job.refused(job.who("model/conv8/Conv2D", 20), GIB, &now);
    });
    // By the numbers there are 15.5 GiB for 14: a replay with all of that does not run out, but the job did.
    useless(&report, "handle=2MiB", "WEIR_POOL=handle=2MiB");
    helps(&report, "raise the cap by");
    helps(&report, "batch / ");
}

#[test]
fn what_a_job_got_once_shows_that_there_was_room() {
    let report = report_on("room-once", |job| {
        weights(job, 34 * GIB);
        job.step();
        let by = job.who("model/conv/Conv2D", 20);
        let once = job.alloc(by, 5 * GIB + 512 * MIB);
        job.free(once);
        // By the numbers of now, others hold 1 GiB; but 39.5 GiB were this job's once.
        job.refused(by, 10 * GIB + 512 * MIB, &device(5 * GIB));
    });
    helps(&report, "a device with at least 44.5");
}

/// Steps of two layers that need 9 of 10 GiB with the weights; then something else is kept, and the first layer refused.
fn steps_then_refused(job: &mut Job, steps: usize) {
    job.journal.set_cap(0, 10 * GIB);
    weights(job, 4 * GIB);
    for _ in 0..steps {
        job.step();
        let first = job.alloc(job.who("model/first/Conv2D", 20), 2 * GIB);
        let second = job.alloc(job.who("model/second/Conv2D", 21), 3 * GIB);
        job.free(second);
        job.free(first);
    }
    job.alloc(job.who("metrics", 40), 4 * GIB + 512 * MIB);
    job.step();
    let now = capped(10 * GIB, 8 * GIB + 512 * MIB, 30 * GIB);
    job.refused(job.who("model/first/Conv2D", 20), 2 * GIB, &now);
}

#[test]
fn the_rest_of_a_step_is_as_in_a_whole_step_before() {
    let report = report_on("whole-step", |job| steps_then_refused(job, 3));
    let found = report.remedies.iter().find(|remedy| remedy.text.contains("raise the cap")).unwrap();
    // 10.5 GiB serve the refused request; the second layer, which the job never came to, makes it 13.5.
    let cap: u64 =
        found.text.split("WEIR_CAP=").nth(1).and_then(|text| text.split("MiB").next()).unwrap().parse().unwrap();
    assert!((13_824..13_900).contains(&cap) && found.text.ends_with("; this step then fits"), "{found:?}");
    assert_eq!((found.check, found.how.as_str()), (Check::Replayed, "replayed"), "{found:?}");
    let found = report.remedies.iter().find(|remedy| remedy.text.contains("batch / 2")).unwrap();
    assert_eq!(found.check, Check::Replayed, "{found:?}");
}

#[test]
fn without_a_whole_step_a_size_is_a_lower_bound() {
    let report = report_on("no-whole-step", |job| steps_then_refused(job, 0));
    let found = report.remedies.iter().find(|remedy| remedy.text.contains("raise the cap")).unwrap();
    assert!(
        found.text.contains("by at least 512.0 MiB") && found.text.contains("leaves room for what follows"),
        "{found:?}"
    );
    assert_eq!(found.check, Check::Estimated, "{found:?}");
    assert_eq!(found.how, "estimated from the requests up to the refused one");
    assert!(!report.remedies.iter().any(|remedy| remedy.text.contains("then fits")), "{:?}", report.remedies);
}

#[test]
fn a_replay_that_runs_out_a_little_earlier_has_a_tolerance() {
    let report = report_on("tolerance", |job| {
        job.journal.set_cap(0, 8 * GIB);
        weights(job, 4 * GIB);
        let mut kept = Vec::new();
        for step in 0..40 {
            job.step();
            kept.push(job.alloc(job.who("history", 131), 100 * MIB));
            // By the numbers of the refusal 7.9 GiB are all there is: the job once had 8.
            let most = if step == 38 { 100 * MIB } else { 10 * MIB };
            let scratch = job.alloc(job.who("model/conv/Conv2D", 20), most);
            job.free(scratch);
        }
        let now = capped(8 * GIB, 8 * GIB, 30 * GIB);
        job.refused(job.who("model/conv/Conv2D", 20), 100 * MIB, &now);
    });
    let found = report.remedies.iter().find(|remedy| remedy.text.contains("look at train.py:131")).unwrap();
    assert_eq!(found.check, Check::Replayed, "{found:?}");
    assert!(found.how.starts_with("replayed to within "), "{found:?}");
}
