//! `weir completions`: what a shell needs to complete weir's commands, options and runs. The scripts ask the command itself,
//! so that they know which runs there are. Prints, touches nothing.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::Shells;
use serde_json::json;
use weir_forensics::export::Format;
use weir_forensics::{Run, runs};
use weir_journal::text::plain;

use crate::{output, settings};

/// The variable by which a shell's script asks.
const ASKS: &str = "WEIR_COMPLETE";
/// Runs that are offered: what is older is found by `weir list`.
const MOST_RUNS: usize = 50;

/// Arguments of `weir completions`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  weir completions bash > ~/.local/share/bash-completion/completions/weir
  weir completions zsh > ~/.zfunc/_weir
  weir completions fish > ~/.config/fish/completions/weir.fish")]
pub(crate) struct Arguments {
    /// The shell
    shell: KnownShell,
    /// Print one JSON object with the script in it
    #[arg(long)]
    json: bool,
}

/// Shells that scripts are made for.
#[derive(Clone, Copy, ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

/// Answers a shell that asks for completions, and ends then.
pub(crate) fn answer_a_shell() {
    CompleteEnv::with_factory(crate::Arguments::command).var(ASKS).complete();
}

/// Runs `weir completions`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let shell = match arguments.shell {
        KnownShell::Bash => "bash",
        KnownShell::Zsh => "zsh",
        KnownShell::Fish => "fish",
    };
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let written =
        shells.completer(shell).map(|known| known.write_registration(ASKS, "weir", "weir", "weir", &mut script));
    if !matches!(written, Some(Ok(()))) {
        eprintln!("weir completions: no script for {shell}");
        return ExitCode::FAILURE;
    }
    if arguments.json {
        output::json(&json!({"shell": shell, "script": String::from_utf8_lossy(&script)}), true);
        return ExitCode::SUCCESS;
    }
    // A reader that has seen enough (head, less) is no failure.
    match io::stdout().write_all(&script) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("weir completions: cannot write: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Completes a format of `weir export`.
pub(crate) fn of_formats() -> ArgValueCandidates {
    ArgValueCandidates::new(|| Format::ALL.into_iter().map(|format| CompletionCandidate::new(format.name())).collect())
}

/// Completes the name of a run: those of the folder that the settings name, each with its command, and files.
pub(crate) fn of_runs() -> ArgValueCompleter {
    ArgValueCompleter::new(candidates)
}

fn candidates(current: &OsStr) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    let files = settings::directory().and_then(|dir| runs::files(&dir)).unwrap_or_default();
    let runs = files.iter().take(MOST_RUNS).filter_map(|path| Run::open(path).ok());
    let named = runs.filter(|run| run.name().starts_with(&*begun)).map(|run| {
        let how = if run.ran_out() { "out of memory" } else { run.fate().word() };
        CompletionCandidate::new(run.name()).help(Some(format!("{how}: {}", plain(&run.command())).into()))
    });
    let mut found: Vec<_> = named.collect();
    found.extend(
        PathCompleter::any()
            .filter(|path| path.extension().is_some_and(|end| end == "weir" || end == "weirrec"))
            .complete(current),
    );
    found
}
