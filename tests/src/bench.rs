//! What one pair of `cuMemAlloc` and `cuMemFree` costs while other blocks live.

use crate::gpu::{Sent, alloc, context, free};
use crate::prelude::*;
use std::time::Instant;

/// Size of every block: small enough for 100 000 of them on a small device.
const BLOCK: usize = 4096;

/// Pairs that are timed together: short enough to fall between two interruptions on a busy machine.
const BATCH: u32 = 500;

/// Measures every case and prints one JSON line each; `quick` measures less often.
pub fn run(quick: bool) {
    let ctx = Sent(context());
    let batches = if quick { 20 } else { 400 };
    for live in [10, 100, 1_000, 10_000, 100_000] {
        for threads in [1, 2] {
            let blocks: Vec<CUdeviceptr> = (0..live).map(|_| alloc(BLOCK)).collect();
            let times = time_batches(ctx, threads, batches);
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            for block in blocks {
                free(block);
            }
            let line = serde_json::json!({
                "bench": "vgpu.alloc_free_pair", "live": live, "threads": threads, "block": BLOCK,
                "ns": tenths(median(times)), "mean_ns": tenths(mean), "pairs": batches * BATCH,
                "is": "per thread, median and mean of batches; the mean holds interruptions by other processes",
            });
            println!("{line}");
        }
    }
}

/// Nanoseconds for a pair, batch by batch, in `threads` threads that work at the same time.
fn time_batches(ctx: Sent<CUcontext>, threads: usize, batches: u32) -> Vec<f64> {
    let together = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    ok(cuCtxSetCurrent(ctx.get()));
                    together.wait();
                    (0..batches).map(|_| time_batch()).collect::<Vec<f64>>()
                })
            })
            .collect();
        running.into_iter().flat_map(|r| r.join().expect("a measuring thread ends well")).collect()
    })
}

fn time_batch() -> f64 {
    let start = Instant::now();
    for _ in 0..BATCH {
        free(alloc(BLOCK));
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
