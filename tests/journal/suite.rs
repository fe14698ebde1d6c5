//! The journal seen from outside: jobs under libweir.so on the virtual GPU that die, fork, lose their disk or their
//! folder, and readers of journals that live.
//!
//! `WEIR_TEST_KILLS` is how many jobs are killed at random instants (300).

mod adversity;
mod events;
mod living;
mod tenants;

use serde_json::Value;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;
use weir_tests::harness::{Done, Job, Scratch, Suite, files_below, size, stage};

fn main() -> ExitCode {
    let mut suite = Suite::new();
    tour(&mut suite);
    forks(&mut suite);
    events::events(&mut suite);
    adversity::adversity(&mut suite);
    living::living(&mut suite);
    tenants::tenants(&mut suite);
    deaths(&mut suite);
    suite.run()
}

/// The environment of a job that records into a folder.
pub(crate) fn arrange(job: Job, folder: &Path, environment: impl Display) -> Job {
    job.on_vgpu()
        .under(stage().weir())
        .env("HOME", folder.with_extension("home"))
        .env("WEIR_DIR", folder)
        .set("VGPU_MEM=1GiB VGPU_BACKING=none WEIR_RING=64,512 WEIR_OOM_TEXT=off")
        .set(environment)
}

/// Runs a job of `jobs.py` to its end.
pub(crate) fn job(words: &str, folder: &Path, environment: impl Display) -> Done {
    arrange(Job::python("journal/jobs.py").words(words), folder, environment).within_seconds(300).run()
}

/// The journals in a folder.
pub(crate) fn journals(folder: &Path) -> Vec<PathBuf> {
    let mut found = files_below(folder);
    found.retain(|path| path.extension().is_some_and(|e| e == "weir"));
    found
}

/// What a reader of its own (`journal-kill show`) finds in a journal.
pub(crate) fn read(journal: &Path) -> Value {
    Job::new(stage().program("journal-kill")).arg("show").arg(journal).run().well().json()
}

/// What is in the only journal of a folder.
pub(crate) fn the_journal(folder: &Path) -> Value {
    let found = journals(folder);
    assert_eq!(found.len(), 1, "one journal: {found:?}");
    read(&found[0])
}

/// The command, outside of any job.
pub(crate) fn weir() -> Job {
    Job::new(stage().command())
}

pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// A job of every call under a cap, with room in its ring for all events.
struct Tour {
    scratch: Scratch,
    journal: Value,
}

static TOUR: LazyLock<Tour> = LazyLock::new(|| {
    let scratch = Scratch::new();
    let folder = scratch.folder("tour");
    let _ = job("tour", &folder, "WEIR_RING=4096,512 WEIR_CAP=256MiB WEIR_WARN=50%").well();
    let journal = the_journal(&folder);
    Tour { scratch, journal }
});

const KINDS: [&str; 16] = [
    "alloc",
    "free",
    "map",
    "unmap",
    "trim",
    "sync",
    "cap_change",
    "soft_mark",
    "context_create",
    "context_destroy",
    "stream_create",
    "stream_destroy",
    "refused",
    "oom",
    "host_sample",
    "exit",
];
const CLASSES: [&str; 8] = ["block", "device", "managed", "array", "handle", "pinned", "registered", "reservation"];

fn tour(suite: &mut Suite) {
    suite.add("tour: one journal, which ends in order", || assert_eq!(TOUR.journal["clean_exit"], true));
    for kind in KINDS {
        suite.add(format!("tour: events of the kind {kind}"), move || {
            assert!(TOUR.journal["kinds"][kind].as_u64() > Some(0), "{}", TOUR.journal["kinds"]);
        });
    }
    for class in CLASSES {
        suite.add(format!("tour: events of the class {class}"), move || {
            assert!(TOUR.journal["classes"][class].as_u64() > Some(0), "{}", TOUR.journal["classes"]);
        });
    }
    suite.add("tour: what is live at the end is what the job kept", || {
        let live = list(&TOUR.journal, "live").iter();
        let left = live.filter(|e| !["handle", "reservation", "overhead"].contains(&e["class"].as_str().unwrap_or("")));
        assert_eq!(left.map(requested).collect::<Vec<_>>(), [777_777]);
    });
    suite.add("tour: a pool that goes with its context takes its blocks along", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("plain");
        let _ = job("tour", &folder, "WEIR_RING=4096,512 WEIR_POOL=novmm").well();
        let journal = the_journal(&folder);
        let left = list(&journal, "live").iter().filter(|e| e["class"] == "block");
        assert_eq!(left.map(requested).collect::<Vec<_>>(), [777_777]);
    });
    suite.add("tour: failures of one cause are reported once and counted", || {
        let oom = &TOUR.journal["oom"];
        let dumps = oom["dumps"].as_u64().unwrap_or(0);
        assert!(oom["seen"].as_u64() >= Some(20) && (1..=3).contains(&dumps), "{oom}");
    });
    suite.add("tour: the last out-of-memory failure lies beside it as JSON", || {
        let mut dumps = files_below(&TOUR.scratch.at("tour"));
        dumps.retain(|path| path.to_string_lossy().ends_with(".oom.json"));
        assert_eq!(dumps.len(), 1, "{dumps:?}");
        let text = std::fs::read_to_string(&dumps[0]).expect("the dump");
        let dump: Value = serde_json::from_str(&text).expect("JSON");
        assert!(dump["cause"] == "cap" && dump["situation"]["cap"] == 256 << 20, "{dump}");
    });
    suite.add("tour: driver calls have native stacks, and the modules are known", || {
        let journal = &TOUR.journal;
        assert!(journal["stacks"].as_u64() > Some(0) && journal["modules"].as_u64() > Some(3), "{journal}");
    });
    suite.add("tour: an out-of-memory failure is one screen on standard error, or none", || {
        let scratch = Scratch::new();
        let done = job("tour", &scratch.folder("spoken"), "WEIR_CAP=256MiB WEIR_OOM_TEXT=on").well();
        assert!(done.err.contains("GPU OUT OF MEMORY") && done.err.lines().count() <= 3 * 25, "{done}");
        let _ = job("tour", &scratch.folder("quiet"), "WEIR_CAP=256MiB").quiet();
    });
    for (title, words, environment) in [
        ("WEIR_JOURNAL=off leaves no file", "tour", "WEIR_JOURNAL=off"),
        ("a process that takes no memory leaves no file", "idle", ""),
    ] {
        suite.add(format!("tour: {title}"), move || {
            let scratch = Scratch::new();
            let folder = scratch.folder("nothing");
            let _ = job(words, &folder, environment).well();
            let left: Vec<_> = std::fs::read_dir(&folder).expect("the folder").flatten().collect();
            assert!(left.is_empty(), "{left:?}");
        });
    }
}

/// The size that was requested, of an event or a live allocation.
pub(crate) fn requested(of: &Value) -> u64 {
    of["requested"].as_u64().unwrap_or_else(|| panic!("no size: {of}"))
}

fn forks(suite: &mut Suite) {
    suite.add("forks: 1000 children of one job", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("forks");
        let _ = job("forks 1000", &folder, "WEIR_KEEP=all").well();
        let found: Vec<Value> = journals(&folder).iter().map(|path| read(path)).collect();
        let (own, others): (Vec<_>, Vec<_>) = found.iter().partition(|j| j["kinds"]["fork"].as_u64() > Some(0));
        assert_eq!(own.len(), 1, "the parent's journal is whole, with every fork");
        let parent = own[0];
        let blocks = list(parent, "live").iter().filter(|e| e["class"] == "block").count();
        assert!(parent["events"].as_u64() >= Some(1000) && parent["clean_exit"] == true && blocks == 3, "{parent}");
        // Of fifty children one replaces itself by a program that uses CUDA.
        assert_eq!(others.len(), 20, "children that use CUDA anew have journals of their own");
        for journal in others {
            assert!(journal["clean_exit"] == true && journal["parent"] == parent["pid"], "{journal}");
        }
    });
}

fn deaths(suite: &mut Suite) {
    suite.add("deaths: at random instants, by every kind of end", || {
        let words = format!("--kills {} --others 12", size("KILLS", 300));
        let _ = killer(&words).env("JOURNAL_WEIR", stage().weir()).run().well();
    });
    // Whether a kill falls between the two instants that a mark distinguishes is a matter of luck: up to 1 200 tries.
    for (fault, what) in [("pending", "a request"), ("freeing", "a free")] {
        suite.add(
            format!("deaths: without the mark on {what} before the driver is called, wrong journals are noticed"),
            move || {
                let job = killer("--kills 1200 --others 0 --until-wrong").set(format!("WEIR_FAULT={fault}"));
                let done = job.env("JOURNAL_WEIR", stage().weir_with_faults()).run().code(1);
                assert!(done.out.trim_end().lines().last().is_some_and(|l| l.contains(" passed")), "{done}");
            },
        );
    }
}

fn killer(words: &str) -> Job {
    Job::new(stage().program("journal-kill")).on_vgpu().words(words).within_seconds(1800)
}
