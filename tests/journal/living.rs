//! Readers of a journal that is being written, and which journals go when there are too many.

use crate::events::events_of;
use crate::{arrange, job, journals, read, weir};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use weir_tests::harness::{Job, Living, PATIENCE, Scratch, Suite, eventually};

/// A living job that writes events on command.
struct Stepwise {
    job: Living,
    path: PathBuf,
}

impl Stepwise {
    fn start(folder: &Path, pairs: u32, ring: &str) -> Self {
        let script = Job::python("journal/jobs.py").words(format!("stepwise {pairs}"));
        let mut job = arrange(script, folder, format!("WEIR_RING={ring}")).within_seconds(600).start();
        job.line();
        let path = journals(folder).pop().expect("a journal");
        Self { job, path }
    }

    fn step(&mut self) {
        assert!(self.job.say("go"), "the job lives");
        assert_eq!(self.job.line(), "done");
    }

    fn end(self) {
        let _ = self.job.finish().well();
    }
}

pub(crate) fn living(suite: &mut Suite) {
    suite.add("living: a reader that was lapped says what it missed, and the job does not wait for it", || {
        let scratch = Scratch::new();
        let mut job = Stepwise::start(&scratch.folder("lapped"), 2000, "256,512");
        job.step();
        let followed = scratch.at("followed");
        // Two readers at once; one of them stands still while the ring goes round.
        let out = File::create(&followed).expect("a file");
        let reader = || weir().arg("tail").arg(&job.path).arg("--json").within_seconds(600);
        let slow = reader().output(out).start();
        let other = reader().start();
        let size = || followed.metadata().map_or(0, |m| m.len());
        let end = std::time::Instant::now() + PATIENCE;
        while size() == 0 {
            assert!(std::time::Instant::now() < end, "the reader writes");
            job.step();
        }
        slow.signal(libc::SIGSTOP);
        for _ in 0..3 {
            job.step();
        }
        slow.signal(libc::SIGCONT);
        job.end();
        let _ = slow.finish().well();
        let _ = other.finish().well();
        let text = std::fs::read_to_string(&followed).expect("what was followed");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        // Every number is there once: as an event, or as one of those that were missed.
        let mut numbers: Vec<u64> = lines.iter().filter_map(|l| l["seq"].as_u64()).collect();
        let lost: Vec<&Value> = lines.iter().map(|l| &l["lost"]).filter(|l| !l.is_null()).collect();
        for loss in &lost {
            let (first, count) = (loss["first"].as_u64().expect("first"), loss["count"].as_u64().expect("count"));
            numbers.extend(first..first + count);
        }
        numbers.sort_unstable();
        assert!(!lost.is_empty(), "the reader was lapped");
        assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "every number is there once");
        assert_eq!(lines.last().expect("a line")["kind"], "exit");
    });
    suite.add("living: a recording grows with the run, has every event, and is compressed", || {
        let scratch = Scratch::new();
        let mut job = Stepwise::start(&scratch.folder("recorded"), 2500, "32K,512");
        let kept = scratch.at("kept.weirrec");
        let recorder = weir().arg("record").arg(&job.path).arg("-o").arg(&kept).within_seconds(600).start();
        // The ring has room for six steps that the recorder has not come to yet.
        let size = || kept.metadata().map_or(0, |m| m.len());
        for _ in 0..9 {
            let before = size();
            job.step();
            eventually(|| (size() > before).then_some(()));
        }
        let path = job.path.clone();
        job.end();
        let _ = recorder.finish().well();
        let written = read(&path)["events"].as_u64().expect("events");
        let numbers: Vec<u64> = events_of(&kept).iter().map(|e| e["seq"].as_u64().expect("a number")).collect();
        assert!(written > 40_000, "the journal has overwritten some: {written}");
        assert!(numbers.into_iter().eq(0..written), "every event is there");
        assert!(size() < 32 * written, "{} bytes for {written} events", size());
    });
    suite.add("living: WEIR_KEEP by size and by number: old journals go, those of the living stay", || {
        let scratch = Scratch::new();
        let folder = scratch.folder("retention");
        let mut alive = Stepwise::start(&folder, 10, "64,512");
        let one = std::os::unix::fs::MetadataExt::blocks(&alive.path.metadata().expect("the journal")) * 512;
        let left = || journals(&folder).into_iter().collect::<BTreeSet<_>>();
        for _ in 0..5 {
            job("tour", &folder, format!("WEIR_CAP=256MiB WEIR_KEEP={}KiB", (2 * one + one / 2) / 1024));
        }
        assert!(left().len() == 4 && left().contains(&alive.path), "two dead ones and the last: {:?}", left());
        job("tour", &folder, "WEIR_CAP=256MiB WEIR_KEEP=0");
        assert!(left().len() == 2 && left().contains(&alive.path), "the last: {:?}", left());
        alive.step();
        alive.end();
    });
}
