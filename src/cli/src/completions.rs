//! `weir completions`: what a shell needs to complete weir's commands and options. Prints, touches nothing.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;
use serde_json::json;

use crate::output;

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

/// Runs `weir completions`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let shell = match arguments.shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::Arguments::command(), "weir", &mut script);
    if arguments.json {
        output::json(&json!({"shell": shell.to_string(), "script": String::from_utf8_lossy(&script)}), true);
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
