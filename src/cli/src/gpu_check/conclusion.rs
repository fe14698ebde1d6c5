//! What the results of the steps mean: whatever is not as the driver's own words and the documents say is a finding, and each
//! finding that others have reported before says where. Pure.

use serde_json::{Value, json};
use std::collections::BTreeSet;

const NOT_SUPPORTED: u64 = 801;
const NOT_PERMITTED: u64 = 800;
const OUT_OF_MEMORY: u64 = 2;
const UNKNOWN: u64 = 999;
const ILLEGAL_ADDRESS: u64 = 700;

/// Attributes, by their number in the public header.
mod attribute {
    pub(super) const MANAGED: u32 = 83;
    pub(super) const VMM: u32 = 102;
    pub(super) const FD: u32 = 103;
    pub(super) const RDMA_WITH_VMM: u32 = 110;
    pub(super) const POOLS: u32 = 115;
    pub(super) const FABRIC: u32 = 128;
}

/// The lines of a step.
pub(super) fn lines<'a>(steps: &'a [Value], step: &str) -> impl Iterator<Item = &'a Value> {
    let found = steps.iter().find(move |one| one["step"] == step);
    found.and_then(|step| step["lines"].as_array()).into_iter().flatten()
}

/// The device that was checked: the first that the later steps saw.
pub(super) fn device(steps: &[Value], ordinal: u64) -> Option<&Value> {
    lines(steps, "environment").find(|line| line["kind"] == "device" && line["ordinal"] == ordinal)
}

struct Findings(Vec<Value>);

impl Findings {
    fn add(&mut self, step: &str, what: impl Into<String>, known: Option<&str>) {
        self.0.push(json!({"step": step, "what": what.into(), "known": known}));
    }
}

/// All findings, in the order of the steps.
pub(super) fn findings(steps: &[Value]) -> Vec<Value> {
    let mut found = Findings(Vec::new());
    for step in steps {
        let name = step["step"].as_str().unwrap_or("");
        let end = &step["end"];
        let words = (step["lines"].as_array().into_iter().flatten())
            .find_map(|line| (line["kind"] == "problem").then(|| line["what"].to_string()));
        // What failed is in its lines.
        let in_lines = name == "doctor" || name.starts_with("conformance");
        if let Some(how) = end["failed"].as_str().filter(|how| !in_lines || *how != "exit code 1") {
            let last = step["stderr"].as_str().unwrap_or("").lines().last().unwrap_or("").to_owned();
            found.add(name, format!("ended with {how}: {}", words.unwrap_or(last)), None);
        }
        if *end == "open" {
            found.add(name, "weir gpu-check itself was ended in this step", None);
        }
        if let Some(seconds) = end["killed"].as_f64() {
            let last =
                step["lines"].as_array().and_then(|lines| lines.last()).map(Value::to_string).unwrap_or_default();
            found.add(name, format!("did not end in {seconds:.0} s; the last it printed: {last}"), None);
        }
    }
    if steps.first().is_some_and(|step| step["step"] == "environment" && step["end"] == "done")
        && !lines(steps, "environment").any(|line| line["kind"] == "device")
    {
        found.add("environment", "no device".to_owned(), None);
    }
    doctor(steps, &mut found);
    probe(steps, &mut found);
    latency(steps, &mut found);
    conformance(steps, &mut found);
    tensorflow(steps, &mut found);
    peers(steps, &mut found);
    found.0
}

fn doctor(steps: &[Value], found: &mut Findings) {
    for line in lines(steps, "doctor") {
        for check in line["checks"].as_array().into_iter().flatten().filter(|check| check["ok"] == false) {
            found.add("doctor", format!("{}: {}", text(&check["subject"]), text(&check["finding"])), None);
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn probe(steps: &[Value], found: &mut Findings) {
    // All devices of a machine are of one kind here; the checked one decides where they differ in name only.
    let devices: Vec<&Value> = lines(steps, "environment").filter(|line| line["kind"] == "device").collect();
    let has =
        |number: u32| devices.iter().any(|device| device["attributes"][number.to_string()].as_i64().unwrap_or(0) > 0);
    let peer = lines(steps, "peers").find(|line| line["kind"] == "peer").map(|line| line["access"] == true);
    let mut seen = BTreeSet::new();
    for line in lines(steps, "probe") {
        let code = line["code"].as_u64().unwrap_or(0);
        match text(&line["kind"]) {
            "probe" => {
                let (handle, call) = (text(&line["handle"]), text(&line["call"]));
                let (rdma, access) = (line["rdma"] == true, text(&line["access"]));
                if line["wrong"] == true {
                    found.add("probe", format!("wrong contents: {line}"), None);
                }
                let expected = code == 0
                    || !has(attribute::VMM)
                    || (handle == "fd" && !has(attribute::FD))
                    || (handle == "fabric" && (!has(attribute::FABRIC) || code == NOT_PERMITTED))
                    || (rdma && !has(attribute::RDMA_WITH_VMM))
                    || (access == "peer" && peer == Some(false));
                if expected {
                    continue;
                }
                let known = match (call, code) {
                    ("cuMemSetAccess", UNKNOWN) if rdma => Some("pytorch#192330: access refused with the RDMA flag"),
                    ("cuMemAddressReserve", OUT_OF_MEMORY) if text(&line["reservation"]) != "granule" => {
                        Some("node-llama-cpp#610: little address space")
                    }
                    _ => None,
                };
                let what = format!(
                    "{call} returned {code} (handle {handle}, RDMA {rdma}, reservation {}, access {access})",
                    text(&line["reservation"])
                );
                // One line for what has one cause.
                let cause = known.map_or(format!("{call} {code} {handle} {rdma} {access}"), str::to_owned);
                if seen.insert(cause) {
                    found.add("probe", what, known);
                }
            }
            "works" if code != 0 => {
                let what = text(&line["what"]);
                let known = match what {
                    "sync_memops" if code == NOT_SUPPORTED => Some("ucx#9895: SYNC_MEMOPS on mapped memory"),
                    "pools" if code == NOT_SUPPORTED && !has(attribute::POOLS) => continue,
                    "managed" if code == NOT_SUPPORTED && !has(attribute::MANAGED) => continue,
                    _ => None,
                };
                found.add("probe", format!("{what} returned {code}"), known);
            }
            "edits" if code != 0 => {
                let known =
                    (code == ILLEGAL_ADDRESS).then_some("kvcached#465: page tables changed beside running work");
                if has(attribute::VMM) {
                    found.add("probe", format!("a mapping beside a running kernel: {code}"), known);
                }
            }
            "refused" => found.add("probe", format!("{} returned {code}", text(&line["call"])), None),
            _ => {}
        }
    }
}

fn latency(steps: &[Value], found: &mut Findings) {
    for line in lines(steps, "latency").filter(|line| line["kind"] == "refused") {
        // Others use the device too.
        if line["code"] != OUT_OF_MEMORY {
            found.add("latency", format!("{} returned {}: {line}", text(&line["call"]), line["code"]), None);
        }
    }
}

/// Rules that do not hold under weir, by its design.
const OWN: [(&str, &str); 3] = [
    ("capture.free_refused", "under weir cuMemFree beside a capture is served and makes the capture no less valid"),
    ("memory.use_after_free", "under weir freed memory stays mapped in the pool"),
    ("nvml.processes_of_others", "under a cap NVML reports memory as the cap has it"),
];

fn conformance(steps: &[Value], found: &mut Findings) {
    let failed = |step: &'static str| lines(steps, step).filter(|line| line["result"] == "fail");
    let bare: BTreeSet<&str> = failed("conformance").map(|line| text(&line["rule"])).collect();
    for line in failed("conformance") {
        found.add("conformance", format!("{}: {}", text(&line["rule"]), text(&line["detail"])), None);
    }
    for line in failed("conformance-weir").filter(|line| !bare.contains(text(&line["rule"]))) {
        let what = format!("{}: {} (passes without weir)", text(&line["rule"]), text(&line["detail"]));
        let known = OWN.iter().find(|(rule, _)| line["rule"] == *rule).map(|(_, why)| *why);
        found.add("conformance-weir", what, known);
    }
}

fn tensorflow(steps: &[Value], found: &mut Findings) {
    let of = |step: &str| lines(steps, step).find(|line| line["kind"] == "tensorflow");
    let Some(bare) = of("tensorflow-bare").and_then(|line| line["last"].as_f64()) else { return };
    for (step, line) in ["tensorflow-keep", "tensorflow-pool"].map(|step| (step, of(step))) {
        let Some(line) = line else { continue };
        let loss = &line["last"];
        if let Some(missing) = line["missing"].as_str() {
            found.add(step, format!("{missing} (not so without weir)"), None);
        } else if loss.as_f64().is_none_or(|loss| (loss - bare).abs() > 0.02 * bare.abs().max(0.1)) {
            // What is not a number has no number in JSON, but a word.
            found.add(step, format!("the loss after 50 steps is {loss}, without weir {bare}"), None);
        }
    }
}

/// Two devices, without weir and with it.
fn peers(steps: &[Value], found: &mut Findings) {
    for step in ["peers", "peers-weir"] {
        copies(steps, step, found);
        for line in lines(steps, step).filter(|line| line["kind"] == "collective") {
            let way = text(&line["way"]);
            if line["wrong"] == true {
                found.add(step, format!("{way}: wrong contents"), None);
            }
            if line["code"] != 0 {
                found.add(
                    step,
                    format!("{way}: {} returned {}", line["call"].as_str().unwrap_or("a call"), line["code"]),
                    None,
                );
            }
        }
    }
}

fn copies(steps: &[Value], step: &str, found: &mut Findings) {
    for line in lines(steps, step).filter(|line| line["kind"] == "copy") {
        let mapped = line["mapped"] == true;
        let what = format!(
            "{} of {} memory, rights {}",
            text(&line["way"]),
            if mapped { "mapped" } else { "plain" },
            line["rights"]
        );
        if line["wrong"] == true {
            found.add(step, format!("{what}: wrong contents"), None);
        }
        if line["code"] != 0 {
            let known = (mapped && line["rights"] == false && line["way"] == "cuMemcpyDtoD").then_some(
                "a comment in PyTorch's allocator: such copies need access from the device that executes them",
            );
            found.add(step, format!("{what}: {}", line["code"]), known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(attributes: &Value) -> Value {
        json!({"step": "environment", "end": "done", "lines": [{"kind": "device", "ordinal": 0, "attributes": attributes}]})
    }

    fn new(steps: &[Value]) -> usize {
        findings(steps).iter().filter(|finding| finding["known"].is_null()).count()
    }

    #[test]
    fn what_is_known_counts_once_and_is_not_new() {
        let vmm = json!({"102": 1, "103": 1, "110": 1});
        let row = |rdma, reservation, call, code| {
            json!({"kind": "probe", "handle": "none", "rdma": rdma, "reservation": reservation, "access": "write", "call": call,
                   "code": code, "wrong": false})
        };
        let step = |lines: Vec<Value>| [device(&vmm), json!({"step": "probe", "end": "done", "lines": lines})];
        let wsl = step(vec![row(true, "granule", "cuMemSetAccess", 999), row(true, "1GiB", "cuMemSetAccess", 999)]);
        assert_eq!((findings(&wsl).len(), new(&wsl)), (1, 0));
        let space = step(vec![row(false, "32GiB", "cuMemAddressReserve", 2)]);
        assert_eq!((findings(&space).len(), new(&space)), (1, 0));
        for unheard in [
            row(false, "granule", "cuMemSetAccess", 999),
            row(false, "granule", "cuMemAddressReserve", 2),
            row(true, "1GiB", "cuMemMap", 999),
        ] {
            assert_eq!(new(&step(vec![unheard.clone()])), 1, "{unheard}");
        }
        // What an attribute denies is no finding.
        let none = [
            device(&json!({"102": 0})),
            json!({"step": "probe", "lines": [row(false, "granule", "cuMemCreate", 801)]}),
        ];
        assert_eq!(findings(&none).len(), 0);
    }

    #[test]
    fn a_step_that_does_not_end_well_is_new() {
        for end in [json!({"killed": 30.0}), json!({"failed": "signal 11"}), json!("open")] {
            assert_eq!(new(&[json!({"step": "latency", "end": end, "lines": [], "stderr": ""})]), 1);
        }
        for end in [json!("done"), json!({"skipped": "no program"})] {
            assert_eq!(new(&[json!({"step": "pool", "end": end, "lines": []})]), 0);
        }
    }

    #[test]
    fn a_rule_counts_under_weir_only_if_it_holds_without() {
        let rules = |step: &str, failed: &[&str]| {
            let lines: Vec<_> =
                failed.iter().map(|rule| json!({"rule": rule, "result": "fail", "detail": ""})).collect();
            json!({"step": step, "end": {"failed": "exit code 1"}, "lines": lines, "stderr": ""})
        };
        assert_eq!(new(&[rules("conformance", &["a"]), rules("conformance-weir", &["a"])]), 1);
        assert_eq!(new(&[rules("conformance", &["a"]), rules("conformance-weir", &["a", "b"])]), 2);
    }

    #[test]
    fn work_of_two_devices_that_fails_is_found() {
        let step = |name: &str, line: Value| json!({"step": name, "end": "done", "lines": [line]});
        let of = |code: u32, wrong: bool| json!({"kind": "collective", "way": "nccl", "code": code, "wrong": wrong});
        assert_eq!(new(&[step("peers", of(0, false)), step("peers-weir", of(0, false))]), 0);
        assert_eq!(new(&[step("peers", of(0, false)), step("peers-weir", of(0, true))]), 1);
        assert_eq!(new(&[step("peers-weir", of(1, false))]), 1);
        // Under weir memory of the driver's own is mapped memory, and copied all the same.
        let copy =
            json!({"kind": "copy", "way": "cuMemcpyDtoD", "mapped": false, "rights": false, "code": 1, "wrong": false});
        assert_eq!(new(&[step("peers-weir", copy)]), 1);
    }

    #[test]
    fn a_loss_that_differs_is_found() {
        let line = |step: &str, line: Value| json!({"step": step, "end": "done", "lines": [line]});
        let run = |step: &str, loss: Value| line(step, json!({"kind": "tensorflow", "last": loss}));
        let bare = || run("tensorflow-bare", json!(1.0));
        assert_eq!(new(&[bare(), run("tensorflow-keep", json!(1.001))]), 0);
        assert_eq!(new(&[bare(), run("tensorflow-pool", json!(2.0))]), 1);
        assert_eq!(new(&[bare(), run("tensorflow-pool", json!("nan"))]), 1);
        let gone = || json!({"kind": "tensorflow", "missing": "no GPU in TensorFlow"});
        assert_eq!(new(&[bare(), line("tensorflow-keep", gone())]), 1);
        assert_eq!(new(&[line("tensorflow-bare", gone()), run("tensorflow-keep", json!(1.0))]), 0);
    }
}
