//! What may go wrong around a journal: no disk, no directory, no room, old files; and the OOM report.

use std::path::PathBuf;
use std::process::Command;

use weir_journal::reader::Reader;
use weir_journal::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-adversity-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn journal(&self) -> Journal {
        Journal::create(&Options::in_dir(&self.0).sized(Geometry::tiny())).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn hold(journal: &Journal, address: u64, bytes: u64, op: u32) {
    let by = Attribution { stack: 0, op, python: 0 };
    let intent =
        Intent { kind: Kind::Alloc, class: Class::Block, device: 0, stream: 0, requested: bytes, address: 0, by };
    journal.begin(intent).granted(Granted { address, allocated: bytes });
}

fn failure(requested: u64, op: u32) -> Failure {
    let by = Attribution { stack: 0, op, python: 0 };
    Failure { device: 0, class: Class::Block, stream: 0, requested, result: 2, by }
}

#[test]
fn a_removed_directory_disturbs_nothing() {
    let scratch = Scratch::new("removed");
    let journal = scratch.journal();
    std::fs::remove_dir_all(&scratch.0).unwrap();
    hold(&journal, 4096, 100, 0);
    let outcome = journal.out_of_memory(&failure(1 << 30, 0), &Situation::default());
    assert!(matches!(outcome, Outcome::Reported { ref text, .. } if !text.contains("oom.json")));
    journal.exiting(Some(0));
    assert!(!scratch.0.exists());
}

#[test]
fn without_a_directory_it_works_in_memory_and_says_why() {
    for dir in [Some(PathBuf::from("/proc/weir")), Some(PathBuf::from("/dev/null/x")), None] {
        let journal = Journal::create(&Options { dir, geometry: Geometry::tiny(), config: String::new() }).unwrap();
        assert!(journal.fallback_reason().is_some() && journal.path().is_none());
        hold(&journal, 4096, 100, 0);
        assert_eq!(journal.live_bytes(0, Class::Block), 100);
    }
}

/// Runs only as a child of the tests below: makes a journal at the given place and reports what became of it.
#[test]
fn child_makes_a_journal() {
    let Some(dir) = std::env::var_os("WEIR_TEST_CHILD") else {
        return;
    };
    let journal = Journal::create(&Options::in_dir(dir)).unwrap();
    for n in 1..10_000 {
        hold(&journal, n << 12, 100, 0);
    }
    println!("outcome: {}", journal.fallback_reason().unwrap_or("file"));
}

fn child(shell: &str, dir: &std::path::Path) -> Option<String> {
    let me = std::env::current_exe().unwrap();
    let line = format!("{shell} exec {} --exact child_makes_a_journal --nocapture", me.display());
    let done = Command::new("sh").arg("-c").arg(line).env("WEIR_TEST_CHILD", dir).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    text.lines().find_map(|line| Some(line.split_once("outcome: ")?.1.to_owned()))
}

#[test]
fn a_limit_on_file_sizes_does_not_kill_the_process() {
    let scratch = Scratch::new("limit");
    let outcome = child("ulimit -f 100;", &scratch.0).expect("the child died");
    assert!(outcome.contains("may not write files of this size"), "{outcome}");
    assert!(scratch.names().is_empty(), "a half-made file was left behind");
}

#[test]
fn a_full_disk_is_noticed_before_it_hurts() {
    let scratch = Scratch::new("full");
    let mount = format!("mount -t tmpfs -o size=1m weir {} &&", scratch.0.display());
    let me = std::env::current_exe().unwrap();
    let line = format!("{mount} exec {} --exact child_makes_a_journal --nocapture", me.display());
    let command = if std::fs::metadata("/proc/self/ns/user").is_ok() {
        "unshare"
    } else {
        return;
    };
    let done = Command::new(command).args(["-rm", "sh", "-c", &line]).env("WEIR_TEST_CHILD", &scratch.0).output();
    let Ok(done) = done else { return };
    if String::from_utf8_lossy(&done.stderr).contains("ermi") {
        println!("no right to mount a small file system here: not tested");
        return;
    }
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(text.contains("outcome: No space left"), "{text}\n{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn one_cause_gives_one_dump() {
    let scratch = Scratch::new("oom");
    let journal = scratch.journal();
    let (big, small) = (Op { name: "conv4/Conv2D", ..Op::default() }, Op { name: "dense/MatMul", ..Op::default() });
    let (big, small) = (journal.op(&big), journal.op(&small));
    for n in 1..=9 {
        hold(&journal, n << 30, 1 << 30, big);
        hold(&journal, n << 20, 1 << 10, small);
    }
    let situation = Situation { cap: 10 << 30, charged: 9 << 30, ..Situation::default() };
    let mut requested = 8_u64 << 30;
    let mut reported = Vec::new();
    for way in 1..=50 {
        // Each attempt comes by another way through the code.
        let mut failure = failure(requested, small);
        failure.by.stack = way;
        if let Outcome::Reported { report, text } = journal.out_of_memory(&failure, &situation) {
            reported.push((report, text));
        }
        requested = (requested * 9 / 10).max(2 << 30);
    }
    assert_eq!(reported.len(), 1, "probing must be collapsed");
    assert!(matches!(journal.out_of_memory(&failure(requested, big), &situation), Outcome::Reported { .. }));
    let (report, text) = &reported[0];
    assert_eq!((report.cause, report.live_bytes, report.live_blocks), (Cause::Cap, (9 << 30) + (9 << 10), 18));
    assert_eq!((report.holders[0].op.as_str(), report.holders[0].bytes), ("conv4/Conv2D", 9 << 30));
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 130), "{text}");
    assert!(text.contains("the cap is reached: 9.00 GiB of 10.00 GiB"), "{text}");

    let reader = Reader::open(&journal.path().unwrap()).unwrap();
    assert_eq!((reader.header().counters.oom_seen, reader.header().counters.oom_dumps), (51, 2));
    let dumps = reader.oom_dumps().unwrap();
    let json: serde_json::Value = serde_json::from_str(&dumps[0].json).unwrap();
    assert_eq!(
        (&json["schema"], &json["cause"], &json["requested"]),
        (&2.into(), &"cap".into(), &(8_u64 << 30).into())
    );
    let causes = reader.causes().unwrap();
    assert_eq!(causes.iter().map(|cause| cause.times).collect::<Vec<_>>(), [50, 1]);
    assert_eq!((causes[0].largest, causes[0].latest), (8 << 30, 2 << 30));
    let beside = format!("{}.oom.json", journal.path().unwrap().display());
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(beside).unwrap()).unwrap();
    assert_eq!(json["failures"], 51);
    assert_eq!(scratch.names().len(), 2, "a draft was left behind: {:?}", scratch.names());
}

#[test]
fn first_and_last_dumps_are_kept() {
    let scratch = Scratch::new("slots");
    let journal = scratch.journal();
    for n in 0..20 {
        let op = journal.op(&Op { name: &format!("op{n}"), ..Op::default() });
        journal.out_of_memory(&failure(1000, op), &Situation::default());
    }
    let dumps = Reader::open(&journal.path().unwrap()).unwrap().oom_dumps().unwrap();
    assert_eq!(dumps.iter().map(|dump| dump.number).collect::<Vec<_>>(), [1, 2, 3, 4, 17, 18, 19, 20]);
}

#[test]
fn old_journals_go_and_living_ones_stay() {
    let scratch = Scratch::new("keep");
    let living = scratch.journal();
    let image = std::fs::read(living.path().unwrap()).unwrap();
    // Journals of processes that are long dead: the same, from another boot.
    let dead = |name: &str, age: u64| {
        let path = scratch.0.join(name);
        std::fs::write(&path, &image[..4096]).unwrap();
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    // These claim to be of this very process: they must stay.
    dead("5-5.weir", 10_000);
    std::fs::write(scratch.0.join("precious.txt"), "keep me").unwrap();
    let forged = [("1-1.weir", 9000), ("2-2.weir", 8000), ("3-3.weir", 7000)];
    for (name, age) in forged {
        std::fs::write(scratch.0.join(name), b"WEIRJNL\n garbage that no reader takes").unwrap();
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
        std::fs::File::options().write(true).open(scratch.0.join(name)).unwrap().set_modified(time).unwrap();
    }
    std::fs::write(scratch.0.join("1-1.weir.oom.json"), "{}").unwrap();
    let removed = clear_up(&scratch.0, Keep { count: Some(1), bytes: None }).unwrap();
    assert_eq!(removed.count, 2);
    let own = living.path().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let mut left = vec!["3-3.weir".to_owned(), "5-5.weir".into(), "precious.txt".into(), own];
    left.sort();
    assert_eq!(scratch.names(), left);
    clear_up(&scratch.0, Keep { count: Some(0), bytes: None }).unwrap();
    assert!(scratch.names().contains(&"5-5.weir".to_owned()) && living.path().unwrap().exists());
}
