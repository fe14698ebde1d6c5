//! Whole screens against reviewed snapshots: help, reports, lists, the lines of `weir run`, errors. Times, process ids, names
//! of runs and the trial's folder are redacted; everything else must be the same on every machine.

use crate::scene::Scene;
use regex_lite::Regex;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_tests::harness::{Done, Suite, stage};

/// What `weir --help` lists, in its order.
const COMMANDS: [&str; 22] = [
    "run",
    "report",
    "list",
    "rm",
    "gather",
    "tail",
    "record",
    "cap",
    "doctor",
    "gpu-check",
    "diff",
    "export",
    "replay",
    "top",
    "plan",
    "metrics",
    "ship",
    "fleet",
    "mcp",
    "cdi",
    "completions",
    "man",
];

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("screens: help", || help("", "help"));
    for command in COMMANDS {
        suite.add(format!("screens: help of {command}"), move || help(command, &format!("help_{command}")));
    }
    for kind in ["growth", "fragmentation", "cap", "well"] {
        suite.add(format!("screens: report, {kind}"), move || report(kind, "", &format!("report_{kind}")));
    }
    suite.add("screens: report --details", || report("growth", "--details", "report_details"));
    suite.add("screens: list", list);
    suite.add("screens: commands on a run", on_a_run);
    suite.add("screens: lines of run", run_lines);
    suite.add("screens: errors", errors);
}

/// Replaces what differs from run to run.
fn redacted(scene: &Scene, text: &str) -> String {
    let folder = scene.folder().display().to_string();
    let root = stage().root.display().to_string();
    let mut text = text.replace(&folder, "[folder]").replace(&root, "[repository]");
    for (pattern, with) in [
        (r"\b\d{10}-\d+\b", "[run]"),
        (r"\bpid \d+\b", "pid [pid]"),
        (r"\b\d+ (s|min) ago\b", "[time] ago"),
        (r"\b\d+\.\d KiB\b", "[size] KiB"),
        (r"\b\d\d-\d\d \d\d:\d\d\b", "[day  time]"),
        (r"\b\d\d:\d\d:\d\d\b", "[  time]"),
        (r"\b0x[0-9a-f]{12}\b", "[   address  ]"),
    ] {
        text = Regex::new(pattern).expect("a pattern").replace_all(&text, with).into_owned();
    }
    text
}

/// Compares a screen with `snapshots/NAME.snap`.
fn compare(name: &str, screen: &str) {
    let mut settings = insta::Settings::new();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, screen));
}

/// A command line and all that it printed, as a shell session shows it.
fn session(scene: &Scene, line: &str, done: &Done) -> String {
    let code = if done.code == 0 { String::new() } else { format!("[exit code {}]\n", done.code) };
    format!("$ weir {}\n{}{}{code}\n", redacted(scene, line), redacted(scene, &done.out), redacted(scene, &done.err))
}

fn sessions(scene: &Scene, name: &str, lines: &[&str]) {
    let shown: Vec<String> = lines.iter().map(|line| session(scene, line, &wide(scene, line))).collect();
    compare(name, &shown.concat());
}

/// Runs a command on a screen on which nothing is cut off, however long a process id is, and at noon: a time of another day is
/// shown with its date.
fn wide(scene: &Scene, words: &str) -> Done {
    scene.weir(words).env("COLUMNS", "120").env("TZ", noon()).run()
}

/// A time zone in which it is about noon.
fn noon() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    // Hours west of Greenwich.
    let west = i64::try_from(seconds / 3600 % 24).unwrap_or(0) - 12;
    format!("NOON{west:+}")
}

fn help(command: &str, name: &str) {
    let scene = Scene::new();
    let done = scene.weir(format!("{command} --help")).run().quiet();
    compare(name, &redacted(&scene, &done.out));
    if command.is_empty() {
        let listed =
            done.out.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names: Vec<&str> =
            listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
        assert_eq!(names, COMMANDS, "right: commands that have a trial");
    }
}

/// A synthetic run under a name that is the same in every trial.
fn named(scene: &Scene, kind: &str, name: &str) {
    std::fs::rename(scene.synthetic(kind), scene.runs().join(name)).expect("another name");
}

fn report(kind: &str, options: &str, name: &str) {
    let scene = Scene::new();
    named(&scene, kind, "1-1.weir");
    compare(name, &redacted(&scene, &wide(&scene, &format!("report {options}")).quiet().out));
}

fn list() {
    let scene = Scene::new();
    let empty = session(&scene, "list", &wide(&scene, "list"));
    named(&scene, "growth", "1-1.weir");
    named(&scene, "well", "2-1.weir");
    std::fs::write(scene.at("runs/3-1.weir"), "#!/bin/sh\n").expect("a file");
    let full = session(&scene, "list", &wide(&scene, "list"));
    compare("list", &(empty + &full + &session(&scene, "list --oom", &wide(&scene, "list --oom"))));
}

fn on_a_run() {
    let scene = Scene::new();
    named(&scene, "growth", "1-1.weir");
    let lines = [
        "tail --all --no-follow --kind oom,exit",
        "cap",
        "diff 1-1 1-1",
        "export --to csv -o run.csv",
        "record -o run.weirrec",
        "report ./run.weirrec --html page.html",
        "top --all --once",
        "plan --list",
    ];
    sessions(&scene, "commands", &lines);
}

fn run_lines() {
    let scene = Scene::new();
    let mut shown = String::new();
    for (options, kind) in
        [("", "well"), ("--cap 256MiB", "oom"), ("--cap 256MiB", "survives"), ("--cap 256MiB", "killed")]
    {
        let done = scene.job(options, kind).run();
        shown += &session(&scene, &format!("run --vgpu 512MiB {options} -- python3 job.py {kind}"), &done);
    }
    for line in
        ["run --cap 256MiB -- true", "run --cap 256MiB --strict -- true", "run --cap 1GiB --group team --print-env"]
    {
        shown += &session(&scene, line, &scene.weir(line).run());
    }
    compare("run", &shown);
}

fn errors() {
    let scene = Scene::new();
    scene.synthetic("well");
    let lines = [
        "run",
        "run -- no-such-command",
        "run --cap 8XiB -- true",
        "run --vgpu 8 -- true",
        "run --library /nowhere.so -- true",
        "report nothing",
        "report /nowhere/x.weir",
        "report --oom",
        "report --device 7",
        "report --dir empty",
        "tail --kind nonsense",
        "export --to nonsense",
        "replay --cap much",
        "record -o /nowhere/x.weirrec",
        "cap 8XiB",
        "metrics --listen nonsense",
        "nonsense",
    ];
    sessions(&scene, "errors", &lines);
}
