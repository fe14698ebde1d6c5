//! `weir gpu-check`: what whoever has a GPU can run once, and the one file that comes back.
//!
//! Each step is a child process of its own with a bound on its time: one that hangs or crashes costs itself, and the file is
//! written all the same. This process never loads the driver. `--read` renders such a file.

mod collectives;
mod conclusion;
mod cuda;
mod environment;
mod fit;
mod latency;
mod peers;
mod probe;
mod show;
mod step;

use crate::{library, output, signals};
use clap::{Args, ValueEnum};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::Pid;
use serde_json::{Value, json};
use std::ffi::CStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use step::{End, Step};
use weir_settings::size::{human, parse_duration, parse_size};

/// Ends with the zero that the driver expects.
const KERNELS: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("../../../tests/kernels.ptx"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the kernels have a zero inside"),
    };
const TRAIN: &str = include_str!("gpu_check/train.py");
const LONGEST: Duration = Duration::from_secs(600);
/// What the pool's random programs may take besides the context.
const POOL_ROOM: u64 = 192 << 20;
/// What a context takes, where it could not be measured.
const CONTEXT: u64 = 512 << 20;

/// Arguments of `weir gpu-check`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  weir gpu-check                                       the first device that drives no display
  weir gpu-check --device 1 --budget 1GiB
  weir gpu-check --read gpu-check-1700000000.json.gz   what is in the file
  weir gpu-check --read FILE --print profile > here    a profile for the virtual GPU: VGPU_PROFILE=./here

It needs no compiler and no root, takes no more device memory than --budget and no longer than --time, and leaves
nothing behind but the file. The file has no names of users, machines or directories. Exit code: 0 if nothing new was
found, 1 if something was, 2 if it could not run.")]
pub(crate) struct Arguments {
    /// The device, as this process counts them; default: the first that drives no display
    #[arg(long, value_name = "N")]
    device: Option<u32>,
    /// A second device: copies between the two, and work of one that waits for the other's, are tried as well
    #[arg(long, value_name = "N")]
    peer: Option<u32>,
    /// Device memory that is taken at most, contexts included
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = budget)]
    budget: u64,
    /// Time for all steps together, at most 10min
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = time)]
    time: Duration,
    /// Only these steps, and environment: doctor, probe, latency, conformance, conformance-weir, pool, tensorflow, peers, peers-weir
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<String>,
    /// Only rules of the conformance suite whose name contains this
    #[arg(long, value_name = "TEXT")]
    rules: Option<String>,
    /// The interpreter that may have TensorFlow
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// The file to write; default: gpu-check-<seconds since 1970>.json.gz here
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Render such a file instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "peer", "out"])]
    read: Option<PathBuf>,
    /// What of the file to print
    #[arg(long, value_enum, default_value_t = show::Print::Report, requires = "read")]
    print: show::Print,
    /// The libweir.so to check, instead of the one beside this command
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

fn budget(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes < 256 << 20 { Err("less than 256 MiB; expected a size like 2GiB".to_owned()) } else { Ok(bytes) }
}

fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    let bounds = Duration::from_secs(10)..=LONGEST;
    if bounds.contains(&time) { Ok(time) } else { Err("not between 10s and 10min".to_owned()) }
}

/// What the command runs in a child: one step, whose results are lines of JSON.
#[derive(Args)]
pub(crate) struct StepArguments {
    step: Child,
    #[arg(long, default_value_t = 0)]
    budget: u64,
    #[arg(long, default_value_t = 1)]
    seconds: u64,
    #[arg(long)]
    peer: bool,
    /// Memory is short
    #[arg(long)]
    pressure: bool,
}

/// The steps that are this command's own.
#[derive(Clone, Copy, ValueEnum)]
enum Child {
    Environment,
    Probe,
    Latency,
    Peers,
}

/// Prints one result of a step.
fn say(value: &Value) {
    output::json(value, false);
}

/// Runs one step, in the child.
pub(crate) fn run_step(arguments: &StepArguments) -> ExitCode {
    let done = match arguments.step {
        Child::Environment => environment::run(),
        Child::Probe => probe::run(arguments.peer),
        Child::Latency => latency::run(arguments.budget, Duration::from_secs(arguments.seconds), arguments.peer),
        Child::Peers => peers::run(arguments.pressure, Duration::from_secs(arguments.seconds)),
    };
    if let Err(problem) = done {
        say(&json!({"kind": "problem", "what": problem}));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.read {
        Some(file) => show::run(file, arguments.print).map(|()| ExitCode::SUCCESS),
        None => check(arguments),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("weir gpu-check: {problem}");
        ExitCode::from(2)
    })
}

/// A directory that is gone in the end, with what the steps have written.
struct Workplace(PathBuf);

impl Workplace {
    fn new() -> Result<Self, String> {
        let place = std::env::temp_dir().join(format!("weir-gpu-check-{}", std::process::id()));
        std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700)
            .create(&place)
            .map_err(|error| format!("{}: {error}", place.display()))?;
        Ok(Self(place))
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What all steps share.
struct Checking<'a> {
    arguments: &'a Arguments,
    place: Workplace,
    library: PathBuf,
    end: Instant,
    /// The file that is sent back, and when all began, in seconds since 1970.
    out: PathBuf,
    when: u64,
    /// The device, once it is chosen.
    device: Option<u32>,
    steps: Vec<Value>,
}

fn check(arguments: &Arguments) -> Result<ExitCode, String> {
    for name in &arguments.only {
        if !step::NAMES.contains(&name.as_str()) {
            return Err(format!("--only {name}: no such step; expected some of {}", step::NAMES.join(", ")));
        }
    }
    signals::end_on_request();
    let when = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let out = arguments.out.clone().unwrap_or_else(|| format!("gpu-check-{when}.json.gz").into());
    let own = std::env::current_exe().map_err(|error| format!("cannot find the path of this command: {error}"))?;
    let mut checking = Checking {
        arguments,
        place: Workplace::new()?,
        library: library::loadable(&library::find(arguments.library.as_deref())?)?,
        end: Instant::now() + arguments.time,
        out,
        when,
        device: None,
        steps: Vec::new(),
    };
    checking.device = checking.environment(&own)?;
    let Some(chosen) = checking.device else { return checking.finish() };
    // Before anything is taken: what the user has named, or a device that shows nothing to anybody.
    let visible = |ordinal: u32| match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) if !list.is_empty() => {
            list.split(',').nth(ordinal as usize).map_or_else(|| ordinal.to_string(), |entry| entry.trim().to_owned())
        }
        _ => ordinal.to_string(),
    };
    let mut devices = visible(chosen);
    if let Some(peer) = arguments.peer {
        devices = format!("{devices},{}", visible(peer));
    }
    // Whether it can be written is known before ten minutes have gone.
    checking.save()?;
    checking.all(&own, &devices);
    checking.finish()
}

/// Writes the file, without the paths of the user's own directory.
fn write(out: &Path, file: &Value) -> std::io::Result<()> {
    let mut text = file.to_string();
    if let Some(home) = std::env::var("HOME").ok().filter(|home| home.len() > 3) {
        text = text.replace(&home, "~");
    }
    output::whole(out, |file| -> std::io::Result<()> {
        let mut packed = GzEncoder::new(file, Compression::default());
        packed.write_all(text.as_bytes())?;
        let file = packed.finish()?;
        // A machine that has to be switched off must not lose it; a pipe cannot be told so.
        let _ = file.sync_all();
        Ok(())
    })
}

impl Checking<'_> {
    /// Writes what there is. Returns the findings.
    fn write(&self) -> Result<Vec<Value>, String> {
        let arguments = self.arguments;
        let findings = conclusion::findings(&self.steps);
        let file = json!({
            "format": show::FORMAT, "version": show::VERSION, "weir": env!("CARGO_PKG_VERSION"), "when": self.when,
            "device": self.device, "peer": arguments.peer, "budget": arguments.budget, "steps": self.steps,
            "findings": findings,
        });
        write(&self.out, &file).map_err(|error| format!("{}: {error}", self.out.display()))?;
        Ok(findings)
    }

    /// The same before the end: should this command be killed, or the machine hang as a whole, so much has been kept. What
    /// is no file, such as a pipe, is written to once.
    fn save(&self) -> Result<(), String> {
        if self.device.is_none() || fs::metadata(&self.out).is_ok_and(|found| !found.is_file()) {
            return Ok(());
        }
        self.write().map(drop)
    }

    /// Writes the file and says what is new in it.
    fn finish(self) -> Result<ExitCode, String> {
        let findings = self.write()?;
        let out = &self.out;
        let new = findings.iter().filter(|finding| finding["known"].is_null()).count();
        for finding in &findings {
            putln!("{}", show::finding(finding));
        }
        let size = fs::metadata(out).map_or(0, |file| file.len());
        putln!("{} steps, {new} new findings; {} ({})", self.steps.len(), out.display(), human(size));
        putln!("weir gpu-check --read {} shows what is in it. Please send it back, whatever was found.", out.display());
        Ok(if new == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The first step, and the device that the others use; none if the driver shows none, which is a finding.
    fn environment(&mut self, own: &Path) -> Result<Option<u32>, String> {
        let mut command = Command::new(own);
        command.args(["gpu-check-step", "environment"]);
        self.step("environment", command);
        let lines = self.steps.last().and_then(|step| step["lines"].as_array()).cloned().unwrap_or_default();
        let devices: Vec<Value> = lines.into_iter().filter(|line| line["kind"] == "device").collect();
        if devices.is_empty() {
            return Ok(None);
        }
        let number = |device: &Value| device["ordinal"].as_u64().unwrap_or(0) as u32;
        for wanted in [self.arguments.device, self.arguments.peer].into_iter().flatten() {
            if !devices.iter().any(|device| number(device) == wanted) {
                return Err(format!("no device {wanted}; there are {}", devices.len()));
            }
        }
        if let Some(wanted) = self.arguments.device {
            if self.arguments.peer == Some(wanted) {
                return Err(format!("--peer {wanted} is the same device as --device {wanted}"));
            }
            return Ok(Some(wanted));
        }
        let free = devices.iter().find(|device| !displays(device) && Some(number(device)) != self.arguments.peer);
        free.map(|device| Some(number(device)))
            .ok_or_else(|| "each device may drive a display; name one with --device to use it".to_owned())
    }

    fn all(&mut self, own: &Path, devices: &str) {
        let (budget, peer) = (self.arguments.budget, self.arguments.peer.is_some());
        let place = self.place.0.clone();
        let program = |name: &str| runnable(beside(own, name)?, &place);
        let child = |name: &str, planned: Duration| {
            let mut command = Command::new(own);
            command.args([
                "gpu-check-step",
                name,
                "--budget",
                &(budget * 3 / 4).saturating_sub(CONTEXT / 4).to_string(),
            ]);
            command.args(["--seconds", &(planned.as_secs() * 7 / 10).max(1).to_string()]);
            if peer {
                command.arg("--peer");
            }
            command
        };
        for name in step::NAMES {
            let planned = self.planned(name);
            let patience = (planned.as_secs() * 8 / 10).max(1).to_string();
            let mut command = match name {
                "doctor" => {
                    let mut command = Command::new(own);
                    command.args(["doctor", "--json", "--library"]).arg(&self.library);
                    command
                }
                "peers" | "peers-weir" if !peer => {
                    self.skip(name, "--peer names no second device");
                    continue;
                }
                "probe" | "latency" | "peers" => child(name, planned),
                "peers-weir" => {
                    let mut command = child("peers", planned);
                    command.arg("--pressure");
                    command
                }
                "conformance" | "conformance-weir" => {
                    let Some(program) = program("conformance") else {
                        self.skip(name, "no program conformance beside weir");
                        continue;
                    };
                    let mut command = Command::new(program);
                    command.args(["--lines", "--portable", "--seconds", &patience]);
                    command.args(["--budget", &budget.to_string()]);
                    if let Some(rules) = &self.arguments.rules {
                        command.args(["--filter", rules]);
                    }
                    command
                }
                "pool" => {
                    let Some(program) = program("pool-soak") else {
                        self.skip(name, "no program pool-soak beside weir");
                        continue;
                    };
                    let mut command = Command::new(program);
                    command.args(["1000000", "--threads", "2", "--streams", "4", "--seconds"]);
                    command.arg((planned.as_secs() / 2).max(1).to_string());
                    command
                }
                "tensorflow" => {
                    self.tensorflow(devices);
                    continue;
                }
                _ => continue,
            };
            command.env("CUDA_VISIBLE_DEVICES", devices);
            match name {
                // Page tables are charged to nobody.
                "conformance-weir" => self.under_weir(&mut command, budget / 16 * 15),
                "pool" | "peers-weir" => {
                    let cap = (self.context() + POOL_ROOM).min(budget);
                    self.under_weir(&mut command, cap);
                }
                _ => {}
            }
            self.step(name, command);
        }
    }

    /// Three runs of one small training job: bare, with TensorFlow's own allocator, with weir's pool.
    fn tensorflow(&mut self, devices: &str) {
        let bound = self.bound("tensorflow");
        for name in ["tensorflow-bare", "tensorflow-keep", "tensorflow-pool"] {
            let mut command = Command::new(&self.arguments.python);
            command.args(["-B", "-c", TRAIN]).env("CUDA_VISIBLE_DEVICES", devices);
            // What the context and TensorFlow's libraries take comes on top.
            let limit = (self.arguments.budget / 4) >> 20;
            command.arg(if name == "tensorflow-pool" { "0".to_owned() } else { limit.to_string() });
            match name {
                "tensorflow-bare" => {}
                other => {
                    let how = other.trim_start_matches("tensorflow-");
                    self.under_weir(&mut command, self.arguments.budget);
                    command.env("WEIR_TF_ALLOCATOR", how);
                }
            }
            self.timed("tensorflow", name, command, bound / 3);
            let last = self.steps.last();
            let missing =
                last.and_then(|step| Some(step["lines"].as_array()?.iter().any(|line| !line["missing"].is_null())));
            if name == "tensorflow-bare" && missing != Some(false) {
                break;
            }
        }
    }

    /// What the probe saw the context take.
    fn context(&self) -> u64 {
        let lines = self.steps.iter().filter_map(|step| step["lines"].as_array()).flatten();
        let mut taken = lines.filter(|line| line["kind"] == "taken" && line["by"] == "context");
        taken.find_map(|line| line["bytes"].as_u64()).unwrap_or(CONTEXT)
    }

    fn under_weir(&self, command: &mut Command, cap: u64) {
        command.env("LD_PRELOAD", library::preload(&self.library)).env("WEIR_CAP", cap.to_string());
    }

    /// What a step plans with: its share of the time.
    fn planned(&self, name: &str) -> Duration {
        self.arguments.time.mul_f64(step::share(name))
    }

    /// When a step is killed: what it leaves of the time belongs to the other steps that are wanted.
    fn bound(&self, name: &str) -> Duration {
        let wanted = step::NAMES.iter().copied().chain(["environment"]).filter(|name| self.wanted(name));
        self.arguments.time.mul_f64(step::share(name) / wanted.map(step::share).sum::<f64>())
    }

    fn wanted(&self, name: &str) -> bool {
        let only = &self.arguments.only;
        name == "environment" || only.is_empty() || only.iter().any(|wanted| wanted == name)
    }

    fn skip(&mut self, name: &str, why: &str) {
        if self.wanted(name) {
            self.steps.push(json!({"step": name, "end": {"skipped": why}, "lines": []}));
        }
    }

    fn step(&mut self, name: &str, command: Command) {
        self.timed(name, name, command, self.bound(name));
    }

    /// Runs a step to its end or its bound and keeps what it printed.
    fn timed(&mut self, wanted: &str, name: &str, mut command: Command, bound: Duration) {
        if !self.wanted(wanted) {
            return;
        }
        if signals::end_requested() {
            return self.skip(wanted, "interrupted");
        }
        self.steps.push(json!({"step": name, "end": "open", "lines": []}));
        let _ = self.save();
        eprintln!("weir gpu-check: {name}, at most {} s", bound.as_secs());
        for (variable, _) in std::env::vars_os() {
            let own = variable.to_string_lossy().starts_with("WEIR_");
            if own && !command.get_envs().any(|(name, _)| name == variable) {
                command.env_remove(variable);
            }
        }
        let place = &self.place.0;
        // A cache of compiled kernels would stay behind.
        command.env("WEIR_DIR", place).env("TMPDIR", place).env("CUDA_CACHE_DISABLE", "1").env("WEIR_OOM_TEXT", "off");
        let bound = bound.min(self.end.saturating_duration_since(Instant::now()));
        let step = Step::run(command, bound);
        let end = match step.end {
            End::Done => json!("done"),
            End::Failed(how) => json!({"failed": how}),
            End::Killed => json!({"killed": bound.as_secs_f64()}),
            End::Interrupted => json!({"skipped": "interrupted"}),
        };
        self.steps.pop();
        self.steps.push(json!({
            "step": name, "end": end, "seconds": step.took.as_secs_f64(), "lines": step.lines, "stderr": step.stderr,
        }));
    }
}

/// Whether a device may drive a display: NVML says so, or kernels may only run for so long on it.
fn displays(device: &Value) -> bool {
    const KERNEL_EXEC_TIMEOUT: &str = "17";
    device["display"] == true || device["attributes"][KERNEL_EXEC_TIMEOUT].as_i64().unwrap_or(0) != 0
}

/// A program that comes with weir: `../check` as built, `../lib/weir/check` as installed by a package.
fn beside(own: &Path, name: &str) -> Option<PathBuf> {
    let home = own.parent()?;
    ["../check", "../lib/weir/check"]
        .iter()
        .map(|folder| home.join(folder).join(name))
        .find_map(|path| path.canonicalize().ok())
}

/// The same, or a copy of it that can be run: a wheel may not keep the mode of what it installs.
fn runnable(program: PathBuf, place: &Path) -> Option<PathBuf> {
    if fs::metadata(&program).ok()?.permissions().mode() & 0o111 != 0 {
        return Some(program);
    }
    let copy = place.join(program.file_name()?);
    fs::copy(&program, &copy).ok()?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).ok()?;
    Some(copy)
}

/// The process group of a child.
fn group(child: u32) -> Option<Pid> {
    Pid::from_raw(child as i32)
}
