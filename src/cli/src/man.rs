//! `weir man`: the manual pages and docs/reference/commands.md, made from the same descriptions as `--help`. Writes only into the directory of --out.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, Args, Command, CommandFactory};
use serde_json::json;

use crate::output;

/// Arguments of `weir man`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  weir man | man -l -
  weir man --out ~/.local/share/man/man1
  weir man --markdown > docs/reference/commands.md
  weir man --environment > docs/reference/environment.md")]
pub(crate) struct Arguments {
    /// Write one page per command into this directory (weir.1, weir-run.1, …) instead of printing weir(1)
    #[arg(long, value_name = "FOLDER", conflicts_with = "markdown")]
    out: Option<PathBuf>,
    /// Print all commands as one Markdown page
    #[arg(long)]
    markdown: bool,
    /// Print all settings as one Markdown page
    #[arg(long, conflicts_with_all = ["out", "markdown"])]
    environment: bool,
    /// Print JSON: the name and the text of the page, or the files that were written
    #[arg(long)]
    json: bool,
}

/// Runs `weir man`.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match answer(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let place = arguments.out.as_ref().map(|folder| format!("{}: ", folder.display())).unwrap_or_default();
            eprintln!("weir man: {place}{error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(arguments: &Arguments) -> io::Result<()> {
    let command = described();
    if let Some(folder) = &arguments.out {
        let files = write_pages(&command, folder)?;
        if arguments.json {
            output::json(&json!({"folder": folder.to_string_lossy(), "files": files}), true);
        }
        return Ok(());
    }
    let (name, text) = match (arguments.markdown, arguments.environment) {
        (true, _) => ("commands.md", markdown(&command).into_bytes()),
        (_, true) => ("environment.md", weir_settings::reference::markdown().into_bytes()),
        _ => ("weir.1", page(&command)?),
    };
    if arguments.json {
        output::json(&json!({"name": name, "text": String::from_utf8_lossy(&text)}), true);
        return Ok(());
    }
    print(&text)
}

/// The whole command, with every usage line worked out.
fn described() -> Command {
    let mut command = crate::Arguments::command().disable_help_subcommand(true);
    command.build();
    command
}

/// A reader that has seen enough (head, less) is no failure.
fn print(bytes: &[u8]) -> io::Result<()> {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).date("").render(&mut text)?;
    // What --help shows below its options, under the headings that man(7) has for it.
    let text = String::from_utf8_lossy(&text).replace("\n.SH EXTRA\nExamples:\n", "\n.SH EXAMPLES\n");
    let text = text.replace("\n.SH EXTRA\n", "\n.SH NOTES\n").replace("\nExamples:\n", "\n.SH EXAMPLES\n");
    let mut text = text.into_bytes();
    let mut more = String::new();
    entries(&mut more, "EXIT STATUS", statuses(command.get_name()).iter().copied());
    if command.get_name() == "run" {
        environment(&mut more);
    } else {
        entries(&mut more, "ENVIRONMENT", VARIABLES.into_iter());
    }
    entries(&mut more, "FILES", FILES.into_iter());
    text.extend(more.into_bytes());
    Ok(text)
}

/// Variables that every command reads.
const VARIABLES: [(&str, &str); 5] = [
    ("WEIR_DIR", "Where runs are. Default: $XDG_STATE_HOME/weir, else ~/.local/state/weir, else /tmp/weir-UID."),
    ("NO_COLOR", "If it is set and not empty, nothing has a colour."),
    ("LC_ALL, LC_CTYPE, LANG", "If the first of them that is set names no UTF-8, text is printed in ASCII."),
    ("TERM", "If it is dumb, text is printed in ASCII, and nothing moves."),
    ("COLUMNS, LINES", "The size of a page. Default: that of the terminal."),
];

/// Files that commands read or write.
const FILES: [(&str, &str); 6] = [
    ("~/.local/state/weir/SECONDS-PID.weir", "The journal of a process: a run. See WEIR_DIR."),
    ("~/.local/state/weir/SECONDS-PID.weir.oom.json", "What was live when it last ran out of memory."),
    ("~/.local/state/weir/SECONDS-PID.xla", "What XLA wrote of its arenas, with WEIR_XLA=on."),
    ("/dev/shm/weir-UID, /tmp/weir-UID", "Journals where the folder cannot be written to, or is remote or slow."),
    ("/etc/weir/weir.conf", "Settings of this machine: NAME=VALUE lines. Limits in it cannot be raised."),
    ("weir.conf beside libweir.so", "The same, read first."),
];

/// Exit codes of a command, and what they mean.
fn statuses(name: &str) -> &'static [(&'static str, &'static str)] {
    const ERROR: (&str, &str) = ("1", "An error; the reason is on standard error.");
    const ARGUMENTS: (&str, &str) = ("2", "Wrong arguments.");
    const DONE: (&str, &str) = ("0", "Success.");
    match name {
        "run" => &[
            ("that of the job", "The job ended by itself."),
            ("128 + N", "Signal N ended the job."),
            ("125", "weir could not start the job or, with \\-\\-strict, could not enforce its cap."),
            ("126", "The command is not executable."),
            ("127", "The command does not exist."),
        ],
        "report" => &[DONE, ERROR, ARGUMENTS, ("3", "With \\-\\-check or \\-\\-max\\-peak: it does not hold.")],
        "diff" => &[DONE, ERROR, ARGUMENTS, ("3", "With \\-\\-fail\\-above: the peak rose by more.")],
        "plan" => &[DONE, ERROR, ARGUMENTS, ("3", "The job does not fit.")],
        "replay" => &[DONE, ERROR, ARGUMENTS, ("4", "The job does not fit.")],
        "rm" => &[("0", "All were removed."), ("1", "Some were not; each has a line on standard error."), ARGUMENTS],
        "doctor" => &[("0", "No problem was found."), ("1", "A problem was found, or an error."), ARGUMENTS],
        "gpu-check" => &[("0", "Nothing unexpected was found."), ("1", "Something was found, or an error."), ARGUMENTS],
        _ => &[DONE, ERROR, ARGUMENTS],
    }
}

/// A section of a manual page. Marks of the page may stand in what is said, not in the names.
fn entries<'a>(text: &mut String, title: &str, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    let _ = writeln!(text, ".SH \"{title}\"");
    for (name, meaning) in rows {
        let _ = writeln!(text, ".TP\n\\fB{}\\fR\n{meaning}", escaped(name));
    }
}

/// Text that a manual page shows as it is.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// The section about the variables, from the table that the library reads.
fn environment(text: &mut String) {
    let row = |setting: &weir_settings::Setting| {
        let default = if setting.default.is_empty() { setting.default_note } else { setting.default };
        let (help, values, default) = (escaped(setting.help), escaped(setting.values), escaped(default));
        let bad = if setting.kind == weir_settings::Kind::Limit { "; a bad value makes cuInit fail" } else { "" };
        (setting.variable, format!("{help}: {values}. Default: {default}{bad}."))
    };
    let rows: Vec<_> = weir_settings::SETTINGS.iter().map(row).collect();
    entries(text, "ENVIRONMENT", rows.iter().map(|(name, meaning)| (*name, meaning.as_str())));
}

/// Writes a page a command; the names of the files.
fn write_pages(command: &Command, folder: &Path) -> io::Result<Vec<String>> {
    std::fs::create_dir_all(folder)?;
    let all = std::iter::once(("weir.1".to_owned(), command));
    let all = all.chain(visible(command).map(|sub| (format!("weir-{}.1", sub.get_name()), sub)));
    all.map(|(name, command)| std::fs::write(folder.join(&name), page(command)?).map(|()| name)).collect()
}

fn markdown(command: &Command) -> String {
    let mut text = String::from(
        "# Commands\n\nGenerated by `weir man --markdown` from the descriptions that `--help` shows; do not edit.\n\n",
    );
    for sub in visible(command) {
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "- [weir {}](#weir-{}): {}", sub.get_name(), sub.get_name(), first_line(&about));
    }
    for sub in visible(command) {
        section(sub, &format!("weir {}", sub.get_name()), &mut text);
    }
    text
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// One command, and its own commands if it has any.
fn section(command: &Command, name: &str, text: &mut String) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let _ = writeln!(text, "\n## {name}\n\n{}\n\n    {usage}", about.trim());
    let all = || command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help");
    table("argument", all().filter(|arg| arg.is_positional()), text);
    table("option", all().filter(|arg| !arg.is_positional()), text);
    if let Some(more) = command.get_after_long_help().or(command.get_after_help()) {
        // Indented lines are code, and a blank line has to stand before them; others are paragraphs.
        let mut paragraph = false;
        let _ = writeln!(text);
        for line in more.to_string().trim().lines() {
            let code = line.starts_with(' ');
            if code && paragraph {
                text.push('\n');
            }
            let _ = writeln!(text, "{}{line}", if code { "  " } else { "" });
            paragraph = !code && !line.is_empty();
        }
    }
    for sub in visible(command) {
        section(sub, &format!("{name} {}", sub.get_name()), text);
    }
}

fn table<'a>(title: &str, rows: impl Iterator<Item = &'a Arg>, text: &mut String) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    let _ = writeln!(text, "\n| {title} | meaning |\n|---|---|");
    for arg in rows {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let mut help = help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        let choices: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        if !choices.is_empty() && arg.get_action().takes_values() {
            let _ = write!(help, " (`{}`)", choices.join("`, `"));
        }
        let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() && arg.get_action().takes_values() {
            let _ = write!(help, " Default: `{}`.", defaults.join(" "));
        }
        let _ = writeln!(text, "| `{}` | {help} |", shape(arg).replace('|', "\\|"));
    }
}

/// How an argument is written: `-o, --out <FOLDER>`.
fn shape(arg: &Arg) -> String {
    let mut parts = Vec::new();
    parts.extend(arg.get_short().map(|short| format!("-{short}")));
    parts.extend(arg.get_long().map(|long| format!("--{long}")));
    let names: Vec<_> = arg.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>")).collect();
    let value = if names.is_empty() { format!("<{}>", arg.get_id().as_str().to_uppercase()) } else { names.join(" ") };
    if arg.is_positional() {
        return if arg.is_required_set() { value } else { value.replace('<', "[").replace('>', "]") };
    }
    let takes = arg.get_action().takes_values();
    if takes { format!("{} {value}", parts.join(", ")) } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_has_a_page_and_a_section() {
        let command = described();
        let text = markdown(&command);
        let folder = std::env::temp_dir().join(format!("weir-man-{}", std::process::id()));
        write_pages(&command, &folder).unwrap();
        for sub in visible(&command) {
            assert!(text.contains(&format!("\n## weir {}\n", sub.get_name())), "{}", sub.get_name());
            let page = std::fs::read_to_string(folder.join(format!("weir-{}.1", sub.get_name()))).unwrap();
            for section in ["SYNOPSIS", ".SH \"EXIT STATUS\"", ".SH \"ENVIRONMENT\"", ".SH \"FILES\""] {
                assert!(page.contains(section), "{section}: {page}");
            }
        }
        assert!(!text.contains("weir probe"), "a hidden command is shown");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_visible_command_can_answer_in_json() {
        // What these make is JSON.
        let made = |sub: &&Command| !["cdi", "gpu-check", "mcp"].contains(&sub.get_name());
        for sub in visible(&described()).filter(made) {
            assert!(sub.get_arguments().any(|arg| arg.get_long() == Some("json")), "weir {}", sub.get_name());
        }
    }

    #[test]
    fn the_descriptions_hold_together() {
        crate::Arguments::command().debug_assert();
    }
}
