//! One run of a job on the virtual GPU, and what its journals say of it.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use weir_forensics::replay::{Policy, Requests, Settings, smallest_cap};
use weir_forensics::{Run, is_held, roles, runs};
use weir_journal::reader::{Error, Slot};
use weir_journal::{Class, Kind, LiveEntry};

use super::Backing;
use super::gpus::Gpu;
use super::job::Job;
use crate::watch::{LiveHolder, holders_of};
use crate::{library, signals};

/// Time for a job to end when it is asked to.
const GRACE: Duration = Duration::from_secs(10);

/// Time between two looks at this machine's memory.
const LOOK: Duration = Duration::from_millis(200);
/// Events beyond which requests are not replayed.
const MOST_REPLAYED: u64 = 4_000_000;

/// What all runs of a job have in common.
pub(crate) struct Conditions {
    /// The job.
    pub(crate) job: Job,
    library: PathBuf,
    vgpu: PathBuf,
    backing: Backing,
    context: u64,
    devices: u8,
    /// How long a run may take.
    pub(crate) limit: Option<Duration>,
    /// Where its output goes.
    pub(crate) output: Output,
}

/// Where the output of a job goes.
pub(crate) enum Output {
    /// To this command's standard error.
    Shown,
    /// Nowhere.
    Hidden,
    /// To the end of a file.
    File(PathBuf),
}

/// How a run ended.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "how")]
pub(crate) enum Ending {
    /// By itself.
    Exit {
        /// With this code.
        code: i32,
    },
    /// By a signal.
    Signal {
        /// Which one.
        number: i32,
    },
    /// It was stopped because its time was over.
    Stopped,
    /// It was stopped because what it wrote to the device filled this machine's memory.
    Starved,
}

/// What a job took from one device at its peak.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Peak {
    /// The most physical bytes.
    pub(super) taken: u64,
    /// The least into which the same requests go: with room the pool takes more than it needs.
    pub(super) enough: u64,
    /// The same for TensorFlow's own allocator.
    pub(super) enough_stock: Option<u64>,
    /// The most bytes that the job held.
    pub(super) live: u64,
    /// In so many allocations.
    pub(super) blocks: u64,
    /// When that was, in seconds since the recording began.
    pub(super) at: f64,
    /// Whether earlier events were overwritten, so that an earlier peak may be missing.
    pub(super) incomplete: bool,
    /// What it was for, as far as names show, largest first.
    pub(super) roles: Vec<(&'static str, u64)>,
    /// Who held it, largest first.
    pub(super) holders: Vec<LiveHolder>,
}

/// A run, and its journals.
#[derive(Debug, Serialize)]
pub(crate) struct Trial {
    /// How it ended.
    pub(crate) ending: Ending,
    /// How long it took, in seconds.
    pub(crate) seconds: f64,
    /// Processes that used a device.
    pub(crate) processes: usize,
    /// Requests that failed for want of memory.
    pub(super) ooms: u64,
    /// Bytes that the context takes, on top.
    pub(super) context: u64,
    /// The device with the largest peak; of several processes, their peaks added up.
    pub(super) peak: Peak,
    /// Whether it ran out of memory, or failed and had tried for memory in vain.
    #[serde(skip)]
    pub(crate) ran_out: bool,
    /// Its journals, until this goes away.
    #[serde(skip)]
    pub(crate) journals: Scratch,
}

impl Trial {
    /// Whether the job got all the memory that it needed; none when the run says nothing of that.
    pub(super) fn fits(&self) -> Option<bool> {
        match (&self.ending, self.ooms, self.processes) {
            (_, _, 0) => None,
            (Ending::Exit { code: 0 } | Ending::Stopped, ..) => Some(true),
            (_, 1.., _) => Some(false),
            _ => None,
        }
    }

    /// What a device must have for this: room for the requests and for each process's context.
    pub(super) fn need(&self) -> u64 {
        self.peak.enough.saturating_add(self.context.saturating_mul(self.processes as u64))
    }
}

impl Trial {
    /// The same for stock TensorFlow's allocator, where the requests could be replayed.
    pub(super) fn need_stock(&self) -> Option<u64> {
        let stock = self.peak.enough_stock?;
        Some(stock.saturating_add(self.context.saturating_mul(self.processes as u64)))
    }
}

impl Conditions {
    /// Runs of a job on so many devices, on each of which a context takes so much; for the rest see `weir plan`.
    pub(crate) fn new(job: Job, vgpu: Option<&Path>, devices: u8, context: u64) -> Result<Self, String> {
        Ok(Self {
            job,
            library: library::loadable(&library::find(None)?)?,
            vgpu: library::find_vgpu(vgpu)?,
            backing: Backing::Auto,
            context,
            devices,
            limit: None,
            output: Output::Hidden,
        })
    }

    /// The same with device memory that has content, or has none.
    pub(super) fn backed(self, backing: Backing) -> Self {
        Self { backing, ..self }
    }

    /// Runs the job on such a GPU, with one variable set if wanted, and finds out what it needs.
    pub(super) fn run(&self, gpu: &Gpu, variable: Option<(&str, u64)>) -> Result<Trial, String> {
        let variable = variable.map(|(name, value)| (name.to_owned(), value.to_string()));
        let mut trial = self.attempt(gpu, variable.as_slice())?;
        let mut devices: HashMap<u8, Peak> = HashMap::new();
        for path in runs::files(&trial.journals.0).map_err(|error| error.to_string())? {
            let run = Run::open(&path).map_err(|error| error.to_string())?;
            let peaks = peaks(&run).map_err(|error| format!("{} {error}", path.display()))?;
            for (device, peak) in peaks {
                add(devices.entry(device).or_default(), peak);
            }
        }
        trial.peak = devices.into_values().max_by_key(|peak| peak.taken).unwrap_or_default();
        Ok(trial)
    }

    /// Runs the job on such a GPU, with these variables on top of its own.
    pub(crate) fn attempt(&self, gpu: &Gpu, variables: &[(String, String)]) -> Result<Trial, String> {
        if self.backing == Backing::None {
            return self.run_on(gpu, variables, false);
        }
        // Memory comes with the first write to it, and kernels write nothing: a device may be larger than this machine.
        let trial = self.run_on(gpu, variables, true)?;
        let starved = match trial.ending {
            Ending::Starved => true,
            // By the kernel, in a container whose limit is not the machine's.
            Ending::Signal { number: libc::SIGKILL } => trial.ooms == 0,
            _ => false,
        };
        if self.backing == Backing::Memory || !starved {
            return Ok(trial);
        }
        super::say("this machine's memory is full; once more on a device without content");
        self.run_on(gpu, variables, false)
    }

    fn run_on(&self, gpu: &Gpu, variables: &[(String, String)], backed: bool) -> Result<Trial, String> {
        let journals =
            Scratch::new().map_err(|error| format!("cannot create a directory for the journals: {error}"))?;
        let mut command = self.prepared(gpu, &journals.0, backed)?;
        for (name, value) in variables {
            // Flags are added to those of the job and of the virtual GPU.
            let added = if name == "XLA_FLAGS" { format!("{} {value}", self.xla_flags()) } else { value.clone() };
            command.env(name, added);
        }
        let began = Instant::now();
        let ending = self.watched(&mut command, backed && self.backing == Backing::Auto)?;
        let seconds = began.elapsed().as_secs_f64();
        let (mut processes, mut ooms, mut ran_out) = (0, 0, false);
        for path in runs::files(&journals.0).map_err(|error| error.to_string())? {
            let run = Run::open(&path).map_err(|error| error.to_string())?;
            ooms += run.oom_count();
            ran_out |= run.ran_out();
            processes += usize::from(run.devices().next().is_some());
        }
        Ok(Trial { ending, seconds, processes, ooms, context: self.context, peak: Peak::default(), ran_out, journals })
    }

    fn prepared(&self, gpu: &Gpu, dir: &Path, backed: bool) -> Result<Command, String> {
        let mut command = self.job.command()?;
        let list = |own: &Path, variable: &str| {
            let mut value = own.as_os_str().to_owned();
            if let Some(before) = self.job.variable(variable) {
                value.push(":");
                value.push(before);
            }
            value
        };
        let name =
            if gpu.name.is_empty() { "Virtual GPU".into() } else { gpu.name.chars().take(60).collect::<String>() };
        command
            .env("LD_LIBRARY_PATH", list(&self.vgpu, "LD_LIBRARY_PATH"))
            .env("LD_PRELOAD", library::preload_beside(self.job.variable("LD_PRELOAD"), &self.library))
            .env("VGPU_MEM", gpu.bytes.to_string())
            .env("VGPU_NAME", name)
            .env("VGPU_DEVICES", self.devices.to_string())
            .env("VGPU_CONTEXT", self.context.to_string())
            .envs(gpu.compute.map(|(major, minor)| ("VGPU_COMPUTE", format!("{major}.{minor}"))))
            .env("VGPU_BACKING", if backed { "memory" } else { "none" })
            .env("VGPU_SHARED", dir.join("devices"))
            .env("WEIR_DIR", dir)
            .env("WEIR_KEEP", "all")
            .env("WEIR_OOM_TEXT", "off")
            .env("WEIR_XLA", "off")
            .process_group(0);
        command.env("XLA_FLAGS", self.xla_flags());
        let output = || match &self.output {
            Output::Shown => Ok(Stdio::from(io::stderr())),
            Output::Hidden => Ok(Stdio::null()),
            Output::File(path) => std::fs::File::options()
                .append(true)
                .create(true)
                .open(path)
                .map(Stdio::from)
                .map_err(|error| format!("{}: {error}", path.display())),
        };
        command.stdout(output()?).stderr(output()?);
        Ok(command)
    }

    fn xla_flags(&self) -> String {
        let cuda = format!("--xla_gpu_cuda_data_dir={}", self.vgpu.join("cuda").display());
        let flags = self.job.variable("XLA_FLAGS").unwrap_or_default().to_string_lossy();
        format!("{flags} {cuda}").trim().to_owned()
    }

    /// Runs a command to its end, or to the end of its time, and with `frugal` until this machine's memory is nearly full.
    /// A signal to this command ends it, too.
    fn watched(&self, command: &mut Command, frugal: bool) -> Result<Ending, String> {
        signals::end_on_request();
        let name = self.job.name();
        let mut child = command.spawn().map_err(|error| format!("cannot run {name}: {error}"))?;
        let (group, began) = (Pid::from_child(&child), Instant::now());
        let mut stopping: Option<Instant> = None;
        let mut starved = false;
        let (mut looked, reserve) = (began, reserve(memory("MemTotal:")));
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| format!("lost {name}: {error}"))? {
                break status;
            }
            if frugal && !starved && looked.elapsed() > LOOK {
                looked = Instant::now();
                starved = memory("MemAvailable:") < reserve;
                if starved {
                    // At once: there is no time to ask.
                    signal(group, Signal::KILL);
                }
            }
            let over = self.limit.is_some_and(|limit| began.elapsed() > limit);
            match stopping {
                None if over || signals::end_requested() => {
                    stopping = Some(Instant::now());
                    signal(group, Signal::TERM);
                }
                Some(since) if since.elapsed() > GRACE => signal(group, Signal::KILL),
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if signals::end_requested() {
            return Err("stopped".into());
        }
        Ok(if starved { Ending::Starved } else { ending(status, stopping.is_some()) })
    }
}

fn ending(status: ExitStatus, stopped: bool) -> Ending {
    match (stopped, status.code(), status.signal()) {
        (true, ..) => Ending::Stopped,
        (_, Some(code), _) => Ending::Exit { code },
        (_, _, number) => Ending::Signal { number: number.unwrap_or(0) },
    }
}

fn signal(group: Pid, signal: Signal) {
    // It may have ended meanwhile.
    let _ = kill_process_group(group, signal);
}

/// What is left to this machine.
fn reserve(total: u64) -> u64 {
    (total / 16).max(256 << 20)
}

/// One of the kernel's figures for this machine's memory.
fn memory(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// A folder that goes away with its journals.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        for number in 0..1000 {
            let path = std::env::temp_dir().join(format!("weir-plan-{}-{number}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.map(|()| Self(path)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Adds the peak of another process: at worst both come at once.
fn add(sum: &mut Peak, other: Peak) {
    let first = sum.taken == 0;
    sum.taken += other.taken;
    sum.enough += other.enough;
    // One that is not known makes the sum so.
    sum.enough_stock = match (first, sum.enough_stock.zip(other.enough_stock)) {
        (true, _) => other.enough_stock,
        (false, both) => both.map(|(one, other)| one + other),
    };
    sum.live += other.live;
    sum.blocks += other.blocks;
    sum.at = sum.at.max(other.at);
    sum.incomplete |= other.incomplete;
    for (word, bytes) in other.roles {
        match sum.roles.iter_mut().find(|(known, _)| *known == word) {
            Some((_, sum)) => *sum += bytes,
            None => sum.roles.push((word, bytes)),
        }
    }
    sum.holders.extend(other.holders);
    sum.holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
}

/// Whether memory of this class is physical memory of a device: the pool's handles are, its blocks lie in them.
fn is_taken(class: Class) -> bool {
    class == Class::Handle || (is_held(class) && !matches!(class, Class::Block | Class::Overhead))
}

/// The most of something, and after how many events.
#[derive(Clone, Copy, Default)]
struct Most {
    bytes: u64,
    position: u64,
}

impl Most {
    fn note(&mut self, bytes: u64, position: u64) {
        if bytes > self.bytes {
            *self = Self { bytes, position };
        }
    }
}

/// What one device gave, going backwards.
#[derive(Clone, Copy, Default)]
struct Way {
    taken: u64,
    live: u64,
    most_taken: Most,
    most_live: Most,
}

/// The peak on each device that was used: by going backwards from what is live at the end. The pool keeps what it has
/// taken, so the most physical memory lasts; who held it is reported for the moment when the job held the most.
fn peaks(run: &Run) -> Result<HashMap<u8, Peak>, Error> {
    let reader = run.reader();
    let mut replay = reader.replay()?;
    let mut ways: HashMap<u8, Way> = HashMap::new();
    for device in reader.devices()?.iter().filter(|device| device.number < 63) {
        ways.insert(device.number, Way::default());
    }
    for entry in replay.live() {
        let Some(way) = ways.get_mut(&entry.device) else { continue };
        way.taken += if is_taken(entry.class) { entry.allocated } else { 0 };
        way.live += if is_held(entry.class) { entry.allocated } else { 0 };
    }
    let end = replay.position();
    for way in ways.values_mut() {
        way.most_taken.note(way.taken, end);
        way.most_live.note(way.live, end);
    }
    while let Some(slot) = replay.back()? {
        let Slot::Event(event) = slot else { continue };
        let Some(way) = ways.get_mut(&event.device) else { continue };
        let undone = |bytes: u64| match event.kind {
            Kind::Alloc => bytes.saturating_sub(event.allocated),
            Kind::Free => bytes.saturating_add(event.allocated),
            _ => bytes,
        };
        if is_taken(event.class) {
            way.taken = undone(way.taken);
            way.most_taken.note(way.taken, event.seq);
        }
        if is_held(event.class) {
            way.live = undone(way.live);
            way.most_live.note(way.live, event.seq);
        }
    }
    let mut found = HashMap::new();
    for (device, way) in ways {
        found.insert(device, peak_at(run, device, &way)?);
    }
    Ok(found)
}

/// Who held a device's memory when the job held the most of it.
fn peak_at(run: &Run, device: u8, way: &Way) -> Result<Peak, Error> {
    let reader = run.reader();
    let mut replay = reader.replay()?;
    let mut after = None;
    while replay.position() > way.most_live.position {
        match replay.back()? {
            Some(Slot::Event(event)) => after = Some(event.time),
            Some(Slot::Lost(_)) => {}
            None => break,
        }
    }
    let header = reader.header();
    let live: Vec<_> = replay.live().filter(|entry| entry.device == device).copied().collect();
    let newest = live.iter().map(|entry| entry.time).max();
    let taken = way.most_taken.bytes;
    Ok(Peak {
        taken,
        enough: enough(run, device, Policy::Weir).map_or(taken, |enough| enough.min(taken)),
        enough_stock: enough(run, device, Policy::Bfc),
        live: way.most_live.bytes,
        blocks: live.iter().filter(|entry| is_held(entry.class)).count() as u64,
        at: newest.or(after).map_or(0.0, |time| header.elapsed_ns(header.started.ticks, time) as f64 / 1e9),
        incomplete: header.counters.lapped > 0,
        roles: roles_of(&live, run),
        holders: holders_of(&live, reader),
    })
}

/// The least memory that serves the recorded requests, by replaying them through an allocator; none where some are missing or
/// they are too many.
fn enough(run: &Run, device: u8, policy: Policy) -> Option<u64> {
    let reader = run.reader();
    if reader.header().counters.lapped > 0 || reader.header().counters.events > MOST_REPLAYED {
        return None;
    }
    let requests = Requests::from_journal(&run.name(), reader, Some(device)).ok()?;
    let found = smallest_cap(&requests, &Settings::new(policy, requests.peak_live), &mut |_, _| {});
    found.map(|(cap, _)| cap)
}

/// What memory is for, by the names of the requesters.
fn roles_of(live: &[LiveEntry], run: &Run) -> Vec<(&'static str, u64)> {
    let mut sums: HashMap<&'static str, u64> = HashMap::new();
    for entry in live.iter().filter(|entry| is_held(entry.class)) {
        let (role, _) = roles::by_name(&run.who(entry.by), entry.class, entry.device);
        *sums.entry(role.word()).or_default() += entry.allocated;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(word, bytes)| (std::cmp::Reverse(*bytes), *word));
    sums
}
