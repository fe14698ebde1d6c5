//! `weir report --rerun` and `weir plan RUN`: jobs that are run again on the virtual GPU. Jobs with TensorFlow are in
//! tests/diagnosis/test_rerun.py.

use serde_json::Value;
use std::path::Path;
use weir_tests::harness::{Job, MIB, Scratch, Suite, stage};

pub(crate) fn trials(suite: &mut Suite) {
    suite.add("rerun: the smallest device is enough, and three percent less is not", smallest_device);
    suite.add("rerun: the lowest cap is enough, and three percent less is not", lowest_cap);
    suite.add("rerun: the same folder, arguments and variables, without secrets", same_job);
    suite.add("rerun: what cannot be run again is one clear line", refused);
    suite.add("rerun: a command that another user could have written is not run", not_trusted);
    suite.add("rerun: a job that fails for another reason leaves the plain report", other_reason);
    suite.add("rerun: a job that goes on is stopped, and says so", stopped);
    suite.add("rerun: plan takes a recorded run", planned);
    suite.add("exit: a process that leaves by _exit has ended, one that is killed has not", left);
    suite.add("keep: a run that ran out stays while others come and go", kept);
    suite.add("at: a moment that is none is one clear line", moments);
}

/// A folder with runs and programs.
struct Place(Scratch);

/// Takes as many MiB as its arguments say, one after the other, and ends with 1 if there are not so many.
const TAKES: &str = "
import ctypes, os, sys
cuda = ctypes.CDLL('libcuda.so.1')
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
def take(mib):
    at = ctypes.c_uint64()
    if cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(mib << 20)):
        sys.exit('out of memory')
    return at
for mib in sys.argv[1:]:
    take(int(mib))
";

impl Place {
    fn new() -> Self {
        let place = Self(Scratch::new());
        place.0.folder("runs");
        place.write("takes.py", TAKES);
        place
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.at(name), text).expect("a file");
    }

    fn weir(&self, words: impl std::fmt::Display) -> Job {
        Job::new(stage().command())
            .within(self.0.path())
            .env("HOME", self.0.path())
            .env("WEIR_DIR", self.0.at("runs"))
            .set("WEIR_RING=64K WEIR_OOM_TEXT=off")
            .words(words)
    }

    /// A job on the virtual GPU; its exit code.
    fn job(&self, options: &str, program: &str) -> i32 {
        self.weir(format!("run -q {options} -- python3 {program}")).run().code
    }

    fn measured(&self, words: &str) -> Value {
        let report = self.weir(format!("report --rerun --json {words}")).run().well().json();
        let first = &report["remedies"][0];
        assert!(first["check"] == "run", "{report}");
        report["measured"].clone()
    }
}

fn mib(value: &Value) -> u64 {
    value.as_u64().expect("a size").div_ceil(MIB)
}

fn smallest_device() {
    let place = Place::new();
    let program = "takes.py 60 100 200 300 90";
    assert_eq!(place.job("--vgpu 256MiB", program), 1);
    let measured = place.measured("");
    assert_eq!((mib(&measured["peak"]), &measured["reached"]), (750, &"end".into()), "{measured}");
    let device = mib(&measured["device"]);
    assert_eq!(place.job(&format!("--vgpu {device}MiB"), program), 0, "{measured}");
    assert_eq!(place.job(&format!("--vgpu {}MiB", device * 97 / 100), program), 1, "{measured}");
    assert_eq!(place.job(&format!("--vgpu {}MiB", mib(&measured["short"])), program), 1, "{measured}");
}

fn lowest_cap() {
    let place = Place::new();
    let program = "takes.py 60 100 200 300 90";
    assert_eq!(place.job("--vgpu 4GiB --cap 256MiB", program), 1);
    let run = newest_oom(&place);
    let measured = place.measured("");
    assert_eq!(measured["device"], Value::Null, "the cap is what limits it: {measured}");
    let cap = mib(&measured["cap"]);
    assert_eq!(place.job(&format!("--vgpu 4GiB --cap {cap}MiB"), program), 0, "{measured}");
    assert_eq!(place.job(&format!("--vgpu 4GiB --cap {}MiB", cap * 97 / 100), program), 1, "{measured}");
    let text = place.weir(format!("report --rerun {run}")).run().well().out;
    assert!(text.contains(&format!("WEIR_CAP={cap}MiB or more (run on the virtual GPU")), "{text}");
}

fn newest_oom(place: &Place) -> String {
    let runs = place.weir("list --oom --json").run().well().json();
    runs[0]["run"].as_str().expect("a run").to_owned()
}

fn same_job() {
    let place = Place::new();
    let notes = "
with open('notes', 'a') as to:
    mine = {name: os.environ.get(name) for name in ('BATCH', 'TF_X', 'TF_Y', 'MY_TOKEN', 'GREETING')}
    print(os.getcwd(), sys.argv, sys.stdin.read(), mine, file=to)
take(400)
";
    place.write("notes.py", &format!("{TAKES}{notes}"));
    place.0.folder("inner");
    let first = place
        .weir("run -q --vgpu 256MiB -- python3 ../notes.py")
        .arg("8")
        .within(place.0.at("inner"))
        .set("BATCH=64 TF_X=a MY_TOKEN=s3cr3t GREETING=hello")
        .run();
    assert_eq!(first.code, 1, "{first}");
    let journal = std::fs::read_dir(place.0.at("runs"))
        .expect("runs")
        .flatten()
        .find(|entry| entry.path().extension().is_some_and(|end| end == "weir"));
    let bytes = std::fs::read(journal.expect("a journal").path()).expect("its bytes");
    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("BATCH=64") && !has("s3cr3t") && !has("hello"), "what is recorded");
    // From elsewhere, and with variables that the job did not have.
    let report = place.weir("report --rerun").set("BATCH=1 TF_X=b TF_Y=c").run().well();
    assert!(report.out.contains("is enough") && report.err.contains("../notes.py 8 in "), "{report}");
    let notes = std::fs::read_to_string(place.0.at("inner/notes")).expect("notes");
    let lines: Vec<&str> = notes.lines().collect();
    let again = lines[0].replace("'s3cr3t'", "None").replace("'hello'", "None");
    assert!(lines.len() >= 3 && lines[1..].iter().all(|line| *line == again), "{notes}");
}

/// The line that says why nothing was measured; the report is there all the same.
fn why_not(place: &Place, words: &str) -> String {
    let done = place.weir(format!("report --rerun {words}")).run().well();
    assert!(done.out.contains("━━") && !done.out.contains("Run again"), "{done}");
    let lines: Vec<&str> = done.err.lines().filter(|line| line.contains("not measured: ")).collect();
    assert_eq!(lines.len(), 1, "{done}");
    lines[0].to_owned()
}

fn refused() {
    let place = Place::new();
    place.0.folder("inner");
    assert_eq!(place.job("--vgpu 256MiB", "takes.py 300"), 1);
    let offered = |place: &Place| place.weir("report").run().well().out.contains(" --rerun runs the job again");
    assert!(offered(&place));
    place.write("takes.py", &format!("{TAKES}# changed\n"));
    assert!(why_not(&place, "").contains("takes.py has changed since"));
    assert!(!offered(&place), "what cannot be done is not offered");
    std::fs::remove_file(place.0.at("takes.py")).expect("it was there");
    assert!(why_not(&place, "").contains("takes.py is gone from "));
    let inner = place.0.at("inner");
    let within = |input: &str, words: &str| {
        let job = place.weir(format!("run -q --vgpu 256MiB -- python3 {words}"));
        assert_eq!(job.within(&inner).input(input).run().code, 1);
    };
    within(&format!("{TAKES}take(300)\n"), "-");
    assert!(why_not(&place, "").contains("read its program from standard input"));
    place.write("takes.py", TAKES);
    within("", &format!("{} 300", place.0.at("takes.py").display()));
    std::fs::remove_dir(&inner).expect("it was there");
    assert!(why_not(&place, "").contains("its folder "));
    assert_eq!(place.job("--vgpu 256MiB", "takes.py 10"), 0);
    let well = place.weir("report").run().well().out;
    assert!(!well.contains("--rerun"), "offered only where memory ran out: {well}");
}

fn not_trusted() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let place = Place::new();
    assert_eq!(place.job("--vgpu 256MiB", "takes.py 300"), 1);
    let files = std::fs::read_dir(place.0.at("runs")).expect("a folder").flatten().map(|entry| entry.path());
    let mut journals = files.filter(|path| path.extension().is_some_and(|end| end == "weir"));
    let journal = journals.next().expect("a journal");
    let mode = |mode| std::fs::set_permissions(&journal, std::fs::Permissions::from_mode(mode)).expect("own file");
    mode(0o620);
    assert!(why_not(&place, "").contains("others may write to its journal"));
    mode(0o600);
    // Only root can give a file away.
    if chown(&journal, Some(12345), None).is_ok() {
        let why = place.weir(format!("report --rerun {}", journal.display())).run();
        assert!(why.err.contains("belongs to another user"), "{}", why.err);
    }
}

fn other_reason() {
    let place = Place::new();
    place.write("numbers.py", &format!("{TAKES}take(300)\nprint('the sum is wrong')\nsys.exit(9)\n"));
    assert_eq!(place.job("--vgpu 256MiB", "numbers.py"), 1);
    let why = why_not(&place, "");
    assert!(why.contains("ended with code 9, and not for want of memory; it printed last: the sum is wrong"), "{why}");
}

fn stopped() {
    let place = Place::new();
    place.write("waits.py", &format!("{TAKES}take(300)\nimport time\ntime.sleep(1000)\n"));
    assert_eq!(place.job("--vgpu 256MiB", "waits.py"), 1);
    let report = place.weir("report --rerun --json --for 60s").run().well().json();
    let (measured, first) = (&report["measured"], &report["remedies"][0]);
    assert_eq!((&measured["reached"], &first["check"]), (&"time".into(), &"estimated".into()), "{report}");
}

fn planned() {
    let place = Place::new();
    assert_eq!(place.job("--vgpu 256MiB", "takes.py 300 200"), 1);
    let run = newest_oom(&place);
    let plan = place.weir(format!("plan --gpu 1GiB --context 64MiB --json --quiet {run}")).run().well().json();
    assert_eq!((&plan["fits"], mib(&plan["run"]["peak"]["live"])), (&true.into(), 500), "{plan}");
    assert!(plan["command"].as_str().is_some_and(|command| command.ends_with("takes.py 300 200")), "{plan}");
    assert_eq!(place.weir(format!("plan --gpu 256MiB --context 64MiB --no-confirm --quiet {run}")).run().code, 3);
    assert_eq!(place.weir(format!("plan --gpu 1GiB {run} -- true")).run().code, 2);
    std::fs::remove_file(place.0.at("takes.py")).expect("it was there");
    let done = place.weir(format!("plan --gpu 1GiB {run}")).run().code(1);
    assert!(done.err.contains("cannot be run again: takes.py is gone"), "{done}");
}

fn left() {
    let place = Place::new();
    // In the third a child that shares the memory of its parent leaves by _exit, and the parent is killed.
    let ends = [
        ("zero.py", "os._exit(0)", Some(0), "ended"),
        ("three.py", "os._exit(3)", Some(3), "ended"),
        (
            "child.py",
            "import subprocess\ntry: subprocess.run(['/nowhere'])\nexcept OSError: os.kill(os.getpid(), 9)",
            None,
            "killed",
        ),
        ("fork.py", "os.fork() or os._exit(0)\nos.wait()\nos.kill(os.getpid(), 9)", None, "killed"),
    ];
    for (name, end, status, state) in ends {
        place.write(name, &format!("{TAKES}take(8)\n{end}\n"));
        let _ = place.job("--vgpu 256MiB", name);
        let report = place.weir("report --json").run().well().json();
        assert_eq!((report["exit_status"].as_i64(), &report["state"]), (status, &state.into()), "{name}: {report}");
    }
}

fn kept() {
    let place = Place::new();
    assert_eq!(place.job("--vgpu 256MiB --keep 2", "takes.py 300"), 1);
    let first = newest_oom(&place);
    for _ in 0..5 {
        assert_eq!(place.job("--vgpu 256MiB --keep 2", "takes.py 8"), 0);
    }
    let runs = place.weir("list --json").run().well().json();
    let runs: Vec<&str> = runs.as_array().expect("runs").iter().filter_map(|run| run["run"].as_str()).collect();
    // Two ended ones are kept when a run begins, and its own comes on top.
    assert!(runs.len() == 4 && runs.contains(&first.as_str()), "{first} of {runs:?}");
    assert!(Path::new(&place.0.at("runs")).join(format!("{first}.weir.oom.json")).exists());
}

fn moments() {
    let place = Place::new();
    assert_eq!(place.job("--vgpu 256MiB", "takes.py 100 300"), 1);
    for (moment, code, word) in [
        ("--at never", 2, "expected oom, peak, end, a step"),
        ("--at 7", 1, "has no step 7; the log has no steps"),
        ("--at 1999-01-01T00:00:00", 1, "no event before this time"),
    ] {
        let done = place.weir(format!("report {moment}")).run().code(code);
        assert!(done.err.contains(word), "{done}");
    }
    for moment in ["peak", "end", "oom", "23:59:59", "2099-01-01T12:00:05"] {
        assert!(place.weir(format!("report --at {moment}")).run().well().out.contains("━━"), "{moment}");
    }
    let check = |words: &str| place.weir(format!("report --check {words}")).run().code;
    assert_eq!((check(""), check("--at end")), (3, 3), "the run that is shown ran out");
    assert_eq!(place.job("--vgpu 256MiB", "takes.py 100"), 0);
    assert_eq!((check(""), check("--oom")), (0, 3), "the newest did not, the one before did");
}
