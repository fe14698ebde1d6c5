//! What one pair of `cuMemAlloc` and `cuMemFree` costs while other blocks live.

use crate::gpu::{Sent, alloc, context, free};
use crate::prelude::*;
use std::time::Instant;

/// Size of every block: small enough for 100 000 of them on a small device.
const BLOCK: usize = 4096;

/// Measures every case and prints one JSON line each; `quick` measures less often.
pub fn run(quick: bool) {
    let ctx = Sent(context());
    for live in [10, 100, 1_000, 10_000, 100_000] {
        for threads in [1, 2] {
            let pairs = if quick { 2_000 } else { 50_000 };
            let blocks: Vec<CUdeviceptr> = (0..live).map(|_| alloc(BLOCK)).collect();
            let nanoseconds = median((0..5).map(|_| pair(ctx, threads, pairs)).collect());
            for block in blocks {
                free(block);
            }
            let line = serde_json::json!({
                "bench": "vgpu.alloc_free_pair", "live": live, "threads": threads, "block": BLOCK,
                "ns": (nanoseconds * 10.0).round() / 10.0, "pairs": pairs,
            });
            println!("{line}");
        }
    }
}

/// Nanoseconds for a pair in each of `threads` threads that work at the same time.
fn pair(ctx: Sent<CUcontext>, threads: usize, pairs: u32) -> f64 {
    let times: Vec<f64> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    ok(cuCtxSetCurrent(ctx.get()));
                    let start = Instant::now();
                    for _ in 0..pairs {
                        free(alloc(BLOCK));
                    }
                    start.elapsed().as_secs_f64() * 1e9 / f64::from(pairs)
                })
            })
            .collect();
        running.into_iter().map(|r| r.join().expect("a measuring thread ends well")).collect()
    });
    times.iter().sum::<f64>() / times.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
