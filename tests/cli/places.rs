//! Terminals that can little, and users without a home.

use crate::scene::Scene;
use std::path::Path;
use weir_tests::harness::{Done, Job, Suite, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("places: ASCII where the locale or the terminal has nothing else", ascii);
    suite.add("places: lines of code are links on a terminal", links);
    suite.add("places: a page on standard output", page);
    suite.add("places: a user without a home, and one with a home that is closed", homeless);
}

fn ascii() {
    let scene = Scene::new();
    let path = scene.synthetic("growth").display().to_string();
    let report = scene.out(format!("report {path}"));
    assert!(!report.is_ascii(), "the test needs other signs: {report}");
    for (name, value) in [("LANG", "C"), ("LC_ALL", "POSIX"), ("TERM", "dumb")] {
        for words in [format!("report {path}"), format!("report {path} --details"), "list".into(), "--help".into()] {
            let text = scene.weir(&words).env(name, value).run().well().out;
            assert!(text.is_ascii(), "{name}={value} {words}: {text}");
        }
        let small = scene.weir(format!("report {path}")).env(name, value).run().well().out;
        assert_eq!(small.lines().count(), report.lines().count());
        // What programs read stays as it is.
        let json = scene.weir(format!("report {path} --json")).env(name, value).run().well().out;
        assert_eq!(json, scene.out(format!("report {path} --json")));
    }
    let _ = scene.weir("run --no-journal --print-env").env("LANG", "C").run().well();
    // A terminal that cannot erase gets no bar and no colour, and `weir top` is text.
    let (shown, code) = scene.terminal(format!("report {path}")).env("TERM", "dumb").run();
    assert!(code == 0 && shown.is_ascii() && !shown.contains('\x1b'), "{shown}");
    let (shown, code) = scene.terminal("top").env("TERM", "dumb").run();
    assert!(code == 0 && shown.contains("no job under weir lives") && !shown.contains('\x1b'), "{shown}");
}

fn links() {
    let scene = Scene::new();
    let _ = scene.job("--cap 256MiB", "oom").run().code(1);
    let (shown, _) = scene.terminal("report").run();
    let script = stage().file("cli/job.py");
    let script = script.canonicalize().unwrap_or(script);
    let text = scene.out("report");
    assert!(text.contains("job.py:") && !text.contains('\x1b'), "{text}");
    assert!(
        shown.contains("\x1b]8;;file://") && shown.contains(&format!("{}\x1b\\job.py:", script.display())),
        "{shown:?}"
    );
    for (name, value) in [("TERM", "linux"), ("TERM", "dumb"), ("LANG", "C")] {
        assert!(!scene.terminal("report").env(name, value).run().0.contains("\x1b]8"), "{name}={value}");
    }
}

fn page() {
    let scene = Scene::new();
    scene.synthetic("growth");
    let done = scene.weir("report --html -").run().well();
    assert!(done.out.to_lowercase().starts_with("<!doctype html") && done.out.trim_end().ends_with("</html>"));
    assert!(!done.out.contains("open it in a browser") && !scene.at("-").exists());
}

fn homeless() {
    let scene = Scene::new();
    // sysfs lets nobody make a folder.
    for home in [None, Some("/sys")] {
        let place = |job: Job| {
            let job = job.env("WEIR_DIR", "").env("XDG_STATE_HOME", "").env("XDG_RUNTIME_DIR", "");
            job.env("HOME", home.unwrap_or_default())
        };
        let done = place(scene.job("--json", "well")).run().well();
        let path = path_of(&done);
        assert!(
            Path::new(&path).exists() && (path.starts_with("/tmp/weir-") || path.starts_with("/dev/shm/weir-")),
            "{path}"
        );
        assert_eq!(home.is_some(), done.err.contains("cannot be written to"), "{done}");
        let name = Path::new(&path).file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(place(scene.weir("list")).run().well().out.contains(&name));
        assert!(place(scene.weir(format!("report {name}"))).run().well().out.contains("job.py well"));
        let _ = place(scene.weir(format!("rm {name}"))).run().well();
        assert!(!Path::new(&path).exists());
    }
}

/// Where the run is that `weir run --json` reports.
fn path_of(done: &Done) -> String {
    let report = crate::scene::summary(done);
    report["runs"][0]["path"].as_str().unwrap_or_else(|| panic!("no run: {done}")).to_owned()
}
