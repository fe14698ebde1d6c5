//! The cap of several processes: waits, changes, deaths at any moment, forks, and starts at once.

use crate::{CAP, MIB, PAGE, Place, holds, patience};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use weir_tests::harness::{Job, Scratch, Suite, cc, mode, size, stage};

pub(crate) fn waits(suite: &mut Suite) {
    for mode in ["on", "off"] {
        let pool = format!("WEIR_POOL={mode}");
        let title = format!("waits: a request waits for a free in the process, {pool}");
        holds(suite, title, "jobs.py waits 60", format!("{pool} WEIR_ON_CAP=wait:60s"));
        let title = format!("waits: a request waits no longer than it may, {pool}");
        holds(suite, title, "jobs.py waits_in_vain 1", format!("{pool} WEIR_ON_CAP=wait:1s"));
        for threads in [2, 4] {
            // One that misses its turn waits longer than the watchdog does.
            let environment = format!("{pool} WEIR_ON_CAP=wait:{}s", 2 * patience());
            let title = format!("waits: {threads} threads take turns, {pool}");
            holds(suite, title, format!("jobs.py turns {CAP} 200 {threads}"), environment);
        }
        suite.add(format!("waits: a request waits for another process, {pool}"), move || {
            let place = Place::new();
            let group = |job: Job| job.env("VGPU_SHARED", place.0.at("shared")).set(format!("WEIR_GROUP=wait {pool}"));
            let mut holder = group(place.job(format!("jobs.py hold {}", CAP - 32 * MIB), "")).start();
            holder.line();
            let words = format!("jobs.py gets {}", 64 * MIB);
            let mut waiter = group(place.job(words, "WEIR_ON_CAP=wait:60s")).start();
            assert_eq!(waiter.line(), "requesting");
            // Long enough that a request that does not wait has been refused by then; how long decides nothing else.
            std::thread::sleep(Duration::from_millis(300));
            holder.close_input();
            let _ = waiter.finish().quiet();
        });
    }
    // Hundreds of requests that nobody can ever serve: not each of them waits for as long as it may.
    suite.add("waits: what nobody frees is not waited for again and again", || {
        let environment = format!("WEIR_CAP={} WEIR_ON_CAP=wait:2s VGPU_MEM=2GiB VGPU_BACKING=memory", 512 * MIB);
        let done = Place::new().job(format!("spill.py churn {} 1500", 700 * MIB), environment).run().well();
        assert!(done.json()["refused"].as_u64() > Some(100), "{done}");
    });
}

pub(crate) fn changes(suite: &mut Suite) {
    for mode in ["on", "off"] {
        for group in ["", "team"] {
            let kind = if group.is_empty() { "process" } else { "group" };
            suite.add(format!("changes: weir cap changes the cap of a living {kind}, WEIR_POOL={mode}"), move || {
                let place = Place::new();
                let environment = format!("WEIR_POOL={mode} WEIR_GROUP={group}");
                let mut job = place.job(format!("jobs.py follows {CAP}"), environment).start();
                let target = if group.is_empty() { job.id().to_string() } else { group.to_owned() };
                let mut last = String::new();
                for (mib, word) in [(64, "full"), (192, "held")] {
                    if job.line() != word {
                        break;
                    }
                    last = place.weir(&format!("cap {target} {mib}MiB")).run().well().out;
                    job.say(&(mib * MIB).to_string());
                }
                let done = job.finish().well();
                assert!(done.out.contains("raised"), "{done}");
                assert!(last.contains("cap 192.0 MiB, set while it runs"), "{last}");
            });
        }
    }
    suite.add("changes: weir cap names a process that has none", || {
        let done = Place::new().weir("cap 999999 1GiB").run().code(1);
        assert!(done.err.contains("process 999999"), "{done}");
    });
}

pub(crate) fn groups(suite: &mut Suite) {
    suite.add("groups: a killed member's share is free, a stopped one's is kept", || {
        let place = Place::new();
        let member = |words: String| {
            place.job(format!("jobs.py {words}"), "WEIR_GROUP=g").env("VGPU_SHARED", place.0.at("shared"))
        };
        let mut first = member(format!("hold {}", CAP / 2)).start();
        first.line();
        let mut third = member(format!("hold {}", CAP / 4)).start();
        third.line();
        first.kill();
        // What is left: the cap less the living member's part and what both set aside.
        let _ = member(format!("hold {}", CAP - CAP / 4 - 8 * MIB)).run().well();
        let refused = member(format!("hold {CAP}")).run();
        assert!(refused.code != 0 && refused.err.contains("cuMemAlloc_v2: 2"), "no more than the cap\n{refused}");
        third.signal(libc::SIGSTOP);
        let _ = member(format!("hold {}", CAP / 2)).run().well();
        third.kill();
        // A stale file keeps no old cap.
        let _ = member(format!("gets_all {}", 2 * CAP)).set(format!("WEIR_CAP={}", 2 * CAP)).run().quiet();
    });
    for (title, reused) in [("", false), (" whose member's id is another process's now", true)] {
        suite.add(format!("groups: a file from before a reboot{title} holds nothing back"), move || {
            let place = Place::new();
            let mut holder = place.job(format!("jobs.py hold {}", CAP / 2), "WEIR_GROUP=boot").start();
            holder.line();
            let file = place.ledger("group-boot.ledger");
            let mut content = std::fs::read(&file).expect("the group's ledger");
            // As it lay on the disk when the machine went down.
            let row = |pid: u32| [pid.to_le_bytes(), 1u32.to_le_bytes()].concat();
            let (mine, member) = (row(std::process::id()), row(holder.id()));
            let at = content.windows(8).position(|w| w == member).expect("the member's id is in its row");
            if reused {
                content[at..at + 8].copy_from_slice(&mine);
            }
            holder.kill();
            std::fs::remove_file(&file).expect("the ledger can be removed");
            std::fs::write(&file, content).expect("the ledger can be written");
            mode(&file, 0o600);
            let _ = place.job(format!("jobs.py gets_all {CAP}"), "WEIR_GROUP=boot").run().quiet();
        });
    }
    holds(
        suite,
        "groups: fork: parent and child keep their own accounts (process)",
        format!("jobs.py forks {CAP}"),
        "",
    );
    suite.add("groups: fork: parent and child keep their own accounts (group)", || {
        let place = Place::new();
        let job = place.job(format!("jobs.py forks {CAP}"), "WEIR_GROUP=forks");
        let _ = job.env("VGPU_SHARED", place.0.at("shared")).run().quiet();
    });
}

/// The program `storm.c`, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    &PROGRAM
        .get_or_init(|| {
            let scratch = Scratch::new();
            let out = scratch.at("storm");
            let vgpu = format!("-L{}", stage().vgpu().display());
            cc(&out, [stage().file("caps/storm.c").as_os_str(), vgpu.as_ref(), "-l:libcuda.so.1".as_ref()]);
            (scratch, out)
        })
        .1
}

/// Members of a group are killed at random moments: never above the cap, and at the end all of it is there.
pub(crate) fn storm(suite: &mut Suite) {
    const STORM_CAP: u64 = 256 * MIB;
    for mode in ["on", "off"] {
        suite.add(format!("storm: kills at random moments, WEIR_POOL={mode}"), move || {
            let place = Place::new();
            let shared = |job: Job| job.env("VGPU_SHARED", place.0.at("shared"));
            let group = format!("WEIR_GROUP=storm WEIR_POOL={mode} WEIR_CAP={STORM_CAP}");
            let started = std::cell::Cell::new(0);
            let member = || {
                started.set(started.get() + 1);
                let words = format!("member {} {STORM_CAP}", started.get());
                shared(place.arrange(Job::new(program()))).set(&group).words(words).within_seconds(3600).start()
            };
            let watch = format!("watch {STORM_CAP}");
            let watcher = shared(place.arrange(Job::new(program()))).set("WEIR_CAP= LD_PRELOAD=").words(watch);
            let watcher = watcher.within_seconds(3600).start();
            let mut random = Random(5);
            let mut members: Vec<_> = (0..8).map(|_| member()).collect();
            for _ in 0..size("KILLS", 150) {
                std::thread::sleep(Duration::from_micros(random.below(30_000)));
                let which = &mut members[random.below(8) as usize];
                let ended = which.ended();
                assert!(ended.is_none(), "a member ended: {}", std::mem::replace(which, member()).finish());
                which.kill();
                *which = member();
            }
            drop(members);
            watcher.signal(libc::SIGTERM);
            let reported = watcher.finish();
            let number = |name: &str| reported.json()[name].as_u64().expect("a number");
            assert!(number("above") == 0 && number("most") > STORM_CAP / 2, "never above the cap\n{reported}");
            let done = shared(place.arrange(Job::new(program()))).set(&group).words("all").run();
            let all = done.out.trim().parse::<u64>();
            assert!(
                all.is_ok_and(|all| (STORM_CAP - 2 * PAGE..=STORM_CAP).contains(&all)),
                "the whole cap at the end\n{done}"
            );
        });
    }
    suite.add("storm: 40 members start at once and are not held up by each other", || {
        let place = Place::new();
        let member = || {
            let job = place.arrange(Job::new(program())).env("VGPU_SHARED", place.0.at("shared")).words("all");
            job.set(format!("WEIR_GROUP=crowd WEIR_CAP={STORM_CAP}")).start()
        };
        let crowd: Vec<_> = (0..40).map(|_| member()).collect();
        for member in crowd {
            let _ = member.finish().well();
        }
    });
}

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
