//! `weir gpu-check`, the volunteer's command, on machines of several kinds and with faults injected: it always yields its file,
//! takes no more than it may, leaves nothing behind, and what it finds is what was there.

use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use weir_settings::profile;
use weir_tests::harness::{Done, Job, MIB, Scratch, Suite, eventually, stage};

/// A volunteer's machine.
struct Machine(Scratch);

impl Machine {
    fn new() -> Self {
        let machine = Self(Scratch::new());
        for folder in ["home", "here", "tmp"] {
            machine.0.folder(folder);
        }
        machine
    }

    fn file(&self) -> PathBuf {
        self.0.at("here/file.json.gz")
    }

    /// The command, on a virtual GPU.
    fn check(&self, vgpu: &Path, words: &str, environment: &str) -> Done {
        let done = self
            .weir(words)
            .arg("--out")
            .arg("file.json.gz")
            .env("LD_LIBRARY_PATH", vgpu)
            .set("VGPU_BACKING=memory WEIR_RING=16K")
            .set(environment)
            .within_seconds(580)
            .run();
        for (folder, left) in [("home", 0), ("tmp", 0), ("here", usize::from(self.file().exists()))] {
            let found: Vec<_> =
                std::fs::read_dir(self.0.at(folder)).expect("a folder").map(|e| e.map(|e| e.path())).collect();
            assert!(found.len() == left, "left behind in {folder}: {found:?}\n{done}");
        }
        done
    }

    fn weir(&self, words: &str) -> Job {
        let job = Job::new(stage().command()).arg("gpu-check").words(words).within(self.0.at("here"));
        job.env("HOME", self.0.at("home")).env("TMPDIR", self.0.at("tmp"))
    }

    /// What stands in for an interpreter: `../python`, a script of the shell.
    fn python(&self, script: &str) {
        let file = self.0.at("python");
        std::fs::write(&file, format!("#!/bin/sh\n{script}")).expect("a file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    fn read(&self, print: &str) -> Done {
        self.weir(&format!("--read file.json.gz --print {print}")).run()
    }

    fn found(&self) -> Value {
        self.read("json").well().json()
    }
}

fn step<'a>(file: &'a Value, name: &str) -> &'a Value {
    let steps = file["steps"].as_array().expect("steps");
    steps.iter().find(|step| step["step"] == name).unwrap_or_else(|| panic!("no step {name} in {file}"))
}

/// New findings of a step.
fn new(file: &Value, name: &str) -> Vec<String> {
    let findings = file["findings"].as_array().expect("findings").iter();
    findings.filter(|one| one["step"] == name && one["known"].is_null()).map(|one| one["what"].to_string()).collect()
}

/// Machines whose every limit is measured, and what is left out: what one device cannot show.
const PROFILES: [&str; 8] = ["a100", "v100", "gtx1080", "wsl2", "vgpu-guest", "mig-1g.10gb", "container", "jetson"];

pub(crate) fn checks(suite: &mut Suite) {
    for name in PROFILES {
        suite.add(format!("gpu-check: finds out what {name} is"), move || finds_out(name));
    }
    suite.add("gpu-check: two devices without access to each other", || {
        let machine = Machine::new();
        let environment = "VGPU_PROFILE=no-p2p VGPU_CONTEXT=16MiB";
        let _ = machine
            .check(&stage().vgpu(), "--device 0 --peer 1 --budget 512MiB --only probe,peers", environment)
            .well();
        let profile = machine.read("profile").well();
        assert!(profile.out.contains("VGPU_P2P=off\n") && profile.out.contains("VGPU_COPY=executing\n"), "{profile}");
    });
    suite.add("gpu-check: two devices whose work depends on each other, and memory is short", || {
        let machine = Machine::new();
        let environment = "VGPU_PROFILE=a100 VGPU_DEVICES=2 VGPU_CONTEXT=16MiB";
        let words = "--device 0 --peer 1 --budget 512MiB --only peers,peers-weir";
        let done = machine.check(&stage().vgpu(), words, environment).well();
        let file = machine.found();
        for (name, ways) in [("peers", &["nccl"][..]), ("peers-weir", &["kernels", "nccl"])] {
            let lines = step(&file, name)["lines"].as_array().expect("lines");
            let of = |way: &str| lines.iter().find(|line| line["kind"] == "collective" && line["way"] == way);
            for way in ways {
                let line = of(way).unwrap_or_else(|| panic!("no {way} in {file}"));
                assert!(line["code"] == 0 && line["wrong"] == false, "{line}\n{done}");
            }
            assert!(of("nccl").is_some_and(|line| line["rounds"].as_u64() > Some(1)), "{file}");
            // What one device had not finished was in the way of the other's request.
            assert!(of("kernels").is_none_or(|line| line["refused"] == 2), "{file}");
        }
    });
    suite.add("gpu-check: what it finds makes a profile that finds the same", || {
        let (first, second) = (Machine::new(), Machine::new());
        let words = "--device 0 --budget 512MiB --only probe";
        let _ = first.check(&stage().vgpu(), words, "VGPU_PROFILE=wsl2 VGPU_MEM=3GiB VGPU_EDITS=wait").well();
        let profile = first.read("profile").well().out;
        assert!(profile.contains("VGPU_EDITS=wait\n") && profile.contains("VGPU_RDMA=refused\n"), "{profile}");
        let file = second.0.at("profile");
        std::fs::write(&file, &profile).expect("a file");
        let _ = second.check(&stage().vgpu(), words, &format!("VGPU_PROFILE={}", file.display())).well();
        assert_eq!(second.read("profile").well().out, profile);
    });
    suite.add("gpu-check: latencies become a table of costs", || {
        let machine = Machine::new();
        let costs = "VGPU_COST=cuMemCreate=2ms,cuMemSetAccess=1ms/mapping VGPU_MEM=1GiB";
        let _ = machine.check(&stage().vgpu(), "--device 0 --budget 256MiB --time 60s --only latency", costs);
        let table = machine.read("cost").well().out;
        // Each call takes at least this: the machine may be slow, and is never fast.
        let nanoseconds = |row: &str| -> u64 {
            let digits: String = row.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or(0)
        };
        let row = |name: &str| table.split(name).nth(1).unwrap_or_else(|| panic!("no {name} in {table}"));
        assert!(nanoseconds(row("cuMemCreate=")) > 1_000_000, "{table}");
        assert!(row("cuMemSetAccess=").split(',').next().is_some_and(|row| row.contains("/mapping")), "{table}");
        let again = Job::python("machines/pool.py").arg("serves").on_vgpu().env("VGPU_COST", table.trim());
        let _ = again
            .set("VGPU_MEM=1GiB")
            .under(stage().weir())
            .env("WEIR_DIR", machine.0.at("tmp"))
            .set("WEIR_RING=16K")
            .run()
            .quiet();
    });
    suite.add("gpu-check: the pool's programs run with contents and are in the file", || {
        let machine = Machine::new();
        let environment = "VGPU_MEM=1GiB VGPU_CONTEXT=32MiB";
        let _ = machine
            .check(&stage().vgpu(), "--device 0 --budget 512MiB --time 4min --only doctor,pool", environment)
            .well();
        let file = machine.found();
        let result = &step(&file, "pool")["lines"][0];
        assert!(result["operations"].as_u64() > Some(1000) && result["refused"].as_u64() > Some(0), "{result}");
        // Under so small a cap the pool moves what is live, or what is free.
        assert!(result["remaps"].as_u64() > Some(0) && result["meshes"].as_u64() > Some(0), "{result}");
        assert!(step(&file, "doctor")["lines"][0]["ok"] == true);
    });
    faults(suite);
    suite.add("gpu-check: files that it has not written", || {
        let machine = Machine::new();
        for (content, words) in [
            (&b"nothing"[..], "not what weir gpu-check has written"),
            (b"", "not what weir gpu-check has written"),
            (&gzipped("{\"format\":\"other\"}"), "not what weir gpu-check has written"),
            (&gzipped("[1,"), "not what weir gpu-check has written"),
            (&gzipped("{\"format\":\"weir-gpu-check\",\"version\":99}"), "this weir reads version 1"),
        ] {
            std::fs::write(machine.file(), content).expect("a file");
            let done = machine.read("report").code(2);
            assert!(
                done.err.lines().count() == 1 && done.err.contains(words) && done.err.contains("file.json.gz"),
                "{done}"
            );
        }
        // Whatever is missing in a file of the right kind, nothing panics.
        for content in [
            "{}",
            "{\"steps\":7}",
            "{\"steps\":[7,{\"step\":\"latency\",\"lines\":[{\"kind\":\"latency\"}]}],\"findings\":[1]}",
        ] {
            let content = content.replacen('{', "{\"format\":\"weir-gpu-check\",\"version\":1,", 1).replace(",}", "}");
            std::fs::write(machine.file(), gzipped(&content)).expect("a file");
            let _ = machine.read("report").well();
        }
        let done = machine.weir("--read nowhere.gz").run().code(2);
        assert!(done.err.contains("nowhere.gz"), "{done}");
    });
}

fn gzipped(text: &str) -> Vec<u8> {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(text.as_bytes()).expect("memory");
    packed.finish().expect("memory")
}

/// On a profile nothing new is found, and what is found is the profile.
fn finds_out(name: &'static str) {
    let machine = Machine::new();
    let trace = machine.0.at("trace");
    let environment = format!("VGPU_PROFILE={name} VGPU_TRACE={}", trace.display());
    // Contents of so large a device take memory of this machine only where they are written.
    let budget = 768 * MIB;
    let _ =
        machine.check(&stage().vgpu(), "--device 0 --budget 768MiB --only doctor,probe,latency", &environment).well();
    let printed = machine.read("profile").well();
    let printed: BTreeMap<&str, &str> = printed.out.lines().filter_map(|line| line.split_once('=')).collect();
    let known = profile::find(name).expect("a profile");
    let mut compared = 0;
    for (variable, value) in known.switches {
        let found = match *variable {
            // One device does not show them.
            "VGPU_COPY" | "VGPU_P2P" => continue,
            // Without NVML nobody can say; on a device without mapped memory nothing can be tried.
            "VGPU_CONTEXT" | "VGPU_SYNC_MEMOPS" | "VGPU_PAGE_TABLES" if !printed.contains_key(variable) => {
                assert!(["jetson", "vgpu-guest", "mig-1g.10gb"].contains(&name), "no {variable}");
                continue;
            }
            variable => *printed.get(variable).unwrap_or_else(|| panic!("no {variable} in {printed:?}")),
        };
        let bytes = |text: &str| weir_settings::size::parse_bytes(text).ok();
        let same = match *variable {
            // What it does not fit into is known to a power of two.
            "VGPU_VA" => bytes(found) >= bytes(value),
            _ => found == *value || (bytes(found).is_some() && bytes(found) == bytes(value)),
        };
        assert!(same, "{variable} is {value}, and {found} was found");
        compared += 1;
    }
    assert!(compared >= 8, "only {compared} switches were compared");
    let peak = peak(&trace);
    assert!(peak > 0 && peak <= budget, "{peak} bytes at a time, with a budget of {budget}");
    let report = machine.read("report").well();
    assert!(
        report.out.contains(known.get("VGPU_NAME").unwrap_or("?")) && report.out.contains("\nfindings\n"),
        "{report}"
    );
}

/// The most that any process had requested at a time, by the virtual GPU's log.
fn peak(trace: &Path) -> u64 {
    let text = std::fs::read_to_string(trace).expect("the log");
    let mut held: BTreeMap<(u64, String), u64> = BTreeMap::new();
    let (mut now, mut most): (BTreeMap<u64, u64>, u64) = (BTreeMap::new(), 0);
    for line in text.lines() {
        let Ok(call) = serde_json::from_str::<Value>(line) else { continue };
        let (pid, arguments) = (call["pid"].as_u64().unwrap_or(0), &call["args"]);
        if call["result"] != "CUDA_SUCCESS" {
            continue;
        }
        let (taken, key) = match call["fn"].as_str().unwrap_or("") {
            "cuMemCreate" => (arguments["size"].as_u64().unwrap_or(0), &arguments["*handle"]),
            "cuMemAlloc_v2" => (arguments["bytesize"].as_u64().unwrap_or(0), &arguments["*dptr"]),
            "cuMemRelease" => (0, &arguments["handle"]),
            "cuMemFree_v2" => (0, &arguments["dptr"]),
            _ => continue,
        };
        let (key, total) = ((pid, key.to_string()), now.entry(pid).or_default());
        if taken > 0 {
            held.insert(key, taken);
            *total += taken;
            most = most.max(*total);
        } else {
            *total -= held.remove(&key).unwrap_or(0);
        }
    }
    most
}

/// Steps, and what makes a machine hang in each of them.
const HANGS: [(&str, &str, &str); 10] = [
    ("environment", "--time 10s --only doctor", "VGPU_COST=cuInit=60s"),
    ("doctor", "--time 10s --only doctor", "VGPU_COST=cuMemCreate=60s"),
    ("probe", "--time 10s --only probe", "VGPU_COST=cuMemCreate=60s"),
    ("latency", "--time 10s --only latency", "VGPU_COST=cuMemAlloc=60s"),
    ("conformance", "--time 90s --only conformance --rules memory.disjoint", "VGPU_COST=cuMemAlloc=60s"),
    ("conformance-weir", "--time 90s --only conformance-weir --rules memory.disjoint", "VGPU_COST=cuMemCreate=60s"),
    ("pool", "--time 10s --only pool", "VGPU_COST=cuMemCreate=60s"),
    ("tensorflow-bare", "--time 10s --only tensorflow --python ../python", ""),
    ("peers", "--time 10s --peer 1 --only peers", "VGPU_DEVICES=2 VGPU_COST=cuMemAlloc=60s"),
    ("peers-weir", "--time 10s --peer 1 --only peers-weir", "VGPU_DEVICES=2 VGPU_COST=cuMemCreate=60s"),
];

fn hangs(name: &str, words: &str, environment: &str) {
    let machine = Machine::new();
    machine.python("sleep 60");
    let words = format!("--device 0 --budget 512MiB {words}");
    let _ = machine.check(&stage().vgpu(), &words, &format!("VGPU_MEM=1GiB {environment}")).code(1);
    let file = machine.found();
    assert!(!new(&file, name).is_empty(), "nothing was found in {name}: {file}");
    // What came before is there.
    assert!(name == "environment" || step(&file, "environment")["end"] == "done", "{file}");
    assert!(machine.read("report").well().out.contains("\nfindings\n"));
}

/// Machines that hang, refuse and lie.
fn faults(suite: &mut Suite) {
    for (name, words, environment) in HANGS {
        suite.add(format!("gpu-check: a machine that hangs in {name} yields the file"), move || {
            hangs(name, words, environment);
        });
    }
    suite.add("gpu-check: one that is killed itself leaves what it knew", || {
        let machine = Machine::new();
        let words = "--device 0 --only doctor,latency --out file.json.gz";
        let job = machine.weir(words).env("LD_LIBRARY_PATH", stage().vgpu()).set("WEIR_RING=16K VGPU_MEM=1GiB");
        let mut check = job.set("VGPU_COST=cuMemAlloc=60s").start();
        eventually(|| {
            let file = machine.file().exists().then(|| machine.found())?;
            file["steps"].as_array()?.iter().any(|one| one["step"] == "latency").then_some(())
        });
        check.kill();
        let file = machine.found();
        assert!(step(&file, "environment")["end"] == "done" && step(&file, "doctor")["end"] == "done", "{file}");
        assert!(step(&file, "latency")["end"] == "open" && new(&file, "latency").len() == 1, "{file}");
        assert!(machine.read("report").well().out.contains("weir gpu-check itself was ended"));
    });
    suite.add("gpu-check: a directory that takes no file is known at once", || {
        let machine = Machine::new();
        let done = machine.weir("--device 0 --only probe --out nowhere/file").env("LD_LIBRARY_PATH", stage().vgpu());
        let done = done.set("VGPU_MEM=1GiB").run().code(2);
        assert!(done.err.contains("nowhere/file") && !done.err.contains("probe, at most"), "{done}");
    });
    suite.add("gpu-check: training that goes wrong under weir is found", || {
        let machine = Machine::new();
        machine.python(
            "case ${WEIR_TF_ALLOCATOR:-bare} in\n\
             bare) echo '{\"kind\": \"tensorflow\", \"version\": \"0\", \"first\": 2.0, \"last\": 1.0}';;\n\
             keep) echo '{\"kind\": \"tensorflow\", \"missing\": \"no GPU in TensorFlow\"}';;\n\
             pool) echo '{\"kind\": \"tensorflow\", \"version\": \"0\", \"first\": 2.0, \"last\": \"nan\"}';;\n\
             esac\n",
        );
        let words = "--device 0 --only tensorflow --python ../python";
        let _ = machine.check(&stage().vgpu(), words, "VGPU_MEM=1GiB").code(1);
        let file = machine.found();
        assert!(new(&file, "tensorflow-keep").iter().any(|what| what.contains("no GPU in TensorFlow")), "{file}");
        assert!(new(&file, "tensorflow-pool").iter().any(|what| what.contains("nan")), "{file}");
    });
    suite.add("gpu-check: a driver that waits for all work where weir takes memory yields the file", || {
        let machine = Machine::new();
        let environment = "VGPU_DEVICES=2 VGPU_MEM=1GiB VGPU_COST=cuMemCreate=work";
        let words = "--device 0 --peer 1 --budget 512MiB --time 40s --only peers-weir";
        let _ = machine.check(&stage().vgpu(), words, environment).code(1);
        let file = machine.found();
        assert!(step(&file, "peers-weir")["end"]["killed"].is_f64(), "{}", step(&file, "peers-weir"));
        assert!(new(&file, "peers-weir").iter().any(|what| what.contains("did not end")), "{file}");
    });
    suite.add("gpu-check: a machine that cannot even start the driver", || {
        let machine = Machine::new();
        let _ = machine.check(&stage().vgpu(), "", "VGPU_FAIL=cuInit=CUDA_ERROR_UNKNOWN").code(1);
        let file = machine.found();
        assert!(new(&file, "environment").iter().any(|what| what.contains("cuInit returned 999")), "{file}");
        assert_eq!(step(&file, "environment")["lines"][0]["kind"], "machine");
        let _ = machine.check(&stage().vgpu(), "", "VGPU_DEVICES=0").code(1);
    });
    suite.add("gpu-check: a refused call is found", || {
        let machine = Machine::new();
        let environment = "VGPU_FAIL=cuMemMap=CUDA_ERROR_NOT_SUPPORTED VGPU_MEM=1GiB";
        let _ = machine.check(&stage().vgpu(), "--device 0 --only probe", environment).code(1);
        assert!(new(&machine.found(), "probe").iter().any(|what| what.contains("cuMemMap returned 801")));
    });
    suite.add("gpu-check: wrong contents are found", || {
        let machine = Machine::new();
        let environment = "VGPU_FAULT=ignore_stream_order VGPU_MEM=1GiB";
        let done =
            machine.check(&stage().vgpu_with_faults(), "--device 0 --time 4min --only pool", environment).code(1);
        assert!(!new(&machine.found(), "pool").is_empty(), "{done}");
    });
    suite.add("gpu-check: a rule that does not hold is found, once", || {
        let machine = Machine::new();
        let environment = "VGPU_FAULT=zero_size VGPU_MEM=4GiB";
        let words = "--device 0 --only conformance --rules memory.";
        let _ = machine.check(&stage().vgpu_with_faults(), words, environment).code(1);
        let found = new(&machine.found(), "conformance");
        assert!(!found.is_empty() && found.iter().all(|what| what.contains("zero")), "{found:?}");
        let _ = machine
            .check(&stage().vgpu(), "--device 0 --only conformance,conformance-weir --rules memory.", "VGPU_MEM=4GiB")
            .well();
        let file = machine.found();
        for name in ["conformance", "conformance-weir"] {
            let lines = step(&file, name)["lines"].as_array().expect("lines");
            assert!(lines.iter().filter(|line| line["result"] == "pass").count() > 10, "{lines:?}");
        }
    });
    suite.add("gpu-check: a device that drives a display is left alone unless it is named", || {
        let machine = Machine::new();
        let trace = machine.0.at("trace");
        let environment = format!("VGPU_DISPLAY=on VGPU_MEM=1GiB VGPU_TRACE={}", trace.display());
        let done = machine.check(&stage().vgpu(), "--only probe", &environment).code(2);
        assert!(done.err.contains("--device") && crate::calls(&trace, "cuDevicePrimaryCtxRetain") == 0, "{done}");
        let _ = machine.check(&stage().vgpu(), "--device 0 --only probe", &environment).well();
        assert!(crate::calls(&trace, "cuDevicePrimaryCtxRetain") > 0);
    });
    suite.add("gpu-check: bad words", || {
        let machine = Machine::new();
        for (words, said) in [
            ("--device 7", "no device 7"),
            ("--device 0 --peer 0", "the same device"),
            ("--only sleep", "no such step"),
            ("--budget 1MiB", "less than 256 MiB"),
            ("--time 1h", "not between 10s and 10min"),
        ] {
            let done = machine.check(&stage().vgpu(), words, "VGPU_MEM=1GiB").code(2);
            assert!(done.err.contains(said) && !machine.file().exists(), "{done}");
        }
    });
}
