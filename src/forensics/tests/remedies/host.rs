//! Host memory.

use super::*;

/// Pins pieces on one line, gives all but one back, and is refused another.
fn pins(job: &mut Job, pieces: u64, requested: u64) {
    let by = job.who("", 40);
    let pinned: Vec<u64> = (0..pieces).map(|_| job.alloc_as(Class::Pinned, 255, by, GIB)).collect();
    for address in pinned.iter().skip(1) {
        job.free_as(Class::Pinned, *address);
    }
    job.refused_as(Class::Pinned, job.who("", 41), requested, &device(39 * GIB));
}

#[test]
fn pinned_memory_in_parts_that_the_host_granted_before() {
    // 1 GiB is pinned, and 4 were: a quarter of 8 fits beside it, half does not, and 8 do not fit without it.
    let report = report_on("pinned", |job| pins(job, 4, 8 * GIB));
    let text = helps(&report, "pin the request in 4 parts");
    assert!(text.contains("at most 4.00 GiB are pinned, and the host granted 4.00 GiB"), "{text}");
    useless(&report, "give back first", "giving back what train.py:40 pinned");
    let report = report_on("pinned-back", |job| pins(job, 4, 4 * GIB));
    assert!(helps(&report, "give back first").contains("train.py:40 pinned, 1.00 GiB"));
    let report = report_on("pinned-all", |job| pins(job, 1, 4 * GIB));
    useless(&report, "pin the request", "the request in 64 parts");
    let report =
        report_on("pinned-never", |job| drop(job.refused_as(Class::Pinned, job.who("", 41), GIB, &device(GIB))));
    impossible(&report, "pin less", "no pinned memory that was granted");
    // A cap on the device does not bear on what is requested from the host.
    let report = report_on("pinned-cap", |job| {
        let by = job.who("", 41);
        drop(job.refused_as(Class::Pinned, by, 2 * GIB, &capped(8 * GIB, 7 * GIB, 32 * GIB)));
    });
    assert!(!report.remedies.iter().any(|remedy| remedy.text.contains("cap")), "{:?}", report.remedies);
}

fn host_total() -> u64 {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    memory.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// A job that is killed with this resident memory at each of 64 steps.
fn host(name: &str, resident: impl Fn(u64) -> u64) -> Report {
    let scratch = Scratch::new(name);
    let mut job = Job::new(&scratch.0, 1 << 10).unwrap();
    for step in 0..64 {
        job.step();
        job.host(resident(step), 0);
        job.wait(0.5);
    }
    let run = Run::open(&job.end(End::Killed).unwrap()).unwrap();
    Report::of(&run, &Options::default(), |_, _| {}).unwrap()
}

#[test]
fn host_memory_without_its_growth() {
    let percent = host_total() / 100;
    let report = host("host", |step| percent * (10 + step));
    let found = &report.remedies[0];
    assert!(found.text.contains("keep less in host memory") && found.check == Check::Estimated, "{found:?}");
    assert_eq!(found.how, "estimated from the samples of host memory");
    let report = host("host-full", |step| percent * (74 + step / 8));
    useless(&report, "keep less in host memory", "less growth of host memory");
    let report = host("host-jump", |step| percent * if step < 60 { 10 } else { 80 });
    impossible(&report, "keep less in host memory", "as a sum only");
}
