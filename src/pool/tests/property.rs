//! Random programs against the pool on a strict device: no overlap, no early reuse, no lost byte,
//! accounting exact, with and without injected faults. Touches nothing real.

mod strict;

use strict::program::{KINDS, Program};

/// Operations per kind and seed; `WEIR_POOL_OPERATIONS` sets more.
fn operations() -> u64 {
    std::env::var("WEIR_POOL_OPERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(8_000)
}

#[test]
fn random_programs_keep_every_rule() {
    let mut seen = weir_pool::Stats::default();
    let mut tiny_meshes = 0;
    for (number, kind) in KINDS.iter().enumerate() {
        for seed in 1..=6 {
            let mut program = Program::new(kind, seed * 100 + number as u64);
            if let Err((at, what)) = program.run(operations()) {
                panic!("kind {number}, seed {seed}, operation {at}: {what}\n{kind:?}");
            }
            let stats = program.stats();
            seen.remaps += stats.remaps;
            seen.meshes += stats.meshes;
            tiny_meshes += if kind.tiny { stats.meshes } else { 0 };
            seen.migrated += stats.migrated;
            seen.trims += stats.trims;
            seen.self_syncs += stats.self_syncs;
            seen.ordered_reuses += stats.ordered_reuses;
            seen.inserted_waits += stats.inserted_waits;
            seen.refusals += stats.refusals;
            seen.hits += stats.hits;
            seen.cache_hits += stats.cache_hits;
        }
    }
    // A program that never gets there proves nothing about it.
    for (what, count) in [
        ("remaps", seen.remaps),
        ("meshes", seen.meshes),
        ("meshes of tiny blocks", tiny_meshes),
        ("migrated granules", seen.migrated),
        ("trims", seen.trims),
        ("self syncs", seen.self_syncs),
        ("ordered reuses", seen.ordered_reuses),
        ("inserted waits", seen.inserted_waits),
        ("refusals", seen.refusals),
        ("hits", seen.hits),
        ("hits of caches", seen.cache_hits),
    ] {
        assert!(count > 0, "no {what} in any program: {seen:?}");
    }
    println!("{seen:?}");
}
