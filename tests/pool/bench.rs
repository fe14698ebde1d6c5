//! `pool-bench [--label TEXT] [--least LIVE] [--most LIVE] [--threads N]`: nanoseconds per allocation and free through whatever libcuda.so.1 and
//! preload the process has: hot, and random churn among 100 to 100 000 live blocks; one and two
//! threads. One JSON line a figure; `pool/bench` runs it side by side on the bare driver and under weir.

mod api;

use api::{Api, context_on, ok};
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use weir_cuda::CUstream;
use weir_tests::rng::Rng;

/// Long enough to see through noise, short enough for a slow driver.
const BUDGET: Duration = Duration::from_millis(400);

struct Client {
    api: &'static Api,
    stream: CUstream,
    rng: Rng,
}

impl Client {
    fn new(api: &'static Api, seed: u64) -> Self {
        context_on(api, 0);
        let mut stream = null_mut();
        // SAFETY: the place is a live local.
        ok(unsafe { (api.cuStreamCreate)(&raw mut stream, 1) });
        Self { api, stream, rng: Rng::new(seed) }
    }

    fn take(&self, ordered: bool, bytes: usize) -> u64 {
        let mut ptr = 0;
        // SAFETY: the place is a live local.
        ok(unsafe {
            if ordered {
                (self.api.cuMemAllocAsync)(&raw mut ptr, bytes, self.stream)
            } else {
                (self.api.cuMemAlloc_v2)(&raw mut ptr, bytes)
            }
        });
        ptr
    }

    fn give(&self, ordered: bool, ptr: u64) {
        // SAFETY: a live block of ours.
        ok(unsafe { if ordered { (self.api.cuMemFreeAsync)(ptr, self.stream) } else { (self.api.cuMemFree_v2)(ptr) } });
    }

    fn size(&mut self) -> usize {
        let shift = 8 + self.rng.below(6);
        (1 << shift) + self.rng.below(1 << shift) as usize
    }

    /// Nanoseconds of a pair in each slice of the time that all threads work, with `live` blocks that are replaced one by
    /// one at random.
    fn churn(&mut self, ordered: bool, live: usize, together: &Barrier) -> Vec<f64> {
        let filling = Instant::now();
        let mut blocks: Vec<u64> = Vec::with_capacity(live);
        for _ in 0..live {
            let bytes = self.size();
            blocks.push(self.take(ordered, bytes));
            assert!(filling.elapsed() < Duration::from_secs(60), "filling takes too long");
        }
        // What comes first may take memory from the driver; after that it is seen whether there is a pool at all.
        let mut slow = false;
        for _ in 0..8 {
            let probe = Instant::now();
            let ptr = self.take(ordered, 4096);
            self.give(ordered, ptr);
            slow = probe.elapsed() > Duration::from_micros(50);
        }
        let batch = if slow { 1 } else { 128 };
        let mut slices = Vec::new();
        for measured in [false, true] {
            together.wait();
            let began = Instant::now();
            while began.elapsed() < if measured { BUDGET } else { BUDGET / 8 } {
                // The clock costs as much as a hit: it is looked at once in a while.
                let slice = Instant::now();
                let mut pairs = 0;
                while pairs < 2048 && (pairs == 0 || !slow || slice.elapsed() < BUDGET / 4) {
                    for _ in 0..batch {
                        if live == 0 {
                            let ptr = self.take(ordered, 4096);
                            self.give(ordered, black_box(ptr));
                        } else {
                            let bytes = self.size();
                            let at = self.rng.below(live as u64) as usize;
                            self.give(ordered, blocks[at]);
                            blocks[at] = self.take(ordered, bytes);
                        }
                    }
                    pairs += batch;
                }
                if measured {
                    slices.push(slice.elapsed().as_nanos() as f64 / f64::from(pairs));
                }
            }
        }
        together.wait();
        for ptr in blocks {
            self.give(ordered, ptr);
        }
        // SAFETY: takes nothing.
        ok(unsafe { (self.api.cuCtxSynchronize)() });
        slices
    }
}

/// The fast tenth, the middle and the mean: what it costs, and what other work on the machine made of it.
fn figures(mut slices: Vec<f64>) -> [f64; 3] {
    slices.sort_by(f64::total_cmp);
    let at = |part: usize| slices.get(slices.len() * part / 10).copied().unwrap_or(f64::NAN);
    [at(1), at(5), slices.iter().sum::<f64>() / slices.len().max(1) as f64]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut label, mut least, mut most, mut only) = (String::from("driver"), 0, 100_000, 0);
    let number = |text: Option<String>| text.and_then(|n| n.parse().ok()).expect("a number");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--label" => label = arguments.next().expect("a text after --label"),
            "--least" => least = number(arguments.next()),
            "--most" => most = number(arguments.next()),
            "--threads" => only = number(arguments.next()),
            _ => panic!("pool-bench [--label TEXT] [--least LIVE] [--most LIVE] [--threads N]"),
        }
    }
    let api = Api::load();
    for ordered in [true, false] {
        for live in [0, 100, 1000, 10_000, 100_000].into_iter().filter(|live| (least..=most).contains(live)) {
            // A synchronous free is reusable after a synchronisation only, so churn of those needs some.
            if !ordered && live > 0 {
                continue;
            }
            for threads in [1, 2].into_iter().filter(|threads| only == 0 || *threads == only) {
                let barrier = Barrier::new(threads);
                let slices: Vec<Vec<f64>> = std::thread::scope(|scope| {
                    let running: Vec<_> = (0..threads)
                        .map(|thread| {
                            let barrier = &barrier;
                            scope.spawn(move || {
                                Client::new(api, thread as u64 + 1).churn(ordered, live / threads, barrier)
                            })
                        })
                        .collect();
                    running.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
                });
                // Threads that share a lock take turns: only the mean over all of them shows what a pair costs then.
                let [decile, median, mean] = figures(slices.concat());
                let kind = if ordered { "cuMemAllocAsync" } else { "cuMemAlloc" };
                println!(
                    "{{\"bench\":\"pool\",\"driver\":\"{label}\",\"call\":\"{kind}\",\"live\":{live},\"threads\":{threads},\"ns_per_pair\":{decile:.1},\"median_ns\":{median:.1},\"mean_ns\":{mean:.1}}}"
                );
            }
        }
    }
}
