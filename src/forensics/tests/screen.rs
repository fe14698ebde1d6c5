//! The report's text: one screen whatever the report holds, no line wider than the screen, nothing of a name that could
//! steer a terminal, and everything else with `--details`.

mod scratch;

use scratch::Scratch;
use weir_forensics::Run;
use weir_forensics::remedies::{Act, Check, Remedy};
use weir_forensics::report::{Options, Report};
use weir_forensics::synthetic::{End, GIB, Job, MIB};
use weir_forensics::text::{Look, screen};
use weir_forensics::verdict::{Cause, Finding};
use weir_forensics::views::Part;
use weir_journal::{Kind, Situation};

const LOOK: Look = Look { width: 80, height: 30, colour: false, offset: 0, now: 0, holders: None, details: false };

/// A job of sixty operations with the names that TensorFlow gives, one of which grows; it meets its cap.
fn trained(scratch: &Scratch) -> Report {
    let mut job = Job::new(&scratch.0, 1 << 15).unwrap().called(&["python3", "/home/me/train.py", "--batch", "64"]);
    job.journal.set_cap(0, 8 * GIB);
    let layers: Vec<_> = (0..60)
        .map(|n| job.who(&format!("StatefulPartitionedCall/gradient_tape/resnet50_1/conv{n}_block1_0_conv_1/convolution/Conv2DBackpropInput"), 16))
        .collect();
    let kept = job.who("StatefulPartitionedCall/resnet50_1/predictions_1/Softmax", 131);
    for _ in 0..150 {
        job.step();
        job.host(2 * GIB, 64 * MIB);
        job.alloc(kept, 22 * MIB);
        let made: Vec<u64> = layers.iter().map(|by| job.alloc(*by, 16 * MIB)).collect();
        job.wait(0.1);
        for address in made {
            job.free(address);
        }
    }
    for by in &layers {
        job.alloc(*by, 16 * MIB);
    }
    let now = Situation {
        device_total: 40 * GIB,
        device_free: 30 * GIB,
        cap: 8 * GIB,
        charged: 7 * GIB + 900 * MIB,
        pool_free: 3 * GIB,
        pool_largest: GIB,
        pool_holes: 212,
        ..Situation::default()
    };
    job.refused(layers[7], 2 * GIB, &now);
    let run = Run::open(&job.end(End::Killed).unwrap()).unwrap();
    Report::of(&run, &Options::default(), |_, _| {}).unwrap()
}

/// The same with more of everything than a screen can take.
fn overloaded(scratch: &Scratch) -> Report {
    let mut report = trained(scratch);
    report.other_processes = (0..3).map(|n| format!("pid 3901{n} jupyter-notebook-{n}")).collect();
    report.driver.parts = [Part::Live, Part::PoolFree, Part::Deferred, Part::Overhead, Part::Others, Part::Free]
        .map(|part| (part, 40 * GIB / 6))
        .to_vec();
    report.driver.spilled = GIB;
    report.findings = [Cause::Growth, Cause::Fragmentation, Cause::OtherProcess, Cause::Cap, Cause::DeviceFull]
        .map(|cause| Finding {
            cause,
            strength: 90,
            rule: "a rule",
            evidence: "much_evidence ".repeat(9),
            explanation: None,
        })
        .to_vec();
    let text = "do this, and that, and something else ".repeat(4);
    let remedy = Remedy { act: Act::Float32, text, check: Check::Replayed, how: "replayed".into() };
    report.remedies = vec![remedy; 4];
    if let Some(view) = &mut report.tensors {
        view.own_allocator = true;
    }
    report.host.slope = Some(MIB as f64);
    report.evidence.overwritten = 123_456;
    report.evidence.in_flight = 3;
    report.evidence.exact = false;
    report.device_name = "A device with a name of many words and more".into();
    report.command = format!("{} --a --b", "a_long_script_name".repeat(8));
    report.run = "a-recording-with-a-name-".repeat(8);
    for holder in &mut report.holders {
        holder.python = format!("/home/me/{}.py:123456", "deep".repeat(30));
        holder.blocks = 123_456_789;
    }
    report
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn a_real_report_is_one_screen() {
    let scratch = Scratch::new("screen");
    let report = trained(&scratch);
    for width in [80, 90, 100, 160] {
        let text = screen(&report, &Look { width, ..LOOK });
        assert!(widest(&text) <= width, "{width}\n{text}");
        assert!(text.lines().count() <= LOOK.height, "{} lines\n{text}", text.lines().count());
        // The cause, the line, the parts, the holders, the remedy and the evidence are there.
        for word in [
            "━━ GPU OUT OF MEMORY ━━ train.py",
            "Requested 2.00 GiB",
            "GROWTH: train.py:131",
            "also FRAGMENTATION",
            "also CAP",
            "live in this job",
            "ranges, up to 1.00 GiB",
            "Cap 8.00 GiB (reached)",
            "By role",
            "and others together",
            "Try       1.",
            "Log complete",
            "--details",
        ] {
            assert!(text.contains(word), "{word}\n{text}");
        }
        assert!(text.find("GROWTH") < text.find("Device"), "the cause stands before the data");
    }
    // What is not listed is in the sum.
    let text = screen(&report, &LOOK);
    let listed: u64 = report.holders.iter().take(5).map(|holder| holder.bytes).sum();
    let held: u64 = report.holders.iter().map(|holder| holder.bytes).sum::<u64>() + report.rest;
    let rest = weir_forensics::words::size(held - listed);
    assert!(text.contains(&format!("and others together: {rest}\n")), "{rest}\n{text}");
    // Nothing beyond the listed ones, or nothing beyond the report's.
    let mut few = report.clone();
    few.rest = 0;
    assert!(screen(&few, &LOOK).contains("and others together: 80.0 MiB\n"), "five of 16 MiB");
    few.holders.truncate(5);
    assert!(!screen(&few, &LOOK).contains("and others together"));
    // A long function gives way to the operation; one line is all there is.
    if let Some(request) = &mut few.request {
        request.function = "a_function_with_a_very_long_name_indeed_it_is".into();
    }
    let text = screen(&few, &LOOK);
    let shown = text.lines().skip_while(|line| !line.starts_with("Requested")).take(2).collect::<Vec<_>>();
    assert!(shown[0].contains("Conv2DBackpropInput   train.py:16") && shown[1].starts_with("Why"), "{text}");
    // The command is cut only where there is no room for it.
    few.command = "a_script_of_27_columns.py 77".into();
    assert!(screen(&few, &Look { width: 120, ..LOOK }).contains(&few.command));
    (few.step, few.state, few.exit_status) = (0, weir_forensics::Fate::Ended, Some(1));
    assert!(screen(&few, &LOOK).contains(&few.command), "{}", screen(&few, &LOOK));
    // Who got over the failure is not taken for one who died of it.
    assert!(!screen(&few, &LOOK).contains("then ended well"));
    few.exit_status = Some(0);
    assert!(screen(&few, &LOOK).contains("then ended well"));
    // A terminal of 24 lines with its prompt.
    let low = screen(&report, &Look { height: 23, ..LOOK });
    assert!(low.lines().count() <= 23, "{low}");
}

#[test]
fn however_much_there_is_it_is_one_screen() {
    let scratch = Scratch::new("overloaded");
    let report = overloaded(&scratch);
    for width in [80, 100, 200] {
        let text = screen(&report, &Look { width, ..LOOK });
        assert!(widest(&text) <= width, "{width}\n{text}");
        assert!(text.lines().count() <= 30, "{} lines\n{text}", text.lines().count());
        assert!(text.contains("with --details") && text.contains("GROWTH"), "{text}");
        assert!(text.contains("FRAGMENTATION") && text.contains("DEVICE FULL"), "every cause is named\n{text}");
    }
}

#[test]
fn details_show_what_the_screen_leaves_out() {
    let scratch = Scratch::new("details");
    let report = overloaded(&scratch);
    let text = screen(&report, &Look { details: true, ..LOOK });
    assert!(widest(&text) <= 80, "{text}");
    assert_eq!(text.matches("(replayed)").count(), 4, "{text}");
    assert_eq!(text.matches("much_evidence").count(), 5 * 9, "{text}");
    for word in ["10 …", "64.0 MiB pinned", "Rule      GROWTH, strength 90: a rule", "Growth    train.py:131"] {
        assert!(text.contains(word), "{word}\n{text}");
    }
    let shown = screen(&report, &Look { holders: Some(8), ..LOOK });
    assert!(shown.contains("\n 8 ") && !shown.contains("\n 9 "), "{shown}");
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let scratch = Scratch::new("steer");
    let mut report = trained(&scratch);
    report.holders[0].op = "a\x1b[2Jb".into();
    report.findings[0].evidence = "\x1b]0;x\x07\u{9b}31m".into();
    for colour in [false, true] {
        let text = screen(&report, &Look { colour, ..LOOK });
        let odd = |letter: char| letter.is_control() && letter != '\n' && letter != '\x1b';
        assert!(!text.contains(odd) && !text.contains("\x1b]") && !text.contains("[2J\x1b"), "{text:?}");
        assert!(text.contains("a·[2Jb"), "{text:?}");
        assert_eq!(text.contains('\x1b'), colour, "{text:?}");
    }
}

#[test]
fn what_was_on_another_day_has_its_date() {
    let scratch = Scratch::new("date");
    let mut report = trained(&scratch);
    (report.realtime_ns, report.peak_ns) = (1_709_164_800_000_000_000, 1_709_164_801_000_000_000);
    let text = |now| screen(&report, &Look { now, ..LOOK });
    let (same, later) = (text(1_709_164_802_000_000_000), text(1_709_264_802_000_000_000));
    assert!(same.contains("  00:00:00  step"), "{same}");
    assert!(later.contains("  2024-02-29 00:00:00") && later.contains("at 00:00:01 "), "{later}");
}

#[test]
fn a_job_that_grows_and_lives_is_reported_when_it_is_full() {
    let scratch = Scratch::new("forecast");
    let mut job = Job::new(&scratch.0, 1 << 14).unwrap();
    for _ in 0..100 {
        job.step();
        let by = job.who("history", 131);
        job.alloc(by, 100 * MIB);
        let gone = job.alloc(by, MIB);
        job.free(gone);
        job.wait(0.1);
    }
    let run = Run::open(&job.end(End::Alive).unwrap()).unwrap();
    let report = Report::of(&run, &Options::default(), |_, _| {}).unwrap();
    let text = screen(&report, &LOOK);
    assert!(
        text.contains("━━ RUNNING ━━")
            && text.split_whitespace().collect::<Vec<_>>().join(" ").contains("; full at about step 40"),
        "{text}"
    );
}

#[test]
fn marks_and_regions_say_where_the_job_was() {
    let scratch = Scratch::new("said");
    let mut job = Job::new(&scratch.0, 1 << 12).unwrap();
    let by = job.who("dense/MatMul", 7);
    let before = job.alloc(by, 64 * MIB);
    // Of another thread's, or begun before the journal: not counted.
    job.journal.said(Kind::RegionEnd, "augment");
    for epoch in 1..=3 {
        job.journal.said(Kind::Mark, &format!("epoch {epoch}"));
        job.journal.said(Kind::RegionBegin, "augment\x1b[31m");
        let all = job.alloc(by, 256 * MIB);
        job.alloc(by, 16 * MIB);
        job.free(all);
        job.journal.said(Kind::RegionEnd, "augment\x1b[31m");
        job.wait(1.0);
    }
    job.journal.said(Kind::RegionBegin, "outer");
    job.journal.said(Kind::RegionBegin, "inner");
    job.free(before);
    job.journal.said(Kind::RegionEnd, "inner");
    job.wait(0.5);
    job.refused(by, GIB, &Situation { device_total: 40 * GIB, ..Situation::default() });
    // What comes after the failure is not of its moment.
    job.journal.said(Kind::Mark, "too late");
    job.journal.said(Kind::RegionEnd, "outer");
    let run = Run::open(&job.end(End::Exit).unwrap()).unwrap();
    let report = Report::of(&run, &Options::default(), |_, _| {}).unwrap();
    let text = screen(&report, &LOOK);
    assert!(text.contains("Where     in outer; 1.5 s after \"epoch 3\""), "{text}");
    // It held what was there before, and what its runs before had left.
    let mib = i64::try_from(MIB).unwrap();
    let of = |name: &str| report.regions.iter().find(|place| place.name.starts_with(name)).unwrap();
    assert_eq!((of("augment").runs, of("augment").peak, of("augment").kept), (3, (64 + 2 * 16 + 272) * MIB, 48 * mib));
    assert_eq!((of("inner").open, of("inner").peak, of("inner").kept), (false, 112 * MIB, -64 * mib));
    assert!(report.regions[0].open && report.regions[0].name == "outer");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("3 runs, up to 368.0 MiB live, +48.0 MiB kept"), "{text}");
    assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text}");
    let details = screen(&report, &Look { details: true, ..LOOK });
    assert!(details.contains("epoch 1; ") && details.contains("epoch 3") && !details.contains("too late"), "{details}");
}
