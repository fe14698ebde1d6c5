//! The second step of `weir gpu-check`: what mapped memory the device really has, whatever its attributes say. Every
//! combination of handle type, RDMA flag, reservation and rights is tried with one granule, content included; then what the
//! driver takes of the device by itself.

use super::cuda::{Code, Driver, Kind, Nvml, Rights, Stream};
use super::{KERNELS, say};
use serde_json::json;
use std::time::{Duration, Instant};

/// `CU_MEM_HANDLE_TYPE_NONE`, `…_POSIX_FILE_DESCRIPTOR`, `…_FABRIC`.
const HANDLE_TYPES: [(u32, &str); 3] = [(0, "none"), (1, "fd"), (8, "fabric")];
const WORD: u32 = 0xA5A5_1234;
const GIB: u64 = 1 << 30;
/// Mappings that show what a mapping takes by itself.
const MAPPINGS: u64 = 32;

/// A call that was refused.
#[derive(PartialEq)]
struct Refusal(&'static str, Code);

fn at(call: &'static str) -> impl Fn(Code) -> Refusal {
    move |code| Refusal(call, code)
}

/// Tries everything on device 0; with `peer` rights of device 1 as well.
pub(super) fn run(peer: bool) -> Result<(), String> {
    let driver = Driver::load()?;
    let failed = |what: &str| {
        let what = what.to_owned();
        move |code| format!("{what} returned {code}")
    };
    driver.init().map_err(failed("cuInit"))?;
    let nvml = Nvml::load().ok();
    let used = |driver: &Driver| {
        let uuid = driver.uuid(0).ok()?;
        let nvml = nvml.as_ref()?;
        nvml.used(&format!("GPU-{uuid}")).or_else(|| nvml.used(&format!("MIG-{uuid}")))
    };
    let before = used(&driver);
    driver.context(0).map_err(failed("cuDevicePrimaryCtxRetain"))?;
    let took = used(&driver).zip(before).map(|(after, before)| after.saturating_sub(before));
    say(&json!({"kind": "taken", "by": "context", "bytes": took}));
    processes(&driver, nvml.as_ref());
    // Once for all that comes with the first launch of a context, once for a module alone.
    unrequested(&driver, "first module");
    unrequested(&driver, "module");
    pools(&driver);
    let Ok(granule) = driver.granularity(0) else {
        say(&json!({"kind": "none", "what": "mapped memory"}));
        return Ok(());
    };
    let total = driver.total(0).map_err(failed("cuDeviceTotalMem"))?;
    let multiple = |times: u64| (total * times).next_multiple_of(granule);
    let reservations =
        [("granule", granule), ("1GiB", GIB), ("32GiB", 32 * GIB), ("2x", multiple(2)), ("6x", multiple(6))];
    for (handle_type, handle) in HANDLE_TYPES {
        for rdma in [false, true] {
            for (reservation, bytes) in reservations {
                for (access, devices, rights) in [
                    ("write", &[0][..], Rights::ReadWrite),
                    ("read", &[0][..], Rights::Read),
                    ("peer", &[0, 1][..], Rights::ReadWrite),
                ] {
                    if devices.len() > 1 && !peer {
                        continue;
                    }
                    let kind = Kind { handle_type, rdma };
                    let tried = one(&driver, granule, bytes, kind, devices, rights);
                    let (call, code) = tried.as_ref().err().map_or(("", 0), |refusal| (refusal.0, refusal.1));
                    say(&json!({
                        "kind": "probe", "handle": handle, "rdma": rdma, "reservation": reservation, "bytes": bytes,
                        "access": access, "call": call, "code": code, "wrong": tried == Ok(false),
                    }));
                }
            }
        }
    }
    page_tables(&driver, granule);
    attribute(&driver, granule);
    driver.release_context(0).map_err(failed("cuDevicePrimaryCtxRelease"))
}

/// One granule at the end of a reservation; whether its content came back. All of it is given back, whatever fails.
fn one(
    driver: &Driver,
    granule: u64,
    bytes: u64,
    kind: Kind,
    devices: &[i32],
    rights: Rights,
) -> Result<bool, Refusal> {
    let start = driver.reserve(bytes).map_err(at("cuMemAddressReserve"))?;
    let done = (|| {
        let handle = driver.create(0, granule, kind).map_err(at("cuMemCreate"))?;
        let place = start + bytes - granule;
        let used = driver.map(place, granule, handle).map_err(at("cuMemMap")).and_then(|()| {
            let used = content(driver, place, granule, devices, rights);
            driver.unmap(place, granule).map_err(at("cuMemUnmap"))?;
            used
        });
        driver.release(handle).map_err(at("cuMemRelease"))?;
        used
    })();
    driver.unreserve(start, bytes).map_err(at("cuMemAddressFree"))?;
    done
}

fn content(driver: &Driver, place: u64, granule: u64, devices: &[i32], rights: Rights) -> Result<bool, Refusal> {
    driver.set_access(place, granule, devices, rights).map_err(at("cuMemSetAccess"))?;
    let last = place + granule - 64;
    if rights == Rights::Read {
        return driver.words(last, 16).map(|_| true).map_err(at("cuMemcpyDtoH"));
    }
    driver.fill(place, granule / 4, WORD).map_err(at("cuMemsetD32"))?;
    let words = driver.words(last, 16).map_err(at("cuMemcpyDtoH"))?;
    Ok(words.iter().all(|word| *word == WORD))
}

/// How NVML reports this process.
fn processes(driver: &Driver, nvml: Option<&Nvml>) {
    let (Some(nvml), Ok(uuid)) = (nvml, driver.uuid(0)) else {
        return;
    };
    let name = ["GPU-", "MIG-"].map(|kind| format!("{kind}{uuid}")).into_iter().find(|name| nvml.knows(name));
    let Some(name) = name else { return };
    let listed = nvml.processes(&name);
    let own = std::process::id();
    let here = listed.as_ref().ok().map(|list| list.iter().find(|(pid, _)| *pid == own).map(|(_, bytes)| *bytes));
    say(&json!({
        "kind": "processes", "code": listed.as_ref().err(), "listed": listed.as_ref().ok().map(Vec::len),
        "own": here.flatten(),
    }));
}

/// What a module takes when it is loaded, and at its first launch.
fn unrequested(driver: &Driver, by: &str) {
    let free = || driver.free_bytes().unwrap_or(0);
    let before = free();
    let kernel = match driver.kernel(KERNELS, c"weir_spin") {
        Ok(kernel) => kernel,
        Err(code) => return say(&json!({"kind": "refused", "call": "cuModuleLoadData", "code": code})),
    };
    let loaded = free();
    let launched = driver.stream().and_then(|stream| {
        driver.launch(kernel, stream, 1000)?;
        driver.synchronize()
    });
    let after = free();
    say(&json!({
        "kind": "taken", "by": by, "bytes": before.saturating_sub(loaded),
        "launch": loaded.saturating_sub(after), "code": launched.err(),
    }));
}

/// Memory pools and managed memory.
fn pools(driver: &Driver) {
    let managed = driver.alloc_managed(4096).and_then(|place| driver.free(place));
    let pools = driver.alloc_async(1 << 20).and_then(|()| driver.synchronize());
    for (what, code) in [("managed", managed), ("pools", pools)] {
        say(&json!({"kind": "works", "what": what, "code": code.err().unwrap_or(0)}));
    }
}

/// What a mapping takes besides the memory that is mapped.
fn page_tables(driver: &Driver, granule: u64) {
    let bytes = granule * MAPPINGS;
    let Ok(start) = driver.reserve(bytes) else { return };
    let handles: Vec<u64> =
        (0..MAPPINGS).map_while(|_| driver.create(0, granule, Kind { handle_type: 0, rdma: false }).ok()).collect();
    let before = driver.free_bytes().unwrap_or(0);
    let mapped =
        handles.iter().zip(0..).take_while(|(handle, at)| driver.map(start + at * granule, granule, **handle).is_ok());
    let mapped = mapped.count() as u64;
    let whole = mapped > 0 && driver.set_access(start, mapped * granule, &[0], Rights::ReadWrite).is_ok();
    let after = driver.free_bytes().unwrap_or(0);
    if mapped > 0 {
        let _ = driver.unmap(start, mapped * granule);
    }
    for handle in handles {
        let _ = driver.release(handle);
    }
    let _ = driver.unreserve(start, bytes);
    if whole {
        let taken = before.saturating_sub(after);
        say(&json!({"kind": "taken", "by": "mappings", "bytes": taken, "mappings": mapped, "granule": granule}));
    }
}

/// `SYNC_MEMOPS` on mapped memory, and rights set again beside a running kernel.
fn attribute(driver: &Driver, granule: u64) {
    let Ok(start) = driver.reserve(granule) else { return };
    if let Ok(handle) = driver.create(0, granule, Kind { handle_type: 0, rdma: false }) {
        if driver.map(start, granule, handle).is_ok() {
            if driver.set_access(start, granule, &[0], Rights::ReadWrite).is_ok() {
                let code = driver.sync_memops(start).err().unwrap_or(0);
                say(&json!({"kind": "works", "what": "sync_memops", "code": code}));
            }
            let _ = driver.unmap(start, granule);
        }
        let _ = driver.release(handle);
    }
    let _ = driver.unreserve(start, granule);
    edits(driver, granule);
}

/// Whether a change of page tables waits for running work, or breaks it.
fn edits(driver: &Driver, granule: u64) {
    const RUNS: Duration = Duration::from_millis(200);
    let tried = (|| -> Result<(bool, Option<Code>), Code> {
        let kernel = driver.kernel(KERNELS, c"weir_spin")?;
        let stream: Stream = driver.stream()?;
        let start = driver.reserve(granule)?;
        let handle = driver.create(0, granule, Kind { handle_type: 0, rdma: false })?;
        driver.launch(kernel, stream, RUNS.as_nanos() as u64)?;
        let began = Instant::now();
        let edited = driver
            .map(start, granule, handle)
            .and_then(|()| driver.set_access(start, granule, &[0], Rights::ReadWrite))
            .and_then(|()| driver.unmap(start, granule));
        let waited = !driver.busy(stream) && began.elapsed() >= RUNS / 2;
        let broken = driver.synchronize().err();
        let _ = driver.release(handle);
        let _ = driver.unreserve(start, granule);
        edited.map(|()| (waited, broken))
    })();
    match tried {
        Ok((waited, broken)) => say(&json!({"kind": "edits", "waited": waited, "code": broken.unwrap_or(0)})),
        Err(code) => say(&json!({"kind": "edits", "waited": null, "code": code})),
    }
}
