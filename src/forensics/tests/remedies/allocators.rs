//! Growth, and how memory is handed out.

use super::*;

/// Steps that each keep a piece, as many as wanted of them; then a request is refused.
fn leaking(job: &mut Job, kept: &[(&str, u32, u64)], parameters: u64, requested: u64, steps: bool) {
    job.journal.set_cap(0, 8 * GIB);
    weights(job, parameters);
    let mut live = parameters;
    for _ in 0..200 {
        if steps {
            job.step();
        }
        let made = job.alloc(job.who("model/conv/Conv2D", 20), 64 * MIB);
        for (op, line, bytes) in kept {
            job.alloc(job.who(op, *line), *bytes);
            live += bytes;
        }
        job.wait(0.1);
        job.free(made);
    }
    job.refused(job.who("model/conv/Conv2D", 20), requested, &capped(8 * GIB, live, 32 * GIB));
}

#[test]
fn growth_that_stops_leaves_room() {
    let kept = [("model/head/Softmax", 131, 22 * MIB)];
    let text = helps(&report_on("grows", |job| leaking(job, &kept, 2 * GIB, 2 * GIB, true)), "look at train.py:131");
    assert!(text.contains("With this freed each step, at most 4.03 GiB are live and every request fits"), "{text}");
    // 6 GiB of weights and 3 GiB requested do not fit into 8, whatever grew.
    let kept = [("model/head/Softmax", 131, 6 * MIB)];
    let report = report_on("grows-little", |job| leaking(job, &kept, 6 * GIB, 3 * GIB, true));
    useless(&report, "look at train.py:131", "stopping the growth at train.py:131");
}

#[test]
fn growth_without_steps_stops_at_what_was_built_up() {
    let kept = [("model/head/Softmax", 131, 22 * MIB)];
    let text = helps(&report_on("seconds", |job| leaking(job, &kept, 2 * GIB, 2 * GIB, false)), "look at train.py:131");
    assert!(text.contains("each run") && text.contains("With this held at 1.") && text.contains("are live"), "{text}");
}

#[test]
fn growth_at_two_places_is_stopped_together() {
    let kept = [("model/head/Softmax", 131, 11 * MIB), ("concat", 77, 10 * MIB)];
    let report = report_on("together", |job| leaking(job, &kept, 2 * GIB, 5 * GIB, true));
    let text = helps(&report, "look at train.py:131");
    assert!(text.contains("With this and the other 1 that grow freed each step"), "{text}");
}

/// Blocks of one size fill 16 GiB of the pool, and only each n-th stays.
fn pieces(job: &mut Job, bytes: u64, stays: usize, requested: u64) {
    let by = job.who("model/conv/Conv2D", 20);
    let blocks: Vec<u64> = (0..16 * GIB / bytes).map(|_| job.alloc(by, bytes)).collect();
    job.step();
    let count = blocks.len() as u64;
    for address in blocks.iter().enumerate().filter(|(place, _)| place % stays != 0).map(|(_, address)| *address) {
        job.free(address);
    }
    job.step();
    let live = count.div_ceil(stays as u64) * bytes;
    let pool_free = 16 * GIB - live;
    let now = Situation { pool_free, pool_largest: bytes * (stays as u64 - 1), pool_holes: count, ..device(0) };
    job.refused(by, requested, &now);
}

#[test]
fn smaller_handles_help_where_ranges_are_as_large() {
    let report = report("handles", 1 << 15, |job| pieces(job, 2 * MIB, 4, 4 * GIB));
    helps(&report, "handle=2MiB");
}

#[test]
fn smaller_handles_are_no_help_against_smaller_ranges() {
    let report = report("holes", 1 << 16, |job| pieces(job, 5 * MIB / 4, 2, 4 * GIB));
    useless(&report, "handle=2MiB", "WEIR_POOL=handle=2MiB");
}

#[test]
fn the_pool_serves_what_tensorflows_regions_cannot() {
    let report = report_on("pool", |job| {
        let region = job.alloc_as(Class::Device, 0, Attribution::default(), 37 * GIB);
        for n in 0..36 {
            job.alloc_at(Class::Tensor, 0, job.who("model/conv/Conv2D", 20), 512 * MIB, region + n * GIB);
        }
        job.refused_as(Class::Tensor, job.who("model/big/MatMul", 44), 2 * GIB, &device(200 * MIB));
    });
    helps(&report, "WEIR_TF_ALLOCATOR=pool");
    // By bytes it fits exactly; the pool needs a piece of its own for the small tensor.
    let report = report_on("pool-full", |job| {
        let region = job.alloc_as(Class::Device, 0, Attribution::default(), 37 * GIB);
        let by = job.who("model/conv/Conv2D", 20);
        job.alloc_at(Class::Tensor, 0, by, KIB, region);
        job.alloc_at(Class::Tensor, 0, by, 32 * GIB - KIB, region + GIB);
        job.refused_as(Class::Tensor, job.who("model/big/MatMul", 44), 5 * GIB, &device(0));
    });
    useless(&report, "WEIR_TF_ALLOCATOR=pool", "weir's pool");
}

#[test]
fn memory_growth_helps_unless_tensorflow_needed_it_all_once() {
    let story = |once: u64| {
        move |job: &mut Job| {
            let region = job.alloc_as(Class::Device, 0, Attribution::default(), 37 * GIB);
            let by = job.who("model/conv/Conv2D", 20);
            job.alloc_at(Class::Tensor, 0, by, GIB, region);
            job.alloc_at(Class::Tensor, 0, by, once, region + GIB);
            job.free_as(Class::Tensor, region + GIB);
            job.refused_as(Class::Device, Attribution::default(), 12 * GIB, &device(3 * GIB));
        }
    };
    let report = report_on("growth", story(2 * GIB));
    helps(&report, "TF_FORCE_GPU_ALLOW_GROWTH=true");
    // TensorFlow would take all of a larger device too.
    assert!(!report.remedies.iter().any(|remedy| remedy.text.contains("a device")), "{:?}", report.remedies);
    let report = report_on("growth-once", story(30 * GIB));
    helps(&report, "WEIR_TF_ALLOCATOR=pool");
    useless(&report, "TF_FORCE_GPU_ALLOW_GROWTH", "memory growth");
}

#[test]
fn waiting_for_the_device_helps_where_the_rest_fits() {
    let story = |small: bool| {
        move |job: &mut Job| {
            weights(job, 4 * GIB);
            if small {
                job.alloc(job.who("model/bias", 19), KIB);
            }
            let pool_deferred = 3 * GIB;
            let now =
                Situation { pool_free: GIB, pool_largest: GIB, pool_deferred, ..capped(8 * GIB, 8 * GIB, 30 * GIB) };
            job.refused(job.who("b", 4), 4 * GIB, &now);
        }
    };
    helps(&report_on("waits", story(false)), "wait for the device");
    useless(&report_on("waits-in-vain", story(true)), "wait for the device", "waiting for the device");
}

#[test]
fn one_tensor_that_gets_longer_is_kept_as_long_as_it_was() {
    let report = report_on("longer", |job| {
        let by = job.who("ConcatV2", 131);
        let mut last = job.alloc(by, 100 * MIB);
        for length in 2..180 {
            let scratch = job.alloc(job.who("MatMul", 7), 8 * MIB);
            let longer = job.alloc(by, length * 100 * MIB);
            job.wait(0.1);
            job.free(scratch);
            job.free(std::mem::replace(&mut last, longer));
        }
        job.refused(by, 24 * GIB, &device(20 * GIB));
    });
    let text = helps(&report, "look at train.py:131");
    assert!(text.contains("1 block now"), "{text}");
    // A quarter of the run: between 4 and 5 GiB, twice while one replaces the other.
    assert!(text.contains("held at 4.") && text.contains("at most 8.") || text.contains("at most 9."), "{text}");
}
