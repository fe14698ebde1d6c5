//! `--json`: every command has it, and what a job or an export prints stays apart from it.

use crate::scene::{Scene, summary};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use weir_tests::harness::Suite;

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("json: from every command", every_command);
    suite.add("json: rows for a lake", rows);
    suite.add("json: apart from the output of exports and jobs", apart);
}

/// What `weir ship` appends; where that is kept is tested by tests/lake.
fn rows() {
    let scene = Scene::new();
    scene.synthetic("growth");
    scene.synthetic("well");
    let done = scene.weir("ship --print --no-replay").run().quiet();
    let rows: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).expect("a row a line")).collect();
    let of = |outcome: &str| rows.iter().find(|row| row["outcome"] == outcome).unwrap_or_else(|| panic!("{done}"));
    assert_eq!((rows.len(), &of("oom")["cause"], &of("ok")["cause"]), (2, &json!("growth"), &Value::Null));
    assert!(of("oom")["line"].as_str().is_some_and(|line| line.contains(".py:")), "{done}");
    assert_ne!(of("oom")["run"], of("ok")["run"]);
}

fn every_command() {
    let scene = Scene::new();
    let growth = scene.synthetic("growth").display().to_string();
    // The manual has a page for each command.
    let man = scene.json("man --out pages --json");
    let pages = scene.names("pages");
    let mut files: Vec<&str> = man["files"].as_array().expect("files").iter().filter_map(Value::as_str).collect();
    files.sort_unstable();
    assert_eq!(files, pages);
    assert!(man["folder"].as_str().is_some_and(|folder| folder.ends_with("pages")), "{man}");
    // What these make is JSON.
    let made = ["cdi", "gpu-check", "mcp"];
    // These need weir-fleet: see tests/lake.
    let elsewhere = ["ship", "fleet"];
    let commands = pages.iter().filter_map(|name| name.strip_prefix("weir-")?.strip_suffix(".1"));
    let commands: BTreeSet<&str> =
        commands.filter(|command| !made.contains(command) && !elsewhere.contains(command)).collect();
    let diff = format!("{growth} {growth}");
    let ways = BTreeMap::from([
        ("run", "--cap 1GiB --print-env"),
        ("report", ""),
        ("list", ""),
        ("gather", "all"),
        ("tail", "--all --no-follow --kind oom"),
        ("record", "-o r.weirrec"),
        ("cap", ""),
        ("doctor", ""),
        ("diff", &diff),
        ("export", "--to csv -o x.csv"),
        ("replay", ""),
        ("rm", "--keep all"),
        ("top", ""),
        ("plan", "--list"),
        ("metrics", ""),
        ("completions", "fish"),
        ("man", ""),
    ]);
    assert_eq!(commands, ways.keys().copied().collect(), "right: the commands of this trial");
    let mut answers = BTreeMap::new();
    for (command, words) in &ways {
        let done = scene.weir(format!("{command} --json {words}")).run();
        // doctor finds no driver, and replay that the job does not fit: both are answers.
        assert!(done.code == 0 || ["doctor", "replay"].contains(command), "{done}");
        answers.insert(*command, done.json());
    }
    assert_eq!(answers["run"]["WEIR_CAP"], "1GiB");
    assert!(answers["run"]["LD_PRELOAD"].as_str().is_some_and(|path| path.ends_with("libweir.so")));
    let bytes = scene.at("x.csv").metadata().expect("the export").len();
    let written = &answers["export"];
    assert_eq!(
        (&written["file"], &written["format"], &written["bytes"]),
        (&"x.csv".into(), &"csv".into(), &bytes.into())
    );
    assert_eq!(answers["completions"], json!({"shell": "fish", "script": scene.out("completions fish")}));
    assert_eq!(answers["man"], json!({"name": "weir.1", "text": scene.out("man")}));
    assert_eq!(answers["rm"], json!({"removed": 0, "bytes": 0, "refused": []}));
    let plans = answers["plan"].as_array().expect("devices");
    assert!(plans.contains(&json!({"name": "T4", "bytes": 15_837_691_904_u64, "compute": [7, 5]})), "{plans:?}");
    let metrics = answers["metrics"].as_array().expect("metrics");
    let samples: Vec<(&Value, &Value)> = metrics
        .iter()
        .flat_map(|one| one["samples"].as_array().expect("samples").iter().map(move |sample| (&one["name"], sample)))
        .collect();
    let plain = scene.out("metrics --once");
    assert_eq!(plain.lines().filter(|line| !line.starts_with('#')).count(), samples.len());
    let alive =
        samples.iter().find(|(name, sample)| *name == "weir_jobs" && sample["labels"] == json!({"life": "alive"}));
    assert_eq!(alive.expect("a sample").1["value"].as_f64(), Some(0.0));
}

fn apart() {
    let scene = Scene::new();
    let growth = scene.synthetic("growth").display().to_string();
    let mut written = scene.json(format!("export {growth} --to csv -o x.csv --json"));
    let done = scene.weir(format!("export {growth} --to csv -o - --json")).run().well();
    assert_eq!(done.out, std::fs::read_to_string(scene.at("x.csv")).expect("the export"));
    written["file"] = Value::Null;
    assert_eq!(summary(&done), written);
    let done = scene.weir("run --json -- echo out").run().well();
    assert_eq!((done.out.as_str(), &summary(&done)["runs"]), ("out\n", &json!([])));
    assert_eq!(done.err.lines().count(), 1, "{done}");
    let done = scene.weir("run --json -- sh -c").arg("exit 7").run().code(7);
    assert_eq!(summary(&done)["code"], 7);
    let end = summary(&scene.weir("run --json -- no-such-command").run().code(127));
    assert!(
        end["pid"].is_null() && end["code"] == 127 && end["runs"] == json!([]) && end["processes"] == json!([]),
        "{end}"
    );
    assert!(scene.error(125, "run --print-env=docker --json").contains("--print-env --json"));
    let end = summary(&scene.job("--cap 256MiB --json", "oom").run().code(1));
    let run = end["runs"][0]["run"].as_str().expect("a run");
    let report = scene.json(format!("report {run} --json"));
    assert!(end["code"] == 1 && end["runs"][0]["oom"].as_u64() > Some(0), "{end}");
    assert_eq!(end["runs"][0]["pid"], report["pid"]);
}
