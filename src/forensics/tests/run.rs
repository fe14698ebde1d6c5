//! A run as others see it: opened, found by name, its fate reported, its names resolved.

mod scratch;

use scratch::Scratch;
use weir_forensics::synthetic::{End, GIB, Job, MIB};
use weir_forensics::{Fate, Run, runs};
use weir_journal::reader::Slot;
use weir_journal::{Kind, Situation};

#[test]
fn a_run_reports_what_the_job_did() {
    let scratch = Scratch::new("reports");
    let mut job = Job::new(&scratch.0, 256).unwrap();
    job.journal.set_cap(0, 8 * GIB);
    let by = job.by(
        "StatefulPartitionedCall/dense/MatMul",
        "output",
        &[("/v/lib/python3.11/site-packages/keras/dense.py", "call", 12), ("/home/me/train.py", "train_step", 118)],
    );
    let kept = job.alloc(by, 3 * MIB);
    job.wait(60.0);
    let gone = job.alloc(by, MIB);
    job.free(gone);
    let full = Situation { device_total: 40 * GIB, cap: 8 * GIB, charged: 8 * GIB, ..Situation::default() };
    job.refused(by, 2 * GIB, &full);
    let run = Run::open(&job.end(End::Killed).unwrap()).unwrap();

    assert_eq!((run.fate(), run.oom_count()), (Fate::Killed, 1));
    assert_eq!(run.command(), "train.py");
    assert_eq!(run.devices().map(|device| (device.total, device.cap)).collect::<Vec<_>>(), [(40 * GIB, 8 * GIB)]);
    let settings = run.settings();
    assert_eq!(settings, weir_settings::Settings { dir: settings.dir.clone(), ..weir_settings::Settings::default() });
    let live = run.live().unwrap();
    assert_eq!((live.len(), live[0].address, live[0].allocated), (1, kept, 3 * MIB));
    let who = run.who(live[0].by);
    assert_eq!((who.op_name(), who.place_in().as_str()), ("dense/MatMul", "train.py:118 in train_step"));
    assert_eq!(run.ooms()[0].situation, full);
    let kinds: Vec<Kind> = run
        .events()
        .filter_map(|slot| if let Slot::Event(event) = slot.unwrap() { Some(event.kind) } else { None })
        .collect();
    assert_eq!(kinds, [Kind::CapChange, Kind::Alloc, Kind::Alloc, Kind::Free, Kind::Oom]);
    let times: Vec<f64> = run
        .events()
        .filter_map(|slot| if let Slot::Event(event) = slot.unwrap() { Some(run.seconds(event.time)) } else { None })
        .collect();
    assert!(times[1] < 30.0 && (60.0..90.0).contains(&times[2]), "{times:?}");
}

#[test]
fn the_settings_of_a_job_are_read_back() {
    let scratch = Scratch::new("settings");
    let job = Job::set(&scratch.0, 64, &[("WEIR_POOL", "noremap,handle=4MiB"), ("WEIR_CAP", "8GiB")]).unwrap();
    let run = Run::open(&job.end(End::Exit).unwrap()).unwrap();
    let pool = run.settings().pool;
    assert!(!pool.remap && pool.mesh && pool.large_handle == Some(4 * MIB), "{}", run.config());
    assert!(run.settings().cap.is_some() && run.config().contains("WEIR_POOL=noremap,handle=4MiB\n"));
}

#[test]
fn runs_are_found_by_what_people_call_them() {
    let scratch = Scratch::new("found");
    let at = || Ok(scratch.0.clone());
    let error = runs::find(None, at).unwrap_err().to_string();
    assert!(error.contains("no runs yet") && error.contains("weir run"), "{error}");
    let mut job = Job::new(&scratch.0, 64).unwrap();
    job.refused(job.who("a", 1), GIB, &Situation::default());
    let out_of_memory = job.end(End::Exit).unwrap();
    let earlier = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    std::fs::File::options().write(true).open(&out_of_memory).unwrap().set_modified(earlier).unwrap();
    let later = Job::new(&scratch.0, 64).unwrap().end(End::Alive).unwrap();

    assert_eq!(runs::find(None, at).unwrap().path(), later, "the newest, whatever became of it");
    assert_eq!(runs::newest_oom(&scratch.0).unwrap().path(), out_of_memory, "the newest that ran out of memory");
    let found = |name: &str| runs::find(Some(name.as_ref()), at).map(|run| run.path().to_owned());
    assert_eq!(found(later.to_str().unwrap()).unwrap(), later);
    assert_eq!(found(later.file_stem().unwrap().to_str().unwrap()).unwrap(), later);
    assert_eq!(found(&std::process::id().to_string()).unwrap(), later, "the newest with this process id");
    let error = found("nothing").unwrap_err().to_string();
    assert!(error.contains("nothing") && error.contains("weir list"), "{error}");
    let fates: Vec<Fate> =
        runs::files(&scratch.0).unwrap().iter().map(|path| Run::open(path).unwrap().fate()).collect();
    assert_eq!(fates, [Fate::Alive, Fate::Ended]);
}

#[test]
fn the_peak_of_a_run_shows_who_held_it_then() {
    use weir_forensics::report::{At, Options, Report};
    let scratch = Scratch::new("peak");
    let mut job = Job::new(&scratch.0, 64).unwrap();
    job.alloc(job.who("kept", 1), 1 << 20);
    let most = job.alloc(job.who("most", 2), 4 * GIB);
    job.free(most);
    let run = Run::open(&job.end(End::Exit).unwrap()).unwrap();
    let of = |at: At| {
        let report = Report::of(&run, &Options { at, ..Options::default() }, |_, _| {}).unwrap();
        (report.at, report.holders[0].op.clone(), report.holders.iter().map(|holder| holder.bytes).sum::<u64>())
    };
    assert_eq!(of(At::Peak), (At::Peak, "most".into(), 4 * GIB + (1 << 20)));
    assert_eq!(of(At::End), (At::End, "kept".into(), 1 << 20));
    assert_eq!(of(At::Oom), (At::End, "kept".into(), 1 << 20), "nothing was refused");
}

#[test]
fn a_step_and_a_time_show_who_held_the_memory_then() {
    use weir_forensics::report::{At, Options, Report};
    use weir_forensics::text::{Look, screen};
    let scratch = Scratch::new("moments");
    let mut job = Job::new(&scratch.0, 64).unwrap();
    for step in 1..=3 {
        job.step();
        job.alloc(job.who("kept", 1), step * GIB);
        job.wait(10.0);
    }
    job.refused(job.who("more", 2), GIB, &Situation::default());
    let run = Run::open(&job.end(End::Exit).unwrap()).unwrap();
    let of = |at: At| Report::of(&run, &Options { at, ..Options::default() }, |_, _| {});
    let shown = |at: At| of(at).map(|report| (report.step, report.holders[0].bytes, report.request.is_some())).unwrap();
    assert_eq!(shown(At::Step(1)), (1, GIB, false));
    assert_eq!(shown(At::Step(2)), (2, 3 * GIB, false), "nothing was refused by then");
    assert_eq!(shown(At::Oom), (3, 6 * GIB, true));
    let look = Look { width: 200, height: 50, colour: false, offset: 0, now: 0, holders: None, details: false };
    let said = |at: At| screen(&of(at).unwrap(), &look);
    let other = "nothing was refused at this moment (the failure: --at oom)";
    assert!(said(At::Step(1)).contains(other) && said(At::Peak).contains(other), "{}", said(At::Peak));
    assert!(!said(At::Oom).contains(other), "{}", said(At::Oom));
    let second = run.header().started.realtime + 15_000_000_000;
    assert_eq!(shown(At::Time(second)), (2, 3 * GIB, false));
    assert_eq!(shown(At::Time(u64::MAX)).1, 6 * GIB, "after the end it is the end");
    let error = of(At::Step(9)).unwrap_err().to_string();
    assert!(error.contains("has no step 9; the log has steps 1 to 3"), "{error}");
    let error = of(At::Time(0)).unwrap_err().to_string();
    assert!(error.contains("no event before this time"), "{error}");
}
