//! What weir says of itself: `weir_status`, for `weir doctor` and for tests.

use super::entry::Entry;
use super::export::{DRIVER_ENTRIES, NVML, NVML_ENTRIES, driver_version};
use super::proc_address;
use super::table::{TOPICS, UNHOOKED};
use crate::alloc::{self, DevicePool};
use crate::driver::library::{DRIVER, Library};
use crate::frameworks::tensorflow::allocator;
use crate::hooks::context;
use crate::process::config::Config;
use crate::process::{choices, elf, guard, job};
use core::ffi::c_char;
use serde_json::{Value, json};

/// Writes the state of weir in this process as JSON, cut to `size` bytes with the final NUL, and
/// answers how long it is without the NUL. It loads nothing and changes nothing.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn weir_status(buffer: *mut c_char, size: usize) -> usize {
    let text = guard::run("status", || status().to_string()).unwrap_or_default();
    if !buffer.is_null() && size > 0 {
        let length = text.len().min(size - 1);
        // SAFETY: the caller's buffer has `size` bytes, and length + 1 is not more.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), length);
            *buffer.add(length) = 0;
        }
    }
    text.len()
}

fn status() -> Value {
    let (lookups, unknown, wrapped, passed) = proc_address::seen();
    // Before the first CUDA call there is no job yet: report what it would find.
    let future;
    let config = if let Some(job) = job::get() {
        &job.config
    } else {
        future = Config::from_environment();
        &future
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "architecture": std::env::consts::ARCH,
        "library": path_of(weir_status as *const () as usize),
        "faults": cfg!(feature = "fault-injection"),
        "started": job::started(),
        "off": job::off(),
        "refused": job::refused(),
        "remembered": job::remembered(),
        "choices": choices::json(),
        "tensors": job::started().then(|| allocator::forecast(context::memory_pools)).flatten(),
        "driver": library(&DRIVER, &DRIVER_ENTRIES, driver_version()),
        "nvml": library(&NVML, &NVML_ENTRIES, None),
        "proc_address": {"lookups": lookups, "unknown": unknown, "wrapped": wrapped, "passed": passed},
        "caps": crate::cap::view::status(),
        "pools": alloc::pools().map(pool).collect::<Vec<_>>(),
        "journal": crate::record::status(),
        "settings": settings(config),
        "problems": config.lines().collect::<Vec<_>>(),
        "unhooked": UNHOOKED
            .iter()
            .map(|u| json!({"reason": u.reason, "names": u.names}))
            .collect::<Vec<_>>(),
    })
}

/// How much a device's pool has moved: granules.
fn pool(of: &DevicePool) -> Value {
    let stats = of.pool.stats();
    json!({"device": of.ordinal, "remaps": stats.remaps, "meshes": stats.meshes, "migrated": stats.migrated})
}

fn settings(config: &Config) -> Vec<Value> {
    config.shown.iter().map(|s| json!({"name": s.variable, "value": s.value, "origin": s.source()})).collect()
}

fn library<const N: usize>(library: &Library<N>, entries: &[Entry; N], version: Option<i32>) -> Value {
    let found = !library.handle().is_null();
    let real = (0..N).map(|id| library.real(id)).find(|&real| real != 0);
    let mut hooks = Vec::new();
    for (id, entry) in entries.iter().enumerate() {
        let Some(hook) = entry.hook else { continue };
        let topic = TOPICS.iter().find(|(topic, _)| *topic == hook.topic);
        let (calls, handed_out) = library.counts(id);
        hooks.push(json!({
            "symbol": entry.name(),
            "topic": topic.map(|(_, name)| name),
            "present": library.real(id) != 0,
            "calls": calls,
            "handed_out": handed_out,
        }));
    }
    let absent: Vec<_> = (entries.iter().enumerate())
        .filter(|(id, _)| found && library.real(*id) == 0)
        .map(|(_, entry)| entry.name())
        .collect();
    json!({
        "found": found,
        "path": real.and_then(path_of),
        "version": version,
        "known": N,
        "hooks": hooks,
        "absent": absent,
        "unknown": real.map(|real| unknown_exports(real, entries)),
    })
}

/// What the driver exports under its prefix and weir has never heard of: passed through.
fn unknown_exports(real: usize, entries: &[Entry]) -> Vec<String> {
    let mut names = Vec::new();
    // NVML's list is only what is intercepted: there, everything else is unknown by design.
    let whole = entries.len() == weir_cuda::COUNT;
    if let Some((_, object)) = elf::object_at(real).filter(|_| whole) {
        object.each_symbol(&mut |name, _, _| {
            let bytes = name.to_bytes();
            let driver = bytes.starts_with(b"cu") && bytes.get(2).is_some_and(u8::is_ascii_uppercase);
            if driver && !entries.iter().any(|e| e.symbol == name) {
                names.push(name.to_string_lossy().into_owned());
            }
        });
    }
    names.sort();
    names
}

fn path_of(address: usize) -> Option<String> {
    elf::object_at(address).map(|(_, object)| object.path().to_string_lossy().into_owned())
}
