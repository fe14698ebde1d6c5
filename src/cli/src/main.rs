//! The weir command: one subcommand a file.

mod cap;
mod completions;
mod doctor;
mod library;
mod man;
mod probe;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Caps, pools and records the GPU memory of an unmodified CUDA job.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Tell whether weir works here: which driver, what is intercepted, which settings are in effect
    Doctor(doctor::Arguments),
    /// Show the caps of living jobs, or change one while the job runs
    Cap(cap::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Print or write the manual pages
    Man(man::Arguments),
    /// What `doctor` runs in a child under the preload; prints JSON
    #[command(hide = true)]
    Probe,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Cap(arguments) => cap::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
        Command::Probe => probe::run(),
    }
}
