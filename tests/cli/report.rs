//! `weir report` of jobs that really ran, and of synthetic ones: cause, figures, one screen, HTML pages, progress.

use crate::scene::{Scene, column, json_lines, part};
use regex_lite::Regex;
use serde_json::Value;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_tests::harness::{Job, MIB, Suite, eventually, signal};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("report: out of memory, from the job to the report", out_of_memory);
    suite.add("report: a job that ended well", ended_well);
    suite.add("report: a job that was killed", killed);
    suite.add("report: causes of synthetic jobs", causes);
    suite.add("report: colour only on a terminal", colour);
    suite.add("report: one screen", one_screen_each);
    suite.add("report: --details shows what the screen leaves out", details);
    suite.add("report: an HTML page of the selected failure and device", selected_page);
    suite.add(
        "report: several runs are side by side on a page, which is that of the first to run out",
        several_runs_on_a_page,
    );
    suite.add("report: an HTML page is written as a whole or not at all", whole_page);
    suite.add("report: a run from before the machine was booted has ended", rebooted);
    suite.add("report: a progress bar on a terminal", progress);
}

fn out_of_memory() {
    let scene = Scene::new();
    let done = scene.job("--cap 256MiB", "oom").run().code(1);
    let last = done.err.trim().lines().last().unwrap_or_default();
    assert!(last.contains("ran out of GPU memory; next: weir report"), "{done}");
    let name = last.rsplit(' ').next().expect("a name").to_owned();
    let done = scene.job("--cap 256MiB -o other", "survives").run().well();
    let last = done.err.trim().lines().last().unwrap_or_default();
    let survived = "exited normally, although requests for GPU memory were refused; next: weir report";
    assert!(last.contains(survived), "{done}");
    let text = scene.out("report");
    assert!(text.contains("GPU OUT OF MEMORY") && text.contains("job.py oom"), "{text}");
    one_screen(&text, 30, 80);
    let _ = scene.weir("report --check").run().code(3);
    let report = scene.json(format!("report {name} --json"));
    assert_eq!((&report["schema"], &report["run"]), (&2.into(), &name.as_str().into()));
    assert!(report["oom"].as_u64() > Some(0), "{report}");
    assert_eq!((&report["cap"], &report["request"]["bytes"]), (&(256 * MIB).into(), &(32 * MIB).into()));
    assert_eq!(report["findings"][0]["cause"], "cap");
    let sum = |rows: &Value, field: &dyn Fn(&Value) -> Option<u64>| -> u64 {
        rows.as_array().expect("rows").iter().map(|row| field(row).expect("bytes")).sum()
    };
    assert_eq!(sum(&report["driver"]["parts"], &|row| row[1].as_u64()), 512 * MIB);
    assert_eq!(report["driver"]["total"], 512 * MIB);
    let live = part(&report, "live");
    assert!((192 * MIB..=256 * MIB).contains(&live), "{report}");
    let held = sum(&report["holders"], &|row| row["bytes"].as_u64());
    assert_eq!(held + report["rest"].as_u64().expect("a rest"), live);
    let checks = column(&report["remedies"], "check");
    assert!(!checks.is_empty() && checks.iter().all(|check| ["replayed", "estimated"].contains(check)), "{report}");
    assert!(
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains("(estimated from the requests up"),
        "{text}"
    );
    let untried = scene.json(format!("report {name} --json --no-replay"));
    let how = column(&untried["remedies"], "how");
    assert!(
        !how.is_empty() && how.iter().all(|how| *how == "estimated, not replayed: --no-replay says so"),
        "{untried}"
    );
}

fn ended_well() {
    let scene = Scene::new();
    let done = scene.job("", "well").run().well();
    assert!(Regex::new(r"weir: recorded; next: weir report \S+").unwrap().is_match(&done.err), "{done}");
    let _ = scene.job("--quiet", "well").run().quiet();
    let _ = scene.weir("report --check").run().well();
    let text = scene.out("report");
    assert!(text.contains("ENDED") && text.contains("nothing was refused"), "{text}");
}

fn killed() {
    let scene = Scene::new();
    let job = scene.start_job("", "hold");
    let children = format!("/proc/{0}/task/{0}/children", job.id());
    let child = eventually(|| Some(std::fs::read_to_string(&children).ok()?.split_whitespace().next()?.to_owned()));
    assert_eq!(column(&scene.json("list --json"), "state"), ["alive"]);
    let report = scene.json(format!("report {child} --json"));
    assert!(report["state"] == "alive" && report["evidence"]["moving"] == true, "{report}");
    assert!(part(&report, "live") >= 96 * MIB, "{report}");
    signal(child.parse().expect("a process id"), libc::SIGKILL);
    let _ = job.finish().code(137);
    assert_eq!(column(&scene.json("list --json"), "state"), ["killed"]);
    let report = scene.json(format!("report {child} --json"));
    assert!(report["state"] == "killed" && part(&report, "live") >= 96 * MIB, "{report}");
    assert!(scene.out(format!("report {child}")).contains("KILLED OR CRASHED"));
}

fn causes() {
    let scene = Scene::new();
    for kind in ["growth", "fragmentation", "cap"] {
        let path = scene.synthetic(kind);
        let report = scene.json(format!("report {} --json", path.display()));
        assert_eq!(report["findings"][0]["cause"], kind, "{}", report["findings"]);
    }
    let rows = scene.json("list --json");
    let oldest = *column(&rows, "run").last().expect("a run");
    assert!(scene.out(format!("report {oldest}")).contains("train.py:131"));
}

fn colour() {
    let scene = Scene::new();
    scene.synthetic("growth");
    assert!(!scene.out("report").contains("\x1b["));
    let (shown, _) = scene.terminal("report").run();
    assert!(shown.contains("\x1b[1;31m") && shown.contains("GROWTH"), "{shown}");
    let (shown, _) = scene.terminal("report").env("NO_COLOR", "1").run();
    assert!(!shown.contains("\x1b[") && shown.contains("GROWTH"), "{shown}");
}

fn one_screen(text: &str, lines: usize, columns: usize) {
    assert!(text.lines().count() <= lines, "{} lines\n{text}", text.lines().count());
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > columns).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

/// The text that stays on a terminal: a progress bar, which a slow machine shows, has erased itself.
fn without_bar(shown: &str) -> String {
    Regex::new("\r[^\r\n]*\x1b\\[K").unwrap().replace_all(shown, "").into_owned()
}

fn one_screen_each() {
    let scene = Scene::new();
    let busy = scene.synthetic("busy 100000");
    for kind in ["growth", "fragmentation", "cap", "well", "busy"] {
        let path = if kind == "busy" { busy.clone() } else { scene.synthetic(kind) };
        for columns in [80, 100, 132] {
            let text =
                scene.weir(format!("report {}", path.display())).env("COLUMNS", columns.to_string()).run().well().out;
            one_screen(&text, 30, columns);
            let parts = text.starts_with("━━ ") && text.contains("\nWho holds it") && text.contains("\nLog complete");
            assert!(parts, "{text}");
            assert!(kind == "well" || text.find("\nWhy ") < text.find("\nDevice "), "{text}");
        }
    }
    let report = format!("report {}", busy.display());
    let (shown, _) = scene.terminal(&report).size(24, 80).env("NO_COLOR", "1").run();
    one_screen(&without_bar(&shown), 23, 80);
    let (shown, _) = scene.terminal(&report).size(60, 120).env("NO_COLOR", "1").run();
    one_screen(&without_bar(&shown), 30, 120);
    // The parts of the device on the screen are those of the JSON; the holders are its first ones.
    let json = scene.json(format!("{report} --json"));
    let text = scene.out(&report);
    let count = |pattern: &str, text: &str| Regex::new(pattern).unwrap().find_iter(text).count();
    assert_eq!(Some(count(r"(?m)^  \S .* %", &text)), json["driver"]["parts"].as_array().map(Vec::len), "{text}");
    assert_eq!(json["holders"].as_array().map(Vec::len), Some(10));
    // As many holders as there is room for beside causes and remedies, and never fewer than three.
    assert!((3..=5).contains(&count(r"(?m)^ ?\d+ .*train.py", &text)), "{text}");
    assert_eq!(count(r"(?m)^ ?\d+ .*train.py", &scene.out(format!("{report} --top 12"))), 12);
}

fn details() {
    let scene = Scene::new();
    let path = scene.synthetic("growth");
    let report = format!("report {}", path.display());
    let (short, long) = (scene.out(&report), scene.out(format!("{report} --details")));
    let name = path.file_name().expect("a name").to_string_lossy();
    for word in [
        "64.0 MiB pinned",
        "232 use 7.30 GiB, none idle; beside it 0",
        "Rule      GROWTH, strength 95",
        "Made-up GPU",
        &name,
    ] {
        assert!(long.contains(word) && !short.contains(word), "{word}: {long}");
    }
    for word in ["GROWTH: train.py:131", "also CAP", "activations 4.30 GiB", "look at train.py:131"] {
        assert!(short.contains(word) && long.contains(word), "{word}: {short}");
    }
    one_screen(&long, 60, 80);
    let _ = scene.weir(format!("{report} --details --json")).run().code(2);
}

/// The data that a page carries.
fn facts(page: &Path) -> Value {
    let text = std::fs::read_to_string(page).expect("a page");
    let data = Regex::new(r#"(?s)id="facts">(.*?)</script>"#).unwrap();
    serde_json::from_str(&data.captures(&text).expect("facts")[1]).expect("JSON")
}

fn selected_page() {
    let scene = Scene::new();
    scene.synthetic("growth");
    let page = scene.at("page.html");
    for (code, words, expected) in
        [(1, "--oom 9", "no out-of-memory dump 9"), (1, "--device 7", "no device 7"), (2, "--top 0", "--top")]
    {
        let error = scene.error(code, format!("report --html page.html {words}"));
        assert!(error.contains(expected) && !page.exists(), "{error}");
    }
    let _ = scene.out("report --html page.html");
    let shown = facts(&page);
    let marks = shown["marks"].as_array().expect("marks");
    let oom = marks.iter().find(|mark| mark["kind"] == "oom").expect("the failure");
    assert_eq!((&shown["device"], &shown["moment"], &shown["rows"]), (&0.into(), &oom["entry"], &50.into()));
    let _ = scene.out("report --html page.html --top 3 --oom 1 --device 0");
    assert_eq!(facts(&page)["rows"], 3);
    // What the memory is full of is on the page as it is in the text.
    let cap = scene.synthetic("cap");
    let _ = scene.out(format!("report --html page.html {}", cap.display()));
    let report: Value = serde_json::from_str(&scene.out(format!("report --json {}", cap.display()))).expect("JSON");
    let full_of = report["findings"][0]["explanation"]["text"].as_str().expect("an explanation");
    let lines = facts(&page)["verdict"]["lines"].clone();
    assert!(lines.as_array().expect("lines").contains(&serde_json::json!(["Full of", full_of])), "{lines}");
}

fn several_runs_on_a_page() {
    let scene = Scene::new();
    let (well, ran_out) = (scene.synthetic("well"), scene.synthetic("growth"));
    let (well, ran_out, page) = (well.display(), ran_out.display(), scene.at("page.html"));
    let _ = scene.out(format!("report --html page.html {well} {ran_out} {well}"));
    let text = std::fs::read_to_string(&page).expect("a page");
    let rows = Regex::new(r"<tr[^>]*><td class=.words.>").unwrap();
    let ranks = text.split_once("id=\"ranks\"").expect("the runs").1.split_once("</section>").expect("an end").0;
    assert_eq!((rows.find_iter(ranks).count(), ranks.matches("class=\"failed\"").count()), (2, 1), "{ranks}");
    assert!(ranks.contains("shown below") && facts(&page)["verdict"]["alarm"] == true, "the one that ran out: {ranks}");
    let _ = scene.out(format!("report --html page.html --check {well}"));
    assert!(!std::fs::read_to_string(&page).expect("a page").contains("id=\"ranks\""));
    std::fs::remove_file(&page).expect("the page");
    for (code, words, expected) in [
        (2, format!("report {well} {ran_out}"), "--html"),
        (1, format!("report --html page.html {well} ./nowhere.weir"), "nowhere.weir"),
        (2, format!("report --html page.html --oom 1 {well} {ran_out}"), "--oom"),
    ] {
        let error = scene.error(code, words);
        assert!(error.contains(expected) && !page.exists(), "{error}");
    }
}

fn whole_page() {
    let scene = Scene::new();
    scene.synthetic("growth");
    let _ = scene.out("report --html report.html");
    let page = std::fs::read_to_string(scene.at("report.html")).expect("a page");
    assert!(page.trim_start().to_lowercase().starts_with("<!doctype html") && page.trim_end().ends_with("</html>"));
    let _ = scene.error(1, "report --html /nowhere/report.html");
    assert_eq!(scene.names("."), ["report.html", "runs"]);
}

fn rebooted() {
    let scene = Scene::new();
    let own = std::process::id();
    // The same process and the same start: the boot differs, and a clock that is a year ahead.
    let [alive, old] = ["alive", "rebooted"].map(|kind| scene.synthetic(format!("{kind} {own}")).display().to_string());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64();
    let seconds = |value: &Value| value.as_f64().expect("a time") / 1e9;
    let rows = scene.json("list --json");
    let row = |path: &str| rows.as_array().expect("rows").iter().find(|row| row["path"] == path).expect("the run");
    assert!(row(&alive)["state"] == "alive" && row(&old)["state"] == "killed", "{rows}");
    for row in [row(&alive), row(&old)] {
        assert!(row["pid"] == own && (seconds(&row["started_ns"]) - now).abs() < 600.0, "{row}");
    }
    let started = seconds(&row(&old)["started_ns"]);
    // The synthetic job took a hundred seconds from its start, by every clock.
    let during = |value: &Value| (0.0..=101.0).contains(&(seconds(value) - started));
    let report = scene.json(format!("report {old} --json"));
    assert!(report["state"] == "killed" && report["evidence"]["moving"] == false, "{report}");
    assert!(during(&report["realtime_ns"]) && during(&report["peak_ns"]), "{report}");
    let text = scene.out(format!("report {old}"));
    assert!(text.contains("killed or crashed") && !text.contains("still running"), "{text}");
    let at = format!("@{}", report["realtime_ns"].as_u64().expect("a time") / 1_000_000_000);
    let time = Job::new("date").args(["-d", &at, "+%H:%M"]).run().well().out;
    assert!(text.contains(time.trim()), "{time}: {text}");
    // A run that has ended is not waited for: the tail ends, although it follows by default.
    let events = json_lines(&scene.out(format!("tail {old} --all --json")));
    assert_eq!(Some(events.len() as u64), report["evidence"]["events"].as_u64());
    assert!(events.iter().all(|event| during(&event["realtime_ns"])));
    let exported = json_lines(&scene.out(format!("export {old} --to jsonl -o -")));
    let times = |rows: &[Value], name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!(times(&exported, "time_ns"), times(&events, "realtime_ns"));
    // Commands that look for living processes see the living one only.
    let metrics = scene.json("metrics --json");
    let jobs = metrics[0]["samples"].as_array().expect("samples").iter();
    let lives: Vec<(&str, u64)> = jobs
        .map(|sample| {
            (sample["labels"]["life"].as_str().expect("life"), sample["value"].as_f64().expect("a number") as u64)
        })
        .collect();
    assert_eq!(lives.len(), 4, "{lives:?}");
    for (life, number) in lives {
        assert_eq!(number, u64::from(life == "alive"), "{life}");
    }
    let top = scene.json("top --all --json");
    let mut shown: Vec<(&str, &str)> =
        column(&top["jobs"], "journal").into_iter().zip(column(&top["jobs"], "life")).collect();
    shown.sort_unstable();
    let mut expected = [(alive.as_str(), "alive"), (old.as_str(), "killed")];
    expected.sort_unstable();
    assert_eq!(shown, expected);
    // Process ids are reused, and each container has its own: the same one does not mean the same process.
    let report = scene.json(format!("report {alive} --json"));
    assert_eq!(report["other_processes"], serde_json::json!([format!("pid {own} train.py --batch 64")]));
    std::fs::remove_file(&alive).expect("a file");
    assert_eq!(scene.json(format!("report {own} --json"))["state"], "killed");
    let _ = scene.out("record -o old.weirrec");
    assert_eq!(scene.json("report ./old.weirrec --json")["state"], "killed");
}

fn progress() {
    // A bar that a slow machine shows is no line of the screen.
    let bar = "\rreading events [###···] 1 s \x1b[K\rchecking what would help [·#·] 2 s \x1b[K\r\x1b[K";
    assert_eq!(without_bar(&format!("{bar}a\r\nb\r\n")), "a\r\nb\r\n");
    // As many events as it takes on this machine for the bar to move a few times.
    let bars = Regex::new(r"checking what would help \[(·*#·*)\] \d+ s").unwrap();
    for events in [1_500_000, 6_000_000, 24_000_000] {
        let scene = Scene::new();
        let path = scene.synthetic(format!("busy {events}"));
        let (shown, code) = scene.terminal(format!("report {}", path.display())).env("NO_COLOR", "1").run();
        let seen: std::collections::BTreeSet<&str> =
            bars.captures_iter(&shown).map(|found| found.get(1).map_or("", |bar| bar.as_str())).collect();
        assert_eq!(code, 0, "{shown}");
        if seen.len() > 3 {
            assert!(shown.rfind("\r\x1b[K") < shown.find("GPU OUT OF MEMORY"), "the bar stays: {shown}");
            let piped = scene.weir(format!("report {}", path.display())).run().quiet();
            assert!(!piped.out.is_empty(), "no terminal, no bar");
            return;
        }
    }
    panic!("no bar was seen to move");
}
