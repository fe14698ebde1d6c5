//! What came back from a volunteer: a report, the latencies as a table for `VGPU_COST`, the device as a profile for
//! `VGPU_PROFILE`. The file is a stranger's: nothing in it is trusted.

use super::conclusion::{device, lines};
use super::fit::{self, Point};
use crate::output;
use clap::ValueEnum;
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use weir_settings::size::human;

pub(super) const FORMAT: &str = "weir-gpu-check";
pub(super) const VERSION: u64 = 1;
/// More than any real file expands to.
const LARGEST: u64 = 64 << 20;

/// What of a file is printed.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Print {
    /// Everything, in words
    Report,
    /// A table for VGPU_COST
    Cost,
    /// A profile: a file for VGPU_PROFILE
    Profile,
    /// The whole file
    Json,
}

/// Reads a file and prints what is wanted of it.
pub(super) fn run(path: &Path, print: Print) -> Result<(), String> {
    let file = read(path)?;
    match print {
        Print::Report => put!("{}", report(&file)),
        Print::Cost => putln!("{}", cost(&file).ok_or_else(|| format!("{}: no latencies in it", path.display()))?),
        Print::Profile => {
            output::exact(&profile(&file).map_err(|why| format!("{}: {why}", path.display()))?);
        }
        Print::Json => output::json(&file, true),
    }
    Ok(())
}

fn read(path: &Path) -> Result<Value, String> {
    let problem = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let file = File::open(path).map_err(|error| problem(&error))?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(problem(&"not a regular file"));
    }
    let mut text = Vec::new();
    let packed = GzDecoder::new(file).take(LARGEST + 1).read_to_end(&mut text);
    packed.map_err(|error| problem(&format!("not what weir gpu-check has written: {error}")))?;
    if text.len() as u64 > LARGEST {
        return Err(problem(&format!("expands to more than {}", human(LARGEST))));
    }
    let file: Value = serde_json::from_slice(&text)
        .map_err(|error| problem(&format!("not what weir gpu-check has written: {error}")))?;
    if file["format"] != FORMAT {
        return Err(problem(&"not what weir gpu-check has written"));
    }
    match file["version"].as_u64() {
        Some(VERSION) => Ok(file),
        other => Err(problem(&format!("version {other:?} of the format; this weir reads version {VERSION}"))),
    }
}

/// The steps of a file.
fn steps(file: &Value) -> &[Value] {
    file["steps"].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// One finding, in a line.
pub(super) fn finding(finding: &Value) -> String {
    let (step, what) = (text(&finding["step"]), text(&finding["what"]));
    match finding["known"].as_str() {
        Some(known) => format!("known  {step}: {what} ({known})"),
        None => format!("NEW    {step}: {what}"),
    }
}

fn report(file: &Value) -> String {
    let mut out = String::new();
    let steps = steps(file);
    for machine in lines(steps, "environment").filter(|line| line["kind"] == "machine") {
        let or = |name: &str| machine[name].as_str().unwrap_or("-").to_owned();
        let _ = writeln!(
            out,
            "weir {}, {}, {}, kernel {}, glibc {}",
            or("weir"),
            or("architecture"),
            or("system"),
            or("kernel"),
            or("glibc")
        );
        let places: Vec<&str> =
            ["wsl", "container", "mps"].into_iter().filter(|place| machine[*place] == true).collect();
        let _ = writeln!(out, "{}{}", or("module"), places.iter().fold(String::new(), |all, place| all + ", " + place));
    }
    if let Some(device) = device(steps, file["device"].as_u64().unwrap_or(0)) {
        let (name, total) = (text(&device["name"]), device["total"].as_u64().unwrap_or(0));
        let _ = writeln!(out, "device {}: {name}, {}", device["ordinal"], human(total));
    }
    out.push_str("\nsteps\n");
    for step in steps {
        let end = &step["end"];
        let how = match (end.as_str(), end["failed"].as_str(), end["skipped"].as_str(), end["killed"].as_f64()) {
            (Some("open"), ..) => "no end: weir gpu-check itself was ended".to_owned(),
            (Some(done), ..) => done.to_owned(),
            (_, Some(failed), ..) => format!("failed: {failed}"),
            (_, _, Some(why), _) => format!("left out: {why}"),
            (_, _, _, Some(seconds)) => format!("killed after {seconds:.0} s"),
            _ => "?".to_owned(),
        };
        let results = step["lines"].as_array().map_or(0, Vec::len);
        let _ = writeln!(
            out,
            "  {:<18} {how}, {results} results, {:.1} s",
            text(&step["step"]),
            step["seconds"].as_f64().unwrap_or(0.0)
        );
    }
    rules(steps, &mut out);
    probed(steps, &mut out);
    latencies(steps, &mut out);
    moved(steps, &mut out);
    trained(steps, &mut out);
    peers(steps, &mut out);
    out.push_str("\nfindings\n");
    let findings = file["findings"].as_array().map_or(&[][..], Vec::as_slice);
    if findings.is_empty() {
        out.push_str("  none\n");
    }
    for one in findings {
        let _ = writeln!(out, "  {}", finding(one));
    }
    if let Some(table) = cost(file) {
        let _ = write!(out, "\ncosts, for the virtual GPU\n  VGPU_COST={table}\n");
    }
    if let Ok(profile) = profile(file) {
        out.push_str("\nprofile, for a file that VGPU_PROFILE names\n");
        profile.lines().for_each(|line| _ = writeln!(out, "  {line}"));
    }
    out
}

fn rules(steps: &[Value], out: &mut String) {
    for step in ["conformance", "conformance-weir"] {
        let count = |result: &str| lines(steps, step).filter(|line| line["result"] == result).count();
        if lines(steps, step).next().is_some() {
            let (pass, fail, skip) = (count("pass"), count("fail"), count("skip"));
            let _ = writeln!(out, "  {step}: {pass} rules hold, {fail} do not, {skip} not applicable or not reached");
        }
    }
}

fn probed(steps: &[Value], out: &mut String) {
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines(steps, "probe").filter(|line| line["kind"] == "probe") {
        let how = match (line["wrong"] == true, line["code"].as_u64()) {
            (true, _) => "wrong contents".to_owned(),
            (_, Some(0)) => "works".to_owned(),
            (_, code) => format!("{} {}", text(&line["call"]), code.unwrap_or(0)),
        };
        let rdma = if line["rdma"] == true { ", RDMA" } else { "" };
        rows.entry(how).or_default().push(format!(
            "{}{rdma}, {}, {}",
            text(&line["handle"]),
            text(&line["reservation"]),
            text(&line["access"])
        ));
    }
    if !rows.is_empty() {
        out.push_str("\nmapped memory: handle type, flag, reservation, rights\n");
    }
    for (how, which) in rows {
        let _ = writeln!(out, "  {how}: {}: {}", which.len(), which.join("; "));
    }
    for line in lines(steps, "probe").filter(|line| line["kind"] == "taken") {
        let bytes = line["bytes"].as_u64().map_or("unknown".to_owned(), human);
        let launch =
            line["launch"].as_u64().map_or(String::new(), |bytes| format!(", {} at the first launch", human(bytes)));
        let _ = writeln!(out, "  taken by {}: {bytes}{launch}", text(&line["by"]));
    }
}

fn latencies(steps: &[Value], out: &mut String) {
    let mut header = true;
    for line in lines(steps, "latency").filter(|line| line["kind"] == "latency") {
        if std::mem::take(&mut header) {
            out.push_str("\nlatencies in microseconds\n  call             MiB  mappings  devices  busy       p50       p99     n\n");
        }
        let number = |name: &str| line[name].as_u64().unwrap_or(0);
        let micro = |name: &str| number(name) as f64 / 1000.0;
        let _ = writeln!(
            out,
            "  {:<15} {:>4} {:>9} {:>8}  {:<4} {:>9.1} {:>9.1} {:>5}",
            text(&line["call"]),
            number("mib"),
            number("mappings"),
            number("devices"),
            if line["busy"] == true { "yes" } else { "no" },
            micro("p50"),
            micro("p99"),
            number("n")
        );
    }
}

/// What the pool's random programs did.
fn moved(steps: &[Value], out: &mut String) {
    for line in lines(steps, "pool").filter(|line| line["operations"].is_u64()) {
        let number = |name: &str| line[name].as_u64().unwrap_or(0);
        let _ = writeln!(
            out,
            "\npool: {} operations, {} refused; {} granules remapped, {} meshed, {} migrated",
            number("operations"),
            number("refused"),
            number("remaps"),
            number("meshes"),
            number("migrated")
        );
    }
}

/// What TensorFlow's runs say.
fn trained(steps: &[Value], out: &mut String) {
    let mut header = true;
    for step in ["tensorflow-bare", "tensorflow-keep", "tensorflow-pool"] {
        for line in lines(steps, step).filter(|line| line["kind"] == "tensorflow" && line["last"].is_f64()) {
            if std::mem::take(&mut header) {
                out.push_str(
                    "\nfifty steps of TensorFlow: milliseconds a step, first and last loss, peak of its tensors\n",
                );
            }
            let number = |name: &str| line[name].as_f64().unwrap_or(0.0);
            let peak = line["peak"].as_u64().map_or("unknown".to_owned(), human);
            let _ = writeln!(
                out,
                "  {step:<16} {}  {:>8.2}  {:.4} {:.4}  {peak}",
                text(&line["version"]),
                number("seconds") * 1e3,
                number("first"),
                number("last")
            );
        }
    }
}

/// What two devices do together.
fn peers(steps: &[Value], out: &mut String) {
    let mut header = true;
    for step in ["peers", "peers-weir"] {
        for line in lines(steps, step).filter(|line| line["kind"] == "copy" || line["kind"] == "collective") {
            if std::mem::take(&mut header) {
                out.push_str("\ntwo devices\n");
            }
            let of = match line["mapped"].as_bool() {
                Some(true) if line["rights"] == true => " of mapped memory, with rights",
                Some(true) => " of mapped memory, without rights",
                Some(false) => " of plain memory",
                None => "",
            };
            let how = match (line["wrong"] == true, line["code"].as_u64()) {
                (true, _) => "wrong contents".to_owned(),
                (_, Some(0)) => "works".to_owned(),
                (_, code) => format!("{} {}", line["call"].as_str().unwrap_or("returned"), code.unwrap_or(0)),
            };
            let rounds = line["rounds"].as_u64().map_or(String::new(), |rounds| format!(", {rounds} rounds"));
            let seconds = line["seconds"].as_f64().map_or(String::new(), |seconds| format!(", {seconds:.1} s"));
            let _ = writeln!(out, "  {step:<10} {}{of}: {how}{rounds}{seconds}", text(&line["way"]));
        }
    }
}

/// The calls that cost something, and how many kinds of terms the virtual GPU knows for each.
const COSTS: [(&str, usize); 6] = [
    ("cuMemCreate", 2),
    ("cuMemMap", 2),
    ("cuMemSetAccess", 4),
    ("cuMemUnmap", 3),
    ("cuMemAlloc", 2),
    ("cuMemFree", 2),
];

/// A table for `VGPU_COST` from the medians on an idle device.
fn cost(file: &Value) -> Option<String> {
    let steps = steps(file);
    let row = |(call, terms): (&str, usize)| {
        let own = lines(steps, "latency")
            .filter(|line| line["kind"] == "latency" && line["call"] == call && line["busy"] == false);
        let points: Vec<Point> = own
            .map(|line| {
                let number = |name: &str| line[name].as_f64().unwrap_or(0.0);
                // These calls are for all mappings at once, the others for one handle.
                let mappings = if terms > 2 { number("mappings") } else { 1.0 };
                Point {
                    mib: number("mib") * mappings,
                    mappings,
                    devices: number("devices"),
                    nanoseconds: number("p50"),
                }
            })
            .collect();
        fit::row(call, &fit::fit(&points, terms))
    };
    let rows: Vec<String> = COSTS.into_iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| rows.join(","))
}

/// The device as switches of the virtual GPU, a line each.
fn profile(file: &Value) -> Result<String, &'static str> {
    let steps = steps(file);
    let device = device(steps, file["device"].as_u64().unwrap_or(0)).ok_or("no device in it")?;
    let attribute = |number: u32| device["attributes"][number.to_string()].as_i64().unwrap_or(0);
    let driver = lines(steps, "environment").find(|line| line["kind"] == "driver");
    let version = driver.and_then(|driver| driver["version"].as_u64()).unwrap_or(0);
    let probes = || lines(steps, "probe");
    let works = |what: &str| {
        probes().find(|line| line["kind"] == "works" && line["what"] == what).and_then(|line| line["code"].as_u64())
    };
    let taken = |by: &str, field: &str| {
        probes().find(|line| line["kind"] == "taken" && line["by"] == by).and_then(|line| line[field].as_u64())
    };
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let tried = |rdma: bool| {
        probes().filter(move |line| line["kind"] == "probe" && line["rdma"] == rdma && line["handle"] == "none")
    };
    let rdma = match (attribute(110) + attribute(116), tried(true).any(|line| line["code"] == 0)) {
        (0, _) => "off",
        (_, false) if tried(true).any(|line| line["call"] == "cuMemSetAccess") => "refused",
        _ => "on",
    };
    let name: String = text(&device["name"]).chars().filter(|c| !c.is_control()).take(95).collect();
    let mut rows = vec![
        ("VGPU_NAME", name),
        ("VGPU_MEM", format!("{}B", device["total"].as_u64().ok_or("no size of the device in it")?)),
        ("VGPU_COMPUTE", format!("{}.{}", attribute(75), attribute(76))),
        ("VGPU_DRIVER", format!("{}.{}", version / 1000, version % 1000 / 10)),
        ("VGPU_SMS", attribute(16).to_string()),
        ("VGPU_VMM", switch(attribute(102) != 0)),
        ("VGPU_POOLS", switch(attribute(115) != 0)),
        (
            "VGPU_MANAGED",
            if attribute(83) == 0 {
                "none"
            } else if attribute(89) == 0 {
                "basic"
            } else {
                "full"
            }
            .to_owned(),
        ),
        ("VGPU_INTEGRATED", switch(attribute(18) != 0)),
        ("VGPU_RDMA", rdma.to_owned()),
    ];
    if let Some(mig) = device["mig"].as_bool() {
        rows.push(("VGPU_MIG", switch(mig)));
    }
    if attribute(102) != 0
        && let Some(granule) = device["granularity"].as_u64()
    {
        rows.push(("VGPU_GRANULARITY", format!("{granule}B")));
    }
    let refused = tried(false)
        .filter(|line| line["call"] == "cuMemAddressReserve")
        .filter_map(|line| line["bytes"].as_u64())
        .min();
    if let Some(bytes) = refused {
        rows.push(("VGPU_VA", format!("{bytes}B")));
    }
    if let Some(code) = works("sync_memops") {
        rows.push(("VGPU_SYNC_MEMOPS", switch(code == 0)));
    }
    if let Some(access) =
        lines(steps, "peers").find(|line| line["kind"] == "peer").and_then(|line| line["access"].as_bool())
    {
        rows.push(("VGPU_P2P", switch(access)));
    }
    let copy = lines(steps, "peers")
        .find(|line| line["way"] == "cuMemcpyDtoD" && line["mapped"] == true && line["rights"] == false);
    if let Some(copy) = copy {
        rows.push(("VGPU_COPY", if copy["code"] == 0 { "any" } else { "executing" }.to_owned()));
    }
    let processes = probes().find(|line| line["kind"] == "processes");
    let nvml = match (driver.map(|driver| driver["nvml"].is_string()), processes) {
        (Some(true), _) => Some("absent"),
        (_, Some(line)) if !line["code"].is_null() => Some("no-processes"),
        (_, Some(line)) if line["own"] == 0 => Some("zero-bytes"),
        (_, Some(line)) if line["own"].is_null() && line["listed"].as_u64() > Some(0) => Some("foreign-pids"),
        (_, Some(line)) if line["own"].is_u64() => Some("on"),
        _ => None,
    };
    rows.extend(nvml.map(|how| ("VGPU_NVML", how.to_owned())));
    let whole = |by: &str| Some(taken(by, "bytes")? + taken(by, "launch").unwrap_or(0));
    let module = whole("module");
    // The stack of all threads: more than the module takes by itself.
    rows.extend(whole("first module").zip(module).map(|(first, own)| ("VGPU_LOCAL", switch(first > own + (1 << 20)))));
    for (variable, bytes) in [("VGPU_CONTEXT", taken("context", "bytes")), ("VGPU_MODULE", module)] {
        rows.extend(bytes.map(|bytes| (variable, format!("{bytes}B"))));
    }
    if let (Some(bytes), Some(mappings @ 1..)) = (taken("mappings", "bytes"), taken("mappings", "mappings")) {
        // Once for the mapping, once for the rights of the one device.
        rows.push(("VGPU_PAGE_TABLES", format!("{}B", bytes / mappings / 2)));
    }
    match probes().find(|line| line["kind"] == "edits" && !line["waited"].is_null()) {
        Some(line) if line["code"] != 0 => rows.push(("VGPU_EDITS", "fault".to_owned())),
        Some(line) if line["waited"] == true => rows.push(("VGPU_EDITS", "wait".to_owned())),
        Some(_) => rows.push(("VGPU_EDITS", "free".to_owned())),
        None => {}
    }
    rows.extend(cost(file).map(|table| ("VGPU_COST", table)));
    Ok(rows.iter().fold(String::new(), |mut all, (variable, value)| {
        let _ = writeln!(all, "{variable}={value}");
        all
    }))
}
