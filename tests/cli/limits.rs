//! Limits of `weir run`: which processes a cap held, and that a cap which held none is reported.

use crate::scene::{Scene, summary};
use weir_tests::harness::{MIB, Suite, mode, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("limits: the summary lists the processes that ran under weir", summary_lists_processes);
    suite.add("limits: a cap that held no process is reported", cap_held_nothing);
    suite.add("limits: a cap for a device that no process sees is reported", unseen_device);
    suite.add("limits: a limit that cannot be enforced is reported", not_enforced);
    suite.add("limits: a cap is the cap of the whole job", whole_job);
}

/// `job.py` as words of a shell.
fn job(arguments: &str) -> String {
    format!("python3 {} {arguments}", stage().file("cli/job.py").display())
}

fn summary_lists_processes() {
    let scene = Scene::new();
    let end = summary(&scene.job("--json --cap 256MiB", "well").run().well());
    assert!(end["limit"]["in_force"] == true && end["limit"]["cap"] == "256MiB", "{end}");
    let processes = end["processes"].as_array().expect("processes");
    assert!(processes.len() == 1 && processes[0]["state"] == "on", "{end}");
    assert_eq!(processes[0]["pid"], end["runs"][0]["pid"]);
    let devices = processes[0]["devices"].as_array().expect("devices");
    assert!(devices.len() == 1 && devices[0]["cap"] == 256 * MIB, "{end}");
    // Neither the way a process ends nor another `weir run` in between matters.
    let inner = format!("run --vgpu 512MiB --json --cap 256MiB -- {} run -- sh -c", stage().command().display());
    let end = summary(&scene.weir(inner).arg(format!("{}; {}", job("killed"), job("well"))).run().well());
    assert!(end["processes"].as_array().is_some_and(|all| all.len() == 2) && end["limit"]["in_force"] == true, "{end}");
    assert!(!scene.names("runs").iter().any(|name| name.starts_with("run-")), "{:?}", scene.names("runs"));
    assert!(scene.names("runs/ledger").is_empty(), "the job's ledger is removed with it");
}

fn cap_held_nothing() {
    let scene = Scene::new();
    let lost = "no process of the job used CUDA under weir, so the cap of 256MiB was not in force";
    for command in [format!("env -u LD_PRELOAD {}", job("well")), "true".to_owned()] {
        let run = |options: &str| scene.weir(format!("run --vgpu 512MiB --cap 256MiB {options} -- {command}")).run();
        let done = run("").well();
        assert!(done.err.contains(lost) && done.err.matches('\n').count() == 1, "{done}");
        let done = run("--strict").code(125);
        assert!(done.err.contains(lost) && done.err.contains("--strict"), "{done}");
        let end = summary(&run("--json").well());
        assert!(end["processes"] == serde_json::json!([]) && end["limit"]["in_force"] == false, "{end}");
        assert!(end["limit"]["problem"].as_str().is_some_and(|problem| problem.contains(lost)), "{end}");
    }
    let _ = scene.weir("run -- true").run().quiet();
}

fn unseen_device() {
    let scene = Scene::new();
    let run = |options: &str| scene.job(options, "well");
    let done = run("--cap 5=256MiB").run().code(1);
    assert!(done.err.contains("cuInit failed") && done.err.contains("no such device"), "{done}");
    let _ = run("--cap 5=256MiB --strict").run().code(125);
    let hidden = "VGPU_DEVICES=2 CUDA_VISIBLE_DEVICES=0";
    let done = run("--cap 1=256MiB").set(hidden).run().well();
    assert!(done.err.contains("no process of the job could see device 1"), "{done}");
    let _ = run("--cap 1=256MiB --strict").set(hidden).run().code(125);
    // Each device is seen by one process.
    let both = scene.weir("run --vgpu 512MiB --cap 0=256MiB,1=128MiB -- sh -c").set(hidden);
    let done = both.arg(format!("CUDA_VISIBLE_DEVICES=1 {}; {}", job("well"), job("well"))).run().well();
    assert!(!done.err.contains("could see"), "{done}");
}

fn not_enforced() {
    let scene = Scene::new();
    std::fs::create_dir(scene.at("runs/ledger")).expect("a folder");
    mode(&scene.at("runs/ledger"), 0o777);
    let done = scene.job("--cap 256MiB", "well").run().code(125);
    assert!(done.err.contains("no directory for the ledger") && done.err.contains("others can write"), "{done}");
    let done = scene.job("--cap 256MiB --cap-per-process", "well").run().well();
    assert!(!done.err.contains("in_force"), "{done}");
    let end = summary(&scene.job("--cap 7=256MiB --cap-per-process --no-strict --json", "well").run().well());
    assert!(end["processes"][0]["state"] == "without" && end["limit"]["in_force"] == false, "{end}");
    let problem = end["limit"]["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("1 of 1 processes ran without the cap"), "{end}");
}

/// Three workers allocate until they are refused, on one device that they share; the device counts what they have.
fn whole_job() {
    for (options, least, most) in [("", 480, 512), ("--cap-per-process", 1400, 1536), ("--group team", 480, 512)] {
        let scene = Scene::new();
        let words = format!("run --vgpu 2GiB --cap 512MiB {options} -- {}", job("workers"));
        let done = scene.weir(words).env("VGPU_SHARED", scene.at("device")).set("VGPU_BACKING=none").run().well();
        let taken = done.out.split_whitespace().map(|bytes| bytes.parse::<u64>().expect("bytes")).sum::<u64>() / MIB;
        assert!((least..=most).contains(&taken), "{options}: {taken} MiB\n{done}");
    }
}
