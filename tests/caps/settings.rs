//! A bad setting costs only itself; a bad limit, or one that cannot be kept, costs the job its device, unless
//! `WEIR_STRICT=0`.

use crate::{CAP, MIB, Place, holds};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use weir_tests::harness::{Done, Suite, mode};

const WHOLE: u64 = 1 << 30;

/// Each limit with a bad value, and what the line must say.
const BAD_LIMITS: [(&str, &[u8], &str); 14] = [
    ("WEIR_CAP", b"8XiB", "unknown unit \"XiB\""),
    ("WEIR_CAP", b"7=1GiB", "no such device"),
    ("WEIR_CAP", b"0", "a cap of 0"),
    ("WEIR_CAP", b"8", "did you mean 8GiB?"),
    ("WEIR_CAP", b"0.8", "did you mean 80%?"),
    ("WEIR_CAP", b" ", "empty"),
    ("WEIR_CAP", b"1GiB\xff", "not UTF-8"),
    ("WEIR_CAP", b"9999999999999999999999999999999999999999GiB", "too many digits"),
    ("WEIR_GROUP", b"a/b", "invalid character"),
    ("WEIR_GROUP", b"\xff", "not UTF-8"),
    ("WEIR_ON_CAP", b"wait", "no duration"),
    ("WEIR_ON_CAP", b"wait:999999h", "more than 30 days"),
    ("WEIR_SPILL", b"lots", "expected"),
    ("WEIR_SPILL", b"17000000TiB", "more than 16 EiB"),
];

/// The same for settings that are no limits.
const BAD_OTHERS: [(&[u8], &[u8], &str); 20] = [
    (b"WEIR_STRICT", b"maybe", "expected 0 or 1"),
    (b"WEIR_WARN", b"101%", "more than 100%"),
    (b"WEIR_POOL", b"nostea", "unknown switch \"nostea\""),
    (b"WEIR_TF_ALLOCATOR", b"bfc", "expected auto, pool or keep"),
    (b"WEIR_JOURNAL", b"yes", "expected on or off"),
    (b"WEIR_DIR", b"here", "absolute path"),
    (b"WEIR_RING", b"100k", "K or M"),
    (b"WEIR_KEEP", b"many", "expected a number"),
    (b"WEIR_STACKS", b"some", "expected off"),
    (b"WEIR_XLA", b"sizes", "expected auto, on or off"),
    (b"WEIR_OOM_TEXT", b"1", "expected on or off"),
    (b"WEIR_TERMINATION_LOG", b"on", "absolute path"),
    (b"WEIR_RUN", b"here", "absolute path"),
    (b"WEIR_CPA", b"8GiB", "did you mean WEIR_CAP?"),
    (b"WEIR_ANYTHING", b"x", "unknown variable"),
    (b"WEIR_POOL", b"\xff", "not UTF-8"),
    (b"WEIR_RING", b"999999999999999999999999999999", "not a number"),
    (b"WEIR_KEEP", b" ", "empty"),
    (b"WEIR_OOM_TEXT", b"o\nff", "expected on or off"),
    (b"WEIR_\xff", b"1", "unknown variable"),
];

const KUBERNETES: &str = "WEIR_METRICS_SERVICE_HOST=10.0.0.1 WEIR_METRICS_SERVICE_PORT=9400 \
    WEIR_METRICS_SERVICE_PORT_HTTP=9400 WEIR_METRICS_PORT=tcp://10.0.0.1:9400 \
    WEIR_METRICS_PORT_9400_TCP=tcp://10.0.0.1:9400 WEIR_METRICS_PORT_9400_TCP_PROTO=tcp \
    WEIR_METRICS_PORT_9400_TCP_PORT=9400 WEIR_METRICS_PORT_9400_TCP_ADDR=10.0.0.1";

/// What the virtual GPU may count for a job that takes all it can get.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) most: u64,
    pub(crate) least: u64,
}

pub(crate) const NOTHING: Taken = Taken { most: 0, least: 0 };
pub(crate) const THE_CAP: Taken = Taken { most: CAP, least: CAP - 16 * MIB };
pub(crate) const ALL: Taken = Taken { most: WHOLE, least: WHOLE - 16 * MIB };

/// Looks at what a job took by the virtual GPU's own count, and at standard error: one line of weir's, or none.
pub(crate) fn witness(done: &Done, taken: Taken, line: Option<&str>) -> Value {
    let reported = done.json();
    let physical = reported["physical"].as_u64().expect("physical");
    // A summary of what ran out may follow: it is no word about a setting.
    let lines: Vec<&str> = done.err.split("weir: GPU OUT OF MEMORY").next().unwrap_or_default().lines().collect();
    let said = match (line, lines.as_slice()) {
        (None, []) => true,
        (Some(word), [only]) => only.starts_with("weir: ") && only.contains(word),
        _ => false,
    };
    assert!(
        (taken.least..=taken.most).contains(&physical) && said,
        "{taken_}\n{done}",
        taken_ = line.unwrap_or("no line")
    );
    reported
}

fn case(suite: &mut Suite, title: String, taken: Taken, line: Option<&'static str>, words: &str, environment: String) {
    let words = format!("limits.py {words}");
    suite.add(title, move || {
        witness(&Place::new().job(words, environment).run(), taken, line);
    });
}

pub(crate) fn settings(suite: &mut Suite) {
    for (name, value, why) in BAD_LIMITS {
        // A good cap beside it does not make up for it.
        let shown = format!("{name}={}", value.escape_ascii());
        suite.add(format!("settings: {shown}: cuInit fails with one line, nothing is taken"), move || {
            let job = Place::new().job("limits.py takes_all", "").env(name, OsStr::from_bytes(value));
            let reported = witness(&job.run(), NOTHING, Some(why));
            assert_eq!(reported["cuInit"], 1, "cuInit answers CUDA_ERROR_INVALID_VALUE");
        });
        let rest = if name == "WEIR_CAP" { ALL } else { THE_CAP };
        suite.add(format!("settings: {shown}, WEIR_STRICT=0: without this limit alone, and said so"), move || {
            let job = Place::new().job("limits.py takes_all", "WEIR_STRICT=0").env(name, OsStr::from_bytes(value));
            witness(&job.run(), rest, Some(why));
        });
    }
    for (name, value, why) in BAD_OTHERS {
        let shown = format!("{}={}", name.escape_ascii(), value.escape_ascii());
        suite.add(format!("settings: {shown}: one line, and the cap holds"), move || {
            let job = Place::new().job("limits.py takes_all", "");
            witness(&job.env(OsStr::from_bytes(name), OsStr::from_bytes(value)).run(), THE_CAP, Some(why));
        });
    }
    suite.add("settings: spaces around a value do not matter", || {
        let job =
            Place::new().job("limits.py takes_all", "").env("WEIR_CAP", format!(" {CAP} ")).env("WEIR_STRICT", " 1 ");
        let job = job.env("WEIR_ON_CAP", "fail ").env("WEIR_JOURNAL", "on ").env("WEIR_RUN", "");
        witness(&job.run(), THE_CAP, None);
    });
    suite.add("settings: an empty value is as good as none", || {
        let empty = ["WEIR_CAP", "WEIR_GROUP", "WEIR_SPILL", "WEIR_ON_CAP", "WEIR_STRICT", "WEIR_KEEP"];
        let job = Place::new().job("limits.py takes_all", "");
        witness(&empty.iter().fold(job, |job, name| job.env(name, "")).run(), ALL, None);
    });
    let mut one = |title: &str, taken, line, words, environment: &str| {
        case(suite, format!("settings: {title}"), taken, line, words, environment.to_owned());
    };
    one("what Kubernetes sets for a service: no line, and the cap holds", THE_CAP, None, "takes_all", KUBERNETES);
    one("WEIR_STRICT=1 is taken, and is the default", THE_CAP, None, "takes_all", "WEIR_STRICT=1");
    one(
        "a cap above the device: one line, the device is the cap",
        ALL,
        Some("has 1.00 GiB"),
        "takes_all",
        "WEIR_CAP=8TiB",
    );
    let spill = "WEIR_ON_CAP=spill WEIR_POOL=off";
    one("spill without the pool: cuInit fails", NOTHING, Some("needs the pool"), "takes_all", spill);
    one("a job cannot raise its own cap by its environment", THE_CAP, None, "lifts raise", "");
    one("a job cannot remove its own cap by its environment", THE_CAP, None, "lifts remove", "");
}

/// A limit that cannot be kept: the job does not run without it.
pub(crate) fn unkept(suite: &mut Suite) {
    let title = "unkept: a device that the machine does not have: every sort of memory is refused";
    case(suite, title.to_owned(), NOTHING, Some("no such device"), "insists", "WEIR_CAP=7=1GiB".to_owned());
    let title = "unkept: a cap for a hidden device is none of this process's";
    let environment = format!("WEIR_CAP=0={CAP} CUDA_VISIBLE_DEVICES=1 VGPU_DEVICES=2");
    holds(suite, title, "jobs.py sees 0 0", environment);
    suite.add("unkept: no directory for the ledger: the cap holds all the same", || {
        let (place, shut) = shut();
        let _ = place.job(format!("jobs.py gets_all {CAP}"), "WEIR_JOURNAL=off").env("WEIR_DIR", shut).run().quiet();
    });
    suite.add("unkept: no directory for a group's ledger: cuInit fails", || {
        let (place, shut) = shut();
        let job = place.job("limits.py takes_all", "WEIR_CAP= WEIR_GROUP=g WEIR_JOURNAL=off").env("WEIR_DIR", shut);
        witness(&job.run(), NOTHING, Some("WEIR_GROUP=g"));
    });
    suite.add("unkept: no directory for a group's ledger, WEIR_STRICT=0: one line, and the job runs", || {
        let (place, shut) = shut();
        let job = place.job("jobs.py uncapped", "WEIR_CAP= WEIR_GROUP=g WEIR_STRICT=0 WEIR_JOURNAL=off");
        let done = job.env("WEIR_DIR", shut).run().well();
        assert!(done.err.lines().count() == 1 && done.err.contains("runs without this limit"), "{done}");
    });
    suite.add("unkept: a ledger's folder that others can write to: cuInit fails", || {
        let place = Place::new();
        let open = place.0.folder("open");
        std::fs::create_dir(open.join("ledger")).expect("a folder");
        mode(&open.join("ledger"), 0o777);
        let job = place.job("limits.py takes_all", "WEIR_GROUP=g").env("WEIR_DIR", open);
        witness(&job.run(), NOTHING, Some("WEIR_GROUP=g"));
    });
    suite.add("unkept: a damaged ledger is put aside", || {
        let place = Place::new();
        let damaged = place.ledger("group-damaged.ledger");
        place.0.folder("dir/ledger");
        std::fs::write(&damaged, b"not a ledger".repeat(1000)).expect("a file");
        mode(&damaged, 0o600);
        let _ = place.job(format!("jobs.py gets_all {CAP}"), "WEIR_GROUP=damaged").run().quiet();
    });
    suite.add("unkept: a ledger that is damaged while a member lives: cuInit fails", || {
        let place = Place::new();
        let mut member = place.job(format!("jobs.py hold {}", 8 * MIB), "WEIR_GROUP=broken").start();
        member.line();
        let mut file = changed(&place, "group-broken.ledger");
        file.write_all(b"damaged!").expect("the ledger can be written to");
        witness(&place.job("limits.py takes_all", "WEIR_GROUP=broken").run(), NOTHING, Some("WEIR_GROUP=broken"));
    });
    suite.add("unkept: a group with all rows taken: cuInit fails, or WEIR_STRICT=0 says so", || {
        let place = Place::new();
        let _ = place.job(format!("jobs.py gets_all {CAP}"), "WEIR_GROUP=full").run().quiet();
        let file = changed(&place, "group-full.ledger");
        lock_rows(&file);
        witness(&place.job("limits.py takes_all", "WEIR_GROUP=full").run(), NOTHING, Some("is the most"));
        let loose = place.job("limits.py takes_all", "WEIR_GROUP=full WEIR_STRICT=0");
        witness(&loose.run(), Taken { most: WHOLE, least: CAP + MIB }, Some("runs without this limit"));
    });
    const MANY: &str = "VGPU_DEVICES=17 VGPU_MEM=64MiB WEIR_CAP=32MiB";
    suite.add("unkept: a device too many for the ledger: its memory is refused, the others have theirs", || {
        let reported = witness(&Place::new().job("limits.py crowded", MANY).run(), NOTHING, Some("is refused"));
        let mut codes = vec![json!(0); 16];
        codes.push(json!(2));
        assert_eq!(reported["codes"], Value::Array(codes));
    });
    let title = "unkept: a device too many for the ledger, WEIR_STRICT=0: one line, and it has no cap";
    let taken = Taken { most: 64 * MIB, least: 8 * MIB };
    case(suite, title.to_owned(), taken, Some("runs without this limit"), "crowded", format!("{MANY} WEIR_STRICT=0"));
}

/// A file where a folder should be.
fn shut() -> (Place, std::path::PathBuf) {
    let place = Place::new();
    let shut = place.0.at("shut");
    std::fs::write(&shut, "a file, not a directory").expect("a file");
    (place, shut)
}

fn changed(place: &Place, ledger: &str) -> File {
    OpenOptions::new().read(true).write(true).open(place.ledger(ledger)).expect("the group's ledger")
}

/// Every row belongs to somebody: to this process.
fn lock_rows(file: &File) {
    let rows = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 0, l_len: 256, l_pid: 0 };
    // SAFETY: the descriptor is open and the description lives through the call.
    let locked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const rows) };
    assert_eq!(locked, 0, "the rows can be locked");
}
