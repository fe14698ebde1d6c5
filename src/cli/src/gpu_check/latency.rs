//! The third step of `weir gpu-check`: how long create, map, access, unmap and release take, by size, number of mappings and
//! devices with rights, on an idle device and beside a running kernel. The driver alone, without libweir.so.

use super::cuda::{Code, Driver, Kernel, Kind, Rights, Stream};
use super::{KERNELS, say};
use serde_json::json;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// MiB of a handle.
const SIZES: [u64; 9] = [2, 4, 8, 16, 32, 64, 128, 256, 512];
/// Mappings at a time.
const COUNTS: [u64; 5] = [1, 4, 16, 64, 256];
/// How often each is measured at most.
const ROUNDS: usize = 40;
/// How long the kernel runs that the device is busy with; it is launched again and again.
const SPIN: Duration = Duration::from_millis(50);

/// What is measured.
const CALLS: [&str; 7] =
    ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAlloc", "cuMemFree"];

/// Nanoseconds by call, in the order of [`CALLS`].
type Times = [Vec<u64>; CALLS.len()];

/// One combination.
#[derive(Clone, Copy)]
struct Setup {
    size: u64,
    count: u64,
    devices: i32,
    busy: bool,
}

/// Measures on device 0 for so long, with no more than `budget` bytes at a time.
pub(super) fn run(budget: u64, time: Duration, peer: bool) -> Result<(), String> {
    let end = Instant::now() + time;
    let driver = Driver::load()?;
    let failed = |code| format!("the driver returned {code}");
    driver.init().map_err(failed)?;
    driver.context(0).map_err(failed)?;
    let granule = driver.granularity(0).unwrap_or(0);
    // Rights are for devices that reach this one.
    let peer = peer && driver.can_access(1, 0) == Ok(true);
    let room = budget.min(driver.free_bytes().map_err(failed)? / 2);
    let mut setups = Vec::new();
    for busy in [false, true] {
        for devices in 1..=1 + i32::from(peer) {
            for size in SIZES.map(|mib| mib * MIB) {
                let counts = COUNTS.into_iter().filter(|count| size * count <= room);
                setups.extend(counts.map(|count| Setup { size, count, devices, busy }));
            }
        }
    }
    let spinning = driver.kernel(KERNELS, c"weir_spin").and_then(|kernel| Ok((kernel, driver.stream()?)));
    let mut left = setups.len() as u32;
    for setup in setups {
        let share = end.saturating_duration_since(Instant::now()) / left.max(1);
        left -= 1;
        let work = match (&spinning, setup.busy) {
            (Ok(work), true) => Some(*work),
            (Err(code), true) => {
                say(&json!({"kind": "refused", "call": "cuModuleLoadData", "code": code}));
                break;
            }
            _ => None,
        };
        let mut times = Times::default();
        let measured = measure(&driver, granule, setup, work, Instant::now() + share, &mut times);
        for (call, times) in CALLS.iter().zip(&mut times) {
            if times.is_empty() {
                continue;
            }
            times.sort_unstable();
            say(&json!({
                "kind": "latency", "call": call, "mib": setup.size / MIB, "mappings": setup.count,
                "devices": setup.devices, "busy": setup.busy, "n": times.len(), "p50": part(times, 50),
                "p99": part(times, 99),
            }));
        }
        if let Err((call, code)) = measured {
            let (mib, mappings) = (setup.size / MIB, setup.count);
            say(
                &json!({"kind": "refused", "call": call, "code": code, "mib": mib, "mappings": mappings, "busy": setup.busy}),
            );
        }
    }
    driver.synchronize().map_err(|code| format!("cuCtxSynchronize returned {code}"))?;
    driver.release_context(0).map_err(failed)
}

/// A percentile of sorted times.
fn part(times: &[u64], percent: usize) -> u64 {
    times.get(times.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0)
}

/// Measures one combination until it is time, at least once.
fn measure(
    driver: &Driver,
    granule: u64,
    setup: Setup,
    work: Option<(Kernel, Stream)>,
    until: Instant,
    times: &mut Times,
) -> Result<(), (&'static str, Code)> {
    for _ in 0..ROUNDS {
        if let Some((kernel, stream)) = work
            && !driver.busy(stream)
        {
            driver.launch(kernel, stream, SPIN.as_nanos() as u64).map_err(|code| ("cuLaunchKernel", code))?;
        }
        if granule > 0 && setup.size.is_multiple_of(granule) {
            mapped(driver, setup, times)?;
        }
        // Freeing memory waits for running work on many drivers: beside a kernel it would measure the kernel.
        if setup.count == 1 && setup.devices == 1 && work.is_none() {
            let place = timed(&mut times[5], || driver.alloc(setup.size)).map_err(|code| (CALLS[5], code))?;
            timed(&mut times[6], || driver.free(place)).map_err(|code| (CALLS[6], code))?;
        }
        if Instant::now() >= until {
            break;
        }
    }
    Ok(())
}

fn timed<T>(into: &mut Vec<u64>, call: impl FnOnce() -> Result<T, Code>) -> Result<T, Code> {
    let began = Instant::now();
    let result = call();
    into.push(began.elapsed().as_nanos() as u64);
    result
}

/// One round: all handles created, mapped, made accessible by one call, unmapped by one call and released. What was made is
/// given back whatever fails.
fn mapped(driver: &Driver, setup: Setup, times: &mut Times) -> Result<(), (&'static str, Code)> {
    let [create, map, access, unmap, release, ..] = times;
    let bytes = setup.size * setup.count;
    let start = driver.reserve(bytes).map_err(|code| ("cuMemAddressReserve", code))?;
    let kind = Kind { handle_type: 0, rdma: false };
    let (mut handles, mut end) = (Vec::new(), start);
    let mut done = Ok(());
    for _ in 0..setup.count {
        match timed(create, || driver.create(0, setup.size, kind)) {
            Ok(handle) => handles.push(handle),
            Err(code) => {
                done = Err((CALLS[0], code));
                break;
            }
        }
    }
    for handle in &handles {
        if done.is_ok() {
            match timed(map, || driver.map(end, setup.size, *handle)) {
                Ok(()) => end += setup.size,
                Err(code) => done = Err((CALLS[1], code)),
            }
        }
    }
    if done.is_ok() {
        let devices: Vec<i32> = (0..setup.devices).collect();
        done = timed(access, || driver.set_access(start, bytes, &devices, Rights::ReadWrite))
            .map_err(|code| (CALLS[2], code));
    }
    if end > start {
        let unmapped = timed(unmap, || driver.unmap(start, end - start)).map_err(|code| (CALLS[3], code));
        done = done.and(unmapped);
    }
    for handle in handles {
        let released = timed(release, || driver.release(handle)).map_err(|code| (CALLS[4], code));
        done = done.and(released);
    }
    done.and(driver.unreserve(start, bytes).map_err(|code| ("cuMemAddressFree", code)))
}
