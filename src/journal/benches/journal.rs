//! What recording costs, next to the bare primitives in the same run; what a stack costs; how fast a journal is read.
//! Prints one JSON line per figure. `cargo bench -p weir-journal` (set `WEIR_BENCH_QUICK=1` for a short run).

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weir_journal::reader::{Reader, Slot};
use weir_journal::*;

fn print(name: &str, value: f64, unit: &str, more: &serde_json::Value) {
    let line = serde_json::json!({ "bench": "journal", "name": name, "value": (value * 100.0).round() / 100.0, "unit": unit, "with": more });
    println!("{line}");
}

/// Slices that a measurement is cut into. The fastest one counts: the machine may be shared, and a slice is short enough
/// to run undisturbed.
const SLICES: u64 = 100;

/// The best slice, in ns per call.
fn best(rounds: u64, mut run: impl FnMut(u64)) -> f64 {
    let slice = (rounds / SLICES).max(1);
    let mut best = f64::MAX;
    for _ in 0..SLICES {
        let start = Instant::now();
        run(slice);
        best = best.min(start.elapsed().as_nanos() as f64 / slice as f64);
    }
    best
}

/// The same on several threads at once: wall time divided by the calls of one thread, best slice.
fn best_threads(threads: u64, rounds: u64, run: impl Fn(u64, u64) + Sync) -> f64 {
    let slice = (rounds / SLICES).max(1);
    let mut best = f64::MAX;
    for _ in 0..SLICES {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let run = &run;
                scope.spawn(move || run(thread, slice));
            }
        });
        best = best.min(start.elapsed().as_nanos() as f64 / slice as f64);
    }
    best
}

fn scratch() -> PathBuf {
    let path = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn intent(requested: u64) -> Intent {
    let by = Attribution { stack: 1, op: 2, python: 3 };
    Intent { kind: Kind::Alloc, class: Class::Block, device: 0, stream: 0, requested, address: 0, by }
}

fn primitives(rounds: u64) {
    let clock = Clock::best();
    let ring: Vec<AtomicU64> = (0..8 << 20).map(|_| AtomicU64::new(0)).collect();
    let head = AtomicU64::new(0);
    let store = |rounds: u64| {
        for _ in 0..rounds {
            let seq = head.fetch_add(1, Ordering::Relaxed);
            let time = clock.now();
            let at = (seq as usize & ((1 << 20) - 1)) * 8;
            for (word, place) in ring[at..at + 8].iter().enumerate() {
                place.store(time ^ word as u64, Ordering::Relaxed);
            }
        }
    };
    let none = serde_json::json!({});
    print("rdtsc", best(rounds, |n| (0..n).for_each(|_| _ = std::hint::black_box(clock.now()))), "ns", &none);
    let what = serde_json::json!({ "what": "fetch_add, rdtsc, 64-byte store; 64 MiB ring in memory" });
    print("primitive_1_thread", best(rounds, store), "ns", &what);
    print("primitive_2_threads", best_threads(2, rounds, |_, n| store(n)), "ns", &what);
}

fn recording(rounds: u64) {
    let dir = scratch();
    let journal = Journal::create(&Options::in_dir(&dir)).unwrap();
    let what = serde_json::json!({ "file": journal.path().is_some(), "ring_events": 1 << 20 });
    let event = Event { requested: 1000, allocated: 1024, address: 4096, ..Event::new(Kind::Map, Class::Block, 0) };
    let record = |rounds: u64| {
        for n in 0..rounds {
            std::hint::black_box(journal.record(Event { address: n, ..event }));
        }
    };
    print("record_1_thread", best(rounds, record), "ns", &what);
    print("record_2_threads", best_threads(2, rounds, |_, n| record(n)), "ns", &what);

    let numberings = [Numbering::default(), Numbering::default()];
    let block = |thread: u64, rounds: u64| {
        let numbering = &numberings[thread as usize];
        for n in 0..rounds {
            let (number, address) = (n as usize % 1000, thread << 40 | (n % 1000 + 1) << 9);
            journal.block_taken(numbering, number, &intent(500), Granted { address, allocated: 512 });
            std::hint::black_box(journal.block_freed(numbering, number, address, 0, 1));
        }
    };
    let numbered =
        serde_json::json!({ "what": "a block of a pool and its free: two events, two entries of the live table" });
    print("block_pair_1_thread", best(rounds / 2, |n| block(0, n)), "ns", &numbered);
    print("block_pair_2_threads", best_threads(2, rounds / 2, block), "ns", &numbered);

    let pair = |thread: u64, rounds: u64| {
        for n in 0..rounds {
            let address = thread << 40 | (n % 1000 + 1) << 9;
            journal.pool_hit(&intent(500), Granted { address, allocated: 512 });
            std::hint::black_box(journal.free(address, Class::Block, 0));
        }
    };
    let both = serde_json::json!({ "what": "another allocation and its free: two events, hashed insert and remove" });
    print("alloc_free_pair_1_thread", best(rounds / 2, |n| pair(0, n)), "ns", &both);
    print("alloc_free_pair_2_threads", best_threads(2, rounds / 2, pair), "ns", &both);

    for n in 0..80_000_u64 {
        journal.pool_hit(&intent(500), Granted { address: 1 << 45 | n << 9, allocated: 512 });
    }
    let full = serde_json::json!({ "what": "the same with 80 000 live allocations, through tickets" });
    let ticket_pair = |rounds: u64| {
        for n in 0..rounds {
            let address = (n % 1_000 + 1) << 9;
            journal.begin(intent(500)).granted(Granted { address, allocated: 512 });
            journal.begin_free(address, Class::Block).freed(0);
        }
    };
    print("ticket_pair_full_table", best(rounds / 4, ticket_pair), "ns", &full);
    let op = Op {
        name: "StatefulPartitionedCall/gradient_tape/sequential_1/dense_1/MatMul/MatMul",
        region: "output",
        shape: "[64,10]",
        dtype: 1,
    };
    print(
        "intern_op_warm",
        best(rounds / 10, |n| (0..n).for_each(|_| _ = std::hint::black_box(journal.op(&op)))),
        "ns",
        &serde_json::json!({}),
    );
    std::fs::remove_dir_all(dir).unwrap();
}

/// A stack of at least this depth, then `f`.
#[inline(never)]
fn deep(depth: u32, f: &mut dyn FnMut()) {
    if depth == 0 {
        f();
    } else {
        deep(depth - 1, f);
    }
    std::hint::black_box(depth);
}

fn stacks(rounds: u64) {
    prepare_unwinding();
    let journal =
        Journal::create(&Options { dir: None, geometry: Geometry::default(), config: String::new() }).unwrap();
    for (name, walk, share) in [
        ("stack_frame_pointers", Walk::FramePointers, 1),
        ("stack_tables", Walk::Tables, 1),
        ("stack_backtrace", Walk::Backtrace, 10),
    ] {
        let mut to = [0; 30];
        let (mut time, mut frames) = (0.0, 0);
        deep(30, &mut || {
            frames = capture_stack(walk, &mut to);
            time =
                best(rounds / share, |n| (0..n).for_each(|_| _ = std::hint::black_box(capture_stack(walk, &mut to))));
        });
        print(name, time, "ns", &serde_json::json!({ "frames": frames }));
    }
    let mut time = 0.0;
    deep(30, &mut || {
        time = best(rounds, |n| (0..n).for_each(|_| _ = std::hint::black_box(journal.native_stack(Walk::Best))));
    });
    print("stack_captured_and_interned", time, "ns", &serde_json::json!({ "frames": "whole stack" }));
}

fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// In a process of its own, so that its memory can be measured.
fn read_all(path: &str) {
    let start = Instant::now();
    let reader = Reader::open(path.as_ref()).unwrap();
    let (mut events, mut lost, mut bytes) = (0_u64, 0_u64, 0_u64);
    for slot in reader.events() {
        match slot.unwrap() {
            Slot::Event(event) => {
                events += 1;
                bytes = bytes.wrapping_add(event.allocated);
            }
            Slot::Lost(loss) => lost += loss.count,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let mut replay = reader.replay().unwrap();
    while replay.back().unwrap().is_some() {}
    let what = serde_json::json!({
        "events": events, "lost": lost, "given": bytes, "replay_backwards_s": start.elapsed().as_secs_f64(),
        "left_live": replay.live().count(), "peak_memory_mb": peak_memory() >> 20,
    });
    print("read_events", seconds, "s", &what);
}

fn reading(events: u64) {
    let dir = scratch();
    let geometry = Geometry { events, ..Geometry::default() };
    let journal = Journal::create(&Options::in_dir(&dir).sized(geometry)).unwrap();
    for n in 0..events / 2 {
        journal.pool_hit(&intent(500), Granted { address: (n + 1) << 9, allocated: 512 });
        if n >= 50_000 {
            journal.free((n - 49_999) << 9, Class::Block, 0);
        }
    }
    let path = journal.path().unwrap();
    let me = std::env::current_exe().unwrap();
    let done = std::process::Command::new(me).arg("read").arg(&path).status().unwrap();
    assert!(done.success());
    std::fs::remove_dir_all(dir).unwrap();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, word, path] = &args[..]
        && word == "read"
    {
        read_all(path);
        return;
    }
    let quick = std::env::var_os("WEIR_BENCH_QUICK").is_some();
    let rounds = if quick { 200_000 } else { 4_000_000 };
    if args.iter().any(|word| word == "stacks") {
        stacks(rounds / 20);
        return;
    }
    primitives(rounds);
    recording(rounds);
    stacks(rounds / 20);
    if std::env::var_os("WEIR_BENCH_NO_READING").is_none() {
        reading(if quick { 100_000 } else { 10_000_000 });
    }
}
