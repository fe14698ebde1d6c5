//! Nanoseconds per pair of allocation and free: hot, and random churn with many blocks live, with one thread and several, each
//! with a stream of its own; the pool and its peers in the same run. Touches the clock only.

use crate::peers::{Bfc, Offsets, Peer, Rmm, Torch};
use std::sync::Barrier;
use std::sync::Mutex;
use std::time::Instant;
use weir_pool::sim::SimulatedDevice;
use weir_pool::{Budget, Caching, Call, Config, Pool, Request};

const CAPACITY: u64 = 64 << 30;

/// Sizes as a training job has them: mostly small, some large.
fn size(random: u64) -> u64 {
    match random % 10 {
        0..6 => 256 + (random >> 8) % (16 << 10),
        6..9 => 1024 + (random >> 8) % (256 << 10),
        _ => 4096 + (random >> 8) % (2 << 20),
    }
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
}

/// Nanoseconds per pair, measured in slices that are shorter than a turn of the kernel's scheduler. On a
/// shared machine other programs only ever make a slice slower, so the quick tenth of them shows what the
/// allocator costs, and the mean what the machine made of it.
#[derive(Clone, Copy)]
struct Nanos {
    decile: f64,
    mean: f64,
    /// When the slices began and ended.
    span: Option<(Instant, Instant)>,
}

impl Nanos {
    const NONE: Self = Self { decile: f64::NAN, mean: f64::NAN, span: None };

    fn of(mut slices: Vec<f64>) -> Self {
        slices.sort_by(f64::total_cmp);
        let mean = slices.iter().sum::<f64>() / slices.len().max(1) as f64;
        Self { decile: slices.get(slices.len() / 10).copied().unwrap_or(f64::NAN), mean, span: None }
    }

    fn least(self, other: Self) -> Self {
        Self { decile: self.decile.min(other.decile), mean: self.mean.min(other.mean), span: None }
    }
}

/// Pairs of one slice.
const SLICE: u64 = 2_000;

/// One thread's work: `live` blocks are held, one at random is replaced per pair. With `live` 0 a block
/// is allocated and freed at once. Returns nanoseconds per pair.
fn churn(
    live: usize,
    pairs: u64,
    seed: u64,
    start: &mut dyn FnMut(),
    take: &mut dyn FnMut(u64) -> u64,
    give: &mut dyn FnMut(u64),
) -> Nanos {
    let mut state = seed | 1;
    let mut held: Vec<u64> = (0..live).map(|_| take(size(next(&mut state)))).collect();
    // Reach the steady state, and let every table grow to its size, before the clock starts.
    let mut round = |count: u64, state: &mut u64| {
        for _ in 0..count {
            if live == 0 {
                let addr = take(4096);
                give(addr);
            } else {
                let at = (next(state) % live as u64) as usize;
                give(held[at]);
                held[at] = take(size(next(state)));
            }
        }
    };
    round(pairs / 2, &mut state);
    start();
    let began = Instant::now();
    let slices = (0..(pairs / SLICE).max(1)).map(|_| {
        let clock = Instant::now();
        round(SLICE.min(pairs), &mut state);
        clock.elapsed().as_nanos() as f64 / SLICE.min(pairs) as f64
    });
    let nanos = Nanos::of(slices.collect());
    let nanos = Nanos { span: Some((began, Instant::now())), ..nanos };
    held.into_iter().for_each(give);
    nanos
}

fn pool(live: usize, threads: u64, pairs: u64, synchronous: bool, caching: Caching) -> Nanos {
    let device = SimulatedDevice::new(CAPACITY);
    let Ok(pool) = Pool::new(Config { caching, ..Config::new(CAPACITY) }, &device) else { return Nanos::NONE };
    together(threads, |thread, start| {
        let stream = (!synchronous).then_some(thread);
        let mut pairs_done = 0;
        let mut take = |bytes: u64| {
            let request = Request { bytes, stream, context: 1, ..Request::default() };
            pool.allocate(&device, &request, &Budget::default()).map_or(0, |block| block.addr)
        };
        let mut give = |addr: u64| {
            if synchronous {
                let _ = pool.free(&device, addr, ());
                pairs_done += 1;
                if pairs_done % 4096 == 0 {
                    let proof = pool.began(Call::ContextSync(1));
                    pool.ended(proof, true);
                }
            } else {
                let _ = pool.free_async(addr, thread, 1, ());
            }
        };
        churn(live, pairs / threads, thread * 31, start, &mut take, &mut give)
    })
}

/// TensorFlow's own allocator is used under one lock.
fn bfc(live: usize, threads: u64, pairs: u64) -> Nanos {
    let bfc = Mutex::new(Bfc::new(CAPACITY));
    together(threads, |thread, start| {
        let mut take = |bytes: u64| bfc.lock().map_or(0, |mut bfc| bfc.allocate(bytes).unwrap_or(0));
        let mut give = |addr: u64| {
            if let Ok(mut bfc) = bfc.lock() {
                bfc.free(addr);
            }
        };
        churn(live, pairs / threads, thread * 31, start, &mut take, &mut give)
    })
}

/// The same in several threads that start together: nanoseconds a pair in each of them, and of all of them together.
fn together(threads: u64, one: impl Fn(u64, &mut dyn FnMut()) -> Nanos + Sync) -> Nanos {
    let barrier = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let (one, barrier) = (&one, &barrier);
        let start = move || {
            barrier.wait();
        };
        let run = move |thread| scope.spawn(move || one(thread, &mut { start }));
        let running: Vec<_> = (1..=threads).map(run).collect();
        let times: Vec<Nanos> = running.into_iter().filter_map(|thread| thread.join().ok()).collect();
        let mean = |of: fn(&Nanos) -> f64| times.iter().map(of).sum::<f64>() / times.len().max(1) as f64;
        let spans = || times.iter().filter_map(|nanos| nanos.span);
        let span = spans().map(|(began, _)| began).min().zip(spans().map(|(_, ended)| ended).max());
        Nanos { decile: mean(|nanos| nanos.decile), mean: mean(|nanos| nanos.mean), span }
    })
}

/// Pairs a second of one thread and of several at work for themselves, of the same number of pairs.
fn throughput(allocator: &str, live: usize, pairs: u64, measure: impl Fn(u64) -> Nanos) {
    let rate = |threads| {
        // The quickest of three: other work on the machine only ever makes it slower.
        let seconds = |nanos: Nanos| nanos.span.map_or(f64::NAN, |(began, ended)| (ended - began).as_secs_f64());
        let best = (0..3).map(|_| seconds(measure(threads))).fold(f64::NAN, f64::min);
        (pairs / threads * threads) as f64 / best / 1e6
    };
    let one = rate(1);
    for threads in [2, 8, 32] {
        let all = rate(threads);
        println!(
            "{{\"bench\":\"threads\",\"allocator\":\"{allocator}\",\"live\":{live},\"threads\":{threads},\"million_pairs_per_second\":{all:.2},\"one_thread\":{one:.2},\"ratio\":{:.2}}}",
            all / one
        );
    }
}

fn peer(peer: &mut dyn Peer, live: usize, pairs: u64) -> Nanos {
    let cell = std::cell::RefCell::new(peer);
    let mut take = |bytes: u64| cell.borrow_mut().allocate(bytes).unwrap_or(0);
    let mut give = |addr: u64| cell.borrow_mut().free(addr);
    churn(live, pairs, 31, &mut || (), &mut take, &mut give)
}

fn print(allocator: &str, live: usize, threads: u64, nanos: Nanos) {
    let what = if live == 0 { "hot" } else { "churn" };
    println!(
        "{{\"bench\":\"speed\",\"allocator\":\"{allocator}\",\"pattern\":\"{what}\",\"live\":{live},\"threads\":{threads},\"ns_per_pair\":{:.1},\"mean_ns_per_pair\":{:.1}}}",
        nanos.decile, nanos.mean
    );
}

/// Best of three: other work on the machine only ever makes it slower.
fn best(mut measure: impl FnMut() -> Nanos) -> Nanos {
    let first = measure();
    (0..2).fold(first, |least, _| least.least(measure()))
}

/// All allocators; or, where `brief`, the pool and the quickest of its peers.
pub(crate) fn all(brief: bool) {
    for live in [0, 100, 1_000, 10_000, 100_000] {
        let pairs = 400_000;
        for threads in [1, 2] {
            print("weir", live, threads, best(|| pool(live, threads, pairs * threads, false, Caching::Contended)));
        }
        print("weir_synchronous", live, 1, best(|| pool(live, 1, pairs, true, Caching::Contended)));
        print("offset_allocator", live, 1, best(|| peer(&mut Offsets::new(CAPACITY), live, pairs)));
        if live <= 1_000 {
            let pairs = 4_000_000;
            for (name, caching) in [("weir", Caching::Contended), ("weir_without_caches", Caching::Never)] {
                throughput(name, live, pairs, |threads| pool(live, threads, pairs, false, caching));
            }
            throughput("tensorflow_bfc", live, pairs, |threads| bfc(live, threads, pairs));
        }
        if brief {
            continue;
        }
        print("tensorflow_bfc", live, 1, best(|| peer(&mut Bfc::new(CAPACITY), live, pairs)));
        print("pytorch_native", live, 1, best(|| peer(&mut Torch::new(CAPACITY), live, pairs)));
        // Its cost grows with the number of holes: fewer pairs, or it would take minutes.
        let few = (40_000_000 / (live as u64 * live as u64 / 100 + 100)).clamp(2_000, pairs);
        if live <= 10_000 {
            print("rmm_pool", live, 1, peer(&mut Rmm::new(CAPACITY), live, few));
        }
    }
}
