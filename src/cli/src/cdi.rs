//! `weir cdi`: a CDI spec (Container Device Interface) that puts the library, a cap and the folder of the journals into
//! containers of podman, containerd, CRI-O and docker: `podman run --device weir/cap=8GiB IMAGE`.

use crate::{library, output};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_settings::limit::CapSetting;

/// The kind of the devices: vendor and class.
const KIND: &str = "weir/cap";
/// The version of the specification that is needed: mounts and variables, no later field.
const VERSION: &str = "0.3.0";
/// Where things lie in a container.
const INSIDE: &str = "/opt/weir";
const JOURNALS: &str = "/var/lib/weir";

/// Arguments of `weir cdi`.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  weir cdi --cap 4GiB --cap 8GiB >/etc/cdi/weir.json
  podman run --device nvidia.com/gpu=0 --device weir/cap=8GiB IMAGE
  podman run --device weir/cap=none IMAGE                    recorded, without a cap
  weir report --dir /var/lib/weir                            on the host, afterwards")]
pub(crate) struct Arguments {
    /// A cap to offer as a device of this name; may be given several times. A percentage like 50% is offered as 50pct
    #[arg(long, value_name = "SIZE")]
    cap: Vec<String>,
    /// The directory of the host for the journals of all containers
    #[arg(long, value_name = "DIR", default_value = JOURNALS)]
    dir: PathBuf,
    /// The libweir.so to use, instead of the one beside this command
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Give containers a virtual GPU with this much memory
    #[arg(long, value_name = "SIZE")]
    vgpu: Option<String>,
}

/// Runs `weir cdi`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match spec(arguments) {
        Ok(spec) => {
            output::json(&spec, true);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("weir cdi: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn spec(arguments: &Arguments) -> Result<Value, String> {
    let library = library::find(arguments.library.as_deref())?;
    let dir =
        std::path::absolute(&arguments.dir).map_err(|error| format!("--dir {}: {error}", arguments.dir.display()))?;
    // The file and not its folder: an update replaces the file in the folder, and running containers keep theirs.
    let inside = format!("{INSIDE}/libweir.so");
    let mut mounts = vec![mount(&library, &inside, "ro")?, mount(&dir, JOURNALS, "rw")?];
    let mut variables = vec![format!("LD_PRELOAD={inside}"), format!("WEIR_DIR={JOURNALS}")];
    if let Some(size) = &arguments.vgpu {
        weir_settings::size::parse_size(size).map_err(|problem| format!("--vgpu {problem}"))?;
        let vgpu = library::find_vgpu(None)?;
        mounts.push(mount(&vgpu, &format!("{INSIDE}/vgpu"), "ro")?);
        variables.extend([format!("LD_LIBRARY_PATH={INSIDE}/vgpu"), format!("VGPU_MEM={size}")]);
    }
    let mut devices = vec![json!({"name": "none", "containerEdits": {"env": ["WEIR_JOURNAL=on"]}})];
    for cap in &arguments.cap {
        CapSetting::parse(cap).map_err(|problem| format!("--cap {problem}"))?;
        let name = cap.replace('%', "pct");
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte)) {
            return Err(format!("--cap {cap}: cannot be the name of a device; expected a size like 8GiB or 50%"));
        }
        if devices.iter().any(|device| device["name"] == name.as_str()) {
            return Err(format!("--cap {cap}: given twice"));
        }
        devices.push(json!({"name": name, "containerEdits": {"env": [format!("WEIR_CAP={cap}")]}}));
    }
    Ok(json!({
        "cdiVersion": VERSION,
        "kind": KIND,
        "containerEdits": {"env": variables, "mounts": mounts},
        "devices": devices,
    }))
}

fn mount(from: &Path, to: &str, mode: &str) -> Result<Value, String> {
    // What a link means here is not what it means to the container's runtime, later.
    let from = &from.canonicalize().unwrap_or_else(|_| from.to_owned());
    let from = from.to_str().ok_or_else(|| format!("{}: not UTF-8, which a CDI spec must be", from.display()))?;
    Ok(json!({"hostPath": from, "containerPath": to, "options": [mode, "bind", "nosuid", "nodev"]}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(caps: &[&str]) -> Result<Value, String> {
        let library = std::env::current_exe().ok();
        let cap = caps.iter().map(|cap| (*cap).to_owned()).collect();
        spec(&Arguments { cap, dir: "/j".into(), library, vgpu: None })
    }

    #[test]
    fn a_cap_is_a_device() {
        let spec = made(&["8GiB", "50%"]).unwrap();
        let names: Vec<_> = spec["devices"].as_array().unwrap().iter().map(|device| device["name"].clone()).collect();
        assert_eq!(names, ["none", "8GiB", "50pct"]);
        assert_eq!(spec["devices"][2]["containerEdits"]["env"], json!(["WEIR_CAP=50%"]));
        assert_eq!(spec["containerEdits"]["mounts"][1]["hostPath"], "/j");
        for (bad, part) in [("8XiB", "unknown unit"), ("0=8GiB", "cannot be the name"), ("8GiB", "given twice")] {
            let error = made(&["8GiB", bad]).unwrap_err();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }
}
