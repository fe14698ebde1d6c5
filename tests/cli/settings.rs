//! Settings as flags and variables of `weir run`: every pair has the same effect, and a bad value is one line before the
//! job starts.

use crate::scene::Scene;
use regex_lite::Regex;
use std::collections::{BTreeMap, BTreeSet};
use weir_tests::harness::{Suite, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("settings: every option names its variable and sets it", options_set_variables);
    suite.add("settings: every bad value is one line before the job starts", bad_values);
}

fn options_set_variables() {
    let scene = Scene::new();
    let values = BTreeMap::from([
        ("--cap", "1GiB"),
        ("--group", "g"),
        ("--on-cap", "wait:3s"),
        ("--spill", "1GiB"),
        ("--warn", "90%"),
        ("--pool", "off"),
        ("--dir", "/d"),
        ("--tf-allocator", "keep"),
        ("--stacks", "all"),
        ("--ring", "64K"),
        ("--keep", "3"),
        ("--journal", "on"),
        ("--xla", "on"),
        ("--oom-text", "off"),
        ("--termination-log", "/t"),
    ]);
    // A paragraph of the help is an option and, in brackets, its variable.
    let (option, variable) = (Regex::new("--[a-z-]+").unwrap(), Regex::new(r"\((WEIR_[A-Z_]+)(?:=(\S+))?\)").unwrap());
    let help = scene.out("run --help");
    let mut pairs = BTreeMap::new();
    for paragraph in Regex::new(r"\n\s*\n").unwrap().split(&help) {
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let (Some(option), Some(found)) = (option.find(paragraph), variable.captures(&line)) {
            let fixed = found.get(2).map(|value| value.as_str().to_owned());
            pairs.insert(option.as_str().to_owned(), (found[1].to_owned(), fixed));
        }
    }
    let known: BTreeSet<&str> = values.keys().copied().chain(["--no-journal", "--strict", "--no-strict"]).collect();
    assert_eq!(pairs.keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
    for (option, (variable, fixed)) in &pairs {
        let value = fixed.as_deref().unwrap_or_else(|| values[option.as_str()]);
        let argument = if fixed.is_some() { "" } else { value };
        let printed = scene.out(format!("run {option} {argument} --print-env"));
        assert!(printed.contains(&format!("export {variable}={value}\n")), "{option}: {printed}");
    }
}

fn bad_values() {
    let scene = Scene::new();
    let bad = BTreeMap::from([
        ("--cap", "5x"),
        ("--group", "a/b"),
        ("--on-cap", "wait"),
        ("--spill", "lots"),
        ("--warn", "101%"),
        ("--pool", "nostea"),
        ("--tf-allocator", "bfc"),
        ("--stacks", "some"),
        ("--ring", "100k"),
        ("--keep", "many"),
        ("--journal", "yes"),
        ("--xla", "sizes"),
        ("--oom-text", "1"),
        ("--termination-log", "on"),
    ]);
    let page = std::fs::read_to_string(stage().root.join("docs/reference/environment.md")).expect("the page");
    let row = Regex::new(r"(?m)^\| `(WEIR_[A-Z_]+)` \| `(--[a-z-]+)").unwrap();
    let variables: BTreeMap<&str, &str> = row
        .captures_iter(&page)
        .map(|found| found.extract::<2>().1)
        .map(|[variable, option]| (option, variable))
        .collect();
    let mut documented: BTreeSet<&str> = variables.keys().copied().collect();
    documented.remove("--strict");
    assert_eq!(documented, bad.keys().copied().collect(), "every option of the page but --strict");
    for (option, value) in &bad {
        let variable = variables[option];
        for (job, name) in [
            (scene.weir(format!("run {option} {value} -- touch started")), *option),
            (scene.weir("run -- touch started").env(variable, value), variable),
        ] {
            let done = job.run().code(125);
            assert!(
                done.err.matches('\n').count() == 1 && done.err.contains(value) && done.err.contains(name),
                "{done}"
            );
        }
    }
    let _ = scene.error(125, "run --on-cap spill --pool off -- touch started");
    let _ = scene.weir("run -- touch started").set("WEIR_STRICT=maybe").run().code(125);
    assert!(!scene.at("started").exists());
    // A flag replaces an inherited value; unknown variables are reported by the library, not by this command.
    let inherited = "WEIR_RING=100k WEIR_METRICS_SERVICE_HOST=10.0.0.1 WEIR_CPA=1";
    let _ = scene.weir("run --ring 64K -- true").set(inherited).run().well();
}
