//! What a CI asks: limits with exit codes, JUnit files, Markdown; and what a shell asks: the runs there are.

use crate::scene::Scene;
use std::path::{Path, PathBuf};
use weir_tests::harness::{MIB, Suite};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("checks: a peak above the limit", peak);
    suite.add("checks: a job that ran out of memory", out_of_memory);
    suite.add("checks: a peak that rose", rose);
    suite.add("rm: removes what has ended, and nothing that lives", removed);
    suite.add("completions: know the runs, the formats and the commands", completed);
}

fn peak() {
    let scene = Scene::new();
    // It holds twelve times 8 MiB at once.
    let _ = scene.job("", "well").run().well();
    let peak = scene.json("report --json")["peak"].as_u64().expect("a peak");
    assert!((96 * MIB..128 * MIB).contains(&peak), "{peak}");
    let _ = scene.weir("report --max-peak 128MiB").run().well();
    let done = scene.weir("report --max-peak 64MiB --junit out.xml --markdown").run().code(3);
    assert!(done.err.contains("more than 64.0 MiB"), "{done}");
    let file = std::fs::read_to_string(scene.at("out.xml")).expect("a file");
    for word in [&*format!("name=\"gpu_peak_0\" value=\"{peak}\""), "tests=\"2\" failures=\"1\"", "<failure message="] {
        assert!(file.contains(word), "{word}: {file}");
    }
    let parsed = scene.program("python3").arg("-c").arg("import xml.dom.minidom as m; m.parse('out.xml')");
    let _ = parsed.run().quiet();
    for word in
        ["### `job.py well`", "| live | blocks |", ":x: at most 64.0 MiB on GPU 0", ":white_check_mark:", "```text"]
    {
        assert!(done.out.contains(word), "{word}: {done}");
    }
    let _ = scene.weir("report --max-peak many").run().code(2);
}

fn out_of_memory() {
    let scene = Scene::new();
    let _ = scene.job("--cap 256MiB", "oom").run().code(1);
    let done = scene.weir("report --max-peak 4GiB --markdown").run().code(3);
    assert!(done.err.contains("ran out of GPU memory") && done.out.contains("ran out of GPU memory"), "{done}");
}

fn rose() {
    let scene = Scene::new();
    let less = scene.synthetic("well").display().to_string();
    let more = scene.synthetic("growth").display().to_string();
    let held = |run: &str| scene.json(format!("report {run} --json --at peak"))["peak"].as_u64().expect("a peak");
    assert!(held(&more) > held(&less) * 21 / 20, "the test needs a rise");
    let _ = scene.weir(format!("diff {less} {less} --fail-above 0%")).run().well();
    let _ = scene.weir(format!("diff {more} {less} --fail-above 5%")).run().well();
    let done = scene.weir(format!("diff {less} {more} --fail-above 5% --markdown --junit out.xml")).run().code(3);
    assert!(
        done.err.contains("the peak rose by") && done.out.contains("**peak**") && done.out.contains(":x:"),
        "{done}"
    );
    assert!(std::fs::read_to_string(scene.at("out.xml")).expect("a file").contains("failures=\"1\""));
    let rise = (held(&more) - held(&less)).div_ceil(MIB);
    let _ = scene.weir(format!("diff {less} {more} --fail-above {rise}MiB")).run().well();
    let _ = scene.weir(format!("diff {less} {more} --fail-above {}MiB", rise - 1)).run().code(3);
    let done = scene.weir(format!("diff {less} {more} --device 9 --fail-above 5%")).run().code(3);
    assert!(done.err.contains("nothing was compared"), "{done}");
}

fn removed() {
    let scene = Scene::new();
    let job = scene.start_job("", "hold");
    let growth = scene.synthetic("growth");
    let _ = scene.out(format!("record {} -o kept.weirrec", growth.display()));
    let journals = || scene.names("runs").into_iter().filter(|name| name.contains(".weir"));
    let is_journal = |name: &str| Path::new(name).extension().is_some_and(|end| end == "weir");
    let living = journals().find(|name| is_journal(name) && !growth.ends_with(name)).expect("the job's journal");
    let done = scene.weir(format!("rm {living} kept.weirrec {}", growth.display())).run().code(1);
    assert!(done.err.contains("its job runs") && done.out.contains("2 runs removed"), "{done}");
    assert!(!growth.exists() && !scene.at("kept.weirrec").exists() && scene.at("runs").join(&living).exists());
    let ended: Vec<PathBuf> = (0..3).map(|_| scene.synthetic("well")).collect();
    let name = ended[0].file_stem().expect("a name").to_string_lossy().into_owned();
    let error = scene.error(1, format!("rm {}", &name[..name.len() - 1]));
    assert!((error.contains("the whole name") || error.contains("ambiguous")) && ended[0].exists(), "{error}");
    assert_eq!(scene.json("rm --keep 1 --json")["removed"], 2);
    assert_eq!(scene.json("rm --keep 0 --json")["removed"], 1);
    assert_eq!(journals().collect::<Vec<_>>(), [living]);
    let _ = scene.weir("rm").run().code(2);
    assert!(scene.error(1, "rm nothing").contains("weir list"));
    job.signal(libc::SIGTERM);
    let _ = job.finish();
}

fn completed() {
    let scene = Scene::new();
    let run = scene.synthetic("growth");
    let name = run.file_stem().expect("a name").to_string_lossy().into_owned();
    let asked = |words: &str| {
        let index = words.split(' ').count() - 1;
        let job = scene.weir("--").args(words.split(' ')).env("WEIR_COMPLETE", "bash");
        job.env("_CLAP_COMPLETE_INDEX", index.to_string()).env("_CLAP_IFS", "\n").run().well().out
    };
    assert!(asked("weir rep").lines().any(|line| line == "report"));
    assert!(asked("weir report ").lines().any(|line| line == name), "{}", asked("weir report "));
    assert!(asked("weir diff a ").lines().any(|line| line == name));
    let begun = asked(&format!("weir rm {}", &name[..name.len() - 1]));
    assert_eq!(begun.trim(), name);
    assert!(asked("weir export --to pe").lines().any(|line| line == "perfetto"), "{}", asked("weir export --to pe"));
}
