//! `weir run`: starts a job under the library. Everything it does to the job is in its environment, so that
//! `--print-env` can print the same for a shell, a container or a cluster.

mod child;
mod environment;
mod flags;
mod processes;

use crate::{library, output, settings};
use environment::{Format, Variables};
use flags::Flags;
use processes::{Limit, Processes};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_forensics::{Fate, Run, runs};
use weir_ledger::{LedgerDir, control};
use weir_settings::Reading;
use weir_settings::size::parse_size;
use weir_settings::tensorflow::TfAllocator;

/// What `weir run` itself ends with when it cannot start the job, as env(1) does.
pub(crate) const OWN_FAILURE: u8 = 125;

/// Arguments of `weir run`. Every option but those of `weir run` itself stands for a variable of the library.
#[derive(clap::Args)]
#[command(
    after_long_help = "Exit code: that of the job; 128 + N if signal N ended it; 125 if weir could not start it or, \
with --strict, could not enforce its cap; 126 if the command is not executable; 127 if it does not exist.

--cap is the cap of the whole job: all processes that the command starts share it. Every value is checked before \
anything is started, also those of variables that are set already (docs/reference/environment.md).

Examples:
  weir run --cap 8GiB -- python train.py
  weir run --cap 8GiB --cap-per-process -- mpirun -n 4 ./job  8 GiB for each process
  weir run --group team-a --cap 50% -- python train.py        share one cap with others of the group
  weir run --vgpu 24GiB -- python train.py                    on the virtual GPU, without a real one
  weir run --cap 8GiB --print-env                             for a shell: eval \"$(weir run --cap 8GiB --print-env)\"
  weir run --cap 8GiB --print-env=k8s                         for a container specification
  weir run --json -- python train.py 2>log; tail -n 1 log | jq '.processes[].devices[].cap'"
)]
// Each is a switch of its own on the command line.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Arguments {
    #[command(flatten)]
    flags: Flags,
    /// Give each process of the job the whole cap, instead of one cap for all of them together
    #[arg(long, conflicts_with = "group")]
    cap_per_process: bool,
    /// Record nothing (WEIR_JOURNAL=off)
    #[arg(long, conflicts_with = "journal")]
    no_journal: bool,
    /// The directory of the journals and of the groups' ledgers (WEIR_DIR)
    #[arg(short = 'o', long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Exit with code 125 if the cap was not in force for the job (WEIR_STRICT=1)
    #[arg(long)]
    strict: bool,
    /// Run the job without a limit that cannot be enforced, instead of failing its cuInit (WEIR_STRICT=0)
    #[arg(long, conflicts_with = "strict")]
    no_strict: bool,
    /// Run on a virtual GPU with this much memory instead of a real one
    #[arg(long, value_name = "SIZE")]
    vgpu: Option<String>,
    /// The libweir.so to use, instead of the one beside this command
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Print the environment instead of running the job: shell, docker, k8s or slurm. Without --group the cap is then per
    /// process
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "shell", require_equals = true)]
    print_env: Option<Format>,
    /// Print nothing at the end
    #[arg(short, long)]
    quiet: bool,
    /// Print what weir chose for the job at the end, and why: the allocator of tensors, what the pool stands on
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Print the outcome as one line of JSON on standard error; with --print-env, print the variables as JSON
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
    let mut variables = variables(arguments)?;
    let reading = checked(&variables)?;
    if let Some(format) = arguments.print_env {
        match (arguments.json, format) {
            (false, format) => output::exact(&variables.printed(format)),
            (true, Format::Shell) => output::json(&variables.json(), true),
            (true, _) => return Err("--json is a format of its own; use --print-env --json".into()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let [command, rest @ ..] = &arguments.command[..] else {
        return Err("no command; usage: weir run --cap 8GiB -- python train.py".into());
    };
    let limit = Limit::of(&reading);
    let group = job_group(arguments, &reading, &mut variables)?;
    // Without a limit, --json or -v processes are not counted.
    let counted = arguments.json || arguments.verbose || reading.settings.limits();
    let processes = counted.then(|| Processes::begin(reading.settings.dir.as_deref(), &reading.settings.runs));
    if let Some(folders) = processes.as_ref().and_then(Processes::variable) {
        variables.set("WEIR_RUN", folders);
    }
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let ended = child::run(command, rest, &variables);
    let records = processes.map(Processes::end).unwrap_or_default();
    if let Some((place, name)) = &group {
        // Processes that the job left running keep their cap.
        control::remove_group(place, name);
    }
    let ended = ended?;
    if arguments.verbose {
        for line in processes::choices(&records) {
            eprintln!("weir: {line}");
        }
    }
    let lost = ended.pid.and_then(|_| limit.verdict(&records));
    if arguments.json {
        let runs: Vec<_> = ended.pid.map(|pid| own_runs(&reading, pid, started)).unwrap_or_default();
        let run = |run: &Run| {
            json!({"run": run.name(), "path": run.path().to_string_lossy(), "pid": run.pid(), "command": run.command(),
                "state": run.fate().word(), "oom": run.oom_count()})
        };
        let runs: Vec<_> = runs.iter().map(run).collect();
        let limit = limit.json(lost.as_deref());
        output::complain_json(
            &json!({"pid": ended.pid, "code": ended.code, "runs": runs, "processes": records, "limit": limit}),
        );
    } else if let (false, Some(pid)) = (arguments.quiet, ended.pid) {
        print_next(arguments, &own_runs(&reading, pid, started));
    }
    match lost {
        Some(lost) if arguments.strict => Err(format!("{lost}; --strict: exit code 125")),
        Some(lost) => {
            if !arguments.quiet && !arguments.json {
                eprintln!("weir: {lost}");
            }
            Ok(ExitCode::from(ended.code))
        }
        None => Ok(ExitCode::from(ended.code)),
    }
}

/// What the job gets from the flags.
fn variables(arguments: &Arguments) -> Result<Variables, String> {
    let mut variables = Variables::default();
    for (setting, flag, value) in arguments.flags.given() {
        setting.check(OsStr::new(value)).map_err(|bad| format!("--{flag} {bad}"))?;
        variables.set(setting.variable, value);
    }
    if arguments.no_journal {
        variables.set("WEIR_JOURNAL", "off");
    }
    if arguments.strict || arguments.no_strict {
        variables.set("WEIR_STRICT", if arguments.strict { "1" } else { "0" });
    }
    if let Some(dir) = &arguments.dir {
        let dir = std::path::absolute(dir).map_err(|error| format!("--dir {}: {error}", dir.display()))?;
        variables.set("WEIR_DIR", &dir);
    }
    let library = library::loadable(&library::find(arguments.library.as_deref())?)?;
    variables.set("LD_PRELOAD", library::preload(&library));
    if let Some(size) = &arguments.vgpu {
        match parse_size(size).map_err(|problem| format!("--vgpu {problem}"))? {
            0..0x400_0000 => return Err(format!("--vgpu {size}: less than 64 MiB; expected a size like 24GiB")),
            0x400_0000_0001.. => return Err(format!("--vgpu {size}: more than 4 TiB; expected a size like 24GiB")),
            _ => variables.add_virtual_gpu(size)?,
        }
    }
    // TensorFlow's own asynchronous allocator passes every tensor on; what the user chose stays. Without an explicit choice
    // the library decides in the process that loads TensorFlow, by the devices that it sees there.
    let wanted = reading(&variables).settings.tf_allocator == TfAllocator::Pool;
    if wanted && std::env::var_os("TF_GPU_ALLOCATOR").is_none() {
        variables.set("TF_GPU_ALLOCATOR", "cuda_malloc_async");
    }
    Ok(variables)
}

/// The settings that the job will have: those of the flags on top of the environment.
fn reading(variables: &Variables) -> Reading {
    let own: Vec<_> = variables.all().map(|(name, value)| (OsString::from(name), value.to_owned())).collect();
    let inherited = std::env::vars_os().filter(|(name, _)| !own.iter().any(|(other, _)| other == name));
    settings::of(inherited.chain(own.clone()))
}

/// The same, if every value can be honoured. A variable that is not known is left to the library, which reports it.
fn checked(variables: &Variables) -> Result<Reading, String> {
    let reading = reading(variables);
    match reading.problems.iter().find(|problem| problem.kind.is_some()) {
        None => Ok(reading),
        Some(problem) => {
            let inherited = problem.file.is_none() && !variables.all().any(|(name, _)| name == problem.variable);
            Err(format!("{}{}", if inherited { "in the environment, " } else { "" }, problem.text()))
        }
    }
}

/// The processes of a job with a cap are one group, unless they are in one already or each is to have the whole cap.
fn job_group(
    arguments: &Arguments,
    reading: &Reading,
    variables: &mut Variables,
) -> Result<Option<(LedgerDir, String)>, String> {
    let settings = &reading.settings;
    if !settings.limits() {
        return Ok(None);
    }
    let place = LedgerDir::from_variables(reading.own_dir.as_deref(), reading.runtime_dir.as_deref());
    if arguments.cap_per_process {
        if settings.group.is_some() {
            // An empty value is as good as none.
            variables.set("WEIR_GROUP", "");
        }
        return Ok(None);
    }
    place.prepare().map_err(|bad| format!("no directory for the ledger of the cap: {bad}"))?;
    if settings.group.is_some() {
        return Ok(None);
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    let name = format!("{JOB}{}-{time:x}", std::process::id());
    processes::sweep_groups(&place);
    variables.set("WEIR_GROUP", &name);
    Ok(Some((place, name)))
}

/// The beginning of the names of groups that `weir run` makes.
const JOB: &str = "job-";

/// What the job and its children recorded.
fn own_runs(reading: &Reading, pid: u32, started: u64) -> Vec<Run> {
    let Some(dir) = &reading.settings.dir else { return Vec::new() };
    let files = runs::files(dir).unwrap_or_default();
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

/// Prints one line with the command to type next.
fn print_next(arguments: &Arguments, own: &[Run]) {
    let place = arguments.dir.as_ref().map(|dir| format!(" --dir {}", dir.display())).unwrap_or_default();
    // A run that failed comes before one that went on after a refusal.
    let survived = |run: &Run| run.fate() == Fate::Alive || run.exit_status() == Some(0);
    match (own.iter().filter(|run| run.ran_out()).min_by_key(|run| survived(run)), own) {
        (Some(run), _) => {
            let what = match run.oom_count() {
                0 => "failed after requests for GPU memory were refused",
                _ if run.fate() == Fate::Alive => "still runs; requests for GPU memory were refused",
                _ if survived(run) => "exited normally, although requests for GPU memory were refused",
                _ => "ran out of GPU memory",
            };
            eprintln!("weir: {} {what}; next: weir report{place} {}", run.command(), run.name());
        }
        (None, [run]) => eprintln!("weir: recorded; next: weir report{place} {}", run.name()),
        (None, []) => {}
        (None, several) => eprintln!("weir: {} runs recorded; next: weir list{place}", several.len()),
    }
}
