//! `weir list`, `tail`, `record` and `top`: which runs there are, and what a job records while it runs.

use crate::scene::{Scene, column, json_lines, part, touch};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use weir_tests::harness::{Job, MIB, Suite, eventually, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("list: runs and their states", listed);
    suite.add("errors: name the file and the remedy", errors);
    suite.add("tail: follows a job to its end", tail);
    suite.add("record: keeps what the ring overwrites", recorded);
    suite.add("record: complete when it is stopped", stopped);
    suite.add("top: a group's processes are living ones", ledger);
}

fn listed() {
    let scene = Scene::new();
    assert!(scene.out("list").contains("no runs in"));
    assert_eq!(scene.json("list --json"), serde_json::json!([]));
    let growth = scene.synthetic("growth");
    scene.synthetic("well");
    std::fs::write(scene.at("runs/1-2.weir"), "#!/bin/sh\n").expect("a file");
    let rows = scene.json("list --json");
    let mut states = column(&rows, "state");
    states.sort_unstable();
    assert_eq!(states, ["ended", "killed", "unreadable"]);
    let text = scene.out("list");
    for word in ["OOM", "is not a weir journal", "train.py --batch 64"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(column(&scene.json("list --oom --json"), "path"), [growth.to_str().expect("a path")]);
    let piped = scene.program("sh").arg("-c").arg(format!("'{}' list | head -1", stage().command().display()));
    assert!(piped.run().quiet().out.starts_with("RUN"));
}

fn errors() {
    let scene = Scene::new();
    let well = scene.synthetic("well");
    let mut broken = std::fs::read(&well).expect("a journal");
    broken[40] = 0xff;
    std::fs::write(scene.at("broken.weir"), broken).expect("a file");
    let (runs, folder) = (scene.runs(), scene.folder().display().to_string());
    let runs = runs.to_str().expect("a path");
    for (words, expected) in [
        ("/nowhere/x.weir".to_owned(), &["/nowhere/x.weir", "weir list"][..]),
        ("nothing".to_owned(), &["nothing", "weir list"]),
        ("./broken.weir".to_owned(), &["broken.weir", "damaged header"]),
        (format!("{} --oom 9", well.display()), &["no out-of-memory dump 9"]),
        ("--oom".to_owned(), &[runs, "no run here ran out of memory", "weir list"]),
        ("--device 7".to_owned(), &["no device 7 in this run; it has 0"]),
        (runs.to_owned(), &["is a directory", "--dir"]),
        (format!("--dir {folder}/empty"), &["no runs yet", "weir run"]),
    ] {
        let done = scene.weir(format!("report {words}")).run().code(1);
        assert!(expected.iter().all(|word| done.err.contains(word)) && done.out.is_empty(), "{done}");
    }
}

/// Whether a process has a file open.
fn has_open(pid: u32, path: &Path) -> bool {
    let Ok(wanted) = path.metadata() else { return false };
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    links
        .filter_map(|link| link.path().metadata().ok())
        .any(|file| (file.dev(), file.ino()) == (wanted.dev(), wanted.ino()))
}

fn tail() {
    let scene = Scene::new();
    let path = scene.synthetic("growth").display().to_string();
    let events = json_lines(&scene.out(format!("tail {path} --all --json")));
    let report = scene.json(format!("report {path} --json"));
    assert_eq!(Some(events.len() as u64), report["evidence"]["events"].as_u64());
    assert!(events.iter().enumerate().all(|(at, event)| event["seq"] == at), "numbered from 0 on");
    let last = scene.out(format!("tail {path} --all --kind oom"));
    assert!(
        last.lines().count() == 1 && last.contains("Conv2DBackpropInput") && last.contains("train.py:121"),
        "{last}"
    );
    assert!(scene.error(1, "tail --kind nonsense").contains("unknown kind"));
    let job = scene.start_job("", "steps go");
    let rows = scene.json("list --json");
    let alive: Vec<&str> = rows
        .as_array()
        .expect("rows")
        .iter()
        .filter(|row| row["state"] == "alive")
        .filter_map(|row| row["path"].as_str())
        .collect();
    let [journal] = alive[..] else { panic!("one run is alive: {rows}") };
    let follower = scene.weir("tail --json --kind alloc,exit").start();
    eventually(|| has_open(follower.id(), Path::new(journal)).then_some(()));
    touch(&scene.at("go"));
    let followed = follower.finish().well();
    let _ = job.finish().well();
    let events = json_lines(&followed.out);
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["kind"].as_str()).collect();
    assert!(kinds.iter().filter(|kind| **kind == "alloc").count() > 10 && kinds.last() == Some(&"exit"), "{kinds:?}");
}

fn recorded() {
    let scene = Scene::new();
    // The ring has room for the events of about two seconds; the recorder reads fifty times a second.
    let job = scene.start_job("--ring 512", "steps go");
    let recorder = scene.weir("record --json -o run.weirrec").start();
    eventually(|| scene.at("run.weirrec").exists().then_some(()));
    touch(&scene.at("go"));
    let end = recorder.finish().well().json();
    let _ = job.finish().well();
    let (recording, journal) = (scene.json("report ./run.weirrec --json"), scene.json("report --json"));
    let number = |report: &serde_json::Value, name: &str| report["evidence"][name].as_u64().expect("a number");
    assert!(number(&journal, "overwritten") > 0, "{journal}");
    assert!(number(&recording, "events") > number(&journal, "events"), "{recording}\n{journal}");
    assert_eq!(end["events"], number(&recording, "events"));
    assert!(recording["state"] == "ended" && number(&recording, "overwritten") == 0, "{recording}");
    assert!(scene.error(1, "record -o run.weirrec").contains("--force"));
    let _ = scene.out("record -o run.weirrec --force");
    assert!(scene.error(1, "record ./run.weirrec -o b").contains("already a recording"));
}

fn stopped() {
    let scene = Scene::new();
    let job = scene.start_job("", "hold");
    let recorder = scene.weir("record -o held.weirrec").start();
    // From its first page on a recorder completes the file when it is interrupted.
    eventually(|| (scene.at("held.weirrec").metadata().ok()?.len() > 16).then_some(()));
    recorder.signal(libc::SIGINT);
    let _ = recorder.finish().well();
    job.signal(libc::SIGTERM);
    let _ = job.finish();
    assert!(part(&scene.json("report ./held.weirrec --json"), "live") >= 96 * MIB);
}

fn ledger() {
    let scene = Scene::new();
    let job = scene.start_job("--group team --cap 256MiB", "hold");
    let rows = scene.json("list --json");
    let [journal] = column(&rows, "path")[..] else { panic!("one run: {rows}") };
    let older = scene.at("runs/1-1.weir");
    std::fs::copy(journal, &older).expect("a copy");
    let _ = Job::new(stage().program("synthetic")).arg(&older).arg("reboot").run().well();
    let top = scene.json("top --all --json");
    job.signal(libc::SIGTERM);
    let _ = job.finish();
    let shown = |path: &str| {
        let jobs = top["jobs"].as_array().expect("jobs");
        jobs.iter().find(|job| job["journal"] == path).unwrap_or_else(|| panic!("no {path}: {top}"))
    };
    let (living, old) = (shown(journal), shown(older.to_str().expect("a path")));
    assert!(living["life"] == "alive" && living["group"] == "team", "{living}");
    assert!(old["life"] == "killed" && old["group"].is_null() && old["pid"] == living["pid"], "{old}");
}
