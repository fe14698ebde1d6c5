//! The first step of `weir gpu-check`: the machine and its devices, without a context. Nothing that names a person or a
//! machine is read.

use super::cuda::{Driver, Nvml};
use super::say;
use serde_json::{Map, Value, json};
use std::ffi::CStr;
use std::fs;
use std::path::Path;
use weir_cuda::CUdevice_attribute;

/// Prints the machine, the driver and each device.
pub(super) fn run() -> Result<(), String> {
    say(&machine());
    let driver = Driver::load()?;
    if let Err(code) = driver.init() {
        return Err(format!("cuInit returned {code}"));
    }
    let nvml = Nvml::load();
    say(&json!({"kind": "driver", "version": driver.version().ok(), "nvml": nvml.as_ref().err()}));
    for device in 0..driver.count().map_err(|code| format!("cuDeviceGetCount returned {code}"))? {
        say(&one(&driver, nvml.as_ref().ok(), device));
    }
    Ok(())
}

fn one(driver: &Driver, nvml: Option<&Nvml>, device: i32) -> Value {
    let attributes: Map<String, Value> = (1..CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX.0 as i32)
        .filter_map(|number| Some((number.to_string(), driver.attribute(device, number).ok()?.into())))
        .collect();
    let uuid = driver.uuid(device).unwrap_or_default();
    let names = ["GPU-", "MIG-"].map(|kind| format!("{kind}{uuid}"));
    let full = names.iter().find(|name| nvml.is_some_and(|nvml| nvml.knows(name)));
    let mut found = json!({
        "kind": "device", "ordinal": device, "name": driver.name(device).ok(), "uuid": full.unwrap_or(&uuid),
        "total": driver.total(device).ok(), "granularity": driver.granularity(device).ok(), "attributes": attributes,
        "mig": full.map(|name| name.starts_with("MIG-")),
    });
    if let (Some(nvml), Some(full)) = (nvml, full) {
        found["display"] = nvml.display(full).into();
        found["used"] = nvml.used(full).into();
    }
    found
}

fn machine() -> Value {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let kernel = text("/proc/sys/kernel/osrelease");
    let release = text("/etc/os-release");
    let system = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("").trim_matches('"');
    // SAFETY: it returns a constant C string.
    let glibc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy();
    let module = text("/proc/driver/nvidia/version");
    let container = ["/.dockerenv", "/run/.containerenv"].iter().any(|path| Path::new(path).exists())
        || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let mps = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").is_some() || Path::new("/tmp/nvidia-mps").exists();
    json!({
        "kind": "machine", "weir": env!("CARGO_PKG_VERSION"), "architecture": std::env::consts::ARCH, "kernel": kernel,
        "system": system, "glibc": glibc, "wsl": kernel.to_lowercase().contains("microsoft"), "container": container,
        "mps": mps, "module": module.lines().next(), "processors": std::thread::available_parallelism().ok().map(usize::from),
        "open_gpu_module": module.contains("Open Kernel Module"),
    })
}
