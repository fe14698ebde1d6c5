//! `weir doctor`: whether weir works here, and if not, why.
//!
//! It starts a child under the preload, which reaches the driver through every entry point, and checks what
//! the child saw and the status that the library reports. The exit code is 0 if all is well, else 1.

use crate::{library, output};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use weir_settings::size::human;

/// How long a driver may take to initialise before the child is killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many notes of earlier processes are shown.
const NOTES: usize = 10;

/// Arguments of `weir doctor`.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  weir doctor
  weir run --vgpu 8GiB -- weir doctor        with the virtual GPU in the driver's place
  weir doctor --json | jq '.checks'")]
pub(crate) struct Arguments {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// The libweir.so to examine, instead of the one beside this command
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

/// One thing that was looked at.
struct Check {
    subject: &'static str,
    /// `None`: worth knowing, neither good nor bad.
    ok: Option<bool>,
    finding: String,
}

#[derive(Default)]
struct Findings(Vec<Check>);

impl Findings {
    fn check(&mut self, subject: &'static str, ok: bool, finding: impl Into<String>) {
        self.add(subject, Some(ok), finding.into());
    }

    fn note(&mut self, subject: &'static str, finding: impl Into<String>) {
        self.add(subject, None, finding.into());
    }

    fn add(&mut self, subject: &'static str, ok: Option<bool>, finding: String) {
        self.0.push(Check { subject, ok, finding });
    }

    fn well(&self) -> bool {
        self.0.iter().all(|c| c.ok != Some(false))
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut findings = Findings::default();
    let seen = examine(arguments.library.as_deref(), &mut findings);
    let well = findings.well();
    if arguments.json {
        let checks: Vec<_> =
            (findings.0.iter()).map(|c| json!({"subject": c.subject, "ok": c.ok, "finding": c.finding})).collect();
        output::json(&json!({"ok": well, "checks": checks, "seen": seen}), true);
    } else {
        put!("{}", text(&findings, &seen));
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn text(findings: &Findings, seen: &Value) -> String {
    let mut out = String::new();
    for check in &findings.0 {
        let mark = match check.ok {
            Some(true) => "ok  ",
            Some(false) => "FAIL",
            None => "    ",
        };
        let _ = writeln!(out, "{mark}  {:<14} {}", check.subject, check.finding);
    }
    out.push_str("\nsettings\n");
    for setting in list(&seen["status"]["settings"]) {
        let value = match text_of(&setting["value"]) {
            "" => "(none)",
            value => value,
        };
        let (name, origin) = (text_of(&setting["name"]), text_of(&setting["origin"]));
        let _ = writeln!(out, "      {name:<18} {value}  ({origin})");
    }
    out.push_str(if findings.well() {
        "\nNo problem found.\n"
    } else {
        "\nProblems found: see the lines marked FAIL.\n"
    });
    out
}

fn examine(given: Option<&Path>, findings: &mut Findings) -> Value {
    let library = match library::find(given) {
        Ok(path) => path,
        Err(error) => {
            findings.check("library", false, error);
            return Value::Null;
        }
    };
    let (seen, complaints, child) = match probe(&library) {
        Ok(all) => all,
        Err(error) => {
            findings.check("library", true, library.display().to_string());
            findings.check("child", false, error);
            return Value::Null;
        }
    };
    judge(&library, &seen, child, findings);
    for line in complaints.lines().filter(|l| !l.starts_with("weir: ")) {
        findings.note("stderr", line);
    }
    seen
}

fn judge(library: &Path, seen: &Value, child: u32, findings: &mut Findings) {
    let status = &seen["status"];
    if status.is_null() {
        findings.check("library", false, format!("{} was not loaded into the child process", library.display()));
        return;
    }
    let version = text_of(&status["version"]);
    findings.check("library", version == env!("CARGO_PKG_VERSION"), format!("{} {version}", library.display()));
    let early = seen["visible_before"].as_bool() == Some(true);
    if early {
        findings.note("inert", "the driver was loaded before the child process loaded it");
    } else {
        findings.check("inert", true, "a process without CUDA sees no driver");
    }
    judge_driver(seen, findings);
    for entry in list(&seen["entry_points"]) {
        findings.check(
            "entry point",
            entry["ok"] == true,
            format!("{} returns {}", text_of(&entry["name"]), entry["library"].as_str().unwrap_or("nothing")),
        );
    }
    for problem in list(&status["problems"]) {
        findings.check("settings", false, text_of(problem));
    }
    if let Some(refused) = status["refused"].as_str() {
        findings.check("limit", false, format!("cuInit fails because a limit cannot be enforced: {refused}"));
    }
    if let Some(off) = status["off"].as_str() {
        findings.check("effect", false, format!("weir is disabled for this process: {off}"));
    }
    if let Some(what) = status["remembered"].as_str() {
        findings.check("effect", false, what);
    }
    for (device, result) in list(&seen["pools"]).iter().enumerate() {
        if result.as_i64() != Some(0) {
            findings
                .note("pool", format!("device {device}: not tried, a context or its memory was refused ({result})"));
        }
    }
    for choice in list(&status["choices"]) {
        match text_of(&choice["subject"]) {
            "pool" => findings.note("pool", text_of(&choice["choice"])),
            subject => findings.note("choice", format!("{subject}: {}", text_of(&choice["choice"]))),
        }
    }
    if let Some(tensors) = status["tensors"].as_str() {
        findings.note("tensors", format!("in a TensorFlow job: {tensors}"));
    }
    let dir = (list(&status["settings"]).iter()).find(|s| s["name"] == "WEIR_DIR").map(|s| text_of(&s["value"]));
    if let Some(dir) = dir {
        for note in notes(Path::new(dir), child) {
            findings.note("earlier", note);
        }
    }
}

fn judge_driver(seen: &Value, findings: &mut Findings) {
    let driver = &seen["status"]["driver"];
    if let Some(error) = seen["driver_error"].as_str() {
        findings.check("driver", false, format!("not found: {error}"));
        return;
    }
    let path = driver["path"].as_str().unwrap_or("not found by weir");
    match driver["version"].as_i64() {
        Some(v) => {
            let version = format!("CUDA {}.{}", v / 1000, v % 1000 / 10);
            findings.check("driver", true, format!("{path}, {version}"));
        }
        None => findings.check("driver", false, format!("{path}, version unknown")),
    }
    if let Some(error) = seen["nvml_error"].as_str() {
        findings.note("nvml", format!("not found: {error}"));
    }
    match seen["init"].as_i64() {
        Some(0) => {
            let devices = list(&seen["devices"]);
            let sizes: Vec<_> = devices.iter().map(|d| human(d["bytes"].as_u64().unwrap_or(0))).collect();
            findings.check("devices", !devices.is_empty(), format!("{} ({})", devices.len(), sizes.join(", ")));
        }
        Some(code) => findings.check("devices", false, format!("cuInit returned {code}")),
        None => findings.check("devices", false, "cuInit could not be called"),
    }
    judge_hooks(driver, !list(&seen["devices"]).is_empty(), findings);
}

fn judge_hooks(driver: &Value, called: bool, findings: &mut Findings) {
    let hooks = list(&driver["hooks"]);
    let present = hooks.iter().filter(|h| h["present"] == true).count();
    findings.check("hooks", present > 0, format!("{present} of the driver's functions are intercepted"));
    let mut topics: Vec<(&str, usize)> = Vec::new();
    for hook in hooks {
        let topic = text_of(&hook["topic"]);
        match topics.iter_mut().find(|(name, _)| *name == topic) {
            Some((_, count)) => *count += 1,
            None => topics.push((topic, 1)),
        }
    }
    let topics: Vec<_> = topics.iter().map(|(name, count)| format!("{name} {count}")).collect();
    findings.note("hooks", topics.join(", "));
    let counted = (hooks.iter()).any(|h| h["symbol"] == "cuDeviceTotalMem_v2" && h["calls"].as_u64() > Some(0));
    if called {
        findings.check("calls", counted, "a test call was intercepted");
    }
    let absent = hooks.len() - present;
    if absent > 0 {
        findings.note("hooks", format!("{absent} known functions are missing in this driver"));
    }
    let unknown = list(&driver["unknown"]);
    if !unknown.is_empty() {
        let names: Vec<_> = unknown.iter().map(text_of).collect();
        findings.note(
            "hooks",
            format!("{} unknown functions of this driver are passed through: {}", names.len(), names.join(" ")),
        );
    }
}

/// Starts the child under the preload; what it printed, what it had on standard error, and its id.
fn probe(library: &Path) -> Result<(Value, String, u32), String> {
    let command = std::env::current_exe().map_err(|e| format!("cannot find the path of this command: {e}"))?;
    let mut child = Command::new(command)
        .arg("probe")
        .env("LD_PRELOAD", library::preload(&library::loadable(library)?))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start a child process: {e}"))?;
    let mut out = child.stdout.take();
    let mut err = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = err.as_mut().map(|e| e.read_to_string(&mut text));
        text
    });
    let printer = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = out.as_mut().map(|o| o.read_to_string(&mut text));
        text
    });
    let how = wait(&mut child)?;
    let printed = printer.join().unwrap_or_default();
    let complaints = reader.join().unwrap_or_default();
    serde_json::from_str(printed.trim())
        .map(|seen| (seen, complaints.clone(), child.id()))
        .map_err(|_| format!("the child process ended without a result ({how}): {complaints}"))
}

fn wait(child: &mut Child) -> Result<String, String> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.to_string()),
            Ok(None) if start.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the child process did not end within {} s", PATIENCE.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => return Err(format!("lost the child process: {error}")),
        }
    }
}

/// Notes that earlier processes left when weir disabled itself in them, newest first. That of the
/// child is removed: the checks have reported it.
fn notes(dir: &Path, child: u32) -> Vec<String> {
    let mut notes: Vec<_> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("note-") && name.ends_with(".json")
        })
        .filter_map(|entry| {
            let mut text = String::new();
            let file = std::fs::File::open(entry.path()).ok()?;
            file.take(64 << 10).read_to_string(&mut text).ok()?;
            let note: Value = serde_json::from_str(&text).ok()?;
            if note["pid"] == child {
                let _ = std::fs::remove_file(entry.path());
                return None;
            }
            Some(note)
        })
        .collect();
    notes.sort_by_key(|note| std::cmp::Reverse(note["time_ms"].as_u64()));
    notes
        .iter()
        .take(NOTES)
        .map(|note| format!("pid {} {}: {}", note["pid"], text_of(&note["program"]), text_of(&note["reason"])))
        .collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
