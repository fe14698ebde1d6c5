//! Signals and the terminal under `weir run`: the job gets each signal once, and both stop and continue together.

use crate::scene::Scene;
use std::path::PathBuf;
use weir_tests::harness::{Suite, eventually, signal, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("signals: one that is sent to weir alone reaches the job once", to_weir_alone);
    suite.add("signals: a key on the terminal reaches the job once", by_a_key);
    suite.add("signals: the job has the terminal", has_the_terminal);
    suite.add("signals: SIGTSTP and SIGCONT work for both", stop_and_continue);
    suite.add("signals: one that was ignored stays ignored", ignored);
}

/// Counts the signals that arrive: the exit code is 50 and their number.
const COUNTS: &str = r#"
import signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: seen.append(number))
print("ready", flush=True)
end = time.time() + 100
while not seen and time.time() < end:
    time.sleep(0.05)
time.sleep(0.5)
sys.exit(50 + len(seen))
"#;

fn to_weir_alone() {
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1] {
        let scene = Scene::new();
        let mut job = scene.weir("run -- python3 -c").arg(COUNTS).start();
        assert_eq!(job.line(), "ready");
        job.signal(number);
        let _ = job.finish().code(51);
    }
}

fn by_a_key() {
    let (shown, code) = Scene::new().terminal("run -- python3 -c").arg(COUNTS).types("\x03", "ready").run();
    assert_eq!(code, 51, "{shown}");
}

fn has_the_terminal() {
    let script = "import os, sys; print(sys.stdin.isatty(), os.tcgetpgrp(0) == os.getpgrp(), os.getpgrp() == os.getpgid(os.getppid()))";
    let (shown, code) = Scene::new().terminal("run -- python3 -c").arg(script).run();
    assert_eq!((code, shown.trim()), (0, "True True True"));
}

/// The letter of a process's state.
fn state(pid: &str) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or_default().to_owned()
}

fn stop_and_continue() {
    let scene = Scene::new();
    // The key may be pressed at any time, also while the job is being started.
    for number in 0..40 {
        // As a job of an interactive shell: a process group of its own.
        let mut job = scene.weir("run -- cat").start();
        let (weir, group) = (job.id().to_string(), -(job.id() as i32));
        let children = PathBuf::from(format!("/proc/{weir}/task/{weir}/children"));
        let end = std::time::Instant::now() + weir_tests::harness::PATIENCE;
        let child = loop {
            let listed = std::fs::read_to_string(&children).unwrap_or_default();
            if let Some(child) = listed.split_whitespace().next() {
                break child.to_owned();
            }
            assert!(std::time::Instant::now() < end, "no child");
        };
        if number % 4 == 0 {
            let name = format!("/proc/{child}/comm");
            eventually(|| (std::fs::read_to_string(&name).ok()? == "cat\n").then_some(()));
        }
        signal(group, libc::SIGTSTP);
        eventually(|| (state(&weir) == "T" && state(&child) == "T").then_some(()));
        signal(group, libc::SIGCONT);
        job.close_input();
        let _ = job.finish().well();
    }
}

fn ignored() {
    let script = "import signal; print(int(signal.getsignal(signal.SIGHUP)), int(signal.getsignal(signal.SIGTERM)))";
    let line = format!("trap '' HUP; exec {} run -- python3 -c '{script}'", stage().command().display());
    let done = Scene::new().program("sh").arg("-c").arg(line).run().well();
    assert_eq!(done.out, "1 0\n", "SIG_IGN is 1, SIG_DFL 0");
}
