//! Each kind of event with each of its fields, by jobs that do one thing each.

use crate::{arrange, journals, requested, weir};
use serde_json::Value;
use std::path::Path;
use std::sync::LazyLock;
use weir_tests::harness::{Job, MIB, Scratch, Suite};

/// All events of a journal, as `weir tail` prints them.
pub(crate) fn events_of(journal: &Path) -> Vec<Value> {
    let done = weir().arg("tail").arg(journal).words("--all --no-follow --json").run().well();
    done.out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The events of a job's own journal, not those of processes that it starts.
fn run(script: &str, words: &str, environment: &str) -> Vec<Value> {
    let scratch = Scratch::new();
    let folder = scratch.folder("events");
    let job = arrange(Job::python(script).words(words), &folder, "WEIR_RING=64K,4096").set(environment);
    let done = job.run().well();
    let id = done.id.to_string();
    let own = |path: &Path| path.file_stem().is_some_and(|s| s.to_string_lossy().split('-').nth(1) == Some(&id));
    let found: Vec<_> = journals(&folder).into_iter().filter(|path| own(path)).collect();
    assert_eq!(found.len(), 1, "one journal of the job's own");
    events_of(&found[0])
}

fn mine(words: &str, environment: &str) -> Vec<Value> {
    run("journal/jobs.py", words, environment)
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["kind"] == kind).collect()
}

fn of_class<'a>(events: &'a [Value], kind: &str, class: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["kind"] == kind && e["class"] == class).collect()
}

fn of_size<'a>(events: &'a [Value], kind: &str, size: u64) -> Vec<&'a Value> {
    events.iter().filter(|e| e["kind"] == kind && requested(e) == size).collect()
}

/// What was allocated, which is at least what was requested.
fn allocated(of: &Value) -> u64 {
    of["allocated"].as_u64().unwrap_or_else(|| panic!("no size: {of}"))
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or(0)
}

static TOUR: LazyLock<Vec<Value>> = LazyLock::new(|| mine("tour", "WEIR_CAP=256MiB WEIR_STACKS=all"));
static MOVED: LazyLock<Vec<Value>> = LazyLock::new(|| mine("compaction", "VGPU_MEM=128MiB VGPU_BACKING=memory"));
static ODD: LazyLock<Vec<Value>> = LazyLock::new(|| mine("failures", "VGPU_FAIL=cuMemAllocManaged:1"));

pub(crate) fn events(suite: &mut Suite) {
    let mut event = |title: &str, body: fn()| suite.add(format!("events: {title}"), body);
    event("an allocation has time, thread, device, sizes, address, live bytes and the requester", || {
        let kept = of_size(&TOUR, "alloc", 777_777);
        assert_eq!(kept.len(), 1, "{kept:?}");
        let kept = kept[0];
        for field in ["address", "time", "realtime_ns", "thread"] {
            assert!(!kept[field].is_null() && kept[field] != 0 && kept[field] != "", "{field}: {kept}");
        }
        assert!(allocated(kept) >= 777_777 && kept["device"] == 0 && number(kept, "live_after") >= 777_777, "{kept}");
        for field in ["stack", "python"] {
            let by = &kept["by"][field];
            assert!(
                !by.is_null() && by != 0 && by != "" && by.as_array().is_none_or(|a| !a.is_empty()),
                "{field}: {kept}"
            );
        }
    });
    event("a call into the driver has its latency", || {
        let managed = of_class(&TOUR, "alloc", "managed");
        assert!(!managed.is_empty() && managed.iter().all(|e| number(e, "latency") > 0), "{managed:?}");
    });
    event("a stream-ordered allocation has its stream, its free the same size and attribution", || {
        let (made, ordered) = (of(&TOUR, "stream_create"), of_size(&TOUR, "alloc", 300_000));
        assert!(ordered.len() == 1 && ordered[0]["stream"] == made[0]["stream"], "{ordered:?} {made:?}");
        assert_ne!(ordered[0]["stream"], 65535);
        let freed = of_size(&TOUR, "free", 300_000);
        assert_eq!(freed.len(), 1, "{freed:?}");
        assert!(freed[0]["allocated"] == ordered[0]["allocated"] && freed[0]["by"] == ordered[0]["by"], "{freed:?}");
    });
    event("every attempt that was refused is there with what it wanted", || {
        let refused: Vec<_> = of(&TOUR, "refused").into_iter().filter(|e| e["flags"] == 0).collect();
        assert!(refused.len() == 20 && refused.iter().all(|e| e["result"] == 2), "{refused:?}");
        assert_eq!([requested(refused[0]), requested(refused[1])], [200 * MIB, 180 * MIB]);
    });
    event("out of memory", || assert_eq!(of(&TOUR, "oom").len(), 20));
    event("a synchronisation has its epoch", || {
        let epochs: Vec<u64> = of(&TOUR, "sync").iter().map(|e| number(e, "address")).collect();
        assert!(!epochs.is_empty() && epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
    });
    event("an imported handle lives from its first mapping to its last", || {
        let found = mine("imports", "");
        let (born, gone) = (of_class(&found, "alloc", "imported"), of_class(&found, "free", "imported"));
        assert!(born.len() == 1 && gone.len() == 1, "{born:?} {gone:?}");
        assert!(allocated(born[0]) == 2 * MIB && born[0]["address"] == gone[0]["address"], "{born:?} {gone:?}");
    });
    event("memory of graphs lives from its launch to its trim", || {
        let (born, gone) = (of_class(&TOUR, "alloc", "other"), of_class(&TOUR, "free", "other"));
        assert!(born.len() == 1 && gone.len() == 1, "{born:?} {gone:?}");
        assert!(allocated(born[0]) >= 20 * MIB && gone[0]["live_after"] == 0, "{born:?} {gone:?}");
    });
    event("memory of graphs, also without a cap", || {
        assert_eq!(of_class(&mine("tour", ""), "alloc", "other").len(), 1);
    });
    event("pinned host memory", || {
        let pinned = of_class(&TOUR, "alloc", "pinned");
        assert_eq!(pinned.iter().map(|e| requested(e)).collect::<Vec<_>>(), [80_000, 81_000]);
        assert_eq!(pinned[0]["device"], 63);
    });
    event("host memory is sampled", || {
        let samples = of(&TOUR, "host_sample");
        assert!(samples.first().is_some_and(|e| allocated(e) > MIB), "{samples:?}");
    });
    event("the virtual GPU's own memory is no host memory of the job", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("touched");
        let done = arrange(Job::python("journal/jobs.py").words("touched 2"), &folder, "VGPU_MEM=4GiB")
            .set("VGPU_BACKING=memory");
        let done = done.run().well();
        let said: Vec<u64> = done.out.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [kernel, own] = said[..] else { panic!("{}", done.out) };
        let events = events_of(&journals(&folder)[0]);
        let last = of(&events, "host_sample").last().map_or(0, |e| allocated(e)) / MIB;
        assert!(
            kernel > 2048 && last >= own && last < 512,
            "{kernel} MiB resident, {own} the job's own, {last} recorded"
        );
    });
    event("what went to the host, and came back", || {
        let environment = "WEIR_CAP=64MiB WEIR_ON_CAP=spill WEIR_SPILL=512MiB VGPU_BACKING=memory";
        let away = run("caps/spill.py", &format!("comes_back {}", 64 * MIB), environment);
        let went = of(&away, "spill");
        let whole = |e: &&Value| allocated(e) >= requested(e) && requested(e) > 0 && number(e, "address") > 0;
        assert!(!went.is_empty() && went.iter().all(whole), "{went:?}");
        assert!(of(&away, "unspill").iter().map(|e| allocated(e)).sum::<u64>() >= 8 * MIB);
    });
    event("waits, in vain and not, with how long", || {
        let vain = run("caps/jobs.py", "waits_in_vain 0.5", "WEIR_CAP=128MiB WEIR_ON_CAP=wait:500ms");
        let met = run("caps/jobs.py", "waits 60", "WEIR_CAP=128MiB WEIR_ON_CAP=wait:60s");
        let waited: Vec<_> = of(&vain, "wait").into_iter().chain(of(&met, "wait")).collect();
        assert_eq!(waited.iter().map(|e| allocated(e)).collect::<Vec<_>>(), [0, 0, 64 * MIB]);
        assert!(waited.iter().all(|e| number(e, "latency") > 1_000_000), "{waited:?}");
    });
    event("what the driver refused", || {
        let failed = of(&ODD, "failed");
        assert!(failed.len() == 1 && requested(failed[0]) == 5 * MIB, "{failed:?}");
        assert!(failed[0]["result"] == 2 && failed[0]["class"] == "managed", "{failed:?}");
    });
    event("a free that failed", || {
        let failed = of(&ODD, "free_failed");
        assert!(
            failed.len() == 1 && failed[0]["address"] == 0x7000_0000_0000_u64 && failed[0]["result"] == 1,
            "{failed:?}"
        );
    });
    event("a remap has the old address", || {
        let found = of(&MOVED, "remap");
        assert!(found.iter().all(|e| requested(e) > 0 && e["requested"] != e["address"]), "{found:?}");
    });
    for kind in ["map", "unmap", "remap", "mesh"] {
        suite.add(format!("events: {kind}: with address, size and device"), move || {
            let found = of(&MOVED, kind);
            let whole = |e: &&Value| number(e, "address") > 0 && allocated(e) > 0 && e["device"] == 0;
            assert!(!found.is_empty() && found.iter().all(whole), "{found:?}");
        });
    }
}
