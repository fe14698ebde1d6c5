//! What a ledger costs, as JSON lines: one request in nanoseconds, and the start of 200 processes in one group, beside 200 that
//! join none.
//!
//! `cargo run --release -p weir-ledger --bin weir-ledger-bench`: a program and not a bench target, because those are built
//! with the faults of the tests. Every figure stands beside a simple alternative measured in the same run: a counter
//! behind a mutex (one process), and a counter in a file behind a kernel lock (a group; a stopped holder blocks all).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use weir_ledger::{Category, DeviceId, DeviceTerms, Ledger, LedgerDir, Urgency};

const MIB: u64 = 1 << 20;

fn terms() -> DeviceTerms {
    DeviceTerms { uuid: [1; 16], physical: 80 << 30, cap: Some(8 << 30), warn: None, set_aside: None }
}

fn request(ledger: &Ledger, device: DeviceId) {
    if let Ok(grant) = ledger.reserve(device, 2 * MIB, Category::Pool, Urgency::Normal) {
        ledger.commit(grant.reservation);
        ledger.release(device, Category::Pool, 2 * MIB);
    }
}

/// Nanoseconds per round of `body` on so many threads, seen by one thread.
fn per_round(threads: usize, rounds: u32, body: impl Fn() + Sync) -> f64 {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..rounds).for_each(|_| body()));
        }
    });
    begin.elapsed().as_nanos() as f64 / f64::from(rounds)
}

fn line(name: &str, threads: usize, ns: f64) {
    println!("{{\"bench\":\"ledger\",\"case\":\"{name}\",\"threads\":{threads},\"ns_per_request\":{ns:.1}}}");
}

fn requests(dir: &Path) {
    let place = LedgerDir::at(dir);
    let private = Ledger::private().expect("a ledger");
    let process = Ledger::for_process(&place).expect("a ledger");
    let group = Ledger::join_group(&place, "bench").expect("a group");
    let others: Vec<_> = (0..7).map(|_| Ledger::join_group(&place, "bench").expect("a member")).collect();
    for other in &others {
        other.open_device(&terms()).expect("a device");
    }
    let counter = Mutex::new(0_u64);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(dir.join("counter"));
    let file = file.expect("a file");
    file.write_all_at(&[0; 8], 0).expect("a counter");
    for threads in [1, 2] {
        line(
            "mutex counter (for comparison)",
            threads,
            per_round(threads, 1_000_000, || {
                *counter.lock().expect("no panic") += 2 * MIB;
                *std::hint::black_box(&counter).lock().expect("no panic") -= 2 * MIB;
            }),
        );
        for (name, ledger) in [("private", &private), ("process file", &process), ("group of 8", &group)] {
            let device = ledger.open_device(&terms()).expect("a device");
            line(name, threads, per_round(threads, 1_000_000, || request(ledger, device)));
        }
        line(
            "locked file (for comparison)",
            threads,
            per_round(threads, 30_000, || {
                for step in [2 * MIB, (2 * MIB).wrapping_neg()] {
                    // SAFETY: advisory lock on an open descriptor.
                    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
                    let mut bytes = [0; 8];
                    file.read_exact_at(&mut bytes, 0).expect("read");
                    let sum = u64::from_le_bytes(bytes).wrapping_add(step);
                    file.write_all_at(&sum.to_le_bytes(), 0).expect("written");
                    // SAFETY: as above.
                    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
                }
            }),
        );
    }
    // Two members of one group at the same time: contention as between processes, without their common lock.
    let device = group.open_device(&terms()).expect("a device");
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for ledger in [&group, &others[0]] {
            scope.spawn(move || (0..1_000_000).for_each(|_| request(ledger, device)));
        }
    });
    line("group of 8, two members at once", 2, begin.elapsed().as_nanos() as f64 / 1e6);
    process.leave();
}

/// One of the 200: joins, says how long it took, stays until its input ends, leaves.
fn starter(dir: Option<&Path>) {
    let begin = Instant::now();
    let Some(dir) = dir else {
        println!("{}", begin.elapsed().as_nanos());
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return println!("0");
    };
    let ledger = Ledger::join_group(&LedgerDir::at(dir), "start").expect("joins");
    let device = ledger.open_device(&terms()).expect("opens");
    let joined = begin.elapsed();
    request(&ledger, device);
    println!("{}", joined.as_nanos());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let begin = Instant::now();
    ledger.leave();
    println!("{}", begin.elapsed().as_nanos());
}

struct Starter {
    child: Child,
    answer: BufReader<ChildStdout>,
}

impl Starter {
    fn spawn(dir: Option<&Path>) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .arg("starter")
            .args(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let answer = BufReader::new(child.stdout.take().expect("output"));
        Self { child, answer }
    }

    /// The next figure it gives, in milliseconds.
    fn figure(&mut self) -> f64 {
        let mut text = String::new();
        self.answer.read_line(&mut text).expect("a line");
        text.trim().parse::<f64>().expect("a number") / 1e6
    }
}

/// Processor time of all children that have ended, in milliseconds.
fn processor_ms() -> f64 {
    // SAFETY: zeros are a valid answer, and the place is a live local.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let ms = |t: libc::timeval| t.tv_sec as f64 * 1e3 + t.tv_usec as f64 / 1e3;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}

/// Starts 200 processes that all stay: each after the one before has joined, or all at once.
fn start(dir: Option<&Path>, at_once: bool) {
    const PROCESSES: usize = 200;
    let before = processor_ms();
    let begin = Instant::now();
    let mut joined = Vec::new();
    let mut starters = Vec::new();
    for _ in 0..PROCESSES {
        starters.push(Starter::spawn(dir));
        if !at_once {
            joined.extend(starters.last_mut().map(Starter::figure));
        }
    }
    if at_once {
        joined.extend(starters.iter_mut().map(Starter::figure));
    }
    let wall = begin.elapsed().as_secs_f64() * 1e3;
    for starter in &mut starters {
        drop(starter.child.stdin.take());
    }
    let left: Vec<f64> = starters.iter_mut().map(Starter::figure).collect();
    for starter in &mut starters {
        let _ = starter.child.wait();
    }
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let how = if at_once { "all at once" } else { "one after another" };
    let what = if dir.is_some() { "in one group" } else { "in none (for comparison)" };
    println!(
        "{{\"bench\":\"ledger\",\"case\":\"start of {PROCESSES} processes {what}, {how}\",\
         \"join_mean_ms\":{:.3},\"join_max_ms\":{:.3},\"leave_mean_ms\":{:.3},\
         \"wall_ms_each_with_process_start\":{:.3},\"processor_ms_each\":{:.3}}}",
        mean(&joined),
        joined.iter().copied().fold(0.0, f64::max),
        mean(&left),
        wall / PROCESSES as f64,
        (processor_ms() - before) / PROCESSES as f64
    );
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|a| a == "starter") {
        return starter(args.get(2).map(Path::new));
    }
    let dir: PathBuf = std::env::temp_dir().join(format!("weir-bench-ledger-{}", std::process::id()));
    LedgerDir::at(&dir).prepare().expect("a directory");
    requests(&dir);
    for at_once in [false, true] {
        start(None, at_once);
        start(Some(&dir), at_once);
    }
    let _ = std::fs::remove_dir_all(&dir);
}
