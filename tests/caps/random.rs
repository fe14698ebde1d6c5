//! Random legal programs by every entry point: never a byte above the cap, no refusal that one wait would cure, nothing
//! left at the end.

use crate::{CAP, MIB, PAGE, Place};
use serde_json::Value;
use weir_tests::harness::{Done, Job, Suite, cc, size, stage};

/// Pool, what happens at the cap, the cap in MiB, and a share of all operations in hundredths.
const TERMS: [(&str, &str, u64, u64); 13] = [
    ("on", "fail", 128, 18),
    ("on", "fail", 48, 8),
    ("on", "wait:2ms", 128, 6),
    ("on", "spill", 128, 8),
    ("off", "fail", 128, 16),
    ("off", "fail", 24, 6),
    ("off", "wait:2ms", 128, 6),
    ("novmm", "fail", 128, 8),
    ("novmm", "spill", 96, 4),
    ("novmm", "wait:2ms", 128, 4),
    ("nolazy", "fail", 128, 8),
    ("nolazy", "spill", 128, 4),
    ("nolazy", "wait:2ms", 400, 4),
];

/// Runs random programs; the line of JSON at their end, and everything.
fn run(place: &Place, words: &str, ignored: &[&str], environment: &str) -> (Value, Done) {
    let job = place.arrange(Job::new(stage().program("caps-programs"))).words(words);
    let job = job.args(ignored.iter().flat_map(|kind| ["--ignore", kind]));
    // The journal is another test's subject, and a process for each program is to be cheap.
    let job = job.set("VGPU_BACKING=memory WEIR_JOURNAL=off WEIR_SPILL=256MiB").set(environment);
    let done = job.within_seconds(1800).run();
    let last = done.out.trim_end().lines().last().unwrap_or_default();
    (serde_json::from_str(last).unwrap_or_else(|e| panic!("no JSON at the end: {e}\n{done}")), done)
}

fn operations() -> u64 {
    size("OPERATIONS", 1_000_000)
}

pub(crate) fn programs(suite: &mut Suite) {
    for (at, (pool, on_cap, mib, share)) in TERMS.into_iter().enumerate() {
        let title = format!("random programs: held to {mib} MiB by the device, WEIR_POOL={pool}, WEIR_ON_CAP={on_cap}");
        suite.add(title, move || {
            let wanted = operations() * share / 100;
            let words = format!("programs --cap {} --operations {wanted} --seed {}", mib * MIB, 100 + at);
            let environment = format!("WEIR_CAP={} WEIR_POOL={pool} WEIR_ON_CAP={on_cap}", mib * MIB);
            let (reported, done) = run(&Place::new(), &words, &[], &environment);
            let number = |name: &str| reported[name].as_u64().expect("a number");
            // A program that is never refused shows nothing.
            let enough = number("done") >= wanted && number("refused") > number("done") / 500;
            assert!(number("found") == 0 && enough, "{done}");
        });
    }
    for pool in ["on", "off", "novmm"] {
        suite.add(format!("random programs: no lock is held at a driver call, WEIR_POOL={pool}"), move || {
            let words = format!("programs --cap {CAP} --operations {} --seed 40", operations() / 200);
            let checks = format!("LD_PRELOAD={} WEIR_JOURNAL=on", stage().weir_with_faults().display());
            let (reported, done) = run(&Place::new(), &words, &[], &format!("WEIR_POOL={pool} {checks}"));
            assert!(reported["found"] == 0 && reported["done"].as_u64() > Some(0), "{done}");
        });
    }
    // Without weir the same programs are answered as the driver's documentation says, on a device of the cap's size.
    suite.add("random programs: they are legal: the device alone objects to none", || {
        let words = format!("programs --cap {CAP} --operations {} --seed 7", operations() / 50);
        let ignored = ["refused", "refused at rest", "refused at the end", "left", "query"];
        let environment = format!("WEIR_CAP= LD_PRELOAD= VGPU_MEM={CAP}");
        let (reported, done) = run(&Place::new(), &words, &ignored, &environment);
        assert!(reported["found"] == 0 && reported["done"].as_u64() > Some(0), "{done}");
    });
    suite.add("random programs: one page above the cap is seen", || {
        let words = format!("programs --cap {} --operations 20000 --without get-info", CAP - PAGE);
        let (reported, done) =
            run(&Place::new(), &words, &["refused", "refused at rest", "refused at the end", "left"], "");
        assert!(reported["found"] == 1 && done.says("above: "), "{done}");
    });
    two_devices(suite);
    storms(suite);
}

/// Two devices with a cap each, whose memory is requested, freed and reached from the other one.
fn two_devices(suite: &mut Suite) {
    for (pool, on_cap) in [
        ("on", "fail"),
        ("on", "wait:2ms"),
        ("on", "spill"),
        ("off", "fail"),
        ("novmm", "fail"),
        ("novmm", "spill"),
        ("nolazy", "spill"),
    ] {
        suite.add(format!("random programs: two devices, WEIR_POOL={pool}, WEIR_ON_CAP={on_cap}"), move || {
            let place = Place::new();
            let program = place.0.at("devices");
            let vgpu = format!("-L{}", stage().vgpu().display());
            cc(&program, [stage().file("caps/devices.c").as_os_str(), vgpu.as_ref(), "-l:libcuda.so.1".as_ref()]);
            for seed in 1..=size("OPERATIONS", 1_000_000) / 200_000 {
                let (caps, threads) = ([24 + seed % 5 * 20, 40 + seed % 7 * 8], 1 + seed % 2 * 2);
                let words = format!("{seed} 400 {threads} {} {}", caps[0] * MIB, caps[1] * MIB);
                let environment =
                    format!("WEIR_POOL={pool} WEIR_ON_CAP={on_cap} WEIR_CAP=0={}MiB,1={}MiB", caps[0], caps[1]);
                let job = place.arrange(Job::new(&program)).words(words);
                let job = job.set("VGPU_DEVICES=2 VGPU_MEM=256MiB WEIR_JOURNAL=off WEIR_SPILL=256MiB");
                let _ = job.set(environment).run().quiet();
            }
        });
    }
}

/// Members of a group that run random programs are killed and stopped at random moments.
fn storms(suite: &mut Suite) {
    for (at, (mode, on_cap)) in
        [("on", "fail"), ("off", "fail"), ("on", "spill"), ("novmm", "wait:2ms")].into_iter().enumerate()
    {
        suite.add(
            format!("random programs: kills and stops between, WEIR_POOL={mode}, WEIR_ON_CAP={on_cap}"),
            move || {
                let (place, kills) = (Place::new(), size("KILLS", 2000) / 4);
                let shared = place.0.at("shared");
                let environment = format!(
                    "WEIR_POOL={mode} WEIR_ON_CAP={on_cap} WEIR_GROUP=programs VGPU_BACKING=none VGPU_SHARED={}",
                    shared.display()
                );
                let words = format!("storm --cap {CAP} --kills {kills} --seed {}", at + 1);
                let (reported, done) = run(&place, &words, &[], &environment);
                let number = |name: &str| reported[name].as_u64().expect("a number");
                assert!(number("above") == 0 && reported["wrong"] == "", "never above the cap\n{done}");
                assert!(number("most") > CAP / 2 && number("stops") > 0, "{done}");
                assert!(
                    number("whole") >= CAP - 2 * PAGE && reported["again"] == reported["whole"],
                    "the whole cap at the end\n{done}"
                );
            },
        );
    }
}
