//! The weir command: one subcommand a file, each with its `Arguments` and a `run`. docs/reference/commands.md is made from
//! the same descriptions as `--help`.

#[macro_use]
mod output;

mod ascii;
mod cap;
mod cdi;
mod checks;
mod completions;
mod diff;
mod doctor;
mod export;
mod fleet;
mod gather;
mod gpu_check;
mod hyperlink;
mod library;
mod link;
mod list;
mod man;
mod mcp;
mod metrics;
mod plan;
mod probe;
mod progress;
mod record;
mod replay;
mod report;
mod rerun;
mod rm;
mod row;
mod run;
mod screen;
mod settings;
mod ship;
mod signals;
mod tail;
mod top;
mod watch;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Caps, pools and records the GPU memory of an unmodified CUDA job.
#[derive(Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "Examples:
  weir run --cap 8GiB -- python train.py     run a job with a cap of 8 GiB
  weir report                                why it ran out of memory, and what holds it
  weir help plan                             more about a command, with examples"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// In the order in which one needs them.
#[derive(Subcommand)]
enum Command {
    /// Run a job under weir: capped, pooled, recorded
    Run(run::Arguments),
    /// Report why a job ran out of memory, and what holds it
    Report(report::Arguments),
    /// List the recorded runs: command, process, state, peak, cap
    List(list::Arguments),
    /// Remove runs that have ended
    Rm(rm::Arguments),
    /// Copy journals of several machines into one folder
    Gather(gather::Arguments),
    /// Follow the events of a run as they happen
    Tail(tail::Arguments),
    /// Record every event of a run to a file, including those that its journal overwrites
    Record(record::Arguments),
    /// Show the caps of running jobs, or change one
    Cap(cap::Arguments),
    /// Check that weir works here: driver, intercepted functions, settings in effect
    Doctor(doctor::Arguments),
    /// Check a real GPU: one command, one file to send back
    GpuCheck(gpu_check::Arguments),
    /// Compare two runs: what grew, by role, operation and line
    Diff(diff::Arguments),
    /// Export a run to the format of another tool: memviz, pprof, perfetto, heaptrack, parquet, …
    Export(export::Arguments),
    /// Replay a recorded job: would it fit into less memory, or with another allocator?
    Replay(replay::Arguments),
    /// Watch running jobs: caps, growth, what holds the memory
    Top(top::Arguments),
    /// Find out on the virtual GPU whether a job fits a GPU, and the largest batch size that does
    Plan(plan::Arguments),
    /// Export metrics of running jobs to Prometheus
    Metrics(metrics::Arguments),
    /// Append the runs that have ended to a lake: a Parquet row each, in a folder or a bucket
    Ship(ship::Arguments),
    /// Show what a month of a lake's runs says: causes, lines, hours lost, caps that are too large
    Fleet(fleet::Arguments),
    /// Serve the recorded runs to an assistant by the Model Context Protocol
    Mcp(mcp::Arguments),
    /// Print a CDI spec: the library, caps and the journals' folder for containers
    Cdi(cdi::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Print or write the manual pages
    Man(man::Arguments),
    /// What `doctor` runs in a child under the preload; prints JSON
    #[command(hide = true)]
    Probe,
    /// What `gpu-check` runs in a child; prints lines of JSON
    #[command(hide = true)]
    GpuCheckStep(gpu_check::StepArguments),
}

fn main() -> ExitCode {
    screen::end_quietly_when_the_reader_has_gone();
    completions::answer_a_shell();
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() {
            // It quotes arguments, which may be names of files. clap ends it with a line end.
            eprintln!("{}", error.render().to_string().trim_end());
        } else if ascii::only() {
            put!("{}", error.render());
        } else {
            let _ = error.print();
        }
        // Under `weir run`, exit codes up to 124 are the job's.
        let running = std::env::args_os().nth(1).is_some_and(|first| first == "run");
        std::process::exit(if running && error.use_stderr() { run::OWN_FAILURE.into() } else { error.exit_code() })
    });
    match arguments.command {
        Command::Cap(arguments) => cap::run(&arguments),
        Command::Cdi(arguments) => cdi::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::GpuCheck(arguments) => gpu_check::run(&arguments),
        Command::GpuCheckStep(arguments) => gpu_check::run_step(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Rm(arguments) => rm::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Fleet(arguments) => fleet::run(&arguments),
        Command::Gather(arguments) => gather::run(&arguments),
        Command::Tail(arguments) => tail::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
        Command::Mcp(arguments) => mcp::run(&arguments),
        Command::Ship(arguments) => ship::run(&arguments),
        Command::Metrics(arguments) => metrics::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Probe => probe::run(),
    }
}
