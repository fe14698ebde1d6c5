//! `weir run`: starts a job under the library. Everything it does to the job is in its environment, so that
//! `--print-env` can say the same for a shell, a container or a cluster.

mod child;
mod environment;

use crate::library;
use environment::{Format, Variables};
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_forensics::{Run, runs};
use weir_ledger::settings::{self, CapSetting, OnCap};
use weir_ledger::size::parse_size;

/// What `weir run` itself ends with when it cannot start the job, as env(1) does.
pub(crate) const OWN_FAILURE: u8 = 125;

/// Arguments of `weir run`. Every option but those of `weir run` itself stands for a variable of the library.
#[derive(clap::Args)]
#[command(after_long_help = "The job's exit code is passed on; 128 + N for signal N, 125 if weir could not start it, \
126 if the command cannot be executed, 127 if there is none.

Examples:
  weir run --cap 8GiB -- python train.py
  weir run --group team-a --cap 50% -- python train.py        share one cap with others of the group
  weir run --vgpu 24GiB -- python train.py                    on the virtual GPU, without a real one
  weir run --cap 8GiB --print-env                             for a shell: eval \"$(weir run --cap 8GiB --print-env)\"
  weir run --cap 8GiB --print-env=k8s                         for a container specification
  weir run --json -- python train.py 2>log; tail -n 1 log | jq '.runs[].run'")]
// Each is a switch of its own on the command line.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Arguments {
    /// The cap of each device: 8GiB, 80%, 0=8GiB,1=50%, GPU-UUID=8GiB (WEIR_CAP)
    #[arg(long, value_name = "SIZE")]
    cap: Option<String>,
    /// Share one cap with all processes of this name (WEIR_GROUP)
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// What happens at the cap: fail, wait:30s or spill (WEIR_ON_CAP)
    #[arg(long, value_name = "WHAT")]
    on_cap: Option<String>,
    /// Warn when so much is used: 90% or a size (WEIR_WARN)
    #[arg(long, value_name = "SIZE")]
    warn: Option<String>,
    /// The pool: on, off, or its switches (WEIR_POOL)
    #[arg(long, value_name = "SWITCHES")]
    pool: Option<String>,
    /// Who serves TensorFlow's tensors: pool, or keep for TensorFlow's own allocator (WEIR_TF_ALLOCATOR)
    #[arg(long, value_name = "WHO")]
    tf_allocator: Option<String>,
    /// When native stacks are taken: off, sampled or all (WEIR_STACKS)
    #[arg(long, value_name = "WHEN")]
    stacks: Option<String>,
    /// How much the journal holds: events, or events,allocations (WEIR_RING)
    #[arg(long, value_name = "SIZE")]
    ring: Option<String>,
    /// How many journals of ended jobs are kept: 20, 4GiB, 20,4GiB or all (WEIR_KEEP)
    #[arg(long, value_name = "HOW-MANY")]
    keep: Option<String>,
    /// Record nothing (WEIR_JOURNAL=off)
    #[arg(long)]
    no_journal: bool,
    /// Where the journal goes (WEIR_DIR)
    #[arg(short = 'o', long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Fail at the first CUDA call if a setting cannot be honoured (WEIR_STRICT=1)
    #[arg(long)]
    strict: bool,
    /// Run on the virtual GPU with so much memory, instead of a real one
    #[arg(long, value_name = "SIZE")]
    vgpu: Option<String>,
    /// The libweir.so to use, instead of the one beside this command
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Print the environment instead of running: shell, docker, k8s or slurm
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "shell", require_equals = true)]
    print_env: Option<Format>,
    /// Say nothing at the end
    #[arg(short, long)]
    quiet: bool,
    /// Say how it ended as one line of JSON on standard error; with --print-env, print the variables as JSON
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Runs `weir run`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    answer(arguments).unwrap_or_else(|problem| {
        eprintln!("weir run: {problem}");
        ExitCode::from(OWN_FAILURE)
    })
}

fn answer(arguments: &Arguments) -> Result<ExitCode, String> {
    let variables = variables(arguments)?;
    if let Some(format) = arguments.print_env {
        match (arguments.json, format) {
            (false, format) => put!("{}", variables.printed(format)),
            (true, Format::Shell) => putln!("{:#}", variables.json()),
            (true, _) => return Err("--json is a format of its own: --print-env --json".into()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let [command, rest @ ..] = &arguments.command[..] else {
        return Err("no command; write it behind the options: weir run --cap 8GiB -- python train.py".into());
    };
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let ended = child::run(command, rest, &variables)?;
    if arguments.json {
        let runs: Vec<_> = ended.pid.map(|pid| own_runs(arguments, pid, started)).unwrap_or_default();
        let run = |run: &Run| {
            json!({"run": run.name(), "path": run.path().to_string_lossy(), "pid": run.pid(), "command": run.command(),
                "state": run.fate().word(), "oom": run.oom_count()})
        };
        let runs: Vec<_> = runs.iter().map(run).collect();
        eprintln!("{}", json!({"pid": ended.pid, "code": ended.code, "runs": runs}));
    } else if let (false, Some(pid)) = (arguments.quiet, ended.pid) {
        tell(arguments, pid, started);
    }
    Ok(ExitCode::from(ended.code))
}

/// What the job gets, checked as far as it can be before a device is known.
fn variables(arguments: &Arguments) -> Result<Variables, String> {
    let mut variables = Variables::default();
    let texts = [
        ("WEIR_CAP", "--cap", &arguments.cap),
        ("WEIR_GROUP", "--group", &arguments.group),
        ("WEIR_ON_CAP", "--on-cap", &arguments.on_cap),
        ("WEIR_WARN", "--warn", &arguments.warn),
        ("WEIR_POOL", "--pool", &arguments.pool),
        ("WEIR_TF_ALLOCATOR", "--tf-allocator", &arguments.tf_allocator),
        ("WEIR_STACKS", "--stacks", &arguments.stacks),
        ("WEIR_RING", "--ring", &arguments.ring),
        ("WEIR_KEEP", "--keep", &arguments.keep),
    ];
    for (name, option, value) in texts {
        if let Some(value) = value {
            check(name, value).map_err(|problem| format!("{option} {problem}"))?;
            variables.set(name, value);
        }
    }
    if arguments.no_journal {
        variables.set("WEIR_JOURNAL", "off");
    }
    if arguments.strict {
        variables.set("WEIR_STRICT", "1");
    }
    if let Some(dir) = &arguments.dir {
        let dir = std::path::absolute(dir).map_err(|error| format!("--dir {}: {error}", dir.display()))?;
        variables.set("WEIR_DIR", &dir);
    }
    let library = library::find(arguments.library.as_deref())?;
    variables.set("LD_PRELOAD", library::preload(&library));
    // TensorFlow's own asynchronous allocator passes every tensor on; what the user chose stays.
    let keep = arguments.tf_allocator.clone().or_else(|| std::env::var("WEIR_TF_ALLOCATOR").ok());
    if keep.as_deref() != Some("keep") && std::env::var_os("TF_GPU_ALLOCATOR").is_none() {
        variables.set("TF_GPU_ALLOCATOR", "cuda_malloc_async");
    }
    if let Some(size) = &arguments.vgpu {
        parse_size(size).map_err(|problem| format!("--vgpu {problem}"))?;
        variables.add_virtual_gpu(size)?;
    }
    Ok(variables)
}

fn check(name: &str, value: &str) -> Result<(), String> {
    let read = match name {
        "WEIR_CAP" => CapSetting::parse(value).map(drop),
        "WEIR_GROUP" => settings::parse_group(value).map(drop),
        "WEIR_ON_CAP" => OnCap::parse(value).map(drop),
        "WEIR_WARN" => settings::parse_warn(value).map(drop),
        "WEIR_KEEP" => return weir_journal::Keep::parse(value).map(drop),
        _ => Ok(()),
    };
    read.map_err(|problem| problem.to_string())
}

/// What the job and its children recorded.
fn own_runs(arguments: &Arguments, pid: u32, started: u64) -> Vec<Run> {
    let Some(dir) = arguments.dir.clone().or_else(runs::directory) else { return Vec::new() };
    let files = runs::files(&dir).unwrap_or_default();
    let since = files.iter().map_while(|path| {
        // Newest first: a file that was last changed before the job began ends the search.
        let changed = std::fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        (changed.as_nanos() as u64 >= started).then_some(path)
    });
    let (own, others): (Vec<Run>, Vec<Run>) = since
        .filter_map(|path| Run::open(path).ok())
        .filter(|run| run.header().started.realtime >= started && !run.reader().is_recording())
        .partition(|run| run.pid() == pid || run.header().identity.parent == pid);
    if own.is_empty() { others } else { own }
}

/// One line that says what to type next.
fn tell(arguments: &Arguments, pid: u32, started: u64) {
    let own = own_runs(arguments, pid, started);
    let place = arguments.dir.as_ref().map(|dir| format!(" --dir {}", dir.display())).unwrap_or_default();
    match (own.iter().find(|run| run.ran_out()), &own[..]) {
        (Some(run), _) if run.oom_count() == 0 => {
            let failed = "failed, and had tried for GPU memory in vain";
            eprintln!("weir: {} {failed}; next: weir report{place} {}", run.command(), run.name());
        }
        (Some(run), _) => {
            eprintln!("weir: {} ran out of GPU memory; next: weir report{place} {}", run.command(), run.name());
        }
        (None, [run]) => eprintln!("weir: recorded; next: weir report{place} {}", run.name()),
        (None, []) => {}
        (None, several) => eprintln!("weir: {} runs recorded; next: weir list{place}", several.len()),
    }
}

/// Where the virtual GPU is: beside this command as built or as installed.
pub(crate) fn virtual_gpu() -> Result<PathBuf, String> {
    let command = std::env::current_exe().map_err(|error| format!("this command's own path is not known: {error}"))?;
    let home = command.parent().map(std::path::Path::to_owned).unwrap_or_default();
    let candidates = [home.join("../vgpu"), home.join("../lib/weir/vgpu")];
    let found = candidates.iter().find(|dir| dir.join("libcuda.so.1").exists()).and_then(|dir| dir.canonicalize().ok());
    found.ok_or_else(|| {
        let tried: Vec<_> = candidates.iter().map(|dir| dir.display().to_string()).collect();
        format!("there is no virtual GPU (tried {}); scripts/build makes it", tried.join(", "))
    })
}
