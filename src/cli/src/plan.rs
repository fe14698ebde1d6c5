//! `weir plan`: runs a job on the virtual GPU, under weir, and reports whether it fits a real one of some size: its peak, the
//! smallest GPU that would do, and the largest batch by a line through a few runs.

mod fit;
pub(crate) mod gpus;
pub(crate) mod job;
pub(crate) mod trial;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use weir_settings::size::{parse_duration, parse_size};

use crate::screen::RunsDir;
use crate::{output, screen};
use fit::Line;
use gpus::Gpu;
use job::Job;
use trial::{Conditions, Ending, Output, Trial};
use weir_forensics::runs;

/// Arguments of `weir plan`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  weir plan --gpu 24GiB -- python train.py
  weir plan --gpu A100-40GB --sweep BATCH=16,32,64 -- python train.py     the job reads BATCH from its environment
  weir plan --gpu T4 --for 2min --json -- python train.py                 what the first two minutes take
  weir plan --gpu 24GiB 4711                                              the job of a recorded run

Limits: kernels compute nothing on the virtual GPU, so a job that stops when its numbers are bad may stop early.
Which memory it requests is real; workspaces of cuDNN and the like are models, and what a context takes is the
figure of --context. Nothing of this was measured on a GPU.")]
// Each is a switch of its own on the command line.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Arguments {
    /// The GPU: a size like 24GiB, or a name like A100-40GB, L4, RTX-4090 (see --list)
    #[arg(long, value_name = "SIZE|NAME", required_unless_present = "list")]
    gpu: Option<String>,
    /// List the GPUs that are known by name
    #[arg(long)]
    list: bool,
    /// Run once for each value of an environment variable and find the largest that fits
    #[arg(long, value_name = "NAME=N,N,…")]
    sweep: Option<String>,
    /// Memory that a context takes by itself on a device; the virtual GPU cannot know it
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = size)]
    context: u64,
    /// How many such GPUs there are; default: as many as the recorded job saw, else one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    devices: Option<u8>,
    /// Stop each run after this time and use what was seen until then
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    limit: Option<Duration>,
    /// Whether device memory has content: without it nothing that a job writes takes memory here, but what it reads back is 0
    #[arg(long, value_enum, default_value_t = Backing::Auto)]
    backing: Backing,
    /// Do not confirm the result by another run
    #[arg(long)]
    no_confirm: bool,
    /// Hide the output of the job
    #[arg(long, short)]
    quiet: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// The directory of the virtual GPU, instead of the one beside this command
    #[arg(long, value_name = "FOLDER")]
    vgpu: Option<PathBuf>,
    #[command(flatten)]
    place: RunsDir,
    /// A recorded run instead of a command: a file, a process id, or a name from `weir list`
    #[arg(value_name = "RUN", conflicts_with = "command")]
    run: Option<OsString>,
    /// The job
    #[arg(last = true, value_name = "CMD", required_unless_present_any = ["list", "run"])]
    command: Vec<String>,
}

/// Whether device memory has content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backing {
    /// Content, unless what the job writes fills this machine's memory: then once more without
    Auto,
    /// Device memory is host memory
    Memory,
    /// No content
    None,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// Runs `weir plan`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    screen::end("plan", answer(arguments))
}

fn answer(arguments: &Arguments) -> Result<ExitCode, String> {
    if arguments.list {
        if arguments.json {
            output::json(&gpus::all(), true);
        } else {
            put!("{}", gpus::listed());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let gpu = gpus::parse(arguments.gpu.as_deref().unwrap_or_default())?;
    let sweep = arguments.sweep.as_deref().map(Sweep::parse).transpose()?;
    let conditions = conditions(arguments)?;
    let plan = match &sweep {
        None => single(arguments, &conditions, &gpu)?,
        Some(sweep) => swept(arguments, &conditions, &gpu, sweep)?,
    };
    if arguments.json {
        output::json(&plan.json(), true);
    } else {
        put!("{}", words::page(&plan));
    }
    Ok(ExitCode::from(plan.code()))
}

/// What all runs have in common.
fn conditions(arguments: &Arguments) -> Result<Conditions, String> {
    let job = if let Some(name) = &arguments.run {
        let run = runs::find(Some(name), || arguments.place.folder()).map_err(|error| error.to_string())?;
        Job::recorded(&run).map_err(|why| format!("{} cannot be run again: {why}", run.name()))?
    } else {
        Job::typed(&arguments.command)?
    };
    let devices = arguments.devices.or(job.devices.map(|(many, _)| many)).unwrap_or(1);
    let mut conditions =
        Conditions::new(job, arguments.vgpu.as_deref(), devices, arguments.context)?.backed(arguments.backing);
    conditions.limit = arguments.limit;
    conditions.output = if arguments.quiet { Output::Hidden } else { Output::Shown };
    Ok(conditions)
}

/// What was found out.
struct Plan {
    command: String,
    gpu: Gpu,
    context: u64,
    /// The run on the GPU that was named; with a sweep, none.
    single: Option<Trial>,
    /// The run that shows what is needed: the same, or one on a GPU without bounds.
    needed: Option<Trial>,
    /// The smallest known GPU that would do, and whether a run on it went well.
    smallest: Option<(Gpu, Option<bool>)>,
    sweep: Option<Outcome>,
}

/// What a sweep found.
struct Outcome {
    name: String,
    points: Vec<(u64, Trial)>,
    line: Option<Line>,
    largest: Option<fit::Largest>,
    /// The value that was run on the named GPU, and whether it went well; the last one counts.
    confirmed: Vec<(u64, bool)>,
}

impl Plan {
    /// 0 it fits, 3 it does not, 1 there is no verdict.
    fn code(&self) -> u8 {
        match (&self.single, &self.sweep) {
            (Some(trial), _) => match trial.fits() {
                Some(true) => 0,
                Some(false) => 3,
                None => 1,
            },
            (None, Some(sweep)) => u8::from(sweep.largest.is_none()),
            (None, None) => 1,
        }
    }

    /// What stock TensorFlow would do: its own allocator needs so much, and leaves a part of the device free. None without
    /// figures, or where nothing was requested by an allocator's steps that could be replayed.
    fn stock(&self) -> Option<serde_json::Value> {
        let trial = self.needed.as_ref().or(self.single.as_ref()).filter(|trial| trial.fits() == Some(true))?;
        let (need, kept) = (trial.need_stock()?, self.gpu.kept_by_tensorflow());
        let fits = need.saturating_add(kept) <= self.gpu.bytes;
        Some(json!({"need": need, "kept": kept, "room": self.gpu.bytes.saturating_sub(kept), "fits": fits}))
    }

    fn json(&self) -> serde_json::Value {
        let sweep = self.sweep.as_ref().map(|sweep| {
            json!({
                "name": sweep.name,
                "points": sweep.points.iter().map(|(value, trial)| json!({"value": value, "run": trial})).collect::<Vec<_>>(),
                "line": sweep.line, "largest": sweep.largest, "confirmed": sweep.confirmed,
            })
        });
        json!({
            "command": self.command, "gpu": self.gpu, "context": self.context,
            "fits": self.single.as_ref().and_then(Trial::fits), "stock": self.stock(), "run": self.single, "needs": self.needed,
            "smallest": self.smallest.as_ref().map(|(gpu, good)| json!({"gpu": gpu, "confirmed": good})),
            "sweep": sweep,
        })
    }
}

/// A GPU that nothing is too large for.
fn boundless() -> Gpu {
    Gpu::sized(1 << 40)
}

fn say(text: &str) {
    eprintln!("weir plan: {text}");
}

fn single(arguments: &Arguments, conditions: &Conditions, gpu: &Gpu) -> Result<Plan, String> {
    say(&format!("running the job on a virtual GPU of {}", words::gpu(gpu)));
    let single = conditions.run(gpu, None)?;
    let mut needed = None;
    if single.fits() == Some(false) {
        say("it ran out of memory; running it on one without bounds, to see what it needs");
        needed = Some(conditions.run(&boundless(), None)?).filter(|trial| trial.fits() == Some(true));
    }
    let need = needed.as_ref().or(Some(&single)).filter(|trial| trial.fits() == Some(true)).map(Trial::need);
    let mut smallest = need.and_then(gpus::smallest).map(|gpu| (gpu, None));
    if let Some((candidate, good)) = &mut smallest {
        if candidate.bytes == gpu.bytes {
            *good = single.fits();
        } else if !arguments.no_confirm {
            say(&format!("confirming on {}", words::gpu(candidate)));
            *good = conditions.run(candidate, None)?.fits();
        }
    }
    Ok(Plan {
        command: conditions.job.words(),
        gpu: gpu.clone(),
        context: arguments.context,
        single: Some(single),
        needed,
        smallest,
        sweep: None,
    })
}

/// `BATCH=16,32,64`.
#[derive(Debug, PartialEq)]
struct Sweep {
    name: String,
    values: Vec<u64>,
}

impl Sweep {
    fn parse(text: &str) -> Result<Self, String> {
        let bad = |why: &str| format!("--sweep {text}: {why}; expected a variable and whole numbers, BATCH=16,32,64");
        let (name, values) = text.split_once('=').ok_or_else(|| bad("no '='"))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(bad("not a variable name"));
        }
        let values: Result<Vec<u64>, _> = values.split(',').map(|value| value.trim().parse()).collect();
        let mut values = values.map_err(|_| bad("not a whole number"))?;
        values.sort_unstable();
        values.dedup();
        match values.len() {
            0 | 1 => Err(bad("needs two values or more")),
            2..=50 => Ok(Self { name: name.to_owned(), values }),
            _ => Err(bad("more than 50 values")),
        }
    }
}

fn swept(arguments: &Arguments, conditions: &Conditions, gpu: &Gpu, sweep: &Sweep) -> Result<Plan, String> {
    let mut points = Vec::new();
    for value in &sweep.values {
        say(&format!("running the job with {}={value} on a virtual GPU without bounds", sweep.name));
        let trial = conditions.run(&boundless(), Some((&sweep.name, *value)))?;
        points.push((*value, trial));
    }
    let good: Vec<(f64, f64)> = points
        .iter()
        .filter(|(_, trial)| trial.fits() == Some(true))
        .map(|(value, trial)| (*value as f64, trial.need() as f64))
        .collect();
    let line = Line::through(&good);
    let largest = line.and_then(|line| line.largest(gpu.bytes as f64));
    let mut confirmed = Vec::new();
    if let (Some(largest), false) = (largest, arguments.no_confirm) {
        for value in largest.candidates() {
            say(&format!("confirming {}={value} on {}", sweep.name, words::gpu(gpu)));
            let good = conditions.run(gpu, Some((&sweep.name, value)))?.fits() == Some(true);
            confirmed.push((value, good));
            if good {
                break;
            }
        }
    }
    let outcome = Outcome { name: sweep.name.clone(), points, line, largest, confirmed };
    Ok(Plan {
        command: conditions.job.words(),
        gpu: gpu.clone(),
        context: arguments.context,
        single: None,
        needed: None,
        smallest: None,
        sweep: Some(outcome),
    })
}

/// How a run ended, in words.
impl Ending {
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Exit { code: 0 } => "ended well".into(),
            Self::Exit { code } => format!("ended with code {code}"),
            Self::Signal { number } => format!("was ended by signal {number}"),
            Self::Stopped => "was stopped after --for".into(),
            Self::Starved => "filled this machine's memory and was stopped".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_of_sweeps() {
        assert_eq!(Sweep::parse("BATCH=64, 16,16"), Ok(Sweep { name: "BATCH".into(), values: vec![16, 64] }));
        for bad in ["BATCH", "=1,2", "BATCH=", "BATCH=1", "BATCH=1,x", "1B=1,2", "A-B=1,2", "B=1,-2", "B=1.5,2"] {
            assert!(Sweep::parse(bad).is_err(), "{bad}");
        }
    }
}
